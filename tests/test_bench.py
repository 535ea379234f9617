"""The benchmark: right before fast, its table complete, its files whole."""

from __future__ import annotations

import argparse
import errno
import itertools
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import bench_peers
import numpy as np
import pandas as pd
import pytest
import timing
from made_up import samples

import exprkit as ek
from exprkit import data
from exprkit.backends import Status, load
from exprkit.errors import ArgumentError, BackendError, DamagedFileError, FileError, ParseError
from exprkit.runtime import disk_cache, files, machine
from exprkit.study import bench, plots, records, timed_device, workload
from exprkit.study.agreement import disagreement

pytestmark = pytest.mark.lab

TEXTS = ["x1 + p1", "abs(x1) ^ x2", "x2 - abs(x2) ^ x2", "exp(x1) / p1 - p2", "inv(x1)"]
POINTS = data.uniform(40, 2, seed=5)
NOTEBOOK = Path(__file__).resolve().parents[1] / "notebooks" / "benchmark.ipynb"


def small(**options):
    return bench.measure(TEXTS, POINTS, **({"n_steps": 3, "n_samples": 4} | options))


# ── measuring ──


def test_measure_gives_a_row_a_sample(backend):
    table = small(backends=[backend], study="tiny", expressions="mine")
    assert list(table["sample"]) == [-1, 0, 1, 2, 3]
    assert list(table["cold"]) == [True, False, False, False, False]
    row = table.iloc[0]
    facts = {"bench": "tiny", "backend": backend, "source": "mine", "n_exprs": 5, "n_tokens": 21, "n_points": 40}
    facts |= {"dataset": "uniform", "n_vars": 2, "n_params": 3, "n_steps": 3, "precision": "ieee", "dtype": "float32"}
    assert {name: row[name] for name in facts} == facts
    phases = table[[f"{phase}_s" for phase in bench.PHASES]]
    assert (phases[["parse_s", "upload_s", "prepare_s", "first_s", "evaluate_s"]] > 0).all(axis=None)
    assert (phases.sum(axis=1) <= table["total_s"]).all()
    assert (phases.sum(axis=1) > 0.5 * table["total_s"]).all()
    assert table["step_s"].to_numpy() == pytest.approx(table["steps_s"].to_numpy() / 2)  # of three steps
    assert (table["steps_s"] >= table["evaluate_s"]).all()
    on_gpu = load(backend).empty is not None
    assert table["block_size"].isna().all() and table["kernel_s"].notna().all() == on_gpu
    assert table["bytes_in"].notna().all() == on_gpu


@pytest.mark.gpu
@pytest.mark.parametrize(("results", "n_bytes"), [("every", 4 * 5 * 40), ("last", 0), ("loss", 8 * 5)])
def test_a_step_on_a_gpu_brings_parameters_there_and_what_is_asked_for_back(results, n_bytes):
    table = small(backends=["cuda"], results=results, n_samples=1)
    assert set(table["bytes_in"]) == {4 * 5 * 2} and set(table["bytes_out"]) == {n_bytes}
    assert set(table["transfers"]) == {1 + (n_bytes > 0)}


@pytest.mark.parametrize(("name", "threads"), [("numpy", 1), ("cpu", 2)])
def test_a_sample_names_the_threads_that_its_backend_uses(name, threads):
    table = small(backends=[name], threads=2, n_samples=1)
    assert set(table["threads"]) == {threads}
    assert set(table["device"].map(plots.short)) == {"1 thread" if threads == 1 else "2 threads"}


def test_options_of_a_gpu_are_left_out_for_others():
    table = small(backends=["numpy"], block_size=128, points_per_thread=4)
    assert table["block_size"].isna().all() and table["points_per_thread"].isna().all()
    with pytest.raises(ArgumentError, match="'numpy' has no dispatch='per-expression'"):
        small(backends=["numpy"], dispatch="per-expression")


