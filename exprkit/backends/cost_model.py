"""The cost model behind ``backend="auto"``: estimates the time of each backend from measured constants, and explains
the choice.

In: the size of the work.  Out: the backend and the reason.  Every backend's time is estimated as
``set-up + n_steps * a step``, plainly:

    set-up = start + tokens lowered + tokens of structures compiled / cores + data uploaded
             + what the first matrix takes longer, whose memory on the host is not page-locked yet
    a step = launch + the longest of: node evaluations computed, matrix written, matrix moved to the host

and the least total wins among those that can run here, have the options asked for and reach the
data.  A step that makes losses moves none; one that makes values moves the matrix where the data is the
host's, since the results go there.  The constants are published ones of an H200 and its host, scaled by what is known
of the card, or this machine's own, once ``python -m exprkit calibrate`` has measured them.

    >>> from exprkit.backends import cost_model
    >>> work = cost_model.Workload(10, 50, 10, 50, 100, 1, 4, n_steps=1, fast=True, cores=2)
    >>> cost_model.estimate(work, cost_model.COSTS["cpu"]).total < 0.001
    True

Not counted either: what happens once on a machine (compiling the interpreter's kernels) or in a
process (starting CUDA).
"""

from __future__ import annotations

import functools
import json
import logging
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import NAMES, Status, known, status
from exprkit.backends.transpiler.structures import FEWER, MANY
from exprkit.errors import number_of
from exprkit.expressions import duplicates
from exprkit.expressions.population import Population
from exprkit.operators import defined
from exprkit.runtime import disk_cache, machine
from exprkit.text.tokens import CONSTANT, VARIABLE

LOG = logging.getLogger(__name__)
SURELY_SHORT = 1e6  # node evaluations of a step
VERSION = "1"  # of what is measured
CALIBRATION = ".costs"  # a kind of entries of the cache
NOT_WORTH_ASKING = 0.002  # seconds: work so short is done before a GPU is found
H200_MULTIPROCESSORS, H200_BANDWIDTH = 132, 4.9e12  # that the constants of the GPU were measured on
MEMORY_CLOCK, MEMORY_BITS = 36, 37  # cudaDevAttrMemoryClockRate, cudaDevAttrGlobalMemoryBusWidth
LINK = 52e9  # bytes per second from an H200 to page-locked host memory: 429 MB in 8.26 ms (h200.parquet)
UPLOAD = 15.6e9  # bytes per second between pageable host memory and an H200: 429 MB in 28 ms


@dataclass(frozen=True)
class Costs:
    """Costs of a backend: seconds, and work a second (on the GPU: of an H200).

    ==========  ==============================================================================
    start       seconds of every evaluator
    token       seconds to lower a token of the population
    code        core-seconds to compile a token of a structure, at one point per thread
    step        seconds of a step without work: launches
    nodes       node evaluations a second, float32: (ieee, fast); on the CPU: of one core
    double      what of that remains in float64
    bytes       of the matrix written a second; on the CPU: by one core
    link        bytes a second of a matrix on its way to page-locked host memory
    ==========  ==============================================================================
    """

    start: float
    token: float
    step: float
    nodes: tuple[float, float]
    double: float
    bytes: float
    code: tuple[float, float] = (0.0, 0.0)  # (ieee, fast)
    on_device: bool = True
    link: float = LINK
    own: bool = False  # measured on this machine


COSTS = {
    # data/results/cpu.parquet (prepare_s: 2.2 ms for 53,886 tokens, 102 ms for 2,110,381) and
    # data/results/peers.csv (thesis, one thread: 1.0e10 nodes a second for losses, 1.07e10 for matrices)
    "cpu": Costs(
        start=5e-4, token=4.5e-8, step=2e-5, nodes=(1.0e10, 1.0e10), double=0.45, bytes=1.2e10, on_device=False
    ),
    # data/results/h200_generations.csv: a new Evaluator 1.0 ms for 54,000 tokens, 2.3 ms for 680,000;
    # data/results/h200_interpreter.csv: 15 to 22 us per step; losses of thesis expressions 8.8e12 and of trees 5.6e12
    # nodes per second (fast), 2.9e12 and 1.0e12 to 1.9e12 (ieee); matrices 4.1 TB/s
    "cuda": Costs(start=9e-4, token=3.0e-9, step=1.9e-5, nodes=(2.0e12, 6.5e12), double=0.3, bytes=4.1e12),
    # data/results/h200_ptx.csv and .md, the same H200, 16 cores: 15 us per step; losses of trees 8.7e12 and 10.3e12
    # nodes per second (fast), ieee a third of fast; matrices 3.7 to 4.2 TB/s; compiling: trees of 30 tokens 3.1 s for
    # 9,801 structures (fast), an earlier run 3.6 s; ieee 3.2 times as long
    "ptx": Costs(
        start=5e-3, token=1.4e-7, step=1.4e-5, nodes=(3.0e12, 1.0e13), double=0.3, bytes=4.2e12, code=(4.8e-4, 1.4e-4)
    ),
}
VECTOR_CODE = ((2_000, 1.5), (0, 1.0))  # from so many points on: how much more code there is for vectors of points
OF_A_MODULE = 120  # structures that one core compiles


