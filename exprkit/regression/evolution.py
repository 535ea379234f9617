"""Evolution: populations of trees whose numbers are fitted, each scaled and shifted for the best.

In: the ``Sample``, blocks to build with, trees to begin with.  Out: generation by generation the formulas
``a + b * tree`` that came out best of every size.

    >>> import numpy as np
    >>> import exprkit as ek
    >>> from exprkit.expressions.arguments import rows
    >>> from exprkit.regression.evolution import Evolution
    >>> from exprkit.regression.sample import Sample
    >>> X = np.random.default_rng(0).uniform(1, 2, (50, 2))
    >>> sample = Sample(X, 3 * X[:, 0] / (1.5 + X[:, 1]))
    >>> leaves = ek.parse(["x1", "x2"])
    >>> evolution = Evolution(sample, rows(["+", "*", "/"]), leaves, population_size=400, width=9, seed=1)
    >>> losses = [evolution.generation().loss.min() for _ in range(12)]
    >>> bool(min(losses) < 1e-9)
    True

A generation: parents are the best of a few that are drawn among those of up to a size, which is drawn as well; their
children (``variation``) are fitted by a few steps of Levenberg and Marquardt's; what has the same loss and size as
another is the same; of each size the best go on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.population import Population
from exprkit.fitting.fit import FitProblem
from exprkit.operators import ops
from exprkit.regression import variation
from exprkit.regression.constants import as_constants, as_parameters
from exprkit.regression.sample import Sample
from exprkit.regression.variation import TreeRows
from exprkit.text.tokens import OPERATOR, PARAMETER

LARGEST = 1e100  # numbers beyond it, or below its inverse, are not kept
SAME_LOSS = 1e-9  # share of a loss within which two trees of a size count as one
MOST_NUMBERS = 8  # of a tree


class Generation(NamedTuple):
    """What was made."""

    formulas: Population  # a + b * tree, with numbers
    loss: np.ndarray  # mean of the loss at every row
    size: np.ndarray  # tokens of the tree


class Evolution:
    """A population and what its generations need.

    Parameters
    ----------
    sample : Sample
        The rows that count; some hundred are enough.
    operators : list of rows
    blocks : Population
        Small trees, which also begin.
    """

    def __init__(
        self, sample: Sample, operators: list[ops.Operator], blocks: Population, *, population_size: int, width: int,
        seed: int, crossover: float = 0.4, tournament: int = 10, steps: int = 8, loss: str = "squares",
        backend: str = "cpu", threads: int | None = None,
    ) -> None:  # fmt: skip
        self._sample, self._n, self._width = sample, population_size, max(width - 4, 1)
        self._seed, self._tournament, self._threads = seed, tournament, threads
        self._scale = float(np.sqrt(sample.w @ sample.y**2 / sample.total)) or 1.0
        self._y = sample.y / self._scale
        self._problem = FitProblem(
            sample.X, self._y, weights=sample.w, loss=loss, max_iter=steps, backend=backend, dtype="float64",
            threads=threads,
        )  # fmt: skip
        self._to_loss = self._scale ** (1 if loss == "mae" else 2) / (1.0 if loss == "mae" else sample.total)
        self._values_of = _Values(sample.X, threads)
        self._means = variation.means(operators, sample.X.shape[1], crossover)
        self._blocks = variation.rows_of(blocks, self._width)
        self._trees, self._loss = variation.taken(self._blocks, np.zeros(0, np.int64)), np.zeros(0)
        self.number = 0

    def generation(self) -> Generation:
        """The next one; the first is the blocks'."""
        new = self._blocks if not len(self._loss) else self._bred()
        self.number += 1
        return self.take(new)

    def take(self, new: TreeRows) -> Generation:
        """Fit trees and let them compete with those that are there."""
        pop = variation.population_of(new)
        formulas, trees, loss = self._fitted(pop)
        everyone = variation.joined([self._trees, variation.rows_of(trees, self._width)])
        losses = np.concatenate([self._loss, loss])
        order = self._survivors(everyone.length, losses)
        self._trees, self._loss = variation.taken(everyone, order), losses[order]
        return Generation(formulas, loss, pop.n_tokens)

    def seed(self, pop: Population) -> Generation | None:
        """Let formulas from elsewhere in."""
        rows = variation.rows_of(pop, self._width)
        return self.take(rows) if len(rows.length) else None

    def state(self) -> dict[str, np.ndarray]:
        """All that the next generations depend on, beside what an evolution is made with: arrays by name."""
        return {**self._trees._asdict(), "loss": self._loss, "number": np.array(self.number)}

    def resume(self, state: dict[str, np.ndarray]) -> None:
        """Go on with what ``state`` gave."""
        self._trees = TreeRows(*(state[name] for name in TreeRows._fields))
        self._loss, self.number = state["loss"], int(state["number"])

    # ── parents ──

    def _bred(self) -> TreeRows:
        random = np.random.Generator(np.random.Philox([self._seed, 1 + self.number]))
        parents = np.column_stack([self._winners(random), self._winners(random)])
        seed = int(random.integers(1 << 62))
        return variation.children(self._trees, parents, self._blocks, self._means, seed, self._threads)

    def _winners(self, random: np.random.Generator) -> np.ndarray:
        """Of every tournament the tree of least loss among those that are small enough."""
        drawn = random.integers(len(self._loss), size=(self._n, self._tournament))
        most = random.integers(1, self._width + 1, self._n)
        loss = np.where(self._trees.length[drawn] <= most[:, None], self._loss[drawn], np.inf)
        winners: np.ndarray = drawn[np.arange(self._n), np.argmin(loss, axis=1)]
        return winners

    def _survivors(self, size: np.ndarray, loss: np.ndarray) -> np.ndarray:
        """The best of every size, those of equal loss once."""
        order = np.lexsort((np.arange(len(loss)), loss, size))
        order = order[np.isfinite(loss[order])]
        s, losses = size[order], loss[order]
        new = np.ones(len(order), bool)
        new[1:] = (s[1:] != s[:-1]) | (losses[1:] - losses[:-1] > SAME_LOSS * losses[1:])
        order = order[new]
        s = size[order]
        rank = np.arange(len(order)) - np.searchsorted(s, s)
        kept: np.ndarray = order[rank < max(2 * self._n // self._width, 4)]
        return kept

    # ── fits ──

    def _fitted(self, pop: Population) -> tuple[Population, Population, np.ndarray]:
        """(a + b * tree, tree, loss), with fitted numbers."""
        inner, params = as_parameters(pop)
        params = np.where(np.isnan(params), 0.0, params)[:, :MOST_NUMBERS]
        owner = np.repeat(np.arange(len(pop)), pop.n_tokens)
        good = np.bincount(owner, inner.kinds == PARAMETER, len(pop)) <= MOST_NUMBERS
        a, b = self._lines(pop)
        wrapped = _wrapped(inner)
        if not good.all():
            wrapped = wrapped[np.where(good, np.arange(len(pop)), int(np.argmax(good)))]
        start = np.column_stack([a, b, params])[:, : wrapped.max_params]
        result = self._problem.fit(wrapped, init=start)
        found = np.where(np.isfinite(result.params), result.params, start)
        fine = np.isfinite(result.loss) & good & (np.abs(found) < LARGEST).all(axis=1)
        with np.errstate(over="ignore"):
            loss = np.where(fine, result.loss * self._to_loss, np.inf)
        found[~good] = 0.0
        scaled = found.copy()
        scaled[:, :2] *= self._scale
        if inner.max_params:
            pop = as_constants(inner, _widened(found[:, 2:], inner.max_params))
        return as_constants(wrapped, scaled), pop, loss

    def _lines(self, pop: Population) -> tuple[np.ndarray, np.ndarray]:
        """a and b of every tree by linear regression."""
        values, w = self._values_of(pop), self._sample.w / self._sample.total
        with np.errstate(all="ignore"):
            mean = values @ w
            around = values - mean[:, None]
            b = (around @ (w * self._y)) / ((around * around) @ w)
            a = self._y @ w - b * mean
        fine = np.isfinite(a) & np.isfinite(b)
        return np.where(fine, a, 0.0), np.where(fine, b, 1.0)


class _Values:
    """Values of one population after the other at the same rows."""

    def __init__(self, X: np.ndarray, threads: int | None) -> None:
        self._X, self._threads = X, threads
        self._evaluator: Evaluator | None = None

    def __call__(self, pop: Population) -> np.ndarray:
        if self._evaluator is None:
            self._evaluator = Evaluator(pop, self._X, "cpu", dtype="float64", threads=self._threads)
        else:
            self._evaluator.update(pop)
        values: np.ndarray = self._evaluator.evaluate()
        return values


def _widened(params: np.ndarray, width: int) -> np.ndarray:
    wide = np.zeros((len(params), width))
    wide[:, : params.shape[1]] = params[:, :width]
    return wide


def _wrapped(pop: Population) -> Population:
    """p1 + p2 * tree of every tree, whose own parameters come after."""
    n, lengths = len(pop), pop.n_tokens
    offsets = pop.offsets + 4 * np.arange(n + 1)
    kinds, values = np.empty(len(pop.kinds) + 4 * n, np.uint8), np.empty(len(pop.kinds) + 4 * n, np.uint64)
    within = np.arange(len(pop.kinds)) + np.repeat(2 + 4 * np.arange(n), lengths)
    kinds[within], values[within] = pop.kinds, pop.values + 2 * (pop.kinds == PARAMETER).astype(np.uint64)
    for k in (0, 1):
        kinds[offsets[:-1] + k], values[offsets[:-1] + k] = PARAMETER, k
    for k, code in ((2, ops.MUL), (1, ops.ADD)):
        kinds[offsets[1:] - k], values[offsets[1:] - k] = OPERATOR, code
    return Population(kinds, values, offsets)
