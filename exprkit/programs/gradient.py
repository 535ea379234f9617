"""Lowering of gradients: each expression's value and its derivatives by all parameters as one program.

In: a population.  Out: a ``GradientProgram``, which the CPU backend runs.
The value comes first, so that a fit can stop at a value that is no good; parts that value and
derivatives have in common are computed once, and what does not depend on the data point
leaves the point loop as in ``lower``.

    >>> import exprkit as ek
    >>> from exprkit.programs.gradient import lower_gradients
    >>> print(lower_gradients(ek.parse(["p1 * exp(p2 * x1)"])).listing(0))
    t0 = mul u1, c0
    t0 = exp t0
    t1 = mul u0, t0
    t2 = strong_product c0, t1
    value = t1; by p1: t0; by p2: t2

Forward or reverse mode, whichever needs fewer instructions.  A ``GradientProgram`` is a
``lower.Program`` but for this: instructions never write ``out``; where value and derivatives
are found stands in ``results``.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from exprkit.expressions.dag import (
    FORWARD_MOST,
    FULL,
    NODES,
    NOTHING,
    Graph,
    adjoints,
    clear,
    derivative_rules,
    make_graph,
    node,
    number,
    read,
    start_derivatives,
    tangent,
)  # fmt: skip
from exprkit.expressions.population import Population
from exprkit.expressions.rewrite import COLUMN_NODE, NONE, POINT_NODE, UNIFORM_NODE, is_uniform, table_rules
from exprkit.operators import ops
from exprkit.programs.lower import COLUMN, SLOT, UNIFORM, Columns, Program, operand_text
from exprkit.runtime.jit import compiled
from exprkit.text.tokens import CONSTANT, PARAMETER, VARIABLE

POINT_COST = 16  # of an instruction for every point, beside one that runs once
FIRST_ROOM = 6  # instructions for each token; grows
COPY, ADD, MUL = np.int64(ops.COPY), np.int64(ops.ADD), np.int64(ops.MUL)
LOW = np.int64(-2)  # as operand b: the low part of the pair that is operand a
SLOTS, UNIFORMS, COLUMNS, NEEDED = range(4)  # of ``counts``: the most of each, and the room that was too small


@dataclass(frozen=True, eq=False)
class GradientProgram(Program):
    """Programs with several results.

    ==================  =======  ============  ==============================================
    array               dtype    shape         what it holds, besides what ``Program`` has
    ==================  =======  ============  ==============================================
    ``results``         int32    n_results     operands (a slot or a column): of an expression
                                               its value, then its derivative by each parameter
    ``first_result``    int64    n_exprs+1     results of expression i: first_result[i:i+2]
    ``n_value``         int32    n_exprs       how many instructions make the value, the
                                               prologue included
    ==================  =======  ============  ==============================================
    """

    results: np.ndarray = field(repr=False)
    first_result: np.ndarray = field(repr=False)
    n_value: np.ndarray = field(repr=False)

    def listing(self, i: int) -> str:
        """Program ``i`` as text, one instruction a line, and where its results are."""
        found = [operand_text(int(x)) for x in self.results[self.first_result[i] : self.first_result[i + 1]]]
        names = ["value =", *(f"by p{j + 1}:" for j in range(len(found) - 1))]
        lines = [super().listing(i), "; ".join(f"{name} {text}" for name, text in zip(names, found, strict=True))]
        return "\n".join(line for line in lines if line)


def lower_gradients(
    pop: Population, *, precision: str = "ieee", positive: np.ndarray | None = None, dtype: DTypeLike = np.float64
) -> GradientProgram:
    """Lower a population's values and derivatives; the arguments are those of ``lower.lower``.

    Returns
    -------
    GradientProgram
    """
    n_vars, n_exprs = int(pop.n_vars), len(pop)
    positive = np.zeros(max(n_vars, 1), np.bool_) if positive is None else positive
    with np.errstate(over="ignore", invalid="ignore"):
        numbers = pop.values.view(np.float64).astype(dtype).astype(np.float64)
    tokens = _GradientTokens(pop.kinds, pop.values, numbers, pop.offsets, np.asarray(pop.n_params, np.int32))
    columns = Columns(
        np.full(256 * max(n_vars, 1), -1, np.int32), np.empty(512 * max(n_vars, 1), np.uint8),
        np.empty(512 * max(n_vars, 1), np.int32),
    )  # fmt: skip
    offsets, first_const = np.zeros(n_exprs + 1, np.int64), np.zeros(n_exprs + 1, np.int64)
    first_result = np.concatenate([[0], np.cumsum(pop.n_params.astype(np.int64) + 1)])
    counts = np.zeros(4, np.int64)
    made = _GradientArrays(
        offsets, first_const, np.zeros(n_exprs, np.int32), np.zeros(n_exprs, np.int32),
        np.zeros(first_result[-1], np.int32), first_result,
    )  # fmt: skip
    rules = table_rules(precision), derivative_rules(), _logs()
    graph_room, room, done = 1, FIRST_ROOM * len(pop.kinds) + 64, 0
    parts: list[list[np.ndarray]] = []
    graph = make_graph(pop, positive, reverse=True, loose=True)
    scratch = _NodeScratch.make(graph, pop.max_params)
    while done < n_exprs or not parts:
        part = _Room(*(np.empty(room, dtype) for dtype in (np.uint8, np.int32, np.int32, np.int32, np.float64)))
        before = done
        done = _lower_from(done, tokens, graph, *rules, columns, scratch, made, part, counts)
        n_instr = made.offsets[done] - made.offsets[before]
        n_const = made.first_const[done] - made.first_const[before]
        parts.append([array[:n].copy() for array, n in zip(part, (n_instr,) * 4 + (n_const,), strict=True)])
        room = max(room, int(counts[NEEDED]))
        if graph.counts[FULL]:
            graph_room *= 2
            graph = make_graph(pop, positive, reverse=True, loose=True, room=graph_room)
            scratch = _NodeScratch.make(graph, pop.max_params)
    code, a, b, dst, constants = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return GradientProgram(
        code=code, a=a, b=b, dst=dst, offsets=offsets, n_prologue=made.n_prologue, constants=constants,
        first_const=first_const, n_params=tokens.n_params, column_code=columns.code[: counts[COLUMNS]].copy(),
        column_var=columns.var[: counts[COLUMNS]].copy(), n_slots=int(counts[SLOTS]), n_uniforms=int(counts[UNIFORMS]),
        precision=precision, results=made.results, first_result=first_result, n_value=made.n_value,
    )  # fmt: skip


@functools.cache
def _logs() -> tuple[np.ndarray, np.ndarray]:
    """By the code of a pair's operator: the operator that is a multiple of its high part, and the factor."""
    code, factor = np.full(256, NONE, np.uint8), np.zeros(256)
    for row in ops.BY_CODE.values():
        if row.rewrite.multiple_of:
            first = ops.BY_NAME[row.rewrite.multiple_of[0]].code
            code[first], factor[first] = row.code, row.rewrite.multiple_of[1]
    return code, factor


