"""What NVIDIA's assembler says of kernels, kept on disk: compiled only if text, options or NVRTC change."""

from __future__ import annotations

import re

from exprkit.backends.gpu import nvrtc
from exprkit.errors import BackendError
from exprkit.runtime import disk_cache


def report_of(architecture, settings, text, **chosen):
    """The assembler's report (registers, spills) of a text's kernels."""
    options = repr(sorted(nvrtc.macros(settings, chosen).items())), repr(settings)
    key = disk_cache.key("report", text, architecture, *options, nvrtc.compiler_version())
    kept = disk_cache.read(key)
    if kept is None:
        kept = fresh_report(architecture, settings, text, **chosen).encode()
        disk_cache.write(key, kept)
    return kept.decode()


def fresh_report(architecture, settings, text, **chosen):
    """The same, not kept."""
    said = nvrtc.build(architecture, settings, text, **chosen)[1]
    if "Used " not in said:
        raise BackendError(
            "NVRTC took a kernel's machine code from the driver's cache, so that nothing is said of its registers: set "
            f"CUDA_CACHE_DISABLE=1 in the environment.  Its whole report: {said.strip(chr(0)).strip()!r}"
        )
    return said


def registers_and_spills(report, kernel):
    """Registers of a kernel, and bytes that it and the functions it calls spill.

    A kernel begins with ``Compiling entry function 'NAME' for 'sm_XX'``; the functions that it calls come behind it,
    before the next kernel.  Releases of CUDA tell more or less between those lines.
    """
    parts = re.split(r"Compiling entry function '(\w+)'", report)
    for name, part in zip(parts[1::2], parts[2::2], strict=True):
        used = re.search(r"Used (\d+) registers", part)
        spilled = re.findall(r"(\d+) bytes spill stores", part)
        if re.fullmatch(rf"{kernel}|_Z{len(kernel)}{kernel}\w*", name) and used and spilled:
            return int(used[1]), sum(map(int, spilled))
    raise ValueError(f"the assembler says nothing of a kernel {kernel!r}:\n{report}")
