"""Linearity analysis: which parameters enter an expression linearly, and which it can be differentiated by.

In: a population.  Out: bits by expression, which the fits of all backends read.  One walk over the
tokens, with no derivative written down.  What an operator's derivatives depend on is read off the table's
``derivative`` cells; two parameters that meet there have a mixed second derivative.  Where
a cell says 0 a parameter ends: ``floor(p1)`` has no slope, whatever it stands in.

    >>> import exprkit as ek
    >>> from exprkit.programs.linearity import dependence
    >>> dependence(ek.parse(["p1 * x1 + p2", "p1 * p2 + x1", "exp(p1) * p2", "digamma(p1)"])).linear.tolist()
    [3, 1, 2, 0]
    >>> dependence(ek.parse(["digamma(p1)", "digamma(x1) * p1", "digamma(floor(p1))"])).differentiable
    array([False,  True,  True])
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

import numpy as np

from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.operators.defined import table, table_of_rows
from exprkit.runtime import slices
from exprkit.runtime.bags import zeros
from exprkit.runtime.jit import compiled
from exprkit.text.tokens import OPERATOR, PARAMETER

_A_OF_A, _B_OF_A, _A_OF_B, _B_OF_B = 1, 2, 4, 8  # dy/da depends on a, on b; dy/db on a, on b
_NO_A, _NO_B, _NO_RULE = 16, 32, 64  # dy/da, dy/db is 0 everywhere; there is none
_LAST = 63  # bit of all parameters from the 64th on, which are never taken for linear


class Dependence(NamedTuple):
    """Linear parameters and differentiability by expression.

    ``linear`` (uint64): bit j is set for parameter j of a set that the expression is jointly
    linear in; of several possible sets the one that takes the parameters in their order.
    ``differentiable`` (bool): False where a parameter that makes a difference is inside an operator
    without a derivative.
    """

    linear: np.ndarray
    differentiable: np.ndarray


def dependence(pop: Population, threads: int | None = None) -> Dependence:
    """Linear parameters and differentiability of every expression, made by ``threads`` and kept with the population.

    Whoever asks for the same population again gets the same arrays, not to be written to.
    """
    pop = pop.expanded()
    known: Dependence | None = pop.analyses.get("dependence")
    if known is not None:
        return known
    result = Dependence(np.zeros(len(pop), np.uint64), np.ones(len(pop), np.bool_))
    longest = int(np.diff(pop.offsets).max(initial=1))

    def walk_slice(begin: int, end: int) -> None:
        scratch = zeros(_Sets, depth=max(longest, slices.APART))
        tokens = _Walked(pop.kinds, pop.values, pop.offsets[begin : end + 1], ops.ARITY, uses_of_operators())
        _walk_all(tokens, scratch, *(array[begin:end] for array in result))

    slices.each(walk_slice, slices.cut(pop.offsets, threads))
    pop.analyses["dependence"] = result
    return result


class _Walked(NamedTuple):
    """Expressions, and what is known of operators by code."""

    kinds: np.ndarray
    values: np.ndarray
    offsets: np.ndarray
    arity: np.ndarray
    uses: np.ndarray


class _Sets(NamedTuple):
    """Sets of parameters as bits, for one expression."""

    stack: Annotated[np.ndarray, "uint64[depth]"]  # the parameters that an operand has a derivative by
    meets: Annotated[np.ndarray, "uint64[64]"]  # by parameter, those it has a second derivative with; all 0 in between


@table_of_rows
def no_slope() -> frozenset[tuple[int, int]]:
    """(operator's code, operand) of every derivative that is 0 everywhere."""
    return frozenset((row.code, k) for row in table() for k, text in enumerate(row.derivative) if text == "0")


@table_of_rows
def uses_of_operators() -> np.ndarray:
    """The operands that an operator's derivatives depend on, as bits by code."""
    uses = np.zeros(256, np.uint8)
    for row in table():
        uses[row.code] = 0 if row.derivative else _NO_RULE | _A_OF_A | _B_OF_A | _A_OF_B | _B_OF_B
        if row.packed and row.derivative:
            uses[row.code] = _A_OF_A | _B_OF_A | _A_OF_B | _B_OF_B
            continue
        for text, of_a, of_b in zip(row.derivative, (_A_OF_A, _A_OF_B), (_B_OF_A, _B_OF_B), strict=False):
            letters = set(re.findall(r"\b[aby]\b", text))
            uses[row.code] |= of_a * bool(letters & {"a", "y"}) | of_b * bool(letters & {"b", "y"})
    packed = {row.code for row in table() if row.packed}
    for code, operand in no_slope():
        if code not in packed:
            uses[code] |= _NO_B if operand else _NO_A
    return uses


@compiled
def _walk_all(tokens, scratch, linear, differentiable):
    """Walk over all expressions."""
    for i in range(len(linear)):
        linear[i], differentiable[i] = walk(tokens, scratch, tokens.offsets[i], tokens.offsets[i + 1])


@compiled
def walk(tokens, scratch, begin, end):
    """Walk over one expression: the bits of its linear parameters, and whether it has derivatives by all."""
    kinds, values, arity, uses = tokens.kinds, tokens.values, tokens.arity, tokens.uses
    stack, meets, nobody = scratch.stack, scratch.meets, np.uint64(0)
    depth, seen, differentiable = 0, nobody, 1
    for t in range(begin, end):
        if kinds[t] != OPERATOR:
            mine = nobody
            if kinds[t] == PARAMETER:
                mine = np.uint64(1) << (values[t] if values[t] < np.uint64(_LAST) else np.uint64(_LAST))
                seen |= mine
            stack[depth] = mine
            depth += 1
            continue
        code = values[t]
        use, a, b = uses[code], stack[depth - arity[code]], nobody
        if arity[code] == 2:
            b = stack[depth - 1]
        depth -= arity[code] - 1
        stack[depth - 1] = a | b
        if a | b == nobody:
            continue
        if use & _NO_RULE:
            differentiable = 0
        if use & _NO_A:
            stack[depth - 1] = b
        if use & _NO_B:
            stack[depth - 1] = nobody if use & _NO_A else a
        _meet(meets, a, (a if use & _A_OF_A else nobody) | (b if use & _B_OF_A else nobody))
        _meet(meets, b, (a if use & _A_OF_B else nobody) | (b if use & _B_OF_B else nobody))
    return _jointly_linear(meets, stack[0] if depth else nobody, seen), differentiable


@compiled
def _meet(meets, these, those):
    """Note that the derivatives by ``these`` depend on ``those``."""
    if these == 0 or those == 0:
        return
    for j in range(_LAST + 1):
        bit = np.uint64(1) << np.uint64(j)
        if bit > these | those:
            break
        if these & bit:
            meets[j] |= those
        if those & bit:
            meets[j] |= these


@compiled
def _jointly_linear(meets, every, seen):
    """Take the parameters in order, each that meets neither itself nor one taken before; clears ``meets``."""
    taken = np.uint64(0)
    for j in range(_LAST + 1):
        bit = np.uint64(1) << np.uint64(j)
        if bit > seen:
            break
        if every & bit and meets[j] & (taken | bit) == 0 and j < _LAST:
            taken |= bit
        meets[j] = 0
    return taken
