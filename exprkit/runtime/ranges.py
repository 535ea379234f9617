"""``shown``: phases of a step as ranges in the timeline of a profiler (NVTX), as of Nsight Systems.

In: a function and the name of a phase.  Out: the function itself, unless a profiler started this process.

    >>> from exprkit.runtime.ranges import shown
    >>> shown("parse")(len) is len
    True

``nsys profile python script.py`` shows "parse", "lower", "prepare", "step" and "fetch".
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeVar

LISTENER = "NVTX_INJECTION64_PATH"  # where a profiler tells NVTX that its library is

Function = TypeVar("Function", bound=Callable[..., Any])


def shown(phase: str) -> Callable[[Function], Function]:
    """A decorator: calls of a function are ranges of a profiler's timeline, if one listens and CuPy is installed."""
    if LISTENER in os.environ:
        try:
            from cupyx.profiler import time_range
        except ImportError:
            return lambda function: function
        as_range: Callable[[Function], Function] = time_range(f"exprkit: {phase}")
        return as_range
    return lambda function: function
