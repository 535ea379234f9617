"""Machine code of losses given as text: computed in registers over a tile, with no intermediate arrays.

In: a loss's tokens over f and columns.  Out: the address of ``sum(f, y, next, n)``, the sum of the loss over n points
as a double. Column k lies at ``y + k (next - y)``: where there is one alone, ``next`` is not looked at.

    >>> from exprkit.backends.cpu import kernels, loss_kernels
    >>> import numpy as np
    >>> f_minus_y = np.array([1, 1, 3], np.uint8), np.array([0, 1, 2], np.uint64)  # f y -
    >>> address = loss_kernels.sum_of(kernels.kernels("float32", "ieee"), f_minus_y, counted=False)
    >>> address != 0
    True

A loss that is the logarithm of something is, with precision="fast", the logarithm of a product: one at the end, and
for each point a multiplication that rounds no more than what it is the logarithm of was rounded before.  Of float32 a
root is that of a reciprocal then, to 2 units of its last digit.

Powers by whole numbers, halves and quarters up to MOST_POWER are products and roots.  With precision="fast" a product
is added to something in one step, which rounds once.

What is a loss in ``operators.ops.LOSS_FORMULAS`` and has a formula of its own in ``simd_formulas`` is that; every other
operator is its formula there; a user's is written out, or, of a function, what is known of it
(``operators.traced``).
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from exprkit.backends import loss_tokens
from exprkit.backends.cpu.kernels import REAL, Kernels, is_called, module_text
from exprkit.backends.cpu.reductions import in_whole_vectors, load, sure_or_again
from exprkit.backends.loss_tokens import Sums, Tokens, power_of, rows_in, written
from exprkit.operators import defined, ops, simd_formulas
from exprkit.operators.llvm_writer import Code, Target
from exprkit.operators.simd_values import SIZE, Vec, literal, unless, unless_both, where
from exprkit.text.tokens import OPERATOR, VARIABLE

MOST, LEAST = 4, 2  # registers side by side: of SHORT losses, and of those whose values would not stay in registers
SHORT = 12  # tokens
SMALL = 1e-30  # what is not larger may have vanished in float32


def can_sum(tokens: Tokens) -> bool:
    """Whether all operators have formulas: of the user's functions those have that are known as operators."""
    return not any(is_called(row) for row in rows_in(tokens))


@functools.cache
def _own_text() -> str:
    """The source of what writes the code."""
    return "".join(Path(module).read_text("utf-8") for module in (__file__, str(loss_tokens.__file__)))


def sum_of(kernels: Kernels, tokens: Tokens, counted: bool) -> int:
    """The address of the loss's sum; variable 0 is f, variable k column k - 1.

    ``counted``: the last column says how much a point counts; where it is 0 the loss there is not looked at.
    """
    kinds, values = tokens
    traces = [row.traced for row in rows_in(tokens)]
    made_of = f"{kinds.tobytes()!r} {values.tobytes()!r} {traces!r} {counted} {_own_text()}"
    name = f"loss_{sha256(made_of.encode()).hexdigest()[:16]}"
    arguments = "ptr %f, ptr %y, ptr %next, i64 %n"

    def text(target: Target, dtype: str) -> str:
        code = _sum(target, REAL[dtype], tokens, counted, kernels.precision == "fast")
        return module_text([(code, name, arguments, "double")])

    return kernels.functions([name], text, made_of)[name]


def _sum(target: Target, real: str, tokens: Tokens, counted: bool, fast: bool) -> Code:
    """In the data's type over a tile, as ``reductions`` has it; in float64 where that overflows or vanishes."""
    per_register = target.width // SIZE[real]  # register
    code = Code(target, real, (MOST if len(tokens[0]) <= SHORT else LEAST) * per_register)
    kinds, values = tokens
    n_columns = int(values[kinds == VARIABLE].max(initial=0)) + counted
    first, following = (code.let(f"ptrtoint ptr {name} to i64") for name in ("%y", "%next"))
    step = code.let(f"sub i64 {following}, {first}")
    columns = ["%f", "%y"]
    for k in range(1, n_columns):
        columns.append(code.let(f"getelementptr i8, ptr %y, i64 {code.let(f'mul i64 {step}, {k}')}"))

    def numbers(i: str, mask: Vec | None) -> list[Vec]:
        return [load(code, base, i, mask) for base in columns[: n_columns + 1]]

    def loss_of(read: list[Vec], fast: bool = fast) -> Vec:
        loss = _written(code, tokens, read, fast)[0]
        return where(read[-1] == 0.0, 0.0, loss * read[-1]) if counted else loss

    if real == "double":
        zero = code.constant(0.0)
        sums = in_whole_vectors(code, lambda i, sums, mask: [sums[0] + loss_of(numbers(i, mask))], [zero])
        code.line(f"ret double {code.total(sums[0])}")
        return code

    if not counted and (kinds[-1], values[-1]) == (OPERATOR, ops.LOG):
        total, unsure = _log_of_product(code, (kinds[:-1], values[:-1]), numbers, fast)
    else:
        total, unsure = _in_floats(code, tokens, numbers, counted, fast), None

    def again() -> str:
        """Terms of float32 as long as these are sure, in float64 else; one that is nan is the last."""
        code.lanes = per_register

        def body(i: str, sums: list[Vec], mask: Vec | None) -> list[Vec]:
            read = numbers(i, mask)
            loss = loss_of(read)
            size = loss.abs()
            rare = ~((size > SMALL) & (size < math.inf))
            return [sums[0] + unless(rare, loss.widen(), lambda: loss_of([a.widen() for a in read], fast=False))]

        sums = in_whole_vectors(code, body, [code.constant(0.0, "double")], lambda sums: sums[0].isnan())
        return code.total(sums[0])

    sure_or_again(code, total, again, unsure)
    code.line(f"ret double {total}")
    return code


