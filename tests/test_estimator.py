"""What a user of the estimator sees beside its formulas: files, checkpoints, displays, errors, text of functions."""

from __future__ import annotations

import io
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import redirect_stderr
from types import SimpleNamespace

import joblib
import numpy as np
import pandas as pd
import pytest
from jupyter_client.manager import start_new_kernel
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

import exprkit as ek
from exprkit.errors import ArgumentError, BackendError, DataError, FileError, PopulationError
from exprkit.regression.estimator import checkpoint, equations, progress
from exprkit.regression.estimator.equations import DescribedFront, selected
from exprkit.regression.formulas.front import Entry
from exprkit.regression.problem.rows import Rows
from exprkit.regression.stages.discovery import Discovery
from exprkit.regression.stages.search_problem import SearchSettings, default_operators
from exprkit.runtime import machine
from exprkit.runtime.budget import Budget
from exprkit.search import state_file

pytestmark = pytest.mark.usefixtures("few_stages")
SMALL = {"niterations": 2, "pool_size": 30}
QUICK = {
    "niterations": 3, "population_size": 40, "pool_size": 300, "maxsize": 12, "random_state": 0,
    "unary_operators": ["sin", "sqrt"],
}  # fmt: skip


def table(n=80, noise=0.05):
    random = np.random.default_rng(0)
    X = pd.DataFrame(random.uniform(0.5, 3, (n, 2)), columns=["log Re (–)", "r_k"])
    return X, 2.5 * X["log Re (–)"] * np.sin(X["r_k"]) + noise * random.standard_normal(n)


def regressor(**settings):
    return ek.SymbolicRegressor(**(QUICK | settings))


def small(**settings):
    return regressor(**(SMALL | settings))


@pytest.fixture(scope="module")
def model():
    return regressor(niterations=1).fit(*table())


def bits(model):
    """All that a search has found."""
    entries = [(e.expression.kinds.tobytes(), e.expression.values.tobytes(), e.loss) for e in model._front.entries]
    return entries, model.n_evals_, model.equations_["equation"].tolist()


# ── a killed search goes on ──

