"""Populations on a device: the same checks, errors and results as on the host; one after the other in one evaluator."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import exprkit as ek
from exprkit.backends.gpu import device as gpu
from exprkit.backends.interpreter import engine as interpreter
from exprkit.errors import BackendError, DataError, PopulationError
from exprkit.expressions import generate
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

F8 = np.dtype("float64")


def on(device, kinds, values, offsets):
    arrays = np.array(kinds, np.uint8), np.array(values, np.uint64), np.array(offsets, np.int64)
    return [device.xp.asarray(array) for array in arrays]


def message(make):
    try:
        make()
    except PopulationError as error:
        return str(error)
    return None


@given(data=st.data())
@settings(max_examples=150)
def test_what_is_wrong_is_told_as_on_the_host(device, data):
    n = data.draw(st.integers(0, 5))
    pop = generate.random(n, (1, 9), n_vars=2, n_params=2, seed=data.draw(st.integers(0, 9)))
    kinds, values, offsets = pop.kinds.copy(), pop.values.copy(), pop.offsets.copy()
    for _ in range(data.draw(st.integers(0, 2))):
        array = data.draw(st.sampled_from([kinds, values, offsets]))
        if len(array):
            place = data.draw(st.integers(0, len(array) - 1))
            array[place] = data.draw(st.integers(0, 5) if array is kinds else st.integers(0, 70_000))
    arrays = on(device, kinds, values, offsets)
    told = message(lambda: ek.DevicePopulation(*arrays, device=device))
    assert told == message(lambda: ek.Population(kinds, values, offsets))
    if told is None:
        here, there = ek.Population(kinds, values, offsets), ek.DevicePopulation(*arrays, device=device)
        assert there.to_host() == here and len(there) == len(here)
        assert (there.n_vars, there.max_params, there.longest) == (here.n_vars, here.max_params, here.longest)
        assert np.array_equal(gpu.fetched(there.n_params), here.n_params) and there.all_valid == here.all_valid


@pytest.mark.parametrize(("kinds", "values", "offsets"), [
    ([VARIABLE], [0], [0, -5, 1]),
    ([VARIABLE], [0], [0, 2, 1]),
    ([VARIABLE], [0], [1, 1]),
    ([VARIABLE], [0], [0, 1 << 62]),
    ([VARIABLE, OPERATOR], [0, 255], [0, 2]),
    ([VARIABLE], [1 << 63], [0, 1]),
    ([PARAMETER], [65_535], [0, 1]),
    ([VARIABLE], [0], []),
    ([VARIABLE, VARIABLE], [0], [0, 1]),
    ([OPERATOR] * 70_000, [3] * 70_000, [0, 70_000]),
    ([VARIABLE] * 255 + [OPERATOR], [0] * 255 + [99], [0, 256]),
    ([9], [0], [0, 1]),
])  # fmt: skip
def test_arrays_that_are_no_population(device, kinds, values, offsets):
    arrays = on(device, kinds, values, offsets)
    told = message(lambda: ek.DevicePopulation(*arrays, device=device))
    assert told and told == message(lambda: ek.Population(*map(gpu.fetched, arrays)))


def test_it_keeps_copies_and_constants_bit_by_bit(device):
    bits = np.array([np.nan, -0.0, 1e-310, np.inf]).view(np.uint64)
    arrays = on(device, [CONSTANT] * 4, bits, range(5))
    pop = ek.DevicePopulation(*arrays, device=device)
    arrays[0][...] = 77
    assert np.array_equal(pop.to_host().values, bits)


def test_names_and_types(device):
    good = on(device, [VARIABLE], [0], [0, 1])
    pop = ek.DevicePopulation(*good, variables=["a", "b"], device=device)
    assert pop.n_vars == 2 and str(pop.to_host()[0]) == "a" and "1 expressions" in repr(pop)
    with pytest.raises(PopulationError, match="not below 1"):
        ek.DevicePopulation(*on(device, [VARIABLE], [1], [0, 1]), variables=["a"], device=device)
    with pytest.raises(PopulationError, match="kinds must be uint8 of one dimension, not int64"):
        ek.DevicePopulation(good[0].astype(np.int64), *good[1:], device=device)


@pytest.mark.skipif(gpu.missing() is None, reason="there is a GPU")
def test_without_a_gpu_it_says_what_mends_it():
    with pytest.raises(BackendError, match=r"a DevicePopulation needs a GPU: .*(pip install|driver)"):
        ek.DevicePopulation.of(ek.parse("x1"))


POPULATIONS = [
    generate.random(60, (1, 30), n_vars=2, n_params=2, seed=1),
    ek.parse(["x1 + p1"]),
    generate.random(300, (1, 9), n_vars=2, n_params=0, seed=2),
    ek.parse(["bad(", "x2 / x1", "p2 * log(x1)"], errors="mask"),
    generate.random(60, (20, 60), n_vars=2, n_params=2, seed=3),
    generate.random(60, (1, 30), n_vars=2, n_params=2, seed=1),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["host", "device"])
def test_one_engine_takes_one_population_after_the_other(device, kind):
    X = np.random.default_rng(0).uniform(0.5, 2, (40, 2))
    y, options = X[:, 0].copy(), {"precision": "ieee", "dtype": F8, "device": device}
    engine = interpreter.Engine(POPULATIONS[0], X, **options)
    for pop in POPULATIONS[1:]:
        params = np.random.default_rng(1).uniform(0.5, 2, (2, len(pop), pop.max_params))
        assert engine.update(pop if kind == "host" else ek.DevicePopulation.of(pop, device))
        fresh = interpreter.Engine(pop, X, **options)
        results = []
        for one in (engine, fresh):
            out = np.empty((2, len(pop), 40))
            one.evaluate(params, out)
            sums, jacobian = one.loss_sums(params, y, None, "square"), np.empty((2, len(pop), 40, pop.max_params))
            one.jacobian(params, jacobian)
            results.append((out, sums, jacobian, *one.normal_equations(params, y, None)))
        for ours, theirs in zip(*results, strict=True):
            assert np.array_equal(ours, theirs, equal_nan=True)


@pytest.mark.parametrize("backend", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_an_evaluator_takes_one_population_after_the_other(backend):
    X = np.random.default_rng(0).uniform(0.5, 2, (40, 2))
    ev = ek.Evaluator(POPULATIONS[0], X, backend)
    for pop in POPULATIONS[1:]:
        params = np.random.default_rng(1).uniform(0.5, 2, (len(pop), pop.max_params))
        ev.update(pop)
        assert ev.pop is pop
        expected = ek.Evaluator(pop, X, backend)
        assert np.array_equal(ev.evaluate(params), expected.evaluate(params), equal_nan=True)
        assert np.array_equal(ev.loss(params, X[:, 0]), expected.loss(params, X[:, 0]), equal_nan=True)


@pytest.mark.parametrize("backend", ["cpu", "numpy", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_a_population_that_does_not_fit_leaves_the_evaluator_as_it_was(backend):
    X = np.random.default_rng(0).uniform(0.5, 2, (40, 2))
    ev = ek.Evaluator(ek.parse(["x1 * x2", "x1"]), X, backend)
    before = ev.evaluate()
    for bad in (ek.parse("x3"), ek.parse("a + b", variables=["a", "b"]), 3, None):
        with pytest.raises(DataError):
            ev.update(bad)
        assert np.array_equal(ev.evaluate(), before) and len(ev.pop) == 2


def test_a_column_that_rounding_spoils_may_not_be_used_later():
    X = np.column_stack([np.linspace(1, 2, 9), 1.7e9 + np.arange(9)])
    ev = ek.Evaluator(ek.parse("x1"), X, "cpu")
    with pytest.raises(DataError, match="column x2 of X"):
        ev.update(ek.parse("x2"))
    ek.Evaluator(ek.parse("x1"), X, "cpu", dtype="float64").update(ek.parse("x2"))


def test_values_that_are_missing_are_told_of_the_new_population_too():
    X = np.array([[1.0, np.nan], [2.0, 3.0]])
    ev = ek.Evaluator(ek.parse("x1"), X, "cpu")
    assert ev.loss(None, [1, 2])[0] == 0
    ev.update(ek.parse("x2"))
    with pytest.raises(DataError, match="column x2 of X lacks 1 of 2 values"):
        ev.loss(None, [1, 2])
    ev = ek.Evaluator(ek.parse("x1"), {"x1": [1, 2]}, "cpu")
    with pytest.raises(DataError, match="X has 1 column"):
        ev.update(ek.parse("x2"))


@pytest.mark.gpu
def test_a_population_on_the_device_through_the_public_calls():
    pop = POPULATIONS[0]
    there, X = ek.DevicePopulation.of(pop), np.random.default_rng(0).uniform(0.5, 2, (40, 2))
    params = np.random.default_rng(1).uniform(0.5, 2, (len(pop), pop.max_params))
    ev = ek.Evaluator(there, X)
    assert ev.backend == "cuda"
    expected = ek.Evaluator(pop, X, "cuda")
    assert np.array_equal(ev.evaluate(params), expected.evaluate(params), equal_nan=True)
    with pytest.raises(BackendError, match=r"takes populations of the host: pop\.to_host\(\)"):
        ek.Evaluator(there, X, "cpu")
    ours, theirs = (ek.fit(one, X, X[:, 0], backend="cuda") for one in (there, pop))
    assert np.array_equal(ours.params, theirs.params, equal_nan=True)
    with pytest.raises(DataError, match="needs 3"):
        ev.update(ek.DevicePopulation.of(ek.parse("x3")))


def test_a_backend_of_the_host_takes_populations_of_the_host(device):
    there, X = ek.DevicePopulation.of(ek.parse("x1 + 1"), device), np.ones((3, 1))
    with pytest.raises(BackendError, match=r"'cpu' takes populations of the host: pop\.to_host\(\)"):
        ek.Evaluator(there, X, "cpu")
    ev = ek.Evaluator(ek.parse("x1"), X, "cpu")
    with pytest.raises(BackendError, match=r"'cpu' takes populations of the host"):
        ev.update(there)
    assert ev.evaluate().tolist() == [[1, 1, 1]]
    ev.update(there.to_host())
    assert ev.evaluate().tolist() == [[2, 2, 2]]
    assert ek.fit(there, X, X[:, 0], backend="cpu").reason == ["no parameters to fit"]
