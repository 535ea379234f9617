"""``LawSkeleton``: the known part of a law, in which unknown functions of columns and numbers stand.

In: a template's text and the names of columns.  Out: a tree over columns and unknowns, with its derivatives.

    >>> from exprkit.regression.skeletons.skeleton import LawSkeleton
    >>> skeleton = LawSkeleton.of("a * f(t) + exp(g(t, x2) - 1)", ["t", "x2"])
    >>> skeleton.functions, skeleton.numbers, [str(call.text) for call in skeleton.calls]
    ({'f': 1, 'g': 2}, {'a': False}, ['f(t)', 'g(t, x2)'])
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exprkit.errors import ArgumentError, ParseError, brief, did_you_mean, number_of
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.operators import defined
from exprkit.regression.formulas.trees import Tree, replaced_variables, tree_of
from exprkit.regression.formulas.values import values_of
from exprkit.text.tokens import PARAMETER, VARIABLE

TOKEN = re.compile(r"`[^`]*`|[^\W\d]\w*\s*[(\[]?|\d[\w.]*|\s+|.", re.DOTALL)  # an opening bracket with its name
EXAMPLE = '"a * f(x1) + g(x2)"'


class FunctionCall(NamedTuple):
    """An unknown function with its arguments, which are formulas of columns."""

    text: str
    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True)
class LawSkeleton:
    """The known part of a law.

    ``formula`` is over the columns, then the values of ``calls``, then ``numbers``, of which each goes by category or
    not.  ``functions`` has the number of arguments of each unknown function.
    """

    text: str
    columns: tuple[str, ...]
    functions: dict[str, int]
    calls: tuple[FunctionCall, ...]
    numbers: dict[str, bool]
    formula: Expression

    @classmethod
    def of(cls, text: str, columns: Sequence[str], group: str | None = None) -> LawSkeleton:
        """A template, read.

        Parameters
        ----------
        text : str
        columns : list of str
            The names of the columns, as formulas have them.
        group : str, optional
            The column of categories, by which numbers go that are written ``a[site]``.

        Raises
        ------
        ArgumentError
            Where it has no unknown function, an unknown function has other unknown ones in it, or several numbers of
            arguments, or where a name is none of a column.
        ParseError
            For what is no formula.
        """
        if not isinstance(text, str):
            raise ArgumentError(f"template must be a text, as {EXAMPLE}, not {brief(text)}")
        calls: dict[str, FunctionCall] = {}
        rest = "".join(_without_calls(text, columns, calls))
        functions: dict[str, int] = {}
        for call in calls.values():
            known = functions.setdefault(call.function, len(call.arguments))
            if known != len(call.arguments):
                here = number_of(len(call.arguments), "argument")
                raise ArgumentError(f"template: {call.function} has {number_of(known, 'argument')} and {here}")
        if not functions:
            raise ArgumentError(
                f"template: {brief(text)} has no unknown function, as f in {EXAMPLE}: ek.fit fits its numbers; names "
                "of operators are no unknown functions"
            )
        rest, numbers = _numbers(rest, columns, functions, group)
        named = _parsed(rest, columns, [*calls, *numbers])
        is_unknown = named.kinds == PARAMETER
        values = np.where(is_unknown, named.values + np.uint64(len(columns)), named.values)
        formula = Expression(np.where(is_unknown, VARIABLE, named.kinds), values)
        return cls(text, tuple(columns), functions, tuple(calls.values()), numbers, formula)

    @functools.cached_property
    def _with_slopes(self) -> list[Expression]:
        """The formula, and its derivatives by the values of calls and by numbers."""
        pop = Population.of([self.formula])
        unknowns = range(len(self.columns), len(self.columns) + len(self.calls) + len(self.numbers))
        return [self.formula, *(pop.diff(f"x{k + 1}")[0] for k in unknowns)]

    def values(self, X: np.ndarray, unknowns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values, (n_rows,), and derivatives by the unknowns, (n_unknowns, n_rows).

        ``unknowns`` are the values of calls and numbers at every row, (n_unknowns, n_rows).
        """
        columns = X[:, : len(self.columns)]
        values = values_of(self._with_slopes, np.column_stack([columns, unknowns.T]))
        return values[0], values[1:]

    def arguments(self, k: int, X: np.ndarray) -> np.ndarray:
        """The arguments of call k, (n_rows, n_arguments)."""
        return np.ascontiguousarray(values_of(list(self.calls[k].arguments), X[:, : len(self.columns)]).T)

    def calls_of(self, function: str) -> list[int]:
        """The numbers of a function's calls."""
        return [k for k, call in enumerate(self.calls) if call.function == function]

    def composed(self, functions: Sequence[Tree], numbers: Sequence[Tree]) -> Tree:
        """The whole formula, over the columns, of a tree for each function, over its arguments, and for each number."""
        columns = [(VARIABLE, k) for k in range(len(self.columns))]
        of_name = dict(zip(self.functions, functions, strict=True))
        own = [
            replaced_variables(of_name[call.function], [tree_of(argument) for argument in call.arguments])
            for call in self.calls
        ]
        return replaced_variables(tree_of(self.formula), [*columns, *own, *numbers])


