"""Machine code that came with the package: archives of loops for levels of processors, and of kernels for GPUs.

``exprkit.build_hook`` makes them when a wheel is built; an editable installation has none and compiles on first use.

    >>> from exprkit.runtime import shipped
    >>> shipped.levels(("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon"))
    ['generic']

=========================  =================================================================================
``loops-LEVEL.zip``        in this folder, for each of ``LEVELS``; the best that this processor has is used
``kernels-sm_90.zip``      the same for the GPU architectures that the build hook was told
``versions`` in it         what all its entries need: another Numba or Python, or an older NVRTC, compiles and says so
a name of the disk cache   an entry as in the disk cache: length, SHA-256, machine code.  The name says of which
                           text it was compiled: a loop or kernel whose text has changed is not found
=========================  =================================================================================

Only loops that Python or C calls are in it.  Those that loops call are part of their code.
"""

from __future__ import annotations

import functools
import io
import lzma
import sys
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import llvmlite
import numba

from exprkit.runtime import disk_cache

LEVELS = {  # of processors by LLVM's name, best first, and what it must have (psABI of x86-64, section 3.1.1)
    "x86-64-v4": "avx2 bmi bmi2 f16c fma lzcnt movbe avx512f avx512bw avx512cd avx512dq avx512vl",
    "x86-64-v3": "avx2 bmi bmi2 f16c fma lzcnt movbe",
    "generic": "neon",
}
VERSIONS = "versions"
DAMAGED = zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, NotImplementedError
Processor = tuple[str, str, str]  # LLVM's triple, name and features, as of Numba's ``magic_tuple``


def versions() -> str:
    """What machine code of loops depends on, whatever its text and processor are."""
    return f"numba=={numba.__version__} llvmlite=={llvmlite.__version__} with {sys.implementation.cache_tag}"


def levels(processor: Processor) -> list[str]:
    """The levels that a processor has, best first."""
    triple, name, features = processor
    there = {feature[1:] for feature in features.split(",") if feature.startswith("+")}
    arm = triple.startswith(("aarch64", "arm64"))
    levels = [
        level for level, needed in LEVELS.items() if there.issuperset(needed.split()) and arm == (needed == "neon")
    ]
    return levels or [name] * (name in LEVELS)


def file_name(level: str, kind: str = "loops") -> str:
    """The name of the archive of a level or, for ``kind`` "kernels", of a GPU architecture."""
    return f"{kind}-{level}.zip"


class Archive:
    """The machine code of one level, or of one GPU architecture, which has no processor."""

    def __init__(self, path: Path, processor: Processor = ("", "", "")) -> None:
        self._path = path
        self._zip = zipfile.ZipFile(io.BytesIO(path.read_bytes()))  # a forked process would share a file's position
        self.processor = processor
        self.versions = self._zip.read(VERSIONS).decode()

    def read(self, name: str) -> bytes | None:
        """The code of an entry; None: there is none in good order."""
        try:
            code = disk_cache.checked(self._zip.read(name))
        except KeyError:
            return None
        except DAMAGED:
            code = None
        if code is None:
            _warn_of_damage(self._path)
        return code


@functools.cache
def archive(processor: Processor) -> Archive | None:
    """The archive that came with the package, of the best level that a processor has; None: there is none for it."""
    return best_of(processor, Path(__file__).parent)


def best_of(processor: Processor, folder: Path) -> Archive | None:
    """The archive in a folder of the best level that a processor has; None: there is none, or of other versions."""
    for level in levels(processor):
        shipped = opened(folder / file_name(level), (processor[0], level, ""))
        if shipped is None:
            continue
        if shipped.versions == versions():
            return shipped
        disk_cache.warn(
            f"loops are compiled anew, all at once by python -m exprkit warm: the machine code that came with exprkit "
            f"is for {shipped.versions}, here is {versions()}"
        )
    return None


def kernels(architecture: str) -> Archive | None:
    """The kernels that came with the package for a GPU architecture; None: there are none."""
    return opened(Path(__file__).parent / file_name(architecture, "kernels"))


def opened(path: Path, processor: Processor = ("", "", "")) -> Archive | None:
    """An archive; None where it is not there, or damaged."""
    try:
        return Archive(path, processor)
    except FileNotFoundError:
        return None
    except (*DAMAGED, KeyError):
        _warn_of_damage(path)
        return None


def _warn_of_damage(path: Path) -> None:
    disk_cache.warn(f"{path} is damaged, {path.name.partition('-')[0]} are compiled anew: install exprkit again")


def pack(entries: Iterable[Path], path: Path, made_by: str = "") -> None:
    """Write an archive of files of the disk cache: of loops or, with the compiler that made them, of kernels."""
    method = zipfile.ZIP_LZMA if made_by else zipfile.ZIP_DEFLATED  # of a cubin a third less, read in 5 ms
    with zipfile.ZipFile(path, "w") as into:
        contents = {entry.stem: entry.read_bytes() for entry in sorted(entries)}
        for name, data in {VERSIONS: (made_by or versions()).encode(), **contents}.items():
            into.writestr(zipfile.ZipInfo(name), data, method)  # of 1980: equal loops are equal bytes
