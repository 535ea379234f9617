"""Compilation of CUDA C to machine code for one GPU architecture, cached on disk.

In: a text and macros.  Out: a cubin, and what the compiler says of it.  NVRTC runs through ``cuda-core``, with
the architecture given, so that it works on a machine without a GPU too; CuPy's own compiler
would flush subnormals in everything.

    >>> from exprkit.backends.gpu import nvrtc
    >>> nvrtc.MACROS["LANES"]
    32
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import io
import re
import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, NamedTuple

from exprkit.backends.gpu.schedule import LaunchShape, resident_blocks
from exprkit.backends.precision import Precision
from exprkit.errors import ArgumentError, BackendError, did_you_mean
from exprkit.runtime import disk_cache, machine, shipped
from exprkit.runtime.progress import shown

PACKAGES = ("cuda-core", "nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu12")  # besides NVRTC's own version in the key
USUAL_ARCHITECTURES = "sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"
CHECKED_FOR = "sm_80"  # the architecture that a text is tried on: every CUDA from 12 on has it
MACROS: dict[str, Any] = {  # what common.cu expects, and explains
    "REAL": "float",
    "LANES": 32,
    "VECTORS": 4,
    "BLOCK": 256,
    "WIDE": 1,
    "MIN_BLOCKS": 1,
    "TASK": "VALUES",
    "WEIGHTED": 0,
    "COUNTED": 0,
    "ONE_TILE": 0,
    "COLUMNS_SHARED": 1,
    "SUPPORT": 0,
    "TARGETS": 1,
    "ADDERS": "LANES",
    "FRACTION": 10,
    "POWERS": 1,
}


_making: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)  # several devices' threads want the same


def macros(settings: Precision, chosen: Mapping[str, Any]) -> dict[str, str]:
    """All that common.cu expects to be defined: the settings', the chosen and the usual values."""
    own = {
        "APPROXIMATE_DIVISION": int(bool(settings.approximate_division)),
        "APPROXIMATE_ROOT": int(bool(settings.approximate_root)),
        "PAIRS": int(settings.operators != "fast" or chosen.get("REAL") == "double"),
        "FLUSH": '".ftz"' if settings.flush_subnormals else '""',
    }
    together = {**MACROS, **own, **chosen}
    if "MIN_BLOCKS" not in chosen and settings.max_registers is None:
        itemsize = 8 if together["REAL"] == "double" else 4
        shape = LaunchShape(
            together["VECTORS"], together["BLOCK"], bool(together["COLUMNS_SHARED"]), together["LANES"], itemsize
        )
        short = settings.operators == "fast" or not together["POWERS"]
        together["MIN_BLOCKS"] = max(1, resident_blocks(shape, short))
    return {name: str(value) for name, value in together.items()}


def compiled(architecture: str, settings: Precision, text: str, **chosen: Any) -> bytes:
    """Machine code (a cubin) of a text's kernels, from the cache or the compiler.

    ``architecture`` as ``"sm_90"``; ``chosen``: macros that differ from ``MACROS``.
    """
    key = _key(architecture, settings, text, chosen)
    with _making[key]:
        code = _compiled_together.get(key) or _kept(key, architecture, settings, text, chosen)
        if code is None:
            with disk_cache.alone(key):
                code = disk_cache.read(key)  # another process may have compiled it meanwhile
                if code is None:
                    code, _ = build(architecture, settings, text, **chosen)
                    disk_cache.write(key, code)
    return code


_compiled_together: dict[str, bytes] = {}  # what was compiled side by side, also where nothing is kept on disk
_announcing, _announced = threading.Lock(), set[str]()  # keys of the kernels of which a line has been printed


class KernelRequest(NamedTuple):
    """A kernel that is to be compiled: its text, and how."""

    settings: Precision
    text: str
    chosen: Mapping[str, Any]  # macros that differ from ``MACROS``


def compile_together(architecture: str, wanted: Iterable[KernelRequest]) -> None:
    """Compile kernels side by side, so that ``compiled`` has them at once; a bar on stderr says how long that takes.

    NVRTC runs without Python's lock, and from CUDA 12.3 on all but its first phase side by side.
    """
    missing = {_key(kernel.settings.architecture or architecture, *kernel): kernel for kernel in wanted}
    missing = {
        key: kernel
        for key, kernel in missing.items()
        if key not in _compiled_together and _kept(key, kernel.settings.architecture or architecture, *kernel) is None
    }
    if not missing:
        return
    with _announcing:  # other threads may want the same: it is said once, and they wait
        new = len(missing.keys() - _announced)
        _announced.update(missing)
        importlib.import_module("cuda.core")  # before threads do: it does not bear being imported twice at once
    what = f"exprkit compiles for {architecture}, {'once' if disk_cache.folder() else 'nothing is kept'}"
    with (
        ThreadPoolExecutor(min(len(missing), machine.cores()), "exprkit-nvrtc") as pool,
        shown(new > 0, len(missing), what, " kernels") as done,
    ):
        keys = {pool.submit(code_of, architecture, kernel): key for key, kernel in missing.items()}
        for future in as_completed(keys):
            _compiled_together[keys[future]] = future.result()
            done(1)


def code_of(architecture: str, kernel: KernelRequest) -> bytes:
    """The machine code of a kernel, from the cache or the compiler."""
    return compiled(kernel.settings.architecture or architecture, kernel.settings, kernel.text, **kernel.chosen)


