"""Equations: the formulas of a front as table, text and figures, and the selection of one of them.

In: the entries of a ``Front``.  Out: a DataFrame, LaTeX, Python, a figure.

    >>> import exprkit as ek
    >>> from exprkit.regression.estimator.equations import rounded
    >>> print(rounded(ek.parse("2.718281828 * sqrt(x1)")[0], precision=3))
    2.72 * sqrt(x1)
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from exprkit.backends import objective
from exprkit.errors import brought_by, whole
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.fitting.description_length import DescriptionLength
from exprkit.fitting.fitted_expression import latex_of
from exprkit.fitting.fitted_expression import rounded as rounded_by
from exprkit.regression.estimator.numbers import covariances
from exprkit.regression.formulas.front import NATS_PER_NUMBER, NATS_PER_TOKEN, Entry
from exprkit.regression.formulas.parameters import as_constants, as_parameters, is_fraction, n_inexact
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem.goal import LOGISTIC, Goal
from exprkit.regression.rules.accident import CoincidenceTest
from exprkit.regression.shapes.between_rows import errors_between_rows
from exprkit.regression.shapes.poles import have_poles
from exprkit.text import printer

MANY_ROWS = 100_000  # more tell no more about the precision of a number
FEWER_ROWS = 2_000  # the same, of what single rows decide
ROUNDING = 1e-14  # share of the variance that errors of an exact formula may have
DETERMINED = 1e-6  # share below which a direction of numbers, or what others say of a row, is none
FEW, SHORT = 4, 16  # numbers and tokens of which very many formulas are looked at,
GROWN = 1.0  # nats of a token more, of formulas that have grown from few others
NATS_OF_A_NUMBER = 0.5  # times log n: of a parameter whose precision could not be found
UNTOLD, ALIKE = 1e7, 10.0  # times the floor may be what rounding of y leaves; there so many times a loss are as good
# nats of a description more than that of another formula, beyond which none is selected as best: odds of 150 to 1,
# very strong evidence by R. E. Kass and A. E. Raftery, JASA 90 (1995).  Of 50 simulated tables (saturation, growth,
# decay; steps and noise), by which it was chosen, 6 have another formula than with 3 nats, each nearer to the curve
VETO = 5.0
BY_CATEGORY = re.compile(r"`(\w+\[[^`\]]+\])`")
SHOWN = 4  # digits of a number without a standard error
LOGIT = 1e-3  # of log-odds, a difference that a curvature is of
LEAST_DRAWN = 1e-300  # a loss of 0 has no logarithm


@dataclass(frozen=True, eq=False)
class DescribedFront:
    """The formulas of a search, the shortest first, and what is known of each.

    ==============  =====================================================================
    ``entries``     formulas, losses and sizes
    ``names``       of the variables; None: x1, x2, …
    ``lengths``     float64 (n,), of descriptions, in nats
    ``expected``    float64 (n,), nats of errors at other rows: ``_expected``
    ``exact``       bool (n,): exact but for rounding
    ``numbers``     float64 (n, most numbers) in the formulas; nan where there are fewer
    ``covariances`` of these, float64 (n, most numbers, most numbers)
    ``floor``       a loss that is as good as 0
    ``poles``       bool (n,): infinite, or no number, between rows
    ==============  =====================================================================
    """

    entries: list[Entry]
    names: tuple[str, ...] | None
    lengths: Annotated[np.ndarray, "float[n]"]
    expected: Annotated[np.ndarray, "float[n]"]
    exact: Annotated[np.ndarray, "bool[n]"]
    numbers: Annotated[np.ndarray, "float[n, most]"]
    covariances: Annotated[np.ndarray, "float[n, most, most]"]
    floor: float
    poles: Annotated[np.ndarray, "bool[n]"]

    @property
    def errors(self) -> np.ndarray:
        """The numbers' standard errors, float64 (n, most numbers); nan where there are fewer, or none."""
        with np.errstate(invalid="ignore"):
            return np.sqrt(np.diagonal(self.covariances, axis1=1, axis2=2))

    def named(self, i: int) -> Expression:
        """Formula ``i`` with the variables' names."""
        formula = self.entries[i].expression
        return Expression(formula.kinds, formula.values, self.names)

    def parts(self, i: int) -> tuple[Expression, list[float], list[float]]:
        """Formula ``i`` with p1, p2, … for its numbers; the numbers and their standard errors."""
        free = as_parameters(Population.of([self.entries[i].expression]))[0][0]
        n = int((~np.isnan(self.numbers[i])).sum())
        form = Expression(free.kinds, free.values, self.names)
        return form, self.numbers[i, :n].tolist(), self.errors[i, :n].tolist()

    def latex(self, i: int, precision: int | None = None, errors: bool = False) -> str:
        """Formula ``i``, its numbers with so many digits, or as many as their standard errors leave."""
        if precision is not None and not errors:
            return rounded(self.named(i), precision).latex()
        form, _, of_numbers = self.parts(i)
        if self.exact[i]:  # an exact formula has no errors
            of_numbers = [np.nan] * len(of_numbers)
        return latex_of(form, self._number_texts(i, precision), of_numbers if errors else None)

    def short(self, i: int) -> str:
        """The text of formula ``i``, its numbers with as many digits as their standard errors leave."""
        form = self.parts(i)[0]
        return self.text(form.with_numbers([float(text) for text in self._number_texts(i, None)]))

    @staticmethod
    def text(formula: Expression) -> str:
        """Its text, numbers that go by category as p1[site]."""
        return BY_CATEGORY.sub(r"\1", str(formula))

    def _number_texts(self, i: int, precision: int | None) -> list[str]:
        """All digits of numbers of an exact formula; SHOWN of those without a standard error."""
        _, numbers, errors = self.parts(i)
        if self.exact[i] and precision is None:
            return [printer.number_text(number) for number in numbers]
        return [
            printer.number_text(number)
            if error == 0
            else rounded_by(number, error, precision or (None if error > 0 else SHOWN))
            for number, error in zip(numbers, errors, strict=True)
        ]


