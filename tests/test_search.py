"""Exhaustive search: what it finds, ranks, keeps and shows; and that nothing depends on how it is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from description_reference import Expression, told

import exprkit as ek
from exprkit.errors import ArgumentError, DataError, FileError, ParseError, PopulationError
from exprkit.evaluate.loss_text import Composition
from exprkit.fitting.description_length import DescriptionLength
from exprkit.search.distinct import Enumeration
from exprkit.search.fingerprints import fingerprints
from exprkit.search.run import SearchBar, SearchRun

x = np.linspace(0.5, 3, 30)
X = x[:, None]
Y = 2 / x + 0.3 + 0.01 * np.random.default_rng(0).standard_normal(30)


def search(X=X, y=Y, max_nodes=5, **options):
    return ek.exhaustive_search(X, y, max_nodes=max_nodes, progress=False, **options)


@pytest.fixture(scope="module")
def found():
    return search()


def same(a, b):
    columns = all(np.array_equal(a.columns[name], b.columns[name], equal_nan=True) for name in a.columns)
    arrays = [np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True) for name in
              ("params", "errors", "on_front", "counts")]  # fmt: skip
    return (
        columns
        and all(arrays)
        and a.pop == b.pop
        and (a.n_functions, a.n_evaluations) == (b.n_functions, b.n_evaluations)
    )


# ── what it finds ──


LAWS = [
    ("p1 / (x1 + p2)", 1, [1.7, 0.8]), ("p1 * powabs(x1, p2)", 1, [1.3, 1.6]), ("p1 + p2 / x1", 1, [0.4, 2.2]),
    ("p1 * powabs(p2, x1)", 1, [0.8, 1.9]), ("sqr(x1) + p1 * x2", 2, [1.4]), ("x1 / (x2 + p1)", 2, [1.1]),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("law", "n_vars", "params"), LAWS, ids=[law for law, *_ in LAWS])
def test_a_law_with_a_hundredth_of_noise_is_first(law, n_vars, params):
    random = np.random.default_rng(len(law))
    points = random.uniform(0.5, 4, (100, n_vars))
    pop = ek.parse(law)
    y = ek.Evaluator(pop, points, "numpy", dtype="float64").evaluate([params])[0]
    result = search(points, y + 0.01 * y.std() * random.standard_normal(100), pop.n_tokens[0])
    assert np.array_equal(fingerprints(result.pop[:1]), fingerprints(pop))


def test_missing_values_are_left_out_if_asked():
    gap = X.copy()
    gap[3] = np.nan
    kept, sigma = np.arange(len(x)) != 3, np.linspace(0.01, 0.02, len(x))
    expected = search(X[kept], Y[kept], 3, sigma=sigma[kept])
    for table in (gap, {"x1": gap[:, 0]}):
        one = search(table, Y, 3, sigma=sigma, missing="drop")
        assert one.equations["text"].tolist() == expected.equations["text"].tolist()
        np.testing.assert_array_equal(one.params, expected.params)
    with pytest.raises(DataError, match="lacks 1 of 30 values"):
        search(gap, Y, 3)
    with pytest.raises(ArgumentError, match="columns= would keep them"):
        search(gap, Y, 3, loss="((f - y) / s)^2", columns={"s": sigma}, missing="drop")


def test_a_function_stands_there_once(found):
    keys = fingerprints(found.pop)
    assert len(np.unique(keys[:, 0])) == len(found)


def test_best_losses_are_found_twice(found):
    n_params = found.pop.n_params
    assert (found.columns["times"][n_params > 0] >= 2).mean() > 0.95
    assert found.n_functions == found.counts[:, 3].sum()


def test_what_tells_the_data_exactly_is_first():
    result = search(y=2 / x)
    assert result.texts()[0] in ("p1 / x1", "inv(x1) + inv(x1)", "inv(x1 / p1)")


# ── description lengths ──


@pytest.mark.parametrize(("loss", "sigma"), [("gaussian", None), ("gaussian", 0.05), ("poisson", None)])
def test_terms_agree_with_mpmath(loss, sigma):
    """Residuals and parameters of the best, computed by none of exprkit's arithmetic."""
    y = np.round(20 * Y) if loss == "poisson" else Y
    sigmas = None if sigma is None else np.full(30, sigma)
    result = search(y=y, loss=loss, sigma=sigmas)
    weights = None if sigma is None else 1 / sigmas**2
    compared = 0
    for i in range(len(result)):
        params = result.params[i, : result.pop.n_params[i]]
        if compared == 10 or (params == 0).any():  # what was set to 0 is no maximum of the whole expression
            continue
        residuals, nats, close = told(Expression(result.pop, i, X, y, weights, loss), params)
        if close < 1e-3:
            continue
        assert result.loss[i] == pytest.approx(float(residuals), rel=1e-9, abs=1e-7)
        assert result.columns["parameters"][i] == pytest.approx(float(nats), rel=1e-4, abs=1e-4)
        compared += 1
    assert compared == 10
    assert np.allclose(result.columns["function"], DescriptionLength.of_functions(result.pop))
    parts = result.loss + result.columns["parameters"] + result.columns["function"]
    assert np.allclose(parts[np.isfinite(parts)], result.total[np.isfinite(parts)])


