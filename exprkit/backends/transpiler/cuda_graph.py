"""The block table of a population's kernels, and all their launches recorded as one CUDA graph.

In: modules on the device and data.  Out: launches that are replayed for every step.

    >>> from exprkit.backends.transpiler.cuda_graph import window
    >>> window(0, 10_860, 512, 3)
    {'start': 0, 'stop': 10860, 'n_tiles': 3, 'spacing': 512, 'extent': 10860, 'stride': 1536}

==========  ============================================================================
tile        the points that a block works on, turn by turn
row         one expression for each structure of a bundle (see ``bundles``)
block       one row of one bundle with one parameter set on one tile; by row (see ``templates``): some
            rows, one after the other
==========  ============================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from exprkit.backends.transpiler.modules import EntryArguments, ModuleCache
from exprkit.backends.transpiler.program import Transpiled
from exprkit.backends.transpiler.templates import FIELDS

STREAMS = 16  # on which the modules' launches lie side by side
WORK_BYTES = 16  # of a block


def window(start: int, stop: int, of_a_turn: int, n_tiles: int) -> dict[str, int]:
    """Tiles for the points from ``start``, a multiple of 32, to ``stop``, as arguments of kernels.

    Tiles are interleaved: blocks that run at the same time then work side by side, which the device's memory likes.
    From a tile's first point to the next tile's are ``spacing`` points, to its end ``extent``, from one turn of a block
    to its next ``stride``.
    """
    tiles = {"n_tiles": n_tiles, "spacing": of_a_turn, "extent": stop - start, "stride": n_tiles * of_a_turn}
    return {"start": start, "stop": stop, **tiles}


def work(transpiled: Transpiled, n_sets: int, n_tiles: int, at_once: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Blocks for all rows, sets and tiles; of a module those with the most work come first, or as they write.

    The table, uint32 (n_blocks, 4): bundle in its module, first instance, set, tile; and where each module's blocks
    begin.  ``at_once``: rows of a block that takes one after the other (``Kind.by_row``); 0 for one that does not.
    """
    bundles = transpiled.bundles
    module = np.repeat(np.arange(len(transpiled)), [len(chosen) for chosen in transpiled.ranges])
    start = np.array([chosen.start for chosen in transpiled.ranges], np.int64)
    order = np.lexsort((-bundles.cost, module))
    rows = -(-bundles.n_batches[order].astype(np.int64) // (at_once or 1))
    bundle = np.repeat(order, rows)
    row = (at_once or 1) * (np.arange(rows.sum()) - np.repeat(np.cumsum(rows) - rows, rows))
    width = (np.diff(bundles.first) * bundles.slots)[bundle]
    if transpiled.in_order:
        written = bundles.instances[bundles.first_instance[bundle] + row * width, 1]
        by_place = np.lexsort([written, module[bundle]])
        bundle, row, width = bundle[by_place], row[by_place], width[by_place]
    number = bundle - start[module[bundle]]
    if at_once:
        number = number << 16 | bundles.slots[bundle] << 8 | np.minimum(bundles.n_batches[bundle] - row, at_once)
    table = np.empty((len(bundle), n_sets, n_tiles, 4), np.uint32)
    table[..., 0] = number[:, None, None]
    table[..., 1] = (bundles.first_instance[bundle] + row * width)[:, None, None]
    table[..., 2] = np.arange(n_sets)[None, :, None]
    table[..., 3] = np.arange(n_tiles)[None, None, :]
    n_rows = np.bincount(module[bundle], minlength=len(transpiled))
    return table.reshape(-1, 4), np.concatenate([[0], np.cumsum(n_rows)]) * n_sets * n_tiles


class PassArguments:
    """Arguments of all blocks of a pass, on the device; sent again where a field has changed."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.host = np.zeros(len(FIELDS), np.uint64)
        self.sent = device.xp.zeros(len(FIELDS), np.uint64)
        self._held: dict[str, Any] = {}  # arrays that the arguments point to
        self._numbers: dict[str, int] = {}

    def set(self, **fields: Any) -> None:
        """Set fields: whole numbers, or arrays, which stand for their addresses (None for no address)."""
        changed = False
        for name, value in fields.items():
            if not isinstance(value, int):
                if self._held.get(name, self) is value:
                    continue
                self._held[name] = value
                value = 0 if value is None else self.device.pointer(value)
            elif self._numbers.get(name) == value:
                continue
            self._numbers[name] = value
            self.host[FIELDS[name] // 8] = value % (1 << 64)
            changed = True
        if changed:
            self._send()

    def _send(self) -> None:
        if self.device.xp is np:
            self.sent[...] = self.host
        else:  # pageable memory: the driver has taken it when the call returns
            self.sent.data.copy_from_host_async(self.host.ctypes.data, self.host.nbytes, self.device.current_stream())


class Pass:
    """All launches for some parameter sets and tiles, which can be repeated with other arguments."""

    def __init__(self, device: Any, code: ModuleCache, n_sets: int, n_tiles: int, at_once: int) -> None:
        self.device, self.code, self.arguments = device, code, PassArguments(device)
        table, self._first = work(code.transpiled, n_sets, n_tiles, at_once)
        self._table = device.xp.asarray(table)
        self._starts: list[Callable[[], None]] = []
        self._graph: Any = None
        self._is_ready = False
        code.dependents.add(self)

    def invalidate(self) -> None:
        """Let go of all kernels."""
        self._graph, self._starts, self._is_ready = None, [], False

    def launch(self) -> None:
        """Start all kernels: by the graph, or one by one, the first time as they are compiled."""
        if not self._is_ready:
            self.invalidate()
            before = self.code.epoch
            for i, kernel in self.code.all():
                first, stop = int(self._first[i]), int(self._first[i + 1])
                start = kernel.prepare((stop - first, 1), self.code.kind.block, 0, self._given(first))
                start()
                if self.code.epoch == before:
                    self._starts.append(start)
            self._is_ready = self.code.epoch == before
            return
        if self._graph is None and len(self._starts) > 1 and self.device.xp is not np:
            self._graph = self._captured()
        if self._graph is not None:
            self._graph.launch(self.device.current_stream())
            return
        for start in self._starts:
            start()

    def each(self, n_blocks: int) -> Iterator[tuple[Any, EntryArguments]]:
        """For every ``n_blocks`` of its blocks, as the tiles of a row: the kernel and its argument."""
        for i, kernel in self.code.all():
            for first in range(int(self._first[i]), int(self._first[i + 1]), n_blocks):
                yield kernel, self._given(first)

    def _given(self, first: int) -> EntryArguments:
        pointer = self.device.pointer
        return EntryArguments(pointer(self.arguments.sent), pointer(self._table) + first * WORK_BYTES)

    def _captured(self) -> Any:
        """All launches side by side as one CUDA graph."""
        cuda = self.device.xp.cuda
        main, sides = cuda.Stream(non_blocking=True), []
        with main:
            main.begin_capture()
            fork = cuda.Event(disable_timing=True)
            fork.record(main)
            for _ in range(min(STREAMS, len(self._starts))):
                sides.append(cuda.Stream(non_blocking=True))
                sides[-1].wait_event(fork)
        for i, start in enumerate(self._starts):
            with sides[i % len(sides)]:
                start()
        with main:
            for side in sides:
                joined = cuda.Event(disable_timing=True)
                joined.record(side)
                main.wait_event(joined)
            return main.end_capture()