@np.errstate(all="ignore")
def described(
    entries: list[Entry], goal: Goal, names: tuple[str, ...] | None, floor: float, simple: list[Entry] | None = None
) -> DescribedFront:
    """The formulas of a front with description lengths, covariances and poles.

    Of a description a number costs its size in steps of its precision, which the information about it alone says
    (Bartlett, Desmond and Ferreira); a simple one its digits.  Formulas are described by the numbers that they have or
    by the ``simple`` ones of theirs, whichever is shorter.
    """
    expressions = [entry.expression for entry in entries]
    pop, params = as_parameters(Population.of(expressions))
    lengths, expected = _lengths(entries, goal)
    if simple is not None:
        lengths, expected = np.minimum((lengths, expected), _lengths(simple, goal))
    values = values_of(expressions, goal.rows.X)
    covariance = covariances(goal, pop, np.where(np.isnan(params), 0.0, params))
    coincidence, poles = CoincidenceTest(goal.rows), have_poles(expressions, goal.rows)
    exact = goal.rows.is_exact(values)
    if coincidence.least_error:  # a formula may be exact by accident
        exact, floor = exact & np.array([coincidence.exceeds(formula) for formula in expressions]), 0.0
    return DescribedFront(entries, names, lengths, expected, exact, params, covariance, floor, poles)


def _lengths(entries: list[Entry], goal: Goal) -> tuple[np.ndarray, np.ndarray]:
    """Nats of descriptions, and of the errors that are to be expected."""
    expressions = [entry.expression for entry in entries]
    pop, params = as_parameters(Population.of(expressions))
    of_squares = goal.plain and goal.kind == objective.SQUARES
    starts = np.where(np.isnan(params), 0.0, params)
    nats, information = (_of_squares if of_squares else _of_loss)(entries, pop, starts, goal)
    precision = np.log(np.abs(params)) + np.log(information) / 2 - np.log(3) / 2
    unknown = NATS_OF_A_NUMBER * np.log(max(goal.total, 2))
    precision = np.where(np.isfinite(precision), np.maximum(precision, np.log(2)), unknown)
    has_digits = (params == np.round(2 * params) / 2) & (np.abs(params) <= 100) & (params != 0)  # as 3 and 1.5
    lengths = np.where(has_digits, np.abs(np.log(np.abs(params))) + np.log(2), precision)
    of_numbers = np.where(np.isnan(params), 0.0, lengths).sum(axis=1)
    return nats + DescriptionLength.of_functions(pop) + of_numbers, _expected(expressions, nats, goal)


def _expected(formulas: list[Expression], nats: np.ndarray, goal: Goal) -> np.ndarray:
    """Nats of the errors that are to be expected at rows that formulas were not fitted to.

    H. Akaike (IEEE Trans. Automatic Control 19, 1974) expects a nat more for every number that was fitted, which
    fractions were not.  A search takes the best of very many formulas, which gains by accident: so much as growth asks
    for is taken off.  Those that are long have grown from few shorter ones by one function at a time, and gain less.
    """
    numbers, tokens = np.array([(n_inexact(formula), formula.n_tokens) for formula in formulas], np.float64).T
    by_accident = NATS_PER_NUMBER * np.minimum(numbers, FEW) + NATS_PER_TOKEN * np.minimum(tokens, SHORT)
    by_accident += GROWN * np.maximum(tokens - SHORT, 0)
    rows = goal.rows
    if goal.loss == LOGISTIC:  # log-odds may be of any size
        rows = rows.with_y(np.copysign(np.inf, rows.y))
    return nats + numbers + by_accident + goal.total / 2 * np.log1p(errors_between_rows(formulas, rows))


