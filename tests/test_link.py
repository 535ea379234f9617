"""PTX to machine code, and the cache on disk: no GPU needed, but nvJitLink."""

from __future__ import annotations

import itertools
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from exprkit.backends.precision import Precision
from exprkit.backends.transpiler import assembler
from exprkit.errors import ArgumentError, BackendError
from exprkit.runtime import disk_cache

SETTINGS = Precision()
TEXT = """.version 6.4
.target sm_75
.address_size 64
// {n}
.visible .entry add_{n}(.param .u64 at)
{{
	.reg .b64 %at;
	.reg .f32 %x;
	ld.param.u64 %at, [at];
	ld.global.f32 %x, [%at];
	add.rn.f32 %x, %x, 0f3F800000;
	st.global.f32 [%at], %x;
	ret;
}}
"""


pytestmark = pytest.mark.usefixtures("ptx_compiler")


def texts(n, first=0):
    return [TEXT.format(n=i) for i in range(first, first + n)]


def linked(given, **options):
    found = list(assembler.compile_modules(given, "sm_90", SETTINGS, **options))
    return [x.cubin for x in sorted(found, key=lambda x: x.index)]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EXPRKIT_CACHE_DIR", str(tmp_path / "cache"))
    assembler.forget()
    yield tmp_path / "cache"
    assembler.forget()


@pytest.fixture
def compiled(monkeypatch):
    """Counts what reaches the compiler."""
    seen = []
    real = assembler.run_nvjitlink
    monkeypatch.setattr(assembler, "run_nvjitlink", lambda *given: seen.append(given[0]) or real(*given))
    return seen


# ── compiling ────────────────────────────────────────────────────────────────────────


def test_modules_come_with_their_index_and_progress(cache):
    done = []
    found = list(assembler.compile_modules(texts(9), "sm_90", SETTINGS, workers=3, progress=done.append))
    assert sorted(x.index for x in found) == list(range(9)) and done == list(range(1, 10))
    for x in found:
        assert x.cubin[:4] == b"\x7fELF"
        assert f"add_{x.index}".encode() in x.cubin
        assert assembler.usage(x.report)[f"add_{x.index}"].registers > 0


def test_the_machine_code_does_not_depend_on_threads_or_the_cache(cache):
    seen = {tuple(linked(texts(6), workers=workers, cache=keep)) for workers in (1, 4) for keep in (False, True)}
    assembler.forget()
    assert seen == {tuple(linked(texts(6)))}


def test_texts_are_taken_as_they_are_needed(cache):
    taken, before = itertools.count(), threading.active_count()
    last = 0

    def endless():
        nonlocal last
        for last in taken:
            yield TEXT.format(n=last)

    results = assembler.compile_modules(endless(), "sm_90", SETTINGS, workers=2)
    for _ in range(5):
        next(results)
    assert last <= 5 + 2 * assembler.WAITING + 2
    results.close()
    assert threading.active_count() < before + 20


def test_a_slow_reader_holds_up_the_compiler(cache):
    results = assembler.compile_modules(iter(texts(100)), "sm_90", SETTINGS, workers=2)
    next(results)
    time.sleep(0.2)
    assert len(list(cache.glob("*.o"))) <= 1 + 2 * assembler.WAITING + 1
    results.close()


def test_a_refused_module_is_shown_with_its_line_and_kernel(cache):
    bad = TEXT.format(n=7).replace("add.rn.f32", "add.foo.f32")
    with pytest.raises(BackendError) as raised:
        linked([*texts(2), bad, *texts(2, 5)])
    message = str(raised.value)
    assert "refuses the PTX for sm_90" in message and "in .visible .entry add_7" in message
    assert "     11  add.foo.f32 %x, %x, 0f3F800000;" in message and ">" in message


