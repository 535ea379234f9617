"""Lowering in one pass, with instructions in the order of the tokens, for backends that need no other order.

In: a population.  Out: the ``Program`` of its values, for the CPU backend; its results have the bits of ``lower``'s.
``lower`` makes a tree of each expression and computes the heavier operand first, in the fewest slots, which on a GPU
are registers and shared memory; here an operator's instruction is written where its token is read, in as many slots
as operands wait at once, which on a CPU cost nothing.  Of 250,000 expressions of 3 to 30 tokens it takes 96 ms of one
core and ``lower`` 230 ms, of 3 to 9 tokens 32 and 56 ms (Intel Xeon): so both are kept.

    >>> import exprkit as ek
    >>> from exprkit.programs.in_order import lower_in_order
    >>> print(lower_in_order(ek.parse(["p1 * log(abs(x1 + x2)) + sqrt(p1)"])).listing(0))
    u1 = sqrt u0             once per parameter set
    t0 = add c0, c1
    t0 = logabs t0
    t0 = mul u0, t0
    out = add t0, u1

What is done with each expression, plainly::

    for token in tokens:
        a leaf goes onto the stack
        an operator, rewritten by the table's rules, takes its operands off the stack, and then
            waits on the stack if another may fuse with it (the abs of log(abs(a))), or else
            is a column, if its operand is a variable, or else
            is written: into the prologue if its operands are uniforms, else into the first slot that is free

Rules look at one waiting operator: of ``sqr(neg(abs(a)))`` the ``neg`` is left out, the ``abs`` computed.  What stands
twice in an expression is computed twice, uniforms too, which cost next to nothing beside a tile of points.  A uniform's
number is the next one, of a constant and of a result of the prologue alike: ``constants`` has holes for results.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from exprkit.expressions.population import Population
from exprkit.expressions.rewrite import COLUMN_NODE, NONE, POINT_NODE, table_rules
from exprkit.operators import ops
from exprkit.operators.defined import table_of_rows
from exprkit.programs.emit import COLUMNS, SLOTS, UNIFORMS, column_number
from exprkit.programs.parts import Part, joined
from exprkit.programs.program import COLUMN, OUT, SLOT, UNIFORM, Program, kind_of, operand_of
from exprkit.runtime import machine, slices
from exprkit.runtime.bags import empty, zeros
from exprkit.runtime.jit import compiled, inline
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

COLUMN_TABLES = "totals", "column_of", "column_code", "column_var"
PLAIN, RULED, WAITS = range(3)  # operators without rules; with; those that another may fuse with


class OrderedTokens(NamedTuple):
    """Expressions, and what is known of variables and operators."""

    kinds: np.ndarray
    values: np.ndarray
    numbers: np.ndarray  # the same 8 bytes as a constant
    offsets: np.ndarray
    n_params: np.ndarray
    positive: np.ndarray
    sort: np.ndarray  # PLAIN, RULED or WAITS by code


class WaitingOperands(NamedTuple):
    """Operands that wait for their operator, and instructions of the prologue that come behind one for every point."""

    group: Annotated[np.ndarray, "int32[n]"]  # kind of a leaf, COLUMN_NODE, or POINT_NODE: anything else
    wait: Annotated[np.ndarray, "int32[n]"]  # operator yet to be applied; of a variable COPY for none, else NONE
    place: Annotated[np.ndarray, "int32[n]"]  # the operand; of a variable COLUMN
    leaf: Annotated[np.ndarray, "int64[n]"]  # of a variable; of a constant its token
    aside: Annotated[np.ndarray, "int32[n, 4]"]


class WrittenProgram(NamedTuple):
    """Instructions and constants of all expressions, and the columns."""

    code: Annotated[np.ndarray, "uint8[n]"]
    a: Annotated[np.ndarray, "int32[n]"]
    b: Annotated[np.ndarray, "int32[n]"]
    dst: Annotated[np.ndarray, "int32[n]"]
    constants: np.ndarray
    offsets: Annotated[np.ndarray, "int64[n_offsets]"]
    first_const: Annotated[np.ndarray, "int64[n_offsets]"]
    n_prologue: np.ndarray
    totals: np.ndarray
    column_of: np.ndarray  # [variable * 256 + code] -> column, -1 where there is none yet
    column_code: Annotated[np.ndarray, "uint8[most_columns]"]
    column_var: Annotated[np.ndarray, "int32[most_columns]"]


def lower_in_order(
    pop: Population,
    *,
    precision: str = "ieee",
    positive: np.ndarray | None = None,
    dtype: DTypeLike = np.float64,
    threads: int | None = None,
    columns: tuple[np.ndarray, np.ndarray] | None = None,
) -> Program:
    """Lower a population's values; the arguments are those of ``lower``, constants are of type ``dtype``.

    ``columns`` (operators and variables) are those that come first, whoever uses them.
    """
    pop = pop.expanded()
    rules, sort = table_rules(precision), _sorts(precision)
    n_vars = max(int(pop.n_vars), 1, 0 if columns is None else 1 + int(columns[1].max(initial=0)))
    positive = np.zeros(n_vars, np.bool_) if positive is None else positive
    n_params, n_prologue = np.asarray(pop.n_params, np.int32), np.empty(len(pop), np.int32)
    least = max(slices.LEAST, 256 * n_vars)  # each has a table of columns
    cuts = slices.short(pop.offsets, threads, least, 4 * slices.SHORT)
    known_columns = _known_columns(columns, n_vars)

    def lower_part(begin: int, end: int) -> Part:
        offsets, numbers = pop.offsets[begin : end + 1], pop.values.view(np.float64)
        tokens = OrderedTokens(pop.kinds, pop.values, numbers, offsets, n_params[begin:end], positive, sort)
        n_tokens, longest = int(offsets[-1] - offsets[0]), int(np.diff(offsets).max(initial=1))
        out = empty(
            WrittenProgram,
            n=n_tokens,
            n_offsets=len(offsets),
            constants=np.empty(n_tokens, dtype),
            n_prologue=n_prologue[begin:end],
            **dict(zip(COLUMN_TABLES, map(np.copy, known_columns), strict=True)),
        )
        _lower_all(tokens, rules, zeros(WaitingOperands, n=longest + 1), out)
        n, n_const, n_columns = int(out.offsets[-1]), int(out.first_const[-1]), int(out.totals[COLUMNS])
        instructions = out.code[:n], out.a[:n], out.b[:n], out.dst[:n], out.constants[:n_const]
        own_columns = out.column_code[:n_columns].copy(), out.column_var[:n_columns].copy()
        return Part(*instructions, out.offsets, out.first_const, *own_columns, np.zeros(0, np.int32), out.totals)

    parts = slices.each(lower_part, cuts, threads=threads or machine.cores())
    fields = joined(parts, cuts, rules.width)
    return Program(**fields, n_prologue=n_prologue, n_params=n_params, precision=precision, shared=False)


def _known_columns(columns: tuple[np.ndarray, np.ndarray] | None, n_vars: int) -> tuple[np.ndarray, ...]:
    """The tables of columns that a part begins with (``COLUMN_TABLES``)."""
    totals, column_of = np.zeros(slices.APART, np.int64), np.full(256 * n_vars, -1, np.int32)
    code, var = np.zeros(512 * n_vars, np.uint8), np.zeros(512 * n_vars, np.int32)
    if columns is not None:
        n = totals[COLUMNS] = len(columns[0])
        code[:n], var[:n] = columns
        column_of[var[:n][::-1] * 256 + code[:n][::-1]] = np.arange(n)[::-1]  # of a pair the first
    return totals, column_of, code, var


@table_of_rows
def _sorts(precision: str) -> np.ndarray:
    """The sort of each operator by its code: PLAIN, RULED or WAITS."""
    rules = table_rules(precision)
    cells = rules.positive_a, rules.whole_b, rules.first, rules.fused.min(axis=1)
    ruled = np.any([cell != NONE for cell in cells], axis=0) | (np.diff(rules.constant_start) > 0)
    waits = np.any(rules.fused != NONE, axis=0)
    return np.where(waits, WAITS, ruled * RULED).astype(np.uint8)


# ── the compiled pass ────────────────────────────────────────────────────────────────


@compiled
def _lower_all(tokens, rules, stack, out):
    """Lower all expressions.

    ``at``: the next instruction, where those of the points begin, how many of the prologue are late, the next constant,
    the next uniform, and how many slots are taken.
    """
    group, wait, place, leaf = stack.group, stack.wait, stack.place, stack.leaf
    kinds, values, constants = tokens.kinds, tokens.values, out.constants
    instr = const = 0
    out.offsets[0] = out.first_const[0] = 0
    for i in range(len(tokens.offsets) - 1):
        begin, end, start = tokens.offsets[i], tokens.offsets[i + 1], instr
        body, late, uniform, used, top = instr, 0, np.int64(tokens.n_params[i]), 0, -1
        for t in range(begin, end):
            kind = kinds[t]
            if kind != OPERATOR:
                top += 1
                group[top] = kind
                if kind == VARIABLE:
                    wait[top], place[top], leaf[top] = ops.COPY, COLUMN, values[t]
                elif kind == CONSTANT:
                    wait[top], place[top], leaf[top] = NONE, operand_of(UNIFORM, uniform), t
                    constants[const] = tokens.numbers[t]
                    const, uniform = const + 1, uniform + 1
                else:
                    wait[top], place[top] = NONE, operand_of(UNIFORM, np.int64(values[t]))
                continue
            code = np.int64(values[t])
            two = rules.arity[code] == 2
            top -= two
            a, b, first = top, top + 1, np.int64(NONE)
            if tokens.sort[code] != PLAIN:
                if two and group[b] == CONSTANT and wait[b] == NONE:
                    number = constants[const - 1]
                    code, two = _constant_rule(code, number, rules)
                    code = _fused(code, a, tokens, rules, stack)
                    if two:
                        code, two = _constant_rule(code, number, rules)
                    if not two:
                        const, uniform = const - 1, uniform - 1
                    elif rules.whole_b[code] != NONE and number == np.floor(number) and abs(number) < np.inf:
                        code = np.int64(rules.whole_b[code])
                    if code == ops.COPY:
                        continue
                else:
                    code = _fused(code, a, tokens, rules, stack)
                first = np.int64(rules.first[code])
            bare = group[a] == VARIABLE and wait[a] == ops.COPY
            if not two and (bare or tokens.sort[code] == WAITS):
                if not bare and wait[a] != NONE:
                    at = _apply(a, (instr, body, late, const, uniform, used), rules, stack, out)
                    instr, body, late, const, uniform, used = at
                wait[a] = code
                if tokens.sort[code] != WAITS:
                    _make_column(a, rules, stack, out)
                continue
            at = instr, body, late, const, uniform, used
            if bare and first != NONE:
                wait[a], code = first, np.int64(rules.rest[code])
            if wait[a] != NONE:
                at = _apply(a, at, rules, stack, out)
            if two and wait[b] != NONE:
                at = _apply(b, at, rules, stack, out)
            second = place[b] if two else -1
            once = kind_of(place[a]) == UNIFORM and (not two or kind_of(second) == UNIFORM)
            if first != NONE and not once and kind_of(place[a]) == UNIFORM:
                wait[a], code = first, np.int64(rules.rest[code])
                at = _apply(a, at, rules, stack, out)
            if once:
                at = _write_once(code, a, second, at, rules, stack, out)
            else:
                at = _write(code, a, second, at, stack, out)
            instr, body, late, const, uniform, used = at
        if begin < end:
            at = instr, body, late, const, uniform, used
            if wait[0] != NONE:
                at = _apply(0, at, rules, stack, out)
            if kind_of(place[0]) == SLOT:
                out.dst[at[0] - 1] = OUT
            else:
                at = _write(ops.COPY, 0, -1, at, stack, out)
                out.dst[at[0] - 1] = OUT
            instr, body, late, const, uniform, used = at
            _move_late(body, instr, late, stack, out)
            instr, body = instr + late, body + late
            out.totals[UNIFORMS] = max(out.totals[UNIFORMS], uniform)
        out.n_prologue[i] = body - start
        out.offsets[i + 1], out.first_const[i + 1] = instr, const


@inline
def _constant_rule(code, number, rules):
    """The operator that replaces one of this second operand, and whether it still has two."""
    for k in range(rules.constant_start[code], rules.constant_start[code + 1]):
        if number == rules.constant_value[k]:
            return np.int64(rules.constant_code[k]), False
    return code, True


@inline
def _fused(code, a, tokens, rules, stack):
    """The operator in place of this one and the one that waits at its first operand; where that is positive, too."""
    variable = stack.group[a] == VARIABLE
    if rules.fused[code, stack.wait[a]] != NONE:
        code = np.int64(rules.fused[code, stack.wait[a]])
        stack.wait[a] = ops.COPY if variable else NONE
    if rules.positive_a[code] != NONE:
        if variable and stack.wait[a] == ops.COPY:
            positive = tokens.positive[stack.leaf[a]]
        else:
            constant = stack.group[a] == CONSTANT and stack.wait[a] == NONE
            positive = constant and tokens.values[stack.leaf[a]] >> np.uint64(63) == 0
        if positive:
            code = np.int64(rules.positive_a[code])
    return code


@inline
def _apply(a, at, rules, stack, out):
    """Apply the operator that waits at an operand."""
    code = np.int64(stack.wait[a])
    if stack.group[a] == VARIABLE:
        _make_column(a, rules, stack, out)
        return at
    stack.wait[a] = NONE
    if kind_of(stack.place[a]) == UNIFORM:
        return _write_once(code, a, -1, at, rules, stack, out)
    return _write(code, a, -1, at, stack, out)


@inline
def _make_column(a, rules, stack, out):
    """Make an operand the column of the operator that waits at the variable, a new one if there is none yet."""
    column = column_number(np.int64(stack.wait[a]), np.int64(stack.leaf[a]), rules, out)
    stack.group[a], stack.wait[a], stack.place[a] = COLUMN_NODE, NONE, operand_of(COLUMN, column)


@inline
def _write(code, a, second, at, stack, out):
    """Write an instruction for every point; its result, in the first slot that is free, takes operand a's place."""
    instr, body, late, const, uniform, used = at
    first = stack.place[a]
    used -= (kind_of(first) == SLOT) + (kind_of(second) == SLOT)
    # an operator that waited at operand a stays in its slot: operand b may have the next one
    dst = first if second < 0 and kind_of(first) == SLOT else operand_of(SLOT, used)
    stack.group[a], stack.place[a] = POINT_NODE, dst
    out.code[instr], out.a[instr], out.b[instr], out.dst[instr] = code, first, second, dst
    used += 1
    out.totals[SLOTS] = max(out.totals[SLOTS], used)
    return instr + 1, body, late, const, uniform, used