def _in_floats(
    code: Code, tokens: Tokens, numbers: Callable[[str, Vec | None], list[Vec]], counted: bool, fast: bool
) -> str:
    """The sum in float32."""
    added = None if counted else _added(tokens, fast)

    def body(i: str, totals: list[Vec], mask: Vec | None) -> list[Vec]:
        read = numbers(i, mask)
        if added is not None:
            return [added(_written(code, (tokens[0][:-1], tokens[1][:-1]), read, fast)[0], totals[0])]
        loss, sums = _written(code, tokens, read, fast)
        return [totals[0] + where(read[-1] == 0.0, 0.0, loss * read[-1])] if counted else [sums.added(totals[0], loss)]

    def alone(i: str, totals: list[Vec]) -> list[Vec]:
        return body(i, totals, None)

    many, per_register = code.lanes, code.target.width // SIZE["float"]
    blocks, whole = (code.let(f"and i64 %n, {-n}") for n in (many, per_register))
    total = code.in_lanes(code.folds(0, blocks, many, alone, [code.constant(0.0)])[0], per_register, operator.add)
    total = code.folds(blocks, whole, per_register, alone, [total])[0]
    there = code.first_lanes(code.let(f"sub i64 %n, {whole}"))
    return code.total(unless(there, total, lambda: where(there, body(whole, [total], there)[0], total)))


def _log_of_product(
    code: Code, tokens: Tokens, numbers: Callable[[str, Vec | None], list[Vec]], fast: bool
) -> tuple[str, str]:
    """The sum of the factors' logarithms, and where it is not that: the product overflows, or one has none.

    The product is made in float64; with ``fast``, first that of two factors in float32.
    """
    code.lanes = lanes = code.target.width // SIZE["float"]

    def factor(i: str, mask: Vec | None = None) -> Vec:
        return _written(code, tokens, numbers(i, mask), fast)[0]

    def times(totals: list[Vec], *factors: Vec) -> list[Vec]:
        product, signs = totals
        for a in factors:
            signs = signs | a.bits()
        if fast:
            factors = tuple(map(operator.mul, factors[::2], factors[1::2])) or factors
        for a in factors:
            product = product * a.widen()
        return [product, signs]

    def block(i: str, totals: list[Vec]) -> list[Vec]:
        places = [i, *(code.let(f"add i64 {i}, {k * lanes}") for k in range(1, MOST))]
        return times(totals, *map(factor, places))

    totals = [code.constant(1.0, "double"), code.constant(0, "i32")]
    blocks, whole = (code.let(f"and i64 %n, {-n}") for n in (MOST * lanes, lanes))
    totals = code.folds(0, blocks, MOST * lanes, block, totals)
    product, signs = code.folds(blocks, whole, lanes, lambda i, totals: times(totals, factor(i)), totals)
    there = code.first_lanes(code.let(f"sub i64 %n, {whole}"))

    def rest() -> tuple[Vec, Vec]:
        more, more_signs = times([product, signs], factor(whole, there))
        return where(there, more, product), where(there, more_signs, signs)

    product, signs = unless_both(there, (product, signs), rest)
    unsure = ~((product > SMALL) & (product < math.inf)) | (signs < 0)
    power, product = product.around_one()
    every = code.total(power)
    product = code.in_lanes(product, code.target.width // SIZE["double"], operator.mul)
    log = code.total(simd_formulas.log(product))
    code.lanes = lanes
    powers = code.let(f"fmul double {every}, {literal(math.log(2), 'double')}")
    return code.let(f"fadd double {powers}, {log}"), code.any_lane(unsure)


def _written(code: Code, tokens: Tokens, numbers: list[Vec], fast: bool) -> tuple[Vec, Sums[Vec]]:
    """The value of the tokens, and the products in it."""
    double = numbers[0].double

    def applied_once(row: ops.Operator, operands: list[Vec]) -> Vec:
        if row.code == ops.SQRT and not double:
            return simd_formulas.sqrt_of_reciprocal(*operands)
        return ((row.simd_fast if fast else None) or row.simd)(*operands)

    sums: Sums[Vec] = Sums(applied_once, Vec.fma, operator.neg, lambda a: a.name)
    applied = sums.applied if fast and code.target.fma and not double else applied_once

    def power(row: ops.Operator, base: Vec, exponent: float) -> Vec | None:
        result = power_of(base.abs() if row.code == ops.POWABS else base, exponent, applied)
        if result is None or fast or exponent.is_integer() or row.code == ops.POWABS or not double:
            return result
        return where(base == -math.inf, math.inf, result)  # whose root is nan: of float32 it is made again

    def number(value: float) -> Vec:
        return code.constant(value, numbers[0].element)

    return written(tokens, numbers, number, applied, known=_known, power=power), sums


def _added(tokens: Tokens, fast: bool) -> Callable[..., Vec] | None:
    """The function that adds the loss, of one operand, to a sum for less than the loss and an addition; or None."""
    row = defined.row(int(tokens[1][-1])) if tokens[0][-1] == OPERATOR else None
    formula = simd_formulas.logcosh
    is_that = isinstance(row, defined.Definition) and _formula_of(row) is formula
    return functools.partial(formula, fast=fast) if is_that else None


def _known(definition: defined.Definition, operands: list[Vec]) -> Vec | None:
    formula = _formula_of(definition)
    return formula and formula(*operands)


def _formula_of(definition: defined.Definition) -> Callable[..., Vec] | None:
    """The formula of a definition in ``ops.LOSS_FORMULAS`` that has one of its own."""
    return getattr(simd_formulas, definition.name, None) if definition.text in ops.LOSS_FORMULAS else None
