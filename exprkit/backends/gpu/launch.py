"""Kernel arguments, launches, and the arrays that stay on the device.

In: bytecode and data.  Out: launches that can be repeated.

    >>> from exprkit.backends.gpu import launch, layout
    >>> arguments = layout.Arguments()
    >>> launch.fill(arguments, {"n_points": 5, "weights": None}, device=None)
    >>> arguments.n_points, arguments.weights
    (5, 0)
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.device_memory import LockedRoom, Recent
from exprkit.backends.gpu import layout, opcodes
from exprkit.backends.gpu.device import count_in
from exprkit.backends.gpu.device_bytecode import DeviceBytecode, Programs
from exprkit.backends.gpu.layout import LINE_BYTES, VECTOR_BYTES
from exprkit.backends.gpu.schedule import TILES_END, Chunking, LaunchShape, Plan, plan
from exprkit.backends.precision import Precision
from exprkit.operators import ops
from exprkit.programs.program import Program
from exprkit.runtime.calls import Sequence, masks, merge

THREADS, MOST_THREADS = 256, 1024  # of a block of the small kernels; of any block
# beside the interpreter, which leaves few registers: data/results/h200_interpreter.md, "Short rows"
THREADS_BESIDE = {"make_immediates": 96, "add_segments": 128}
ADDERS = {8: 256, 32: 4096, 128: 1 << 31}  # threads that add up to so many segments; the same file
PROGRAM_ARRAYS = "instructions", "first_instruction", "sources", "steps", "first_step", "constants", "cost"
REAL = {4: "float", 8: "double"}


def too_large(what: str, device: Any) -> MemoryError:
    """The error that says what does not fit into the device's memory."""
    return MemoryError(
        f"{what} do not fit into the device's memory, of which {device.free_bytes() / 1e9:.3g} GB are free: "
        "take fewer points, expressions or parameter sets at a time"
    )


class Columns(NamedTuple):
    """The columns that programs read: int32 (n_columns,) each."""

    code: Any  # of the unary operator that makes it
    var: Any  # of this variable
    low: Any  # 1 for the low part of a double-double

    @classmethod
    def of(cls, program: Program) -> Columns:
        """Columns of programs of the host's."""
        code, var = (np.asarray(array, np.int32) for array in (program.column_code, program.column_var))
        low, c = np.zeros(len(code), np.int32), 0
        while c < len(code):
            width = ops.BY_CODE[int(code[c])].width
            low[c + 1 : c + width] = 1
            c += width
        return cls(code, var, low)


@functools.lru_cache(maxsize=64)
def plan_on(device: Any, n_items: int, n_tiles: int, blocks: int, warps: int, chunking: Chunking) -> Plan:
    """The plan of a launch, its arrays on the device: the same for every population of this size."""
    schedule = plan(n_items, n_tiles, blocks=blocks, warps=warps, chunking=chunking)
    return schedule._replace(place=device.xp.asarray(schedule.place), rank=device.xp.asarray(schedule.rank))


class Launch:
    """A launch that can be repeated: with other arrays in some of its kernel's arguments, and of other programs.

    The first one of other programs does not overlap with what is before it, which may have made them.
    """

    def __init__(
        self, launcher: Launcher, kind: Any, prepare: Callable[..., Sequence], overlaps: bool, fields: dict[str, Any]
    ) -> None:
        self._launcher, self._kind, self._generation, self.arguments = launcher, kind, 0, kind()
        own = masks(kind, addressed(fields, launcher.device))
        self._keep, structs = (fields, own), (self.arguments, *own)
        self._places = *(ctypes.addressof(struct) for struct in structs), ctypes.sizeof(kind) // 8
        self.first = self.again = prepare(self.arguments)
        if overlaps:
            self.again = prepare(self.arguments, overlaps=True)

    def __call__(self, **fields: Any) -> None:
        """Start the kernel on CuPy's current stream; arrays by their addresses."""
        start = self.first if self.renew() else self.again
        put(self.arguments, fields)
        start()

    def is_present(self) -> bool:
        """Whether it knows the launcher's present programs."""
        return self._generation == self._launcher.generation

    def renew(self) -> bool:
        """Take over what the launcher knows of its present programs; False if they are those of the last time."""
        if self.is_present():
            return False
        merge(ctypes.addressof(self._launcher.known(self._kind)), *self._places)
        self._generation = self._launcher.generation
        return True