def _of_squares(
    entries: Sequence[Entry], pop: Population, params: np.ndarray, goal: Goal
) -> tuple[np.ndarray, np.ndarray]:
    """Nats of the data, (n,), and information about the numbers, (n, max_params).

    Errors are normal with the formula's own mean square as variance.
    Few rows are fitted better than they are known: C. M. Hurvich and C.-L. Tsai (1989) say by how much.  So are single
    rows that decide a number by themselves: ``_of_rows_left_out``.
    """
    rounding = CoincidenceTest(goal.rows).least_error * float(np.cov(goal.rows.y, bias=True, aweights=goal.rows.w))
    variance = np.maximum([entry.loss for entry in entries], max(goal.floor, rounding, 1e-300))
    few = Goal(goal.loss, goal.rows.at_most(MANY_ROWS, 0))
    squares = _squares(pop, params, few, few.weights) * (goal.total / few.total)
    information = np.diagonal(squares, axis1=1, axis2=2) / variance[:, None]
    fitted, numbers = as_parameters(Population.of([entry.expression for entry in entries]), is_fraction)
    k = fitted.n_params + 1.0  # numbers, and the variance; of few rows each takes more off the loss than it says
    few_rows = k * (k + 1) / np.maximum(goal.total - k - 1, 1)
    left_out = _of_rows_left_out(fitted, np.where(np.isnan(numbers), 0.0, numbers), goal)
    nats = goal.total / 2 * np.log(variance * left_out) + few_rows
    return nats, information


def _of_rows_left_out(pop: Population, params: np.ndarray, goal: Goal) -> np.ndarray:
    """Ratio of leave-one-out errors to those of rows that decide equally much, (n,), 1 at least.

    Of a linear fit both are known without fitting again, from the share h of a row in its own value:
    (error / (1 - h))^2 (D. M. Allen, Technometrics 16, 1974), and for equal shares that of G. H. Golub, M. Heath and
    G. Wahba (Technometrics 21, 1979).
    """
    rows = goal.rows.at_most(FEWER_ROWS, 0)
    evaluator, n = Evaluator(pop, rows.X, "cpu", dtype="float64"), len(rows)
    errors, slopes = evaluator.evaluate(params) - rows.y, evaluator.jacobian(params)
    ratios, root = np.ones(len(pop)), np.sqrt(rows.w)
    of_y = rows.w * (rows.y - rows.w @ rows.y / rows.total) ** 2
    for i, k in enumerate(pop.n_params.tolist()):
        columns = slopes[i][:, :k] * root[:, None]
        size = np.abs(columns).max(axis=0)
        if not 0 < k < n or not np.isfinite(columns).all() or not size.all():
            continue
        left, singular, _ = np.linalg.svd(columns / size, full_matrices=False)
        share = (left[:, singular > DETERMINED * singular[0]] ** 2).sum(axis=1)
        squares = rows.w * errors[i] ** 2
        equally = squares.sum() / (1 - k / n) ** 2
        if equally > ROUNDING * of_y.sum():  # else nothing is left to be told
            others = np.maximum(1 - share, DETERMINED)
            unknown = np.maximum(of_y, of_y.mean())  # of rows that no others say anything of
            left_out = np.where(others > DETERMINED, squares / others**2, unknown)
            ratios[i] = max(float(left_out.sum() / equally), 1.0)
    return ratios


