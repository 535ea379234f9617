"""``exprkit.cases``: which kernel variant runs on which GPU for which workload, and why.

In: a population, or sizes, or nothing; the task.  Out: ``Cases``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.cases import bundles, interpreter
from exprkit.backends.cases.cards import CARDS
from exprkit.backends.cases.tree import SYMBOLS, Cases, Discussion
from exprkit.backends.cpu.tiles import never_negative
from exprkit.backends.device_programs.population import DevicePopulation, on_host
from exprkit.backends.gpu.bytecode import accumulate
from exprkit.backends.interpreter import batches
from exprkit.backends.interpreter.dual_opcodes import is_rare
from exprkit.backends.precision import Precision
from exprkit.backends.precision import precision as settings_of
from exprkit.backends.transpiler.assembler import compile_modules
from exprkit.backends.transpiler.program import Transpiled
from exprkit.backends.transpiler.structures import Structures, to_compile
from exprkit.errors import DataError, brief, checks_keywords, one_of
from exprkit.evaluate import inputs
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.programs.lower import lower
from exprkit.programs.program import Program

TASKS = ("values", "square", "absolute", "sum", "fit")
ARCHITECTURES = tuple(CARDS)


@checks_keywords
def cases(
    pop: Any = None,
    task: str = "square",
    *,
    precision: str | Precision = "ieee",
    dtype: Any = "float32",
    backend: str = "cuda",
    X: Any = None,
) -> Cases:
    """The case discussion of a kernel: a tree of inequalities in the symbols of the machine and the data.

    Parameters
    ----------
    pop : Population, DevicePopulation, list of texts or mapping, optional
        Whose sizes are known: expressions, columns, values put aside.  A mapping holds what ``Cases.at`` takes,
        ``bulky_operators`` is 0 if it is not said.  Without one all symbols are free.
    task : {"square", "absolute", "sum", "values", "fit"}
        A loss, predictions, or a fit.
    precision, dtype
        As of ``Evaluator``.
    backend : {"cuda", "ptx"}
    X : array, (n_points, n_vars), optional
        The data: its points are known then, and which variables have no negative value.

    Returns
    -------
    Cases
        ``print(found)``; ``found.at(device="sm_86", n_points=10_860).why()``; ``.leaves``, each with ``source``,
        ``ptx(architecture)``, ``constraints``, ``strategies``.  The code of a leaf of
        ``"ptx"`` is that of the population.

    Raises
    ------
    ArgumentError
        If there is no such task or backend.

    Notes
    -----
    The method is that of "Comprehensive Optimization of Parametric Kernels for Graphics Processing Units" (Chen,
    Moreno Maza, Paudel, Xie).  The same discussion chooses what runs: ``Evaluator.explain`` shows its path.

    Examples
    --------
    >>> import exprkit as ek
    >>> found = ek.cases(ek.parse(["p1 * x1^2 + exp(-x2)", "sqrt(x1) / x2"]), "square", precision="fast")
    >>> found.at(device="sm_86", n_points=10_860).case
    <Case: 4 points a thread, 128 threads a block, columns in shared memory; 11 constraints>
    """
    task, backend = one_of("task", task, TASKS), one_of("backend", backend, ("cuda", "ptx"))
    settings = settings_of(precision)
    itemsize = inputs.dtype_of(dtype).itemsize
    lowered = None if pop is None or isinstance(pop, Mapping) else _lowered(pop, X, settings, itemsize)
    subject = subject_of(task, backend, settings, itemsize, lowered)
    if isinstance(pop, Mapping):
        usual = {"bulky_operators": 0} if "b" in subject.symbols else {}
        return Cases(subject).at(**usual | dict(pop))
    return Cases(subject, {} if lowered is None else _known(lowered, X, subject))


class Lowered(NamedTuple):
    """A population as programs, and their structures."""

    pop: Population
    program: Program
    structures: Structures


@dataclass(frozen=True, eq=False)
class TranspiledText:
    """The transpiler's code of a population in one shape: PTX, the same text for all architectures."""

    modules: tuple[str, ...]
    settings: Precision

    @property
    def macros(self) -> dict[str, str]:
        """There are none."""
        return {}

    @property
    def source(self) -> str:
        """All modules."""
        return "\n".join(self.modules)

    def ptx(self, architecture: str) -> str:
        """The same: an assembler for an architecture makes machine code of it."""
        return self.source

    def report(self, architecture: str) -> str:
        """What the assembler says of all modules: registers, spills."""
        return "\n".join(one.report for one in compile_modules(self.modules, architecture, self.settings))


def subject_of(
    task: str, backend: str, settings: Precision, itemsize: int, lowered: Lowered | None = None
) -> Discussion:
    """What is discussed for a task; of ``"ptx"`` a leaf's code is that of the population, if there is one."""
    fast = settings.operators == "fast"
    if backend == "ptx":
        if task == "fit":
            raise DataError("backend 'ptx' makes no fits: backend='cuda' does")

        text = None if lowered is None else functools.partial(_transpiled, lowered, task, itemsize, settings)
        return bundles.subject(task, itemsize, text)
    if task == "fit":
        return batches.subject(settings, itemsize)
    return interpreter.subject(interpreter.VariantSet(itemsize, fast, wide=task == "values"), task, settings)


def _transpiled(
    lowered: Lowered, task: str, itemsize: int, settings: Precision, shape: bundles.CodeShape
) -> TranspiledText:
    part = Transpiled(lowered.program, lowered.structures, shape, itemsize)
    return TranspiledText(tuple(one.text.decode() for one in part.modules(part.kind(task), settings)), settings)


def _lowered(pop: Any, X: Any, settings: Precision, itemsize: int) -> Lowered:
    """A population's programs, for data of which variables may be known to be never negative."""
    checked = inputs.population(pop)
    if isinstance(checked, DevicePopulation):
        checked = on_host(checked)
    if not isinstance(checked, Population):
        raise DataError(f"cases takes a population, texts or a mapping, not {brief(pop)}")
    plain = checked.expanded()
    positive = None if X is None else never_negative(np.asarray(X))
    program = lower(plain, precision=settings.operators, positive=positive, dtype=np.dtype(f"f{itemsize}"))
    return Lowered(plain, program, to_compile(program, None))


def _known(lowered: Lowered, X: Any, subject: Discussion) -> dict[str, int]:
    """The symbols that a population gives values to."""
    pop, program, structures = lowered
    bytecode = accumulate(program)
    ends = np.append(bytecode.first_instruction, len(bytecode.instructions))
    sizes = {
        "n_exprs": len(pop),
        "n_columns": len(program.column_code),
        "n_slots": bytecode.n_slots,
        "n_params": pop.max_params,
        "n_instructions": int(np.diff(ends).max(initial=0)),
        "n_results": 2 * int(np.diff(bytecode.first_step).max(initial=0)),
        "powers": int(bytecode.code.heavy),
        "bulky_operators": int(bytecode.code.bulky),
        "uncommon_operators": int(any(is_rare(ops.BY_CODE[code]) for code in np.unique(program.code).tolist())),
        "exprs_per_structure": len(pop) // max(len(structures), 1),
        "shared_code": int(structures.indirect),
    }
    if X is not None:
        sizes["n_points"] = len(X)
    return {SYMBOLS[name]: int(value) for name, value in sizes.items() if SYMBOLS[name] in subject.symbols}
