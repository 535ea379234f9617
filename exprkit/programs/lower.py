"""Lowering: from postfix expressions to three-address programs, of values or of values with derivatives.

In: a population.  Out: a ``Program``, or a ``GradientProgram`` of values and derivatives by all parameters.
Leaves are operands, never instructions; work that does not depend on the data point leaves the point loop.

    >>> import exprkit as ek
    >>> from exprkit.programs.lower import lower, lower_gradients
    >>> print(lower(ek.parse(["p1 * exp(p2 * x1)"])).listing(0))
    t0 = mul u1, c0
    t0 = exp t0
    out = mul u0, t0
    >>> print(lower_gradients(ek.parse(["p1 * exp(p2 * x1)"])).listing(0))
    t0 = mul u1, c0
    t0 = exp t0
    t1 = mul u0, t0
    t2 = strong_product c0, t1
    value = t1; by p1: t0; by p2: t2

What is done with each expression, plainly::

    read its tokens into a graph, by the table's rewrite rules
    with derivatives: add them to the graph, forwards or backwards, whichever costs less
    do in two stages what has a first stage that need not be done for every point
    count how often each node is used: those that nobody uses are left out
    give leaves, columns and uniforms their operands, and write the prologue
    write the point instructions, operands first, each into the first slot that is free

One pass makes both.  It is compiled once without derivatives and once with them (Numba drops what stands
behind ``if derivatives is not None`` where the argument is None).  A value alone is a tree, in which
equal parts stay apart unless they are uniforms, and the operand that needs more slots is computed first; with
derivatives equal parts are one node, the first operand comes first, and the value before the derivatives, so
that a fit can stop at a value that is no good.  Equal parts are one node of a value alone, too, where the
population ``shares`` them: a formula of the user's that names an operand twice has it computed once.
(Of the thesis's expressions no instruction would be saved by that, of random trees of 10 to 50 tokens 0.1 %, of laws
of physics 2 %, and each would take a slot; the transpiler computes a bundle's equal instructions once.)

Nothing is simplified that an inf or nan would tell: ``x1 - x1``, ``x1 / x1`` and ``p1 - p1`` are computed, in "fast" as
in "ieee", since inf - inf and 0 / 0 are nan.

Used by the transpiler, by all derivatives, and, translated, for a GPU's bytecode; the CPU backend's values are lowered
by ``in_order``, in half the time.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from exprkit.expressions.dag import (
    FORWARD_MOST,
    FULL,
    NO_BITS,
    NODES,
    NOTHING,
    DerivativeRules,
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
)
from exprkit.expressions.population import Population
from exprkit.expressions.rewrite import (
    COLUMN_NODE,
    NONE,
    POINT_NODE,
    UNIFORM_NODE,
    Rules,
    group_of,
    is_uniform,
    rewrite,
    table_rules,
)
from exprkit.operators import ops
from exprkit.programs.emit import (
    COLUMNS,
    DONE,
    LOW,
    NodeScratch,
    Output,
    Room,
    emit_results,
    emit_shared,
    emit_tree,
    packs,
    place,
    use_zero,
)
from exprkit.programs.parts import Part, joined
from exprkit.programs.program import GradientProgram, Program
from exprkit.runtime import machine, ranges, slices
from exprkit.runtime.bags import empty, zeros
from exprkit.runtime.jit import compiled, inline
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

POINT_COST = 16  # of an instruction for every point, beside one that runs once
MOST_SLOTS = 256  # of an expression whose parts are shared
FIRST_ROOM = 6  # instructions for each token, with derivatives; grows
MOST_OF_A_NODE = 5  # instructions: where parts are shared nine for what packs operands and the function that takes them


@ranges.shown("lower")
def lower(
    pop: Population,
    *,
    precision: str = "ieee",
    positive: np.ndarray | None = None,
    dtype: DTypeLike = np.float64,
    threads: int | None = None,
) -> Program:
    """Lower a population's values.

    ==============  ==============================================================================================
    ``precision``   "ieee" or "fast": some rules of the operator table hold for one of them only
    ``positive``    bool (n_vars,): True for a variable that has no negative value and no -0 in the data
    ``dtype``       that the programs run in: constants are rounded to it before a rule looks at them
    ``threads``     by default as many as this process may use; the program is the same for any number
    ==============  ==============================================================================================
    """
    return Program(**_programs(pop, None, precision, positive, dtype, threads))


def lower_gradients(pop: Population, **settings: Any) -> GradientProgram:
    """Lower a population's values and derivatives; the arguments are those of ``lower``."""
    return GradientProgram(**_programs(pop, derivative_rules(), **settings))


