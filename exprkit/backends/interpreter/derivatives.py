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
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.backends.device_memory import Allocation, ArraySpec, LockedRoom, Recent
from exprkit.backends.device_programs.lowering import DeviceTokens
from exprkit.backends.device_programs.population import DevicePopulation
from exprkit.backends.gpu import layout, nvrtc
from exprkit.backends.gpu.device import MOST_LOCKED, count_out, fetched
from exprkit.backends.gpu.launch import THREADS, Launcher, address, fill, put
from exprkit.backends.interpreter import dual_opcodes
from exprkit.backends.interpreter.batches import FitBatch, FitShape, Preparation, batches_like, macros_of
from exprkit.backends.objective import Fitted, Options
from exprkit.backends.precision import Precision, precision
from exprkit.errors import number_of
from exprkit.expressions.population import Population
from exprkit.operators.defined import table_of_rows
from exprkit.runtime.calls import STREAM, DriverCall, Sequence

WORK_BYTES = 1 << 30  # of starts and results, and of arenas in global memory, at a time
KINDS = {"square": objective.SQUARES, "absolute": objective.ABSOLUTE, "sum": objective.SUM}
PARTS = {
    "params": ArraySpec(np.float64),
    "loss": ArraySpec(np.float64),
    "iterations": ArraySpec(np.int32),
    "status": ArraySpec(np.uint8),
    "evaluations": ArraySpec(np.int32),
}
MANY = 1 << 20  # sets of starts, with which a block makes as many fits as it can
MOST_KEPT = 8 << 20  # bytes of results that new ones are copied from
MOST_SIZES = 8  # of such
HOW = "TASK", "KIND", "WEIGHTED", "MANY", "GLOBAL_ARENA", "BOUNDED", "RARE"  # macros of a kernel that fits
CHOICE = precision("ieee")  # of a kernel that computes nothing
FLOAT32_TOL = 2.0**-22  # a loss of float32 values is no better than that