@pytest.mark.parametrize("code", bench.CODE)
def test_code_is_made_anew_or_kept_in_an_empty_cache_of_its_own(code, monkeypatch, tmp_path):
    monkeypatch.setenv("EXPRKIT_CACHE_DIR", str(tmp_path))
    (tmp_path / "before.o").write_bytes(b"from another run")
    seen = []

    class Compiling(ek.Evaluator):
        def __init__(self, *given, cache, **options):
            folder = disk_cache.folder()
            seen.append((cache, folder == tmp_path, sorted(path.name for path in folder.iterdir())))
            (folder / "own.o").write_bytes(b"")
            super().__init__(*given, **options)

    monkeypatch.setattr(bench, "Evaluator", Compiling)
    monkeypatch.setattr(bench, "load", lambda name: SimpleNamespace(options=("cache",), lowers=True))
    table = small(backends=["cpu"], code=code, n_samples=2)
    assert set(table["code"]) == {code} and os.environ["EXPRKIT_CACHE_DIR"] == str(tmp_path)
    if code == "kept":
        assert seen == [(True, False, []), (True, False, ["own.o"]), (True, False, ["own.o"])]
        assert [path.name for path in tmp_path.iterdir()] == ["before.o"]
    else:
        assert [(cache, usual) for cache, usual, _ in seen] == [(False, True)] * 3
    monkeypatch.undo()
    assert set(small(backends=["cpu"], code=code, n_samples=1)["code"]) == {""}  # a backend that compiles none
    with pytest.raises(ArgumentError, match="code must be one of anew, kept, not 'old'"):
        small(code="old")


@pytest.mark.parametrize("results", [*bench.RESULTS, "half"])
def test_what_comes_back(results, monkeypatch):
    used = []

    class Watched(ek.Evaluator):
        def evaluate(self, params=None, out=None):
            used.append("evaluate")
            return super().evaluate(params, out)

        def loss_of(self, y, kind="sse"):
            step = super().loss_of(y, kind)
            return lambda params, out=None: (used.append(kind), step(params, out))[1]

    monkeypatch.setattr(bench, "Evaluator", Watched)
    table = small(backends=["cpu"], results=results, n_samples=1)
    assert set(table["results"]) == {results}
    asked = "sse" if results == "loss" else "evaluate"
    assert used.count(asked) == 6 + (results == "half")  # three steps, cold and warm; and once to compare with


def test_a_matrix_in_16_bits_that_is_rounded_otherwise_is_refused(monkeypatch):
    evaluate = ek.Evaluator.evaluate

    def downwards(self, params=None, out=None):
        result = evaluate(self, params, out)
        if getattr(out, "dtype", None) == np.float16:
            out[0] = np.nextafter(out[0], np.float16(-np.inf))
        return result

    monkeypatch.setattr(ek.Evaluator, "evaluate", downwards)
    with pytest.raises(BackendError, match="otherwise than to the nearest float16, most in expression 0: x1"):
        small(backends=["cpu"], results="half")


def test_a_record_tells_memory_cpu_seconds_and_deviation():
    table = small(backends=["cpu"], n_samples=5)
    assert (table["cpu_s"] > 0).all() and table["device_bytes"].isna().all()
    if sys.platform == "linux":
        assert table["host_bytes"].nunique() == 1 and 0 <= table["host_bytes"].iloc[0] < 1e9
    (row,) = bench.medians(table).to_dict("records")
    warm = table[~table["cold"]]
    assert row["sd_s"] == pytest.approx(warm["total_s"].std())
    assert row["busy_threads"] == pytest.approx((warm["cpu_s"] / warm["total_s"]).median())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells it")
def test_memory_is_what_came_to_be_used_whatever_the_process_had_before():
    device = timed_device.Host()
    held = [np.ones(50_000_000)]
    held.append(held)  # in a cycle, as what a run leaves
    del held
    device.forget_memory()
    new = np.ones(20_000_000)
    taken = device.memory()["host_bytes"]
    del new
    assert 1.5e8 < taken < 2.4e8 and device.memory()["host_bytes"] > 1.5e8, "the most, not the present"
    device.forget_memory()
    assert device.memory()["host_bytes"] < 5e7


