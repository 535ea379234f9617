"""A loss that is asked for again: parameters in, sums out, and one call for all that the driver does between.

In: the launches of a loss.  Out: ``LossStep``, which repeats them for other parameters, and for other populations of
the same sizes.

==========  ==========================================================================================
numbers     go this way
==========  ==========================================================================================
parameters  of the host's into page-locked memory, where the first kernel reads them; else where they are
sums        for the host into page-locked memory, few of them by the last kernel itself, many by a copy
==========  ==========================================================================================

    >>> from exprkit.backends.interpreter.loss_step import MOST_WRITTEN
    >>> MOST_WRITTEN // 8  # sums
    32768
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.gpu import loss_code, opcodes
from exprkit.backends.gpu.launch import Immediates, Launch, Launcher, ScheduledLaunch, addressed, put
from exprkit.backends.precision import Precision
from exprkit.runtime.calls import Sequence
from exprkit.runtime.device_memory import LockedRoom

MOST_WRITTEN = 1 << 18  # bytes of sums that a kernel writes to the host: a copy takes longer to begin


class LossStep:
    """The launches of a loss in one pass over all parameter sets and points.

    Parameters
    ----------
    immediates : Immediates
    cut, run, add : Launch
        Chunks are cut for a new population alone.
    shape : tuple of int
        Of the parameters, (n_sets, n_exprs, max_params).
    rooms : two of LockedRoom, or None
        Where parameters of the host's are put, and sums for the host; None: both lie on the device.
    """

    def __init__(
        self, immediates: Immediates, interpret: ScheduledLaunch, add: Launch, shape: tuple[int, ...],
        rooms: tuple[LockedRoom, LockedRoom] | None,
    ) -> None:  # fmt: skip
        self._immediates, self._shape = immediates, shape
        self._make = immediates.launch(shape)
        self._cut, self._run, self._add = interpret.cut, interpret.run, add
        rest = self._run.again.then(add.again)
        self._again = rest if shape[-1] == 0 else self._make.again.then(rest)  # no parameters: they stay
        self._first = self._cut.first.then(self._make.first, rest)  # which may begin when all before have ended
        if rooms:
            self._from_and_to_host(immediates.launcher, *rooms)

    def _from_and_to_host(self, launcher: Launcher, of_params: LockedRoom, of_sums: LockedRoom) -> None:
        """Take page-locked memory for parameters and sums; the step then waits for its end."""
        device, (n_sets, n_exprs, _) = launcher.device, self._shape
        self._params = of_params.shaped(self._shape, launcher.dtype)
        self._sums = of_sums.shaped((n_sets, n_exprs), np.float64)
        place, end = device.pointer(self._sums), device.waiting()
        self._there: Any = None
        if self._sums.nbytes > MOST_WRITTEN:
            self._there = device.xp.empty((n_sets, n_exprs), np.float64)
            copy = device.copying(device.pointer(self._there), place, self._sums.nbytes)
            end = device.sequence([copy]).then(end)
            place = device.pointer(self._there)
        self._places = device.pointer(self._params), place
        self._again, self._first = self._again.then(end), self._first.then(end)

    def is_ready(self) -> bool:
        """Whether it can be made of the present programs: their immediates still have room where they had."""
        if self._run.is_present():
            return True
        try:
            return not self._immediates.take_memory(self._shape[0])
        except self._immediates.device.out_of_memory:
            return False

    def from_host(self, params: np.ndarray, goal: dict[str, int | float]) -> np.ndarray:
        """The sums of parameters of the host's, when they are there; what they are compared with by its addresses."""
        np.copyto(self._params, params)
        self._start(goal, *self._places)
        return self._sums.copy()

    def queue(self, params: int, goal: dict[str, int | float], sums: int) -> None:
        """Start making the sums; all by their addresses on the device."""
        self._start(goal, params, sums)

    def _start(self, goal: dict[str, int | float], params: int, sums: int) -> None:
        calls = self._again if self._run.is_present() else self._renewed()
        self._make.arguments.params = params
        put(self._run.arguments, goal)
        self._add.arguments.sums = sums
        calls()

    def _renewed(self) -> Sequence:
        """The calls for a new population, whose launches know it now."""
        for launch in (self._cut, self._make, self._run, self._add):
            launch.renew()
        self._immediates.made(self._shape)
        return self._first


class TextLoss(NamedTuple):
    """A loss that is a text, made ready."""

    columns: np.ndarray  # what it reads beside f, as it was asked for
    numbers: Any  # the same on the device
    macros: dict[str, Any] | None  # of its kernel; None: there can be none
    goal: dict[str, int | float]  # the kernel's arguments that are columns, by their addresses

    @classmethod
    def of(
        cls, device: Any, settings: Precision, dtype: np.dtype, loss: loss_code.Tokens, columns: np.ndarray,
        counted: bool,
    ) -> TextLoss:  # fmt: skip
        """With its columns on the device; the last says how much a point counts if it is ``counted``."""
        function = loss_code.function(loss, settings.operators)
        if function is None:
            return cls(columns, None, None, {})
        with np.errstate(over="ignore"):
            numbers = device.xp.asarray(columns.astype(dtype))
        text = opcodes.source(settings.operators, function)
        macros = {"TASK": "TEXT", "WEIGHTED": int(counted), "TARGETS": len(columns), "text": text}
        several = len(columns) > 1
        goal = {"target": numbers[0], "beside": numbers[1] if several else None}
        if counted and several:
            goal["weights"] = numbers[-1]
        return cls(columns, numbers, macros, addressed(goal, device))

    def read(self, there: dict[int, Any]) -> dict[str, Any]:
        """The arguments; columns that are what arrays of the device hold now (``there``) are read in these.

        Those that lie between the first and the last, and numbers of another type, are copied.
        """
        goal: dict[str, Any] = self.goal
        for k, array in there.items():
            name = "target" if k == 0 else "weights" if k == len(self.columns) - 1 and "weights" in goal else ""
            if name and array.dtype == self.numbers.dtype and array.flags.c_contiguous:
                goal = goal | {name: array}
            else:
                self.numbers[k] = array.reshape(-1)
        return goal