def _key(architecture: str, settings: Precision, text: str, chosen: Mapping[str, Any], compiler: str = "") -> str:
    """The name of a kernel's machine code in the caches; ``compiler``: by default that of this machine."""
    defined = repr(sorted(macros(settings, chosen).items()))
    return disk_cache.key(text, architecture, defined, repr(settings), compiler or compiler_version())


def _kept(key: str, architecture: str, settings: Precision, text: str, chosen: Mapping[str, Any]) -> bytes | None:
    """The code of the disk cache, or what came with the package; None: it is to be compiled."""
    code = disk_cache.read(key)
    archive = _shipped(architecture) if code is None else None
    return archive.read(_key(architecture, settings, text, chosen, archive.versions)) if archive else code


@functools.cache
def _shipped(architecture: str) -> shipped.Archive | None:
    """The kernels that came with the package; None where a newer NVRTC made them: a driver may not take its code."""
    archive, here = shipped.kernels(architecture), compiler_version()
    if archive is None or _number(archive.versions) <= _number(here):
        return archive
    disk_cache.warn(f"kernels that came with exprkit are by {archive.versions}, here is {here}: they are compiled anew")
    return None


def _number(compiler: str) -> list[int]:
    """NVRTC's, of what ``compiler_version`` gives."""
    return [int(n) for n in re.findall(r"\d+", compiler.partition(")")[0])]


def build(architecture: str, settings: Precision, text: str, **chosen: Any) -> tuple[bytes, str]:
    """Machine code, and the assembler's report where NVRTC does not take the code from the driver's cache."""
    from cuda.core import Program

    report = io.StringIO()
    options = _options(architecture, settings, chosen)
    code = Program(text, "c++", options).compile("cubin", logs=report)
    return bytes(code.code), report.getvalue()


def ptx(architecture: str, settings: Precision, text: str, **chosen: Any) -> str:
    """The kernels as PTX."""
    options = _options(architecture, settings, chosen)
    return to_ptx(text, [flag for flag in options.as_bytes("nvrtc") if b"ptxas" not in flag]).decode()


def to_ptx(text: str, flags: list[bytes]) -> bytes:
    """CUDA C as PTX; by the library itself, since ``cuda-core`` asks the driver first."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"exprkit.cu", 0, None, None)
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(flags), flags)
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            log = b" " * nvrtc.nvrtcGetProgramLogSize(program)[1]
            nvrtc.nvrtcGetProgramLog(program, log)
            raise BackendError(f"NVRTC makes no PTX ({status}):\n{log.decode().strip(chr(0))}")
        ptx = b" " * nvrtc.nvrtcGetPTXSize(program)[1]
        nvrtc.nvrtcGetPTX(program, ptx)
    finally:
        nvrtc.nvrtcDestroyProgram(program)
    return ptx.rstrip(b"\0")


def _options(architecture: str, settings: Precision, chosen: Mapping[str, Any]) -> Any:
    from cuda.core import ProgramOptions

    plain = re.fullmatch(r"(?:sm|compute)_(\d+)[af]?", str(architecture))
    if plain is None or f"sm_{plain[1]}" not in architectures():
        raise no_architecture(architecture)
    return ProgramOptions(
        arch=architecture,
        std="c++17",
        define_macro=list(macros(settings, chosen).items()),
        ftz=bool(settings.flush_subnormals),
        prec_div=not settings.approximate_division,
        prec_sqrt=not settings.approximate_root,
        fma=settings.contract,
        max_register_count=settings.max_registers,
        lineinfo=settings.line_info or None,
        ptxas_options=["-v", f"-O{settings.optimisation}"],
    )


def architectures() -> list[str]:
    """GPU architectures that NVRTC makes code for; those that it has had for long where it is not installed."""
    try:
        from cuda.bindings import nvrtc

        return [f"sm_{number}" for number in nvrtc.nvrtcGetSupportedArchs()[1]]
    except (ImportError, RuntimeError):
        return list(USUAL_ARCHITECTURES)


def no_architecture(asked: object, names: Iterable[str] | None = None) -> ArgumentError:
    """The error that there is no architecture of that name; ``names``: which there are, by default NVRTC's."""
    known, digits = list(architectures() if names is None else names), re.sub(r"\D", "", str(asked))
    begun = next((name for name in known if digits and name.startswith(f"sm_{digits}")), "")
    hint = did_you_mean(str(asked), known, {str(asked): begun})
    return ArgumentError(f"there is no GPU architecture {asked!r}{hint} (there are: {', '.join(known)})")


def complaint(text: str) -> str:
    """The compiler's error for a text, for float or double; "" if it takes it, or is not installed."""
    if any(importlib.util.find_spec(name) is None for name in ("cuda", "cuda.core")):
        return ""
    for real in ("float", "double"):
        try:
            compiled(CHECKED_FOR, Precision("ieee"), text, REAL=real, SUPPORT=1)
        except Exception as error:  # cuda-core's own, which has no public name
            if "error:" not in str(error):  # it is not the text's fault
                return ""
            lines = [line.strip() for line in str(error).rstrip("\0").splitlines()]
            first = next(k for k, line in enumerate(lines) if "error:" in line)
            return f"{lines[first].partition('error:')[2].strip()} in {lines[first + 1]}"
    return ""


def compiler_version() -> str:
    """Name and full version of everything that makes the code."""
    from cuda.bindings import nvrtc

    packages = map(" ".join, machine.installed(PACKAGES).items())
    return ", ".join([f"NVRTC {nvrtc.nvrtcVersion()[1:]}", *packages])
