"""``exprkit.cases``: which kernel variant runs on which GPU for which workload, and why.

In: a population, or sizes, or nothing; the task.  Out: ``Cases``.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.cases import bundles, interpreter
from exprkit.backends.cases.tree import CARDS, Cases, Discussion, KernelText
from exprkit.backends.cpu.tiles import never_negative
from exprkit.backends.device_programs.population import on_host
from exprkit.backends.gpu.bytecode import accumulate
from exprkit.backends.interpreter import batches
from exprkit.backends.interpreter.dual_opcodes import is_rare
from exprkit.backends.precision import Precision
from exprkit.backends.precision import precision as settings_of
from exprkit.backends.transpiler.program import Transpiled
from exprkit.backends.transpiler.structures import Structures, to_compile
from exprkit.errors import DataError, checks_keywords, one_of
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


def subject_of(
    task: str, backend: str, settings: Precision, itemsize: int, lowered: Lowered | None = None
) -> Discussion:
    """The discussion for a task; with ``"ptx"`` a leaf's code is that of the population, if there is one."""
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
) -> KernelText:
    """PTX of all modules, the same text for all architectures."""
    part = Transpiled(lowered.program, lowered.structures, shape, itemsize)
    source = b"\n".join(part.modules(part.kind(task), settings)).decode()
    return KernelText(source, {}, lambda architecture: source)


def _lowered(pop: Any, X: Any, settings: Precision, itemsize: int) -> Lowered:
    """A population's programs, for data of which variables may be known to be never negative."""
    plain = on_host(inputs.population(pop)).expanded()
    positive = None if X is None else never_negative(np.asarray(X))
    program = lower(plain, precision=settings.operators, positive=positive, dtype=np.dtype(f"f{itemsize}"))
    return Lowered(plain, program, to_compile(program, None))


def _known(lowered: Lowered, X: Any, subject: Discussion) -> dict[str, int]:
    """The symbols that a population gives values to."""
    pop, program, structures = lowered
    bytecode = accumulate(program)
    ends = np.append(bytecode.first_instruction, len(bytecode.instructions))
    values = {
        "E": len(pop),
        "c": len(program.column_code),
        "s": bytecode.n_slots,
        "m": pop.max_params,
        "i": int(np.diff(ends).max(initial=0)),
        "r": 2 * int(np.diff(bytecode.first_step).max(initial=0)),
        "p": int(bytecode.code.heavy),
        "b": int(bytecode.code.bulky),
        "u": int(any(is_rare(ops.BY_CODE[code]) for code in np.unique(program.code).tolist())),
        "g": len(pop) // max(len(structures), 1),
        "d": int(structures.indirect),
        **({} if X is None else {"N": len(X)}),
    }
    return {name: int(value) for name, value in values.items() if name in subject.symbols}
