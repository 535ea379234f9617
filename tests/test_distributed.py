"""Several devices: the same bits as one, whoever computes what, dies, hangs or runs out of memory."""

from __future__ import annotations

import _thread
import functools
import gc
import itertools
import os
import queue
import signal
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from emulated_device import EmulatedDevice, compiler

import exprkit as ek
from exprkit.backends import load, objective
from exprkit.backends.gpu import device as gpu
from exprkit.errors import (
    ArgumentError,
    BackendError,
    DamagedFileError,
    DataError,
    MissingError,
    NoSuchFileError,
    ParseError,
)

distributed = pytest.importorskip("distributed", reason="pip install 'exprkit[distributed]'")
import dask  # noqa: E402  it comes with it

from exprkit.distributed import collect, engine, rows, sharing, tasks, threads, workers  # noqa: E402  they import what may be missing
from exprkit.regression.pairs import join  # noqa: E402
from exprkit.regression.shapes import curves  # noqa: E402
from exprkit.search import best_fits as search_fits  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
RESULTS = ("params", "loss", "status", "iterations", "r2", "at_bound")
PLANES = [("loss", True), ("evaluate", False), ("jacobian", False), ("normal_equations", True), ("loss_and_grad", True)]


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes, which their nannies start again when they die."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=60
    ) as made, distributed.Client(made, set_as_default=False) as client:  # fmt: skip
        yield client


@pytest.fixture
def many(monkeypatch):
    """However short the work is, it is cut."""
    monkeypatch.setattr(engine, "LEAST", 1e-9)
    monkeypatch.setattr(engine, "LEAST_HERE", 1e-9)
    monkeypatch.setattr(engine, "STOLEN", 1e-9)
    monkeypatch.setattr(engine, "LOCKED", 1e-9)


def sample(n=300, seed=0, points=700):
    """A population with duds, parameters for it, and data."""
    rng = np.random.default_rng(seed)
    texts = ek.generate.random(n, (3, 20), ["+", "*", "/", "exp"], 2, n_params=3, seed=seed).texts()
    texts[5:5] = ["x1 +", "p1 * x1 ^ p2"]
    pop = ek.parse(texts, errors="mask")
    X = rng.uniform(0.5, 3, (points, 2))
    return pop, rng.normal(size=(len(pop), pop.max_params)), X, 2 * X[:, 0] / (1 + X[:, 1])


def same(one, other):
    """Whether arrays or tuples of them are equal bit by bit."""
    one, other = (found if isinstance(found, tuple) else (found,) for found in (one, other))
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(one, other, strict=True))


def same_fits(one, other):
    return all(same(getattr(one, name), getattr(other, name)) for name in RESULTS)


# ── the same bits ──


@pytest.mark.slow
def test_every_result_is_that_of_one_device(many):
    pop, params, X, y = sample()
    one, several = ek.Evaluator(pop, X, "cpu"), ek.Evaluator(pop, X, "cpu", devices=3)
    sets = np.stack([params, 1 - params])
    for name, has_target in PLANES:
        arguments = (sets, y) if has_target else (sets,)
        assert same(getattr(one, name)(*arguments), getattr(several, name)(*arguments)), name
    w = np.linspace(0, 1, len(y))
    assert same(one.loss(params, y, "mae", w), several.loss(params, y, "mae", w))
    for text in ("huber(f - y, 0.5)", "log(1 + (f - y)^2) * w", "sqrt(abs(f - s)) + y"):
        own = {"columns": {"s": w}} if "s)" in text and "sqrt" in text else {}
        assert same(one.loss(params, y, text, w, **own), several.loss(params, y, text, w, **own)), text
    assert same(one.loss(params, y, count_nonfinite=True), several.loss(params, y, count_nonfinite=True))
    other = pop[::3]
    for ev in (one, several):
        ev.update(other)
    assert same(one.loss(params[::3, : other.max_params], y), several.loss(params[::3, : other.max_params], y))


@pytest.mark.slow
def test_fits_are_those_of_one_device(many):
    pop, _, X, y = sample(120)
    bounds = (np.full(pop.max_params, -3.0), None)
    settings = [{"restarts": 2, "seed": 3}, {"loss": "huber", "bounds": bounds}, {"method": "lbfgs", "max_iter": 3},
                {"loss": "gaussian", "dtype": "float64"}]  # fmt: skip
    for how in settings:
        assert same_fits(ek.fit(pop, X, y, backend="cpu", **how), ek.fit(pop, X, y, backend="cpu", devices=2, **how))


@pytest.mark.slow
def test_processes_find_what_this_one_does(cluster, many):
    pop, params, X, y = sample()
    one, several = ek.Evaluator(pop, X, "cpu"), ek.Evaluator(pop, X, client=cluster)
    assert several.backend == "cpu"
    assert same(one.loss(params, y), several.loss(params, y)) and same(one.evaluate(params), several.evaluate(params))
    assert same_fits(ek.fit(pop, X, y, backend="cpu"), ek.fit(pop, X, y, client=cluster))


def test_devices_of_this_process_do_without_dask(monkeypatch, many):
    for name in ("dask", "distributed"):
        monkeypatch.setitem(sys.modules, name, None)
    pop, params, X, y = sample(60)
    assert same(ek.Evaluator(pop, X, "cpu", devices=2).loss(params, y), ek.Evaluator(pop, X, "cpu").loss(params, y))
    with pytest.raises(MissingError, match=r"distributed"):
        ek.Evaluator(pop, X, "cpu", client="tcp://127.0.0.1:1")


