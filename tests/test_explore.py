"""The explorer without a browser: what it shows, its code, its table, its race, and its widgets' handlers."""

from __future__ import annotations

import contextlib
import html
import io
import json
import os
import re
import subprocess
import sys
import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

import exprkit as ek
from exprkit.errors import ArgumentError, BackendError, DataError, ParseError
from exprkit.explorer import curve, gpu, svg
from exprkit.explorer.aspects import ASPECTS, Points, Subject, complaint, formula, page, renamed, usable_names
from exprkit.explorer.meter import Meter
from exprkit.explorer.race import Lap, chart, race, spoken, standings
from exprkit.explorer.table import COLUMNS, ROWS, Table
from exprkit.explorer.work import Desk
from exprkit.operators import ops

TEXTS = (
    "p1 * x1 + exp(-x2)^p2", "2.5", "x2", "abs(x1)^p1 - sin(x1 * x2) / (p2 ^ x1)", "(x1 + x2) * (x1 - x2) / (x1 * p1)",
)  # fmt: skip
ROOT = Path(__file__).resolve().parent.parent
POINTS = ek.data.rough_pipe()
SECONDS = 120


def is_shown_here(name):
    """Whether a side needs nothing (a compiler, a disassembler) that this machine lacks."""
    try:
        return bool(ASPECTS[name](Subject("x1")))
    except BackendError:
        assert name in ("PTX", "SASS")
        return False


HERE = {name: aspect for name, aspect in ASPECTS.items() if is_shown_here(name)}


def printed(code):
    """What a script prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "as code", "exec"), {})
    return out.getvalue()[:-1]


# ── every side of an expression ──


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("options", [{}, {"precision": "fast", "dtype": "float64"}], ids=["usual", "fast float64"])
def test_the_code_of_every_side_prints_what_is_shown(text, options):
    subject = Subject(text, **options)
    for name, aspect in {**HERE, "formula": formula}.items():
        shown = aspect(subject)
        assert printed(shown.code) == shown.content, name


def test_code_of_a_table_names_its_variables(tmp_path):
    path = tmp_path / "pipes.csv"
    pd.DataFrame({"width": [1.0, 2.0], "speed": [2.0, 5.0], "loss": [3.0, 4.0]}).to_csv(path, index=False)
    points = Points(ek.data.from_table(path), f"points = ek.data.from_table({str(path)!r})", named=True)
    for aspect in HERE.values():
        shown = aspect(Subject("speed * p1 + width", points))
        assert printed(shown.code) == shown.content


def test_sides_of_an_expression_that_is_too_long_to_draw_are_text():
    subject = Subject(" + ".join(["x1 * p1"] * 300))
    assert formula(subject).form == "text" and ASPECTS["Tree"](subject).form == "text"
    with pytest.raises(ValueError, match="1,199 tokens"):
        svg.tree(subject.expression)


def test_a_long_text_is_cut_on_the_page_and_whole_in_the_code():
    shown = ASPECTS["Postfix"](Subject(" + ".join(["x1 * p1"] * 5000)))
    assert len(page(shown)) < 120_000 < len(shown.content) and "more characters" in page(shown)


def test_derivatives_are_those_of_the_population():
    shown = ASPECTS["Derivatives"](Subject("p1 * x1 ^ 2 + gamma(p2)"))
    lines = dict(line.split(": ", 1) for line in shown.content.splitlines())
    assert list(lines) == ["p1", "p2", "x1"]
    assert lines["p1"] == ek.parse("x1 ^ 2")[0].latex()
    assert "no derivative" in lines["p2"]


def test_an_expression_that_needs_more_variables_is_refused():
    with pytest.raises(DataError, match="uses 3 variables, the data has r_k, log_Re"):
        Subject("x3")


@pytest.mark.parametrize("text", ["<img src=x onerror=alert(1)>", "</pre><script>alert(1)</script>"])
def test_no_text_becomes_html(text):
    with pytest.raises(ParseError) as caught:
        Subject(text)
    shown = complaint(caught.value)
    assert "<img" not in shown and "<script" not in shown and html.escape(text)[:8] in shown
    points = ek.data.Dataset(POINTS.X, POINTS.y, ("<img src=x>", "b"), "x")
    drawn = curve.fitted(points, POINTS.y, 0)
    assert "<img" not in drawn and "&lt;img" in drawn
    ElementTree.fromstring(drawn)


def test_variables_keep_their_places_under_other_names():
    points = Points(ek.data.Dataset(np.ones((2, 1)), np.ones(2), ("width",), "one"), named=True)
    assert renamed(ek.parse("x1 * p1"), points).texts() == ["width * p1"]
    with pytest.raises(DataError, match="2 variables are used, the data has width"):
        renamed(ek.parse("x2"), points)


# ── what a GPU reads ──


def computed(lines, values):
    """What the words' meanings say, read by exprkit itself and computed: the last accumulator."""
    for line in lines:
        for statement in line.split(maxsplit=4)[4].removesuffix(", the result").split("; "):
            name, text = statement.split(" = ", 1)
            row = ek.parse(text, variables=list(values))
            values[name] = ek.Evaluator(row, [list(values.values())], "numpy", dtype="float64").evaluate()[0, 0]
    return values["acc"]


