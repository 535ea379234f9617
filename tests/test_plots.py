"""The figures: right numbers in the right panels, the same bytes each time, captions that say all; and the words."""

from __future__ import annotations

import csv
import itertools
import math
import os
import re
import statistics
import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from made_up import SWEEP, samples, study
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from exprkit import data
from exprkit.__main__ import main
from exprkit.backends import known
from exprkit.errors import DataError, duration
from exprkit.runtime import files
from exprkit.study import bench, case_figures, figures, measured, plots, readme, records, sweep, tables

pytestmark = pytest.mark.lab

MAP = {"bench": "map", "results": "loss", "n_steps": 11, "source": "random"}
FOLDER = Path(__file__).resolve().parent.parent / "data" / "studies"
# what the studies will have measured: every run of theirs, by a plain model of its times
STUDY = pd.concat([study(FOLDER / "cpu.yaml", 2), study(FOLDER / "h200.yaml", 16)], ignore_index=True)
KINDS = list(zip(STUDY["bench"], STUDY["backend"], STUDY["n_points"], strict=True))


@pytest.fixture(scope="module")
def results():
    return figures.results_of(STUDY)


@pytest.fixture(scope="module")
def nothing():
    """Results without samples, and what becomes of each figure."""
    results = figures.results_of(pd.DataFrame())
    return results, [draw(results) for draw in figures.ALL]


@pytest.fixture(scope="module")
def drawn(results):
    return {drawing.name: drawing for drawing in figures.drawings(results)}


# ── one figure ──


def test_comparison_puts_runs_beside_the_thesis_s_of_their_size():
    sizes = [(10_000, 362, 100), (10_000, 10_860, 100), (10_000, 362, 7)]
    runs = [samples("cpu", [1.0, 1.1], n_exprs=e, n_points=p, n_steps=s, precision="ieee") for e, p, s in sizes]
    figure = plots.comparison(pd.concat(runs), data.thesis_samples())
    left = figure.axes[::2]
    titles = [axis.get_title("left").partition(",")[0] for axis in left]
    assert titles == ["benchmark 1", "benchmark 2", "benchmark 3", "other sizes"]
    names = [[label.get_text() for label in axis.get_yticklabels()] for axis in left]
    cpu, gpu, transpiler = "thesis cpu interpreter", "thesis gpu interpreter", "thesis gpu transpiler"
    own, other = "exprkit cpu ieee 2 threads", "exprkit cpu ieee 2 threads 10,000 x 362 exhaustive, 7 steps"
    slowest_first = [transpiler, gpu, cpu], [gpu, transpiler, cpu, own], [cpu, gpu, transpiler, own], [other]
    assert names == [*slowest_first]
    written = [text.get_text() for text in left[2].texts]
    assert written == ["48.3 s", "30.3 s", "25.4 s", "1.05 s"]  # at the best block size
    assert all(axis.get_xscale() == "log" for axis in left)


def test_a_line_of_the_comparison_has_a_mark_and_a_number_for_each_protocol():
    runs = [samples("cuda", [seconds], results=back) for back, seconds in (("loss", 1.0), ("every", 3.0))]
    figure = plots.comparison(pd.concat(runs), data.thesis_samples())
    axis = figure.axes[2]
    said = [text.get_text() for text in axis.texts]
    assert said[-3:] == ["3.77 s / -", "3 s / 1 s", "every step / losses"]  # the thesis's is the matrix of every step
    assert {line.get_marker() for line in axis.lines} == {"o", "s"}
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["matrix of every step", "losses only"]


def test_repeated_expressions_are_shown_only_where_there_are_no_others():
    both = pd.concat([samples("cpu", [1.0]), samples("cpu", [9.0], source="esr")])
    alone = samples("cpu", [9.0], source="esr", n_points=10_860)
    table = plots.own_samples(pd.concat([both, alone]))
    assert sorted(zip(table["panel"], table["seconds"], strict=True)) == [(2, 1.0), (3, 9.0)]
    assert table["evaluator"].str.endswith(plots.REPEATED).tolist() == [False, True]


def test_runs_with_a_chosen_block_size_repeat_no_benchmark():
    chosen = {"block_size": 128}, {"options": "stack=25"}, {"results": "fit"}
    rows = pd.concat([samples("cuda", [1.0], **columns) for columns in ({}, {"results": "loss"}, *chosen)])
    assert plots.benchmark_of(rows).tolist() == [2, 2, *[plots.OTHER] * 3]


@pytest.mark.parametrize(
    ("seconds", "text"), [(12345.6, "12,346 s"), (1.5, "1.5 s"), (0.0234, "23.4 ms"), (0.00002, "20 us")]
)
def test_seconds_are_written_in_the_unit_that_suits(seconds, text):
    assert duration(seconds) == text


