"""Symbolic derivatives: the derivative of a population by one variable or parameter, as a population.

In: a population.  Out: the tokens of its derivatives, by the rules of the operator table.
``Population.diff`` makes a population of them.

    >>> import exprkit as ek
    >>> ek.parse(["p1 * x1^2 + exp(-x2)", "sin(x1) / x2"]).diff("x1").texts()
    ['p1 * (2 * x1)', '1 / x2 * cos(x1)']
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NamedTuple, Protocol

import numpy as np

from exprkit.errors import ArgumentError, nearest, number_of, shortened
from exprkit.expressions.dag import (
    FULL,
    NO_RULE,
    clear,
    derivative_rules,
    make_graph,
    number,
    read,
    start_derivatives,
    tangent,
)
from exprkit.expressions.rewrite import UNIFORM_NODE, table_rules
from exprkit.operators import defined, ops
from exprkit.runtime.bags import empty
from exprkit.runtime.jit import compiled
from exprkit.text.names import word_of
from exprkit.text.tokens import CONSTANT, MAX_TOKENS, OPERATOR, PARAMETER, VARIABLE, NamedTokens, TokenArrays

if TYPE_CHECKING:
    from exprkit.text.parse_errors import Fault

FINE, NO_DERIVATIVE, TOO_LONG = range(3)
LONGEST = 120  # characters of an expression in an error
FIRST_ROOM = 16  # tokens of a derivative for each one of its expression; grows
SHOWN = 8  # names in a message


class Differentiated(TokenArrays, NamedTokens, Protocol):
    """A population."""

    @property
    def n_vars(self) -> int: ...

    @property
    def max_params(self) -> int: ...


def differentiate(pop: Differentiated, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray, dict[int, Fault]]:
    """The derivative of every expression by the variable or parameter ``name``: kinds, values, offsets, faults.

    An expression without a derivative has no tokens, and a fault that says why.
    """
    kinds, values, offsets, problems = _all(pop, *_leaf(pop, name))
    return kinds, values, offsets, _faults(pop, problems)


def first_problem(faults: dict[int, Fault], text: str) -> str:
    """The message for the first expression without a derivative, whose text is given."""
    i, more = min(faults), len(faults) - 1
    others = f" (and {number_of(more, 'other')})" if more else ""
    advice = 'errors="mask" keeps those that have a derivative'
    return f"expression {i} ({shortened(text, LONGEST)}): {faults[i].reason}{others}; {advice}"


def _leaf(pop: Differentiated, name: str) -> tuple[int, int]:
    """(VARIABLE or PARAMETER, index) of a name."""
    every = []
    for kind, names, n in ((VARIABLE, pop.variables, pop.n_vars), (PARAMETER, pop.parameters, pop.max_params)):
        words = [word_of(kind, k, names) for k in range(len(names or range(n)))]
        if isinstance(name, str) and name in words:
            return kind, words.index(name)
        every += words
    near = nearest(str(name), every)
    listed = ", ".join(every[:SHOWN]) + ", …" * (len(every) > SHOWN)
    hint = f"did you mean {near!r}?" if near else f"there are {listed or 'none'}"
    raise ArgumentError(f"there is no variable or parameter {name!r}: {hint}")


def _all(pop: Differentiated, kind: int, index: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    room, graph_room = FIRST_ROOM * len(pop.kinds) + len(pop.offsets), 1
    rules, derivatives = table_rules(None), derivative_rules()
    known_positive = np.zeros(max(int(pop.n_vars), 1), np.bool_)
    tokens = _DiffTokens(pop.kinds, pop.values, pop.values.view(np.float64), pop.offsets)
    n_exprs = len(pop.offsets) - 1
    while True:
        graph = make_graph(pop, known_positive, reverse=False, inexact=False, room=graph_room)
        offsets, problems = np.zeros(n_exprs + 1, np.int64), np.zeros(n_exprs, np.uint8)
        results = empty(_DerivativeTokens, n=room, offsets=offsets, problems=problems)
        if _diff_all(tokens, graph, rules, derivatives, results, kind, index):
            n = offsets[-1]
            return results.kinds[:n].copy(), results.values[:n].copy(), offsets, problems
        if graph.counts[FULL]:
            graph_room *= 2
        else:
            room *= 4


def _faults(pop: Differentiated, problems: np.ndarray) -> dict[int, Fault]:
    from exprkit.text.names import Names
    from exprkit.text.parse_errors import Fault

    names = Names(pop.variables, pop.parameters, of_data=True)
    missing = [row.code for row in defined.table() if not row.derivative]
    faults = {}
    for i in np.flatnonzero(problems).tolist():
        reason = f"its derivative has more than {MAX_TOKENS:,} tokens"
        if problems[i] == NO_DERIVATIVE:
            span = slice(pop.offsets[i], pop.offsets[i + 1])
            codes = pop.values[span][pop.kinds[span] == OPERATOR]
            named = sorted({ops.BY_CODE[int(code)].name for code in codes if code in missing})
            reason = f"there is no derivative of {' and '.join(named)}"
        faults[i] = Fault(names, reason=reason)
    return faults


class _DiffTokens(NamedTuple):
    kinds: np.ndarray
    values: np.ndarray
    numbers: np.ndarray  # the same 8 bytes, as constants
    offsets: np.ndarray


class _DerivativeTokens(NamedTuple):
    kinds: Annotated[np.ndarray, "uint8[n]"]
    values: Annotated[np.ndarray, "uint64[n]"]
    offsets: np.ndarray
    problems: np.ndarray  # by expression


@compiled
def _diff_all(tokens, graph, rules, derivatives, results, kind, index):
    """Write the derivative of every expression; False where there was not enough room."""
    n = 0
    for i in range(len(tokens.offsets) - 1):
        begin, end = tokens.offsets[i], tokens.offsets[i + 1]
        if begin < end:
            clear(graph)
            root = read(graph, rules, tokens, begin, end)
            start_derivatives(graph, root)
            leaf = _find(graph, root, kind, index)
            slope = tangent(graph, rules, derivatives, root, leaf) if leaf >= 0 else -1
            if slope < 0:
                slope = number(graph, 0.0)
            if graph.counts[FULL]:
                return False
            room = len(results.kinds) - n
            end = -1 if graph.counts[NO_RULE] else _spell(graph, slope, results, n, min(MAX_TOKENS, room))
            if end >= 0:
                n = end
            elif graph.counts[NO_RULE]:
                results.problems[i] = NO_DERIVATIVE
            elif room > MAX_TOKENS:
                results.problems[i] = TOO_LONG
            else:
                return False
        results.offsets[i + 1] = n
    return True


@compiled
def _find(graph, root, kind, index):
    for n in range(root + 1):
        if graph.group[n] == kind and graph.a[n] == index:
            return n
    return -1


@compiled
def _spell(graph, root, results, start, room):
    """Write the tokens of node ``root`` from ``start`` on; gives the end, -1 where ``room`` is too small.

    Written backwards first, operator before operands, then turned round: the stack holds what is still to come.
    """
    kinds, values = results.kinds, results.values
    n, depth = start, 1
    graph.stack[0] = root
    while depth > 0:
        depth -= 1
        a = graph.stack[depth]
        if n - start + depth >= room or depth + 2 >= len(graph.stack):
            return -1
        if graph.group[a] >= UNIFORM_NODE:
            kinds[n], values[n] = OPERATOR, graph.code[a]
            graph.stack[depth] = graph.a[a]
            depth += 1
            if graph.b[a] >= 0:
                graph.stack[depth] = graph.b[a]
                depth += 1
        elif graph.group[a] == CONSTANT:
            kinds[n], values[n] = CONSTANT, graph.values[graph.a[a]]
        else:
            kinds[n], values[n] = graph.group[a], graph.a[a]
        n += 1
    for k in range((n - start) // 2):
        i, j = start + k, n - 1 - k
        kinds[i], kinds[j] = kinds[j], kinds[i]
        values[i], values[j] = values[j], values[i]
    return n
