"""Generations on a device and on the host: the same trees token by token, and loops translated for both."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import exprkit as ek
from exprkit.backends import objective
from exprkit.backends.device_programs.loops import DeviceLoops, HostLoops
from exprkit.backends.gpu import device as gpu
from exprkit.backends.objective import Fitted
from exprkit.expressions import generate
from exprkit.expressions.arguments import operators_of
from exprkit.regression.generations import evolution as evolutions
from exprkit.regression.generations import survival, variation
from exprkit.regression.generations.evolution import Evolution
from exprkit.regression.problem.goal import Goal
from exprkit.regression.problem.rows import Rows
from exprkit.runtime import machine
from exprkit.runtime.jit import compiled
from exprkit.text.tokens import CONSTANT

X = np.random.default_rng(0).uniform(0.5, 3, (60, 3))
Y = X[:, 0] * np.sin(X[:, 1]) + 0.5 * X[:, 2]
BLOCKS = generate.random(60, n_tokens=(1, 7), operators="search", n_vars=3, n_params=0, seed=2)
TREES = generate.random(400, n_tokens=(1, 25), operators="search", n_vars=3, n_params=0, seed=4)
SETTINGS = {"population_size": 120, "width": 19, "seed": 3, "islands": 3, "dtype": "float64"}


@pytest.fixture
def there(device, monkeypatch):
    """The device as what ``backend="cuda"`` runs on."""
    if device.xp is np:
        device.name, device.architecture = "emulated", "none"
        monkeypatch.setattr(gpu, "missing", lambda: None)
        monkeypatch.setattr(gpu, "names", lambda: [device.name])
        monkeypatch.setattr(gpu, "current", lambda: device)
    return device


def evolution(backend, **settings):
    return Evolution(Rows(X, Y), operators_of("search"), BLOCKS, backend=backend, **(SETTINGS | settings))


def hashed_fits(self, pop, init, **settings):
    """Losses and numbers that depend on the tokens alone, in place of fits."""
    xp = np if isinstance(init, np.ndarray) else gpu.current().xp
    kinds, values, offsets = map(gpu.fetched, (pop.kinds, pop.values, pop.offsets))
    words = (values * np.uint64(0x9E3779B97F4A7C15) + kinds) >> np.uint64(40)
    sums = np.add.reduceat(words * (1 + np.arange(len(words), dtype=np.uint64) % np.uint64(1)), offsets[:-1])
    loss = (sums % np.uint64(1009)).astype(np.float64)
    loss[loss < 50] = np.nan
    params = gpu.fetched(init) * 1.25
    return Fitted(xp.asarray(params), xp.asarray(loss), None, None, None)


def tokens(trees, known):
    """All that is known of trees that breed."""
    length = gpu.fetched(trees.length)
    inside = (np.arange(trees.kinds.shape[1]) < length[:, None]) & np.isfinite(gpu.fetched(known.loss))[:, None]
    return [
        gpu.fetched(trees.kinds)[inside], gpu.fetched(trees.values)[inside], gpu.fetched(known.loss),
        gpu.fetched(known.island_start),
    ]  # fmt: skip


def test_both_sides_and_any_threads_breed_the_same_trees(there, monkeypatch):
    monkeypatch.setattr(evolutions.FitProblem, "fitted", hashed_fits)
    several = [evolution("cpu"), evolution("cpu"), evolution("cuda")]

    def generations(work):
        for one, threads in zip(several, (1, 3, None), strict=True):
            with machine.limited(threads):
                yield work(one)

    for number in range(6):
        made = list(generations(Evolution.generation))
        if number == 2:
            made = list(generations(lambda one: one.immigrate(ek.parse(["x1 + 1.5 * x2", "x3 / 2"]))))
        for one, generation in zip(several[1:], made[1:], strict=True):
            assert generation.formulas == made[0].formulas
            for ours, theirs in zip(tokens(*one._parents), tokens(*several[0]._parents), strict=True):
                assert np.array_equal(ours, theirs)
    trees, known = several[0]._parents
    alive = np.isfinite(known.loss)
    pop = variation.population_of(variation.TreeRows(*(array[alive] for array in trees)))  # checks every token
    assert len(set(pop.texts())) > 100 and alive.sum() == known.island_start[-1]
    assert other_seed(several[0]) != tokens(trees, known)[1].tolist()


def other_seed(one):
    other = evolution("cpu", seed=4)
    for _ in range(one.number):
        other.generation()
    return tokens(*other._parents)[1].tolist()


def test_children_are_trees_of_all_kinds():
    trees, n = variation.rows_of(TREES, 25), 3_000
    known = variation.empty_fitness(np, len(TREES), 1, 25)
    known.loss[:], known.island_start[:] = 1.0, [0, len(TREES)]
    how = variation.breeding_settings(operators_of("search"), 3, 0.4, width=25, n=n)
    made, draws = variation.empty_trees(np, n, 25), variation.RandomState(np.empty(n, np.uint64), np.uint64(5))
    HostLoops().run(variation.breed, n, trees, known, trees, how, draws, made)
    pop = variation.population_of(made)  # checks every token
    assert len(set(pop.texts())) > 1_500 and pop.longest == 25
    numbers = np.abs(pop.values[pop.kinds == CONSTANT].view(np.float64))
    assert numbers.min() < 1e-20 and numbers.max() > 100 and 0.1 < np.median(numbers) < 10


@pytest.mark.parametrize(
    ("backend", "loss"), [("cpu", "mae"), ("cpu", "huber"), ("cpu", "squares"), ("cuda", "squares")]
)
def test_losses_are_those_of_the_formulas(there, backend, loss):
    one, rows = evolution(backend, loss=loss, numbers=1), Rows(X, Y)  # few kernels to compile
    least = {}
    for _ in range(3):
        made = one.generation()
        values = ek.Evaluator(made.formulas, rows.X, "numpy", dtype="float64").evaluate()
        assert made.loss == pytest.approx(Goal(loss, rows).losses(values), rel=1e-6, abs=1e-13)
        for size, one_loss in zip(made.formulas.n_tokens.tolist(), made.loss.tolist(), strict=True):
            least[size] = min(one_loss, least.get(size, np.inf))
    assert made.tried == 120 and min(least.values()) < 0.6


@pytest.mark.slow
def test_float32_and_many_trees_on_the_device(there):
    one = evolution("cuda", dtype=None, population_size=700, islands=None, numbers=1)
    assert one._dtype == "float32" and one._limits.islands == 1
    first = one.generation().loss  # before any is chosen by a loss, whose last bits may differ
    same = evolution("cpu", dtype="float32", population_size=700, islands=1, numbers=1).generation().loss
    assert first == pytest.approx(same, rel=1e-4)
    losses = [one.generation().loss.min(initial=np.inf) for _ in range(5)]
    assert min(losses) < 0.03 * Y.var() < 0.1 * first.min()
    assert evolution("cpu", dtype=None)._dtype == "float64"
    far = Evolution(
        Rows(X * 1e-20, Y), operators_of("search"), BLOCKS, population_size=20, width=9, seed=0, backend="cuda"
    )
    assert far._dtype == "float64"


def test_survivors_are_the_best_of_each_island_and_size_each_once():
    random = np.random.default_rng(0)
    one, n = evolution("cpu"), 400
    made = variation.empty_trees(np, n, one._width)
    made.length[:] = random.integers(1, one._width + 1, n)
    made.kinds[...], made.values[...] = 1, np.arange(n)[:, None]
    loss = random.integers(0, 12, n) / 4.0
    loss[random.random(n) < 0.2] = np.inf
    outcome = survival.FitOutcome(np.zeros((n, 2)), loss, np.zeros((n, 2)), 1.0, 1.0)
    limits = one._limits._replace(n=n, capacity=3)
    shown = one._hall_of_fame
    trees, known = survival.survivors(one._loops, *one._parents, made, outcome, limits, one._next, shown)
    found = [
        (int(known.island[k]), int(trees.length[k]), float(known.loss[k]), int(trees.values[k, 0]))
        for k in np.flatnonzero(np.isfinite(known.loss))
    ]
    first = {}
    for i in range(n):
        if np.isfinite(loss[i]):
            first.setdefault((i * limits.islands // n, int(made.length[i]), float(loss[i])), i)
    expected = []
    for key in sorted(first):
        if sum(other[:2] == key[:2] for other in expected) < 3:
            expected.append((*key, first[key]))
    assert found == expected
    best = {size: min(one[2] for one in expected if one[1] == size) for size in {one[1] for one in expected}}
    assert {k: float(shown.loss[k]) for k in np.flatnonzero(shown.length)} == best


def test_the_numbers_of_a_tree_are_fitted_by_turns():
    side, one = HostLoops(), evolution("cpu")
    made = variation.rows_of(ek.parse(["x1 * 5 + 6 / (x2 - 7)", "x1 - 8", "x2"]), one._width)
    seen = set()
    for number in range(6):
        turns = survival.ParameterSubset(2, number)
        wrapped = survival.scaled_trees(side, made, one._parents[1], turns, one._limits._replace(n=3))
        pop = ek.Population(wrapped.kinds, wrapped.values, wrapped.offsets)
        assert pop.n_params.tolist() == [4, 3, 2] and pop.texts()[1:] == ["p1 + p2 * (x1 - p3)", "p1 + p2 * x2"]
        seen.add(pop.texts()[0])
        values = ek.Evaluator(pop, X, "numpy", dtype="float64").evaluate(wrapped.starts)
        np.testing.assert_allclose(values[0], X[:, 0] * 5 + 6 / (X[:, 1] - 7))
        params = wrapped.starts * 2
        outcome = survival.FitOutcome(params, np.ones(3), np.zeros((3, 2)), 1.0, 1.0)
        after = variation.TreeRows(*(array.copy() for array in made))
        side.run(survival.read_fits, 3, after, outcome, turns)
        tree = ek.Evaluator(variation.population_of(after), X, "numpy", dtype="float64").evaluate()
        params[:, :2] = wrapped.starts[:, :2]
        np.testing.assert_allclose(tree, ek.Evaluator(pop, X, "numpy", dtype="float64").evaluate(params))
    assert len(seen) == 3


@pytest.mark.parametrize("loss", ["squares", "mae", "huber"])
def test_a_fit_that_is_worse_than_its_limit_has_few_steps(loss):
    pop = generate.random(300, (3, 14), n_vars=3, n_params=2, seed=7)
    problem, start = ek.FitProblem(X, Y, loss=loss, backend="cpu", dtype="float64"), np.ones((300, 2))
    full = problem.fitted(pop, start)
    limits = np.full(300, np.nanmedian(full.loss))
    some = problem.fitted(pop, start, limits=limits, patience=3)
    longer = some.iterations > 3
    assert longer.any() and not (some.loss[longer] > limits[longer]).any()
    ended = full.iterations != some.iterations
    assert ended.sum() > 30 and (some.status[ended] == objective.MAX_ITER).all() and (some.iterations[ended] == 3).all()
    assert np.array_equal(some.loss[~ended], full.loss[~ended], equal_nan=True)


class Numbers(NamedTuple):
    new: np.ndarray  # a word of C++'s
    table: np.ndarray
    factor: float
    mask: np.uint64
    n: int


@compiled
def scramble(numbers, begin, end):
    for i in range(begin, end):
        bits = numbers.new[i] >> np.uint64(3) ^ np.uint64(i % 5)
        for k in range(numbers.n):
            numbers.table[i, k] = as_share(bits + np.uint64(k), numbers) * numbers.factor + len(numbers.new)
        numbers.new[i] = np.float64(min(i, 7) * 0.5).view(np.uint64)


@compiled
def as_share(bits, numbers) -> float:
    return np.float64(bits & numbers.mask) * 0.125


def test_a_loop_runs_on_both_sides(there):
    n, words = 300, np.random.default_rng(1).integers(0, 1 << 63, 300, np.uint64)
    both = []
    for side in (HostLoops(2), DeviceLoops(there)):
        numbers = side.bag(Numbers(words.copy(), np.zeros((n, 4)), 1.1, np.uint64(1023), 4))
        side.run(scramble, n, numbers)
        both.append(numbers)
    for ours, theirs in zip(*both, strict=True):
        assert np.array_equal(gpu.fetched(theirs) if isinstance(ours, np.ndarray) else theirs, ours)
    assert both[0].new.view(np.float64)[3] == 1.5 and len(np.unique(both[0].table)) > 500


@pytest.mark.parametrize("method", ["fit", "fitted"])
def test_a_population_on_the_device_is_fitted_there_as_on_the_host(there, method, monkeypatch):
    pop = generate.random(150, (1, 14), n_vars=3, n_params=1, seed=7) + ek.parse(
        ["bad(", "p1 * exp(40 * x1)"], errors="mask"
    )
    on_device = ek.DevicePopulation.of(pop, there)
    settings = {"backend": "cuda", "dtype": "float32", "max_iter": 20, "weights": np.ones(60)}
    host, device = ek.FitProblem(X, Y, **settings), ek.FitProblem(X, Y, **settings)
    if method == "fit":
        ours, theirs = device.fit(on_device, restarts=1, seed=3), host.fit(pop, restarts=1, seed=3)
        assert np.array_equal(ours.at_bound, theirs.at_bound) and ours.reason == theirs.reason
        assert ours.pop == pop and ours.n_evaluations == theirs.n_evaluations
        double = ek.FitProblem(X, Y, **(settings | {"dtype": "float64"})).fit(pop[[151]], restarts=1, seed=3)
        assert np.isfinite(double.loss[0]) and ours.loss[151] == double.loss[0]  # float32 has no exp(120)
        once = host.fit(pop)
        assert (once.n_evaluations < ours.n_evaluations) and not (ours.loss > once.loss * (1 + 1e-6)).any()
        assert np.isfinite(once.loss[151])
    else:
        start, limits = np.ones((len(pop), pop.max_params)), np.full(len(pop), 20.0)
        ours = device.fitted(on_device, there.xp.asarray(start), limits=there.xp.asarray(limits), patience=2)
        theirs = host.fitted(pop, start, limits=limits, patience=2)
    for name in ("params", "loss", "iterations", "status"):
        assert np.array_equal(gpu.fetched(getattr(ours, name)), getattr(theirs, name), equal_nan=True)
    assert theirs.status[150] == objective.INVALID
