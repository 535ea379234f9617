"""The choices against times that were measured: by how much they take longer than the fastest variant.

The files hold the time of every variant that was near the fastest by its estimate.  With the work of ``cases_regret``
and ``cases_regret_more`` the constants of the estimate were chosen, with that of ``cases_regret_unseen`` one, of values
and losses; ``cases_regret_h100`` is of before fits had shapes of 12 and 16 warps.
"""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict

import numpy as np
import pytest

from exprkit.backends.cases import fits, interpreter
from exprkit.backends.cases.tree import CARDS
from exprkit.backends.gpu.schedule import Sizes

AIM = 0.05, 0.15  # on average, and at most
FIXED = fits.FitVariants(4, True)
# tangents of most expressions, and whether most have uncommon operators
KINDS = {
    "thesis": (2, False), "trees": (2, True), "columns": (2, False), "many trees": (2, True), "elementary": (4, True),
    "gp": (3, True), "polynomials": (4, False), "search": (1, True), "core_maths": (2, False), "waves": (4, True),
}  # fmt: skip

# columns, values put aside, and whether the operators' code is bulky
SIZES = {
    "thesis": (12, 0, 0), "trees": (100, 2, 1), "columns": (50, 1, 0), "elementary": (24, 2, 1), "gp": (15, 2, 1),
    "polynomials": (5, 2, 0), "search": (48, 2, 1), "core_maths": (8, 2, 0), "waves": (10, 2, 0),
}  # fmt: skip
N_EXPRS = 9_880


def times_of(root, name, fits_alone):
    """By piece of work, the microseconds of all variants that were timed."""
    found = defaultdict(dict)
    with (root / "data" / "results" / f"{name}.csv").open() as file:
        for row in csv.DictReader(file):
            if (row["task"] == "fits") == fits_alone and row["variant"] != "tree":
                work = row["imitates"], row["task"], row["expressions"], int(row["n_points"])
                found[work][row["variant"]] = float(row["us"])
    return found


def chosen_launch(card, task, kind, n_points, of):
    """The variant of values or losses that is chosen now."""
    limits = CARDS[card or "sm_90"].limits._replace(multiprocessors=132)  # the others are imitated
    fixed = interpreter.VariantSet(4, fast=True, wide=task == "values" and n_points % 4 == 0)
    columns, slots, bulky = SIZES[kind]
    estimates = interpreter.times(fixed, Sizes(n_points, N_EXPRS, columns, slots, bulky), limits)[:, 0]
    shapes = [f"{one.vectors}x{one.block}{'' if one.columns_shared else ' global'}"
              for one in interpreter.shapes(fixed)]  # fmt: skip
    assert len(of) >= 10
    return shapes[int(np.argmin(estimates))]


def chosen_fit(card, task, kind, n_points, of):
    """The shape of fits that is chosen now among those that were timed."""
    tangents, rare = KINDS[kind]
    estimates = fits.fit_times(FIXED, tangents, n_points, rare)[:, 0]
    shapes = [f"{one.vectors}x{one.warps} warps" for one in fits.fit_shapes(FIXED, tangents)]
    assert len(of) >= 3
    return min((time, shape) for time, shape in zip(estimates, shapes, strict=True) if shape in of)[1]


def regrets(root, name, choose):
    """By piece of work, how much longer the choice takes than the fastest, as a share."""
    times = times_of(root, name, choose is chosen_fit)
    return {work: of[choose(*work, of)] / min(of.values()) - 1 for work, of in times.items()}


@pytest.mark.parametrize(
    "name, n, most", [("cases_regret_h100", 42, 0.07), ("cases_regret", 42, 0.05), ("cases_regret_more", 60, 0.17),
                      ("cases_regret_unseen", 72, 0.11)]
)  # fmt: skip
def test_values_and_losses_are_near_the_fastest_variant_that_was_timed(root, name, n, most):
    found = regrets(root, name, chosen_launch)
    assert len(found) == n
    assert statistics.mean(found.values()) <= 0.01 and max(found.values()) <= most, found


@pytest.mark.parametrize(
    "name, n, over", [("cases_regret_h100", 10, 0), ("cases_regret", 10, 0), ("cases_regret_more", 12, 0),
                      ("cases_regret_unseen", 14, 1)]
)  # fmt: skip
def test_fits_are_near_the_fastest_shape_that_was_timed(root, name, n, over):
    """But for one piece of work, expressions of one kind that a population mixes with others (25 %)."""
    found = regrets(root, name, chosen_fit)
    assert len(found) == n
    assert statistics.mean(found.values()) <= AIM[0] and max(found.values()) < 0.26, found
    assert sum(regret > AIM[1] for regret in found.values()) == over
