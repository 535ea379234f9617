"""Machine code of loops on disk: never stale, never in the way, and never somebody else's."""

from __future__ import annotations

import ast
import errno
import functools
import importlib.util
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import warnings
from pathlib import Path
from subprocess import PIPE
from typing import Annotated, NamedTuple

import numpy as np
import pytest
from numba.core.registry import cpu_target

from exprkit import build_hook, warm_up
from exprkit.backends.cpu import levenberg_marquardt
from exprkit.backends.gpu import nvrtc
from exprkit.backends.precision import Precision
from exprkit.errors import ArgumentError
from exprkit.programs import linearity
from exprkit.runtime import bags, disk_cache, files, jit, shipped

EVALUATES = """
import numpy as np, exprkit as ek
print(ek.Evaluator(ek.parse("x1 + p1"), np.ones((2, 1)), backend="cpu").evaluate([[1]]).tolist())
"""
FEW_LOOPS = """
import numpy as np, exprkit as ek
from exprkit.text import decimals
pop = ek.Population(np.ones(2, np.uint8), np.zeros(2, np.uint64), np.arange(3))
print(decimals.nearest(0, 1), pop[[1, 0]].n_tokens.tolist())
"""
COMPILES = """
from exprkit.runtime import jit
jit.LoopCache.save_overload = lambda kept, *made: print("compiled", kept._parts[5])
"""
LOOP = """
from exprkit.runtime.jit import compiled

@compiled
def twice(a):
    return 2 * a
"""
BITS = """
import hashlib, time, numpy as np, exprkit as ek
pop = ek.breed(ek.generate.random(300), np.arange(300.0), 200)
print([hashlib.sha256(a.tobytes()).hexdigest() for p in (pop, ek.generate.exhaustive(4)) for a in (p.kinds, p.values)])
print(time.process_time())
"""
TOGETHER = """
import sys
from exprkit.runtime import jit
from loop import twice
keep = jit.LoopCache.save_overload
def save(cache, *given):
    print("compiled", flush=True)
    if "hang" in sys.argv:
        sys.stdin.read()
    keep(cache, *given)
jit.LoopCache.save_overload = save
print("ready", flush=True)
sys.stdin.readline()
print(twice(21), twice(0.5), flush=True)
"""
MOST_COLD = 5  # times the processor seconds of a second use; measured: 1.0 to 2.0 on a busy machine, 13 without archive
modes = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="Windows has no such modes")


def run(cache, program=FEW_LOOPS, folder=None):
    environment = os.environ | ({} if cache is None else {"EXPRKIT_CACHE_DIR": cache})
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment, cwd=folder)


# ── whole processes ──


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path):
    path = tmp_path / "a file"
    path.write_text("")
    done = run(str(path / "cache"), "from exprkit.text import decimals; print(decimals.nearest(0, 1))")
    assert done.stdout == "0\n"
    assert done.stderr.count("RuntimeWarning") == 1 and "EXPRKIT_CACHE_DIR names another folder" in done.stderr


@pytest.mark.slow
def test_loops_are_kept_where_the_user_says_and_damaged_ones_are_made_again(tmp_path):
    wanted = "0 [1, 1]\n"
    assert run(str(tmp_path)).stdout == wanted
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for path in kept:
        os.utime(path, (0, 0))
    assert run(str(tmp_path)).stdout == wanted
    used = [path for path in tmp_path.glob("*.loop") if path.stat().st_mtime > 0]
    assert len(used) > 3 and kept == {path: path.read_bytes() for path in tmp_path.iterdir()}, "all comes from there"
    few = sorted(used, key=lambda path: len(kept[path]))[:3]
    for path, damage in zip(few, ("empty", "half", "a bit at 5001"), strict=True):
        path.write_bytes(DAMAGES[damage](kept[path]))
    done = run(str(tmp_path))
    assert done.stdout == wanted
    assert done.stderr.count("RuntimeWarning") == 1 and "is damaged" in done.stderr
    assert kept.keys() == set(tmp_path.iterdir())
    assert all(disk_cache.read(path.stem, disk_cache.LOOP, tmp_path) for path in few)


@pytest.mark.slow
@pytest.mark.skipif(jit.folder() is None, reason="EXPRKIT_CACHE_DIR or EXPRKIT_CACHE_BYTES says that nothing is kept")
def test_a_process_compiles_nothing_that_another_has_kept():
    assert run(None, EVALUATES).stdout == "[[2.0, 2.0]]\n"
    assert run(None, COMPILES + EVALUATES).stdout == "[[2.0, 2.0]]\n"