LONG = {"niterations": 13, "population_size": 60, "pool_size": 60}
KILLED = """
import os, signal, sys
from exprkit.regression.estimator import progress
from exprkit.search import state_file
from estimator_checks import few_turns
from exprkit.regression.stages import discovery
from test_estimator import LONG, regressor, table
discovery.ORDER = few_turns()
state_file.EVERY = progress.EVERY = 0.0
state_file.SHARE = float("inf")
def killed(view):
    if view.stage == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGKILL)
regressor(**LONG, checkpoint=sys.argv[1], progress=killed).fit(*table())
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_a_killed_search_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.0)
    path = tmp_path / "search.npz"
    for stage in ("regress", "generation 11"):
        command = [sys.executable, "-c", KILLED, str(path), stage]
        folder = os.path.dirname(__file__)
        done = subprocess.run(command, cwd=folder, env=os.environ | {"PYTHONPATH": os.path.dirname(folder)})
        assert done.returncode == -signal.SIGKILL
    generations = []
    watched = regressor(**LONG, checkpoint=path, progress=lambda view: generations.append(view.generation))
    assert bits(watched.fit(*table())) == bits(regressor(**LONG).fit(*table()))
    assert min(generations) >= 10, "nothing is done twice"
    assert not [name for name in os.listdir(tmp_path) if name != "search.npz"]


@pytest.mark.slow
def test_more_generations_follow_those_of_a_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr(state_file, "EVERY", 0.0)
    monkeypatch.setattr(state_file, "SHARE", np.inf)
    path = str(tmp_path / "search.npz")
    small(checkpoint=path).fit(*table())
    assert bits(small(niterations=6, checkpoint=path).fit(*table())) == bits(small(niterations=6).fit(*table()))


@pytest.mark.slow
def test_without_a_seed_that_of_the_checkpoint_is_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(state_file, "EVERY", 0.0)
    monkeypatch.setattr(state_file, "SHARE", np.inf)
    settings = {"random_state": None, "checkpoint": tmp_path / "search.npz"}
    assert bits(small(**settings).fit(*table())) == bits(small(**settings).fit(*table()))


@pytest.mark.slow
def test_a_checkpoint_of_another_search_is_not_gone_on_with(tmp_path):
    path, (X, y) = tmp_path / "search.npz", table()
    small(checkpoint=path).fit(X, y)
    before = path.read_bytes()
    for target, changed, told in (
        (y + 1, {}, "its data is other data"), (y, {"maxsize": 9}, "its maxsize is 12, not 9"),
        (y, {"random_state": 1}, "its random_state is 0, not 1"),
        (y, {"guesses": ["r_k"]}, r"its guesses is \(\), not \(x2\)"),
        (y, {"pool_size": None}, "its pool_size is 30, not 300000"),
        (y, {"elementwise_loss": "huber(f - y, 2)"}, r"its elementwise_loss is squares, not huber\(f - y, 2\)"),
    ):  # fmt: skip
        with pytest.raises(FileError, match=told):
            small(checkpoint=path, **changed).fit(X, target)
    assert path.read_bytes() == before
    for content in (b"nothing", before[:-50], b""):
        path.write_bytes(content)
        with pytest.raises(FileError, match="not a checkpoint of a search, or it is damaged"):
            small(checkpoint=path).fit(X, y)
    ek.parse(["x1"]).save(path)
    with pytest.raises(FileError, match="not a checkpoint of a search"):
        small(checkpoint=path).fit(X, y)
    with pytest.raises(FileError, match="cannot be written"):
        small(checkpoint=tmp_path / "nowhere" / "search.npz").fit(X, y)
    with pytest.raises(ArgumentError, match=r"checkpoint must be None or the path of a file, not 3\.5"):
        small(checkpoint=3.5).fit(X, y)


def test_settings_are_told_apart_by_all_they_hold_and_by_nothing_else():
    def settings(number=3.0, **others):
        rules = SimpleNamespace(limits={5: (1, None)}, array=np.array([1.0, number]), inner=SimpleNamespace(x="y"))
        return SearchSettings(guesses=[rules], **others)

    def told(some):
        return state_file.as_texts(checkpoint.settings_of_result(vars(some)))

    first = told(settings())
    assert told(settings(niterations=9, threads=3, early_stop=lambda loss, size: True)) == first
    for other in (settings(4.0), settings(seed=1), settings(operators=default_operators()[:3])):
        assert told(other) != first


def test_a_checkpoint_knows_what_was_left_open():
    """A pool's default size and the backend depend on the machine, and the result on them."""
    rows = Rows([[1.0], [2.0]], [3.0, 4.0])
    resolved = Discovery(rows, SearchSettings(backend="auto"), Budget()).resolved
    assert resolved["backend"] in ek.backends() and resolved["pool_size"] >= 300_000
    assert resolved["device"] == "none" or resolved["backend"] in ("cuda", "ptx")


# ── files of models ──


@pytest.mark.slow
def test_a_saved_model_comes_back(model, tmp_path):
    X, _ = table()
    model.save(tmp_path / "model.npz")
    again = ek.load(tmp_path / "model.npz")
    pd.testing.assert_frame_equal(again.equations_, model.equations_)
    assert again.get_params() == model.get_params() and bits(again) == bits(model)
    assert np.array_equal(again.predict(X), model.predict(X)) and again.get_best().equation == model.get_best().equation
    assert list(again.feature_names_in_) == list(X.columns) and again.stopped_ == model.stopped_
    assert ek.Population.load(tmp_path / "model.npz").texts() == model.equations_["equation"].tolist()
    assert "reduction_" in model._repr_html_() and model.reduction_ is model.reduction_
    for without_data in (again, pickle.loads(pickle.dumps(model))):  # a notebook shows them all the same
        assert not hasattr(without_data, "reduction_") and "reduction_" not in without_data._repr_html_()


def test_settings_that_are_no_plain_values_are_saved_as_well_as_can_be(tmp_path):
    X, y = table()
    settings = {"early_stop_condition": lambda loss, size: size > 1, "random_state": np.random.RandomState(0),
                "guesses": [ek.variables(2)[0] * 2], "binary_operators": ("+", "mul"),
                "maxsize": np.int64(9), "checkpoint": tmp_path / "search.npz"}  # fmt: skip
    regressor(**settings).fit(X.to_numpy(), y).save(tmp_path / "model.npz")
    again = ek.load(tmp_path / "model.npz")
    assert again.early_stop_condition is None and again.random_state is None and again.maxsize == 9
    assert again.guesses == ["x1 * 2"] and again.binary_operators == ["+", "mul"]
    assert again.checkpoint == str(tmp_path / "search.npz") and not hasattr(again, "feature_names_in_")


