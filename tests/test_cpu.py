"""The CPU backend: agrees with the definition, and gives the same bits however the work is cut up."""

from __future__ import annotations

import _thread
import json
import os
import subprocess
import sys
import threading
import time
from typing import NamedTuple

import numpy as np
import pytest

import exprkit as ek
from exprkit.backends.cpu import engine as cpu_engine
from exprkit.backends.cpu import threads as thread_pool
from exprkit.backends.cpu import tiles
from exprkit.backends.reference import engine as definition
from exprkit.expressions import generate
from exprkit.operators import ops
from exprkit.runtime import slices
from exprkit.runtime.intrinsics import pause
from exprkit.study.agreement import disagreement

TILE = tiles.TILE
DTYPES = ["float32", "float64"]
AWKWARD = [0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -3.0, 1e-30, -1e-30, 1e30, -1e30, np.inf, -np.inf, np.nan]


def engine(pop, X, dtype="float32", precision="ieee", threads=1):
    X = np.ascontiguousarray(X, dtype)
    return cpu_engine.Engine(pop, X, precision=precision, dtype=X.dtype, threads=threads)


def evaluate(pop, X, params=None, dtype="float32", precision="ieee", threads=1):
    """(n_sets, n_exprs, n_points); ``params`` as many sets of numbers as it has rows of (n_exprs, max_params)."""
    params = np.zeros((1, len(pop), pop.max_params)) if params is None else params
    out = np.full((len(params), len(pop), len(X)), 7, dtype)
    engine(pop, X, dtype, precision, threads).evaluate(np.ascontiguousarray(params, dtype), out)
    return out


def population(n, seed=0, **options):
    """Expressions with every operator of the table."""
    names = [row.name for row in ops.OPERATORS]
    return ek.generate.random(n, n_tokens=(1, 30), operators=names, n_vars=3, n_params=2, seed=seed, **options)


def both_orders(pop, X, monkeypatch, **options):
    """Values by programs in the tokens' order, and by those that compute the heavier side first."""
    params, values = parameters(pop, 2), []

    def heavier_first(pop, columns, **how):
        return cpu_engine.lower(pop, **how)

    for lowering in (cpu_engine.lower_in_order, heavier_first):
        monkeypatch.setattr(cpu_engine, "lower_in_order", lowering)
        values.append(evaluate(pop, X, params, **options))
    return values


def ordinary(n_points, n_vars=3, seed=0):
    return np.random.default_rng(seed).uniform(0.1, 3, (n_points, n_vars))


def awkward(n_points, n_vars=3):
    """Special numbers among ordinary ones, at random places."""
    rng = np.random.default_rng(11)
    special = rng.choice(AWKWARD, (n_points, n_vars))
    return np.where(rng.random((n_points, n_vars)) < 0.4, special, ordinary(n_points, n_vars))


def parameters(pop, n_sets=1):
    return np.random.default_rng(3).uniform(-2, 2, (n_sets, len(pop), pop.max_params))


@pytest.fixture
def small_results_past_the_caches(monkeypatch):
    monkeypatch.setattr(cpu_engine, "PAST_BYTES", -1)


# ── agreement with the definition ────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("precision", ["ieee", "fast"])
def test_random_expressions_agree_with_the_definition(dtype, precision):
    pop, X = population(250), ordinary(50)
    X[:, 1] -= 1.5  # one variable has negative values
    params = parameters(pop)
    result = evaluate(pop, X, params, dtype, precision)[0]
    bad = np.flatnonzero(disagreement(pop, X, params[0], result, dtype=dtype, precision=precision))
    # one in a thousand may lie so close to a jump or a zero that a few random runs do not show it
    assert len(bad) <= 1, "\n".join(f"{pop[int(i)]}" for i in bad[:5])


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_thesis_expressions_agree_with_the_definition(dtype):
    pop, X = ek.parse(ek.data.esr_sample()), ek.data.rough_pipe(100).X
    params = parameters(pop)
    result = evaluate(pop, X, params, dtype, "fast")[0]
    assert not disagreement(pop, X, params[0], result, dtype=dtype, precision="fast").any()


