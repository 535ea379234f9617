"""Lowering on the device: from tokens to bytecode, as ``lower`` and ``accumulate`` make it, without the host.

In: tokens that lie on the device.  Out: ``Bytecode`` whose arrays lie there, and the columns it reads.  The kernels
(lowering.cu) run the host's own functions, translated; their bytecode is the host's word by word but for the numbers
of the columns, which are those of the keys ``256 * variable + code`` in order, and for equal parts of parameters and
constants, which are not looked for: that took 4 to 7 % of the time (H200), and random trees have none.

    >>> from exprkit.backends.device_programs import lowering
    >>> "INLINE Long read_tree" in lowering.source()
    True
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.device_memory import Allocation, Recent
from exprkit.backends.device_programs.population import PARTS, DevicePopulation, on_host
from exprkit.backends.device_programs.translate import text_of
from exprkit.backends.gpu import bytecode, layout
from exprkit.backends.gpu.device_bytecode import DeviceBytecode, Programs, parts_of
from exprkit.backends.gpu.launch import MOST_THREADS, REAL, Columns, field_address, fill, put
from exprkit.backends.gpu.opcodes import traits_of
from exprkit.backends.precision import Precision, precision
from exprkit.errors import BackendError
from exprkit.expressions.population import Population
from exprkit.expressions.rewrite import Rules, table_rules
from exprkit.operators.defined import table_of_rows
from exprkit.programs.emit import emit_tree, place
from exprkit.programs.lower import lower, mark, read_tree
from exprkit.runtime import ranges
from exprkit.runtime.calls import Sequence

THREADS = 128  # of a block
MOST_TOKENS = 2048  # of an expression that is lowered here: threads have scratch memory for the longest one
SCRATCH_BYTES = 512 << 20
KEPT_BYTES = 32 << 20
BYTES_OF_A_NODE = 80  # of a thread's scratch memory: lowering.cu
COMPILED_AS = precision("ieee")  # whatever the settings: constants are rounded as on the host
KERNELS = COUNT, NUMBER, SETTLE, EMIT = "count_words", "number_words", "settle_words", "emit_words"
MOST_DRAFTED = 255  # variables, whose columns' keys a draft of an instruction has room for
MOST_SUPPOSED = 1 << 21  # words that there is room for before they are counted
TRANSLATED = read_tree, mark, place, emit_tree, bytecode.write_prologue, bytecode.write_instruction


class DeviceTokens(NamedTuple):
    """A population's tokens on the device, and what is known of them on the host."""

    addresses: dict[str, int]  # of kinds, values, offsets and n_params, as ``Population`` has them
    n_tokens: int
    n_exprs: int
    longest: int  # the most tokens of an expression
    keep: Any  # the arrays by name, or the population that has them

    @property
    def n_params(self) -> Any:
        """int32 (n_exprs,)"""
        return self.keep["n_params"] if isinstance(self.keep, dict) else self.keep.n_params


class Last(NamedTuple):
    """The population that a device had last: its fits, in either precision, want the same next."""

    pop: Any
    tokens: DeviceTokens
    lowered: tuple[Programs, Columns] | None = None
    tables: Any = None  # with these, of variables some of which are positive, for data of a type, it was lowered
    positive: Any = None
    dtype: Any = None


_last: dict[Any, Last] = {}  # by device


def tokens_of(pop: Population | DevicePopulation, device: Any) -> DeviceTokens:
    """A population's tokens, brought to the device if they lie on the host."""
    if isinstance(pop, DevicePopulation):
        return DeviceTokens(pop.addresses, pop.n_tokens, len(pop), pop.longest, pop)
    arrays = dict(zip(PARTS, device.sent([getattr(pop, name) for name in PARTS]), strict=True))
    addresses = {name: device.pointer(array) for name, array in arrays.items()}
    return DeviceTokens(addresses, len(pop.kinds), len(pop), pop.longest, arrays)


@functools.cache
def source() -> str:
    return text_of("lowering.cu", TRANSLATED, instead={"column_number": "", "_computed_before": ""})