@pytest.mark.parametrize(
    ("name", "array"),
    [("model.floor", np.ones(2)), ("model.loss", np.ones(99)), ("model.settings", np.array("{")),
     ("model.exact", np.array(["a"])), ("model.n_features_in_", np.int64(0)), ("model.numbers", None)],
)  # fmt: skip
def test_a_model_that_is_none_is_told(model, tmp_path, name, array):
    model.save(tmp_path / "model.npz")
    arrays = dict(np.load(tmp_path / "model.npz")) | {name: array}
    np.savez(tmp_path / "bad.npz", **{key: value for key, value in arrays.items() if value is not None})
    with pytest.raises(PopulationError, match=r"bad\.npz"):
        ek.load(tmp_path / "bad.npz")


def test_a_log_says_what_every_step_has_brought(caplog):
    X, y = table()
    with caplog.at_level("INFO", "exprkit"):
        ek.SymbolicRegressor(niterations=0, pool_size=0, maxsize=5, random_state=0).fit(X, y)
    assert any(line.startswith("step begin: ") and "least loss" in line for line in caplog.messages)


def test_load_says_what_is_wrong_with_a_file(tmp_path):
    with pytest.raises(FileError, match=r"nothing\.npz"):
        ek.load(tmp_path / "nothing.npz")
    (tmp_path / "bad.npz").write_bytes(b"PK")
    with pytest.raises(PopulationError, match=r"bad\.npz"):
        ek.load(tmp_path / "bad.npz")
    with pytest.raises(ArgumentError, match="path"):
        ek.load(3.5)


def test_models_are_copied_by_joblib_and_cloned_whatever_they_hold(model, tmp_path):
    X, _ = table()
    joblib.dump(model, tmp_path / "model.joblib")
    assert np.array_equal(joblib.load(tmp_path / "model.joblib").predict(X), model.predict(X))
    settings = {"checkpoint": tmp_path / "a.npz", "progress": print, "early_stop_condition": max, "guesses": ["r_k"]}
    copy = clone(regressor(**settings))
    assert {name: copy.get_params()[name] for name in settings} == settings and not hasattr(copy, "equations_")


# ── functions as text ──


def test_functions_as_text_give_what_the_model_predicts(model):
    X, _ = table()
    for index in (None, 0):
        space: dict = {}
        exec(model.to_numpy(index), space)
        assert space["f"](X) == pytest.approx(model.predict(X, index), rel=1e-12)
    numbers = model.get_best().parameters
    changed = space["f"](X, [7.0] * len(model.equations_["parameters"][0]))
    assert changed == pytest.approx(7.0) and len(numbers) >= 1


@pytest.mark.parametrize("library", ["jax", "torch"])
def test_numbers_of_other_libraries_functions_are_arguments(model, library):
    text = getattr(model, library)()
    assert f"import {library}" in text and "def f(X, params=(" in text and "log Re (–)" in text
    assert all(repr(number) in text for number in model.get_best().parameters)


def test_torch_trains_the_numbers(model):
    torch = pytest.importorskip("torch")
    space: dict = {}
    exec(model.torch(), space)
    X = torch.tensor(table()[0].to_numpy())
    params = torch.nn.Parameter(torch.tensor(model.get_best().parameters, dtype=torch.float64))
    values = space["f"](X, params)
    assert values.detach().numpy() == pytest.approx(model.predict(table()[0]), rel=1e-9)
    values.sum().backward()
    assert params.grad is not None and bool(params.grad.abs().max() > 0)


def test_names_that_are_no_words_are_kept_and_taken_ones_marked():
    X, _ = table()
    X = X.set_axis(["yield %", "sin"], axis=1)
    found = regressor().fit(X, 2 * X["yield %"] / X["sin"])
    assert found.get_best().equation == "2 * `yield %` / `sin`"
    assert {str(symbol) for symbol in found.sympy().free_symbols} == {"yield %", "sin"}
    assert r"\text{yield \%}" in found.latex() and "# yield %" in found.to_numpy()
    again = regressor(guesses=["3 * `yield %` / `sin`"], pool_size=0, niterations=0).fit(X, 2 * X["yield %"] / X["sin"])
    assert again.get_best().equation == found.get_best().equation