@pytest.fixture
def together(tmp_path):
    """Starts a process that waits for a line, then calls two loops of which nothing is kept."""
    (tmp_path / "loop.py").write_text(LOOP)
    environment = os.environ | {
        "EXPRKIT_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)]),
    }
    processes = []

    def start(*given):
        command = [sys.executable, "-c", TOGETHER, *given]
        processes.append(subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True, env=environment))
        assert processes[-1].stdout.readline() == "ready\n"
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.skipif(disk_cache.fcntl is None, reason="Windows has no such locks")
def test_processes_that_start_together_compile_each_loop_once(together, tmp_path):
    processes = [together() for _ in range(3)]
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    lines = [line for process in processes for line in process.communicate(timeout=100)[0].splitlines()]
    assert sorted(lines) == ["42 1.0"] * 3 + ["compiled"] * 2
    assert {path.suffix for path in (tmp_path / "cache").iterdir()} == {disk_cache.LOOP}, "no lock is left"


@pytest.mark.skipif(disk_cache.fcntl is None, reason="Windows has no such locks")
def test_a_loop_is_compiled_by_the_next_process_when_the_first_is_killed(together):
    first, second = together("hang"), together()
    first.stdin.write("go\n")
    first.stdin.flush()
    assert first.stdout.readline() == "compiled\n"
    second.stdin.write("go\n")
    second.stdin.flush()
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(1)
    first.kill()
    assert second.communicate(timeout=100)[0].splitlines() == ["compiled", "compiled", "42 1.0"]


# ── one loop ──


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty folder of this test's own, about which there has been no warning."""
    cache = tmp_path / "cache"
    monkeypatch.setattr(jit, "folder", lambda: cache)
    monkeypatch.setattr(disk_cache, "_warned", False)
    monkeypatch.setattr(disk_cache, "_since", {})
    return cache


