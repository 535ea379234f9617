"""``python -m exprkit compile``: every feature used once on few data, so that its loops are compiled and kept on disk.

>>> from exprkit.warm_up import FEATURES
>>> list(FEATURES)
['evaluation', 'fits', 'losses', 'generators', 'exhaustive search', 'search']
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import exprkit as ek
from exprkit.runtime.progress import Progress, shown

SECONDS = 20.0  # that each search for formulas takes at the most, compiling apart


def _evaluation() -> None:
    pop, points = _few()
    for dtype in ("float32", "float64"):
        for precision in ("ieee", "fast"):
            ev = ek.Evaluator(pop, points.X, "cpu", precision, dtype)
            params = np.ones((len(pop), pop.max_params))
            ev.evaluate(params)
            ev.loss(params, points.y)
            ev.jacobian(params)


def _fits() -> None:
    pop, points = _few()
    for dtype in ("float32", "float64"):
        ek.fit(pop, points.X, points.y, restarts=2, dtype=dtype).to_pandas()


def _losses() -> None:
    pop, points = _few()
    for loss in ("gaussian", "poisson", "mae", "huber", "logcosh(f - y)", "huber(f - y, 0.2)"):
        ek.fit(pop[:20], points.X, np.abs(points.y), loss=loss)


def _generators() -> None:
    pop = ek.generate.random(10)
    ek.generate.exhaustive(4)
    ek.breed(pop, np.ones(len(pop)), 10)


def _exhaustive_search() -> None:
    ek.exhaustive_search(_few()[1], max_nodes=4, restarts=2, progress=False)


def _search() -> None:
    x = np.random.default_rng(0).uniform(1, 3, (60, 2))
    noise = 0.01 * np.random.default_rng(1).standard_normal(60)
    for y in (x[:, 0] * np.exp(x[:, 1]) + noise, 0.5 * x[:, 0] * x[:, 1]):
        ek.SymbolicRegressor(niterations=2, timeout_in_seconds=SECONDS, random_state=0).fit(x, y)


def _few() -> tuple[ek.Population, ek.data.Dataset]:
    return ek.parse(ek.data.esr_sample()), ek.data.rough_pipe()


FEATURES: dict[str, Callable[[], None]] = {
    "evaluation": _evaluation,
    "fits": _fits,
    "losses": _losses,
    "generators": _generators,
    "exhaustive search": _exhaustive_search,
    "search": _search,
}


def compile_all(progress: Progress = True) -> None:
    """Use every feature once."""
    with shown(progress, len(FEATURES), "compiling", " features") as done:
        for name, use in FEATURES.items():
            done(0, name)
            use()
            done(1, name)
