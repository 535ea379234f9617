"""Long loops of a search, shared between threads of this process or workers of a client.

In: a function of slices of some rows, and arrays.  Out: what it gives, in the order of the rows, whoever computed what.

    >>> import numpy as np
    >>> from exprkit.distributed.sharing import each
    >>> each(lambda work, begin, end: int(work[begin:end].sum()), np.arange(10), 10, 4)
    [6, 22, 17]

A search says ``with shared_by(workers)`` once, and what it calls need not know of it.  ``devices=`` of this process
share its memory and cores, which its threads use anyway; several GPUs are more (``gpus``).  A client's workers get the
arrays once, as long as they stay the same.  Rows are cut into steps wherever they go, so that no cutting changes what
is found.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

from exprkit.distributed import engine
from exprkit.distributed.collect import Cut, collect
from exprkit.distributed.shared import SharedObject
from exprkit.distributed.tasks import on_device
from exprkit.distributed.threads import thread_of
from exprkit.distributed.workers import Workers, count_of_gpus
from exprkit.runtime import machine, slices
from exprkit.runtime.budget import check

AT_ONCE = 4  # steps between two checks of the clock, if there are not more cores; chosen, not measured
PARTS = 2  # that a worker's share is cut into: who is done first takes what is left

_sharing: ContextVar[SharedObject | None] = ContextVar("sharing", default=None)
_gpus: ContextVar[Gpus | None] = ContextVar("gpus", default=None)


class Gpus:
    """Several GPUs of this process."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers

    def __len__(self) -> int:
        return len(self._workers.devices)

    def each(self, function: Callable[[Cut], Any], cuts: slices.Cuts) -> list[Any]:
        """``function(cut)`` of every cut, on whichever GPU is free."""
        found = collect(self._workers, "gpus", cuts, lambda cut, _: (_on_gpu, function, cut), lambda n: check(), True)
        return [result for _, result in found]

    def begin(self, function: Callable[[], Any], but: int) -> None:
        """Begin to call a function on every GPU but one; nobody waits, and its errors are lost."""
        for number in self._workers.devices:
            if number != but:
                thread_of(number).do(functools.partial(_quietly, function))


def _on_gpu(function: Callable[..., Any], *arguments: Any) -> Any:
    with on_device(True):
        return function(*arguments)


def _quietly(function: Callable[[], Any]) -> None:
    with contextlib.suppress(Exception):
        _on_gpu(function)


@contextlib.contextmanager
def shared_by(workers: Workers | None) -> Iterator[None]:
    """A context in which a client's workers take part in ``each``, or several GPUs."""
    has_gpus = workers is not None and len(workers.devices) > 1 and count_of_gpus() > 1
    tokens = (
        _sharing.set(
            None if workers is None or workers.devices else SharedObject(workers, _same, (None,), backend="cpu")
        ),
        _gpus.set(Gpus(workers) if workers is not None and has_gpus else None),
    )
    try:
        yield
    finally:
        _sharing.reset(tokens[0])
        _gpus.reset(tokens[1])


def helpers() -> Workers | None:
    """The client's workers that take part here, if any do."""
    sharing = _sharing.get()
    return None if sharing is None else sharing.workers


def gpus() -> Gpus | None:
    """The GPUs of this process that take part here, if there are several."""
    return _gpus.get()


def each(
    function: Callable[..., Any], work: Any, n: int, step: int, *arguments: Any, seconds: float = 0.0
) -> list[Any]:
    """``function(work, *arguments, begin, end)`` of every step of ``n`` rows.

    Parameters
    ----------
    function : of a module, as it travels by its name
    work : arrays, which workers keep until another work is shared
    step : rows of a slice, whoever works
    seconds : estimated for all on one core; workers are not asked for what is short
    """
    sharing = _sharing.get()
    if sharing is not None and seconds > engine.LEAST * (places := sharing.n_places):
        cuts, call = slices.even(-(-n // step), PARTS * places, least=1), (function, n, step, arguments)
        sharing.keep(work)
        parts = sharing.each(_steps, cuts, lambda *cut: (call, *cut), check, function.__name__)
        return list(itertools.chain.from_iterable(found for _, found in parts))
    cuts, results = [(i, min(i + step, n)) for i in range(0, n, step)], []
    at_once = max(AT_ONCE, machine.cores())
    for k in range(0, len(cuts), at_once):
        check()
        results += slices.each(functools.partial(function, work, *arguments), cuts[k : k + at_once])
    return results


def _same(value: Any) -> Any:
    return value


def _steps(work: Any, call: tuple[Any, ...], first: int, end: int) -> list[Any]:
    """On a worker: some of the steps."""
    function, n, step, arguments = call
    return [function(work, *arguments, k * step, min((k + 1) * step, n)) for k in range(first, end)]
