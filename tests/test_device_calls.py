"""What losses and new populations ask of a device that is not the host: the right numbers, with few calls."""

from __future__ import annotations

import itertools
import sys
import time
import types
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from counting_device import CALLS, CountingDevice, CountingSequence
from emulated_device import address, compiler, driver

import exprkit as ek
from exprkit.backends.device_memory import LentRooms
from exprkit.backends.device_programs import lowering
from exprkit.backends.gpu import device as gpu
from exprkit.backends.interpreter import derivatives, loss_step
from exprkit.backends.objective import Options
from exprkit.evaluate.inputs import CheckedData
from exprkit.expressions import generate
from exprkit.runtime import calls as calls_of_a_driver
from exprkit.runtime.calls import DriverCall, DriverError, Sequence, arrival
from exprkit.search.goal import SearchGoal
from exprkit.search.grammar import grammar
from exprkit.search.run import SearchPlan, SearchRun

pytestmark = pytest.mark.skipif(compiler() is None, reason="kernels need a C++ compiler")
RANDOM = np.random.default_rng(0)
X, W = RANDOM.uniform(0.5, 2, (150, 2)), RANDOM.uniform(0.5, 1, 150)
Y = X[:, 0] * X[:, 1]
POP = generate.random(40, n_tokens=(3, 15), n_vars=2, n_params=2, seed=3) + ek.parse(["oops("], errors="mask")
PARAMS = RANDOM.uniform(0.5, 2, (len(POP), POP.max_params))
LAUNCHES = {"make_immediates": 1, "interpret": 1, "add_segments": 1}


@pytest.fixture
def there(monkeypatch):
    """What brings an array to the device."""
    device = CountingDevice()
    monkeypatch.setitem(sys.modules, "cupy", device.xp)
    monkeypatch.setattr(gpu, "missing", lambda: None)
    monkeypatch.setattr(gpu, "current", lambda: device)
    return device.xp.asarray


def calls(function):
    """What a call asks of the device, but for views."""
    CALLS.clear()
    function()
    return {name: n for name, n in CALLS.items() if name not in ("view", "reshape")}


def test_a_search_compiles_its_kernels_at_its_start(there, monkeypatch):
    """Kernels that were met one after the other took 141 s on 32 cores."""
    asked, ready = [], set()

    def noted(device, wanted, beside):  # those that are launched are compiled then
        asked.append(set(wanted) - ready)
        ready.update(wanted)

    monkeypatch.setattr(derivatives, "_make_ready", noted)
    x = np.linspace(0.5, 3, 20)
    some = {"operators": ("mul", "inv"), "max_nodes": 4, "n_params": 1, "restarts": 15}
    found = ek.exhaustive_search(x[:, None], 2 / x + 0.001 * np.sin(99 * x), backend="cuda", progress=False, **some)
    assert "inv(x1) * p1" in found.texts()
    # the first functions', all fits', and those of the end; what another thread fits may ask for one alone
    alone = sum(len(kernels) == 1 for kernels in asked)
    assert len(ready) >= 6 and alone <= len(ready) / 3 and sum(len(kernels) > 1 for kernels in asked) <= 3


def test_threads_that_look_for_a_gpu_at_once_all_find_it(monkeypatch):
    """CuPy's answer is no until the first one who asked has been told."""
    known = []

    def is_available():
        if not known:
            known.append(False)
            time.sleep(0.05)
            known[0] = True
        return known[0]

    cupy = types.SimpleNamespace(cuda=types.SimpleNamespace(is_available=is_available, runtime=None))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setattr(gpu, "_installed", lambda module: True)
    monkeypatch.setattr(gpu, "_device", types.SimpleNamespace(cache_info=lambda: types.SimpleNamespace(currsize=0)))
    with ThreadPoolExecutor(4) as pool:
        assert [one.result() for one in [pool.submit(gpu.missing) for _ in range(4)]] == [None] * 4


SEARCHES = [
    ("core_maths", 8, 4, 362, "float64"), ("thesis", 5, 6, 40, "float64"), ("esr", 5, 4, 362, "float32"),
    (("add", "mul"), 9, 6, 4000, "float32"), (("exp", "inv"), 4, 3, 40, "float64"),
]  # fmt: skip


