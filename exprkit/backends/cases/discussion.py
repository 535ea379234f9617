"""The engine of the case discussion: Algorithms 1 and 2 of "Comprehensive Optimization of Parametric Kernels", for any
kernel.

In: a code, counters and strategies.  Out: a tree of inequalities with optimised codes at its leaves.  What the paper
calls so is called so here:

==================  ==========================================================================================
code                the kernel in some state of optimisation; the engine hands it on and never looks at it
counter             what is measured on a code: a resource (``value <= limit``) or a performance; accepted
                    where its inequality holds, refused where it does not
strategy            makes another code of a code, which computes the same; each lowers some counters, and is used up
                    when it gives None (the paper's apply once; ours may go along a finite chain)
quintuple           (code, system of constraints, strategies left, counters left, counters accepted)
accept, refuse      Algorithm 2 takes the next counter, evaluates it on the code, and makes two quintuples: one whose
                    system holds the inequality; one whose system holds its contrary and whose code a strategy has
                    changed, so that the counters that this may have changed are asked again
discussion          Algorithm 1: again and again, until no counter is left; what is inconsistent is dropped
==================  ==========================================================================================

    >>> from exprkit.backends.cases.discussion import Counter, Strategy, discuss
    >>> from exprkit.backends.cases.inequality import Inequality, number, symbol
    >>> memory = Counter("memory", lambda code: Inequality(number(2**code), symbol("Z_B")), ("halve",))
    >>> halve = Strategy("halve", lambda code: code - 1 if code else None, ("memory",))
    >>> [(leaf.code, str(leaf.system[-1])) for leaf in discuss(2, [memory], [halve]).leaves()]
    [(2, '4 <= Z_B'), (1, '2 <= Z_B'), (0, '1 <= Z_B')]

A branch is consistent where a point of the box satisfies it (its witness), and inconsistent where ``consistency``
proves that; what is neither stays, without a witness: it may be redundant and is never wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends.cases.consistency import contradictory
from exprkit.backends.cases.inequality import Constraint, Values


class Counter(NamedTuple):
    """What is measured on a code."""

    name: str
    asks: Callable[[Any], Constraint | None]  # accepted where it holds; None: nothing to ask of this code
    lowered_by: tuple[str, ...]  # strategies, the first one first


class Strategy(NamedTuple):
    """A way of making another code of a code."""

    name: str
    apply: Callable[[Any], Any]  # None: it is used up
    changes: tuple[str, ...]  # counters that are asked again


class Quintuple(NamedTuple):
    """What the algorithms hand on."""

    code: Any
    system: tuple[Constraint, ...]
    strategies: tuple[Strategy, ...]
    counters: tuple[Counter, ...]
    accepted: tuple[Counter, ...]


class Branches(NamedTuple):
    """A quintuple with its next counter taken: the two that follow, and by which strategy the second."""

    asked: Constraint | None
    accept: Quintuple
    refuse: Quintuple | None
    strategy: str


@dataclass(frozen=True, eq=False)
class Leaf:
    """An optimised code, where all counters are accepted."""

    code: Any
    system: tuple[Constraint, ...]
    applied: tuple[str, ...]  # strategies
    witness: Mapping[str, Any] | None  # values that satisfy the system
    points: np.ndarray  # of the box that lead here

    def leaves(self) -> Iterator[Leaf]:
        """This one."""
        yield self

    def height(self) -> int:
        """Inequalities below it."""
        return 0


@dataclass(frozen=True, eq=False)
class Node:
    """A question, and what follows where it is accepted and where it is refused; None: nothing can be there."""

    asked: Constraint
    accept: Node | Leaf | None
    refuse: Node | Leaf | None
    strategy: str  # that made the refused one's code

    def leaves(self) -> Iterator[Leaf]:
        """All leaves below, the accepted ones first."""
        for branch in (self.accept, self.refuse):
            if branch is not None:
                yield from branch.leaves()

    def height(self) -> int:
        """The most inequalities on a path."""
        return 1 + max(branch.height() for branch in (self.accept, self.refuse) if branch is not None)


def expanded(q: Quintuple) -> Branches:
    """Algorithm 2: take the next counter, accept it, refuse it."""
    counter, rest = q.counters[0], q.counters[1:]
    asked = counter.asks(q.code)
    system = q.system if asked is None else (*q.system, asked)
    accept = q._replace(system=system, counters=rest, accepted=(*q.accepted, counter))
    if asked is None:
        return Branches(None, accept, None, "")
    left = q.strategies
    for strategy in [one for name in counter.lowered_by for one in q.strategies if one.name == name]:
        code = strategy.apply(q.code)
        if code is None:
            left = tuple(one for one in left if one is not strategy)
            continue
        again = tuple(one for one in q.accepted if one.name in strategy.changes)
        kept = tuple(one for one in q.accepted if one not in again)
        refuse = Quintuple(code, (*q.system, asked.refused()), left, (*again, *q.counters), kept)
        return Branches(asked, accept, refuse, strategy.name)
    return Branches(asked, accept, None, "")


def discuss(
    code: Any, counters: Sequence[Counter], strategies: Sequence[Strategy], box: Values | None = None
) -> Node | Leaf:
    """Algorithm 1: the tree of all cases.

    Parameters
    ----------
    code
        To begin with.
    counters, strategies : sequences
    box : mapping, optional
        Arrays of values of the symbols, one element each for a point: where witnesses are looked for.
    """
    values = {name: np.atleast_1d(value) for name, value in (box or {}).items()}
    start = Quintuple(code, (), tuple(strategies), tuple(counters), ())
    n_points = max((len(value) for value in values.values()), default=0)
    tree = _branch(start, values, np.ones(n_points, np.bool_), ())
    assert tree is not None  # the empty system is consistent
    return tree


def _branch(q: Quintuple, box: Values, alive: np.ndarray, applied: tuple[str, ...]) -> Node | Leaf | None:
    """The tree below a quintuple, whose system holds at the points that are ``alive``."""
    while q.counters:
        asked, accept, refuse, strategy = expanded(q)
        if asked is None:
            q = accept
            continue
        known = {name: value[0].item() for name, value in box.items() if (value == value[0]).all()}
        holds = np.broadcast_to(asked.holds(box), alive.shape) if len(alive) else alive
        yes, no = alive & holds, alive & ~holds
        first = _consistent(accept, yes, known) and _branch(accept, box, yes, applied)
        second = None
        if refuse is not None and _consistent(refuse, no, known):
            second = _branch(refuse, box, no, (*applied, strategy))
        return Node(asked, first or None, second, strategy) if first or second else None
    place = int(np.argmax(alive)) if alive.any() else None
    witness = None if place is None else {name: value[min(place, len(value) - 1)].item() for name, value in box.items()}
    return Leaf(q.code, q.system, applied, witness, np.flatnonzero(alive))


def _consistent(q: Quintuple, alive: np.ndarray, known: Mapping[str, Any]) -> bool:
    return bool(alive.any()) or not contradictory(q.system, known)


class Step(NamedTuple):
    """A question that was answered."""

    asked: Constraint
    accepted: bool
    strategy: str  # that was applied where it was refused


def walk(
    code: Any, counters: Sequence[Counter], strategies: Sequence[Strategy], values: Values
) -> tuple[Any, list[Step]]:
    """The discussion where all symbols are known: the code at the end (None: there is none), and the way to it."""
    q, steps = Quintuple(code, (), tuple(strategies), tuple(counters), ()), []
    while q.counters:
        asked, accept, refuse, strategy = expanded(q)
        accepted = asked is None or bool(asked.holds(values))
        if asked is not None:
            steps.append(Step(asked, accepted, strategy))
        if not accepted and refuse is None:
            return None, steps
        q = accept if accepted or refuse is None else refuse
    return q.code, steps


def described(steps: Sequence[Step], values: Values) -> list[str]:
    """A line for each step: the inequality with its numbers, and what was done where it was refused."""
    return [
        f"{'yes' if step.accepted else 'no '}  {step.asked.with_numbers(values)}"
        + ("" if step.accepted else f", so {step.strategy}" if step.strategy else ", and there is nothing else")
        for step in steps
    ]
