"""Calls of the driver that are made one after the other in machine code: a step's launches, copies and waits.

In: addresses of functions and their arguments, as numbers.  Out: ``Sequence``, which is called to make them all.  A
call from Python takes longer than the driver needs for a launch, so what belongs together is one; arguments lie
where the driver reads them, and are changed there.

    >>> import ctypes
    >>> from exprkit.runtime.calls import DriverCall, Sequence
    >>> function = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(abs)  # whose result, not 0, is an error here
    >>> absolute = ctypes.cast(function, ctypes.c_void_p).value
    >>> Sequence([DriverCall(absolute, (0,)), DriverCall(absolute, (0,))])()
    >>> Sequence([DriverCall(absolute, (0,)), DriverCall(absolute, (-719,))])()
    Traceback (most recent call last):
    exprkit.runtime.calls.DriverError: error 719 of the driver
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np
from numba import carray

from exprkit.runtime.intrinsics import atomic_load, call_status, pause, pointer
from exprkit.runtime.jit import compiled

FEW, MOST = 4, 11  # arguments: of most functions, and of cuLaunchKernel
# of a row; behind them the arguments; the stream goes to an address or, if that is less than 0, to argument ~place
FUNCTION, IS_LONG, STREAM_PLACE, FIRST = range(4)
ROW = FIRST + MOST
ROOM = (0,) * MOST  # for arguments
STREAM = object()  # stands for the stream that a sequence runs on
LOOK = 0  # in place of a function: look until the numbers at two addresses are equal, and then leave out the next call
# Windows' driver starts nothing before somebody asks to wait
BATCHES = sys.platform == "win32" or "microsoft" in platform.release().lower()
LOOKS = 0 if BATCHES else 1 << 14  # before that call is made after all: some tenths of a millisecond
SHIFT = 10  # of a status; below it stands which call it was


class DriverError(RuntimeError):
    """An error that the driver has no words for here."""


class DriverCall(NamedTuple):
    """A function of the driver's, and what it is called with."""

    function: int
    arguments: tuple[Any, ...]  # whole numbers, addresses, STREAM
    stream_place: int = 0  # an address where the stream's is to be written before, where it is no argument
    keep: Any = None  # what must not go away: memory that arguments point to
    name: str = ""  # of a kernel that it starts


class Sequence:
    """Calls, to be made in this order as often as wanted.

    Parameters
    ----------
    calls : iterable of DriverCall
    stream : function without arguments
        Gives the address of the stream to run on.
    error : function
        Makes the exception of a status.
    table : int64 array, optional
        Other calls in place of these (``table_of``, ``repeated``).
    """

    __slots__ = ("_error", "_length", "_stream", "_table", "_where", "calls")

    def __init__(
        self,
        calls: Iterable[DriverCall],
        stream: Callable[[], int] = int,
        error: Callable[[int], Exception] | None = None,
        table: np.ndarray | None = None,
    ) -> None:
        self.calls, self._stream, self._error = tuple(calls), stream, error or _error
        self._table = table_of(self.calls) if table is None else np.ascontiguousarray(table)
        self._where, self._length = self._table.ctypes.data, len(self._table)

    def __call__(self) -> None:
        """Make them all; after one that gives an error, none."""
        if error := _run(self._where, self._length, self._stream()):
            raise self._error(error >> SHIFT)

    def change(self, call: int, argument: int, number: int) -> None:
        """Make one of the calls with another number for one of its arguments from now on."""
        self._table[call, FIRST + argument] = number

    def then(self, *others: Sequence) -> Sequence:
        """These calls and others behind them."""
        return type(self)((call for sequence in (self, *others) for call in sequence.calls), self._stream, self._error)


def table_of(calls: Iterable[DriverCall]) -> np.ndarray:
    """Calls as a table of whole numbers, a row each."""
    numbers: list[int] = []
    for call in calls:
        place, given = call.stream_place, call.arguments
        if STREAM in given:
            i = given.index(STREAM)
            place, given = ~i, (*given[:i], 0, *given[i + 1 :])
        numbers += call.function, len(given) > FEW, place, *given, *ROOM[len(given) :]
    return np.array(numbers, np.int64).reshape(-1, ROW)


def repeated(call: DriverCall, arguments: dict[int, np.ndarray]) -> np.ndarray:
    """The table of a call that is made many times, with these numbers for some of its arguments, by position."""
    rows = np.repeat(table_of([call]), len(next(iter(arguments.values()))), axis=0)
    for position, numbers in arguments.items():
        rows[:, FIRST + position] = numbers
    return rows


def row_addresses(array: np.ndarray) -> np.ndarray:
    """Where the rows of an array are."""
    return array.ctypes.data + array.strides[0] * np.arange(len(array), dtype=np.int64)


def arrival(place: int, wanted: int) -> DriverCall:
    """A call that skips the next one where a device writes the number at ``wanted`` to ``place`` soon.

    To look at memory takes less than to ask the driver, whose answer comes later, too.
    """
    return DriverCall(LOOK, (place, wanted, LOOKS))


def masks(kind: Any, numbers: dict[str, int | float]) -> tuple[Any, Any]:
    """Two structs of ctypes's kind, of whole words of 8 bytes: with numbers by their fields' names, and bits where."""
    own, masked = kind(), kind()
    for name, number in numbers.items():
        setattr(own, name, number)
        field = getattr(kind, name)
        ctypes.memset(ctypes.addressof(masked) + field.offset, 0xFF, field.size)
    return own, masked


def _error(status: int) -> Exception:
    return DriverError(f"error {status} of the driver")


@compiled
def merge(source, place, own, masked, n_words):
    """Copy words from address to address, but for bits that are ``masked`` those of one's ``own``."""
    given, to = carray(pointer(source), n_words, np.int64), carray(pointer(place), n_words, np.int64)
    mine, mask = carray(pointer(own), n_words, np.int64), carray(pointer(masked), n_words, np.int64)
    for k in range(n_words):
        to[k] = given[k] & ~mask[k] | mine[k]


@compiled
def _run(table, n, stream):
    """Make n calls; 0, or the first error's number and which call it was."""
    k = 0
    while k < n:
        row = carray(pointer(table + 8 * ROW * k), ROW, np.int64)
        if row[STREAM_PLACE] < 0:
            row[FIRST + ~row[STREAM_PLACE]] = stream
        elif row[STREAM_PLACE]:
            carray(pointer(row[STREAM_PLACE]), 1, np.int64)[0] = stream
        function, a = row[FUNCTION], row[FIRST:]
        status = 0
        if function == LOOK:
            k += _is_there(a[0], a[1], a[2])
        elif row[IS_LONG]:
            status = call_status(function, (a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10]))
        else:
            status = call_status(function, (a[0], a[1], a[2], a[3]))
        if status:
            return status << SHIFT | k
        k += 1
    return 0


@compiled
def _is_there(place, wanted, looks):
    """1 as soon as the numbers at two addresses are equal, 0 after so many looks."""
    for _ in range(looks):
        if atomic_load(place) == atomic_load(wanted):
            return 1
        pause()
    return 0
