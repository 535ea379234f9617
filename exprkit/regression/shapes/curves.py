"""Curves: growth, decay, peaks, oscillations, saturation, fitted by nonlinear least squares from several starts.

In: ``Rows``, operators.  Out: formulas with fitted numbers, the best of each size, such as
``a + b * exp(c * h) * sin(d * h + e)``.

``SHAPES`` is the table of inner functions: Gaussian, Hill, logistic, ...; one more shape is one more row.  An inner
function has the parameters that its operator does not make a factor or a summand of the result: ``exp(c * h)`` has no
summand inside, ``log(h + c)`` no factor.  Its argument h is a variable, or two of them under a binary operator.

A curve is a constant and a coefficient around an inner function, also times a line of a variable or of another one; a
product of two, or a sum of two.  All curves are fitted by Levenberg-Marquardt from several
starts drawn at random (multistart): very many are screened, at few rows, from few starts and
for few steps, and the best of them refined.  A start is drawn by the role of its parameter: a rate from the spread of
h, a location from its range.
"""

from __future__ import annotations

import enum
import functools
import itertools
import operator
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from exprkit.distributed.sharing import helpers
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.fitting.fit_problem import FitProblem
from exprkit.operators import defined, ops
from exprkit.regression.formulas.parameters import as_constants
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.values import values_of
from exprkit.regression.pairs.links import inverse
from exprkit.regression.pairs.pool import is_power
from exprkit.regression.problem.effort import WORK
from exprkit.regression.problem.rows import Rows
from exprkit.regression.sums.formulas import Transform, weighted
from exprkit.regression.sums.inside import is_logarithm
from exprkit.runtime.budget import check, count, spend

MAX_ARGUMENTS = 18  # arguments h, variables first (chosen, not measured)
MAX_CURVES = 3_000  # curves of a kind (chosen, not measured)
MAX_REFINED = 200  # of MAX_CURVES that are screened; of fewer as large a share (chosen, not measured)
SIMPLEST_KINDS = 2  # kinds of curves that are tried before all others, also as reciprocals (chosen, not measured)
KINDS_WITHIN = 3  # kinds of curves that are tried within operators as well (chosen, not measured)
SCREENED: dict[str, Any] = {"backend": "cpu", "dtype": "float64", "accuracy": "screen"}  # settings of all fits
_AT = np.array([0.11, 0.37, 0.52, 0.83])  # operands at which families of operators are recognised


class Effort(NamedTuple):
    """Rows, starts and steps of a fit of all curves."""

    rows: int
    starts: int
    max_iter: int


SCREENING = Effort(rows=48, starts=4, max_iter=20)  # chosen, not measured
REFINEMENT = Effort(rows=200, starts=16, max_iter=40)  # chosen, not measured


class Role(enum.IntEnum):
    """The role of a parameter in a curve: it says how starts are drawn, and which values are usual."""

    LINEAR = 0  # a constant or coefficient of the whole
    RATE = 1  # of either sign, in 1 / h
    SCALE = 2  # h's own unit, of either sign: divided by h
    FREQUENCY = 3  # positive, in 1 / h
    WIDTH = 4  # negative, in 1 / h^2
    PHASE = 5  # an angle in radians
    LOCATION = 6  # a value of h
    SHIFT = 7  # added to h, so that the sum is positive
    POWER = 8  # an exponent
    FACTOR = 9  # positive, without unit
    SIGNED = 10  # the same of either sign
    VARIANCE = 11  # positive, in h^2


class Family(enum.Enum):
    """Unary operators with the same symmetry: it decides which parameters inside are no coefficients or constants."""

    LOGARITHM = "a factor of the operand is a summand of the result"
    EXPONENTIAL = "a summand of the operand is a factor of the result"
    PERIODIC = "the period is 2 pi"
    OTHER = "any other operator that is no power: tanh, atan, erf"


class Needs(enum.Flag):
    """Requirements of a shape on operators, or on the sign of the argument."""

    NOTHING = 0
    QUOTIENT = enum.auto()
    SQUARE = enum.auto()
    POWER = enum.auto()  # of any exponent
    POSITIVE = enum.auto()  # the argument is nowhere negative


