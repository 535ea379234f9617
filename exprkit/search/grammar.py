"""The grammar of an enumeration: leaves and operators, and the combinations that make trees of each size.

In: operators and numbers of leaves.  Out: an ``Grammar``, and for each size the blocks of combinations.

    >>> from exprkit.search.grammar import grammar
    >>> basis = grammar(5, "core_maths", n_vars=1, n_params=4)
    >>> [basis.count(size) for size in range(1, 6)]  # both orders of operands count
    [2, 2, 22, 62, 522]
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from exprkit.errors import ArgumentError, whole
from exprkit.expressions import arguments, generate
from exprkit.expressions.exhaustive import most_leaves, operand_sizes
from exprkit.expressions.population import Population
from exprkit.operators import defined
from exprkit.text.tokens import OPERATOR, PARAMETER, VARIABLE

MOST_NODES = 40  # more have more trees than can be counted in 64 bits
MOST_SYMBOLS = 62  # variables, a parameter and operators, a bit each
MOST_PARAMETERS = 6
COMPARED = 25e6  # trees that a thread tells apart a second (measured: data/results/distinct_functions.md)
DAY, YEAR = 86_400.0, 365.25 * 86_400.0  # seconds; comparing may take a day where nothing limits the time
SOON = 60.0  # seconds: what is proposed instead


class Block(NamedTuple):
    """All combinations of an operator with operands of these sizes; 0 where it has no such operand."""

    operator: defined.Written
    left: int
    right: int
    half: bool  # operands of the same size may be swapped: a pair counts once
    third: int = 0


@dataclass(frozen=True)
class Grammar:
    """The leaves (variables, and a parameter if ``n_params`` > 0) and operators of a search."""

    max_nodes: int
    operators: tuple[defined.Written, ...]
    n_vars: int
    n_params: int

    @property
    def n_leaves(self) -> int:
        return self.n_vars + (self.n_params > 0)

    def symbol(self, operator: defined.Written) -> int:
        """The operator's bit; leaves have those before."""
        return self.n_vars + 1 + self.operators.index(operator)

    def blocks(self, size: int) -> list[Block]:
        """The blocks of combinations that make trees of a size, in the order of the search."""
        return [Block(row, a, b, half, c) for row in self.operators for (a, b, c), half in operand_sizes(size, row)]

    def refuse_endless(self, threads: int) -> None:
        """ArgumentError where comparing all trees would take more than a day on so many threads."""
        trees = np.cumsum([float(self.count(size)) for size in range(1, self.max_nodes + 1)])
        seconds = trees / (COMPARED * threads)
        if seconds[-1] <= DAY:
            return
        fewer = max(int(np.searchsorted(seconds, SOON, side="right")), 1)
        raise ArgumentError(
            f"up to max_nodes={self.max_nodes} there are some {trees[-1]:.1g} expressions: comparing them would take "
            f"at least {_duration(seconds[-1])} here, before any is fitted; max_nodes={fewer} are "
            f"{trees[fewer - 1]:.1g}, {_duration(seconds[fewer - 1])}. With timeout= (in seconds) or max_memory= the "
            "search goes as far as it gets"
        )

    @functools.cached_property
    def _counts(self) -> list[int]:
        counts = [0, self.n_leaves]
        unary, binary = (sum(row.arity == n for row in self.operators) for n in (1, 2))
        ternary = [row for row in self.operators if row.arity == 3]
        for size in range(2, self.max_nodes + 1):
            pairs = sum(counts[left] * counts[size - 1 - left] for left in range(1, size - 1))
            threes = (sizes for row in ternary for sizes, _ in operand_sizes(size, row))
            triples = sum(counts[a] * counts[b] * counts[c] for a, b, c in threes)
            counts.append(unary * counts[size - 1] + binary * pairs + triples)
        return counts

    def count(self, size: int) -> int:
        """The number of trees of a size, whatever their parameters; both orders of operands count."""
        return self._counts[size]

    def of_all_kinds(self, n_random: int, variables: tuple[str, ...] | None = None) -> Population:
        """Expressions of all kinds that fits tell apart: every number of parameters with every operator.

        With ``n_random`` others, as long as any may be.
        """
        unary, binary, ternary = ([row.code for row in self.operators if row.arity == n] for n in (1, 2, 3))
        max_params = min(self.n_params, most_leaves(self.max_nodes, self.operators))
        texts: list[list[tuple[int, int]]] = []  # kinds and values
        for n in range(1, max_params + 1):
            leaves = [(PARAMETER, k) for k in range(n)]
            chains = [leaves] if n == 1 else [leaves + [(OPERATOR, code)] * (n - 1) for code in binary]
            if self.n_vars:
                chains += [[(VARIABLE, 0), *leaves] + [(OPERATOR, code)] * n for code in binary]
                odd = [(VARIABLE, 0)] * (1 + n % 2) + leaves
                chains += [odd + [(OPERATOR, code)] * (len(odd) // 2) for code in ternary]
            if n % 2 and n > 1:
                chains += [leaves + [(OPERATOR, code)] * (n // 2) for code in ternary]
            texts += [chain + more for chain in chains for more in ([], *([(OPERATOR, code)] for code in unary))]
        texts = [text for text in texts if len(text) <= self.max_nodes]
        kinds, values = np.array([token for text in texts for token in text]).T
        offsets = np.cumsum([0, *map(len, texts)])
        systematic = Population(kinds.astype(np.uint8), values.astype(np.uint64), offsets, variables=variables)
        names, n_tokens = [row.name for row in self.operators], (1, max(self.max_nodes, 2 * max_params + 1))
        return systematic + generate.random(n_random, n_tokens, names, self.n_vars, max_params, variables=variables)


def grammar(max_nodes: int, operators: str | Sequence[str] = "esr", n_vars: int = 1, n_params: int = 4) -> Grammar:
    """The grammar of a search; raises ArgumentError for an unknown operator, or a number out of range."""
    max_nodes = whole("max_nodes", max_nodes, 1, MOST_NODES)
    n_vars, n_params = whole("n_vars", n_vars, 0), whole("n_params", n_params, 0, MOST_PARAMETERS)
    rows = tuple(arguments.operators_of(operators))
    if n_vars + 1 + len(rows) > MOST_SYMBOLS:
        raise ArgumentError(f"{n_vars} variables and {len(rows)} operators are more than {MOST_SYMBOLS - 1} together")
    if n_vars + n_params == 0:
        raise ArgumentError("there is neither a variable nor a parameter")
    return Grammar(max_nodes, rows, n_vars, n_params)


def _duration(seconds: float) -> str:
    """As "3 s", "2.5 days" and "4e+02 years"."""
    if seconds >= YEAR:
        return f"{seconds / YEAR:.1g} years"
    return f"{seconds / DAY:.1f} days" if seconds > DAY else f"{max(round(seconds), 1)} s"
