"""The figures: right numbers in the right panels, the same bytes each time, captions that say all; and the words."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from exprkit import data
from exprkit.study import conclusions, figures, plots, readme, records

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
    fixed |= {"shared_bytes": 1e4, "resident_blocks": 4.0, "lower_s": np.nan, "compile_s": np.nan} | columns
    fixed = {"n_tokens": 6 * fixed["n_exprs"], "block_used": fixed.get("block_size") or 256} | fixed
    steps = max(fixed["n_steps"] - 1, 1)
    times = {f"{name}_s": seconds / 10 for name in ("parse", "upload", "prepare", "first", "download")}
    times |= {"evaluate_s": seconds / 2, "total_s": seconds, "step_s": seconds / 2 / steps}
    times["kernel_s"] = times["step_s"] if gpu else np.full(len(seconds), np.nan)
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
    slow = samples("cuda", [4.0, 4.2], dispatch="per-expression")
    parts.append(slow.assign(file="gpu"))
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
    some = figures.of(results, "map", file="gpu")
    table = figures.winners(some, 11).set_index(["n_exprs", "n_points"])
    assert set(table["where"]) == {"cuda, H200"}
    assert table.loc[(1000, 10_000), "factor"] == pytest.approx((10 * 0.05 + 0.1) / (10 * 0.02 + 0.1))
    once = figures.winners(some, 1).set_index(["n_exprs", "n_points"])
    assert once.loc[(1000, 10_000), "seconds"] == pytest.approx((10 * 0.02 + 0.1) / 2)
    many = figures.winners(figures.of(results, "map", file="cpu"), 1000)
    assert set(many["where"]) == {"cpu, 2 threads"} and many["factor"].to_numpy() == pytest.approx(30)


def test_steps_are_scaled_to_the_thesis_s(results):
    found = dict(figures.own_steps(figures.of(results, "steps")))
    assert found["everything anew at every step"] == pytest.approx(50)
    assert found["per-expression"] == pytest.approx(0.25 + 99 * 0.25 / 10)
    assert found["as exprkit chooses"] == pytest.approx(0.5)
    assert "one launch, 4 points a thread, block 256" in found and "as exprkit chooses, ieee" in found


@pytest.mark.parametrize(
    ("n_points", "at_once", "share"), [(362, 128, 22 / 384), (10_860, 160, 20 / 10_880), (10_860, 192, 84 / 10_944)]
)
def test_excess_threads_are_those_of_the_thesis(n_points, at_once, share):
    assert figures.excess(n_points, at_once) == pytest.approx(share)


def test_best_points_of_each_block(results):
    best = figures.best_points(figures.of(results, "blocks"))
    assert best["points_per_thread"].tolist() == [4, 4] and best["block_size"].tolist() == [128, 256]


def test_the_kernels_are_a_table(results):
    table = figures.kernel_table(results).set_index(["block_size", "points_per_thread"])
    assert len(table) == 4 and set(table["registers"]) == {60}
    assert table.loc[(256, 4), "occupancy"] == 4 * 256 / 32 / 64
    assert figures.kernel_table(figures.results_of(pd.DataFrame())).empty


def test_the_roofs(results):
    (_, bytes_per_s, nodes_per_s), = figures.roofs_of(RECORDS["gpu"])
    assert (bytes_per_s, nodes_per_s) == (4e12, 132 * 128 * 1980e6)
    table = figures.kernels(figures.of(results, "benchmarks", backend="cuda", n_points=10_860))
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
        "`cuda, H200` 22 ms, 44 ms and 66 ms on benchmarks 1, 2 and 3",
        "The GPU's advantage over `cpu, 2 threads` is 50 times, 50 times and 50 times",
        "On benchmark 2 its steps are no shorter",
        "one launch for all gains 93 times on benchmark 2",
        "best 128, worst 256, 2 times as long",
    ):
        assert said in text


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


def test_the_readme_s_table_of_peers(tmp_path):
    seconds = {"pyoperon": 0.4, "jax": 0.2, "fast matrix": 0.1}
    table = pd.DataFrame({"method": [*seconds, "ieee"], "seconds": [*seconds.values(), 1.0], "ratio": 2.0})
    table = table.assign(workload=["thesis"] * 3 + ["sin"], n_exprs=[1000] * 3 + [64], n_points=362, threads=1)
    table.to_csv(tmp_path / "peers.csv", index=False)
    text = readme.peers(tmp_path)
    assert "| thesis, 1,000 | 362 | 1 | 0.4 s | 0.2 s | 0.1 s (**2.0x**) |" in text.splitlines()
    assert "1 of 1 are faster" in text
