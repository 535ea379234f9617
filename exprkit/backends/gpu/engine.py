"""The base of both GPU engines: programs, passes over parameter sets, running out of memory, results.

In: a population and data.  Out: ``DeviceEngine``, which the backends' engines extend, and ``backend``, which makes
a ``Backend`` of one.

    >>> from exprkit.backends.gpu.engine import check_points
    >>> check_points(4, (1, 2, 4))
    4
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from exprkit.backends import contract
from exprkit.backends.device_memory import LockedRoom, Recent
from exprkit.backends.gpu import device as gpu
from exprkit.backends.gpu.device_bytecode import Programs
from exprkit.backends.gpu.launch import Columns, Immediates, Launcher, too_large
from exprkit.backends.precision import Precision
from exprkit.backends.precision import precision as settings_of
from exprkit.errors import ArgumentError, brief, whole_number

ARGUMENTS = "pop", "X", "precision", "dtype", "threads", "device", "compiler"  # of the engines, beside options
FRACTIONS = {"float16": 10, "bfloat16": 7}  # bits behind the point


def unavailable() -> str | None:
    """Why the GPU backends can't run here and what mends it; None if they can."""
    return gpu.missing()


def describe() -> str:
    """The devices, in a few words."""
    device = gpu.current()
    own = f"{device.name} ({device.architecture}, {device.multiprocessors} multiprocessors)"
    names = gpu.names()
    return own if len(names) == 1 else f"{own}; devices: {', '.join(f'{k} {name}' for k, name in enumerate(names))}"


def backend(engine: type[DeviceEngine], device_populations: bool = False) -> contract.Backend:
    """A GPU backend as data; its options are the arguments of its engine alone."""
    options = tuple(name for name in inspect.signature(engine).parameters if name not in ARGUMENTS)
    return contract.Backend(
        unavailable,
        describe,
        engine,
        options,
        takes_settings=True,
        lowers=True,
        takes_device_populations=device_populations,
        adopt=gpu.adopt,
        empty=gpu.empty,
        empty_on_host=gpu.empty_on_host,
    )


