"""A function pool on a GPU: the same functions in the same order as on the host, and room for many more.

In: what a ``Pool`` takes, and ``OperatorKernels``.  Out: a ``Pool`` whose arrays are the device's.

Combinations are made many at a time, a thread each (``pool.cu``).  Of those whose values are the same the first one is
kept, as on the host, in whatever order the threads run; how each is made stays on the device, too, until an expression
is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from exprkit.backends.device_programs.operator_kernels import KernelFile, OperatorKernels
from exprkit.backends.gpu.device import fetched
from exprkit.expressions.expression import Expression
from exprkit.operators import defined
from exprkit.regression.pairs.pool import (
    LEAF,
    NEGATED,
    SHIFT,
    Combinations,
    Origins,
    Pool,
    PoolArrays,
    hash_of,
    is_function,
    is_steady,
)
from exprkit.runtime.bags import empty
from exprkit.runtime.budget import check

CHUNK = 1 << 22  # combinations of a launch
NONE = np.iinfo(np.int32).max  # of the table's owners
FULL = 2 / 3  # share of the table that may be taken
ARRAYS = "values", "sizes", "bounded", "made_by", "left", "right"  # of ``PoolArrays``, those that are used
FEWEST = 100_000  # functions that a device has to have memory for
BYTES_OF_A_POINT, BYTES_BESIDE = 24, 100  # of a function: its values, some twice; and what the join needs
FIELDS = (
    ("double *", "values", "(capacity, POOL_POINTS) of the functions"),
    ("unsigned char *", "sizes", "(capacity) in tokens"),
    ("bool *", "bounded", "(capacity) whether an operator that is no power stands inside"),
    ("short *", "made_by", "(capacity) operator, more where the operand is negated first"),
    ("int *", "left right third", "(capacity) operands; no third where there are no operators of three"),
    ("unsigned long long *", "keys", "(mask + 1) hashes; 0: none"),
    ("int *", "owners", "(mask + 1) the functions that have them; NONE: none yet"),
    ("unsigned long long", "mask", ""),
    ("const double *", "given", "(n, POOL_POINTS) values made elsewhere, or none: values are to be made"),
    ("const Long *", "a b c", "operands; all pairs (triples) of them if n_b (n_c) > 0, else one of each"),
    ("int *", "slots rank", "(n) where a combination's hash is, -1: no function; how many are new up to it"),
    ("double", "shifted", "what operands are multiplied by to see how much an operator magnifies rounding"),
    ("Long", "n begin n_b n_c", "combinations of this launch, the first of them"),
    ("int", "n_functions most", "that are there; that there is room for"),
    ("int", "operation made_of arity negated once is_power", "once: 1 where a <= b is wanted, 2: a < b"),
)
KERNELS = KernelFile(Path(__file__).with_name("pool.cu"), FIELDS, (is_function, is_steady, hash_of))

Result = TypeVar("Result")


def with_memory(device: Any, n: int, n_points: int, work: Callable[[int], Iterable[Result]]) -> Iterator[Result]:
    """Results of ``work`` for n functions, or for as many as the device has memory for; all on the host (None).

    Where memory ends in the middle, the work begins anew with half as many.
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