def _parsed(text: str, columns: Sequence[str], unknowns: list[str]) -> Expression:
    try:
        return parse(text, variables=list(columns), parameters=unknowns)[0]
    except ParseError as error:
        raise ParseError(f"template: {error}") from None


def _without_calls(text: str, columns: Sequence[str], calls: dict[str, FunctionCall]) -> Iterator[str]:
    """The pieces of a text with a name between backquotes for each call of an unknown function, put into ``calls``."""
    tokens, t = TOKEN.findall(text), 0
    while t < len(tokens):
        name = tokens[t][:-1].strip()
        if not re.fullmatch(r"[^\W\d]\w*\s*\(", tokens[t]) or defined.spelled(name) is not None:
            yield tokens[t]
            t += 1
            continue
        arguments, depth, t = [""], 1, t + 1
        while t < len(tokens) and depth:
            token = tokens[t]
            depth += token.endswith("(") - (token == ")")
            if token.endswith("(") and len(token) > 1 and defined.spelled(token[:-1].strip()) is None:
                raise ArgumentError(
                    f"template: {token[:-1].strip()} stands inside of {name}, whose arguments must be formulas of "
                    "columns: one of the two unknown functions is enough"
                )
            if token == "," and depth == 1:
                arguments.append("")
            elif depth:
                arguments[-1] += token
            t += 1
        if depth:
            raise ParseError(f"template: the bracket behind {name} is not closed in {brief(text)}")
        if not all(argument.strip() for argument in arguments):
            raise ArgumentError(f"template: {name} lacks an argument: write which columns it is of, as {name}(x1, x2)")
        _check_columns(name, arguments, columns)
        formulas = [_parsed(argument, columns, [f"{name}()"]) for argument in arguments]
        word = f"{name}({', '.join(map(str, formulas))})".replace("`", "'")
        calls.setdefault(word, FunctionCall(word, name, tuple(Expression(one.kinds, one.values) for one in formulas)))
        yield f"`{word}`"


def _check_columns(name: str, arguments: Sequence[str], columns: Sequence[str]) -> None:
    """An error for a name among the arguments of a function that is none of a column."""
    for word in (token for text in arguments for token in TOKEN.findall(text) if re.match(r"[^\W\d]", token)):
        if not word.endswith("(") and word.strip() not in columns and not _is_constant(word.strip()):
            hint = did_you_mean(word.strip(), columns) or f"; columns are {', '.join(columns)}"
            raise ArgumentError(f"template: {name} is of {word.strip()!r}, which is no column{hint}")


def _is_constant(word: str) -> bool:
    return not parse([word], variables=[], parameters=[], errors="mask").errors


def _numbers(
    text: str, columns: Sequence[str], functions: Sequence[str] | dict[str, int], group: str | None
) -> tuple[str, dict[str, bool]]:
    """The text without ``[site]``, and its names that are none of columns; whether each goes by category."""
    numbers: dict[str, bool] = {}
    pieces, tokens, t = list[str](), TOKEN.findall(text), 0
    while t < len(tokens):
        token, t = tokens[t], t + 1
        word, by_group = token.rstrip("[").strip(), token.endswith("[") and len(token) > 1
        pieces.append(word if by_group else token)
        if by_group:
            column = "".join(tokens[t : (t := tokens.index("]", t) + 1 if "]" in tokens[t:] else len(tokens))])[:-1]
            if group is None or column.strip(" `") != group:
                raise ArgumentError(f"template: {word}[{column}] needs groups={column.strip(' `')!r}, a column of X")
        if not re.match(r"[^\W\d]", token) or token.endswith("(") or word in columns or _is_constant(word):
            continue
        if defined.spelled(word) is not None:
            raise ArgumentError(f"template: {word} is an operator, and stands without operands in {brief(text)}")
        if word in functions:
            raise ArgumentError(f"template: {word} stands as a function and as a number in {brief(text)}")
        if re.fullmatch(r"x\d+", word):
            raise ArgumentError(f"template: there is no column {word!r}; columns are {', '.join(columns)}")
        if numbers.setdefault(word, by_group) != by_group:
            raise ArgumentError(f"template: {word} stands with a column and without: use two numbers")
    return "".join(pieces), numbers