def test_without_names_all_backends_that_can_run_are_measured(monkeypatch):
    assert "numpy" not in bench.backends_of() and "cpu" in bench.backends_of()
    states = {"cpu": True, "cuda": False, "ptx": True, "numpy": True}
    monkeypatch.setattr(workload, "status", lambda name: Status(states[name], "why"))
    assert bench.backends_of() == ["cpu", "ptx"] and bench.backends_of(["numpy"]) == ["numpy"]
    monkeypatch.setattr(workload, "NAMES", ("numpy", "cpu"))
    assert set(small(backends=[], n_samples=1)["backend"]) == {"cpu"}
    assert set(bench.run({"n_exprs": 9, "n_points": 5, "n_steps": 1, "n_samples": 1})["backend"]) == {"cpu"}


def test_fits_are_measured_and_compared(monkeypatch):
    table = small(backends=["cpu"], results="fit", n_steps=1)
    assert set(table["results"]) == {"fit"} and (table["first_s"] > 0).all()
    fitted = ek.Evaluator.derivatives

    def wrong(self):
        engine = fitted(self)
        made = lambda *given: (found := type(engine).fit(engine, *given))._replace(loss=2 * found.loss)  # noqa: E731
        return SimpleNamespace(fit=made)

    monkeypatch.setattr(ek.Evaluator, "derivatives", wrong)
    with pytest.raises(BackendError, match="not the sums of its own squared errors"):
        small(backends=["cpu"], results="fit", n_steps=1)
    monkeypatch.setattr(bench, "load", lambda name: SimpleNamespace(differentiates=False))
    with pytest.raises(ArgumentError, match="backend 'cpu' makes no fits"):
        small(backends=["cpu"], results="fit")