class Lowering:
    """Bytecode for one data set: the tables, and the kernels' memory, which grows as needed.

    ``positive``, bool (n_vars,): True for a variable that has no negative value and no -0.
    """

    def __init__(self, device: Any, settings: Precision, dtype: np.dtype, positive: np.ndarray) -> None:
        xp = device.xp
        self.device, self.settings, self.dtype = device, settings, dtype
        self.n_vars, self._positive = max(len(positive), 1), positive
        self._tables, self._threads = _tables(device, settings.operators), 1 if device.lanes == 1 else THREADS
        n_keys, self._most_columns = 256 * self.n_vars, min(2 * 256 * self.n_vars, bytecode.MAX_COLUMNS)
        self._own = {
            "positive": xp.asarray(np.append(positive, False)),
            "summary": xp.zeros(layout.SUMMARY, np.int64),
            "wanted": xp.zeros(n_keys, np.uint8),
            "column_of": xp.empty(n_keys, np.int32),
        }
        self._memory: dict[str, Any] = {}
        self._arguments = layout.LoweringArguments()
        self._own_columns = Columns(*xp.empty((3, self._most_columns), np.int32))
        code, var, low = self._own_columns
        self._told = device.locked((layout.SUMMARY + 1,), np.int64)
        self._told[layout.SUMMARY] = 0
        fill(
            self._arguments,
            {
                **self._tables,
                **self._own,
                "column_code": code,
                "column_var": var,
                "column_low": low,
                "told": self._told,
                "n_vars": self.n_vars,
                "most_columns": self._most_columns,
            },
            device,
        )
        self._own_views, self._sequences = dict[int, Columns](), Recent()
        macros = {"REAL": REAL[self.dtype.itemsize], "LANES": device.lanes}
        self._kernels = {name: device.kernel(name, COMPILED_AS, source(), **macros) for name in KERNELS}

    @ranges.shown("lower")
    def of(self, pop: Population | DevicePopulation, behind: Any = None) -> tuple[Programs, Columns]:
        """Bytecode and columns of a population; made on the host if an expression is longer than MOST_TOKENS.

        Or if it shares parts (``Population.shares``), which trees can't.  ``behind``: work on programs that begins as
        soon as they are there, before anybody waits (``batches.Preparation``).
        """
        if isinstance(pop, DevicePopulation) and pop.device is not self.device:
            raise BackendError("the population lies on another GPU than the data: pop.to_host()")
        if pop.longest <= MOST_TOKENS and not (isinstance(pop, Population) and pop.shares):
            tokens, last = self.tokens(pop), _last.get(self.device)
            last = last if last is not None and last.pop is pop else None
            if last and last.lowered and self._is_known(last):
                return last.lowered
            made = self(tokens, behind)
            if last:
                _last[self.device] = Last(pop, tokens, made, self._tables, self._positive, self.dtype)
            return made
        program = lower(on_host(pop), precision=self.settings.operators, positive=self._positive, dtype=self.dtype)
        return bytecode.accumulate(program), Columns.of(program)

    def tokens(self, pop: Population | DevicePopulation) -> DeviceTokens:
        """A population's tokens; those of the last one, if it is small, are kept."""
        last = _last.get(self.device)
        if last is not None and last.pop is pop:
            return last.tokens
        tokens = tokens_of(pop, self.device)
        _last.pop(self.device, None)
        if 8 * tokens.n_tokens <= KEPT_BYTES:
            _last[self.device] = Last(pop, tokens)
        return tokens

    def _is_known(self, last: Last) -> bool:
        """Whether the last population was lowered as it would be here, perhaps for data of another type.

        The rules look at constants, rounded to the type, so these must be float32.
        """
        same = last.tables is self._tables and np.array_equal(last.positive, self._positive)
        return same and (last.dtype == self.dtype or not last.pop.has_wide_constants)

    def __call__(self, tokens: DeviceTokens, behind: Any = None) -> tuple[Programs, Columns]:
        """Bytecode and columns of a population; BackendError for more columns or slots than can be named."""
        n_exprs = tokens.n_exprs
        n_chunks, most = -(-n_exprs // self._threads), -(-2 * max(tokens.longest, 1) // 8) * 8
        scratch, blocks = self._scratch(BYTES_OF_A_NODE * most * self._threads, n_chunks)
        put(
            self._arguments,
            {
                **tokens.addresses,
                "scratch": self.device.pointer(scratch),
                "n_exprs": n_exprs,
                "n_chunks": n_chunks,
                "counts": self.device.pointer(self._room("counts", layout.COUNTS * n_exprs, np.int32)),
                "most_nodes": most,
                "totals": self.device.pointer(self._room("totals", layout.COUNTS * n_chunks, np.int64)),
                "threads": blocks * self._threads,
            },
        )
        supposed = tokens.n_tokens + n_exprs  # words: nearly always enough
        block = self._take_supposed(supposed, n_exprs)
        more = behind.begun(tokens, block.addresses, self._own["summary"], supposed) if behind and block else None
        is_drafted = blocks == max(n_chunks, 1) and self.n_vars <= MOST_DRAFTED  # a thread had one expression
        last = SETTLE if is_drafted else EMIT
        start, wait = self._calls(blocks if n_exprs else 0, last if block else "", more)
        self._arguments.ticket += 1
        start()
        if behind:
            behind.meanwhile()
        wait()
        summary = self._told.tolist()
        n_columns, counts = (
            summary[layout.N_COLUMNS],
            (summary[layout.INSTRUCTIONS], summary[layout.STEPS], summary[layout.CONSTANTS]),
        )
        n_slots = max(summary[layout.N_SLOTS] - 1, 0)
        if n_columns > bytecode.MAX_COLUMNS:
            raise bytecode.too_many_columns(n_columns)
        if n_slots > bytecode.MAX_SLOTS:
            raise bytecode.too_many_slots(n_slots)
        if block is None or max(counts) > supposed:
            block = self._take(max(counts), n_exprs, counts)
            self._started(last, blocks)()
        elif behind and more:
            behind.ended()
        code = traits_of(summary[layout.TRAITS])
        programs = DeviceBytecode(block, self.dtype, n_exprs, counts, n_slots, summary[layout.RESULTS], code)
        return programs, self._columns(n_columns)

    def _take_supposed(self, words: int, n_exprs: int) -> Allocation | None:
        """Memory for an estimated number of words; None where that may be too much."""
        if words > MOST_SUPPOSED:
            return None
        try:
            return self._take(words, n_exprs)
        except self.device.out_of_memory:
            return None

    def _take(self, words: int, n_exprs: int, counts: tuple[int, int, int] | None = None) -> Allocation:
        """Memory for programs of ``words`` words: instructions, steps and constants, or of their own counts."""
        n_instructions, n_steps, n_constants = counts or (words, words, words)
        lengths = n_instructions, n_exprs, n_instructions, n_steps, n_exprs + 1, n_constants + 1, n_exprs + 1
        block = Allocation(self.device, parts_of(self.dtype), lengths)
        put(self._arguments, {**block.addresses, "most_words": words})
        return block

    def _calls(self, blocks: int, last: str, more: Sequence | None) -> tuple[Sequence, Sequence]:
        """The calls that count and number words, then the ``last`` kernel, and those that wait for the numbers.

        With ``more`` behind that, it waits for all of it.
        """

        def make() -> tuple[Sequence, Sequence]:
            told = self.device.pointer(self._told[layout.SUMMARY :]), field_address(self._arguments, "ticket")
            wait = self.device.arriving(*told) if more is None else self.device.waiting()
            calls = self._started(COUNT, blocks).then(self._started(NUMBER, 1)) if blocks else self._started(NUMBER, 1)
            others = [*([self._started(last, max(blocks, 1))] if last else []), *([more] if more else [])]
            return calls.then(*others), wait

        sequences: tuple[Sequence, Sequence] = self._sequences.made((blocks, last, more), make)
        return sequences

    def _columns(self, n: int) -> Columns:
        if n not in self._own_views:
            self._own_views[n] = Columns(*(part[:n] for part in self._own_columns))
        return self._own_views[n]

    def _scratch(self, bytes_of_a_block: int, n_chunks: int) -> tuple[Any, int]:
        """Scratch memory of blocks, and the number of blocks: fewer where memory is short."""
        blocks = max(1, min(n_chunks, SCRATCH_BYTES // bytes_of_a_block))
        while True:
            try:
                return self._room("scratch", blocks * bytes_of_a_block, np.uint8), blocks
            except self.device.out_of_memory:
                if blocks == 1:
                    raise
            self.device.release()
            blocks //= 2

    def _room(self, name: str, n: int, dtype: Any) -> Any:
        """Memory for ``n`` numbers: that of the last call if it is enough."""
        if name not in self._memory or self._memory[name].size < n:
            self._memory.pop(name, None)
            self._memory[name] = self.device.xp.empty(max(n, 1), dtype)
        return self._memory[name]

    def _started(self, name: str, blocks: int) -> Sequence:
        threads = min(self._threads * 8, MOST_THREADS) if name == NUMBER and self._threads > 1 else self._threads
        return self._kernels[name].prepare((blocks, 1), threads, 0, self._arguments, overlaps=name != COUNT)


@table_of_rows
def _tables(device: Any, operators: str) -> dict[str, Any]:
    """The operator table's cells that lowering reads, on the device."""
    rules, rows = table_rules(operators), bytecode.operator_rows(operators)
    cells = {name: getattr(rules, name) for name in Rules._fields if name not in ("multiple", "factor")}
    cells["opcode"], cells["takes_pair"] = rows.opcode, rows.pair
    cells["commutative"], cells["operator_cost"] = rows.commutative, rows.cost
    cells["traits"] = rows.traits
    return {name: device.xp.asarray(np.ascontiguousarray(array)) for name, array in cells.items()}
