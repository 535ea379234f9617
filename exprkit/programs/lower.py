"""Lowering: each postfix expression becomes a short three-address program.

In: a population.  Out: a ``Program``, which every backend runs.  Leaves are operands, never
instructions; work that does not depend on the data point leaves the point loop.

    >>> import exprkit as ek
    >>> from exprkit.programs.lower import lower
    >>> print(lower(ek.parse(["sqrt(x1) * (x2 + p1 / 2)"])).listing(0))
    u2 = div u0, u1          once per parameter set
    t0 = add c1, u2
    out = mul c0, t0

An operand is ``(index << 2) | kind``:

=======  ====  =======  ============================================================
kind     text  number   what it is
=======  ====  =======  ============================================================
SLOT     t0    0        a temporary, one value a data point
COLUMN   c0    1        a data column or a unary operator of one, made once per data
UNIFORM  u0    2        a number that does not depend on the data point: parameters
                        first, then constants, then results of the prologue
OUT      out   3        the expression's result: ``dst`` of its last instruction
=======  ====  =======  ============================================================

``-1`` stands for no operand.  A pair (an operator of width 2) is two consecutive columns
or uniforms, its high part first.  How an expression is lowered depends on nothing but
the expression itself, so its bits do not depend on the company it keeps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from exprkit.errors import PopulationError
from exprkit.expressions.population import Population
from exprkit.expressions.rewrite import (
    COLUMN_NODE,
    NONE,
    POINT_NODE,
    UNIFORM_NODE,
    group_of,
    is_uniform,
    rewrite,
    table_rules,
)
from exprkit.operators import ops
from exprkit.runtime.jit import compiled
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

SLOT, COLUMN, UNIFORM, OUT = range(4)
_LETTER = "tcu"
_COPY = ops.COPY


@dataclass(frozen=True, eq=False)
class Program:
    """The programs of a population, one after the other.

    ================  =======  ============  ================================================
    array             dtype    shape         what it holds
    ================  =======  ============  ================================================
    ``code``          uint8    n_instr       operator's code
    ``a, b, dst``     int32    n_instr       operands and where the result goes
    ``offsets``       int64    n_exprs+1     instructions of expression i: offsets[i:i+2]
    ``n_prologue``    int32    n_exprs       how many of them run once per parameter set
    ``constants``     float64  n_constants   numbers of the expressions
    ``first_const``   int64    n_exprs+1     constants of expression i
    ``n_params``      int32    n_exprs       parameters of each expression
    ``column_code``   uint8    n_columns     the unary operator that makes the column ...
    ``column_var``    int32    n_columns     ... of this variable (a pair has two entries)
    ================  =======  ============  ================================================

    ``n_slots`` and ``n_uniforms`` are the largest numbers any expression needs.
    """

    code: np.ndarray = field(repr=False)
    a: np.ndarray = field(repr=False)
    b: np.ndarray = field(repr=False)
    dst: np.ndarray = field(repr=False)
    offsets: np.ndarray = field(repr=False)
    n_prologue: np.ndarray = field(repr=False)
    constants: np.ndarray = field(repr=False)
    first_const: np.ndarray = field(repr=False)
    n_params: np.ndarray = field(repr=False)
    column_code: np.ndarray = field(repr=False)
    column_var: np.ndarray = field(repr=False)
    n_slots: int
    n_uniforms: int
    precision: str

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def listing(self, i: int) -> str:
        """Program ``i`` as text, one instruction a line."""
        start, stop = self.offsets[i], self.offsets[i + 1]
        return "\n".join(self._line(k, k < start + self.n_prologue[i]) for k in range(start, stop))

    def columns(self) -> list[str]:
        """What each column holds, as text."""
        names = [ops.BY_CODE[int(code)].name for code in self.column_code]
        return [
            f"x{v + 1}" if code == _COPY else f"{name}(x{v + 1})"
            for code, name, v in zip(self.column_code, names, self.column_var, strict=True)
        ]

    def _line(self, k: int, once: bool) -> str:
        operands = [operand_text(int(x)) for x in (self.a[k], self.b[k]) if x >= 0]
        text = f"{operand_text(int(self.dst[k]))} = {ops.BY_CODE[int(self.code[k])].name} {', '.join(operands)}"
        return f"{text:24} once per parameter set" if once else text


def operand_text(operand: int) -> str:
    kind, index = operand & 3, operand >> 2
    return f"{_LETTER[kind]}{index}" if kind < OUT else "out" if index == 0 else "nothing"


def lower(
    pop: Population, *, precision: str = "ieee", positive: np.ndarray | None = None, dtype: DTypeLike = np.float64
) -> Program:
    """Lower a population.

    Parameters
    ----------
    pop : Population
    precision : {"ieee", "fast"}
        Some rules of the operator table hold for one of them only.
    positive : bool array of shape (n_vars,), optional
        True for a variable that has no negative value and no -0 in the data.
    dtype : float64 or float32
        Type that the programs run in: constants are rounded to it before a rule looks at them.

    Returns
    -------
    Program
    """
    n_vars, n_exprs, n_tokens = int(pop.n_vars), len(pop), len(pop.kinds)
    tokens = _LowerTokens(
        pop.kinds, pop.values, _rounded(pop.values.view(np.float64), dtype), pop.offsets,
        np.asarray(pop.n_params, np.int32), np.zeros(n_vars, np.bool_) if positive is None else positive,
    )  # fmt: skip
    instructions = _Instructions(
        *_empty(n_tokens, "u1 i4 i4 i4"), *_zeros(n_exprs + 1, "i8 i4"),
        *_empty(n_tokens, "f8"), *_zeros(n_exprs + 1, "i8"),
    )  # fmt: skip
    columns = Columns(np.full(256 * max(n_vars, 1), -1, np.int32), *_empty(512 * n_vars, "u1 i4"))
    nodes = _Nodes(*_empty(2 * int(np.diff(pop.offsets).max(initial=1)), "u1 u1 i8 i4 i4 ? i4 i4 i4"))
    n_slots, n_uniforms, n_columns = _lower_all(tokens, table_rules(precision), instructions, columns, nodes)
    n_instr, n_const = instructions.offsets[-1], instructions.first_const[-1]
    code, a, b, dst = (array[:n_instr].copy() for array in instructions[:4])
    return Program(
        code=code,
        a=a,
        b=b,
        dst=dst,
        offsets=instructions.offsets,
        n_prologue=instructions.n_prologue[:n_exprs],
        constants=instructions.constants[:n_const].copy(),
        first_const=instructions.first_const,
        n_params=tokens.n_params,
        column_code=columns.code[:n_columns].copy(),
        column_var=columns.var[:n_columns].copy(),
        n_slots=n_slots,
        n_uniforms=n_uniforms,
        precision=precision,
    )


def _rounded(numbers: np.ndarray, dtype: DTypeLike) -> np.ndarray:
    with np.errstate(over="ignore", invalid="ignore"):
        return numbers.astype(dtype).astype(np.float64)


def _empty(n: int, dtypes: str) -> list[np.ndarray]:
    return [np.empty(n, dtype) for dtype in dtypes.split()]


def _zeros(n: int, dtypes: str) -> list[np.ndarray]:
    return [np.zeros(n, dtype) for dtype in dtypes.split()]


_part = compiled(forceinline=True)


# ── the compiled pass over all tokens ────────────────────────────────────────────────


class _LowerTokens(NamedTuple):
    kinds: np.ndarray
    values: np.ndarray
    numbers: np.ndarray  # the same 8 bytes as a constant, rounded to the type of the data
    offsets: np.ndarray
    n_params: np.ndarray
    positive: np.ndarray  # by variable


class _Instructions(NamedTuple):
    code: np.ndarray
    a: np.ndarray
    b: np.ndarray
    dst: np.ndarray
    offsets: np.ndarray
    n_prologue: np.ndarray
    constants: np.ndarray
    first_const: np.ndarray


class Columns(NamedTuple):
    of: np.ndarray  # [variable * 256 + code] -> column, -1 where there is none yet
    code: np.ndarray
    var: np.ndarray


class _Nodes(NamedTuple):
    """One expression as a graph: children come before their parents."""

    group: np.ndarray
    code: np.ndarray
    a: np.ndarray  # child; of a leaf: its index, or its token where it is a constant
    b: np.ndarray
    need: np.ndarray  # slots it takes to compute this node (Sethi and Ullman)
    live: np.ndarray
    place: np.ndarray  # the operand that holds the node's value
    base: np.ndarray  # first slot that is free while the node is computed
    stack: np.ndarray  # of nodes, for both walks


@compiled
def _lower_all(tokens, rules, instructions, columns, nodes):
    n_slots = n_uniforms = n_columns = np.int64(0)  # with a type, or functions are made anew for the number
    for i in range(len(tokens.offsets) - 1):
        instr, const = instructions.offsets[i], instructions.first_const[i]
        if tokens.offsets[i] < tokens.offsets[i + 1]:
            root = _build(i, tokens, rules, nodes)
            n_const, n_point = _mark(root, nodes)
            uniforms, prologue, n_columns = _place(
                i, root, tokens, rules, nodes, instructions, instr, const, n_const, columns, n_columns
            )
            instructions.n_prologue[i] = prologue - instr
            instr = prologue + n_point
            slots = _emit(root, nodes, instructions, instr)
            const += n_const
            n_slots, n_uniforms = max(n_slots, slots), max(n_uniforms, uniforms)
        instructions.offsets[i + 1], instructions.first_const[i + 1] = instr, const
    return n_slots, n_uniforms, n_columns


@_part
def _build(i, tokens, rules, nodes):
    """Read the postfix tokens of expression ``i`` into nodes, rewriting by the rules; gives the root."""
    n = depth = 0
    for t in range(tokens.offsets[i], tokens.offsets[i + 1]):
        kind = tokens.kinds[t]
        if kind != OPERATOR:
            nodes.group[n], nodes.code[n], nodes.need[n] = kind, NONE, 0
            nodes.a[n] = t if kind == CONSTANT else tokens.values[t]
            nodes.stack[depth] = n
            n, depth = n + 1, depth + 1
            continue
        code, b = np.int64(tokens.values[t]), -1
        if rules.arity[code] == 2:
            depth -= 1
            b = nodes.stack[depth]
        code, a, b = rewrite(code, nodes.stack[depth - 1], b, tokens, rules, nodes)
        if code == _COPY:
            nodes.stack[depth - 1] = a
            continue
        group = group_of(a, b, nodes)
        first = rules.first[code]
        if group == POINT_NODE and first != NONE and (nodes.group[a] == VARIABLE or is_uniform(a, nodes)):
            nodes.group[n], nodes.code[n], nodes.a[n] = group_of(a, np.int64(-1), nodes), first, a
            nodes.b[n], nodes.need[n] = -1, 0
            code, a, n = np.int64(rules.rest[code]), n, n + 1
        nodes.group[n], nodes.code[n], nodes.a[n], nodes.b[n] = group, code, a, b
        nodes.need[n] = _need(a, b, nodes) if group == POINT_NODE else 0
        nodes.stack[depth - 1] = n
        n += 1
    return nodes.stack[0]


@_part
def _need(a, b, nodes):
    left = nodes.need[a]
    right = nodes.need[b] if b >= 0 else 0
    return left + 1 if left == right else max(left, right)


@_part
def _mark(root, nodes):
    """Mark what the root needs (rewriting leaves nodes behind); count constants and point instructions."""
    nodes.live[: root + 1] = False
    nodes.live[root] = True
    n_const = n_point = 0
    for n in range(root, -1, -1):
        if not nodes.live[n]:
            continue
        group = nodes.group[n]
        n_const += group == CONSTANT
        n_point += group == POINT_NODE
        if group in (POINT_NODE, UNIFORM_NODE):
            nodes.live[nodes.a[n]] = True
            if nodes.b[n] >= 0:
                nodes.live[nodes.b[n]] = True
    return n_const, max(n_point, 1)


@_part
def _place(i, root, tokens, rules, nodes, instructions, instr, const, n_const, columns, n_columns):
    """Give every leaf, column and uniform its operand; emit the prologue."""
    constant = int(tokens.n_params[i])
    uniform = constant + n_const
    for n in range(root + 1):
        group = nodes.group[n]
        if not nodes.live[n] or group == POINT_NODE:
            continue
        if group == CONSTANT:
            instructions.constants[const] = tokens.numbers[nodes.a[n]]
            nodes.place[n] = (constant << 2) | UNIFORM
            const, constant = const + 1, constant + 1
        elif group == PARAMETER:
            nodes.place[n] = (nodes.a[n] << 2) | UNIFORM
        elif group == UNIFORM_NODE:
            nodes.place[n] = (uniform << 2) | UNIFORM
            _write(instructions, instr, n, nodes, nodes.place[n])
            instr, uniform = instr + 1, uniform + rules.width[nodes.code[n]]
        else:
            code, var = _COPY, nodes.a[n]
            if group == COLUMN_NODE:
                code, var = int(nodes.code[n]), nodes.a[nodes.a[n]]
            column, n_columns = _column(code, var, rules, columns, n_columns)
            nodes.place[n] = (column << 2) | COLUMN
    return uniform, instr, n_columns


@_part
def _column(code, var, rules, columns, n_columns):
    """The column of ``code(variable)``, made where there is none yet."""
    column = columns.of[var * 256 + code]
    if column < 0:
        column = columns.of[var * 256 + code] = n_columns
        for part in range(rules.width[code]):
            columns.code[column + part], columns.var[column + part] = code, var
        n_columns += rules.width[code]
    return column, n_columns


@_part
def _emit(root, nodes, instructions, instr):
    """Write the point instructions backwards from ``instr``; gives the number of slots.

    Seen backwards, an instruction comes before those of its operands, and the lighter
    side, which is computed last, before the heavier one.
    """
    if nodes.group[root] != POINT_NODE:
        instr -= 1
        instructions.code[instr], instructions.a[instr] = _COPY, nodes.place[root]
        instructions.b[instr], instructions.dst[instr] = -1, OUT
        return 0
    n_slots, depth = 0, 1
    nodes.stack[0], nodes.base[root], nodes.place[root] = root, 0, OUT
    while depth > 0:
        depth -= 1
        n = np.int64(nodes.stack[depth])
        heavy, light = nodes.a[n], nodes.b[n]
        if light >= 0 and nodes.need[light] > nodes.need[heavy]:
            heavy, light = light, heavy
        slot = nodes.base[n]
        for child in (heavy, light):
            if child >= 0 and nodes.group[child] == POINT_NODE:
                nodes.base[child], nodes.place[child] = slot, (slot << 2) | SLOT
                nodes.stack[depth] = child
                slot, depth = slot + 1, depth + 1
        n_slots = max(n_slots, slot)
        instr -= 1
        _write(instructions, instr, n, nodes, nodes.place[n])
    return n_slots


@_part
def _write(instructions, instr, n, nodes, dst):
    b = nodes.b[n]
    instructions.code[instr], instructions.a[instr] = nodes.code[n], nodes.place[nodes.a[n]]
    instructions.b[instr], instructions.dst[instr] = nodes.place[b] if b >= 0 else -1, dst


# ── a program that is checked ────────────────────────────────────────────────────────


def verify(program: Program) -> None:
    """Check that every instruction reads what was written before and the last one writes the result.

    Raises
    ------
    PopulationError
        Shows the listing of the first bad program with the line marked.
    """
    width = table_rules(program.precision).width
    bad = _first_bad(
        program.code, program.a, program.b, program.dst, program.offsets, program.n_prologue, program.n_params,
        program.first_const, len(program.column_code), program.n_slots, program.n_uniforms, ops.ARITY.copy(), width,
    )  # fmt: skip
    if bad >= 0:
        i = int(np.searchsorted(program.offsets, bad, side="right")) - 1
        lines = program.listing(i).split("\n")
        lines[bad - program.offsets[i]] += "    <-- not allowed here"
        raise PopulationError(f"program {i} is damaged:\n" + "\n".join(lines))


@compiled
def _first_bad(
    code, a, b, dst, offsets, n_prologue, n_params, first_const, n_columns, n_slots, n_uniforms, arity, width
):
    written = np.zeros(max(n_slots, 1), np.bool_)
    for i in range(len(offsets) - 1):
        written[:] = False
        uniforms = n_params[i] + first_const[i + 1] - first_const[i]
        for k in range(offsets[i], offsets[i + 1]):
            in_prologue = k < offsets[i] + n_prologue[i]
            if arity[code[k]] != (a[k] >= 0) + (b[k] >= 0):
                return k
            for operand in (a[k], b[k]):
                index = operand >> 2
                if operand >= 0 and not (
                    (operand & 3 == UNIFORM and index < uniforms)
                    or (operand & 3 == COLUMN and index < n_columns and not in_prologue)
                    or (operand & 3 == SLOT and index < n_slots and written[index])
                ):
                    return k
            last = k + 1 == offsets[i + 1]
            if in_prologue:
                if dst[k] != (uniforms << 2) | UNIFORM or last:
                    return k
                uniforms += width[code[k]]
                if uniforms > n_uniforms:
                    return k
            elif last:
                if dst[k] != OUT:
                    return k
            elif dst[k] & 3 != SLOT or dst[k] < 0 or dst[k] >> 2 >= n_slots:
                return k
            else:
                written[dst[k] >> 2] = True
    return -1
