"""What ``backend="auto"`` takes, and how that is explained: with a card that is not there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import exprkit as ek
from exprkit.backends import Status, cost_model, status
from exprkit.backends.device_memory import lies_on_device
from exprkit.backends.gpu import device
from exprkit.backends.transpiler.structures import to_compile
from exprkit.errors import DataError
from exprkit.expressions import generate
from exprkit.programs.lower import lower

H200 = cost_model.Device()
SMALL_CARD = cost_model.Device(multiprocessors=20, bandwidth=2.5e11)


def work(n_exprs=9_880, tokens=5.4, n_points=10_860, n_steps=1, cores=16, structures=1.0, **others):
    n, itemsize, fast = int(n_exprs * tokens), others.pop("itemsize", 4), others.pop("fast", True)
    own = int(n_exprs * structures)
    sizes = n_exprs, n, own, int(n * structures), n_points
    return cost_model.Workload(*sizes, 2, itemsize, n_steps, fast, cores, **others)


@pytest.fixture
def gpu(monkeypatch):
    """A GPU that can be asked about; its kind can be changed."""
    kind = {"device": H200}
    monkeypatch.setattr(cost_model, "status", lambda name: Status(True, f"a {name}"))
    monkeypatch.setattr(cost_model, "device", lambda: kind["device"])
    monkeypatch.setattr(cost_model, "costs", cost_model.COSTS.__getitem__)  # whatever was measured on this machine
    return kind


@pytest.mark.parametrize(
    "what, backend",
    [
        ({"n_exprs": 1, "n_points": 100}, "cpu"),
        ({"n_exprs": 1_000, "n_points": 100}, "cpu"),
        ({"n_exprs": 10, "n_points": 10_000, "n_steps": 10}, "cpu"),
        ({"n_points": 108_600, "cores": 2}, "cuda"),
        ({"n_points": 108_600}, "cuda"),
        ({"n_exprs": 250_000, "tokens": 8.4, "n_points": 362, "n_steps": 100}, "cuda"),
        ({"n_points": 10_860, "n_steps": 100}, "cuda"),
        ({"tokens": 30, "n_points": 108_600, "n_steps": 100}, "cuda"),
        ({"tokens": 30, "n_points": 108_600, "n_steps": 100_000}, "ptx"),
        ({"tokens": 30, "n_points": 108_600, "n_steps": 1_000, "structures": 0.01}, "ptx"),  # little to compile
        ({"tokens": 30, "n_points": 108_600, "n_steps": 100_000, "itemsize": 8, "fast": False}, "ptx"),
        ({"n_exprs": 100, "n_points": 100, "on_device": True}, "cuda"),  # no CPU reaches the data
    ],
    ids=str,
)
def test_decisions(gpu, what, backend):
    assert cost_model.choose(work(**what)).name == backend


def test_more_steps_never_lead_back_to_what_takes_longer_a_step(gpu):
    for n_points in (100, 10_000, 1_000_000):
        order = [cost_model.choose(work(tokens=30, n_points=n_points, n_steps=10**k)) for k in range(7)]
        steps = [{row.name: row.estimate.step for row in one.rows if row.estimate}[one.name] for one in order[1:]]
        assert steps == sorted(steps, reverse=True)


def test_a_smaller_card_and_more_cores_count(gpu):
    what = {"n_exprs": 3_000, "n_points": 10_000, "cores": 4, "n_steps": 10}
    assert cost_model.choose(work(**what)).name == "cuda"
    gpu["device"] = SMALL_CARD
    assert cost_model.choose(work(**{**what, "cores": 128})).name == "cpu"
    slower = cost_model.estimate(work(), cost_model.COSTS["cuda"], SMALL_CARD).step
    assert slower > 5 * cost_model.estimate(work(), cost_model.COSTS["cuda"], H200).step
    one, many = (cost_model.estimate(work(cores=cores), cost_model.COSTS["ptx"], H200).setup for cores in (1, 16))
    assert 10 < one / many < 16


def test_options_and_settings_leave_out_who_has_them_not(gpu):
    assert cost_model.choose(work(n_exprs=1), options=("points_per_thread",)).name == "cuda"
    assert cost_model.choose(work(n_exprs=1), settings=True).name == "cuda"
    found = cost_model.choose(work(n_exprs=1), options=("structures_per_module",))
    assert found.name == "ptx" and "has no option 'structures_per_module'" in found.table()


def test_without_a_gpu_it_is_the_cpu_and_the_table_says_why(monkeypatch):
    monkeypatch.setattr(cost_model, "status", lambda name: Status(name == "cpu", "no card: pip install one"))
    found = cost_model.choose(work(n_steps=1_000))
    assert found.name == "cpu"
    assert "chosen: the only one" in found.table() and "can't run here: no card: pip install one" in found.table()


@pytest.mark.slow
def test_structures_are_counted_where_they_would_be_compiled(gpu):
    pop = ek.parse(["x1 + 1.5", "x1 + 2.5", "x1 * x2"] * 1_000)
    bound = cost_model.work_of(pop, 10**6, dtype="float32", fast=True, n_steps=1, threads=None, on_device=False)
    assert (bound.n_structures, bound.structure_tokens) == (3_000, 9_000)
    found = cost_model.choose(bound, pop=pop).work
    assert (found.n_structures, found.structure_tokens) == (2, 6)


def test_structures_that_share_code_are_counted_once(gpu):
    pop = generate.exhaustive(6)
    bound = cost_model.work_of(pop, 10**6, dtype="float32", fast=True, n_steps=1, threads=None, on_device=False)
    found = cost_model.choose(bound, pop=pop).work
    compiled = len(to_compile(lower(pop, precision="fast")))
    assert compiled <= found.n_structures < len(pop.structures()[0]) / 2
    assert found.n_structures < 4 * compiled  # what depends on one variable alone is a column as well


def test_little_work_is_done_before_a_gpu_is_asked_for(monkeypatch):
    monkeypatch.setattr(cost_model, "status", lambda name: pytest.fail("asked"))
    assert cost_model.choose(work(n_exprs=10, n_points=100)).name == "cpu"


def test_the_table_can_be_read(gpu):
    assert cost_model.choose(work(n_steps=100, cores=2)).table() == (
        "            set-up    a step     100 steps   to host\n"
        "cpu        2.90 ms   29.0 ms        2.90 s         -\n"
        "cuda       1.07 ms    124 us       13.4 ms   8.25 ms  chosen: the least\n"
        "ptx         5.61 s    116 us        5.63 s   8.25 ms\n"
        "estimates for 9,880 expressions, 53,352 tokens, 10,860 points; losses; to host: a matrix moved"
    )


def test_constants_stand_beside_a_measurement(root):
    """The estimates are within a factor of two of the published times."""
    import csv

    with (root / "data" / "results" / "h200_interpreter.csv").open() as file:
        measured = {row["what"]: float(row["value"]) for row in csv.DictReader(file)}
    for points in (362, 10_860, 108_600):
        seconds = cost_model.estimate(work(n_points=points), cost_model.COSTS["cuda"]).step
        assert 0.5 < seconds * 1e6 / measured[f"predictions {points} points fast {{}}"] < 2
    with (root / "data" / "results" / "peers.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["workload"] == "thesis" and row["method"] == "fast sse"]
    for row in rows:
        own = work(n_points=int(row["n_points"]), cores=int(row["threads"]))
        assert 0.5 < cost_model.estimate(own, cost_model.COSTS["cpu"]).step / float(row["seconds"]) < 2


def test_a_device_is_read_from_the_driver(monkeypatch):
    class Runtime:
        @staticmethod
        def deviceGetAttribute(which, index):
            return {36: 3_201_000, 37: 6_144}[which]

    class Card:
        multiprocessors, index = 132, 0
        xp = type("xp", (), {"cuda": type("cuda", (), {"runtime": Runtime})})

    monkeypatch.setattr(device, "current", Card)
    found = cost_model.device()
    assert found.multiprocessors == 132 and found.bandwidth == pytest.approx(4.917e12, rel=1e-3)


def test_where_data_lies():
    class OnDevice:
        def __dlpack_device__(self):
            return 2, 0

    assert lies_on_device(OnDevice()) and not lies_on_device(np.ones(3))
    assert not lies_on_device([[1.0]]) and not lies_on_device(None)


def test_many_steps_have_a_column_of_their_own():
    first = cost_model.choose(work(n_steps=10**9), forced="cpu").table().splitlines()[0]
    assert "  1,000,000,000 steps" in first


def test_the_way_to_the_host_counts_where_values_are_wanted_there(gpu):
    what = {"n_exprs": 10_000, "n_points": 10_860, "n_steps": 100}  # 429 MB a step: data/results, benchmark 3
    assert cost_model.choose(work(**what)).name == cost_model.choose(work(**what, on_device=True)).name == "cuda"
    assert cost_model.choose(work(**what, values=True)).name == "cpu"
    assert cost_model.choose(work(**what, values=True, on_device=True)).name == "cuda"
    assert cost_model.choose(work(**{**what, "cores": 2}, values=True)).name == "cuda"
    moved = cost_model.estimate(work(**what, values=True), cost_model.COSTS["cuda"])
    assert moved.step == pytest.approx(10_000 * 10_860 * 4 / cost_model.LINK, rel=0.01) == moved.to_host
    once = cost_model.estimate(work(**{**what, "n_steps": 1}, values=True), cost_model.COSTS["cuda"])
    assert once.total > 10_000 * 10_860 * 4 / cost_model.UPLOAD  # to memory that is not page-locked yet


def test_what_was_measured_here_is_kept_and_not_scaled(monkeypatch, tmp_path):
    monkeypatch.setenv("EXPRKIT_CACHE_DIR", str(tmp_path))
    for known in (cost_model._measured, cost_model.costs):
        known.cache_clear()
    assert cost_model.costs("cuda") == cost_model.COSTS["cuda"]
    own = replace(cost_model.COSTS["cuda"], step=1.0, own=True)
    cost_model.keep({"cuda": own})
    for known in (cost_model._measured, cost_model.costs):  # as another process
        known.cache_clear()
    assert cost_model.costs("cuda") == own and cost_model.costs("cpu") == cost_model.COSTS["cpu"]
    assert cost_model.estimate(work(), own, SMALL_CARD) == cost_model.estimate(work(), own, H200)
    monkeypatch.setenv("EXPRKIT_CACHE_DIR", "")
    for known in (cost_model._measured, cost_model.costs):
        known.cache_clear()
    assert cost_model.costs("cuda") == cost_model.COSTS["cuda"]


@pytest.mark.slow
def test_calibration_measures_every_constant(monkeypatch):
    from exprkit.evaluate import calibration

    monkeypatch.setattr(calibration, "SIZES", {False: (20, 300), True: (20, 300)})
    monkeypatch.setattr(calibration, "REPEATS", 2)
    found = calibration.costs_of("cpu", cost_model.COSTS["cpu"])
    assert found.own and not found.on_device and found.code == (0.0, 0.0)
    assert all(0 < one < np.inf for one in (found.start, found.token, found.step, *found.nodes, found.bytes))
    assert 0 < found.double <= 1


def test_calibration_keeps_what_is_steady():
    from exprkit.evaluate.calibration import steady

    published = cost_model.COSTS["cuda"]
    rounds = [
        replace(published, start=start, nodes=(nodes, 5e12), step=3e-5)
        for start, nodes in zip((1.0, 1.1, 0.95, 9.0, 1.02), (1e12, 3e12, 2e12, 4e12, 5e11), strict=True)
    ]
    found = steady(rounds, published)
    assert found.costs.start == 1.02 and found.costs.step == 3e-5, "one round of five may be disturbed"
    assert found.costs.nodes == published.nodes and found.costs.own and found.costs.token == published.token
    assert found.spread["start"] == pytest.approx(0.1 / 1.02) and found.spread["step"] == 0
    told = str(found).splitlines()
    assert sum("not steady" in line for line in told) == 1 and "nodes" in next(one for one in told if "steady" in one)
    assert steady(rounds, replace(published, code=(0.0, 0.0))).spread.keys() == found.spread.keys() - {"code"}


def test_losses_and_values_may_run_on_backends_of_their_own(monkeypatch):
    choose = cost_model.choose

    def divided(work, **others):  # as where a GPU makes losses and the host its own matrix
        return choose(work, **others)._replace(name="cpu" if work.values else "numpy")

    monkeypatch.setattr(cost_model, "choose", divided)
    pop, X = ek.parse(["x1 * p1 + x2", "p1 / x1"]), np.random.default_rng(0).uniform(1, 2, (40, 2))
    ev, y, params = ek.Evaluator(pop, X, n_steps=3), X[:, 0], [[1.0], [2.0]]
    assert ev.backend == "cpu" and "; losses on 'numpy'" in ev.explain()
    np.testing.assert_array_equal(ev.evaluate(params), ek.Evaluator(pop, X, "cpu").evaluate(params))
    for new in (pop, pop[::-1]):
        ev.update(new)
        losses = ek.Evaluator(new, X, "numpy")
        np.testing.assert_array_equal(ev.loss(params, y, "rmse"), losses.loss(params, y, "rmse"))
        for ours, theirs in zip(ev.loss_and_grad(params, y), losses.loss_and_grad(params, y), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        for ours, theirs in zip(ev.normal_equations(params, y), losses.normal_equations(params, y), strict=True):
            np.testing.assert_array_equal(ours, theirs)


# ── in the evaluator ─────────────────────────────────────────────────────────────────


def test_an_evaluator_explains_its_choice(monkeypatch):
    if any(status(name).available for name in ("cuda", "ptx")):
        pytest.skip("there is a GPU, which may be chosen")
    pop = ek.parse(["x1 * p1 + x2"] * 2_000)
    ev = ek.Evaluator(pop, np.ones((5_000, 2)), n_steps=50)
    lines = ev.explain().splitlines()
    assert lines[0].startswith("cpu: ") and "thread" in lines[1]
    assert "50 steps" in lines[2] and "chosen" in lines[3]
    assert lines[-1].endswith("values, which data of the host want there")
    assert "as asked" in ek.Evaluator(pop, np.ones((50, 2)), "cpu").explain()
    assert ek.Evaluator(pop, np.ones((50, 2)), "numpy").explain().startswith("numpy: ")


@pytest.mark.parametrize("n_steps", [0, -1, 2.5, True, "many"])
def test_steps_are_checked(n_steps):
    with pytest.raises(DataError, match="n_steps must be a whole number >= 1"):
        ek.Evaluator(ek.parse(["x1"]), np.ones((2, 1)), n_steps=n_steps)


@pytest.mark.parametrize("X", [None, 3.0, "text", []])
def test_bad_data_is_complained_of_as_ever(X):
    with pytest.raises(DataError):
        ek.Evaluator(ek.parse(["x1"] * 5), X)