# seeds, for Hypothesis cannot be used beside dask's threads: they draw from ``random`` as well
@pytest.mark.parametrize("seed", range(40))
def test_cuts_cover_every_expression_once_in_order(seed):
    random = np.random.default_rng(seed)
    costs, n_slices = random.integers(0, 50, random.integers(0, 40)), int(random.integers(1, 12))
    ends = np.concatenate([[0], np.cumsum(costs)]).astype(np.int64)
    cuts = engine.cuts_of(ends, n_slices)
    assert [i for cut in cuts for i in range(*cut)] == list(range(len(costs)))
    assert len(cuts) <= max(n_slices, 1)


@pytest.mark.parametrize("seed", range(4))
def test_bits_do_not_depend_on_the_cuts(seed):
    places = set(np.random.default_rng(seed).integers(1, 61, 5).tolist())
    pop, params, X, y = sample(60, points=100)
    several = ek.Evaluator(pop, X, "cpu", devices=2)
    edges = [0, *sorted(places), len(pop)]
    several.engine._cuts = lambda *_: [cut for cut in itertools.pairwise(edges) if cut[0] < cut[1]]
    assert same(several.loss(params, y), ek.Evaluator(pop, X, "cpu").loss(params, y))
    assert same(several.normal_equations(params, y), ek.Evaluator(pop, X, "cpu").normal_equations(params, y))


def test_a_slice_costs_about_what_the_others_do():
    pop = ek.parse(["x1"] * 900 + ["x1 * (x1 + x2) / (x2 + x1 * x1) - exp(x1 * x2) * (x1 + x2 + x1)"] * 100)
    several = ek.Evaluator(pop, np.ones((10, 2)), "cpu", devices=2)
    edges, ends, _ = several.engine._cost(1)
    (_, middle), _ = several.engine._cuts(edges, ends, 1e-9 + 2 * engine.LEAST_HERE)
    assert middle > 600 and abs(ends[np.searchsorted(edges, middle)] / ends[-1] - 0.5) < 0.02


@pytest.mark.parametrize("n_gpus", [1, 2, 3, 8])
@pytest.mark.parametrize("seconds", [1e-6, 0.003, 0.03, 0.1, 1, 300])
def test_slices_of_gpus_wait_neither_for_python_nor_for_each_other(seconds, n_gpus):
    n = engine.slices_of_gpus(seconds, n_gpus, 2 * n_gpus)
    assert n < n_gpus or n % n_gpus == 0  # all devices have the same number
    assert n == 1 or n * engine.LOCKED <= seconds / min(n, n_gpus)  # and work as long as Python's lock is held
    assert seconds / n <= max(engine.MOST, 4 * n_gpus * engine.LOCKED)
    assert n > n_gpus or seconds < 8 * n_gpus * n_gpus * engine.LOCKED


@pytest.mark.parametrize("texts", [[], ["x1 + 1"], ["2"], ["x1 +"]])
def test_small_populations(texts):
    pop = ek.parse(texts, errors="mask") if texts else ek.parse(["x1"])[:0]
    X, y = np.ones((5, 1)), np.zeros(5)
    for name, has_target in PLANES:
        one, several = (getattr(ek.Evaluator(pop, X, "cpu", **where), name) for where in ({}, {"devices": 2}))
        assert same(one(None, y), several(None, y)) if has_target else same(one(None), several(None)), name
    assert same_fits(ek.fit(pop, X, y, backend="cpu"), ek.fit(pop, X, y, devices=2, backend="cpu"))


def test_sums_do_not_depend_on_threads_or_neighbours():
    _, _, X, y = sample(points=50_000)
    pop = ek.generate.random(12, (3, 9), ["+", "*", "/"], 2, n_params=2, seed=9)
    params = np.ones((12, pop.max_params))
    one, two = (ek.Evaluator(pop, X, "cpu", threads=n) for n in (1, 2))
    few = ek.Evaluator(pop[:3], X, "cpu", threads=1)
    own = params[:3, : few.pop.max_params]
    for name in ("normal_equations", "loss_and_grad"):
        found = getattr(one, name)(params, y)
        assert same(found, getattr(two, name)(params, y)), name
        assert same(found[-1 if name == "normal_equations" else 0][:3],
                    getattr(few, name)(own, y)[-1 if name == "normal_equations" else 0]), name  # fmt: skip


def test_a_search_finds_what_one_device_finds(monkeypatch):
    monkeypatch.setattr(search_fits, "LEAST", 1)
    x = np.linspace(0.5, 3, 30)
    y = 2 / (x + 0.7) + 0.01 * np.sin(99 * x)
    one, several = (ek.exhaustive_search(x[:, None], y, max_nodes=4, restarts=15, progress=False, **where)
                    for where in ({}, {"devices": 2}))  # fmt: skip
    assert one.texts() == several.texts() and same(one.params, several.params)
    assert all(same(one.columns[name], several.columns[name]) for name in one.columns)


# ── rows ──


@pytest.fixture
def in_files(tmp_path, monkeypatch):
    """Data in files, more pieces than groups, and a population."""
    monkeypatch.setattr(rows, "PIECE", 700)
    monkeypatch.setattr(rows, "GROUPS", 5)
    rng = np.random.default_rng(0)
    X = rng.uniform(0.5, 3, (10_000, 2))
    y = 2 * X[:, 0] / (1.5 + X[:, 1]) + 0.01 * rng.normal(size=len(X))
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    texts = ["p1 * a / (p2 + b)", "p1 + p2 * a", "p1 * exp(p2 * b) * a", "a", "3", "p1 * b", "a +", "p1 * a^p2 + p3"]
    return tmp_path, X, y, ek.parse(texts, errors="mask", variables=["a", "b"])


