"""``exprkit.compile_ptx``: a population as PTX and machine code, without a GPU.

In: a population and an architecture.  Out: PTX, machine code and what each kernel needs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from exprkit.backends.device_programs.population import on_host
from exprkit.backends.gpu.engine import check_block, check_points
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
from exprkit.programs.lower import lower

TASKS = (VALUES, SQUARE, ABSOLUTE, SUM)
MOST_WORKERS = 4096
MANY_POINTS = 1 << 20  # for which code is made


class CompiledPtx:
    """Modules of a population as text and as machine code.

    Attributes
    ----------
    modules : list of str
        PTX.
    cubins : list of bytes
        The machine code of each module.
    registers, spills : int array, (n_modules,)
        Of a thread: registers, and bytes that did not fit into them.
    structure : int32 array, (n_exprs,)
        Which structure each expression has; ``n_structures`` is how many were compiled.

    Examples
    --------
    >>> import exprkit as ek
    >>> print(ek.compile_ptx("x1 + p1").ptx(0))  # doctest: +SKIP
    """

    def __init__(self, pop: Population, parts: list[Transpiled], task: str, settings: Precision, arch: str) -> None:
        self.pop, self.arch = pop, arch
        self.structure = parts[0].structures.of if parts else np.zeros(0, np.int32)
        self.n_structures = len(parts[0].structures) if parts else 0
        self._parts, self._task, self._settings = parts, task, settings
        self.modules: list[str] = []
        self.cubins: list[bytes] = []
        self.registers = self.spills = np.zeros(0, np.int64)

    def ptx(self, i: int) -> str:
        """The PTX of expression ``i``'s structure as a module of its own, the expression in a comment."""
        i = range(len(self.pop))[i]
        part = next(part for part in self._parts if part.holds(i))
        return part.one(i, part.kind(self._task), self._settings, str(self.pop[i])).text.decode()

    def sass(self, i: int) -> str:
        """The machine code of expression ``i``'s structure, disassembled.

        Raises
        ------
        BackendError
            If no disassembler is installed.
        """
        return disassemble(next(iter(compile_modules([self.ptx(i)], self.arch, self._settings))).cubin)

    def __repr__(self) -> str:
        sizes = {"expression": len(self.pop), "structure": self.n_structures, "module": len(self.cubins)}
        return f"CompiledPtx({', '.join(number_of(n, what) for what, n in sizes.items())})"


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
) -> CompiledPtx:
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
    pop = on_host(inputs.population(pop))
    check_has_texts(pop, "ptx")
    settings, number = settings_of(precision), inputs.dtype_of(dtype)
    one_of("task", task, TASKS)
    points = check_points(points_per_thread, (1, 2, 4) if number.itemsize == 4 else (1, 2))
    block = check_block(block_size, WARP)
    if workers is not None:
        whole("workers", workers, 1, MOST_WORKERS)
    flag("cache", cache)
    if progress is not None and not callable(progress):
        raise ArgumentError(f"progress must be a function of the number of modules done, not {brief(progress)}")

    changed = functools.partial(CodeShape.changed, points=points, block=block)
    program = lower(pop, precision=settings.operators, dtype=number)
    every = parts(program, to_compile(program), task, MANY_POINTS, number.itemsize, changed)
    result = CompiledPtx(pop, every, task, settings, arch)
    texts = (part.modules(part.kind(task), settings) for part in every)
    result.modules = [module.text.decode() for some in texts for module in some]
    compiler = functools.partial(compile_modules, workers=workers, progress=progress, cache=cache)
    linked = sorted(compiler(result.modules, arch, settings), key=lambda one: one.index)
    result.cubins = [one.cubin for one in linked]
    used = [next(iter(usage(one.report).values())) for one in linked]
    result.registers = np.array([one.registers for one in used], np.int64)
    result.spills = np.array([one.spill_stores + one.spill_loads for one in used], np.int64)
    return result
