"""Where fits of exhaustive searches begin, beside the same written with NumPy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import exprkit as ek
from exprkit.runtime.hashes import GOLDEN, mixed
from exprkit.search import best_fits


def starts(names, width, start, seed, sizes):
    """One start of every expression, (n_exprs, width)."""
    if start == 0:
        return np.ones((len(names), width))
    with np.errstate(over="ignore"):
        words = names.astype(np.uint64)[:, None] * np.uint64(0xD6E8FEB86659FD93) + np.arange(
            1, width + 1, dtype=np.uint64
        )
        words = mixed(words ^ mixed(np.uint64(seed % 2**63) * GOLDEN + np.uint64(start)))
        a, b = (((h >> np.uint64(11)).astype(float) + 0.5) * 2.0**-53 for h in (words, mixed(words + GOLDEN)))
        places = (mixed(words ^ GOLDEN) % np.uint64(len(sizes))).astype(int)
    spread = (best_fits.SPREADS if start % 2 else best_fits.NEAR)[(start - 1) // 2 % 4]
    size = (1.0 if start % 2 else sizes[places]) * np.exp(spread * np.sqrt(-2 * np.log(a)) * np.cos(2 * np.pi * b))
    return np.where(words & np.uint64(1), 1, -1) * np.minimum(size, best_fits.LARGEST)


@pytest.mark.slow
@pytest.mark.parametrize(("n", "width", "first", "seed"), [(1, 1, 0, 0), (100, 3, 0, 7), (40, 4, 13, 2**70 + 3)])
def test_starts_are_numpys(n, width, first, seed):
    names, sizes = np.random.default_rng(1).integers(0, 2**62, n), np.array([0.2, 3.0, 1e29])
    got = best_fits._starts(names, width, range(first, first + 20), seed, sizes)
    wanted = np.stack([starts(names, width, start, seed, sizes) for start in range(first, first + 20)])
    np.testing.assert_allclose(got, wanted, rtol=1e-12)
    alone = best_fits._starts(names[-1:], width, range(first + 5, first + 6), seed, sizes)
    assert np.array_equal(alone[0], got[5, -1:])


def test_values_to_scan_rise_and_hold_grid_and_starts():
    names, sizes = np.arange(40), np.array([0.2, 3.0])
    values = best_fits._values_to_scan(names, 3, sizes)
    random = best_fits._starts(names, 1, range(1, best_fits.RANDOM + 1), 3, sizes)[:, :, 0]
    assert np.array_equal(values, np.sort([*random, *np.tile(best_fits.GRID[:, None], 40)], axis=0))


@given(arrays(float, (9, 3), elements=st.sampled_from([0, 1, 2, 3, 4, np.inf, np.nan])), st.integers(1, 4))
def test_the_deepest_basins_are_found(loss, n_best):
    values, usual = np.arange(27.0).reshape(9, 3), np.full((3, n_best), -1.0)
    got = best_fits._at_the_deepest(loss.copy(), values, usual.copy())
    loss = np.where(np.isfinite(loss), loss, np.inf)
    beside = np.pad(loss, ((1, 1), (0, 0)), constant_values=np.inf)
    bottoms = (loss <= beside[:-2]) & (loss < beside[2:])
    for column, found in zip(range(3), got, strict=True):
        wanted = sorted(np.flatnonzero(bottoms[:, column]), key=lambda k: (loss[k, column], k))[:n_best]
        assert found.tolist() == [*values[wanted, column], *[-1.0] * (n_best - len(wanted))]


@pytest.mark.slow
def test_a_pole_between_two_points_is_found():
    """Of 1 / (p1 - x1) the loss has a basin between any two points: the right one is the 17th of 30."""
    x = np.linspace(1, 4, 31)[:, None]
    y = 1 / (2.63 - x[:, 0])
    problem = ek.FitProblem(x, y, loss="gaussian", dtype="float64")
    sizes = best_fits.start_sizes(x, y, "esr")
    found = best_fits.best_fits(problem, ek.parse(["1 / (p1 - x1)"]), np.array([5]), 63, 1, sizes)
    assert found.params[0, 0] == pytest.approx(2.63)


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [0, 6, 100, 511])
def test_groups_that_are_fitted_together_give_what_they_give_one_after_the_other(restarts, monkeypatch):
    x = np.linspace(0.5, 3, 25)[:, None]
    y = 2 / (x[:, 0] + 0.7) + 0.01 * np.sin(40 * x[:, 0])
    pop = ek.generate.exhaustive(5, ["+", "*", "/", "exp"], n_vars=1, n_params=2)[::9]
    names, sizes = np.arange(len(pop)) * 7, np.array([0.3, 2.0])
    found, n_fits = {}, {}
    for together in (False, True):
        monkeypatch.setattr(ek.FitProblem, "on_gpu", together)
        problem = ek.FitProblem(x, y, loss="gaussian", dtype="float64", backend="cpu", max_iter=30, accuracy="screen")
        fit, calls = problem.fit, []

        def counted(some, init, fit=fit, calls=calls):
            calls.append(len(some))
            return fit(some, init=init)

        monkeypatch.setattr(problem, "fit", counted)
        found[together] = best_fits.best_fits(problem, pop, names, restarts, 3, sizes)
        n_fits[together] = len(calls)
    for name in ("params", "loss", "times"):
        assert getattr(found[True], name).tobytes() == getattr(found[False], name).tobytes()
    assert found[True].times.max() >= (2 if restarts > 63 else 1)
    assert n_fits[True] <= 5
    assert restarts < 8 or n_fits[True] < n_fits[False]


@pytest.mark.parametrize("n_starts", [1, 11, 64, 100, 512])
@pytest.mark.parametrize("together", [0, 64])
def test_rounds_are_all_starts_once_in_order(n_starts, together):
    done = 0
    for first, size, groups in best_fits._rounds(n_starts, 8, together):
        assert first == done
        assert size == min(8, n_starts - done)
        assert groups == 1 or together
        done += size * groups
    assert done == n_starts