def test_rows_in_pieces_give_the_fit_of_all(in_files):
    folder, X, y, pop = in_files
    one = ek.fit(pop, X, y, backend="cpu", dtype="float64", init="ones", accuracy="screen")
    found = [ek.fit(pop, folder / "X.npy", folder / "y.npy", dtype="float64", devices=n) for n in (1, 2, 3)]
    assert all(same_fits(found[0], other) for other in found[1:])
    assert np.allclose(found[0].params, one.params, rtol=1e-6, equal_nan=True)
    assert np.allclose(found[0].loss, one.loss, rtol=1e-10, equal_nan=True)
    assert np.allclose(found[0].r2, one.r2, rtol=1e-8, equal_nan=True)
    assert np.allclose(found[0].standard_errors, one.standard_errors, rtol=1e-3, equal_nan=True)
    assert found[0].reason[3:7] == one.reason[3:7]


@pytest.mark.slow
def test_rows_of_parquet_dask_and_parts_of_mapped_arrays(in_files):
    import dask.array as da
    import pandas as pd

    folder, X, y, pop = in_files
    w = 1.0 + (np.arange(len(y)) % 3)
    expected = ek.fit(pop, folder / "X.npy", folder / "y.npy", devices=2, dtype="float64")
    frame = pd.DataFrame({"w": w, "b": X[:, 1], "t": y, "a": X[:, 0]})
    frame.to_parquet(folder / "table.parquet", row_group_size=1234)
    table = ek.fit(pop, folder / "table.parquet", "t", devices=2, dtype="float64")
    arrays = ek.fit(pop, da.from_array(X, chunks=3000), da.from_array(y, chunks=999), devices=2, dtype="float64")
    assert same_fits(table, expected) and same_fits(arrays, expected)
    mapped = [np.load(folder / f"{name}.npy", mmap_mode="r")[1000:] for name in "Xy"]
    parts = ek.fit(pop, *mapped, devices=2, dtype="float64")
    whole = ek.fit(pop, X[1000:], y[1000:], dtype="float64", init="ones", accuracy="screen")
    assert np.allclose(parts.params, whole.params, equal_nan=True)
    weighted = ek.fit(pop, folder / "table.parquet", "t", weights="w", devices=2, dtype="float64")
    whole = ek.fit(pop, X, y, weights=w, backend="cpu", dtype="float64", init="ones", accuracy="screen")
    assert np.allclose(weighted.loss, whole.loss, equal_nan=True)


def test_texts_name_a_parquet_file_s_columns(tmp_path):
    import pandas as pd

    a, b = np.linspace(1, 2, 50), np.linspace(3, 1, 50)
    frame = pd.DataFrame({"site": ["u", "v"] * 25, "a": a, "y": 2 * a**1.5 + b, "b (m)": b})
    path = tmp_path / "table.parquet"
    frame.to_parquet(path, row_group_size=17)
    for text in ("p1 * a^p2 + `b (m)`", "p1 * x2^p2 + x3"):
        assert np.allclose(ek.fit(text, path, "y", dtype="float64").params, [[2, 1.5]])
    with pytest.raises(DataError, match=r"column 'site' of the file must hold real numbers, not .*string"):
        ek.fit("p1 * site", path, "y")
    with pytest.raises(ParseError, match="variables are site, a, `b"):
        ek.fit("p1 * q", path, "y")
    with pytest.raises(NoSuchFileError, match="cannot be read"):
        ek.fit("p1 * a", tmp_path / "none.parquet", "y")
    (tmp_path / "bad.parquet").write_bytes(b"zz")
    with pytest.raises(DamagedFileError, match="is not a Parquet file, or it is damaged"):
        ek.fit("p1 * a", tmp_path / "bad.parquet", "y")


@pytest.mark.filterwarnings("error")
def test_rows_with_poles_are_fitted_as_in_memory(in_files):
    """What float32 spoils is fitted anew in float64; infinite sums of two pieces are no warning."""
    folder, X, y, _ = in_files
    X[2000, 1], X[6000, 1] = -0.0, 0.0
    np.save(folder / "X.npy", X)
    texts = ["p1 * p2 * x2^60 * 1e10", "p1 + p2 / x2", "1 / x2", "p1 * x1"]
    rowwise = ek.fit(texts, folder / "X.npy", folder / "y.npy", devices=2, init=np.ones((4, 2)))
    one = ek.fit(texts, X, y, backend="cpu", init=np.ones((4, 2)), accuracy="screen")
    assert rowwise.status.tolist() == one.status.tolist() and rowwise.converged.tolist() == [True, False, False, True]
    assert np.allclose(rowwise.loss, one.loss, rtol=1e-4, equal_nan=True) and rowwise.loss[2] == np.inf
    assert np.allclose(rowwise.params, one.params, rtol=1e-3, equal_nan=True)
    assert np.allclose(rowwise.standard_errors, one.standard_errors, rtol=1e-2, equal_nan=True)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_rows_say_that_they_converged_only_at_a_minimum(dtype, tmp_path):
    """A column far from 0 for its spread, which normal equations lose; numbers that others can stand for; a stall."""
    t = np.linspace(-1, 1, 40)
    y = 3 + 2 * t + 0.05 * np.random.default_rng(4).standard_normal(40)
    np.save(tmp_path / "y.npy", y)
    for far in (0.0, 1e6, 1e9):
        np.save(tmp_path / "X.npy", far + t[:, None])
        found = ek.fit(["p1 + p2 * x1", "p1 * p2 + 0 * x1"], tmp_path / "X.npy", tmp_path / "y.npy", dtype=dtype)
        least = np.sum((np.polyval(np.polyfit(t, y, 1), t) - y) ** 2)
        assert not found.converged[0] or found.loss[0] < 1.01 * least
        assert found.converged[1] and (far or found.converged[0])
    np.save(tmp_path / "X.npy", t[:, None])
    start = [[60.0, 1, 0.01, 9.0]]
    stalled = ek.fit("p1 * exp(p2 * (x1 - p4)) + p3", tmp_path / "X.npy", tmp_path / "y.npy", init=start, dtype=dtype,
                     tol=1e-3)  # fmt: skip
    best = ek.fit("p1 * exp(p2 * (x1 - p4)) + p3", t[:, None], y, init=start, backend="cpu", dtype="float64")
    assert not stalled.converged[0] or stalled.loss[0] < 1.01 * best.loss[0]


