"""The workers that ``devices=`` and ``client=`` name, checked and started.

In: a number, a list or "all"; or a ``dask.distributed.Client`` or the address of a scheduler.  Out: ``Workers``.

    >>> from exprkit.distributed.workers import Workers
    >>> Workers.of([0, 3], None).places(on_device=False)
    ['device 0', 'device 3']

==============  ======================================================================================
``devices=2``   two GPUs of this host, or where it has none two shares of its cores: threads of this
                process (``threads``), a device each, so that nothing is copied and all is ready at once
``client=``     dask's workers, that somebody has started: processes, on as many hosts as there are
==============  ======================================================================================

A cluster of dask's (``LocalCluster``, ``SSHCluster``, dask-jobqueue's) gives a worker up that is away 15 s after it was
lost ("distributed.deploy.lost-worker-timeout"), even if it was back in between: its nanny is stopped and nothing starts
it again.  ``Workers.look_after`` has the cluster do so.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import math
import os
import platform
import time
import uuid
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from typing import Any, NamedTuple

from exprkit.backends import NAMES, Status, known, status
from exprkit.distributed.threads import places_of, thread_of
from exprkit.errors import ArgumentError, BackendError, brief, brought_by, number_of, whole_number
from exprkit.runtime import machine
from exprkit.version import __version__

MOST_DEVICES = 1024  # numbers of devices where there is no GPU; chosen, not measured
SECONDS_TO_CONNECT = 10.0  # until a scheduler counts as absent; chosen, not measured
SECONDS_KNOWN = 1.0  # between two questions to the scheduler which workers are there; chosen, not measured
TICK = 0.2  # seconds between two checks for an interrupt; chosen, not measured
SECONDS_ALONE = 60.0  # without a worker until that is an error, where dask's "no-workers-timeout" says nothing else


class WorkerFacts(NamedTuple):
    """The versions, host, cores and backends of a worker."""

    versions: dict[str, str]  # that have to be the same
    host: str
    cores: int
    backends: dict[str, Status]


class Workers:
    """Workers that evaluate and fit: threads of this process, or those of a client of dask's.

    Attributes
    ----------
    devices : tuple of int
        The numbers of this process's devices, a thread each; none for workers of a client.
    client : dask.distributed.Client or None
    facts : dict of WorkerFacts
        By the workers' addresses, as they were when this was made.
    """

    @classmethod
    def of(cls, devices: Any, client: Any) -> Workers | None:
        """The workers that a user's ``devices=`` and ``client=`` name; None for neither: one device does the work then.

        Raises ArgumentError for something else and for both, MissingError without dask.distributed, BackendError if no
        scheduler answers, it has no workers, or their versions are not this process's.
        """
        if devices is None and client is None:
            return None
        if devices is not None and client is not None:
            raise ArgumentError("devices= are devices of this host, client= a cluster: give only one of them")
        if isinstance(client, cls):
            return client
        if devices is not None:
            return cls(_numbers(devices))
        with brought_by("distributed"):
            import distributed
        if isinstance(client, str):
            if not _connected(client).connected:
                _connected.cache_clear()
            return _connected(client)
        if not isinstance(client, distributed.Client) or client.asynchronous:
            raise ArgumentError(
                f"client must be a dask.distributed.Client or a scheduler's address, not {brief(client)}"
            )
        if client.status != "running":
            raise ArgumentError(f"client is {client.status}: give one that is running")
        return cls((), client)

    def __init__(self, devices: tuple[int, ...], client: Any = None) -> None:
        self.devices, self.client = devices, client
        self._threads = {f"device {number}": 1 for number in devices}
        self._looked_at, self._alone_since = -math.inf, math.inf
        here = facts()
        self.facts = dict.fromkeys(self._threads, here)
        while not self.facts:
            self.look_after()
            self.facts = _facts_of(client)
            time.sleep(0 if self.facts else TICK)
        for address, other in self.facts.items():
            for name, version in here.versions.items():
                if other.versions.get(name) != version:
                    raise BackendError(
                        f"worker {address} has {name} {other.versions.get(name)} and this process {version}: "
                        "install the same on both, since results could differ"
                    )

    @property
    def address(self) -> str:
        """The address of a client's scheduler."""
        return str(self.client.scheduler.address)

    def look_after(self) -> bool:
        """See which of a client's are there, once a second at most, and have their cluster start again what it lost.

        Returns whether all are others than before.  Raises BackendError if there has been no worker for a minute, or
        for as long as dask's setting "distributed.scheduler.no-workers-timeout" says.
        """
        now = time.monotonic()
        if now - self._looked_at < SECONDS_KNOWN:
            return False
        before, self._threads, self._looked_at = self._threads, _threads(self.client), now
        _start_lost(self.client.cluster)
        if self._threads:
            self._alone_since = math.inf
        elif self._alone_since == math.inf:
            self._alone_since = now
            warnings.warn(f"no worker is left at {self.address}: waiting for others", RuntimeWarning, stacklevel=3)
        elif now - self._alone_since >= _seconds_alone():
            self._alone_since = math.inf
            raise self.alone()
        return bool(self._threads) and before.keys().isdisjoint(self._threads)

    def alone(self) -> BackendError:
        """The error of a client without workers."""
        return BackendError(
            f"no worker is left at {self.address}, and none has come within {_seconds_alone():g} s: start some, as by "
            f"`dask worker {self.address}` or cluster.scale(2), then call again"
        )

    @property
    def connected(self) -> bool:
        """Whether the client has not been closed; it closes itself when the scheduler is away for long."""
        return self.client.status not in ("closing", "closed")

    def addresses(self) -> list[str]:
        """The addresses of the workers that are connected."""
        return list(self._threads)

    def places(self, on_device: bool) -> list[str]:
        """Addresses where slices are worked on at a time: of a GPU's worker once, of a CPU's for each thread.

        Of this process's GPUs once for each stream.
        """
        if self.devices:
            return [f"device {place.device}" for place in places_of(self.devices, on_device)]
        return [address for address, n in self._threads.items() for _ in range(1 if on_device else n)]

    def cores(self, on_device: bool) -> int:
        """Threads that the work on a slice may use."""
        if not self.devices and not on_device:
            return 1
        hosts = [worker.host for worker in self.facts.values()]
        return max(1, min(worker.cores // hosts.count(worker.host) for worker in self.facts.values()))

    def best(self, names: tuple[str, ...] = ("cuda", "cpu")) -> str:
        """The first of the backends that can run on every worker."""
        available = [name for name in names if all(worker.backends[name].available for worker in self.facts.values())]
        if not available:
            raise BackendError(f"none of {', '.join(names)} can run on all of {number_of(len(self.facts), 'worker')}")
        return available[0]

    def on_gpu(self, backend: str) -> bool:
        """Whether a backend works on a GPU; "auto": the best one."""
        return known(self.best() if backend == "auto" else backend).empty is not None

    def check(self, name: str) -> None:
        """An error if a backend cannot run on every worker."""
        for address, worker in self.facts.items():
            if not worker.backends[name].available:
                where = "here" if self.devices else f"on worker {address}"
                raise BackendError(f"backend {name!r} can't run {where}: {worker.backends[name].detail}")

    def everywhere(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Have a function called by every thread of this process, or in every other one; nobody waits for it."""
        for place in places_of(self.devices, are_gpus=count_of_gpus() > 0):
            thread_of(*place).do(functools.partial(function, *arguments))
        if not self.devices and self.connected:
            self.client.run(function, *arguments, wait=False)

    def __str__(self) -> str:
        kinds: dict[str, int] = {}
        for worker in self.facts.values():
            best = next(name for name in ("cuda", "cpu") if worker.backends[name].available)
            kinds[worker.backends[best].detail] = kinds.get(worker.backends[best].detail, 0) + 1
        where = "of this process" if self.devices else f"of {self.address}"
        each = "; ".join(f"{n} x {what}" for what, n in kinds.items())
        return f"{number_of(len(self.facts), 'worker')} {where}: {each}"


def _numbers(devices: Any) -> tuple[int, ...]:
    """The numbers of devices: of a count, a list or "all"."""
    n_gpus = count_of_gpus()
    if isinstance(devices, str) and devices == "all":
        return tuple(range(max(n_gpus, 1)))
    count = whole_number(devices)
    listed = range(count) if count is not None else devices
    if isinstance(listed, list | tuple | range):
        numbers = tuple(whole_number(number) for number in listed)
        allowed = range(n_gpus or MOST_DEVICES)
        if numbers and len(set(numbers)) == len(numbers) and all(number in allowed for number in numbers):
            return tuple(number for number in numbers if number is not None)
    hint = f"this host has {number_of(n_gpus, 'GPU')}" if n_gpus else "without a GPU they are shares of the cores"
    raise ArgumentError(
        f'devices must be a number >= 1, a list of different numbers >= 0, or "all", not {brief(devices)}: {hint}'
    )


def count_of_gpus() -> int:
    """GPUs that this process may use."""
    if not status("cuda").available:
        return 0
    from exprkit.backends.gpu import device

    return len(device.names())


@functools.lru_cache(maxsize=4)
def _connected(address: str) -> Workers:
    from distributed import Client

    try:
        client = Client(address, timeout=SECONDS_TO_CONNECT, set_as_default=False)
    except (OSError, ValueError, TypeError) as error:
        raise BackendError(f"no dask scheduler answers at {address!r}: {error}; start one: dask scheduler") from None
    atexit.register(_close, client)
    return Workers((), client)


def _close(client: Any) -> None:
    with contextlib.suppress(Exception), quiet():
        client.close()


if hasattr(os, "register_at_fork"):  # threads and connections do not survive a fork
    os.register_at_fork(after_in_child=_connected.cache_clear)


def _threads(client: Any) -> dict[str, int]:
    """The number of threads of every worker, by its address; empty where the scheduler does not answer."""
    with contextlib.suppress(OSError, TimeoutError):
        return dict(client.sync(client.scheduler.ncores, callback_timeout=SECONDS_TO_CONNECT))
    return {}


def _start_lost(cluster: Any) -> None:
    """Have a cluster start the workers that it does not count with any more, and those that could not start."""
    from distributed import SpecCluster, Status

    if not isinstance(cluster, SpecCluster) or cluster.status != Status.running:
        return
    for name, worker in list(cluster.workers.items()):
        if worker.status in (Status.closed, Status.failed):
            cluster.workers.pop(name, None)
    if set(cluster.worker_spec) - set(cluster.workers):
        cluster.loop.add_callback(cluster.scale_down, ())  # of none; it starts those that are lacking


def _seconds_alone() -> float:
    """After how long without a worker a call ends."""
    import dask

    limit = dask.config.get("distributed.scheduler.no-workers-timeout", None)
    return SECONDS_ALONE if limit is None else float(dask.utils.parse_timedelta(limit))


def new_name() -> str:
    return uuid.uuid4().hex[:12]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without dask's warning of large graphs: arrays travel in tasks, so that the scheduler can send them again."""
    import dask

    with dask.config.set({"distributed.admin.large-graph-warning-threshold": "1 PB"}):
        yield


def facts() -> WorkerFacts:
    """The facts of this process."""
    python = ".".join(platform.python_version_tuple()[:2])
    versions = {"exprkit": __version__, "python": python, "distributed": _version("distributed")}
    return WorkerFacts(versions, platform.node(), machine.cores(), {name: status(name) for name in NAMES})


@functools.cache
def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # devices of this process do without
        return ""


def _facts_of(client: Any) -> dict[str, WorkerFacts]:
    """The facts of every worker, by its address, but for those that die meanwhile."""
    answers = client.run(facts, on_error="return")
    for answer in answers.values():
        if isinstance(answer, ImportError):
            raise BackendError(f"a worker lacks what this process has, so install the same there: {answer}")
    return {address: answer for address, answer in answers.items() if isinstance(answer, WorkerFacts)}
