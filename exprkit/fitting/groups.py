"""Grouped parameters: ``p1[site] * x1 + p2`` has one p1 per category of the column ``site``.

In: a population, a table and which parameter goes by which column.  Out: a population that has, in the place of p1, the
sum of
``site=a`` * ``p1[a]`` over all categories; the variable ``site=a`` is 1 where the table's column ``site`` is a, which
``evaluate.tables`` makes wherever the expressions meet a table.

    >>> import exprkit as ek
    >>> table = {"x": [1, 2, 1, 2], "site": ["a", "a", "b", "b"]}
    >>> found = ek.fit("p1[site] * x + p2", table, [2, 3, 4, 7], dtype="float64")
    >>> found.pop.parameters, found.params.round(3)
    (('p1[a]', 'p1[b]', 'p2'), array([[1., 3., 1.]]))
    >>> found[0]({"x": [10], "site": ["b"]}).round(3)
    array([31.])
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, DataError, brief
from exprkit.evaluate import inputs, tables
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.fitting.starts.given import place_of
from exprkit.operators import ops
from exprkit.text import printer
from exprkit.text.tokens import OPERATOR, PARAMETER, VARIABLE

MOST_CATEGORIES = 100  # of a column: each adds four tokens and a parameter
GROUPED = re.compile(r"\b([^\W\d]\w*)\[\s*(?:(\w+)|`([^`]+)`)\s*\]")  # p1[site], p1[`test site`]

Groups = Mapping[str, str]  # name of a parameter -> name of a column
Tokens = tuple[np.ndarray, np.ndarray]  # kinds, values


def in_texts(pop: Any, groups: Groups | None) -> tuple[Any, Groups]:
    """Texts without ``[site]``, and the groups with those that they name.

    Raises ArgumentError where a parameter goes by a column in one text and not in another.
    """
    known, pop = dict(groups or {}), inputs.as_list(pop)
    texts = [pop] if isinstance(pop, str) else pop
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        return pop, known
    for parameter, word, quoted in (match for text in texts for match in GROUPED.findall(text)):
        if known.setdefault(parameter, word or quoted) != (word or quoted):
            other = word or quoted
            raise ArgumentError(f"{parameter} goes by {known[parameter]!r} and by {other!r}: use two parameters")
    if known:
        for text in texts:
            plain = GROUPED.sub("", text)
            if both := [name for name in known if re.search(rf"\b{name}\b", plain) and name not in (groups or {})]:
                raise ArgumentError(f"{both[0]} stands with a column and without in {brief(text)}: use two parameters")
    plain_texts = [GROUPED.sub(r"\1", text) for text in texts]
    return (plain_texts[0] if isinstance(pop, str) else plain_texts), known


def spread(pop: Population, X: Any, groups: Groups) -> Population:
    """The population with a parameter for each category.

    Raises ArgumentError, DataError for a parameter or column that there is not, and for too many categories.
    """
    if not tables.is_table(X):
        raise ArgumentError("groups= takes a table X, whose columns name the categories")
    parameters = pop.parameter_names
    for name in groups:
        place_of(name, parameters, "groups")
    variables = list(pop.variables or tables.names_of_variables(X, pop, set(groups.values())))
    categories = {column: _categories(X, column) for column in dict.fromkeys(groups.values())}
    places = {}
    for column, names in categories.items():
        places[column] = len(variables) + np.arange(len(names))
        variables += [f"{column}{tables.IS}{name}" for name in names]
    own, first = list[str](), np.zeros(len(parameters), np.int64)
    for index, name in enumerate(parameters):
        first[index] = len(own)
        own += [f"{name}[{category}]" for category in categories[groups[name]]] if name in groups else [name]
    numbered = {parameters.index(name): column for name, column in groups.items()}
    pieces = {index: _sum(places[column], first[index]) for index, column in numbered.items()}
    return put(pop, pieces, first, own, variables)


def bounds_of(bounds: Any, pop: Population, groups: Groups) -> Any:
    """Bounds or priors by parameters' names, where a name stands for its parameters of all categories."""
    if not isinstance(bounds, Mapping):
        return bounds
    own = pop.parameters or ()
    every = {name: [one for one in own if one.startswith(f"{name}[")] for name in groups}
    return {one: pair for name, pair in bounds.items() for one in every.get(name, [name])}


def _categories(X: Any, column: str) -> list[str]:
    words, missing = tables.words_of(X, column)
    if missing.any():
        lacks = f"lacks {missing.sum():,} of {len(words):,} categories"
        raise DataError(f'column {column!r} {lacks}: drop or fill those rows, or say missing="drop"')
    names = sorted(set(words))
    if len(names) == len(words) > 1 and tables.holds_fractions(X, column):
        raise DataError(f"column {column!r} holds {len(names):,} different numbers at as many points: no categories")
    if len(names) > MOST_CATEGORIES:
        raise DataError(f"column {column!r} has {len(names):,} categories; a parameter can have {MOST_CATEGORIES}")
    return names