@given(st.sampled_from(ops.OPERATORS), st.sampled_from(ops.OPERATORS), st.integers(0, 2))
def test_words_mean_what_the_expression_does(outer, inner, place):
    leaves = ["(x1 + x2)", "x2", "2.5", "(x1 - 0.5 * x2)"]
    text = f"{inner.name}({', '.join(leaves[place : place + inner.arity])})"
    text = f"{outer.name}({', '.join([text, *leaves[:2]][: outer.arity])})"
    pop, point = ek.parse(text), [[0.7, 1.9]]
    program, made = gpu.program(pop)
    lines = gpu.words(pop).splitlines()[1:]
    assert len(lines) == len(made.words) and [line.endswith(", the result") for line in lines][-1]
    try:
        columns = [ek.Evaluator(ek.parse(what, variables=2), point, "numpy", dtype="float64").evaluate()[0, 0]
                   for what in program.columns()]  # fmt: skip
        values = {"acc": np.nan} | {f"t{slot}": np.nan for slot in range(4)}
        found = computed(lines, values | {f"c{place}": value for place, value in enumerate(columns)})
    except ParseError:
        return  # an operator that only lowered programs have
    expected = ek.Evaluator(pop, point, "numpy", dtype="float64").evaluate()[0, 0]
    assert found == pytest.approx(expected, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("precision", ["ieee", "fast"])
def test_every_case_that_a_word_names_has_its_cuda(op, precision):
    pop = ek.parse(f"{op.name}(x1 + x2, x1 * x2)" if op.arity == 2 else f"{op.name}(x1 + x2)")
    code = gpu.cuda(pop, precision=precision)
    for line in gpu.words(pop, precision=precision).splitlines()[1:]:
        assert re.search(rf"case {line.split()[3]}:", code)


def test_words_name_parameters_constants_columns_and_slots():
    shown = gpu.words(ek.parse("(x1 + p1) * (x2 - 2.5) - 3"))
    assert "p1" in shown and "2.5" in shown and "t0 = acc" in shown and "c1" in shown


# ── drawings ──


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), max_size=30), st.booleans())
def test_charts_are_well_formed_for_any_numbers(values, logarithmic):
    drawing = svg.Chart(svg.Axis(values, "a < b"), svg.Axis(values, "&", logarithmic=logarithmic))
    for draw in (drawing.dots, drawing.line):
        draw(values, values, svg.BLUE)
    drawing.band(values, values, values, svg.BLUE)
    drawing.whiskers(values, values, values, svg.BLUE)
    drawing.marks(values, values, ["<" for _ in values], svg.RED)
    text = drawing.svg()
    ElementTree.fromstring(text)
    assert not re.search(r'="[^"]*(nan|inf)', text)


def test_ticks_are_round_and_inside():
    axis = svg.Axis([0.3, 97.0], "x")
    assert axis.ticks() == [0, 20, 40, 60, 80, 100]
    assert svg.Axis([1e-3, 1e5], "x", logarithmic=True, margin=0).ticks() == pytest.approx([1e-3, 1e-1, 1e1, 1e3, 1e5])


