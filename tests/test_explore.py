"""The explorer without a browser: what it shows, its code, its table, its race, and its widgets' handlers."""

from __future__ import annotations

import contextlib
import datetime
import functools
import html
import io
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sympy
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from PIL import Image

import exprkit as ek
from exprkit.errors import ArgumentError, BackendError, DataError, ParseError
from exprkit.explorer import drawings, fit_panel
from exprkit.explorer.inspectors import INSPECTORS, Subject, formula
from exprkit.explorer.jobs import JobQueue, ProgressBar, Stopped
from exprkit.explorer.pages import RED, STALE, error_page, picture_page
from exprkit.explorer.population_panel import PopulationPanel
from exprkit.explorer.race import RATIO, RacePanel, standings
from exprkit.explorer.search_panel import SearchPanel
from exprkit.explorer.sources import Points, generated, points_of, renamed, uploaded
from exprkit.explorer.table import COLUMNS, Table
from exprkit.operators import ops
from exprkit.runtime import jit
from exprkit.text.listing import nodes

pytestmark = pytest.mark.lab

TEXTS = (
    "p1 * x1 + exp(-x2)^p2", "2.5", "x2", "abs(x1)^p1 - sin(x1 * x2) / (p2 ^ x1)", "(x1 + x2) * (x1 - x2) / (x1 * p1)",
)  # fmt: skip
ROOT = Path(__file__).resolve().parent.parent
POINTS = ek.data.rough_pipe()
SECONDS = 120


@functools.cache
def shown_here():
    """The sides that need nothing (a compiler, a disassembler) that this machine lacks."""
    sides = dict(INSPECTORS)
    for name in ("PTX", "SASS"):
        try:
            INSPECTORS[name](Subject("x1"))
        except BackendError:
            del sides[name]
    return sides