def test_rows_that_cannot_be_fitted_to(in_files):
    folder, _, y, pop = in_files
    for what in (
        {"loss": "mae"},
        {"restarts": 2},
        {"method": "adam"},
        {"link": "sqrt"},
        {"prior": {"p1": (0, 1)}},
        {"groups": {"p1": "a"}},
        {"accuracy": "final"},
    ):
        with pytest.raises(ArgumentError, match=f"without {next(iter(what))}="):
            ek.fit(pop, folder / "X.npy", folder / "y.npy", devices=2, **what)
    with pytest.raises(DataError, match=r"y must have shape \(10000,\), not \(10000, 2\)"):
        ek.fit(pop, folder / "X.npy", folder / "X.npy", devices=2)
    with pytest.raises(ArgumentError, match="y must be an npy file"):
        ek.fit(pop, folder / "X.npy", y, devices=2)
    y[77] = np.nan
    np.save(folder / "y.npy", y)
    with pytest.raises(DataError, match="y lacks 1 of 10,000 values"):
        ek.fit(pop, folder / "X.npy", folder / "y.npy", devices=2)


# ── what is said ──


def test_explain_says_who_works_and_how_it_is_cut(many):
    pop, *_, X, _ = sample()
    lines = ek.Evaluator(pop, X, "cpu", devices=2).explain().splitlines()
    assert lines[0] == "cpu: 2 workers; precision ieee, float32"
    assert lines[1].startswith("  2 workers of this process: 2 x ")
    assert "slices of about" in lines[2] and lines[3].startswith("  the data (0.0056 MB)")


def test_progress_counts_every_expression_once(many):
    pop, _, X, y = sample()
    seen = []
    ek.fit(pop, X, y, backend="cpu", devices=2, progress=lambda done, total: seen.append((done, total)))
    assert len(seen) > 1 and seen[-1] == (len(pop), len(pop)) and seen == sorted(seen)


def test_tasks_have_names(cluster, many):
    pop, params, X, y = sample()
    ev = ek.Evaluator(pop, X, "cpu", client=cluster)
    with distributed.get_task_stream(cluster) as stream:
        ev.loss(params, y)
    names = {event["key"].split("-")[0] for event in stream.data}
    assert names == {"loss_sums", "tokens", "X", "y"}


@pytest.mark.parametrize(
    "wrong", [{"devices": 0}, {"devices": []}, {"devices": [1, 1]}, {"devices": "some"}, {"devices": 1.5},
              {"devices": True}, {"devices": 2, "client": "tcp://127.0.0.1:1"}, {"client": 3}],
)  # fmt: skip
def test_what_is_no_device_is_refused(wrong):
    with pytest.raises(ArgumentError, match=r"devices|client"):
        ek.Evaluator(ek.parse("x1"), [[1.0]], **wrong)


def test_a_scheduler_that_is_not_there(monkeypatch):
    monkeypatch.setattr(workers, "SECONDS_TO_CONNECT", 0.3)
    with pytest.raises(BackendError, match=r"no dask scheduler answers at 'tcp://127.0.0.1:1'"):
        ek.fit("p1 * x1", [[1.0], [2.0]], [1.0, 2.0], client="tcp://127.0.0.1:1")


def test_an_address_will_do(cluster):
    found = ek.fit("p1 * x1", [[1.0], [2.0]], [2.0, 4.0], client=cluster.scheduler.address)
    assert found.params.round(3).tolist() == [[2.0]]


@pytest.mark.parametrize("what", ["exprkit", "python", "distributed"])
def test_other_versions_are_refused(cluster, monkeypatch, what):
    here = workers.facts()
    monkeypatch.setattr(workers, "facts", lambda: here._replace(versions={**here.versions, what: "0.0"}))
    monkeypatch.setattr(workers, "_facts_of", lambda client: {"tcp://there": here})
    with pytest.raises(BackendError, match=rf"worker tcp://there has {what} .* and this process 0\.0"):
        ek.Evaluator(ek.parse("x1"), [[1.0]], client=cluster)


