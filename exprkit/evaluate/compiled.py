"""``compile_ptx`` and ``compile_bytecode`` of ``exprkit``: what the GPU backends run, without a GPU.

In: a population, and an architecture or the data.  Out: ``Compiled``: three-address programs, bytecode and the CUDA C
of its cases, PTX, machine code and what each kernel needs.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.backends.cpu.tiles import never_negative
from exprkit.backends.device_programs.population import on_host
from exprkit.backends.gpu import layout, opcodes
from exprkit.backends.gpu.bytecode import Bytecode, accumulate
from exprkit.backends.gpu.engine import check_block, check_points
from exprkit.backends.gpu.layout import ACTION, CONSTANT, END, FROM_SLOT, LOAD, PARAMETER, SPILL
from exprkit.backends.precision import Precision
from exprkit.backends.precision import precision as settings_of
from exprkit.backends.transpiler.assembler import compile_modules, disassemble, usage
from exprkit.backends.transpiler.program import CodeShape, Transpiled, parts
from exprkit.backends.transpiler.structures import to_compile
from exprkit.backends.transpiler.templates import ABSOLUTE, SQUARE, SUM, VALUES, WARP
from exprkit.errors import ArgumentError, brief, checks_keywords, flag, number_of, one_of, whole
from exprkit.evaluate import inputs
from exprkit.evaluate.options import check_has_texts
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.programs.lower import lower
from exprkit.programs.program import Program
from exprkit.text.printer import number_text

TASKS = (VALUES, SQUARE, ABSOLUTE, SUM)
MOST_WORKERS = 4096
MANY_POINTS = 1 << 20  # for which code is made
CASE = re.compile(r"^ *((?:case \d+: ?)+)(.*)$", re.MULTILINE)


class Compiled:
    """A population as the GPU backends run it; what is said of an expression is text.

    Attributes
    ----------
    modules : list of str
        PTX of all structures; with ``cubins``, the machine code of each module, only of ``compile_ptx``.
    registers, spills : int array, (n_modules,)
        Of a thread: registers, and bytes that did not fit into them.
    structure : int32 array, (n_exprs,)
        Which structure each expression has; ``n_structures`` is how many there are.

    Examples
    --------
    >>> import exprkit as ek
    >>> print(ek.compile_bytecode(ek.parse("p1 * x1")).program(0))
    out = mul u0, c0
    <BLANKLINE>
    c0: x1
    """

    def __init__(
        self, pop: Any, X: Any, precision: Any, dtype: Any, backend: str, task: str = VALUES, arch: str = "sm_90"
    ) -> None:
        self.pop: Population = on_host(inputs.population(pop))
        check_has_texts(self.pop, backend)
        self.settings, self.dtype, self.arch, self.task = settings_of(precision), inputs.dtype_of(dtype), arch, task
        self._positive = None if X is None else never_negative(X)
        self.modules: list[str] = []
        self.cubins: list[bytes] = []
        self.registers = self.spills = np.zeros(0, np.int64)
        self._changed: Callable[[CodeShape], CodeShape] | None = None

    def assemble(self, changed: Callable[[CodeShape], CodeShape], compiler: Callable[..., Any]) -> None:
        """Make PTX, in shapes as ``changed``, and by ``compiler`` machine code of the whole population."""
        self._changed = changed
        texts = (part.modules(part.kind(self.task), self.settings) for part in self._parts)
        self.modules = [module.decode() for some in texts for module in some]
        linked = sorted(compiler(self.modules, self.arch, self.settings), key=lambda one: one.index)
        self.cubins = [one.cubin for one in linked]
        used = [next(iter(usage(one.report).values())) for one in linked]
        self.registers = np.array([one.registers for one in used], np.int64)
        self.spills = np.array([one.spill_stores + one.spill_loads for one in used], np.int64)

    @functools.cached_property
    def _parts(self) -> list[Transpiled]:
        program = self._lowered(self.pop)
        return parts(program, to_compile(program), self.task, MANY_POINTS, self.dtype.itemsize, self._changed)

    @property
    def structure(self) -> np.ndarray:
        """The number of each expression's structure."""
        return self._parts[0].structures.of if self._parts else np.zeros(0, np.int32)

    @property
    def n_structures(self) -> int:
        """The number of structures."""
        return len(self._parts[0].structures) if self._parts else 0

    def _lowered(self, pop: Population) -> Program:
        positive = None if self._positive is None else self._positive[: pop.n_vars]
        return lower(pop, precision=self.settings.operators, positive=positive, dtype=self.dtype)

    def _alone(self, i: int) -> Program:
        i = range(len(self.pop))[i]
        return self._lowered(self.pop[i : i + 1])

    def program(self, i: int) -> str:
        """The three-address program of expression ``i``, and the columns that it reads.

        >>> print(ek.compile_bytecode("p1 * exp(-x1)").program(0))
        t0 = exp c0
        out = mul u0, t0
        <BLANKLINE>
        c0: neg(x1)
        """
        lowered = self._alone(i)
        columns = "\n".join(f"c{place}: {what}" for place, what in enumerate(lowered.columns()))
        return f"{lowered.listing(0)}\n\n{columns}"

    def listing(self, i: int) -> str:
        """The words of expression ``i`` as ``"cuda"`` reads them: their bits, the case they name, and what it does.

        >>> print(ek.compile_bytecode("p1 * exp(-x1)").listing(0))
        word  action      places      case  the accumulator acc becomes
           0  0x00200002  0x00000000    32  acc = c0; acc = exp(acc)
           1  0x00070001  0x00000000     7  acc = acc * p1, the result
        """
        bytecode, meaning = accumulate(self._alone(i)), _meanings()
        lines = ["word  action      places      case  the accumulator acc becomes"]
        pairs = zip(bytecode.instructions.tolist(), bytecode.sources.tolist(), strict=True)
        for word, ((action, places), source) in enumerate(pairs):
            what = _described(action, places, source, bytecode, meaning)
            lines.append(f"{word:4}  0x{action:08x}  0x{places:08x}  {action >> 16:4}  {what}")
        return "\n".join(lines)

    def cuda(self, i: int) -> str:
        """The CUDA C of the cases that expression ``i`` runs, each once, as it stands in the kernel.

        >>> print(ek.compile_bytecode("p1 * exp(-x1)").cuda(0).count("case"))
        2
        """
        used = set((accumulate(self._alone(i)).instructions[:, ACTION] >> 16).tolist())
        cases = []
        for labels, code in CASE.findall(opcodes.source(self.settings.operators)):
            numbers = {int(number) for number in re.findall(r"\d+", labels)}
            if numbers & used and "acc" in code:
                cases.append(f"{labels.strip()} {code.strip()}")
        return "\n".join(cases)

    def ptx(self, i: int) -> str:
        """The PTX of expression ``i``'s structure as a module of its own, the expression in a comment."""
        i = range(len(self.pop))[i]
        part = next(part for part in self._parts if part.holds(i))
        return part.one(i, part.kind(self.task), self.settings, str(self.pop[i]))

    def sass(self, i: int) -> str:
        """The machine code of expression ``i``'s structure, disassembled.

        Raises
        ------
        BackendError
            If no disassembler is installed.
        """
        return disassemble(next(iter(compile_modules([self.ptx(i)], self.arch, self.settings))).cubin)

    def __repr__(self) -> str:
        sizes = {"expression": len(self.pop), "structure": self.n_structures, "module": len(self.cubins)}
        return f"Compiled({', '.join(number_of(n, what) for what, n in sizes.items())})"


