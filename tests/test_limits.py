"""A search ends soon after its time is over, or after an interrupt, whatever it does then."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from numba.core import event

import exprkit as ek
from exprkit.backends.gpu import device as gpu
from exprkit.regression.estimator import regressor
from exprkit.regression.generations import evolution
from exprkit.regression.on_device import triples as device_triples
from exprkit.regression.on_device.join import DevicePartners
from exprkit.regression.on_device.pool import DevicePool
from exprkit.regression.pairs import confirm, join, pool, triples
from exprkit.regression.problem import effort
from exprkit.regression.problem.rows import Rows
from exprkit.regression.shapes import templates
from exprkit.regression.stages import exact, search, search_problem, sums
from exprkit.runtime import budget, slices
from exprkit.runtime.budget import Budget, Ended

SOON = 1.0  # seconds: those of the promise
QUICK = {"random_state": 0, "niterations": 3, "population_size": 60, "pool_size": 60, "maxsize": 12}
STAGES = [
    (join, "Partners", "of"), (triples, "", "formulas"), (sums, "", "singles"), (sums, "", "sums"),
    (templates, "", "nested"), (sums, "", "best_pairs"), (pool, "Pool", "multiply"),
    (evolution, "Evolution", "immigrate"), (evolution, "Evolution", "generation"),
    (search_problem, "SearchProblem", "fitted"), (search, "FormulaSearch", "tidy"),
]  # fmt: skip


def data(n=200):
    X = np.random.default_rng(0).uniform(0.5, 3, (n, 3))
    return X, np.random.default_rng(9).standard_normal(n)


@pytest.fixture
def stuck(monkeypatch):
    """Makes a function wait where it is called first, just as the time is over; when that was."""
    budgets, begun, release = [], [], threading.Event()

    class Kept(Budget):
        def __init__(self, *given, **named):
            super().__init__(*given, **named)
            budgets.append(self)

    monkeypatch.setattr(regressor, "Budget", Kept)
    monkeypatch.setattr(budget, "PATIENCE", 0.05)

    def hold(owner, name, end=lambda one: setattr(one, "_seconds", one.seconds)):
        function = getattr(owner, name)

        def waiting(*given, **named):
            if not begun:
                begun.append(time.perf_counter())
                end(budgets[-1])
                release.wait(30)
            return function(*given, **named)

        monkeypatch.setattr(owner, name, waiting)

    yield hold, begun
    release.set()
    for thread in threading.enumerate():
        if thread.name == "exprkit-search":
            thread.join(30)
            assert not thread.is_alive(), "what was left alone ends at its next look"


@pytest.mark.slow
@pytest.mark.parametrize("place", STAGES, ids=lambda place: f"{place[1]}.{place[2]}")
def test_a_timeout_holds_in_every_stage(stuck, busy, place):
    hold, begun = stuck
    module, owner, name = place
    hold(getattr(module, owner) if owner else module, name)
    model = ek.SymbolicRegressor(**QUICK | {"pool_size": 1500 if module is triples else 60}).fit(*data())
    assert begun and time.perf_counter() - begun[0] < SOON * busy()
    assert model.stopped_.endswith("s are over") or name == "tidy"
    assert len(model.equations_) >= 1 and np.isfinite(model.predict(data()[0])).all()


@pytest.mark.slow
def test_a_timeout_holds_in_every_stage_of_a_gpu(device, stuck, busy, monkeypatch):
    if device.xp is np:
        device.name, device.architecture = "emulated", "none"
        monkeypatch.setattr(gpu, "missing", lambda: None)
        monkeypatch.setattr(gpu, "names", lambda: [device.name])
        monkeypatch.setattr(gpu, "current", lambda: device)
    pools = replace(effort.POOLS, host_sizes=(200, 400), device_sizes=(800, 1000))
    monkeypatch.setattr(effort, "POOLS", pools)
    hold, begun = stuck
    settings = QUICK | {"backend": "cuda", "niterations": 1, "pool_size": 1200}
    for owner, name in (
        (DevicePool, "grow"), (DevicePartners, "__init__"), (DevicePartners, "of"), (device_triples, "triples"),
        (sums, "regressed"), (evolution.Evolution, "generation"),
    ):  # fmt: skip
        begun.clear()
        hold(owner, name)
        model = ek.SymbolicRegressor(**settings).fit(*data())
        assert begun and time.perf_counter() - begun[0] < SOON * busy(), name
        assert model.stopped_.endswith("s are over") and len(model.equations_) >= 1


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupt_is_answered_in_the_middle_of_anything(stuck, busy):
    hold, begun = stuck
    hold(confirm, "confirmed", end=lambda one: None)
    hold(exact, "confirmed", end=lambda one: os.kill(os.getpid(), signal.SIGINT))
    X, _ = data()
    model = ek.SymbolicRegressor(**QUICK).fit(X, X[:, 0] / (1.5 + X[:, 1]))
    assert begun and time.perf_counter() - begun[0] < SOON * busy() and model.interrupted_
    assert model.stopped_ == "it was interrupted" and len(model.equations_) >= 1


def test_work_is_shown_where_it_was_called_and_its_errors_come_back():
    seen = []
    one = Budget(shown=lambda: seen.append(threading.current_thread()))
    assert one.run(lambda: one.check() or threading.current_thread()) != threading.main_thread()
    assert seen == [threading.main_thread()]
    with pytest.raises(ZeroDivisionError):
        one.run(lambda: 1 / 0)

    def told():
        raise Ended("somebody said so")

    other = Budget(shown=told)
    with pytest.raises(Ended, match="somebody said so"):
        other.run(other.check)
    with pytest.raises(Ended, match="somebody said so"):
        other.check()


def test_work_that_was_left_alone_ends_at_its_next_look(monkeypatch):
    monkeypatch.setattr(budget, "PATIENCE", 0.02)
    one, release, how = Budget(seconds=0.02), threading.Event(), []

    def work():
        release.wait(30)
        try:
            one.check()
        except Ended as ended:
            how.append(str(ended))

    with pytest.raises(Ended, match=r"0\.02 s are over"):
        one.run(work)
    release.set()
    next(thread for thread in threading.enumerate() if thread.name == "exprkit-search").join(30)
    assert how == ["it was left alone"]


# ── very many rows ──


def test_rows_are_sorted_as_by_all_their_columns():
    random = np.random.default_rng(3)
    X = random.integers(0, 3, (500, 3)).astype(float)
    y, w = random.integers(0, 2, 500).astype(float), random.uniform(1, 2, 500)
    for merged in (True, False):
        rows = Rows(X, y, w, merged=merged)
        found = np.column_stack([rows.X, rows.y, rows.w])
        wanted = np.column_stack([X, y, w])[np.lexsort((w, y, *X.T[::-1]))]
        if not merged:
            assert np.array_equal(found, wanted)
        else:
            keys, place = np.unique(wanted[:, :4], axis=0, return_inverse=True)
            assert np.array_equal(found[:, :4], keys)
            np.testing.assert_allclose(found[:, 4], np.bincount(place, wanted[:, 4]))


def test_some_of_the_rows_have_both_values_of_a_column_of_0_and_1():
    random = np.random.default_rng(0)
    X = np.column_stack([random.integers(0, 2, 2000), random.uniform(1, 2, 2000)]).astype(float)
    X[::50, 1] = 0.0
    few = Rows(X, X[:, 0] + X[:, 1] + 1).subsample(32, 0)
    assert 5 < few.X[:, 0].sum() < 27 and (few.X[:, 1] != 0).all()


def test_a_law_of_very_many_rows_is_found_with_a_column_of_0_and_1(monkeypatch):
    monkeypatch.setattr(effort, "ROWS", replace(effort.ROWS, search=500))
    random = np.random.default_rng(0)
    X = np.column_stack([random.integers(0, 2, 3000), random.uniform(1, 2, 3000)]).astype(float)
    model = ek.SymbolicRegressor(random_state=0, niterations=0, pool_size=3000).fit(X, 2.5 * X[:, 1] + 1.5 * X[:, 0])
    assert model.stopped_ == "a formula is exact" and model.get_best().complexity == 7


@pytest.mark.slow
def test_compiling_loops_takes_none_of_the_time():
    """A first search of a few seconds would find nothing."""
    work = Budget(seconds=0.5)
    with event.trigger_event("numba:compile"), event.trigger_event("numba:compile"):
        time.sleep(0.3)
        assert work.seconds < 0.3 and not work.is_over
        time.sleep(0.3)
    work.check()
    time.sleep(0.5)
    with pytest.raises(Ended, match=r"0\.5 s are over"):
        work.check()


def test_what_another_thread_compiles_takes_time_of_the_search():
    """Else a limit of 10 s does not hold where something else is compiled beside the search."""
    begun, compiled = threading.Event(), threading.Event()

    def compile_something():
        with event.trigger_event("numba:compile"):
            begun.set()
            compiled.wait(30)

    other = threading.Thread(target=compile_something)
    other.start()
    begun.wait(30)
    work = Budget(seconds=0.02)
    time.sleep(0.03)
    is_over = work.is_over
    compiled.set()
    other.join()
    assert is_over


def test_what_threads_compile_for_the_work_takes_none_of_its_time():
    work, begin = Budget(seconds=1000.0), time.perf_counter()

    def compile_something(begin, end):
        with event.trigger_event("numba:compile"):
            time.sleep(0.1)

    slices.each(compile_something, [(0, 1), (1, 2)])
    assert time.perf_counter() - begin - work.seconds >= 0.09