def printed(code):
    """What a script prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, "as code", "exec"), {})
    return out.getvalue()[:-1]


# ── every side of an expression ──


@pytest.mark.slow
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("options", [{}, {"precision": "fast", "dtype": "float64"}], ids=["usual", "fast float64"])
def test_the_code_of_every_side_prints_what_is_shown(text, options):
    subject = Subject(text, **options)
    for name, inspector in {**shown_here(), "formula": formula}.items():
        shown = inspector(subject)
        assert printed(shown.code) == shown.content, name


def test_code_defines_operators_of_one_s_own():
    ek.operator("half_of(a) = a / 2")
    assert "ek.operator('half_of(a) = a / 2')\n" in Subject("p1 * half_of(x1)").setup
    shown = formula(Subject("p1 * half_of(x1)"))
    assert printed(shown.code) == shown.content
    panel = PopulationPanel(lambda text, params: None)
    panel.use(ek.parse(["half_of(x1)"]), Points(ek.data.rough_pipe()))
    assert "ek.operator('half_of(a) = a / 2')\n" in html.unescape(panel.code.value)


@pytest.mark.slow
def test_code_of_a_table_names_its_variables(tmp_path):
    path = tmp_path / "pipes.csv"
    pd.DataFrame({"width": [1.0, 2.0], "speed": [2.0, 5.0], "loss": [3.0, 4.0]}).to_csv(path, index=False)
    points = Points(ek.data.from_table(path), f"points = ek.data.from_table({str(path)!r})", named=True)
    for inspector in shown_here().values():
        shown = inspector(Subject("speed * p1 + width", points))
        assert printed(shown.code) == shown.content


def test_sides_of_an_expression_that_is_too_long_to_draw_are_text():
    subject = Subject(" + ".join(["x1 * p1"] * 300))
    assert all(shown(subject).page.startswith("<pre") for shown in (formula, INSPECTORS["Tree"]))
    with pytest.raises(ValueError, match="1,199 tokens"):
        drawings.tree(subject.expression)


def test_a_long_text_is_cut_on_the_page_and_whole_in_the_code():
    shown = INSPECTORS["Postfix"](Subject(" + ".join(["x1 * p1"] * 5000)))
    assert len(shown.page) < 120_000 < len(shown.content) and "more characters" in shown.page


def test_derivatives_are_those_of_the_population():
    shown = INSPECTORS["Derivatives"](Subject("p1 * x1 ^ 2 + digamma(p2)"))
    lines = dict(line.split(": ", 1) for line in shown.content.splitlines())
    assert list(lines) == ["p1", "p2", "x1"]
    assert lines["p1"] == ek.parse("x1 ^ 2")[0].latex()
    assert "no derivative" in lines["p2"]


def test_an_expression_that_needs_more_variables_is_refused():
    with pytest.raises(ParseError, match="'x3': there are only 2 variables"):
        Subject("x3")
    with pytest.raises(ParseError, match="unknown name 'r_k'; variables are x1, x2; parameters"):
        Subject("p1 * r_k")  # the columns' line says that it is x1


@pytest.mark.parametrize("text", ["<img src=x onerror=alert(1)>", "</pre><script>alert(1)</script>"])
def test_no_text_becomes_html(text):
    with pytest.raises(ParseError) as caught:
        Subject(text)
    shown = error_page(caught.value)
    assert "<img" not in shown and "<script" not in shown and html.escape(text)[:8] in shown
    marked = picture_page(b"", [(0.5, 0.5)], [text])
    assert text not in marked and html.escape(text) in marked
    points = ek.data.Dataset(POINTS.X, POINTS.y, ("<img src=x>", "$\\frac{"), "x")
    plot = drawings.CurvePlot(points, 1)
    assert plot.draw(POINTS.y, plot.places[:, 0]), "nor formulas"


def test_columns_that_cannot_be_variables_get_names_that_can():
    columns = ("pi", "p1", "x2", "pi_", "a`b", "gap")
    points = Points(ek.data.Dataset(np.ones((2, 6)), np.ones(2), columns, "odd"), named=True)
    assert points.variables == ("pi__", "p1_", "x2", "pi_", "x5", "gap")
    assert points.columns_page.startswith("variables: pi__ = pi, p1_ = p1, x2, pi_, x5 = a`b, gap")
    assert Subject("p1 * x2 + p1_", points).pop.values.tolist() == ek.parse("p1 * x3 + x2").values.tolist()


def test_many_variables_take_one_line():
    points = points_of({f"gene {i}": [1.0, 2] for i in range(200)} | {"y": [1.0, 2]}, "y")
    assert points.columns_page == "200 variables: `gene 0` … `gene 199`"


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
    bytecode = ek.compile_bytecode(pop)
    lines = bytecode.listing(0).splitlines()[1:]
    columns = [line.split(": ")[1] for line in bytecode.program(0).split("\n\n")[1].splitlines()]
    assert [line.endswith(", the result") for line in lines] == [False] * (len(lines) - 1) + [True]
    try:
        columns = [ek.Evaluator(ek.parse(what, variables=2), point, "numpy", dtype="float64").evaluate()[0, 0]
                   for what in columns]  # fmt: skip
        values = {"acc": np.nan} | {f"t{slot}": np.nan for slot in range(4)}
        found = computed(lines, values | {f"c{place}": value for place, value in enumerate(columns)})
    except ParseError:
        return  # an operator that only lowered programs have
    expected = ek.Evaluator(pop, point, "numpy", dtype="float64").evaluate()[0, 0]
    assert found == pytest.approx(expected, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("precision", ["ieee", "fast"])
def test_every_case_that_a_word_names_has_its_cuda(op, precision):
    pop = ek.parse(f"{op.name}(x1 + x2, x1 * x2)" if op.arity == 2 else f"{op.name}(x1 + x2)")
    bytecode = ek.compile_bytecode(pop, precision=precision)
    code = bytecode.cuda(0)
    for line in bytecode.listing(0).splitlines()[1:]:
        assert re.search(rf"case {line.split()[3]}:", code)


def test_words_name_parameters_constants_columns_and_slots():
    shown = ek.compile_bytecode(ek.parse("(x1 + p1) * (x2 - 2.5) - 3")).listing(0)
    assert "p1" in shown and "2.5" in shown and "t0 = acc" in shown and "c1" in shown


# ── drawings ──


def pixels(png):
    """A picture, (height, width, 4)."""
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGBA"))


@pytest.mark.slow
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=30))
@example([np.nan, np.inf, 1e308, -1e308, 3.0])
@example([1e-310, 1e-300])
@example([3e99, 6.9e194])
@settings(max_examples=10, deadline=None, phases=(Phase.explicit, Phase.generate))
def test_anything_can_be_drawn(numbers):
    numbers = np.array(numbers)
    finite = np.where(np.isfinite(numbers), numbers, 0.0)
    points = ek.data.Dataset(finite[:, None], finite[::-1], ("a < b",), "any")
    for axes in (drawings.LINEAR, drawings.LOG_BOTH):
        plot = drawings.CurvePlot(points, axes=axes)
        drawn = np.resize(numbers, len(plot.places))
        for half_band in (None, np.abs(drawn)):
            assert pixels(plot.draw(numbers, drawn, half_band)).shape == (470, 760, 4)
    one = numbers[:1], finite[:1]
    png, places = drawings.front_picture((finite, np.abs(finite)), (finite, finite), one)
    assert pixels(png).shape == (260, 760, 4) and places.shape == (len(numbers) + 1, 2)


def test_marks_lie_over_what_they_are_of():
    nothing = np.empty(0), np.empty(0)
    png, places = drawings.front_picture(nothing, (np.array([1.0, 2.0, 5.0]), np.array([3.0, 2.0, 1.0])), nothing)
    picture = pixels(png)
    for across, down in places:
        at = picture[round(down * 260), round(across * 760)]
        assert at[2] > 150 > at[0] and at[3] > 100, "blue"


def test_tree_has_a_node_for_every_token_and_none_over_another():
    expression = ek.parse("exp(-x1) * (x2 + p1) - logistic(logistic(x1)) / 123456.789")[0]
    labels, children, _ = nodes(expression)
    across, depth, width = drawings.tree_layout(labels, children)
    assert len(across) == len(depth) == expression.n_tokens and "123456.789" in labels
    half = [drawings.label_width(label) / 2 for label in labels]
    places = sorted((y, x - wide, x + wide) for x, y, wide in zip(across, depth, half, strict=True))
    for (y, _, right), (next_y, left, _) in itertools.pairwise(places):
        assert y != next_y or right <= left
    picture = pixels(drawings.tree(expression))
    assert picture.shape[:2] == (54 * (max(depth) + 1), int(width))
    for x, y, label in zip(across, depth, labels, strict=True):
        assert picture[round(54 * (y + 0.5)) + 8, round(x), 3] > 240, f"{label} is there"


@pytest.mark.slow
def test_a_tree_too_large_for_a_picture_is_drawn_smaller():
    wide = ek.parse(" + ".join(["1.23456789012345e-300 * x1"] * 60))[0]
    assert np.prod(pixels(drawings.tree(wide)).shape[:2]) <= drawings.MOST_PIXELS * 1.01


def test_a_curve_out_of_sight_says_where_it_is():
    plot = drawings.CurvePlot(POINTS, 1)
    for value, note in ((7.0, "out of sight: 7 to 7"), (np.nan, "not finite"), (POINTS.y.mean(), "")):
        plot.draw(np.full(len(POINTS), value), np.full(len(plot.places), value))
        assert note in plot.note.get_text() and bool(note) == bool(plot.note.get_text())


def test_lines_are_drawn_where_the_other_variables_have_few_values():
    assert drawings.widest(POINTS) == 1
    along_1, along_0 = drawings.CurvePlot(POINTS, 1), drawings.CurvePlot(POINTS, 0)
    few, many = along_1.curves, along_0.curves
    assert [curve.get_linestyle() for curve in few] == ["-"] * 6 and [curve.get_marker() for curve in many] == ["o"]
    words = [text.get_text() for text in along_1.figure.legends[0].get_texts()]
    assert words[0] == "r_k:" and sorted(map(float, words[1:])) == pytest.approx(np.unique(POINTS.X[:, 0]), rel=1e-3)
    assert not along_0.figure.legends


def test_a_figure_that_is_kept_draws_as_a_new_one():
    plot, near, far = drawings.CurvePlot(POINTS, 1), POINTS.y + 0.01, 3 - POINTS.y
    line = plot.places[:, 1] / 10
    for values in (near, far, near):
        drawn = plot.draw(values, line, line / 10)
    assert drawn == drawings.CurvePlot(POINTS, 1).draw(near, line, line / 10)


@pytest.mark.parametrize("axes", drawings.AXES)
def test_lines_are_smooth_between_the_data(axes):
    x = np.array([1.0, 10, 1000, 2, 10, 1000])
    X = np.column_stack([x, [0, 0, 0, 1, 1, 1]])
    points = ek.data.Dataset(X, x, ("dose", "drug"), "doses", target="effect (%)")
    plot = drawings.CurvePlot(points, axes=axes)
    plot.draw(x, np.sqrt(plot.places[:, 0]))
    for curve, first in zip(plot.curves, (1, 2), strict=True):
        across, up = curve.get_data()
        assert len(across) == drawings.SMOOTH and (across[0], across[-1]) == pytest.approx((first, 1000))
        steps = np.diff(across if axes == drawings.LINEAR else np.log(across))
        assert steps == pytest.approx(np.full(len(steps), steps[0])) and up == pytest.approx(np.sqrt(across))
    top = plot.figure.axes[0]
    assert top.get_ylabel() == "effect (%)" and (top.get_yscale() == "log") == (axes == drawings.LOG_BOTH)


def test_scores_are_the_losses():
    ev = ek.Evaluator(ek.parse("p1 + p2 / x2"), POINTS.X, dtype="float64")
    found = fit_panel.scores(ev, [[0.1, 2.0]], POINTS.y)
    residuals = 0.1 + 2 / POINTS.X[:, 1] - POINTS.y
    assert found["sse"] == pytest.approx(np.sum(residuals**2), rel=1e-12)
    assert found["R2"] == pytest.approx(1 - np.sum(residuals**2) / np.sum((POINTS.y - POINTS.y.mean()) ** 2))
    assert found["not finite"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("text", ["p1 + p2 * x1", "p1 * exp(p2 * x1)"])
def test_the_band_holds_the_truth_about_as_often_as_it_says(text):
    """Of many noisy samples of a curve, the band of the fit covers the curve at a point in about 95 %."""
    pop, x = ek.parse(text), np.linspace(0, 1, 40)[:, None]
    ev = ek.Evaluator(pop, x, dtype="float64")
    truth = ev.evaluate([[2.0, -1.0]])[0]
    random, covered = np.random.default_rng(0), []
    for _ in range(200):
        found = ek.fit(pop, x, truth + 0.05 * random.standard_normal(40), init=[[2.0, -1.0]], dtype="float64")
        half = fit_panel.half_band(ev, found.params, found.covariance[0])
        covered.append(np.abs(ev.evaluate(found.params)[0] - truth) <= half)
    assert 0.91 < np.mean(covered) < 0.98


# ── tables of data ──


def test_a_table_s_columns_become_variables_and_target(tmp_path):
    frame = pd.DataFrame({"a b": [1, 2], "y": [3, 4], "c": [5.5, 6.5]})
    found = ek.data.from_table(frame, "y")
    assert found.variables == ("a b", "c") and found.y.tolist() == [3, 4] and found.X.tolist() == [[1, 5.5], [2, 6.5]]
    frame.to_csv(tmp_path / "semicolons.csv", sep=";", index=False)
    assert ek.data.from_table(tmp_path / "semicolons.csv").y.tolist() == [5.5, 6.5]


def test_a_table_is_taken_without_what_cannot_be_used(tmp_path):
    frame = pd.DataFrame({"Temp (°C)": [1.5, 2], "site": ["u", "v"], "gap": [1, None], "y": [3, 4.5]})
    frame.to_csv(tmp_path / "a.csv", sep=";", decimal=",")
    points = points_of(str(tmp_path / "a.csv"), None)
    assert points.dataset.variables == ("Temp (°C)",) and points.dataset.y.tolist() == [3, 4.5]
    assert points.columns_page.startswith("variables: `Temp (°C)`\nleft out: column ")
    assert uploaded("a.csv", (tmp_path / "a.csv").read_bytes(), "y").dataset.X.tolist() == [[1.5], [2]]
    with pytest.raises(DataError, match="column 'site' must hold real numbers, not 'u'"):
        points_of(str(tmp_path / "a.csv"), "site")
    assert points_of(None, None).columns_page == "variables: x1 = r_k, x2 = log_Re"


def test_what_of_a_table_is_left_out_is_told():
    table = {"a": [1.0, None, 3, 4, 5], "b": list("uvwxy"), "c": [None, None, None, 1.0, 2], "d": [True] * 5,
             "y": [1, 2, 3, 4, 5]}  # fmt: skip
    points = points_of(table, "y")
    assert points.dataset.X.tolist() == [[1, 1], [3, 1], [4, 1], [5, 1]] and points.dataset.y.tolist() == [1, 3, 4, 5]
    for told in ("a, d", "column 'b' must hold real numbers, not 'u'", "column 'c' lacks 3 of 5 values", "1 of 5 rows"):
        assert told in points.columns_page
    assert printed(points.code.replace("table,", f"{table!r},").replace("ek.", "__import__('exprkit').")) == ""
    with pytest.raises(DataError, match="every row lacks the target 'y'"):
        ek.data.from_table({"a": [1.0, 2], "y": [None, None]}, missing="drop")
    with pytest.raises(DataError, match="did you mean 'speed'"):
        ek.data.from_table({"speed": [1], "y": [1]}, "sped")


@pytest.mark.parametrize(
    ("table", "target", "message"),
    [
        ({"a": [1], "y": ["one"]}, None, "column 'y' must hold real numbers, not 'one'"),
        ({"a": [1, None], "y": [1, 2]}, None, "column 'a' lacks 1 of 2 values"),
        ({"a": [1], "y": [1]}, "z", "there is no column 'z'; there are a, y"),
        ({"y": [1]}, None, "there is one column alone, 'y', and nothing that it could depend on"),
        ({"a": [], "y": []}, None, "the table has no rows"),
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
    assert sorted(up) == sorted(down) == list(range(len(table.pop)))
    key = table.columns[by].to_numpy(float)
    for order, sign in ((up, 1), (down, -1)):
        finite = key[order][~np.isnan(key[order])]
        assert (sign * finite[1:] >= sign * finite[:-1]).all() and np.isnan(key[order][len(finite) :]).all()


def test_rows_are_the_first_of_the_order(table, monkeypatch):
    panel = PopulationPanel(print)
    panel.use(table.pop, Points(POINTS))
    numbers = [int(line.partition(":")[0].split()[-1]) for line in panel.rows.options]
    assert numbers == table.order("loss").tolist() and "are shown" not in panel.summary.value
    monkeypatch.setattr("exprkit.explorer.population_panel.MOST_ROWS", 9)
    panel.sort("number")
    assert len(panel.rows.options) == 9 and "the first 9 rows are shown" in panel.summary.value
    (bad,) = np.flatnonzero(~table.pop.valid)
    assert table.texts([bad])[0].startswith("(not valid) expected a number") and np.isnan(table.loss[bad])


def test_nothing_beats_the_front(table):
    front = table.front()
    tokens, loss = table.pop.n_tokens, table.loss
    clearly = 2e-6 * np.sqrt(np.mean(table.points.y.astype(float) ** 2))
    for number in range(len(table.pop)):
        better = (tokens <= tokens[number]) & (loss < loss[number] - clearly)
        if number in front:
            assert not better.any()
        elif np.isfinite(loss[number]):
            assert ((tokens <= tokens[number]) & (loss <= loss[number] + clearly))[front].any()
    assert (np.diff(tokens[front]) > 0).all() and (np.diff(loss[front]) < 0).all()
    titles = re.findall('title="([^"]*)"', table.front_page([3]))
    assert len(titles) == len(front) + 1 and titles[-1].startswith("3: ")


def test_a_front_does_not_tell_rounding_apart():
    table = Table(ek.parse(["x1", "x1 * 1", "x1 * 1 * 1", "x1 * 1 * 1 * 1"]), POINTS)
    table.columns["loss"] = table.loss[0] * np.array([1, 1 - 1e-7, 1 - 1e-8, 0.5])
    assert table.front().tolist() == [0, 3]


def test_one_row_for_what_has_the_same_loss():
    pop = ek.parse(["x1 + x2", "x2 + x1 * 1", "x2", "log(-x1)", "x1 + x2 * 1.000000001"], errors="mask")
    panel = PopulationPanel(lambda text, params: None)
    panel.use(pop, Points(POINTS))
    panel.fold.value = True
    assert [line.partition(":")[0].split()[-1] for line in panel.rows.options] == ["2", "0", "3"]
    panel.fold.value = False
    assert len(panel.rows.options) == 5


def stopped(*_):
    raise Stopped


def test_files_hold_every_expression_and_every_bit(table, tmp_path):
    pop = ek.parse(["x1 + 0.1", "x1 +", "p1 * x2"], errors="mask")
    table = Table(pop, POINTS)
    frame = pd.read_csv(table.to_csv(tmp_path / "a.csv"), keep_default_na=False)
    assert frame["expression"].tolist() == pop.texts() and frame["tokens"].tolist() == [3, 0, 3]
    lines = table.to_sympy(tmp_path / "a.txt", print).read_text().split("\n")
    assert len(lines) == 4 and not lines[1]
    for line, expression in ((lines[0], pop[0]), (lines[2], pop[2])):
        assert sympy.srepr(expression.sympy()) == line
        assert sorted(ek.parse(sympy.sympify(line)).texts()[0]) == sorted(str(expression))
    with pytest.raises(Stopped):
        table.to_sympy(tmp_path / "b.txt", stopped)
    assert not (tmp_path / "b.txt").exists()
    with pytest.raises(DataError, match="there is no folder"):
        table.to_csv(tmp_path / "none" / "a.csv")


def test_fits_lower_the_losses_and_reach_the_files(table, tmp_path):
    before, seen = table.loss.copy(), []
    table.fit(lambda done, total: seen.append((done, total)))
    assert seen[-1] == (len(table.pop), len(table.pop)) and set(seen[:-1]) <= {(0, len(table.pop))}
    has_params = table.pop.n_params > 0
    assert (table.loss[has_params] <= before[has_params] * (1 + 1e-6))[np.isfinite(before[has_params])].all()
    last = len(table.pop) - 1
    result, params = ek.fit(table.pop[[last]], POINTS.X, POINTS.y), table.params_of(last)
    assert params == pytest.approx(result.params[0]) and table.loss[last] == pytest.approx(
        np.sqrt(result.loss[0] / 362)
    )
    frame = pd.read_csv(table.to_csv(tmp_path / "fitted.csv"))
    assert frame["p2"].iloc[-1] == pytest.approx(params[1]) and np.isnan(frame["p1"].iloc[-2])


def test_a_stopped_fit_keeps_what_was_done(table, monkeypatch):
    monkeypatch.setattr("exprkit.explorer.table.AT_ONCE", 50)
    with pytest.raises(Stopped):
        table.fit(lambda done, total: stopped() if done == 100 else None)
    assert table.fitted.sum() == 100 and table.params_of(150) is None


def test_an_empty_population_is_an_empty_table():
    table = Table(ek.parse([]), POINTS)
    assert table.texts(table.order("loss")) == [] and "<img" in table.front_page()
    panel = PopulationPanel(print)
    panel.use(table.pop, Points(POINTS))
    assert panel.rows.options == ()


# ── races ──


def race_panel(backends, n_steps=2):
    population = PopulationPanel(print)
    population.use(ek.parse(["x1 + p1", "x1 +", "x2"] * 4, errors="mask"), Points(POINTS))
    panel = RacePanel(population, ProgressBar())
    panel.backends.options = panel.backends.value = backends
    panel.n_points.value, panel.n_steps.value = 7, n_steps
    return panel


def test_a_race_can_be_stopped():
    panel = race_panel(["cpu", "numpy"])
    with pytest.raises(Stopped):
        panel.run(stopped)
    assert panel.samples is None and panel.standings.value == ""


def test_a_race_needs_something_to_race():
    with pytest.raises(ArgumentError, match="1 or more of backends"):
        race_panel([]).run(lambda done, total: True)


def test_standings_compare_medians_and_their_page_holds_no_markup_of_devices():
    panel = race_panel(["cpu", "numpy"])
    panel.run(lambda done, total: True)
    table = standings(panel.samples)
    assert set(panel.samples["n_exprs"]) == {8}, "the valid ones"
    assert sorted(table["backend"]) == ["cpu", "numpy"]
    assert table[RATIO].iloc[0] == 1 and table[RATIO].is_monotonic_increasing
    assert panel.standings.value.count("linear-gradient") == 2, "a bar each"
    samples = panel.samples.assign(device="<b>")
    assert list(standings(samples)["device"]) == ["<b>", "<b>"]
    panel.show(samples)
    assert "<b>" not in panel.standings.value and "&lt;b&gt;" in panel.standings.value


# ── work beside the messages ──


def test_of_waiting_jobs_of_a_kind_only_the_newest_is_done():
    queue, done, begun, go_on = JobQueue(print), [], threading.Event(), threading.Event()

    def first():
        begun.set()
        go_on.wait(SECONDS)

    queue.put("a", first)
    assert begun.wait(SECONDS)
    for number in range(5):
        queue.put("a", lambda number=number: done.append(number), delay=0.01)
    queue.put("b", lambda: done.append("b"))
    go_on.set()
    assert queue.wait(SECONDS) and sorted(map(str, done)) == ["4", "b"]


def test_the_end_of_python_ends_jobs_first():
    code = (
        "import threading, time\nfrom exprkit.explorer.jobs import ProgressBar\nbegun = threading.Event()\n"
        "def job(progress):\n    begun.set()\n    bar.stop.wait(60)\n    time.sleep(0.2)\n    print('ended')\n"
        "bar = ProgressBar()\nbar.run('long', job)\nbegun.wait(60)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert (done.stdout, done.returncode) == ("ended\n", 0)


def test_a_failed_job_is_reported_and_the_queue_goes_on():
    failed, done = [], []
    queue = JobQueue(lambda error: failed.append(str(error)))
    queue.put("bad", lambda: [][1])
    queue.put("good", lambda: done.append(1), delay=0.01)
    assert queue.wait(SECONDS) and failed == ["list index out of range"] and done == [1]


def test_a_progress_bar_says_when_loops_are_compiled(tmp_path, monkeypatch):
    monkeypatch.setattr(jit, "folder", lambda: tmp_path / "kept")  # where nothing is from an earlier run
    module = tmp_path / "new_loop.py"
    module.write_text("from exprkit.runtime.jit import compiled\n\n\n@compiled\ndef twice(a):\n    return 2 * a\n")
    found = {"__name__": "new_loop"}
    exec(compile(module.read_text(), module, "exec"), found)
    bar, said = ProgressBar(), []
    bar.text.observe(lambda change: said.append(change["new"]), "value")
    bar.run("doubling", lambda progress: found["twice"](21))
    assert bar.wait(SECONDS) and said[-1].startswith("doubling: done after")
    assert any(jit.COMPILING in text for text in said)
    said.clear()
    bar.run("doubling", lambda progress: found["twice"](21))
    assert bar.wait(SECONDS) and not any("compiled" in text for text in said)


def test_a_progress_bar_runs_one_job_at_a_time():
    bar, go_on, begun = ProgressBar(), threading.Event(), threading.Event()

    def first(progress):
        progress(1, 4)
        begun.set()
        go_on.wait(SECONDS)

    bar.run("first", first)
    assert begun.wait(SECONDS) and bar.bar.value == 250 and not bar.button.disabled
    bar.run("second", lambda progress: None)
    assert bar.text.value == "first is still running: stop it first"
    bar.button.click()
    go_on.set()
    assert bar.wait(SECONDS) and bar.text.value.startswith("first: stopped after")
    bar.run("bad", lambda progress: {}["x"])
    assert bar.wait(SECONDS) and "KeyError" in bar.text.value and bar.button.disabled


def test_a_picture_is_drawn_by_a_thread_at_a_time():
    """A drawing takes the plot, its places and its evaluator from the panel, which others change."""
    panel, go_on, inside, most = fit_panel.FitPanel(), threading.Event(), [], []
    panel.show(Subject("p1 + p2 / x2"))
    assert panel.queue.wait(SECONDS), "what the choice of a column has asked for"
    begun, draw = threading.Semaphore(0), panel.plot.draw

    def slow(*given):
        inside.append(1)
        most.append(len(inside))
        begun.release()
        go_on.wait(SECONDS)
        inside.pop()
        return draw(*given)

    panel.plot.draw = slow
    threads = [threading.Thread(target=panel.draw) for _ in "ab"]
    for thread in threads:
        thread.start()
    assert begun.acquire(timeout=SECONDS)
    assert not begun.acquire(timeout=0.2), "the second one waits"
    go_on.set()
    for thread in threads:
        thread.join(SECONDS)
    assert most == [1, 1]


# ── the notebook ──


@pytest.mark.slow
def test_the_notebook_runs_under_papermill_without_a_click(tmp_path):
    """With a table whose columns are no x1 and x2."""
    pd.DataFrame({"width": [1.0, 2, 3], "loss": [2.0, 3, 5]}).to_csv(tmp_path / "pipes.csv", index=False)
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "papermill", str(ROOT / "notebooks" / "explore.ipynb"), "out.ipynb",
               "--no-progress-bar", "-p", "table", "pipes.csv"]  # fmt: skip
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    notebook = json.loads((tmp_path / "out.ipynb").read_text())
    states = notebook["metadata"]["widgets"]["application/vnd.jupyter.widget-state+json"]["state"].values()
    assert any(state["model_name"] == "ImageModel" and state.get("buffers") for state in states), "the curve is drawn"


def test_without_ipywidgets_it_says_what_to_install():
    code = "import sys; sys.modules['ipywidgets'] = None\nimport exprkit as ek\nek.explore('x1')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.stderr.splitlines()[-1].endswith(
        "ipywidgets is not installed: pip install ipywidgets "
        '(or, in exprkit\'s folder, pip install ".[notebooks]" for all that this part needs)'
    )


# ── the widget ──


@pytest.fixture
def explorer():
    return ek.explore("p1 + p2 / x2")


def type_text(explorer, text):
    explorer.text.value = text
    return settled(explorer)


def settled(explorer):
    assert all(queue.wait(SECONDS) for queue in (explorer.queue, explorer.progress_bar, explorer.queue))
    return explorer


def test_every_field_has_a_name_for_who_does_not_see_it(explorer):
    widgets = pytest.importorskip("ipywidgets")
    boxes, fields = [settled(explorer)], []
    while boxes:
        for one in boxes.pop().children:
            (boxes if isinstance(one, widgets.Box) else fields).append(one)
    fields = [one for one in fields if isinstance(one, widgets.Text | widgets.Select | widgets.Dropdown)]
    assert len(fields) > 10
    assert [one for one in fields if not (one.description or one.tooltip or one.placeholder)] == []


def test_a_slider_changes_its_parameter_from_what_was_fitted_or_typed(explorer):
    panel = settled(explorer).fit_panel
    panel.fit()
    fitted, slider = panel.params.tolist(), panel.sliders.children[0]
    for sent in (1e-17, -0.0, 0.0):
        slider.value = sent
        assert panel.params.tolist() == fitted and panel.result is not None, "a browser's zero is no move"
    slider.value = 0.1
    assert panel.params.tolist() == pytest.approx([fitted[0] + 0.5 * abs(fitted[0]), fitted[1]])
    assert panel.result is None and panel.numbers.children[0].value == panel.params[0]
    slider.value = 0.0
    assert panel.params.tolist() == fitted
    panel.numbers.children[0].value = -1e-6
    assert slider.value == 0.0
    slider.value = -0.2
    assert panel.params[0] == pytest.approx(-2e-6)
    panel.numbers.children[0].value = 0.0
    slider.value = -0.2
    assert panel.params[0] == pytest.approx(-1.0), "zero has the reach of one"


def open_tab(explorer, name):
    explorer.tabs.selected_index = explorer.tabs.titles.index(name)
    settled(explorer)


def test_it_shows_something_without_a_click(explorer):
    assert explorer.fit_panel.picture.value[1:4] == b"PNG" and r"\frac{p_{2}}{x_{2}}" in explorer.formula.value
    assert "rmse" in explorer.fit_panel.scores.value and explorer.expression == ek.parse("p1 + p2 / x2")[0]


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
    with pytest.raises(ArgumentError, match="give a population as population="):
        ek.explore(ek.parse(["x1", "x2"]))


def test_a_slider_moves_the_curve(explorer):
    before = explorer.fit_panel.picture.value, explorer.fit_panel.scores.value
    explorer.fit_panel.sliders.children[1].value = -0.15  # from 1 by as much of 5
    settled(explorer)
    assert explorer.params.tolist() == [1.0, 0.25]
    assert explorer.fit_panel.picture.value != before[0] and explorer.fit_panel.scores.value != before[1]
    assert "params = [[1.0, 0.25]]" in explorer.fit_panel.code.value


def test_a_fit_moves_the_sliders_and_draws_its_band(explorer):
    panel = explorer.fit_panel
    panel.fit_button.click()
    settled(explorer)
    found = ek.fit(ek.parse("p1 + p2 / x2"), POINTS.X, POINTS.y, init=[[1.0, 1.0]])
    assert explorer.params == pytest.approx(found.params[0]) and explorer.result.converged[0]
    assert [number.value for number in panel.numbers.children] == explorer.params.tolist()
    assert len(panel.plot.bands) == 6 and "±" in panel.scores.value
    assert "ek.fit(pop, points.X, points.y, restarts=5).to_pandas()" in html.unescape(panel.code.value)
    panel.sliders.children[0].value = 0.1
    settled(explorer)
    assert explorer.result is None and not panel.plot.bands and "±" not in panel.scores.value


def test_a_fit_takes_the_chosen_loss_and_restarts(explorer):
    explorer.fit_panel.loss.value, explorer.fit_panel.restarts.value = "mae", 3
    explorer.fit_panel.fit_button.click()
    settled(explorer)
    assert explorer.result.kind == "mae" and ", loss='mae', restarts=3" in html.unescape(explorer.fit_panel.code.value)
    assert "±" not in explorer.fit_panel.scores.value and "nan" not in explorer.fit_panel.scores.value


def test_many_parameters_have_sliders_for_the_first_ones():
    explorer = ek.explore(" + ".join(f"p{i} * x1 ^ {i}" for i in range(1, 16)))
    assert len(explorer.fit_panel.sliders.children) == 12 and explorer.fit_panel.more.value.startswith("3 more")
    explorer.text.value = "p1"
    settled(explorer)
    assert len(explorer.fit_panel.sliders.children) == 1 and explorer.fit_panel.more.value == ""


def test_numbers_of_any_size_are_typed_and_shown_with_all_digits(explorer):
    panel = explorer.fit_panel
    type_text(explorer, "p1 + p2 / x2")
    panel.numbers.children[0].value, panel.numbers.children[1].value = 250, -0.000771234567
    assert settled(explorer).params.tolist() == [250, -0.000771234567]
    panel.sliders.children[0].value = 0.1
    panel.numbers.children[1].value = float("inf")
    assert [number.value for number in panel.numbers.children] == [375, -0.000771234567]


def test_a_fit_takes_a_loss_that_is_a_text(explorer):
    panel = explorer.fit_panel
    panel.loss.value, panel.own_loss.value = "a text", "logcosh(f - y"
    assert panel.own_loss.layout.display is None
    panel.fit_button.click()
    assert "is never closed" in html.unescape(settled(explorer).fit_panel.scores.value)
    panel.own_loss.value = "logcosh(f - y)"
    panel.fit_button.click()
    expected = ek.fit(ek.parse("p1 + p2 / x2"), POINTS.X, POINTS.y, loss="logcosh(f - y)", restarts=5)
    assert settled(explorer).params == pytest.approx(expected.params[0]) and explorer.result.method == "lbfgs"
    assert ", loss='logcosh(f - y)'" in html.unescape(panel.code.value)
    panel.loss.value = "squares"
    assert panel.own_loss.layout.display == "none"


@pytest.mark.slow
def test_numbers_of_another_expression_stay_only_where_they_are_of_use(explorer):
    type_text(explorer, "p1 + p2 * x2")
    explorer.fit_panel.numbers.children[0].value, explorer.fit_panel.numbers.children[1].value = 2, -1.5
    assert settled(explorer).params.tolist() == [2, -1.5]
    type_text(explorer, "p1 + p2 * x2 + log(p2)")
    assert explorer.params.tolist() == [1, 1]


@pytest.mark.slow
def test_code_stays_open_and_what_is_out_of_date_is_pale(explorer):
    code = explorer.fit_panel.code
    code.button.value = True
    before = code.value
    type_text(explorer, "p1 * x1")
    assert code.value != before and code.page.layout.display is None
    type_text(explorer, "p1 * ")
    assert STALE in explorer.tabs._dom_classes and STALE in explorer.formula._dom_classes
    type_text(explorer, "p1 * x2")
    assert STALE not in explorer.tabs._dom_classes and STALE not in explorer.formula._dom_classes


@pytest.mark.slow
def test_a_search_shows_its_front_and_opens_any_of_it(tmp_path):
    x = np.random.default_rng(0).uniform(1, 3, (60, 2))
    table = pd.DataFrame(x, columns=["rho", "speed"]).assign(drag=0.235 * x[:, 0] * x[:, 1] ** 2)
    table.to_csv(tmp_path / "pipes.csv", index=False)
    explorer = ek.explore("rho", str(tmp_path / "pipes.csv"), "drag")
    panel = explorer.search_panel
    panel.unary.value = "square, log"
    panel.start()
    assert panel.wait(60) == "a formula is exact"
    assert panel.rows.options[-1].endswith("0.235 * rho * sqr(speed)   ◀ selected")
    assert printed(html.unescape(re.search(r"<pre[^>]*>(.*)</pre>", panel.code.value, re.DOTALL)[1])) == ""
    panel.rows.index = len(panel.rows.options) - 1
    assert settled(explorer).text.value == "p1 * rho * sqr(speed)"
    assert explorer.params.tolist() == pytest.approx([0.235])
    assert "data:image/png" in panel.front.value


@pytest.mark.slow
def test_a_search_leaves_columns_out():
    x = np.random.default_rng(0).uniform(1, 3, (60, 3))
    table = pd.DataFrame(x, columns=["rho", "speed", "number"]).assign(drag=0.235 * x[:, 0] * x[:, 1] ** 2)
    for names, without in ((["rho", "speed", "number"], "number, rho"), (["pi", "sin", "kappa"], "kappa,pi_")):
        panel = SearchPanel(lambda text, params: None)
        panel.points = points_of(table.set_axis([*names, "drag"], axis=1), "drag")
        panel.unary.value, panel.seconds.value, panel.without.value = "square", 2, without
        panel.start()
        panel.wait(60)
        assert not any(name in row for row in panel.rows.options for name in without.replace(" ", "").split(","))
        assert f".drop(columns={without.replace(' ', '').split(',')})" in html.unescape(panel.code.value)
    panel.without.value = "x9"
    panel.start()
    panel.wait(9)
    assert "there is no column 'x9'; there are pi_, sin, kappa" in html.unescape(panel._progress_bar.text.value)


def test_a_search_is_stopped_within_a_second_and_says_what_is_wrong(busy):
    panel = SearchPanel(lambda text, params: None)
    panel.seconds.value = 500
    panel.start()
    deadline = time.monotonic() + 60
    while len(panel.rows.options) < 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    begin = time.monotonic()
    panel._progress_bar.button.click()
    assert panel.wait(30) == "it was stopped" and time.monotonic() - begin < 1.5 * busy()
    assert len(panel.model.equations_) >= 1
    panel.unary.value = "sine"
    panel.start()
    panel.wait(9)
    assert "did you mean" in panel._progress_bar.text.value and panel.model is None


MICHAELIS_MENTEN = pd.DataFrame({"S": (S := np.array([0.1, 0.2, 0.5, 1, 2, 4, 8])), "rate": 12.5 * S / (0.86 + S)})


@pytest.mark.slow
def test_a_fit_of_another_expression_or_table_starts_anew(explorer, tmp_path):
    panel = settled(explorer).fit_panel
    panel.fit()
    type_text(explorer, "p1 + p2 * x2")
    assert explorer.params.tolist() == [1, 1], "not where the last fit ended"
    panel.numbers.children[0].value, panel.numbers.children[1].value = 3.6e6, -0.25
    MICHAELIS_MENTEN.to_csv(tmp_path / "enzyme.csv", index=False)
    explorer.data.value, explorer.path.value = "a CSV file", str(tmp_path / "enzyme.csv")
    assert "2 variables are used, the data has S" in settled(explorer).error.value
    assert STALE in explorer.tabs._dom_classes, "what is shown is of the other table"
    type_text(explorer, "p1 * S / (p2 + S)")
    assert explorer.params.tolist() == [1, 1]
    panel.fit_button.click()
    assert settled(explorer).params == pytest.approx([12.5, 0.86], rel=1e-4) and "constant" not in panel.scores.value


def test_a_fit_starts_from_what_was_set_as_well(monkeypatch):
    x, given, fit = np.linspace(0, 1, 100), [], ek.fit
    panel = settled(ek.explore("sin(p1 * t)", {"t": x, "y": np.sin(40 * x)})).fit_panel
    monkeypatch.setattr(ek, "fit", lambda *some, **options: given.append(options.get("init")) or fit(*some, **options))
    panel.restarts.value = 0
    panel.numbers.children[0].value = 39.5
    _, *found = panel._fitted(panel._subject, False)
    assert None in given and [[39.5]] in given and np.abs(found[0].params[0]) == pytest.approx([40], rel=1e-4)
    panel._take(panel._subject, [39.5], *found)
    assert "init=[[39.5]])" in html.unescape(panel.code.value)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squares", "mae"])
def test_what_is_worse_than_a_constant_is_said_in_red(explorer, loss):
    explorer = ek.explore("p1 + p2 * exp(p3 * t)", {"t": [0.0, 1, 2, 3, 4, 5], "y": [1.0, -1, 1, -1, 1, -1.1]})
    panel = settled(explorer).fit_panel
    assert "not fitted: worse than a constant (R2 &lt; 0)" in panel.scores.value and RED in panel.scores.value
    panel.loss.value, panel.restarts.value = loss, 0
    panel._take(panel._subject, *panel._fitted(panel._subject, False)[:2], constant=0.0)
    assert "no better than a constant" in panel.scores.value and RED in panel.scores.value
    type_text(explorer, "log(t)")
    assert "no finite value at 1 of 6 points" in panel.scores.value


def test_numbers_have_the_digits_of_their_errors():
    told = [fit_panel.with_error(*pair) for pair in ((-3.0, 0.14), (2.00010637, 2e-4), (1.5e-7, 2.5e-9), (7.0, np.nan))]
    assert told == ["-3.00 ± 0.14", "2.00011 ± 0.00020", "1.500e-7 ± 0.025e-7", "7"]


def test_what_was_set_stays_while_the_text_grows(explorer):
    explorer.fit_panel.sliders.children[0].value = -0.1
    explorer.text.value = "p1 + p2 / x2 + p3"
    settled(explorer)
    assert explorer.params.tolist() == [0.5, 1.0, 1.0]
    assert [number.value for number in explorer.fit_panel.numbers.children] == [0.5, 1.0, 1.0]
    explorer.text.value = "x1"
    settled(explorer)
    assert explorer.fit_panel.sliders.children == () and explorer.fit_panel.fit_button.disabled


def test_sliders_move_while_long_work_runs_and_it_can_be_stopped(explorer):
    begun, before = threading.Event(), explorer.fit_panel.picture.value

    def long(progress):
        begun.set()
        assert explorer.progress_bar.stop.wait(SECONDS)

    explorer.progress_bar.run("long", long)
    assert begun.wait(SECONDS)
    explorer.fit_panel.sliders.children[0].value = -0.15
    assert explorer.queue.wait(SECONDS) and explorer.fit_panel.picture.value != before and explorer.progress_bar.busy
    explorer.progress_bar.button.click()
    assert "long: stopped after" in settled(explorer).progress_bar.text.value


LONG = "p1 * exp(p2 * x1) + p3 * sin(p4 * x1) + p5 * tanh(p6 * x2)"


@pytest.mark.slow
def test_one_long_fit_is_stopped_within_a_second(busy):
    x = np.random.default_rng(0).uniform(0, 1, (200_000, 2))
    explorer = ek.explore(LONG, ek.data.Dataset(x, np.sin(40 * x[:, 0]), ("x1", "x2"), "waves"))
    panel, bar = explorer.fit_panel, explorer.progress_bar
    panel.restarts.value = 10_000
    start = explorer.params.tolist()
    panel.fit_button.click()
    until = time.monotonic() + SECONDS
    while panel.fit_button.description == "Fit" and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(2)
    assert bar.busy and not bar.button.disabled and panel.fit_button.description == "Fitting …"
    panel.sliders.children[0].value = -0.15
    assert explorer.queue.wait(SECONDS), "what is drawn does not wait for the fit"
    begin = time.perf_counter()
    bar.button.click()
    assert bar.wait(SECONDS) and time.perf_counter() - begin < busy()
    assert "fitting: stopped after" in settled(explorer).progress_bar.text.value and explorer.result is None
    assert explorer.params.tolist() == [0.25, *start[1:]] and "rmse" in panel.scores.value
    panel.restarts.value = 0
    panel.fit_button.click()
    assert settled(explorer).result is not None and panel.fit_button.description == "Fit"


def test_a_result_of_an_expression_that_is_gone_is_not_shown(explorer, monkeypatch):
    begun, go_on, fit = threading.Event(), threading.Event(), ek.fit

    def late(*arguments, **options):
        begun.set()
        assert go_on.wait(SECONDS)
        return fit(*arguments, **options)

    monkeypatch.setattr(ek, "fit", late)
    explorer.fit_panel.fit_button.click()
    assert begun.wait(SECONDS)
    explorer.text.value = "p1 * x1"
    assert explorer.queue.wait(SECONDS) and str(explorer.expression) == "p1 * x1"
    go_on.set()
    assert settled(explorer).result is None and len(explorer.params) == 1


def test_a_name_that_is_missing_is_asked_for(explorer):
    panel, bar = explorer.population_panel, explorer.progress_bar
    panel.path.value, panel.source.value = " ", "a file"
    panel.read()
    assert "the path of a text file is missing" in settled(explorer).progress_bar.text.value
    open_tab(explorer, "Population")
    panel.source.value = panel.source.options[0]
    panel.read()
    settled(explorer)
    panel.file.value = ""
    panel.csv_button.click()
    assert "the name of the file is missing" in settled(explorer).progress_bar.text.value
    explorer.search_panel.without.value = "x1, x2"
    explorer.search_panel.start()
    assert bar.wait(SECONDS) and "X has no columns" in bar.text.value


def test_every_side_is_drawn_when_it_is_looked_at(explorer):
    for name in INSPECTORS:
        assert explorer.inspectors[name].value == ""
        open_tab(explorer, name)
        if name in shown_here():
            assert explorer.inspectors[name].value == INSPECTORS[name](Subject("p1 + p2 / x2")).page
        else:
            assert re.search("pip install|toolkit", explorer.inspectors[name].value), "what mends it"
    explorer.text.value = "x1"
    settled(explorer)
    open_tab(explorer, "Postfix")
    assert "x1" in explorer.inspectors["Postfix"].value and "p2" not in explorer.inspectors["Postfix"].value


def test_a_side_that_is_computed_says_so_and_pictures_are_there_in_words(explorer, monkeypatch):
    seen, tree = [], INSPECTORS["Tree"]

    def slow(subject):
        seen.append(explorer.inspectors["Tree"].value)
        return tree(subject)

    monkeypatch.setitem(INSPECTORS, "Tree", slow)
    open_tab(explorer, "Tree")
    open_tab(explorer, "Postfix")
    type_text(explorer, "p1 * x2")
    open_tab(explorer, "Tree")
    assert len(seen) == 2 and all("computing …" in value for value in seen), "not the tree from before"
    assert 'alt="*\n├─ p1' in explorer.inspectors["Tree"].value
    assert explorer.fit_panel.picture.tooltip == "log10(100 f) and p1 * x2 over log_Re"


def test_options_reach_the_sides(explorer):
    explorer.precision.value = "fast"
    open_tab(explorer, "Bytecode")
    assert "precision=&#x27;fast&#x27;" in explorer.codes["Bytecode"].value
    explorer.codes["Bytecode"].button.value = True
    type_text(explorer, "x1 + x2")
    assert "x1 + x2" in explorer.codes["Bytecode"].value and explorer.codes["Bytecode"].page.layout.display is None


@pytest.mark.slow
def test_the_population_sorts_and_opens(explorer):
    open_tab(explorer, "Population")
    panel = explorer.population_panel
    assert len(explorer.population) == 247
    panel.sort("tokens")
    assert panel.heads["tokens"].description == "tokens ▲"
    panel.rows.index = 3
    settled(explorer)
    chosen = panel.table.texts(panel.table.order("tokens")[[3]])[0]
    assert str(explorer.expression) == chosen == explorer.text.value and chosen in panel.rows.label
    assert explorer.tabs.titles[explorer.tabs.selected_index] == "Curve and fit"
    panel.sort("tokens")
    place = panel.rows.index
    assert place != 3 and chosen in panel.rows.options[place], "what is open stays selected, wherever it is"


@pytest.mark.slow
def test_all_are_fitted_and_a_fitted_row_opens_with_its_parameters(explorer):
    open_tab(explorer, "Population")
    panel = explorer.population_panel
    assert "parameters are 1 until fitted" in panel.summary.value
    panel.fit_button.click()
    assert (
        settled(explorer).progress_bar.text.value.startswith("fitting: done")
        and "until fitted" not in panel.summary.value
    )
    best = panel.table.order("loss")[0]
    panel.rows.index = 0
    settled(explorer)
    assert len(explorer.params) and explorer.params.tolist() == panel.table.params_of(best)
    assert f"{panel.table.loss[best]:.3g}" in explorer.fit_panel.scores.value


def test_expressions_can_be_pasted_and_files_written(explorer, tmp_path):
    open_tab(explorer, "Population")
    panel = explorer.population_panel
    panel.written.value = "x1\n\nx1 +\np1 * x2\n"
    assert panel.source.value == "written below"
    panel.read_button.click()
    settled(explorer)
    assert explorer.population.valid.tolist() == [True, False, True]
    assert len(panel.rows.options) == 3
    panel.file.value = str(tmp_path / "mine.csv")
    panel.csv_button.click()
    settled(explorer)
    assert panel.written_to.value == str(tmp_path / "mine.csv") and (tmp_path / "mine.csv").is_file()
    panel.sympy_button.click()
    settled(explorer)
    assert (tmp_path / "mine.sympy.txt").read_text().startswith("Symbol('x1')\n\n")


@pytest.mark.slow
@pytest.mark.parametrize("source", ["the smallest ones", "random ones"])
def test_made_populations(explorer, source):
    open_tab(explorer, "Population")
    explorer.population_panel.source.value, explorer.population_panel.size.value = source, 50
    explorer.population_panel.read_button.click()
    settled(explorer)
    assert len(explorer.population) == 50 and explorer.population.n_vars <= 2


def test_a_file_that_is_not_there_says_so(explorer):
    open_tab(explorer, "Population")
    explorer.population_panel.source.value, explorer.population_panel.path.value = "a file", "/nowhere.txt"
    explorer.population_panel.read_button.click()
    assert "there is no file" in settled(explorer).progress_bar.text.value


def test_a_race_runs_and_explains_what_auto_takes(explorer):
    panel = explorer.race_panel
    panel.n_steps.value = 3
    panel.button.click()
    settled(explorer)
    assert set(panel.samples["backend"]) == set(panel.backends.value) and set(panel.samples["n_steps"]) == {3}
    assert "auto takes cpu" in panel.why.value and "numpy" in panel.standings.value
    assert explorer.progress_bar.text.value.startswith("race: done") and explorer.progress_bar.bar.value == 1000
    code = html.unescape(re.search(r"<pre[^>]*>(.*)</pre>", panel.code.value, re.DOTALL)[1])
    assert "step_s" in printed(code)


@pytest.mark.slow
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
    explorer.target.value, explorer.chosen.value = "width", "drag"
    assert "2 variables are used, the data has drag" in settled(explorer).error.value
    assert "variables: drag" in explorer.columns.value and "speed" not in explorer.columns.value
    explorer.chosen.value = ""
    settled(explorer)
    explorer.data.value = "rough pipe (synthetic)"
    assert settled(explorer).text.value == "p1 * x2 + x1"


def test_a_table_of_one_column_has_a_population_and_a_race():
    explorer = ek.explore("p1 * S", MICHAELIS_MENTEN)
    open_tab(explorer, "Population")
    assert len(explorer.population) > 40 and explorer.population.variables == ("S",) and not explorer.error.value
    panel = explorer.race_panel
    panel.n_points.value, panel.n_steps.value = 7, 2
    panel.run(lambda done, total: True)
    assert set(panel.samples["n_points"]) == {7} and set(panel.samples["n_steps"]) == {2}
    pop, code = generated("the thesis's sample", 9, 1)
    assert printed(f"import exprkit as ek\n{code}\nprint(pop.texts())") == str(pop.texts())


def test_an_upload_says_how_large_a_file_may_be_and_what_to_do_with_a_larger_one(explorer):
    assert "10 MB" in explorer.upload.description and "path" in explorer.upload.tooltip
    content = memoryview(b"a,b\n1,2\n")
    explorer.upload.value = ({"name": "up.csv", "type": "text/csv", "size": len(content), "content": content,
                              "last_modified": datetime.datetime.now(datetime.UTC)},)  # fmt: skip
    assert "variables: a" in settled(explorer).columns.value


def test_data_that_cannot_be_had_leaves_the_old_ones(explorer, monkeypatch):
    def no_network():
        raise DataError("could not be downloaded")

    monkeypatch.setattr(ek.data, "nikuradse", no_network)
    explorer.data.value = "Nikuradse (downloaded)"
    assert "could not be downloaded" in settled(explorer).progress_bar.text.value
    assert explorer.data.value == "rough pipe (synthetic)" and "x1 = r_k" in explorer.columns.value


def test_a_file_that_is_chosen_again_is_read_again(explorer, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,y\n1,2\n2,3\n")
    explorer.data.value, explorer.path.value = "a CSV file", str(path)
    settled(explorer)
    assert "variables: a" in explorer.columns.value
    explorer.data.value = "rough pipe (synthetic)"
    assert "x1 = r_k" in settled(explorer).columns.value
    path.write_text("b,y\n1,2\n2,3\n")
    explorer.data.value = "a CSV file"
    assert "variables: b" in settled(explorer).columns.value
    path.write_text("c,y\n1,2\n2,3\n")
    explorer.read_button.click()
    assert "variables: c" in settled(explorer).columns.value


@pytest.mark.slow
def test_columns_and_target_are_those_of_an_uploaded_file(explorer, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("old,y\n1,2\n2,3\n")
    explorer.data.value, explorer.path.value = "a CSV file", str(path)
    assert "variables: old" in settled(explorer).columns.value
    explorer.text.value = "p1"
    settled(explorer)
    content = memoryview(b"a,b,c\n1,2,3\n2,3,5\n4,1,6\n")
    file = {"name": "up.csv", "type": "text/csv", "size": len(content), "content": content,
            "last_modified": datetime.datetime.now(datetime.UTC)}  # fmt: skip
    explorer.upload.value = (file,)
    assert "variables: a, b" in settled(explorer).columns.value and explorer.path.value == ""
    explorer.chosen.value = "b"
    assert "variables: b<" in settled(explorer).columns.value
    explorer.chosen.value = "bb"
    assert "'bb' is none of a, b, c" in html.unescape(settled(explorer).error.value)
    explorer.chosen.value, explorer.target.value = "", "a"
    assert "variables: b, c" in settled(explorer).columns.value
    explorer.path.value = str(path)
    explorer.target.value = ""
    assert "variables: old" in settled(explorer).columns.value


@pytest.mark.parametrize("source", ["random ones", "the smallest ones"])
def test_reading_can_be_stopped(source):
    panel = PopulationPanel(lambda text, params: None)
    panel.source.value, panel.size.value = source, 2000
    panel.set_points(Points(POINTS))
    bar, seen = panel._progress_bar, []

    def read(progress):
        def press(done, total):
            seen.append((done, total))
            bar.button.click()
            return progress(done, total)

        panel.read_now(press)

    bar.run("reading", read)
    assert bar.wait(SECONDS)
    assert "reading: stopped after" in bar.text.value and panel.table is None and seen


def test_it_starts_with_an_expression_that_fits():
    first = ek.explore()
    values = first.expression(POINTS.X, first.params)
    assert 1 - np.var(POINTS.y - values) / np.var(POINTS.y) > 0.9
    assert "out of sight" not in first.fit_panel.plot.note.get_text()


def test_derivatives_are_written_as_one_writes_them():
    shown = INSPECTORS["Derivatives"](Subject("p1 + p2 / x2"))
    assert shown.content.splitlines()[-1] == r"x2: - \frac{p_{2}}{x_{2}^{2}}"


def test_tab_completes_operators_and_columns_inside_strings_alone():
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell()
    shell.run_line_magic("load_ext", "exprkit")
    shell.user_ns |= {
        "pipes": pd.DataFrame({"speed": [1.0], "speed (m/s)": [2.0]}),
        "more": {"sparse": [1]},
        "n": {"space": 1},
        "ek": ek,
    }

    def offered(code):
        with provisionalcompleter():
            return {one.text for one in shell.Completer.completions(code, len(code))}

    assert offered('ek.fit("p1 * sp') >= {"speed", "`speed (m/s)`", "sparse"}
    assert "space" not in offered('ek.fit("p1 * sp') and "tanh" in offered("x = 1\nek.parse(['x1', 'ta")
    assert "tanh" not in offered('f("x1") + ta') and "tanh" in offered("ek.ta")
