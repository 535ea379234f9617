"""One thread of this process per device: the implementation of ``devices=``.

In: the number of a device, and functions.  Out: that they run there.  Threads share all memory, so nothing is sent or
copied, and they are ready at once; what takes long (kernels, copies, compiled loops) runs without Python's lock.

    >>> from queue import SimpleQueue
    >>> from exprkit.distributed.threads import device_here, thread_of
    >>> told = SimpleQueue()
    >>> thread_of(1).do(lambda: told.put(device_here()))
    >>> told.get(), device_here()
    (1, None)
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

SECONDS_TO_END = 1.0  # that Python's end waits for what runs: a thread must not be cut off within a call of CUDA
_here = threading.local()


class DeviceThread:
    """A thread that works on one device as long as Python runs."""

    def __init__(self, number: int) -> None:
        self._asked: SimpleQueue[Callable[[], Any]] = SimpleQueue()
        self._busy = threading.Lock()
        threading.Thread(target=self._serve, args=[number], daemon=True, name=f"exprkit-device-{number}").start()
        atexit.register(self._settle)

    def do(self, work: Callable[[], Any]) -> None:
        """Call a function, which must raise nothing, after all others that were asked for."""
        self._asked.put(work)

    def _settle(self) -> None:
        if self._busy.acquire(timeout=SECONDS_TO_END):
            self._busy.release()

    def _serve(self, number: int) -> None:
        _here.device = number
        while True:
            work = self._asked.get()
            with self._busy:
                work()
            del work  # and all that it holds


@functools.cache
def thread_of(number: int) -> DeviceThread:
    """The device's thread, which all calls share."""
    return DeviceThread(number)


def device_here() -> int | None:
    """The device that this thread works on; None in any other thread."""
    return getattr(_here, "device", None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=thread_of.cache_clear)  # threads do not survive a fork