def _programs(
    pop: Population,
    derivatives: DerivativeRules | None,
    precision: str = "ieee",
    positive: np.ndarray | None = None,
    dtype: DTypeLike = np.float64,
    threads: int | None = None,
) -> dict[str, Any]:
    """The fields of a program, made in parts that threads share."""
    pop = pop.expanded()
    n_vars, rules = max(int(pop.n_vars), 1), table_rules(precision)
    shares = pop.shares and derivatives is None
    positive = np.zeros(n_vars, np.bool_) if positive is None else positive
    n_params, numbers = np.asarray(pop.n_params, np.int32), pop.values.view(np.float64)
    numbers = numbers if dtype == np.float64 else np.empty_like(numbers)
    n_results = n_params.astype(np.int64) + 1 if derivatives is not None else np.zeros(0, np.int64)
    first_result = np.concatenate([[0], np.cumsum(n_results)])
    results, (n_prologue, n_value) = np.zeros(first_result[-1], np.int32), np.zeros((2, len(pop)), np.int32)

    def lower_part(begin: int, end: int) -> Part:
        tokens = Postfix(pop.kinds, pop.values, numbers, pop.offsets[begin : end + 1], n_params[begin:end])
        _round(tokens, dtype)
        output = zeros(
            Output,
            totals=np.zeros(slices.APART, np.int64),
            column_of=np.full(256 * n_vars, -1, np.int32),
            most_columns=512 * n_vars,
            n_offsets=end - begin + 1,
            n_prologue=n_prologue[begin:end],
            n_value=n_value[begin:end],
            first_result=first_result[begin:],
            results=results,
        )
        code, a, b, dst, constants = _lowered(tokens, rules, derivatives, positive, output, shares)
        column_code, column_var = (x[: output.totals[COLUMNS]].copy() for x in (output.column_code, output.column_var))
        mine = results[first_result[begin] : first_result[end]] if derivatives is not None else results
        return Part(
            code, a, b, dst, constants, output.offsets, output.first_const, column_code, column_var, mine, output.totals
        )

    least = slices.LEAST if derivatives is None else slices.LEAST // 8
    cuts = slices.short(pop.offsets, threads, max(least, 256 * n_vars))  # each has a table of columns
    fields = joined(slices.each(lower_part, cuts, threads=threads or machine.cores()), cuts, rules.width)
    if shares and fields["n_slots"] > MOST_SLOTS:  # an accumulator names no more; trees need far fewer
        shares = False
        fields = joined(slices.each(lower_part, cuts, threads=threads or machine.cores()), cuts, rules.width)
    fields |= dict(n_prologue=n_prologue, n_params=n_params, precision=precision, shared=shares)
    if derivatives is not None:
        fields |= dict(results=results, first_result=first_result, n_value=n_value)
    return fields