def test_parameters_of_less_than_a_step_are_0_and_the_rest_is_fitted_again():
    y = 2 / x + 0.3 * np.random.default_rng(1).standard_normal(30)
    result = search(y=y)
    rows = np.flatnonzero(((result.params == 0).sum(axis=1) == 1) & (result.pop.n_params == 2))
    assert len(rows)
    for i in rows[:5].tolist():
        zero = int(np.argmax(result.params[i] == 0))
        bounds = tuple(np.where(np.arange(2) == zero, 0.0, side) for side in (-np.inf, np.inf))
        again = ek.fit(
            result.pop[i : i + 1], X, y, loss="gaussian", dtype="float64", init=[result.params[i]], bounds=bounds
        )
        assert result.loss[i] == pytest.approx(again.loss[0], abs=1e-5)
    assert (np.abs(result.params[np.isfinite(result.params)]) >= 0).all()


# ── nothing depends on how it is run ──


def test_neither_chunks_nor_threads_matter(found):
    assert same(found, search(chunk=17, threads=1))
    assert same(found, search(chunk=50, threads=2))


def test_an_ended_search_goes_on_where_it_was(found, tmp_path, monkeypatch):
    path, chunks = tmp_path / "search.npz", []
    fit_chunk = SearchRun.fit_chunk

    def fitted(self, check, chunk):
        chunks.append(len(chunk.functions))
        if len(chunks) == 5:
            raise KeyboardInterrupt
        return fit_chunk(self, check, chunk)

    monkeypatch.setattr(SearchRun, "fit_chunk", fitted)
    ended = search(chunk=20, file=path)
    assert ended.stopped == "it was interrupted" and 0 < ended.n_functions < found.n_functions
    monkeypatch.setattr(SearchRun, "fit_chunk", fit_chunk)
    whole = search(chunk=31, file=path)
    assert same(whole, found) and whole.stopped == ""
    begin = whole.seconds
    assert same(search(file=path), found) and begin >= 0