def test_expressions_that_cannot_be_read_give_nan():
    pop = ek.parse(["x1", "x1 +", "p1 * x1", "?", "2"], errors="mask")
    result = evaluate(pop, [[1.0], [2.0]], np.full((1, 5, 1), 3.0))[0]
    nan = [np.nan, np.nan]
    assert np.array_equal(result, np.array([[1, 2], nan, [3, 6], nan, [2, 2]], np.float32), equal_nan=True)
    sums = losses(pop, [[1.0], [2.0]], np.full((1, 5, 1), 3), y=[0, 0], weights=[0, 0])
    assert np.isnan(sums[0]).tolist() == [False, True, False, True, False]


def test_a_nan_column_spoils_only_those_who_read_it():
    pop = ek.parse(["x1 ^ x3", "x2 + x3", "x1 * x3"])
    X = ordinary(600)
    alone = evaluate(pop, X)
    X[:, 1] = np.nan
    assert np.array_equal(evaluate(pop, X)[0, [0, 2]], alone[0, [0, 2]])
    assert np.isnan(evaluate(pop, X)[0, 1]).all()


# ── nothing is written that should not be, and everything that should ────────────────

STEP = TILE - 16
EDGES = [0, 1, 2, 7, 8, 9, 15, 16, 17, 362, STEP - 1, STEP, STEP + 1, TILE - 1, TILE, TILE + 1, TILE + 17]
EDGES += [2 * TILE, 5 * STEP + 16]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("past", [False, True])
def test_all_sizes(dtype, past, monkeypatch):
    """Every number of points gives the bits of the first points of many, and no byte around the result changes."""
    monkeypatch.setattr(cpu_engine, "PAST_BYTES", -1 if past else 1 << 60)
    pop = ek.parse([*ek.data.esr_sample()[::9], "x1 +", "p1", "x2"], errors="mask")
    X, params = ordinary(max(EDGES), 2), parameters(pop, 2).astype(dtype)
    monkeypatch.setattr(cpu_engine, "PAST_BYTES", 1 << 60)
    whole = evaluate(pop, X, params, dtype)
    monkeypatch.setattr(cpu_engine, "PAST_BYTES", -1 if past else 1 << 60)
    for n_points in EDGES:
        made = engine(pop, X[:n_points], dtype)
        for offset in (0, 1, 5):
            size = 2 * len(pop) * n_points
            room = np.full(size + 200, 7, dtype)
            out = room[100 + offset : 100 + offset + size].reshape(2, len(pop), n_points)
            made.evaluate(params, out)
            assert np.array_equal(out, whole[:, :, :n_points], equal_nan=True), (n_points, offset)
            assert (room[: 100 + offset] == 7).all() and (room[100 + offset + size :] == 7).all(), (n_points, offset)


@pytest.mark.parametrize("n_exprs", [0, 1, 63, 64, 65, 129])
def test_any_number_of_expressions(n_exprs):
    pop, X = population(200)[:n_exprs], ordinary(20)
    expected = evaluate(population(200), X, np.zeros((1, 200, 2)))[:, :n_exprs]
    params = np.zeros((1, n_exprs, pop.max_params))
    assert np.array_equal(evaluate(pop, X, params), expected, equal_nan=True)
    assert losses(pop, X, params, np.zeros(20)).shape == (1, n_exprs)


def test_a_million_expressions():
    pop = ek.parse(["x1 + p1", "x2 * x2 - 1"] * 500_000)
    params = np.arange(1_000_000, dtype=np.float32).reshape(1, -1, 1)
    result = evaluate(pop, [[1.0, 3.0], [2.0, 4.0]], params, threads=2)[0]
    assert np.array_equal(result[::2, 0], 1 + params[0, ::2, 0]) and (result[1::2] == [8, 15]).all()