def test_the_last_bit_of_a_panels_place_changes_no_byte_of_a_figure(tmp_path):
    for name, left in (("a.svg", 0.1), ("b.svg", math.nextafter(0.1, 1))):
        figure = Figure()
        figure.add_axes((left, 0.1, 0.8, 0.8)).plot([0, 1])
        plots.write_figure(figure, tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.slow
def test_the_same_figure_is_the_same_bytes_in_another_process(results, tmp_path):
    """Under another hash seed, so that no set's order and no random number is in the files."""
    rows = measured.samples_of(results, "benchmarks", backend="ptx", results="last").assign(file="gpu")
    rows.to_pickle(tmp_path / "rows")
    lines = (
        "import sys, pandas, pathlib",
        "from exprkit.study import figures, plots",
        "folder = pathlib.Path(sys.argv[1])",
    )
    lines += ("drawing = figures.transpiler(figures.results_of(pandas.read_pickle(folder / 'rows')))",)
    lines += ("[plots.write_figure(drawing.figure, folder / (sys.argv[2] + end)) for end in ('.svg', '.png', '.pdf')]",)
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", "\n".join(lines), str(tmp_path), seed], env=environment, check=True)
    for suffix in (".svg", ".png", ".pdf"):
        assert (tmp_path / f"1{suffix}").read_bytes() == (tmp_path / f"2{suffix}").read_bytes(), suffix


# ── all figures ──


@pytest.mark.slow
def test_every_figure_is_drawn(drawn):
    assert list(drawn) == [draw.__name__ for draw in figures.ALL]


def test_captions_say_on_what_and_by_which_command(drawn):
    for drawing in drawn.values():
        assert "Measured on " in drawing.caption and " each; " in drawing.caption, drawing.name
        assert f"by `{SWEEP}`" in drawing.caption and "data/studies" not in drawing.caption
        assert "commit ba98765" in drawing.caption and "2026-11-27)" in drawing.caption
    assert "(commit 0123456+, commit ba98765, 2026-11-27)." in drawn["scaling"].caption


def test_without_results_the_thesis_s_figures_are_left_and_say_what_lacks(nothing):
    empty, lacking = ([made for made in nothing[1] if bool(made.figure) == kind] for kind in (True, False))
    assert [drawing.name for drawing in empty] == ["benchmark", "interpreter", "transpiler", "steps", "block_sizes"]
    assert all("not measured yet" in drawing.caption for drawing in empty)
    assert [made.name for made in lacking] == ["tuning", "scaling", "crossover"]
    assert all(re.search("not measured yet", made.caption) for made in lacking)


def test_the_files_and_commands_that_captions_send_to_are_there(root, nothing):
    said = " ".join([*(made.caption for made in nothing[1]), readme.STUDIES])
    makefile = (root / "Makefile").read_text()
    for target in re.findall(r"`make ([\w-]+)`", said):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for path in re.findall(r"`(\w+/[\w/.]+)`", said):
        assert (root / path).is_file(), path


# ── what made the samples ──


def test_a_single_run_s_caption_names_what_made_it(tmp_path):
    rows = samples("cpu", [1.0, 1.1], bench="benchmark", commit="abcdef012345").drop(columns=["block_used"])
    given = bench.DEFAULTS | {"seconds": 3.0, "results_dir": "elsewhere"}
    bench.save(rows, tmp_path, given, made_by="notebooks/benchmark.ipynb")
    drawing = figures.benchmark(figures.read_results(tmp_path))
    day = datetime.now(UTC).date().isoformat()
    made = f"by `notebooks/benchmark.ipynb` (commit abcdef0, {day})."
    assert drawing.caption.endswith(f"Measured on C, 2 threads; 2 samples each; float32, fast; {made}")
    assert ".yaml" not in drawing.caption


def test_the_studies_measure_headlines_fifty_times_and_both_gpu_backends_in_one_run(root, monkeypatch):
    monkeypatch.setattr(bench, "load", known)  # also those that cannot run here
    runs = {
        name: [job.parameters for job in sweep.jobs_of(root / "notebooks" / "benchmark.ipynb", path, "out")]
        for name in ("cpu", "h200") for path in [root / "data" / "studies" / f"{name}.yaml"]
    }  # fmt: skip
    headline = [
        run for run in runs["h200"]
        if run["study"] == "benchmarks" and run["expressions"] == "exhaustive" and run["code"] == "kept"
    ]  # fmt: skip
    for run in itertools.chain(*runs.values()):  # what no backend has is an error before anything is timed
        settings = bench.Settings(**run)
        settings.check(run["n_exprs"])
        assert all(set(run["options"]) <= set(settings.options_of(name)) for name in run["backends"])
    sizes = {(run["n_exprs"], run["n_points"], run["results"], *run["backends"]) for run in headline}
    assert sizes == {
        (*size, back, *names) for size in plots.BENCHMARKS.values() for back in plots.PROTOCOLS
        for names in (("cuda", "ptx"), ("cpu",)) if (back, names) != ("last", ("cpu",))
    }  # fmt: skip
    assert all((run["n_samples"], run["seconds"] >= 60) == (50, True) for run in headline)
    thesis = [run for run in runs["h200"] if run["study"] == "thesis_steps"]
    assert len(thesis) == 11 and all(run["n_samples"] >= 20 for run in thesis)
    compared = [run for run in runs["h200"] if run["code"] == "kept" and "ptx" in run["backends"]]
    assert all("cuda" in run["backends"] for run in compared if run["study"] != "blocks")


def test_a_folder_of_results_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"there is no folder of results .*gone"):
        figures.read_results(tmp_path / "gone")
    (tmp_path / "other.json").write_text("{}")  # of something else
    assert figures.read_results(tmp_path).samples.empty