@pytest.mark.parametrize("at_once", [False, True])
def test_what_float32_spoils_is_fitted_anew_before_it_comes_back(many, monkeypatch, at_once):
    """In the same task, whether the engine does it by itself or not."""
    pop = ek.parse(["p1 * exp(p2 * x1)", "p1 / (x1 + p2)", "p1 + p2 * x1"] * 20)
    X = np.linspace(-1, 1, 50)[:, None]
    y, starts = 3 * np.exp(X[:, 0]), np.tile([1.0, 1.0], (60, 1))
    one = ek.fit(pop, X, y, backend="cpu", init=starts, accuracy="screen")
    kind, calls = type(ek.Evaluator(pop, X, "cpu").engine), []

    def fit_again(own, starts, y, w, options, again):
        other, *points = again()
        calls.append(other.dtype)
        return objective.with_spoiled_anew(
            own.fit(starts, y, w, options), own.pop, starts, options,
            lambda some, starts, options: load("cpu").engine(
                some, other.X, precision="ieee", dtype=other.dtype, threads=1).fit(starts, *points, options),
        )  # fmt: skip

    monkeypatch.setattr(kind, "fits_again", at_once)
    monkeypatch.setattr(kind, "fit_again", fit_again)
    handed_out = []
    monkeypatch.setattr(engine, "collect", lambda *args: handed_out.append(args[1]) or collect.collect(*args))
    assert same_fits(one, ek.fit(pop, X, y, backend="cpu", init=starts, devices=2, accuracy="screen"))
    assert handed_out == ["fit_again"] and set(calls) == ({np.dtype("float64")} if at_once else set())
    assert objective.NOT_FINITE in ek.FitProblem(X, y, backend="cpu").fitted(pop, starts).status


@pytest.mark.slow
def test_gpus_work_side_by_side(monkeypatch, many):
    """Emulated ones, a thread each: every slice's arrays are its own device's."""
    if compiler() is None:
        pytest.skip("no C++ compiler: install g++ to run the kernels here")
    cards = [EmulatedDevice(), EmulatedDevice()]
    for k, card in enumerate(cards):
        card.name, card.architecture, card.index = f"emulated {k}", "none", k
    chosen = threading.local()
    monkeypatch.setattr(gpu, "missing", lambda: None)
    monkeypatch.setattr(gpu, "names", lambda: [card.name for card in cards])
    monkeypatch.setattr(gpu, "use", lambda index, stream=0: setattr(chosen, "card", cards[index]))
    monkeypatch.setattr(gpu, "current", lambda: getattr(chosen, "card", cards[0]))
    pop, params, X, y = sample(60, points=40)
    one, two = (ek.Evaluator(pop, X, "cuda", **where) for where in ({}, {"devices": "all"}))
    assert len(two.engine.workers.places(True)) == 4 and same(one.loss(params, y), two.loss(params, y))
    assert same(one.evaluate(params), two.evaluate(params))
    data = two.engine._setting.data
    used = {(place.device, made.device.index) for place in threads.places_of((0, 1), are_gpus=True)
            for setting, _, made in tasks._kept[str(place)] if setting.data == data}  # fmt: skip
    assert used == {(0, 0), (1, 1)}
    several = ek.fit(pop, X, y, backend="cuda", devices=2, max_iter=5)
    assert same_fits(ek.fit(pop, X, y, backend="cuda", max_iter=5), several)


def test_errors_of_a_worker_are_raised_here(cluster):
    pop, params, X, y = sample()
    several = ek.Evaluator(pop, X, "cpu", client=cluster)
    with pytest.raises(ArgumentError, match="no option"):
        ek.Evaluator(pop, X, "cpu", client=cluster, block_size=64)
    with pytest.raises(KeyError, match="no kind"):
        several.engine.loss_sums(np.float32(params[None]), np.float32(y), None, "no kind")


# ── what goes wrong ──


def test_a_worker_that_hangs_is_noticed(cluster, many, monkeypatch):
    pop, params, X, y = sample()
    ev = ek.Evaluator(pop, X, "cpu", client=cluster)
    expected = ev.loss(params, y)
    monkeypatch.setattr(collect, "LATE", 0.5)
    pid = next(iter(cluster.run(os.getpid).values()))
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.warns(RuntimeWarning, match="is late with .* given to others as well"):
            assert same(ev.loss(2 * params / 2, y), expected)
    finally:
        os.kill(pid, signal.SIGCONT)


def test_a_thread_that_hangs_is_noticed(many, monkeypatch):
    """Another one does its work, and what it says in the end does not count."""
    pop, params, X, y = sample()
    ev = ek.Evaluator(pop, X, "cpu", devices=2)
    expected, loss_sums = ev.loss(params, y), tasks._METHODS["loss_sums"]
    begins, ends = threading.Event(), threading.Event()

    def hanging(*arguments):
        if threads.device_here().device == 1:
            begins.set()
            ends.wait(20)
            raise OSError("the device is gone")
        begins.wait(20)
        return loss_sums(*arguments)

    monkeypatch.setattr(collect, "LATE", 0.3)
    monkeypatch.setitem(tasks._METHODS, "loss_sums", hanging)
    with pytest.warns(RuntimeWarning, match=r"device 1 is late with expressions \d+ to \d+: given to another as well"):
        assert same(ev.loss(params, y), expected)
    ends.set()
    monkeypatch.undo()
    assert same(ev.loss(params, y), expected)


def test_a_thread_that_is_still_busy_keeps_nobody_waiting_for_long(monkeypatch):
    """With what another call began, say, that was interrupted."""
    monkeypatch.setattr(collect, "LATE", 0.3)
    begins, ends = threading.Event(), threading.Event()
    threads.thread_of(1).do(lambda: (begins.set(), ends.wait(20)))
    begins.wait(20)
    cuts = [(0, 1), (1, 2), (2, 3)]
    found = collect.collect(workers.Workers.of(2, None), "work", cuts, lambda cut, place: (lambda: place,))
    assert [place for _, place in found] == ["device 0"] * 3
    ends.set()


