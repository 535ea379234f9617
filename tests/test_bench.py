"""The benchmark: right before fast, its table complete, its files whole."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import exprkit as ek
from exprkit import data
from exprkit.errors import ArgumentError, BackendError, ParseError
from exprkit.study import bench, plots
from exprkit.study.agreement import disagreement

TEXTS = ["x1 + p1", "abs(x1) ^ x2", "x2 - abs(x2) ^ x2", "exp(x1) / p1 - p2", "inv(x1)"]
POINTS = data.uniform(40, 2, seed=5)


def small(**options):
    return bench.measure(TEXTS, POINTS, **({"n_steps": 3, "n_samples": 4} | options))


# ── measuring ──


def test_measure_gives_a_row_a_sample(backend):
    table = small(backends=[backend], bench="tiny", source="mine", block_size=128)
    assert list(table["sample"]) == [0, 1, 2, 3]
    row = table.iloc[0]
    facts = {"bench": "tiny", "backend": backend, "source": "mine", "n_exprs": 5, "n_tokens": 21, "n_points": 40}
    facts |= {"dataset": "uniform", "n_vars": 2, "n_params": 3, "n_steps": 3, "precision": "ieee", "dtype": "float32"}
    assert {name: row[name] for name in facts} == facts
    phases = table[[f"{phase}_s" for phase in bench.PHASES]]
    assert (phases[["parse_s", "upload_s", "prepare_s", "evaluate_s"]] > 0).all(axis=None)
    assert (phases.sum(axis=1) <= table["total_s"]).all()
    assert (phases.sum(axis=1) > 0.5 * table["total_s"]).all()
    assert table["block_size"].isna().all()  # no backend of the host has blocks


def test_every_step_gets_parameters_of_its_own(monkeypatch):
    seen = []

    class Watched(ek.Evaluator):
        def evaluate(self, params=None, out=None):
            seen.append(np.array(params))
            return super().evaluate(params, out)

    monkeypatch.setattr(bench, "Evaluator", Watched)
    small(backends=["numpy"], n_steps=3, n_samples=1)
    steps = seen[1:]  # the first is the check
    assert len(steps) == 3 and all(params.dtype == np.float32 for params in steps)
    assert not np.array_equal(steps[0], steps[1]) and not np.array_equal(steps[1], steps[2])


def test_progress_counts_every_sample_and_check():
    bars = []

    class Bar:
        def __init__(self, total):
            self.total, self.done, self.closed = total, 0, False
            bars.append(self)

        def set_description(self, text, refresh):
            pass

        def update(self):
            self.done += 1

        def close(self):
            self.closed = True

    small(backends=["numpy"], progress=Bar)
    assert [(bar.total, bar.done, bar.closed) for bar in bars] == [(5, 5, True)]


def test_a_wrong_backend_is_not_timed(monkeypatch):
    class Wrong(ek.Evaluator):
        def evaluate(self, params=None, out=None):
            result = super().evaluate(params, out)
            result[3] *= 1 + 1e-4
            return result

    monkeypatch.setattr(bench, "Evaluator", Wrong)
    with pytest.raises(BackendError, match=r"'numpy' disagrees .* in \d.*, most in expression 3: exp\(x1\) / p1 - p2"):
        small(backends=["numpy"])


def test_an_unknown_backend_is_named_before_anything_runs():
    with pytest.raises(BackendError, match=r"'numby'.*did you mean 'numpy'"):
        small(backends=["numpy", "numby"])


@pytest.mark.parametrize("nothing", [{"n_steps": 0}, {"n_samples": -1}, {"backends": []}])
def test_nothing_to_measure(nothing):
    (name,) = nothing
    with pytest.raises(ArgumentError, match=f"a benchmark needs 1 or more of {name}"):
        small(**nothing)


# ── agreement ──


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("precision", ["ieee", "fast"])
def test_right_results_agree(backend, dtype, precision):
    pop = ek.generate.random(150, seed=2, n_vars=3)
    X = data.uniform(60, 3, seed=1).X
    params = np.random.default_rng(0).uniform(-2, 2, (150, pop.max_params))
    result = ek.Evaluator(pop, X, backend, precision, dtype).evaluate(params)
    assert disagreement(pop, X, params, result, dtype=dtype, precision=precision).mean() < 1e-3


def change(change_result):
    pop = ek.parse(["x1 * x2 + 1", "x1 - x2", "sin(x1)"])
    result = ek.Evaluator(pop, POINTS.X, "numpy").evaluate()
    change_result(result)
    return disagreement(pop, POINTS.X, None, result, dtype="float32").tolist()


def set_to(value, *place):
    return lambda result: result.__setitem__(place, value)


@pytest.mark.parametrize(
    ("wrong", "shares"),
    [
        (lambda result: None, [0, 0, 0]),
        (set_to(np.nan, 1, 3), [0, 1 / 40, 0]),
        (set_to(np.inf, 2, 0), [0, 0, 1 / 40]),
        (lambda result: np.multiply(result, 1 + 1e-5, out=result), [1, 1, 1]),
        (lambda result: result.__setitem__(0, result[1]), [1, 0, 0]),
    ],
)
def test_wrong_results_disagree(wrong, shares):
    assert change(wrong) == pytest.approx(shares, abs=0.2 if shares == [1, 1, 1] else 0.001)


def test_cancellation_is_no_disagreement():
    pop = ek.parse(["x1 - abs(x1) ^ x1"])
    X = 1 + np.linspace(-1e-3, 1e-3, 101)[:, None]
    x = X.astype(np.float32)
    result = (x - np.abs(x) ** x).T
    exact = x.astype(float).T - np.abs(x.astype(float)).T ** x.astype(float).T
    assert np.abs(result - exact).max() > 1e-3 * np.abs(exact).max()  # few correct digits are left
    assert disagreement(pop, X, None, result, dtype="float32").tolist() == [0]


# ── what to measure on ──


def test_expressions_by_name(tmp_path):
    assert bench.expressions("esr", 500)[247:249] == data.esr_sample()[:2]
    exhaustive = bench.expressions("exhaustive", 1000)
    assert len(set(exhaustive)) == 1000
    assert any("abs(x1) ^" in text for text in exhaustive)
    random = bench.expressions("random", 20, n_vars=3, seed=1)
    assert len(random) == 20 and random == bench.expressions("random", 20, n_vars=3, seed=1)
    path = tmp_path / "mine.txt"
    path.write_text("x1 + 1\n\n# a comment\nx2\n")
    assert bench.expressions(str(path), 3) == ["x1 + 1", "x2", "x1 + 1"]
    with pytest.raises(ArgumentError, match="expressions='esrr' is neither"):
        bench.expressions("esrr", 3)
    path.write_text("x1 + 1\n\nx1 + sine(x2)\n")
    with pytest.raises(ParseError, match=r"1 of 2 .*\n\nexpression 1 \(line 3\): unknown function 'sine'"):
        bench.expressions(str(path), 3)
    for source in ("esr", "random", "exhaustive"):
        with pytest.raises(ArgumentError, match="n_exprs must be 1 or more, not 0"):
            bench.expressions(source, 0)
    path.write_text("\n")
    with pytest.raises(ArgumentError, match="no expressions"):
        bench.expressions(str(path), 3)


def test_dataset_by_name():
    assert len(bench.dataset("rough_pipe", 10_860)) == 10_860
    assert bench.dataset("uniform", 10, n_vars=5).X.shape == (10, 5)
    with pytest.raises(ArgumentError, match="rough_pipe has 2 variables, not 3"):
        bench.dataset("rough_pipe", 10, n_vars=3)
    with pytest.raises(ArgumentError, match="no dataset 'smooth_pipe'"):
        bench.dataset("smooth_pipe", 10)


# ── what came out ──


def table(**columns):
    """Samples with made-up times."""
    n = len(columns["total_s"])
    fixed = {"bench": "b", "source": "esr", "dataset": "d", "backend": "cpu", "precision": "ieee"}
    fixed |= {"dtype": "float32", "threads": 2, "n_exprs": 10, "n_tokens": 50, "n_points": 100, "n_steps": 4}
    phases = {f"{phase}_s": [0.5] * n for phase in bench.PHASES}
    return pd.DataFrame({name: [value] * n for name, value in fixed.items()} | phases | columns)


def test_medians():
    row = bench.medians(table(total_s=[1.0, 2.0, 4.0, 3.0, 10.0])).iloc[0]
    assert (row["samples"], row["median_s"], row["q25_s"], row["q75_s"], row["least_s"]) == (5, 3, 2, 4, 1)
    assert row["node_evals_per_s"] == 50 * 100 * 4 / 0.5


@pytest.mark.parametrize(
    ("seconds", "complaint"),
    [
        ([1.0, 1.01, 1.02, 0.99, 1.0], None),
        ([1.0, 1.0], "only 2 samples"),
        ([1.0, 1.3, 0.8, 1.2, 0.9], "the standard deviation is"),
        ([1.0] * 30 + [1.6], "more than 50% off the mean"),
        ([9e-4, 9.1e-4, 9e-4, 9e-4, 9e-4], "less than 1 ms"),
    ],
)
def test_unsteady(seconds, complaint):
    found = bench.unsteady(table(total_s=seconds))
    assert found == [] if complaint is None else any(complaint in sentence for sentence in found)


def test_save_writes_samples_record_and_figure(tmp_path):
    samples = small(backends=["numpy"])
    figure = plots.comparison(samples, data.thesis_samples())
    paths = bench.save(samples, tmp_path / "new" / "folder", {"n_exprs": 5, "backends": ["numpy"]}, figure=figure)
    assert [path.suffix for path in paths] == [".parquet", ".json", ".svg", ".png"]
    assert sorted(paths) == sorted((tmp_path / "new" / "folder").iterdir())  # and nothing half-written
    pd.testing.assert_frame_equal(pd.read_parquet(paths[0]), samples)
    record = json.loads(paths[1].read_text())
    assert record["parameters"] == {"n_exprs": 5, "backends": ["numpy"]}
    assert record["cores"] >= 1 and record["cpu"] and record["versions"]["numpy"] == np.__version__
    assert any("only 4 samples" in sentence for sentence in record["warnings"])
    again = bench.save(samples, tmp_path / "new" / "folder", {"n_exprs": 5, "backends": ["numpy"]}, figure=figure)
    assert again == paths
    other = bench.save(samples, tmp_path / "new" / "folder", {"n_exprs": 6, "backends": ["numpy"]})
    assert not set(other) & set(paths)


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "results.json"
    path.write_text("old")

    def fail(beside):
        beside.write_text("half")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        bench._write(path, fail)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


# ── figures ──


def test_comparison_puts_runs_beside_the_thesis_s_of_their_size():
    sizes = [(10_000, 362, 100), (10_000, 10_860, 100), (10_000, 362, 7)]
    runs = [table(total_s=[1.0, 1.1]).assign(n_exprs=e, n_points=p, n_steps=s) for e, p, s in sizes]
    figure = plots.comparison(pd.concat(runs), data.thesis_samples())
    titles = [axis.get_title().splitlines()[0] for axis in figure.axes]
    assert titles == ["benchmark 1", "benchmark 2", "benchmark 3", "other sizes"]
    names = [[label.get_text().replace("\n", " ") for label in axis.get_xticklabels()] for axis in figure.axes]
    thesis = ["thesis cpu interpreter", "thesis gpu interpreter", "thesis gpu transpiler"]
    own, other = "exprkit cpu ieee", "exprkit cpu ieee 10,000 x 362 esr, 7 steps"
    assert names == [thesis, [*thesis, own], [*thesis, own], [other]]
    written = [text.get_text() for text in figure.axes[2].texts]
    assert written == ["48.3 s", "30.3 s", "25.4 s", "1.05 s"]  # at the best block size
    assert all(axis.get_yscale() == "log" for axis in figure.axes)


def test_the_same_figure_is_the_same_bytes(tmp_path):
    for name in ("a.svg", "b.svg"):
        plots.write_figure(plots.comparison(thesis=data.thesis_samples()), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


def test_figures_are_drawn_from_a_folder_of_results(tmp_path, capsys):
    (tmp_path / "results").mkdir()
    (tmp_path / "figures").mkdir()
    table(total_s=[1.0, 1.1]).to_parquet(tmp_path / "results" / "a.parquet")
    table(total_s=[2.0, 2.1]).to_parquet(tmp_path / "results" / "b.parquet")
    plots.main(str(tmp_path / "results"), str(tmp_path / "figures"))
    assert (tmp_path / "figures" / "benchmark.svg").stat().st_size > 10_000
    assert "benchmark.svg" in capsys.readouterr().out
