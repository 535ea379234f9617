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
operator is its formula there, and a user's is written out.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from exprkit.backends import loss_tokens
from exprkit.backends.cpu.kernels import REAL, Kernels, module_text
from exprkit.backends.cpu.reductions import in_whole_vectors, load, sure_or_again
from exprkit.backends.loss_tokens import Tokens, power_of, written
from exprkit.operators import defined, ops, simd_formulas
from exprkit.operators.llvm_writer import Code, Target
from exprkit.operators.simd_values import SIZE, Vec, where
from exprkit.text.tokens import OPERATOR, VARIABLE

MOST, LEAST = 4, 2  # registers side by side: of SHORT losses, and of those whose values would not stay in registers
SHORT = 12  # tokens


def can_sum(tokens: Tokens) -> bool:
    """Whether all operators have formulas: those that are functions of the user's have none."""
    kinds, values = tokens
    own = [defined.row(code) for code in defined.codes_in(kinds, values, OPERATOR)]
    inner = [row for row in own if isinstance(row, defined.Definition)]
    return len(inner) == len(own) and all(can_sum((row.kinds, row.values)) for row in inner)


@functools.cache
def _own_text() -> str:
    """What makes the code: another text of it makes other code."""
    return "".join(Path(module).read_text("utf-8") for module in (__file__, str(loss_tokens.__file__)))


def sum_of(kernels: Kernels, tokens: Tokens, counted: bool) -> int:
    """The address of the loss's sum; variable 0 is f, variable k column k - 1.

    ``counted``: the last column says how much a point counts; where it is 0 the loss there is not looked at.
    """
    kinds, values = tokens
    made_of = f"{kinds.tobytes()!r} {values.tobytes()!r} {counted} {_own_text()}"
    name = f"loss_{sha256(made_of.encode()).hexdigest()[:16]}"
    arguments = "ptr %f, ptr %y, ptr %next, i64 %n"

    def text(target: Target, dtype: str) -> str:
        code = _sum(target, REAL[dtype], tokens, counted, kernels.precision == "fast")
        return module_text([(code, name, arguments, "double")])

    return kernels.functions([name], text, made_of)[name]


def _sum(target: Target, real: str, tokens: Tokens, counted: bool, fast: bool) -> Code:
    """In the data's type over a tile, as ``reductions`` has it; in float64 where that overflows or vanishes."""
    code = Code(target, real, (MOST if len(tokens[0]) <= SHORT else LEAST) * target.width // SIZE[real])
    kinds, values = tokens
    n_columns = int(values[kinds == VARIABLE].max(initial=0)) + counted
    first, following = (code.let(f"ptrtoint ptr {name} to i64") for name in ("%y", "%next"))
    step = code.let(f"sub i64 {following}, {first}")
    columns = ["%y"]
    for k in range(1, n_columns):
        columns.append(code.let(f"getelementptr i8, ptr %y, i64 {code.let(f'mul i64 {step}, {k}')}"))

    def total(wide: bool) -> str:
        products: dict[str, tuple[Vec, Vec]] = {}  # by name their factors, where they may be rounded with what is added

        def applied(row: ops.Operator, operands: list[Vec]) -> Vec:
            if fast and not wide and row.code == ops.SQRT:
                return simd_formulas.sqrt_of_reciprocal(*operands)
            together = _times_plus(products, row.code, *operands)
            if together is not None:
                return together
            made = ((row.simd_fast if fast else None) or row.simd)(*operands)
            if fast and not wide and target.fma and row.code in (ops.MUL, ops.SQR):
                products[made.name] = operands[0], operands[-1]
            return made

        def power(row: ops.Operator, base: Vec, exponent: float) -> Vec | None:
            made = power_of(base.abs() if row.code == ops.POWABS else base, exponent, applied)
            if made is None or fast or exponent.is_integer() or row.code == ops.POWABS:
                return made
            return where(base == -math.inf, math.inf, made)  # whose root is nan

        added = None if counted or wide else _added(tokens)
        of_product = fast and not (counted or wide) and (kinds[-1], values[-1]) == (OPERATOR, ops.LOG)

        def body(i: str, totals: list[Vec], mask: Vec | None) -> list[Vec]:
            numbers = [load(code, base, i, mask) for base in ("%f", *columns[:n_columns])]
            if added is not None or of_product:
                operand = written((kinds[:-1], values[:-1]), numbers, code.constant, applied, known=_known, power=power)
                return _times(operand, *totals) if added is None else [added(operand, totals[0])]
            loss = written(tokens, numbers, code.constant, applied, known=_known, power=power)
            if loss.name in products and not counted:
                first, second = products[loss.name]
                return [first.fma(second, totals[0])]
            if counted:
                weight = numbers[-1]
                loss = where(weight == 0.0, 0.0, loss * weight)
            return [totals[0] + (loss.widen() if wide and not loss.double else loss)]

        if of_product:
            return code.total(_log_of_product(*in_whole_vectors(code, body, [*map(code.constant, (0, 1, math.inf))])))
        zero = code.constant(0.0, "double" if wide else real)
        return code.total(in_whole_vectors(code, body, [zero])[0])

    found = total(wide=real == "double")
    if real == "float":
        sure_or_again(code, found, lambda: total(wide=True))
    code.line(f"ret double {found}")
    return code


def _times_plus(products: dict[str, tuple[Vec, Vec]], code: int, *operands: Vec) -> Vec | None:
    """A sum or difference one of whose operands is a product, rounded once."""
    if code not in (ops.ADD, ops.SUB):
        return None
    (a, b), minus = operands, code == ops.SUB
    if a.name in products:
        first, second = products[a.name]
        return first.fma(second, -b if minus else b)
    if b.name in products:
        first, second = products[b.name]
        return (-first if minus else first).fma(second, a)
    return None


def _times(a: Vec, power: Vec, product: Vec, least: Vec) -> list[Vec]:
    """2^power * product, times a; the least of all factors."""
    more, product = (product * a).around_one()
    return [power + more, product, least.at_most(a)]


def _log_of_product(power: Vec, product: Vec, least: Vec) -> Vec:
    """The sum of the factors' logarithms; nan where one has none."""
    return where(least < 0.0, math.nan, power.fma(math.log(2), simd_formulas.log(product)))


def _added(tokens: Tokens) -> Callable[..., Vec] | None:
    """What adds the loss to a sum, of one operand, for less than the loss and an addition."""
    row = defined.row(int(tokens[1][-1])) if tokens[0][-1] == OPERATOR else None
    formula = simd_formulas.logcosh
    return formula if isinstance(row, defined.Definition) and _formula_of(row) is formula else None


def _known(definition: defined.Definition, operands: list[Vec]) -> Vec | None:
    formula = _formula_of(definition)
    return formula and formula(*operands)


def _formula_of(definition: defined.Definition) -> Callable[..., Vec] | None:
    """That of what is in ``ops.LOSS_FORMULAS`` and has one of its own."""
    return getattr(simd_formulas, definition.name, None) if definition.text in ops.LOSS_FORMULAS else None
