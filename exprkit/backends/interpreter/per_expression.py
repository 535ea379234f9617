"""One kernel launch per expression, as in the thesis; kept for comparison.

A choice of the CUDA backend (``dispatch="per-expression"``).  The postfix forms stand in a
matrix, padded with a stop token; each launch runs one row on all points, a point per thread,
with a stack in local memory.  As in the thesis, the stack's size (25, later 10 values there) and a block of any size
can be chosen.

    >>> import exprkit as ek
    >>> from exprkit.backends.interpreter.per_expression import stack_depth
    >>> stack_depth(ek.parse(["x1 + x2 * x3", "x1"]))
    3
"""

from __future__ import annotations

from typing import Any

import numpy as np

from exprkit.backends.gpu import layout
from exprkit.backends.gpu.device import fetched
from exprkit.backends.gpu.launch import MOST_THREADS, Launcher
from exprkit.errors import ArgumentError, whole
from exprkit.expressions.population import Population
from exprkit.operators import defined, ops
from exprkit.text.tokens import OPERATOR

MORE = 1 << 8  # beside an operator's code, for each operand but the first
BLOCK = 128  # threads, as the thesis found best


class Baseline:
    """A population as a padded matrix of tokens."""

    def __init__(self, pop: Population, launcher: Launcher, block_size: int, stack: int | None = None) -> None:
        self.launcher, self.block_size, self.n_exprs = launcher, block_size, len(pop)
        self.stack = _stack(stack_depth(pop), stack)
        kept = ~_packs(pop)  # two numbers on the stack are side by side
        lengths = np.diff(np.append(0, np.cumsum(kept))[pop.offsets])
        self.max_tokens = int(lengths.max(initial=0)) + 1
        inside = np.arange(self.max_tokens) < lengths[:, None]
        kinds = np.full(inside.shape, layout.STOP, np.uint8)
        values, numbers = np.zeros(inside.shape, np.int32), np.zeros(inside.shape, launcher.dtype)
        kinds[inside], values[inside] = pop.kinds[kept], _values(pop)[kept]
        with np.errstate(over="ignore", invalid="ignore"):
            numbers[inside] = pop.values[kept].view(np.float64).astype(launcher.dtype)
        asarray = launcher.device.xp.asarray
        self.tokens = {
            "token_kinds": asarray(kinds),
            "token_values": asarray(values),
            "token_numbers": asarray(numbers),
        }

    def evaluate(self, params: Any, out: Any) -> None:
        """Write every element of ``out``, (n_sets, n_exprs, n_points)."""
        xp = self.launcher.device.xp
        kernel = self.launcher.support("per_expression", STACK=self.stack, BLOCK=self.block_size)
        blocks = -(-out.shape[-1] // self.block_size), 1
        for one_set, place in zip(params, out, strict=True):
            result = xp.empty(place.shape, place.dtype) if isinstance(place, np.ndarray) else place
            values = xp.asarray(one_set)
            launch = self.launcher.launch(
                kernel,
                blocks,
                self.block_size,
                max_tokens=self.max_tokens,
                out=result,
                params=values,
                max_params=values.shape[-1],
                **self.tokens,
            )
            for i in range(self.n_exprs if out.shape[-1] else 0):
                launch(expression=i)
            if result is not place:
                place[...] = fetched(result)


def check_block(size: int | None) -> int:
    """Threads of a block, any number of them."""
    if size is not None and (not isinstance(size, int) or not 0 < size <= MOST_THREADS):
        raise ArgumentError(f"block_size of a launch per expression must be 1 to {MOST_THREADS}, not {size!r}")
    return size or BLOCK


def _stack(depth: int, asked: int | None) -> int:
    """How many values the stack holds: as many as asked for, else the least power of two that is enough."""
    if asked is not None:
        return whole("for these expressions stack", asked, depth)
    return 1 << (depth - 1).bit_length()


def stack_depth(pop: Population) -> int:
    """The most values that any expression keeps at a time."""
    change = np.where(pop.kinds == OPERATOR, -_more(pop), 1)
    height = np.cumsum(change) - np.repeat(np.cumsum(pop.valid) - pop.valid, np.diff(pop.offsets))
    return int(height.max(initial=1))


def _values(pop: Population) -> np.ndarray:
    """Of an operator its code and how many operands it has beside the first, else the index."""
    index = (pop.values & np.uint64(0x7FFFFFFF)).astype(np.int32)
    return np.where(pop.kinds == OPERATOR, index | MORE * _more(pop), index).astype(np.int32)


def _more(pop: Population) -> np.ndarray:
    """How many operands an operator has beside the first; what packs two leaves both on the stack."""
    more = np.maximum(ops.ARITY.astype(np.int64), 1) - 1
    more[ops.PAIR_OF] = 0
    more[[row.code for row in defined.functions() if row.packed]] = 2
    return more[pop.values & np.uint64(0xFF)]


def _packs(pop: Population) -> np.ndarray:
    """The tokens that pack two operands."""
    return (pop.kinds == OPERATOR) & (pop.values == ops.PAIR_OF)