# ── only a part is measured ──

SAYS = {  # what a sentence is about
    "cpu": r"\bcpus?\b", "numpy": r"\bnumpy\b", "cuda": r"\bcuda\b|interpreter",
    "ptx": r"\bptx\b|transpiler|compil", "gpu": r"\bgpus?\b|H200|launch|\bdevice\b|shared memory",
}  # fmt: skip
NOT_OURS = r"thesis|not measured yet|is not drawn|`make study|\.ipynb|\?\*\*$"  # the thesis's, nobody's, or a question


@pytest.fixture
def without_violins(monkeypatch):
    """Names in the places of violins, which take a second each."""

    def names(table, *, ax, **options):
        found = list(dict.fromkeys(table["evaluator"]))
        ax.set_xticks(range(len(found)), found)

    monkeypatch.setattr(plots.sns, "violinplot", names)


def ours(texts):
    return [text for text in texts if not re.search(NOT_OURS, text, re.IGNORECASE)]


def in_axis(axis):
    """What an axis tells of our measurements; nothing if it holds but the thesis's."""
    ticks = [label.get_text().replace("\n", " ") for label in (*axis.get_xticklabels(), *axis.get_yticklabels())]
    names = [tick for tick in ticks if re.search("[a-z]", tick) and "mathdefault" not in tick]  # not the numbers
    own = ours([*names, *axis.get_legend_handles_labels()[1]])
    title = axis.get_title().replace("\n", ", ")
    return ours([title, axis.get_xlabel(), *own]) if own and "thesis" not in title else []


def told(results):
    """What stands in the figures and tables of our own measurements."""
    made = [draw(results) for draw in figures.ALL]
    axes = [axis for one in made if one.figure for axis in one.figure.axes]
    return [*(text for axis in axes for text in in_axis(axis)), *tabulated(results)]


def tabulated(results):
    """Headings and cells of every table about backends, without those of the thesis."""
    shown = [make(results) for name, make in tables.TABLES.items() if name != "machines"]
    lines = (line for one in shown for line in (list(one.columns) * bool(len(one)), *one.to_numpy().tolist()))
    return [cell for line in lines for cell in ours(line) if len(ours(line)) == len(line) or "`" in cell]


def about(name, texts):
    return [text for text in texts if re.search(SAYS[name], text, re.IGNORECASE)]


def part_of(rows):
    return figures.results_of(rows.reset_index(drop=True))


@pytest.mark.slow
@pytest.mark.parametrize("there", [["cpu", "numpy"], ["numpy"], ["cuda"], ["ptx"]], ids="-".join)
def test_nothing_is_said_of_a_backend_that_is_not_measured(there, without_violins):
    said = told(part_of(STUDY[STUDY["backend"].isin(there)]))
    lacking = {"cpu", "numpy", "cuda", "ptx"} - set(there)
    for name in lacking if {"cuda", "ptx"} - lacking else {*lacking, "gpu"}:
        assert about(name, said) == [], name
    assert all(about(name, said) for name in there)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2, 3])
def test_nothing_is_said_of_a_benchmark_that_is_not_measured(number, without_violins):
    n_exprs, n_points = plots.BENCHMARKS[number]
    rows = STUDY[STUDY["bench"].eq("benchmarks") & STUDY["n_exprs"].eq(n_exprs) & STUDY["n_points"].eq(n_points)]
    results = part_of(rows)
    assert set(tables.samples(results)["benchmark"]) == {str(number)}
    said = " ".join(told(results))
    assert not any(f"benchmark {other}" in said for other in plots.BENCHMARKS if other != number)


