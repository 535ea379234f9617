"""Derivatives and losses with their gradients beside 100 digits: random expressions of every operator."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from mpmath import mpf

import exprkit as ek
from exprkit.operators import ops
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

DIGITS, STEP = 100, mpf(10) ** -35
LARGEST = mpf(10) ** 300  # beyond, and below its inverse, float64 has other numbers


def is_true(condition):
    return mpf(bool(condition))


OTHERS = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b, "div": lambda a, b: a / b,
    "pow": mpmath.power, "neg": lambda a: -a, "abs": abs, "inv": lambda a: 1 / a, "sqr": lambda a: a * a,
    "cube": lambda a: a**3, "cbrt": lambda a: mpmath.sign(a) * mpmath.cbrt(abs(a)), "log2": lambda a: mpmath.log(a, 2),
    "exp2": lambda a: mpf(2) ** a, "log1p": lambda a: mpmath.log(1 + a), "expm1": lambda a: mpmath.exp(a) - 1,
    "min": min, "max": max, "round": mpmath.nint, "mod": lambda a, b: a - mpmath.floor(a / b) * b,
    "lgamma": lambda a: mpmath.log(abs(mpmath.gamma(a))), "relu": lambda a: max(a, mpf(0)),
    "logistic": lambda a: 1 / (1 + mpmath.exp(-a)), "logabs": lambda a: mpmath.log(abs(a)),
    "sqrtabs": lambda a: mpmath.sqrt(abs(a)), "powabs": lambda a, b: abs(a) ** b,
    "aq": lambda a, b: a / mpmath.sqrt(1 + b * b), "greater": lambda a, b: is_true(a > b),
    "less": lambda a, b: is_true(a < b), "greaterequal": lambda a, b: is_true(a >= b),
    "lessequal": lambda a, b: is_true(a <= b), "cond": lambda a, b: b if a > 0 else mpf(0),
    "logical_and": lambda a, b: is_true(a > 0 and b > 0), "logical_or": lambda a, b: is_true(a > 0 or b > 0),
}  # fmt: skip


def applied(row, operands):
    """An operator's value; ArithmeticError where it is no ordinary real number."""
    try:
        y = OTHERS.get(row.name, getattr(mpmath, row.name, None))(*operands)
    except (ValueError, ZeroDivisionError, OverflowError):
        raise ArithmeticError from None
    if isinstance(y, mpmath.mpc) or not mpmath.isfinite(y) or (y and not 1 / LARGEST < abs(y) < LARGEST):
        raise ArithmeticError
    return mpf(y)


def value(pop, i, variables, params):
    """Expression ``i``, of numbers of many digits."""
    stack = []
    for kind, token in zip(pop[i].kinds.tolist(), pop[i].values, strict=True):
        if kind == OPERATOR:
            row = ops.BY_CODE[int(token)]
            operands = stack[len(stack) - row.arity :]
            del stack[len(stack) - row.arity :]
            stack.append(applied(row, operands))
        else:
            own = {VARIABLE: variables, PARAMETER: params}.get(kind)
            stack.append(mpf(float(token.view(np.float64))) if kind == CONSTANT else own[int(token)])
    return stack[0]


def numbers(array):
    return [mpf(float(one)) for one in array]


def with_slopes(function, params, n):
    """The function of these parameters, and its derivatives by the first n; None where it has a kink nearby."""
    y, slopes = function(params), []
    for j in range(n):
        up, down = (function([p + sign * STEP * (k == j) for k, p in enumerate(params)]) for sign in (1, -1))
        slopes.append((up - down) / (2 * STEP))
        if abs((up - y) / STEP - slopes[-1]) > mpf(10) ** -8 * (abs(slopes[-1]) + mpf(10) ** -8):
            return y, None
    return y, slopes


def is_close(found, wanted, share, least=1e-290):
    return abs(mpf(float(found)) - wanted) <= share * abs(wanted) + least


NAMES = [row.name for row in ops.OPERATORS if row.derivative]


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1, 4, 12])
def test_derivatives_of_random_expressions(scale):
    """Where a value is right to 12 digits, so are its derivatives to 6: near an end of a range as elsewhere."""
    n, random = 80, np.random.default_rng(scale)
    pop = ek.generate.random(n, n_tokens=(3, 14), operators=NAMES, n_vars=2, n_params=3, seed=scale)
    X, P = scale * random.uniform(-3, 3, (3, 2)), scale * random.uniform(-2, 2, (n, pop.max_params))
    compared = 0
    for backend in ("numpy", "cpu"):
        ev = ek.Evaluator(pop, X, backend, dtype="float64")
        f, J = ev.evaluate(P), ev.jacobian(P)
        with mpmath.workdps(DIGITS):
            for i, q in np.argwhere(np.isfinite(f)).tolist():
                try:
                    y, slopes = with_slopes(lambda p: value(pop, i, numbers(X[q]), p), numbers(P[i]), pop.n_params[i])  # noqa: B023
                except ArithmeticError:
                    continue
                if slopes is None or not is_close(f[i, q], y, 1e-12):
                    continue
                for j, slope in enumerate(slopes):
                    compared += 1
                    assert is_close(J[i, q, j], slope, 1e-6, 1e-90), (pop.texts()[i], X[q], P[i], j, backend)
    assert compared > 200


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_derivatives_near_the_ends_of_domains(op, dtype):
    """Where 1 - tanh(a)^2, exp(a) - 1 + 1 or 1 - a^2 lose their digits; an argument's last place moves them, too."""
    if op.arity != 1 or op.derivative in ((), ("0",)):
        return
    ends = [1e-8, 0.3, 1 - 2**-20, 1 - 2**-23, 1 + 2**-23, 2.5, 8.25, 15.5, 36.75, 300.0, 1e18, 1e25, 1e160]
    ends = np.array([one for one in ends if one < float(np.finfo(dtype).max)], dtype)
    ends = np.concatenate([ends, -ends])
    share, most = {"float32": (2e-5, 1e37), "float64": (1e-12, 1e300)}[dtype]

    def slope_at(a):
        slopes = with_slopes(lambda p: applied(op, [a * p[0]]), [mpf(1)], 1)[1]
        return None if slopes is None else slopes[0] / a

    pop, params = ek.parse(f"{op.name}(p1)"), ends[:, None, None].astype(np.float64)
    found = [ek.Evaluator(pop, np.zeros((1, 1)), backend, dtype=dtype).jacobian(params).ravel()
             for backend in ("numpy", "cpu")]  # fmt: skip
    for a, *slopes in zip(numbers(ends), *(one.tolist() for one in found), strict=True):
        with mpmath.workdps(400):
            try:
                wanted, beside = slope_at(a), slope_at(a * (1 + share / 16))
            except ArithmeticError:
                continue
            if wanted is None or beside is None or not abs(wanted) < most:
                continue
            allowed = share * abs(wanted) + abs(beside - wanted) + 1 / most
            assert all(abs(mpf(slope) - wanted) <= allowed for slope in slopes), (float(a), float(wanted), slopes)