# ── the compiled pass ────────────────────────────────────────────────────────────────


class _GradientTokens(NamedTuple):
    kinds: np.ndarray
    values: np.ndarray
    numbers: np.ndarray
    offsets: np.ndarray
    n_params: np.ndarray


class _NodeScratch(NamedTuple):
    """For one expression; by node but for the last three."""

    live: np.ndarray
    uses: np.ndarray  # by instructions that are still to come, and by results
    place: np.ndarray  # operand, -1: not there yet
    stack: np.ndarray
    copied: np.ndarray  # operand of the copy that a uniform result has been given, -1: none
    taken: np.ndarray  # by slot: up to two a node (a pair's), and the copies
    forward: np.ndarray  # result -> node
    backward: np.ndarray

    @classmethod
    def make(cls, graph: Graph, max_params: int) -> _NodeScratch:
        size, most = len(graph.group), max_params + 1
        return cls(
            np.zeros(size, np.bool_), np.zeros(size, np.int32), np.zeros(size, np.int32), np.zeros(size, np.int32),
            np.zeros(size, np.int32), np.zeros(3 * size + 2, np.bool_), np.zeros(most, np.int32),
            np.zeros(most, np.int32),
        )  # fmt: skip


class _GradientArrays(NamedTuple):
    offsets: np.ndarray
    first_const: np.ndarray
    n_prologue: np.ndarray
    n_value: np.ndarray
    results: np.ndarray
    first_result: np.ndarray


