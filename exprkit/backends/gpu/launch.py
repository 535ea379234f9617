"""Kernel arguments, and the arrays that stay on the device.

In: bytecode and data.  Out: launches.

    >>> from exprkit.backends.gpu.launch import Job
    >>> Job(n_points=5).n_points
    5
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.backends.gpu.bytecode import Accumulated
from exprkit.backends.gpu.schedule import LINE, TILES_END, VECTOR_BYTES, LaunchShape
from exprkit.backends.precision import Precision
from exprkit.operators import ops

_POINTERS = (
    "words", "first_word", "sources", "steps", "first_step", "constants", "numbers", "results", "params", "data",
    "column_code", "column_var", "column_low", "columns", "target", "weights", "runs",
    "out", "partials", "sums", "nonfinite",
)  # fmt: skip
_LONG = ["n_points", "pitch", "stride_point", "stride_variable", "n_items", "first_chunk"]
_INT = (
    "n_exprs", "n_words", "n_sets", "max_params", "n_columns", "n_slots", "n_results", "n_chunks", "add_to_sums",
    "first_tile", "n_tiles", "n_units", "n_runs", "expression", "max_tokens",
)  # fmt: skip
_TOKENS = ["token_kinds", "token_values", "token_numbers"]
THREADS = 256  # of a block of the small kernels
THREADS_BESIDE = {"make_numbers": 96, "add_chunks": 128}  # beside the interpreter, which leaves few registers
ADDERS = {8: 256, 32: 4096, 128: 1 << 31}  # threads that add up to so many chunks
REAL = {4: "float", 8: "double"}


def too_large(what: str, card: Any) -> MemoryError:
    """The error that says what does not fit into the device's memory."""
    return MemoryError(
        f"{what} do not fit into the device's memory, of which {card.free_bytes() / 1e9:.3g} GB are free: "
        "take fewer points, expressions or parameter sets at a time"
    )


class Job(ctypes.Structure):
    """struct Job of job.cu."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in _POINTERS),
        *((name, ctypes.c_int64) for name in _LONG),
        *((name, ctypes.c_int32) for name in _INT),
        *((name, ctypes.c_uint64) for name in _TOKENS),
    ]


class Launch:
    """A launch that can be repeated with other arrays in some fields of its job."""

    def __init__(self, card: Any, start: Callable[..., None], job: ctypes.Structure, held: Any) -> None:
        self.card, self._start, self.job = card, start, job
        self._held = held  # arrays that the job points to

    def __call__(self, **fields: Any) -> None:
        """Start the kernel on CuPy's current stream."""
        fill(self.job, fields, self.card)
        self._start()


def fill(job: ctypes.Structure, fields: dict[str, Any], card: Any) -> None:
    """Set fields of a job; an array stands for its address, None for no address."""
    for name, value in fields.items():
        setattr(job, name, value if isinstance(value, (int, float)) else 0 if value is None else card.pointer(value))