class Workload(NamedTuple):
    """Sizes of the work."""

    n_exprs: int
    n_tokens: int
    n_structures: int
    structure_tokens: int  # each structure counted once
    n_points: int
    n_vars: int
    itemsize: int
    n_steps: int
    fast: bool
    cores: int
    on_device: bool = False  # the data lies on a GPU
    values: bool = False  # matrices are wanted, not losses

    @property
    def nodes(self) -> float:
        """Node evaluations of a step."""
        return float(self.n_tokens) * self.n_points

    @property
    def matrix(self) -> float:
        """Bytes of all results of a step."""
        return float(self.n_exprs) * self.n_points * self.itemsize


class Device(NamedTuple):
    """Properties of a GPU by which estimates are scaled."""

    multiprocessors: int = H200_MULTIPROCESSORS
    bandwidth: float = H200_BANDWIDTH  # bytes per second


class Estimate(NamedTuple):
    """Seconds."""

    setup: float
    step: float
    total: float
    to_host: float  # of one matrix; in a step where values are wanted


class Candidate(NamedTuple):
    """A backend's line of the table."""

    name: str
    estimate: Estimate | None
    reason: str


class Choice(NamedTuple):
    """The backend taken, and the table that says why."""

    name: str
    work: Workload
    rows: tuple[Candidate, ...]

    def table(self) -> str:
        """The estimates, a line a backend."""
        steps = "1 step" if self.work.n_steps == 1 else f"{self.work.n_steps:,} steps"
        widths = (10, 10, max(14, len(steps) + 2), 10)
        heads = ("set-up", "a step", steps, "to host")
        lines = [" " * 8 + "".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True))]
        for row in self.rows:
            cells = "".join(map(_cell, row.estimate, widths)) + "  " if row.estimate else ""
            lines.append(f"{row.name:8}{cells}{row.reason}".rstrip())
        sizes = {"expression": self.work.n_exprs, "token": self.work.n_tokens, "point": self.work.n_points}
        size = ", ".join(number_of(n, what) for what, n in sizes.items())
        what = "values, which data of the host want there" if self.work.values else "losses; to host: a matrix moved"
        own = " and this machine's own constants" if any(costs(name).own for name, *_ in self.rows) else ""
        lines.append(f"estimates for {size}{own}; {what}")
        return "\n".join(lines)


def work_of(
    pop: Population,
    n_points: int,
    *,
    dtype: Any,
    fast: bool,
    n_steps: int,
    threads: int | None,
    on_device: bool,
    values: bool = False,
) -> Workload:
    """The numbers of a population that the estimates need; its structures are counted later, if at all."""
    return Workload(
        n_exprs=len(pop),
        n_tokens=len(pop.kinds),
        n_structures=len(pop),
        structure_tokens=len(pop.kinds),
        n_points=n_points,
        n_vars=pop.n_vars,
        itemsize=np.dtype(dtype).itemsize,
        n_steps=n_steps,
        fast=fast,
        cores=threads or machine.cores(),
        on_device=on_device,
        values=values,
    )


def counted(work: Workload, pop: Population) -> Workload:
    """With the population's structures counted, as the transpiler compiles them."""
    representatives, _ = pop.structures()
    if len(representatives) >= MANY:
        shared, _ = duplicates.unique(pop, alike=[CONSTANT, VARIABLE])
        representatives = shared if FEWER * len(shared) <= len(representatives) else representatives
    tokens = int(np.diff(pop.offsets)[representatives].sum())
    return work._replace(n_structures=len(representatives), structure_tokens=tokens)


