"""Evolution: populations of trees whose numbers are fitted, each scaled and shifted by least squares.

In: the ``Sample``, blocks to build with, trees to begin with.  Out: generation by generation the formulas
``a + b * tree`` that came out best of every size.

    >>> import numpy as np
    >>> import exprkit as ek
    >>> from exprkit.expressions.arguments import rows
    >>> from exprkit.regression.generations.evolution import Evolution
    >>> from exprkit.regression.problem.sample import Sample
    >>> X = np.random.default_rng(0).uniform(1, 2, (50, 2))
    >>> sample = Sample(X, 3 * X[:, 0] / (1.5 + X[:, 1]))
    >>> leaves = ek.parse(["x1", "x2"])
    >>> evolution = Evolution(sample, rows(["+", "*", "/"]), leaves, population_size=400, width=9, seed=1)
    >>> losses = [evolution.generation().loss.min(initial=np.inf) for _ in range(12)]
    >>> bool(min(losses) < 1e-9)
    True

A generation: parents are the best of a few that are drawn among those of up to a size, which is drawn as well, on an
island; their children (``variation``) are fitted by a few steps of Levenberg and Marquardt's; what has the same loss
and size as another is the same; of each island and size the best go on (``survival``).  Each of these is a loop that
runs where the fits run: with ``backend="cuda"`` trees never leave the GPU, but for the best of every size.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import load
from exprkit.backends.device_programs.loops import DeviceLoops, HostLoops
from exprkit.backends.device_programs.population import DevicePopulation
from exprkit.backends.gpu import device as gpu
from exprkit.backends.objective import Fitted
from exprkit.errors import DataError, FileError
from exprkit.expressions.population import Population
from exprkit.fitting.fit import FitProblem, backend_of_fits
from exprkit.operators import defined, ops
from exprkit.regression.formulas.values import values_of
from exprkit.regression.generations import survival, variation
from exprkit.regression.generations.survival import AROUND, Bests, FitOutcome, Places
from exprkit.regression.generations.variation import Draws, TreeRows
from exprkit.regression.problem.goal import Goal
from exprkit.regression.problem.sample import Sample
from exprkit.regression.rules.admission import FormulaRules
from exprkit.runtime.hashes import mixed
from exprkit.text.tokens import CONSTANT, OPERATOR

MOST_ISLANDS, LEAST_OF_AN_ISLAND = 8, 500
ROUGH = {"float64": 22, "float32": 34}  # bits of a loss, of 52 behind the point, by which equal trees may differ
TOL = 1e-2  # of the fits: what is good is fitted again, as the child of some other tree, and at last as a formula
PATIENCE = 2  # steps of a fit that is still worse than all of the tree's size that go on
MOST_NUMBERS = 2  # of a tree that are fitted at a time: with a and b as many as the fastest kernels take
REPEATED = 12  # times a child is made anew that rules do not allow
FAR = 1e9  # numbers of the data that float32 is not left alone with: their squares, too, are to be normal numbers


class Generation(NamedTuple):
    """What was made, as far as it is the best of its size that was seen on an island."""

    formulas: Population  # a + b * tree, with numbers
    loss: np.ndarray  # mean of the loss at every row
    tried: int  # trees that were fitted


class Evolution:
    """A population and what its generations need.

    Parameters
    ----------
    sample : Sample
        The rows that count; some hundred are enough.
    operators : list of rows
    blocks : Population
        Small trees, which also begin.
    steps : int
        The most of a fit; one that is worse after PATIENCE of them than all trees of its size that go on has no more.
    numbers : int
        So many of a tree are fitted in a generation, by turns.
    islands : int, optional
        By default one for each LEAST_OF_AN_ISLAND trees.
    dtype : {"float64", "float32"}, optional
        By default float32 on a GPU, where data allow it, and float64 elsewhere.
    rules : FormulaRules, optional
        What trees may be; they are looked at on the host, where children are bred and fitted then.
    """

    def __init__(
        self, sample: Sample, operators: list[defined.Written], blocks: Population, *, population_size: int, width: int,
        seed: int, crossover: float = 0.4, tournament: int = 10, steps: int = 8, loss: str = "squares",
        backend: str = "cpu", threads: int | None = None, islands: int | None = None, dtype: str | None = None,
        numbers: int = MOST_NUMBERS, rules: FormulaRules | None = None,
    ) -> None:  # fmt: skip
        self._rules, self._has_formulas = rules, any(isinstance(row, defined.Definition) for row in operators)
        self._n, self._width, self._seed = population_size, min(max(width - AROUND, 1), survival.MOST_SIZE), seed
        islands = islands or min(MOST_ISLANDS, max(1, population_size // LEAST_OF_AN_ISLAND))
        self._numbers = numbers
        self._goal = Goal(loss, sample)
        size = float(np.sqrt(sample.w @ sample.y**2 / sample.total)) or 1.0
        self._scale = size if self._goal.plain else 1.0
        backend = backend_of_fits(backend if rules is None and self._goal.plain else "cpu")
        on_device = load(backend).takes_device_populations
        self._side: Any = DeviceLoops(gpu.current()) if on_device else HostLoops(threads)
        self._dtype = dtype or ("float32" if on_device and _is_moderate(sample) else "float64")
        try:
            self._problem = self._problem_of(steps, backend, threads)
        except DataError:  # float32 spoils the data
            self._dtype = "float64"
            self._problem = self._problem_of(steps, backend, threads)
        self._to_loss = self._goal.to_loss(self._scale) if self._goal.plain else 1.0
        places = max(2 * self._n // (self._width * islands), 4)
        self._limits = Places(self._n, places, islands, self._width, ROUGH[self._dtype])
        self._how = self._side.bag(variation.means(
            operators, sample.X.shape[1], crossover, width=self._width, tournament=tournament, islands=islands,
            n=self._n,
        ))  # fmt: skip
        self._blocks = self._side.bag(variation.rows_of(blocks, self._width))
        xp, n_places = self._side.xp, places * islands * (self._width + 1)
        self._now, self._next = (
            (variation.tree_rows(xp, n_places, self._width), variation.standing(xp, n_places, islands, self._width))
            for _ in "ab"
        )
        self._state = xp.empty(self._n, np.uint64)
        self._room = xp.empty(_bytes_of_bests(self._width), np.uint8)
        self._shown = _bests(self._room, self._width)
        self.number = 0

    def _problem_of(self, steps: int, backend: str, threads: int | None) -> FitProblem | None:
        self._settings: dict[str, Any] = {
            "max_iter": steps, "tol": TOL, "backend": backend, "dtype": self._dtype, "threads": threads,
            "precision": "ieee" if self._dtype == "float64" else "fast",
        }  # fmt: skip
        return self._goal.problem(self._scale, **self._settings) if self._goal.plain else None

    def generation(self) -> Generation:
        """The next one; the first is the blocks'."""
        new = self._bred() if self.number else self._blocks
        self.number += 1
        return self.take(new)

    def seed(self, pop: Population) -> Generation | None:
        """Let formulas from elsewhere in."""
        rows = variation.rows_of(pop, self._width)
        return self.take(self._side.bag(rows)) if len(rows.length) else None

    def take(self, new: TreeRows) -> Generation:
        """Fit trees and let them compete with those that are there; their numbers become those that are fitted."""
        outcome = self._fitted(new)
        limits = self._limits._replace(n=len(new.length))
        after = survival.survivors(self._side, *self._now, new, outcome, limits, self._next, self._shown)
        self._now, self._next = after, self._now
        return self._seen(len(new.length))

    def _bred(self) -> TreeRows:
        made = self._children(0)
        if self._rules is None:
            return made
        fits = self._rules.allow(variation.population_of(made))
        for again in range(1, REPEATED):
            if fits.all():
                break
            other = self._children(again)
            taken = ~fits & self._rules.allow(variation.population_of(other))
            for part, new in zip(made, other, strict=True):
                part[taken] = new[taken]
            fits |= taken
        return TreeRows(*(np.ascontiguousarray(part[fits]) for part in made)) if fits.any() else self._blocks

    def _children(self, again: int) -> TreeRows:
        number = self._seed * 0x9E3779B97F4A7C15 + self.number + again * 0xD1342543DE82EF95
        made = variation.tree_rows(self._side.xp, self._n, self._width)
        draws = Draws(self._state, np.uint64(mixed(np.uint64(number % (1 << 64)))))
        self._side.run(variation.breed, self._n, *self._now, self._blocks, self._how, draws, made)
        return made

    def _fitted(self, new: TreeRows) -> FitOutcome:
        """The fits of a + b * tree, whose numbers the trees take over."""
        side = self._side
        turns = survival.Turns(self._numbers, self.number)
        limits = self._limits._replace(n=len(new.length))
        wrapped = survival.wrapped(side, new, self._now[1], turns, limits)
        pop = self._population(wrapped.kinds, wrapped.values, wrapped.offsets)
        starts, enough = wrapped.starts[:, : pop.max_params], wrapped.limit / self._to_loss
        found: Any
        if self._problem is None:
            found = self._by_own_loss(pop, starts)
        else:
            found = self._problem.fitted(pop, starts, limits=enough, patience=PATIENCE)
        line = side.xp.empty((len(new.length), 2), np.float64)
        outcome = FitOutcome(found.params, found.loss, line, self._scale, self._to_loss)
        side.run(survival.unwrap, len(new.length), new, outcome, turns)
        return outcome

    def _population(self, *arrays: Any) -> Population | DevicePopulation:
        """Trees to be fitted, where they lie; a device gets a user's formulas as the host expands them."""
        device = self._side.device
        if device is None:
            return Population(*arrays)
        if self._has_formulas:
            return DevicePopulation.of(Population(*gpu.fetched_together(arrays)), device)
        return DevicePopulation(*arrays, device=device)

    def _by_own_loss(self, pop: Any, starts: np.ndarray) -> Fitted:
        """The fits of a loss that backends have no name for."""
        trees, known = self._now
        sample = self._goal.sample
        near = np.full(len(sample), float(sample.w @ sample.y / sample.total))
        if np.isfinite(known.loss[: known.first[-1]]).any():
            best = int(np.argmin(known.loss[: known.first[-1]]))
            one = variation.population_of(TreeRows(*(part[best : best + 1] for part in trees)))
            near = values_of(list(_lines(one, known.line[best : best + 1])), sample.X)[0]
        params, loss = self._goal.fitted(pop, starts, near, **self._settings)
        nothing = np.empty(0, np.int32)
        return Fitted(params, loss, nothing, nothing, 0)

    def state(self) -> dict[str, np.ndarray]:
        """All that the next generations depend on, beside what an evolution is made with: arrays by name."""
        trees, known = self._now
        n = int(known.first[-1])
        arrays = [*(array[:n] for array in (*trees, *known[:-2])), known.first, known.limit]
        names = *trees._fields, *known._fields
        return dict(zip(names, gpu.fetched_together(arrays), strict=True)) | {"number": np.array(self.number)}

    def resume(self, state: dict[str, np.ndarray]) -> None:
        """Go on with what ``state`` gave.

        Raises
        ------
        FileError
            If that is nothing of an evolution that is made as this one is.
        """
        try:
            trees = TreeRows(*(state[name] for name in TreeRows._fields))
            variation.population_of(trees)  # checks every token
            for name, own in (item for bag in self._now for item in bag._asdict().items()):
                array = state[name]
                if array.shape[1:] != own.shape[1:] or array.dtype != own.dtype or len(array) > len(own):
                    raise ValueError(f"{name} is an array of {array.dtype} and shape {array.shape}")
                own[: len(array)] = self._side.xp.asarray(array)
            first, n = state["first"], len(trees.length)
            if first[0] != 0 or first[-1] != n or (np.diff(first) < 0).any() or len(state["loss"]) != n:
                raise ValueError("invalid islands")
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise FileError(f"the trees of a checkpoint are damaged: {error}") from error
        self.number = int(state["number"])

    # ── what is shown ──

    def _seen(self, tried: int) -> Generation:
        kinds, values, length, line, loss = _bests(gpu.fetched(self._room), self._width)
        some = length > 0
        trees = variation.population_of(TreeRows(kinds[some], values[some], length[some]))
        return Generation(_lines(trees, line[some]), loss[some], tried)