def test_tree_has_a_node_for_every_token_and_none_over_another():
    expression = ek.parse("exp(-x1) * (x2 + p1) - logistic(logistic(x1)) / 123456.789")[0]
    drawn = ElementTree.fromstring(svg.tree(expression))
    boxes = drawn.findall("{*}rect")
    labels = [label.text for label in drawn.findall("{*}text")]
    assert len(boxes) == len(labels) == expression.n_tokens and "123456.789" in labels
    places = [(float(box.get("y")), float(box.get("x")), float(box.get("width"))) for box in boxes]
    for (y, x, wide), (next_y, next_x, _) in zip(sorted(places), sorted(places)[1:], strict=False):
        assert y != next_y or x + wide <= next_x


def test_a_curve_out_of_sight_says_where_it_is():
    assert "out of sight: 7 to 7" in curve.fitted(POINTS, np.full(len(POINTS), 7.0), 1)
    assert "not finite" in curve.fitted(POINTS, np.full(len(POINTS), np.nan), 1)


def test_lines_are_drawn_where_the_other_variables_have_few_values():
    assert curve.widest(POINTS) == 1
    few, many = curve.fitted(POINTS, POINTS.y, 1), curve.fitted(POINTS, POINTS.y, 0)
    assert few.count('stroke-width="2.0"') == 6 and many.count('stroke-width="2.0"') == 0


def test_scores_are_the_losses():
    ev = ek.Evaluator(ek.parse("p1 + p2 / x2"), POINTS.X, dtype="float64")
    found = curve.scores(ev, [[0.1, 2.0]], POINTS.y)
    residuals = 0.1 + 2 / POINTS.X[:, 1] - POINTS.y
    assert found["sse"] == pytest.approx(np.sum(residuals**2), rel=1e-12)
    assert found["R2"] == pytest.approx(1 - np.sum(residuals**2) / np.sum((POINTS.y - POINTS.y.mean()) ** 2))
    assert found["not finite"] == 0


@pytest.mark.parametrize("text", ["p1 + p2 * x1", "p1 * exp(p2 * x1)"])
def test_the_band_holds_the_truth_about_as_often_as_it_says(text):
    """Of many noisy samples of a curve, the band of the fit covers the curve at a point in about 95 %."""
    pop, x = ek.parse(text), np.linspace(0, 1, 40)[:, None]
    ev = ek.Evaluator(pop, x, dtype="float64")
    truth = ev.evaluate([[2.0, -1.0]])[0]
    random, covered = np.random.default_rng(0), []
    for _ in range(200):
        found = ek.fit(pop, x, truth + 0.05 * random.standard_normal(40), init=[[2.0, -1.0]], dtype="float64")
        half = curve.band(ev, found.params, found.covariance[0])
        covered.append(np.abs(ev.evaluate(found.params)[0] - truth) <= half)
    assert 0.91 < np.mean(covered) < 0.98


# ── tables of data ──


def test_a_table_s_columns_become_variables_and_target(tmp_path):
    frame = pd.DataFrame({"a b": [1, 2], "y": [3, 4], "c": [5.5, 6.5]})
    found = ek.data.from_table(frame, "y")
    assert found.variables == ("a b", "c") and found.y.tolist() == [3, 4] and found.X.tolist() == [[1, 5.5], [2, 6.5]]
    assert not usable_names(found.variables) and usable_names(("a", "c")) and not usable_names(("exp", "c"))
    frame.to_csv(tmp_path / "semicolons.csv", sep=";", index=False)
    assert ek.data.from_table(tmp_path / "semicolons.csv").y.tolist() == [5.5, 6.5]


@pytest.mark.parametrize(
    ("table", "target", "message"),
    [
        ({"a": [1], "y": ["one"]}, None, "column 'y' holds something else than numbers"),
        ({"a": [1, None], "y": [1, 2]}, None, "column 'a' lacks 1 of 2 values"),
        ({"a": [1], "y": [1]}, "z", "'z' of a, y"),
        ({"y": [1]}, None, "a target and others"),
        ([1, 2], None, "not list"),
        ("/nowhere/at/all.csv", None, "could not be read: No such file"),
    ],
)
def test_a_table_that_is_none_says_why(table, target, message):
    with pytest.raises(DataError, match=message):
        ek.data.from_table(table, target)


# ── populations ──


@pytest.fixture
def table():
    return Table(ek.parse([*ek.data.esr_sample(), "x1 +", "p1 + p2 / x2"], errors="mask"), POINTS)


