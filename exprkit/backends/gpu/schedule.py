"""How the interpreter is launched: points per thread, where the columns lie, who works on what.

In: sizes of bytecode and data.  Out: points per thread, and where the work of every block begins, from which
schedule.cu finds its items.  Plain arithmetic, no GPU needed.

    >>> from exprkit.backends.gpu.schedule import Chunking, plan
    >>> result = plan(4, n_tiles=2, blocks=2, warps=2, chunking=Chunking(1))
    >>> result.n_work_items, result.place.tolist()
    (2, [0.0, 0.5])

==========  ============================================================================
segment     the points of a warp's vector: lanes x numbers in a vector
tile        the points of a warp: vectors x segment
item        one expression with one parameter set
partition   items of about the same cost as every other partition: consecutive ones, or every n-th chunk
work item   a partition on a tile: what a block does between two loads of a tile
chunk       consecutive items of a partition that a warp takes at a time
==========  ============================================================================
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.gpu.layout import LINE_BYTES, VECTOR_BYTES
from exprkit.errors import ArgumentError

VECTORS = (1, 2, 3, 4, 8)  # that a thread may have
BLOCKS = (128, 256, 320, 512, 640, 768)
TILES_END = 24  # all tiles have a whole number of segments that divides this

# Estimates that rank variants; what they balance was measured in data/results/h200_interpreter.md
_OVERHEAD = 4.8  # decoding an instruction, in vectors' work: more vectors decode less often, fewer waste less of a tile
_COST_OF_GLOBAL_COLUMNS = 1.3  # times
_HALF_SPEED = 26  # warps on a multiprocessor that hide half of the time an instruction takes


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
        return self.vectors * self.segment

    def tiles(self, first: int, stop: int) -> range:
        """The tiles of points ``first`` to ``stop``; those of wide rows begin up to a line early."""
        return range(first // self.tile, -(-(stop + self.margin // self.itemsize) // self.tile))

    @property
    def margin(self) -> int:
        """Bytes of a row before a tile's first point."""
        return min(LINE_BYTES, self.tile * self.itemsize) - VECTOR_BYTES if self.wide else 0

    @property
    def segment(self) -> int:
        """Points of a warp's vector."""
        return self.lanes * VECTOR_BYTES // self.itemsize

    @property
    def warps(self) -> int:
        """Of a block."""
        return self.block // self.lanes

    def shared_bytes(self, n_columns: int, n_slots: int, n_targets: int, shared_reduction: bool) -> int:
        """Shared memory of a block: chunks, instruction buffers, scratch, columns, targets, slots (interpreter.cu)."""
        record = 8 + 2 * self.itemsize  # an instruction and its immediate
        buffers = self.block * (record + -record % 16)
        scratch = -(-self.block * self.itemsize // VECTOR_BYTES) * VECTOR_BYTES if shared_reduction else 0
        rows = self.warps * n_slots + (n_columns if self.columns_shared else 0)
        tile = self.tile * self.itemsize
        return (2 + 2 * self.warps) * VECTOR_BYTES + buffers + scratch + rows * (tile + self.margin) + n_targets * tile


class Sizes(NamedTuple):
    """Of the work of one launch."""

    n_points: int
    n_items: int
    n_columns: int
    n_slots: int


def shapes(
    sizes: Sizes, device: Any, itemsize: int, fast: bool,
    block: int | None = None, vectors: int | None = None, wide: bool = False,
) -> list[LaunchShape]:  # fmt: skip
    """Variants that fit the device, the best first.

    Parameters
    ----------
    itemsize
        Of the numbers, in bytes.
    fast
        Whether operators are short; the code of long ones for many points would outgrow the instruction caches.
    block, optional
        Only variants with so many threads per block.
    vectors, optional
        Only variants with so many 16-byte vectors a thread.
    wide
        Whether results are stored a line at a time.
    """
    most_vectors = 8 if fast and itemsize == 4 else 4
    ranked = []
    for v in [v for v in VECTORS if v <= most_vectors] if vectors is None else [vectors]:
        for columns_shared in (True, False):
            if v > 4 and not columns_shared and vectors is None:
                continue
            if v == 3 and sizes.n_points > v * device.lanes * VECTOR_BYTES // itemsize and vectors is None:
                continue  # good where one tile is enough, else it takes longer than four
            for threads in BLOCKS if block is None else [block]:
                shape = LaunchShape(v, threads, columns_shared, device.lanes, itemsize, wide)
                if shape.shared_bytes(sizes.n_columns, sizes.n_slots, 2, True) <= device.shared_per_block:
                    # of large blocks, fewer are late; those that read columns from global memory had better be small
                    ranked.append((_cost(shape, sizes, device, fast), -threads if columns_shared else threads, shape))
    return [shape for *_, shape in sorted(ranked, key=lambda one: one[:2])]


def too_large(
    sizes: Sizes, device: Any, itemsize: int, block: int | None, vectors: int | None, wide: bool = False
) -> ArgumentError:
    """The error for options that leave no variant: the limit, and the nearest options that stay below it."""
    width = VECTOR_BYTES // itemsize

    def needed(threads: int, v: int) -> int:
        shape = LaunchShape(v, threads, False, device.lanes, itemsize, wide)
        return shape.shared_bytes(sizes.n_columns, sizes.n_slots, 2, True)

    def fits(threads: int, v: int) -> bool:
        return needed(threads, v) <= device.shared_per_block

    threads, v = block or BLOCKS[0], vectors or VECTORS[0]
    asked = {"block_size": block, "points_per_thread": vectors and width * vectors}
    smaller = [n for n in range(threads, 0, -device.lanes) if fits(n, v)]
    fewer = [n for n in VECTORS[::-1] if n <= v and fits(threads, n)]
    nearest = {"block_size": block and smaller[:1], "points_per_thread": vectors and [width * n for n in fewer[:1]]}
    words = " or ".join(f"{name}={found[0]}" for name, found in nearest.items() if found) or "neither option"
    return ArgumentError(
        f"{', '.join(f'{name}={value}' for name, value in asked.items() if value)} needs "
        f"{needed(threads, v) / 1024:.4g} KiB of shared memory a block for these expressions, and the device has "
        f"{device.shared_per_block / 1024:.4g}: take {words}"
    )


def _cost(shape: LaunchShape, sizes: Sizes, device: Any, fast: bool) -> float:
    """What a variant takes, in units of its own: rounds of tiles, longer where few warps hide what others wait for."""
    shared = shape.shared_bytes(sizes.n_columns, sizes.n_slots, 2, True)
    tiles = len(shape.tiles(0, sizes.n_points))
    most = resident_threads(shape.vectors, shape.itemsize, shape.columns_shared, fast) // shape.block * shape.warps
    warps = min(device.shared_per_multiprocessor // (shared + 1024) * shape.warps, most)
    warps = max(min(warps, tiles * sizes.n_items // device.multiprocessors), 1)
    cost = tiles * (shape.vectors + _OVERHEAD) * (1 + _HALF_SPEED / warps)
    cost *= 1 if shape.columns_shared else _COST_OF_GLOBAL_COLUMNS
    if sizes.n_items < 8 * shape.warps:  # warps without an item
        cost *= -(-sizes.n_items // shape.warps) * shape.warps / max(sizes.n_items, 1)
    return cost


def resident_threads(vectors: int, itemsize: int, columns_shared: bool, fast: bool) -> int:
    """Threads of a multiprocessor: as many as the kernel can have without spilling registers."""
    if itemsize == 8:
        return 384 if vectors <= 4 else 256
    if vectors > 4:
        return 640 if columns_shared else 512
    return 768 if fast and columns_shared else 640 if fast or columns_shared else 512


class Chunking(NamedTuple):
    """How the warps of a block get a work item's items.

    First each gets one chunk, together ``static`` of the work; the rest is taken in chunks of
    about ``items``, at last shorter ones, whenever a warp has nothing to do.
    """

    static: float
    items: int = 1


class Plan(NamedTuple):
    """How the items of every tile are shared out, whatever they cost: work item u is partition u // n_tiles on tile
    u % n_tiles.

    The items are cut into partitions of about the same cost.  A partition on a tile is a work item, and the
    blocks take work items in turn, partition by partition.  In a work item, each warp of the block takes chunk after
    chunk of consecutive items.  Where all work items run at the same time and their chunks are short, the partitions
    take chunks in turn: the device then writes one stretch of memory at a time.
    """

    blocks: int
    n_work_items: int
    place: np.ndarray  # float64 (n_partitions * n_chunks,): where chunks begin, ascending, in partitions' work
    rank: np.ndarray  # int32 (n_partitions, n_chunks): of each among them


_ENOUGH = 0.985  # share of the blocks that has work in the last round; more partitions are more loads of tiles
_LEAST_ITEMS = 16  # of a partition, for each warp: fewer do not repay loading the tile
_MOST_CHUNKS = 1 << 18  # 4 MiB of descriptions


def plan(n_items: int, n_tiles: int, *, blocks: int, warps: int, chunking: Chunking) -> Plan:
    """Where the chunks of ``n_items`` items begin; ``schedule.cu`` finds their items."""
    n_partitions = _partitions(n_tiles, blocks, n_items // (_LEAST_ITEMS * warps))
    chunking = chunking._replace(items=max(chunking.items, n_items // _MOST_CHUNKS))
    shares = _shares(n_items / n_partitions, warps, chunking)
    # Where chunk c of partition p begins on a line as long as there are partitions: at p + its share of p, or, side
    # by side, where the same chunk of all partitions stands, one partition after the other.
    partition = np.arange(n_partitions)[:, None]
    place = shares[:-1] + partition
    if chunking.static == 0 and n_partitions * n_tiles <= blocks:  # all at the same time: side by side
        place = shares[:-1] * n_partitions + partition * np.diff(shares)
    order = np.argsort(place, axis=None, kind="stable")
    rank = np.empty(place.shape, np.int32)
    rank.reshape(-1)[order] = np.arange(len(order))
    n_work_items = n_tiles * n_partitions
    return Plan(min(blocks, n_work_items), n_work_items, place.reshape(-1)[order], rank)


def _partitions(n_tiles: int, blocks: int, most: int) -> int:
    """The fewest partitions that keep nearly all blocks busy to the end, or those that do it best."""
    counts = np.arange(1, max(min(most, 64 + blocks // n_tiles), blocks // n_tiles, 1) + 1)
    busy = n_tiles * counts / (-(-n_tiles * counts // blocks) * blocks)
    return int(counts[np.argmax(np.minimum(busy, _ENOUGH))])


def _shares(n_items: float, warps: int, chunking: Chunking) -> np.ndarray:
    """Share of a partition's work up to the beginning of each chunk; ends with 1.

    Of what is not static, three quarters go in chunks of the wanted size and the last one in chunks of half of it.
    """
    static, rest = chunking.static, 1 - chunking.static
    n = max(int(n_items * rest / chunking.items), 1)
    edges = [np.arange(warps) / warps * static] if static else []
    if rest:
        edges += [np.linspace(static, static + 0.75 * rest, max(n * 3 // 4, 1), endpoint=False)]
        edges += [np.linspace(static + 0.75 * rest, 1, max(n // 2, 1), endpoint=False)]
    return np.append(np.concatenate(edges), 1.0)
