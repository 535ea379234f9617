"""Small launches of every kind: ``PYTHONPATH=. compute-sanitizer --tool memcheck python tests/gpu_sanitize.py``.

CuPy's pool is off: it would hide accesses outside of arrays.
"""

from __future__ import annotations

import cupy
import numpy as np

import exprkit as ek
from exprkit.expressions import generate
from exprkit.study.thesis.baseline import Baseline

cupy.cuda.set_allocator(None)
pop = generate.random(40, n_tokens=(1, 60), operators="thesis", n_vars=3, n_params=2, seed=1)
params = np.random.default_rng(0).uniform(-2, 2, (2, 40, 2)).astype(np.float32)
for n_points in (1, 127, 516, 1030):
    X = np.random.default_rng(1).uniform(0.2, 3, (n_points, 3)).astype(np.float32)
    for options in ({}, {"points_per_thread": 4, "block_size": 64}):
        ev = ek.Evaluator(pop, X, "cuda", "fast", **options)
        ev.evaluate(params, count_nonfinite=True)
        ev.loss(params, X[:, 0], weights=X[:, 1])
        ev.loss(params, X[:, 0])
Baseline(pop, X, precision="ieee").evaluate(params[0], np.empty((40, len(X)), np.float32))
some = pop[:12]  # modules take long to load under the sanitizer
for n_points, precision, options in ((1, "fast", {}), (130, "fast", {"points_per_thread": 4}), (2_001, "fast", {})):
    X = np.random.default_rng(1).uniform(0.2, 3, (n_points, 3)).astype(np.float32)
    ev = ek.Evaluator(some, X, "ptx", precision, structures_per_module=3, **options)
    for _ in range(2):
        ev.evaluate(params[:, :12], count_nonfinite=True)
    ev.loss(params[:, :12], X[:, 0], weights=X[:, 1])
    ev.loss(params[:, :12], X[:, 0], kind="mae")
wide = generate.random(20, n_tokens=(10, 60), n_vars=700, seed=2)
X = np.random.default_rng(1).uniform(0.2, 3, (300, 700)).astype(np.float32)
ek.Evaluator(wide, X, "cuda", "ieee").evaluate(np.zeros((20, wide.max_params), np.float32))
print("done")
