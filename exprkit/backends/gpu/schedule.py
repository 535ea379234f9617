"""Launch geometry of the interpreter: points per thread, memory of the columns, distribution of work over blocks.

In: sizes of bytecode and data.  Out: what a variant needs and takes, of which ``backends.cases`` chooses one, and
where the work of every block begins, from which schedule.cu finds its items.  Plain arithmetic, no GPU needed.

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

VECTORS = (1, 2, 3, 4, 8)  # that a thread may have
BLOCKS = (128, 256, 320, 512, 640, 768)
REGISTERS = 1 << 16  # of a multiprocessor, on all devices from sm_75 on
RESERVED = 1024  # bytes of shared memory that a block takes beside its own (0 on sm_75)
TILES_END = 24  # all tiles have a whole number of segments that divides this

# Estimates that rank variants; what they balance was measured in data/results/h200_interpreter.md
_OVERHEAD = 4.8  # decoding an instruction, in vectors' work: more vectors decode less often, fewer waste less of a tile
_OVERHEAD_OF_BULKY_CODE = 4.1  # the same beside operators that take longer
_COST_OF_GLOBAL_COLUMNS = 1.3  # times
_COST_OF_BULKY_CODE = 1.4  # times
_HALF_SPEED = 26  # warps on a multiprocessor that hide half of the time an instruction takes


class LaunchShape(NamedTuple):
    """The variant of the interpreter that is compiled and launched.

    The formulas hold for arrays too, and what memory they need for SymPy's symbols.
    """

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
        return range(first // self.tile, self.n_tiles(stop))

    def n_tiles(self, n_points: Any) -> Any:
        """How many tiles the points are."""
        return -(-(n_points + self.margin // self.itemsize) // self.tile)

    @property
    def margin(self) -> int:
        """Bytes of a row before a tile's first point."""
        if not self.wide:
            return 0
        of_a_vector = self.lanes * VECTOR_BYTES
        tile = LINE_BYTES if of_a_vector >= LINE_BYTES else np.minimum(LINE_BYTES, self.vectors * of_a_vector)
        return tile - VECTOR_BYTES

    @property
    def segment(self) -> int:
        """Points of a warp's vector."""
        return self.lanes * VECTOR_BYTES // self.itemsize

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return self.block // self.lanes

    def shared_bytes(self, n_columns: int, n_slots: int, n_targets: int) -> int:
        """Shared memory of a block: chunks, instruction buffers, columns, targets, slots (interpreter.cu)."""
        record = 8 + 2 * self.itemsize  # an instruction and its immediate
        buffers = self.block * (record + -record % 16)
        rows = self.warps * n_slots + (1 * self.columns_shared) * n_columns
        tile = self.tile * self.itemsize
        return (2 + 2 * self.warps) * VECTOR_BYTES + buffers + rows * (tile + self.margin) + n_targets * tile

    def most_shared(self, n_columns: Any, n_slots: Any) -> Any:
        """Shared memory of a block whatever the task: with target and weights, and a number a thread to spare.

        With that number the choices between variants were measured (data/results/h200_interpreter.md).
        """
        spare = -(-self.block * self.itemsize // VECTOR_BYTES) * VECTOR_BYTES
        return self.shared_bytes(n_columns, n_slots, 2) + spare


class Sizes(NamedTuple):
    """Sizes of the work of one launch."""

    n_points: int
    n_items: int
    n_columns: int
    n_slots: int
    bulky: int = 0  # 1: the operators' code for 8 vectors outgrows the instruction cache


class DeviceLimits(NamedTuple):
    """A device's bytes of shared memory, number of multiprocessors, and registers of one."""

    shared_per_block: int
    shared_per_multiprocessor: int
    multiprocessors: int
    registers: int = REGISTERS

    @classmethod
    def of(cls, device: Any) -> DeviceLimits:
        """Limits of a device that is there."""
        return cls(device.shared_per_block, device.shared_per_multiprocessor, device.multiprocessors)


def registers_needed(shape: LaunchShape, fast: bool) -> Any:
    """Registers of a thread with which the kernel spills none, or 40 bytes at most (data/results/cases_ptxas.csv)."""
    if shape.itemsize == 8:
        return np.where(shape.vectors <= 4, 168, 256)
    few = 80 if fast else 96
    of_four = np.where(shape.columns_shared == 1, few, 96 if fast else 128)
    return np.where(shape.vectors <= 4, of_four, np.where(shape.columns_shared == 1, 96, 128))


def resident_blocks(shape: LaunchShape, fast: bool, registers: int = REGISTERS) -> Any:
    """Blocks of a multiprocessor for which registers are saved; 0: a block is too large to save enough."""
    return registers // (registers_needed(shape, fast) * shape.block)


def estimated(shape: LaunchShape, sizes: Sizes, device: DeviceLimits, fast: bool) -> Any:
    """Estimated time of a variant: rounds of tiles, longer where few warps hide what others wait for."""
    most = resident_blocks(shape, fast, device.registers) * shape.warps
    return rounds(shape, sizes, device, shape.most_shared(sizes.n_columns, sizes.n_slots), most)


def rounds(shape: LaunchShape, sizes: Sizes, device: DeviceLimits, shared: Any, most: Any) -> Any:
    """``estimated`` of a variant whose shared memory and most warps of a multiprocessor, by registers, are known."""
    tiles, of_a_block = shape.n_tiles(sizes.n_points), shape.warps
    warps = np.minimum(device.shared_per_multiprocessor // (shared + RESERVED) * of_a_block, most)
    warps = np.maximum(np.minimum(warps, tiles * sizes.n_items // device.multiprocessors), 1)
    overhead = _OVERHEAD + (_OVERHEAD_OF_BULKY_CODE - _OVERHEAD) * sizes.bulky
    cost = tiles * (shape.vectors + overhead) * (1 + _HALF_SPEED / warps)
    cost = cost * (1 + (_COST_OF_GLOBAL_COLUMNS - 1) * (1 - shape.columns_shared))
    cost = cost * np.where(shape.vectors > 4, 1 + (_COST_OF_BULKY_CODE - 1) * sizes.bulky, 1)
    idle = -(-sizes.n_items // of_a_block) * of_a_block / np.maximum(sizes.n_items, 1)  # warps without an item
    return cost * np.where(sizes.n_items < 8 * of_a_block, idle, 1)


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