SEARCHING = """
import sys
import numpy as np
import exprkit as ek
from exprkit.search import state_file
state_file.EVERY = 0.0
state_file.SHARE = float("inf")
X, y = np.load(sys.argv[1])
ek.exhaustive_search(X[:, None], y, max_nodes=5, chunk=10, file=sys.argv[2], progress=False)
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_killed_search_goes_on_where_it_was(found, tmp_path):
    path, data = tmp_path / "search.npz", tmp_path / "data.npy"
    np.save(data, [x, Y])
    process = subprocess.Popen([sys.executable, "-c", SEARCHING, data, path], cwd=Path(ek.__file__).parents[1])
    while not path.exists():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert 0 < len(np.load(path)["state.functions"]) < found.n_functions
    assert same(search(file=path), found)


def test_a_file_of_another_search_is_not_gone_on_with(tmp_path):
    path = tmp_path / "search.npz"
    search(max_nodes=2, file=path)
    for other in ({"y": Y + 1}, {"max_nodes": 3}, {"seed": 1}, {"link": "sqrt"}):
        with pytest.raises(FileError, match="the checkpoint of another search: its"):
            search(**{"max_nodes": 2, "file": path, **other})
    path.write_bytes(b"nothing")
    with pytest.raises(FileError, match="damaged"):
        search(max_nodes=2, file=path)


def test_time_and_memory_end_a_search_with_what_it_has():
    assert search(timeout=1e-3).stopped == "0.001 s are over"
    few = search(max_nodes=9, max_memory=1e6)
    assert few.stopped == "1 MB are taken"


def test_a_search_without_end_is_refused_with_numbers_unless_something_ends_it():
    with pytest.raises(ArgumentError) as error:
        search(max_nodes=40, operators="esr", threads=2)
    assert re.search(r"max_nodes=40 there are some 8e\+33 expressions: .* at least 5e\+18 years", str(error.value))
    named = re.search(r"max_nodes=(\d+) are", str(error.value))[1]
    assert search(max_nodes=40, operators="esr", timeout=0.5).stopped == "0.5 s are over"
    assert 10 <= int(named) <= 14


def test_what_is_known_of_fits_counts_as_memory(monkeypatch):
    """Where the functions themselves took nothing."""
    monkeypatch.setattr(Enumeration, "n_bytes", 0)
    few = search(max_nodes=5, max_memory=5000, chunk=16)
    assert few.stopped == "0.005 MB are taken" and 0 < few.n_functions < search(max_nodes=5).n_functions


def test_only_the_best_and_the_front_are_kept(found):
    few = search(keep=3)
    assert few.texts()[:3] == found.texts()[:3]
    assert len(few) <= 3 + few.on_front.sum()
    assert few.front()["text"].tolist() == found.front()["text"].tolist()


# ── links, weights, names ──


@pytest.mark.slow
def test_a_link_stands_between_expressions_and_data(found):
    linked = search(y=np.sqrt(Y), link="sqrt")
    assert linked.texts()[0] == found.texts()[0] and linked.link == "sqrt(f)"
    assert linked.predict(X, 0) == pytest.approx(np.sqrt(Y), rel=0.02)
    again = search(y=np.sqrt(Y), link="sqrt(f)")
    assert same(linked, again)
    scaled = search(y=2 * Y + 1, link="1 + 2 * f")
    assert scaled.params[0] == pytest.approx(found.params[0], rel=1e-6)


def test_a_link_may_name_the_expression_twice(found):
    linked_twice = search(y=Y * np.exp(Y), link="f * exp(f)", max_nodes=5)
    assert linked_twice.texts()[0] == found.texts()[0]
    assert linked_twice.params[0] == pytest.approx(found.params[0], rel=0.05)
    assert linked_twice.predict(X, 0) == pytest.approx(Y * np.exp(Y), rel=0.1)


def test_links_are_put_around_every_expression():
    pop = ek.parse(["x1 + p1", "x2", "x1 / x2 * p2"])
    assert Composition.under_link(pop, "2 * sqrt(f) - 1").texts() == [f"2 * sqrt({text}) - 1" for text in pop.texts()]
    assert Composition.under_link(pop, "f") is pop


def test_sigma_is_the_weights_root():
    sigma = np.linspace(0.005, 0.02, 30)
    assert same(search(sigma=sigma, max_nodes=3), search(weights=1 / sigma**2, max_nodes=3))


def test_columns_give_variables_their_names():
    table = pd.DataFrame({"depth": x, "speed": 1 / x})
    result = search(table, 3 * x + 0.001 * np.sin(x * 99), 3)
    assert result.texts()[0] in ("depth * p1", "p1 / speed")
    assert result.predict(table, 0) == pytest.approx(3 * x, rel=1e-2)
    with_target = search(table.assign(time=3 * x + 0.001 * np.sin(x * 99)), "time", 3)
    assert same(with_target, result)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"loss": "mea"}, ArgumentError, "did you mean|gaussian"), ({"link": "f + g"}, ParseError, "unknown name 'g'"),
        ({"link": "f - y"}, ArgumentError, "f alone"), ({"timeout": -1}, ArgumentError, "timeout must be"),
        ({"loss": "mae", "rank": "description_length"}, ArgumentError, "no likelihood"),
        ({"rank": "aic"}, ArgumentError, "rank must be"),
        ({"loss": "abs(f - y)", "rank": "description_length"}, ArgumentError, "no second derivative"),
        ({"loss": "(f - z)^2"}, ParseError, "unknown name 'z'"), ({"loss": "y^2"}, ArgumentError, "depend on f"),
        ({"loss": "mae", "columns": {"z": x}}, ArgumentError, "columns"),
        ({"loss": "(f - z)^2", "columns": {"z": x[:7]}}, DataError, "z"),
        ({"keep": 0}, ArgumentError, "keep must be"), ({"X": X[:0], "y": Y[:0]}, DataError, "no points"),
        ({"X": {"a": x, "site": ["u"] * len(x)}}, DataError, "column 'site' of X must hold real numbers"),
        ({"X": X[:, :0]}, DataError, "no columns"), ({"sigma": [1, 2]}, DataError, "sigma must have shape"),
        ({"weights": 0 * x}, DataError, "all weights are 0"), ({"weights": -x}, DataError, "not negative"),
        ({"loss": np.square}, ArgumentError, "not a function"), ({"y": "speed"}, DataError, "X has no columns"),
        ({"sigma": np.ones(30), "weights": np.ones(30)}, ArgumentError, "one of"),
        ({"sigma": np.zeros(30)}, ArgumentError, "sigma must be > 0"), ({"y": Y[:7]}, DataError, "y"),
        ({"X": x}, DataError, "X must have shape"), ({"operators": "core"}, ArgumentError, "core_maths"),
        ({"file": 3.5}, ArgumentError, "file must be"), ({"dtype": "float16"}, DataError, "dtype"),
        ({"y": np.full(30, np.nan)}, DataError, "y lacks 30"), ({"backend": "gpu"}, Exception, "backend"),
    ],
)  # fmt: skip
def test_bad_arguments_end_it_before_it_begins(options, error, message):
    with pytest.raises(error, match=message):
        search(**options)


# ── other losses ──

OUTLIERS = Y + np.where(np.arange(30) % 9 == 4, 0.5, 0.0)


@pytest.mark.parametrize(
    ("text", "named", "factor"),
    [("2 * (f - y)^2", {"loss": "squares"}, 2), ("abs(f - y) / s", {"loss": "mae"}, 60),
     ("huber(f - y, 0.02)", {"loss": "huber", "delta": 0.02}, 1)],
)  # fmt: skip
def test_a_loss_is_ranked_by_its_value(text, named, factor):
    columns = {"s": np.full(30, 0.5)} if "s" in text else None
    own, other = search(y=OUTLIERS, loss=text, columns=columns, max_nodes=4), search(y=OUTLIERS, max_nodes=4, **named)
    assert own.texts()[:5] == other.texts()[:5] and own.rank == other.rank == "loss"
    assert own.loss[:5] == pytest.approx(factor * other.loss[:5], rel=1e-6)
    assert np.array_equal(own.total, own.loss) and (np.diff(own.loss[:20]) > -1e-3 * own.loss[1:20]).all()
    assert np.isnan(own.probability).all() and np.isnan(own.columns["parameters"]).all()
    assert own.front()["loss"].is_monotonic_decreasing


def test_a_text_may_be_the_likelihood():
    """Normal errors written out are those of sigma, but for what does not depend on the function."""
    sigma = np.linspace(0.005, 0.02, 30)
    options = {"columns": {"s": sigma}, "rank": "description_length", "max_nodes": 4}
    text, named = search(loss="((f - y) / s)^2 / 2", **options), search(sigma=sigma, max_nodes=4)
    assert text.texts() == named.texts()
    constant = np.sum(np.log(2 * np.pi * sigma**2)) / 2
    finite = np.isfinite(named.total)
    assert text.total[finite] + constant == pytest.approx(named.total[finite], rel=1e-9)
    assert text.params[:9] == pytest.approx(named.params[:9], rel=1e-6, nan_ok=True)


def test_what_no_sum_of_squares_can_hold_is_refused_by_name():
    x = np.linspace(1, 2, 20)
    endless = np.where(x == x[3], np.inf, x)
    for X, name in (({"a": x, "b c": endless}, "'b c'"), (endless[:, None], "x1")):
        with pytest.raises(DataError, match=f"column {name} of X is infinite in 1 of 20 values: drop those rows"):
            ek.exhaustive_search(X, 2 / x, max_nodes=3, progress=False)
    found = ek.exhaustive_search({"a": endless}, 2 / x, max_nodes=3, progress=False, weights=np.isfinite(endless) * 1e6)
    assert found.texts()[0] == "p1 / a"
    for scale in (1e-200, 1e200):
        with pytest.raises(DataError, match=r"the squares of such numbers can not be added up: search for y / 1e"):
            ek.exhaustive_search({"a": x}, 2 / x * scale, max_nodes=3, progress=False)


@pytest.mark.slow
def test_heavy_tails_find_the_law_that_normal_errors_miss():
    """Student's t of three degrees of freedom; parameters by the second derivatives of that."""
    sigma, y = 0.01, OUTLIERS
    text = "2 * log(1 + ((f - y) / 0.01)^2 / 3)"
    result = search(y=y, loss=text, rank="description_length", operators=["add", "div"], n_params=2, restarts=31)
    i = result.texts().index("p1 / x1 + p2")
    assert i == 0

    def told(p):
        return np.sum(2 * np.log(1 + ((p[0] / x + p[1] - y) / sigma) ** 2 / 3))

    p, h = result.params[0], 1e-5
    curves = [(told(p + h * e) - 2 * told(p) + told(p - h * e)) / h**2 for e in np.eye(2)]
    nats = np.sum(np.log(np.abs(p)) + np.log(curves) / 2 - np.log(3) / 2)
    assert result.loss[0] == pytest.approx(told(p), rel=1e-9)
    assert result.columns["parameters"][0] == pytest.approx(nats, rel=1e-4)
    assert p == pytest.approx([2, 0.3], abs=0.02)
    least = search(y=y, operators=["add", "div"], n_params=2)
    assert np.abs(least.params[least.texts().index("p1 / x1 + p2")] - [2, 0.3]).max() > 0.03


