"""A loss that is asked for again: parameters in, sums out, and one call for all that the driver does between.

In: the launches of a loss.  Out: ``LossStep``, which repeats them for other parameters, and for other populations of
the same sizes; ``PreparedSums``, a loss with its target on the device.

==========  ==========================================================================================
numbers     go this way
==========  ==========================================================================================
parameters  of the host's into page-locked memory, where the first kernel reads them; else where they are
sums        for the host: few of them by a kernel, which then says so, into page-locked memory, many by a copy to
            where they are wanted, page-locked unless the caller keeps results; for the device: nobody waits
==========  ==========================================================================================

    >>> from exprkit.backends.interpreter.loss_step import MOST_WRITTEN
    >>> MOST_WRITTEN // 8  # sums
    32768
"""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.device_memory import LentRooms, LockedRoom
from exprkit.backends.gpu import loss_code, opcodes
from exprkit.backends.gpu.device import count_in, count_out
from exprkit.backends.gpu.launch import Immediates, Launch, ScheduledLaunch, addressed, field_address, put
from exprkit.backends.precision import Precision
from exprkit.runtime.calls import Sequence

MOST_WRITTEN = 1 << 18  # bytes of sums that a kernel takes to the host: a copy takes longer to begin


class SpanSums(NamedTuple):
    """The launches that add up some points of some items, the first of them ``first``."""

    run: ScheduledLaunch
    add: Launch | None  # None: ``run`` does it
    first: int

    def __call__(self, goal: dict[str, int | float], sums: int, nonfinite: int) -> None:
        """Start them; arrays by their addresses."""
        if nonfinite:
            nonfinite += 16 * self.first
        self.run(**goal, sums=sums + 8 * self.first, nonfinite=nonfinite)
        if self.add is not None:
            self.add(sums=sums + 8 * self.first)


class LossStep:
    """The launches of a loss in one pass over all parameter sets and points, which can be repeated.

    ``interpret`` cuts chunks for a new population alone; ``add`` adds up the sums' parts, where there are any;
    ``shape`` is that of the parameters; ``rooms``, of sums that are for the host: where the host's parameters are put,
    and few sums.
    """

    def __init__(
        self,
        immediates: Immediates,
        interpret: ScheduledLaunch,
        add: Launch | None,
        shape: tuple[int, ...],
        rooms: tuple[LockedRoom, LockedRoom] | None,
    ) -> None:
        self._immediates, self._shape, self._rooms, launcher = immediates, shape, rooms, immediates.launcher
        self._device, n_items = launcher.device, shape[0] * shape[1]
        device, self._is_copied = self._device, bool(rooms) and 8 * n_items > MOST_WRITTEN
        self._launches = [interpret.cut, immediates.launch(shape), interpret.run, *([add] if add else [])]
        cut, self._make, self._run = self._launches[:3]
        self._summing, self._hand, self._ticket, end = self._launches[-1], None, 0, Sequence(())
        if rooms:
            self._there = device.xp.empty(shape[:2], np.float64)
            self._params, there = rooms[0].shaped(shape, launcher.dtype), device.pointer(self._there)
            self._places = rooms[0].address, there
            if self._is_copied:
                self._lent = LentRooms(device, 8 * n_items)
                end = device.sequence([device.copying(there, 0, 8 * n_items)]).then(device.waiting())
            else:
                self._sums, self._told = rooms[1].shaped(shape[:2], np.float64), device.locked((1,), np.int64)
                self._told[0], told = self._ticket, device.pointer(self._told)
                hand = self._hand = launcher.handing_over(n_items, self._there, rooms[1].address, told)
                end = hand.again.then(device.arriving(told, field_address(hand.arguments, "ticket")))
                hand.renew()
                self._launches.append(hand)
        rest = self._run.again.then(*([add.again] if add else []), end)
        self._again = rest if shape[-1] == 0 else self._make.again.then(rest)  # no parameters: they stay
        self._first = cut.first.then(self._make.first, rest)  # which may begin when all before have ended

    def is_ready(self) -> bool:
        """Whether it can be made of the present programs: their immediates still have room where they had."""
        if self._run.is_present():
            return True
        try:
            return not self._immediates.take_memory(self._shape[0])
        except self._device.out_of_memory:
            return False

    def __call__(self, params: Any, goal: dict[str, int | float], out: Any) -> Any | None:
        """The sums, into ``out`` or new memory: for the host when they are there, on the device as soon as it can.

        ``goal``: what they are compared with, by its addresses.  None: memory is short.
        """
        if self._rooms:
            return self._for_host(params, goal, out)
        try:
            sums = self._device.xp.empty(self._shape[:2], np.float64) if out is None else out
        except self._device.out_of_memory:  # the engine has words for that
            return None
        source, read = self._immediates.reachable(params)
        self._queue(source, goal, self._device.pointer(sums))
        if read is not None:
            read.record()
        return sums

    def _for_host(self, params: Any, goal: dict[str, int | float], out: np.ndarray | None) -> np.ndarray:
        source, there = self._places
        if isinstance(params, np.ndarray):
            np.copyto(self._params, params)
            count_in(params.nbytes)
        else:
            source = self._device.pointer(params)
        sums: np.ndarray
        if self._is_copied:
            sums = self._lent.array(self._shape[:2], np.float64) if out is None else out
            for calls in (self._again, self._first):
                calls.change(-2, 0, sums.ctypes.data)
        self._queue(source, goal, there)
        count_out(self._there.nbytes)
        if self._is_copied:
            return sums
        if out is None:
            return self._sums.copy()
        out.reshape(self._sums.shape)[...] = self._sums
        return out

    def _queue(self, params: int, goal: dict[str, int | float], sums: int) -> None:
        """Start making the sums; all by their addresses on the device, or parameters by that of page-locked memory."""
        calls = self._again if self._run.is_present() else self._renewed()
        self._make.arguments.params = params
        put(self._run.arguments, goal)
        self._summing.arguments.sums = sums
        if self._hand:
            self._ticket += 1
            self._hand.arguments.ticket = self._ticket
        calls()

    def _renewed(self) -> Sequence:
        """The calls for a new population, whose launches know it now."""
        for launch in self._launches:
            launch.renew()
        self._immediates.made(self._shape)
        return self._first