def _bytes_of_bests(width: int) -> int:
    return (width + 1) * (9 * width + 32)


def _bests(room: Any, width: int) -> Bests:
    """The bests of every size in one piece of memory, which comes to the host as one."""
    n = width + 1
    ends = np.cumsum([8 * n * width, 8 * n, 16 * n, 8 * n]).tolist()
    values, length, line, loss, kinds = (room[begin:end] for begin, end in zip([0, *ends], [*ends, None], strict=True))
    return Bests(
        kinds.reshape(n, width), values.view(np.uint64).reshape(n, width), length.view(np.int64),
        line.view(np.float64).reshape(n, 2), loss.view(np.float64),
    )  # fmt: skip


def _is_moderate(sample: Sample) -> bool:
    """Whether float32 can be left alone with the numbers of the data."""
    sizes = np.abs(sample.X[sample.X != 0])
    return not len(sizes) or bool(sizes.min() > 1 / FAR and sizes.max() < FAR)


def _lines(pop: Population, line: np.ndarray) -> Population:
    """a + b * tree of every tree."""
    n, lengths = len(pop), pop.n_tokens
    offsets = pop.offsets + AROUND * np.arange(n + 1)
    kinds, values = np.empty(offsets[-1], np.uint8), np.empty(offsets[-1], np.uint64)
    within = np.arange(len(pop.kinds)) + np.repeat(2 + AROUND * np.arange(n), lengths)
    kinds[within], values[within] = pop.kinds, pop.values
    for k in (0, 1):
        kinds[offsets[:-1] + k] = CONSTANT
        values[offsets[:-1] + k] = np.ascontiguousarray(line[:, k]).view(np.uint64)
    for k, code in ((2, ops.MUL), (1, ops.ADD)):
        kinds[offsets[1:] - k], values[offsets[1:] - k] = OPERATOR, code
    return Population(kinds, values, offsets)