@pytest.mark.parametrize("operators, max_nodes, n_params, n_points, dtype", SEARCHES)
def test_all_kernels_that_a_search_s_fits_ask_for_are_compiled_at_its_start(
    there, monkeypatch, operators, max_nodes, n_params, n_points, dtype
):
    """Of every size's functions, in few fits and in many, and of float32 those that are made anew in float64."""
    ahead, asked = set(), set()
    monkeypatch.setattr(derivatives, "_make_ready", lambda device, wanted, beside: ahead.update(wanted))
    X, basis = np.linspace(0.5, 3, n_points)[:, None], grammar(max_nodes, operators, 1, n_params)
    data = CheckedData.of(X, 2 / (X[:, 0] + 0.7))
    goal = SearchGoal.of(data.X, data.y, max_iter=9, backend="cuda", precision="ieee", dtype=dtype, threads=2)
    search = SearchRun(SearchPlan(data, basis, goal, restarts=63, keep=100, seed=0, chunk=1 << 13, shared=None))
    for at_the_end in (False, True):
        search.compile(at_the_end)
    problem, enumeration = search.new_problem(), search.enumeration
    for _ in range(max_nodes):
        pop = search.population(enumeration.forms(enumeration.grow()))
        if not len(pop) or not pop.max_params:
            continue
        ev = problem._evaluator(pop, dtype)
        (y, w, *_), engine = problem._target(ev), ev.derivatives()
        terms, own = engine._derivatives._terms(y, w, Options()), engine._derivatives
        again = engine._in_float64(lambda pop=pop: problem._double(pop))
        for one in [own] + [again().derivatives] * (dtype == "float32"):
            for n_sets in (1, 8, 64):
                asked |= {plan.kernel for plan in one._plans("FIT", terms, True, 0, n_sets)}
        asked |= {plan.kernel for plan in own._plans("NORMAL", terms, True, 0, 1)}
    assert asked and not asked - ahead


@pytest.mark.parametrize("kind", ["sse", "rmse", "mae", "sum", "r2", "correlation"])
def test_losses_are_those_of_the_cpu(there, kind):
    wanted = ek.Evaluator(POP, X, "cpu", dtype="float64").loss(PARAMS, Y, kind, W)
    for place in (np.asarray, there):
        ev = ek.Evaluator(POP[:2], place(X), "cuda", dtype="float64")
        for pop in (POP, ek.DevicePopulation.of(POP)):
            ev.update(pop)
            given = place(PARAMS), place(Y), kind, place(W)
            out = place(np.zeros(len(POP)))
            assert ev.loss(*given, out=out) is out
            for found in (ev.loss(*given), out):
                assert type(found) is type(out)
                np.testing.assert_allclose(gpu.fetched(found), wanted, rtol=1e-5)


def test_a_prepared_loss_on_the_device_is_its_launches(there):
    ev = ek.Evaluator(POP[:-1], there(X), "cuda", dtype="float64")
    params, y, w, out = map(there, (PARAMS[:-1], Y, W, np.zeros(len(POP) - 1)))
    for weights in (None, w):
        step = ev.loss_of(y, weights=weights)
        for _ in range(3):
            assert step(params, out=out) is out
        assert calls(lambda step=step: step(params, out=out)) == LAUNCHES
        np.testing.assert_array_equal(gpu.fetched(out), gpu.fetched(ev.loss(params, y, weights=weights)))


def test_a_prepared_loss_from_the_host_waits_once(there):
    step = ek.Evaluator(POP[:-1], X, "cuda", dtype="float64").loss_of(Y)
    step(PARAMS[:-1])
    for _ in range(3):
        assert calls(lambda: step(PARAMS[:-1])) == LAUNCHES | {"hand_over": 1, "waiting": 1}


def test_losses_at_few_points_are_two_launches(there):
    """Sums for the host are taken there by a third."""
    rows, few = {"make_immediates": 1, "interpret": 1}, slice(0, 7)  # in one tile
    ev, host = (ek.Evaluator(POP[:-1], place(X[few]), "cuda", dtype="float64") for place in (there, np.asarray))
    params, y, out = map(there, (PARAMS[:-1], Y[few], np.zeros(len(POP) - 1)))
    step, of_host = ev.loss_of(y), host.loss_of(Y[few])
    for _ in range(3):
        step(params, out=out)
        wanted = of_host(PARAMS[:-1])
        np.testing.assert_array_equal(gpu.fetched(out), wanted)
    np.testing.assert_allclose(wanted, ek.Evaluator(POP[:-1], X[few], "cpu", dtype="float64").loss(PARAMS[:-1], Y[few]))
    assert calls(lambda: step(params, out=out)) == rows
    assert calls(lambda: of_host(PARAMS[:-1])) == rows | {"hand_over": 1, "waiting": 1}