def test_samples_that_measured_nothing_are_left_out():
    spoiled = STUDY.assign(total_s=STUDY["total_s"].mask(STUDY["backend"].eq("cuda"), np.nan))
    found = part_of(spoiled)
    assert set(found.samples["backend"]) == {"cpu", "numpy", "ptx"}
    assert not any("cuda" in text for text in tabulated(found))


@pytest.mark.slow
def test_a_cpu_s_tuning_repeats_no_block_size_of_the_thesis():
    rows = pd.concat([samples("cpu", [1.0], bench="blocks", n_points=10_860, threads=n) for n in (1, 2)])
    results = figures.results_of(rows)
    assert "not measured yet" in figures.block_sizes(results).caption and "C, 2 threads" not in figures.block_sizes(
        results).caption  # fmt: skip
    assert not [name for name in tables.block_sizes(results)[""] if name.startswith("exprkit")]
    small = samples("cuda", [1.0], bench="blocks", n_exprs=1000, n_points=10_860, block_size=128, points_per_thread=4)
    tuned = figures.results_of(small)
    assert "on 1,000 expressions x 10,860 points" in figures.tuning(tuned).caption
    assert "not measured yet" in figures.block_sizes(tuned).caption


def test_maps_of_different_sizes_have_no_winner():
    rows = pd.concat([samples("cpu", [1.0], n_exprs=10, **MAP), samples("numpy", [1.0], n_exprs=20, **MAP)])
    assert figures.crossover(figures.results_of(rows)).figure is None


def test_precisions_and_dtypes_are_told_apart():
    kinds = [{}, {"precision": "ieee"}, {"dtype": "float64"}]
    rows = pd.concat([samples("cpu", [n + 1.0], **columns) for n, columns in enumerate(kinds)])
    names = ["cpu, 2 threads", "cpu, 2 threads, float64", "cpu, 2 threads, ieee"]
    found = tables.own_medians(figures.results_of(rows)).loc["every", 2]
    assert found.to_dict() == dict(zip(names, [1, 3, 2], strict=True))


def test_the_definition_s_samples_are_of_one_thread(root):
    rows = figures.read_results(root / "data" / "results").samples
    assert set(rows.loc[rows["backend"] == "numpy", "where"]) == {"numpy, 1 thread"}


def test_a_cpu_is_shown_at_its_best_number_of_threads(results):
    """In the model a step costs 10 us a thread, so that small work is faster on few."""
    rows = measured.map_rows(results, "kept")
    own = rows[rows["backend"].eq("cpu") & rows["file"].eq("h200") & rows["results"].eq("loss")]
    used = own.groupby(["n_exprs", "n_points"])["threads"].agg(["min", "max"])
    assert used.loc[(100, 100)].tolist() == [4, 4] and used.loc[(10_000, 10_000)].tolist() == [16, 16]
    assert set(own["where"]) == {"cpu, up to 16 threads"}
    assert len(measured.on_best_threads(rows, "n_exprs", "n_points", "results")) == len(rows)
    benchmark = tables.own_medians(results)
    step = 10_000 * 10_860 * 6 / 8e9 + 8e-5  # of eight threads, which the model lets do as much as sixteen
    assert benchmark.loc[("every", 3), "cpu, up to 16 threads"] == pytest.approx(0.01 + 100 * step)


def test_one_step_takes_as_long_whichever_matrix_comes_back():
    noisy = figures.results_of(study(FOLDER / "h200.yaml", 16, noise=0.2))
    rows = measured.map_rows(noisy, "anew")
    every, last = (measured.map_seconds(rows, protocol, 1) for protocol in ("every", "last"))
    assert len(every) == 12 and set(every) == {"cuda, H200", "cpu, up to 16 threads"}
    pd.testing.assert_frame_equal(every, last)
    assert not np.allclose(measured.map_seconds(rows, "every", 9), measured.map_seconds(rows, "last", 9))
    lines = tables.boundary(noisy)
    assert lines[lines["steps"].eq("1")]["copied to the host"].tolist() == ["matrix", "losses only"]


def test_the_thesis_s_steps_are_in_its_order_beside_its_gains(results):
    table = measured.thesis_steps(results)
    own = table[table["evaluator"] == "interpreter"]
    assert own["block_size"].tolist() == [256, 256, 128, 128, 160, 192]
    assert own["stack"].tolist() == ["25"] * 3 + ["10"] * 3
    assert own["theirs"].tolist()[:4] == [1, 0.95, 0.893, 0.875] and own["theirs"].isna().sum() == 2
    step = 10_000 * (5e-6 + 3e-6) + 1e-4 + 10_000 * 10_860 * (6 / 1e12 + 4 / 5e10)
    assert own["median"].iloc[0] == pytest.approx(0.011 + 100 * step)
    assert own["relative"].iloc[0] == 1 and own["relative"].iloc[1] == pytest.approx(5 / 8, rel=0.1)
    own = table[table["evaluator"] == "transpiler"]
    words = ["all at every step", "frontend and data once", "transpiled once", "compiled once", "compiled once"]
    assert own["change"].tolist() == words and own["theirs"].tolist()[:3] == [1, 0.933, 0.667]


