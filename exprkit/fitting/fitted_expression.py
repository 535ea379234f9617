"""``FittedExpression``: one expression with its fitted numbers and their standard errors.

``FitResult`` gives it by number, ``found[i]``.

A number is rounded where its standard error has its second digit, so that rounding changes nothing that the data
say; without a standard error (at a bound, say) it has three digits.  A term that is lost in rounding at every data
point, as ``- 2.2e-268 * x2``, is not written.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit.errors import ArgumentError, checks_keywords, checks_methods, whole
from exprkit.expressions.expression import Expression
from exprkit.fitting.groups import by_group, tables_of
from exprkit.fitting.models.ties import values_of
from exprkit.fitting.uncertainty import inference
from exprkit.fitting.uncertainty.intervals import correlation, intervals, region
from exprkit.fitting.uncertainty.minimum import Minimum
from exprkit.fitting.uncertainty.predictions import bands
from exprkit.fitting.uncertainty.report import Report, diagnostics, report
from exprkit.fitting.uncertainty.words import identifiability
from exprkit.operators import defined, ops
from exprkit.text.names import NUMBERED
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER

if TYPE_CHECKING:
    import pandas as pd
    import sympy
    from matplotlib.figure import Figure

DIGITS = 3  # of a number without a standard error
SHOWN = 4  # digits of a number in a repr
OF_ERROR = 2  # digits of a standard error that are shown
MOST_DIGITS = 17  # of a float64
MARK = 1e-300  # no number of a formula
SMALL = 1e-9  # parameters below may be lost in rounding


@checks_methods
class FittedExpression:
    """An expression with its fitted numbers.

    Attributes
    ----------
    expression : Expression
        with its parameters, as it was fitted
    params : float64 array, shape (n_params,)
    loss, r2 : float
    reason : str
        why its fit ended
    at_bound : bool array, shape (n_params,)
    standard_errors : float64 array, shape (n_params,)
        nan where the data do not determine a parameter, or it is at a bound

    Examples
    --------
    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0, 1, 20)[:, None]
    >>> noise = 0.01 * np.random.default_rng(0).standard_normal(20)
    >>> one = ek.fit("p1 + p2 * x1", x, 3 - 2 * x[:, 0] + noise)[0]
    >>> one.latex()
    '3.0008 - 2.0053 \\\\cdot x_{1}'
    >>> one([[2.0]]).round(2)
    array([-1.01])
    """

    def __init__(self, result: Any) -> None:
        """``result``: the ``FitResult`` of one expression."""
        self._result = result
        self.expression: Expression = result.pop[0]
        self.params: np.ndarray = result.params[0, : self.expression.n_params]
        self.at_bound: np.ndarray = result.at_bound[0, : self.expression.n_params]
        self.loss, self.r2, self.reason = float(result.loss[0]), float(result.r2[0]), result.reason[0]

    @property
    def standard_errors(self) -> np.ndarray:
        return self._result.standard_errors[0, : len(self.params)]

    @property
    def tied(self) -> dict[str, tuple[float, float]]:
        """(value, standard error) of each tied parameter (``ties`` of ``fit``), the latter by the delta method."""
        n, result = len(self.params), self._result
        return values_of(result.ties, result.pop.parameters, self.params, result.covariance[0, :n, :n])

    @property
    def names(self) -> list[str]:
        """The names of the parameters."""
        words = self.expression.parameters
        return list(words or (f"{NUMBERED[PARAMETER]}{i + 1}" for i in range(len(self.params))))[: len(self.params)]

    # ── predictions ──

    def __call__(self, X: Any) -> np.ndarray:
        """Predictions at data points, float64 (n_points,); ``X`` as for ``fit``."""
        return self._result.predict(X, 0)

    # ── how sure it is ──

    @functools.cached_property
    def _least(self) -> Minimum:
        return Minimum.of(self._result)

    @property
    def _minimum(self) -> Minimum:
        if not len(self.params):
            raise ArgumentError(f"there is no fitted parameter: {self.reason}")
        return self._least

    def intervals(
        self,
        level: float = 0.95,
        method: str = "delta",
        *,
        resample: str = "residuals",
        n: int = 1000,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Intervals of the parameters: a table with a row for each, and the columns value, error, lower and upper.

        Parameters
        ----------
        level : float
            How many of such intervals are to hold the parameter: 0.95 of them.
        method : {"delta", "profile", "bootstrap"}
            As many standard errors as Student's t says (the normal distribution, where the loss is a likelihood whose
            variance is known); the values for which the best fit is not much worse (``uncertainty.intervals``), as far
            as a bound, or infinite where the data set no end; or quantiles of refits to resampled data.
        resample : {"residuals", "pairs", "parametric"}
            Of a bootstrap: new errors drawn from the residuals, rows drawn, or errors drawn from the distribution that
            the loss stands for.  Only pairs fit any loss, and errors that vary.
        n, seed : int
            Of a bootstrap: number of refits, and seed.

        Raises
        ------
        ArgumentError
            Where the loss is no likelihood, which profiles need; where a profile meets a better fit than this.

        Examples
        --------
        >>> import exprkit as ek, numpy as np
        >>> x = np.linspace(0, 4, 9)
        >>> y = 5 * np.exp(-0.7 * x) + 0.2 * np.cos(9 * x)
        >>> one = ek.fit("p1 * exp(-p2 * x)", {"x": x, "y": y}, "y")[0]
        >>> one.intervals(method="profile").round(2)
            value  error  lower  upper
        p1   5.11   0.13   4.80   5.44
        p2   0.72   0.03   0.64   0.80
        """
        return intervals(self._minimum, self.names, level, method, resample, n, seed)

    def contour(self, a: str, b: str, levels: Sequence[float] = (0.683, 0.954), n: int = 25) -> Figure:
        """The joint regions of the parameters ``a`` and ``b`` at ``levels``, by profiles of n x n values: a figure.

        >>> law = ek.fit("p1 * exp(-p2 * x1)", [[0], [1], [2], [3]], [4.1, 1.9, 1.1, 0.5])[0]
        >>> figure = law.contour("p1", "p2")  # figure.savefig("region.pdf")
        """
        return region(self._minimum, self.names, a, b, levels, n)

    def correlation(self) -> pd.DataFrame:
        """The parameters' correlations, a table with a row and a column for each; nan where there is no error.

        >>> law = ek.fit("p1 * exp(-p2 * x1)", [[0], [1], [2], [3]], [4.1, 1.9, 1.1, 0.5])[0]
        >>> law.correlation().round(2)
              p1    p2
        p1  1.00  0.45
        p2  0.45  1.00
        """
        return correlation(self._minimum, self.names)

    def identifiability(self) -> list[str]:
        """Sentences about parameters that the data do not determine, or can't tell apart; none where all is well.

        Examples
        --------
        >>> import exprkit as ek
        >>> ek.fit("p1 * p2 * exp(-p3 * x1)", [[0], [1], [2], [3], [4]], [4, 2.1, 1, 0.5, 0.2])[0].identifiability()
        ['p1 and p2 cannot be told apart: only p1 * p2']
        """
        return identifiability(self._minimum, self.names)

    def certify(self, digits: int = 15) -> pd.DataFrame:
        """The minimum of least squares in up to 50 digits, and how many of the fit's own are right.

        Newton's method goes on from the fit in as many digits as that takes, with the decimals of the data as they
        are printed: the way in which NIST's reference values were certified.  Takes seconds for some hundred rows.

        Parameters
        ----------
        digits : int
            of the numbers in the table, 1 to 50

        Returns
        -------
        DataFrame
            A row for each parameter and one of the sum of squares: ``value`` and standard ``error``, as texts, and
            ``digits``, float64, up to 16: those of the fit's own value that are right.

        Raises
        ------
        ArgumentError
            For another loss than squares, parameters at a bound, or where there is no minimum close by.

        Examples
        --------
        >>> import exprkit as ek
        >>> print(ek.fit("p1 + p2 * x1", [[0], [1], [2]], [1, 1.9, 3.1])[0].certify(8))
                        value       error  digits
        p1               0.95   0.1118034    16.0
        p2               1.05  0.08660254    16.0
        sum of squares  0.015                14.5
        """
        from exprkit.fitting.finishing.certify import certificate  # here, since SymPy takes long to import

        return certificate(self._result, self.names, whole("digits", digits, 1, 50))

    def bands(
        self,
        X: Any,
        level: float = 0.95,
        kind: str = "mean",
        method: str = "delta",
        *,
        weights: Any = None,
        resample: str = "residuals",
        n: int = 1000,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Bands of predictions: a table with a row per data point, and the columns prediction, lower and upper.

        Parameters
        ----------
        X : array (n_points, n_vars), DataFrame, dict of columns or Dataset
            As for ``fit``.
        level : float
            How many of such bands are to hold the curve, or the measurement, at a point.
        kind : {"mean", "observation"}
            Of the curve; or of a new measurement, which has an error of its own.
        method : {"delta", "bootstrap"}
            By derivatives and covariance; or quantiles of refits to resampled data.
        weights : number, array (n_points,) or str, optional
            Of new measurements, where the fit had weights.
        resample, n, seed
            As for ``intervals``.

        Examples
        --------
        >>> import exprkit as ek
        >>> one = ek.fit("p1 + p2 * x1", [[0], [1], [2], [3]], [1, 2.1, 2.9, 4.0])[0]
        >>> one.bands([[1.5], [6.0]], kind="observation").round(2)
           prediction  lower  upper
        0        2.50   2.04   2.96
        1        6.91   5.97   7.85
        """
        return bands(self._least, self._result, X, level, kind, method, weights, resample, n, seed)

    def report(self, figure: bool = False) -> Report:
        """A text about the fit as lmfit writes it; in Jupyter, with ``figure`` the one of ``diagnostics`` below it.

        Examples
        --------
        >>> import exprkit as ek
        >>> one = ek.fit("p1 + p2 * x1", [[0], [1], [2], [3]], [1, 2.1, 2.9, 4.0])[0]
        >>> print(one.report().partition("[[Variables]]")[2])
        <BLANKLINE>
            p1: 1.03 +/- 0.079372539 (7.71%)
            p2: 0.98 +/- 0.042426407 (4.33%)
        [[Correlations]] (unreported correlations are < 0.100)
            C(p1, p2) = -0.8018
        """
        return report(self._least, self, figure)

    def diagnostics(self) -> Figure:
        """Bands, residuals, quantiles, leverages, Cook's distances, profiles, gradients, correlations, as one figure.

        >>> law = ek.fit("p1 * exp(-p2 * x1)", [[0], [1], [2], [3]], [4.1, 1.9, 1.1, 0.5])[0]
        >>> figure = law.diagnostics()  # figure.savefig("law.pdf")
        """
        return diagnostics(self._least, self._result, self.names)

    # ── with numbers ──

    @functools.cached_property
    def _written(self) -> Expression:
        """The expression without the terms that change no value."""
        small = np.flatnonzero(np.abs(self.params) < SMALL)
        X = self._result.goal.X
        shorter = without(self.expression, small) if len(small) else self.expression
        if shorter.n_tokens == self.expression.n_tokens or not len(X):  # rows that were read in pieces are not kept
            return self.expression
        whole, rest = (one.with_numbers(self.params)(X) for one in (self.expression, shorter))
        return shorter if np.array_equal(whole, rest, equal_nan=True) else self.expression

    def with_numbers(self, rounded: bool = False, digits: int | None = None) -> Expression:
        """The expression with numbers in the place of its parameters.

        Parameters
        ----------
        rounded : bool
            By their standard errors; else they have all their digits, unless ``digits`` are asked for.
        digits : int, optional
            So many at most.

        Examples
        --------
        >>> law = ek.fit("p1 * exp(-p2 * x1)", [[0], [1], [2], [3]], [4.1, 1.9, 1.1, 0.5])[0]
        >>> print(law.with_numbers(rounded=True), "or", law.with_numbers(digits=2))
        4.07 * exp(-0.705 * x1) or 4.1 * exp(-0.71 * x1)
        """
        exact = digits is None and not rounded
        return self._written.with_numbers(self.params if exact else [float(text) for text in self._rounded(digits)])

    @checks_keywords
    def latex(self, digits: int | None = None, errors: bool = False) -> str:
        r"""LaTeX without dollar signs, the numbers rounded by their standard errors.

        Parameters
        ----------
        digits : int, optional
            So many at most; by default, as many as a standard error leaves, and three without one.
        errors : bool
            Write the standard errors behind the numbers: ``\left(3.00 \pm 0.02\right)``.

        Returns
        -------
        str
            A parameter with one value per category is ``p_{1,site}``; ``FitResult.latex_table`` has its numbers.

        Examples
        --------
        >>> law = ek.fit("p1 * exp(-p2 * x1)", [[0], [1], [2], [3]], [4.1, 1.9, 1.1, 0.5])[0]
        >>> print(law.latex(errors=True))
        \left(4.07 \pm 0.11\right) \cdot e^{-\left(0.705 \pm 0.039\right) \cdot x_{1}}
        """
        short, groups = by_group(self.expression)
        expression = short if groups else self._written
        return latex_of(expression, self._rounded(digits), self.standard_errors.tolist() if errors else None)

    def group_tables(self, digits: int | None = None, errors: bool = False) -> list[str]:
        r"""A LaTeX table for every column of categories, with their numbers; ``digits``, ``errors`` as in ``latex``.

        >>> table = {"site": ["a", "a", "b", "b"], "t": [1.0, 2.0, 1.0, 2.0], "y": [2.0, 4.0, 5.0, 10.0]}
        >>> print(ek.fit("p1[site] * t", table, "y")[0].group_tables(digits=2)[0].splitlines()[4])
        a & $2.0$ \\
        """
        of_numbers = self.standard_errors if errors else np.full(len(self.params), np.nan)
        cells = map(_with_error, self._rounded(digits), of_numbers.tolist())
        return tables_of(self.expression, [re.sub(r"^\\left\((.*)\\right\)$", r"\1", cell) for cell in cells])

    def _rounded(self, digits: int | None) -> list[str]:
        most = None if digits is None else whole("digits", digits, 1, MOST_DIGITS)
        pairs = zip(self.params.tolist(), self.standard_errors.tolist(), strict=True)
        return [rounded(value, error, most) for value, error in pairs]

    def sympy(self, rounded: bool = False, digits: int | None = None) -> sympy.Expr:
        """The SymPy object with numbers; ``rounded`` and ``digits`` as for ``with_numbers``.

        >>> ek.fit("p1 * x1", [[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0])[0].sympy(digits=3)
        1.99*x1
        """
        return self.with_numbers(rounded, digits).sympy()

    def to_numpy(self) -> str:
        """The text of a Python function ``f(X)`` over NumPy alone, with these numbers (``Expression.to_numpy``).

        >>> print(ek.fit("p1 * x1", [[1.0], [2.0]], [2.0, 4.0])[0].to_numpy().splitlines()[-1].strip())
        return p1 * x1
        """
        return self.expression.to_numpy(self.params.tolist())

    def jax(self) -> str:
        """The text of such a function over JAX (``Expression.jax``).

        >>> print(ek.fit("p1 * exp(x1)", [[0.0], [0.0]], [2.0, 2.0])[0].jax().splitlines()[-1].strip())
        return p1 * jnp.exp(x1)
        """
        return self.expression.jax(self.params.tolist())

    def torch(self) -> str:
        """The text of such a function over PyTorch (``Expression.torch``).

        >>> print(ek.fit("p1 * exp(x1)", [[0.0], [0.0]], [2.0, 2.0])[0].torch().splitlines()[-1].strip())
        return p1 * torch.exp(x1)
        """
        return self.expression.torch(self.params.tolist())

    def code(self, language: str) -> str:
        """The text of a function in another ``language``, "c", "matlab", "julia" or "excel" (``Expression.code``).

        >>> print(ek.fit("p1 * x1", [[1.0], [2.0]], [2.0, 4.0])[0].code("excel"))
        =2.0 * A2
        """
        return self.with_numbers().code(language)

    def to_inference_data(
        self, method: str = "delta", *, resample: str = "residuals", n: int = 1000, seed: int = 0
    ) -> Any:
        """An ``xarray.DataTree`` in the shape of ArviZ's InferenceData, with ``n`` draws as one chain.

        Its groups: posterior, observed_data, constant_data and, of a likelihood without a prior or errors in X,
        log_likelihood and posterior_predictive.

        Parameters
        ----------
        method : {"delta", "bootstrap"}
            Normal parameters, and the variance's chi-squared distribution where it is estimated (the posterior of
            linear parameters without prior knowledge); or refits.
        resample, n, seed
            As for ``intervals``.

        Examples
        --------
        >>> law = ek.fit("p1 * x1", [[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0], loss="gaussian")[0]
        >>> law.to_inference_data(n=500)["posterior"].sizes["draw"]  # a part of ArviZ's InferenceData
        500
        """
        return inference.tree(self._minimum, self, method, resample, n, seed)

    def to_json(self, path: Any = None, units: Mapping[str, str] | None = None) -> str:
        """A text of JSON that other languages read; ``path`` and ``units`` as for ``FitResult.to_json``.

        >>> ek.fit("p1 * t", {"t": [1.0, 2.0], "y": [2.0, 4.0]}, "y")[0].to_json(units={"t": "s"})[2:28]
        ' "format": "exprkit fit, 1'
        """
        return self._result.to_json(path, units)

    def plot(self) -> Any:
        """The data and what it predicts, as a figure (``FitResult.plot``).

        >>> figure = ek.fit("p1 * x1", [[1.0], [2.0], [3.0]], [2.1, 3.9, 6.0])[0].plot()  # figure.savefig("fit.pdf")
        """
        return self._result.plot(0)

    # ── looking at it ──

    def __str__(self) -> str:
        """The text with all digits, which ``parse`` reads back to what was fitted."""
        return str(self.with_numbers())

    def __repr__(self) -> str:
        lacking = "" if self.expression.n_tokens and np.isfinite(self.params).all() else f", {self.reason}"
        return f"<FittedExpression: {self.with_numbers(digits=SHOWN)}, {self._result.kind} {self.loss:.6g}{lacking}>"

    def _repr_latex_(self) -> str | None:
        shown = self.expression._repr_latex_()
        return None if shown is None else f"${self.latex()}$"


# ── numbers as they are written ──────────────────────────────────────────────────────


def rounded(value: float, error: float, digits: int | None) -> str:
    """A number to where its standard error has its second digit, of three digits without one; of so many at most.

    >>> rounded(3.14159, 0.0213, None), rounded(31415.9, 213.0, None), rounded(31415.9, 213.0, 3)
    ('3.142', '3.142e4', '3.14e4')
    >>> rounded(0.0000314159, np.nan, None), rounded(7.3, 212.0, None)
    ('3.14e-5', '7')
    """
    if not math.isfinite(value) or value == 0:
        return repr(value)
    first = _place(value)
    known = math.isfinite(error) and error > 0
    last = min(_place(error) - OF_ERROR + 1, first) if known else first - DIGITS + 1
    most = min(digits or MOST_DIGITS, MOST_DIGITS)
    last = max(last, _place(float(f"{value:.{most - 1}e}")) - most + 1)  # 0.996 to two digits is 1.0
    if last <= 0 and first >= -4:
        return f"{value:.{-last}f}"
    mantissa, exponent = f"{value:.{first - last}e}".split("e")
    return f"{mantissa}e{int(exponent)}" if not 0 <= first <= 2 else f"{float(f'{mantissa}e{exponent}'):.0f}"


def _place(number: float) -> int:
    """The power of ten of the first digit: 0 for the ones."""
    return int(f"{number:e}".split("e")[1])


def latex_of(expression: Expression, texts: Sequence[str], errors: Sequence[float] | None = None) -> str:
    """LaTeX of an expression with numbers as they are written, in the place of its parameters; with their errors."""
    from exprkit.text.printer import latex

    if errors is None:
        sizes = {abs(float(text)): text.removeprefix("-") for text in texts}
        return latex(expression.with_numbers(list(map(float, texts))), _written_as(sizes))[0]
    # each parameter a number that nothing else is, so that signs move as they do without errors
    marks = [math.copysign((i + 1) * MARK, float(text)) for i, text in enumerate(texts)]
    places = {abs(mark): f"\ue000{i}\ue000" for i, mark in enumerate(marks)}
    shown = latex(expression.with_numbers(marks), _written_as(places))[0]
    for i, pair in enumerate(zip(texts, errors, strict=True)):
        shown = shown.replace(f"\ue000{i}\ue000", _with_error(pair[0].removeprefix("-"), pair[1]))
    return shown


def _with_error(text: str, error: float) -> str:
    r"""A number and its standard error in LaTeX, both with as many decimals.

    >>> _with_error("3.142e4", 213.0), _with_error("-2", float("nan"))
    ('\\left(3.142 \\pm 0.021\\right) \\cdot 10^{4}', '\\left(-2\\right)')
    """
    mantissa, _, exponent = text.partition("e")
    decimals = len(mantissa.partition(".")[2])
    size = f" \\pm {error / 10 ** int(exponent or 0):.{decimals}f}" if error > 0 else ""
    power = rf" \cdot 10^{{{exponent}}}" if exponent else ""
    return (rf"\left({mantissa}{size}\right)" if size or mantissa.startswith("-") else mantissa) + power


def _written_as(sizes: dict[float, str]) -> Callable[[float], str]:
    """A function that writes numbers: those of ``sizes`` with their zeros, others as usual."""
    from exprkit.text.printer import number_text

    def written(number: float) -> str:
        text = sizes.get(abs(number))
        return number_text(number) if text is None else f"{'-' * (math.copysign(1, number) < 0)}{text}"

    return written


def without(expression: Expression, parameters: np.ndarray) -> Expression:
    """The expression with 0 for some parameters, and without the terms that are 0 then."""
    zero = [(CONSTANT, 0)]

    def leaf(kind: int, value: int) -> list[tuple[int, int]]:
        return zero if kind == PARAMETER and value in parameters else [(kind, value)]

    def operation(row: defined.Written, operands: list[list[tuple[int, int]]]) -> list[tuple[int, int]]:
        first, last = operands[0] == zero, operands[-1] == zero
        if row.code in (ops.MUL, ops.DIV, ops.NEG) and (first or (last and row.code == ops.MUL)):
            return zero
        if row.code in (ops.ADD, ops.SUB) and last:
            return operands[0]
        if row.code == ops.ADD and first:
            return operands[1]
        return [*itertools.chain(*operands), (OPERATOR, row.code)]

    tokens = defined.folded(expression.kinds, expression.values, leaf, operation)
    kinds, values = (np.array(array, dtype) for array, dtype in zip(zip(*tokens, strict=True), "BQ", strict=True))
    kinds.flags.writeable = values.flags.writeable = False
    return Expression(kinds, values, expression.variables, expression.parameters)