class Shape(NamedTuple):
    """A row of ``SHAPES``: an inner function of an argument h.

    Attributes
    ----------
    name : what the field calls it
    text : over ``h``, the operator ``f`` of the family, and the parameters p1, p2, ... in this order
    roles : one for every parameter
    family : of the operator f; None for a shape without one
    needs : what else has to be there
    """

    name: str
    text: str
    roles: tuple[Role, ...]
    family: Family | None = None
    needs: Needs = Needs.NOTHING

    def at(self, h: str, k: int, operator_name: str = "") -> CurveModel:
        """The shape as a curve over argument number k, whose text is h."""
        numbers = re.findall(r"\bp\d+\b", self.text)
        if numbers != [f"p{i + 1}" for i in range(len(self.roles))]:
            raise ValueError(f"the shape {self.name!r} has {len(self.roles)} roles and the parameters {numbers}")
        words = {"h": h, "f": operator_name, **dict.fromkeys(numbers, "{}")}
        text = re.sub(r"[A-Za-z]\w*", lambda word: words.get(word[0], word[0]), self.text)
        return CurveModel(text, tuple((role, k) for role in self.roles))


SHAPES = [
    Shape("logarithm", "f(h + p1)", (Role.SHIFT,), Family.LOGARITHM),
    Shape("exponential growth or decay", "f(p1 * h)", (Role.RATE,), Family.EXPONENTIAL),
    Shape("Arrhenius", "f(p1 / h)", (Role.SCALE,), Family.EXPONENTIAL, Needs.QUOTIENT),
    Shape("Gaussian", "f(p1 * (h - p2) ^ 2)", (Role.WIDTH, Role.LOCATION), Family.EXPONENTIAL, Needs.SQUARE),
    Shape("stretched exponential, Weibull", "f(p1 * h ^ p2)", (Role.RATE, Role.POWER), Family.EXPONENTIAL,
          Needs.POWER | Needs.POSITIVE),
    Shape("Gompertz", "f(p1 * f(p2 * h))", (Role.SIGNED, Role.RATE), Family.EXPONENTIAL),
    Shape("logistic curve", "1 / (f(p1 * h) + p2)", (Role.RATE, Role.SIGNED), Family.EXPONENTIAL, Needs.QUOTIENT),
    Shape("Richards, generalised logistic", "(p1 * f(p2 * h) + 1) ^ p3", (Role.FACTOR, Role.RATE, Role.POWER),
          Family.EXPONENTIAL, Needs.POWER),
    Shape("sinusoid", "f(p1 * h + p2)", (Role.FREQUENCY, Role.PHASE), Family.PERIODIC),
    Shape("sigmoid", "f(p1 * (h - p2))", (Role.RATE, Role.LOCATION), Family.OTHER),
    Shape("hyperbola, Michaelis-Menten", "1 / (h - p1)", (Role.LOCATION,), needs=Needs.QUOTIENT),
    Shape("Lorentzian", "1 / ((h - p1) ^ 2 + p2)", (Role.LOCATION, Role.VARIANCE), needs=Needs.QUOTIENT | Needs.SQUARE),
    Shape("Hill", "1 / (h ^ p1 + p2)", (Role.POWER, Role.FACTOR), needs=Needs.QUOTIENT | Needs.POWER | Needs.POSITIVE),
    Shape("power law", "h ^ p1", (Role.POWER,), needs=Needs.POWER | Needs.POSITIVE),
    Shape("shifted power law", "(h + p1) ^ p2", (Role.SHIFT, Role.POWER), needs=Needs.POWER | Needs.POSITIVE),
    Shape("Carreau-Yasuda, van Genuchten", "((p1 * h) ^ p2 + 1) ^ p3", (Role.FREQUENCY, Role.POWER, Role.POWER),
          needs=Needs.POWER | Needs.POSITIVE),
]  # fmt: skip


class CurveModel(NamedTuple):
    """A formula to be fitted: ``text`` has a ``{}`` for each parameter, ``roles`` its role and the number of its h."""

    text: str
    roles: tuple[tuple[Role, int], ...]


_Kind = tuple[list[CurveModel], np.ndarray]  # curves, and the values of all their arguments