class _Room(NamedTuple):
    """Where instructions and constants are written, from its beginning on."""

    code: np.ndarray
    a: np.ndarray
    b: np.ndarray
    dst: np.ndarray
    constants: np.ndarray


_part = compiled(forceinline=True)


@compiled
def _lower_from(first, tokens, graph, rules, derivatives, logs, columns, scratch, made, room, counts):
    """Lower the expressions from ``first`` on until all are done or there is no more room; says how far it came.

    There is room for an expression where there is some for all its nodes and for a copy of each.  Where there is
    none, NEEDED says for how many instructions, or the graph is FULL.
    """
    start_instr, start_const = made.offsets[first], made.first_const[first]
    for i in range(first, len(tokens.offsets) - 1):
        instr, const = made.offsets[i] - start_instr, made.first_const[i] - start_const
        begin, end = tokens.offsets[i], tokens.offsets[i + 1]
        n_params = np.int64(tokens.n_params[i])
        if begin < end:
            clear(graph)
            root = read(graph, rules, tokens, begin, end)
            _results(graph, rules, derivatives, scratch, root, n_params)
            results = scratch.forward[: n_params + 1]
            _stage(graph, rules, logs, scratch, results)
            if graph.counts[FULL]:
                return i
            _mark(graph, scratch, results)
            needed = 2 * graph.counts[NODES]
            if needed > len(room.code) - max(instr, const):
                counts[NEEDED] = needed
                return i
            uniforms, n_const, n_prologue = _place(graph, rules, scratch, columns, counts, room, instr, const, n_params)
            n_value, last, slots = _emit(
                graph, rules, scratch, results, room, instr + n_prologue, made.results, made.first_result[i]
            )
            made.n_prologue[i], made.n_value[i] = n_prologue, n_value - instr
            instr, const = last, const + n_const
            counts[SLOTS], counts[UNIFORMS] = max(counts[SLOTS], slots), max(counts[UNIFORMS], uniforms)
        made.offsets[i + 1], made.first_const[i + 1] = instr + start_instr, const + start_const
    return len(tokens.offsets) - 1


@compiled
def _results(graph, rules, derivatives, scratch, root, n_params):
    """Leave the nodes of value and derivatives in ``scratch.forward``: of the cheaper of the two modes."""
    start_derivatives(graph, root)
    forward, backward = scratch.forward, scratch.backward
    forward[0] = backward[0] = root
    if n_params <= FORWARD_MOST:
        for j in range(n_params):
            leaf = _leaf(graph, root, j)
            found = tangent(graph, rules, derivatives, root, leaf) if leaf >= 0 else np.int64(-1)
            if found < 0:
                found = number(graph, 0.0)
            forward[1 + j] = found
    if n_params > 1:
        adjoints(graph, rules, derivatives, root)
        for j in range(n_params):
            backward[1 + j] = -1
        for n in range(root + 1):
            if graph.group[n] == PARAMETER:
                backward[1 + graph.a[n]] = graph.tangent[n]
        for j in range(n_params):
            if backward[1 + j] < 0:
                backward[1 + j] = number(graph, 0.0)
        if n_params > FORWARD_MOST or _cost(graph, scratch, backward[: n_params + 1]) < _cost(
            graph, scratch, forward[: n_params + 1]
        ):
            for j in range(n_params + 1):  # a slice would bring all the text of its errors along
                forward[j] = backward[j]


