"""The engine of the case discussion, after "Comprehensive Optimization of Parametric Kernels", for any kernel.

In: a code and questions.  Out: a tree of inequalities with optimised codes at its leaves.

=========  ===========================================================================================================
code       the kernel in some state of optimisation; the engine hands it on and never looks at it
question   what is measured on a code, a resource (``value <= limit``) or a performance: a *counter* of the paper.
           Where it holds, the next question is asked; where it does not, a *strategy* makes another code, which
           computes the same, and that is asked again
=========  ===========================================================================================================

    >>> import numpy as np
    >>> from exprkit.backends.cases.discussion import Question, discuss, leaves_of
    >>> from exprkit.backends.cases.inequality import Inequality, number, symbol
    >>> memory = Question("memory", lambda code: Inequality(number(2**code), symbol("Z_B")),
    ...                   lambda code: ("halve", code - 1) if code else None)
    >>> tree = discuss(2, [memory], {"Z_B": np.arange(9)})
    >>> [(leaf.code, str(leaf.system[-1])) for leaf in leaves_of(tree)]
    [(2, '4 <= Z_B'), (1, '2 <= Z_B'), (0, '1 <= Z_B')]

A branch is in the tree where a point of the box of values satisfies it (its witness).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.cases.inequality import Constraint, Values


class Question(NamedTuple):
    """An inequality of a code, and the code to take where it does not hold."""

    name: str
    asks: Callable[[Any], Constraint | None]  # accepted where it holds; None: nothing to ask of this code
    next: Callable[[Any], tuple[str, Any] | None]  # a strategy's name and its code; None: all are used up


@dataclass(frozen=True, eq=False)
class Leaf:
    """An optimised code, of which nothing is left to ask."""

    code: Any
    system: tuple[Constraint, ...]
    applied: tuple[str, ...]  # strategies
    witness: Mapping[str, Any]  # values that satisfy the system
    points: np.ndarray  # of the box that lead here


@dataclass(frozen=True, eq=False)
class Node:
    """A question, and what follows where it is accepted and where it is refused."""

    asked: Constraint
    accept: Node | Leaf
    refuse: Node | Leaf
    strategy: str  # that made the refused one's code


def leaves_of(tree: Node | Leaf | None) -> Iterator[Leaf]:
    """All leaves, the accepted ones first."""
    if isinstance(tree, Node):
        yield from leaves_of(tree.accept)
        yield from leaves_of(tree.refuse)
    elif tree is not None:
        yield tree


def discuss(code: Any, questions: Sequence[Question], box: Values) -> Node | Leaf | None:
    """The tree of all cases of a code to begin with; None where no code is left at any point.

    ``box``: arrays of values of the symbols, one element each for a point, where witnesses are looked for.
    """
    values = {name: np.atleast_1d(value) for name, value in box.items()}
    n_points = max(map(len, values.values()), default=0)

    def branch(code: Any, place: int, system: tuple[Constraint, ...], applied: tuple[str, ...], points: Any) -> Any:
        """The tree below a code, from a question on; its system holds at these points."""
        if not len(points):
            return None
        for k, question in enumerate(questions[place:], place):
            if (asked := question.asks(code)) is None:
                continue
            holds = np.broadcast_to(asked.holds(values), n_points)[points]
            accept = branch(code, k + 1, (*system, asked), applied, points[holds])
            if holds.all() or (further := question.next(code)) is None:
                return accept
            strategy, other = further
            refuse = branch(other, k, (*system, asked.refused()), (*applied, strategy), points[~holds])
            return Node(asked, accept, refuse, strategy) if accept and refuse else accept or refuse
        witness = {name: value[min(points[0], len(value) - 1)].item() for name, value in values.items()}
        return Leaf(code, system, applied, witness, points)

    tree: Node | Leaf | None = branch(code, 0, (), (), np.arange(n_points))
    return tree


class Step(NamedTuple):
    """A question that was answered."""

    asked: Constraint
    accepted: bool
    strategy: str  # that was applied where it was refused; empty: there is none


def walk(code: Any, questions: Sequence[Question], values: Values) -> tuple[Any, list[Step]]:
    """The discussion where all symbols are known: the code at the end (None: there is none), and the way to it."""
    steps = []
    for question in questions:
        while (asked := question.asks(code)) is not None:
            accepted = bool(asked.holds(values))
            words, other = (not accepted and question.next(code)) or ("", None)
            steps.append(Step(asked, accepted, words))
            if accepted:
                break
            if not words:
                return None, steps
            code = other
    return code, steps


def described(steps: Sequence[Step], values: Values) -> list[str]:
    """A line for each step: the inequality with its numbers, and what was done where it was refused."""
    return [
        f"{'yes' if step.accepted else 'no '}  {step.asked.with_numbers(values)}"
        + ("" if step.accepted else f", so {step.strategy}" if step.strategy else ", and there is nothing else")
        for step in steps
    ]