def test_a_thread_without_work_takes_what_another_one_has_left():
    found, slow = [], threading.Event()

    def work(cut):
        found.append((cut[0], threads.device_here().device))
        if cut[0] == 0:
            assert slow.wait(20)
        elif len(found) == 8:
            slow.set()
        return cut[0]

    both = workers.Workers.of(2, None)
    cuts = [(k, k + 1) for k in range(8)]
    assert collect.collect(both, "work", cuts, lambda cut, place: (work, cut)) == [(cut, cut[0]) for cut in cuts]
    assert dict(found) == {k: int(k > 0) for k in range(8)}


def test_an_error_in_a_thread_is_raised_and_ends_the_call(many, monkeypatch):
    pop, params, X, y = sample()
    ev = ek.Evaluator(pop, X, "cpu", devices=2)
    expected = ev.loss(params, y)
    with monkeypatch.context() as patched, pytest.raises(KeyError, match="no such thing"):
        patched.setitem(tasks._METHODS, "loss_sums", lambda *_: {}["no such thing"])
        ev.loss(params, y)
    assert same(ev.loss(params, y), expected)


def test_parts_of_a_population_are_what_slices_are():
    pop, *_ = sample()
    for begin, end in [(0, 60), (3, 9), (59, 60), (20, 20), (0, len(pop))]:
        part, slice_ = pop.part(begin, end), pop[begin:end]
        assert part == slice_ and same(part.valid, slice_.valid) and same(part.n_params, slice_.n_params)
        assert dict(part.errors) == dict(slice_.errors) and part.n_vars == 2


def test_engines_go_with_their_evaluator_and_pieces_with_their_fit(many, in_files):
    folder, X, y, pop = in_files
    ev = ek.Evaluator(pop, X, "cpu", devices=2)
    ev.loss(np.ones((len(pop), pop.max_params)), y)
    data, ev_workers = ev.engine._setting.data, ev.engine.workers

    def kept():
        told = queue.SimpleQueue()
        ev_workers.everywhere(told.put, 0)  # behind whatever was asked for before
        assert [told.get(timeout=20) for _ in range(2)] == [0, 0]
        return [one for some in tasks._kept.values() for one in some if one[0].data == data]

    assert kept()
    del ev
    gc.collect()
    assert not kept()
    ek.fit(pop, folder / "X.npy", folder / "y.npy", devices=2)
    kept()
    assert not any(rows._read.values())


def wait_until(is_so):
    while not is_so():
        time.sleep(0.01)


def test_an_engine_that_is_let_go_holds_no_memory():
    """No cycle keeps the data until Python looks for cycles; a thread that still waits for work does, for a moment."""
    pop, params, X, y = sample()
    engine = load("cpu").engine(pop, np.float32(X), precision="ieee", dtype=np.dtype("float32"))
    gc.disable()
    try:
        engine.normal_equations(np.float32(params[None]), np.float32(y), None)
        assert engine.held_bytes() > X.nbytes
        runners = [weakref.ref(engine.values), weakref.ref(engine.gradients)]
        del engine
        within(20, lambda: wait_until(lambda: not any(runner() for runner in runners)))
    finally:
        gc.enable()


def limited(most):
    """A loss for which memory runs out where more than ``most`` expressions are asked for at a time."""

    def loss_sums(made, n_points, dtype, params, *rest):
        if params.shape[1] > most:
            raise MemoryError("there is room for few")
        return made.loss_sums(params, *rest)

    return loss_sums


def test_less_memory_makes_smaller_slices(monkeypatch):
    pop, params, X, y = sample()
    ev = ek.Evaluator(pop, X, "cpu", devices=2)
    expected = ev.loss(params, y)
    monkeypatch.setitem(tasks._METHODS, "loss_sums", limited(40))
    assert same(ev.loss(params, y), expected)
    monkeypatch.setitem(tasks._METHODS, "loss_sums", limited(0))
    with pytest.raises(MemoryError, match=r"expression \d+: there is room for few"):
        ev.loss(params, y)


def limit_loss_sums(most):
    """In a worker: memory for so many expressions at a time; None: for all."""
    usual = tasks._plain("loss_sums")
    tasks._METHODS["loss_sums"] = usual if most is None else limited(most)


@pytest.mark.slow
def test_less_memory_of_one_worker_makes_its_slices_smaller(cluster, many):
    pop, params, X, y = sample()
    ev = ek.Evaluator(pop, X, "cpu", client=cluster)
    expected, address = ev.loss(params, y), next(iter(ev.engine.workers.addresses()))
    cluster.run(limit_loss_sums, 30, workers=[address])
    try:
        assert same(ev.loss(params, y), expected)
        cluster.run(limit_loss_sums, 0)
        with pytest.raises(MemoryError, match=r"expression \d+: there is room for few"):
            ev.loss(params, y)
    finally:
        cluster.run(limit_loss_sums, None)


def test_a_search_with_less_memory_finds_the_same(monkeypatch):
    x = np.linspace(0.5, 3, 30)
    how = {"X": x[:, None], "y": 2 / (x + 0.7), "max_nodes": 4, "restarts": 15, "progress": False}
    expected = ek.exhaustive_search(**how)
    best_fits, lengths = search_fits.best_fits, []

    def limited_fits(problem, pop, *rest):
        lengths.append(len(pop))
        if len(pop) > 9:
            raise MemoryError("there is room for few")
        return best_fits(problem, pop, *rest)

    monkeypatch.setattr(search_fits, "best_fits", limited_fits)
    found = ek.exhaustive_search(**how, devices=2)
    assert max(lengths) > 9 and found.texts() == expected.texts() and same(found.params, expected.params)


