"""Derivatives and fits on the GPU: launches of ``fit.cu`` on the engine's programs and columns.

In: what an engine has on the device.  Out: Jacobians, normal equations, gradients, fits.  A block
takes one expression with one parameter set (of a fit: one start) from beginning to end, so a fit is
a launch or a few (``batches``), whatever the number of its iterations.

    >>> from exprkit.backends.interpreter.derivatives import FLOAT32_TOL
    >>> 2e-7 < FLOAT32_TOL < 3e-7
    True
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.backends.device_programs.dependence import Foreknown, foreknown
from exprkit.backends.device_programs.lowering import DeviceTokens
from exprkit.backends.device_programs.population import DevicePopulation
from exprkit.backends.gpu import layout
from exprkit.backends.gpu.device import fetched
from exprkit.backends.gpu.launch import THREADS, Launch, Launcher, fill
from exprkit.backends.interpreter import dual_opcodes
from exprkit.backends.interpreter.batches import Batches, FitBatch, FitShape, batches_like, batches_of, macros_of
from exprkit.backends.objective import Fitted, Options
from exprkit.errors import number_of
from exprkit.expressions.population import Population

WORK_BYTES = 1 << 30  # of starts and results, and of arenas in global memory, at a time
KINDS = {"square": objective.SQUARES, "absolute": objective.ABSOLUTE, "sum": objective.SUM}
FLOAT32_TOL = 2.0**-22  # a loss of float32 values is no better than that


class Derivatives:
    """Jacobians, normal equations, gradients and fits of an engine's population and data.

    Parameters
    ----------
    pop : Population or DevicePopulation
    launcher : Launcher
        Of the engine: programs, columns and device.
    tokens_of
        Gives the population's tokens on the device.
    like : Derivatives, optional
        Those of float32 of the same population: of its fits few are to be made anew.
    """

    def __init__(
        self, pop: Population | DevicePopulation, launcher: Launcher, tokens_of: Callable[[Any], DeviceTokens],
        like: Derivatives | None = None,
    ) -> None:  # fmt: skip
        self.launcher, self.device = launcher, launcher.device
        self.dtype, self.n_points = launcher.dtype, launcher.n_points
        self._text = dual_opcodes.source(launcher.settings.operators)
        self.pop, self.n_exprs, self.max_params = pop, len(pop), int(pop.max_params)
        self._like, self._batches = like, dict[bool, Batches]()
        self.known: Foreknown = like.known if like else foreknown(pop, self.device, tokens_of)
        self._fields = {"n_params": self.known.n_params, "max_params": self.max_params}

    # ── what the engine offers ───────────────────────────────────────────────────────

    def jacobian(self, params: Any, out: Any) -> None:
        """d f / d params into ``out`` (n_sets, n_exprs, n_points, max_params), on the host or the device."""
        xp = self.device.xp
        on_host = isinstance(out, np.ndarray) and xp is not np
        for one_set, place in zip(params, out, strict=True):
            J = xp.zeros(place.shape, self.dtype) if on_host else place
            J[...] = 0
            if not self.pop.all_valid:
                J[xp.asarray(~self.pop.valid)] = np.nan
            if self.n_points and self.max_params:
                starts = self._on_device(one_set[None])
                self._launch_all("JACOBIAN", starts, {}, False, jacobian=J)
            if on_host:
                place[...] = fetched(J)

    def normal_equations(self, params: Any, y: Any, weights: Any) -> tuple[Any, Any, Any]:
        """J'WJ, J'Wr and the sum of w r^2: float64 (n_sets, n_exprs, P, P), (n_sets, n_exprs, P), (n_sets, n_exprs)."""
        n_sets, xp = len(params), self.device.xp
        lead = n_sets, self.n_exprs
        jtj = xp.zeros((*lead, self.max_params, self.max_params), np.float64)
        jtr, sse = xp.zeros((*lead, self.max_params), np.float64), xp.zeros(lead, np.float64)
        self._mark_invalid(jtj, jtr, sse)
        if self.n_points:
            goal = self._goal(y, weights)
            self._launch_all("NORMAL", self._on_device(params), goal, True, jtj=jtj, jtr=jtr, loss=sse)
        return jtj, jtr, sse

    def loss_and_grad(self, params: Any, y: Any, weights: Any, kind: str) -> tuple[Any, Any]:
        """The sum of w (f - y)^2 or w |f - y| and its gradient: float64 (n_sets, n_exprs), (n_sets, n_exprs, P)."""
        lead, xp = (len(params), self.n_exprs), self.device.xp
        sums, gradient = xp.zeros(lead, np.float64), xp.zeros((*lead, self.max_params), np.float64)
        self._mark_invalid(gradient, sums)
        if self.n_points:
            goal = self._goal(y, weights)
            number = KINDS[kind]
            self._launch_all("GRADIENT", self._on_device(params), goal, False, kind=number, jtr=gradient, loss=sums)
        return sums, gradient

    def fit(
        self, starts: Any, y: Any, weights: Any, options: Options, again: Callable[[], Again] | None = None
    ) -> Fitted:
        """Fit all expressions from all starts (n_starts, n_exprs, max_params); each one's best, on the device.

        ``again`` gives what makes anew what comes out SPOILED: asked for when the device has enough to do.
        """
        xp, n_starts = self.device.xp, len(starts)
        if not (self.n_points and self.n_exprs) or (weights is not None and not bool((weights != 0).any())):
            return Fitted(*map(xp.asarray, self._nothing_counts(starts)))
        starts = self._on_device(starts)
        bytes_of_one = self.n_exprs * (16 * self.max_params + 32) + 1
        at_once = min(n_starts, max(1, WORK_BYTES // bytes_of_one))
        rows = at_once + (n_starts > at_once or again is not None)  # the best so far stays in row 0
        results = {
            "params": xp.full((rows, self.n_exprs, self.max_params), np.nan),
            "loss": xp.full((rows, self.n_exprs), np.nan),
            "iterations": xp.zeros((rows, self.n_exprs), np.int32), "status": xp.zeros((rows, self.n_exprs), np.uint8),
            "evaluations": xp.zeros((rows, self.n_exprs), np.int32),
        }  # fmt: skip
        terms = self._terms(y, weights, options)
        for first in range(0, n_starts, at_once):
            self._fit_some(starts[first : first + at_once], terms, options.kind, results, int(first > 0))
        if again:
            ended = results["status"][0].copy()
            other, again_y, again_weights = again()
            terms = other._terms(again_y, again_weights, options) | {"ended": ended}
            for first in range(0, n_starts, at_once):
                results["loss"][1:], results["evaluations"][1:] = np.nan, 0
                other._fit_some(starts[first : first + at_once], terms, options.kind, results, 1)
        names = "params", "loss", "iterations", "status", "evaluations"
        params, loss, iterations, status, evaluations = (results[name][0] for name in names)
        if not self.pop.all_valid:
            status[xp.asarray(~self.pop.valid)] = objective.INVALID
        return Fitted(params, loss, iterations, status, evaluations)

    def decisions(self) -> list[str]:
        """How many are fitted by which variant, and why: of each launch the way through the case discussion."""
        fast, lines = self.launcher.settings.operators == "fast", []
        batches, rare = self._batches_for(True) if self.n_points else Batches([], False)
        for batch in batches:
            path = batch.why(self.n_points, self.device.shared_per_block, rare, fast)
            many = number_of(batch.sizes["m"], "parameter")
            lines += [f"fits of {'up to ' * batch.many}{many}: {number_of(len(batch.order), 'expression')}, {path[-1]}"]
            lines += [f"    {line}" for line in path[:-1]]
        return lines

    def _terms(self, y: Any, weights: Any, options: Options) -> dict[str, Any]:
        """What a fit is told, as kernel arguments."""
        tol = max(options.tol, FLOAT32_TOL) if self.dtype.itemsize == 4 else options.tol
        return {
            "linear": self.known.linear if options.linear else None, "verdicts": self.known.verdicts,
            "tol": float(tol), "gtol": float(options.gtol), "delta": float(options.delta),
            "max_iter": int(options.max_iter), "limits": self._bounds(options.limits),
            "patience": int(options.patience), "lower": self._bounds(options.lower),
            "upper": self._bounds(options.upper), **self._goal(y, weights),
        }  # fmt: skip

    def _fit_some(self, starts: Any, terms: dict[str, Any], kind: int, results: dict[str, Any], first: int) -> None:
        """Fits from some starts into rows from ``first`` on, and the best of all rows up to there into row 0."""
        places = {name: array[first : first + len(starts)] for name, array in results.items()}
        self._launch_all("FIT", starts, terms, True, kind=kind, **places)
        self._choose(first + len(starts), results)

    def _nothing_counts(self, starts: Any) -> Fitted:
        params = np.array(fetched(starts[0]), np.float64)
        params[np.arange(self.max_params) >= fetched(self.pop.n_params)[:, None]] = np.nan
        invalid = fetched(~self.pop.valid)
        params[invalid] = np.nan
        loss = np.where(invalid, np.nan, 0.0)
        status = np.where(invalid, objective.INVALID, objective.NO_WEIGHT).astype(np.uint8)
        return Fitted(params, loss, np.zeros(self.n_exprs, np.int32), status, np.zeros(1, np.int32))

    # ── arrays ───────────────────────────────────────────────────────────────────────

    def _on_device(self, params: Any) -> Any:
        """Parameters as float64 on the device."""
        if isinstance(params, np.ndarray):
            return self.device.sent([np.asarray(params, np.float64)])[0]
        return self.device.xp.ascontiguousarray(self.device.xp.asarray(params, dtype=np.float64))

    def _bounds(self, values: Any) -> Any:
        return None if values is None else self._on_device(values)

    def _goal(self, y: Any, weights: Any) -> dict[str, Any]:
        """Target and weights on the device, padded with points that do not count."""
        padded = self.launcher.padded_once
        return {"target": padded("y", y), "weights": None if weights is None else padded("weights", weights)}

    def _mark_invalid(self, *arrays: Any) -> None:
        for array in () if self.pop.all_valid else arrays:
            array[:, self.device.xp.asarray(~self.pop.valid)] = np.nan

    # ── launches ─────────────────────────────────────────────────────────────────────

    def _launch_all(
        self, task: str, starts: Any, terms: dict[str, Any], rows: bool, kind: int = objective.SQUARES, **results: Any
    ) -> None:
        """Run ``task`` on every valid expression with every set of ``starts``; the rest are kernel arguments."""
        n_sets = len(starts)
        if not n_sets:
            return
        weighted, *bounds = (int(terms.get(name) is not None) for name in ("weights", "lower", "upper"))
        fields = {**terms, **results, "starts": starts, "n_sets": n_sets}
        common = layout.FitArguments.from_buffer_copy(self.launcher.known(layout.FitArguments))
        fill(common, {**self._fields, **fields}, self.device)
        batches, rare = self._batches_for(rows)
        shares = n_sets * sum(len(batch.order) for batch in batches) / self.device.multiprocessors
        launches, kept = [], []  # what is kept until all are started is not given to another meanwhile
        for batch in batches:
            in_global = batch.arena["arena_bytes"] > self.device.shared_per_block
            fits = batch.fits(self.device.shared_per_block, shares) if task == "FIT" else 1
            kernel = self._kernel(
                "fit", batch.shape, fits, TASK=task, KIND=kind, WEIGHTED=weighted, MANY=int(batch.many),
                GLOBAL_ARENA=int(in_global), BOUNDED=max(bounds), RARE=int(rare),
            )  # fmt: skip
            threads = fits * batch.shape.warps * batch.shape.lanes
            shared = 0 if in_global else fits * batch.arena["arena_bytes"]
            n_items, resident = n_sets * len(batch.order), max(kernel.resident(threads, shared), 1)
            at_once = max(1, WORK_BYTES // batch.arena["arena_bytes"]) if in_global else 1 << 30
            blocks = min(-(-n_items // fits), resident * self.device.multiprocessors if fits > 1 else at_once)
            own = self._own(batch, blocks, fits, in_global)
            launches.append(
                [
                    kernel.prepare((min(blocks, n_items - first), 1), threads, shared, self._with(common, own, first))
                    for first in range(0, 1 if fits > 1 else n_items, blocks)
                ]
            )
            kept.append(own)
        self._side_by_side(launches)

    def _own(self, batch: FitBatch, blocks: int, fits: int, in_global: bool) -> dict[str, Any]:
        """The arguments of a batch alone."""
        xp, bytes_of_one = self.device.xp, batch.arena["arena_bytes"]
        return {
            **batch.arena, "order": batch.order, "n_here": len(batch.order), "max_instructions": batch.sizes["i"],
            "arena": xp.empty(blocks * bytes_of_one, np.uint8) if in_global else None,
            "taken": xp.zeros(1, np.uint64) if fits > 1 else None,
        }  # fmt: skip

    def _choose(self, n_sets: int, results: dict[str, Any]) -> None:
        if n_sets > 1:
            kernel = self._kernel("choose", FitShape(1, 1, 1, self.device.lanes, self.dtype.itemsize))
            threads = THREADS if self.device.lanes > 1 else 1
            self._launch(kernel, -(-self.n_exprs // threads), threads, 0, n_sets=n_sets, **results)()

    def _kernel(self, name: str, shape: FitShape, fits: int = 1, **macros: Any) -> Any:
        """The kernel of fit.cu for these macros."""
        settings, prologues = self.launcher.settings, int(self.launcher.programs.n_steps > 0)
        chosen = macros_of(shape, settings, fits, **{"PROLOGUES": prologues, "RARE": 0, **macros})
        return self.device.kernel(name, settings, self._text, **chosen)

    def _with(self, common: Any, own: dict[str, Any], first: int) -> Any:
        """Kernel arguments with those of a batch."""
        arguments = layout.FitArguments.from_buffer_copy(common)
        fill(arguments, {**own, "first_item": first}, self.device)
        return arguments

    def _side_by_side(self, launches: list[list[Callable[[], None]]]) -> None:
        """Start them all, each row of launches on a stream of its own: what one leaves idle in the end others take."""
        if self.device.lanes == 1 or len(launches) == 1:
            for launch in (launch for row in launches for launch in row):
                launch()
            return
        here, ready = self.device.current_stream(), self.device.event()
        ready.record(here)
        for k, row in enumerate(launches):
            stream, done = _stream(self.device, k), self.device.event()
            with stream:
                stream.wait_event(ready)
                for launch in row:
                    launch()
                done.record(stream)
            here.wait_event(done)

    def _launch(self, kernel: Any, blocks: int, threads: int, shared: int, **fields: Any) -> Launch:
        fields = {**self._fields, **fields}
        return self.launcher.launch(kernel, (blocks, 1), threads, shared, kind=layout.FitArguments, **fields)

    def _batches_for(self, rows: bool) -> Batches:
        """All launches; ``rows``: whether J'J of many parameters is made."""
        if rows not in self._batches:
            like, few, made = self._like, self._like is not None, None
            if like and like.launcher.programs is self.launcher.programs:
                made = batches_like(self.launcher, like._batches_for(rows), rows, few)
            self._batches[rows] = made or batches_of(self.launcher, self.known, rows, few)
        return self._batches[rows]


class Again(NamedTuple):
    """What fits of float32 that are SPOILED are made anew with: the same population in float64."""

    derivatives: Derivatives
    y: Any
    weights: Any


@functools.cache
def _stream(device: Any, k: int) -> Any:
    """A stream for the launches of one batch, beside the others'."""
    return device.stream()