@_part
def _leaf(graph, root, parameter):
    for n in range(root + 1):
        if graph.group[n] == PARAMETER and graph.a[n] == parameter:
            return n
    return -1


@compiled
def _mark(graph, scratch, results):
    """Mark all that the results need and count how often each node is used."""
    n_nodes = graph.counts[NODES]
    scratch.live[:n_nodes] = False
    scratch.uses[:n_nodes] = 0
    depth = 0
    for n in results:
        scratch.uses[n] += 1
        if not scratch.live[n]:
            scratch.live[n] = True
            scratch.stack[depth] = n
            depth += 1
    while depth > 0:
        depth -= 1
        n = scratch.stack[depth]
        if graph.group[n] != POINT_NODE and graph.group[n] != UNIFORM_NODE:
            continue
        for operand in (graph.a[n], graph.b[n]):
            if operand >= 0:
                scratch.uses[operand] += 1
                if not scratch.live[operand]:
                    scratch.live[operand] = True
                    scratch.stack[depth] = operand
                    depth += 1


@compiled
def _cost(graph, scratch, results):
    _mark(graph, scratch, results)
    cost = 0
    for n in range(graph.counts[NODES]):
        if scratch.live[n]:
            cost += POINT_COST if graph.group[n] == POINT_NODE else 1
    return cost


@compiled
def _stage(graph, rules, logs, scratch, results):
    """Do the first of two stages once where it can be (``split`` and ``multiple_of`` of the table)."""
    _mark(graph, scratch, results)
    log_of, factor = logs
    n_nodes = graph.counts[NODES]
    for n in range(n_nodes):
        if not scratch.live[n] or graph.group[n] != POINT_NODE or rules.first[graph.code[n]] == NONE:
            continue
        first, a, other = np.int64(rules.first[graph.code[n]]), np.int64(graph.a[n]), -1
        group = UNIFORM_NODE if is_uniform(a, graph) else COLUMN_NODE if graph.group[a] == VARIABLE else POINT_NODE
        if group == POINT_NODE:
            for m in range(results[0] + 1, n_nodes):  # derivatives only: where the log is -inf this is nan
                if graph.code[m] == log_of[first] and graph.a[m] == a and scratch.live[m]:
                    other = m
                    break
            if other < 0:
                continue
        pair = node(graph, np.int64(group), first, a, NOTHING, np.uint64(0))
        graph.code[n], graph.a[n] = rules.rest[graph.code[n]], pair
        if other >= 0:
            sum_of_parts = node(graph, np.int64(POINT_NODE), ADD, pair, LOW, np.uint64(0))
            graph.code[other], graph.a[other], graph.b[other] = MUL, sum_of_parts, number(graph, factor[first])


@compiled
def _place(graph, rules, scratch, columns, counts, room, instr, const, n_params):
    """Give every leaf, column and uniform its operand and write the prologue.

    Gives the number of uniforms, of constants and of instructions.
    """
    n_const, start = 0, instr
    for n in range(graph.counts[NODES]):
        scratch.place[n] = -1
        if scratch.live[n] and graph.group[n] == CONSTANT:
            room.constants[const + n_const] = graph.numbers[graph.a[n]]
            scratch.place[n] = ((n_params + n_const) << 2) | UNIFORM
            n_const += 1
    uniform = n_params + n_const
    for n in range(graph.counts[NODES]):
        group = graph.group[n]
        if not scratch.live[n]:
            continue
        if group == PARAMETER:
            scratch.place[n] = (graph.a[n] << 2) | UNIFORM
        elif group == UNIFORM_NODE:
            scratch.place[n] = (uniform << 2) | UNIFORM
            _write(graph, scratch, room, instr, n)
            instr, uniform = instr + 1, uniform + rules.width[graph.code[n]]
        elif group == VARIABLE:
            scratch.place[n] = (_column(COPY, np.int64(graph.a[n]), rules, columns, counts) << 2) | COLUMN
        elif group == COLUMN_NODE:
            var = np.int64(graph.a[graph.a[n]])
            scratch.place[n] = (_column(np.int64(graph.code[n]), var, rules, columns, counts) << 2) | COLUMN
    return uniform, n_const, instr - start