@checks_keywords
def compile_ptx(
    pop: Population,
    arch: str = "sm_90",
    *,
    precision: str | Precision = "ieee",
    dtype: Any = "float32",
    task: str = VALUES,
    points_per_thread: int | None = None,
    block_size: int | None = None,
    workers: int | None = None,
    cache: bool = True,
    progress: Callable[[int], None] | None = None,
) -> Compiled:
    """Transpile a population to PTX and assemble it to machine code, on any machine (no GPU needed).

    Parameters
    ----------
    pop : Population
    arch : str
        The GPU architecture, such as ``"sm_90"``.
    precision : {"ieee", "fast"} or Precision
    dtype : {"float32", "float64"}
    task : {"values", "square", "absolute", "sum"}
        What the kernels compute: all results, or sums of squared, absolute or plain errors.
    points_per_thread : int, optional
        1, 2 or 4 (float64: 1 or 2); by default as the backend chooses for many points.
    block_size : int, optional
        Threads per block, a multiple of 32.
    workers : int, optional
        Number of compiling threads; by default the number of CPUs of this process.
    cache : bool
        Store machine code on disk, and reuse it.
    progress : callable, optional
        A function that is called with the number of finished modules.

    Raises
    ------
    BackendError
        If a package is missing; says which.  For an operator of your own without CUDA text.
    ArgumentError, DataError
        If a choice does not exist.

    Examples
    --------
    >>> import exprkit as ek
    >>> made = ek.compile_ptx(ek.parse(["x1 + p1", "x1 * x2"]), arch="sm_90")  # doctest: +SKIP
    >>> len(made.cubins), made.registers.max() < 64                            # doctest: +SKIP
    (1, True)
    """
    compiled = Compiled(pop, None, precision, dtype, "ptx", one_of("task", task, TASKS), arch)
    points = check_points(points_per_thread, (1, 2, 4) if compiled.dtype.itemsize == 4 else (1, 2))
    changed = functools.partial(CodeShape.changed, points=points, block=check_block(block_size, WARP))
    if workers is not None:
        whole("workers", workers, 1, MOST_WORKERS)
    flag("cache", cache)
    if progress is not None and not callable(progress):
        raise ArgumentError(f"progress must be a function of the number of modules done, not {brief(progress)}")
    compiled.assemble(changed, functools.partial(compile_modules, workers=workers, progress=progress, cache=cache))
    return compiled