def test_a_very_long_expression():
    n = 32_768
    pop = ek.parse([" + ".join(["x1", "p1"] * (n // 2))])
    assert evaluate(pop, np.ones((3, 1)), np.full((1, 1, 1), 2.0), "float64").tolist() == [[[1.5 * n] * 3]]


# ── the same bits however the work is cut up ─────────────────────────────────────────


def losses(pop, X, params, y, weights=None, kind="square", dtype="float32", threads=1):
    y, w = np.asarray(y, dtype), None if weights is None else np.asarray(weights, dtype)
    return engine(pop, X, dtype, threads=threads).loss_sums(np.ascontiguousarray(params, dtype), y, w, kind)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_points", [100, 3 * TILE + 5])
def test_order_and_company_do_not_matter(dtype, n_points):
    pop, X = population(300, seed=5), awkward(n_points)
    params = parameters(pop)
    whole, sums = evaluate(pop, X, params, dtype)[0], losses(pop, X, params, X[:, 0], dtype=dtype)[0]
    shuffled = np.random.default_rng(0).permutation(len(pop))
    picked = np.concatenate([shuffled, shuffled[:50], shuffled[:50]])  # with duplicates
    texts = [str(e) for e in pop]
    again = ek.parse([texts[i] for i in picked])
    result = evaluate(again, X, params[:, picked, : again.max_params], dtype)[0]
    assert np.array_equal(result, whole[picked], equal_nan=True)
    more = losses(again, X, params[:, picked, : again.max_params], X[:, 0], dtype=dtype)[0]
    assert np.array_equal(more, sums[picked], equal_nan=True)
    for i in range(0, 300, 60):
        alone = ek.parse([texts[i]])
        columns = X[:, : alone.n_vars]
        one = evaluate(alone, columns, params[:, [i], : alone.max_params], dtype)[0, 0]
        assert np.array_equal(one, whole[i], equal_nan=True)


@pytest.mark.parametrize("n_points", [50, 700])
def test_a_point_does_not_depend_on_its_place(n_points, small_results_past_the_caches):
    """Nor on its neighbours, awkward or not: the tail of the data gives the tail of the result."""
    pop, X = population(400, seed=6), awkward(n_points)
    whole = evaluate(pop, X, parameters(pop))
    for k in (1, 7, 19):
        tail = evaluate(pop, X[k:], parameters(pop))
        differing = ~((tail == whole[:, :, k:]) | (np.isnan(tail) & np.isnan(whole[:, :, k:])))
        assert not differing.any(), str(pop[int(np.argwhere(differing)[0][1])])


@pytest.mark.parametrize(("n_exprs", "n_points"), [(700, 1500), (3, 200_000), (1, 70_000)])
def test_threads_do_not_matter(n_exprs, n_points):
    pop, X = population(n_exprs, seed=7), ordinary(n_points)
    params, y = parameters(pop), ordinary(n_points)[:, 2]
    values, sums = evaluate(pop, X, params), losses(pop, X, params, y)
    for threads in (2, 3, 8):
        assert np.array_equal(evaluate(pop, X, params, threads=threads), values, equal_nan=True), threads
        assert np.array_equal(losses(pop, X, params, y, threads=threads), sums, equal_nan=True), threads


def test_parameter_sets_are_as_many_single_calls():
    pop, X = population(200, seed=8), ordinary(600)
    params, y = parameters(pop, 5), ordinary(600)[:, 1]
    together, sums = evaluate(pop, X, params, threads=2), losses(pop, X, params, y, threads=2)
    for k in range(5):
        assert np.array_equal(together[k], evaluate(pop, X, params[k : k + 1])[0], equal_nan=True)
        assert np.array_equal(sums[k], losses(pop, X, params[k : k + 1], y)[0], equal_nan=True)


def test_two_calls_at_once():
    pop, X = population(500, seed=9), ordinary(2000)
    made, params = engine(pop, X, threads=2), [parameters(pop).astype("f4") * k for k in range(6)]
    expected = [np.empty((1, 500, 2000), "f4") for _ in params]
    for p, out in zip(params, expected, strict=True):
        made.evaluate(p, out)
    results = [np.empty_like(out) for out in expected]
    calls = [threading.Thread(target=made.evaluate, args=pair) for pair in zip(params, results, strict=True)]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    for result, out in zip(results, expected, strict=True):
        assert np.array_equal(result, out, equal_nan=True)


def test_callers_that_share_the_workers_have_every_task_done_once():
    """Four callers with tasks that wait, of which each adds one where it is: workers go from one call to another."""
    results = []

    def caller(n_tasks):
        done = Counts(np.zeros(n_tasks))
        queue = thread_pool.WorkQueue(count, done, 5 * [done], np.dtype([("none", np.int64)]))
        for turn in range(200):
            queue.run((0,), n_tasks, threads=1 + turn % 5, piece=3)
        results.append(done.of)

    callers = [threading.Thread(target=caller, args=(n,)) for n in (1, 7, 40, 300)]
    for one in callers:
        one.start()
    for one in callers:
        one.join()
    assert len(results) == 4 and all((done == 200).all() for done in results)


class Counts(NamedTuple):
    of: np.ndarray


@thread_pool.task_loop
def count(counts, scratch, queue, me, most):
    k = thread_pool.next_task(queue, me)
    while k >= 0:
        for _ in range(20):
            pause()
        counts.of[k] += 1
        most -= 1
        if most == 0:
            return 1
        k = thread_pool.next_task(queue, me)
    return 0


def test_threads_that_wait_for_the_next_call_take_part_in_it_alone():
    pops, X = [population(300, seed=k) for k in (1, 2)], ordinary(700)
    made = [engine(pop, X, threads=4) for pop in pops]
    params = [[parameters(pop).astype("f4") * k for k in range(3)] for pop in pops]
    expected = [[evaluate(pop, X, p) for p in some] for pop, some in zip(pops, params, strict=True)]
    out = np.empty((1, 300, 700), "f4")
    for turn in range(100):
        which, k = turn % 2, turn % 3
        out.fill(7)
        made[which].evaluate(params[which][k], out)
        assert np.array_equal(out, expected[which][k], equal_nan=True), turn
    deadline = time.perf_counter() + 30
    crew = thread_pool.crew()
    while not (asleep := crew._lines[16::16][: crew._n] == thread_pool.ASLEEP).all() and time.perf_counter() < deadline:
        time.sleep(0.001)
    assert len(asleep) >= 3 and asleep.all()  # nobody polls for long


def test_a_small_call_wakes_no_thread():
    """So that many threads never make it slower; a large one does, and all threads of either give the same bits."""
    small, large = (engine(population(n, seed=4), ordinary(m), threads=16) for n, m in ((20, 50), (300, 3000)))
    assert (small.values.plan(1).threads, small.values.plan(1).wakes) == (1, 0)
    assert large.values.plan(1).threads == 16 and large.values.plan(1).wakes >= 15
    assert large.values.plan(1).threads <= large.values.plan(1).n_tasks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_process_has_threads_of_its_own():
    pop, X = population(300, seed=3), ordinary(700)
    made, out = engine(pop, X, threads=3), np.empty((1, 300, 700), "f4")
    made.evaluate(parameters(pop).astype("f4"), out)
    child = os.fork()
    if child == 0:
        again = np.zeros_like(out)
        made.evaluate(parameters(pop).astype("f4"), again)
        os._exit(0 if np.array_equal(again, out, equal_nan=True) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np, exprkit as ek
pop = ek.parse(ek.data.esr_sample())
ev = ek.Evaluator(pop, np.ones((10_000, 2)), backend="cpu", threads=int(sys.argv[1]))
params, y = np.ones((1, 247, pop.max_params)), np.ones(10_000)
before = ev.loss(params, y)
many = np.broadcast_to(params, (30_000, *params.shape[1:]))
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
begin = time.perf_counter()
try:
    ev.loss(many, y)
    print("was not stopped")
except KeyboardInterrupt:
    print(time.perf_counter() - begin, np.array_equal(before, ev.loss(params, y), equal_nan=True))
"""


INTERRUPTED_FITS = """
import json, os, signal, sys, threading, time
import numpy as np, exprkit as ek
x = np.random.default_rng(0).uniform(0, 1, (1_000_000, 2)).astype(np.float32)
y = np.sin(40 * x[:, 0])
pop = ek.parse(["p1 * exp(p2 * x1) + p3 * sin(p4 * x1) + p5 * tanh(p6 * x2)", "p1 * x1 + p2"])
def interrupt():
    times.append(time.perf_counter())
    os.kill(os.getpid(), signal.SIGINT)
for options in json.loads(sys.argv[1]):
    problem = ek.FitProblem(x, y, tol=1e-15, max_iter=1_000_000, **options)
    short = ek.FitProblem(x[:50], y[:50], **options)
    before = short.fit(pop).params
    problem.fit("p1")  # prepares the data
    times = []
    threading.Timer(1.5, interrupt).start()
    try:
        problem.fit(pop, restarts=63)
        sys.exit(f"was not stopped: {options}")
    except KeyboardInterrupt:
        print(time.perf_counter() - times[0], end=" ")
    again = problem.fit("p1 * x1 + p2").params[0], ek.FitProblem(x, y, **options).fit("p1 * x1 + p2").params[0]
    print(np.array_equal(before, short.fit(pop).params, equal_nan=True), np.allclose(*again, rtol=1e-4))
"""


@pytest.mark.slow
def test_ctrl_c_stops_a_long_fit_within_a_second_and_leaves_all_usable(busy):
    options = [{"threads": 1}, {}, {"method": "lbfgs"}, {"backend": "numpy"}, {"devices": 2},
               {"loss": "log(1 + (f - y)^2)"}]  # fmt: skip
    command = [sys.executable, "-c", INTERRUPTED_FITS, json.dumps([{"backend": "cpu"} | of for of in options])]
    env = os.environ | {"CUDA_VISIBLE_DEVICES": ""}  # devices are shares of the cores
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300, env=env).stdout
    for of, line in zip(options, printed.splitlines(), strict=True):
        seconds, *same = line.split()
        assert float(seconds) < busy() and same == ["True", "True"], of


@pytest.mark.slow
def test_progress_ends_one_long_fit_by_an_exception(busy):
    x = np.random.default_rng(0).uniform(0, 1, (200_000, 2)).astype(np.float32)
    problem, begin = ek.FitProblem(x, np.sin(40 * x[:, 0]), backend="cpu"), time.perf_counter()
    expected = problem.fit("p1 * x1 + p2").params

    def shown(done, total):
        assert (done, total) == (0, 1)
        if time.perf_counter() - begin > 1:
            raise TimeoutError

    begin = time.perf_counter()
    with pytest.raises(TimeoutError):
        problem.fit("p1 * exp(p2 * x1) + p3 * sin(p4 * x1) + p5 * tanh(p6 * x2)", restarts=10_000, progress=shown)
    assert time.perf_counter() - begin < 1 + busy()
    assert np.array_equal(problem.fit("p1 * x1 + p2").params, expected)


@pytest.mark.slow
@pytest.mark.parametrize("threads", ["1", "2"])
def test_ctrl_c_stops_a_long_call_and_leaves_the_evaluator_whole(threads):
    command = [sys.executable, "-c", INTERRUPTED, threads]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    seconds, same = printed.split()
    assert float(seconds) < 5 and same == "True"  # all of it takes half a minute and more


def test_where_no_thread_can_be_started_the_calling_one_does_all(monkeypatch):
    def full(*job):
        raise RuntimeError("can't start new thread")

    pop, X = population(200, seed=9), ordinary(3000)
    expected = evaluate(pop, X, threads=1)
    crew = thread_pool.Crew()
    monkeypatch.setattr(thread_pool, "crew", lambda: crew)
    monkeypatch.setattr(_thread, "start_new_thread", full)
    assert np.array_equal(evaluate(pop, X, threads=3), expected, equal_nan=True)


# ── losses ───────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n_points", [1, 17, 362, TILE, 40_000])
@pytest.mark.parametrize("kind", ["square", "absolute", "sum"])
def test_losses_are_those_of_the_matrix(dtype, n_points, kind):
    pop, X = ek.parse(ek.data.esr_sample()[::12]), ordinary(n_points, 2)
    params, rng = parameters(pop, 2), np.random.default_rng(2)
    y = rng.uniform(-1, 1, n_points)
    weights = np.where(rng.random(n_points) < 0.2, 0, rng.uniform(0, 2, n_points))
    error = evaluate(pop, X, params, dtype).astype(np.float64) - y.astype(dtype)
    size = {"square": error**2, "absolute": np.abs(error), "sum": error}[kind]
    tolerance = {"rtol": 5e-6} if dtype == "float32" else {"rtol": 1e-12}
    with np.errstate(all="ignore"):
        if kind == "sum":  # it may cancel
            finite = np.where(np.isfinite(error), np.abs(error), 0)
            tolerance["atol"] = finite.sum(axis=2).max() * tolerance["rtol"]
        np.testing.assert_allclose(losses(pop, X, params, y, None, kind, dtype), size.sum(axis=2), **tolerance)
        weighted = np.where(weights == 0, 0, size * weights.astype(dtype)).sum(axis=2)
        np.testing.assert_allclose(losses(pop, X, params, y, weights, kind, dtype), weighted, **tolerance)


def test_a_point_of_weight_zero_does_not_count_whatever_is_there():
    pop, X = ek.parse(["1 / x1", "log(x1)", "x1"]), np.array([[1.0], [0.0], [-1.0], [np.nan], [np.inf]])
    sums = losses(pop, X, np.zeros((1, 3, 0)), np.zeros(5), [1.0, 0, 0, 0, 0])
    assert sums.tolist() == [[1.0, 0.0, 1.0]]


def test_losses_agree_with_the_definition_on_awkward_data():
    pop, X = ek.parse(["x1 + x2", "x1 * x2", "abs(x1) ^ x2"]), awkward(100, 2)
    y = np.zeros(100, "f4")
    w = np.where(np.isfinite(evaluate(pop, X)[0]).all(axis=0), 1, 0).astype("f4")
    wanted = definition.Engine(pop, X.astype("f4"), precision="ieee", dtype=np.dtype("f4"))
    params = np.zeros((1, 3, 0), "f4")
    np.testing.assert_allclose(
        engine(pop, X).loss_sums(params, y, w, "absolute"), wanted.loss_sums(params, y, w, "absolute"), rtol=1e-5
    )


@pytest.mark.parametrize("precision", ["ieee", "fast"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_order_of_the_tokens_gives_the_bits_of_the_other(dtype, precision, monkeypatch):
    unary = ["abs", "neg", "sqr", "sqrt", "log", "exp"]
    operands = ["x1", "x2", "p1", "2", "-0.5", "(x1 * x2)", "(p1 / p2)", "exp(x2)"]
    chains = [f"{f}({g}({h}({a})))" for f in unary for g in unary[:3] for h in unary[:2] for a in operands]
    exponents = ["1", "2", "3", "-1", "0.5", "4", "2.5", "x2", "p2", "abs(x2)", "neg(p1)", "(x1 + 1 / p2)"]
    bases = [*operands, "abs(x1)", "abs(p1)", "abs(x1 - x2)", "neg(x1)", "neg(abs(x2))", "abs(abs(x1))"]
    ends = ["p2 * 2", "x1"]
    powers = [f"{p}({a}, {b}) - {c}" for p in ("pow", "powabs") for a in bases for b in exponents for c in ends]
    pop = ek.parse([*chains, *powers, "x1 +", "p1"], errors="mask") + population(400)
    for X in (ordinary(30), awkward(30)):  # of the first no value is negative: powers have shorter programs
        in_order, other = both_orders(pop, X, monkeypatch, dtype=dtype, precision=precision)
        assert in_order.tobytes() == other.tobytes()


def test_programs_in_order_are_the_same_for_any_threads(monkeypatch):
    monkeypatch.setattr(slices, "LEAST", 64)
    pop = population(800)
    one, three = (cpu_engine.lower_in_order(pop, precision="fast", threads=n) for n in (1, 3))
    arrays = "code", "a", "b", "dst", "constants", "offsets", "first_const"
    assert all(np.array_equal(getattr(one, name), getattr(three, name), equal_nan=True) for name in arrays)
    assert (one.n_slots, one.n_uniforms) == (three.n_slots, three.n_uniforms)


def test_an_evaluator_takes_one_population_after_another():
    rng = np.random.default_rng(3)
    X, y = rng.uniform(-2, 2, (700, 3)).astype(np.float32), rng.normal(size=700)
    some = [generate.random(n, (1, most), n_vars=3, n_params=2, seed=n) for n, most in ((50, 9), (3, 30), (400, 20))]
    some += [ek.parse(["oops(", "x3"], errors="mask"), ek.parse(["p1"]), ek.parse([]), some[0]]
    some += [generate.random(20_000, (1, 9), n_vars=3, seed=1)]
    ev = ek.Evaluator(ek.parse(["x1 + p1"]), X, "cpu", threads=2)
    for pop in (*some, *some[::-1]):
        params = rng.normal(size=(len(pop), pop.max_params))
        ev.update(pop)
        other = ek.Evaluator(pop, X, "cpu", threads=2)
        np.testing.assert_array_equal(ev.loss(params, y), other.loss(params, y))
        np.testing.assert_array_equal(ev.evaluate(params)[:100], other.evaluate(params)[:100])
        if len(pop) < 1000:
            for found, wanted in zip(ev.loss_and_grad(params, y), other.loss_and_grad(params, y), strict=True):
                np.testing.assert_array_equal(found, wanted)


def test_an_update_that_fails_leaves_the_last_population(monkeypatch):
    X, first, second = np.linspace(1, 2, 30)[:, None], ek.parse(["x1 + p1", "log(x1)"]), ek.parse(["exp(x1) * p1"])
    ev, params = ek.Evaluator(first, X, "cpu"), [[1.0], []]
    wanted = ev.evaluate(params)
    with monkeypatch.context() as patched:
        patched.setattr(cpu_engine, "programs_of", lambda *_: 1 / 0)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                ev.update(second)
            np.testing.assert_array_equal(ev.evaluate(params), wanted)
    ev.update(second)
    np.testing.assert_array_equal(ev.evaluate([[2.0]])[0], ek.Evaluator(second, X, "cpu").evaluate([[2.0]])[0])
