"""``exprkit.cases``: which variant of a kernel runs on which card for which work, and why.

In: a population, or sizes, or nothing; the task.  Out: ``Cases``.

    >>> import exprkit as ek
    >>> found = ek.cases(ek.parse(["p1 * x1^2 + exp(-x2)", "sqrt(x1) / x2"]), "square", precision="fast")
    >>> found.at(device="sm_86", n_points=10_860).case
    <Case: 4 points a thread, 128 threads a block, columns in shared memory; 11 constraints>
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from exprkit.backends.cases import bundles, interpreter
from exprkit.backends.cases.cards import CARDS
from exprkit.backends.cases.tree import SYMBOLS, Cases, Discussion
from exprkit.backends.cpu.tiles import never_negative
from exprkit.backends.device_programs.population import DevicePopulation, on_host
from exprkit.backends.gpu.bytecode import accumulate
from exprkit.backends.interpreter import batches
from exprkit.backends.precision import Precision
from exprkit.backends.precision import precision as settings_of
from exprkit.backends.transpiler.structures import to_compile
from exprkit.errors import DataError, brief, one_of
from exprkit.evaluate import inputs
from exprkit.expressions.population import Population
from exprkit.programs.lower import lower

TASKS = ("values", "square", "absolute", "sum", "fit")
ARCHITECTURES = tuple(CARDS)


def cases(
    pop: Any = None, task: str = "square", *, precision: str | Precision = "ieee", dtype: Any = "float32",
    backend: str = "cuda", X: Any = None,
) -> Cases:  # fmt: skip
    """The case discussion of a kernel: a tree of inequalities in the symbols of the machine and the data.

    Parameters
    ----------
    pop : Population, DevicePopulation, list of texts or mapping, optional
        Whose sizes are known: expressions, columns, values put aside.  A mapping holds what ``Cases.at`` takes.
        Without one all symbols are free.
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
        ``ptx(architecture)``, ``constraints``, ``strategies``; ``.latex()``, ``.svg()``.

    Raises
    ------
    ArgumentError
        If there is no such task or backend.

    Notes
    -----
    The method is that of "Comprehensive Optimization of Parametric Kernels for Graphics Processing Units" (Chen,
    Moreno Maza, Paudel, Xie).  The same discussion chooses what runs: ``Evaluator.explain`` shows its path.
    """
    task, backend = one_of("task", task, TASKS), one_of("backend", backend, ("cuda", "ptx"))
    settings = settings_of(precision)
    itemsize = inputs.dtype_of(dtype).itemsize
    subject = subject_of(task, backend, settings, itemsize)
    if isinstance(pop, Mapping):
        return Cases(subject).at(**pop)
    return Cases(subject, {} if pop is None else _known(pop, X, subject, settings, itemsize))


def subject_of(task: str, backend: str, settings: Precision, itemsize: int) -> Discussion:
    """What is discussed for a task."""
    fast = settings.operators == "fast"
    if backend == "ptx":
        if task == "fit":
            raise DataError("backend 'ptx' makes no fits: backend='cuda' does")
        return bundles.subject(task, itemsize)
    if task == "fit":
        return batches.subject(settings, itemsize)
    return interpreter.subject(interpreter.VariantSet(itemsize, fast, wide=task == "values"), task, settings)


def _known(pop: Any, X: Any, subject: Discussion, settings: Precision, itemsize: int) -> dict[str, int]:
    """The symbols that a population gives values to."""
    checked = inputs.population(pop)
    if isinstance(checked, DevicePopulation):
        checked = on_host(checked)
    if not isinstance(checked, Population):
        raise DataError(f"cases takes a population, texts or a mapping, not {brief(pop)}")
    plain = checked.expanded()
    data = None if X is None else np.asarray(X)
    positive = None if data is None else never_negative(data)
    program = lower(plain, precision=settings.operators, positive=positive, dtype=np.dtype(f"f{itemsize}"))
    bytecode, structures = accumulate(program), to_compile(program, None)
    ends = np.append(bytecode.first_instruction, len(bytecode.instructions))
    sizes = {
        "n_exprs": len(plain), "n_columns": len(program.column_code), "n_slots": bytecode.n_slots,
        "n_params": plain.max_params, "n_instructions": int(np.diff(ends).max(initial=0)),
        "n_results": 2 * int(np.diff(bytecode.first_step).max(initial=0)),
        "exprs_per_structure": len(plain) // max(len(structures), 1), "shared_code": int(structures.indirect),
    }  # fmt: skip
    if data is not None:
        sizes["n_points"] = len(data)
    return {SYMBOLS[name]: int(value) for name, value in sizes.items() if SYMBOLS[name] in subject.symbols}
