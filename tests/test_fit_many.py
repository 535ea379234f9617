"""Many data sets, each with formulas of its own, are fitted by one call as each would be by itself."""

from __future__ import annotations

import numpy as np
import pytest

import exprkit as ek
from exprkit.errors import ArgumentError, DataError, ParseError

# NIST's StRD (public domain): text, x, y, starts, certified parameters, standard errors and sum of squares
NIST = [
    ("p1*(1-exp(-p2*x1))", [1, 2, 3, 5, 7, 10], [109, 149, 149, 191, 213, 224], [(1, 1), (100, 0.75)],
     [213.80940889, 0.54723748542], [12.354515176, 0.10455993237], 1168.0088766),
    ("p1*x1^p2", [1.309, 1.471, 1.49, 1.565, 1.611, 1.68], [2.138, 3.421, 3.597, 4.34, 4.882, 5.66],
     [(1, 5), (0.7, 4)], [0.76886226176, 3.8604055871], [0.01828197386, 0.051726610913], 0.0043173084083),
    ("p1/(1+exp(p2-p3*x1))", [9, 14, 21, 28, 42, 57, 63, 70, 79],
     [8.93, 10.8, 18.59, 22.33, 39.35, 56.11, 61.73, 64.62, 67.08], [(100, 1, 0.1), (75, 2.5, 0.07)],
     [72.462237576, 2.6180768402, 0.067359200066], [1.7340283401, 0.088295217536, 0.0034465663377], 8.0565229338),
    ("p1*(x1^2+x1*p2)/(x1^2+x1*p3+p4)", [4, 2, 1, 0.5, 0.25, 0.167, 0.125, 0.1, 0.0833, 0.0714, 0.0625],
     [0.1957, 0.1947, 0.1735, 0.16, 0.0844, 0.0627, 0.0456, 0.0342, 0.0323, 0.0235, 0.0246],
     [(0.25, 0.39, 0.415, 0.39)], [0.19280693458, 0.19128232873, 0.12305650693, 0.13606233068],
     [0.011435312227, 0.19633220911, 0.080842031232, 0.090025542308], 0.00030750560385),
    ("p1*exp(p2/(x1+p3))", [50 + 5 * k for k in range(16)],
     [34780, 28610, 23650, 19630, 16370, 13720, 11540, 9744, 8261, 7030, 6005, 5147, 4427, 3820, 3307, 2872],
     [(0.02, 4e3, 250)], [0.005609636471, 6181.3463463, 345.22363462],
     [0.00015687892471, 23.309021107, 0.78486103508], 87.945855171),
]  # fmt: skip
T = np.linspace(0.0, 4.0, 30)
NOISE = 0.02 * np.random.default_rng(3).standard_normal(30)


def same(one, other):
    assert one.pop.texts() == other.pop.texts()
    np.testing.assert_allclose(one.params, other.params, rtol=1e-8)
    np.testing.assert_allclose(one.standard_errors, other.standard_errors, rtol=1e-6)
    np.testing.assert_allclose(one.loss, other.loss, rtol=1e-8)
    np.testing.assert_allclose(one.r2, other.r2, rtol=1e-8)
    assert one.converged.tolist() == other.converged.tolist()
    assert one.goal.target == other.goal.target


def test_problems_of_nist_in_one_call(fits):
    problems = [{"pop": text, "X": np.c_[x], "y": y, "init": p} for text, x, y, starts, *_ in NIST for p in starts]
    found = ek.fit_many(problems, backend=fits)
    for one, certified in zip(found, [row[4:] for row in NIST for _ in row[3]], strict=True):
        for value, right in zip((one.params[0], one.standard_errors[0], one.loss[0]), certified, strict=True):
            np.testing.assert_allclose(value, right, rtol=2e-8)
        assert one.converged.all()


def test_each_ends_as_by_itself():
    peak = 3 * np.exp(-(((T - 1.7) / 0.4) ** 2) / 2) + NOISE
    table, gaps = {"t": T, "height": peak, "s": np.where(T < 1, 0.0, 2.0)}, np.where(T < 1, np.nan, peak)
    problems = [
        {"pop": "gaussian(t; a, c, w) + line(t; 0, m)", "X": table, "y": "height"},
        {"pop": ["p1 + p2 * x1", "exp(p1) - x1", "x1"], "X": T[:7, None], "y": T[:7] ** 2},
        {"pop": "p1 + p2 * t", "X": table, "y": "height", "weights": "s"},
        {"pop": "p1 + p2 * x1", "X": T[:, None], "y": gaps, "weights": table["s"], "bounds": {"p2": (None, -0.7)}},
        {"pop": "p1 * exp(p2 * x1)", "X": T[:9, None], "y": np.arange(9), "loss": "poisson"},
        {"pop": "p1 * x1", "X": T[:, None], "y": T, "weights": np.zeros(30)},
        {"pop": "p1 + p2 * x1", "X": 1e9 + T[:, None], "y": 3 + 2 * T + NOISE},
    ]
    for one, problem in zip(ek.fit_many(problems), problems, strict=True):
        same(one, ek.fit(**problem, dtype="float64"))
    assert ek.fit_many([]) == []


def test_many_data_sets_of_different_length():
    truth = np.random.default_rng(0).uniform(0.5, 3.0, (150, 2))
    rows = [10 + k % 20 for k in range(150)]
    y = [a * np.exp(-k * T[:n]) + NOISE[:n] for (a, k), n in zip(truth, rows, strict=True)]
    problems = [{"pop": "p1 * exp(-p2 * x1)", "X": T[: len(one), None], "y": one, "init": "ones"} for one in y]
    final, seen = ek.fit_many(problems), []
    screened = ek.fit_many(problems, accuracy="screen", progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (150, 150)
    for k in (0, 19, 77, 149):
        same(final[k], ek.fit(**problems[k], dtype="float64"))
        np.testing.assert_allclose(screened[k].params, final[k].params, rtol=1e-4)


def test_errors_have_the_number_of_the_problem():
    good = {"pop": "p1 * x1", "X": T[:, None], "y": T}
    for bad, error, text in [
        (good | {"pop": "p1 * * x1"}, ParseError, "problem 1: "),
        (good | {"y": T[:3]}, DataError, "problem 1: "),
        (good | {"wieghts": T}, ArgumentError, "weights"),
        ({"pop": "p1", "y": T}, ArgumentError, "pop and X among them"),
        ("p1 * x1", ArgumentError, "a problem must be a dict"),
        (good | {"restarts": -1}, ArgumentError, "problem 1: restarts"),
    ]:
        with pytest.raises(error, match=text):
            ek.fit_many([good, bad])
