"""Bytes of machine code that each operator takes in the interpreter's kernel for losses, fast float32 with 8 vectors.

    PYTHONPATH=. python tests/code_sizes.py --workers 2

No GPU is needed: NVRTC comes from PyPI.  The kernel is compiled whole and without one operator after the other, some
five seconds of a core each; an operator's size is the difference.  ``operators/ops.py`` has the numbers.
"""

from __future__ import annotations

import argparse
import multiprocessing
import re
import struct
import sys

from exprkit.backends.gpu import nvrtc, opcodes
from exprkit.backends.precision import precision

SHAPE = {"LANES": 32, "VECTORS": 8, "BLOCK": 512, "COLUMNS_SHARED": 1, "WIDE": 0}
SECTIONS, N_SECTIONS, SECTION_BYTES, SIZE = 40, 60, 64, 32  # where a cubin's header and its sections have them (ELF64)


def size_without(name):
    """Bytes of the largest section, the kernel's code, without the cases of an operator."""
    lines = opcodes.source("fast").split("\n")
    text = "\n".join(line for line in lines if not re.fullmatch(rf"\s*case .*// {name}", line))
    macros = {"REAL": "float", "TASK": "SQUARE", "COUNTED": 0, "WEIGHTED": 0, **SHAPE}
    code, _ = nvrtc.build("sm_90", precision("fast"), text, **macros)
    first, n = struct.unpack_from("<Q", code, SECTIONS)[0], struct.unpack_from("<H", code, N_SECTIONS)[0]
    return max(struct.unpack_from("<Q", code, first + SECTION_BYTES * k + SIZE)[0] for k in range(n))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workers", type=int, default=2)
    asked = parser.parse_args()
    rows = [row for row in opcodes.all_rows() if opcodes.modes(row)]
    with multiprocessing.get_context("spawn").Pool(asked.workers) as pool:
        whole, *rest = pool.imap(size_without, ["", *(row.name for row in rows)])
        print(f"the kernel: {whole:,} bytes")
        for row, size in zip(rows, rest, strict=True):
            kind = "held once" if opcodes.is_long(row, "fast") else "fast path first" if row.cuda.fast_path else ""
            print(f"{row.name:16} {whole - size:7,} {kind}")


if __name__ == "__main__":
    sys.exit(main())
