"""Budgets of a search: time, work and memory.

In: what the user allows.  Out: ``Ended``, raised by ``check`` where a limit is reached, and by ``run`` soon after.
Time in which the work itself compiles loops, which is once on a machine, is none of its own.

What a search does next depends on the work that it has counted, never on the clock: that alone ends it, so that on a
busy machine a search does the same, and less of it.  Functions of any room count what they do with ``spend`` and
``count``, and end at a limit with ``check``, all of the budget that is ``counting`` where they are called.

    >>> from exprkit.runtime.budget import Budget, Ended, spend
    >>> budget = Budget(max_evals=10)
    >>> budget.count(11)
    >>> try:
    ...     budget.check()
    ... except Ended as ended:
    ...     print(ended)
    11 functions were tried
    >>> budget = Budget(seconds=60)
    >>> is_over, never = budget.part(0.5), Budget().part(0.0)
    >>> budget.spend(31)
    >>> is_over(), never()
    (True, False)
    >>> with budget.counting():
    ...     spend(2)
    >>> budget.work
    33000000
    >>> Budget().run(lambda: 42)
    42
    >>> late = Budget(seconds=60)
    >>> late.keep_back(1.0), late.is_over
    (None, True)
"""

from __future__ import annotations

import contextlib
import contextvars
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from numba.core import event

from exprkit.runtime import jit
from exprkit.runtime.progress import look

PATIENCE = 0.4  # seconds after its end that work has to see it by itself
TICK = 0.05  # seconds between two looks at the clock from outside
SHOW = object()  # what work says that wants to be shown

Result = TypeVar("Result")


class _CompileClock:
    """The seconds in which threads of one context compiled loops; Numba's lock lets one thread at a time."""

    def __init__(self) -> None:
        self._depth, self._begin, self._before = 0, 0.0, 0.0

    def start(self) -> None:
        if not self._depth:
            self._begin = time.perf_counter()
        self._depth += 1

    def stop(self) -> None:
        if self._depth == 1:  # what is begun within it is part of it
            now = time.perf_counter()
            self._before, self._begin = self._before + now - self._begin, now
        self._depth = max(self._depth - 1, 0)

    @property
    def seconds(self) -> float:
        return self._before + (time.perf_counter() - self._begin if self._depth else 0.0)


class _CompileEvents(event.Listener):
    """Sets the clock of the context in which Numba compiles; what others compile meanwhile is no time of a search."""

    def on_start(self, event: Any) -> None:
        if (clock := _CLOCK.get()) is not None:
            clock.start()

    def on_end(self, event: Any) -> None:
        if (clock := _CLOCK.get()) is not None:
            clock.stop()


_CLOCK: contextvars.ContextVar[_CompileClock | None] = contextvars.ContextVar("exprkit compile clock", default=None)
_COUNTING: contextvars.ContextVar[Budget | None] = contextvars.ContextVar("exprkit budget", default=None)
for _kind in ("numba:compile", jit.WAITING):
    event.register(_kind, _CompileEvents())


def spend(seconds: float) -> None:
    """Count work that takes so long where it was measured, in the budget that is ``counting`` here, if one is."""
    if (budget := _COUNTING.get()) is not None:
        budget.spend(seconds)


def count(n: int) -> None:
    """Count n functions as tried, in the same budget."""
    if (budget := _COUNTING.get()) is not None:
        budget.count(n)


def check(seconds: float = 0.0) -> None:
    """Count work of so many seconds, then raise ``Ended`` where the same budget has reached a limit."""
    if (budget := _COUNTING.get()) is not None:
        budget.spend(seconds)
        budget.check()


class Ended(Exception):
    """A limit was reached: no error, but the end of the search; says which."""


