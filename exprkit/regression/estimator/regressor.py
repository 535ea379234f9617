"""``SymbolicRegressor``: the search as a scikit-learn estimator.

In: X and y.  Out: formulas, the shortest to the most accurate, and predictions of one of them.

    >>> import numpy as np
    >>> import exprkit as ek
    >>> X = np.random.default_rng(0).uniform(1, 2, (100, 2))
    >>> model = ek.SymbolicRegressor(random_state=0).fit(X, X[:, 0] / np.sqrt(1 + X[:, 1] ** 2))
    >>> print(model.get_best().equation)
    x1 / sqrt(sqr(x2) + 1)
    >>> model.predict([[2.0, 0.0]])
    array([2.])
"""

from __future__ import annotations

import inspect
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from exprkit.distributed.sharing import shared_by
from exprkit.distributed.workers import Workers
from exprkit.errors import (
    ArgumentError,
    ParseError,
    brief,
    brought_by,
    checks_methods,
    did_you_mean,
    flag,
    listed,
    number_of,
    one_of,
    whole,
    whole_number,
)
from exprkit.evaluate.loss_text import OwnGoal
from exprkit.evaluate.ranges import BROKEN, OPEN
from exprkit.evaluate.tables import DataTable
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.regression.estimator import equations, model_file, numbers, other_words, progress, template
from exprkit.regression.estimator.checkpoint import Checkpoint
from exprkit.regression.estimator.chosen_operators import chosen_operators, refuse_elsewhere, refuse_without_cuda
from exprkit.regression.estimator.equations import DescribedFront
from exprkit.regression.estimator.formulas import FormulaTable
from exprkit.regression.estimator.refusals import checked_data, names_of
from exprkit.regression.formulas.archive import MOST, FormulaArchive
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import expression_of, tree_of
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem import effort
from exprkit.regression.problem.goal import NAMED, Goal, rows_for
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules import constraints, units
from exprkit.regression.rules.admission import FormulaRules
from exprkit.regression.rules.shape import shape_of
from exprkit.regression.shapes.spread import proportional_weights
from exprkit.regression.stages import islands
from exprkit.regression.stages.discovery import Discovery
from exprkit.regression.stages.search import FormulaSearch
from exprkit.regression.stages.search_problem import SearchSettings
from exprkit.regression.sums.linear import linear_formulas
from exprkit.runtime import files, machine, slices
from exprkit.runtime.budget import Budget, Ended

with brought_by("search"):
    from sklearn.base import RegressorMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted

ON_HOST = ("auto", "cpu", "numpy")
NOISES = ("auto", "constant", "proportional")
SELECTIONS = ("best", "accuracy", "score", "mdl")
ALIASES = {"gaussian": "squares"}  # losses that are least where others are


