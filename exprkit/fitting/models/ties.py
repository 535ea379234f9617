"""Ties between parameters: ``{"w2": "2 * w1", "c": 0}`` puts 2 * w1 in the place of w2, and 0 in that of c.

In: a population and its ties.  Out: the population of the parameters that are left, and the ties over these as text,
which a ``FitResult`` keeps; then the values of the tied parameters, with their standard errors.

    >>> import exprkit as ek, numpy as np
    >>> x = np.linspace(0, 3, 30)
    >>> found = ek.fit("p1 * exp(-p2 * x1) + p3", x[:, None], 4 * np.exp(-x) + 2, ties={"p3": "p1 / 2"})
    >>> found[0].names, found.params.round(3), found[0].tied["p3"][0].__round__(3)
    (['p1', 'p2'], array([[4., 1.]]), 2.0)
"""

from __future__ import annotations

import graphlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exprkit.errors import ArgumentError, ParseError, brief
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.fitting.groups import put
from exprkit.fitting.starts.given import place_of
from exprkit.text.tokens import PARAMETER, Words

# name of a parameter -> an expression over others, or a number; or such lines, "w2 = 2 * w1"
Ties = Mapping[str, str | float] | str | Sequence[str]


def tie(pop: Population, ties: Ties) -> tuple[Population, str]:
    """The population without the tied parameters, and a line ``name = expression`` for each of them.

    Raises ArgumentError, ParseError for a parameter that there is not, for a circle, and for what is no expression.
    """
    names = pop.parameter_names
    rules = {place_of(name, names, "ties"): _rule(name, tied, names) for name, tied in _by_name(ties).items()}
    needs = {i: {*rule.values[rule.kinds == PARAMETER].tolist()} & {*rules} for i, rule in rules.items()}
    try:
        order = list(graphlib.TopologicalSorter(needs).static_order())
    except graphlib.CycleError as error:
        raise ArgumentError(f"ties go round in a circle: {', '.join(names[i] for i in error.args[1])}") from None
    every = np.arange(len(names))
    free = [i for i in every.tolist() if i not in rules]
    own, new = [names[i] for i in free], np.searchsorted(free, every)
    for i in order:
        rules[i] = put(rules[i], {j: _tokens(rules[j]) for j in needs[i]}, every, names)
    rules = {i: put(rule, {}, new, own) for i, rule in rules.items()}
    lines = [f"{names[i]} = {rule.texts()[0]}" for i, rule in rules.items()]
    return put(pop, {i: _tokens(rule) for i, rule in rules.items()}, new, own), "\n".join(lines)


def by_category(lines: str, pop: Population, groups: Mapping[str, str]) -> str:
    """The ties of a population whose parameters have a value per category: a line for each, ``w2[a] = 2 * w1[a]``."""
    every = list[str]()
    for line in lines.splitlines():
        head, rule = line.split(" = ", 1)
        own = [name for name in groups if re.search(rf"\b{name}\b", rule)]
        if len({groups[name] for name in own}) > 1:
            raise ArgumentError(f"ties: {line} goes by {' and by '.join(repr(groups[name]) for name in own)}: use one")
        ends = [name.partition("[") for name in pop.parameter_names]
        for end in [bracket + rest for word, bracket, rest in ends if word == own[0]] if own else [""]:
            rule_here = rule
            for name in own:
                rule_here = re.sub(rf"\b{name}\b", f"`{name}{end}`".replace("\\", r"\\"), rule_here)
            every.append(f"{head}{end} = {rule_here}")
    return "\n".join(every)


def values_of(
    lines: str | None, parameters: Words, params: np.ndarray, covariance: np.ndarray
) -> dict[str, tuple[float, float]]:
    """(value, standard error) of the tied parameters by name; the error by the delta method, from the others'."""
    tied = dict(line.split(" = ", 1) for line in (lines or "").splitlines())
    if not tied:
        return {}
    ev = Evaluator(parse(list(tied.values()), variables=0, parameters=parameters), [[0.0]], "cpu", dtype="float64")
    n_lacking = max(0, ev.pop.max_params - len(params))  # of an expression of several, which may have fewer
    params, covariance = (np.pad(one, (0, n_lacking), constant_values=np.nan) for one in (params, covariance))
    sets = np.tile(params[: ev.pop.max_params], (len(tied), 1))
    values, errors = ev.evaluate(sets)[:, 0].tolist(), list[float]()
    for slopes in ev.jacobian(sets)[:, 0]:
        used = np.flatnonzero(slopes)  # one that is not determined matters where it is used
        errors.append(float(np.sqrt(slopes[used] @ covariance[np.ix_(used, used)] @ slopes[used])))
    return dict(zip(tied, zip(values, errors, strict=True), strict=True))


def _by_name(ties: Any) -> Mapping[str, Any]:
    if isinstance(ties, Mapping):
        return ties
    lines = ties.splitlines() if isinstance(ties, str) else ties
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str) and line.count("=") == 1 for line in lines):
        raise ArgumentError(f"ties must be a dict by parameters' names, or texts as 'w2 = 2 * w1', not {brief(ties)}")
    pairs = [[side.strip() for side in line.split("=")] for line in lines]
    if again := [name for name, n in Counter(name for name, _ in pairs).items() if n > 1]:
        raise ArgumentError(f"ties: {again[0]!r} is tied twice")
    return dict(pairs)


def _rule(name: str, tied: Any, names: list[str]) -> Population:
    if not isinstance(tied, str) and not (isinstance(tied, int | float | np.number) and np.isfinite(tied)):
        raise ArgumentError(f"ties of {name!r} must be an expression or a number, not {brief(tied)}")
    try:
        return parse(tied if isinstance(tied, str) else repr(float(tied)), variables=0, parameters=names)
    except ParseError as error:
        raise ParseError(f"ties of {name!r}: {error}") from None


def _tokens(rule: Population) -> tuple[np.ndarray, np.ndarray]:
    return rule.kinds, rule.values
