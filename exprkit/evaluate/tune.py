"""``Evaluator.tune``: times the variants of the GPU interpreter for the workload at hand.

In: an evaluator.  Out: times, and an evaluator that launches the fastest.

    >>> import exprkit as ek
    >>> ek.Evaluator(ek.parse(["x1 + p1"]), [[1.0], [2.0]], "cpu").tune()
    Traceback (most recent call last):
    exprkit.errors.BackendError: backend 'cpu' has no variants to tune; backend='cuda' has
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit.backends import contract
from exprkit.backends.cases.tuning import Tuned
from exprkit.errors import BackendError, one_of
from exprkit.evaluate import inputs

KINDS = ("square", "absolute", "values")


def tune(
    ev: Any, params: Any = None, y: Any = None, weights: Any = None, kind: str = "square", seconds: float = 2.0
) -> Tuned:
    """Time the kernel's variants that can run on this GPU for this work, and take the fastest from now on.

    All variants give the same bits.  The fastest is kept in the cache folder, for this card, driver and kernel and for
    work of these sizes: later evaluators take it at once, and ``explain`` says so.

    Parameters
    ----------
    params
        As for ``evaluate``.
    y, weights : (n_points,), optional
        As for ``loss``; by default zeros and none.
    kind : {"square", "absolute", "values"}
        What is timed: the sum of a loss, or predictions.
    seconds : float
        About how long, besides compiling.

    Returns
    -------
    Tuned
        ``print`` says what it gained; ``.seconds`` by variant, ``.best``, ``.chosen`` (the tree's), ``.gain``.

    Raises
    ------
    BackendError
        If the backend has no such variants: "cuda" has.
    """
    one_of("kind", kind, KINDS)
    if not isinstance(ev.engine, contract.Tunable):
        raise BackendError(f"backend {ev.backend!r} has no variants to tune; backend='cuda' has")
    sets, _ = inputs.parameter_sets(params, ev.pop, ev.dtype, ev.adopt)
    target, w = ev.target(np.zeros(ev.n_points) if y is None else y, weights)
    found: Tuned = ev.engine.tune(sets, target, w, kind, float(seconds))
    return found