class Budget:
    """The limits of a search, and what it has used of them.

    Parameters
    ----------
    shown : called at every look, where ``run`` or ``check`` was called; None: nobody is
    begin : when it began, of ``time.perf_counter``, if not now
    by_work : whether ``seconds`` limits the counted work, which is the same on every machine, and not the clock's time
    """

    def __init__(
        self,
        seconds: float | None = None,
        max_evals: int | None = None,
        shown: Callable[[], None] | None = None,
        most_bytes: float | None = None,
        begin: float | None = None,
        by_work: bool = False,
    ) -> None:
        self._begin = time.perf_counter() if begin is None else begin
        if (clock := _CLOCK.get()) is None:
            _CLOCK.set(clock := _CompileClock())
        self._clock, self._compiled = clock, clock.seconds
        self._seconds, self._max_evals, self._shown = seconds, max_evals, shown
        self._most_bytes, self._by_work, self.n_evals = most_bytes, by_work, 0
        self.work = 0  # microseconds of a core that is known (``spend``)
        self._is_left = False  # by who waited for its end
        self._kept_back = 0.0  # seconds
        self.raised: Exception | None = None  # by a function of the user's

    @property
    def seconds(self) -> float:
        """Since the search began, without those in which it compiled loops."""
        return max(0.0, time.perf_counter() - self._begin - (self._clock.seconds - self._compiled))

    @property
    def used(self) -> float:
        """Seconds of what is limited: of the clock, or of counted work."""
        return self.work / 1e6 if self._by_work else self.seconds

    def part(self, share: float) -> Callable[[], bool]:
        """Whether work for such a share of the time has been done since now; never where time has no limit."""
        end = math.inf if self._seconds is None else self.work + 1e6 * share * self._seconds
        return lambda: self.work >= end

    @property
    def limit(self) -> float | None:
        """Seconds of all of it."""
        return self._seconds

    def shared(self, share: float) -> Budget:
        """A budget for a share of what is left of the time and of the functions, which ends where this one does."""
        seconds = None if self._seconds is None else share * max(self._seconds - self._kept_back - self.used, 0.0)
        evals = None if self._max_evals is None else int(share * max(self._max_evals - self.n_evals, 0))
        return Budget(seconds, evals, self.check, by_work=self._by_work)

    def spend(self, seconds: float) -> None:
        """Count work that takes so long where it was measured, whatever it takes here and now."""
        self.work += round(1e6 * seconds)

    @contextlib.contextmanager
    def counting(self) -> Iterator[None]:
        """A context in which ``spend`` counts here."""
        before = _COUNTING.set(self)
        try:
            yield
        finally:
            _COUNTING.reset(before)

    def keep_back(self, share: float) -> None:
        """From now on end so much of the time earlier, for what is to be done then."""
        self._kept_back = share * (self._seconds or 0.0)

    @property
    def is_over(self) -> bool:
        """Whether the time is, but for what is kept back."""
        return self._seconds is not None and self.used >= self._seconds - self._kept_back

    @property
    def is_spent(self) -> bool:
        """Whether it is, or as many functions as may be were tried."""
        return self.is_over or (self._max_evals is not None and self.n_evals >= self._max_evals)

    @property
    def spent(self) -> tuple[float, float, str] | None:
        """Use, limit and unit of the time or, where that has no limit, of the functions; None where neither has one."""
        if self._seconds is not None:
            return min(self.used, self._seconds), self._seconds, "s"
        return None if self._max_evals is None else (min(self.n_evals, self._max_evals), self._max_evals, "functions")

    def count(self, n: int) -> None:
        """Count n more functions that were tried."""
        self.n_evals += n

    def check(self, n_bytes: float = 0) -> None:
        """Go on, or raise ``Ended``, or what a ``look`` does."""
        look()
        if self._is_left:
            raise Ended("it was left alone")
        if self._shown is not None:
            with self.of_user():
                self._shown()
        if self._max_evals is not None and self.n_evals >= self._max_evals:
            raise Ended(f"{self.n_evals:,} functions were tried")
        self._check_time(-self._kept_back)
        if self._most_bytes is not None and n_bytes > self._most_bytes:
            raise Ended(f"{self._most_bytes / 1e6:.3g} MB are taken")

    @contextlib.contextmanager
    def of_user(self) -> Iterator[None]:
        """A context for calls of the user's functions, whose errors are no errors of the search: ``raised``."""
        try:
            yield
        except Exception as error:
            self.raised = error
            raise

    def _check_time(self, patience: float = 0.0) -> None:
        if self._seconds is not None and self.used >= self._seconds + patience:
            raise Ended(f"{self._seconds:g} s {'of work are counted' if self._by_work else 'are over'}")

    def run(self, work: Callable[[], Result]) -> Result:
        """The result of ``work``, which calls ``check`` every now and then, in a thread of its own.

        Where it does not look for PATIENCE seconds after the time is over, in the middle of a kernel that is compiled
        say, it is left alone, and ends at its next look.  The same after an interrupt.

        Raises
        ------
        Ended
            If it was left alone; and what ``work`` raises.
        KeyboardInterrupt
            After an interrupt, when the work has ended or was left alone.
        """
        said: queue.SimpleQueue[Any] = queue.SimpleQueue()  # SHOW, or what was found and an error
        answers: queue.SimpleQueue[BaseException | None] = queue.SimpleQueue()
        shown = self._shown

        def ask() -> None:
            said.put(SHOW)
            if (error := answers.get()) is not None:
                raise error

        self._shown = shown and ask
        threading.Thread(
            target=contextvars.copy_context().run, args=(_announced, work, said), name="exprkit-search"
        ).start()
        try:
            result, error = self._followed(said, answers, shown)
        except BaseException as left:
            self._is_left = True
            answers.put(Ended("it was left alone"))
            if isinstance(left, KeyboardInterrupt):
                _ended(said)
            raise
        finally:
            self._shown = shown
        if error is not None:
            raise error
        return result

    def _followed(self, said: Any, answers: Any, shown: Callable[[], None] | None) -> Any:
        """Wait for the result and the error of the work; answers what it says meanwhile."""
        while True:
            try:
                message = said.get(timeout=TICK)
            except queue.Empty:
                if not self._by_work:  # which its own checks see at the same place every time
                    self._check_time(PATIENCE)
                continue
            if message is not SHOW:
                return message
            try:
                assert shown is not None
                shown()
                answers.put(None)
            except BaseException as error:  # it is the work's to see
                answers.put(error)


def _announced(work: Callable[[], Any], said: Any) -> None:
    try:
        said.put((work(), None))
    except BaseException as error:
        said.put((None, error))


def _ended(said: Any) -> None:
    """Wait for the end of work that was told of it; not for long."""
    with contextlib.suppress(queue.Empty):
        while said.get(timeout=PATIENCE) is SHOW:
            pass