def test_options_reach_the_assembler(cache):
    (plain,) = linked(texts(1))
    sizes = set()
    for level in range(4):
        (made,) = assembler.compile_modules(texts(1), "sm_90", Precision(optimisation=level))
        sizes.add(len(made.cubin))
    assert len(sizes) >= 2
    (debug,) = assembler.compile_modules(texts(1), "sm_90", Precision(line_info=True))
    assert b"debug_line" in debug.cubin and b"debug_line" not in plain
    (few,) = assembler.compile_modules(texts(1), "sm_90", Precision(max_registers=24))
    assert assembler.usage(few.report)["add_0"].registers <= 24


def test_arguments_are_checked():
    for architecture, message in (
        ("90", r"there is no GPU architecture '90'; did you mean 'sm_90'\? \(there are: sm_75, "),
        (90, r"there is no GPU architecture 90; did you mean 'sm_90'\?"),
        ("SM-86", r"there is no GPU architecture 'SM-86'; did you mean 'sm_86'\?"),
    ):
        with pytest.raises(ArgumentError, match=message):
            assembler.compile_modules([], architecture, SETTINGS)


def test_an_architecture_that_there_is_not_is_named(cache):
    for asked, meant in (("sm_10", "; did you mean 'sm_100'?"), ("sm_900", "; did you mean 'sm_90'?"), ("sm_21f", "")):
        with pytest.raises(ArgumentError) as told:
            list(assembler.compile_modules(texts(1), asked, SETTINGS))
        assert f"there is no GPU architecture '{asked}'{meant}" in str(told.value)
        assert "(there are: sm_75, sm_80, " in str(told.value)


def test_no_modules_are_no_work(cache):
    assert linked([]) == []


def test_without_the_compiler_there_is_one_line_with_the_command(monkeypatch):
    assembler.version.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(BackendError, match=r"PTX needs cuda-bindings: pip install cuda-core cuda-bindings nvidia"):
        linked(texts(1))
    monkeypatch.setattr(assembler, "tool", lambda name: None)
    with pytest.raises(BackendError, match="pip install nvidia-cuda-nvdisasm"):
        assembler.disassemble(b"")


@pytest.mark.skipif(
    assembler.tool("nvdisasm") is None and assembler.tool("cuobjdump") is None,
    reason="neither nvdisasm nor cuobjdump is installed: pip install nvidia-cuda-nvdisasm",
)
def test_machine_code_can_be_read(cache):
    (cubin,) = linked([TEXT.format(n=0) + TEXT.format(n=1).partition("// 1")[2]])
    text = assembler.disassemble(cubin)
    assert text.count("FADD") == 2 and all(name in text for name in ("add_0", "add_1"))


# ── the cache ────────────────────────────────────────────────────────────────────────


def test_a_module_is_compiled_once(cache, compiled):
    first = linked(texts(3))
    assert len(compiled) == 3 and linked(texts(3)) == first and len(compiled) == 3
    assembler.forget()
    assert linked(texts(3)) == first and len(compiled) == 3
    linked(texts(3), cache=False)
    assert len(compiled) == 6
    list(assembler.compile_modules(texts(1), "sm_80", SETTINGS))
    list(assembler.compile_modules(texts(1), "sm_90", Precision(optimisation=0)))
    assert len(compiled) == 8 and len(list(cache.iterdir())) == 5


def test_without_a_cache_nothing_is_written(cache, compiled):
    linked(texts(2), cache=False)
    assert not cache.exists() and not assembler._memory


def test_a_damaged_file_is_compiled_again(cache, compiled, monkeypatch):
    monkeypatch.setattr(disk_cache, "_warned", True)  # test_compiled looks at the warning
    wanted = linked(texts(1))
    (entry,) = cache.iterdir()
    whole = entry.read_bytes()
    middle = len(whole) // 2
    for damaged in (b"", whole[:20], whole[:-1], whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]):
        entry.write_bytes(damaged)
        assembler.forget()
        assert linked(texts(1)) == wanted
        assert entry.read_bytes() == whole
    assert len(compiled) == 5


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs a user whom permissions hold back")
def test_a_folder_that_may_only_be_read_means_one_warning(cache, monkeypatch):  # pragma: no cover
    cache.mkdir()
    cache.chmod(stat.S_IRUSR | stat.S_IXUSR)
    check_unwritable(monkeypatch)


