"""The join on a GPU: the same pairs as ``join.Partners`` finds, one lookup per thread.

In: a ``DevicePool``, y at its points, ``Link``s.  Out: ``Pairs``, on the host.

Where several GPUs take part (``sharing.gpus``), each has the values, which are copied while the first one sorts, and
what is looked up in, and looks a part of the functions f up: who does what changes no pair.
"""

from __future__ import annotations

import functools
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.device_programs.operator_kernels import KernelFile, OperatorKernels
from exprkit.backends.gpu import device as gpu
from exprkit.backends.gpu.device import fetched
from exprkit.distributed import ahead, sharing
from exprkit.operators.defined import Written
from exprkit.operators.ops import Operator
from exprkit.regression.on_device.pool import DevicePool
from exprkit.regression.pairs import links
from exprkit.regression.pairs.join import (
    CHUNK,
    MOST_PAIRS,
    NO_PAIRS,
    WIDE,
    Pairs,
    find_signature,
    is_repeated,
    partner_of,
    smallest_first,
    smallest_of,
)
from exprkit.regression.pairs.links import Link
from exprkit.runtime import slices
from exprkit.runtime.budget import check


def _with_inverses(operators: Sequence[Written]) -> list[Operator]:
    """The operator inside a link, and its inverse."""
    pairs = [(row, links.inverse(row)) for row in operators if row.arity == 1]
    return [row for pair in pairs if pair[1] is not None for row in pair if isinstance(row, Operator)]


FIELDS = (
    ("const double *", "values", "(n_functions, POOL_POINTS)"),
    ("const unsigned char *", "sizes", "(n_functions)"),
    ("double *", "s error", "(n_functions) what a lookup asks for, and what share of it rounding may be"),
    ("const double *", "sorted", "(n_sorted) s in its order"),
    ("const int *", "order", "(n_sorted) functions in the order of their s"),
    ("bool *", "repeated", "(n_sorted) whether one is the one before but for a and b"),
    ("int *", "smallest", "(n_sorted) of those that are the same; -1 for all but the first of them"),
    ("const double *", "v", "(POOL_POINTS) what f and the rest have to make"),
    ("int *", "partner", "(n) function h for function f, or -1"),
    ("Long", "first", "function f"),
    ("double", "hidden same", "links.py"),
    ("Long", "n n_sorted", "threads at work"),
    ("int", "way inner undoing", "of a form, operators; inner -1: none"),
)
KERNELS = KernelFile(
    Path(__file__).with_name("join.cu"),
    FIELDS,
    (find_signature, is_repeated, smallest_of, partner_of),
    _with_inverses,
    "enum { TIMES, OVER, PLUS, LESS, MINUS };",  # of ``links``
)
PARTS = 2  # of a GPU's share: who is done first takes what is left
AHEAD = 2  # links that GPUs look up at a time
FEWEST = 1 << 20  # functions of a part: fewer are looked up in a millisecond
HALF, LOW, SIGN = np.uint64(32), np.uint64((1 << 32) - 1), np.uint64(1 << 63)


class DeviceLookup(NamedTuple):
    """The sorted table in which functions are looked up, on a device."""

    kernels: OperatorKernels
    values: Any
    order: Any
    s: Any
    sizes: Any

    def copied_to(self, device: Any, values: Any) -> DeviceLookup:
        """The table on another device, which has the values."""
        order, s, sizes = (device.copied(array) for array in (self.order, self.s, self.sizes))
        return DeviceLookup(self.kernels._replace(device=device), values, order, s, sizes)

    def partners(self, v: np.ndarray, link: Link, cut: tuple[int, int]) -> list[np.ndarray]:
        """Functions f from ``cut`` and the first h of each, int64 and int32, and the sizes of both."""
        xp, n = self.kernels.device.xp, cut[1] - cut[0]
        partner = xp.empty(n, np.int32)
        inner = (-1, -1) if link.inner is None else (link.inner.code, links.inverse(link.inner).code)  # type: ignore[union-attr]
        self.kernels.launch(
            KERNELS,
            "find_partners",
            n,
            values=self.values,
            sorted=self.s,
            order=self.order,
            n_sorted=len(self.order),
            v=xp.asarray(v),
            partner=partner,
            hidden=links.HIDDEN,
            same=links.SAME,
            way=link.way,
            inner=inner[0],
            undoing=inner[1],
            first=cut[0],
        )
        f = xp.flatnonzero(partner >= 0)
        h, f = partner[f], f + cut[0]
        return [fetched(array) for array in (f, h, self.sizes[f], self.sizes[h])]