def put(
    pop: Population, pieces: Mapping[int, Tokens], new: np.ndarray, names: list[str], variables: Any = None
) -> Population:
    """The population with the tokens of ``pieces`` for these parameters, and for the others new numbers and names."""
    parameter = pop.kinds == PARAMETER
    values, lengths = pop.values.copy(), np.ones(len(pop.values), np.int64)
    values[parameter] = new[pop.values[parameter].astype(np.int64)]
    for index, piece in pieces.items():
        lengths[parameter & (pop.values == index)] = len(piece[0])
    ends = np.concatenate([[0], np.cumsum(lengths)])
    kinds, values = np.repeat(pop.kinds, lengths), np.repeat(values, lengths)
    for index, piece in pieces.items():
        for begin in ends[:-1][parameter & (pop.values == index)].tolist():
            kinds[begin : begin + len(piece[0])], values[begin : begin + len(piece[0])] = piece
    variables = pop.variables if variables is None else variables
    return Population(kinds, values, ends[pop.offsets], variables=variables, parameters=names, valid=pop.valid)


def _sum(columns: np.ndarray, start: int) -> Tokens:
    """column * parameter + column * parameter + … in postfix."""
    kinds, values = list[int](), list[int]()
    for k, column in enumerate(columns.tolist()):
        kinds += [VARIABLE, PARAMETER, OPERATOR] + [OPERATOR] * (k > 0)
        values += [column, start + k, ops.MUL] + [ops.ADD] * (k > 0)
    return np.array(kinds, np.uint8), np.array(values, np.uint64)


# ── in LaTeX ─────────────────────────────────────────────────────────────────────────


def by_group(expression: Expression) -> tuple[Expression, dict[str, dict[str, int]]]:
    """The expression with a variable ``p1[site]`` for each sum over categories, and their parameters' numbers.

    These by that name, then by category: {"p1[site]": {"a": 0, "b": 1}}.
    """
    tokens, names = list(zip(expression.kinds.tolist(), expression.values.tolist(), strict=True)), expression.parameters
    variables, parameters = list(expression.variables or ()), list(names or ())
    groups, written, t = dict[str, dict[str, int]](), list[tuple[int, int]](), 0
    while t < len(tokens):
        term = _grouped_term(tokens[t : t + 3], variables, parameters)
        if term is None:
            written.append(tokens[t])
            t += 1
            continue
        word, group = term[0], dict[str, int]()
        while term is not None and term[0] == word:
            group[term[1]] = term[2]
            t += 3 if len(group) == 1 else 4
            is_sum = tokens[t + 3 : t + 4] == [(OPERATOR, ops.ADD)]
            term = _grouped_term(tokens[t : t + 3], variables, parameters) if is_sum else None
        if word not in groups:
            groups[word] = group
        written.append((VARIABLE, len(variables) + list(groups).index(word)))
    if not groups:
        return expression, groups
    kinds, values = (np.array(column, dtype) for column, dtype in zip(zip(*written, strict=True), "BQ", strict=True))
    kinds.flags.writeable = values.flags.writeable = False
    return Expression(kinds, values, (*variables, *groups), names), groups


def _grouped_term(
    tokens: list[tuple[int, int]], variables: list[str], parameters: list[str]
) -> tuple[str, str, int] | None:
    """("p1[site]", "a", number of the parameter) of ``site=a`` * ``p1[a]``; None of anything else."""
    if len(tokens) < 3 or [kind for kind, _ in tokens[:2]] != [VARIABLE, PARAMETER] or tokens[2] != (OPERATOR, ops.MUL):
        return None
    (_, variable), (_, parameter) = tokens[:2]
    if variable >= len(variables) or parameter >= len(parameters):
        return None
    column, is_indicator, category = variables[variable].partition(tables.IS)
    name = parameters[parameter].removesuffix(f"[{category}]")
    if not is_indicator or name == parameters[parameter]:
        return None
    return f"{name}[{column}]", category, parameter


def tables_of(expression: Expression, numbers: Sequence[str]) -> list[str]:
    """LaTeX tables, one for each column that parameters go by: a row for every category, in it ``numbers``."""
    groups, texts = by_group(expression)[1], list[str]()
    for column in dict.fromkeys(word[word.index("[") + 1 : -1] for word in groups):
        own = {word: group for word, group in groups.items() if word.endswith(f"[{column}]")}
        rows = [
            [printer.text_latex(category), *(f"${numbers[group[category]]}$" for group in own.values())]
            for category in dict.fromkeys(itertools.chain(*own.values()))
        ]
        head = [printer.text_latex(column), *(f"${printer.word_latex(word)}$" for word in own)]
        texts.append(printer.booktabs("l" + "r" * len(own), head, rows))
    return texts