def test_the_way_from_the_thesis_to_ours_begins_with_one_stream(results):
    table = tables.launches(results)
    ways = table.iloc[:, 0].tolist()
    assert ways[0] == "a launch per expression" and ways[-1] == "one launch, as exprkit chooses"
    assert {"a launch per expression, 16 streams", "a launch per expression, 128 streams, 16 threads"} <= set(ways)
    assert "a launch per expression, one CUDA graph" in ways and "one launch, 4 points per thread" in ways
    assert table["2: matrix, left on the device"].iloc[0] == "50.1 ms" and table["3: losses"].iloc[0] == ""


def test_a_cold_sample_stands_for_those_that_compile(results):
    ptx = measured.samples_of(results, "benchmarks", backend="ptx", n_exprs=250_000, results="last")
    assert ptx["code"].value_counts().to_dict() == {"kept": 3, "anew": 1}
    added = ptx.loc[ptx["code"].eq("anew"), "total_s"].median() - ptx.loc[ptx["code"].eq("kept"), "total_s"].median()
    assert added == pytest.approx(0.1 + 25)
    ptx = measured.samples_of(
        results, "benchmarks", backend="ptx", n_points=10_860, source="exhaustive", results="last"
    )
    assert ptx["code"].value_counts().to_dict() == {"kept": 3, "anew": 3}  # where others do, the cold one counts not


def test_a_launch_an_expression_is_scaled_to_all_steps(results):
    rows = measured.scaled_to_all_steps(results)
    assert set(rows["n_steps"]) == {100} and set(plots.benchmark_of(rows)) == {2, 3}
    apart = rows[rows["dispatch"].ne("") & rows["n_points"].eq(362) & rows["results"].eq("last")]
    assert apart["total_s"].tolist() == pytest.approx([0.011 + 100 * (0.05 + 1e-4 + 10_000 * 362 * 6 / 1e12)] * 3)
    assert set(rows.loc[rows["bench"].eq("threads"), "threads"]) == {1, 2, 4, 8}


@pytest.fixture
def tuned():
    """Block sizes and points per thread, 8 points of 256 threads the slowest."""
    grid = [{"block_size": block, "points_per_thread": points} for block in (128, 256) for points in (4, 8)]
    rows = [
        samples("cuda", [np.prod(list(one.values())) / 1e4], bench="blocks", n_points=10_860, **one) for one in grid
    ]
    return pd.concat(rows)


def test_block_sizes_over_the_best(tuned):
    table = measured.relative_to_best(figures.results_of(tuned))
    assert table.loc["thesis gpu interpreter", 128] == 1 and table.loc["thesis gpu interpreter", 192] > 3
    assert table.loc["exprkit cuda fast H200", [128, 256]].tolist() == pytest.approx([1, 2])


def test_a_matrix_on_the_host_stands_for_every_step_s_and_for_the_last_one_s():
    rows = pd.concat([samples("cpu", [1.0], results="last"), samples("cuda", [2.0], results="last")])
    found = figures.results_of(rows).samples
    assert sorted(zip(found["backend"], found["results"], strict=True)) == [
        ("cpu", "every"), ("cpu", "last"), ("cuda", "last"),
    ]  # fmt: skip
    both = pd.concat([samples("cpu", [1.0], results=name) for name in ("every", "last", "loss")])
    assert len(figures.results_of(both).samples) == 3


def test_best_points_of_each_block(tuned):
    best = measured.best_points(figures.results_of(tuned).samples)
    assert best["points_per_thread"].tolist() == [4, 4] and best["block_size"].tolist() == [128, 256]


@pytest.mark.parametrize("most_warps", [64, 48])
def test_the_kernels_are_a_table(tuned, nothing, most_warps):
    results = figures.results_of(tuned.assign(most_warps=float(most_warps)))
    table = figures.kernel_table(results).set_index(["block_size", "points_per_thread"])
    assert len(table) == 4 and set(table["registers"]) == {60}
    assert table.loc[(256, 4), "occupancy"] == 4 * 256 / 32 / most_warps
    assert f"resident warps over {most_warps}." in figures.tuning(results).caption
    assert figures.kernel_table(nothing[0]).empty