class Launcher:
    """The programs and the data of one engine on the device, and the kernels to run on them."""

    def __init__(
        self, card: Any, settings: Precision, dtype: np.dtype, programs: Accumulated, columns: Any, X: Any
    ) -> None:
        self.card, self.settings, self.dtype, self.programs = card, settings, dtype, programs
        self.n_exprs, self.n_words, self.n_columns = len(programs.first_word), len(programs.words), len(columns[0])
        end, margin = TILES_END * card.lanes * VECTOR_BYTES // dtype.itemsize, LINE // dtype.itemsize
        self.pitch = -(-(len(X) + margin) // end) * end  # whole tiles, however many vectors they have
        self.bytes_of_a_set = 2 * dtype.itemsize * (self.n_words + programs.n_results)
        with np.errstate(over="ignore", invalid="ignore"):
            constants = programs.constants.astype(dtype)
        self._held: dict[str, Any] = {
            name: card.xp.asarray(array) for name, array in {
                "words": programs.words, "first_word": programs.first_word, "sources": programs.sources,
                "steps": programs.steps, "first_step": programs.first_step, "constants": constants,
            }.items()
        }  # fmt: skip
        memory = card.xp.empty(margin + max(self.n_columns, 1) * self.pitch, dtype)
        memory[:margin] = 0
        self._held["columns"] = memory[margin:]  # a tile may begin a little early
        self._held["data"] = data = card.xp.asarray(X)
        self.fields = {
            "n_points": len(X), "pitch": self.pitch, "n_exprs": self.n_exprs, "n_words": self.n_words,
            "n_columns": self.n_columns, "n_slots": programs.n_slots, "n_results": programs.n_results + 1,
            "stride_point": data.strides[0] // dtype.itemsize, "stride_variable": data.strides[1] // dtype.itemsize,
        }  # fmt: skip
        self._make_columns(*columns)

    def launch(
        self, kernel: Any, blocks: tuple[int, int], threads: int, shared: int = 0, overlaps: bool = False, **fields: Any
    ) -> Launch:
        """A launch with these fields of the job; one that ``overlaps`` waits by itself for the one before."""
        job = Job()
        fill(job, {**self.fields, **self._held, **fields}, self.card)
        start = kernel.prepare(blocks, threads, shared, job, **({"overlaps": True} if overlaps else {}))
        return Launch(self.card, start, job, (dict(self._held), fields))

    def interpreter(self, shape: LaunchShape, **macros: Any) -> Any:
        """The variant of the interpreter for these macros."""
        return self.card.kernel(
            "interpret", self.settings, REAL=REAL[self.dtype.itemsize], LANES=shape.lanes, VECTORS=shape.vectors,
            BLOCK=shape.block, COLUMNS_SHARED=int(shape.columns_shared), WIDE=int(shape.wide), **macros,
        )  # fmt: skip

    def support(self, name: str, **macros: Any) -> Any:
        """One of the kernels before and after the interpreter."""
        return self.card.kernel(
            name, self.settings, REAL=REAL[self.dtype.itemsize], LANES=self.card.lanes, SUPPORT=1, **macros
        )

    def adding_chunks(self, n_items: int, n_chunks: int, add: bool) -> Launch:
        """The launch that adds the chunks of every row to (or makes them) its sum."""
        adders = 1 if self.card.lanes == 1 else next(n for n, most in ADDERS.items() if n_chunks <= most)
        threads = THREADS_BESIDE["add_chunks"]
        return self.launch(
            self.support("add_chunks", ADDERS=adders), (-(-n_items * adders // threads), 1), threads, overlaps=True,
            n_items=n_items, n_chunks=n_chunks, add_to_sums=int(add),
        )  # fmt: skip

    def _make_columns(self, code: np.ndarray, var: np.ndarray) -> None:
        """The columns of the programs, from the data."""
        if self.fields["n_points"] == 0 or self.n_columns == 0:
            return
        described = [self.card.xp.asarray(array.astype(np.int32)) for array in (code, var, _low_parts(code))]
        self.launch(
            self.support("make_columns"), (-(-self.pitch // THREADS), min(self.n_columns, 65535)), THREADS,
            column_code=described[0], column_var=described[1], column_low=described[2],
        )()  # fmt: skip


class UniformNumbers:
    """The numbers of all words, for one or more parameter sets."""

    def __init__(self, launcher: Launcher) -> None:
        self.launcher, self.card = launcher, launcher.card
        self._staging: list[_Staging] = []  # two, in turn
        self._launches: dict[int, Launch] = {}
        self.arrays: dict[str, Any] = {}
        self._sets_made = 0  # of a population without parameters

    def make(self, params: Any) -> bool:
        """From parameters (n_sets, n_exprs, max_params); True if the arrays are not those of the last time."""
        n_sets, n_exprs, max_params = params.shape
        if max_params == 0 and n_sets <= self._sets_made:
            return False
        is_new = self._take_memory(n_sets)
        source, done = self._reachable(params)
        if n_sets not in self._launches:
            threads = THREADS_BESIDE["make_numbers"]
            self._launches[n_sets] = self.launcher.launch(
                self.launcher.support("make_numbers"), (-(-n_sets * n_exprs // threads), 1), threads,
                overlaps=True, n_sets=n_sets, max_params=max_params, **self.arrays,
            )  # fmt: skip
        self._launches[n_sets](params=source)
        if done is not None:
            done.record()
        self._sets_made = n_sets if max_params == 0 else 0
        return is_new

    def _take_memory(self, n_sets: int) -> bool:
        """Make sure that the arrays hold so many sets."""
        xp, dtype = self.card.xp, self.launcher.dtype
        needed = 2 * (n_sets * self.launcher.n_words + 2 * self.card.lanes)  # a warp fetches ahead
        if self.arrays and self.arrays["numbers"].size >= needed:
            return False
        self._launches.clear()
        self.arrays.clear()
        numbers = xp.zeros(needed, dtype)  # if the next one does not fit, neither is kept
        results = xp.zeros(n_sets * (self.launcher.programs.n_results + 1) + 1, dtype)
        self.arrays.update(numbers=numbers, results=results)
        return True

    def _reachable(self, params: Any) -> tuple[Any, Any]:
        """Parameters where a kernel can read them: on the device, or (their address) copied to page-locked memory."""
        if not isinstance(params, np.ndarray) or self.card.xp is np or params.size == 0:
            return params, None
        if not self._staging or self._staging[0].memory.nbytes < params.nbytes:
            self._staging = [_Staging(self.card, params.nbytes) for _ in range(2)]
        self._staging.reverse()
        staging = self._staging[0]
        staging.done.synchronize()  # the launch before the last one has read it
        np.copyto(staging.shaped(params), params)
        return staging.address, staging.done


class _Staging:
    """Page-locked memory for parameters on their way to the device."""

    def __init__(self, card: Any, n_bytes: int) -> None:
        self.memory, self.done = card.pinned(n_bytes), card.event()
        self.address = card.pointer(self.memory)
        self._view: np.ndarray = self.memory[:0]

    def shaped(self, params: np.ndarray) -> np.ndarray:
        """The memory as an array like ``params``; the last one is kept, since it is mostly the same."""
        if self._view.shape != params.shape or self._view.dtype != params.dtype:
            self._view = self.memory[: params.nbytes].view(params.dtype).reshape(params.shape)
        return self._view


def _low_parts(code: np.ndarray) -> np.ndarray:
    """1 for every column that is the low part of a pair."""
    low = np.zeros(len(code), np.int32)
    c = 0
    while c < len(code):
        width = ops.BY_CODE[int(code[c])].width
        low[c + 1 : c + width] = 1
        c += width
    return low


def store_width(out: Any, card: Any) -> int:
    """How many bytes a thread may store at once: rows follow one another without a gap."""
    alignment = int(out.shape[-1]) * out.itemsize | card.pointer(out)
    return next(width for width in (16, 8, 4) if alignment % width == 0)