@inline
def _write_once(code, a, second, at, rules, stack, out):
    """Write an instruction of the prologue, apart if those of the points have begun; its result takes a's place."""
    instr, body, late, const, uniform, used = at
    first, dst = stack.place[a], operand_of(UNIFORM, uniform)
    stack.group[a], stack.place[a] = POINT_NODE, dst
    if instr == body:
        out.code[instr], out.a[instr], out.b[instr], out.dst[instr] = code, first, second, dst
        instr, body = instr + 1, body + 1
    else:
        aside = stack.aside
        aside[late, 0], aside[late, 1], aside[late, 2], aside[late, 3] = code, first, second, dst
        late += 1
    width = np.int64(rules.width[code])
    for part in range(width):
        out.constants[const + part] = 0
    return instr, body, late, const + width, uniform + width, used


@inline
def _move_late(body, end, late, stack, out):
    """Put the late instructions of the prologue before those of the points."""
    if late == 0:
        return
    for k in range(end - 1, body - 1, -1):
        to = k + late
        out.code[to], out.a[to], out.b[to], out.dst[to] = out.code[k], out.a[k], out.b[k], out.dst[k]
    aside = stack.aside
    for k in range(late):
        to = body + k
        out.code[to], out.a[to], out.b[to], out.dst[to] = aside[k, 0], aside[k, 1], aside[k, 2], aside[k, 3]
