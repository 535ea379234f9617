"""The join on a GPU: the same pairs as ``join.Partners`` finds, one lookup per thread.

In: a ``DevicePool``, y at its points, ``Form``s.  Out: ``Pairs``, on the host.

    >>> import numpy as np
    >>> from exprkit.regression.on_device.join import in_order
    >>> in_order(np, np.array([2.0, -1.0, 0.5, -1.0])).tolist()
    [1, 3, 2, 0]
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from exprkit.backends.gpu import layout
from exprkit.backends.gpu.device import fetched
from exprkit.operators.ops import Operator
from exprkit.regression import links
from exprkit.regression.join import (
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
from exprkit.regression.links import Form
from exprkit.regression.on_device.pool import DevicePool
from exprkit.regression.on_device.programs import KernelFile


def _with_inverses(operators: Sequence[Operator]) -> list[Operator]:
    """What stands inside of a form, and what undoes it."""
    pairs = [(row, links.inverse(row)) for row in operators if row.arity == 1]
    found = [row for pair in pairs if pair[1] is not None for row in pair]
    return [row for row in found if isinstance(row, Operator)]


KERNELS = KernelFile(
    "join.cu", layout.JoinArguments, (find_signature, is_repeated, smallest_of, partner_of), _with_inverses
)
HALF, LOW, SIGN = np.uint64(32), np.uint64((1 << 32) - 1), np.uint64(1 << 63)


class DevicePartners:
    """The functions of a pool in the order of what a lookup asks for.

    Attributes
    ----------
    order : int32 array on the device, numbers of functions, those that differ by more than a and b
    """

    def __init__(self, pool: DevicePool, go_on: Callable[[], None] = lambda: None) -> None:
        self._pool, self._go_on = pool, go_on
        xp, n = pool.xp, len(pool)
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
        self.order, self._s = smallest[~repeated], s[~repeated]

    def __len__(self) -> int:
        return len(self.order)

    def of(self, y: np.ndarray, form: Form) -> Pairs:
        """The pairs that make y in this form."""
        v = form.behind(y)
        if v is None or not len(self):
            return NO_PAIRS
        self._go_on()
        xp, n = self._pool.xp, len(self._pool)
        partner = xp.empty(n, np.int32)
        inner = (-1, -1) if form.inner is None else (form.inner.code, links.inverse(form.inner).code)  # type: ignore[union-attr]
        self._launch(
            "find_partners", n, sorted=self._s, order=self.order, n_sorted=len(self), v=xp.asarray(v), partner=partner,
            hidden=links.HIDDEN, same=links.SAME, way=form.way, inner=inner[0], undoing=inner[1],
        )  # fmt: skip
        f = xp.flatnonzero(partner >= 0)
        return self._on_host(f, partner[f])

    def _on_host(self, f: Any, h: Any) -> Pairs:
        """So many of every chunk, as the host takes them."""
        sizes = self._pool.sizes
        f, h, f_sizes, h_sizes = (fetched(array) for array in (f, h, sizes[f], sizes[h]))
        rank = np.arange(len(f)) - np.searchsorted(f // CHUNK, f // CHUNK)
        some = rank < MOST_PAIRS
        return smallest_first(f[some], h[some].astype(np.int64), f_sizes[some], h_sizes[some])

    def _launch(self, name: str, n: int, **fields: Any) -> None:
        self._pool.programs.launch(KERNELS, name, n, values=self._pool.values, **fields)


def in_order(xp: Any, s: Any) -> Any:
    """What sorts numbers, stable: by the lower half of their bits, then by the upper one.

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
