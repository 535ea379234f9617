"""GPU kernels that apply operators, from a file of CUDA C and compiled functions of the host.

In: a ``KernelFile``, a device, operators, the number of points of a row.  Out: ``OperatorKernels``, which launches.

A line ``//{cases}`` of the file stands for a ``case`` of each operator, which returns its value of a, b and c; those of
the struct's name, ``//{translated}`` and ``//{constants}`` for what the ``KernelFile`` has.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import load
from exprkit.backends.device_programs.translate import text_of
from exprkit.backends.gpu import device as gpu
from exprkit.backends.gpu import layout
from exprkit.backends.gpu.launch import fill
from exprkit.backends.gpu.loss_code import call, number
from exprkit.backends.loss_tokens import written
from exprkit.backends.precision import precision
from exprkit.operators import defined, ops
from exprkit.text.tokens import OPERATOR, VARIABLE

THREADS = 128  # of a block
HEAD = "gpu/common.cu", "gpu/arithmetic.cu"


def device_of(backend: str) -> Any:
    """The GPU that a backend works on, None for the host; BackendError if it can't run here."""
    on_gpu = ("cuda", "ptx")
    if backend == "auto":
        return None if gpu.missing() else gpu.current()
    load(backend)
    return gpu.current() if backend in on_gpu else None


class KernelFile(NamedTuple):
    """A file of kernels, with all that its text depends on: KERNELS of the module of the same name beside it."""

    path: Path
    fields: layout.Rows  # of the struct that the kernels are handed
    translated: tuple[Callable[..., Any], ...]  # compiled functions of the host that they call
    applied: Callable[[Sequence[defined.Written]], Iterable[defined.Written]] = tuple  # the operators that they apply
    constants: str = ""  # in CUDA C

    @property
    def struct(self) -> str:
        """The name of the struct."""
        return f"{self.path.stem.title()}Arguments"


class OperatorKernels(NamedTuple):
    """Kernels on a device, for some operators and a number of points."""

    device: Any
    operators: tuple[defined.Written, ...]
    n_points: int

    def launch(self, kernels: KernelFile, name: str, n: int, **fields: Any) -> None:
        """Start a kernel with n threads at work."""
        if not n:
            return
        arguments = _struct(kernels.struct, kernels.fields)()
        fill(arguments, {**fields, "n": n}, self.device)
        threads = 1 if self.device.lanes == 1 else THREADS
        macros = {"REAL": "double", "LANES": self.device.lanes, "POOL_POINTS": self.n_points}
        kernel = self.device.kernel(name, precision("ieee"), source(kernels, self.operators), **macros)
        kernel.prepare((-(-n // threads), 1), threads, 0, arguments)()


def source(kernels: KernelFile, operators: Sequence[defined.Written]) -> str:
    """The CUDA C of a file's kernels."""
    module = ".".join(kernels.path.relative_to(Path(__file__).parents[3]).with_suffix("").parts)
    return source_of(module, tuple(row.code for row in operators))


@functools.lru_cache(maxsize=64)
def source_of(module: str, codes: tuple[int, ...]) -> str:
    """The CUDA C of a module's kernels, for operators by their codes."""
    kernels: KernelFile = importlib.import_module(module).KERNELS
    rows = {row.code: row for row in kernels.applied([defined.known(code) for code in codes])}
    parts = {
        "cases": "\n".join(f"    case {code}: {_case(rows[code])}" for code in sorted(rows)),
        "constants": kernels.constants,
        kernels.struct: layout.cuda_struct(kernels.struct, kernels.fields),
    }
    return text_of(kernels.path, kernels.translated, cases=parts, head=HEAD)


_struct = functools.cache(layout.ctypes_struct)


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
