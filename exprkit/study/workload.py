"""Workloads of the benchmarks: expressions and data by name, in any number, and the backends to measure on.

In: the notebooks' parameters ``expressions``, ``dataset``, ``backends``, ...  Out: what ``bench`` measures.

    >>> from exprkit.study import workload
    >>> len(workload.expressions("random", 5, n_tokens=9)), len(workload.dataset("rough_pipe", 10_860))
    (5, 10860)
"""

from __future__ import annotations

import os
import reprlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from exprkit import data
from exprkit.backends import NAMES, status
from exprkit.errors import ArgumentError
from exprkit.expressions import generate
from exprkit.expressions.parser import parse

SOURCES = {  # name: what it is called in figures and tables
    "exhaustive": "all different",
    "esr": "247 of the thesis, repeated",
    "random": "random trees",
    "large": "large random trees",
}
TOKENS = {"random": (10, 50), "large": (50, 500)}  # of random expressions, where no number is given


def backends_of(names: Sequence[str] = ()) -> list[str]:
    """The backends that are named; without a name all that can run on this machine, but the slow definition.

    >>> backends_of(["numpy"]), "cpu" in backends_of()
    (['numpy'], True)
    """
    return list(names) or [name for name in NAMES if name != "numpy" and status(name).available]


def expressions(
    source: str, n: int, *, n_vars: int = 2, n_tokens: int = 0, n_params: int = 2, seed: int = 0
) -> list[str]:
    """``n`` expressions as texts.

    ``source`` is "exhaustive" (as many as needed of all expressions up to a size, evenly spread, no two alike), "esr"
    (the thesis's own 247, over and over), "random" (trees as in genetic programming, each with ``n_tokens``, 0: from
    10 to 50, and ``n_params``), "large" (the same, 0: from 50 to 500), or the path of a text file with an
    expression per line, repeated or cut.

    Raises ArgumentError if ``source`` is none of these, or ``n`` less than 1; ParseError for a file with a line that is
    no expression.
    """
    if n < 1:
        raise ArgumentError(f"n_exprs must be 1 or more, not {n!r}")
    if source == "esr":
        return _cycle(data.esr_sample(), n)
    if source in TOKENS:
        size = (n_tokens, n_tokens) if n_tokens else TOKENS[source]
        return generate.random(n, n_tokens=size, n_vars=n_vars, n_params=n_params, seed=seed).texts()
    if source == "exhaustive":
        nodes = next(size for size in range(1, 50) if generate.count_exhaustive(size, n_vars=n_vars) >= n)
        everything = generate.exhaustive(nodes, n_vars=n_vars, spelled_out=True)
        return everything[np.arange(n) * len(everything) // n].texts()
    if os.path.isfile(source):  # False also where no file can be named so
        return _cycle(_lines(Path(source)), n)
    raise ArgumentError(f"expressions={reprlib.repr(source)} is neither esr, exhaustive, random or large nor a file")


def dataset(name: str, n_points: int, *, n_vars: int = 2, seed: int = 0) -> data.Dataset:
    """A data set by name ("rough_pipe", "nikuradse", "uniform") or of a CSV file, repeated or cut to ``n_points``.

    Raises ArgumentError if there is none of that name, or it has another number of variables; DataError for a file that
    is no table, and where data can't be downloaded.
    """
    if name == "uniform":
        return data.uniform(n_points, n_vars, seed)
    if name == "rough_pipe":
        points = data.rough_pipe(seed=seed)
    elif name == "nikuradse":
        points = data.nikuradse()
    elif os.path.isfile(name):
        points = data.from_table(name)
    else:
        raise ArgumentError(f"there is no dataset {name!r}; there are rough_pipe, nikuradse, uniform, or a CSV file")
    if n_vars != points.X.shape[1]:
        raise ArgumentError(f"{name} has {points.X.shape[1]} variables, not {n_vars}; dataset='uniform' has any number")
    return points.repeat_to(n_points)


def _lines(path: Path) -> list[str]:
    """The expressions of a file, as ``parse`` reads one."""
    try:
        parse(path)  # an error names the line of the file
        lines = map(str.strip, path.read_text(encoding="utf-8").splitlines())
    except (OSError, UnicodeDecodeError) as error:
        raise ArgumentError(f"the expressions in {path} cannot be read: {error}") from None
    return [line for line in lines if line and not line.startswith("#")]


def _cycle(texts: list[str], n: int) -> list[str]:
    if not texts:
        raise ArgumentError("there are no expressions")
    return [texts[i % len(texts)] for i in range(n)]