def curves(
    rows: Rows, operators: Sequence[defined.Written], seed: int, max_curves: int = MAX_CURVES
) -> Iterator[list[Expression]]:
    """The fitted formulas of one kind of curves after the other, at most ``max_curves``, the best of every size.

    Of variables first, then of pairs of them as well; at last within an operator or as a reciprocal.
    """
    names = [f"x{k + 1}" for k in np.flatnonzero(np.ptp(rows.X, axis=0) > 0)[:MAX_ARGUMENTS]]
    if not names or not {ops.ADD, ops.MUL} <= {row.code for row in operators}:
        return
    levels: list[list[_Kind]] = []
    for arguments in dict.fromkeys([(*names,), (*_arguments(names, operators),)]):
        h = values_of(list(parse(arguments)), rows.X)
        usable = np.isfinite(h).all(axis=1) & (h != h[:, :1]).any(axis=1)
        texts, h = [text for text, use in zip(arguments, usable, strict=True) if use], h[usable]
        levels.append([(kind[:max_curves], h) for kind in _kinds(texts, h, len(names), operators) if kind])
    n_refined = -(-MAX_REFINED * min(max_curves, MAX_CURVES) // MAX_CURVES)
    for transform, kinds in _order(levels, operators):
        if (inner := weighted(transform, rows)) is None:
            continue
        transformed = rows.with_y(inner[0]).with_weights(inner[1])
        for kind, h in kinds:
            count(len(kind))
            spend(len(kind) * WORK.shape)
            fitted = _fit(kind, n_refined, h, transformed, seed)
            yield [simplified(transform.expression(formula)) for formula in fitted]


def _order(levels: list[list[_Kind]], operators: Sequence[defined.Written]) -> Iterator[tuple[Transform, list[_Kind]]]:
    """Curves of variables alone first, the simplest also as reciprocals; then of pairs; then within operators."""
    transforms = _transforms(operators)
    for kinds in levels:
        for group in (kinds[:SIMPLEST_KINDS], kinds[SIMPLEST_KINDS:KINDS_WITHIN]):
            yield from ((transform, group) for transform in transforms if transform.outer is None)
        yield Transform(None, False), kinds[KINDS_WITHIN:]
    for transform in transforms:
        if transform.outer is not None:
            yield transform, [kind for kinds in levels for kind in kinds[:KINDS_WITHIN]]


def _transforms(operators: Sequence[defined.Written]) -> list[Transform]:
    """Transformations of a curve to y: none, its reciprocal, a power, a logarithm or an exponential of it."""
    unary = [row for row in operators if row.arity == 1]
    logarithms = [row for row in unary if is_logarithm(row)]
    plain = [row for row in unary if is_power(row) or row in logarithms or inverse(row) in logarithms]
    reciprocal = [Transform(None, True)] * any(row.code == ops.DIV for row in operators)
    return [Transform(None, False), *reciprocal, *(Transform(row, False) for row in plain if inverse(row) is not None)]


def _fit(kind: list[CurveModel], n_refined: int, h: np.ndarray, rows: Rows, seed: int) -> list[Expression]:
    """Curves as formulas with fitted numbers: all are screened, the best ``n_refined`` of them refined."""
    pop = parse([_with_parameters(curve.text) for curve in kind])
    roles = _as_arrays(kind, pop.max_params)
    params = np.empty((0, *roles.shape[:2]))
    scale = float(np.abs(rows.y).max()) or 1.0
    for effort in (SCREENING, REFINEMENT):
        check()
        part = rows.subsample(min(effort.rows, len(rows)), seed)
        target, weights = part.y / scale, part.w / part.w.mean()
        problem = FitProblem(part.X, target, weights=weights, max_iter=effort.max_iter, client=helpers(), **SCREENED)
        result = problem.fit(pop, init=np.concatenate([params, _starts(roles, h, effort.starts, seed)]))
        loss = np.where(_are_usual(result.params, roles, h), result.loss, np.nan)
        best = np.argsort(loss, kind="stable")[: min(n_refined, int(np.isfinite(loss).sum()))]
        if not len(best):
            return []
        pop = pop[best]
        roles, params = roles[best, : pop.max_params], np.nan_to_num(result.params[None, best, : pop.max_params])
    return _front(pop, np.where(roles[..., 0] == Role.LINEAR, scale, 1.0) * params[0])


def _front(pop: Population, params: np.ndarray) -> list[Expression]:
    """The Pareto front of formulas in the order of their losses: those without a smaller one before them."""
    sizes = pop.n_tokens
    best = np.flatnonzero(sizes < np.minimum.accumulate(np.append(np.iinfo(np.int64).max, sizes))[:-1])
    return list(as_constants(pop[best], params[best]))


# ── combinations of shapes ──


def _arguments(names: list[str], operators: Sequence[defined.Written]) -> list[str]:
    """Texts of the arguments h: the variables, then a sum, difference, product or quotient of two of them."""
    arithmetic = [row for row in operators if row.code in (ops.ADD, ops.SUB, ops.MUL, ops.DIV)]
    pairs = list(itertools.combinations(names, 2))
    combined = [f"{a} {row.infix} {b}" for row in arithmetic for a, b in pairs]
    combined += [f"{b} {row.infix} {a}" for row in arithmetic if row.code == ops.DIV for a, b in pairs]
    return (names + combined)[:MAX_ARGUMENTS]


def _kinds(
    arguments: Sequence[str], h: np.ndarray, n_vars: int, operators: Sequence[defined.Written]
) -> Iterator[list[CurveModel]]:
    """Lists of curves: ``g * inner``, ``(a + b * g) * inner``, products of two, sums with a variable, sums of two."""
    by_argument = [
        list(_inner_functions(f"({name})", k, bool((h[k] >= 0).all()), operators)) for k, name in enumerate(arguments)
    ]
    inner = list(itertools.chain(*by_argument))
    plain = [[CurveModel(text, ()) for text in _plain(x, operators)] for x in arguments[:n_vars]]
    factors = [CurveModel(g, ()) for g in arguments]
    if any(row.code == ops.DIV for row in operators):
        factors += [CurveModel(f"1 / {x}", ()) for x in arguments[:n_vars]]
    products = inner + [_product(g, f) for g in factors for f in inner]
    yield [_linear(product) for product in products[:MAX_CURVES]]
    of_variables = list(itertools.chain(*by_argument[:n_vars]))
    yield [_with_line(g, f) for g in factors for f in of_variables][:MAX_CURVES]
    simplest = sorted(inner, key=lambda f: len(f.roles))[: int((2 * MAX_CURVES) ** 0.5)]  # over all arguments
    pairs = list(itertools.combinations_with_replacement(simplest, 2))
    yield [_linear(_product(f, g)) for f, g in pairs]
    terms = of_variables + [_product(CurveModel(g, ()), f) for g in arguments for f in of_variables]
    yield list(itertools.islice((_linear(g, f) for texts in plain for g in texts for f in terms), MAX_CURVES))
    yield [_linear(f, g) for f, g in pairs]
    of_two = [(f, g) for f, g in itertools.permutations(of_variables, 2) if f.roles[0][1] != g.roles[0][1]]
    yield [_with_line(f, g) for f, g in of_two[:MAX_CURVES]]


def _plain(x: str, operators: Sequence[defined.Written]) -> list[str]:
    """Texts of a variable and its powers 2, -1 and -2, as far as the operators allow."""
    has_squares, has_quotients = any(map(_is_square, operators)), any(row.code == ops.DIV for row in operators)
    squares, quotients = [f"{x} ^ 2"] * has_squares, [f"1 / {x}"] * has_quotients
    return [x, *squares, *quotients, *[f"{x} ^ -2"] * (has_squares and has_quotients)]


def _inner_functions(h: str, k: int, is_positive: bool, operators: Sequence[defined.Written]) -> Iterator[CurveModel]:
    """All rows of ``SHAPES`` that these operators allow, at argument number k, whose text is h."""
    available = _available(operators, is_positive)
    families = [(row.name, _family(row)) for row in operators if row.arity == 1 and not is_power(row)]
    waves = [name for name, family in families if family is Family.PERIODIC]
    for name, family in [*families, ("", None)]:
        if name in waves[1:]:  # a cosine is a sine of another phase
            continue
        yield from (shape.at(h, k, name) for shape in SHAPES if shape.family is family and shape.needs in available)


def _available(operators: Sequence[defined.Written], is_positive: bool) -> Needs:
    """The requirements that these operators and the sign of an argument meet."""
    codes, unary = {row.code for row in operators}, [row for row in operators if row.arity == 1]
    has_logarithms = any(inverse(row) in unary for row in unary if is_logarithm(row))  # a^b = exp(b log(a))
    provided = {
        Needs.QUOTIENT: ops.DIV in codes,
        Needs.SQUARE: any(map(_is_square, operators)),
        Needs.POWER: ops.POW in codes or has_logarithms,
        Needs.POSITIVE: is_positive,
    }
    return functools.reduce(operator.or_, (need for need, is_there in provided.items() if is_there), Needs.NOTHING)


def _family(row: defined.Written) -> Family:
    """The family of a unary operator that is no power, by its values."""
    if is_logarithm(row):
        return Family.LOGARITHM
    with np.errstate(all="ignore"):
        if np.ptp(row.numpy(_AT + 1.5) / row.numpy(_AT)) < 1e-12:  # a summand of the operand is a factor of the result
            return Family.EXPONENTIAL
        is_periodic = np.allclose(row.numpy(_AT + 2 * np.pi), row.numpy(_AT), rtol=1e-9)
    return Family.PERIODIC if is_periodic else Family.OTHER


def _is_square(row: defined.Written) -> bool:
    return row.code == ops.POW or (row.arity == 1 and is_power(row) and bool(row.numpy(3.0) == 9))


def _product(f: CurveModel, g: CurveModel) -> CurveModel:
    return CurveModel(f"({f.text}) * ({g.text})", f.roles + g.roles)


def _linear(*terms: CurveModel) -> CurveModel:
    """A constant, and every term times a coefficient."""
    text = " + ".join(["{}", *(f"{{}} * ({term.text})" for term in terms)])
    roles = [(Role.LINEAR, 0)]
    for term in terms:
        roles += [(Role.LINEAR, 0), *term.roles]
    return CurveModel(text, tuple(roles))


def _with_line(g: CurveModel, f: CurveModel) -> CurveModel:
    """``a + (b + c * g) * f``."""
    linear = (Role.LINEAR, 0)
    return CurveModel(f"{{}} + ({{}} + {{}} * ({g.text})) * ({f.text})", (linear,) * 3 + g.roles + f.roles)


def _with_parameters(text: str) -> str:
    return text.format(*(f"p{k + 1}" for k in range(text.count("{}"))))


# ── starts ──


def _as_arrays(kind: Sequence[CurveModel], width: int) -> np.ndarray:
    """Roles and numbers of arguments by curve and parameter, int (n_curves, width, 2); -1 where there is none."""
    roles = np.full((len(kind), width, 2), -1)
    for k, curve in enumerate(kind):
        roles[k, : len(curve.roles)] = curve.roles
    return roles


def _starts(roles: np.ndarray, h: np.ndarray, n_starts: int, seed: int) -> np.ndarray:
    """Start values drawn by the parameters' roles and the values of their arguments, (n_starts, n_curves, width)."""
    random = np.random.Generator(np.random.Philox([seed, n_starts]))
    u, v, sign = random.random((3, n_starts, *roles.shape[:2]))
    sign = np.where(sign < 0.5, -1.0, 1.0)
    low, high, spread = _range(roles, h)
    beyond = spread * 10 ** (3.5 * u - 2)
    inside = np.where(v < 0.5, low + u * (high - low), np.where(sign > 0, high, low) + sign * beyond)
    drawn = {
        Role.RATE: sign * 10 ** (2.7 * u - 1.5) / spread,
        Role.SCALE: sign * 10 ** (2.7 * u - 1.5) * np.maximum(np.abs(low), np.abs(high)),
        Role.FREQUENCY: 10 ** (1.8 * u - 0.5) / spread,
        Role.WIDTH: -(10 ** (2.2 * u - 1)) / spread**2,
        Role.PHASE: np.pi * (2 * u - 1),
        Role.LOCATION: inside,
        Role.SHIFT: beyond - low,
        Role.POWER: sign * 10 ** (1.5 * u - 0.7),
        Role.FACTOR: 10 ** (4 * u - 2),
        Role.SIGNED: sign * 10 ** (3 * u - 1.5),
        Role.VARIANCE: spread**2 * 10 ** (3 * u - 2.5),
    }  # chosen, not measured
    return np.select([roles[..., 0] == role for role in drawn], list(drawn.values()), 1.0)


def _are_usual(params: np.ndarray, roles: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Whether a curve's parameters are in their usual ranges, (n_curves,): outside it is nearly a line."""
    low, high, spread = _range(roles, h)
    role, size = roles[..., 0], np.abs(params)
    least, most = np.zeros_like(size), np.full_like(size, np.inf)
    for limited, (unit, lower, upper) in {  # ranges of sizes: chosen, not measured
        Role.RATE: (1 / spread, 0.02, 100),
        Role.FREQUENCY: (1 / spread, 0.1, 300),
        Role.WIDTH: (1 / spread**2, 0.02, 300),
        Role.SCALE: (np.maximum(np.abs(low), np.abs(high)), 0.002, 100),
        Role.POWER: (1.0, 0.02, 30),
    }.items():
        least, most = np.where(role == limited, lower * unit, least), np.where(role == limited, upper * unit, most)
    is_location = np.isin(role, [Role.LOCATION, Role.SHIFT])
    middle = np.where(role == Role.LOCATION, 1, -1) * (low + high) / 2
    size, most = np.where(is_location, np.abs(params - middle), size), np.where(is_location, 50 * spread, most)
    is_usual = (size >= least) & (size <= most)
    return np.asarray((is_usual | (role < 0)).all(axis=1))


def _range(roles: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, ...]:
    """Least value, largest value and standard deviation of every parameter's argument."""
    return tuple(part[roles[..., 1]] for part in (h.min(axis=1), h.max(axis=1), h.std(axis=1)))
