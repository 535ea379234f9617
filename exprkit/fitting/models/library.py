"""Standard models of science by name, fitted without a start, and texts that are put together of them.

In: a name, or a text.  Out: a ``StandardModel``, an Expression over x1 with named parameters; or a Population.

    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0, 10, 60)
    >>> y = 3 * np.exp(-(((x - 4) / 0.5) ** 2) / 2) + 0.2 * x + 1
    >>> ek.models.gaussian
    <StandardModel gaussian(x1; a, c, w): a * exp(-((x1 - c) / w)^2 / 2)>
    >>> found = ek.fit("gaussian(x1; a, c, w) + line(x1; k, m)", x[:, None], y)
    >>> dict(zip(found[0].names, found.params[0].round(3).tolist()))
    {'a': 3.0, 'c': 4.0, 'w': 0.5, 'k': 0.2, 'm': 1.0}

``models.csv`` has a row for each model.  In a text a model stands with the variable that it is over and, behind a
semicolon, its parameters: names, numbers, or expressions over other parameters.  A name that stands twice is one
parameter.  Names of columns among the parameters stand between backquotes.
"""

from __future__ import annotations

import contextlib
import csv
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from exprkit.errors import DataError, ParseError, brief, checks_keywords, did_you_mean, number_of
from exprkit.evaluate import inputs, tables
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse as parse_formulas
from exprkit.expressions.population import Population
from exprkit.fitting.fit_problem import FitProblem
from exprkit.fitting.starts.given import Bounds, sides_of
from exprkit.text.names import CONSTANTS, Given, Names
from exprkit.text.tokens import PARAMETER, VARIABLE

TABLE = Path(__file__).with_name("models.csv")
TOKEN = re.compile(r"`[^`]*`|(?:[^\W\d]\w*\s*)?\(|[^\W\d]\w*|\d[\w.]*|\s+|.", re.DOTALL)  # an opening ( with its name
__all__ = ["StandardModel", "names", "parse"]


class StandardModel(Expression):
    """A standard model: an Expression over x1, with parameters that have names.

    Attributes
    ----------
    name, formula, field : str
        What it is called, its text, and where it is used, with its source.
    parameters : tuple of str
    positive : tuple of str
        Parameters that a fit keeps at 0 or above, unless it is given bounds of them.

    Examples
    --------
    >>> ek.models.line.call
    'line(x1; k, m)'
    """

    __slots__ = ("field", "formula", "name", "positive")

    def __init__(self, name: str, parameters: str, positive: str, formula: str, field: str) -> None:
        self.name, self.formula, self.field, self.positive = name, formula, field, tuple(positive.split())
        one = parse_formulas(formula, variables=1, parameters=parameters.split())[0]
        super().__init__(one.kinds, one.values, None, one.parameters)

    def guess(self, x: Any, y: Any) -> dict[str, float]:
        """Numbers from which a fit may start, by the parameters' names: what the automatic starts lead to.

        Parameters
        ----------
        x : array, (n_points,) or as for ``fit``
        y : array, (n_points,)

        Returns
        -------
        dict of float
            As ``fit`` takes it for ``init``.

        Examples
        --------
        >>> sorted(ek.models.line.guess([0.0, 1.0, 2.0], [1.0, 3.0, 5.0]))
        ['k', 'm']
        """
        X = np.asarray(x)[:, None] if np.ndim(x) == 1 else x
        bounds = {name: (0, None) for name in self.positive} or None
        if not inputs.length(X):
            raise DataError("a guess needs data: x has no values")
        found = FitProblem(X, y, accuracy="screen", dtype="float64", bounds=bounds).fit(self)
        return dict(zip(found.pop.parameter_names, found.params[0].tolist(), strict=True))

    @property
    def call(self) -> str:
        """As it stands in a text, with its own names: ``line(x1; k, m)``."""
        return f"{self.name}(x1; {', '.join(self.parameters or ())})"

    def __repr__(self) -> str:
        return f"<StandardModel {self.call}: {self.formula}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _model, (self.name,)


