"""Starts of fits that see the data: where parameters may lie, judged by where they stand and the columns beside them.

In: expressions and their data.  Out: a few starts of each, the best of many.

    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(400, 700, 61)[:, None]
    >>> y = 30 * np.exp(-(((x[:, 0] - 523) / 11) ** 2))
    >>> abs(ek.fit("p1 * exp(-((x1 - p2) / p3)^2)", x, y, dtype="float64").params).round(3)
    array([[ 30., 523.,  11.]])

The candidates are compared on some rows, with the parameters that the expression is linear in solved (G. H. Golub,
V. Pereyra, SIAM J. Numer. Anal. 10, 1973), then the better ones among each other and crossed; fits on some more rows
from the best of both that differ leave the few that are given.  Of sums candidates are also made term by term, each
drawn by the residuals of those before it (S. G. Mallat, Z. Zhang, IEEE Trans. Signal Process. 41, 1993).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.backends.device_programs.population import DevicePopulation
from exprkit.backends.objective import Fitted, Options
from exprkit.evaluate import inputs
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.population import Population
from exprkit.fitting import first_order
from exprkit.fitting.starts.candidates import MOST_ROWS, Sides, Skeleton, StartSample, draw, some_rows
from exprkit.fitting.starts.units import Units
from exprkit.programs.linearity import dependence

MOST_EXPRESSIONS = 32  # of a population that gets such starts: they take some 20 ms each, sums some 0.2 s
MOST_SCATTERED = 1000  # of a population half of whose restarts are drawn by the data: they take some 2 ms each
CANDIDATES = 1024  # drawn of each expression
CROSSED, ROUNDS, PARENTS = 512, 3, 48  # candidates made of the better ones, how often, and of how many
COMPARED_ON, FITTED_ON = 192, 1024  # rows
FITTED = 24  # candidates that are fitted
# orders in which the terms of a sum are added, candidates of each, and terms of a sum that is made so
ORDERS, OF_AN_ORDER, MOST_TERMS = 6, 2, 8
# ends of those fits in which a term takes the place of another of its form, and by how much the two then differ
SPLIT, APART = 4, 0.15
ALIKE = 0.1  # of numbers: their difference, as a share of the sum of their sizes, at most
FITTED_STEPS = 60  # of each of those fits
GIVEN = 3  # starts of each expression, of very many rows the best one


class StartMaker(NamedTuple):
    """The settings of a fit's starts."""

    looks: bool  # at the data: the user gave no start
    restarts: int
    seed: int
    threads: int | None

    def of(self, starts: Any, pop: Any, X: Any, y: Any, w: Any, options: Options, looks: Any = None) -> Any:
        """The starts, with those that see the data: few of each expression, and for every second restart one.

        ``looks``: the target of a loss that adds up values, whose ``y`` is 0.
        """
        looking = self.looks and len(pop) <= MOST_EXPRESSIONS
        drawn = self.restarts // 2 if len(pop) <= MOST_SCATTERED else 0
        if isinstance(pop, DevicePopulation) or not (looking or drawn) or starts.shape[2] == 0:
            return starts
        y, looks = (None if one is None else np.asarray(inputs.on_host(one), np.float64) for one in (y, looks))
        looks = y if looks is None or options.kind != objective.SUM else looks
        sample = StartSample.counted(inputs.on_host(X), y, None if w is None else inputs.on_host(w), looks)
        if drawn:
            more, starts = scattered(pop, sample, options, drawn, self.seed), np.array(starts)
            starts[-drawn:] = np.where(np.isnan(more), starts[-drawn:], more)
        best = data_starts(pop, sample, options, self.threads) if looking else None
        if best is None:
            return starts
        return np.concatenate([starts[:1], best[: 1 if len(y) > MOST_ROWS else GIVEN], starts[1:]])


def data_starts(pop: Population, sample: StartSample, options: Options, threads: int | None) -> np.ndarray | None:
    """The best starts of every expression, (GIVEN, n_exprs, max_params); None where there is none to be made."""
    given, differentiable = None, dependence(pop).differentiable
    alike = dict[tuple[float, ...], dict[int, _Candidates]]()
    for i, tree, bounds in _drawable(pop, sample, options):
        if differentiable[i]:
            units = Units.of(tree, sample, options.kind)
            own, bounds = units.of_sample(sample), units.of_bounds(bounds)
            rng = own.random  # the same whatever expressions stand before it
            p = draw(tree, own, bounds, CANDIDATES, rng)
            p = _compared(pop[[i]], tree, p, own, bounds, options.kind, threads, rng)
            if len(p):
                alike.setdefault(units.key, {})[i] = _Candidates(p, units, bounds)
    for candidates in alike.values():
        given = np.full((GIVEN, len(pop), pop.max_params), 1.0) if given is None else given
        _fit_candidates(given, pop, candidates, sample, options, threads)
    return given