@pytest.mark.parametrize("by", COLUMNS)
def test_every_column_sorts_both_ways_with_nan_last(table, by):
    up, down = table.order(by), table.order(by, descending=True)
    assert sorted(up) == sorted(down) == list(range(len(table)))
    key = {"number": np.arange(len(table)), "tokens": table.pop.n_tokens, "structure": table.structure,
           "parameters": table.pop.n_params, "loss": table.loss}[by].astype(float)  # fmt: skip
    for order, sign in ((up, 1), (down, -1)):
        finite = key[order][~np.isnan(key[order])]
        assert (sign * finite[1:] >= sign * finite[:-1]).all() and np.isnan(key[order][len(finite) :]).all()


def test_pages_hold_every_row_once(table):
    order = table.order("loss")
    rows = [row for number in range(table.n_pages()) for row in table.page(order, number)]
    assert [row.number for row in rows] == order.tolist() and len(table.page(order, 0)) == ROWS
    bad = next(row for row in rows if not row.tokens)
    assert bad.text.startswith("(not valid) expected a number") and np.isnan(bad.loss)


def test_nothing_beats_the_front(table):
    front = table.front()
    tokens, loss = table.pop.n_tokens, table.loss
    clearly = 2e-6 * np.sqrt(np.mean(table.points.y.astype(float) ** 2))
    for number in range(len(table)):
        better = (tokens <= tokens[number]) & (loss < loss[number] - clearly)
        if number in front:
            assert not better.any()
        elif np.isfinite(loss[number]):
            assert ((tokens <= tokens[number]) & (loss <= loss[number] + clearly))[front].any()
    assert (np.diff(tokens[front]) > 0).all() and (np.diff(loss[front]) < 0).all()
    titles = [mark.text for mark in ElementTree.fromstring(table.front_chart(3)).iter() if mark.tag.endswith("title")]
    assert len(titles) == len(front) + 1 and titles[-1].startswith("3: ")


def test_a_front_does_not_tell_rounding_apart():
    table = Table(ek.parse(["x1", "x1 * 1", "x1 * 1 * 1", "x1 * 1 * 1 * 1"]), POINTS)
    table.loss = table.loss[0] * np.array([1, 1 - 1e-7, 1 - 1e-8, 0.5])
    assert table.front().tolist() == [0, 3]


def test_files_hold_every_expression_and_every_bit(table, tmp_path):
    pop = ek.parse(["x1 + 0.1", "x1 +", "p1 * x2"], errors="mask")
    table = Table(pop, POINTS)
    frame = pd.read_csv(table.to_csv(tmp_path / "a.csv"), keep_default_na=False)
    assert frame["expression"].tolist() == pop.texts() and frame["tokens"].tolist() == [3, 0, 3]
    lines = table.to_sympy(tmp_path / "a.txt").read_text().split("\n")
    assert len(lines) == 4 and not lines[1]
    for line, expression in ((lines[0], pop[0]), (lines[2], pop[2])):
        assert sympy.srepr(expression.sympy()) == line
        assert sorted(ek.parse(sympy.sympify(line)).texts()[0]) == sorted(str(expression))
    stop = threading.Event()
    stop.set()
    assert table.to_sympy(tmp_path / "b.txt", stop) is None and not (tmp_path / "b.txt").exists()
    with pytest.raises(DataError, match="there is no folder"):
        table.to_csv(tmp_path / "none" / "a.csv")


def test_fits_lower_the_losses_and_reach_the_files(table, tmp_path):
    before, seen = table.loss.copy(), []
    table.fit(progress=lambda done, total: seen.append((done, total)))
    assert seen == [(len(table), len(table))]
    has_params = table.pop.n_params > 0
    assert (table.loss[has_params] <= before[has_params] * (1 + 1e-6))[np.isfinite(before[has_params])].all()
    row = table.rows(np.array([len(table) - 1]))[0]
    found = ek.fit(table.pop[[len(table) - 1]], POINTS.X, POINTS.y)
    assert row.params == pytest.approx(found.params[0]) and row.loss == pytest.approx(np.sqrt(found.loss[0] / 362))
    frame = pd.read_csv(table.to_csv(tmp_path / "fitted.csv"))
    assert frame["p2"].iloc[-1] == pytest.approx(row.params[1]) and np.isnan(frame["p1"].iloc[-2])


