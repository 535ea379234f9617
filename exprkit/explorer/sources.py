"""Sources of the explorer's data and expressions, and the Python code that makes them."""

from __future__ import annotations

import functools
import io
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import exprkit as ek
from exprkit.errors import ArgumentError, DataError, ParseError
from exprkit.text.names import in_text
from exprkit.text.tokens import VARIABLE

SAMPLE, EXHAUSTIVE, RANDOM = "the thesis's sample", "the smallest ones", "random ones"
MOST_NAMES = 30  # of variables that are all named
DROP = {"unusable": "drop", "missing": "drop", "dates": "elapsed"}  # as from_table takes it,
DROPPED = "".join(f", {name}={value!r}" for name, value in DROP.items())  # and as code


@dataclass(frozen=True)
class Points:
    """A data set, the code that makes it, and whether the variables have its columns' names."""

    dataset: ek.data.Dataset
    code: str = "points = ek.data.rough_pipe()"
    named: bool = False

    @functools.cached_property
    def variables(self) -> tuple[str, ...] | None:
        """Names for ``parse``, with "_" behind those that mean something else; None for x1, x2, …"""
        return _usable(self.dataset.variables) if self.named else None

    @property
    def names(self) -> tuple[str, ...]:
        """The variables' names in expressions."""
        return self.variables or tuple(f"x{i + 1}" for i in range(self.dataset.X.shape[1]))

    @property
    def columns_page(self) -> str:
        """The variables, with their columns, in words."""
        pairs = zip(map(in_text, self.names), self.dataset.variables, strict=True)
        words = [name if name.strip("`") == column else f"{name} = {column}" for name, column in pairs]
        variables = f"variables: {', '.join(words)}"
        if len(words) > MOST_NAMES:
            variables = f"{len(words):,} variables: {words[0]} … {words[-1]}"
        return "\n".join([variables, *(f"left out: {what}" for what in self.dataset.left_out)])

    @property
    def names_code(self) -> str:
        """The end of ``parse``'s call that names the variables."""
        return f", variables={list(self.variables)!r}" if self.variables else ""


def points_of(table: Any, target: str | None, columns: list[str] | None = None) -> Points:
    """The data that ``explore`` is given; of a table with these columns alone."""
    if table is None:
        if target is not None:
            raise ArgumentError("target names a column of table, and no table was given")
        return Points(ek.data.rough_pipe())
    if isinstance(table, ek.data.Dataset):
        return Points(table, "points = ...  # the Dataset that was given to ek.explore")
    try:
        dataset, option = ek.data.from_table(table, target, columns=columns), ""
    except DataError:  # perhaps not of the columns and rows that are wanted
        dataset, option = ek.data.from_table(table, target, **DROP, columns=columns), DROPPED
    code = repr(table) if isinstance(table, str) else "table"
    option = _choice_code(target, columns) + option
    return Points(dataset, f"points = ek.data.from_table({code}{option})", named=True)


def arguments(values: Mapping[str, Any]) -> str:
    """The end of a call's text: keyword arguments behind others."""
    return "".join(f", {name}={value!r}" for name, value in values.items())


def _choice_code(target: str | None, columns: list[str] | None) -> str:
    """Target and columns as ``from_table``'s arguments."""
    chosen = {"target": target, "columns": columns}
    return arguments({name: value for name, value in chosen.items() if value is not None})


def uploaded(name: str, content: bytes, target: str | None, columns: list[str] | None = None) -> Points:
    """The data of a file that was sent by the browser."""
    file = io.BytesIO(content)
    file.name = name  # for messages
    dataset = ek.data.from_table(file, target, **DROP, columns=columns)
    option = _choice_code(target, columns)
    code = f"points = ek.data.from_table({name!r}{option}{DROPPED})"
    return Points(dataset, code, named=True)


def operators_code(pop: ek.Population) -> str:
    """The lines that define a population's operators of the user's own; of a function its name alone is known."""
    texts = [text for _, text, _, _ in pop.definitions()]
    return "".join(f"ek.operator({text!r}{'' if '=' in text else ', numpy=...'})\n" for text in texts)


def _usable(columns: tuple[str, ...]) -> tuple[str, ...]:
    """The columns' names, with "_" behind those of constants and parameters."""
    names: list[str] = []
    for place, column in enumerate(columns, 1):
        own = column if _can_be_variable(column + "_") else f"x{place}"  # that no text can name
        if own != column or not _can_be_variable(own):
            while own in columns or own in names or not _can_be_variable(own):
                own += "_"
        names.append(own)
    return tuple(names)


def _can_be_variable(name: str) -> bool:
    try:
        ek.parse([], variables=[name])
    except ParseError:
        return False
    return True


def renamed(pop: ek.Population, points: Points) -> ek.Population:
    """The population with the data's names for its variables, each in its place.

    Raises
    ------
    DataError
        If it uses more variables than the data has.
    """
    used = int((pop.values[pop.kinds == VARIABLE] + np.uint64(1)).max(initial=0))
    if used > points.dataset.X.shape[1]:
        have = ", ".join(points.dataset.variables)
        raise DataError(f"{used} variables are used, the data has {have}")
    return ek.Population(pop.kinds, pop.values, pop.offsets, variables=points.variables, parameters=pop.parameters)


def generated(source: str, n: int, n_vars: int, progress: Any = False) -> tuple[ek.Population, str]:
    """A population and its code: ``SAMPLE``, ``n`` of ``RANDOM``, or the ``n`` smallest ones (``EXHAUSTIVE``)."""
    if source == SAMPLE:
        texts, code = ek.data.esr_sample(), "pop = ek.parse(ek.data.esr_sample())"
        if n_vars == 1:  # of the thesis's two
            texts = [text for text in texts if "x2" not in text]
            code = "pop = ek.parse([text for text in ek.data.esr_sample() if 'x2' not in text])"
        return ek.parse(texts), code
    if source == RANDOM:
        pop = ek.generate.random(n, n_vars=n_vars, progress=progress)
        return pop, f"pop = ek.generate.random({n}, n_vars={n_vars})"
    nodes = next(size for size in range(1, 50) if ek.generate.count_exhaustive(size, n_vars=n_vars) >= n)
    code = f"pop = ek.generate.exhaustive({nodes}, n_vars={n_vars}, limit={n})"
    return ek.generate.exhaustive(nodes, n_vars=n_vars, limit=n, progress=progress), code
