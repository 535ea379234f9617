"""``Program``: expressions as three-address instructions, and their listing.

Made by ``lower``, run by every backend.

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

import numpy as np

from exprkit.operators import ops
from exprkit.runtime.jit import inline

SLOT, COLUMN, UNIFORM, OUT = range(4)
_LETTER = "tcu"


@inline
def operand_of(kind, index):
    """The operand of a kind with an index."""
    return (index << 2) | kind


@inline
def kind_of(operand):
    """The kind of an operand."""
    return operand & 3


@inline
def index_of(operand):
    """The index of an operand."""
    return operand >> 2


@inline
def next_operand(operand):
    """The operand of the same kind with the next index: the low part of a pair."""
    return operand + 4


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
    shared: bool  # a slot may be read more than once, and may still be needed after the accumulator has used it

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def listing(self, i: int) -> str:
        """Program ``i`` as text, one instruction per line."""
        start, stop = self.offsets[i], self.offsets[i + 1]
        return "\n".join(self._line(k, k < start + self.n_prologue[i]) for k in range(start, stop))

    def columns(self) -> list[str]:
        """The columns as texts."""
        names = [ops.BY_CODE[int(code)].name for code in self.column_code]
        return [
            f"x{v + 1}" if code == ops.COPY else f"{name}(x{v + 1})"
            for code, name, v in zip(self.column_code, names, self.column_var, strict=True)
        ]

    def _line(self, k: int, once: bool) -> str:
        operands = [operand_text(int(x)) for x in (self.a[k], self.b[k]) if x >= 0]
        text = f"{operand_text(int(self.dst[k]))} = {ops.BY_CODE[int(self.code[k])].name} {', '.join(operands)}"
        return f"{text:24} once per parameter set" if once else text


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
        """Program ``i`` as text, one instruction per line, and where its results are."""
        operands = [operand_text(int(x)) for x in self.results[self.first_result[i] : self.first_result[i + 1]]]
        names = ["value =", *(f"by p{j + 1}:" for j in range(len(operands) - 1))]
        lines = [super().listing(i), "; ".join(f"{name} {text}" for name, text in zip(names, operands, strict=True))]
        return "\n".join(line for line in lines if line)


def operand_text(operand: int) -> str:
    kind, index = operand & 3, operand >> 2
    return f"{_LETTER[kind]}{index}" if kind < OUT else "out" if index == 0 else "nothing"
