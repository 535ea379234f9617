"""Derivatives and fits of the CUDA backend on a GPU (marker ``gpu``)."""

from __future__ import annotations

import numpy as np
import pytest
from fit_checks import COMMON, F4, F8, check_derivatives, check_optimum, data, parameters, values

import exprkit as ek
from exprkit.backends import objective
from exprkit.backends.interpreter import batches
from exprkit.backends.interpreter import engine as interpreter
from exprkit.backends.reference import engine as definition
from exprkit.expressions import generate
from exprkit.operators import ops

pytestmark = pytest.mark.gpu


def engine_of(pop, X, precision):
    return interpreter.Engine(pop, X, precision=precision, dtype=X.dtype)


TEXTS = [text for text in COMMON if "p2" in text and ("p3" not in text or "p5" in text)]  # 2, 6 or 7 parameters


@pytest.mark.parametrize(("dtype", "precision", "n_points"), [(F4, "fast", 362), (F8, "ieee", 2049)])
def test_derivatives(dtype, precision, n_points):
    check_derivatives(engine_of, dtype, precision, n_points, TEXTS, weighted=n_points == 2049)


def test_derivatives_of_every_operator():
    rows = [row for row in ops.OPERATORS if row.derivative]
    middles = {row.name: [f"{(low + high) / 2} + {(high - low) / 4}" for low, high in row.domain] * 2 for row in rows}
    texts = []
    for row in rows:
        for operands in (("x1 * p1", "x2 * p2"), ("p1", "x2 * p2"), ("x1 * p1", "p2")):
            given = [f"{middles[row.name][k]} * {x}" for k, x in enumerate(operands[: row.arity])]
            texts.append(f"{row.name}({', '.join(given)}) + 0 * p1 * p2")
    pop, random = ek.parse(texts), np.random.default_rng(3)
    X, params = random.uniform(-0.9, 0.9, (362, 2)).astype(F4), random.uniform(0.6, 1.0, (1, len(texts), 2)).astype(F4)
    found, wanted = np.empty((2, 1, len(texts), 362, 2), F4)
    engine_of(pop, X, "ieee").jacobian(params, found)
    definition.Engine(pop, X, precision="ieee", dtype=F4).jacobian(params, wanted)
    size = np.nanmax(np.abs(np.where(np.isfinite(wanted), wanted, 0)), axis=2, keepdims=True)
    close = (np.abs(found - wanted) <= 1e-4 * size + 1e-6) | ~np.isfinite(wanted)
    assert (close.mean(axis=(0, 2, 3)) > 0.98).all(), [texts[i] for i in np.flatnonzero(~close.all(axis=(0, 2, 3)))[:5]]


@pytest.mark.parametrize(("dtype", "n_points"), [(F4, 362), (F4, 5000), (F8, 2049)])
def test_fits_end_at_an_optimum(dtype, n_points):
    texts = ["p1 + p2 * x1", "abs(p1) ^ x1 * p2 + x2", "p1 * p2 + x1", "inv(p1) * x1 + sqr(p2)"]
    if n_points > 362:
        texts += ["p1 + p2 * x1 + p3 * x2 + p4 * x1 * x2 + p5 * inv(x1) + p6 * sqr(x2)"]
    check_optimum(engine_of, dtype, "fast", texts, n_points=n_points)


@pytest.mark.parametrize("kind", [objective.HUBER, objective.POISSON])
def test_other_losses(kind):
    options = objective.Options(kind=kind, delta=0.3, max_iter=200)
    check_optimum(engine_of, F8, "fast", ["p1 + p2 * x1", "p1 * abs(x1) ^ p2 + x2"], options, n_points=2049)


def test_the_same_bits_every_time():
    pop = generate.random(2000, n_tokens=(3, 30), operators="esr", n_vars=2, n_params=2, seed=1)
    X, y = data(362, dtype=F4), data(362, 1, F4, 3)[:, 0].copy()
    starts = np.random.default_rng(0).uniform(-2, 2, (3, len(pop), pop.max_params))
    engine = engine_of(pop, X, "fast")
    one, two = (engine.fit(starts, y, None, objective.Options()) for _ in "ab")
    for a, b in zip(one[:4], two[:4], strict=True):
        assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize(("dtype", "precision"), [(F4, "fast"), (F8, "ieee")])
def test_the_same_bits_however_many_fits_a_block_makes(monkeypatch, dtype, precision):
    pop = generate.random(300, n_tokens=(3, 30), operators="esr", n_vars=2, n_params=4, seed=1)
    X, y = data(32, dtype=dtype), data(32, 1, dtype, 3)[:, 0].copy()
    starts = np.random.default_rng(0).uniform(-2, 2, (2, len(pop), pop.max_params))
    found = []
    for waves in (0, 1 << 30):  # several wherever a block can, and one alone
        monkeypatch.setattr(batches, "WAVES", waves)
        found.append(engine_of(pop, X, precision).fit(starts, y, None, objective.Options()))
    for a, b in zip(found[0][:4], found[1][:4], strict=True):
        assert a.tobytes() == b.tobytes()


def test_device_arrays_stay_there():
    import cupy

    pop = ek.parse(TEXTS[:4])
    X, params, y = data(362, dtype=F4), parameters(pop, 2, F4), data(362, 1, F4, 3)[:, 0].copy()
    on_host = engine_of(pop, X, "fast")
    on_card = engine_of(pop, cupy.asarray(X), "fast")
    made = on_card.normal_equations(cupy.asarray(params), cupy.asarray(y), None)
    assert all(isinstance(one, cupy.ndarray) for one in made)
    for a, b in zip(made, on_host.normal_equations(params, y, None), strict=True):
        assert (a.get() == b).all()
    out = cupy.empty((2, len(pop), 362, pop.max_params), F4)
    on_card.jacobian(cupy.asarray(params), out)
    same = np.empty(out.shape, F4)
    on_host.jacobian(params, same)
    assert (out.get() == same).all()
    goals = (on_card, cupy.asarray(y)), (on_host, y)
    fits = [engine.fit(parameters(pop), goal, None, objective.Options()) for engine, goal in goals]
    assert (fits[0].loss == fits[1].loss).all()


def test_losses_of_a_fit_are_those_of_its_parameters():
    pop = generate.exhaustive(5, n_vars=2)
    X, y = data(362, dtype=F4), data(362, 1, F4, 3)[:, 0].copy()
    starts = np.random.default_rng(0).uniform(-2, 2, (4, len(pop), pop.max_params))
    fit = engine_of(pop, X, "fast").fit(starts, y, None, objective.Options())
    f = values(pop, X, np.nan_to_num(fit.params)[None])[0]
    with np.errstate(over="ignore", invalid="ignore"):
        sse = ((f - y) ** 2).sum(-1)
    fine = np.isfinite(fit.loss) & np.isfinite(sse)
    assert fine.mean() > 0.9
    near = np.abs(fit.loss[fine] - sse[fine]) <= 1e-3 * sse[fine] + 1e-9
    assert near.mean() > 0.99