class ScheduledLaunch:
    """A launch whose chunks are cut anew whenever the programs are others."""

    def __init__(self, cut: Launch, run: Launch) -> None:
        self.cut, self.run = cut, run

    def __call__(self, **fields: Any) -> None:
        if self.cut.renew():
            self.cut.first()
        self.run(**fields)


def fill(arguments: ctypes.Structure, fields: dict[str, Any], device: Any) -> None:
    """Set kernel arguments; an array stands for its address, None for no address."""
    put(arguments, addressed(fields, device))


def put(arguments: ctypes.Structure, numbers: dict[str, int | float]) -> None:
    """Set kernel arguments that are numbers."""
    for name, number in numbers.items():
        setattr(arguments, name, number)


def field_address(arguments: ctypes.Structure, name: str) -> int:
    """Where a kernel argument is on the host."""
    return ctypes.addressof(arguments) + int(getattr(type(arguments), name).offset)


def addressed(fields: dict[str, Any], device: Any) -> dict[str, int | float]:
    """Numbers as they are, arrays as their addresses, None as 0."""
    return {
        name: value if isinstance(value, (int, float)) else address(value, device) for name, value in fields.items()
    }


def address(array: Any, device: Any) -> int:
    """Where an array is; 0 for None."""
    return 0 if array is None else device.pointer(array)


