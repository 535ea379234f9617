"""The figures: right numbers in the right panels, the same bytes each time, captions that say all; and the words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from exprkit import data
from exprkit.study import conclusions, figures, measured, plots, readme, records

MAP = {"bench": "map", "results": "loss", "n_steps": 11, "source": "random"}
FILES = {"cpu": ("C, 2 threads", ["cpu", "numpy"]), "gpu": ("NVIDIA H200", ["cuda", "ptx"])}


def samples(backend, seconds, **columns):
    """Samples with made-up times: half of each is spent once, the rest in the steps."""
    gpu = backend in ("cuda", "ptx")
    seconds = np.atleast_1d(np.asarray(seconds, float))
    fixed = {"bench": "benchmarks", "backend": backend, "dispatch": "", "device": FILES["gpu" if gpu else "cpu"][0]}
    fixed |= {"results": "last", "source": "exhaustive", "dataset": "d", "precision": "fast", "dtype": "float32"}
    fixed |= {"threads": 2, "n_exprs": 10_000, "n_points": 362, "n_vars": 2, "n_params": 20_000, "n_steps": 100}
    fixed |= {"cold": False, "sm_mhz": 1980.0, "throttled": False, "registers": 60.0, "local_bytes": 0.0}
    fixed |= {"code": "kept" if backend == "ptx" else "", "device_s": np.nan, "device_cold_s": np.nan}
    fixed |= {"shared_bytes": 1e4, "resident_blocks": 4.0, "lower_s": np.nan, "compile_s": np.nan} | columns
    fixed = {"n_tokens": 6 * fixed["n_exprs"], "block_used": fixed.get("block_size") or 256} | fixed
    steps = max(fixed["n_steps"] - 1, 1)
    times = {f"{name}_s": seconds / 10 for name in ("parse", "upload", "prepare", "first", "download")}
    times |= {"evaluate_s": seconds / 2, "steps_s": seconds / 2, "total_s": seconds, "step_s": seconds / 2 / steps}
    times["kernel_s"] = times["step_s"] if gpu else np.full(len(seconds), np.nan)
    if gpu and not fixed["dispatch"]:
        times |= {"device_s": 0.5 * times["step_s"], "device_cold_s": 0.6 * times["step_s"]}
    made = pd.DataFrame({name: [value] * len(seconds) for name, value in fixed.items()} | times)
    blocks = {name: pd.array([fixed.get(name)] * len(seconds), "Int64") for name in ("block_size", "points_per_thread")}
    return made.assign(**blocks, sample=range(len(seconds)))


def study():
    """A small study in which cuda beats ptx beats cpu, but for small sizes."""
    speed = {"cpu": 1.0, "cuda": 0.02, "ptx": 0.05, "numpy": 30.0}
    sizes = {1: (250_000, 362), 2: (10_000, 362), 3: (10_000, 10_860)}
    parts = []
    for backend, scale in speed.items():
        file = "cpu" if backend in FILES["cpu"][1] else "gpu"
        made = [
            samples(backend, scale * np.array([1.0, 1.1, 1.2]) * n, n_exprs=exprs, n_points=points)
            for n, (exprs, points) in sizes.items() if backend != "numpy"
        ]  # fmt: skip
        for exprs in (100, 1000):
            for points in (100, 1000, 10_000):
                work = exprs * points * scale * 1e-6
                work += 0.1 if file == "gpu" else 0
                made.append(samples(backend, work, n_exprs=exprs, n_points=points, **MAP))
        axes = {"vars": "n_vars", "params": "n_params", "tokens": "n_tokens", "steps_axis": "n_steps"}
        for bench, column in axes.items():
            for value in (10_000, 80_000) if column in ("n_params", "n_tokens") else (2, 20):
                made.append(samples(backend, scale * value, bench=bench, results="loss", **{column: value}))
        parts += [one.assign(file=file) for one in made]
        if backend == "ptx":  # what compiled the structures: 1 s more, at once
            cold = [one[one["sample"] == 0].assign(cold=True, file=file) for one in made]
            later = ["prepare_s", "total_s"]
            parts += [one.assign(**{name: one[name] + 1 for name in later}) for one in cold]
    slow = samples("cuda", [0.4, 0.42], dispatch="per-expression", n_steps=10, bench="launches")
    parts.append(slow.assign(file="gpu"))
    for backend, seconds in (("cuda", 4.0), ("ptx", 2.0)):
        parts.append(samples(backend, [seconds], bench="results", results="loss", n_points=10_860).assign(file="gpu"))
    beside = samples("cpu", [1.5], device="G, 16 threads", n_exprs=100, n_points=100, **MAP)
    parts.append(beside.assign(file="gpu"))
    for block in (128, 256):
        for points in (4, 8):
            one = samples("cuda", [block * points / 1e4], bench="blocks", n_points=10_860, block_size=block,
                          points_per_thread=points)  # fmt: skip
            parts.append(one.assign(file="gpu"))
    launches, four = {"dispatch": "per-expression", "n_steps": 11}, {"points_per_thread": 4, "block_size": 256}
    for columns in ({"n_steps": 1}, launches, four, {}, {"precision": "ieee"}):
        parts.append(samples("cuda", [0.5], bench="steps", n_points=10_860, **columns).assign(file="gpu"))
    return pd.concat(parts, ignore_index=True)


RECORDS = {
    "cpu": {"machines": [{"cpu": "C"}], "roofs": {"host_bytes_per_s": 4e10}},
    "gpu": {
        "machines": [{"cpu": "G", "gpu": {"name": "NVIDIA H200", "multiprocessors": 132, "most_sm_mhz": 1980}}],
        "roofs": {"host_bytes_per_s": 1e11, "gpu_bytes_per_s": 4e12},
    },
}


@pytest.fixture(scope="module")
def results():
    return figures.results_of(study(), RECORDS)


@pytest.fixture(scope="module")
def drawn(results):
    return {drawing.name: drawing for drawing in figures.drawings(results)}


# ── one figure ──


def test_comparison_puts_runs_beside_the_thesis_s_of_their_size():
    sizes = [(10_000, 362, 100), (10_000, 10_860, 100), (10_000, 362, 7)]
    runs = [samples("cpu", [1.0, 1.1], n_exprs=e, n_points=p, n_steps=s, precision="ieee") for e, p, s in sizes]
    figure = plots.comparison(pd.concat(runs), data.thesis_samples())
    titles = [axis.get_title().splitlines()[0] for axis in figure.axes]
    assert titles == ["benchmark 1", "benchmark 2", "benchmark 3", "other sizes"]
    names = [[label.get_text().replace("\n", " ") for label in axis.get_xticklabels()] for axis in figure.axes]
    thesis = ["thesis cpu interpreter", "thesis gpu interpreter", "thesis gpu transpiler"]
    own, other = "exprkit cpu ieee 2 threads", "exprkit cpu ieee 2 threads 10,000 x 362 exhaustive, 7 steps"
    assert names == [thesis, [*thesis, own], [*thesis, own], [other]]
    written = [text.get_text() for text in figure.axes[2].texts]
    assert written == ["48.3 s", "30.3 s", "25.4 s", "1.05 s"]  # at the best block size
    assert all(axis.get_yscale() == "log" for axis in figure.axes)


def test_repeated_expressions_are_shown_only_where_there_are_no_others():
    both = pd.concat([samples("cpu", [1.0]), samples("cpu", [9.0], source="esr")])
    alone = samples("cpu", [9.0], source="esr", n_points=10_860)
    table = plots.own_samples(pd.concat([both, alone]))
    assert sorted(zip(table["panel"], table["seconds"], strict=True)) == [(2, 1.0), (3, 9.0)]
    assert table["evaluator"].str.endswith(plots.REPEATED).tolist() == [False, True]


def test_runs_with_a_chosen_block_size_repeat_no_benchmark():
    rows = pd.concat([samples("cuda", [1.0], **columns) for columns in ({}, {"block_size": 128}, {"results": "loss"})])
    assert plots.benchmark_of(rows).tolist() == [2, plots.OTHER, plots.OTHER]


@pytest.mark.parametrize(
    ("seconds", "text"), [(12345.6, "12,346 s"), (1.5, "1.5 s"), (0.0234, "23.4 ms"), (0.00002, "20 us")]
)
def test_seconds_are_written_in_the_unit_that_suits(seconds, text):
    assert plots.written(seconds) == text


@pytest.mark.parametrize("suffix", [".svg", ".png", ".pdf"])
def test_the_same_figure_is_the_same_bytes(tmp_path, suffix):
    for name in ("a", "b"):
        plots.write_figure(plots.comparison(thesis=data.thesis_samples()), tmp_path / f"{name}{suffix}")
    assert (tmp_path / f"a{suffix}").read_bytes() == (tmp_path / f"b{suffix}").read_bytes()


# ── all figures ──


def test_every_figure_is_drawn(drawn):
    assert list(drawn) == [draw.__name__ for draw in figures.ALL]


def test_captions_say_on_what_and_by_which_command(drawn):
    for drawing in drawn.values():
        assert "Measured on " in drawing.caption and "samples each" in drawing.caption, drawing.name
        assert "`python -m exprkit sweep notebooks/benchmark.ipynb data/studies/" in drawing.caption


def test_without_results_the_thesis_s_figures_are_left_and_say_what_lacks():
    empty = figures.drawings(figures.results_of(pd.DataFrame()))
    assert [drawing.name for drawing in empty] == ["benchmark", "interpreter", "transpiler", "steps", "block_sizes"]
    assert all("not measured yet" in drawing.caption for drawing in empty[1:])


def test_winners(results):
    compiling, some = measured.maps_of(measured.of(results, "map", file="gpu"))
    assert set(compiling.loc[compiling["backend"] == "ptx", "code"]) == {"anew"}
    table = measured.winners(some, 11).set_index(["n_exprs", "n_points"])
    assert set(table["where"]) == {"cuda, H200"}
    assert table.loc[(1000, 10_000), "factor"] == pytest.approx((10 * 0.05 + 0.1) / (10 * 0.02 + 0.1))
    once = measured.winners(some, 1).set_index(["n_exprs", "n_points"])
    assert once.loc[(1000, 10_000), "seconds"] == pytest.approx((10 * 0.02 + 0.1) / 2)
    many = measured.winners(measured.of(results, "map", file="cpu"), 1000)
    assert set(many["where"]) == {"cpu, 2 threads"} and many["factor"].to_numpy() == pytest.approx(30)


def test_steps_are_scaled_to_the_thesis_s(results):
    found = dict(measured.own_steps(measured.of(results, "steps")))
    assert found["interpreter: everything anew at every step"] == pytest.approx(50)
    assert found["interpreter: per-expression"] == pytest.approx(0.25 + 99 * 0.25 / 10)
    assert found["interpreter: as exprkit chooses"] == pytest.approx(0.5)
    assert "interpreter: one launch, 4 points a thread, block 256" in found
    assert "interpreter: as exprkit chooses, ieee" in found
    whole = dict(measured.own_steps(measured.of(results, "benchmarks", backend="ptx", n_points=10_860)))
    assert set(whole) == {"transpiler: compiled once", "transpiler: machine code from the cache"}
    assert whole["transpiler: compiled once"] == pytest.approx(0.15 + 1)


def test_a_cold_sample_stands_for_those_that_compile(results):
    ptx = measured.of(results, "benchmarks", backend="ptx", n_points=10_860)
    assert ptx["code"].value_counts().to_dict() == {"kept": 3, "anew": 1}
    assert ptx.loc[ptx["code"] == "anew", "total_s"].tolist() == pytest.approx([1.15])
    warm = samples("ptx", [2.0], code="anew", n_points=10_860).assign(file="gpu")
    both = figures.results_of(pd.concat([study(), warm], ignore_index=True)).samples
    again = both[both["bench"].eq("benchmarks") & both["backend"].eq("ptx") & both["n_points"].eq(10_860)]
    assert again.loc[again["code"] == "anew", "total_s"].tolist() == [2.0]  # where there are such, the cold one is not


def test_a_launch_an_expression_is_scaled_to_all_steps(results):
    rows = measured.per_expression(results)
    assert set(rows["n_steps"]) == {100} and set(plots.benchmark_of(rows)) == {2, 3}
    two = rows[rows["n_points"] == 362]
    assert two["total_s"].tolist() == pytest.approx([0.2 + 99 * 0.2 / 9, 0.21 + 99 * 0.21 / 9])


def test_block_sizes_over_the_best(results):
    table = measured.relative_to_best(results)
    assert table.loc["thesis gpu interpreter", 128] == 1 and table.loc["thesis gpu interpreter", 192] > 3
    assert table.loc["exprkit cuda fast H200", [128, 256]].tolist() == pytest.approx([1, 2])


def test_waiting_for_losses_belongs_to_the_steps_in_older_files():
    rows = samples("cuda", [1.0], results="loss", n_steps=11).drop(columns="steps_s")
    found = measured.results_of(rows).samples.iloc[0]
    assert found["steps_s"] == pytest.approx(0.5 + 0.1 * 10 / 11) and found["step_s"] == found["steps_s"] / 10
    assert measured.results_of(rows.assign(results="last")).samples["step_s"].tolist() == pytest.approx([0.05])


@pytest.mark.parametrize(
    ("n_points", "at_once", "share"), [(362, 128, 22 / 384), (10_860, 160, 20 / 10_880), (10_860, 192, 84 / 10_944)]
)
def test_excess_threads_are_those_of_the_thesis(n_points, at_once, share):
    assert figures.excess(n_points, at_once) == pytest.approx(share)


def test_best_points_of_each_block(results):
    best = measured.best_points(measured.of(results, "blocks"))
    assert best["points_per_thread"].tolist() == [4, 4] and best["block_size"].tolist() == [128, 256]


def test_the_kernels_are_a_table(results):
    table = figures.kernel_table(results).set_index(["block_size", "points_per_thread"])
    assert len(table) == 4 and set(table["registers"]) == {60}
    assert table.loc[(256, 4), "occupancy"] == 4 * 256 / 32 / 64
    assert figures.kernel_table(figures.results_of(pd.DataFrame())).empty


def test_the_roofs(results):
    (_, bytes_per_s, nodes_per_s), = measured.roofs_of(RECORDS["gpu"])
    assert (bytes_per_s, nodes_per_s) == (4e12, 132 * 128 * 1980e6)
    table = measured.kernels(measured.of(results, "benchmarks", backend="cuda", n_points=10_860))
    row = table.iloc[0]
    assert row["nodes_per_s"] == pytest.approx(60_000 * 10_860 / row["seconds"])
    moved = 10_000 * 10_860 * 4 + 10_860 * 3 * 4 + 60_000 * 8
    assert row["nodes_per_byte"] == pytest.approx(60_000 * 10_860 / moved)


def test_medians_are_a_table(results):
    table = figures.medians(results).set_index(["benchmark", "evaluator"])
    row = table.loc[(2, "exprkit cuda fast H200")]
    assert (row["samples"], row["median"]) == (3, pytest.approx(0.044))
    assert table.loc[(3, "thesis gpu transpiler"), "median"] == pytest.approx(25.4, rel=0.01)


def test_figures_are_written_from_a_folder_of_results(tmp_path):
    (tmp_path / "results").mkdir()
    small = samples("cpu", [1.0, 1.1]).assign(run="r")
    records.write_samples(tmp_path / "results" / "cpu.parquet", small)
    first, again = (
        {path.name: path.read_bytes() for path in figures.write_all(tmp_path / "results", tmp_path / "figures")}
        for _ in range(2)
    )
    assert again == first and {"benchmark.svg", "benchmark.png", "phases.svg", "README.md"} <= set(again)
    assert b"![benchmark](benchmark.png)" in again["README.md"]


def test_the_committed_figures_are_of_the_committed_results(root):
    drawings = figures.drawings(figures.read_results(root / "data" / "results"))
    named = {drawing.name for drawing in drawings}
    assert named == {path.stem for path in (root / "figures").glob("*.svg")}, "run: make figures"
    text = (root / "figures" / "README.md").read_text(encoding="utf-8")
    assert all(drawing.caption in text for drawing in drawings), "run: make figures"


# ── in words ──


def test_conclusions_hold_the_numbers(results):
    text = conclusions.page(results)
    assert "not measured yet" not in text.lower()
    for said in (
        "4.1 times and 5.6 times",  # the thesis's CPU on benchmarks 1 and 2
        "160 takes 2.4 times and 192 3.3 times as long",
        "The GPU wins on all of them, against `cpu, 2 threads` of another machine by 50 times, 50 times and 50 times",
        "| benchmark 2 | 3.77 s | 19.6 s | 2.2 s | **44 ms** | 1.1 s | 0.11 s |",
        "| 1,000 | 0 of 1 | none | 1 | 0 | 15 times at 100 x 100 |",
        "only sums errors of 10,000 points or more, the interpreter takes 2 times as long as the transpiler",
        "| errors | 10,000 (all different) x 10,860 | 10.1 ms | **5.05 ms** |",
        "where it writes the matrix, 0.4 times",
        "1.03 s | never | never |",
        "`cuda fast H200` 100%",
        "| thesis gpu interpreter | **1.00** | 2.44 | 3.28 |  |",
        "one launch for all gains 56 times and 41 times on benchmarks 2 and 3",
        "| expressions, 10,000 points | 100 to 1,000 | 10 times | 2.5 times | 4 times |",
        "`ptx, H200, compiling` 1.5 s + 26.3 ms a step; `ptx, H200, from cache` 0.5 s + 26.3 ms a step",
        "it works 50% of the time",
        "A cold second-level cache costs at most 20%",
    ):
        assert said in text, said


def test_conclusions_without_results_invent_nothing():
    text = conclusions.page(figures.results_of(pd.DataFrame()))
    assert text.count("Not measured yet") == len(conclusions.QUESTIONS)


def test_the_readme_s_table_of_results(tmp_path):
    assert readme.results(tmp_path) == "Nothing has been measured yet: `make study`."
    records.write_samples(tmp_path / "x.parquet", samples("cpu", [1.0, 2.0, 3.0]).assign(run="r"))
    head, _, row = readme.results(tmp_path).splitlines()[:3]
    assert head.startswith("| benchmark | expressions x points | exprkit | on | median |")
    assert "| 2 | 10,000 (all different) x 362 | `cpu`, fast, float32 | C, 2 threads | **2 s** |" in row
    assert row.endswith("| 3.77 s | 19.6 s |")


def test_the_readme_s_tables_of_fits(tmp_path):
    assert readme.fits(tmp_path).startswith("Nothing has been measured yet")
    head = "what,value,unit,target,note\n"
    (tmp_path / "h200_fit.csv").write_text(f'{head}"fit 9880 x 362, fast",709.7,us,900,\nother,3,us,,\n')
    assert readme.fits(tmp_path).splitlines()[2:] == ["| fit 9,880 x 362, fast | **0.71 ms** | 0.9 ms |"]
    assert readme.fit_peers(tmp_path).startswith("Nothing has been measured yet")
    (tmp_path / "fit_peers.csv").write_text(
        "n_points,method,expressions,reached,of_sample,reached_of_sample,us_per_fit,ratio\n"
        "362,scipy,0,0,1000,753,3569,0.03\n362,exprkit,9880,7380,1000,744,5.196,22\n"
    )
    assert readme.fit_peers(tmp_path).splitlines()[2:] == [
        "| 362 | exprkit | 5.2 us | 7,380 of 9,880 |", "| 362 | scipy | 3.57 ms | 753 of 1,000 |",
    ]  # fmt: skip


def test_the_readme_s_table_of_peers(tmp_path):
    seconds = {"pyoperon": 0.4, "jax": 0.2, "fast matrix": 0.1}
    table = pd.DataFrame({"method": [*seconds, "ieee"], "seconds": [*seconds.values(), 1.0], "ratio": 2.0})
    table = table.assign(workload=["thesis"] * 3 + ["sin"], n_exprs=[1000] * 3 + [64], n_points=362, threads=1)
    table.to_csv(tmp_path / "peers.csv", index=False)
    text = readme.peers(tmp_path)
    assert "| thesis, 1,000 | 362 | 1 | 0.4 s | 0.2 s | 0.1 s (**2.0x**) |" in text.splitlines()
    assert "1 of 1 are faster" in text


@pytest.mark.parametrize(
    ("values", "text"), [([1.2, 2.31], "1.2 to 2.3 times"), ([2.0], "2 times"), ([4.0, 25.0], "4 to 25 times")]
)
def test_a_span_says_its_unit_once(values, text):
    assert conclusions.span(values, conclusions.times) == text


@pytest.mark.parametrize(("count", "text"), [(1.0, "1"), (75.2, "76"), (4712.3, "4,800"), (np.inf, "never")])
def test_steps_until_something_pays_are_rounded_up(count, text):
    assert conclusions._steps(count) == text


def test_axes_are_compared_where_all_were_measured():
    rows = pd.DataFrame({"where": ["a", "a", "a", "b", "b"], "n": [1, 10, 100, 1, 10]})
    assert conclusions._measured_by_all(rows, "n")["n"].tolist() == [1, 10, 1, 10]


def test_the_machines_are_a_table():
    clocks = {"sm_mhz": {"least": 1200.0, "median": 1980.0, "most": 1980.0}}
    clocks |= {"samples_on_gpu": 7, "throttled_samples": 2}
    gpu = {"cpu": "G", "gpu": {"name": "NVIDIA H200", "driver": "580"}}
    known = {"cpu": {"machines": [{"cpu": "C"}], "warnings": ["slow"]}, "gpu": {"machines": [gpu]} | clocks}
    table = figures.machines(figures.results_of(pd.DataFrame(), known))
    assert table.loc["gpu"].tolist() == ["G", "NVIDIA H200, driver 580", "1200 to 1980 MHz", "2 of 7 samples", "none"]
    assert table.loc["cpu"].tolist() == ["C", "", "", "", "slow"]
