"""GPU kernels of pool and join for a search's operators, and the size of the pool that fits on a device.

In: a device, operators, how many points a function has.  Out: ``Programs``, which launches.

    >>> from exprkit.expressions.arguments import operators_of
    >>> from exprkit.regression.on_device import pool, programs
    >>> "return sin(a);" in programs.source(pool.KERNELS, operators_of(["+", "sin"]))
    True
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from exprkit.backends import load
from exprkit.backends.device_programs.translate import text_of
from exprkit.backends.gpu import device as gpu
from exprkit.backends.gpu.launch import fill
from exprkit.backends.gpu.loss_code import call, number
from exprkit.backends.loss_tokens import written
from exprkit.backends.precision import precision
from exprkit.operators import defined, ops
from exprkit.text.tokens import OPERATOR, VARIABLE

THREADS = 128  # of a block
HEAD = "gpu/common.cu", "gpu/arithmetic.cu"
FEWEST = 100_000  # functions that a device has to have memory for
BYTES_OF_A_POINT, BYTES_BESIDE = 24, 100  # of a function: its values, some twice; and what the join needs

Result = TypeVar("Result")


def device_of(backend: str) -> Any:
    """The GPU that a backend's pools lie on; None: they lie on the host.

    Raises
    ------
    BackendError
        If there is no such backend, or it can't run here.
    """
    on_gpu = ("cuda", "ptx")
    if backend == "auto":
        return None if gpu.missing() else gpu.current()
    load(backend)
    return gpu.current() if backend in on_gpu else None


def with_memory(device: Any, n: int, n_points: int, work: Callable[[int], Iterable[Result]]) -> Iterator[Result]:
    """What ``work`` yields for n functions at some points, or for as many as there is memory for.

    Where memory ends in the middle, the work begins anew with half as many.  ``device``: None for the host, where all
    are.
    """
    if device is None:
        yield from work(n)
        return
    n = min(n, int(device.free_bytes()) // (BYTES_OF_A_POINT * n_points + BYTES_BESIDE))
    while True:
        try:
            yield from work(n)
            return
        except device.out_of_memory:
            if n < FEWEST:
                raise
        device.release()
        n //= 2


class KernelFile(NamedTuple):
    """A file of kernels: what they are handed, the host's functions that they run, the operators that they apply."""

    file: str
    arguments: type[ctypes.Structure]
    translated: tuple[Callable[..., Any], ...]
    applied: Callable[[Sequence[defined.Written]], Iterable[defined.Written]] = tuple


class Programs(NamedTuple):
    """Kernels for some operators and a number of points."""

    device: Any
    operators: tuple[defined.Written, ...]
    n_points: int

    def launch(self, kernels: KernelFile, name: str, n: int, **fields: Any) -> None:
        """Start a kernel with n threads at work."""
        if not n:
            return
        arguments = kernels.arguments()
        fill(arguments, {**fields, "n": n}, self.device)
        threads = 1 if self.device.lanes == 1 else THREADS
        macros = {"REAL": "double", "LANES": self.device.lanes, "POOL_POINTS": self.n_points}
        kernel = self.device.kernel(name, precision("ieee"), source(kernels, self.operators), **macros)
        kernel.prepare((-(-n // threads), 1), threads, 0, arguments)()


def source(kernels: KernelFile, operators: Sequence[defined.Written]) -> str:
    """The CUDA C of a file's kernels."""
    return _source(kernels, tuple(row.code for row in operators))


@functools.lru_cache(maxsize=64)
def _source(kernels: KernelFile, codes: tuple[int, ...]) -> str:
    rows = {row.code: row for row in kernels.applied([defined.known(code) for code in codes])}
    parts = {
        "cases": "\n".join(f"    case {code}: {_case(rows[code])}" for code in sorted(rows)),
        "ways": "enum { TIMES, OVER, PLUS, LESS, MINUS };",  # of ``links``
    }
    text: str = text_of(Path(__file__).with_name(kernels.file), kernels.translated, cases=parts, head=HEAD)
    return text


def _case(row: defined.Written) -> str:
    """CUDA C that returns an operator of a, b and c; of a formula, one operator of the table after the other."""
    if isinstance(row, ops.Operator):
        return f"return {row.cuda.formula};"
    lines: list[str] = []

    def applied(own: ops.Operator, operands: list[str]) -> str:
        lines.append(f"const T v{len(lines)} = {call(own, 'ieee', operands)};")
        return f"v{len(lines) - 1}"

    tokens = np.array([VARIABLE] * row.arity + [OPERATOR]), np.array([*range(row.arity), row.code])
    result = written(tokens, "abc", number, applied)
    return f"{{ {' '.join(lines)} return {result}; }}"
