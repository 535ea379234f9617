"""``python -m exprkit warm``: every feature used once on few data, so that its loops are compiled and kept on disk.

For ``gpu``, and for an architecture such as ``sm_90`` on a machine without a GPU, the kernels of ``KERNELS`` are
compiled; ``tests/gpu_first_use.py --record`` writes that list.

>>> from exprkit.warm_up import FEATURES
>>> list(FEATURES)
['evaluate', 'fit', 'losses', 'generate', 'exhaustive', 'search', 'gpu']
"""

from __future__ import annotations

import functools
import importlib
import io
import json
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import numpy as np
from numba import int64
from numba.core import serialize

import exprkit as ek
from exprkit.backends.cpu import reductions, threads
from exprkit.backends.gpu import device as gpu
from exprkit.backends.gpu import nvrtc
from exprkit.backends.precision import Precision
from exprkit.errors import ArgumentError, BackendError
from exprkit.runtime import disk_cache, machine
from exprkit.runtime.progress import Progress, shown

KERNELS = Path(nvrtc.__file__).with_name("kernels.jsonl")  # that usual work asks for, the slowest to compile first
MANY = 3000  # expressions that threads share
SECONDS = 20.0  # that each search for formulas takes at the most, compiling apart


def _evaluation() -> None:
    pop, points = _few()
    for dtype in ("float32", "float64"):
        for precision in ("ieee", "fast"):
            ev = ek.Evaluator(pop, points.X, "cpu", precision, dtype)
            params = np.ones((len(pop), pop.max_params))
            ev.evaluate(params)
            ev.loss(params, points.y)
            ev.jacobian(params)
    many = ek.generate.random(MANY, n_vars=2)
    ek.Evaluator(many, points.X, "cpu", threads=2).loss(np.ones((MANY, many.max_params)), points.y)
    ek.compile_bytecode(many, precision="fast").listing(0)
    ek.parse(io.BytesIO("\n".join(pop.texts()).encode()))
    pop.unique()
    pop.diff("p1")
    pop.depths()
    for loop, arity in ((threads._left, 2), (threads._stop, 1)):  # called where a worker is late, or a call interrupted
        loop.compile((int64,) * arity)


def _fits() -> None:
    pop, points = _few()
    for dtype in ("float32", "float64"):
        ek.fit(pop, points.X, points.y, restarts=2, dtype=dtype).to_pandas()
    (x1,), p = ek.variables(1), ek.parameters(4)
    ek.fit([p[0] * ek.exp(p[1] * x1) + p[2] * ek.exp(p[3] * x1)], points.X, points.y)


def _losses() -> None:
    pop, points = _few()
    for loss in ("gaussian", "poisson", "mae", "huber", "logcosh(f - y)", "huber(f - y, 0.2)"):
        ek.fit(pop[:20], points.X, np.abs(points.y), loss=loss)


def _generators() -> None:
    pop = ek.generate.random(10)
    ek.generate.exhaustive(4)
    ek.breed(pop, np.ones(len(pop)), 10)


def _exhaustive_search() -> None:
    ek.exhaustive_search(_few()[1], max_nodes=6, restarts=1, progress=False)


def _search() -> None:
    x = np.random.default_rng(0).uniform(1, 3, (60, 2))
    noise = 0.01 * np.random.default_rng(1).standard_normal(60)
    for y in (x[:, 0] * np.exp(x[:, 1]) + noise, 0.5 * x[:, 0] * x[:, 1]):
        ek.SymbolicRegressor(niterations=2, timeout_in_seconds=SECONDS, random_state=0).fit(x, y)
    few, rounded = x[:8, :1], (x[:8, 0] ** 1.5).round(2)
    regressor = ek.SymbolicRegressor(niterations=0, timeout_in_seconds=SECONDS, random_state=0)
    regressor.fit(few, rounded, X_units=["m"], y_units="m^1.5")
    regressor.fit(few, rounded)