def estimate(work: Workload, costs: Costs, device: Device | None = None) -> Estimate:
    """Seconds that a backend would take."""
    device = Device() if device is None or costs.own else device
    speed = device.multiprocessors / H200_MULTIPROCESSORS if costs.on_device else work.cores
    width = device.bandwidth / H200_BANDWIDTH if costs.on_device else work.cores
    nodes = costs.nodes[work.fast] * speed * (costs.double if work.itemsize == 8 else 1.0)
    moved = costs.on_device and not work.on_device
    to_host = work.matrix / costs.link if moved else 0.0
    step = costs.step + max(work.nodes / nodes, work.matrix / (costs.bytes * width), to_host if work.values else 0.0)
    compiling = max(1, min(work.cores, work.n_structures // OF_A_MODULE))
    code = costs.code[work.fast] * work.structure_tokens / compiling
    code *= next(factor for points, factor in VECTOR_CODE if work.n_points >= points)
    upload = work.n_points * work.n_vars * work.itemsize / UPLOAD if moved else 0.0
    first = max(work.matrix / UPLOAD - to_host, 0.0) if moved and work.values else 0.0
    setup = costs.start + costs.token * work.n_tokens + code + upload + first
    return Estimate(setup, step, setup + work.n_steps * step, to_host)


@functools.cache
def costs(name: str) -> Costs:
    """Costs of a backend: as measured on this machine, else as published."""
    return COSTS[name] if (own := _measured().get(name)) is None else own


def keep(measured: dict[str, Costs]) -> None:
    """Keep what was measured on this machine, for this and all later processes."""
    text = json.dumps({name: asdict(costs) for name, costs in measured.items()})
    disk_cache.write(_name(), text.encode(), CALIBRATION)
    _measured.cache_clear()
    costs.cache_clear()


@functools.cache
def _measured() -> dict[str, Costs]:
    """Costs that were measured on this machine, by backend."""
    text = disk_cache.read(_name(), CALIBRATION)
    by_name = json.loads(text) if text else {}
    pairs = {name: {pair: tuple(costs[pair]) for pair in ("nodes", "code")} for name, costs in by_name.items()}
    return {name: Costs(**{**costs, **pairs[name]}) for name, costs in by_name.items()}


def _name() -> str:
    """The name of the file: measurements hold for a processor, its cores, a GPU and a version."""
    gpu, cores = status("cuda"), str(machine.cores())
    return disk_cache.key("costs", machine.cpu_model(), cores, gpu.detail if gpu.available else "", VERSION)


def choose(
    work: Workload,
    *,
    pop: Population | None = None,
    options: tuple[str, ...] = (),
    settings: bool = False,
    forced: str | None = None,
) -> Choice:
    """The backend with the least estimated time, and all estimates.

    ``pop``: whose structures are counted, where the transpiler can run; ``options``: those that are given, a backend
    that lacks one does not count; ``settings``: the precision is more than a name; ``forced``: the backend that the
    user asked for, so that the table is made and nothing is chosen.
    """
    on_cpu = estimate(work, costs("cpu") if work.nodes > SURELY_SHORT else COSTS["cpu"])
    if forced is None and not (options or settings or work.on_device) and on_cpu.total < NOT_WORTH_ASKING:
        return _logged(Choice("cpu", work, (Candidate("cpu", on_cpu, "chosen: too short for anything else"),)))
    rows, able = [], {}
    for name in (name for name in NAMES if name in COSTS):
        state = status(name)
        if pop is not None and state.available and costs(name).code[work.fast]:
            work = counted(work, pop)
        obstacle = _obstacle(name, state, work, options, settings)
        if costs(name).on_device and pop is not None and defined.functions() and not obstacle:
            lacking = defined.without_cuda(pop.user_operators())
            obstacle = f"operator {lacking[0]!r} is defined without CUDA text" if lacking else ""
        own = costs(name)
        seconds = estimate(work, own, device() if own.on_device and not own.own else None) if state.available else None
        rows.append(Candidate(name, seconds, obstacle))
        if seconds and not obstacle:
            able[name] = seconds.total
    best = forced or (min(able, key=lambda name: able[name]) if able else "cpu")
    said = "as asked" if forced else "chosen: the least" if len(able) > 1 else "chosen: the only one"
    return _logged(Choice(best, work, tuple(row._replace(reason=said) if row.name == best else row for row in rows)))


def _logged(choice: Choice) -> Choice:
    reasons = ", ".join(f"{row.name}: {row.reason}" for row in choice.rows if row.reason)
    LOG.info("%s on %r (%s)", "values" if choice.work.values else "losses", choice.name, reasons)
    return choice


def _obstacle(name: str, state: Status, work: Workload, options: tuple[str, ...], settings: bool) -> str:
    """Why a backend can't do this; empty if it can."""
    if not state.available:
        return f"can't run here: {state.detail}"
    if work.on_device and not COSTS[name].on_device:
        return "the data lies on the device"
    if missing := [option for option in options if option not in known(name).options]:
        return f"has no option {missing[0]!r}"
    if settings and not COSTS[name].on_device:
        return "takes precision by name only"
    return ""


def device() -> Device:
    """The current GPU."""
    from exprkit.backends.gpu.device import current as current_device

    current = current_device()
    attribute = current.xp.cuda.runtime.deviceGetAttribute
    kilohertz, bits = attribute(MEMORY_CLOCK, current.index), attribute(MEMORY_BITS, current.index)
    bandwidth = 2 * 1e3 * kilohertz * bits / 8  # two transfers a clock
    return Device(current.multiprocessors, bandwidth or H200_BANDWIDTH * current.multiprocessors / H200_MULTIPROCESSORS)


def _cell(seconds: float, width: int) -> str:
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit:
            return f"{f'{seconds / unit:#.3g}'.rstrip('.')} {name}".rjust(width)
    return "-".rjust(width)