def interrupted(call, begun=None):
    """What a call gives or raises, interrupted after a while or when it has ``begun``; and how many seconds later."""
    interrupts: list[float] = []

    def interrupt():
        time.sleep(0.3)
        assert begun is None or begun.wait(60)
        interrupts.append(time.monotonic())
        _thread.interrupt_main()

    threading.Thread(target=interrupt).start()
    try:
        found = call()
    except KeyboardInterrupt as error:
        found = error
    return found, time.monotonic() - interrupts[0]


def test_an_interrupt_does_not_wait_for_other_processes(cluster):
    known = workers.Workers.of(None, cluster)
    cuts = [(k, k + 1) for k in range(4)]
    found, seconds = interrupted(lambda: collect.collect(known, "sleep", cuts, lambda cut, place: (time.sleep, 3)))
    assert isinstance(found, KeyboardInterrupt) and seconds < 1


def test_an_interrupt_ends_a_search_with_what_it_has(monkeypatch):
    """Though a device is busy with fits, and the next size is being enumerated."""
    x, best_fits = np.linspace(0.5, 3, 30), search_fits.best_fits
    begun, ends = threading.Event(), threading.Event()

    def hanging(problem, pop, *rest):
        return best_fits(problem, pop, *rest) if pop.longest < 5 else begun.set() or ends.wait(20)

    monkeypatch.setattr(search_fits, "best_fits", hanging)
    search = functools.partial(
        ek.exhaustive_search, x[:, None], 2 / (x + 0.7), max_nodes=7, restarts=15, progress=False, devices=2
    )
    found, seconds = interrupted(search, begun)
    ends.set()
    assert found.stopped == "it was interrupted" and found.counts[:, 0].tolist()[:4] == [1, 2, 3, 4]
    assert len(found) and max(found.columns["size"]) >= 3 and seconds < 1  # two sizes are fitted at a time


def test_an_interrupt_stops_everything_at_once(monkeypatch, busy):
    pop, params, X, y = sample()
    ev = ek.Evaluator(pop, X, "cpu", devices=2)
    expected = ev.loss(params, y)
    ends = threading.Event()
    monkeypatch.setitem(tasks._METHODS, "loss_sums", lambda *_: ends.wait(20))
    timer = threading.Timer(0.3, lambda: (begins.append(time.monotonic()), _thread.interrupt_main()))
    begins: list[float] = []
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        ev.loss(params, y)
    assert time.monotonic() - begins[0] < busy()
    ends.set()
    monkeypatch.undo()
    assert same(ev.loss(params, y), expected)


@pytest.mark.slow
def test_a_killed_worker_changes_nothing(cluster, many):
    pop, _, X, y = sample(400, points=3000)
    problem = ek.FitProblem(X, y, backend="cpu", client=cluster)
    timer = threading.Timer(0.3, os.kill, (next(iter(cluster.run(os.getpid).values())), signal.SIGKILL))
    timer.start()
    found = problem.fit(pop, restarts=15)
    timer.join()
    assert same_fits(found, ek.fit(pop, X, y, backend="cpu", restarts=15))


def within(seconds, call):
    """What a call gives or raises; a failed test if it takes longer."""
    ended = []

    def run():
        try:
            ended.append((call(), None))
        except BaseException as error:
            ended.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert ended, f"no end within {seconds} s"
    found, error = ended[0]
    if error is not None:
        raise error
    return found


AWAY = pytest.mark.filterwarnings("ignore:no worker is left")


@pytest.mark.slow
@AWAY
def test_processes_that_their_cluster_has_given_up_come_back(cluster, many):
    pop, params, X, y = sample()
    ev = ek.Evaluator(pop, X, "cpu", client=cluster)
    expected = ev.loss(params, y)
    with dask.config.set({"distributed.deploy.lost-worker-timeout": "10ms"}):
        for pid in cluster.run(os.getpid).values():
            os.kill(pid, signal.SIGKILL)
        while cluster.cluster.workers:  # until the cluster has closed their nannies
            time.sleep(0.01)
        assert same(within(60, lambda: ev.loss(2 * params / 2, y)), expected)


@pytest.mark.slow
@AWAY
def test_no_worker_left_is_an_error(many):
    pop, params, X, y = sample()
    with dask.config.set({"distributed.scheduler.no-workers-timeout": "300ms"}), distributed.LocalCluster(
        n_workers=1, processes=False, dashboard_address=":0"
    ) as made, distributed.Client(made, set_as_default=False) as client:  # fmt: skip
        ev = ek.Evaluator(pop, X, "cpu", client=client)
        made.scale(0)
        for call in (lambda: ev.loss(params, y), lambda: ek.Evaluator(pop, X, "cpu", client=client)):
            with pytest.raises(BackendError, match=r"no worker is left at .* within 0\.3 s: start some, as by `dask"):
                within(30, call)


def test_a_scheduler_that_is_gone_is_an_error(many):
    pop, params, X, y = sample()
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as made:
        client = distributed.Client(made, set_as_default=False)
        ev = ek.Evaluator(pop, X, "cpu", client=client)
        client.close()
        with pytest.raises(BackendError, match="the scheduler is gone and the client closed"):
            within(30, lambda: ev.loss(params, y))


