"""The notebooks: clean in git, guarded against wrong parameters, and right when papermill runs them."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import exprkit as ek
from exprkit.backends.gpu.schedule import VECTORS
from exprkit.errors import ArgumentError
from exprkit.study import bench, measured, readme
from exprkit.study.notebook import check_parameters, defaults

pytestmark = pytest.mark.lab

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def cells_of(path, kind="code"):
    return [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == kind]


def environment():
    """Of a kernel: this checkout, and figures that are shown in the notebook."""
    kept = {name: value for name, value in os.environ.items() if name != "MPLBACKEND"}
    return kept | {"PYTHONPATH": str(ROOT), "TQDM_MININTERVAL": "5"}


def papermill(notebook, folder, *arguments):
    """Run a notebook as a user does, in a folder of its own; its standard streams and return code."""
    command = [sys.executable, "-m", "papermill", str(notebook), "out.ipynb", "--no-progress-bar", *arguments]
    return subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def kernel():
    """One for all notebooks, which imports what they need once."""
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(kernel_name="python3", env=environment())
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


@pytest.fixture
def run(kernel, tmp_path):
    """Run a notebook with parameters where papermill puts them, in an empty folder and an empty namespace."""
    import nbformat  # here, as its grammars take seconds to import
    from papermill.iorw import load_notebook_node
    from papermill.parameterize import parameterize_notebook

    def execute(source):
        messages = []
        reply = kernel.execute_interactive(source, output_hook=messages.append, allow_stdin=False, timeout=300)
        assert reply["content"]["status"] == "ok", reply["content"]["evalue"]
        return [nbformat.v4.output_from_msg(one) for one in messages if one["msg_type"] in OUTPUTS]

    def run(name, **parameters):
        notebook = load_notebook_node(str(ROOT / "notebooks" / f"{name}.ipynb"))
        cells = [cell for cell in parameterize_notebook(notebook, parameters).cells if cell.cell_type == "code"]
        execute(f"%reset -f\n%cd -q {tmp_path}")
        return shown_by([{"outputs": execute(cell.source)} for cell in cells])

    return run


OUTPUTS = "stream", "display_data", "execute_result"


def shown_by(cells):
    """What executed cells print, their Markdown, and the types of all data that they show."""
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    printed = "".join("".join(output.get("text", "")) for output in outputs)
    data = [output.get("data", {}) for output in outputs]
    markdown = "\n".join("".join(one["text/markdown"]) for one in data if "text/markdown" in one)
    return printed, markdown, Counter(kind for one in data for kind in one)


# ── as they stand in git ──


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_is_clean(path):
    metadata = json.loads(path.read_text())["metadata"]
    assert metadata["kernelspec"]["name"] == "python3"
    assert not {"papermill", "widgets"} & set(metadata)
    for cell in cells_of(path):
        assert cell["outputs"] == [] and cell["execution_count"] is None
        if "parameters" not in cell["metadata"].get("tags", []):
            code = "".join(line for line in cell["source"] if not line.startswith("%"))
            statements = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.stmt)]
            assert len(statements) <= 16, "a notebook's cells call the package; they hold no program"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_notebook_has_one_parameters_cell_and_the_guard_behind_it(path):
    cells = cells_of(path)
    tagged = [place for place, cell in enumerate(cells) if "parameters" in cell["metadata"].get("tags", [])]
    assert tagged == [0]
    for line in cells[0]["source"]:
        assert line.count(":") >= 1 and "  # " in line, f"every parameter has a type and a comment: {line}"
    assert "check_parameters(globals())" in "".join(cells[1]["source"])


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_headings_claim_nothing_that_a_run_may_not_show(path):
    headings = [line for cell in cells_of(path, "markdown") for line in cell["source"] if line.startswith("#")]
    assert headings and not [line for line in headings if re.search(CLAIMS, line)]


CLAIMS = r"\b(faster|slower|fastest|best size|makes|finishes|decides|not into|should|beats)\b"


# ── the guard ──


def namespace(**changed):
    """A notebook's globals after its parameters cell and papermill's."""
    given = {"n": 3, "scale": 1.5, "name": "a", "fast": True, "items": ["x"]}
    kinds = {"n": int, "scale": float, "name": str, "fast": bool, "items": list}
    return {"__name__": "__main__", "__annotations__": kinds, "In": [], "Out": {}, "_i": "", "os": os} | given | changed


def test_guard_gives_the_parameters():
    expected = {"n": 3, "scale": 1.5, "name": "a", "fast": True, "items": ["x"]}
    assert check_parameters(namespace()) == expected


@pytest.mark.parametrize(
    ("name", "value", "wanted"), [("n", 1e4, 10_000), ("scale", 2, 2.0), ("fast", False, False), ("items", [], [])]
)
def test_guard_converts_what_loses_nothing(name, value, wanted):
    notebook = namespace(**{name: value})
    check_parameters(notebook)
    assert notebook[name] == wanted and type(notebook[name]) is type(wanted)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"nmae": "b"}, "there is no parameter 'nmae'; did you mean 'name'?"),
        ({"zzz": 3}, "there is no parameter 'zzz'; there are n, scale, name, fast, items"),
        ({"n": 2.5}, "n must be a whole number, not 2.5 (float)"),
        ({"n": "3"}, "n must be a whole number, not '3' (str)"),
        ({"n": True}, "n must be a whole number, not True (bool)"),
        ({"scale": True}, "scale must be a number, not True (bool)"),
        ({"name": 3}, "name must be a text, not 3 (int)"),
        ({"fast": "false"}, "fast must be True or False, not 'false' (str); with papermill: -p fast False"),
        ({"items": "[a,b]"}, "items must be a list, not '[a,b]' (str); with papermill: -y '{items: [a,b]}'"),
        ({"items": None}, "items must be a list, not None (NoneType)"),
    ],
)
def test_guard_names_what_is_wrong(changed, message):
    with pytest.raises(ArgumentError) as caught:
        check_parameters(namespace(**changed))
    assert str(caught.value) == message


def test_guard_lets_a_notebook_s_own_names_pass_when_its_cell_runs_again():
    notebook = namespace()
    check_parameters(notebook)
    notebook["n_found"] = 5
    check_parameters(notebook)
    notebook["n"] = "many"
    with pytest.raises(ArgumentError, match="n must be a whole number"):
        check_parameters(notebook)


def test_guard_wants_declared_parameters():
    with pytest.raises(ArgumentError, match="no parameters found"):
        check_parameters({"__annotations__": {}})


# ── under papermill ──


@pytest.mark.slow
def test_benchmark_notebook_measures_and_writes(tmp_path):
    # from a folder elsewhere, with a whole number as papermill's "1e2" gives it: a float
    done = papermill(
        ROOT / "notebooks" / "benchmark.ipynb", tmp_path, "-p", "n_exprs", "3e2", "-p", "n_points", "100",
        "-p", "n_steps", "3", "-p", "n_samples", "5", "-y", "{backends: [cpu, numpy]}", "-p", "results_dir", "here",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    files = {path.suffix: path for path in (tmp_path / "here").iterdir()}
    assert set(files) == {".parquet", ".svg", ".png"}

    samples = pd.read_parquet(files[".parquet"])
    samples = samples[~samples["cold"]]
    assert samples.groupby("backend").size().to_dict() == {"cpu": 5, "numpy": 5}
    assert set(samples["n_exprs"]) == {300} and set(samples["n_points"]) == {100} and set(samples["n_steps"]) == {3}
    assert set(samples["precision"]) == {"fast"} and (samples["total_s"] > 0).all()

    printed, _, shown = shown_by(cells_of(tmp_path / "out.ipynb"))
    assert str(files[".parquet"]) in printed
    assert "results of 200 expressions agree with the definition" in printed
    for name in ("cpu", "numpy"):
        assert f"{name}, measured: {ek.backends()[name].detail}" in printed
    assert f"cuda, left out: {ek.backends()['cuda'].detail}" in printed
    assert measured.provenance(samples).startswith("by `notebooks/benchmark.ipynb` (")
    assert shown["image/png"] == 1  # the figure, once


@pytest.mark.slow
def test_fit_notebook_ranks_and_draws(run):
    printed, _, shown = run("fit", max_nodes=5)
    assert "trees of up to 5 nodes are" in printed and "<SearchResult: " in printed
    assert shown["image/png"] == 2 and shown["text/html"] >= 3


@pytest.mark.slow
def test_fit_notebook_leaves_out_what_is_no_number(run, tmp_path):
    (tmp_path / "my.csv").write_text("site;speed;gap;drag\n" + "".join(f"s{i};{i},5;;{2 * i},0\n" for i in range(1, 9)))
    printed, _, _ = run("fit", max_nodes=3, table="my.csv")
    assert "left out: column 'site' must hold real numbers" in printed and "column 'gap' lacks 8 of 8" in printed


@pytest.mark.slow
def test_uncertainty_notebook_reads_a_table_and_writes_a_report(run, tmp_path):
    _, _, shown = run("uncertainty", refits=50)
    assert shown["image/png"] == 1 and shown["text/html"] == 3
    x = np.linspace(0, 4, 12)
    table = pd.DataFrame({"time (s)": x, "U / V": 2 + x + 0.1 * np.cos(9 * x)})
    table.loc[3, "time (s)"] = table.loc[5, "U / V"] = np.nan
    table.to_csv(tmp_path / "my.csv", index=False)
    given = {"table": "my.csv", "formula": "p1 + p2 * `time (s)`", "missing": "drop"}
    printed, *_ = run("uncertainty", **given, results_dir="out", refits=50)
    assert "figure and report: uncertainty.html uncertainty.pdf" in printed
    assert "C(p1, p2) = -0." in (tmp_path / "out" / "uncertainty.html").read_text()


@pytest.mark.slow
def test_a_wrong_parameter_stops_papermill(tmp_path):
    done = papermill(ROOT / "notebooks" / "benchmark.ipynb", tmp_path, "-p", "n_expr", "10")
    assert done.returncode == 1
    assert "there is no parameter 'n_expr'; did you mean 'n_exprs'?" in done.stderr
    assert not (tmp_path / "results").exists()


def test_a_wrong_parameter_is_told_before_any_work(run, tmp_path):
    with pytest.raises(AssertionError, match=r"with papermill: -y '\{backends: \[cpu\]\}'"):
        run("benchmark", backends="[cpu]")
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_papermill_knows_every_parameter_s_type(tmp_path):
    command = [sys.executable, "-m", "papermill", "--help-notebook", str(ROOT / "notebooks" / "benchmark.ipynb")]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert "n_exprs: int (default 10_000)" in shown and "number of expressions" in shown
    assert "Unknown type" not in shown
    assert shown.count("(default") == len(cells_of(ROOT / "notebooks" / "benchmark.ipynb")[0]["source"])


@pytest.mark.slow
def test_comparison_notebook_draws_the_thesis_s_figures_and_concludes(run):
    """With the captions of the page of figures, which ``test_plots`` compares with the results."""
    page = (ROOT / "figures" / "README.md").read_text(encoding="utf-8")
    captions = dict(re.findall(r"!\[(\w+)\]\(\w+\.png\)\n\n(.+)", page))
    names = "interpreter", "transpiler", "steps", "block_sizes", "benchmark", "crossover"
    expected = [captions[name] for name in names if name in captions]
    _, markdown, shown = run("comparison")
    assert shown["image/png"] == len(expected) >= 5
    assert all(caption in markdown for caption in expected)
    assert all(page in markdown for page in readme.of_the_thesis())


@pytest.mark.slow
def test_cases_notebook_shows_the_tree_a_card_s_path_and_the_regions(run):
    printed, _, shown = run("cases", device="sm_75", n_exprs=100, table_points=[362])
    assert "= Z_B" in printed and "else, fewer vectors:" in printed and "lines of CUDA C" in printed
    assert shown["image/png"] == 1 and "362 points on sm_75" in printed


def test_cases_notebook_of_fits(run):
    printed, _, shown = run("cases", device="sm_86", task="fit", n_exprs=100, n_points=10_860)
    assert "time of the best shape after it" in printed and "not on the GPU: no regions" in printed
    assert "image/png" not in shown and "points on" not in printed


@pytest.mark.slow
def test_tuning_notebook_tunes_what_there_is_and_shows_what_is_recorded(run, tmp_path):
    small = {"n_exprs": 50, "n_points": 100, "n_steps": 2, "n_samples": 2, "threads": [1, 2]}
    printed, *_ = run("tuning", backend="cpu", **small)
    assert "tuned here: cpu" in printed and "no GPU was tuned here; what follows is from recorded results" in printed
    (path,) = (tmp_path / "results").glob("*.parquet")
    samples = pd.read_parquet(path)
    assert set(samples["threads"]) == {1, 2} and set(samples["bench"]) == {"blocks"}


def test_tuning_notebook_s_own_grid_is_one_that_each_gpu_backend_takes():
    from test_ptx_modules import engine

    cells = ["".join(cell["source"]) for cell in cells_of(ROOT / "notebooks" / "tuning.ipynb")]
    grids = {}
    for chosen in ("cuda", "ptx"):
        asked = {name: value for name, (_, value) in defaults(ROOT / "notebooks" / "tuning.ipynb").items()}
        made = {**asked, "chosen": chosen, "on_gpu": True, "parameters": asked}

        def run_grid(fixed, grid, progress, chosen=chosen):
            grids[chosen] = bench.Settings(**fixed, **{"options": grid["options"][0]}), grid
            return pd.DataFrame(columns=["total_s", "backend"])

        made["bench"] = SimpleNamespace(run_grid=run_grid, unsteady=lambda samples: [], medians=lambda samples: samples)
        code = next(cell for cell in cells if "run_grid" in cell).rpartition("shown =")[0]
        exec(compile(code, "tuning.ipynb", "exec"), made)
    pop, X = ek.parse(["x1 + p1"]), np.ones((40, 1), np.float32)
    for block, points in itertools.product(grids["ptx"][1]["block_size"], grids["ptx"][1]["points_per_thread"]):
        engine(pop, X, block_size=block, points_per_thread=points)
    allowed = {4 * vectors for vectors in VECTORS}
    assert set(grids["cuda"][1]["points_per_thread"]) <= allowed


def test_tuning_notebook_names_a_backend_that_is_not_there(run):
    with pytest.raises(AssertionError, match=r"there is no backend 'cpuu'; did you mean 'cpu'\?"):
        run("tuning", backend="cpuu")


@pytest.mark.slow
def test_scaling_notebook_measures_each_axis(run, tmp_path):
    sizes = {"n_exprs": [5, 10], "n_points": [10, 20], "n_vars": [1, 2], "n_params": [0], "n_tokens": [5]}
    _, markdown, shown = run(
        "scaling", backends=["cpu", "numpy"], n_samples=2, seconds=60.0, **sizes
    )  # fmt: skip
    (path,) = (tmp_path / "results").glob("*.parquet")
    sizes = pd.read_parquet(path).groupby("bench")["n_exprs"].size()
    assert sizes.to_dict() == {"map": 24, "vars": 12, "params": 6, "tokens": 6}
    assert shown["image/png"] >= 2 and "by this notebook" in markdown  # the crossover map and the axes measured here
    samples = pd.read_parquet(path)
    assert set(samples["made_by"]) == {"notebooks/scaling.ipynb"}


def test_medians_of_the_thesis_are_those_of_its_text():
    from exprkit import data

    samples = data.thesis_samples()
    found = samples[samples["block_size"].isna()].groupby("benchmark")["seconds"].median()
    assert np.allclose(found, [112.7, 3.77, 48.3], rtol=0.005)


@pytest.mark.slow
def test_search_notebook_goes_from_a_csv_to_a_figure(run, tmp_path):
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.uniform(1, 3, (80, 2)), columns=["rho", "speed"])
    table.assign(drag=0.235 * table["rho"] * table["speed"] ** 2).to_csv(tmp_path / "my.csv", index=False)
    printed, _, shown = run("search", table="my.csv", target="drag", pool_size=2000, timeout=30)
    assert "a formula is exact" in printed and "test 1.000000" in printed and shown["image/png"] == 1
    equations = pd.read_csv(tmp_path / "results" / "search.csv")
    assert equations["equation"].iloc[-1] == "0.235 * rho * sqr(speed)"


@pytest.mark.slow
def test_search_notebook_takes_tables_as_they_are(run, tmp_path):
    random = np.random.default_rng(0)
    table = pd.DataFrame(random.uniform(1, 3, (90, 2)), columns=["Flow (m³/s)", "50% $"])
    table["is rough?"] = random.random(90) < 0.5
    table["pipe"], table["note"] = "steel", np.nan
    table["Δp [Pa]"] = 2 * table["Flow (m³/s)"] ** 2 / table["50% $"] + table["is rough?"]
    table.loc[[3, 40], "50% $"], table.loc[7, "Δp [Pa]"] = np.nan, np.nan
    table.to_csv(tmp_path / "my.csv", sep=";")
    settings = {"table": "my.csv", "pool_size": 2000, "timeout": 30}
    printed, _, shown = run("search", target="Δp [Pa]", **settings)
    assert "test 1.000000" in printed and shown["image/png"] == 1
    for told in ("3 of 90 rows, which lack a value", "'pipe' must hold real numbers, not 'steel'",
                 "'Unnamed: 0', a row number",
                 "'note' lacks 90 of 90 values", "columns: Flow (m³/s), 50% $, is rough?"):  # fmt: skip
        assert told in printed
    assert "Flow" in (tmp_path / "results" / "search.tex").read_text(encoding="utf-8")
    with pytest.raises(AssertionError, match=r"did you mean 'Δp \[Pa\]'\?"):
        run("search", target="Δp [Pal]", **settings)


@pytest.mark.slow
def test_generations_notebook_breeds_on_the_cpu(run):
    printed, _, shown = run("generations", n_exprs=300, n_generations=6, n_points=50, backend="cpu")
    assert "300 expressions x 50 points: " in printed and "best of the last: " in printed
    assert shown["image/png"] == 1