def test_losses_are_kept_apart_in_files(tmp_path):
    path, text = tmp_path / "search.npz", "huber(f - z, 0.1)"
    options = {"loss": text, "max_nodes": 2, "file": path}
    first = search(columns={"z": Y}, **options)
    assert same(first, search(columns={"z": Y}, **options)) and first.loss_name == text
    for other in ({"columns": {"z": Y + 1}}, {"columns": {"z": Y}, "rank": "description_length"}):
        with pytest.raises(FileError, match="the checkpoint of another search: its"):
            search(**{**options, **other})
    first.save(tmp_path / "found.npz")
    assert ek.load(tmp_path / "found.npz").rank == "loss"


# ── the result ──


def test_the_table_has_all_columns(found):
    table = found.equations
    assert len(table) == len(found) and table["probability"].sum() == pytest.approx(1)
    assert set(table) >= {"text", "size", "loss", "parameters", "function", "total", "forms", "p1", "p1_error", "latex"}
    assert (np.diff(np.round(table["total"], 1)) >= -0.11).all()
    front = found.front()
    assert (front["size"].diff().dropna() > 0).all() and (front["loss"].diff().dropna() < 0).all()
    assert table.loc[front.index, "text"].tolist() == front["text"].tolist()
    assert found.texts()[0] in repr(found) and "<table" in found._repr_html_()


