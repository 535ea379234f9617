"""A loss that is asked for again and again with other parameters: its launches recorded once, then replayed together.

In: the launches of a loss, as ``Engine`` makes them.  Out: a step that costs the host one call of the driver.

    >>> from exprkit.backends.interpreter.loss_step import MOST_BYTES
    >>> MOST_BYTES >> 20
    64
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

MOST_BYTES = 64 << 20  # of parameters and sums: beyond, the launches take far longer than the calls


class LossStep:
    """A recorded step: parameters into memory of its own, all launches, the sums to where they are wanted.

    Parameters
    ----------
    device : CudaDevice
    params : array, (n_sets, n_exprs, max_params)
        Like those that will come: on the host or on the device.
    to_host : bool
        Whether sums are wanted on the host.
    launch : function of (parameters on the device or in page-locked memory, sums on the device)
        Starts everything; what it starts is recorded.
    keep
        Arrays that the launches read or write.
    """

    def __init__(
        self, device: Any, params: Any, to_host: bool, launch: Callable[[Any, Any], None], keep: tuple[Any, ...]
    ) -> None:
        self._device, self._keep, shape = device, keep, params.shape[:2]
        self._from_host = isinstance(params, np.ndarray) and device.xp is not np
        self._params = device.locked(params.shape, params.dtype) if self._from_host else device.xp.empty_like(params)
        self._sums = device.xp.empty(shape, np.float64)
        self._locked = device.locked(shape, np.float64) if to_host and device.xp is not np else None
        self._read = device.event()  # the parameters have been read

        def run() -> None:
            launch(self._params, self._sums)
            if self._locked is not None:
                device.to_host(self._sums, self._locked, device.current_stream())

        self._replay = device.recorded(run)

    def __call__(self, params: Any) -> Any:
        """The sums, float64 (n_sets, n_exprs), in memory of their own."""
        if self._from_host:
            self._read.synchronize()
            np.copyto(self._params, params)
        elif params.size:
            self._device.copy(params, self._params)
        self._replay()
        if self._locked is not None:
            self._device.current_stream().synchronize()
            return self._locked.copy()
        if self._from_host:
            self._read.record()
        sums = self._device.xp.empty_like(self._sums)
        self._device.copy(self._sums, sums)
        return sums