def _gpu() -> None:
    pop, points = _few()
    ev = ek.Evaluator(pop, points.X, "cuda")
    compile_kernels(gpu.current().architecture)
    ev.loss(np.ones((len(pop), pop.max_params)), points.y)
    ek.fit(pop, points.X, points.y, backend="cuda")
    ek.exhaustive_search(points, max_nodes=4, backend="cuda", progress=False)


def _few() -> tuple[ek.Population, ek.data.Dataset]:
    return ek.parse(ek.data.esr_sample()), ek.data.rough_pipe()


FEATURES: dict[str, Callable[[], None]] = {
    "evaluate": _evaluation,
    "fit": _fits,
    "losses": _losses,
    "generate": _generators,
    "exhaustive": _exhaustive_search,
    "search": _search,
    "gpu": _gpu,
}
ON_CPU = [name for name in FEATURES if name != "gpu"]


def warm(features: Sequence[str] | None = None, progress: Progress = True) -> None:
    """Use features once, in a process a core: those of ``FEATURES`` that are named, by default all that need no GPU.

    The name of a GPU architecture ("sm_90") stands for its kernels, for which no GPU is needed.  A loop that several
    features use is compiled by one of the processes, and the others wait for it (``disk_cache.alone``).

    Raises ArgumentError for a name that is not there, BackendError for "gpu" without a GPU.
    """
    features = ON_CPU if features is None else features
    unknown = [name for name in features if name not in (*FEATURES, *nvrtc.USUAL_ARCHITECTURES)]
    if unknown:
        raise ArgumentError(f"there is no feature {unknown[0]!r} to warm: {', '.join(FEATURES)}")
    with _processes(len(features)) as pool, shown(progress, len(features), "compiling", " features") as done:
        for future in as_completed([pool.submit(_use, name) for name in features]):
            done(1, future.result())


def _use(name: str) -> str:
    """Use one feature; its name."""
    FEATURES.get(name, functools.partial(compile_kernels, name))()
    return name


def _processes(n: int) -> ProcessPoolExecutor:
    """At most n processes, of a core each; not forked: a fork would have locks of threads that it lacks."""
    return ProcessPoolExecutor(max(1, min(n, machine.cores())), multiprocessing.get_context("spawn"))


def compile_kernels(architecture: str) -> None:
    """Compile the kernels of ``KERNELS`` for a GPU architecture into the disk cache, in a process a core.

    Raises BackendError where there is no NVRTC.
    """
    try:
        nvrtc.compiler_version()
    except (ImportError, RuntimeError):  # the second one is of cuda-pathfinder
        raise BackendError("there is no NVRTC: pip install cuda-core cuda-bindings nvidia-cuda-nvrtc") from None
    wanted = kernels_of(architecture)
    with _processes(len(wanted)) as pool, shown(True, len(wanted), f"compiling for {architecture}", " kernels") as done:
        for future in as_completed([pool.submit(nvrtc.code_of, architecture, kernel) for kernel in wanted]):
            future.result()
            done(1)


def kernels_of(architecture: str) -> list[nvrtc.KernelRequest]:
    """What ``KERNELS`` has for an architecture: who writes the text, and given what; precision; macros."""
    kernels = []
    for line in KERNELS.read_text().splitlines():
        architectures, module, function, given, settings, chosen = json.loads(line)
        if architecture in architectures:
            write = getattr(importlib.import_module(f"exprkit.{module}"), function)
            text = write(*(tuple(value) if isinstance(value, list) else value for value in given))
            kernels.append(nvrtc.KernelRequest(Precision(settings), text, chosen))
    return kernels


def compile_for(level: str, entries: Sequence[Path] = ()) -> None:
    """Compile for a level of ``shipped.LEVELS``, without running: loops of entries of the disk cache, or all kernels.

    Numba's settings of this process have to be for that level.
    """
    if not entries:
        reductions.compile_for(level)
    for path in entries:
        stored = disk_cache.read(path.stem, disk_cache.LOOP, path.parent)
        types, (_, function, *_) = serialize.loads(stored)
        loop = functools.reduce(getattr, function.qualname.split("."), importlib.import_module(function.modname))
        loop.compile(types)
