"""Derivatives as expressions: a population's derivative by one variable or parameter.

Beside the pipeline: takes a population and gives one, by the rules of the operator table.
``Population.diff`` calls it.

    >>> import exprkit as ek
    >>> ek.parse(["p1 * x1^2 + exp(-x2)", "sin(x1) / x2"]).diff("x1").texts()
    ['p1 * (2 * x1)', '1 / x2 * cos(x1)']
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

import numpy as np

from exprkit import ops
from exprkit.compiled import compiled
from exprkit.errors import ArgumentError, PopulationError
from exprkit.graph import (
    NO_RULE,
    Graph,
    clear,
    derivative_rules,
    make_graph,
    no_rewriting,
    number,
    read,
    start_derivatives,
    tangent,
)  # fmt: skip
from exprkit.lower import UNIFORM_NODE
from exprkit.native import lent
from exprkit.population import CONSTANT, MAX_TOKENS, OPERATOR, PARAMETER, VARIABLE, Population

if TYPE_CHECKING:
    from exprkit.text.parse_errors import Fault

FINE, NO_DERIVATIVE, TOO_LONG = range(3)
LETTERS = {VARIABLE: "x", PARAMETER: "p"}
FIRST_ROOM = 16  # tokens of a derivative for each one of its expression; grows


def diff(pop: Population, name: str, errors: str = "raise") -> Population:
    """The derivative of every expression by the variable or parameter ``name``.

    See ``Population.diff``.
    """
    from exprkit.text.names import Names

    if errors not in ("raise", "mask"):
        raise ArgumentError(f'errors={errors!r}: expected "raise" or "mask"')
    kind, index = _leaf(pop, name)
    graph = make_graph(pop, np.zeros(max(int(pop.n_vars), 1), np.bool_), reverse=False, loose=False)
    kinds, values, offsets, problems = _all(pop, graph, kind, index)
    faults = dict(sorted({**pop._faults, **_faults(pop, problems)}.items()))
    result = Population._of_parser(kinds, values, offsets, Names(pop.variables, pop.parameters), faults)
    if errors == "raise" and np.any(problems != FINE):
        i = int(np.argmax(problems != FINE))
        raise PopulationError(
            f"expression {i} ({pop[i]}): {faults[i].reason}"
            f"{_others(int(np.sum(problems != FINE)) - 1)}; errors=\"mask\" keeps those that have a derivative"
        )
    return result


def _others(n: int) -> str:
    return f" (and {n:,} other{'s' * (n != 1)})" if n else ""


def _leaf(pop: Population, name: str) -> tuple[int, int]:
    """(VARIABLE or PARAMETER, index) of a name."""
    found = []
    for kind, names, n in ((VARIABLE, pop.variables, pop.n_vars), (PARAMETER, pop.parameters, pop.max_params)):
        known = [f"{LETTERS[kind]}{k + 1}" for k in range(n)] if names is None else list(names)
        if isinstance(name, str) and name in known:
            return kind, known.index(name)
        found += known
    near = difflib.get_close_matches(str(name), found, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(found) or 'none'}"
    raise ArgumentError(f"there is no variable or parameter {name!r}: {hint}")


def _all(
    pop: Population, graph: Graph, kind: int, index: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    room = FIRST_ROOM * len(pop.kinds) + len(pop)
    rules, derivatives = no_rewriting(), derivative_rules()
    while True:
        kinds, values = np.empty(room, np.uint8), np.empty(room, np.uint64)
        offsets, problems = np.zeros(len(pop) + 1, np.int64), np.zeros(len(pop), np.uint8)
        numbers = pop.values.view(np.float64)
        tokens = pop.kinds, pop.values, numbers, pop.offsets
        enough = _diff_all(tokens, graph, rules, derivatives, kind, index, kinds, values, offsets, problems, MAX_TOKENS)
        if enough:
            n = offsets[-1]
            return kinds[:n].copy(), values[:n].copy(), offsets, problems
        room *= 4


def _faults(pop: Population, problems: np.ndarray) -> dict[int, Fault]:
    from exprkit.text.names import Names
    from exprkit.text.parse_errors import Fault

    names = Names(pop.variables, pop.parameters)
    missing = [row.code for row in ops.OPERATORS if not row.derivative]
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


@compiled
def _diff_all(tokens, graph, rules, derivatives, kind, index, kinds, values, offsets, problems, most):
    token_kinds, token_values, numbers, token_offsets = tokens
    graph, rules, derivatives = lent(graph), lent(rules), lent(derivatives)
    n = 0
    for i in range(len(token_offsets) - 1):
        if token_offsets[i] < token_offsets[i + 1]:
            clear(graph)
            root = read(graph, rules, token_kinds, token_values, numbers, token_offsets[i], token_offsets[i + 1])
            start_derivatives(graph, root)
            leaf = _find(graph, root, kind, index)
            found = tangent(graph, rules, derivatives, root, leaf) if leaf >= 0 else np.int64(-1)
            found = number(graph, 0.0) if found < 0 else found
            if graph.counts[NO_RULE]:
                problems[i] = NO_DERIVATIVE
            else:
                end = _spell(graph, found, kinds, values, n, min(most, len(kinds) - n))
                if end < 0 and len(kinds) - n <= most:
                    return False
                if end < 0:
                    problems[i] = TOO_LONG
                else:
                    n = end
        offsets[i + 1] = n
    return True


@compiled
def _find(graph, root, kind, index):
    for n in range(root + 1):
        if graph.group[n] == kind and graph.a[n] == index:
            return n
    return -1


@compiled
def _spell(graph, root, kinds, values, start, room):
    """Write the tokens of node ``root`` from ``start`` on; gives the end, -1 where ``room`` is too small.

    Written backwards first, operator before operands, then turned round: the stack holds what is still to come.
    """
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
