"""How the interpreter is launched: points a thread, where the columns lie, who works on what.

Between ``accumulator`` and ``cuda``; plain arithmetic, no GPU needed.

    >>> import numpy as np
    >>> from exprkit.backends.geometry import segments
    >>> plan = segments(np.arange(5), 0, 4, range(2), blocks=2, warps=2)
    >>> plan.tile_of.tolist(), plan.cuts.tolist()
    ([0, 1], [[0, 2, 4], [0, 2, 4]])

==========  ============================================================================
tile        the points of a warp: vectors x lanes x numbers in a vector
item        one expression with one parameter set
segment     a run of items on one tile: what a block does between two loads of a tile
cuts        where a segment's items pass from one warp of the block to the next
==========  ============================================================================
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

VECTOR_BYTES = 16
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

    @property
    def tile(self) -> int:
        """Points of a warp."""
        return self.vectors * self.chunk

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
        rows = self.warps * n_slots + n_targets + (n_columns if self.columns_shared else 0)
        return strips + scratch + rows * self.tile * self.itemsize


def shapes(
    n_points: int, n_items: int, n_columns: int, n_slots: int, *, itemsize: int, lanes: int, block: int | None,
    multiprocessors: int, shared_per_block: int, shared_per_multiprocessor: int, most_vectors: int,
    vectors: int | None = None,
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
    """
    found = []
    for v in [v for v in _GOOD_VECTORS if v <= most_vectors] if vectors is None else [vectors]:
        for columns_shared in (True, False):
            if v > 4 and not columns_shared and vectors is None:
                continue
            for threads in BLOCKS if block is None else [block]:
                shape = Shape(v, threads, columns_shared, lanes, itemsize)
                shared = shape.shared_bytes(n_columns, n_slots, 2, True)
                if shared > shared_per_block:
                    continue
                tiles = -(-n_points // shape.tile)
                most = registers_for_warps(v) // shape.warps * shape.warps
                warps = min(shared_per_multiprocessor // (shared + 1024) * shape.warps, most)
                warps = max(min(warps, tiles * n_items // multiprocessors), 1)
                cost = tiles * (v + _OVERHEAD) * (1 + _HALF_SPEED / warps)
                found.append((cost * (1 if columns_shared else _COST_OF_GLOBAL_COLUMNS), threads, shape))
    return [shape for *_, shape in sorted(found, key=lambda one: one[:2])]


def registers_for_warps(vectors: int) -> int:
    """How many warps the registers of a multiprocessor are enough for."""
    return 24 if vectors <= 4 else 20


class Plan(NamedTuple):
    """Who works on what; ``first_segment[b]:first_segment[b + 1]`` are the segments of block b."""

    first_segment: np.ndarray  # int32 (blocks + 1)
    tile_of: np.ndarray  # int32 (n_segments)
    cuts: np.ndarray  # int64 (n_segments, warps + 1), items


def segments(cost: np.ndarray, first: int, stop: int, tiles: range, *, blocks: int, warps: int) -> Plan:
    """Share out items ``first`` to ``stop`` on all ``tiles`` so that every warp has about the same work.

    The list of all (tile, item) pairs, tile by tile, is cut into one range of equal cost a
    block; ranges that cross a tile's end are cut there too.

    Parameters
    ----------
    cost : int64 array, (n_exprs + 1)
        Work of all expressions before one; item i is expression ``i % n_exprs``.
    """
    n_exprs, of_a_set = len(cost) - 1, int(cost[-1])
    start, end = (item // n_exprs * of_a_set + int(cost[item % n_exprs]) for item in (first, stop))
    of_a_tile = end - start
    block_edges = np.arange(blocks + 1) * (len(tiles) * of_a_tile) // blocks
    edges = np.unique(np.concatenate([block_edges, np.arange(len(tiles) + 1) * of_a_tile]))
    left, right = edges[:-1], edges[1:]
    tile = left // max(of_a_tile, 1)
    left, right = left - tile * of_a_tile, right - tile * of_a_tile
    work = left[:, None] + (right - left)[:, None] * np.arange(warps + 1) // warps + start
    cuts = work // of_a_set * n_exprs + np.searchsorted(cost, work % of_a_set)
    first_segment = np.searchsorted(edges, block_edges)
    return Plan(first_segment.astype(np.int32), (tile + tiles.start).astype(np.int32), cuts.astype(np.int64))
