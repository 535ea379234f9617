"""Least squares on all pairs of a pool on a GPU: the sums of ``regress`` as matrix products.

In: what ``regress.regressed`` takes.  Out: the ``Best`` that it gives, but for rounding.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from exprkit.backends.gpu.device import fetched
from exprkit.regression.sums.regress import SINGULAR, Best
from exprkit.runtime.budget import check

AT_ONCE = 1 << 24  # pairs whose errors are made at a time


def regressed(device: Any, f: np.ndarray, h: np.ndarray, v: np.ndarray, weight: np.ndarray, starts: np.ndarray) -> Best:
    """The best h of each group for every f."""
    xp = device.xp
    f, h, v, weight = (xp.asarray(array) for array in (f, h, v, weight))
    groups = list(itertools.pairwise(starts.tolist()))
    error, place = xp.full((len(f), len(groups)), np.inf), xp.zeros((len(f), len(groups)), np.int64)
    square, across, h_square = f * f * weight, f * v * weight, h * h
    ff, fv = square.sum(axis=1)[:, None], across.sum(axis=1)[:, None]
    step = max(1, AT_ONCE // len(h))
    for begin in range(0, len(f), step):
        check()
        part_of_f = slice(begin, begin + step)
        sums = square[part_of_f] @ h.T, square[part_of_f] @ h_square.T, across[part_of_f] @ h.T
        errors = _errors(xp, ff[part_of_f], fv[part_of_f], sums)
        for k, (first, last) in enumerate(groups):
            part = errors[:, first:last]
            error[part_of_f, k], place[part_of_f, k] = part.min(axis=1), first + part.argmin(axis=1)
    return Best(fetched(error), fetched(place))


def _errors(xp: Any, ff: Any, fv: Any, sums: tuple[Any, Any, Any]) -> Any:
    """Squared errors of all pairs as shares of v's square; inf where the columns are dependent, or no numbers."""
    fh, hh, vh = sums
    with np.errstate(all="ignore"):
        determinant = ff * hh - fh * fh
        explained = fv * fv * hh - 2 * fv * vh * fh + vh * vh * ff
        error = xp.maximum(1 - explained / determinant, 0.0)
        usable = (determinant > SINGULAR * ff * hh) & (ff > 0) & (ff < np.inf) & (error >= 0)
    return xp.where(usable, error, np.inf)
