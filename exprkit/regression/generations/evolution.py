"""Evolution: genetic programming with linear scaling and constant optimisation of every tree.

In: the ``Rows``, blocks, which are the first generation and the subtrees of mutations.  Out: generation by generation
the hall of fame, the best new formula ``a + b * tree`` of every size.

    >>> import numpy as np
    >>> import exprkit as ek
    >>> from exprkit.expressions.arguments import operators_of
    >>> from exprkit.regression.generations.evolution import Evolution
    >>> from exprkit.regression.problem.rows import Rows
    >>> X = np.random.default_rng(0).uniform(1, 2, (50, 2))
    >>> rows = Rows(X, 3 * X[:, 0] / (1.5 + X[:, 1]))
    >>> leaves = ek.parse(["x1", "x2"])
    >>> evolution = Evolution(rows, operators_of(["+", "*", "/"]), leaves, population_size=400, width=9, seed=1)
    >>> losses = [evolution.generation().loss.min(initial=np.inf) for _ in range(12)]
    >>> bool(min(losses) < 1e-9)
    True

A generation: tournaments on an island, among trees up to a size that is drawn, select parents; their children
(``variation``) are fitted by a few steps of Levenberg-Marquardt; of trees of equal loss and size one is kept; of each
island and size the best survive (``survival``).  Each of these is a loop that runs where the fits run: with
``backend="cuda"`` trees never leave the GPU, but for the hall of fame.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.device_programs.loops import loops_of
from exprkit.backends.device_programs.population import DevicePopulation
from exprkit.backends.objective import Fitted
from exprkit.errors import DataError, FileError
from exprkit.expressions.population import Population
from exprkit.fitting.fit_problem import FitProblem, backend_of_fits
from exprkit.operators import defined, ops
from exprkit.regression.formulas.archive import FormulaArchive
from exprkit.regression.formulas.values import values_of
from exprkit.regression.generations import survival, variation
from exprkit.regression.generations.survival import SCALING_TOKENS, FitOutcome, HallOfFame, SurvivalLimits
from exprkit.regression.generations.variation import RandomState, TreeRows
from exprkit.regression.problem.goal import Goal
from exprkit.regression.problem.rows import Rows
from exprkit.regression.rules.admission import FormulaRules
from exprkit.runtime.hashes import mixed
from exprkit.text.tokens import CONSTANT, OPERATOR

MAX_ISLANDS = 8
MIN_ISLAND_SIZE = 500  # trees
IGNORED_BITS = {"float64": 22, "float32": 34}  # of the 52 of a loss's fraction: trees that differ in them are equal
TOL = 1e-2  # relative change of the loss that ends a fit: descendants and the front's formulas are fitted again
PAIRS = 0.4  # share of children that have two parents; chosen, not measured
STEPS = 8  # Levenberg-Marquardt steps of a child at most
PATIENCE = 2  # steps of a fit that stays worse than all survivors of the tree's size
MAX_FITTED_NUMBERS = 2  # of a tree in a generation: with a and b as many as the fastest kernels take
MAX_ATTEMPTS = 12  # times that children are bred until the rules allow them
MAX_FLOAT32_DATA = 1e9  # and its inverse for the least: squares of the data have to be normal numbers of float32


class Generation(NamedTuple):
    """The hall of fame of a generation: children that are the best of their size on an island."""

    formulas: Population  # a + b * tree, with numbers
    loss: np.ndarray  # float64 (n,)
    tried: int  # trees that were fitted


class Evolution:
    """A population of trees on islands, generation after generation.

    ``blocks`` are small trees: the first generation, and the subtrees of mutations.  With ``rules`` children are bred,
    checked and fitted on the host.  ``numbers`` of a tree are fitted in a generation, in turn.  By default there is an
    island for each MIN_ISLAND_SIZE trees, and a GPU computes in float32 where the data allow it.  The ``archive``
    gets all trees that are fitted on the host.
    """

    def __init__(
        self,
        rows: Rows,
        operators: list[defined.Written],
        blocks: Population,
        *,
        population_size: int,
        width: int,
        seed: int,
        loss: str = "squares",
        backend: str = "cpu",
        islands: int | None = None,
        dtype: str | None = None,
        numbers: int = MAX_FITTED_NUMBERS,
        rules: FormulaRules | None = None,
        archive: FormulaArchive | None = None,
    ) -> None:
        self._archive = archive or FormulaArchive(0)
        self._rules, self._has_formulas = rules, any(isinstance(row, defined.Definition) for row in operators)
        self._n, self._width, self._seed = population_size, min(max(width - SCALING_TOKENS, 1), survival.MAX_SIZE), seed
        islands = islands or min(MAX_ISLANDS, max(1, population_size // MIN_ISLAND_SIZE))
        self._numbers = numbers
        self._goal = Goal(loss, rows)
        size = float(np.sqrt(rows.w @ rows.y**2 / rows.total)) or 1.0
        self._scale = size if self._goal.plain else 1.0
        backend = backend_of_fits(backend if rules is None and self._goal.plain else "cpu")
        self._loops: Any = loops_of(backend)
        on_device = self._loops.device is not None
        self._dtype = dtype or ("float32" if on_device and _is_moderate(rows) else "float64")
        try:
            self._problem = self._problem_of(backend)
        except DataError:  # float32 spoils the data
            self._dtype = "float64"
            self._problem = self._problem_of(backend)
        self._to_loss = self._goal.to_loss(self._scale) if self._goal.plain else 1.0
        capacity = max(2 * self._n // (self._width * islands), 4)
        self._limits = SurvivalLimits(self._n, capacity, islands, self._width, IGNORED_BITS[self._dtype])
        self._breeding = self._loops.bag(
            variation.breeding_settings(
                operators, rows.X.shape[1], PAIRS, width=self._width, islands=islands, n=self._n
            )
        )
        self._blocks = self._loops.bag(variation.rows_of(blocks, self._width))
        xp, n_rows = self._loops.xp, capacity * islands * (self._width + 1)
        self._parents, self._next = (
            (variation.empty_trees(xp, n_rows, self._width), variation.empty_fitness(xp, n_rows, islands, self._width))
            for _ in range(2)
        )
        self._state = xp.empty(self._n, np.uint64)
        best_trees = variation.empty_trees(xp, self._width + 1, self._width)
        self._hall_of_fame = HallOfFame(*best_trees, xp.empty((self._width + 1, 2)), xp.empty(self._width + 1))
        self.number = 0  # of generations so far

    def _problem_of(self, backend: str) -> FitProblem | None:
        self._settings: dict[str, Any] = {
            "max_iter": STEPS,
            "tol": TOL,
            "backend": backend,
            "dtype": self._dtype,
            "precision": "ieee" if self._dtype == "float64" else "fast",
        }
        return self._goal.problem(self._scale, **self._settings) if self._goal.plain else None

    def generation(self) -> Generation:
        """Breed and fit the next generation; the first is that of the blocks."""
        children = self._offspring() if self.number else self._blocks
        self.number += 1
        return self.compete(children)

    def immigrate(self, pop: Population) -> Generation | None:
        """Fit formulas from outside, which compete with the population; None where all are too long."""
        rows = variation.rows_of(pop, self._width)
        return self.compete(self._loops.bag(rows)) if len(rows.length) else None

    def compete(self, children: TreeRows) -> Generation:
        """Fit trees, write their numbers into them, and select the survivors of the population and them."""
        outcome = self._fit(children)
        if self._loops.device is None:
            self._archive.add(_scaled(variation.population_of(children), outcome.scaling), outcome.loss)
        limits = self._limits._replace(n=len(children.length))
        survivors = survival.survivors(
            self._loops, *self._parents, children, outcome, limits, self._next, self._hall_of_fame
        )
        self._parents, self._next = survivors, self._parents
        return self._best_children(len(children.length))

    def _offspring(self) -> TreeRows:
        """Children that the rules allow; the blocks where there are none."""
        children = self._children(0)
        if self._rules is None:
            return children
        allowed = self._rules.allow(variation.population_of(children))
        for attempt in range(1, MAX_ATTEMPTS):
            if allowed.all():
                break
            others = self._children(attempt)
            replaced = ~allowed & self._rules.allow(variation.population_of(others))
            for array, other in zip(children, others, strict=True):
                array[replaced] = other[replaced]
            allowed |= replaced
        if not allowed.any():
            return self._blocks
        return TreeRows(*(np.ascontiguousarray(array[allowed]) for array in children))

    def _children(self, attempt: int) -> TreeRows:
        number = self._seed * 0x9E3779B97F4A7C15 + self.number + attempt * 0xD1342543DE82EF95
        children = variation.empty_trees(self._loops.xp, self._n, self._width)
        random = RandomState(self._state, np.uint64(mixed(np.uint64(number % (1 << 64)))))
        self._loops.run(variation.breed, self._n, *self._parents, self._blocks, self._breeding, random, children)
        return children

    def _fit(self, children: TreeRows) -> FitOutcome:
        """Parameters and losses of ``a + b * tree``; the children get the fitted numbers."""
        loops = self._loops
        subset = survival.ParameterSubset(self._numbers, self.number)
        limits = self._limits._replace(n=len(children.length))
        scaled = survival.scaled_trees(loops, children, self._parents[1], subset, limits)
        pop = self._population(scaled.kinds, scaled.values, scaled.offsets)
        starts, loss_limits = scaled.starts[:, : pop.max_params], scaled.loss_limit / self._to_loss
        fitted: Any
        if self._problem is None:
            fitted = self._fit_own_loss(pop, starts)
        else:
            fitted = self._problem.fitted(pop, starts, limits=loss_limits, patience=PATIENCE)
        scaling = loops.xp.empty((len(children.length), 2), np.float64)
        outcome = FitOutcome(fitted.params, fitted.loss, scaling, self._scale, self._to_loss)
        loops.run(survival.read_fits, len(children.length), children, outcome, subset)
        return outcome

    def _population(self, *arrays: Any) -> Population | DevicePopulation:
        """The population of a device or the host; operators that a user defined are expanded on the host."""
        device = self._loops.device
        if device is None:
            return Population(*arrays)
        if self._has_formulas:
            return DevicePopulation.of(Population(*self._loops.fetched(*arrays)), device)
        return DevicePopulation(*arrays, device=device)

    def _fit_own_loss(self, pop: Any, starts: np.ndarray) -> Fitted:
        """Fits of a loss without a name, approximated by squares near the values of the best tree."""
        trees, fitness = self._parents
        rows, n = self._goal.rows, fitness.island_start[-1]
        near = np.full(len(rows), float(rows.w @ rows.y / rows.total))
        if np.isfinite(fitness.loss[:n]).any():
            best = int(np.argmin(fitness.loss[:n]))
            tree = variation.population_of(TreeRows(*(array[best : best + 1] for array in trees)))
            near = values_of(list(_scaled(tree, fitness.scaling[best : best + 1])), rows.X)[0]
        params, loss = self._goal.fitted(pop, starts, near, **self._settings)
        nothing = np.empty(0, np.int32)
        return Fitted(params, loss, nothing, nothing, 0)

    def state(self) -> dict[str, np.ndarray]:
        """Arrays by name that the next generations depend on, beside the arguments of the constructor."""
        trees, fitness = self._parents
        n = int(fitness.island_start[-1])
        arrays = {name: array[:n] for name, array in (trees._asdict() | fitness._asdict()).items()}
        arrays |= {"island_start": fitness.island_start, "loss_limit": fitness.loss_limit}
        fetched = self._loops.fetched(*arrays.values())
        return dict(zip(arrays, fetched, strict=True)) | {"number": np.array(self.number)}

    def resume(self, state: dict[str, np.ndarray]) -> None:
        """Continue from what ``state`` returned.

        Raises
        ------
        FileError
            If the arrays are not of an evolution with the same arguments.
        """
        try:
            trees = TreeRows(*(state[name] for name in TreeRows._fields))
            variation.population_of(trees)  # checks every token
            for name, target in (item for bag in self._parents for item in bag._asdict().items()):
                array = state[name]
                if array.shape[1:] != target.shape[1:] or array.dtype != target.dtype or len(array) > len(target):
                    raise ValueError(f"{name} is an array of {array.dtype} and shape {array.shape}")
                target[: len(array)] = self._loops.xp.asarray(array)
            start, n = state["island_start"], len(trees.length)
            if start[0] != 0 or start[-1] != n or (np.diff(start) < 0).any() or len(state["loss"]) != n:
                raise ValueError("invalid islands")
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise FileError(f"the trees of a checkpoint are damaged: {error}") from error
        self.number = int(state["number"])

    def _best_children(self, n_fits: int) -> Generation:
        best = HallOfFame(*self._loops.fetched(*self._hall_of_fame))
        occupied = best.length > 0
        trees = variation.population_of(TreeRows(best.kinds[occupied], best.values[occupied], best.length[occupied]))
        return Generation(_scaled(trees, best.scaling[occupied]), best.loss[occupied], n_fits)


def _is_moderate(rows: Rows) -> bool:
    """Whether the data and their squares are normal numbers of float32."""
    sizes = np.abs(rows.X[rows.X != 0])
    return not len(sizes) or bool(sizes.min() > 1 / MAX_FLOAT32_DATA and sizes.max() < MAX_FLOAT32_DATA)


def _scaled(pop: Population, scaling: np.ndarray) -> Population:
    """``a + b * tree`` of every tree, ``scaling`` being a and b, (n, 2)."""
    n, lengths = len(pop), pop.n_tokens
    offsets = pop.offsets + SCALING_TOKENS * np.arange(n + 1)
    kinds, values = np.empty(offsets[-1], np.uint8), np.empty(offsets[-1], np.uint64)
    within = np.arange(len(pop.kinds)) + np.repeat(2 + SCALING_TOKENS * np.arange(n), lengths)
    kinds[within], values[within] = pop.kinds, pop.values
    for k in (0, 1):
        kinds[offsets[:-1] + k] = CONSTANT
        values[offsets[:-1] + k] = np.ascontiguousarray(scaling[:, k]).view(np.uint64)
    for k, code in ((2, ops.MUL), (1, ops.ADD)):
        kinds[offsets[1:] - k], values[offsets[1:] - k] = OPERATOR, code
    return Population(kinds, values, offsets)