class DevicePartners:
    """The functions of a pool in the order of their signatures, those that differ by more than a and b: ``order``.

    With ``looks_up`` other GPUs get the values at once.
    """

    def __init__(self, pool: DevicePool, looks_up: bool = True) -> None:
        self._pool, xp, n = pool, pool.xp, len(pool)
        self._tables: dict[int, DeviceLookup] = {}
        self._values: dict[int, Any] = {}  # by device
        self._copying: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)
        if looks_up:
            self._copy_ahead()
        s, error = xp.empty(n), xp.empty(n)
        self._launch("find_signatures", n, s=s, error=error)
        usable = xp.flatnonzero(error < WIDE)
        del error
        s = s[usable]
        order = in_order(xp, s)
        s, order = s[order], usable[order].astype(np.int32)
        del usable
        repeated, smallest = xp.empty(len(order), np.bool_), xp.empty(len(order), np.int32)
        fields = {"sorted": s, "order": order, "n_sorted": len(order), "repeated": repeated, "smallest": smallest}
        self._launch("mark_repeated", len(order), **fields)
        self._launch("choose_smallest", len(order), sizes=pool.sizes, **fields)
        self.order = smallest[~repeated]
        self._table = DeviceLookup(pool.kernels, pool.values, self.order, s[~repeated], pool.sizes)
        if looks_up and sharing.gpus() is not None and len(self):
            pool.kernels.device.numbers(self._table.s[:1])  # waits: what others copy is there

    def __len__(self) -> int:
        return len(self.order)

    def each(self, y: np.ndarray, every: Iterable[Link]) -> Iterator[tuple[Link, Pairs]]:
        """The pairs of all links; where several GPUs look them up, those of the next links meanwhile."""
        if sharing.gpus() is None:
            yield from ((link, self.of(y, link)) for link in every)
            return
        yield from ahead.each(lambda link: (link, self.of(y, link)), every, AHEAD, "exprkit links")

    def of(self, y: np.ndarray, link: Link) -> Pairs:
        """The pairs that make y by this link."""
        v = link.behind(y)
        if v is None or not len(self):
            return NO_PAIRS
        check()
        gpus, cuts = sharing.gpus(), self._cuts()
        if gpus is None or len(cuts) == 1:
            return _smallest(*self._table.partners(v, link, cuts[0]))
        pairs = gpus.each(functools.partial(self._on_one, v, link), cuts)
        return _smallest(*map(np.concatenate, zip(*pairs, strict=True)))

    def _cuts(self) -> slices.Cuts:
        """Functions f that are looked up at a time."""
        gpus, n = sharing.gpus(), len(self._pool)
        return slices.even(n, PARTS * len(gpus), FEWEST) if gpus else [(0, n)]

    def _copy_ahead(self) -> None:
        """Have other GPUs copy the values; nobody waits."""
        gpus, own = sharing.gpus(), self._pool.kernels.device
        if gpus is None or len(self._cuts()) == 1:
            return
        own.numbers(self._pool.values[0])  # waits until they are there
        gpus.begin(lambda: self._values_on(gpu.current()), but=own.index)  # a lookup tries again, and raises errors

    def _values_on(self, device: Any) -> Any:
        with self._copying[device.index]:
            if device.index not in self._values:
                self._values[device.index] = device.copied(self._pool.values)
            return self._values[device.index]

    def _on_one(self, v: np.ndarray, link: Link, cut: tuple[int, int]) -> list[np.ndarray]:
        """In a GPU's thread: pairs of some functions f."""
        device = gpu.current()
        is_here = device.index == self._table.kernels.device.index
        values = self._table.values if is_here else self._values_on(device)
        with self._copying[device.index]:
            if device.index not in self._tables:
                self._tables[device.index] = self._table if is_here else self._table.copied_to(device, values)
        table = self._tables[device.index]
        table = table._replace(kernels=table.kernels._replace(device=device))
        return table.partners(v, link, cut)

    def _launch(self, name: str, n: int, **fields: Any) -> None:
        self._pool.kernels.launch(KERNELS, name, n, values=self._pool.values, **fields)


def _smallest(f: np.ndarray, h: np.ndarray, f_sizes: np.ndarray, h_sizes: np.ndarray) -> Pairs:
    """At most MOST_PAIRS pairs of every chunk of functions f, as the host takes them."""
    first = np.arange(len(f)) - np.searchsorted(f // CHUNK, f // CHUNK) < MOST_PAIRS
    return smallest_first(f[first], h[first].astype(np.int64), f_sizes[first], h_sizes[first])


def in_order(xp: Any, s: Any) -> Any:
    """The stable order of numbers: by the lower half of their bits, then by the upper one.

    Whole numbers of 64 bits are what a device sorts fastest, half of them a number's place.
    """
    bits = (s + 0.0).view(np.uint64)
    rising = xp.where(bits >= SIGN, ~bits, bits | SIGN)
    order = xp.arange(len(s))
    place = order.astype(np.uint64)
    for half in (rising & LOW, rising >> HALF):
        packed = half[order] << HALF | place
        packed.sort()
        order = order[(packed & LOW).astype(np.int64)]
    return order