@pytest.mark.parametrize("link", [None, "sqrt"])
def test_a_function_with_its_numbers(found, link):
    result = found if link is None else search(y=np.sqrt(Y), max_nodes=5, link=link)
    one = result[0]
    assert np.array_equal(one(X), result.predict(X)) and one.loss == result.loss[0]
    assert one.r2 == pytest.approx(1 - np.sum((result.y - one(X)) ** 2) / np.sum((result.y - result.y.mean()) ** 2))
    assert ("sqrt" in str(one)) == (link is not None) and np.array_equal(ek.parse(str(one))[0](X), one(X))
    assert one.latex(errors=True).count(r"\pm") == len(one.params) == 2
    assert len(list(result)) == len(result) and str(result[-1]) == str(result[len(result) - 1])
    assert one.plot().axes
    for wrong in (len(result), slice(2), "a"):
        with pytest.raises(ArgumentError, match="there is no function"):
            result[wrong]


def test_figures_are_drawn(found):
    assert len(found.plot_front().axes) == 1
    assert len(found.plot_best(2).axes) == 2
    assert found.plot_best(1).legends[0].get_texts()[1].get_text() == "2 / x1 + 0.297"
    assert found.plot_best().axes[1].get_ylabel() == "y - f"
    two = search({"a (m)": x, "b $": x[::-1]}, x + 2 * x[::-1], 3)
    above = two.plot_best(2).axes[0]
    assert np.allclose(above.lines[1].get_xdata(), two.predict(two.X))
    assert "`" not in above.figure.legends[0].get_texts()[1].get_text()
    assert two.plot_best(variable=1).axes[1].get_xlabel() == "b $"
    for result, options, message in ((found, {"n": 0}, "n must be"), (two, {"variable": 2}, "no variable 2 among 2")):
        with pytest.raises(ArgumentError, match=message):
            result.plot_best(**options)


