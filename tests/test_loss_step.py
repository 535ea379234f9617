"""Losses that are asked for again: launches that were kept beside those of a new engine, bit by bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import exprkit as ek
from exprkit.backends.gpu.device import fetched
from exprkit.backends.interpreter import engine as interpreter
from exprkit.expressions import generate

F4 = np.dtype("float32")


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    pop = generate.random(60, n_tokens=(3, 20), n_vars=2, n_params=2, seed=3) + ek.parse(["oops("], errors="mask")
    return pop, rng.uniform(0.2, 3, (150, 2)).astype(F4), rng.uniform(0.2, 3, (2, 150)).astype(F4), rng


def made(pop, X, device):
    return interpreter.Engine(pop, X, precision="ieee", dtype=F4, device=device)


def assert_equal(a, b):
    np.testing.assert_array_equal(fetched(a), fetched(b))


@pytest.mark.parametrize("there", [False, True], ids=["host", "device"])
def test_steps_are_what_a_new_engine_gives(device, problem, there):
    pop, X, (y, w), rng = problem
    place = device.xp.asarray if there else np.asarray
    X, y, w = place(X), place(y), place(w)
    engine, kept = made(pop, X, device), []
    for k in range(8):
        params = place(rng.uniform(-2, 2, (1 + k // 6, len(pop), pop.max_params)).astype(F4))
        for kind, weights in (("square", None), ("absolute", w)):
            kept.append((engine.loss_sums(params, y, weights, kind), params, weights, kind))
    kept_ready = dict(engine._ready)
    engine.loss_sums(params, y, w, "absolute")
    assert engine._ready == kept_ready  # nothing is made anew
    for sums, params, weights, kind in kept:  # each in memory of its own
        assert_equal(sums, made(pop, X, device).loss_sums(params, y, weights, kind))
    assert np.isnan(fetched(sums)[:, -1]).all()


def test_parameters_and_sums_lie_on_either_side(device, problem):
    pop, X, (y, _), rng = problem
    sides = np.asarray, device.xp.asarray
    params = [rng.uniform(-2, 2, (1, len(pop), pop.max_params)).astype(F4) for _ in range(6)]
    wanted = [made(pop, X, device).loss_sums(numbers, y, None, "square") for numbers in params]
    for data, own, out in itertools.product(sides, sides, (None, *sides)):
        engine = made(pop, data(X), device)
        prepared, place = engine.prepare(data(y), None, "square"), out and out(np.zeros((1, len(pop))))
        for numbers, expected in zip(params, wanted, strict=True):
            sums = engine.sums(own(numbers), prepared, None, place)
            assert_equal(sums if place is None else place, expected)


def test_other_targets_and_other_populations(device, problem):
    pop, X, (y, z), rng = problem
    engine = made(pop, X, device)
    params = rng.uniform(-2, 2, (1, len(pop), pop.max_params)).astype(F4)
    for target in (y, y, y, z, z, y, y):
        assert_equal(
            engine.loss_sums(params, target, None, "square"),
            made(pop, X, device).loss_sums(params, target, None, "square"),
        )
    y[3] = 2.5  # the same memory, other numbers
    assert_equal(engine.loss_sums(params, y, None, "square"), made(pop, X, device).loss_sums(params, y, None, "square"))
    for other in (pop[::-1], pop[:7], pop + pop, pop):
        engine.update(other)
        some = np.ascontiguousarray(np.resize(params, (1, len(other), other.max_params)))
        for _ in range(3):
            expected = made(other, X, device).loss_sums(some, y, None, "square")
            assert_equal(engine.loss_sums(some, y, None, "square"), expected)


def test_values_and_more_sets_in_between(device, problem):
    pop, X, (y, _), rng = problem
    engine = made(pop, X, device)
    params = rng.uniform(-2, 2, (9, len(pop), pop.max_params)).astype(F4)
    expected = made(pop, X, device).loss_sums(params, y, None, "square")
    for k in range(3):
        assert_equal(engine.loss_sums(params[k : k + 1], y, None, "square"), expected[k : k + 1])
    out = np.empty((9, len(pop), len(X)), F4)
    engine.evaluate(params, out)  # needs more memory: what was recorded is let go
    for k in range(3, 7):
        assert_equal(engine.loss_sums(params[k : k + 1], y, None, "square"), expected[k : k + 1])
    again = np.empty_like(out)
    engine.evaluate(params, again)
    assert_equal(again, out)


def test_large_ones_and_those_without_parameters(device, problem, monkeypatch):
    _, X, (y, _), _ = problem
    pop = ek.parse(["x1 + x2", "log(x1)"])
    engine, nothing = made(pop, X, device), np.empty((1, 2, 0), F4)
    expected = made(pop, X, device).loss_sums(nothing, y, None, "square")
    for _ in range(4):
        assert_equal(engine.loss_sums(nothing, y, None, "square"), expected)
    monkeypatch.setattr(interpreter, "MOST_KEPT", 4)
    engine = made(pop, X, device)
    for _ in range(3):
        assert_equal(engine.loss_sums(nothing, y, None, "square"), expected)
    assert not engine._partials.size
    assert device.lanes > 1 or not engine._ready  # on a GPU one tile has all points, whose sums have no parts


@pytest.mark.parametrize("n", [11, 27])
def test_sums_of_one_tile_are_those_of_several(device, n):
    pop = generate.random(30, n_tokens=(1, 15), n_vars=2, n_params=1, seed=5)
    rng = np.random.default_rng(1)
    X = rng.uniform(0.2, 3, (n * device.lanes, 2)).astype(F4)
    params, (y, w) = rng.uniform(-2, 2, (2, 30, 1)).astype(F4), rng.uniform(0.2, 3, (2, len(X))).astype(F4)
    found = {"square": set(), "sum": set()}
    for points in (4, 12, 32):  # a tile has all of 11 from 12 points a thread on, of 27 at 32
        engine = interpreter.Engine(pop, X, precision="ieee", dtype=F4, device=device, points_per_thread=points)
        for kind, weights in (("square", None), ("sum", w)):
            sums = [engine.loss_sums(params, y, weights, kind).tobytes() for _ in range(3)]
            found[kind].update(sums)
    assert [len(bits) for bits in found.values()] == [1, 1]


@pytest.mark.parametrize("points", [4, 12])
def test_a_sum_of_negative_zeros_is_zero_in_one_tile_too(device, points):
    X = np.zeros((12 * device.lanes, 1), F4)
    engine = interpreter.Engine(
        ek.parse("neg(x1)"), X, precision="ieee", dtype=F4, device=device, points_per_thread=points
    )
    sums = engine.loss_sums(np.empty((1, 1, 0), F4), X[:, 0], None, "sum")
    assert fetched(sums).tobytes() == np.zeros(1).tobytes()