def front_of(entries, lengths, expected, exact):
    nothing, poles = np.empty((len(entries), 0)), np.zeros(len(entries), bool)
    return DescribedFront(entries, None, *map(np.array, (lengths, expected, exact)), nothing, nothing, 1e-26, poles)


def test_an_exact_formula_is_selected_only_where_its_numbers_are_fewer_than_the_rows():
    """Eight numbers give any eight rows, so that a formula with them says nothing."""
    entries = [Entry(ek.parse(text)[0], loss, size) for text, loss, size in (("x1", 1.0, 1), ("2 * x1", 1e-30, 3))]
    for lengths, chosen in (([-10.0, 79.0], 0), ([-10.0, -90.0], 1)):
        front = front_of(entries, lengths, [0.0, -100.0], [False, True])
        assert selected(front, "best", 0.0) == selected(front, "mdl", 0.0) == chosen
    assert selected(front, "best", 50.0) == 0


def test_where_no_formula_is_exact_the_one_expected_to_err_least_is_selected():
    entries = [Entry(ek.parse(text)[0], loss, size) for text, loss, size in (("x1", 1.0, 1), ("2 * x1", 0.5, 3))]
    front = front_of(entries, [-9.0, -8.0], [-8.0, -9.0], [False, False])
    assert [selected(front, how, 0.0) for how in ("best", "mdl")] == [1, 0]
    assert selected(front, "best", 1.0) == 0


def test_where_rounding_is_all_that_may_be_left_the_shortest_of_equally_good_formulas_is_selected():
    """1e-11 of y is left by a difference of exponentials, say: no formula of other operations is nearer to it."""
    losses = {"x1": 1.0, "2 * x1": 3e-22, "2 * x1 + 1 / x1": 1e-22}
    entries = [Entry(formula := ek.parse(text)[0], loss, formula.n_tokens) for text, loss in losses.items()]
    front = front_of(entries, [0.0, -90.0, -99.0], [0.0, -90.0, -99.0], [False] * 3)
    assert [selected(front, how, 0.0) for how in ("best", "mdl", "accuracy")] == [1, 2, 2]


# ── what is shown ──


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.slow
def test_a_terminal_shows_a_bar_after_a_while(monkeypatch):
    monkeypatch.setattr(progress, "EVERY", 0.01)
    monkeypatch.setattr(progress, "DELAY", 1000.0)
    small().fit(*table())  # compiles what is missing, and says so
    with redirect_stderr(Terminal()) as shown:
        small().fit(*table())
    assert shown.getvalue() == "", "nobody needs to see a short one"
    monkeypatch.setattr(progress, "DELAY", 0.0)
    with redirect_stderr(Terminal()) as shown:
        small().fit(*table())
    assert re.search(r"(nest|regress|generation \d), loss 0\.\d+: .* of \d+ generations", shown.getvalue())
    with redirect_stderr(Terminal()) as shown:
        small(timeout_in_seconds=60).fit(*table())
    assert re.search(r"\d% ?\|.*\d of 60 s", shown.getvalue()), "of the time"
    with redirect_stderr(io.StringIO()) as shown:
        small().fit(*table())
        small(progress=False).fit(*table())
    assert shown.getvalue() == ""


def test_the_bar_counts_what_ends_the_search():
    """Time, functions tried, or stages before the first generation and generations."""
    rows = Rows(*map(np.asarray, table()))
    timed, counted, free = (Discovery(rows, SearchSettings(niterations=5), budget) for budget in (
        Budget(seconds=1000.0), Budget(max_evals=70), Budget(),
    ))  # fmt: skip
    assert timed.spent[1:] == (1000.0, "s") and 0 <= timed.spent[0] < 100
    counted.search.problem.budget.count(100)
    assert counted.spent == (70, 70, "functions")
    done, total, _ = free.spent
    free.generation = 5
    assert (done, total) == (0, len(free.turns) + 5) and free.spent[0] == 5


