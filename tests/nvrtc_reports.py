"""What NVIDIA's assembler says of kernels, kept on disk: compiled only if text, options or NVRTC change."""

from __future__ import annotations

import re

from exprkit.backends.gpu import nvrtc
from exprkit.runtime import disk_cache


def report_of(architecture, settings, text, **chosen):
    """The assembler's report (registers, spills) of a text's kernels."""
    options = repr(sorted(nvrtc.macros(settings, chosen).items())), repr(settings)
    key = disk_cache.key("report", text, architecture, *options, nvrtc.compiler_version())
    kept = disk_cache.read(key)
    if kept is None:
        kept = nvrtc.build(architecture, settings, text, **chosen)[1].encode()
        disk_cache.write(key, kept)
    return kept.decode()


def registers_and_spills(report):
    """Of the first kernel of a report: registers, and bytes that are spilled."""
    return int(re.search(r"Used (\d+) registers", report)[1]), int(re.search(r"(\d+) bytes spill stores", report)[1])