@pytest.mark.slow
def test_figures_and_readme_from_the_command_line(tmp_path, capsys, without_violins):
    results, out, page = (tmp_path / name for name in ("results", "figures", "README.md"))
    records.write_samples(files.folder(results) / "cpu.parquet", samples("cpu", [1.0, 1.1]).assign(run="r"))
    assert main(["figures", "--results", str(results), "--out", str(out)]) == 0
    said = set(capsys.readouterr().out.splitlines())
    assert {str(out / name) for name in ("benchmark.svg", "benchmark.png", "README.md")} <= said
    assert "![benchmark](benchmark.png)" in (out / "README.md").read_text()
    page.write_text("before\n<!-- samples: made by `make readme` -->\nold\n<!-- end of samples -->\nafter\n")
    assert main(["readme", "--readme", str(page), "--results", str(out)]) == 0
    lines = page.read_text().splitlines()
    assert lines[2] == f"Not measured yet: {readme.STUDIES}."
    assert (lines[0], lines[-1]) == ("before", "after")


@pytest.mark.slow
def test_the_committed_figures_are_of_the_committed_results(root, without_violins):
    drawings = figures.everything(figures.read_results(root / "data" / "results"))
    named = {drawing.name for drawing in drawings}
    assert named == {path.stem for path in (root / "figures").glob("*.svg")}, "run: make figures"
    text = (root / "figures" / "README.md").read_text(encoding="utf-8")
    assert all(drawing.caption in text for drawing in drawings), "run: make figures"


def test_the_crossover_has_lines_over_the_size(drawn):
    axes = [axis for axis in drawn["crossover"].figure.axes if axis.get_title() == "1,000 steps"]
    (line,) = [line for line in axes[0].lines if str(line.get_label()).startswith("cuda")]
    assert list(line.get_xdata()) == [10**k for k in range(4, 10)]
    step = 3e10 / 1e12 + 1e-4 + 4e9 / 5e10, 3e10 / 8e9 + 8e-5
    assert line.get_ydata()[-1] == pytest.approx((0.01 + 1000 * step[1]) / (0.011 + 1000 * step[0]), rel=1e-3)
    heads = {axis.get_ylabel().rpartition("\n")[2] for axis in axes[0].figure.axes}
    assert {"times as fast as cpu, up to 16 threads", "times as fast as cpu, up to 2 threads"} <= heads


def test_growth_is_drawn_in_one_range_for_all_backends(drawn):
    growing = [axis for axis in drawn["scaling"].figure.axes if axis.get_ylabel() == "cost over that of the least"]
    assert len(growing) == 3 and len({axis.get_ylim() for axis in growing}) == 1
    lines = [line.get_ydata() for axis in growing for line in axis.lines if len(line.get_ydata())]
    assert lines and all(line[0] == pytest.approx(1) for line in lines)


def test_colours_have_bars_and_rows_headings(drawn, results):
    assert [axis.get_ylabel() for axis in drawn["tuning"].figure.axes].count("occupancy, high is bright") == 1
    left = drawn["benchmark"].figure.axes[0]
    assert "every step / last / losses" in [text.get_text() for text in left.texts]
    seconds = [line.get_xdata()[0] for line in left.lines if line.get_marker() == "o"]
    assert len(seconds) > 3 and seconds == sorted(seconds, reverse=True)


def test_every_region_has_its_number_and_colours_that_differ_in_grey():
    drawing = case_figures.regions()
    (axis,) = drawing.figure.axes
    assert len([text for text in axis.texts if text.get_text().isdigit()]) >= 30
    for hues in (case_figures.SHARED_HUES, case_figures.GLOBAL_HUES):
        grey = [np.dot(to_rgb(one), (0.3, 0.59, 0.11)) for one in hues]
        assert all(lighter - darker > 0.1 for darker, lighter in itertools.pairwise(grey))