@pytest.fixture
def twice(tmp_path, cache):
    """Makes a function anew, as another process would: call and say whether it came from the folder."""
    path = tmp_path / "loop.py"
    path.write_text(LOOP)

    def call():
        spec = importlib.util.spec_from_file_location("loop", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.twice(21) == 42
        call.loop = module.twice
        return module.twice.stats.cache_hits.total() == 1

    return call


def flipped(place):
    """One bit at a place, counted round and round."""

    def damage(data):
        at = place % len(data)
        return data[:at] + bytes([data[at] ^ 16]) + data[at + 1 :]

    return damage


DAMAGES = {
    "empty": lambda data: b"",
    "a head alone": lambda data: data[:40],
    "half": lambda data: data[: len(data) // 2],
    "a byte less": lambda data: data[:-1],
    "a byte more": lambda data: data + b"\0",
    "zeros": lambda data: bytes(len(data)),
    **{f"a bit at {place}": flipped(place) for place in (0, 7, 8, 39, 40, 41, 60, 500, 3_000, 5_001, -700, -1)},
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_a_miss_with_one_warning_and_is_made_again(damage, twice, cache):
    assert not twice() and twice()
    (entry,) = cache.iterdir()
    entry.write_bytes(DAMAGES[damage](entry.read_bytes()))
    with pytest.warns(RuntimeWarning) as warned:
        assert not twice()
    assert [str(warning.message) for warning in warned] == [f"{entry} is damaged: it is compiled anew and replaced"]
    assert [entry] == list(cache.iterdir()) and twice()


def test_what_cannot_be_unpickled_is_a_miss_with_one_warning(twice, cache, monkeypatch):
    assert not twice()
    (entry,) = cache.iterdir()
    disk_cache.write(entry.stem, b"no pickle", disk_cache.LOOP, cache)  # in good order, of another Numba say
    with pytest.warns(RuntimeWarning, match="can't be used, it is compiled anew") as warned:
        assert not twice()
    assert len(warned) == 1 and twice()


def test_nothing_is_unpickled_that_does_not_match_its_digest(twice, cache, monkeypatch):
    assert not twice()
    (entry,) = cache.iterdir()
    entry.write_bytes(entry.read_bytes()[:-1])
    monkeypatch.setattr(jit.serialize, "loads", lambda data: pytest.fail("unpickled"))
    with pytest.warns(RuntimeWarning, match="is damaged"):
        assert not twice()


def test_another_text_of_a_loop_or_of_what_it_imports_is_another_entry(twice, cache, tmp_path, monkeypatch):
    assert not twice()
    (tmp_path / "loop.py").write_text(LOOP.replace("2 * a", "a + a"))
    for memory in (jit.digest, jit._imports, jit._digest_of_all):
        memory.cache_clear()
    assert not twice() and twice() and len(list(cache.iterdir())) == 2
    digest = jit.digest
    monkeypatch.setattr(jit, "digest", lambda path: b"another" if "disk_cache" in path else digest(path))
    jit._digest_of_all.cache_clear()
    assert not twice() and twice() and len(list(cache.iterdir())) == 3
    monkeypatch.setattr(jit.config, "BOUNDSCHECK", 1)
    assert not twice()


def test_what_uses_a_loop_does_not_change_its_entry():
    for module in (levenberg_marquardt, linearity):
        folders = {Path(path).relative_to(Path(jit.ROOT) / "exprkit").parts[0] for path in jit.sources(module.__file__)}
        assert "programs" in folders and not folders & {"__init__.py", "distributed", "evaluate", "fitting", "search"}


def test_a_full_disk_is_one_warning(twice, cache, monkeypatch):
    def full(*given, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(disk_cache.os, "fdopen", full)
    with pytest.warns(RuntimeWarning, match="machine code can't be kept in") as warned:
        assert not twice() and not twice()
    assert len(warned) == 1 and os.strerror(errno.ENOSPC) in str(warned[0].message)
    assert not list(cache.iterdir())


def test_an_entry_that_is_in_use_is_replaced_as_soon_as_it_is_free(cache, monkeypatch):
    """As Windows has it."""
    attempts, replace = [], os.replace

    def refusing(*paths):
        attempts.append(paths)
        if len(attempts) < 3:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        replace(*paths)

    monkeypatch.setattr(os, "replace", refusing)
    monkeypatch.setattr(files, "IN_USE", 60.0)
    monkeypatch.setattr(files.time, "sleep", lambda seconds: None)
    disk_cache.write("name", b"code", home=cache)
    assert disk_cache.read("name", home=cache) == b"code" and len(attempts) == 3


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 kB."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs", str(place)]
    try:
        if subprocess.run(mount, capture_output=True).returncode:
            pytest.skip("this user may not mount")
    except FileNotFoundError:
        pytest.skip("there is no mount")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_really_full_is_one_warning(small_disk, twice, monkeypatch):
    cache = small_disk / "cache"
    monkeypatch.setattr(jit, "folder", lambda: cache)
    cache.mkdir(0o700)
    (cache / "much").write_bytes(bytes(60 << 10))
    with pytest.warns(RuntimeWarning, match="machine code can't be kept in") as warned:
        assert not twice() and not twice()
    assert len(warned) == 1 and [path.name for path in cache.iterdir()] == ["much"]


# ── what came with the package ──


@pytest.fixture
def archive(twice, cache, tmp_path, monkeypatch):
    """An archive of the package that has the loop, for the level of this processor; the user's folder is empty."""
    processor = cpu_target.target_context.codegen().magic_tuple()
    if not shipped.levels(processor):
        pytest.skip("this processor has none of the levels")
    level = shipped.levels(processor)[0]
    assert not twice()
    (entry,) = cache.iterdir()
    (types,) = twice.loop.overloads
    name = twice.loop._cache._name(types, (processor[0], level, ""))
    path = tmp_path / shipped.file_name(level)
    shipped.pack([entry.rename(tmp_path / f"{name}.loop")], path)
    monkeypatch.setattr(shipped, "archive", functools.cache(lambda of: shipped.best_of(of, tmp_path)))
    return path


def test_a_loop_that_came_with_the_package_is_not_compiled_while_its_text_is_the_same(archive, twice, cache, tmp_path):
    assert twice() and not list(cache.iterdir())
    (tmp_path / "loop.py").write_text(LOOP.replace("2 * a", "a + a"))
    for memory in (jit.digest, jit._imports, jit._digest_of_all):
        memory.cache_clear()
    assert not twice() and len(list(cache.iterdir())) == 1


def test_what_came_with_the_package_is_used_where_nothing_is_kept(archive, twice, monkeypatch):
    monkeypatch.setattr(jit, "folder", lambda: None)
    monkeypatch.setenv("EXPRKIT_CACHE_DIR", "")
    assert twice()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_archive_is_ignored_with_one_warning(damage, archive, twice):
    data = archive.read_bytes()
    archive.write_bytes(DAMAGES[damage](data))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        same = twice()
    words = [str(warning.message) for warning in warned]
    assert words == [f"{archive} is damaged, loops are compiled anew: install exprkit again"] or (same and not words)
    assert not same or "bit" in damage or "byte" in damage, "a bit of a date, say, is none of the machine code's"


def test_an_archive_of_other_versions_is_ignored_with_a_line_that_names_them(archive, twice, monkeypatch):
    here = shipped.versions()
    monkeypatch.setattr(shipped, "versions", lambda: "numba==0.1 llvmlite==0.1 with cpython-39")
    wanted = f"is for {here}, here is numba==0.1 llvmlite==0.1 with cpython-39"
    with pytest.warns(RuntimeWarning, match=f"loops are compiled anew, .*{re.escape(wanted)}") as warned:
        assert not twice() and twice()
    assert len(warned) == 1


def test_a_processor_has_the_levels_all_of_whose_features_it_has():
    third = ",".join(f"+{feature}" for feature in shipped.LEVELS["x86-64-v3"].split())
    fourth = ",".join(f"+{feature}" for feature in shipped.LEVELS["x86-64-v4"].split())
    linux, arm = "x86_64-unknown-linux-gnu", "arm64-apple-darwin23"
    assert shipped.levels((linux, "znver4", fourth)) == ["x86-64-v4", "x86-64-v3"]
    assert shipped.levels((linux, "znver2", f"{third},-avx512f")) == ["x86-64-v3"]
    assert shipped.levels((linux, "nehalem", third.replace("+avx2", "-avx2"))) == []
    assert shipped.levels((arm, "apple-m1", "+neon,+sve")) == ["generic"]
    assert shipped.levels((linux, "x86-64-v4", "")) == ["x86-64-v4"], "as the build hook sets it"


@pytest.fixture
def kernels(cache, tmp_path, monkeypatch):
    """An archive of one GPU kernel, and of the texts that are compiled from now on; the user's folder is empty."""
    pytest.importorskip("cuda.core", reason="cuda-core compiles the kernels: pip install '.[cuda13]'")
    monkeypatch.setenv("EXPRKIT_CACHE_DIR", str(cache))
    built = []
    monkeypatch.setattr(nvrtc, "build", lambda _, settings, text, **chosen: (built.append(text) or text.encode(), ""))
    assert asked("text") == b"text"
    path = tmp_path / shipped.file_name("sm_90", "kernels")
    shipped.pack([entry.rename(tmp_path / entry.name) for entry in cache.glob("*.o")], path, nvrtc.compiler_version())
    monkeypatch.setattr(shipped, "kernels", lambda of: shipped.opened(tmp_path / shipped.file_name(of, "kernels")))
    nvrtc._shipped.cache_clear()
    built.clear()
    yield path, built
    nvrtc._shipped.cache_clear()


def asked(text, architecture="sm_90", precision="ieee", **chosen):
    return nvrtc.compiled(architecture, Precision(precision), text, LANES=32, **chosen)


def test_a_kernel_that_came_with_the_package_is_not_compiled_while_text_and_options_are_the_same(kernels, monkeypatch):
    nvrtc.compile_together("sm_90", [nvrtc.KernelRequest(Precision("ieee"), "text", {"LANES": 32})])
    assert asked("text") == b"text" and not kernels[1]
    monkeypatch.setattr(nvrtc, "compiler_version", lambda: "NVRTC (99, 0)")  # a newer one
    nvrtc._shipped.cache_clear()
    assert asked("text") == b"text" and not kernels[1]
    asked("other"), asked("text", "sm_80"), asked("text", precision="fast"), asked("text", REAL="double")
    assert kernels[1] == ["other", "text", "text", "text"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_archive_of_kernels_is_ignored_with_one_warning(damage, kernels):
    path, built = kernels
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert asked("text") == b"text"
    words = [str(warning.message) for warning in warned]
    assert words == [f"{path} is damaged, kernels are compiled anew: install exprkit again"] or not (built or words)


def test_kernels_by_a_newer_compiler_are_compiled_anew_with_a_line_that_names_both(kernels, monkeypatch):
    there = re.escape(nvrtc.compiler_version())
    monkeypatch.setattr(nvrtc, "compiler_version", lambda: "NVRTC (1, 2)")
    with pytest.warns(RuntimeWarning, match=rf"kernels .* by {there}, here is NVRTC \(1, 2\)"):
        assert asked("text") == b"text"
    assert kernels[1] == ["text"]


def test_the_kernels_that_wheels_may_bring_can_be_written():
    texts = {kernel.text for kernel in warm_up.kernels_of("sm_90")}
    assert len(texts) > 10 and all('extern "C" __global__' in text for text in texts)


@pytest.mark.slow
def test_what_a_wheel_brings_gives_the_same_bits_and_spares_the_first_use(root, tmp_path, monkeypatch):
    """The package, copied, with an archive of each level that this processor has, beside code for this processor."""
    levels = shipped.levels(cpu_target.target_context.codegen().magic_tuple())
    if not levels:
        pytest.skip("this processor has none of the levels")
    shutil.copytree(root / "exprkit", tmp_path / "exprkit", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(root / "data", tmp_path / "data")
    run(None, BITS)
    wanted, warm = run(None, BITS).stdout.splitlines()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(sys, "path", sys.path.copy())
    for path in build_hook.archives(tmp_path, tmp_path, levels[::-1], ["generate"]):
        place = path.rename(tmp_path / "exprkit" / "runtime" / "shipped" / path.name)
        bits, cold = run(str(tmp_path / "empty"), BITS, tmp_path).stdout.splitlines()
        assert bits == wanted and not list(tmp_path.glob("empty/*.loop")), "nothing is compiled"
        assert float(cold) < MOST_COLD * float(warm)
        place.unlink()


# ── whose files they are ──


@modes
def test_folders_are_made_for_the_user_alone_whatever_the_umask(twice, cache, monkeypatch):
    place = cache / "in" / "folders"
    monkeypatch.setattr(jit, "folder", lambda: place)
    before = os.umask(0)
    try:
        assert not twice()
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in (cache, cache / "in", place)] == [0o700] * 3
    assert [stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()] == [0o600]


@modes
@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_a_folder_that_others_may_write_to_is_not_used(mode, twice, cache):
    assert not twice()
    before = {path: path.read_bytes() for path in cache.iterdir()}
    cache.chmod(mode)
    with pytest.warns(RuntimeWarning) as warned:
        assert not twice() and not twice()
    assert len(warned) == 1 and before == {path: path.read_bytes() for path in cache.iterdir()}
    assert f"others may write to {cache}: chmod go-w {shlex.quote(str(cache))}" in str(warned[0].message)
    command = re.search(r"chmod [^)]*", str(warned[0].message))[0]
    subprocess.run(shlex.split(command), check=True)
    assert twice()


@modes
def test_a_file_that_others_may_write_to_is_not_used_and_replaced(twice, cache):
    assert not twice()
    (entry,) = cache.iterdir()
    entry.chmod(0o666)
    with pytest.warns(RuntimeWarning, match=f"others may write to {re.escape(str(entry))}: chmod go-w ") as warned:
        assert not twice()
    assert len(warned) == 1 and stat.S_IMODE(entry.stat().st_mode) == 0o600 and twice()


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("whose", ["the folder", "the file"])
def test_nothing_is_taken_from_another_user(whose, twice, cache, monkeypatch):
    assert not twice()
    (entry,) = cache.iterdir()
    path = cache if whose == "the folder" else entry
    os.chown(path, 65_534, 65_534)
    monkeypatch.setattr(jit.serialize, "loads", lambda data: pytest.fail("unpickled"))
    with pytest.warns(RuntimeWarning, match=f"{re.escape(str(path))} belongs to another user") as warned:
        assert not twice()
    assert len(warned) == 1


def test_the_kernels_files_keep_the_same_rule(cache):
    disk_cache.write("name", b"code", home=cache)
    assert disk_cache.read("name", home=cache) == b"code"
    if hasattr(os, "geteuid"):
        cache.chmod(0o777)
        with pytest.warns(RuntimeWarning, match="others may write to"):
            assert disk_cache.read("name", home=cache) is None
        disk_cache.write("other", b"code", home=cache)
        assert [path.name for path in cache.iterdir()] == ["name.o"]


@modes
def test_a_folder_that_is_only_read_is_used(twice, cache):
    assert not twice()
    cache.chmod(0o500)
    try:
        assert twice()
    finally:
        cache.chmod(0o700)


def test_loops_and_kernels_have_their_room_each(cache, monkeypatch):
    monkeypatch.setenv("EXPRKIT_CACHE_BYTES", "250")
    disk_cache.write("loop", bytes(60), disk_cache.LOOP, cache)
    os.utime(cache / "loop.loop", (0, 0))
    for i, name in enumerate("abcd"):
        disk_cache.write(name, bytes(60), home=cache)
        os.utime(cache / f"{name}.o", (i, i))
    assert sorted(path.name for path in cache.iterdir()) == ["c.o", "d.o", "loop.loop"]


# ── where they are ──


def test_the_folder_may_be_named_from_home(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("EXPRKIT_CACHE_DIR", os.path.join("~", "x"))
    assert disk_cache.folder() == tmp_path / "x"
    monkeypatch.setenv("EXPRKIT_CACHE_DIR", "~no such user/x")
    if os.name != "nt":
        with pytest.raises(ArgumentError, match="EXPRKIT_CACHE_DIR=~no such user/x: there is no such home folder"):
            disk_cache.folder()


def test_a_size_of_thousands_of_digits_is_refused_in_a_few_words(monkeypatch):
    monkeypatch.setenv("EXPRKIT_CACHE_BYTES", "9" * 5000)
    with pytest.raises(ArgumentError, match=r"EXPRKIT_CACHE_BYTES must be a whole number of bytes, not '9{37}…'$"):
        disk_cache.most_bytes()
    monkeypatch.setenv("EXPRKIT_CACHE_BYTES", "1" + "0" * 20)
    assert disk_cache.most_bytes() == 10**20


def test_an_entry_depends_on_every_module_that_its_function_s_module_imports(root):
    """By name, as files; more than once round the corner, in brackets over lines, and from packages."""
    for name in ("text/shunting_yard", "programs/lower", "backends/cpu/engine", "backends/transpiler/writer"):
        path = root / "exprkit" / f"{name}.py"
        modules = {path}
        for _ in range(12):  # longer than any chain of imports
            modules |= {other for module in modules for other in imported(root, module)}
        assert {path for path in modules if path.name != "__init__.py"} <= {*map(Path, jit.sources(str(path)))}
        assert len(modules) > 5


@functools.cache
def imported(root, path):
    """Modules of exprkit that a file imports from, as files."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("exprkit"):
            place = root.joinpath(*node.module.split("."))
            places = [place / alias.name for alias in node.names]
            found |= {path for one in (place, *places) if (path := one.with_suffix(".py")).exists()}
    return found


# ── what is handed over ──


class Bag(NamedTuple):
    numbers: Annotated[np.ndarray, "float64[n]"]
    bits: Annotated[np.ndarray, "uint8[n, 2]"]
    factor: int


class Two(NamedTuple):
    first: Bag
    second: Bag


@jit.compiled
def _scaled(bag, k, literal):
    return bag.numbers[k] * bag.factor + literal


@jit.compiled
def _of_both(bags, k):
    own = Bag(bags.first.numbers, bags.second.bits, 100)
    return _scaled(bags.first, k, 1) + _scaled(bags.second, bags.first.bits[k, 0], 2) + _scaled(own, k, 3)


def test_bags_are_borrowed_from_python_and_between_loops():
    first = bags.zeros(Bag, n=3, factor=2)
    second = bags.empty(Bag, n=3, factor=10, numbers=np.arange(3.0))
    assert first.bits.shape == (3, 2) and first.bits.dtype == np.uint8 and second.bits.shape == (3, 2)
    first.numbers[:], first.bits[:] = [1, 2, 3], 2
    assert _of_both(Two(first, second), 1) == (2 * 2 + 1) + (2 * 10 + 2) + (2 * 100 + 3)
    before = sys.getrefcount(first.numbers)
    for _ in range(10):
        _of_both(Two(first, second), 1)
    after = sys.getrefcount(first.numbers)
    assert after == before
    assert len(_scaled.signatures) <= 1, "whole numbers of all types, literals too, are one"
    with pytest.raises(KeyError, match="factor"):
        bags.zeros(Bag, n=3)


def test_what_is_no_bag_is_refused_as_numba_does():
    with pytest.raises(Exception, match="numbers"):
        _scaled((1.0, 2.0), 0, 1)
