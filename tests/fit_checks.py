"""What derivatives and fits of the GPU backend are checked by, on a GPU and on the card that is not there."""

from __future__ import annotations

import numpy as np

import exprkit as ek
from exprkit.backends import objective
from exprkit.backends.reference import engine as definition
from exprkit.backends.reference.levenberg_marquardt import losses_and_weights

F4, F8 = np.dtype("float32"), np.dtype("float64")
COMMON = (  # 0 to 7 parameters, prologues, pairs and slots, of operators that the small kernels have
    "p1 + p2 * x1", "abs(x1) ^ p1", "x2 / (p1 + x1) - sqr(p2 * x2)", "x1 * x2", "abs(p1) ^ x1 + x2", "p1 * p2 + x1",
    "p1 * sqr(p2 + x1) + p3 / sqr(p4 + x2)", "inv(p1) * x1 + sqr(p2)", "abs(x1) ^ (x2 * p1 + p2)", "p1",
    "((x1 + p1) * (x2 + p2)) / (sqr(x1 + p3) + sqr(x2))", "(p1 * x1 + p2) / (p3 * x2 + p4) + p5 * inv(p6 + x1)",
    "p1 + p2 * x1 + p3 * x2 + p4 * x1 * x2 + p5 * inv(x1) + p6 * sqr(x2) + p7 * abs(x1) ^ 1.5",
)  # fmt: skip


def data(n_points, n_vars=2, dtype=F8, seed=1):
    return np.random.default_rng(seed).uniform(0.2, 3.0, (n_points, n_vars)).astype(dtype)


def parameters(pop, n_sets=1, dtype=F8, seed=2):
    return np.random.default_rng(seed).uniform(0.5, 2.0, (n_sets, len(pop), pop.max_params)).astype(dtype)


def values(pop, X, params):
    """The definition, (n_sets, n_exprs, n_points)."""
    out = np.empty((*params.shape[:2], len(X)))
    definition.Engine(pop, X.astype(F8), precision="ieee", dtype=F8).evaluate(params.astype(F8), out)
    return out


def differences(pop, X, params, step=1e-6):
    """Central differences of the definition, (n_sets, n_exprs, n_points, max_params)."""
    params = params.astype(F8)
    J = np.zeros((*params.shape[:2], len(X), params.shape[2]))
    for j in range(params.shape[2]):
        h = np.zeros(params.shape)
        h[..., j] = step * np.maximum(1, np.abs(params[..., j]))
        J[..., j] = (values(pop, X, params + h) - values(pop, X, params - h)) / (2 * h[..., j, None])
    return J


def off(found, wanted):
    """Largest error, relative to the largest number of an expression (second axis)."""
    axes = tuple(range(2, wanted.ndim))
    size = np.abs(wanted).max(axis=axes, keepdims=True) if axes else np.abs(wanted)
    return float((np.abs(found - wanted) / np.maximum(size, 1e-6)).max())


def check_derivatives(engine_of, dtype, precision, n_points=61, texts=COMMON, weighted=False):
    """Jacobian, normal equations and gradients of one engine against the definition's differences."""
    pop = ek.parse(list(texts)).expanded()
    X, params, y = data(n_points, dtype=dtype), parameters(pop, 2, dtype), data(n_points, 1, dtype, 3)[:, 0].copy()
    w = np.where(np.arange(n_points) % 5, 0.5, 0.0).astype(dtype) if weighted else None
    engine, given = engine_of(pop, X, precision), np.ones(n_points) if w is None else w.astype(F8)
    f, J = values(pop, X, params), differences(pop, X, params)
    r = f - y
    few = 1e-7 if dtype == F8 else 2e-5
    out = np.full(J.shape, 7, dtype)
    engine.jacobian(params, out)
    assert off(out, J) < few
    jtj, jtr, sse = engine.normal_equations(params, y, w)
    gradient = np.einsum("sepi,sep,p->sei", J, r, given)
    sizes = np.einsum("sepi,sep,p->sei", np.abs(J), np.abs(r), given)  # the sums may cancel
    assert off(jtj, np.einsum("sepi,sepj,p->seij", J, J, given)) < few
    assert (np.abs(jtr - gradient) <= few * sizes + 1e-12).all()
    assert off(sse, (given * r * r).sum(-1)) < few
    sums, slopes = engine.loss_and_grad(params, y, w, "square")
    assert off(sums, (given * r * r).sum(-1)) < few and (np.abs(slopes - 2 * gradient) <= 2 * few * sizes + 1e-12).all()
    sums, slopes = engine.loss_and_grad(params, y, w, "absolute")
    assert off(sums, (given * np.abs(r)).sum(-1)) < few
    wanted, sizes = (np.einsum("sepi,sep,p->sei", g(J), g(np.sign(r)), given) for g in (np.asarray, np.abs))
    assert (np.abs(slopes - wanted) <= 2 * few * sizes + 1e-12).all()
    sums, slopes = engine.loss_and_grad(params, y, w, "sum")
    assert (np.abs(sums - (given * r).sum(-1)) <= few * (given * np.abs(r)).sum(-1)).all()
    wanted, sizes = (np.einsum("sepi,p->sei", g(J), given) for g in (np.asarray, np.abs))
    assert (np.abs(slopes - wanted) <= 2 * few * sizes + 1e-12).all()