def test_prepared_losses_follow_parameters_populations_and_other_launches(there):
    pop, params, few = POP[:-1], PARAMS[:-1], slice(0, 20)
    columns = {"s": W[few]}
    kinds = {"sse": {}, "mse": {"weights": W[few]}, "correlation": {}, "max": {}, "f * s": {"columns": columns}}
    sets = [params, params[::-1].copy(), np.stack([params, params + 1]), params.astype("float32")]
    for place in (np.asarray, there):

        def evaluator(pop, place=place):
            return ek.Evaluator(pop, place(X[few]), "cuda", dtype="float64")

        ev, y, out = evaluator(pop), place(Y[few]), place(np.zeros(len(pop)))
        steps = {kind: ev.loss_of(y, kind, **more) for kind, more in kinds.items()}
        for change, given in (
            (None, None),
            (ev.update, pop[::-1]),
            (ev.update, pop[:1]),
            (ev.update, pop),
            (ev.engine.using, None),
        ):
            if change:
                change(given)
            for kind, step in steps.items():
                for some in sets:
                    own = place(some[..., : len(ev.pop), :].copy())
                    wanted = gpu.fetched(evaluator(ev.pop).loss(own, y, kind, **kinds[kind]))
                    for _ in range(3):
                        np.testing.assert_array_equal(gpu.fetched(step(own)), wanted)
        for _ in range(3):
            assert steps["sse"](place(params), out=out) is out
            np.testing.assert_array_equal(gpu.fetched(out), gpu.fetched(ev.loss(place(params), y)))
        for wrong in ({"params": place(params[:3])}, {"out": place(np.zeros(3))}):
            with pytest.raises(ek.errors.DataError):
                steps["sse"](**{"params": place(params), **wrong})


def test_a_prepared_loss_holds_nothing_that_the_engine_lets_go(there):
    ev = ek.Evaluator(POP[:-1], there(X), "cuda", dtype="float64")
    params, step = there(PARAMS[:-1]), ev.loss_of(there(Y))
    for _ in range(3):
        wanted = gpu.fetched(step(params))
    launches = [weakref.ref(one) for one in ev.engine._ready.values() if isinstance(one, loss_step.LossStep)]
    assert launches
    ev.engine._forget()
    assert [one() for one in launches] == [None] * len(launches)
    for _ in range(3):
        np.testing.assert_array_equal(gpu.fetched(step(params)), wanted)


@pytest.mark.parametrize("copied", [False, True])
def test_losses_wait_once_for_the_host_and_never_on_the_device(there, monkeypatch, copied):
    """Wherever data, parameters and losses lie; many losses for the host are copied."""
    monkeypatch.setattr(loss_step, "MOST_WRITTEN", 8 if copied else 1 << 18)
    params, n = PARAMS[:-1], len(POP) - 1
    wanted = ek.Evaluator(POP[:-1], X, "cuda", dtype="float64").loss(params, Y)
    arriving = LAUNCHES | {"copy to the host" if copied else "hand_over": 1, "waiting": 1}
    for data, own, out in itertools.product((np.asarray, there), (np.asarray, there), (None, np.zeros(n), there)):
        place = there(np.zeros(n)) if out is there else out
        step = ek.Evaluator(POP[:-1], data(X), "cuda", dtype="float64").loss_of(data(Y))
        for numbers in (params + 1, params + 2, params):
            found = step(own(numbers), out=place)
        assert out is None or found is place
        np.testing.assert_array_equal(gpu.fetched(found), wanted)
        expected = arriving if isinstance(found, np.ndarray) else LAUNCHES | ({"empty": 1} if out is None else {})
        given = own(params)
        gpu.transfers()
        made = calls(lambda step=step, given=given, place=place: step(given, out=place))
        assert {name: n for name, n in made.items() if name != "event"} == expected
        moved = [params.nbytes * isinstance(given, np.ndarray), 8 * n * isinstance(found, np.ndarray)]
        assert list(gpu.transfers().values()) == [*moved, np.count_nonzero(moved)]
        before = found.copy() if out is None and isinstance(found, np.ndarray) else found
        step(own(params + 1), out=None if out is None else place)
        if out is None:  # each in memory of its own
            np.testing.assert_array_equal(gpu.fetched(found), gpu.fetched(before))


def test_memory_of_a_result_is_lent_again_when_all_of_it_is_gone():
    rooms = LentRooms(CountingDevice(), 64)
    first, second = rooms.array((2, 4), np.float64), rooms.array((8,), np.float64)
    first[:], second[:] = 1, 2
    part, address = first[1, 2:], first.ctypes.data
    del first
    third = rooms.array((8,), np.float64)
    third[:] = 3
    assert third.ctypes.data != address and part.tolist() == [1, 1] and second.tolist() == [2] * 8
    del part
    assert rooms.array((8,), np.float64).ctypes.data == address