def _lowered(
    tokens: Postfix,
    rules: Rules,
    derivatives: DerivativeRules | None,
    positive: np.ndarray,
    output: Output,
    shares: bool,
) -> list[np.ndarray]:
    """The code, a, b, dst and constants of a part; of a value alone as graphs, where they ``share``, else as trees."""
    n_exprs, n_tokens = len(tokens.n_params), int(tokens.offsets[-1] - tokens.offsets[0])
    graph_room, done = 1, 0
    pieces: list[list[np.ndarray]] = []
    while done < n_exprs or not pieces:
        if derivatives is not None:
            graph = make_graph(tokens, positive, reverse=True, inexact=True, room=graph_room)
        elif shares:
            graph = make_graph(tokens, positive, reverse=False, inexact=False, room=graph_room)
        else:
            graph = _tree(tokens, positive)
        most = len(graph.group)
        scratch = zeros(NodeScratch, n=most, n_slots=3 * most + 2, n_results=int(tokens.n_params.max(initial=0)) + 1)
        room = empty(Room, n=(1 if derivatives is None else FIRST_ROOM) * n_tokens + MOST_OF_A_NODE * most)
        begin = done
        _lower_some(tokens, graph, rules, derivatives, scratch, output, room)
        done = int(output.totals[DONE])
        n_instr, n_const = (int(first[done] - first[begin]) for first in (output.offsets, output.first_const))
        pieces.append([array[:n] for array, n in zip(room, (n_instr,) * 4 + (n_const,), strict=True)])
        graph_room *= 2 if graph.counts[FULL] else 1
    # mostly one piece, which is not copied: memory that has not been written to takes no room
    return pieces[0] if len(pieces) == 1 else [np.concatenate(arrays) for arrays in zip(*pieces, strict=True)]


def _round(tokens: Postfix, dtype: DTypeLike) -> None:
    """Round the constants to the type of the data."""
    mine = slice(tokens.offsets[0], tokens.offsets[-1])
    if dtype != np.float64:
        with np.errstate(over="ignore", invalid="ignore"):
            tokens.numbers[mine] = tokens.values[mine].view(np.float64).astype(dtype)


def _tree(tokens: Postfix, positive: np.ndarray) -> Graph:
    """Room for the tree of any expression: a graph without a hash table, its constants those of the tokens."""
    most, unused = max(2 * int(np.diff(tokens.offsets).max(initial=1)), slices.APART), np.empty(0, np.int32)
    return empty(
        Graph,
        n=most,
        n_slots=0,
        n_values=0,
        numbers=tokens.numbers,
        values=tokens.values,
        positive=positive,
        stamp=unused,
        counts=np.zeros(slices.APART, np.int64),
    )


# ── the compiled pass ────────────────────────────────────────────────────────────────


class Postfix(NamedTuple):
    """The tokens of all expressions."""

    kinds: np.ndarray
    values: np.ndarray
    numbers: np.ndarray  # the same 8 bytes as a constant, rounded to the type of the data
    offsets: np.ndarray
    n_params: np.ndarray


@compiled
def _lower_some(tokens, graph, rules, derivatives, scratch, output, room):
    """Lower the expressions that are not DONE until all are or there is no more room.

    There is room for an expression where there is some for MOST_OF_A_NODE times its nodes, or the graph is FULL.
    """
    shared = derivatives is None and len(graph.place) > 0
    first = output.totals[DONE]
    start_instr, start_const = output.offsets[first], output.first_const[first]
    for i in range(first, len(tokens.offsets) - 1):
        instr, const = output.offsets[i] - start_instr, output.first_const[i] - start_const
        begin, end = tokens.offsets[i], tokens.offsets[i + 1]
        if begin < end:
            n_params, n_results = tokens.n_params[i], 1
            if shared:
                clear(graph)
                root = scratch.forward[0] = read(graph, rules, tokens, begin, end)
                number(graph, -0.0)
            elif derivatives is None:
                root = scratch.forward[0] = read_tree(graph, rules, scratch, tokens, begin, end)
            else:
                clear(graph)
                root = read(graph, rules, tokens, begin, end)
                _differentiate(graph, rules, derivatives, scratch, root, n_params)
                n_results += n_params
            n_const, n_point = mark(graph, scratch, scratch.forward, n_results)
            if derivatives is not None or shared:
                n_const += _stage(graph, rules, scratch, root)
            if shared:
                n_const += use_zero(graph, scratch)
            if graph.counts[FULL] or MOST_OF_A_NODE * graph.counts[NODES] > len(room.code) - max(instr, const):
                return
            numbers = instr, const, n_params, n_params + n_const
            n_prologue = place(graph, rules, scratch, output, room, numbers)
            output.n_prologue[i] = n_prologue
            instr, const = instr + n_prologue, const + n_const
            if shared:
                instr = emit_shared(graph, rules, scratch, output, room, instr, root)
            elif derivatives is None:
                instr += max(n_point, 1)
                emit_tree(graph, scratch, output, room, instr, root)
            else:
                places = output.first_result[i], n_results
                instr, n_value = emit_results(graph, rules, scratch, output, room, instr, places)
                output.n_value[i] = n_prologue + n_value
        output.offsets[i + 1], output.first_const[i + 1] = instr + start_instr, const + start_const
        output.totals[DONE] = i + 1