def check_fit(engine_of, dtype, precision, texts, options=None, n_points=61, weights=None, n_starts=3, rtol=1e-6):
    """Fits against the definition's from the same starts: the losses agree, and belong to the parameters."""
    options = options or objective.Options()
    pop = ek.parse(list(texts)).expanded()
    X = data(n_points, dtype=dtype)
    y = (np.exp(0.3 * X[:, 0]) + X[:, 1] + 0.1 * np.sin(40 * X[:, 0])).astype(dtype)
    starts = np.random.default_rng(4).uniform(0.5, 2.0, (n_starts, len(pop), pop.max_params))
    found = engine_of(pop, X, precision).fit(starts, y, weights, options)
    reference = definition.Engine(pop, X.astype(F8), precision="ieee", dtype=F8)
    wanted = reference.fit(starts, y.astype(F8), None if weights is None else weights.astype(F8), options)
    np.testing.assert_allclose(found.loss, wanted.loss, rtol=rtol, atol=1e-9)
    assert ((found.status <= objective.GTOL) == (wanted.status <= objective.GTOL)).all()
    assert (np.isnan(found.params) == (np.arange(pop.max_params) >= pop.n_params[:, None])).all()
    f = values(pop, X, np.nan_to_num(found.params)[None])[0]
    if options.kind == objective.SQUARES:
        w = np.ones(n_points) if weights is None else weights
        np.testing.assert_allclose(((f - y) ** 2 * w).sum(-1), found.loss, rtol=1e-4, atol=1e-9)
    return pop, found, wanted


def check_optimum(engine_of, dtype, precision, texts, options=None, n_points=61):
    """Fits end where the gradient, by differences of the definition, is 0; with its loss, below all starts."""
    options = options or objective.Options()
    pop = ek.parse(list(texts)).expanded()
    X = data(n_points, dtype=dtype)
    y = (np.exp(0.3 * X[:, 0]) + X[:, 1] + 0.1 * np.sin(40 * X[:, 0])).astype(dtype)
    starts = np.random.default_rng(4).uniform(0.5, 2.0, (3, len(pop), pop.max_params))
    found = engine_of(pop, X, precision).fit(starts, y, None, options)
    params = np.nan_to_num(found.params)[None]
    f, J = values(pop, X, params)[0], differences(pop, X, params)[0]
    losses, q = losses_and_weights(options.kind, options.delta, f, y.astype(F8))
    few = 1e-4 if dtype == F8 else 3e-3
    np.testing.assert_allclose(found.loss, losses.sum(-1), rtol=1e-6 if dtype == F8 else 1e-4)
    slopes, sizes = np.einsum("epi,ep->ei", J, q * (f - y)), np.einsum("epi,epi,ep->ei", J, J, q)
    assert (np.abs(slopes) <= few * np.sqrt(sizes * found.loss[:, None]) + 1e-9).all()
    before = losses_and_weights(options.kind, options.delta, values(pop, X, starts), y.astype(F8))[0].sum(-1)
    assert (found.loss <= np.nanmin(before, axis=0) * 1.0001).all()
    assert (found.status <= objective.GTOL).all() and (found.iterations < options.max_iter).all()