def test_a_stopped_fit_keeps_what_was_done(table, monkeypatch):
    monkeypatch.setattr("exprkit.explorer.table.AT_ONCE", 50)
    stop = threading.Event()
    table.fit(stop, lambda done, total: stop.set() if done == 100 else None)
    assert table.fitted.sum() == 100 and table.rows(np.array([150]))[0].params is None


def test_an_empty_population_is_an_empty_table():
    table = Table(ek.parse([]), POINTS)
    assert table.page(table.order("loss"), 0) == [] and table.n_pages() == 1
    ElementTree.fromstring(table.front_chart())


# ── races ──


def test_a_race_can_be_stopped():
    stop = threading.Event()
    laps = race(ek.parse("p1 * x1"), POINTS.X, ["cpu", "numpy"], 1000, stop=stop)
    assert next(laps).backend == "cpu"
    stop.set()
    assert list(laps) == []


def test_a_race_needs_something_to_race():
    with pytest.raises(ArgumentError, match="1 or more"):
        list(race(ek.parse("x1"), POINTS.X, []))
    with pytest.raises(BackendError, match="there is no backend 'cqu'"):
        list(race(ek.parse("x1"), POINTS.X, ["cpu", "cqu"]))


def test_standings_add_the_laps_and_bars_compare_their_means():
    laps = [Lap("a", 1, 1.0, 0.5), Lap("a", 2, 2.0, 0.5), Lap("b", 1, 0.75, 0.1)]
    assert [(now.backend, now.steps, now.seconds) for now in standings(laps)] == [("a", 2, 3.0), ("b", 1, 0.75)]
    widths = [float(bar.get("width")) for bar in ElementTree.fromstring(chart(laps, 3e9)).findall("{*}rect")]
    assert widths[1] == pytest.approx(widths[0] / 2) and "1.5 s a step, 2e+09 nodes/s" in chart(laps, 3e9)
    assert [spoken(seconds) for seconds in (2.5, 0.0125, 3.2e-5)] == ["2.5 s", "12.5 ms", "32 us"]


# ── work beside the messages ──


def test_of_waiting_jobs_of_a_kind_only_the_newest_is_done():
    desk, done, begun, go_on = Desk(), [], threading.Event(), threading.Event()

    def first(stop):
        begun.set()
        go_on.wait(SECONDS)

    desk.put("a", first)
    assert begun.wait(SECONDS)
    for number in range(5):
        desk.put("a", lambda stop, number=number: done.append(number))
    desk.put("b", lambda stop: done.append("b"))
    go_on.set()
    assert desk.wait(SECONDS) and sorted(map(str, done)) == ["4", "b"]


def test_a_long_job_ends_when_it_is_told_to_and_the_next_one_runs():
    desk, done = Desk(), []
    begun = threading.Event()

    def long(stop):
        begun.set()
        done.append(stop.wait(SECONDS))

    desk.put("long", long)
    assert begun.wait(SECONDS)
    desk.put("other", lambda stop: done.append("never"))
    desk.stop()
    assert desk.wait(SECONDS) and done == [True]
    desk.put("next", lambda stop: done.append(stop.is_set()))
    assert desk.wait(SECONDS) and done == [True, False]


def test_a_failed_job_is_reported_and_the_desk_goes_on():
    failed, done = [], []
    desk = Desk(lambda kind, error: failed.append((kind, str(error))))
    desk.put("bad", lambda stop: [][1])
    desk.put("good", lambda stop: done.append(1), delay=0.01)
    assert desk.wait(SECONDS) and failed == [("bad", "list index out of range")] and done == [1]


def test_a_meter_runs_one_job_at_a_time():
    meter, go_on, begun = Meter(), threading.Event(), threading.Event()

    def first(stop, progress):
        progress(1, 4)
        begun.set()
        go_on.wait(SECONDS)

    meter.run("first", first)
    assert begun.wait(SECONDS) and meter.bar.value == 250 and not meter.button.disabled
    meter.run("second", lambda stop, progress: None)
    assert meter.text.value == "first is still running: stop it first"
    meter.button.click()
    go_on.set()
    assert meter.desk.wait(SECONDS) and meter.text.value.startswith("first: stopped after")
    meter.run("bad", lambda stop, progress: {}["x"])
    assert meter.desk.wait(SECONDS) and "KeyError" in meter.text.value and meter.button.disabled