IN_A_NOTEBOOK = """
import numpy as np, exprkit as ek
X = np.random.default_rng(0).uniform(0.5, 3, (80, 2))
model = ek.SymbolicRegressor(niterations=10**6, pool_size=30, maxsize=9, random_state=0)
model.fit(X, X[:, 0] + np.random.default_rng(1).standard_normal(80))
print(model.interrupted_, len(model.equations_))
"""


@pytest.mark.slow
def test_a_notebook_shows_a_front_that_grows_and_its_stop_button_ends_the_search(busy):
    """In a real kernel: what is displayed is updated in its place, and an interrupt is answered within a second."""
    folder = os.path.dirname(os.path.dirname(__file__))
    kernel, client = start_new_kernel(kernel_name="python3", env=os.environ | {"PYTHONPATH": folder})
    try:
        request, pages, text, pressed = client.execute(IN_A_NOTEBOOK), [], "", 0.0
        while True:
            message = client.get_iopub_msg(timeout=120)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["header"]["msg_type"], message["content"]
            if kind in ("display_data", "update_display_data") and "text/html" in content["data"]:
                pages.append((kind, content["data"]["text/html"]))
            text += content.get("text", "") if kind == "stream" and content["name"] == "stdout" else ""
            if len(pages) == 3 and not pressed:
                pressed = time.perf_counter()
                kernel.interrupt_kernel()
            if kind == "status" and content["execution_state"] == "idle":
                break
        assert 0 < time.perf_counter() - pressed < 2 * busy()
        is_interrupted, n_formulas = text.split()  # the last fits may leave one that is no better than a shorter one
        assert is_interrupted == "True" and 2 <= int(n_formulas) <= pages[-1][1].count("<code>")
    finally:
        client.stop_channels()
        kernel.shutdown_kernel(now=True)
    front = [page for kind, page in pages if "<code>" in page]
    assert [kind for kind, _ in pages if kind == "update_display_data"] and len(front) >= 2
    assert all("data:image/png;base64," in page for page in front)


@pytest.mark.slow
def test_a_function_sees_the_search_and_ends_it(busy):
    seen = []
    found = regressor(niterations=10**6, progress=lambda view: seen.append(view) or view.generation >= 2)
    begin = time.perf_counter()
    found.fit(*table())
    assert time.perf_counter() - begin < 10 * busy() and found.stopped_ == "it was stopped" and not found.interrupted_
    last = seen[-1]
    assert last.generation >= 2 and last.n_evals > 0 and last.seconds > 0 and last.stage.startswith("generation")
    assert last.complexity == sorted(last.complexity) and len(last.loss) == len(last.equation) == len(last.complexity)
    assert sum(map(len, last.short)) < sum(map(len, last.equation))


THREADS = """
import numpy as np, exprkit as ek
from threadpoolctl import threadpool_info
def n_threads():
    return max(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
X, seen = np.arange(1.0, 9.0)[:, None], []
ek.SymbolicRegressor(niterations=0, max_evals=10, progress=lambda view: seen.append(n_threads())).fit(X, X[:, 0])
print(seen[0], n_threads())
"""