def test_a_loss_sees_numbers_that_change_in_place_and_a_prepared_one_does_not(there):
    params = PARAMS[:-1]
    for place in (np.asarray, there):
        y, w = place(Y.copy()), place(W.copy())
        held = (y, w) if place is np.asarray else (y.array, w.array)
        ev = ek.Evaluator(POP[:-1], place(X), "cuda", dtype="float64")
        step = ev.loss_of(y, weights=w)
        before = gpu.fetched(step(place(params)))
        for array in held:
            array.fill(2)
            wanted = ek.Evaluator(POP[:-1], X, "cuda", dtype="float64").loss(params, held[0], weights=held[1])
            np.testing.assert_array_equal(gpu.fetched(ev.loss(place(params), y, weights=w)), wanted)
            np.testing.assert_array_equal(gpu.fetched(step(place(params))), before)
        held[0][3] = np.nan
        with pytest.raises(ek.errors.DataError, match="y lacks 1 of 150 values"):
            ev.loss(place(params), y)


TEXTS = [
    "abs(f - y)", "(f - y)^2 * w", "logcosh(f - y)", "huber(f - y, 0.5)", "pinball(y - f, 0.9)", "abs(sqrt(f) - y)",
    "huber(f - y, 0.5) * w", "w * log(1 + (f - y)^2)",
]  # fmt: skip


@pytest.mark.parametrize("kind", TEXTS)
def test_a_prepared_loss_of_one_s_own_waits_for_nothing(there, kind):
    """It is the launches of one that has a name."""
    ev, weights = ek.Evaluator(POP[:-1], there(X), "cuda", dtype="float64"), W if "w" in kind else None
    params, out = map(there, (PARAMS[:-1], np.zeros(len(POP) - 1)))
    for y in (Y, Y[::-1].copy()):
        step = ev.loss_of(there(y), kind, None if weights is None else there(weights))
        for _ in range(2):
            step(params, out=out)
        assert calls(lambda step=step: step(params, out=out)) == LAUNCHES
        wanted = ek.Evaluator(POP[:-1], X, "cuda", dtype="float64").loss(PARAMS[:-1], y, kind, weights)
        np.testing.assert_array_equal(gpu.fetched(out), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["((f - y) / s)^2 / 2", "logcosh((f - y) / s)", "huber(f - y, 0.5) * w"])
def test_losses_of_one_s_own_on_the_device_are_those_of_the_host(there, kind):
    columns, weights = {"s": W + 1} if "s)" in kind else None, W if "w" in kind else None
    own = columns and {"s": there(columns["s"])}, None if weights is None else there(weights)
    ev, host = (ek.Evaluator(POP[:-1], place(X), "cuda", dtype="float64") for place in (there, np.asarray))
    step, same = ev.loss_of(there(Y), kind, own[1], columns=own[0]), host.loss_of(Y, kind, weights, columns=columns)
    np.testing.assert_array_equal(gpu.fetched(step(there(PARAMS[:-1]))), same(PARAMS[:-1]))
    for found, wanted in zip(step.with_gradient(there(PARAMS[:-1])), same.with_gradient(PARAMS[:-1]), strict=True):
        np.testing.assert_array_equal(gpu.fetched(found), wanted)


def test_an_error_of_the_driver_is_told():
    with pytest.raises(DriverError, match="error 719 of the driver"):
        Sequence([DriverCall(address(driver().fail), (719,))])()


def test_a_number_that_arrives_makes_waiting_unnecessary(monkeypatch):
    monkeypatch.setattr(calls_of_a_driver, "LOOKS", 5)
    numbers = np.array([0, 1])
    place, wanted = numbers.ctypes.data, numbers[1:].ctypes.data
    waited, failed = (DriverCall(address(driver().fail), (status,)) for status in (7, 8))
    for is_there, error in ((False, 7), (True, 8)):
        numbers[0] = is_there
        with pytest.raises(DriverError, match=f"error {error} of the driver"):
            Sequence([arrival(place, wanted), waited, failed])()


def test_a_new_population_waits_twice(there):
    pop, params = ek.DevicePopulation.of(POP[:-1]), there(PARAMS[:-1])
    ev = ek.Evaluator(pop, there(X), "cuda", dtype="float64")
    step = ev.loss_of(there(Y))
    arrays = pop.kinds, pop.values, pop.offsets

    def generation():
        ev.update(ek.DevicePopulation(*arrays))
        step(params)

    generation()
    made = calls(generation)
    kernels = "check_tokens", "count_words", "number_words", "settle_words", "make_columns", "cut_chunks", *LAUNCHES
    memory = {"the population": 1, "its programs": 1, "losses": 1}
    assert made == dict.fromkeys(kernels, 1) | {"empty": len(memory), "waiting": 2}