# ── the notebook ──


def test_the_notebook_runs_under_papermill_without_a_click(tmp_path):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "papermill", str(ROOT / "notebooks" / "explore.ipynb"), "out.ipynb",
               "--no-progress-bar", "-p", "expression", "p1 / x2"]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    notebook = json.loads((tmp_path / "out.ipynb").read_text())
    states = notebook["metadata"]["widgets"]["application/vnd.jupyter.widget-state+json"]["state"].values()
    assert any("<svg" in str(state["state"].get("value", "")) for state in states), "the curve is drawn"


def test_without_ipywidgets_it_says_what_to_install():
    code = "import sys; sys.modules['ipywidgets'] = None\nimport exprkit as ek\nek.explore('x1')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stderr.splitlines()[-1].endswith("ipywidgets is not installed: pip install 'exprkit[notebooks]'")


# ── the widget ──


@pytest.fixture
def explorer():
    return ek.explore("p1 + p2 / x2")


def settled(explorer):
    assert all(desk.wait(SECONDS) for desk in (explorer.desk, explorer.meter.desk, explorer.desk))
    return explorer


def open_tab(explorer, name):
    explorer.tabs.selected_index = explorer.tabs.titles.index(name)
    settled(explorer)


def test_it_shows_something_without_a_click(explorer):
    assert "<svg" in explorer.tuner.picture.value and r"\frac{p_{2}}{x_{2}}" in explorer.formula.value
    assert "rmse" in explorer.tuner.scores.value and explorer.expression == ek.parse("p1 + p2 / x2")[0]


def test_a_wrong_text_shows_its_caret_and_leaves_the_expression(explorer):
    explorer.text.value = "p1 + sine(x2)"
    lines = html.unescape(settled(explorer).error.value).splitlines()
    assert "did you mean 'sin'?" in lines[0] and lines[2].index("^^^^") == lines[1].index("sine")
    assert str(explorer.expression) == "p1 + p2 / x2"
    explorer.text.value = "p1 + sin(x2)"
    assert settled(explorer).error.value == "" and str(explorer.expression) == "p1 + sin(x2)"


def test_the_first_expression_must_be_right():
    with pytest.raises(ParseError):
        ek.explore("p1 +")
    with pytest.raises(ArgumentError, match="no table was given"):
        ek.explore("x1", target="y")
    with pytest.raises(BackendError, match="there is no backend 'gpu'"):
        ek.explore("x1", backend="gpu")
    with pytest.raises(DataError, match="dtype must be one of"):
        ek.explore("x1", dtype="int8")
    with pytest.raises(ArgumentError, match="a population goes by population="):
        ek.explore(ek.parse(["x1", "x2"]))


def test_a_slider_moves_the_curve(explorer):
    before = explorer.tuner.picture.value, explorer.tuner.scores.value
    explorer.tuner.sliders.children[1].value = 0.25
    settled(explorer)
    assert explorer.params.tolist() == [1.0, 0.25]
    assert explorer.tuner.picture.value != before[0] and explorer.tuner.scores.value != before[1]
    assert "params = [[1.0, 0.25]]" in explorer.tuner.code.value


def test_a_fit_moves_the_sliders_and_draws_its_band(explorer):
    tuner = explorer.tuner
    tuner.fit_button.click()
    settled(explorer)
    found = ek.fit(ek.parse("p1 + p2 / x2"), POINTS.X, POINTS.y, init=[[1.0, 1.0]])
    assert explorer.params == pytest.approx(found.params[0]) and explorer.result.converged[0]
    assert [slider.value for slider in tuner.sliders.children] == pytest.approx(explorer.params)
    assert 'opacity="0.25"' in tuner.picture.value and "±" in tuner.scores.value
    code = html.unescape(tuner.code.value)
    assert "ek.fit(pop, points.X, points.y, init=[[1.0, 1.0]]).to_pandas()" in code
    tuner.sliders.children[0].value += 0.125
    settled(explorer)
    assert explorer.result is None and 'opacity="0.25"' not in tuner.picture.value and "±" not in tuner.scores.value


