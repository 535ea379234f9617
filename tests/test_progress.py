"""What long work shows of itself."""

from __future__ import annotations

import functools
import io
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ContextDecorator, redirect_stderr
from types import SimpleNamespace

import numpy as np
import pytest

import exprkit as ek
from exprkit import warm_up
from exprkit.__main__ import main
from exprkit.errors import ArgumentError
from exprkit.runtime import jit, ranges
from exprkit.runtime.progress import parts

POINTS = ek.data.rough_pipe()
POP = ek.generate.exhaustive(5)


@pytest.mark.slow
def test_a_fit_in_parts_is_the_same_fit(monkeypatch):
    seen = []
    pop = POP[::7]
    for options in ({"restarts": 1, "bounds": (-3, 3)}, {"loss": "mae"}):
        whole = ek.fit(pop, POINTS.X, POINTS.y, **options)
        shown = ek.fit(pop, POINTS.X, POINTS.y, progress=lambda done, total: seen.append((done, total)), **options)
        assert seen[-1] == (len(pop), len(pop)) and shown.evaluator.pop is shown.pop
        for name in ("params", "loss", "status", "iterations", "r2", "at_bound"):
            assert np.array_equal(getattr(whole, name), getattr(shown, name), equal_nan=True), name


def test_a_description_in_parts_is_the_same():
    result = ek.fit(POP[:600], POINTS.X, POINTS.y, loss="gaussian")
    seen = []
    whole, shown = ek.description_length(result), ek.description_length(result, progress=lambda *at: seen.append(at))
    for name in ("total", "residuals", "parameters", "function", "params"):
        assert getattr(shown, name) == pytest.approx(getattr(whole, name), rel=1e-9, nan_ok=True), name
    assert len(seen) > 1 and seen[-1] == (600, 600)


@pytest.mark.parametrize("make", [
    lambda progress: ek.generate.exhaustive(4, progress=progress),
    lambda progress: ek.generate.random(1000, progress=progress),
    lambda progress: ek.fit(["p1 * x1", "x1"], POINTS.X, POINTS.y, progress=progress),
    lambda progress: ek.fit(POP[:0], POINTS.X, POINTS.y, progress=progress),
], ids=["exhaustive", "random", "fit", "nothing"])  # fmt: skip
def test_a_bar_or_a_function_shows_all(make):
    pytest.importorskip("tqdm")
    seen = []
    n = len(make(lambda done, total: seen.append((done, total))))
    assert seen[-1] == (n, n) and len(make(False)) == n
    with redirect_stderr(io.StringIO()) as bar:
        make(True)
    assert "100%" in bar.getvalue() or not n
    with pytest.raises(ArgumentError, match="progress must be True, False or a function"):
        make("yes")


def test_a_profiler_that_listens_sees_ranges_and_without_one_nothing_is_added(monkeypatch):
    seen, before = [], ranges.shown("step")(abs)

    class time_range(ContextDecorator):
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            seen.append(self.name)

        def __exit__(self, *_):
            seen.append("end")

    monkeypatch.setenv(ranges.LISTENER, "library.so")
    monkeypatch.setitem(sys.modules, "cupyx.profiler", None)
    assert before is abs and ranges.shown("step")(abs) is abs  # CuPy is not installed
    monkeypatch.setitem(sys.modules, "cupyx", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "cupyx.profiler", SimpleNamespace(time_range=time_range))
    assert ranges.shown("step")(abs)(-2) == 2 and seen == ["exprkit: step", "end"]


def test_parts_grow_until_they_take_long_enough():
    some = list(parts(100_000, lambda done, total: None, "counting"))
    assert [part.start for part in some] == [0, *(part.stop for part in some[:-1])] and some[-1].stop == 100_000
    assert 3 < len(some) < 20
    assert list(parts(0, True, "counting")) == [slice(0, 0)] and list(parts(9, False, "counting")) == [slice(0, 9)]


def test_every_feature_is_compiled_ahead(monkeypatch, capsys):
    used = []
    features = {name: functools.partial(used.append, name) for name in ("a", "b", "c")}
    monkeypatch.setattr(warm_up, "FEATURES", features)
    monkeypatch.setattr(warm_up, "ON_CPU", ["a", "b"])
    monkeypatch.setattr(warm_up, "_processes", lambda n: ThreadPoolExecutor(1))  # processes would not have these
    assert main(["warm"]) == 0 and used == ["a", "b"]
    out, err = capsys.readouterr()
    assert "what is compiled is kept in" in out and "2/2" in err
    assert main(["warm", "--for", "c,a"]) == 0 and used == ["a", "b", "c", "a"]
    assert main(["warm", "--for", "d"]) == 1
    assert "there is no feature 'd' to warm: a, b, c" in capsys.readouterr().err


def test_long_compiling_is_told_with_how_far_it_is(monkeypatch):
    monkeypatch.setattr(jit, "_starts", [])
    monkeypatch.setattr(jit, "_reports", [])
    counts = []
    with redirect_stderr(io.StringIO()) as told, jit.compiling_watched(counts.append):
        for now, n_lines in ((0, 0), (0.5, 0), (1.5, 1), (5, 1), (12, 2), (15, 2), (100, 2), (100.5, 2), (102, 3)):
            monkeypatch.setattr(jit, "time", SimpleNamespace(perf_counter=lambda now=now: now))
            jit._report_compiling()
            assert told.getvalue().count("\n") == n_lines, now
    first, second, third = told.getvalue().splitlines()
    assert first.startswith("exprkit compiles the loops of this feature, once for this machine") and third == first
    assert second == "exprkit has compiled 5 loops in 12 s" and counts == [1, 2, 3, 4, 5, 6, 1, 2, 3]


INTERRUPTED = """
import signal, time
import exprkit as ek
ek.generate.exhaustive(4), ek.generate.random(10)
for work in (lambda: ek.generate.exhaustive(9), lambda: ek.generate.random(3_000_000)):
    begin = time.perf_counter()
    signal.setitimer(signal.ITIMER_REAL, 0.15)
    try:
        work()
    except KeyboardInterrupt:
        pass
    print(time.perf_counter() - begin)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
def test_ctrl_c_answers_within_a_second():
    code = INTERRUPTED.replace("import signal, time\n", "import signal, time\nsignal.signal(signal.SIGALRM, "
                               "signal.default_int_handler)\n", 1)  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert len(done.stdout.split()) == 2
    assert all(float(seconds) < 1.15 for seconds in done.stdout.split()), done.stdout
