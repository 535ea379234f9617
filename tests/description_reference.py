"""Description lengths in mpmath, by none of exprkit's arithmetic: what ``test_description`` compares with.

Values come from the tokens, second derivatives of the likelihood from ``mpmath.diff`` at 30 digits, and the
rule of what is told is written down once more, for one expression at a time.
"""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np

from exprkit.operators import ops
from exprkit.text.tokens import CONSTANT, PARAMETER, VARIABLE

DIGITS = 30
REGULAR = {  # on finite numbers
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "pow": lambda a, b: a**b, "powabs": lambda a, b: abs(a) ** b, "neg": lambda a: -a, "inv": lambda a: 1 / a,
    "sqr": lambda a: a * a, "abs": abs, "sqrt": mp.sqrt, "exp": mp.exp, "log": mp.log, "sin": mp.sin, "cos": mp.cos,
    "logabs": lambda a: mp.log(abs(a)), "sqrtabs": lambda a: mp.sqrt(abs(a)), "cube": lambda a: a**3,
}  # fmt: skip
SPECIAL = {  # where a number or a result is not: IEEE's
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power,
    "powabs": lambda a, b: np.power(np.abs(a), b), "neg": np.negative, "inv": np.reciprocal, "sqr": np.square,
    "abs": np.abs, "sqrt": np.sqrt, "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos,
    "logabs": lambda a: np.log(np.abs(a)), "sqrtabs": lambda a: np.sqrt(np.abs(a)), "cube": lambda a: a**3,
}  # fmt: skip


def operation(name, *operands):
    try:
        y = REGULAR[name](*operands)
        if isinstance(y, mp.mpc):
            return mp.nan
        if not all(mp.isfinite(z) for z in (*operands, y)) or abs(y) > mp.mpf("1.797e308"):
            raise ValueError
        return y
    except (ValueError, ZeroDivisionError, OverflowError):
        with np.errstate(all="ignore"):
            return mp.mpf(float(SPECIAL[name](*(np.float64(float(z)) for z in operands))))


class Expression:
    """One expression with its data, which are (points, variables), (points,) and (points,) or None."""

    def __init__(self, pop, i, X, y, w, kind):
        span = slice(pop.offsets[i], pop.offsets[i + 1])
        self.kinds, self.values = pop.kinds[span].tolist(), pop.values[span]
        self.numbers, self.kind = self.values.view(np.float64), kind
        self.X = [[mp.mpf(x) for x in row] for row in X.tolist()]
        self.y, self.known = [mp.mpf(v) for v in y.tolist()], w is not None
        self.w = [mp.mpf(v) for v in (np.ones(len(y)) if w is None else w).tolist()]

    def value(self, x, p):
        stack = []
        for kind, value, number in zip(self.kinds, self.values.tolist(), self.numbers.tolist(), strict=True):
            if kind in (VARIABLE, PARAMETER):
                stack.append((x if kind == VARIABLE else p)[value])
            elif kind == CONSTANT:
                stack.append(mp.mpf(number))
            else:
                row = ops.BY_CODE[value]
                operands = stack[-row.arity :]
                stack[-row.arity :] = [operation(row.name, *operands)]
        return stack[0]

    def variance(self, p):
        if self.known or self.kind == "poisson":
            return mp.mpf(1)
        return sum((self.value(x, p) - y) ** 2 for x, y in zip(self.X, self.y, strict=True)) / len(self.y)

    def likelihood(self, p, v):
        total = mp.mpf(0)
        for x, y, w in zip(self.X, self.y, self.w, strict=True):
            f = self.value(x, p)
            if self.kind == "gaussian":
                total += w * (f - y) ** 2 / (2 * v) + mp.log(2 * mp.pi * v / w) / 2
            elif f > 0 and mp.isfinite(f):
                total += w * (f - y * mp.log(f) + mp.loggamma(y + 1))
            else:
                total = mp.nan
        return total

    def steps(self, p, j):
        """A parameter's size by its precision; nan where there is no maximum."""
        if p[j] == 0:
            return mp.mpf(0)
        v = self.variance(p)
        information = mp.diff(lambda t: self.likelihood([*p[:j], p[j] * t, *p[j + 1 :]], v), 1, 2)  # times p^2
        steps = mp.sqrt(abs(information) / 12) if mp.isfinite(information) else mp.nan
        return steps if information > 0 or steps < 1 else mp.nan


def finite(number):
    return not mp.isnan(number) and mp.isfinite(number)


def told(expression, params, bounds=(-math.inf, math.inf)):
    """(negative log-likelihood, nats of the parameters, how near to 1 a number of steps came)."""
    with mp.workdps(DIGITS):
        p = [mp.mpf(t) for t in params]
        free = [j for j in range(len(p)) if any(
            kind == PARAMETER and value == j
            for kind, value in zip(expression.kinds, expression.values.tolist(), strict=True)
        )]  # fmt: skip
        residuals = expression.likelihood(p, expression.variance(p))
        steps = {j: expression.steps(p, j) for j in free}
        close = min((abs(s - 1) for s in steps.values() if finite(s)), default=mp.inf)
        small = [j for j in free if steps[j] < 1]
        if small:
            together = [mp.mpf(0) if j in small else t for j, t in enumerate(p)]
            found = expression.likelihood(together, expression.variance(together))
            if finite(found):
                return found, cost(j_steps for j, j_steps in steps.items() if j not in small), close
        while small:
            for j in sorted(small, key=steps.get):
                trial = [mp.mpf(0) if k == j else t for k, t in enumerate(p)]
                found = expression.likelihood(trial, expression.variance(trial))
                if finite(found):
                    break
            else:
                return residuals, mp.inf, close
            p, residuals = trial, found
            free.remove(j)
            steps = {j: expression.steps(p, j) for j in free}
            small = [j for j in free if steps[j] < 1]
        return residuals, cost(steps.values()), close


def cost(steps):
    nats = mp.mpf(0)
    for s in steps:
        nats += mp.log(2 * s) if finite(s) else mp.inf
    return nats