# ── losses ──


def weighted_sum(values, w):
    return mpmath.fsum(a * b for a, b in zip(values, w, strict=True))


def about_mean(values, w):
    mean = weighted_sum(values, w) / mpmath.fsum(w)
    return [one - mean for one in values]


def correlation(f, y, w):
    f, y = about_mean(f, w), about_mean(y, w)
    both, *own = (weighted_sum([a * b for a, b in zip(*pair, strict=True)], w) for pair in ((f, y), (f, f), (y, y)))
    return both / mpmath.sqrt(own[0] * own[1])


def of_errors(each, of_mean=False):
    def loss(f, y, w):
        total = weighted_sum([each(a, b) for a, b in zip(f, y, strict=True)], w)
        return total / mpmath.fsum(w) if of_mean else total

    return loss


def squares(f, y, w):
    return of_errors(lambda a, b: (a - b) ** 2)(f, y, w)


LOSSES = {
    "sse": squares, "mse": of_errors(lambda f, y: (f - y) ** 2, True), "sae": of_errors(lambda f, y: abs(f - y)),
    "rmse": lambda f, y, w: mpmath.sqrt(squares(f, y, w) / mpmath.fsum(w)),
    "mae": of_errors(lambda f, y: abs(f - y), True),
    "r2": lambda f, y, w: 1 - squares(f, y, w) / weighted_sum([a * a for a in about_mean(y, w)], w),
    "max": lambda f, y, w: max(abs(a - b) for a, b, c in zip(f, y, w, strict=True) if c),
    "correlation": correlation,
    "huber(f - y, 0.5)": of_errors(lambda f, y: min(abs(f - y), 0.5) * (abs(f - y) - 0.5 * min(abs(f - y), 0.5))),
    "pinball(y - f, 0.9)": of_errors(lambda f, y: max(0.9 * (y - f), -0.1 * (y - f))),
    "logcosh(f - y)": of_errors(lambda f, y: mpmath.log(mpmath.cosh(f - y))),
    "softplus_of(f) * y + tanh(f - y)": of_errors(lambda f, y: mpmath.log(1 + mpmath.exp(f)) * y + mpmath.tanh(f - y)),
}  # fmt: skip
LINKS = {
    None: lambda f: f, "atan": mpmath.atan, "exp(-abs(f))": lambda f: mpmath.exp(-abs(f)),
    "logabs": lambda f: mpmath.log(abs(f)),
}  # fmt: skip


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("weights", [None, [1, 0.5, 2, 0, 1.25]], ids=["plain", "weighted"])
def test_gradients_of_losses(link, weights):
    """Of random expressions, by every loss; where a slope is 0, rounding is left."""
    ek.operator("softplus_of(a) = log1p(exp(a))")
    random = np.random.default_rng(0)
    pop = ek.generate.random(16, n_tokens=(3, 14), operators=NAMES, n_vars=2, n_params=3, seed=5)
    X, y = random.uniform(-3, 3, (5, 2)), random.normal(size=5)
    P, w = random.uniform(-2, 2, (len(pop), pop.max_params)), np.ones(5) if weights is None else np.array(weights)
    rows, compared = np.flatnonzero(w), 0
    own_y, own_w = numbers(y[rows]), numbers(w[rows])
    ev = ek.Evaluator(pop, X, "cpu", dtype="float64")

    def through(f):
        try:
            return mpf(LINKS[link](f))
        except (ValueError, ZeroDivisionError):
            raise ArithmeticError from None

    for kind, of in LOSSES.items():
        loss, gradient = ev.loss_and_grad(P, y, kind, weights, link=link)
        with mpmath.workdps(DIGITS):
            for i in np.flatnonzero(np.isfinite(loss)).tolist():

                def total(p, i=i, of=of):
                    return of([through(value(pop, i, numbers(X[q]), p)) for q in rows], own_y, own_w)

                try:
                    wanted, slopes = with_slopes(total, numbers(P[i]), pop.n_params[i])
                except ArithmeticError:
                    continue
                if slopes is not None and is_close(loss[i], wanted, 1e-11):
                    compared += 1
                    assert all(map(is_close, gradient[i], slopes, [1e-7] * 3, [1e-14] * 3)), (kind, pop[i], P[i])
    assert compared > 60