class DeviceEngine(contract.Engine):
    """A population made ready for one data set on a GPU."""

    rounds = True  # results to 16 bits
    most_ready = 256  # launches that are kept ready; each holds a few arrays on the device

    def __init__(self, pop: Any, X: Any, precision: str | Precision, dtype: np.dtype, device: Any) -> None:
        self.device = device or gpu.current()
        self.settings, self.dtype = settings_of(precision), np.dtype(dtype)
        self.n_points, self.host_results = len(X), isinstance(X, np.ndarray)
        self._ready = Recent(self.most_ready)
        self._epoch = [True]  # False as soon as populations are of other sizes
        self._locked = LockedRoom(self.device)  # for results on their way to the host
        self._take(pop)

    def _take(self, pop: Any) -> None:
        self.pop, self.n_exprs = pop, len(pop)
        self._invalid = np.empty(0, np.int64) if pop.all_valid else (~pop.valid).nonzero()[0]

    def _positive(self, X: Any) -> np.ndarray:
        """By variable: whether it has no negative value and no -0; its powers are shorter then."""
        xp = np if isinstance(X, np.ndarray) else self.device.xp
        # one column at a time: CuPy reduces a whole array on all multiprocessors, but an axis on few
        columns = [xp.ascontiguousarray(X[:, v]) for v in range(X.shape[1] if len(X) else 0)]
        negative = [bool((xp.signbit(x) & ~xp.isnan(x)).view(np.uint8).max()) for x in columns]
        return ~np.array(negative or [False] * X.shape[1], bool)

    def _load(self, programs: Programs, columns: Columns, data: Any) -> None:
        """Bring data, bytecode and columns to the device, and get ready to make immediates."""
        self._launcher = Launcher(self.device, self.settings, self.dtype, data)
        self._launcher.take(programs, columns)
        self._immediates = Immediates(self._launcher)

    def _prepared(self, key: tuple[Any, ...], make: Callable[[], Any]) -> Any:
        """The thing of a key that was made not too long ago, else the one that ``make`` gives."""
        return self._ready.made(key, make)

    def _forget(self) -> None:
        """Let go of launches that are ready, and of what they hold."""
        self._ready.clear()

    def _next_epoch(self) -> None:
        """Have steps that are kept for populations of one size no longer be used."""
        self._epoch[0] = False
        self._epoch = [True]

    # ── memory ───────────────────────────────────────────────────────────────────────

    def _passes(self, params: Any, at_once: int) -> Iterator[slice]:
        """Make the immediates of ``at_once`` parameter sets, of fewer if memory runs out; gives the sets to run."""
        first = 0
        while first < len(params):
            part = slice(first, min(first + at_once, len(params)))
            try:  # views of CuPy take time
                is_new = self._immediates.make(params if at_once >= len(params) else params[part])
            except self.device.out_of_memory:
                if part.stop - first == 1:
                    raise
            else:
                if is_new:
                    self._forget()  # what is ready points to the old arrays
                yield part
                first = part.stop
                continue
            at_once = (part.stop - first) // 2
            self._forget()
            self.device.release()

    def _shrinking(
        self,
        run: Callable[..., None],
        size: tuple[int, ...],
        smaller: Callable[..., tuple[int, ...]],
        needs: Callable[..., tuple[str, int]],
    ) -> None:
        """``run(*size)``, with a ``smaller`` size as often as memory runs out; ``needs``: what of how many bytes."""
        while True:
            try:
                return run(*size)
            except self.device.out_of_memory:
                self._forget()
            self.device.release()  # not before the failed run's arrays are gone
            less = smaller(*size)
            if less == size:
                what, n_bytes = needs(*size)
                raise MemoryError(
                    f"{what} {n_bytes / 1e9:.3g} GB on the device besides the data, and "
                    f"{self.device.free_bytes() / 1e9:.3g} GB are free: take fewer points at a time"
                )
            size = less

    def _shrink_rows(self, run: Callable[[int], None], at_once: int, bytes_of_one: int) -> None:
        """Call ``run`` with ``at_once`` items at a time, with fewer if memory runs out."""

        def needs(n: int) -> tuple[str, int]:
            return f"one expression on {self.n_points} points needs", bytes_of_one

        self._shrinking(run, (at_once,), lambda n: (max(n // 2, 1),), needs)

    def _rounded(self, values: Any, place: Any, dtype: np.dtype) -> Any:
        """``place``, which takes results on the device as numbers of 16 bits: float16 or bfloat16."""
        fraction = FRACTIONS[dtype.name]
        launch = self._prepared((values.size, fraction), lambda: self._launcher.rounding(values.size, fraction))
        launch(out=self.device.pointer(values), rounded=self.device.pointer(place))
        return place

    # ── results ──────────────────────────────────────────────────────────────────────

    def loss_sums(self, params: Any, y: Any, weights: Any, kind: str) -> Any:
        """Sum of weighted squared or absolute errors, float64 (n_sets, n_exprs); on the device if the data is."""
        return self.sums(params, self.prepare(y, weights, kind))

    def _sums(self, params: Any, add_up: Callable[[Any], None], out: Any = None) -> Any:
        """Sums, float64 (n_sets, n_exprs), that ``add_up`` writes: into ``out`` on the device, or where the data is."""
        shape = params.shape[:2]
        sums = self.device.xp.empty(shape, np.float64) if out is None else out.reshape(shape)
        if not self.n_points:
            sums[...] = 0.0
        elif sums.size:
            add_up(sums)
        return self._marked(sums if out is not None else self._result(sums))

    def _marked(self, sums: Any) -> Any:
        """Sums with nan where an expression could not be read."""
        if len(self._invalid):
            on_host = isinstance(sums, np.ndarray)
            sums[:, gpu.fetched(self._invalid) if on_host else self.device.xp.asarray(self._invalid)] = np.nan
        return sums

    def _result(self, array: Any) -> Any:
        """An array of the device where the caller wants it."""
        if not self.host_results or isinstance(array, np.ndarray):
            return array
        if not 0 < array.nbytes <= gpu.MOST_LOCKED:
            return gpu.fetched(array)
        place = self._locked.shaped(array.shape, array.dtype)
        self.device.fetch(array, self.device.pointer(place))
        return place.copy()


def hand_over(counted: Any, counts: Any) -> None:
    """Counts of the device as the caller wants them, on the host or there."""
    if counts is not None:
        counted = counted.astype(np.int64)
        counts[...] = gpu.fetched(counted) if isinstance(counts, np.ndarray) else counted


class Needing:
    """Memory that runs out in here is too little for ``what``; as a class, which costs a step less than a generator."""

    def __init__(self, device: Any, what: str) -> None:
        self.device, self.what = device, what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if isinstance(error, self.device.out_of_memory):
            raise too_large(self.what, self.device) from error


def check_block(size: int | None, lanes: int) -> int | None:
    if size is not None and whole_number(size) not in range(lanes, 1025, lanes):
        raise ArgumentError(f"block_size must be a multiple of {lanes} up to 1024, not {brief(size)}")
    return size


def check_points(points: int | None, choices: Sequence[int]) -> int | None:
    if points is not None and whole_number(points) not in choices:
        raise ArgumentError(f"points_per_thread must be one of {', '.join(map(str, choices))}, not {brief(points)}")
    return points