def test_options_of_an_engine_go_to_the_backends_that_have_them(monkeypatch):
    seen = []

    class Watched(ek.Evaluator):
        def __init__(self, *given, stack=None, **options):
            seen.append(stack)
            super().__init__(*given, **options)

    monkeypatch.setattr(bench, "Evaluator", Watched)
    kinds = {"cpu": ("stack",), "numpy": ()}
    monkeypatch.setattr(bench, "load", lambda name: SimpleNamespace(options=kinds[name], lowers=False))
    table = small(backends=["cpu", "numpy"], options={"stack": 25}, n_samples=1)
    assert dict(zip(table["backend"], table["options"], strict=True)) == {"cpu": "stack=25", "numpy": ""}
    assert set(seen[: len(seen) // 2]) == {25} and set(seen[len(seen) // 2 :]) == {None}
    with pytest.raises(ArgumentError, match="none of the backends numpy has an option 'stack'"):
        small(backends=["numpy"], options={"stack": 25})


def test_unknown_results_are_named():
    with pytest.raises(ArgumentError, match="results must be one of every, last, loss, half, fit, not 'first'"):
        small(results="first")


def test_wrong_losses_are_not_timed(monkeypatch):
    class Wrong(ek.Evaluator):
        def loss_of(self, y, kind="sse"):
            step = super().loss_of(y, kind)
            return lambda params, out=None: 1.01 * step(params)

    monkeypatch.setattr(bench, "Evaluator", Wrong)
    with pytest.raises(BackendError, match="not the sums of its own squared errors in 100%"):
        small(backends=["numpy"], results="loss")


def test_no_sample_is_begun_after_the_time_is_up():
    assert len(small(backends=["numpy"], n_samples=50, seconds=0.0)) == 2  # the cold one, and one


def test_a_population_is_measured_like_its_texts():
    named = ek.parse(
        [text.replace("x1", "speed") for text in TEXTS], variables=["speed", "x2"], parameters=["p1", "p2"]
    )
    for pop in (ek.parse(TEXTS), named):
        table = bench.measure(pop, POINTS, ["numpy"], n_steps=2, n_samples=1)
        assert set(table["n_tokens"]) == {21} and set(table["n_params"]) == {3}


def test_run_measures_what_the_notebook_s_parameters_say():
    asked = {"n_exprs": 30, "n_points": 20, "n_steps": 2, "n_samples": 1, "n_vars": 3, "n_tokens": 7}
    asked |= {"dataset": "uniform", "expressions": "random", "study": "mine", "threads": 1}
    row = bench.run(asked).iloc[-1]
    found = {name: row[name] for name in ("bench", "n_exprs", "n_points", "n_vars", "threads", "n_tokens", "source")}
    assert found == {
        "bench": "mine", "n_exprs": 30, "n_points": 20, "n_vars": 3, "threads": 1, "n_tokens": 210, "source": "random",
    }  # fmt: skip
    with pytest.raises(ArgumentError, match="there is no parameter n_point; there are study, n_exprs"):
        bench.run({"n_point": 3})


def test_a_grid_of_runs():
    seen, base = [], {"n_exprs": 20, "n_steps": 2, "n_samples": 1}
    table = bench.run_grid(base, {"n_points": [5, 6], "threads": [1, 2]}, lambda *at: seen.append(at))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    warm = table[~table["cold"]]
    assert list(zip(warm["n_points"], warm["threads"], strict=True)) == [(5, 1), (5, 2), (6, 1), (6, 2)]


def test_every_step_gets_parameters_of_its_own(monkeypatch):
    seen = []

    class Watched(ek.Evaluator):
        def evaluate(self, params=None, out=None):
            seen.append(np.array(params))
            return super().evaluate(params, out)

    monkeypatch.setattr(bench, "Evaluator", Watched)
    small(backends=["numpy"], n_steps=3, n_samples=1)
    steps = seen[3:]  # the first three are the cold sample's
    assert len(steps) == 3 and all(params.dtype == np.float32 for params in steps)
    assert not np.array_equal(steps[0], steps[1]) and not np.array_equal(steps[1], steps[2])


def test_progress_counts_every_sample():
    seen = []
    small(backends=["numpy"], progress=lambda done, total: seen.append((done, total)))
    assert seen == [(n, 5) for n in range(1, 6)]


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


@pytest.mark.parametrize("nothing", [{"n_steps": 0}, {"n_samples": -1}, {"n_checked": 0}])
def test_nothing_to_measure(nothing):
    (name,) = nothing
    with pytest.raises(ArgumentError, match=f"a benchmark needs 1 or more of {name}"):
        small(**nothing)


# ── agreement ──


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


def test_a_given_file_is_a_dataset(tmp_path):
    (tmp_path / "mine.csv").write_text("r_k,log_Re,target\n15,4,0.5\n30,5,0.25\n")
    points = bench.dataset(str(tmp_path / "mine.csv"), 3)
    assert points.name == "mine" and points.X.tolist() == [[15, 4], [30, 5], [15, 4]]
    assert points.y.tolist() == [0.5, 0.25, 0.5]


def test_large_expressions_have_50_to_500_tokens():
    lengths = np.diff(ek.parse(bench.expressions("large", 30, n_vars=3)).offsets)
    assert lengths.min() >= 50 and 200 < lengths.max() <= 500


# ── what came out ──


def table(total_s):
    sizes = {"n_exprs": 10, "n_tokens": 50, "n_points": 100, "n_steps": 4}
    return samples("cpu", total_s, bench="b", source="esr", **sizes)


def test_medians():
    row = bench.medians(table(total_s=[1.0, 2.0, 4.0, 3.0, 10.0])).iloc[0]
    assert (row["samples"], row["median_s"], row["q25_s"], row["q75_s"], row["least_s"]) == (5, 3, 2, 4, 1)
    assert row["node_evals_per_s"] == 50 * 100 / 0.5


def test_cold_samples_count_in_no_median():
    mixed = table(total_s=[9.0, 1.9, 2.0, 2.1]).assign(cold=[True, False, False, False])
    row = bench.medians(mixed).iloc[0]
    assert (row["samples"], row["median_s"], row["cold_s"]) == (3, 2, 9)
    assert not any("50%" in sentence for sentence in bench.unsteady(mixed))


def test_a_slow_clock_is_told():
    samples = table(total_s=[1.0] * 5)
    samples = samples.assign(sm_mhz=[1980.0, 1980, 1200, 1980, 1980], throttled=[False, True, False, False, False])
    found = " ".join(bench.unsteady(samples))
    assert "held the clock back after 1 sample " in f"{found} "
    assert "below three quarters of its highest after 1 sample " in f"{found} "


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


def test_each_size_is_judged_alone():
    two = pd.concat([table(total_s=[1.0] * 5), table(total_s=[9.0] * 5).assign(n_points=7)])
    assert bench.unsteady(two) == []
    assert bench.unsteady(pd.concat([two, table(total_s=[1.0] * 3).assign(n_exprs=12_000)])) == [
        "cpu, 12,000 x 100: only 3 samples; take 5 or more"
    ]


@pytest.mark.slow
def test_save_writes_samples_with_their_origin_and_figure(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "link_rate", lambda: 1e10)
    samples = small(backends=["numpy"])
    assert set(samples["cpu"]) == {machine.cpu_model()} and f"numpy {np.__version__}" in samples["versions"].iloc[0]
    assert set(samples["commit"]) == {records.provenance()["commit"]}
    figure = plots.comparison(samples, data.thesis_samples())
    paths = bench.save(samples, tmp_path / "new" / "folder", {"n_exprs": 5, "backends": ["numpy"]}, figure=figure)
    assert [path.suffix for path in paths] == [".parquet", ".svg", ".png"]
    assert sorted(paths) == sorted((tmp_path / "new" / "folder").iterdir())  # and nothing half-written
    written = pd.read_parquet(paths[0])
    pd.testing.assert_frame_equal(written[[*samples]], samples, check_dtype=False)
    assert set(written["made_by"]) == {"exprkit.bench"} and set(written["link_bytes_per_s"]) == {1e10}
    assert written["day"].str.fullmatch(r"20\d\d-\d\d-\d\d").all()
    again = bench.save(samples, tmp_path / "new" / "folder", {"n_exprs": 5, "backends": ["numpy"]})
    assert again == paths[:1]
    other = bench.save(samples, tmp_path / "new" / "folder", {"n_exprs": 6, "backends": ["numpy"]})
    assert not set(other) & set(paths)


def full(*arguments):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "results.json"
    path.write_text("old")

    def fail(beside):
        beside.write_text("half")
        full()

    message = r"results.json' cannot be written: No space left on device; nothing half-written is left: make room there"
    with pytest.raises(FileError, match=message):
        files.write(path, fail)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_a_full_disk_is_told_with_the_file_and_leaves_nothing_half_written(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "link_rate", lambda: 1e10)
    samples = small(backends=["numpy"], n_samples=1)
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(FileError, match=r"benchmark-\w+\.parquet' cannot be written: No space left"):
        bench.save(samples, tmp_path, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "message"),
    [("file/inside", "be written: "), ("nul\0byte", "a file's path must be"), ("n" * 300, "be written: ")],
)
def test_a_folder_that_cannot_be_made_is_named(tmp_path, place, message):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises((ArgumentError, FileError), match=message):
        files.folder(tmp_path / place)


NO_NAMES = ["../../x", "/abs", "a/b", "..", ".hidden", "", "nul\0byte", "n" * 300, "two\nlines"]


@pytest.mark.parametrize("name", NO_NAMES)
def test_a_study_s_name_leads_to_no_other_folder(tmp_path, monkeypatch, name):
    monkeypatch.setattr(bench, "measure", lambda *a, **k: pytest.fail("nothing is to be measured"))
    with pytest.raises(ArgumentError, match="study must be a plain name"):
        bench.run_and_save({"study": name, "results_dir": str(tmp_path / "in")})
    with pytest.raises(ArgumentError, match="study must be a plain name"):
        bench.save(pd.DataFrame({"bench": [name]}), tmp_path / "in", {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["benchmark", "steps_axis", "1st try", "größe", "a.b-c+d"])
def test_a_plain_name_is_taken(name):
    assert records.checked_name(name) == name
    with pytest.raises(ArgumentError, match="study must be a plain name"):
        records.checked_name(f"{name}\ud800")  # half a character, which no file's name can hold


@pytest.mark.parametrize("name", ["nul\0byte", "n" * 300])
def test_expressions_that_can_be_no_file_are_named_as_any_other(name):
    with pytest.raises(ArgumentError, match="is neither esr, exhaustive, random or large nor a file"):
        bench.expressions(name, 3)


def test_a_file_of_expressions_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes(b"x1\n# caf\xe9\n")
    with pytest.raises(ArgumentError, match=r"the expressions in .*latin.txt cannot be read: 'utf-8' codec"):
        bench.expressions(str(path), 3)


def test_files_that_are_no_results_are_named(tmp_path):
    (tmp_path / "x.parquet").write_bytes(b"no parquet")
    for read in (records.read, lambda folder: records.runs_in(folder / "x.parquet")):
        with pytest.raises(DamagedFileError, match=r"x.parquet' is not a file of samples, or it is damaged"):
            read(tmp_path)


CLEAN = {"commit": "0123456789ab", "cpu": "C", "gpu": "", "driver": ""}


def at(monkeypatch, commit):
    """The process is of that commit."""
    monkeypatch.setattr(records, "provenance", lambda: CLEAN | {"commit": commit})


def of_a_run(folder, name, **parameters):
    """A folder with the samples of a small run."""
    sizes = {"study": name, "n_exprs": 9, "n_steps": 1, "n_samples": 1, "backends": ["cpu"]}
    bench.run_and_save(sizes | {"results_dir": str(folder / name)} | parameters)
    return folder / name


def test_results_of_many_runs_become_one_file(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "link_rate", lambda: 1e10)
    a, b = (of_a_run(tmp_path, name, n_points=n) for name, n in (("a", 10), ("b", 20)))
    target = tmp_path / "all" / "one.parquet"
    records.collect([a], target)
    records.collect([b], target)  # a part of a study at a time
    records.collect([b], target, "python -m exprkit sweep n.ipynb s.yaml")
    both = records.read(tmp_path / "all", cold=True)
    assert both["run"].tolist() == ["a", "a", "b", "b"] and set(both["file"]) == {"one"}
    assert len(records.read(tmp_path / "all")) == 2
    made_by = ["exprkit.bench.run_and_save"] * 2 + ["python -m exprkit sweep n.ipynb s.yaml"] * 2
    assert both["made_by"].tolist() == made_by
    with pytest.raises(ArgumentError, match="no samples"):
        records.collect([tmp_path / "all" / "none"], target)


def test_samples_measured_anew_stand_for_older_ones_of_their_configuration(tmp_path, monkeypatch):
    target = tmp_path / "all" / "one.parquet"
    for name, n_points, commit in (("old", 10, "0" * 12), ("other", 20, "0" * 12), ("new", 10, "1" * 12)):
        at(monkeypatch, commit)
        records.collect([of_a_run(tmp_path, name, study="s", n_points=n_points)], target)
    found = records.read(tmp_path / "all")
    assert dict(zip(found["run"], found["commit"], strict=True)) == {"other": "0" * 12, "new": "1" * 12}
    assert records.runs_in(target) == {"new"}, "what another commit measured is to be measured again"


@pytest.mark.parametrize(("commit", "message"), [("", "is no checkout"), ("0123+", "changes: git commit -a")])
def test_nothing_is_published_of_changed_code(tmp_path, monkeypatch, commit, message):
    monkeypatch.setattr(records, "RESULTS", tmp_path / "published")
    at(monkeypatch, commit)
    folder = of_a_run(tmp_path, "a")
    assert set(pd.read_parquet(records.collect([folder], tmp_path / "mine.parquet"))["commit"]) == {commit}
    for record in (
        lambda: records.collect([folder], tmp_path / "published" / "cpu.parquet"),
        lambda: records.write_rows(tmp_path / "a.csv", [{"value": 1}]),
        lambda: ek.sweep(NOTEBOOK, {"fixed": {}}, plain=pytest.fail, into=tmp_path / "published" / "cpu.parquet"),
    ):
        with pytest.raises(ArgumentError, match=message):
            record()
    with pytest.raises(argparse.ArgumentTypeError, match=message):
        timing.to_record("a.csv")
    at(monkeypatch, "0123456789ab")  # as what was measured before is committed
    assert timing.to_record("a.csv") == Path("a.csv")
    with pytest.raises(ArgumentError, match="measured with uncommitted changes, and not to be published"):
        records.collect([folder], tmp_path / "published" / "cpu.parquet")
    assert not (tmp_path / "published").exists() and not (tmp_path / "a.csv").exists()


def test_rows_say_where_they_are_from_and_older_ones_keep_theirs(tmp_path, monkeypatch):
    at(monkeypatch, "0123456789ab")
    path = records.write_rows(tmp_path / "new" / "a.csv", [{"n": 1, "text": "a, b"}, {"n": 2, "commit": "f" * 12}])
    assert path.read_text().splitlines() == [
        "n,text,commit,cpu,gpu,driver", '1,"a, b",0123456789ab,C,,', f"2,,{'f' * 12},C,,",
    ]  # fmt: skip


def test_what_runs_need_is_compiled_ahead_once_for_work_alike(monkeypatch):
    seen = []
    monkeypatch.setattr(bench, "run", seen.append)
    cuda = bench.DEFAULTS | {"backends": ["cuda"], "results": "loss", "n_exprs": 250_000}
    cpu = cuda | {"backends": ["cpu"]}
    many = {"n_points": 1_000_000}  # of the interpreter a kernel of its own; the code of others does not depend on it
    both = {"backends": ["cuda", "ptx"]}  # in one run
    kinds = cuda | both, cpu
    runs = [one | change | {"study": name} for name in "ab" for one in kinds for change in ({}, many)]
    bench.compile_ahead(runs)
    sizes = sorted((one["backends"][0], one["n_exprs"], one["n_points"]) for one in seen)
    assert sizes == [("cpu", 200, 362), ("cuda", 268, 1_000_000), ("cuda", 10_000, 362), ("ptx", 200, 362)]
    assert all(one["n_steps"] == one["n_samples"] == 1 for one in seen)


# ── a GPU, on a device made of NumPy ──


class OnDevice(np.ndarray):
    """An array that has to be fetched."""

    def get(self, out=None):
        copy = np.array(self)
        if out is None:
            return copy
        out[...] = copy
        return out


class Event:
    def record(self):
        self.time = time.perf_counter()


@pytest.fixture
def gpu(monkeypatch):
    """``timed_device.Gpu`` over a CuPy and an NVML that are stand-ins; evaluators work on the host."""
    properties = {"name": b"NVIDIA Nothing", "maxThreadsPerMultiProcessor": 1536}
    free = itertools.count(8_000, -100)  # ever less of it
    runtime = SimpleNamespace(
        getDevice=lambda: 0, getDeviceProperties=lambda index: properties,
        memGetInfo=lambda: (next(free), 9_000),
        deviceSynchronize=lambda: None, deviceGetPCIBusId=lambda index: "0000:00:00.0",
    )  # fmt: skip
    elapsed = lambda before, after: 1e3 * (after.time - before.time)  # noqa: E731
    cuda = SimpleNamespace(runtime=runtime, Event=Event, get_elapsed_time=elapsed, alloc_pinned_memory=bytearray)
    pool = SimpleNamespace(free_all_blocks=lambda: None, total_bytes=lambda: 0)
    monkeypatch.setattr(timed_device, "WRITTEN", 1 << 10)
    timed_device._written_over.cache_clear()
    cupy = SimpleNamespace(
        cuda=cuda, asarray=lambda a: np.array(a).view(OnDevice), zeros=lambda s, t: np.zeros(s, t).view(OnDevice),
        empty=lambda s, t: np.empty(s, t).view(OnDevice), ndarray=OnDevice, get_default_memory_pool=lambda: pool,
        get_default_pinned_memory_pool=lambda: pool,
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    clock = SimpleNamespace(
        nvmlDeviceGetCurrentClocksEventReasons=lambda handle: 0x4, nvmlDeviceGetClockInfo=lambda handle, which: 1980,
        NVML_CLOCK_SM=1, NVMLError=OSError,
    )  # fmt: skip
    monkeypatch.setattr(timed_device, "_nvml", lambda bus: (clock, None))

    class Device(timed_device.Gpu):
        def get(self, array, place=None):  # the stand-in is a NumPy array, too
            return array.get(out=place) if isinstance(array, OnDevice) else array

    monkeypatch.setattr(bench, "device_of", lambda name: Device())


@pytest.mark.parametrize("results", [*bench.RESULTS, "half"])
def test_a_gpu_s_samples(gpu, results):
    table = small(backends=["cpu"], results=results)
    assert set(table["device"]) == {"NVIDIA Nothing"} and set(table["sm_mhz"]) == {1980.0}
    assert table["throttled"].all() and any("held the clock back" in sentence for sentence in bench.unsteady(table))
    assert (table["kernel_s"] > 0).all() and (table["kernel_s"] <= 1.5 * table["step_s"]).all()
    assert (table["upload_s"] > 0).all() and (table["download_s"] > 0).all()
    assert set(table["most_warps"]) == {48.0} and set(table["device_bytes"]) == {100.0}
    steps = table[["device_s", "device_cold_s"]]
    assert (steps > 0).all(axis=None)


def test_a_step_is_not_timed_alone_where_its_matrix_has_no_room_beside_the_host_s(gpu, monkeypatch):
    cupy = sys.modules["cupy"]
    monkeypatch.setattr(cupy.cuda, "memory", SimpleNamespace(OutOfMemoryError=MemoryError), raising=False)
    monkeypatch.setattr(cupy, "empty", lambda shape, dtype: np.empty(1 << 50))
    table = small(backends=["cpu"], results="every", n_samples=1)
    assert table[["device_s", "device_cold_s"]].isna().all(axis=None) and (table["kernel_s"] > 0).all()


@pytest.mark.gpu
def test_memory_of_a_device_is_that_of_one_configuration():
    base = {"backends": ["cuda"], "n_exprs": 1000, "n_points": 10_000, "n_steps": 2, "n_samples": 1}
    for results in ("last", "every", "last", "loss"):
        row = bench.run(base | {"results": results}).iloc[-1]
        least, most = (4e7, 3e8) if results == "last" else (1e5, 3e8)
        assert least < row["device_bytes"] < most and row["device_s"] > 0


def test_what_an_engine_gets_ready_is_no_part_of_a_step_on_the_device_alone(gpu):
    calls = []

    def step():  # as one that is recorded when it is asked for again
        calls.append(time.perf_counter())
        time.sleep(0.05 if len(calls) <= 2 else 0.001)

    found = bench.device_of("cpu").alone(step)
    assert set(found) == {"device_s", "device_cold_s"} and len(calls) == 5
    assert max(found.values()) < 0.04


def test_a_kernel_s_facts_are_the_most_of_all_that_ran():
    facts = [{"registers": 6, "block_size": 320, "points_per_thread": 16}, {"registers": 60, "block_size": 320}]
    facts[1]["points_per_thread"] = 4
    evaluator = SimpleNamespace(engine=SimpleNamespace(kernels=lambda: facts))
    found = timed_device.kernel_facts(evaluator)
    assert {name: found[name] for name in ("registers", "block_used", "points_used")} == {
        "registers": 60, "block_used": 320, "points_used": 16,
    }  # fmt: skip
    assert np.isnan(found["local_bytes"])


# ── the peers ──


@pytest.mark.parametrize("peer", ["Arrays", "Pyoperon", "Numexpr", "Jax"])
def test_a_peer_computes_what_we_do(peer):
    if peer != "Arrays":
        pytest.importorskip(peer.lower())
    pop, params, X = bench_peers.thesis(60, 40)
    theirs = np.zeros((60, 40), np.float32)
    getattr(bench_peers, peer)(pop, params, X).evaluate(theirs, 1)
    ours = ek.Evaluator(pop, X, "cpu", "fast").evaluate(params)
    bench_peers.agree(peer, ours, theirs)
    with pytest.raises(SystemExit, match=r"wrong: .*% of the values differ; nothing was timed"):
        bench_peers.agree("wrong", ours, theirs + (np.arange(40) < 4))


def test_there_names_what_is_not_installed(capsys):
    made = bench_peers.there({"numpy": dict, "no_such_peer": list, "json": set}, skipped=["json"])
    assert made == {"numpy": {}}
    assert "no_such_peer is not installed, and left out" in capsys.readouterr().err


def test_a_table_of_measurements_is_printed_and_written(tmp_path, capsys, monkeypatch):
    at(monkeypatch, "0123456789ab")
    table = timing.Table()
    table.report("a step", 1.234567, "us", "2", "note", floor=0.5)
    table.write(tmp_path / "new" / "x.csv")
    head, line = (tmp_path / "new" / "x.csv").read_text().splitlines()
    assert head == "what,value,unit,target,least,note,commit,cpu,gpu,driver"
    assert line == "a step,1.2346,us,2,0.5,note,0123456789ab,C,,"
    assert capsys.readouterr().out.split() == ["a", "step", "1.2346", "us", "2", "0.5", "note"]
