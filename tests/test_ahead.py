"""Calls that begin before those before them have ended."""

from __future__ import annotations

import contextlib
import threading
from contextvars import ContextVar

import pytest

from exprkit.distributed import ahead
from exprkit.runtime.budget import Ended
from exprkit.runtime.progress import look

TOLD: ContextVar[str] = ContextVar("told", default="")


def test_results_are_in_order_with_the_caller_s_context():
    token = TOLD.set("here")
    try:
        assert list(ahead.each(lambda n: (n, TOLD.get()), range(5), 3, "numbers")) == [(n, "here") for n in range(5)]
    finally:
        TOLD.reset(token)
    assert list(ahead.each(str, [], 2, "nothing")) == []


def test_two_calls_run_at_a_time_and_no_more():
    both, begun = threading.Barrier(2, timeout=10), []

    def call(n):
        begun.append(n)
        both.wait()
        return n

    results = ahead.each(call, iter(range(6)), 2, "pairs")
    assert next(results) == 0 and sorted(begun) in ([0, 1], [0, 1, 2])
    assert list(results) == [1, 2, 3, 4, 5]


def test_an_error_ends_the_calls_that_run():
    begun, told = threading.Event(), []

    def call(n):
        if n == 0:
            assert begun.wait(10)
            raise ValueError("the first one")
        begun.set()
        try:
            for _ in range(1000):
                threading.Event().wait(0.01)
                look()
        except Ended as error:
            told.append(str(error))
            raise

    with pytest.raises(ValueError, match="the first one"):
        list(ahead.each(call, range(9), 2, "errors"))
    assert told == ["nobody waits for it"]


def test_who_stops_asking_ends_them():
    begun, told = threading.Event(), []

    def call(n):
        assert n or begun.wait(10)
        begun.set()
        with contextlib.suppress(Ended):
            for _ in range(1000 if n else 0):
                threading.Event().wait(0.01)
                look()
            return n
        told.append(n)
        return None

    results = ahead.each(call, range(9), 2, "left")
    assert next(results) == 0
    results.close()
    assert told == [1]


def test_one_thread_makes_the_next_call_while_its_result_before_is_used():
    running, most, begun = [], [], [threading.Event() for _ in range(4)]

    def call(n):
        running.append(n)
        begun[n].set()
        most.append(len(running))
        running.remove(n)
        return n

    for n in ahead.each(call, range(4), 2, "pipeline", threads=1):
        assert begun[min(n + 1, 3)].wait(10)
    assert most == [1] * 4


def test_calls_that_complete_do_so_where_the_items_end_early():
    begun, completed = threading.Event(), []

    def items():
        yield from range(2)
        assert begun.wait(10)
        raise KeyboardInterrupt

    def call(n):
        begun.set()
        for _ in range(30):
            threading.Event().wait(0.01)
            look()
        completed.append(n)

    with pytest.raises(KeyboardInterrupt):
        list(ahead.each(call, items(), 3, "completed", threads=1, completes=True))
    assert completed == [0, 1]
