"""The tokens of a loss given as text, from which each backend generates its machine code.

In: tokens over f and what the loss reads, and how a backend writes a number and an operator.  Out: what the last
operator gave.  A user's operator that is a formula is written out; a power by a number that has an operator of its
own is that operator.

    >>> import numpy as np
    >>> from exprkit.backends.loss_tokens import written
    >>> f_minus_y = np.array([1, 1, 3], np.uint8), np.array([0, 1, 2], np.uint64)  # f y -
    >>> written(f_minus_y, ["f", "y"], str, lambda row, operands: f"{row.name}({', '.join(operands)})")
    'sub(f, y)'
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np

from exprkit.operators import defined, ops
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

Tokens = tuple[np.ndarray, np.ndarray]
T = TypeVar("T")
MOST_POWER = 8  # that is made of products: each rounds once, and a power may be wrong by 5 units of its last digit


def rows_in(tokens: Tokens) -> list[ops.Operator]:
    """The table's operators in a loss and in the user's formulas that it names."""
    rows: list[ops.Operator] = []
    for code in np.unique(tokens[1][tokens[0] == OPERATOR]).tolist():
        row = defined.row(code)
        if isinstance(row, defined.Definition):
            rows += rows_in((row.kinds, row.values))
        elif row is not None:
            rows.append(row)
    return rows


def written(
    tokens: Tokens,
    variables: Sequence[T],
    number: Callable[[float], T],
    applied: Callable[[ops.Operator, list[T]], T],
    whole_powers: bool = False,
    known: Callable[[defined.Definition, list[T]], T | None] = lambda definition, operands: None,
    power: Callable[[ops.Operator, T, float], T | None] = lambda row, base, exponent: None,
) -> T:
    """The result of tokens over variables, with numbers and operators as a backend writes them.

    ``whole_powers``: powers by whole numbers are an operator of their own.  ``known`` and ``power`` give better code
    that a backend has for a formula of the user's or a power by a number; None: it is written as any other.
    """

    def value(tokens: Tokens, operands: Sequence[tuple[T, float | None]]) -> tuple[T, float | None]:
        stack: list[tuple[T, float | None]] = []
        for kind, index in zip(tokens[0].tolist(), tokens[1].tolist(), strict=True):
            if kind == OPERATOR and index == ops.PAIR_OF:  # both stay where they are
                continue
            if kind == CONSTANT:
                constant = float(np.uint64(index).view(np.float64))
                stack.append((number(constant), constant))
            elif kind == OPERATOR:
                row = defined.known(index)
                n = row.arity if isinstance(row, defined.Definition) else len(row.letters)
                own = stack[len(stack) - n :]
                del stack[len(stack) - n :]
                stack.append(of(row, own))
            else:
                stack.append((variables[index], None) if kind == VARIABLE else operands[index])
        return stack[0]

    def of(row: defined.Written, own: list[tuple[T, float | None]]) -> tuple[T, float | None]:
        parts = [part for part, _ in own]
        if isinstance(row, defined.Definition):
            better = known(row, parts)
            return value((row.kinds, row.values), own) if better is None else (better, None)
        exponent = own[-1][1] if row.arity == 2 else None
        row = _simpler(row, exponent, whole_powers)
        if exponent is not None and row.code in (ops.POW, ops.POWABS):
            better = power(row, parts[0], exponent)
            if better is not None:
                return better, None
        return applied(row, parts[: len(row.letters)]), None

    return value(tokens, ())[0]


class Sums(Generic[T]):
    """Operators of a loss of which a product, and a logarithm as one, is added to something in one step.

    ``fma`` makes a * b + c, ``negative`` -a, ``key`` tells parts apart; ``log_of_2``: the number, where a logarithm is
    that of base 2 times it.
    """

    def __init__(
        self,
        applied: Callable[[ops.Operator, list[T]], T],
        fma: Callable[[T, T, T], T],
        negative: Callable[[T], T],
        key: Callable[[T], str],
        log_of_2: T | None = None,
    ) -> None:
        self._applied, self._fma, self._negative, self._key, self._log_of_2 = applied, fma, negative, key, log_of_2
        self._factors: dict[str, tuple[T, T]] = {}  # of products, by their keys

    def applied(self, row: ops.Operator, operands: list[T]) -> T:
        """An operator with its operands."""
        if row.code in (ops.ADD, ops.SUB):
            (a, b), minus = operands, row.code == ops.SUB
            if (factors := self.factors(a)) is not None:
                return self._fma(*factors, self._negative(b) if minus else b)
            if (factors := self.factors(b)) is not None:
                first, second = factors
                return self._fma(self._negative(first) if minus else first, second, a)
        if row.code == ops.LOG and self._log_of_2 is not None:
            row, operands = ops.BY_CODE[ops.MUL], [self._applied(ops.BY_CODE[ops.LOG2], operands), self._log_of_2]
        result = self._applied(row, operands)
        if row.code in (ops.MUL, ops.SQR):
            self._factors[self._key(result)] = operands[0], operands[-1]
        return result

    def factors(self, part: T) -> tuple[T, T] | None:
        """The two factors of a part that is a product."""
        return self._factors.get(self._key(part))

    def added(self, total: T, part: T) -> T:
        """The total and a part."""
        factors = self.factors(part)
        return self._applied(ops.BY_CODE[ops.ADD], [total, part]) if factors is None else self._fma(*factors, total)


def _simpler(row: ops.Operator, number: float | None, whole_powers: bool) -> ops.Operator:
    """The operator by the table's rules for a second operand that is a number."""
    if number is None:
        return row
    simpler = row.rewrite.constant_b.get(number)
    if simpler is None and whole_powers and number.is_integer():
        simpler = row.rewrite.whole_b
    return row if simpler is None else ops.BY_NAME[simpler]


def power_of(base: T, exponent: float, applied: Callable[[ops.Operator, list[T]], T], parts: int = 4) -> T | None:
    """A power by a whole number, a half or, of 4 ``parts``, a quarter as products and roots; None for others."""
    quarters = 4 * exponent
    if not (0 < exponent <= MOST_POWER and (parts * exponent).is_integer()):
        return None
    multiply, square, root = (ops.BY_CODE[code] for code in (ops.MUL, ops.SQR, ops.SQRT))
    factors, square_of, whole = [], base, int(exponent)
    while whole:
        if whole & 1:
            factors.append(square_of)
        whole >>= 1
        square_of = applied(square, [square_of]) if whole else square_of
    rest = base
    for part in (2, 1):
        if int(quarters) % 4:
            rest = applied(root, [rest])
            if int(quarters) & part:
                factors.append(rest)
    product = factors[0]
    for factor in factors[1:]:
        product = applied(multiply, [product, factor])
    return product
