"""How the interpreter is launched: points a thread, where the columns lie, who works on what.

In: sizes of bytecode and data.  Out: points per thread, and the items of every block.  Plain arithmetic, no GPU needed.

    >>> import numpy as np
    >>> from exprkit.backends.gpu.schedule import Deal, plan
    >>> made = plan(np.arange(5), np.arange(4), 4, 0, 4, 2, blocks=2, warps=2, deal=Deal(1))
    >>> made.n_units, made.runs["item"].tolist()
    (2, [[0, 2]])

==========  ============================================================================
tile        the points of a warp: vectors x lanes x numbers in a vector
item        one expression with one parameter set
slab        items of about the same cost as every other slab: consecutive ones, or every n-th run
unit        a slab on a tile: what a block does between two loads of a tile
run         consecutive items of a slab that a warp takes at a time
==========  ============================================================================
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

VECTOR_BYTES = 16
LINE = 256  # bytes of the device's memory that are best written together
VECTORS = (1, 2, 3, 4, 8)  # that a thread may have
BLOCKS = (128, 256, 320, 512, 640, 768)
TILES_END = 24  # all tiles have a whole number of chunks that divides this
_OVERHEAD = 4.8  # decoding a word, in vectors' work
_COST_OF_GLOBAL_COLUMNS = 1.3
_HALF_SPEED = 26  # warps on a multiprocessor that hide half of the time an instruction takes
_RECORD_NUMBERS = 2


class LaunchShape(NamedTuple):
    """The variant of the interpreter that is compiled and launched."""

    vectors: int
    block: int
    columns_shared: bool
    lanes: int
    itemsize: int
    wide: bool = False  # 16-byte stores of whole lines

    @property
    def tile(self) -> int:
        """Points of a warp."""
        return self.vectors * self.chunk

    def tiles(self, first: int, stop: int) -> range:
        """The tiles of points ``first`` to ``stop``; those of wide rows begin up to a line early."""
        return range(first // self.tile, -(-(stop + self.margin // self.itemsize) // self.tile))

    @property
    def margin(self) -> int:
        """Bytes of a row before a tile's first point."""
        return min(LINE, self.tile * self.itemsize) - VECTOR_BYTES if self.wide else 0

    @property
    def chunk(self) -> int:
        """Points of a warp's vector."""
        return self.lanes * VECTOR_BYTES // self.itemsize

    @property
    def warps(self) -> int:
        """Of a block."""
        return self.block // self.lanes

    def shared_bytes(self, n_columns: int, n_slots: int, n_targets: int, shared_reduction: bool) -> int:
        """Shared memory of a block: runs, strips of words, scratch, columns, targets, slots (see interpreter.cu)."""
        record = 8 + _RECORD_NUMBERS * self.itemsize
        strips = self.block * (record + -record % 16)
        scratch = -(-self.block * self.itemsize // VECTOR_BYTES) * VECTOR_BYTES if shared_reduction else 0
        rows = self.warps * n_slots + (n_columns if self.columns_shared else 0)
        tile = self.tile * self.itemsize
        return (2 + 2 * self.warps) * VECTOR_BYTES + strips + scratch + rows * (tile + self.margin) + n_targets * tile


def shapes(
    n_points: int, n_items: int, n_columns: int, n_slots: int, *, itemsize: int, lanes: int, block: int | None,
    multiprocessors: int, shared_per_block: int, shared_per_multiprocessor: int, fast: bool,
    vectors: int | None = None, wide: bool = False,
) -> list[LaunchShape]:  # fmt: skip
    """Variants that fit the device, the best first.

    Parameters
    ----------
    n_points, n_items, n_columns, n_slots
        The work.
    itemsize
        Of the numbers, in bytes.
    block, optional
        Only variants with so many threads a block.
    fast
        Whether operators are short; the code of long ones for many points would outgrow the instruction caches.
    vectors, optional
        Only variants with so many 16-byte vectors a thread.
    wide
        Whether results are stored a line at a time.
    """
    most_vectors = 8 if fast and itemsize == 4 else 4
    found = []
    for v in [v for v in VECTORS if v <= most_vectors] if vectors is None else [vectors]:
        for columns_shared in (True, False):
            if v > 4 and not columns_shared and vectors is None:
                continue
            if v == 3 and n_points > v * lanes * VECTOR_BYTES // itemsize and vectors is None:
                continue  # good where one tile is enough, else it takes longer than four
            for threads in BLOCKS if block is None else [block]:
                shape = LaunchShape(v, threads, columns_shared, lanes, itemsize, wide)
                shared = shape.shared_bytes(n_columns, n_slots, 2, True)
                if shared > shared_per_block:
                    continue
                tiles = len(shape.tiles(0, n_points))
                most = resident_threads(v, itemsize, columns_shared, fast) // threads * shape.warps
                warps = min(shared_per_multiprocessor // (shared + 1024) * shape.warps, most)
                warps = max(min(warps, tiles * n_items // multiprocessors), 1)
                cost = tiles * (v + _OVERHEAD) * (1 + _HALF_SPEED / warps)
                cost *= 1 if columns_shared else _COST_OF_GLOBAL_COLUMNS
                if n_items < 8 * shape.warps:  # warps without an item
                    cost *= -(-n_items // shape.warps) * shape.warps / max(n_items, 1)
                # of large blocks, fewer are late; those that read columns from global memory had better be small
                found.append((cost, -threads if columns_shared else threads, shape))
    return [shape for *_, shape in sorted(found, key=lambda one: one[:2])]


def resident_threads(vectors: int, itemsize: int, columns_shared: bool, fast: bool) -> int:
    """Threads of a multiprocessor: as many as the kernel can have without spilling registers."""
    if itemsize == 8:
        return 384 if vectors <= 4 else 256
    if vectors > 4:
        return 640 if columns_shared else 512
    return 768 if fast and columns_shared else 640 if fast or columns_shared else 512


class Deal(NamedTuple):
    """How the warps of a block get a unit's items.

    First each gets one run, together ``long`` of the unit's work; the rest is taken in runs of
    about ``items``, at last shorter ones, whenever a warp has nothing to do.
    """

    long: float
    items: int = 1


class Plan(NamedTuple):
    """Who works on what: see ``runs`` in interpreter.cu."""

    blocks: int
    n_units: int
    runs: np.ndarray  # RUN, (n_slabs, n_runs); those without items are the last of a slab


RUN = np.dtype([(name, np.int32) for name in ("item", "n_items", "word", "n_words")])
_ENOUGH = 0.985  # share of the blocks that has work in the last round
_LEAST_ITEMS = 16  # of a slab, for each warp
_MOST_RUNS = 1 << 18


def plan(
    cost: np.ndarray, first_word: np.ndarray, n_words: int, first: int, stop: int, n_tiles: int, *,
    blocks: int, warps: int, deal: Deal,
) -> Plan:  # fmt: skip
    """Share out items ``first`` to ``stop`` of every tile.

    The items are cut into slabs of about the same cost.  A slab on a tile is a unit, and the
    blocks take units in turn, slab by slab.  In a unit, each warp of the block takes run after
    run of consecutive items.  Where all units run at the same time and their runs are short,
    the slabs take runs in turn: the device then writes one stretch of memory at a time.

    Parameters
    ----------
    cost : int64 array, (n_exprs + 1)
        Work of all expressions before one; item i is expression ``i % n_exprs``.
    first_word : int32 array, (n_exprs)
        Where an expression's words begin, of ``n_words``.
    deal
        How the warps of a block share a unit.
    """
    n_slabs = _slabs(n_tiles, blocks, (stop - first) // (_LEAST_ITEMS * warps))
    deal = deal._replace(items=max(deal.items, (stop - first) // _MOST_RUNS))
    shares = _shares((stop - first) / n_slabs, warps, deal)
    n_exprs, of_a_set = len(cost) - 1, int(cost[-1])
    start, end = (item // n_exprs * of_a_set + int(cost[item % n_exprs]) for item in (first, stop))
    slab = np.arange(n_slabs)[:, None]
    place = shares[:-1] + slab  # of each run, in slabs
    if deal.long == 0 and n_slabs * n_tiles <= blocks:  # all at the same time: side by side
        place = shares[:-1] * n_slabs + slab * np.diff(shares)
    order = np.argsort(place, axis=None, kind="stable")
    work = start + np.rint(place.reshape(-1)[order] * ((end - start) / n_slabs)).astype(np.int64)
    edges = np.append(work // of_a_set * n_exprs + np.searchsorted(cost, work % of_a_set), stop)
    words = edges // n_exprs * n_words + first_word[edges % n_exprs]
    every = np.zeros(len(order), RUN)
    every["item"][order], every["n_items"][order] = edges[:-1] - first, np.diff(edges)
    every["word"][order], every["n_words"][order] = words[:-1], np.diff(words)
    runs = every.reshape(place.shape)
    real_first = np.argsort(runs["n_items"] == 0, axis=1, kind="stable")
    return Plan(min(blocks, n_tiles * n_slabs), n_tiles * n_slabs, np.take_along_axis(runs, real_first, axis=1))


def _slabs(n_tiles: int, blocks: int, most: int) -> int:
    """The fewest slabs that keep nearly all blocks busy to the end, or those that do it best."""
    slabs = np.arange(1, max(min(most, 64 + blocks // n_tiles), blocks // n_tiles, 1) + 1)
    busy = n_tiles * slabs / (-(-n_tiles * slabs // blocks) * blocks)
    return int(slabs[np.argmax(np.minimum(busy, _ENOUGH))])


def _shares(n_items: float, warps: int, deal: Deal) -> np.ndarray:
    """Share of a slab's work up to the beginning of each run; ends with 1."""
    long, rest = deal.long, 1 - deal.long
    n = max(int(n_items * rest / deal.items), 1)
    edges = [np.arange(warps) / warps * long] if long else []
    if rest:
        edges += [np.linspace(long, long + 0.75 * rest, max(n * 3 // 4, 1), endpoint=False)]
        edges += [np.linspace(long + 0.75 * rest, 1, max(n // 2, 1), endpoint=False)]
    return np.append(np.concatenate(edges), 1.0)