def test_a_folder_that_cannot_be_made_means_one_warning(cache, monkeypatch):
    cache.write_text("a file where the folder should be")
    check_unwritable(monkeypatch)


def check_unwritable(monkeypatch):
    monkeypatch.setattr(disk_cache, "_warned", False)
    with pytest.warns(RuntimeWarning, match="EXPRKIT_CACHE_DIR names another folder") as warned:
        assert len(linked(texts(3))) == 3
    assert len(warned) == 1
    assembler.forget()
    assert len(linked(texts(3))) == 3


def test_those_not_used_for_the_longest_time_go_first(cache, monkeypatch):
    monkeypatch.setenv("EXPRKIT_CACHE_BYTES", "400")
    for name in "abc":
        disk_cache.write(name, bytes(60))
        os.utime(cache / f"{name}.o", (ord(name), ord(name)))
    assert disk_cache.read("a") == bytes(60)  # used now
    disk_cache.write("d", bytes(60))
    disk_cache.write("e", bytes(60))
    assert sorted(path.stem for path in cache.iterdir()) == ["a", "c", "d", "e"]


def test_the_size_is_checked_and_zero_means_none(cache, monkeypatch):
    monkeypatch.setenv("EXPRKIT_CACHE_BYTES", "much")
    with pytest.raises(ArgumentError, match="EXPRKIT_CACHE_BYTES must be a whole number of bytes, not 'much'"):
        disk_cache.folder()
    monkeypatch.setenv("EXPRKIT_CACHE_BYTES", "0")
    disk_cache.write("a", b"code")
    assert disk_cache.folder() is None and disk_cache.read("a") is None and not cache.exists()


def test_what_a_killed_process_left_is_removed_later(cache):
    cache.mkdir()
    old, new = cache / "old.tmp", cache / "new.tmp"
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    disk_cache._since.clear()
    disk_cache.write("a", b"code")
    assert sorted(path.name for path in cache.iterdir()) == ["a.o", "new.tmp"]


COMPILING = """
import sys
sys.path[:0] = [{tests!r}, {root!r}]
import test_link
print("begun", flush=True)
test_link.linked(test_link.texts({n}), workers=2)
print("done", flush=True)
"""


def start(cache, n):
    code = COMPILING.format(tests=str(Path(__file__).parent), root=str(Path(__file__).parent.parent), n=n)
    return subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "EXPRKIT_CACHE_DIR": str(cache)}, stdout=subprocess.PIPE
    )


@pytest.mark.slow
def test_two_processes_may_use_a_folder_at_once(cache):
    both = [start(cache, 20) for _ in "ab"]
    assert [process.communicate(timeout=120)[0].split() for process in both] == [[b"begun", b"done"]] * 2
    assert len(list(cache.iterdir())) == 20
    assert all(disk_cache.read(path.stem) for path in cache.iterdir())


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_a_kill_while_compiling_breaks_nothing(cache, compiled):
    for pause in (0.0, 0.03, 0.1):
        process = start(cache, 2000)
        assert process.stdout.readline() == b"begun\n"
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        kept = list(cache.glob("*.o"))
        assert all(disk_cache.read(path.stem) is not None for path in kept)
    before = len(kept)
    assert len(linked(texts(30))) == 30
    assert len(compiled) >= 30 - before


def test_kernels_stand_before_the_functions_they_call():
    head, last = "\t.target sm_90\n", "//-------- SYMBOLS --------\n"
    called = "//-------- .text.op --------\nop:\n"
    kernel = '//-------- .text.values --------\n.other values,@"STO_CUDA_ENTRY STV_DEFAULT"\n'
    assert assembler._entries_first(head + called + kernel + last) == head + kernel + called + last