@pytest.mark.slow
def test_a_search_whose_worker_is_killed_finds_the_same(cluster, monkeypatch):
    monkeypatch.setattr(search_fits, "LEAST", 1)
    x = np.linspace(0.5, 3, 30)
    y = 2 / (x + 0.7) + 0.01 * np.sin(99 * x)
    one = ek.exhaustive_search(x[:, None], y, max_nodes=4, restarts=15, progress=False)
    timer = threading.Timer(0.2, os.kill, (next(iter(cluster.run(os.getpid).values())), signal.SIGKILL))
    timer.start()
    several = ek.exhaustive_search(x[:, None], y, max_nodes=4, restarts=15, chunk=7, progress=False, client=cluster)
    timer.join()
    assert one.texts() == several.texts() and same(one.params, several.params)
    assert all(same(one.columns[name], several.columns[name]) for name in one.columns)


@pytest.mark.slow
def test_islands_depend_on_seed_and_number_alone(monkeypatch):
    monkeypatch.setattr(curves, "REFINEMENT", curves.Effort(20, 2, 5))
    random = np.random.default_rng(0)
    X = random.uniform(1, 2, (80, 2))
    y = np.sin(3 * X[:, 0]) * X[:, 1] ** 0.7 + 0.01 * random.normal(size=80)
    settings = {"niterations": 3, "pool_size": 200, "population_size": 100, "maxsize": 12, "random_state": 1,
                "unary_operators": ["sin"]}  # fmt: skip
    models = [ek.SymbolicRegressor(**settings, devices=2).fit(X, y) for _ in range(2)]
    assert models[0].stopped_ == "3 iterations are done on 2 islands"
    assert models[0].equations_.equation.tolist() == models[1].equations_.equation.tolist()
    assert models[0].score(X, y) > 0.9


@pytest.mark.slow
def test_cutting_and_sharing_change_no_result(cluster, many, monkeypatch):
    """Of slices of any number: steps are the same wherever they are worked on."""
    both = workers.Workers.of(None, cluster)
    work = np.arange(1000.0)
    expected = [float(np.prod(work[i : i + 30], dtype=np.longdouble) % 97) for i in range(0, 1000, 30)]
    for parts in (1, 2, 7):
        monkeypatch.setattr(sharing, "PARTS", parts)
        with sharing.shared_by(both):
            assert sharing.each(rest_of_product, work, 1000, 30, 97, seconds=1) == expected
    assert sharing.each(rest_of_product, work, 1000, 30, 97) == expected and sharing.helpers() is None
    with sharing.shared_by(workers.Workers.of(2, None)):
        assert sharing.each(rest_of_product, work, 1000, 30, 97, seconds=1) == expected
    assert sharing.each(rest_of_product, work, 0, 30, 97) == []


def rest_of_product(work, divisor, begin, end):
    return float(np.prod(work[begin:end], dtype=np.longdouble) % divisor)


@pytest.mark.slow
def test_workers_share_curves_pairs_and_their_regressions(cluster, many, monkeypatch):
    monkeypatch.setattr(join, "CHUNK", 200)
    monkeypatch.setattr(curves, "REFINEMENT", curves.Effort(20, 2, 5))
    random = np.random.default_rng(0)
    X = random.uniform(1, 2, (40, 1))
    y = X[:, 0] * np.exp(-1.3 * X[:, 0]) + 0.05 * random.normal(size=40)
    settings = {"niterations": 0, "pool_size": 700, "maxsize": 8, "binary_operators": ["+", "*", "/"],
                "unary_operators": ["exp"], "random_state": 0}  # fmt: skip
    alone = ek.SymbolicRegressor(**settings).fit(X, y)
    with distributed.get_task_stream(cluster) as stream:
        shared = ek.SymbolicRegressor(**settings, client=cluster).fit(X, y)
    names = {event["key"].rsplit("-", 2)[0] for event in stream.data}
    assert {"pairs", "regressions", "fit"} <= names
    assert shared.equations_.drop(columns="sympy_format").equals(alone.equations_.drop(columns="sympy_format"))


@pytest.mark.slow
def test_operators_of_ones_own_go_to_workers_as_formulas_and_functions_are_refused_here(cluster, many, monkeypatch):
    ek.operator("travels(t) = t^2 / (1 + t)")
    ek.operator("staying(a)", numpy=lambda a: np.sinc(a) * np.i0(a))
    X = np.linspace(0.5, 2, 40)[:, None]
    pop = ek.parse(["p1 * travels(x1) + p2", "travels(travels(x1)) * p1", "p1 + x1"] * 3)
    alone, shared = (ek.fit(pop, X, X[:, 0] ** 2, dtype="float64", **to) for to in ({}, {"client": cluster}))
    assert np.array_equal(alone.params, shared.params, equal_nan=True) and shared.pop == pop
    monkeypatch.setattr(search_fits, "LEAST", 1)
    search = functools.partial(ek.exhaustive_search, X, X[:, 0] ** 2 / (1 + X[:, 0]), max_nodes=3, progress=False)
    assert search(operators=["travels", "add"], client=cluster).texts()[0] == "travels(x1)"
    for call in (
        lambda: ek.fit("p1 * staying(x1)", X, X[:, 0], client=cluster),
        lambda: ek.Evaluator("staying(x1)", X, client=cluster),
        lambda: search(operators=["staying"], client=cluster),
    ):
        with pytest.raises(ArgumentError, match=r"'staying' is a function of this process, .*'staying\(a\) = …'"):
            call()