@inline
def read_tree(graph, rules, scratch, tokens, begin, end):
    """Read postfix tokens into nodes, equal parts apart, what has two stages in both; gives the root."""
    n = depth = 0
    for t in range(begin, end):
        kind = tokens.kinds[t]
        if kind != OPERATOR:
            graph.group[n], graph.code[n], scratch.need[n] = kind, NONE, 0
            graph.a[n] = t if kind == CONSTANT else tokens.values[t]
            graph.stack[depth] = n
            n, depth = n + 1, depth + 1
            continue
        code, b = np.int64(tokens.values[t]), NOTHING
        if rules.arity[code] == 2:
            depth -= 1
            b = graph.stack[depth]
        code, a, b = rewrite(code, graph.stack[depth - 1], b, rules, graph)
        if code == ops.COPY:
            graph.stack[depth - 1] = a
            continue
        if code == ops.PAIR_OF and graph.group[a] != POINT_NODE:  # b goes beside it
            graph.group[n], graph.code[n], graph.a[n], graph.b[n] = POINT_NODE, ops.COPY, a, -1
            scratch.need[n] = 1
            a, n = n, n + 1
        if graph.code[a] == ops.PAIR_OF and is_uniform(b, graph):
            _unpack_numbers(graph, a)
        group, first = group_of(a, b, graph), rules.first[code]
        if group == POINT_NODE and first != NONE and (graph.group[a] == VARIABLE or is_uniform(a, graph)):
            graph.group[n], graph.code[n], graph.a[n] = group_of(a, -1, graph), first, a
            graph.b[n], scratch.need[n] = -1, 0
            code, a, n = rules.rest[code], n, n + 1
        graph.group[n], graph.code[n], graph.a[n], graph.b[n] = group, code, a, b
        scratch.need[n] = 0
        if group == POINT_NODE:
            left, right = scratch.need[a], scratch.need[b] if b >= 0 else 0
            packed = packs(code, a, graph)
            if packed > 0:
                scratch.need[n] = max(left, packed + max(right, 1))
            else:
                scratch.need[n] = left + 1 if left == right else max(left, right)
        graph.stack[depth - 1] = n
        n += 1
    graph.counts[NODES] = n
    return graph.stack[0]


@inline
def _unpack_numbers(graph, pair):
    """Have numbers packed once, for a function of them and a third one: that needs no copy."""
    a = graph.a[pair]
    if graph.code[a] == ops.COPY and is_uniform(graph.a[a], graph) and is_uniform(graph.b[pair], graph):
        graph.a[pair], graph.group[pair] = graph.a[a], UNIFORM_NODE