def test_a_browser_s_rounding_of_a_slider_changes_nothing(explorer):
    explorer.tuner.fit_button.click()
    settled(explorer)
    before = explorer.params
    for slider in explorer.tuner.sliders.children:
        slider.value = round(slider.value, 2)
    settled(explorer)
    assert explorer.params.tolist() == before.tolist() and explorer.result is not None
    explorer.tuner.sliders.children[0].value += 0.01
    settled(explorer)
    assert explorer.params[0] == round(before[0], 2) + 0.01 and explorer.result is None


def test_a_fit_takes_the_chosen_loss_and_restarts(explorer):
    explorer.tuner.loss.value, explorer.tuner.restarts.value = "mae", 3
    explorer.tuner.fit_button.click()
    settled(explorer)
    assert explorer.result.kind == "mae" and ", loss='mae', restarts=3" in html.unescape(explorer.tuner.code.value)
    assert "±" not in explorer.tuner.scores.value and "nan" not in explorer.tuner.scores.value


def test_a_slider_s_ends_move_with_a_fit_beyond_them():
    points = ek.data.Dataset(POINTS.X, 1e4 * POINTS.y, POINTS.variables, "large")
    explorer = ek.explore("p1 / x2", points)
    explorer.tuner.fit_button.click()
    settled(explorer)
    slider = explorer.tuner.sliders.children[0]
    assert slider.min < 5000 < slider.value == explorer.params[0] < slider.max


def test_many_parameters_have_sliders_for_the_first_ones():
    explorer = ek.explore(" + ".join(f"p{i} * x1 ^ {i}" for i in range(1, 16)))
    assert len(explorer.tuner.sliders.children) == 12 and explorer.tuner.more.value.startswith("3 more")
    explorer.text.value = "p1"
    settled(explorer)
    assert len(explorer.tuner.sliders.children) == 1 and explorer.tuner.more.value == ""


def test_what_was_set_stays_while_the_text_grows(explorer):
    explorer.tuner.sliders.children[0].value = 0.5
    explorer.text.value = "p1 + p2 / x2 + p3"
    settled(explorer)
    assert explorer.params.tolist() == [0.5, 1.0, 1.0]
    assert [slider.value for slider in explorer.tuner.sliders.children] == [0.5, 1.0, 1.0]
    explorer.text.value = "x1"
    settled(explorer)
    assert explorer.tuner.sliders.children == () and explorer.tuner.fit_button.disabled


def test_sliders_move_while_long_work_runs_and_it_can_be_stopped(explorer):
    begun, before = threading.Event(), explorer.tuner.picture.value

    def long(stop, progress):
        begun.set()
        assert stop.wait(SECONDS)

    explorer.meter.run("long", long)
    assert begun.wait(SECONDS)
    explorer.tuner.sliders.children[0].value = 0.25
    assert explorer.desk.wait(SECONDS) and explorer.tuner.picture.value != before and explorer.meter.desk.busy
    explorer.meter.button.click()
    assert "long: stopped after" in settled(explorer).meter.text.value


def test_every_side_is_drawn_when_it_is_looked_at(explorer):
    for name in ASPECTS:
        assert explorer.sides[name].value == ""
        open_tab(explorer, name)
        if name in HERE:
            assert explorer.sides[name].value.startswith(page(ASPECTS[name](Subject("p1 + p2 / x2"))))
        else:
            assert re.search("pip install|toolkit", explorer.sides[name].value), "what mends it"
    explorer.text.value = "x1"
    settled(explorer)
    open_tab(explorer, "Postfix")
    assert "x1" in explorer.sides["Postfix"].value and "p2" not in explorer.sides["Postfix"].value


def test_options_reach_the_sides(explorer):
    explorer.precision.value = "fast"
    open_tab(explorer, "GPU words")
    assert "precision=&#x27;fast&#x27;" in explorer.sides["GPU words"].value


def test_the_population_sorts_turns_and_opens(explorer):
    open_tab(explorer, "Population")
    many = explorer.many
    assert len(explorer.population) == 247
    first = many.rows.children[0].description
    many.turn(1)
    assert many.where.value == "page 2 of 21" and many.rows.children[0].description != first
    many.turn(-5)
    many.sort("tokens")
    assert many.heads[COLUMNS.index("tokens")].description == "tokens ▲"
    many.rows.children[3].click()
    settled(explorer)
    chosen = many.rows.children[3].description.split(": ", 1)[1]
    assert str(explorer.expression) == chosen == explorer.text.value
    assert many.rows.children[3].button_style == "info"


