"""A link: what is made of every expression before it is compared with the data, as ``sqrt(f)``.

In: the text of an expression over ``f``.  Out: populations with it on top of every expression.

    >>> import exprkit as ek
    >>> from exprkit.search.links import read_link
    >>> read_link("sqrt(f)").over(ek.parse(["x1 + p1", "x1"])).texts()
    ['sqrt(x1 + p1)', 'sqrt(x1)']
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from exprkit.errors import ArgumentError, ParseError, brief
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.text.tokens import VARIABLE

NAME = "f"  # what a link calls the expression


@dataclass(frozen=True)
class Link:
    """The tokens before and after those of an expression."""

    text: str
    before: tuple[np.ndarray, np.ndarray]  # kinds, values
    after: tuple[np.ndarray, np.ndarray]

    def over(self, pop: Population) -> Population:
        """The link of every expression."""
        n, ahead, behind = len(pop), len(self.before[0]), len(self.after[0])
        if ahead + behind == 0:
            return pop
        starts = pop.offsets[:-1] + np.arange(n) * (ahead + behind)
        offsets = pop.offsets + np.arange(n + 1) * (ahead + behind)
        own = np.arange(len(pop.kinds)) + np.repeat(np.arange(n) * (ahead + behind) + ahead, pop.n_tokens)
        places = own, starts, offsets
        kinds, values = self._placed(0, pop.kinds, *places), self._placed(1, pop.values, *places)
        return Population(kinds, values, offsets, variables=pop.variables, parameters=pop.parameters)

    def _placed(
        self, part: int, tokens: np.ndarray, own: np.ndarray, starts: np.ndarray, offsets: np.ndarray
    ) -> np.ndarray:
        """Kinds or values: those of the expressions at ``own`` places, the link's around them."""
        before, after = self.before[part], self.after[part]
        linked = np.empty(int(offsets[-1]), tokens.dtype)
        linked[own] = tokens
        linked[starts[:, None] + np.arange(len(before))] = before
        linked[offsets[1:, None] - len(after) + np.arange(len(after))] = after
        return linked


def read_link(text: str | None) -> Link:
    """A link of its text, an expression in which ``f`` stands once, or the name of an operator; None: f itself.

    Raises
    ------
    ArgumentError
        If the text is none, or ``f`` does not stand in it exactly once.
    """
    if text is not None and not isinstance(text, str):
        raise ArgumentError(f"link must be a text over f, not {brief(text)}")
    words = NAME if text is None else f"{text.strip()}({NAME})" if text.strip() in ops.BY_SPELLING else text
    try:
        read = parse(words, variables=[NAME])
    except ParseError as error:
        raise ArgumentError(f"link must be the text of an expression over f: {error}") from error
    there = np.flatnonzero(read.kinds == VARIABLE)
    if len(there) != 1 or read.n_params:
        raise ArgumentError(f"in a link f stands once, and no parameter: {brief(text)}")
    cut = int(there[0])
    kinds, values = np.asarray(read.kinds), np.asarray(read.values)
    return Link(words, (kinds[:cut], values[:cut]), (kinds[cut + 1 :], values[cut + 1 :]))