# ── tables ──


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("headline", ["| 2: 10,000 x 362 | matrix of every step | 3.77 s | 19.6 s | 0.29 s | 1.1 s | **52.1 ms** |",
                      "| 2: 10,000 x 362 | matrix of the last step |  |  | 0.29 s | 1.1 s | **23.2 ms** | 1.13 s |"]),
        ("boundary", ["| losses only | 1,000 | 0 of 12 |  | 8 | 4 | 231 times at 10,000 x 100,000 |"]),
        ("link", ["| matrix of every step | 10,000 x 10,860 | `ptx, H200` | **9.11 ms** | 0.08 MB | 434 MB | 2 |",
                  "| matrix of every step, 16 bits | 10,000 x 10,860 | `cuda, H200` | **5.1 ms** | 0.08 MB |"]),
        ("pairs", ["| errors | 10,000 (all different) x 10,860 | 0.662 ms | **0.336 ms** | 1.11 s | 3,500 | 31 |"]),
        ("growth", ["| expressions, 10,000 points | 100 to 10,000 | 96 times, ^1.00 | 100 times, ^1.00 |"]),
        ("block sizes", ["| thesis gpu interpreter |  | **1.00** | 2.44 | 3.28 |  |  |"]),
        ("thesis steps", ["| interpreter: frontend and data once, stack of 25 | 256 | 10,000 x 10,860 | **5.95 s** |"]),
        ("launches", ["| a launch per expression | 50.4 ms | 50.1 ms |  | 59.4 ms | 50.8 ms |  |"]),
        ("busy", ["| errors | 10,000 x 362 | `cuda, H200` | 0.122 ms | 31.7 us | 26% | 41.7 us |"]),
        ("stages", ["| read |", "| 250,000 | `cpu, 2 threads` | 25 ms | 1 ms |  |  |"]),
        ("memory", ["| fitted parameters | 250,000 x 10,860 | `cuda, H200` | 1 | **0.267 s** |", "| 1 GB | 2 GB |"]),
        ("search", ["| losses only | `cuda, H200` | 8.9e+09 | **0.607 s** | 1.5e+10 |"]),
        ("answers", ["CPU's time over the GPU's, benchmarks 1, 2, 3: matrix of every step: 6.8, 5.6, 8.8;",
                     "losses: faster on the device in 20 of 20 cases, 2 times at most; of 20 that were compiled,",
                     "losses of 10,000 x 362: 26% of a step; x 10,860: 88%; x 108,600: 99% |"]),
    ],
)  # fmt: skip
def test_tables_hold_the_numbers(results, name, lines):
    text = readme.markdown(tables.TABLES[name](results), "")
    assert all(line in text for line in lines), text


def test_every_table_of_measurements_names_its_commits_and_machines(results):
    for name, make in tables.TABLES.items():
        text = readme.markdown(make(results), "").splitlines()[-1]
        assert re.fullmatch(r"Commit [\w+, ]+; NVIDIA H200, .*\.", text) or name in ("machines", "own data"), name
    assert tables.headline(results).attrs["origin"] == "Commit 0123456+, ba98765; NVIDIA H200, C, G."


def test_every_question_has_an_answer_and_a_page(results, root):
    lines = tables.answers(results)
    assert len(lines) == len(tables.ANSWERS)
    for page in re.findall(r"\((tables/\w+\.md)\)", " ".join(lines["question"])):
        assert "**The thesis.**" in (root / "data" / "results" / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("noise", [None, 0.0, 0.5])
def test_compiling_never_pays_only_where_the_device_takes_longer(root, noise):
    """Of the published results, and of made-up ones, which single slow samples must not change."""
    results = figures.read_results(root / "data" / "results")
    if noise is not None:
        made = study(FOLDER / "h200.yaml", 16, noise)
        small = made["n_points"].eq(362) & made["backend"].eq("ptx")
        results = figures.results_of(made.assign(device_s=made["device_s"].mask(small, 1.0)))
    table = tables.pairs(results)
    slower = ~table["transpiler, device"].str.startswith("**")
    assert slower.any() and not slower.all()
    for pays in ("device: pays after steps, compiled anew", "device: from cache"):
        cells = table.loc[table[pays].ne(""), pays]
        pd.testing.assert_series_equal(cells.eq("never"), slower[cells.index], check_names=False)
    assert not table[~slower].eq("never").any(axis=None)


def test_the_thesis_s_columns_of_the_headline_are_medians_of_its_samples(results, root):
    seconds = defaultdict(list)
    with open(root / "data" / "thesis_samples.csv", encoding="utf-8") as file:
        for line in csv.DictReader(file):
            seconds[line["benchmark"], line["evaluator"], line["block_size"]].append(float(line["seconds"]))
    medians = {key: statistics.median(each) for key, each in seconds.items()}
    table = tables.headline(results)
    for number in (1, 2, 3):
        row = table.iloc[number - 1]
        for head, kind in (("thesis, CPU", "cpu"), ("thesis, best GPU", "gpu")):
            least = min(each for key, each in medians.items() if key[0] == str(number) and key[1].startswith(kind))
            assert row[head] == duration(least)
    assert table.iloc[3:][["thesis, CPU", "thesis, best GPU"]].eq("").all(axis=None)  # it copies every step's matrix


def test_tables_without_results_say_what_measures_them(nothing):
    empty = {name for name, make in tables.TABLES.items() if make(nothing[0]).empty}
    assert empty == set(tables.TABLES) - {"block sizes"}  # which has the thesis's
    text = "<!-- link: made by `make readme` -->\nold\n<!-- end of link -->"
    assert "Not measured yet: `make study` measures it" in readme.markdown(tables.link(nothing[0]), readme.STUDIES)
    assert readme.MARKED.search(text)


@pytest.mark.parametrize("kinds", [KINDS[::7], KINDS[3::11], KINDS[5::5]], ids=len)
def test_tables_of_any_part_of_a_study_are_of_what_is_measured(kinds):
    rows = STUDY[[kind in kinds for kind in KINDS]]
    cells = tabulated(part_of(rows))
    assert not any(re.search(r"\b(nan|inf)\b", text) for text in cells)
    for name in {"cpu", "cuda", "ptx"} - set(rows["backend"]):
        assert not [text for text in cells if f"`{name}" in text]


def test_the_table_of_samples():
    made = samples("cpu", [1.0, 2.0, 3.0], cpu_s=3.0, host_bytes=2.5e9)
    row, other = readme.markdown(tables.samples(figures.results_of(made)), "").splitlines()[2:4]
    size = "| 2 | 10,000 (all different) x 362 |"
    assert row.startswith(f"{size} matrix of every step | `cpu`, fast, float32 | C, 2 threads | **2 s** | 1 s | 3 |")
    assert row.endswith("| 1.5 | 2.5 GB | 3.77 s | 19.6 s |")
    assert other.startswith(f"{size} matrix of the last step |") and other.endswith("| 1.5 | 2.5 GB |  |  |")


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"file": ["own"], "commit": "", "made_by": "notebooks/scaling.ipynb"}, "by this notebook"),
        ({"commit": ["", ""]}, "by a command that is not recorded"),
        ({"file": ["x", "y", "y"], "made_by": ["a", "b", ""], "day": ["2026-11-21", "", ""],
          "commit": ["", "0123456789ab", "unknown"]},
         "by `a` and `b` (commit 0123456, commit unknown, 2026-11-21)"),
    ],
)  # fmt: skip
def test_provenance_is_what_rows_tell(columns, told):
    assert measured.provenance(pd.DataFrame(columns)) == told