def scattered(pop: Population, sample: StartSample, options: Options, count: int, seed: int) -> np.ndarray:
    """So many starts of every expression as they are drawn, (count, n_exprs, max_params); nan where there are none."""
    starts = np.full((count, len(pop), pop.max_params), np.nan)
    for i, tree, bounds in _drawable(pop, sample, options):
        rng, units = np.random.Generator(np.random.PCG64([seed, i])), Units.of(tree, sample, options.kind)
        drawn = draw(tree, units.of_sample(sample), units.of_bounds(bounds), count, rng)
        starts[:, i, : tree.n_params] = [p * units.of_params(p) for p in drawn]
    return starts


def _drawable(pop: Population, sample: StartSample, options: Options) -> Iterator[tuple[int, Skeleton, Sides]]:
    """The expressions whose parameters can be drawn, with their bounds."""
    linear = dependence(pop).linear
    for i in range(len(pop) if len(sample.y) >= 3 else 0):
        tree = Skeleton.of(pop, i, int(linear[i]))
        if tree is not None and not tree.linear.all():
            yield i, tree, Sides.of(options, i, tree.n_params)


# ── the better ones ──────────────────────────────────────────────────────────────────


def _compared(
    one: Population,
    tree: Skeleton,
    p: np.ndarray,
    sample: StartSample,
    bounds: Sides,
    kind: int,
    threads: int | None,
    rng: np.random.Generator,
) -> np.ndarray:
    """The best candidates that differ, of those that were drawn and of those that were made of them."""
    sample = sample.of(some_rows(len(sample.y), COMPARED_ON, rng))
    ev = Evaluator(one, sample.X, "cpu", dtype="float64", threads=threads)
    drawn = p, score = _solved(ev, tree, p, sample, kind)
    free = np.flatnonzero(~tree.linear)
    summed = _term_by_term(ev, tree, drawn, sample, bounds, rng) if kind != objective.SUM else []
    p, score = (np.concatenate(part) for part in zip(drawn, *summed, strict=True))
    for _ in range(ROUNDS):
        order = np.argsort(score, kind="stable")
        p, score = p[order], score[order]
        n_parents = min(PARENTS, int(np.isfinite(score).sum()))
        if n_parents < 2:
            break
        pairs = (n_parents * rng.random((2, CROSSED)) ** 2).astype(int)
        new = np.where(rng.random((CROSSED, tree.n_params)) < 0.5, p[pairs[0]], p[pairs[1]])
        size = rng.choice([0.0, 0.02, 0.2, 0.6], CROSSED)[:, None]
        move = np.exp(size * rng.standard_normal((CROSSED, len(free))))
        shift = np.where(rng.random((CROSSED, len(free))) < 0.5, p[pairs[0]][:, free] - p[pairs[1]][:, free], 0.0)
        new[:, free] = new[:, free] * move + shift * rng.uniform(-0.5, 0.5, (CROSSED, 1))
        new, new_score = _solved(ev, tree, bounds.within(new, rng), sample, kind)
        p, score = np.concatenate([p, new]), np.concatenate([score, new_score])
    chosen = p[:0]
    for ends in summed:
        chosen = _apart(*ends, free, len(chosen) + OF_AN_ORDER, chosen)
    chosen = _apart(p, score, free, len(chosen) + FITTED // 2, chosen)
    return bounds.within(_apart(*drawn, free, len(chosen) + FITTED // 2, chosen), rng)


def _split(tree: Skeleton, ends: np.ndarray) -> np.ndarray:
    """Starts in which one term of a sum, that may stand for two, takes the place of another one of its form.

    One number of the two differs, each in turn (N. Ueda and others, Neural Computation 12, 2000, for mixtures).
    """
    terms, forms = tree.terms()
    own = [np.flatnonzero(terms == term) for term in np.unique(terms[~tree.linear])[:MOST_TERMS]]
    starts = [ends[:0]]
    for of, to in itertools.permutations(own, 2):
        if forms[of[0]] == forms[to[0]]:
            for a, b in zip(of, to, strict=True):
                if not tree.linear[a]:
                    new = ends.copy()
                    new[:, to] = ends[:, of]
                    new[:, a], new[:, b] = (1 - APART) * ends[:, a], (1 + APART) * ends[:, a]
                    starts.append(new)
    return np.concatenate(starts)


def _term_by_term(
    ev: Evaluator, tree: Skeleton, drawn: tuple[Any, Any], sample: StartSample, bounds: Sides, rng: np.random.Generator
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Candidates to which one term after the other was added, by what those before it leave of y, and their scores.

    Those of every order in which terms are added stay apart; none where terms have no linear parameter of their own.
    """
    terms, forms = tree.terms()
    p, free, every = drawn[0], np.flatnonzero(~tree.linear), np.unique(terms[~tree.linear])
    if not 2 <= len(every) <= MOST_TERMS or not np.isin(every, terms[tree.linear]).all():
        return []
    ends = [(p[drawn[1].argmin()], ~np.isin(terms, every), sample.y)]  # parameters, which count, what they leave
    for k in range(len(every)):
        orders = list[tuple[np.ndarray, np.ndarray, np.ndarray]]()
        for kept, used, left in ends:
            others = np.unique(forms[free[~used[free]]]).tolist()
            most = 2 * CANDIDATES // (len(ends) * len(others))
            p = draw(tree, sample._replace(looks=left), bounds, min(most, CANDIDATES // len(ends)), rng) if k else p
            for form in others:
                own = terms == terms[np.flatnonzero((forms == form) & ~used)[0]]
                orders.append((*_solved(ev, tree, np.where(own, p[:most], kept), sample, 0, used | own), used | own))
        orders = sorted(orders, key=lambda order: float(order[1].min()))[:ORDERS]
        best = [(one, used) for p, score, used in orders for one in _apart(p, score, free, OF_AN_ORDER, p[:0])]
        if not best:
            return []
        left = np.nan_to_num(sample.y - ev.evaluate(np.array([[one] for one, _ in best]))[:, 0])
        ends = [(*own, looks) for own, looks in zip(best, left, strict=True)]
    return [(p, score) for p, score, _ in orders]


def _apart(p: np.ndarray, score: np.ndarray, free: np.ndarray, most: int, chosen: np.ndarray) -> np.ndarray:
    """The chosen ones, and up to so many in all of the best of others that are not like one of them."""
    left = p[np.argsort(score, kind="stable")[: int(np.isfinite(score).sum())]]
    for own in chosen:
        left = left[_differ(left[:, free], own[free])]
    while len(left) and len(chosen) < most:
        own, left = left[0], left[1:]
        chosen = np.append(chosen, own[None], axis=0)
        left = left[_differ(left[:, free], own[free])]
    return chosen


def _differ(p: np.ndarray, own: np.ndarray) -> np.ndarray:
    """A mask of the rows of ``p``, (n, n_free), with a number that differs from that of ``own``, (n_free,)."""
    size = np.abs(p) + np.abs(own) + np.finfo(float).tiny
    return np.asarray((np.abs(p - own) / size).max(axis=1) > ALIKE)


def _solved(
    ev: Evaluator, tree: Skeleton, p: np.ndarray, sample: StartSample, kind: int, used: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The candidates, their linear parameters at the least squares, and what is left; inf where it is not finite."""
    y, w = sample.y, sample.w / max(float(sample.w.sum()), np.finfo(float).tiny)
    linear = np.flatnonzero(tree.linear) if kind != objective.SUM else np.zeros(0, int)
    with np.errstate(all="ignore"):
        if not len(linear):
            f = ev.evaluate(p[:, None])[:, 0]
            score = (f * w).sum(axis=1) if kind == objective.SUM else (w * (f - y) ** 2).sum(axis=1)
            return p, np.where(np.isfinite(score), score, np.inf)
        sets = np.repeat(p[None], 1 + len(linear), axis=0)
        sets[:, :, linear] = 0.0
        sets[1 + np.arange(len(linear)), :, linear] = 1.0
        f = ev.evaluate(sets.reshape(-1, 1, p.shape[1]))[:, 0].reshape(*sets.shape[:2], len(y))
        basis = np.sqrt(w) * (f[1:] - f[0]).transpose(1, 0, 2)  # (count, n_linear, n_rows)
        left = np.sqrt(w) * (y - f[0])
        fine = np.isfinite(basis).all(axis=(1, 2)) & np.isfinite(left).all(axis=1)
        basis[~fine], left[~fine] = 0.0, 0.0
        if used is not None:
            basis[:, ~used[linear]] = 0.0  # those of terms that do not count yet
        most = np.abs(basis).max(axis=2)  # whose squares may overflow
        size = most * np.sqrt(np.sum((basis / np.where(most > 0, most, 1.0)[:, :, None]) ** 2, axis=2))
        size[size == 0] = 1.0
        basis = basis / size[:, :, None]
        gram = np.einsum("cjn,ckn->cjk", basis, basis)
        toward = np.einsum("cjn,cn->cj", basis, left)
        solved = np.einsum("cjk,ck->cj", np.linalg.pinv(gram, rcond=1e-9, hermitian=True), toward)
        score = ((left - np.einsum("cj,cjn->cn", solved, basis)) ** 2).sum(axis=1)
        p = p.copy()
        p[:, linear] = solved / size
        return p, np.where(fine & np.isfinite(score) & np.isfinite(p).all(axis=1), score, np.inf)


class _Candidates(NamedTuple):
    """Of one expression."""

    p: np.ndarray  # (n, n_params), in these units
    units: Units
    bounds: Sides  # in them


def _fit_candidates(
    given: np.ndarray,
    pop: Population,
    candidates: dict[int, _Candidates],
    sample: StartSample,
    options: Options,
    threads: int | None,
) -> None:
    """Give the best different ends of fits from the candidates, whose data have the same units, to some rows."""
    units, width = next(iter(candidates.values())).units, given.shape[2]
    rows = units.of_sample(sample.of(some_rows(len(sample.y), FITTED_ON, sample.random)))
    sides = np.array([np.full(given.shape[1:], side) for side in (-np.inf, np.inf)])
    for i, own in candidates.items():
        sides[:, i, : own.p.shape[1]] = own.bounds
    lower, upper = sides if options.lower is not None or options.upper is not None else (None, None)
    nothing, steps = options.nothing * units.of_y**-2, min(FITTED_STEPS, options.max_iter)
    short = options._replace(lower=lower, upper=upper, nothing=nothing, max_iter=steps, limits=None, patience=0)
    y, w = rows.y, None if np.all(rows.w == 1) else rows.w

    def ends_of(starts: dict[int, np.ndarray]) -> tuple[np.ndarray, Fitted]:
        copies = np.repeat(list(starts), [len(p) for p in starts.values()])
        ev = Evaluator(pop[copies], rows.X, "cpu", dtype="float64", threads=threads)
        n = ev.pop.max_params
        begin = np.concatenate(
            [np.pad(p, ((0, 0), (0, width - p.shape[1])), constant_values=1.0)[:, :n] for p in starts.values()]
        )
        if options.kind == objective.SUM:
            return copies, first_order.minimise(ev, "lbfgs", begin[None], y, w, short.of(copies, n))
        return copies, ev.derivatives().fit(np.ascontiguousarray(begin[None]), y, w, short.of(copies, n))

    copies, fitted = ends_of({i: own.p for i, own in candidates.items()})
    params, loss, status = fitted.params, fitted.loss, fitted.status
    halves = dict[int, np.ndarray]()
    for i, own in candidates.items() if options.kind != objective.SUM else ():
        tree, mine = own.units.tree, (copies == i) & np.isfinite(loss)
        p = params[mine, : tree.n_params]
        p = _split(tree, _apart(p, loss[mine], np.flatnonzero(~tree.linear), SPLIT, p[:0]))
        halves |= {i: own.bounds.within(p, rows.random)} if len(p) else {}
    if halves:
        more, fitted = ends_of(halves)
        n = params.shape[1] - fitted.params.shape[1]
        params = np.concatenate([params, np.pad(fitted.params, ((0, 0), (0, n)), constant_values=np.nan)])
        copies, loss, status = (
            np.concatenate(pair) for pair in ((copies, more), (loss, fitted.loss), (status, fitted.status))
        )
    for i, own in candidates.items():
        mine = np.flatnonzero((copies == i) & np.isfinite(loss))
        for rank in range(min(GIVEN, len(mine))):
            ends = loss[mine, None], params[mine, None], status[mine, None]
            best = mine[int(objective.best_starts(*ends, nothing)[0])]
            p = params[best, : own.p.shape[1]]
            given[rank, i, : len(p)] = np.nan_to_num(p * own.units.of_params(p), nan=1.0)
            mine = mine[np.abs(loss[mine] - loss[best]) > objective.SAME * abs(loss[best]) + nothing]
            if not len(mine):
                break
