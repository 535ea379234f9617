"""Calls that begin before those before them have ended, so that what they share is never idle.

    >>> from exprkit.distributed import ahead
    >>> list(ahead.each(lambda n: n * n, range(4), 2, "squares"))
    [0, 1, 4, 9]
"""

from __future__ import annotations

import contextvars
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

from exprkit.runtime.budget import Ended
from exprkit.runtime.progress import looked_at

TICK = 0.1  # seconds between two looks for an interrupt
Item = TypeVar("Item")
Found = TypeVar("Found")


def each(function: Callable[[Item], Found], items: Iterable[Item], most: int, name: str) -> Iterator[Found]:
    """What a function gives of every item, in order; ``most`` calls at a time, in threads of that ``name``.

    The threads have this one's context.  Where this ends early, calls end at their next ``look``.
    """
    begun: deque[Future[Found]] = deque()
    ended = threading.Event()

    def check(_: int) -> None:
        if ended.is_set():
            raise Ended("nobody waits for it")

    def call(item: Item) -> Found:
        with looked_at(check):
            return function(item)

    with ThreadPoolExecutor(most, name) as pool:
        try:
            for item in items:
                begun.append(submit(pool, call, item))
                if len(begun) == most:
                    yield _result(begun.popleft())
            while begun:
                yield _result(begun.popleft())
        finally:
            ended.set()
            for call_to_come in begun:
                call_to_come.cancel()


def _result(call: Future[Found]) -> Found:
    """What a call gives; an interrupt does not wait for it."""
    while not wait([call], TICK).done:
        pass
    return call.result()


def submit(pool: ThreadPoolExecutor, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
    """Have a function called in a thread, with what this one's context says."""
    return pool.submit(contextvars.copy_context().run, function, *arguments)