def test_every_number_of_the_thesis_stands_beside_ours(root):
    results = figures.read_results(root / "data" / "results")
    thesis = plots.thesis_samples(results.thesis).groupby(["panel", "evaluator"])["seconds"]
    medians = {(1, "cpu"): "113 s", (2, "cpu"): "3.77 s", (3, "cpu"): "48.3 s"}
    medians |= {(1, "gpu"): "466 s", (2, "gpu"): "21.2 s", (3, "gpu"): "30.3 s"}
    medians |= {(2, "transpiler"): "19.6 s", (3, "transpiler"): "25.4 s"}
    names = {"cpu": "cpu interpreter", "gpu": "gpu interpreter", "transpiler": "gpu transpiler"}
    shown = tables.samples(results)
    for (benchmark, who), seconds in medians.items():
        rows = thesis.get_group((benchmark, f"thesis {names[who]}"))
        assert duration(rows.median()) == seconds and len(rows) == 50
        lines = shown[shown["benchmark"].eq(str(benchmark)) & shown["copied to the host"].eq("matrix of every step")]
        assert {"`cpu`", "`cuda`"} <= set(lines["exprkit"].str.partition(",")[0])
        assert lines["thesis, CPU"].eq(medians[benchmark, "cpu"]).all()
    pages = readme.of_the_thesis()
    assert len(pages) == len(tables.ANSWERS) and all("**Here.**" in page for page in pages)


@pytest.mark.parametrize(("count", "text"), [(1.0, "1"), (75.2, "76"), (4712.3, "4,800"), (np.inf, "never")])
def test_steps_until_something_pays_are_rounded_up(count, text):
    assert tables.steps(count) == text


def test_axes_are_compared_where_all_were_measured():
    rows = pd.DataFrame({"where": ["a", "a", "a", "b", "b"], "n": [1, 10, 100, 1, 10]})
    assert tables.measured_by_all(rows, "n")["n"].tolist() == [1, 10, 1, 10]


def test_the_machines_are_a_table():
    gpu = samples("cuda", [1.0] * 7, cpu="G").assign(file="gpu", sm_mhz=[1200.0, *[1980.0] * 6])
    parts = gpu.assign(throttled=gpu["sample"] < 2), samples("cpu", [1.0, 1.0], commit="unknown").assign(file="cpu")
    table = figures.machines(figures.results_of(pd.concat(parts)))
    name, card = "0123456", "NVIDIA H200, driver 580"
    assert table.loc["gpu"].tolist()[:-1] == [name, "G", card, "numpy 2", "1200 to 1980 MHz", "2 of 7 samples"]
    assert table.loc["cpu"].tolist()[:-1] == ["unknown", "C", "", "numpy 2", "", ""]
    assert "only 2 samples; take 5 or more" in table.loc["cpu", "warnings"]