class Derivatives:
    """Jacobians, normal equations, gradients and fits of an engine's population and data.

    ``launcher`` and ``preparation`` are the engine's, ``tokens_of`` gives a population's tokens on the device;
    ``like``: those of float32 of the same population, of whose fits few are to be made anew.
    """

    def __init__(
        self,
        pop: Population | DevicePopulation,
        launcher: Launcher,
        tokens_of: Callable[[Any], DeviceTokens],
        preparation: Preparation,
        like: Derivatives | None = None,
    ) -> None:
        self.launcher, self.device = launcher, launcher.device
        self.dtype, self.n_points = launcher.dtype, launcher.n_points
        self._text = dual_opcodes.source(launcher.settings.operators)
        self.pop, self.n_exprs, self.max_params = pop, len(pop), int(pop.max_params)
        self.is_first = like is None
        self._like, self._batches, self._preparation = like, dict[bool, list[FitBatch]](), preparation
        if like is None and (ahead := preparation.take(pop)):
            self.known, self._batches[True] = ahead
        else:
            self.known = like.known if like else preparation.dependence.known(pop, tokens_of)
        self._fields = {"n_params": self.known.addresses["n_params"], "max_params": self.max_params}

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
    ) -> FitResults:
        """Fit all expressions from all starts (n_starts, n_exprs, max_params), and choose each one's best.

        ``again`` gives what makes anew what comes out SPOILED: asked for when the device has enough to do, if it has
        nothing to do for it.
        """
        xp, n_starts = self.device.xp, len(starts)
        if not (self.n_points and self.n_exprs) or (weights is not None and not bool((weights != 0).any())):
            return FitResults.given(self.device, self._nothing_counts(starts))
        starts = self._on_device(starts)
        bytes_of_one = self.n_exprs * (16 * self.max_params + 32) + 1
        at_once = min(n_starts, max(1, WORK_BYTES // bytes_of_one))
        rows = at_once + (n_starts > at_once or again is not None)  # the best so far stays in row 0
        results = FitResults.of(self.device, rows, self.n_exprs, self.max_params)
        terms, in_float64 = self._terms(y, weights, options), functools.cache(again) if again else None
        beside = in_float64 and (lambda: in_float64().derivatives._plans("FIT", terms, True, options.kind, at_once))
        if in_float64 and self.pop.has_wide_constants:  # of other programs, made before the device has enough to do
            in_float64().derivatives._batches_for(True)
        for k, some in enumerate(_parts(starts, at_once)):
            self._fit_some(some, terms, options.kind, results, int(k > 0), beside)
        if in_float64:
            ended, is_clean = results.places(0)["status"], n_starts == 1
            if n_starts > at_once:  # the best of some are chosen before others have asked how float32's ended
                ended = results.first("status").copy()
            other, again_y, again_weights = in_float64()
            terms = other._terms(again_y, again_weights, options) | {"ended": ended}
            for some in _parts(starts, at_once):
                if not is_clean:
                    results.clear_others()
                is_clean = False
                other._fit_some(some, terms, options.kind, results, 1)
        if not self.pop.all_valid:
            results.first("status")[xp.asarray(~self.pop.valid)] = objective.INVALID
        return results

    def make_ready(
        self, y: Any, weights: Any, options: Options, errors: bool, again: Callable[[], Again] | None = None
    ) -> None:
        """Compile side by side what fits of such expressions ask for, with prologues or without: of few or many.

        With ``errors``, of few and then of their standard errors; ``again``: what makes SPOILED ones anew (``fit``).
        """
        terms, all_sets = self._terms(y, weights, options), (1,) if errors else (1, MANY)
        plans = [one for n in all_sets for one in self._plans("FIT", terms, True, options.kind, n)]
        if errors:
            plans += self._plans("NORMAL", self._goal(y, weights), True, objective.SQUARES, 1)
        if again:
            other = again().derivatives
            plans += [one for n in all_sets for one in other._plans("FIT", terms, True, options.kind, n)]
        wanted = {one.kernel._replace(prologues=has_any) for one in plans for has_any in (True, False)}
        _make_ready(self.device, list(wanted), None)

    def decisions(self) -> list[str]:
        """How many are fitted by which variant, and why: of each launch the way through the case discussion."""
        fast, lines = self.launcher.settings.operators == "fast", []
        batches = self._batches_for(True) if self.n_points else []
        for batch in batches:
            path = batch.why(self.n_points, self.device.shared_per_block, fast)
            many = number_of(batch.sizes["m"], "parameter")
            lines += [f"fits of {'up to ' * batch.many}{many}: {number_of(len(batch.order), 'expression')}, {path[-1]}"]
            lines += [f"    {line}" for line in path[:-1]]
        return lines

    def _terms(self, y: Any, weights: Any, options: Options) -> dict[str, Any]:
        """The terms of a fit, as kernel arguments."""
        tol = max(options.tol, FLOAT32_TOL) if self.dtype.itemsize == 4 else options.tol
        return {
            "linear": self.known.addresses["linear"] if options.linear else None,
            "verdicts": self.known.addresses["verdicts"],
            "tol": float(tol),
            "gtol": float(options.gtol),
            "delta": float(options.delta),
            "max_iter": int(options.max_iter),
            "limits": self._bounds(options.limits),
            "patience": int(options.patience),
            "nothing": float(options.nothing),
            "lower": self._bounds(options.lower),
            "upper": self._bounds(options.upper),
            **self._goal(y, weights),
        }

    def _fit_some(
        self,
        starts: Any,
        terms: dict[str, Any],
        kind: int,
        results: FitResults,
        first: int,
        beside: Callable[[], list[FitLaunch]] | None = None,
    ) -> None:
        """Fits from some starts into rows from ``first`` on, and the best of all rows up to there into row 0."""
        choice = self._choosing(first + len(starts), terms["nothing"], results.places(0))
        self._launch_all("FIT", starts, terms, True, kind, beside, choice, **results.places(first))

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
        """Parameters as float64 on the device; those that are all one number are kept there."""
        if isinstance(params, np.ndarray):
            if params.size and not any(params.strides):
                return _of_one_number(self.device, params.shape, float(params.flat[0]))
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
        self,
        task: str,
        starts: Any,
        terms: dict[str, Any],
        rows: bool,
        kind: int = objective.SQUARES,
        beside: Callable[[], list[FitLaunch]] | None = None,
        behind: Iterable[DriverCall] = (),
        **results: Any,
    ) -> None:
        """Run ``task`` on every valid expression with every set of ``starts``; the rest are kernel arguments.

        Where kernels have to be compiled, those of ``beside`` are compiled at the same time.  ``behind``: calls that
        follow when all have ended.
        """
        n_sets = len(starts)
        if not n_sets:
            return
        fields = {**terms, **results, "starts": starts, "n_sets": n_sets}
        common = layout.FitArguments.from_buffer_copy(self.launcher.known(layout.FitArguments))
        fill(common, {**self._fields, **fields}, self.device)
        plans = self._plans(task, terms, rows, kind, n_sets)
        _make_ready(self.device, [one.kernel for one in plans], beside)
        fits = [one.kernel.fits for one in plans]
        counters = self.device.xp.zeros(len(plans), np.uint64) if max(fits, default=0) > 1 else None
        taken = address(counters, self.device)
        calls = [self._calls(one, k, common, taken + 8 * k, len(plans) == 1) for k, one in enumerate(plans)]
        self.device.side_by_side(calls, behind)()

    def _calls(self, plan: FitLaunch, k: int, common: Any, taken: int, is_alone: bool) -> list[DriverCall]:
        """The launches of a batch, on side stream ``k`` unless it ``is_alone``."""
        batch, in_global, wanted = plan
        kernel, fits, arena_bytes = _fit_kernel(self.device, wanted), wanted.fits, batch.arena["arena_bytes"]
        threads, shared = fits * batch.shape.warps * batch.shape.lanes, 0 if in_global else fits * arena_bytes
        n_items, resident = common.n_sets * len(batch.order), max(kernel.resident(threads, shared), 1)
        at_once = max(1, WORK_BYTES // arena_bytes) if in_global else 1 << 30
        blocks = min(-(-n_items // fits), resident * self.device.multiprocessors if fits > 1 else at_once)
        arena = self.device.xp.empty(blocks * arena_bytes, np.uint8) if in_global else None
        own = {
            **batch.arena,
            "order": batch.order.address,
            "n_here": len(batch.order),
            "max_instructions": batch.sizes["i"],
            "arena": address(arena, self.device),
            "taken": taken if fits > 1 else 0,
        }
        stream = STREAM if is_alone else self.device.side_stream(k)
        calls = []
        for at in range(0, 1 if fits > 1 else n_items, blocks):
            call = kernel.call((min(blocks, n_items - at), 1), threads, shared, _with(common, own, at), stream=stream)
            calls.append(call._replace(keep=(call.keep, arena)))  # no other launch's before all are started
        return calls

    def _plans(self, task: str, terms: dict[str, Any], rows: bool, kind: int, n_sets: int) -> list[FitLaunch]:
        """How every batch is launched on ``n_sets`` sets."""
        weighted, *bounds = (int(terms.get(name) is not None) for name in ("weights", "lower", "upper"))
        batches = self._batches_for(rows)
        shares = n_sets * sum(len(batch.order) for batch in batches) / self.device.multiprocessors
        settings, limit, plans = self.launcher.settings, self.device.shared_per_block, []
        for batch in batches:
            in_global = batch.arena["arena_bytes"] > limit
            fits = batch.fits(limit, shares, settings.operators == "fast") if task == "FIT" else 1
            how = task, kind, weighted, batch.many, in_global, max(bounds), batch.rare
            kernel = FitKernel(settings, self._text, batch.shape, fits, self.launcher.programs.n_steps > 0, how)
            plans.append(FitLaunch(batch, in_global, kernel))
        return plans

    def _choosing(self, n_sets: int, nothing: float, results: dict[str, int]) -> list[DriverCall]:
        """The launch that puts the best of ``n_sets`` sets into the first."""
        if n_sets == 1:
            return []
        kernel = self.device.kernel("choose", CHOICE, dual_opcodes.choice(), LANES=self.device.lanes)
        threads, arguments = THREADS if self.device.lanes > 1 else 1, layout.FitArguments()
        sizes = {"n_exprs": self.n_exprs, "max_params": self.max_params, "n_sets": n_sets}
        put(arguments, {**sizes, "nothing": nothing, **results})
        return [kernel.call((-(-self.n_exprs // threads), 1), threads, 0, arguments)]

    def _batches_for(self, rows: bool) -> list[FitBatch]:
        """All launches; ``rows``: whether J'J of many parameters is made."""
        if rows not in self._batches:
            like, few, made = self._like, self._like is not None, None
            if like and like.launcher.programs is self.launcher.programs:
                made = batches_like(self.launcher, like._batches_for(rows), rows, few)
            self._batches[rows] = self._preparation.batches(self.known, rows, few) if made is None else made
        return self._batches[rows]


class FitResults:
    """Results of fits, in rows of all expressions each; at first nan, and 0 what is counted."""

    def __init__(self, device: Any, rows: int, n_exprs: int, max_params: int) -> None:
        self._device, self._n_exprs, self._max_params, self._rows = device, n_exprs, max_params, rows
        n = rows * n_exprs
        self._block = Allocation(device, PARTS, (n * max_params, n, n, n, n))
        for name, part in PARTS.items():
            self._all(name).fill(np.nan if part.dtype.kind == "f" else 0)

    @classmethod
    def of(cls, device: Any, rows: int, n_exprs: int, max_params: int) -> FitResults:
        """Fresh ones; small ones of a known size are a copy of some that are kept, which is one call."""
        size = device, rows, n_exprs, max_params
        if rows * n_exprs * (8 * max_params + 17) > MOST_KEPT or size not in _blank:
            if len(_blank) >= MOST_SIZES:
                _blank.clear()
            _blank[size] = None
            return cls(*size)
        blank = _blank[size]
        if blank is None:
            blank = _blank[size] = cls(*size)
            device.waiting()()  # others may copy it on other streams
        own = cls.__new__(cls)
        own.__dict__.update(blank.__dict__, _block=blank._block.copy())
        return own

    @classmethod
    def given(cls, device: Any, fitted: Fitted) -> FitResults:
        """Results that need no device."""
        own = cls(device, 1, *fitted.params.shape)
        for name in PARTS:
            own.first(name)[...] = device.xp.asarray(getattr(fitted, name))
        return own

    def on_device(self) -> Fitted:
        params, loss, iterations, status, evaluations = map(self.first, PARTS)
        return Fitted(params, loss, iterations, status, evaluations)

    def on_host(self, room: LockedRoom) -> Fitted:
        """The first row in the host's memory: parts of one array, small ones by way of a page-locked ``room``."""
        sizes = [part.n_bytes(self._length(name, 1)) for name, part in PARTS.items()]
        *starts, n_bytes = itertools.accumulate((-(-size // 16) * 16 for size in sizes), initial=0)
        memory = np.empty(n_bytes, np.uint8)
        place = room.shaped(memory.shape, memory.dtype) if n_bytes <= MOST_LOCKED else memory
        here, there = self._device.pointer(place), self._block.addresses.values()
        copies = tuple(zip(there, (here + start for start in starts), sizes, strict=True))
        _copying(self._device, copies)()
        for size in filter(None, sizes):
            count_out(size)
        if place is not memory:
            memory[...] = place
        params, loss, iterations, status, evaluations = (
            memory[start : start + size].view(part.dtype)
            for part, size, start in zip(PARTS.values(), sizes, starts, strict=True)
        )
        params = params.reshape(self._n_exprs, self._max_params)
        return Fitted(params, loss, iterations, status, int(evaluations.sum()))

    def _length(self, name: str, rows: int) -> int:
        return rows * self._n_exprs * (self._max_params if name == "params" else 1)

    def _all(self, name: str) -> Any:
        return self._block.array(name, self._length(name, self._rows))

    def first(self, name: str) -> Any:
        row = self._block.array(name, self._length(name, 1))
        return row.reshape(self._n_exprs, self._max_params) if name == "params" else row

    def places(self, first: int) -> dict[str, int]:
        """Addresses of what begins with a row."""
        addresses = self._block.addresses
        return {name: addresses[name] + part.n_bytes(self._length(name, first)) for name, part in PARTS.items()}

    def clear_others(self) -> None:
        """Make all rows but the first those of no fit."""
        for name, number in (("loss", np.nan), ("evaluations", 0)):
            self._all(name)[self._n_exprs :] = number


@functools.lru_cache(maxsize=64)  # fits of one size and the next get the same memory again
def _copying(device: Any, copies: tuple[tuple[int, int, int], ...]) -> Sequence:
    """The calls that copy bytes from addresses of the device to those of the host, and wait for that."""
    calls = [device.copying(*copy) for copy in copies if copy[-1]]
    return device.sequence([*calls, *device.waiting().calls])


_blank: dict[tuple[Any, ...], FitResults | None] = {}  # by device and size; None: asked for once


def _with(common: Any, own: dict[str, Any], first: int) -> Any:
    arguments = layout.FitArguments.from_buffer_copy(common)
    put(arguments, own)
    arguments.first_item = first
    return arguments


def _parts(starts: Any, at_once: int) -> Iterator[Any]:
    if len(starts) <= at_once:  # views of CuPy take time
        yield starts
        return
    for first in range(0, len(starts), at_once):
        yield starts[first : first + at_once]


def _of_one_number(device: Any, shape: tuple[int, ...], number: float) -> Any:
    """A float64 array on the device that nobody writes to; small ones are kept for the next fit."""
    if 8 * math.prod(shape) > MOST_KEPT:
        return device.xp.full(shape, number, np.float64)

    def make() -> Any:
        array = device.xp.full(shape, number, np.float64)
        device.waiting()()  # others may read it on other streams
        return array

    return _uniform.made((device, shape, number), make)


_uniform = Recent(MOST_SIZES)


class FitKernel(NamedTuple):
    """A kernel that fits, by what it is to do: its macros take longer to write than a launch to start."""

    settings: Precision
    text: str
    shape: FitShape
    fits: int
    prologues: bool
    how: tuple[Any, ...]  # the values of HOW

    def macros(self) -> dict[str, Any]:
        """Macros that the kernel's text expects."""
        flags = {name: one if isinstance(one, str) else int(one) for name, one in zip(HOW, self.how, strict=True)}
        return macros_of(self.shape, self.settings, self.fits, PROLOGUES=int(self.prologues), **flags)


class FitLaunch(NamedTuple):
    """How a batch is launched."""

    batch: FitBatch
    in_global: bool  # where its memory is
    kernel: FitKernel


@table_of_rows
def _fit_kernel(device: Any, wanted: FitKernel) -> Any:
    return device.kernel("fit", wanted.settings, wanted.text, **wanted.macros())


_ready = set[tuple[Any, FitKernel]]()  # by device, what has been compiled


def _make_ready(device: Any, wanted: list[FitKernel], beside: Callable[[], list[FitLaunch]] | None) -> None:
    """Compile kernels side by side that have not been; where one is missing, those of ``beside`` too."""
    if not _ready.issuperset((device, one) for one in wanted):
        several = [*wanted, *(one.kernel for one in (beside() if beside else ()))]
        device.make_ready([nvrtc.KernelRequest(one.settings, one.text, one.macros()) for one in several])
        _ready.update((device, one) for one in several)


class Again(NamedTuple):
    """The population in float64, with which fits of float32 that are SPOILED are made anew."""

    derivatives: Derivatives
    y: Any
    weights: Any
