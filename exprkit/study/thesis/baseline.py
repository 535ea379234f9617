"""The thesis's way, a launch per expression, for comparison with one launch for all: as good as it can be made.

In: a population and data.  Out: its values.  ``bench`` times it as ``dispatch="per-expression"`` of two backends:

=====  ==================================================================================================
cuda   The thesis's interpreter: postfix forms in a matrix, padded with a stop token; each launch runs one row on
       all points, a point per thread, with a stack in local memory, whose size (25, later 10 values there) and
       block can be chosen.
ptx    The thesis's transpiler: every expression is compiled to a kernel of its own, a point per thread.
=====  ==================================================================================================

Launches are made in machine code by one or more host threads, on one or more streams, or recorded once and replayed as
a CUDA graph.  Parameters go by way of page-locked memory; the matrix is copied whole, at once if its place on the
host is page-locked, and stays on the device if that is where its place is.

    >>> import exprkit as ek
    >>> from exprkit.study.thesis.baseline import stack_depth
    >>> stack_depth(ek.parse(["x1 + x2 * x3", "x1"]))
    3
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from exprkit.backends.gpu import device as gpu
from exprkit.backends.gpu import layout, opcodes
from exprkit.backends.gpu.launch import MOST_THREADS, REAL, fill
from exprkit.backends.precision import Precision
from exprkit.backends.precision import precision as settings_of
from exprkit.backends.transpiler import engine as transpiler
from exprkit.backends.transpiler.program import Transpiled
from exprkit.backends.transpiler.templates import VALUES
from exprkit.errors import ArgumentError, one_of, whole
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.operators import defined, ops
from exprkit.runtime.calls import STREAM, table_of
from exprkit.text.tokens import OPERATOR

OPTIONS = {  # of the backends that have this way
    "cuda": ("block_size", "streams", "graph", "every_step", "stack"),
    "ptx": ("block_size", "streams", "graph", "every_step", "cache"),
}
EVERY_STEP = {"cuda": ("", "all"), "ptx": ("", "all", "transpile", "compile")}
MOST_STREAMS = 128  # of kernels that run at a time, with compute capability 7.5 and above
MORE = 1 << 8  # beside an operator's code, for each operand but the first
BLOCK = 128  # threads, as the thesis found best
STOP = OPERATOR + 1  # behind an expression's last token (baseline.cu)

_ARGUMENTS: layout.Rows = (
    ("const T *", "data", "as the user gave it, two strides"),
    ("const T *", "params", "(n_exprs, max_params)"),
    ("const unsigned char *", "token_kinds", "(n_exprs, max_tokens), padded with T_STOP"),
    ("const int *", "token_values", ""),
    ("const T *", "token_numbers", ""),
    ("T *", "out", "(n_exprs, n_points)"),
    ("Long", "n_points stride_point stride_variable", ""),
    ("int", "expression max_tokens max_params", ""),
)
Arguments = layout.ctypes_struct("Baseline", _ARGUMENTS)


class Baseline:
    """A population whose every expression is a launch of its own, with what ``bench`` asks of an evaluator.

    Parameters
    ----------
    pop : Population
    X : array, (n_points, n_vars)
        On the host or the device.
    backend : {"cuda", "ptx"}
    threads : int, optional
        Threads of the host that launch, by default 1.
    streams : int
        On which launches lie in turn, so that as many may run at a time.
    graph : bool
        Replay the launches of a step as a CUDA graph, from the second step on.
    every_step : str
        What each step makes anew, as the thesis did before it was improved: "all", also the frontend, the data and
        the memory; of ptx "transpile", PTX and machine code; "compile", machine code alone.
    device : optional
        By default the current one.
    **options
        Of ``Interpreter`` or ``Transpiler``.
    """

    def __init__(
        self,
        pop: Population,
        X: Any,
        backend: str = "cuda",
        *,
        threads: int | None = None,
        streams: int = 1,
        graph: bool = False,
        every_step: str = "",
        device: Any = None,
        **options: Any,
    ) -> None:
        self.device = device or gpu.current()
        self._every_step = one_of("every_step", every_step, EVERY_STEP[backend])
        self._dealt = whole("streams", streams, 1, MOST_STREAMS), whole("threads", threads or 1, 1), bool(graph)
        if graph and self._dealt[1] > 1:
            raise ArgumentError(f"a graph is launched by one thread: threads must be 1, not {threads}")
        if every_step == "all":
            self._given = pop.texts(), gpu.fetched(X)
        if every_step == "compile":
            options["keeps_text"] = True
        kind: Any = {"cuda": Interpreter, "ptx": Transpiler}[backend]
        self._make = functools.partial(kind, device=self.device, **options)
        self.engine, self._is_fresh = self._make(pop, X), True
        self._launches: Launches | None = None
        self._place: Any = None

    def evaluate(self, params: Any, out: Any) -> Any:
        """Write every element of ``out``, (n_exprs, n_points), on the host or the device, and give it back."""
        if self._every_step and not self._is_fresh:
            self._make_anew()
        self._is_fresh = False
        is_apart = isinstance(out, np.ndarray) and self.device.xp is not np
        place = self._room(out.shape) if is_apart else out
        self.engine.send(params)
        if self._launches is None or self._place is not place:
            self._launches, self._place = Launches(self.device, self.engine, place, *self._dealt), place
        self._launches()
        if is_apart:
            self.device.fetch(place, out.ctypes.data)
        return out

    def _room(self, shape: tuple[int, ...]) -> Any:
        """Memory of the device for the results, the same at every step."""
        is_there = self._place is not None and self._place.shape == shape
        return self._place if is_there else self.device.xp.empty(shape, self.engine.dtype)

    def _make_anew(self) -> None:
        self._launches = None
        if self._every_step == "all":
            self._place, texts, X = None, *self._given
            self.engine = self._make(parse(texts), X)
        else:
            self.engine.forget_code()


class Launches:
    """The launches of a step, dealt over streams and over threads of the host; replayed as a ``graph``."""

    def __init__(self, device: Any, engine: Any, place: Any, n_streams: int, n_threads: int, graph: bool) -> None:
        self._device, self._graph = device, graph
        several = n_streams > 1 or n_threads > 1
        streams = [device.side_stream(k) for k in range(n_streams)] if several else []
        table, self._keep = engine.launches(place, streams)
        self._parts = [device.sequence([], table[k::n_threads]) for k in range(n_threads)]
        self._around = device.side_by_side([[]] * max(n_streams, 2)) if several else None
        self._threads = ThreadPoolExecutor(n_threads, initializer=device.use) if n_threads > 1 else None
        self._recorded: Any = None
        self._is_first = True

    def __call__(self) -> None:
        """Start them all behind what was started on the current stream, and before what will be."""
        if not self._graph or self._is_first:  # the first time the driver loads what a graph may not
            self._is_first = False
            return self._start()
        if self._recorded is None:
            with self._device.stream() as stream:
                stream.begin_capture()
                self._start()
                self._recorded = stream.end_capture()
        self._recorded.launch(self._device.current_stream())

    def _start(self) -> None:
        if self._around:
            self._around()  # the streams wait for the current one
        if self._threads:
            list(self._threads.map(lambda part: part(), self._parts))
        else:
            self._parts[0]()
        if self._around:
            self._around()  # and that one for them


class Interpreter:
    """The thesis's interpreter.

    Parameters
    ----------
    pop, X, precision, dtype, device
        As of ``Baseline`` and ``Evaluator``.
    block_size : int, optional
        Threads of a block, any number of them.
    stack : int, optional
        Values that a thread keeps room for; by default as many as the population needs.
    """

    def __init__(
        self,
        pop: Population,
        X: Any,
        *,
        device: Any,
        precision: str | Precision = "fast",
        dtype: Any = "float32",
        block_size: int | None = None,
        stack: int | None = None,
    ) -> None:
        begin = perf_counter()
        self.device, self.dtype, self.n_exprs = device, np.dtype(dtype), len(pop)
        self._settings, self._block_size = settings_of(precision), _checked_block_size(block_size)
        self._stack = _stack(stack_depth(pop), stack)
        self._data = device.xp.asarray(X, self.dtype)
        self._params = device.xp.empty((len(pop), pop.max_params), self.dtype)
        self._arrays = {name: device.xp.asarray(array) for name, array in self._matrix(pop).items()}
        self.seconds = {"lower": perf_counter() - begin}

    def _matrix(self, pop: Population) -> dict[str, np.ndarray]:
        """The tokens of all expressions, (n_exprs, max_tokens)."""
        single = ~((pop.kinds == OPERATOR) & (pop.values == ops.PAIR_OF))  # whose two lie on the stack
        lengths = np.diff(np.append(0, np.cumsum(single))[pop.offsets])
        self.max_tokens = int(lengths.max(initial=0)) + 1
        inside = np.arange(self.max_tokens) < lengths[:, None]
        kinds = np.full(inside.shape, STOP, np.uint8)
        values, numbers = np.zeros(inside.shape, np.int32), np.zeros(inside.shape, self.dtype)
        kinds[inside], values[inside] = pop.kinds[single], _values(pop)[single]
        with np.errstate(over="ignore", invalid="ignore"):
            numbers[inside] = pop.values[single].view(np.float64).astype(self.dtype)
        return {"token_kinds": kinds, "token_values": values, "token_numbers": numbers}

    def send(self, params: Any) -> None:
        """Bring a step's parameters, (n_exprs, max_params), to where the launches read them."""
        if self._params.size:
            self._params[...] = self.device.sent([params])[0] if isinstance(params, np.ndarray) else params

    def launches(self, out: Any, streams: list[Any]) -> tuple[np.ndarray, Any]:
        """The table of all launches on streams in turn, and what it needs to stay."""
        data, known = self._data, Arguments()
        strides = [stride // self.dtype.itemsize for stride in data.strides]
        arrays = {**self._arrays, "data": data, "params": self._params, "out": out}
        sizes = {"n_points": len(data), "max_tokens": self.max_tokens, "max_params": self._params.shape[1]}
        fill(known, {**arrays, **sizes, "stride_point": strides[0], "stride_variable": strides[1]}, self.device)
        n, field = self.n_exprs if len(data) else 0, getattr(Arguments, "expression")  # noqa: B009
        arguments = np.tile(np.frombuffer(bytes(known), np.uint8), (n, 1))
        arguments[:, field.offset : field.offset + field.size] = np.arange(n, dtype=np.int32)[:, None].view(np.uint8)
        blocks = -(-len(data) // self._block_size)
        table, keep = self._kernel().each(blocks, self._block_size, arguments, streams)
        return table, (keep, arrays)

    def _kernel(self) -> Any:
        return self.device.kernel(
            "per_expression",
            self._settings,
            source(self._settings.operators),
            SUPPORT=1,
            STACK=self._stack,
            BLOCK=self._block_size,
            REAL=REAL[self.dtype.itemsize],
            LANES=self.device.lanes,
        )

    def kernels(self) -> list[dict[str, Any]]:
        """What the compiler made of the kernel."""
        kernel, own = self._kernel(), {"block_size": self._block_size, "points_per_thread": 1}
        own |= {"registers": kernel.registers, "local_bytes": kernel.local_bytes}
        return [{**own, "resident_blocks": kernel.resident(self._block_size, 0)}]


class Transpiler(transpiler.Engine):
    """The transpiler with a kernel for every expression, and a point per thread; options as of its engine.

    ``keeps_text``: PTX is made once, however often it is compiled.
    """

    def __init__(
        self, pop: Population, X: Any, *, block_size: int | None = None, keeps_text: bool = False, **options: Any
    ) -> None:
        single = {"points_per_thread": 1, "structures_per_module": 1, "structures_per_bundle": 1, "share_code": False}
        options |= {"block_size": block_size or BLOCK, "code_bytes": 1 << 62, **single}
        super().__init__(pop, X, **options)
        for part, _ in self.parts(VALUES) if keeps_text else ():
            setattr(part, "module", functools.cache(part.module))  # noqa: B010

    def _shared_out(self, part: Transpiled, task: str, n_sets: int, start: int, stop: int) -> tuple[int, int]:
        """A block has one row."""
        return super()._shared_out(part, task, n_sets, start, stop)[0], 1

    def forget_code(self) -> None:
        """Have everything be compiled again."""
        self._forget()
        self._codes.clear()

    def send(self, params: Any) -> None:
        """Make a step's numbers of its parameters, (n_exprs, max_params), by a launch before the others."""
        self._immediates.make(params[None])

    def launches(self, out: Any, streams: list[Any]) -> tuple[np.ndarray, Any]:
        """The table of all launches on streams in turn, and what it needs to stay."""
        row_bytes, calls = self.n_points * self.dtype.itemsize, list[Any]()
        for part, instances in self.parts(VALUES) if self.n_points else ():
            graph = self._pass(part, instances, (VALUES, 1, False, False, None), 1, 0, self.n_points)
            graph.arguments.set(out=out, row_bytes=row_bytes, out_set_bytes=row_bytes * self.n_exprs)
            n_tiles, block = self._shared_out(part, VALUES, 1, 0, self.n_points)[0], part.shape.block
            for kernel, given in graph.each(n_tiles):
                stream = streams[len(calls) % len(streams)] if streams else STREAM
                calls.append(kernel.call((n_tiles, 1), block, 0, given, stream=stream))
        return table_of(calls), calls


def source(operators: str) -> str:
    """The CUDA C of the kernel, behind that of operators on single numbers ("ieee" or "fast")."""
    struct = {"Baseline": layout.cuda_struct("Baseline", _ARGUMENTS)}
    return opcodes.source(operators) + opcodes.joined([str(Path(__file__).with_suffix(".cu"))], struct)


def _checked_block_size(size: int | None) -> int:
    """Threads of a block, any number of them."""
    if size is not None and (not isinstance(size, int) or not 0 < size <= MOST_THREADS):
        raise ArgumentError(f"block_size of a launch per expression must be 1 to {MOST_THREADS}, not {size!r}")
    return size or BLOCK


def _stack(depth: int, chosen: int | None) -> int:
    """Values that the stack holds: the chosen number, else the least power of two that is enough."""
    if chosen is not None:
        return whole("for these expressions stack", chosen, depth)
    return 1 << (depth - 1).bit_length()


def stack_depth(pop: Population) -> int:
    """The most values that any expression keeps at a time."""
    change = np.where(pop.kinds == OPERATOR, -_more(pop), 1)
    height = np.cumsum(change) - np.repeat(np.cumsum(pop.valid) - pop.valid, np.diff(pop.offsets))
    return int(height.max(initial=1))


def _values(pop: Population) -> np.ndarray:
    """An operator's code with the number of operands beside the first; else the index."""
    index = (pop.values & np.uint64(0x7FFFFFFF)).astype(np.int32)
    return np.where(pop.kinds == OPERATOR, index | MORE * _more(pop), index).astype(np.int32)


def _more(pop: Population) -> np.ndarray:
    """Operands of an operator beside the first; what packs two leaves both on the stack."""
    more = np.maximum(ops.ARITY.astype(np.int64), 1) - 1
    more[ops.PAIR_OF] = 0
    more[[row.code for row in defined.functions() if row.packed]] = 2
    return more[pop.values & np.uint64(0xFF)]