def _of_loss(
    entries: Sequence[Entry], pop: Population, params: np.ndarray, goal: Goal
) -> tuple[np.ndarray, np.ndarray]:
    """Nats and information by any loss as a likelihood but for the dispersion, which is the most accurate formula's.

    R. W. M. Wedderburn, Biometrika 61 (1974), "Quasi-likelihood functions".  Rows that are far off count as in
    K. L. Lange, R. J. A. Little, J. M. G. Taylor, JASA 84 (1989), by the logarithm, so that no formula is chosen for
    an outlier.  The curvature is by differences as wide as errors are.  A likelihood is one as it stands.
    """
    values = values_of([entry.expression for entry in entries], goal.rows.X)
    distance, size = np.abs(values - goal.rows.y), float(np.median(np.abs(goal.rows.y))) or 1.0
    step = np.maximum(np.median(distance, axis=1) / 2, 1e-9 * size)[:, None]
    if is_likelihood := goal.loss == LOGISTIC:
        step = np.full_like(step, LOGIT)
    slopes = goal.row_weights * goal.slopes(values) ** 2
    curves = goal.row_weights * (goal.slopes(values + step) - goal.slopes(values - step)) / (2 * step)
    slopes, curves = (np.where(np.isfinite(part), np.maximum(part, 0.0), 0.0) for part in (slopes, curves))
    best = int(np.argmin([entry.loss for entry in entries]))
    n_rows, n = len(goal.rows), int(pop.n_params[best])
    dispersion = slopes[best].sum() / curves[best].sum() * n_rows / max(n_rows - n, 1)
    dispersion = max(dispersion if np.isfinite(dispersion) else 0.0, goal.floor, 1e-300)
    if is_likelihood:
        dispersion = 1.0
    losses = goal.row_losses(values) / dispersion
    nats = (losses if is_likelihood else np.log1p(losses)) @ goal.row_weights
    information = np.full(params.shape, np.nan)
    for i, k in enumerate(pop.n_params.tolist()):
        squares = _squares(pop[i : i + 1], params[i : i + 1, :k], goal, curves[i])[0]
        information[i, :k] = np.diagonal(squares) / dispersion
    return nats, information


def _squares(pop: Population, params: np.ndarray, goal: Goal, weights: np.ndarray) -> np.ndarray:
    """Sums of products of the derivatives by the numbers, (n, max_params, max_params)."""
    if not pop.max_params:
        return np.empty((len(pop), 0, 0))
    squares: np.ndarray = Evaluator(pop, goal.rows.X, "cpu", dtype="float64").normal_equations(
        params, goal.rows.y, weights
    )[0]
    return squares


def selected(front: DescribedFront, how: str, parsimony: float) -> int:
    """The number of the formula that ``model_selection`` means."""
    entries, exact = front.entries, front.exact
    more = parsimony * np.array([entry.size for entry in entries])
    lengths, expected = front.lengths + more, front.expected + more
    if how == "best" and exact.any():
        shortest = int(np.argmax(exact))
        if lengths[shortest] <= lengths.min(initial=np.inf, where=~exact):
            return shortest
        return int(np.argmin(lengths))  # it has about as many numbers as there are rows
    losses = np.array([entry.loss for entry in entries])
    if how == "best" and losses.min() < UNTOLD * front.floor:
        return int(np.argmax(losses <= ALIKE * losses.min()))
    if how == "accuracy":
        return int(np.argmin(losses))
    if how == "score":
        return int(np.argmax(scores(entries, front.floor) - parsimony))
    if how == "best":  # the description length and poles have a veto
        good = ~front.poles | front.poles.all()
        good &= lengths <= lengths.min(initial=np.inf, where=good) + VETO
        lengths = np.where(good, expected, np.inf)
    return int(np.argmin(lengths))


def scores(entries: Sequence[Entry], floor: float) -> np.ndarray:
    """By how much the logarithm of the loss falls for every token more."""
    losses = np.log(np.maximum([entry.loss for entry in entries], max(floor, 1e-300)))
    sizes = np.array([entry.size for entry in entries])
    falls = np.zeros(len(entries))
    falls[1:] = -np.diff(losses) / np.diff(sizes)
    return falls


def rounded(formula: Expression, precision: int) -> Expression:
    """The formula with numbers of so many digits, without those that are 1 then.

    Raises
    ------
    ArgumentError
        For a precision that is no whole number from 1 on.
    """
    whole("precision", precision, 1)
    pop, params = as_parameters(Population.of([formula]))
    numbers = np.array([[float(f"{number:.{precision}g}") for number in row] for row in params])
    short = as_constants(pop, numbers)[0]
    if (shorter := simplified(short)).n_tokens < short.n_tokens:
        short = shorter
    return Expression(short.kinds, short.values, formula.variables)


def python_text(formula: Expression, library: str) -> str:
    """A function of X and its numbers for a library of arrays: "to_numpy", "jax" or "torch", as of ``Expression``."""
    pop, params = as_parameters(Population.of([formula]))
    free = Expression(pop[0].kinds, pop[0].values, formula.variables)
    text: str = getattr(free, library)(params[0].tolist())
    return text


def draw_front(ax: Any, sizes: Sequence[int], losses: Sequence[float]) -> None:
    """Loss over size on Matplotlib's axes."""
    with brought_by("notebooks"):
        from matplotlib.ticker import MaxNLocator
    drawn = [max(loss, LEAST_DRAWN) for loss in losses]
    ax.step(sizes, drawn, where="post", color="0.6", lw=1)
    ax.plot(sizes, drawn, "o", ms=4)
    ax.semilogy()
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set(xlabel="complexity (tokens)", ylabel="loss")
