"""The thesis's kernel, one launch per expression, for comparison with one launch for all.

In: a population and data.  Out: its values.  The postfix forms stand in a matrix, padded with a stop token; each launch
runs one row on all points, a point per thread, with a stack in local memory.  As in the thesis, the stack's size (25,
later 10 values there) and a block of any size can be chosen.  ``bench`` times it as ``dispatch="per-expression"``.

    >>> import exprkit as ek
    >>> from exprkit.study.thesis.baseline import stack_depth
    >>> stack_depth(ek.parse(["x1 + x2 * x3", "x1"]))
    3
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from exprkit.backends.gpu import device as gpu
from exprkit.backends.gpu import layout, opcodes
from exprkit.backends.gpu.launch import MOST_THREADS, REAL, fill
from exprkit.backends.precision import Precision
from exprkit.backends.precision import precision as settings_of
from exprkit.errors import ArgumentError, whole
from exprkit.expressions.population import Population
from exprkit.operators import defined, ops
from exprkit.text.tokens import OPERATOR

OPTIONS = ("block_size", "stack")
MORE = 1 << 8  # beside an operator's code, for each operand but the first
BLOCK = 128  # threads, as the thesis found best
STOP = OPERATOR + 1  # behind an expression's last token (baseline.cu)

_ARGUMENTS: layout.Rows = (
    ("const T *", "data", "as the user gave it, two strides"),
    ("const T *", "params", "(n_exprs, max_params)"),
    ("const unsigned char *", "token_kinds", "(n_exprs, max_tokens), padded with T_STOP"),
    ("const int *", "token_values", ""),
    ("const T *", "token_numbers", ""),
    ("T *", "out", "(n_exprs, n_points)"),
    ("Long", "n_points stride_point stride_variable", ""),
    ("int", "expression max_tokens max_params", ""),
)
Arguments = layout.ctypes_struct("Baseline", _ARGUMENTS)


class Baseline:
    """A population as a padded matrix of tokens, with what ``bench`` asks of an evaluator.

    Parameters
    ----------
    pop : Population
    X : array, (n_points, n_vars)
        On the host or the device.
    precision, dtype
        As of ``Evaluator``.
    block_size : int, optional
        Threads of a block, any number of them.
    stack : int, optional
        Values that a thread keeps room for; by default as many as the population needs.
    device : optional
        By default the current one.
    """

    def __init__(
        self,
        pop: Population,
        X: Any,
        *,
        precision: str | Precision = "fast",
        dtype: Any = "float32",
        block_size: int | None = None,
        stack: int | None = None,
        device: Any = None,
    ) -> None:
        self.device, self.dtype, self.n_exprs = device or gpu.current(), np.dtype(dtype), len(pop)
        self.engine, self.seconds = self, dict[str, float]()  # what an engine says of its phases: nothing
        self.settings, self.block_size = settings_of(precision), _checked_block_size(block_size)
        self.stack = _stack(stack_depth(pop), stack)
        self._data = self.device.xp.asarray(X, self.dtype)
        self._arrays = {name: self.device.xp.asarray(array) for name, array in self._matrix(pop).items()}

    def _matrix(self, pop: Population) -> dict[str, np.ndarray]:
        """The tokens of all expressions, (n_exprs, max_tokens)."""
        single = ~_packs(pop)  # two numbers on the stack are side by side
        lengths = np.diff(np.append(0, np.cumsum(single))[pop.offsets])
        self.max_tokens = int(lengths.max(initial=0)) + 1
        inside = np.arange(self.max_tokens) < lengths[:, None]
        kinds = np.full(inside.shape, STOP, np.uint8)
        values, numbers = np.zeros(inside.shape, np.int32), np.zeros(inside.shape, self.dtype)
        kinds[inside], values[inside] = pop.kinds[single], _values(pop)[single]
        with np.errstate(over="ignore", invalid="ignore"):
            numbers[inside] = pop.values[single].view(np.float64).astype(self.dtype)
        return {"token_kinds": kinds, "token_values": values, "token_numbers": numbers}

    def evaluate(self, params: Any, out: Any) -> Any:
        """Write every element of ``out``, (n_exprs, n_points), on the host or the device, and give it back."""
        xp, data = self.device.xp, self._data
        result = xp.empty(out.shape, self.dtype) if isinstance(out, np.ndarray) else out
        values = xp.asarray(params, self.dtype)
        kernel = self.device.kernel(
            "per_expression",
            self.settings,
            source(self.settings.operators),
            SUPPORT=1,
            STACK=self.stack,
            BLOCK=self.block_size,
            REAL=REAL[self.dtype.itemsize],
            LANES=self.device.lanes,
        )
        arguments, strides = Arguments(), [stride // self.dtype.itemsize for stride in data.strides]
        arrays = {**self._arrays, "data": data, "params": values, "out": result}
        sizes = {"n_points": len(data), "max_tokens": self.max_tokens, "max_params": values.shape[-1]}
        fill(arguments, {**arrays, **sizes, "stride_point": strides[0], "stride_variable": strides[1]}, self.device)
        start = kernel.prepare((-(-len(data) // self.block_size), 1), self.block_size, 0, arguments)
        for i in range(self.n_exprs if len(data) else 0):
            arguments.expression = i
            start()
        if result is not out:
            out[...] = gpu.fetched(result)
        return out

    def kernels(self) -> list[dict[str, Any]]:
        """Nothing: what the compiler made of the kernel is not recorded."""
        return []


def source(operators: str) -> str:
    """The CUDA C of the kernel, behind that of operators on single numbers ("ieee" or "fast")."""
    struct = {"Baseline": layout.cuda_struct("Baseline", _ARGUMENTS)}
    return opcodes.source(operators) + opcodes.joined([str(Path(__file__).with_suffix(".cu"))], struct)


def _checked_block_size(size: int | None) -> int:
    """Threads of a block, any number of them."""
    if size is not None and (not isinstance(size, int) or not 0 < size <= MOST_THREADS):
        raise ArgumentError(f"block_size of a launch per expression must be 1 to {MOST_THREADS}, not {size!r}")
    return size or BLOCK


def _stack(depth: int, chosen: int | None) -> int:
    """Values that the stack holds: the chosen number, else the least power of two that is enough."""
    if chosen is not None:
        return whole("for these expressions stack", chosen, depth)
    return 1 << (depth - 1).bit_length()


def stack_depth(pop: Population) -> int:
    """The most values that any expression keeps at a time."""
    change = np.where(pop.kinds == OPERATOR, -_more(pop), 1)
    height = np.cumsum(change) - np.repeat(np.cumsum(pop.valid) - pop.valid, np.diff(pop.offsets))
    return int(height.max(initial=1))


def _values(pop: Population) -> np.ndarray:
    """An operator's code with the number of operands beside the first; else the index."""
    index = (pop.values & np.uint64(0x7FFFFFFF)).astype(np.int32)
    return np.where(pop.kinds == OPERATOR, index | MORE * _more(pop), index).astype(np.int32)


def _more(pop: Population) -> np.ndarray:
    """Operands of an operator beside the first; what packs two leaves both on the stack."""
    more = np.maximum(ops.ARITY.astype(np.int64), 1) - 1
    more[ops.PAIR_OF] = 0
    more[[row.code for row in defined.functions() if row.packed]] = 2
    return more[pop.values & np.uint64(0xFF)]


def _packs(pop: Population) -> np.ndarray:
    """The tokens that pack two operands."""
    return (pop.kinds == OPERATOR) & (pop.values == ops.PAIR_OF)
