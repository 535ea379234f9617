"""The last step of lowering: operands and instructions of an expression's nodes.

In: a graph whose nodes in use are counted.  Out: its constants, columns and instructions, written into a ``Room``.
Leaves are operands, never instructions; what does not depend on the data point goes into the prologue.

    >>> import exprkit as ek
    >>> from exprkit.programs.lower import lower
    >>> print(lower(ek.parse(["sqrt(x1 * p1) + exp(p2)"])).listing(0))
    u2 = exp u1              once per parameter set
    t0 = mul c0, u0
    t0 = sqrt t0
    out = add t0, u2

Three ways to write the point instructions: of a tree (``emit_tree``), of a value whose equal parts are one node
(``emit_shared``), and of a value with its derivatives (``emit_results``).
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np

from exprkit.expressions.dag import NODES, number
from exprkit.expressions.rewrite import POINT_NODE, UNIFORM_NODE, is_uniform
from exprkit.operators import ops
from exprkit.programs.program import COLUMN, OUT, SLOT, UNIFORM, index_of, kind_of, next_operand, operand_of
from exprkit.runtime.jit import inline
from exprkit.text.tokens import CONSTANT, PARAMETER, VARIABLE

LOW = -2  # as operand b: the low part of the pair that is operand a
SLOTS, UNIFORMS, COLUMNS, DONE = range(4)  # of ``Output.totals``
COMPARED = 16  # instructions of a prologue, which may have thousands, with the next one: is it among them?


class NodeScratch(NamedTuple):
    """For one expression: by node, slot or result."""

    uses: Annotated[np.ndarray, "int32[n]"]  # by instructions that are still to come, and by results
    place: Annotated[np.ndarray, "int32[n]"]  # operand, -1: not there yet
    need: Annotated[np.ndarray, "int32[n]"]  # of a tree: slots it takes to compute the node (Sethi and Ullman)
    base: Annotated[np.ndarray, "int32[n]"]  # of a tree: the first slot that is free while the node is computed
    copied: Annotated[np.ndarray, "int32[n]"]  # operand of the copy that a uniform result has been given, -1: none
    taken: Annotated[np.ndarray, "bool[n_slots]"]  # up to two a node (a pair's), and the copies
    forward: Annotated[np.ndarray, "int32[n_results]"]  # result -> node
    backward: Annotated[np.ndarray, "int32[n_results]"]


class Output(NamedTuple):
    """What is known of each expression's program, as in the programs' classes, and the columns of all."""

    totals: Annotated[np.ndarray, "int64[4]"]  # SLOTS, UNIFORMS: the most of an expression; COLUMNS; expressions DONE
    column_of: np.ndarray  # [variable * 256 + code] -> column, -1 where there is none yet
    column_code: Annotated[np.ndarray, "uint8[most_columns]"]
    column_var: Annotated[np.ndarray, "int32[most_columns]"]
    offsets: Annotated[np.ndarray, "int64[n_offsets]"]
    first_const: Annotated[np.ndarray, "int64[n_offsets]"]
    n_prologue: Annotated[np.ndarray, "int32[n_exprs]"]
    n_value: Annotated[np.ndarray, "int32[n_exprs]"]
    first_result: np.ndarray
    results: Annotated[np.ndarray, "int32[n_results]"]


class Room(NamedTuple):
    """Where instructions and constants are written, from its beginning on."""

    code: Annotated[np.ndarray, "uint8[n]"]
    a: Annotated[np.ndarray, "int32[n]"]
    b: Annotated[np.ndarray, "int32[n]"]
    dst: Annotated[np.ndarray, "int32[n]"]
    constants: Annotated[np.ndarray, "float64[n]"]


@inline
def place(graph, rules, scratch, output, room, numbers):
    """Give every leaf, column and uniform its operand and write the prologue; gives the number of its instructions.

    ``numbers``: of the next instruction, constant, constant among the uniforms, and other uniform.
    """
    instr, const, constant, uniform = numbers
    start, n_params, first_const = instr, constant, const
    for n in range(graph.counts[NODES]):
        group = graph.group[n]
        scratch.place[n] = -1
        if scratch.uses[n] == 0 or group == POINT_NODE:
            continue
        if group == CONSTANT:
            room.constants[const] = graph.numbers[graph.a[n]]
            scratch.place[n] = operand_of(UNIFORM, constant)
            const, constant = const + 1, constant + 1
        elif group == PARAMETER:
            scratch.place[n] = operand_of(UNIFORM, graph.a[n])
        elif group == UNIFORM_NODE:
            scratch.place[n] = operand_of(UNIFORM, uniform)
            _write(graph, scratch, room, instr, n)
            before = _computed_before(room, start, instr, (n_params, first_const, const))
            scratch.place[n] = room.dst[before]
            if before == instr:
                instr, uniform = instr + 1, uniform + rules.width[graph.code[n]]
        elif group == VARIABLE:
            scratch.place[n] = operand_of(COLUMN, column_number(ops.COPY, graph.a[n], rules, output))
        else:
            var = graph.a[graph.a[n]]
            scratch.place[n] = operand_of(COLUMN, column_number(graph.code[n], var, rules, output))
    output.totals[UNIFORMS] = max(output.totals[UNIFORMS], uniform)
    return instr - start


@inline
def _computed_before(room, start, instr, constants):
    """The instruction of the prologue, from ``start`` on, that computes what ``instr`` does: one before it, or itself.

    ``constants``: the number of the first one among the uniforms, its place, and that behind the last one.
    """
    for k in range(max(start, instr - COMPARED), instr):
        same = room.code[k] == room.code[instr] and _are_equal(room.a[k], room.a[instr], room, constants)
        if same and _are_equal(room.b[k], room.b[instr], room, constants):
            return k
    return instr


@inline
def _are_equal(a, b, room, constants):
    """Whether two operands of a prologue are one, or two constants of the same bits."""
    among, first, end = constants
    i, j = first + index_of(a) - among, first + index_of(b) - among
    if a == b or min(i, j) < first or max(i, j) >= end:
        return a == b
    return np.float64(room.constants[i]).view(np.uint64) == np.float64(room.constants[j]).view(np.uint64)


@inline
def column_number(code, var, rules, output):
    """The column of ``code(variable)``, made where there is none yet."""
    column = output.column_of[var * 256 + code]
    if column < 0:
        column = output.column_of[var * 256 + code] = output.totals[COLUMNS]
        for part in range(rules.width[code]):
            output.column_code[column + part], output.column_var[column + part] = code, var
        output.totals[COLUMNS] += rules.width[code]
    return column


@inline
def emit_tree(graph, scratch, output, room, instr, root):
    """Write the point instructions of a tree backwards from ``instr``.

    Seen backwards, an instruction comes before those of its operands, and the lighter
    operand, which is computed last, before the heavier one.  What is packed comes first, its own operands in order.
    """
    if graph.group[root] != POINT_NODE:
        _copy(room, instr - 1, scratch.place[root], OUT)
        return
    n_slots, depth = 0, 1
    graph.stack[0], scratch.base[root], scratch.place[root] = root, 0, OUT
    while depth > 0:
        depth -= 1
        n = graph.stack[depth]
        heavy, light = graph.a[n], graph.b[n]
        packed = packs(graph.code[n], heavy, graph)
        if light >= 0 and packed == 0 and scratch.need[light] > scratch.need[heavy]:
            heavy, light = light, heavy
        slot = scratch.base[n]
        for operand in (heavy, light):
            if operand >= 0 and graph.group[operand] == POINT_NODE:
                scratch.base[operand], scratch.place[operand] = slot, operand_of(SLOT, slot)
                graph.stack[depth] = operand
                slot, depth = slot + (2 if graph.code[operand] == ops.PAIR_OF else 1), depth + 1
        if packed > 0:  # and one for b, which may be no instruction
            slot = max(slot, scratch.base[n] + packed + 1)
        n_slots = max(n_slots, slot)
        instr -= 1
        _write(graph, scratch, room, instr, n)
    output.totals[SLOTS] = max(output.totals[SLOTS], n_slots)


@inline
def packs(code, a, graph):
    """How many slots operand a of an instruction takes while b is computed, which comes behind it; 0: either is first.

    One of what packs its operands, two of a function of three, whose first two are packed.
    """
    if code == ops.PAIR_OF:
        return 1
    return 2 if graph.code[a] == ops.PAIR_OF and graph.group[a] == POINT_NODE else 0


@inline
def emit_results(graph, rules, scratch, output, room, instr, places):
    """Write the point instructions of value and derivatives, one result after the other.

    Gives the end of the instructions, and the number of those of the value.
    """
    first, n_results = places
    n_slots, start, n_value = 0, instr, 0
    for k in range(n_results):
        scratch.copied[scratch.forward[k]] = -1
    for k in range(n_results):
        result = scratch.forward[k]
        instr, n_slots = _emit(graph, rules, scratch, room, instr, result, n_slots)
        output.results[first + k] = scratch.place[result]
        if is_uniform(result, graph):
            if scratch.copied[result] < 0:
                slot = _take(scratch, 1)
                n_slots = max(n_slots, slot + 1)
                scratch.copied[result] = operand_of(SLOT, slot)
                _copy(room, instr, scratch.place[result], scratch.copied[result])
                instr += 1
            output.results[first + k] = scratch.copied[result]
        if k == 0:
            n_value = instr - start
    for slot in range(n_slots):
        scratch.taken[slot] = False
    output.totals[SLOTS] = max(output.totals[SLOTS], n_slots)
    return instr, n_value


@inline
def _emit(graph, rules, scratch, room, instr, result, n_slots):
    """Write the instructions of a result that are not there yet, operands first.

    Gives the end of the instructions and the number of slots.
    """
    depth = 1
    graph.stack[0] = result
    while depth > 0:
        n = graph.stack[depth - 1]
        a, b = graph.a[n], graph.b[n]
        if scratch.place[n] >= 0:
            depth -= 1
        elif scratch.place[a] < 0:
            graph.stack[depth] = a
            depth += 1
        elif b >= 0 and scratch.place[b] < 0:
            graph.stack[depth] = b
            depth += 1
        else:
            depth -= 1
            _release(graph, rules, scratch, a)
            if b >= 0:
                _release(graph, rules, scratch, b)
            slot = _take(scratch, rules.width[graph.code[n]])
            n_slots = max(n_slots, slot + rules.width[graph.code[n]])
            scratch.place[n] = operand_of(SLOT, slot)
            _write(graph, scratch, room, instr, n)
            instr += 1
    return instr, n_slots


@inline
def use_zero(graph, scratch):
    """Keep the constant -0 for ``_reload``; 1 if it is one more."""
    zero = number(graph, -0.0)
    scratch.uses[zero] += 1
    return 1 if scratch.uses[zero] == 1 else 0


@inline
def emit_shared(graph, rules, scratch, output, room, instr, root):
    """Write the point instructions of a value whose equal parts are one node; gives their end.

    An accumulator must be able to run them: of each, an operand is the result of the instruction before, or a column
    or number that can be loaded.  Else what lies in a slot is added to -0 first, which changes nothing.  What is
    packed is copied, so that it lies side by side.
    """
    if graph.group[root] != POINT_NODE:
        _copy(room, instr, scratch.place[root], OUT)
        return instr + 1
    _weigh(graph, scratch)
    _pack_numbers(graph, scratch)
    zero, n_slots, depth, before = scratch.place[number(graph, -0.0)], 0, 1, -1
    graph.stack[0] = root
    while depth > 0:
        n = graph.stack[depth - 1]
        a, b = graph.a[n], graph.b[n]
        if scratch.place[n] >= 0:
            depth -= 1
        elif scratch.place[a] < 0 and not (b >= 0 and scratch.place[b] < 0 and scratch.need[b] > scratch.need[a]):
            graph.stack[depth] = a
            depth += 1
        elif b >= 0 and scratch.place[b] < 0:
            graph.stack[depth] = b
            depth += 1
        elif graph.code[n] == ops.PAIR_OF:
            depth -= 1
            instr, before, n_slots = _pack(graph, rules, scratch, room, instr, n, before, n_slots)
        else:
            depth -= 1
            first = scratch.place[a]
            second = scratch.place[b] if b >= 0 else -1
            swapped = second >= 0 and (rules.width[graph.code[a]] == 2 or kind_of(first) == UNIFORM)
            loaded = second if swapped else first
            helper = -1
            if before >= 0 and first != before and second != before and kind_of(loaded) == SLOT:
                instr, helper, n_slots = _reload(scratch, room, instr, zero, loaded, n_slots)
            _release(graph, rules, scratch, a)
            if b >= 0:
                _release(graph, rules, scratch, b)
            slot = _take(scratch, 1)
            n_slots = max(n_slots, slot + 1)
            before = scratch.place[n] = operand_of(SLOT, slot)
            _write(graph, scratch, room, instr, n)
            if helper >= 0:
                scratch.taken[index_of(helper)] = False
                if swapped:
                    room.b[instr] = helper
                else:
                    room.a[instr] = helper
            instr += 1
    room.dst[instr - 1] = OUT
    for slot in range(n_slots):
        scratch.taken[slot] = False
    output.totals[SLOTS] = max(output.totals[SLOTS], n_slots)
    return instr


@inline
def _weigh(graph, scratch):
    """How many slots it would take to compute each node if nothing were shared: the heavier operand goes first."""
    for n in range(graph.counts[NODES]):
        scratch.need[n] = 0
    for n in range(graph.counts[NODES]):
        if graph.group[n] == POINT_NODE:
            left, right = scratch.need[graph.a[n]], scratch.need[graph.b[n]] if graph.b[n] >= 0 else 0
            scratch.need[n] = left + 1 if left == right else max(left, right)


@inline
def _pack_numbers(graph, scratch):
    """Have numbers packed for every point where a function of them and of what is no number takes them."""
    for n in range(graph.counts[NODES]):
        a = graph.a[n] if graph.group[n] == POINT_NODE else 0
        if graph.code[a] == ops.PAIR_OF and graph.group[a] == UNIFORM_NODE:
            graph.group[a], scratch.place[a] = POINT_NODE, -1


@inline
def _pack(graph, rules, scratch, room, instr, n, before, n_slots):
    """Write what puts two operands into slots side by side.

    Gives the end of the instructions, the slot of what the accumulator holds then, and the number of slots.
    """
    zero, a, b = scratch.place[number(graph, -0.0)], graph.a[n], graph.b[n]
    first, second = scratch.place[a], scratch.place[b]
    if before >= 0 and first != before and kind_of(first) == SLOT:
        instr, first, n_slots = _reload(scratch, room, instr, zero, first, n_slots)
        scratch.taken[index_of(first)] = False
    _release(graph, rules, scratch, a)
    slot = _take(scratch, 2)
    _copy(room, instr, first, operand_of(SLOT, slot))
    instr, n_slots = instr + 1, max(n_slots, slot + 2)
    if kind_of(second) == SLOT:
        instr, second, n_slots = _reload(scratch, room, instr, zero, second, n_slots)
        scratch.taken[index_of(second)] = False
    _release(graph, rules, scratch, b)
    dst = scratch.place[n] = operand_of(SLOT, slot)
    room.code[instr], room.a[instr], room.b[instr], room.dst[instr] = ops.PAIR_OF, dst, second, dst
    return instr + 1, next_operand(dst), n_slots


@inline
def _reload(scratch, room, instr, zero, source, n_slots):
    """Write t = -0; t = t + source, of a slot that is free; gives the next instruction, t and the number of slots."""
    slot = _take(scratch, 1)
    dst = operand_of(SLOT, slot)
    room.code[instr], room.a[instr], room.b[instr], room.dst[instr] = ops.COPY, zero, -1, dst
    room.code[instr + 1], room.a[instr + 1], room.b[instr + 1], room.dst[instr + 1] = ops.ADD, dst, source, dst
    return instr + 2, dst, max(n_slots, slot + 1)


@inline
def _release(graph, rules, scratch, n):
    """One use less of a node; its slots are free after the last one."""
    scratch.uses[n] -= 1
    if scratch.uses[n] == 0 and graph.group[n] == POINT_NODE:
        slot = index_of(scratch.place[n])
        for part in range(rules.width[graph.code[n]]):
            scratch.taken[slot + part] = False


@inline
def _take(scratch, width):
    """Take the first slots that are free, ``width`` in a row."""
    slot = 0
    while scratch.taken[slot] or (width == 2 and scratch.taken[slot + 1]):
        slot += 1
    for part in range(width):
        scratch.taken[slot + part] = True
    return slot


@inline
def _write(graph, scratch, room, instr, n):
    a, b = graph.a[n], graph.b[n]
    room.code[instr], room.a[instr], room.dst[instr] = graph.code[n], scratch.place[a], scratch.place[n]
    room.b[instr] = scratch.place[b] if b >= 0 else next_operand(scratch.place[a]) if b == LOW else -1


@inline
def _copy(room, instr, source, dst):
    room.code[instr], room.a[instr], room.b[instr], room.dst[instr] = ops.COPY, source, -1, dst