@compiled
def _differentiate(graph, rules, derivatives, scratch, root, n_params):
    """Leave the nodes of value and derivatives in ``scratch.forward``: of the cheaper of the two modes."""
    start_derivatives(graph, root)
    forward, backward = scratch.forward, scratch.backward
    forward[0] = backward[0] = root
    if n_params <= FORWARD_MOST:
        for j in range(n_params):
            leaf = _leaf(graph, root, j)
            derivative = tangent(graph, rules, derivatives, root, leaf) if leaf >= 0 else -1
            forward[1 + j] = derivative if derivative >= 0 else number(graph, 0.0)
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
        if n_params > FORWARD_MOST or _cost(graph, scratch, backward, n_params + 1) < _cost(
            graph, scratch, forward, n_params + 1
        ):
            for j in range(n_params + 1):  # a slice would compile Numba's texts of errors into this function
                forward[j] = backward[j]


@inline
def _leaf(graph, root, parameter):
    for n in range(root + 1):
        if graph.group[n] == PARAMETER and graph.a[n] == parameter:
            return n
    return -1


@compiled
def _cost(graph, scratch, results, n_results):
    mark(graph, scratch, results, n_results)
    cost = 0
    for n in range(graph.counts[NODES]):
        if scratch.uses[n] > 0:
            cost += POINT_COST if graph.group[n] == POINT_NODE else 1
    return cost


@compiled
def mark(graph, scratch, results, n_results):
    """Count how often each node is used for the results; gives the numbers of constants and of point nodes in use."""
    n_nodes = graph.counts[NODES]
    for n in range(n_nodes):
        scratch.uses[n] = 0
    for k in range(n_results):
        scratch.uses[results[k]] += 1
    n_const = n_point = 0
    for n in range(n_nodes - 1, -1, -1):  # what uses a node comes behind it
        if scratch.uses[n] == 0:
            continue
        group = graph.group[n]
        n_const += group == CONSTANT
        n_point += group == POINT_NODE
        if group in (POINT_NODE, UNIFORM_NODE):
            scratch.uses[graph.a[n]] += 1
            if graph.b[n] >= 0:
                scratch.uses[graph.b[n]] += 1
    return n_const, n_point


@compiled
def _stage(graph, rules, scratch, root):
    """Do the first of two stages once where it can be (``split`` and ``multiple_of`` of the table).

    Gives how many constants there are more.
    """
    n_nodes, n_const = graph.counts[NODES], 0
    for n in range(n_nodes):
        if scratch.uses[n] == 0 or graph.group[n] != POINT_NODE or rules.first[graph.code[n]] == NONE:
            continue
        first, a, other = rules.first[graph.code[n]], graph.a[n], -1
        group = UNIFORM_NODE if is_uniform(a, graph) else COLUMN_NODE if graph.group[a] == VARIABLE else POINT_NODE
        if group == POINT_NODE:
            for m in range(root + 1, n_nodes):  # derivatives only: where the log is -inf this is nan
                if graph.code[m] == rules.multiple[first] and graph.a[m] == a and scratch.uses[m] > 0:
                    other = m
                    break
            if other < 0:
                continue
        known = graph.counts[NODES]
        pair = node(graph, group, first, a, NOTHING, NO_BITS)
        _use(scratch, pair, known)
        if pair < known or group == COLUMN_NODE:  # else it is the pair now that uses a
            scratch.uses[a] -= 1
        graph.code[n], graph.a[n] = rules.rest[graph.code[n]], pair
        if other >= 0:
            known = graph.counts[NODES]
            both = node(graph, POINT_NODE, ops.ADD, pair, LOW, NO_BITS)
            _use(scratch, both, known)
            if both == known:
                scratch.uses[pair] += 1
            known = graph.counts[NODES]
            factor = number(graph, rules.factor[first])
            _use(scratch, factor, known)
            n_const += scratch.uses[factor] == 1
            scratch.uses[a] -= 1
            graph.code[other], graph.a[other], graph.b[other] = ops.MUL, both, factor
    return n_const


@inline
def _use(scratch, n, known):
    """One use more of a node, which is new where its number is not among those known before."""
    if n == known:
        scratch.uses[n] = 0
    scratch.uses[n] += 1
