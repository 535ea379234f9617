"""
Backends, timed
===============

The same 200 formulas on more and more points: by NumPy, which defines every result, and by the interpreter ``cpu``.
On a machine with a GPU, ``ek.backends()`` has ``cuda`` and ``ptx`` as well, and they are timed with the others.
"""

import time

import matplotlib.pyplot as plt
import numpy as np

import exprkit as ek

pop = ek.generate.random(200, n_vars=2, n_params=0, seed=0)
sizes = [10, 100, 1000, 10_000]


def seconds(backend, n_points):
    """Least time of three to compare all formulas with y at ``n_points``, in seconds."""
    points = ek.data.uniform(n_points)
    step = ek.Evaluator(pop, points.X, backend).loss_of(points.y, "rmse")
    times = []
    for _ in range(3):
        start = time.perf_counter()
        step(None)
        times.append(time.perf_counter() - start)
    return min(times)


plt.style.use("exprkit.study.plots")
figure, axes = plt.subplots()
for name in (name for name, state in ek.backends().items() if state.available):
    axes.loglog(sizes, np.divide([seconds(name, n) for n in sizes], len(pop)) * 1e6, "o-", label=name)
axes.set(xlabel="points", ylabel="time per formula (µs)")
axes.legend()