class Launcher:
    """The programs and the data of one engine on the device, and the kernels to run on them."""

    def __init__(self, device: Any, settings: Precision, dtype: np.dtype, data: Any) -> None:
        self.device, self.settings, self.dtype = device, settings, dtype
        self.generation = 0  # how often programs were taken
        end, self._margin = TILES_END * device.lanes * VECTOR_BYTES // dtype.itemsize, LINE_BYTES // dtype.itemsize
        self.pitch = -(-(len(data) + self._margin) // end) * end  # whole tiles, however many vectors they have
        self.n_points, self._data = len(data), data
        self._of_data = {
            "data": device.pointer(data),
            "n_points": self.n_points,
            "pitch": self.pitch,
            "stride_point": data.strides[0] // dtype.itemsize,
            "stride_variable": data.strides[1] // dtype.itemsize,
        }
        self._columns = device.xp.empty(0, dtype)
        self._arguments: dict[Any, tuple[ctypes.Structure, list[str]]] = {}  # and which fields are known
        self._stale = set[Any]()  # kinds of arguments that are not yet of the present programs
        self._making: dict[int, Launch] = {}
        self._made_of: tuple[Columns | None, dict[str, int]] = None, {}  # columns, and where what makes them is
        self._padded: dict[str, tuple[np.ndarray, Any]] = {}

    def take(self, programs: Programs, columns: Columns) -> None:
        """Take programs in place of those before, which stay if memory runs out."""
        xp, n_columns = self.device.xp, len(columns.code)
        memory, needed = self._columns, self._margin + max(n_columns, 1) * self.pitch
        if memory.size < needed:
            memory = xp.empty(needed, self.dtype)
            memory[: self._margin] = 0
        self._arrays = arrays = self._arrays_of(programs)
        self._columns, self.programs, self.n_columns = memory, programs, n_columns
        self.n_exprs, self.n_instructions = programs.n_exprs, programs.n_instructions
        self.bytes_of_a_set = 2 * self.dtype.itemsize * (self.n_instructions + programs.n_results)
        start = self.device.pointer(memory) + self._margin * self.dtype.itemsize  # a tile may begin a little early
        self.fields = {  # numbers and addresses
            **self._of_data,
            **addressed(arrays, self.device),
            "columns": start,
            "n_exprs": self.n_exprs,
            "n_instructions": self.n_instructions,
            "n_columns": n_columns,
            "n_slots": programs.n_slots,
            "n_results": programs.n_results + 1,
        }
        self.generation += 1
        self._stale.update(self._arguments)
        self._make_columns(columns)

    def _arrays_of(self, programs: Programs) -> dict[str, Any]:
        """The arrays of programs on the device, or their addresses there."""
        if isinstance(programs, DeviceBytecode):
            if programs.dtype == self.dtype:
                return dict(programs.addresses)
            return {**programs.addresses, "constants": programs.constants.astype(self.dtype)}
        arrays = {name: self._there(getattr(programs, name)) for name in PROGRAM_ARRAYS}
        if programs.constants.dtype != self.dtype:
            with np.errstate(over="ignore", invalid="ignore"):
                arrays["constants"] = self._there(programs.constants.astype(self.dtype))
        return arrays

    def _there(self, array: Any) -> Any:
        return self.device.xp.asarray(array) if isinstance(array, np.ndarray) else array

    def columns(self) -> Any:
        """The columns, (n_columns or 1, pitch)."""
        stop = self._margin + max(self.n_columns, 1) * self.pitch
        return self._columns[self._margin : stop].reshape(-1, self.pitch)

    def launch(
        self,
        kernel: Any,
        blocks: tuple[int, int],
        threads: int,
        shared: int = 0,
        *,
        overlaps: bool = False,
        kind: Any = layout.Arguments,
        **fields: Any,
    ) -> Launch:
        """A launch with arguments of a ``kind``; one that ``overlaps`` waits for the one before."""
        return Launch(self, kind, functools.partial(kernel.prepare, blocks, threads, shared), overlaps, fields)

    def known(self, kind: Any) -> ctypes.Structure:
        """Arguments of a kind with what is the same for all launches of the present programs."""
        if kind not in self._arguments:
            self._arguments[kind] = kind(), [name for name in self.fields if name in kind.names]
            self._stale.add(kind)
        arguments, names = self._arguments[kind]
        if kind in self._stale:
            for name in names:
                setattr(arguments, name, self.fields[name])
            self._stale.discard(kind)
        return arguments

    def interpreter(self, shape: LaunchShape, **macros: Any) -> Any:
        """The variant of the interpreter for these macros."""
        return self.device.kernel(
            "interpret",
            self.settings,
            REAL=REAL[self.dtype.itemsize],
            LANES=shape.lanes,
            VECTORS=shape.vectors,
            BLOCK=shape.block,
            COLUMNS_SHARED=int(shape.columns_shared),
            WIDE=int(shape.wide),
            **macros,
        )

    def support(self, name: str, **macros: Any) -> Any:
        """One of the kernels before and after the interpreter."""
        macros = {"REAL": REAL[self.dtype.itemsize], "LANES": self.device.lanes, "SUPPORT": 1, **macros}
        return self.device.kernel(name, self.settings, **macros)

    def adding_segments(self, n_items: int, partials: Any, n_segments: int, add: bool) -> Launch:
        """The launch that adds the segments' sums of every item to (or makes them) its sum."""
        adders = 1 if self.device.lanes == 1 else next(n for n, most in ADDERS.items() if n_segments <= most)
        threads = THREADS_BESIDE["add_segments"]
        return self.launch(
            self.support("add_segments", ADDERS=adders),
            (-(-n_items * adders // threads), 1),
            threads,
            overlaps=True,
            n_items=n_items,
            partials=partials,
            n_segments=n_segments,
            add_to_sums=int(add),
        )

    def handing_over(self, n_items: int, sums: Any, place: int, counter: int) -> Launch:
        """The launch that takes whole sums to a place of the host's, and then its ticket to another one."""
        return self.launch(
            self.support("hand_over"),
            (1, 1),
            MOST_THREADS if self.device.lanes > 1 else 1,
            overlaps=True,
            n_items=n_items,
            partials=sums,
            sums=place,
            told=counter,
        )

    def rounding(self, n: int, fraction: int) -> Launch:
        """The launch that rounds ``n`` results to 16 bits, ``fraction`` of them behind the point."""
        blocks = -(-n // (THREADS if self.device.lanes > 1 else 1))
        return self.launch(self.support("round_results", FRACTION=fraction), (blocks, 1), THREADS, n_items=n)

    def padded(self, values: Any, length: int) -> Any:
        """One number per point on the device, with zeros behind the last one."""
        padded = self.device.xp.zeros(length, self.dtype)
        padded[: self.n_points] = self.device.sent([values])[0] if isinstance(values, np.ndarray) else values
        return padded

    def padded_once(self, name: str, values: Any) -> Any:
        """``padded`` to whole tiles; of the host's, kept under a name as long as they stay the same numbers."""
        if not isinstance(values, np.ndarray):
            return self.padded(values, self.pitch)
        known, padded = self._padded.get(name, (None, None))
        if known is not values and (known is None or not np.array_equal(known, values)):
            own = values.copy() if values.flags.writeable or not values.flags.owndata else values  # that stays as it is
            padded = self.padded(values, self.pitch)
            self._padded[name] = own, padded
        return padded

    def _make_columns(self, columns: Columns) -> None:
        if self.n_points == 0 or self.n_columns == 0:
            return
        if self.n_columns not in self._making:
            blocks = -(-self.pitch // THREADS), min(self.n_columns, 65535)
            self._making[self.n_columns] = self.launch(self.support("make_columns"), blocks, THREADS)
        if self._made_of[0] is not columns:  # those that a device has numbered lie where they always do
            self._keep_columns = there = [self._there(array) for array in columns]
            names = "column_code", "column_var", "column_low"
            self._made_of = (
                columns,
                {name: self.device.pointer(array) for name, array in zip(names, there, strict=True)},
            )
        self._making[self.n_columns](**self._made_of[1])

    def cutting(self, shares: Plan, items: slice, cost_of_result: int) -> tuple[Launch, Any]:
        """The launch that finds the items of every chunk of a plan, and where it puts them: (..., n_chunks, 4)."""
        n_partitions, n_chunks = shares.rank.shape
        chunks = self.device.xp.empty((n_partitions, n_chunks, 4), np.int32)
        threads = THREADS if self.device.lanes > 1 else 1
        cut = self.launch(
            self.device.kernel("cut_chunks", self.settings, schedule_source(), LANES=self.device.lanes),
            (-(-n_partitions * self.device.lanes // threads), 1),
            threads,
            kind=layout.ScheduleArguments,
            place=shares.place,
            rank=shares.rank,
            chunks=chunks,
            first=items.start,
            stop=items.stop,
            n_partitions=n_partitions,
            n_chunks=n_chunks,
            cost_of_result=cost_of_result,
        )
        return cut, chunks


@functools.cache
def schedule_source() -> str:
    """The CUDA C of the kernel that cuts chunks."""
    return opcodes.joined(("gpu/common.cu", "gpu/schedule.cu"))


class Immediates:
    """The immediates of all instructions, for one or more parameter sets."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher, self.device = launcher, launcher.device
        self._staging: list[tuple[LockedRoom, Any]] = []  # for numbers on their way to the device; two, in turn
        self._launches = Recent()
        self._generation = 0
        self.arrays: dict[str, Any] = {}
        self._sets_made = 0  # of a population without parameters

    def make(self, params: Any) -> bool:
        """From parameters (n_sets, n_exprs, max_params); True if the arrays are not those of the last time."""
        n_sets, _, max_params = params.shape
        if max_params == 0 and n_sets <= self._sets_made and self._generation == self.launcher.generation:
            return False
        is_new = self.take_memory(n_sets)
        source, done = self.reachable(params)
        self.launch(params.shape)(params=source)
        if done is not None:
            done.record()
        self.made(params.shape)
        return is_new

    def launch(self, shape: tuple[int, ...]) -> Launch:
        """The launch for parameters of a shape."""
        launch: Launch = self._launches.made(shape, lambda: self._new_launch(*shape))
        return launch

    def _new_launch(self, n_sets: int, n_exprs: int, max_params: int) -> Launch:
        threads, own = THREADS_BESIDE["make_immediates"], {"n_sets": n_sets, "max_params": max_params, **self.arrays}
        kernel, blocks = self.launcher.support("make_immediates"), (-(-n_sets * n_exprs // threads), 1)
        return self.launcher.launch(kernel, blocks, threads, overlaps=True, **own)

    def made(self, shape: tuple[int, ...]) -> None:
        """Note that they are made of the present programs, which is done once where there are no parameters."""
        self._sets_made, self._generation = 0 if shape[-1] else shape[0], self.launcher.generation

    def take_memory(self, n_sets: int) -> bool:
        """Make sure that the arrays hold ``n_sets`` sets; True if they have been replaced."""
        xp, dtype = self.device.xp, self.launcher.dtype
        needed = 2 * (n_sets * self.launcher.n_instructions + 2 * self.device.lanes)  # a warp fetches ahead
        n_results = n_sets * (self.launcher.programs.n_results + 1) + 1
        if self.arrays and self.arrays["immediates"].size >= needed and self.arrays["results"].size >= n_results:
            return False
        self._launches.clear()
        self.arrays.clear()
        immediates = xp.zeros(needed, dtype)  # if the next one does not fit, neither is kept
        results = xp.zeros(n_results, dtype)
        self.arrays.update(immediates=immediates, results=results)
        return True

    def reachable(self, params: Any) -> tuple[int, Any]:
        """The address of parameters where a kernel can read them: on the device, or copied to page-locked memory.

        Behind it what to record as soon as the kernel is started, or None.
        """
        if not isinstance(params, np.ndarray) or self.device.xp is np or params.size == 0:
            return self.device.pointer(params), None
        self._staging = self._staging or [(LockedRoom(self.device), self.device.event()) for _ in range(2)]
        self._staging.reverse()
        room, done = self._staging[0]
        done.synchronize()  # the launch before the last one has read it
        np.copyto(room.shaped(params.shape, params.dtype), params)
        count_in(params.nbytes)
        return room.address, done