@_part
def _column(code, var, rules, columns, counts):
    """The column of ``code(variable)``, made where there is none yet."""
    column = columns.of[var * 256 + code]
    if column < 0:
        column = columns.of[var * 256 + code] = counts[COLUMNS]
        for part in range(rules.width[code]):
            columns.code[column + part], columns.var[column + part] = code, var
        counts[COLUMNS] += rules.width[code]
    return column


@compiled
def _emit(graph, rules, scratch, results, room, instr, places, first):
    """Write the point instructions, operands first, one result after the other.

    Gives the end of the value's instructions, of all, and the number of slots.
    """
    scratch.taken[: 3 * graph.counts[NODES] + 2] = False
    scratch.copied[: graph.counts[NODES]] = -1
    n_slots, n_value = 0, instr
    for k, result in enumerate(results):
        depth = 1
        scratch.stack[0] = result
        while depth > 0:
            n = scratch.stack[depth - 1]
            if scratch.place[n] >= 0:
                depth -= 1
                continue
            a, b = graph.a[n], graph.b[n]
            if scratch.place[a] < 0:
                scratch.stack[depth] = a
                depth += 1
            elif b >= 0 and scratch.place[b] < 0:
                scratch.stack[depth] = b
                depth += 1
            else:
                depth -= 1
                _release(graph, rules, scratch, a)
                if b >= 0:
                    _release(graph, rules, scratch, b)
                slot = _free_slots(scratch, rules.width[graph.code[n]])
                n_slots = max(n_slots, slot + int(rules.width[graph.code[n]]))
                scratch.place[n] = (slot << 2) | SLOT
                _write(graph, scratch, room, instr, np.int64(n))
                instr += 1
        places[first + k] = scratch.place[result]
        if is_uniform(result, graph):
            if scratch.copied[result] < 0:
                slot = _free_slots(scratch, np.uint8(1))
                n_slots = max(n_slots, slot + 1)
                scratch.copied[result] = (slot << 2) | SLOT
                room.code[instr], room.a[instr], room.b[instr], room.dst[instr] = (
                    COPY, scratch.place[result], -1, (slot << 2) | SLOT
                )  # fmt: skip
                instr += 1
            places[first + k] = scratch.copied[result]
        if k == 0:
            n_value = instr
    return n_value, instr, n_slots


@_part
def _release(graph, rules, scratch, n):
    """One use less of a node; its slots are free after the last one."""
    scratch.uses[n] -= 1
    if scratch.uses[n] == 0 and graph.group[n] == POINT_NODE:
        slot = scratch.place[n] >> 2
        for part in range(rules.width[graph.code[n]]):
            scratch.taken[slot + part] = False


@_part
def _free_slots(scratch, width):
    """Take the first slots that are free, ``width`` in a row."""
    slot = 0
    while scratch.taken[slot] or (width == 2 and scratch.taken[slot + 1]):
        slot += 1
    for part in range(width):
        scratch.taken[slot + part] = True
    return slot


@_part
def _write(graph, scratch, room, instr, n):
    a, b = graph.a[n], graph.b[n]
    room.code[instr], room.a[instr], room.dst[instr] = graph.code[n], scratch.place[a], scratch.place[n]
    room.b[instr] = scratch.place[b] if b >= 0 else scratch.place[a] + 4 if b == LOW else -1