class DevicePool(Pool):
    """Functions with their values at a few points, on a device; ``kernels`` are for its operators and points."""

    def __init__(
        self,
        points: np.ndarray,
        operators: Sequence[defined.Written],
        kernels: OperatorKernels,
        constants: Sequence[float] = (1.0, 2.0),
        anywhere: bool = True,
    ) -> None:
        self.kernels, self.xp = kernels, kernels.device.xp
        self._known: dict[int, tuple[int, int, int, int]] = {}
        self._names = [*ARRAYS, *["third"] * any(row.arity == 3 for row in operators)]
        super().__init__(points, operators, constants, anywhere=anywhere)

    def grow(self, size: int, most: int) -> None:
        self._reserve(most)
        super().grow(size, most)

    def multiply(self, most: int) -> None:
        self._reserve(most)
        super().multiply(most)

    def expressions(self, numbers: Sequence[int]) -> list[Expression]:
        self._bring(np.asarray(numbers))
        return super().expressions(numbers)

    def _origin(self, i: int) -> tuple[int, int, int, int]:
        if i not in self._known:
            self._bring(np.array([i]))
        return self._known[i]

    def _bring(self, numbers: np.ndarray) -> None:
        """Fetch how functions are made, and all that they are made of, one level at a time."""
        while len(numbers := np.setdiff1d(numbers, [*self._known])):
            indices = self.xp.asarray(numbers)
            parts = self.made_by, self.left, self.right, self._arrays.third if self._ternary else self.right
            made_by, *operands = (fetched(array[indices]) for array in parts)
            columns = np.stack([numbers, made_by, *operands], axis=1)
            self._known |= {i: (code, a, b, c) for i, code, a, b, c in columns.tolist()}
            arity = np.where(made_by == LEAF, 0, defined.arity()[made_by % NEGATED])
            numbers = np.concatenate([places[arity > k] for k, places in enumerate(operands)])

    # ── memory ──

    def _begin(self) -> None:
        arrays = empty(PoolArrays, n=0, n_points=len(self._points))
        self._arrays = PoolArrays(*(self.xp.empty(array.shape, array.dtype) for array in arrays))
        self._reserve(1024)

    def _reserve(self, most: int) -> None:
        """Make room for so many functions, and a table for them and those that a launch may add at most."""
        if most <= len(self._arrays.values):
            return
        for name in self._names:  # one by one: of two copies there may be no room
            old = getattr(self._arrays, name)
            new = self.xp.empty((most, *old.shape[1:]), old.dtype)
            new[: self._n] = old[: self._n]
            self._arrays = self._arrays._replace(**{name: new})
        self._chunk = min(CHUNK, 8 * most)
        self._keys: Any = None  # before there is another one
        self._owners: Any = None
        n_slots = 1 << int((most + self._chunk) / FULL).bit_length()
        self._keys = self.xp.zeros(n_slots, np.uint64)
        self._owners = self.xp.full(n_slots, NONE, np.int32)
        self._slots, self._new = self.xp.empty((2, self._chunk), np.int32)
        self._launch("insert_again", self._n)

    # ── combinations ──

    def _other(self, rows: Sequence[defined.Written]) -> Pool:
        return DevicePool(self._points, rows, self.kernels, (), anywhere=False)

    def _add(self, block: Combinations, most: int) -> None:
        for begin in range(0, block.n, self._chunk):
            if self._n >= most:
                return
            check()
            n = min(self._chunk, block.n - begin)
            once = 0 if not block.once else 1 if block.row.commutative else 2
            n_b, n_c = [*map(len, block.operands[1:]), 0, 0][:2]
            self._insert(Origins(block.code, block.operands), n, most, begin=begin, n_b=n_b, n_c=n_c, once=once)
            self.tried += n

    def _keep(self, values: Any, origins: Origins, most: int) -> Any:
        xp = self.xp
        values, *operands = (xp.ascontiguousarray(xp.asarray(array)) for array in (values, *origins.operands))
        place = xp.empty(len(values), np.int64)
        for begin in range(0, len(values), self._chunk):
            n = min(self._chunk, len(values) - begin)
            self._insert(Origins(origins.code, tuple(operands)), n, most, begin=begin, given=values)
            slots = self._slots[:n]
            owner = self._owners[xp.maximum(slots, 0)]
            place[begin : begin + n] = xp.where((slots < 0) | (owner == NONE), -1, owner)
        return place

    def _insert(self, origins: Origins, n: int, most: int, **how: Any) -> None:
        """Add the functions among n combinations that are new."""
        operation = origins.code % NEGATED
        arity = 0 if origins.code == LEAF else defined.known(operation).arity
        fields = {
            **dict(zip("abc", (*origins.operands, None, None), strict=False)),
            "operation": operation,
            "made_of": origins.code,
            "arity": arity,
            "negated": origins.code >= NEGATED,
            "is_power": operation in self.powers,
            "shifted": 1 + SHIFT,
            "most": most,
            **how,
        }
        self._launch("claim_slots", n, **fields)
        self._launch("mark_new", n, rank=self._new, **fields)
        rank = self.xp.cumsum(self._new[:n], dtype=np.int32)
        self._launch("place_functions", n, rank=rank, **fields)
        self._n += min(int(fetched(rank[-1:])[0]), max(most - self._n, 0))

    def _launch(self, name: str, n: int, **fields: Any) -> None:
        own = {
            "keys": self._keys,
            "owners": self._owners,
            "mask": len(self._keys) - 1,
            "slots": self._slots,
            "n_functions": self._n,
        }
        arrays = {name: getattr(self._arrays, name) for name in self._names}
        self.kernels.launch(KERNELS, name, n, **own, **arrays, **fields)