class KeptStep:
    """The launches of the last call of a loss, for parameters like its ``params`` and sums like its ``out``.

    The engine keeps ``step``, and lets it go where memory is short; ``epoch`` is the engine's: False as soon as
    populations are of other sizes.
    """

    __slots__ = ("_epoch", "_kinds", "_shape", "_step")

    def __init__(self, step: LossStep, params: Any, out: Any, epoch: list[bool]) -> None:
        self._step, self._epoch, self._shape = weakref.ref(step), epoch, params.shape
        self._kinds = type(params), type(out)

    def __call__(self, params: Any, goal: dict[str, int | float], out: Any) -> Any | None:
        """The sums (``LossStep``); None: they have to be asked for anew."""
        step = self._step()
        if (type(params), type(out)) != self._kinds or params.shape != self._shape:
            return None
        if step is None or not (self._epoch[0] and step.is_ready()):
            return None
        return step(params, goal, out)


class PreparedSums:
    """A loss made ready on the device: macros of its kernel, and arguments that hold numbers of the points."""

    __slots__ = ("_goal", "at", "kept", "macros")

    def __init__(self, device: Any, macros: dict[str, Any], goal: dict[str, Any]) -> None:
        self.macros, self._goal, self.at = macros, goal, addressed(goal, device)
        self.kept: KeptStep | None = None

    @classmethod
    def of_text(
        cls,
        device: Any,
        settings: Precision,
        dtype: np.dtype,
        loss: loss_code.Tokens,
        columns: np.ndarray,
        counted: bool,
    ) -> PreparedSums | None:
        """A loss that is a text, made ready; None where there can be no kernel.

        ``columns`` (n_columns, n_points) are what it reads beside f; the last says how much a point counts if it is
        ``counted``.
        """
        function = loss_code.function(loss, settings.operators)
        if function is None:
            return None
        with np.errstate(over="ignore"):
            numbers = device.xp.asarray(columns.astype(dtype))
        text = opcodes.source(settings.operators, function)
        macros = {"TASK": "TEXT", "WEIGHTED": int(counted), "TARGETS": len(columns), "text": text}
        several = len(columns) > 1
        goal = {"target": numbers[0], "beside": numbers[1] if several else None}
        if counted and several:
            goal["weights"] = numbers[-1]
        return cls(device, macros, goal)