def test_products_of_matrices_keep_to_one_thread():
    """Whose bits would depend on how many there are; what was set before is set again."""
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "2"}
    done = subprocess.run([sys.executable, "-c", THREADS], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "1 2\n"


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("rows", [300, 20_000])
def test_ctrl_c_ends_a_search_within_a_second(rows, busy):
    X = np.random.default_rng(0).uniform(0.5, 3, (rows, 5))
    y = np.random.default_rng(9).standard_normal(rows)
    regressor().fit(X[:100], y[:100])  # its loops are compiled
    for after in (0.2, 0.9, 2.3):
        pressed = []

        def press(pressed=pressed):
            pressed.append(time.perf_counter())
            os.kill(os.getpid(), signal.SIGINT)

        timer = threading.Timer(after * busy(), press)
        timer.start()
        found = ek.SymbolicRegressor(niterations=10**6).fit(X, y)
        took = time.perf_counter() - pressed[0]
        assert took < 1.5 * busy()
        assert found.interrupted_ and len(found.equations_) >= 1 and found.predict(X[:3]).shape == (3,)


# ── errors ──


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"elementwise_loss": "mse"}, "not 'mse'; did you mean 'squares'?"),
        ({"elementwise_loss": "L1DistLoss()"}, "did you mean 'mae'?"),
        ({"model_selection": "acuracy"}, "did you mean 'accuracy'?"),
        ({"guesses": ["r_q + 1"]}, "unknown name 'r_q'; did you mean 'r_k'?"),
        ({"guesses": ["p1 * r_k"]}, "guesses: p1, p2, … have no values"),
        ({"progress": "yes"}, "progress must be None, True, False or a function of a SearchView, not 'yes'"),
        ({"n_jobs": 0}, "n_jobs must be a whole number from 1 to 4,096, not 0"),
        ({"parsimony": "low"}, "parsimony must be a number, not 'low'"),
        ({"max_evals": True}, "max_evals must be None or a positive number, not True"),
        ({"early_stop_condition": "f(l, c) = l < 1"}, r"must be a number or a function of \(loss, complexity\)"),
    ],
)
def test_a_wrong_setting_says_what_was_meant(wrong, message):
    with pytest.raises((ArgumentError, DataError, ValueError), match=message.replace("?", r"\?")):
        regressor(**wrong).fit(*table())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_iterations": 3}, "SymbolicRegressor has no parameter 'n_iterations'; did you mean 'niterations'?"),
        ({"timeout": 3}, "did you mean 'timeout_in_seconds'?"),
        ({"populations": 3}, "has no parameter 'populations'; did you mean 'population_size'?"),
        ({"warm_start": "yes"}, "warm_start must be True or False, not 'yes'"),
        ({"dimensionless_constants_only": 1}, "dimensionless_constants_only must be True or False, not 1"),
        ({"parsimony": np.nan}, "parsimony must be a number, not nan"),
        ({"verbosity": "loud"}, "verbosity must be a whole number >= 0, not 'loud'"),
        ({"optimizer_iterations": 8}, "has no parameter 'optimizer_iterations'; leave it out"),
        ({"pop_size": 8}, "did you mean 'population_size'?"),
        ({"weights": [1]}, "has no parameter 'weights'; fit(X, y, sample_weight=…) takes them"),
        ({"denoise": True}, "SymbolicRegressor has no parameter 'denoise'; did you mean 'noise'?"),
        ({"binary_operators": ["<>"]}, "binary_operators: there is no operator '<>'"),
        ({"unary_operators": ["wobble"]}, "unary_operators: there is no operator 'wobble'"),
        ({"unary_operators": ["sec"]}, "no operator 'sec'; 'sec(a) = inv(cos(a))' in its place defines one"),
        ({"unary_operators": ["sinc"]}, "no operator 'sinc'; 'sinc(a) = cond(abs(a), sin(pi * a)"),
        ({"guesses": 3}, "guesses must be a list of formulas, not 3"),
        ({"guesses": ["r_k +"]}, "guesses: "),
        ({"guesses": ["r_k + sin(r_k) + cos(r_k) * sin(exp(r_k)) + 1 / r_k"]}, "maxsize=12 allows fewer"),
        ({"backend": "gpu"}, "there is no backend 'gpu'"),
        ({"niterations": 1.0}, "niterations must be a whole number >= 0, not 1.0"),
    ],
)
def test_a_parameter_that_is_none_is_told_before_anything_begins(wrong, message):
    with pytest.raises((ValueError, BackendError), match=re.escape(message)):
        regressor(**wrong).fit(*table(20))


def test_there_are_as_few_parameters_as_can_be_read_at_once():
    assert len(ek.SymbolicRegressor().get_params()) <= 36  # the last two are those of templates


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_a_search_does_not_depend_on_units(scale):
    X, y = table(noise=0)
    X = X.to_numpy()
    model = small().fit(X * scale, 3 * X[:, 0] / X[:, 1] / scale)
    assert model.predict(X * scale) * scale == pytest.approx(3 * X[:, 0] / X[:, 1], rel=1e-9)
    assert model.get_best().complexity == 5
    with pytest.raises(DataError, match=r"y is up to .*, and the squares of such numbers can not be added up"):
        small().fit(X, y * scale**9)


def test_what_carries_no_information_gives_the_mean():
    X, y = table(20)
    for rows, target, value in ((X[:1], y[:1], y[0]), (X, 0 * y + 7, 7.0), (0 * X + 2, y, y.mean())):
        model = small().fit(rows, target)
        assert len(model.equations_) == 1 and model.predict(rows) == pytest.approx(value)