@functools.cache
def _rows() -> dict[str, dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return {row["name"]: row for row in csv.DictReader(file)}


@functools.cache
def _model(name: str) -> StandardModel:
    return StandardModel(**_rows()[name])


def names() -> list[str]:
    """The names of all models: ``ek.models.line`` is the one called "line".

    >>> len(names()), names()[:4]
    (41, ['line', 'parabola', 'cubic', 'exponential_decay'])
    """
    return list(_rows())


def __getattr__(name: str) -> StandardModel:
    if name in _rows():
        return _model(name)
    raise AttributeError(f"exprkit has no model {name!r}{did_you_mean(name, _rows())}")


def __dir__() -> list[str]:
    return [*__all__, *_rows()]


# ── in texts ─────────────────────────────────────────────────────────────────────────


@checks_keywords
def parse(source: Any, *, data: Any = None, variables: Given = None) -> Population:
    """Read expressions that call models.

    Parameters
    ----------
    source : str, StandardModel, or a list of them
    data, variables
        As for ``exprkit.parse``.

    Returns
    -------
    Population
        Its parameters have the names of the texts, in their order; p1, p2, … where texts differ in them.

    Raises
    ------
    ParseError
        For a model that there is not, for too many or too few parameters, and what ``exprkit.parse`` refuses.

    Examples
    --------
    >>> import exprkit as ek
    >>> pop = ek.models.parse("line(log(t); k, 0) + exponential_decay(t; a, 2 * k)", variables=["t"])
    >>> pop.texts(), pop.parameters
    (['k * log(t) + 0 + a * exp(-(2 * k) * t)'], ('k', 'a'))
    """
    return _read(inputs.as_list(source), {"data": data, "variables": variables})[0]


class _WrittenModels(NamedTuple):
    """A text with formulas in the place of models."""

    text: str
    parameters: list[str]
    positive: set[str]  # of them


def read(source: Any, X: Any) -> tuple[Any, list[set[str]]]:
    """(population, names of its expressions' positive parameters) of what calls models; else as it is, and nothing."""
    items = inputs.as_list(source)
    every = items if isinstance(items, list | tuple) else [items]
    if not any(isinstance(item, StandardModel) or (isinstance(item, str) and ";" in item) for item in every):
        with _explained(False):
            return inputs.population(source, X), []
    if not tables.is_table(X):
        return _read(items, {})
    return _read(items, {"data": X}, tables.names_in(X))


def bounds_of(bounds: Bounds, pop: Population, positive: list[set[str]]) -> Bounds:
    """Bounds, and 0 as the lower one of the models' positive parameters that have none."""
    if not any(positive):
        return bounds
    words = [name.partition("[")[0] for name in pop.parameter_names[: pop.max_params]]  # p1[a] of a group
    own = np.where([[word in each for word in words] for each in positive], 0.0, -np.inf)
    lower, upper = sides_of(bounds, pop)
    return (own if lower is None else np.where(np.isneginf(lower), own, lower)), upper


def _read(items: Any, given: dict[str, Any], columns: list[str] | None = None) -> tuple[Population, list[set[str]]]:
    alone = isinstance(items, str | StandardModel)
    texts = [item.call if isinstance(item, StandardModel) else item for item in ([items] if alone else items)]
    if bad := [text for text in texts if not isinstance(text, str)]:
        raise ParseError(f"beside models there may be texts and models, not {brief(bad[0])}")
    written = [_written(text, {}) for text in texts]
    longest = max((one.parameters for one in written), key=len, default=[])
    if any(one.parameters != longest[: len(one.parameters)] for one in written):
        written = [_written(text, {word: f"p{i}" for i, word in enumerate(one.parameters, 1)})
                   for text, one in zip(texts, written, strict=True)]  # fmt: skip
        longest = max((one.parameters for one in written), key=len)
    given = given | {"parameters": longest}
    formulas = written[0].text if alone else [one.text for one in written]
    with _explained(True):
        if columns is None:
            pop = parse_formulas(formulas, **given)
        else:
            pop = inputs.named_population(formulas, columns, **given)
    return pop, [one.positive for one in written]


@contextlib.contextmanager
def _explained(beside_models: bool) -> Iterator[None]:
    """ParseErrors that name a model say how it is called; beside models, others how a parameter of none is named."""
    try:
        yield
    except ParseError as error:
        unknown = re.search(r"unknown (function|name) '(\w+)'", str(error))
        how = ""
        if unknown and unknown[2] in _rows():
            how = f"a model has its parameters behind a semicolon, {_model(unknown[2]).call}"
        elif unknown and beside_models and unknown[1] == "name" and "did you mean" not in str(error):
            how = "a parameter of no model is p1, p2, …"
        raise ParseError(f"{how}; {error}", error.indices) if how else error from None


def _written(text: str, renamed: dict[str, str]) -> _WrittenModels:
    """A text with formulas for the models that it calls, and with other names for its parameters."""
    levels, parameters, positive = [[""]], dict[str, None](), set[str]()  # what stands in each ( that is open
    for token in TOKEN.findall(text):
        if token.endswith("("):
            levels.append([token])
            continue
        word = token.isidentifier() and token not in CONSTANTS and not Names.numbered(token, VARIABLE)
        if word and (Names.numbered(token, PARAMETER) or any(";" in level for level in levels)):
            token = renamed.get(token, token)
            parameters[token] = None
        levels[-1].append(token)
        if token == ")" and len(levels) > 1:
            level = levels.pop()
            levels[-1].append(_called(level, positive) if ";" in level else "".join(level))
    if len(levels) > 1:
        raise ParseError(f"the ( of {''.join(levels[-1]).strip()!r} is never closed")
    return _WrittenModels("".join(map("".join, levels)), list(parameters), positive & {*parameters})


def _called(tokens: list[str], positive: set[str]) -> str:
    """The formula of a call ``model(x1; a, b)``, given as tokens, in which an inner call is one."""
    name, rest = tokens[0][:-1].strip(), tokens[1:-1]
    semicolon, arguments = rest.index(";"), [""]
    for token in rest[semicolon + 1 :]:
        arguments = [*arguments, ""] if token == "," else [*arguments[:-1], arguments[-1] + token]
    if name not in _rows():
        missing = f"there is no model {name!r}{did_you_mean(name, _rows())}"
        raise ParseError(missing if name else "';' stands in the call of a model, as in line(x1; k, m)")
    model, variable = _model(name), "".join(rest[:semicolon]).strip()
    if "=" in rest:
        raise ParseError(f"parameters of {name!r} go by place, {model.call}; fit takes init= and bounds= by name")
    own, arguments = model.parameters or (), [argument.strip() for argument in arguments]
    if not variable or not all(arguments) or len(arguments) != len(own):
        n_given = sum(map(bool, arguments))
        raise ParseError(f"{name!r} takes a variable and {number_of(len(own), 'parameter')}, {model.call}; "
                         f"{'the variable is missing' if not variable else f'{n_given} given'}")  # fmt: skip
    positive |= {argument for word, argument in zip(own, arguments, strict=True) if word in model.positive}
    put = dict(zip(("x1", *own), (variable, *arguments), strict=True))
    put = {word: what if re.fullmatch(r"\w+", what) else f"({what})" for word, what in put.items()}
    return f"({''.join(put.get(token, token) for token in TOKEN.findall(model.formula))})"