def compile_bytecode(pop: Population, X: Any = None, *, precision: str = "ieee", dtype: Any = "float32") -> Compiled:
    """The GPU bytecode of a population as text, on any machine.

    Parameters
    ----------
    pop : Population
    X : array, (n_points, n_vars), optional
        The data: where a variable has no negative value, powers have a shorter program.
    precision : {"ieee", "fast"}
    dtype : {"float32", "float64"}

    Raises
    ------
    BackendError
        For an operator of your own without CUDA text.

    Examples
    --------
    >>> import exprkit as ek
    >>> bytecode = ek.compile_bytecode(ek.parse("x1 + x2 * p1"))
    >>> print(bytecode.listing(0))  # c0: the column x1
    word  action      places      case  the accumulator acc becomes
       0  ...  acc = c1; acc = acc * p1
       1  ...  acc = acc + c0, the result
    """
    return Compiled(pop, X, precision, dtype, "cuda")


def _meanings() -> dict[int, tuple[ops.Operator, int]]:
    """(operator, addressing mode) of every opcode."""
    numbers = opcodes.numbers()
    return {
        int(numbers[code, mode]): (ops.BY_CODE[int(code)], int(mode))
        for code, mode in zip(*np.nonzero(numbers >= 0), strict=True)
    }


def _described(
    action: int, places: int, source: int, bytecode: Bytecode, meaning: dict[int, tuple[ops.Operator, int]]
) -> str:
    row, mode = meaning[action >> 16]
    place = f"{'t' if action & FROM_SLOT else 'c'}{places & 0xFFFF}" + (f", t{(places & 0xFFFF) + 1}" * row.packed)
    number = _number(source, bytecode)
    operands = {
        layout.ALONE: ("acc", ""),
        layout.MEMORY: ("acc", place),
        layout.MEMORY_FIRST: (place, "acc"),
        layout.IMMEDIATE: ("acc", number) if row.arity == 2 else (number, ""),
        layout.IMMEDIATE_FIRST: (number, "acc"),
        layout.BOTH: (place, number),
    }[mode]
    steps = [f"t{action >> 8 & 0xFF} = acc"] if action & SPILL else []
    steps += [f"acc = c{places >> 16}"] if action & LOAD else []
    steps.append(f"acc = {_applied(row, *operands)}")
    return "; ".join(steps) + (", the result" if action & END else "")


def _applied(row: ops.Operator, a: str, b: str) -> str:
    if row.code == ops.COPY:
        return a
    if row.infix and row.arity == 2:
        return f"{a} {row.infix} {b}"
    return f"{row.name}({a}{', ' + b if b else ''})"


def _number(source: int, bytecode: Bytecode) -> str:
    """The name of a word's number: a parameter, a constant, or a result of the prologue."""
    kind, index = source & 3, source >> 2
    if kind == PARAMETER:
        return f"p{index + 1}"
    if kind == CONSTANT:
        return number_text(float(bytecode.constants[index]))
    return f"r{index}"  # of the prologue