def test_all_are_fitted_and_a_fitted_row_opens_with_its_parameters(explorer):
    open_tab(explorer, "Population")
    many = explorer.many
    assert "parameters are 1 until fitted" in many.summary.value
    many.fit_button.click()
    assert settled(explorer).meter.text.value.startswith("fitting: done") and "until fitted" not in many.summary.value
    best = many.table.page(many.table.order("loss"), 0)[0]
    many.rows.children[0].click()
    settled(explorer)
    assert best.params and explorer.params.tolist() == list(best.params)
    assert f"{best.loss:.3g}" in explorer.tuner.scores.value


def test_expressions_can_be_pasted_and_files_written(explorer, tmp_path):
    open_tab(explorer, "Population")
    many = explorer.many
    many.written.value = "x1\n\nx1 +\np1 * x2\n"
    assert many.source.value == "written below"
    many.read_button.click()
    settled(explorer)
    assert explorer.population.valid.tolist() == [True, False, True]
    assert many.rows.children[3].layout.display == "none"
    many.file.value = str(tmp_path / "mine.csv")
    many.csv_button.click()
    settled(explorer)
    assert many.written_to.value == str(tmp_path / "mine.csv") and (tmp_path / "mine.csv").is_file()
    many.sympy_button.click()
    settled(explorer)
    assert (tmp_path / "mine.sympy.txt").read_text().startswith("Symbol('x1')\n\n")


@pytest.mark.parametrize("source", ["all up to a size", "random ones"])
def test_made_populations(explorer, source):
    open_tab(explorer, "Population")
    explorer.many.source.value, explorer.many.size.value = source, 50
    explorer.many.read_button.click()
    settled(explorer)
    assert len(explorer.population) == 50 and explorer.population.n_vars <= 2


def test_a_file_that_is_not_there_says_so(explorer):
    open_tab(explorer, "Population")
    explorer.many.source.value, explorer.many.path.value = "a file", "/nowhere.txt"
    explorer.many.read_button.click()
    assert "there is no file" in settled(explorer).meter.text.value


def test_a_race_runs_and_explains_what_auto_takes(explorer):
    contest = explorer.contest
    contest.n_steps.value, contest.n_exprs.value = 3, 10
    contest.button.click()
    settled(explorer)
    assert [lap.step for lap in contest.laps] == [1, 2, 3] * len(contest.backends.value)
    assert "auto takes cpu" in contest.why.value and "a step" in contest.picture.value
    assert explorer.meter.text.value.startswith("race: done") and explorer.meter.bar.value == 1000
    code = html.unescape(re.search(r"<pre[^>]*>(.*)</pre>", contest.code.value, re.DOTALL)[1])
    assert printed(code).count("Lap(") == len(contest.laps)


def test_a_table_of_one_s_own(tmp_path):
    frame = pd.DataFrame({"width": [1.0, 2.0, 3.0], "speed": [2.0, 5.0, 1.0], "drag": [3.0, 4.0, 2.0]})
    explorer = ek.explore("p1 * speed + width", frame, population=["speed", "p1 / width"])
    assert explorer.params.tolist() == [1.0]
    open_tab(explorer, "Population")
    assert explorer.population.texts() == ["speed", "p1 / width"]
    frame.to_csv(tmp_path / "pipes.csv", index=False)
    explorer.data.value = "a CSV file"
    explorer.path.value = str(tmp_path / "pipes.csv")
    explorer.target.value = "width"
    settled(explorer)
    assert explorer.text.value == "p1 * drag + speed" and not explorer.error.value
    explorer.examples.value = "abs(p1) * x2"
    assert settled(explorer).text.value == "abs(p1) * drag" and not explorer.error.value
    explorer.text.value = "p1 * drag + speed"
    settled(explorer)
    explorer.target.value = "height"
    assert "height" in settled(explorer).error.value
    explorer.data.value = "rough pipe (synthetic)"
    assert settled(explorer).text.value == "p1 * x2 + x1"
