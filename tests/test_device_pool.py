"""The search's pool on a device beside the host's: the same functions, pairs and laws; what short memory does."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from emulated_device import EmulatedDevice, compiler
from hypothesis import given, settings
from hypothesis import strategies as st

import exprkit as ek
from exprkit.backends.device_programs.operator_kernels import OperatorKernels
from exprkit.backends.gpu import device as gpu
from exprkit.backends.gpu.device import fetched
from exprkit.distributed import sharing, threads
from exprkit.distributed.workers import Workers
from exprkit.errors import BackendError
from exprkit.expressions.arguments import operators_of
from exprkit.regression.on_device import join as device_join
from exprkit.regression.on_device import pool as device_pool
from exprkit.regression.on_device import regress as device_regress
from exprkit.regression.on_device import triples
from exprkit.regression.pairs import links
from exprkit.regression.pairs.join import Partners
from exprkit.regression.pairs.pool import Pool
from exprkit.regression.problem import effort
from exprkit.regression.stages import search_problem
from exprkit.regression.sums import regress

EXACT = operators_of(["+", "-", "*", "/", "square", "sqrt"])  # whose results are the same bits everywhere
SEARCH = operators_of("search")
MADE = "sizes", "bounded", "made_by", "left", "right"
points = np.random.default_rng(0).uniform(0.5, 3, (16, 3))


def both(device, operators, most, X=points, multiplied=True):
    """The same pool on the host and on the device."""
    kernels = OperatorKernels(device, tuple(operators), len(X))
    pools = Pool(X, operators), device_pool.DevicePool(X, operators, kernels)
    for pool in pools:
        pool.grow(30, most)
        if multiplied:
            pool.multiply(most + most // 2)
    return pools


def of(text, X=points):
    return ek.Evaluator(ek.parse([text]), X, "numpy", dtype="float64").evaluate()[0]


@pytest.mark.parametrize("chunk", [1_000, 1 << 22])
def test_functions_are_those_of_the_host_in_their_order(device, chunk, monkeypatch):
    monkeypatch.setattr(device_pool, "CHUNK", chunk)
    host, there = both(device, EXACT, 6_000)
    assert len(there) == len(host) == 9_000
    for name in MADE:
        assert np.array_equal(fetched(getattr(there._arrays, name))[:9_000], getattr(host._arrays, name)[:9_000]), name
    assert np.array_equal(fetched(there.values), host.values)
    some = [0, 3, 77, 5_000, 8_999]
    assert there.expressions(some) == host.expressions(some) and there.expression(8_000) == host.expression(8_000)


@given(most=st.integers(1, 400), n_vars=st.integers(1, 4), n_points=st.integers(6, 16), seed=st.integers(0, 9))
@settings(max_examples=12)
def test_so_are_small_pools(device, most, n_vars, n_points, seed):
    X = np.random.default_rng(seed).normal(0, 2, (n_points // 5 * 5 + 1, n_vars))
    host, there = both(device, EXACT, most, X)
    assert len(host) == len(there)
    assert np.array_equal(fetched(there.values), host.values)


def test_functions_with_rounding_of_their_own_are_the_same_but_for_few(device):
    host, there = both(device, SEARCH, 20_000)
    names = [set(map(tuple, zip(*(fetched(getattr(arrays, name))[:5_000].tolist() for name in MADE), strict=True)))
             for arrays in (host._arrays, there._arrays)]  # fmt: skip
    assert len(names[0] & names[1]) > 4_990
    assert len(there) == len(host) == 30_000


@pytest.mark.parametrize("law", [
    "3.7 * x1 * x2 / sqr(x3)", "x1 / sqrt(1 - 0.04 * sqr(x2))", "5 * sqr(x1 * x2) / sqr(1 - sqr(x3 / 4))",
    "x1 + x2 + 2 * sqrt(x1 * x2)",
])  # fmt: skip
def test_pairs_are_those_of_the_host(device, law):
    host, there = both(device, EXACT, 4_000)
    here, y, n = Partners(host), of(law), 0
    partners = device_join.DevicePartners(there)
    assert np.array_equal(fetched(partners.order), here.lookup.order)
    for link in links.all_links(SEARCH[4:]):
        expected, found = here.of(y, link), partners.of(y, link)
        if link.inner is None:
            assert np.array_equal(found.f, expected.f) and np.array_equal(found.h, expected.h), link.text
        n += len(found.f)
    assert n


def test_several_devices_look_up_a_part_each(monkeypatch):
    """Emulated ones: the pairs of one, whoever looks what up."""
    if compiler() is None:
        pytest.skip("no C++ compiler: install g++ to run the kernels here")
    cards, chosen, used = [EmulatedDevice(), EmulatedDevice()], threading.local(), set()
    for k, card in enumerate(cards):
        card.name, card.architecture, card.index = f"emulated {k}", "none", k
    monkeypatch.setattr(gpu, "missing", lambda: None)
    monkeypatch.setattr(gpu, "names", lambda: [card.name for card in cards])
    monkeypatch.setattr(gpu, "use", lambda index, stream=0: setattr(chosen, "card", cards[index]))
    monkeypatch.setattr(gpu, "current", lambda: getattr(chosen, "card", cards[0]))
    monkeypatch.setattr(device_join, "FEWEST", 100)
    there = both(cards[0], EXACT, 4_000)[1]
    partners, y = device_join.DevicePartners(there), of("3.7 * x1 * x2 / sqr(x3)")
    find, second = device_join.DeviceLookup.partners, threading.Event()

    def watched(table, *arguments):
        index = table.kernels.device.index
        second.set() if index else second.wait(20)  # else the first one may do all
        used.add((threading.current_thread().name.split(",")[0], index))
        return find(table, *arguments)

    alone = [partners.of(y, link) for link in links.all_links(SEARCH[4:])]
    monkeypatch.setattr(device_join.DeviceLookup, "partners", watched)
    copies = []
    monkeypatch.setattr(cards[1], "copied", lambda array: copies.append(array.ndim) or array.copy())
    with sharing.shared_by(Workers.of(2, None)):
        partners = device_join.DevicePartners(there)
        threads.thread_of(1).do(second.set)
        assert second.wait(20) and copies == [2]  # the values, before anything is looked up
        second.clear()
        several = [pairs for _, pairs in partners.each(y, links.all_links(SEARCH[4:]))]
    assert used == {("exprkit device 0", 0), ("exprkit device 1", 1)}
    assert sorted(copies) == [1, 1, 1, 2]
    assert sum(len(pairs.f) for pairs in alone)
    for one, other in zip(alone, several, strict=True):
        assert np.array_equal(one.f, other.f) and np.array_equal(one.h, other.h)
    assert sharing.gpus() is None


def test_numbers_are_sorted_as_numpy_does(device):
    random = np.random.default_rng(1)
    usual, equal = random.normal(size=500), random.integers(-3, 3, 500).astype(float)
    s = np.concatenate([usual, equal, [-np.inf, 1e-310, np.inf, -0.0]])
    order = device_join.in_order(device.xp, device.xp.asarray(s))
    assert np.array_equal(fetched(order), np.argsort(s, kind="stable"))


def test_regressions_of_all_pairs_are_those_of_the_host(device, monkeypatch):
    monkeypatch.setattr(device_regress, "AT_ONCE", 700)
    random = np.random.default_rng(2)
    f, h, v, weight = random.normal(size=(40, 30)), random.normal(size=(90, 30)), random.normal(size=30), np.ones(30)
    f[3], h[5], f[4, 2] = h[7], 2.0, np.inf
    v /= np.sqrt(weight @ v**2)
    starts = np.array([0, 10, 50, 90])
    host = regress.regressed(f, h, v, weight, starts)
    there = device_regress.regressed(device, f, h, v, weight, starts)
    finite = np.isfinite(host.error)
    assert np.array_equal(finite, np.isfinite(there.error)) and not finite[4].any()
    assert there.error[finite] == pytest.approx(host.error[finite], abs=1e-12)
    assert np.array_equal(there.h[finite], host.h[finite])


def test_three_functions_are_those_of_all_that_make_y(device, monkeypatch):
    monkeypatch.setattr(triples, "AT_ONCE", 130)
    _, there = both(device, EXACT, 500, multiplied=False)
    values, h, f = fetched(there.values), np.arange(60), np.array([1, 2, 5, 17])
    y = of("x2 * (0.3 + 1.7 * x1 / x3 - 2.2 * sqrt(x3))")
    found = triples.triples(there, f, there.xp.asarray(h), y, links.all_links([])[0])
    makes = [(i, a) for i in f for a in h if any(is_made(y / values[i], values[a], values[b]) for b in h[a + 1 :])]
    assert sorted((i, a) for i, a, _ in found.tolist()) == makes and len(makes)
    assert all(is_made(y / values[i], values[a], values[b]) for i, a, b in found)


def is_made(q, g, h):
    """By least squares."""
    columns = np.column_stack([np.ones(16), g, h]) / np.abs(q)[:, None]
    length = np.linalg.norm(columns, axis=0)
    (*_, rank, _), right = np.linalg.lstsq(columns / length, np.sign(q), rcond=1e-9), np.sign(q)
    return rank == 3 and np.abs(columns / length @ np.linalg.lstsq(columns / length, right)[0] - right).max() < 1e-9


# ── searches ──


@pytest.fixture
def searching(device, monkeypatch):
    """Searches whose pools lie on the device, in stages that a CPU makes in its stead."""
    monkeypatch.setattr(search_problem, "device_of", lambda backend: device)
    pools = replace(effort.POOLS, host_sizes=(300,), device_sizes=(2_000,), device_max=4_000)
    monkeypatch.setattr(effort, "POOLS", pools)
    monkeypatch.setattr(effort, "REGRESSIONS", replace(effort.REGRESSIONS, device_pair_functions=(300, 100)))
    monkeypatch.setattr(device_pool, "FEWEST", 500)
    monkeypatch.setattr(triples, "SMALL", (40, 300))
    monkeypatch.setattr(triples, "MONOMIALS", (40, 400))
    settings = {"niterations": 1, "population_size": 20, "unary_operators": ["square", "sqrt", "sin"]}
    return lambda X, y: ek.SymbolicRegressor(random_state=0, **settings).fit(X, y)


X = np.random.default_rng(3).uniform(0.5, 3, (120, 3))
LAW = "x1 / (x2 + 3 * x3 * x1)"
THREE_TERMS = "sqrt(3.3 * x1 + 0.21 * x1 * x2 / x3 + 0.73 * x1 * x3)"  # which no stage before the pools has


@pytest.mark.slow
def test_a_search_finds_a_law_in_a_pool_on_the_device(searching):
    model = searching(X, of(LAW, X))
    assert model.stopped_ == "a formula is exact"
    assert model.get_best().complexity <= 9


def test_a_search_finds_a_law_of_three_terms(searching):
    model = searching(X, of(THREE_TERMS, X))
    assert model.stopped_ == "a formula is exact" and model.get_best().complexity <= 16


@pytest.mark.slow
def test_a_search_without_an_exact_formula_goes_through_all_stages(searching):
    y = of(LAW, X) + 0.01 * np.random.default_rng(4).standard_normal(120)
    model = searching(X, y)
    assert model.stopped_ == "1 iterations are done" and model.score(X, y) > 0.95


def test_short_memory_makes_the_pool_smaller(searching, device, monkeypatch):
    sizes = []

    def grow(self, size, most, grow=device_pool.DevicePool.grow):
        sizes.append(most)
        if most == 2_000:
            raise device.out_of_memory(1, 1)  # bytes, as CuPy says it
        grow(self, size, most)

    monkeypatch.setattr(device_pool.DevicePool, "grow", grow)
    assert searching(X, of(THREE_TERMS, X)).stopped_ == "a formula is exact"
    assert sizes[:2] == [2_000, 1_000]


def test_free_memory_says_how_many_functions_there_are(device, monkeypatch):
    monkeypatch.setattr(type(device), "free_bytes", lambda self: 1 << 20, raising=False)
    sizes = list(device_pool.with_memory(device, 10**6, 16, lambda n: [n]))
    assert sizes == [(1 << 20) // (device_pool.BYTES_OF_A_POINT * 16 + device_pool.BYTES_BESIDE)]


def test_a_backend_that_is_not_there_is_named_before_the_search():
    with pytest.raises(BackendError, match="there is no backend 'cud'"):
        ek.SymbolicRegressor(backend="cud").fit(X, X[:, 0])