def test_limits_that_are_tiny_leave_a_model_that_predicts():
    X, y = table()
    for limits, said in (({"timeout_in_seconds": 1e-9}, "1e-09 s are over"), ({"max_evals": 1}, "were tried")):
        model = regressor(**limits).fit(X, y)
        assert said in model.stopped_ and model.predict(X).shape == y.shape


def test_a_search_without_time_is_no_worse_than_a_linear_regression():
    random = np.random.default_rng(0)
    X = random.uniform(-2, 2, (200, 3))
    y = X @ [1.0, 2.0, 3.0] + 4 + 0.1 * random.standard_normal(200)
    for limits in ({"timeout_in_seconds": 1e-9}, {"max_evals": 1}):
        model = regressor(maxsize=20, **limits).fit(X, y)
        assert model.score(X, y) > 0.999 and model.get_best().complexity <= 17
    assert regressor(maxsize=20, binary_operators=["*"], max_evals=1).fit(X, y).score(X, y) < 0.9
    assert regressor(max_evals=1).fit(X, y).score(X, y) < 0.9, "more tokens than maxsize=12"


@pytest.mark.parametrize("method", ["predict", "latex", "sympy", "to_numpy", "jax", "torch", "plot_front", "save"])
def test_what_is_not_fitted_says_so(method):
    with pytest.raises(NotFittedError):
        getattr(small(), method)(*([table()[0]] if method in ("predict", "save") else []))


def test_a_function_as_text_runs_where_exprkit_is_not(model, tmp_path):
    X, _ = table(5)
    code = f"{model.to_numpy(-1)}\nimport sys\nprint(*f({X.to_numpy().tolist()}), 'exprkit' in sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    *values, is_there = done.stdout.split()
    assert np.array(values, float) == pytest.approx(model.predict(X, -1), rel=1e-12) and is_there == "False"


def test_numbers_are_rounded_as_asked_and_are_none_where_they_are_1():
    formula = ek.parse("0.9977 * x1 / x2 + 0.00312")[0]
    assert equations.rounded(formula, 2).latex() == r"\frac{x_{1}}{x_{2}} + 0.0031"
    for wrong in (0, "x", 2.5):
        with pytest.raises(ArgumentError, match="precision must be a whole number"):
            equations.rounded(formula, wrong)


@pytest.mark.parametrize("method", ["sympy", "latex", "latex_table", "to_numpy", "jax", "torch", "get_best"])
def test_what_is_no_row_is_refused_and_any_whole_number_is_one(model, method):
    n = len(model.equations_)
    assert str(getattr(model, method)(np.int64(1))) == str(getattr(model, method)(1 - n))
    for wrong in (n, -n - 1, 0.0, "0", True):
        with pytest.raises(ArgumentError, match=rf"index must be a whole number from -{n} to {n - 1}, not"):
            getattr(model, method)(wrong)


def test_only_axes_are_drawn_into(model):
    for wrong in ("x", 1):
        with pytest.raises(ArgumentError, match=r"ax must be axes of Matplotlib, as plt.subplots\(\) gives them, not"):
            model.plot_front(ax=wrong)


@pytest.mark.slow
def test_a_loss_is_a_parameter_of_a_grid():
    X, y = table(40)
    grid = GridSearchCV(small(niterations=0), {"elementwise_loss": ["mae", "logcosh(f - y)"]}, cv=2)
    assert grid.fit(X, y).best_score_ > 0 and grid.best_estimator_.elementwise_loss in ("mae", "logcosh(f - y)")


def test_a_single_guess_need_not_be_a_list():
    X, y = table()
    found = regressor(guesses="2 * `log Re (–)` * sin(r_k)", pool_size=0, niterations=0).fit(X, y)
    assert found.score(X, y) > 0.99


@pytest.mark.slow
def test_a_warm_start_wants_the_same_columns(model):
    X, y = table()
    again = regressor(warm_start=True, n_jobs=-1).fit(X, y)
    with pytest.raises(ArgumentError, match="warm_start: the last fit was of 2 columns, X has 1"):
        again.fit(X[["r_k"]], y)


def test_a_search_takes_n_jobs_threads():
    seen = set()
    small(n_jobs=3, progress=lambda view: seen.add(machine.cores())).fit(*table())
    assert seen == {3}