def test_results_are_kept_in_files(found, tmp_path):
    found.save(tmp_path / "found.npz")
    again = ek.SearchResult.load(tmp_path / "found.npz")
    assert same(found, again) and same(found, ek.load(tmp_path / "found.npz")) and repr(again) == repr(found)
    found.to_csv(tmp_path / "found.csv")
    assert pd.read_csv(tmp_path / "found.csv")["text"].tolist() == found.texts()
    arrays = dict(np.load(tmp_path / "found.npz"))
    for name in ("found.params", "found.columns.loss", "found.counts"):
        np.savez(tmp_path / "bad.npz", **arrays | {name: np.ones(3)})
        with pytest.raises(PopulationError, match=r"bad\.npz.* where"):
            ek.load(tmp_path / "bad.npz")
    np.savez(tmp_path / "bad.npz", a=1)
    with pytest.raises(FileError, match=r"is not a file of exprkit's, or it is damaged: it has no checksums"):
        ek.load(tmp_path / "bad.npz")
    (tmp_path / "bad.npz").write_bytes(b"PK")
    with pytest.raises(FileError, match="is not a result of a search"):
        ek.SearchResult.load(tmp_path / "bad.npz")
    with pytest.raises(ArgumentError, match="no function 10000"):
        found.predict(X, 10_000)


def test_progress_is_shown(capsys, monkeypatch):
    totals, size = [], SearchBar.size

    def observed(bar, *given):
        size(bar, *given)
        totals.append(bar._bar.total)

    monkeypatch.setattr(SearchBar, "size", observed)
    found = ek.exhaustive_search(X, Y, max_nodes=3)
    assert totals == [found.counts[:, 1].sum()] * 3  # the end is that of the whole search, from the first size on
    shown = capsys.readouterr().err
    assert "nats" in shown and "3 of 3 nodes: 100%" in shown


def test_a_log_says_what_a_search_does(caplog):
    with caplog.at_level("INFO", "exprkit"):
        ek.exhaustive_search(X, Y, max_nodes=3, progress=False)
    said = "\n".join(caplog.messages)
    assert all(f"{size} nodes: " in said for size in (1, 2, 3)) and "fits on '" in said
