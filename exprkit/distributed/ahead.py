"""Calls of a function for many items, several at a time in threads, with results in the order of the items.

    >>> from exprkit.distributed import ahead
    >>> list(ahead.each(lambda n: n * n, range(4), 2, "squares"))
    [0, 1, 4, 9]

A pipeline is ``each`` of ``each``: with one thread and two calls ahead a step works on the next item while the step
after it has the current one.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from exprkit.runtime.budget import Ended
from exprkit.runtime.progress import looked_at

TICK = 0.1  # seconds between two checks for an interrupt; chosen, not measured
Item = TypeVar("Item")
Result = TypeVar("Result")


def each(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    most: int,
    name: str,
    *,
    threads: int | None = None,
    completes: bool = False,
) -> Generator[Result, None, None]:
    """Yield ``function(item)`` of every item, in order.

    Parameters
    ----------
    function : callable
        Called in the context of the thread that iterates.
    items : iterable
        Taken in the thread that iterates.
    most : int
        Calls that are submitted before the first of them has to be finished.
    name : str
        The name of the threads.
    threads : int, optional
        By default ``most``; with fewer the other calls wait for their turn.
    completes : bool
        Whether submitted calls are completed where the iteration ends early.  Otherwise those that wait are cancelled,
        and those that run end at their next ``look``.
    """
    calls: deque[Future[Result]] = deque()
    is_cancelled = threading.Event()

    def check(_: int) -> None:
        if is_cancelled.is_set():
            raise Ended("nobody waits for it")

    def call(item: Item) -> Result:
        with contextlib.nullcontext() if completes else looked_at(check):
            return function(item)

    with ThreadPoolExecutor(threads or most, name) as pool:
        try:
            for item in items:
                calls.append(submit(pool, call, item))
                if len(calls) == most:
                    yield _result(calls.popleft())
            while calls:
                yield _result(calls.popleft())
        finally:
            while completes and calls:
                calls.popleft().result()
            is_cancelled.set()
            for waiting in calls:
                waiting.cancel()


def _result(call: Future[Result]) -> Result:
    """The result of a call; an interrupt is answered while it runs."""
    while not wait([call], TICK).done:
        pass
    return call.result()


def submit(pool: ThreadPoolExecutor, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Call a function in a thread of the pool, with a copy of this thread's context."""
    return pool.submit(contextvars.copy_context().run, function, *arguments)