@checks_methods
@dataclass(eq=False, repr=False)
class SymbolicRegressor(RegressorMixin, FormulaTable):
    """Finds formulas for data: functions joined in pairs, curves, then evolution, numbers fitted throughout.

    Parameters
    ----------
    niterations : int
        Number of generations of genetic programming; 0 for none.
    population_size : int
        Number of children per generation.
    maxsize : int
        Largest number of tokens of a formula.
    binary_operators, unary_operators : list of str, optional
        Names or symbols as in ``exprkit.ops``; by default those of ``ops.SETS["search"]``, and ``ops.OUTERMOST``
        around a whole formula.  Operators of ``ek.operator`` too, or a text that defines one, as
        ``"swish(x) = x / (1 + exp(-x))"``.  Formulas have no other operators than those that are chosen; numbers may be
        negative, a ``-x`` goes with ``-``, and where ``binary_operators`` are the usual ones, ``x^3`` may come as well.
    operators : dict of lists, optional
        The same by the number of operands, ``{3: ["fma(a, b, c) = a * b + c"]}``: operators of three, which have no
        parameter of their own, and others in place of ``binary_operators`` (2) and ``unary_operators`` (1).
    constraints : dict, optional
        By operator the most tokens of each operand, -1 for any, as ``{"^": (-1, 1)}``; or a dictionary of ``sizes``,
        ``numbers`` (low, high) that the last operand is between, and ``variables`` that alone may stand inside.
    nested_constraints : dict, optional
        By operator how many of others may stand inside of each other in it, as ``{"sin": {"sin": 0, "exp": 1}}``.
    monotone, convex : dict, optional
        By column +1 where y rises with it (``convex``: is convex in it), -1 where y falls (is concave), as
        ``{"x1": +1}``.  This, and the next two, is proved of every formula of the front, by interval arithmetic; what
        cannot be proved is refused, and counted in ``refused_``.
    positive : bool
        Whether no value of a formula is below 0.
    y_bounds : (low, high), optional
        That values lie between; None: anything.
    box : dict of (low, high), optional
        By column where the last four hold, as ``{"x1": (0, 10)}``; by default where the data are.  Formulas are also
        proved to be finite there.
    dimensionless_constants_only : bool
        With units: whether the numbers of a formula have none; if not, they have those that make it right.
    elementwise_loss : {"squares", "mae", "huber", "gaussian", "poisson"} or a loss of your own
        What the mean over the rows is taken of; of "huber" with 1 where it turns from squares to absolute errors;
        "gaussian" is "squares", and "poisson" half the deviance of counts whose mean the formula is.  Or a
        text over f (the formula), y, w (``sample_weight``, which multiplies it if it is not named) and ``columns``, as
        ``ek.fit`` takes it: ``"huber(f - y, 0.5)"``, ``"((f - y) / y)^2"``, ``"pinball(y - f, 0.9)"``.  Its least value
        at every row is taken off.
    model_selection : {"best", "mdl", "score", "accuracy"}
        Which formula predicts: "mdl", of least description length (D. J. Bartlett, H. Desmond, P. G. Ferreira,
        arXiv 2211.11461); "accuracy", of least loss; "score", where the logarithm of the loss falls most for a token;
        "best": the shortest of those that are exact but for rounding, if the description of all others is longer; where
        none is exact, of least error expected at other rows, by rows left out and by how many formulas were tried.
    parsimony : float
        Additional cost of a token in nats when a formula is selected.
    pool_size : int, optional
        Number of functions whose pairs are searched; 0 for none.  Each needs some 200 bytes.  By default
        300,000; on a GPU 100 million, or as many as fit into its memory, where each needs up to 500 bytes.
    timeout_in_seconds : float, optional
        Time after which the search ends with what it has found (``cut_`` says what was left out), without that in which
        exprkit's loops are compiled, once on a machine.  It is shared among the steps by counted work: time decides
        where a search ends and nothing else, and one that ends before gives the same formulas on every machine.
    deterministic : bool
        Whether ``timeout_in_seconds`` limits the counted work instead, in seconds of one core of 2026: the same
        ``random_state`` gives the same formulas then under any load, and takes as long as that takes.
    max_evals : int, optional
        The same, by the number of functions tried.
    early_stop_condition : float or function, optional
        A loss at which the search ends, or a function of (loss, complexity) that returns True then.  An exact
        formula always ends the search.
    template : str, optional
        What is known of the formula, with unknown functions of columns and numbers in it, ``"a * f(x1) + g(x2, x3)"``:
        the functions are searched for, with ``maxsize`` tokens each, and ``functions_`` has them.
    groups : str, optional
        The column of a table X by whose categories numbers may go: those that a ``template`` marks, ``"a[site] *
        f(x1)"``; else any of the formula, ``p1[site]``, which are the same for all where that describes the data
        shorter.  ``group_numbers`` has them.
    guesses : list, optional
        Formulas (texts or Expressions) to begin with; their numbers are starts of fits.
    warm_start : bool
        Continue from the front of the last fit.
    checkpoint : path, optional
        A file for the state of the search.  If it exists, from the same data and settings, the search continues
        from it, to bitwise the same formulas as without interruption; time limits start again.
    random_state : int, RandomState or None
        Seed; the same number gives the same formulas, for every ``n_jobs``.
    n_jobs : int, optional
        Number of threads; None and -1 mean all that this process may use.
    backend : str
        What fits the children of a generation: "auto" or a name of ``exprkit.backends()``.  With "cuda", "ptx", or
        "auto" where there is a GPU, pools lie on it.
    progress : bool, function or None
        True: a bar of what ends the search (the time, ``max_evals``, or stages and generations) with the loss of the
        best formula; in a notebook the front as a table and a figure that grow.  None:
        the same where somebody looks, after a second.  A function is called with a ``SearchView`` (stage, generation,
        n_evals, seconds, and complexity, loss and equation of the front) and ends the search by returning True.
    verbosity : int
        1: print at the end why the search ended.
    devices, client
        As for ``ek.fit``: the generations run on islands, a worker each (``stages.islands``).  Before that a
        client's workers share curves, the lookups of pairs and their regressions; the cores of this host do so without
        them, and pools on a GPU lie on one.
    keep_visited : int
        Number of distinct formulas in ``visited_``; 0 for none, ten million at most, of 150 bytes or so each.
    noise : {"auto", "constant", "proportional"}
        How large the errors of y are.  "proportional": as large a share of y everywhere; squares are weighted by
        1 / f^2 then, f a smooth curve through y, which must have one sign.  "constant": as large everywhere.  "auto":
        which of these errors of a simple fit tell, for "squares" without ``sample_weight`` and where no formula is
        exact; ``noise_`` says which.  Beside a share there may be a constant part a then: 1 / (a^2 + f^2).

    Attributes
    ----------
    equations_ : DataFrame
        The front, a row a formula: complexity, loss, score, equation, description_length, sympy_format, latex,
        parameters, parameter_errors and selected.  The numbers have the least loss of the formula's form at all rows;
        only ``latex``, ``print(model)`` and the figures round them, by their standard errors, which are those that
        ``ek.fit`` has for the formula and the loss.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.
    visited_ : VisitedFormulas
        The distinct formulas that were evaluated, which ``explore`` looks through: ``pop``, a Population, and ``loss``,
        float64.  Of those that differ only in their numbers or the order of operands the best is kept, of more than
        ``keep_visited`` those of least loss of each size.  They are what the front was offered, functions added to its
        formulas, and the trees of generations (of islands and of a GPU the best); functions of pools have no loss.
    reduction_ : Reduction
        The products of powers of the variables, or of their differences, that y depends on: see ``ek.reduce``.
    noise_ : str
        "proportional" where rows were weighted for that, which is then in every loss; else "constant".
    n_rows_searched_ : int
        Of very many rows the search takes 10,000, drawn by ``random_state``; formulas are fitted to all of them then.
    refused_ : dict
        How many formulas were good enough for the front, and refused: "broken" at a point of the box, and "not proved".
    stopped_ : str
        Reason why the search ended.
    cut_ : list of str
        Steps that a limit ended early or left out, in the words of ``discovery``.
    interrupted_ : bool
        Whether Ctrl-C or a notebook's stop button ended it; what was found until then is kept.
    n_evals_ : int
        Functions tried: those made for pools, pairs looked up (one by function and form), and fits.
    seconds_ : float

    Examples
    --------
    >>> import exprkit as ek
    >>> X = [[1.0], [2.0], [3.0], [5.0], [7.0], [9.0], [12.0]]
    >>> model = ek.SymbolicRegressor(niterations=0, pool_size=300, random_state=0).fit(X, [3 * x for x, in X])
    >>> str(model.sympy()), model.predict([[20.0]])
    ('3*x1', array([60.]))
    """

    niterations: int = 100
    population_size: int = 1000
    maxsize: int = 30
    binary_operators: Sequence[str] | None = None
    unary_operators: Sequence[str] | None = None
    operators: Mapping[int, Sequence[str]] | None = None
    constraints: Mapping[str, Any] | None = None
    nested_constraints: Mapping[str, Mapping[str, int]] | None = None
    monotone: Mapping[str, int] | None = None
    convex: Mapping[str, int] | None = None
    positive: bool = False
    y_bounds: Any = None
    box: Mapping[str, Any] | None = None
    dimensionless_constants_only: bool = True
    elementwise_loss: str = "squares"
    model_selection: str = "best"
    parsimony: float = 0.0
    pool_size: int | None = None
    timeout_in_seconds: float | None = None
    deterministic: bool = False
    max_evals: int | None = None
    early_stop_condition: float | Callable[[float, int], bool] | None = None
    template: str | None = None
    groups: str | None = None
    guesses: Sequence[Any] | None = None
    warm_start: bool = False
    checkpoint: Any = None
    random_state: Any = None
    n_jobs: int | None = None
    backend: str = "cpu"
    progress: Any = None
    verbosity: int = 0
    devices: Any = None
    client: Any = None
    noise: str = "auto"
    keep_visited: int = 100_000

    def __new__(cls, *_: Any, **settings: Any) -> SymbolicRegressor:
        """Say what was meant by a parameter that is none: scikit-learn allows ``__init__`` no others."""
        for name in settings:
            if name not in (known := cls._get_param_names()):
                of_fit = name in inspect.signature(cls.fit).parameters
                hint = "; fit(X, y, …) does" if of_fit else other_words.ABSENT_PARAMETERS.get(name)
                hint = hint or did_you_mean(name, known, other_words.PARAMETERS) or f"; it has {', '.join(known)}"
                raise ArgumentError(f"SymbolicRegressor has no parameter {name!r}{hint}")
        return super().__new__(cls)

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        X_units: Sequence[Any] | Mapping[str, Any] | None = None,
        y_units: Any = None,
        columns: Mapping[str, Any] | None = None,
    ) -> SymbolicRegressor:
        r"""Search for formulas of y.

        Parameters
        ----------
        X : array or table, (n_rows, n_vars)
            A table is a DataFrame of pandas or polars, one of pyarrow, a dict of columns, or the path of a CSV file.
            Its column names are the variables' names; in formulas one that is no identifier stands between backquotes,
            and one that is taken (a function's name, say) has a ``_`` at its end.
        y : array, (n_rows,), or str
            For a table X the name of its column, which is no variable then.  Of float32 a formula is exact that is
            right to the digits of float32.
        sample_weight : array, (n_rows,), or str, optional
            A weight >= 0 for every row; for a table X the name of its column.  Whole weights count rows; of others, as
            1 / variance, only the quotients matter, unless the loss names w.
        X_units : list of str or of exponents, or dict of them by column, optional
            The unit of each column, as "kg*m/s^2" or as exponents of base units: formulas that break units are never
            made.  Numbers may be constants of nature where they may have units (``dimensionless_constants_only=False``)
            and all units are texts of SI units without a factor (m, not km).
        y_units : str or exponents, optional
            Without it formulas have to be right in themselves alone.
        columns : dict of arrays (n_rows,), optional
            What ``elementwise_loss`` names beside f, y and w.

        Raises
        ------
        ArgumentError
            For a parameter that is none.
        FileError
            If ``checkpoint`` is a file of another search or none, or cannot be written.
        ValueError
            For data that scikit-learn's estimators refuse.

        Examples
        --------
        >>> table = {"t": np.arange(1.0, 9.0), "y": 3 * np.arange(1.0, 9.0)}
        >>> print(ek.SymbolicRegressor(niterations=0, pool_size=0).fit(table, "y").latex())
        3 \cdot t
        """
        begin, checked = time.perf_counter(), self._checked()
        if self.template is not None or self.groups is not None:
            if not (X_units is y_units is columns is None):
                raise ArgumentError("X_units, y_units and columns are of searches without template= and groups=")
            template.fit(self, X, y, sample_weight, checked, seed_of(self.random_state), begin)
            return self._ended()
        workers = Workers.of(self.devices, self.client)
        previous = self._front.entries if self.warm_start and self.__sklearn_is_fitted__() else []
        n_before = self.n_features_in_ if previous else None
        table = DataTable(X, y, sample_weight)
        X, y, weights = checked_data(self, table)
        if n_before not in (None, self.n_features_in_):
            raise ArgumentError(f"warm_start: the last fit was of {number_of(n_before, 'column')}, X has {X.shape[1]}")
        rows = rows_for(self._loss, X, y, weights, columns).with_precision_of(np.asarray(table.y).dtype)
        if self.backend not in ON_HOST and not Goal(self._loss, rows).plain:
            raise ArgumentError(
                f"elementwise_loss={brief(self.elementwise_loss)} is fitted on the CPU alone, as no square, absolute "
                f"value or huber(...) of f itself: backend='auto' or 'cpu', not {brief(self.backend)}"
            )
        self._names, self._target_name = names_of(self), table.target
        checkpoint = Checkpoint(self.checkpoint)
        is_new = checkpoint.seed is None or self.random_state is not None
        seed = seed_of(self.random_state if is_new else checkpoint.seed)
        shape = shape_of(self.monotone, self.convex, self.positive, self.y_bounds, self.box, self._words(), rows.X)
        settings = replace(
            checked, guesses=self._guessed(), seed=seed, rules=self._rules(X_units, y_units), shape=shape
        )
        weighted = self._weighted(rows) if sample_weight is None else rows
        few = weighted.at_most(effort.ROWS.search, seed)
        self.n_rows_searched_, self.noise_ = len(few), "constant" if weighted is rows else "proportional"
        discovery = self._searched(begin, few, settings, checkpoint, [entry.expression for entry in previous], workers)
        search = discovery.search
        if not search.front.entries():
            search.offer(parse([repr(float(few.w @ few.y / few.total)), "0"]))
        verdicts = list(search.problem.verdicts.values())
        self.refused_ = {"broken": verdicts.count(BROKEN), "not proved": verdicts.count(OPEN)}
        if not search.front.entries():
            refused = ", ".join(f"{n:,} {what}" for what, n in self.refused_.items())
            raise ArgumentError(f"no formula has the shape that monotone, convex, positive and y_bounds say: {refused}")
        self.n_evals_, self.seconds_ = search.problem.budget.n_evals, search.problem.budget.seconds
        self.cut_ = discovery.left_out
        with machine.limited(settings.threads):
            self._front = self._described(search, rows, weighted)
        entries, archive = self._front.entries, search.state.archive
        archive.add(Population.of([entry.expression for entry in entries]), [entry.loss for entry in entries])
        self.visited_ = archive.formulas(self._words())
        for failure in discovery.failures:
            warnings.warn(failure, RuntimeWarning, stacklevel=2)
        return self._ended()

    def _ended(self) -> SymbolicRegressor:
        """The model, which says why its search ended, if it should."""
        if self.verbosity:
            how = f"{self.stopped_}: {self.n_evals_:,} functions in {self.seconds_:.2g} s"
            print("; ".join([how, *self._notes(), self.get_best().equation]))
        return self

    def _weighted(self, rows: Rows) -> Rows:
        """The rows, weighted if noise is in proportion to y."""
        is_proportional = one_of("noise", self.noise, NOISES) == "proportional"
        if self._loss != "squares" or self.noise == "constant":
            if is_proportional:
                raise ArgumentError("noise='proportional' weights squares: it needs elementwise_loss='squares'")
            return rows
        weights = proportional_weights(rows, is_proportional)
        if is_proportional and weights is None:
            raise ArgumentError("noise='proportional' needs a y of one sign, without 0: noise of 0 has no share of it")
        if weights is None:
            return rows
        return rows.with_weights(rows.w * weights / (rows.w @ weights) * rows.total)

    def _described(self, search: FormulaSearch, rows: Rows, weighted: Rows) -> DescribedFront:
        """The formulas of a search fitted and described at all rows, without weights of noise where one is exact."""
        entries = search.front.entries()
        if any(entry.is_exact for entry in entries):
            weighted, self.noise_ = rows, "constant"
        if weighted is not search.problem.rows:
            search = FormulaSearch(weighted, search.problem.settings, Budget())
            search.offer([entry.expression for entry in entries])
        self._n_rows, plotted = len(weighted), weighted.at_most(effort.ROWS.search, 0)
        self._data = plotted.X, plotted.y
        self._forget()
        entries, simple = numbers.finished(search.problem)
        return equations.described(entries, search.problem.goal, self._names, search.front.floor, simple)

    def _searched(
        self,
        begin: float,
        rows: Rows,
        settings: SearchSettings,
        checkpoint: Checkpoint,
        previous: Sequence[Expression],
        workers: Workers | None,
    ) -> Discovery:
        """A search, run to its end."""
        bar = progress.ProgressDisplay(self.progress, self._names)
        with machine.limited(settings.threads), bar as display:
            budget = Budget(
                self.timeout_in_seconds, self.max_evals, display.refresh, begin=begin, by_work=self.deterministic
            )
            without_islands = replace(settings, niterations=0) if workers else settings
            discovery = Discovery(rows, without_islands, budget, display.refresh, checkpoint.save)
            search = discovery.search
            search.state.archive = FormulaArchive(int(self.keep_visited))
            display.discovery = discovery
            checkpoint.attach(discovery)
            self.interrupted_ = False
            try:
                search.offer(previous)
                with shared_by(workers):
                    self.stopped_ = budget.run(discovery.run)
                if workers and self.stopped_.startswith("0 iterations"):  # nothing else has ended it
                    self.stopped_ = islands.evolve(search, settings, workers, display.refresh)
            except Ended as ended:  # in the middle of something long
                self.stopped_ = str(ended)
            except KeyboardInterrupt:
                self.interrupted_, self.stopped_ = True, "it was interrupted"
            short = 4 * rows.X.shape[1] < settings.maxsize and not search.problem.is_exact
            if short and {ops.ADD, ops.MUL} <= {row.code for row in settings.operators}:
                search.offer(linear_formulas(rows))  # at the end: what is found before stays the same
        return discovery

    def predict(self, X: Any, index: int | None = None) -> np.ndarray:
        """Predictions of a formula.

        Parameters
        ----------
        X : array or DataFrame, (n_rows, n_vars)
        index : int, optional
            Row of ``equations_``; by default that of ``get_best``.

        Returns
        -------
        float64 array, (n_rows,)

        Examples
        --------
        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> model = ek.SymbolicRegressor(niterations=0, pool_size=0).fit(X, 3 * X[:, 0])
        >>> model.predict([[5.0]])
        array([15.])
        """
        check_is_fitted(self, "_front")
        values: np.ndarray = values_of([self._named(index)], self._columns(X))[0]
        return values

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """R2 of what the formula gives.

        Parameters
        ----------
        X, y, sample_weight
            As for ``fit``.

        Returns
        -------
        float

        Raises
        ------
        DataError
            For a y that holds texts, or has the labels of X's rows in another order.

        Examples
        --------
        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> ek.SymbolicRegressor(niterations=0, pool_size=0).fit(X, 3 * X[:, 0]).score(X, 3 * X[:, 0])
        1.0
        """
        table = DataTable(X, y, sample_weight)
        return float(super().score(table.X, table.target_numbers(), table.weight_numbers()))

    # ── files ──

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to ``path`` as npz, without pickle; complete or absent.  ``exprkit.load`` reads it.

        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> model = ek.SymbolicRegressor(niterations=0, pool_size=0).fit(X, 3 * X[:, 0])
        >>> model.save("model.npz")
        """
        check_is_fitted(self, "_front")
        files.write_arrays(path, model_file.arrays_of(self, self._front))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> SymbolicRegressor:
        """Read the file at ``path`` that ``save`` wrote; errors are those of ``exprkit.load``.

        >>> X = np.arange(1.0, 9.0)[:, None]
        >>> ek.SymbolicRegressor(niterations=0, pool_size=0).fit(X, 3 * X[:, 0]).save("model.npz")
        >>> ek.SymbolicRegressor.load("model.npz").predict([[5.0]])
        array([15.])
        """
        with files.opened(path, "model") as arrays:
            return cls.restored(arrays)

    @classmethod
    def restored(cls, arrays: dict[str, np.ndarray]) -> SymbolicRegressor:
        """From the arrays of a file."""
        model: SymbolicRegressor
        model, model._front = model_file.restored(arrays, cls)
        model._names = model._front.names
        return model

    # ── inside ──

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_front")

    def _checked(self) -> SearchSettings:
        """The settings of a search from the parameters, which are checked; without guesses, seed and rules."""
        self._check_loss()
        one_of("model_selection", self.model_selection, SELECTIONS)
        least = {"niterations": 0, "population_size": 10, "maxsize": 1, "pool_size": 0, "verbosity": 0}
        if self.pool_size is None:
            del least["pool_size"]
        for name, smallest in least.items():
            whole(name, getattr(self, name), smallest)
        whole("keep_visited", self.keep_visited, 0, MOST)
        for name in ("timeout_in_seconds", "max_evals"):
            limit = getattr(self, name)
            if limit is not None and not (_is_number(limit) and limit > 0):
                raise ArgumentError(f"{name} must be None or a positive number, not {brief(limit)}")
        if not (_is_number(self.parsimony) and np.isfinite(self.parsimony)):
            raise ArgumentError(f"parsimony must be a number, not {brief(self.parsimony)}")
        for name in ("dimensionless_constants_only", "warm_start", "deterministic"):
            flag(name, getattr(self, name))
        operators, outermost, beside = chosen_operators(self.binary_operators, self.unary_operators, self.operators)
        if self.backend not in ON_HOST:
            refuse_without_cuda(operators)
        if self.client is not None:
            refuse_elsewhere(operators, self._loss)
        stop, threads = _stop(self.early_stop_condition), _threads(self.n_jobs)
        return SearchSettings(
            operators,
            int(self.niterations),
            int(self.population_size),
            int(self.maxsize),
            self._loss,
            None if self.pool_size is None else int(self.pool_size),
            early_stop=stop,
            backend=self.backend,
            threads=threads,
            outermost=outermost,
            beside=beside,
        )

    @property
    def _loss(self) -> str:
        """The loss as the search has it."""
        return ALIASES.get(self.elementwise_loss, self.elementwise_loss)

    def _check_loss(self) -> None:
        """A loss by its name, or what may be read as a text of one."""
        loss = self.elementwise_loss
        if isinstance(loss, str) and loss not in other_words.LOSSES and OwnGoal.is_text(loss, (*NAMED, *ALIASES)):
            if "=" in loss:
                how = 'write what is taken of f and y alone, as "(f - y)^2"'
                raise ArgumentError(f"elementwise_loss: {how}, not {brief(loss)}")
            return
        besides = 'a text over f, y and w as "huber(f - y, 0.5)"'
        one_of("elementwise_loss", loss, (*NAMED, *ALIASES), other_words=other_words.LOSSES, besides=besides)

    def _rules(self, X_units: Sequence[Any] | Mapping[str, Any] | None, y_units: Any) -> FormulaRules | None:
        """The rules of units and constraints; None where there are none."""
        limits = constraints.limits(self.constraints, self.nested_constraints, self._words())
        if X_units is None:
            if y_units is not None:
                raise ArgumentError("y_units needs X_units: the unit of every column of X")
            return FormulaRules(self.n_features_in_, limits=limits) if limits else None
        columns = list(getattr(self, "feature_names_in_", self._words()))
        of_X = units.by_column(X_units, columns) if isinstance(X_units, Mapping) else listed(X_units)
        if of_X is None or len(of_X) != self.n_features_in_:
            raise ArgumentError(f"X_units must be a list of {number_of(self.n_features_in_, 'unit')}, one for a column")
        names = [*self._words(), "y"]
        exponents = units.all_exponents([*of_X, of_X[0] if y_units is None else y_units], names)
        free = not self.dimensionless_constants_only
        nature = units.constants() if units.are_coherent([*of_X, y_units]) else []
        of_y = None if y_units is None else exponents[-1]
        if of_y is not None and not free:
            units.check_reachable(exponents[:-1], of_y, y_units)
        return FormulaRules(self.n_features_in_, exponents[:-1], of_y, free, limits, nature)

    def _guessed(self) -> tuple[Expression, ...]:
        if self.guesses is None:
            return ()
        guesses = [self.guesses] if isinstance(self.guesses, str | Expression) else listed(self.guesses)
        if guesses is None:
            raise ArgumentError(f"guesses must be a list of formulas, not {brief(self.guesses)}")
        try:
            pop = parse(guesses, variables=self._words())
        except ParseError as error:
            raise ParseError(f"guesses: {error}") from None
        if pop.max_params:
            raise ArgumentError("guesses: p1, p2, … have no values; write numbers, at which the fit starts")
        for guess in pop:
            if (n := simplified(guess).n_tokens) > self.maxsize:
                raise ArgumentError(f"guesses: {brief(str(guess))} has {n} tokens, maxsize={self.maxsize} allows fewer")
        return tuple(expression_of(tree_of(guess)) for guess in pop)

    def _words(self) -> tuple[str, ...]:
        return self._names or tuple(f"x{k + 1}" for k in range(self.n_features_in_))


_INIT = inspect.signature(SymbolicRegressor.__init__)
SymbolicRegressor.__signature__ = _INIT.replace(
    parameters=list(_INIT.parameters.values())[1:], return_annotation=SymbolicRegressor
)


def seed_of(random_state: Any) -> int:
    """A seed as exprkit takes it, of one as scikit-learn does."""
    if (number := whole_number(random_state)) is not None and number >= 0:
        return number
    try:
        return int(check_random_state(random_state).randint(1 << 31))
    except ValueError:
        raise ArgumentError(
            f"random_state must be None, a whole number >= 0 or a RandomState of NumPy, not {brief(random_state)}"
        ) from None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _threads(n_jobs: Any) -> int | None:
    if n_jobs is None or whole_number(n_jobs) == -1:
        return None
    return whole("n_jobs", n_jobs, 1, slices.MOST_ASKED)


def _stop(condition: Any) -> Callable[[float, int], bool]:
    if callable(condition):
        return lambda loss, size: bool(condition(loss, size))
    limit = -np.inf if condition is None else condition
    if not _is_number(limit) or np.isnan(limit):
        raise ArgumentError(
            f"early_stop_condition must be a number or a function of (loss, complexity), not {brief(condition)}"
        )
    return lambda loss, size: bool(loss < limit)


def search_of(search: Any, seconds: float) -> SymbolicRegressor:
    """The search that another estimator was given, or one of so many seconds of counted work.

    Raises ArgumentError for what is none.
    """
    if not isinstance(search, SymbolicRegressor | None):
        raise ArgumentError("search must be a SymbolicRegressor")
    return search or SymbolicRegressor(timeout_in_seconds=seconds, random_state=0, deterministic=True)