FITTED = [ek.parse(texts, errors="mask") for texts in (
    ["p1 + x1", "p1 * x1 + x2", "x1"], ["oops(", "p1 - x2"], ["x1 * x2 + p1", "x2", "p1", "(p1 + x1) * x2"], ["x1"],
)]  # fmt: skip
SCREENED = {"backend": "cuda", "max_iter": 3, "accuracy": "screen"}


def test_fits_of_a_new_population_wait_for_its_programs_and_for_the_results(there):
    problem = ek.FitProblem(X, Y, **SCREENED)
    for pop in FITTED * 2:
        problem.fit(pop)
    made = calls(lambda: problem.fit(FITTED[2]))
    once = "count_words", "number_words", "settle_words", "find_dependence", "measure", "put_in_order", "choose"
    assert {name: made[name] for name in once} == dict.fromkeys(once, 1)
    assert made["waiting"] == 2 and made["copy to the host"] == 5


def test_fits_are_those_of_a_problem_that_had_no_other_population(there):
    problem = ek.FitProblem(X, Y, **SCREENED)
    for pop in [*FITTED, FITTED[0], FITTED[0], FITTED[2]]:
        found, alone = problem.fit(pop), ek.FitProblem(X, Y, **SCREENED).fit(pop)
        for name in ("params", "loss", "status", "iterations"):
            np.testing.assert_array_equal(getattr(found, name), getattr(alone, name))


def test_what_was_found_of_a_population_is_not_another_ones(there):
    first, second, third = FITTED[:3]
    ev = ek.Evaluator(first, X, "cuda")
    options = Options(max_iter=3)

    def fitted(one, pop):
        return one.derivatives().fit(np.ones((1, len(pop), pop.max_params)), Y, None, options)

    fitted(ev, first)
    ev.update(second)  # which is not fitted
    ev.update(third)
    alone = fitted(ek.Evaluator(third, X, "cuda"), third)
    np.testing.assert_array_equal(fitted(ev, third).params, alone.params)


def test_programs_of_float64_are_there_before_the_device_fits(there, monkeypatch):
    made = []
    for task in (lowering.Lowering, "__call__"), (derivatives.Derivatives, "_launch_all"):
        old = getattr(*task)

        def noted(self, *given, old=old, name=task[1], **named):
            made.append((name, self.dtype.name))
            return old(self, *given, **named)

        monkeypatch.setattr(*task, noted)
    for number, before in (("0.5", ["__call__"]), ("0.1", ["__call__", "__call__"])):  # no float32 is 0.1
        made.clear()
        ek.FitProblem(X, Y, **SCREENED).fit(ek.parse([f"p1 + {number} * x1"]))
        assert [name for name, _ in made] == [*before, "_launch_all", "_launch_all"]
        assert [dtype for name, dtype in made if name == "_launch_all"] == ["float32", "float64"]


@pytest.mark.slow
def test_what_fits_ask_of_tokens_is_known_before_anybody_waits_for_programs(there, monkeypatch):
    problem, pop, known = ek.FitProblem(X, Y, **SCREENED), ek.parse(["p1 + 0.1 * x1", "p1 * p2"]), []
    problem.fit(FITTED[0])
    make_all = CountingSequence.__call__

    def noted(self):
        known.extend([set(pop.__dict__)] if "waiting" in [call.name for call in self.calls] else [])
        make_all(self)

    monkeypatch.setattr(CountingSequence, "__call__", noted)
    problem.fit(pop)
    assert known[0] >= {"all_valid", "max_params", "has_wide_constants"}


@pytest.mark.slow
def test_fits_that_float32_spoils_begin_anew_from_all_starts_however_many_go_at_once(there, monkeypatch):
    pop = ek.parse(["p1 + 1e30 * exp(p2) * x1 * 1e20", "p1 * x1 + p2", "(p1 * 1e25)^2 + p2 * x1"])
    starts = np.random.default_rng(5).uniform(-1, 1, (4, len(pop), 2))
    found = []
    for most in (derivatives.WORK_BYTES, 1):
        monkeypatch.setattr(derivatives, "WORK_BYTES", most)
        fitted = ek.FitProblem(X, Y, backend="cuda", max_iter=5, accuracy="screen").fit(pop, init=starts)
        found.append([fitted.params, fitted.loss, fitted.status, fitted.iterations])
        assert fitted.n_evaluations
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one, other)
