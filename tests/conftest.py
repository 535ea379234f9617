"""What all tests share: repeatable random tests, and a fixture over operators and one over backends."""

from __future__ import annotations

import os

# read where NumPy is imported: threads of small products wait for those of another worker, 20 times as long
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import copy
import dataclasses
import functools
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from emulated_device import EmulatedDevice, compiler
from estimator_checks import few_turns
from hypothesis import HealthCheck, settings

from exprkit.backends import NAMES, load, status
from exprkit.backends.gpu import device as gpu
from exprkit.backends.precision import Precision
from exprkit.backends.transpiler import assembler, operator_ptx
from exprkit.errors import BackendError
from exprkit.operators import defined, ops

os.environ.setdefault("MPLBACKEND", "Agg")  # figures are drawn to files, on machines without a screen
os.environ.setdefault("CUDA_CACHE_DISABLE", "1")  # kernels are compiled with what a test asks for, also a second time
os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")  # else jupyter_core warns, and a warning is an error

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # what a shell starts in the background does not hear Ctrl-C
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("exprkit", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("exprkit")


@pytest.hookimpl(trylast=True)  # after those that -m and -k leave out
def pytest_collection_modifyitems(items):
    """Without a GPU, the tests that need one (marker ``gpu``) are one skipped test a file, which says how many."""
    if defined.count():
        names = ", ".join(row.name for row in defined.definitions())
        raise pytest.UsageError(f"defined while tests were collected, by a module and not a fixture: {names}")
    if gpu.missing() is None:
        return
    counts = Counter(item.path for item in items if item.get_closest_marker("gpu"))
    kept = []
    for item in items:
        if not item.get_closest_marker("gpu"):
            kept.append(item)
        elif n := counts.pop(item.path, 0):
            item.add_marker(pytest.mark.skip(reason=f"{n} tests of {item.path.name} need a GPU: {gpu.missing()}"))
            kept.append(item)
    items[:] = kept


LEFT_OUT = "tests left out"
COUNTS = pytest.StashKey[dict]()


def pytest_deselected(items):
    """Adds to the number of tests that ``-m`` or ``-k`` leave out."""
    for item in items[:1]:
        counts = getattr(item.config, "workeroutput", item.config.stash.setdefault(COUNTS, {}))
        counts[LEFT_OUT] = counts.get(LEFT_OUT, 0) + len(items)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Takes the number from a worker; all have the same."""
    if workeroutput := getattr(node, "workeroutput", None):
        node.config.stash.setdefault(COUNTS, {}).update({LEFT_OUT: workeroutput.get(LEFT_OUT, 0)})


def pytest_terminal_summary(terminalreporter, config):
    """Says how many tests ``-m`` left out, and what runs them."""
    n, marks = config.stash.get(COUNTS, {}).get(LEFT_OUT), config.getoption("markexpr")
    if n and marks and not config.getoption("keyword"):
        terminalreporter.write_line(
            f"{n} tests were left out by -m {marks!r}; make test-all and make test-nightly run every test"
        )


def on_gpu(name):
    """The name of a backend or device as a test's parameter, marked if it needs a GPU."""
    return pytest.param(name, marks=pytest.mark.gpu if name in ("cuda", "ptx") else ())


@pytest.fixture(params=ops.OPERATORS, ids=lambda row: row.name)
def op(request):
    """Every row of the table."""
    return request.param


@pytest.fixture(params=map(on_gpu, NAMES))
def backend(request):
    """The name of every backend that can run here."""
    found = status(request.param)
    if not found.available:
        pytest.skip(f"{request.param}: {found.detail}")
    return request.param


@pytest.fixture
def fits(backend):
    """The name of a backend that makes derivatives, which fits need."""
    if not load(backend).differentiates:
        pytest.skip(f"{backend} makes no derivatives")
    return backend


@pytest.fixture(scope="module")
def generators(request):
    """A module's generators of random numbers, with their states after its import."""
    things = vars(request.module).values()
    return [(thing, thing.bit_generator.state) for thing in things if isinstance(thing, np.random.Generator)]


@pytest.fixture(autouse=True)
def same_random_numbers(generators):
    """What a test draws from a generator of its module does not depend on which tests ran before it."""
    for generator, state in generators:
        generator.bit_generator.state = state


@pytest.fixture(autouse=True)
def no_gpu(request, monkeypatch):
    """A host's GPU is seen by the tests that need one: all others are the same on every host."""
    if not request.node.get_closest_marker("gpu") and gpu.missing() is None:
        monkeypatch.setattr(gpu, "missing", lambda: "tests without the marker gpu see none")


@pytest.fixture(autouse=True)
def no_search_goes_on():
    """A search that a test left alone ends before the next test, whose clock stands while another thread compiles."""
    yield
    for thread in threading.enumerate():
        if thread.name == "exprkit-search":
            thread.join(60)


@pytest.fixture(autouse=True, scope="module")
def same_arrays(request):
    """An error if tests change an array of their module, which others read."""
    arrays = {name: thing for name, thing in vars(request.module).items() if isinstance(thing, np.ndarray)}
    before = {name: array.tobytes() for name, array in arrays.items()}
    yield
    assert not [name for name, array in arrays.items() if array.tobytes() != before[name]], "tests changed these arrays"


TABLES = (
    ops.BY_NAME, ops.BY_CODE, ops.BY_SPELLING, ops.IN_VALUES, defined._FUNCTIONS, defined._BY_NAME, defined._BY_CODE,
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def functions():
    """A module's own operators, with their codes: no other module meets them, and what remembers codes forgets them."""
    count, codes = defined.count(), copy.copy(defined._codes)
    kept, arity, replaced = [copy.copy(table) for table in TABLES], ops.ARITY.copy(), list(defined._REPLACED)
    yield
    if defined.count() == count:
        return
    for table, before in zip(TABLES, kept, strict=True):
        table.clear()
        table.update(before)
    ops.ARITY.flags.writeable = True
    ops.ARITY[:], defined._REPLACED[:], defined._codes = arity, replaced, codes
    ops.ARITY.flags.writeable = False
    for name, module in list(sys.modules.items()):
        if name.startswith("exprkit.") and not name.startswith("exprkit.runtime."):
            for thing in vars(module).values():
                if isinstance(thing, type(functools.cache(int))):
                    thing.cache_clear()


@pytest.fixture
def busy():
    """How many times as long as on an idle machine something may take, by what else runs on this one."""
    return lambda: max(1.0, 1.5 * os.getloadavg()[0] / (os.cpu_count() or 1)) if hasattr(os, "getloadavg") else 1.0


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the checkout."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def ptx_compiler():
    """Skips a test where NVIDIA's compiler or assembler is missing."""
    try:
        operator_ptx.bodies(Precision(), "float32")
        assembler.version()
    except BackendError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def emulated():
    """A GPU that is not there: kernels run on the CPU."""
    if compiler() is None:
        pytest.skip("no C++ compiler: install g++ to run the kernels here")
    return EmulatedDevice()


@pytest.fixture
def on_a_gpu(emulated, monkeypatch):
    """The device of a search: small pools, as kernels run on the CPU."""
    from exprkit.regression.problem import effort

    monkeypatch.setattr(gpu, "current", lambda: emulated)
    monkeypatch.setattr(gpu, "missing", lambda: None)
    pools = dataclasses.replace(effort.POOLS, device_sizes=(2_000,), device_max=4_000)
    monkeypatch.setattr(effort, "POOLS", pools)
    pairs = dataclasses.replace(effort.REGRESSIONS, device_pair_functions=(300, 100))
    monkeypatch.setattr(effort, "REGRESSIONS", pairs)
    monkeypatch.setattr("exprkit.regression.on_device.pool.FEWEST", 500)


@pytest.fixture
def few_stages(monkeypatch):
    """Five stages of the search alone, for what depends on no stage: all take eight times as long."""
    from exprkit.regression.stages import discovery

    monkeypatch.setattr(discovery, "ORDER", few_turns())


@pytest.fixture(scope="module", params=map(on_gpu, ["emulated", "cuda"]))
def device(request):
    """A GPU that is not there, and the one that is."""
    return gpu.current() if request.param == "cuda" else request.getfixturevalue("emulated")
