"""``certificate``: the minimum of a fit in many digits, and how many of those of the fit itself are right.

In: a ``FitResult`` of one expression, fitted by least squares.  Out: a table.

The certified values of NIST's Statistical Reference Datasets were made in this way: from a fit in float64, with 128
bits (https://www.itl.nist.gov/div898/strd/general/bkground.html).  Here Newton's method goes on from the fit, with
derivatives in symbols, until its step changes none of the digits asked for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mpmath
import numpy as np
import sympy

from exprkit.errors import ArgumentError, brought_by
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

if TYPE_CHECKING:
    import pandas as pd

GUARD = 12  # digits beyond those asked for: of the data's condition, and of a residual sum far below y
ROUNDS = 30  # of Newton's method, each of which gives some five to ten digits where float64 was near
MOST_DIGITS = 16  # of a float64


def certificate(result: Any, names: list[str], digits: int) -> pd.DataFrame:
    """The table of ``FittedExpression.certify``, from a fit of one expression whose parameters have these names."""
    with brought_by("frames"):
        import pandas as pd
    goal, n_params = result.goal, len(names)
    if goal.loss != "squares" or result._composed is not None:
        raise ArgumentError("only least squares can be certified, without a loss of your own, a prior or ties")
    params = result.params[0, :n_params]
    if not len(goal.y) or not n_params or result.at_bound[0].any() or not np.isfinite(params).all():
        reason = "only finite parameters at no bound can be certified, of a fit that holds its data"
        raise ArgumentError(f"{reason}; this one ended because {result.reason[0]}")
    with mpmath.workdps(2 * digits + GUARD):
        start = [mpmath.mpf(p) for p in params.tolist()]
        try:
            p, errors, loss = ManyDigits(result.pop.expanded(), goal, names).minimum(start, mpmath.mpf(10) ** -digits)
        except (ArithmeticError, ValueError) as error:  # mpmath's ValueError: a matrix is not positive definite
            raise ArgumentError(f"there is no minimum near these parameters: {error}") from None
        changes = [(a - b) / (b or 1) for a, b in zip([*start, float(result.loss[0])], [*p, loss], strict=True)]
        right = [-float(mpmath.log10(abs(change))) if change else MOST_DIGITS for change in changes]
        texts = [[mpmath.nstr(v, digits) for v in values] for values in ([*p, loss], errors)]
        table = {"value": texts[0], "error": [*texts[1], ""], "digits": np.clip(right, 0, MOST_DIGITS).round(1)}
        return pd.DataFrame(table, index=[*names, "sum of squares"])


class ManyDigits:
    """Values and derivatives of a sum of squares in mpmath's present precision; data as their decimals are printed."""

    def __init__(self, pop: Population, goal: Any, names: list[str]) -> None:
        first = [pop.diff(name) for name in names]
        self.value, self.slopes = pop[0], [f[0] for f in first]
        self.curves = {
            (i, j): first[i].diff(names[j])[0]
            for i, f in enumerate(self.slopes)
            for j in set(f.values[f.kinds == PARAMETER].tolist())
            if j <= i
        }
        w = np.ones(len(goal.y)) if goal.w is None else goal.w
        columns = (goal.X[w > 0], goal.y[w > 0], w[w > 0])
        self.X, self.y, self.w = ([_decimals(row) for row in np.atleast_2d(part.T).T] for part in columns)

    def sums(self, p: list[Any], is_curved: bool) -> tuple[Any, Any, Any, Any]:
        """The sum of squares, half its gradient, J'WJ and, where ``is_curved``, half its second derivatives."""
        n = len(p)
        loss, g, A, H = mpmath.mpf(0), mpmath.zeros(n, 1), mpmath.zeros(n), mpmath.zeros(n)
        for x, (y,), (w,) in zip(self.X, self.y, self.w, strict=True):
            r = value(self.value, x, p) - y
            slopes = [w * value(f, x, p) for f in self.slopes]
            loss += w * r * r
            for i, slope in enumerate(slopes):
                g[i] += slope * r
                for j in range(i + 1):
                    A[i, j] += slope * slopes[j] / w
                    if is_curved and (i, j) in self.curves:
                        H[i, j] += w * r * value(self.curves[i, j], x, p)
        for i in range(n):
            for j in range(i):
                A[j, i], H[j, i] = A[i, j], H[i, j]
        return loss, g, A, A + H

    def minimum(self, p: list[Any], tolerance: Any) -> tuple[list[Any], list[Any], Any]:
        """Parameters, standard errors and loss where Newton's method ends."""
        n, size = len(p), mpmath.norm([y for (y,) in self.y])
        for _ in range(ROUNDS):
            loss, g, A, H = self.sums(p, True)
            mpmath.cholesky(H)  # raises ValueError at a saddle
            step = mpmath.lu_solve(H, -g)
            p = [a + d for a, d in zip(p, step, strict=True)]
            nothing = [tolerance**2 * size / mpmath.sqrt(H[i, i]) for i in range(n)]  # for what is 0
            if all(abs(d) <= max(tolerance * abs(a), b) for a, d, b in zip(p, step, nothing, strict=True)):
                break
        else:
            raise ArithmeticError("Newton's method does not end")
        loss, _, A, _ = self.sums(p, False)
        free = len(self.y) - n
        inverse = A**-1
        return p, [mpmath.sqrt(inverse[i, i] * loss / free) if free > 0 else mpmath.nan for i in range(n)], loss


def value(expression: Expression, variables: list[Any], params: list[Any]) -> Any:
    """An expression's value at one point in mpmath's present precision; ArithmeticError where it is not real."""
    stack: list[Any] = []
    for kind, token in zip(expression.kinds.tolist(), expression.values, strict=True):
        if kind == OPERATOR:
            row = ops.BY_CODE[int(token)]
            operands = stack[len(stack) - row.arity :]
            stack[len(stack) - row.arity :] = [_function(row.code)(*operands)]
        elif kind == CONSTANT:
            stack.append(mpmath.mpf(float(token.view(np.float64))))
        else:
            stack.append((variables if kind == VARIABLE else params)[int(token)])
    if isinstance(stack[0], mpmath.mpc) or not mpmath.isfinite(stack[0]):
        raise ArithmeticError("a value is not finite and real")
    return stack[0]


@functools.cache
def _function(code: int) -> Callable[..., Any]:
    """An operator on mpmath's numbers, by its form in SymPy."""
    row = ops.BY_CODE[code]
    if row.sympy is None:
        raise ArithmeticError(f"{row.name} has no form in SymPy")
    symbols = sympy.symbols("a b")[: row.arity]
    return sympy.lambdify(symbols, row.sympy(sympy, *symbols), "mpmath")


def _decimals(numbers: np.ndarray) -> list[Any]:
    return [mpmath.mpf(str(number)) for number in numbers]
