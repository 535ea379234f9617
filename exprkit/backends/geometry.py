"""How the interpreter is launched: points a thread, where the columns lie, who works on what.

Between ``accumulator`` and ``cuda``; plain arithmetic, no GPU needed.

    >>> import numpy as np
    >>> from exprkit.backends.geometry import plan
    >>> made = plan(np.arange(5), np.arange(4), 4, 0, 4, 2, blocks=2, warps=2, items=None)
    >>> made.n_units, made.first_run.tolist(), made.runs["item"].tolist()
    (2, [0, 2], [0, 2])

==========  ============================================================================
tile        the points of a warp: vectors x lanes x numbers in a vector
item        one expression with one parameter set
slab        consecutive items; all slabs are of about the same cost
unit        a slab on a tile: what a block does between two loads of a tile
run         consecutive items of a slab that a warp takes at a time
==========  ============================================================================
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

VECTOR_BYTES = 16
LINE = 128  # bytes of the device's memory that are best written together
VECTORS = (1, 2, 3, 4, 8)  # that a thread may have
_GOOD_VECTORS = (1, 2, 4, 8)  # three took longer than four, measured
BLOCKS = (128, 256, 320, 512, 640)
TILES_END = 24  # all tiles have a whole number of chunks that divides this
_OVERHEAD = 4.8  # decoding a word, in vectors' work
_COST_OF_GLOBAL_COLUMNS = 1.3
_HALF_SPEED = 26  # warps on a multiprocessor that hide half of the time an instruction takes
_RECORD_NUMBERS = 2


class Shape(NamedTuple):
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
        """Shared memory of a block: strips of words, scratch, columns, targets, slots (see interpreter.cu)."""
        record = 8 + _RECORD_NUMBERS * self.itemsize
        strips = self.block * (record + -record % 16)
        scratch = -(-self.block * self.itemsize // VECTOR_BYTES) * VECTOR_BYTES if shared_reduction else 0
        rows = self.warps * n_slots + (n_columns if self.columns_shared else 0)
        tile = self.tile * self.itemsize
        return VECTOR_BYTES + strips + scratch + rows * (tile + self.margin) + n_targets * tile


def shapes(
    n_points: int, n_items: int, n_columns: int, n_slots: int, *, itemsize: int, lanes: int, block: int | None,
    multiprocessors: int, shared_per_block: int, shared_per_multiprocessor: int, most_vectors: int,
    vectors: int | None = None, wide: bool = False, in_order: bool = False,
) -> list[Shape]:  # fmt: skip
    """Variants that fit the device, the best first.

    Parameters
    ----------
    n_points, n_items, n_columns, n_slots
        The work.
    itemsize
        Of the numbers, in bytes.
    block, optional
        Only variants with so many threads a block.
    most_vectors
        Where code is long, more points a thread make it too long for the instruction caches.
    vectors, optional
        Only variants with so many 16-byte vectors a thread.
    wide
        Whether results are stored a line at a time.
    in_order
        Whether a block stores rows that follow one another: the more warps it has, the better.
    """
    found = []
    for v in [v for v in _GOOD_VECTORS if v <= most_vectors] if vectors is None else [vectors]:
        for columns_shared in (True, False):
            if v > 4 and not columns_shared and vectors is None:
                continue
            for threads in BLOCKS if block is None else [block]:
                shape = Shape(v, threads, columns_shared, lanes, itemsize, wide)
                shared = shape.shared_bytes(n_columns, n_slots, 2, True)
                if shared > shared_per_block:
                    continue
                tiles = -(-n_points // shape.tile)
                most = registers_for_warps(v) // shape.warps * shape.warps
                warps = min(shared_per_multiprocessor // (shared + 1024) * shape.warps, most)
                warps = max(min(warps, tiles * n_items // multiprocessors), 1)
                cost = tiles * (v + _OVERHEAD) * (1 + _HALF_SPEED / warps)
                cost *= 1 if columns_shared else _COST_OF_GLOBAL_COLUMNS
                found.append((cost, -threads if in_order else threads, shape))
    return [shape for *_, shape in sorted(found, key=lambda one: one[:2])]


def registers_for_warps(vectors: int) -> int:
    """How many warps the registers of a multiprocessor are enough for."""
    return 24 if vectors <= 4 else 20


class Plan(NamedTuple):
    """Who works on what: see ``runs`` in interpreter.cu."""

    blocks: int
    n_units: int
    runs: np.ndarray  # RUN
    first_run: np.ndarray  # int32, (n_slabs + 1)


RUN = np.dtype([(name, np.int32) for name in ("item", "n_items", "word", "pad")])
_ENOUGH = 0.985  # share of the blocks that has work in the last round
_LEAST_ITEMS = 16  # of a slab, for each warp


def plan(
    cost: np.ndarray, first_word: np.ndarray, n_words: int, first: int, stop: int, n_tiles: int, *,
    blocks: int, warps: int, items: int | None,
) -> Plan:  # fmt: skip
    """Share out items ``first`` to ``stop`` of every tile.

    The items are cut into slabs of about the same cost.  A slab on a tile is a unit, and the
    blocks take units in turn, slab by slab.  In a unit, each warp of the block takes run after
    run of consecutive items.

    Parameters
    ----------
    cost : int64 array, (n_exprs + 1)
        Work of all expressions before one; item i is expression ``i % n_exprs``.
    first_word : int32 array, (n_exprs)
        Where an expression's words begin, of ``n_words``.
    items, optional
        Of a run; by default a warp gets a single one in a unit.  With short runs a block stores
        rows that follow one another, and with the blocks on other tiles whole stretches of memory.
    """
    n_slabs = _slabs(n_tiles, blocks, (stop - first) // (_LEAST_ITEMS * warps))
    shares = _shares((stop - first) / n_slabs, warps, items)
    n_exprs, of_a_set = len(cost) - 1, int(cost[-1])
    start, end = (item // n_exprs * of_a_set + int(cost[item % n_exprs]) for item in (first, stop))
    parts = (np.arange(n_slabs)[:, None] + shares[:-1]) / n_slabs
    work = np.append(start + np.rint(parts * (end - start)).astype(np.int64), end)
    firsts = work // of_a_set * n_exprs + np.searchsorted(cost, work % of_a_set)
    edges = np.unique(firsts)
    runs = np.zeros(len(edges) - 1, RUN)
    begin = edges[:-1]
    runs["item"], runs["n_items"] = begin - first, np.diff(edges)
    runs["word"] = begin // n_exprs * n_words + first_word[begin % n_exprs]
    first_run = np.searchsorted(edges, np.append(firsts[:-1 : len(shares) - 1], stop)).astype(np.int32)
    return Plan(min(blocks, n_tiles * n_slabs), n_tiles * n_slabs, runs, first_run)


def _slabs(n_tiles: int, blocks: int, most: int) -> int:
    """The fewest slabs that keep nearly all blocks busy to the end, or those that do it best."""
    slabs = np.arange(1, max(min(most, 64 + blocks // n_tiles), blocks // n_tiles, 1) + 1)
    busy = n_tiles * slabs / (-(-n_tiles * slabs // blocks) * blocks)
    return int(slabs[np.argmax(np.minimum(busy, _ENOUGH))])


def _shares(n_items: float, warps: int, items: int | None) -> np.ndarray:
    """Share of a slab's work up to the beginning of each run: equal runs, at last shorter ones; ends with 1."""
    if items is None:
        return np.arange(warps + 1) / warps
    n = max(int(n_items / items), warps)
    return np.concatenate([np.linspace(0, 0.75, max(n * 3 // 4, 1), endpoint=False), np.linspace(0.75, 1, n // 2 + 1)])
