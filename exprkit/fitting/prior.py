"""Priors and penalties of parameters, turned into additional data points, which every backend can fit.

In: ``prior=`` as ``fit`` takes it, a population, a ``Composition``.  Out: expressions, data and a target with a further
row for each term of the penalty.  In the data's rows an expression is itself; in the row of ``((p1 - 2) / 0.5)^2`` it
is p1, the target 2 and the weight 4.  So a term counts in the loss, in the normal equations and in the standard errors.

    >>> import exprkit as ek, numpy as np
    >>> x, y = np.ones((4, 1)), np.array([1.0, 2.0, 2.0, 3.0])
    >>> ek.fit("p1 * x1", x, y, prior={"p1": (0, 0.5)}, dtype="float64").params.round(6)  # 0 counts as four points do
    array([[1.]])
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.errors import ArgumentError, ParseError, brief, listed
from exprkit.evaluate import inputs
from exprkit.evaluate.inputs import LossPoints
from exprkit.evaluate.loss_text import Composition, LossText, LossTree, OwnGoal
from exprkit.expressions.population import Population
from exprkit.fitting.starts.given import place_of
from exprkit.operators import ops
from exprkit.operators.defined import OPERAND
from exprkit.text import formulas
from exprkit.text.define import formula_tokens
from exprkit.text.names import NUMBERED, Names
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE

LOSSES = ("squares", "gaussian")  # that a penalty is added to, beside losses of the user's own
Tokens = tuple[np.ndarray, np.ndarray]


class Summand(NamedTuple):
    """A part of the penalty: weight * (h - target)^2, or of a sum h itself."""

    h: Tokens  # over the parameters
    target: float
    weight: float

    @property
    def n_params(self) -> int:
        """The number of parameters that an expression needs for this term."""
        kinds, values = self.h
        return int(values[kinds == PARAMETER].max(initial=0)) + 1


class Penalty(NamedTuple):
    """All terms, and the loss that they are added to."""

    terms: tuple[Summand, ...]
    base: Composition
    constant: float  # what a likelihood of the rows has besides

    def of(self, pop: Population) -> Population:
        """The expressions with the terms of the penalty, which are fitted in their place."""
        inner = self.base.of(pop)
        if not self.terms:
            return inner
        counts = np.searchsorted(np.unique([term.n_params for term in self.terms]), pop.n_params, side="right")
        parts = [np.flatnonzero(counts == count) for count in np.unique(counts)]
        pieces = [inner[part].put_into(*self._formula(int(pop.n_params[part[0]]))) for part in parts]
        shares = any(piece.shares for piece in pieces)
        together = Population.concatenate(pieces)[np.argsort(np.concatenate(parts), kind="stable")]
        together.shares = shares
        return together

    def _formula(self, n_params: int) -> Tokens:
        """cond(data, f) + cond(row, h) + …; a term of parameters that there are not is as it should be."""
        first = self.first_column
        pieces = [_chosen(first, (np.array([OPERAND]), np.zeros(1)))]
        for k, term in enumerate(self.terms):
            h = term.h if term.n_params <= n_params else _number(term.target)
            pieces += [_chosen(first + 1 + k, h), (np.array([OPERATOR]), np.array([ops.ADD]))]
        kinds, values = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
        return kinds.astype(np.uint8), values.astype(np.uint64)

    @property
    def first_column(self) -> int:
        """The number of the column that is 1 in the data's rows; one for each term follows."""
        return self.base.n_columns + len(self.base.columns)

    def points(self, X: Any) -> tuple[Any, np.ndarray, np.ndarray]:
        """(X, target, weights) with the rows of the terms below, X's like one that counts."""
        n, k = X.shape[0], len(self.terms)
        if not k:
            return X, self.base.target, self.base.weights
        library = inputs.library_of(X)
        like = int(np.argmax(self.base.weights > 0)) if n else 0
        rows = library.concatenate([X, library.repeat(X[like : like + 1], k, axis=0)])
        which = np.zeros((n + k, 1 + k))
        which[:n, 0], which[n + np.arange(k), 1 + np.arange(k)] = 1, 1
        columns = library.asarray(which.astype(X.dtype))
        target = np.append(self.base.target, [term.target for term in self.terms])
        weights = np.append(self.base.weights, [term.weight for term in self.terms])
        return library.concatenate([rows, columns], axis=1), target, weights


def penalty(prior: Any, pop: Population, own: OwnGoal, points: LossPoints, n_columns: int, lm: bool) -> Penalty:
    """The penalty on a population's parameters, put together with the loss; without terms where ``prior`` is None.

    Raises ArgumentError, ParseError for what is no prior, and for a loss that none is added to.
    """
    base = own.composed(points, n_columns, fitting=lm)
    if prior is None:
        return Penalty((), base, 0.0)
    if own.loss is None and own.named not in LOSSES:
        able = " or ".join(map(repr, LOSSES))
        raise ArgumentError(f"prior takes loss={able}, or a loss of your own, not {own.named!r}")
    if own.named == "gaussian" and points.w is None:
        raise ArgumentError("prior with loss='gaussian' needs weights, 1 / variance, to be weighed against")
    names = pop.parameter_names
    doubled = 2.0 if own.named == "gaussian" else 1.0  # a likelihood is half of the squares
    if isinstance(prior, Mapping):
        per_parameter = 0.5 if own.loss is not None else 1.0  # of one's own loss, a logarithm of a density
        terms: list[Summand | None] = [_measured(name, pair, names, per_parameter) for name, pair in prior.items()]
        prior = " + ".join(_as_text(name, pair, pop.parameters) for name, pair in prior.items())
    elif isinstance(prior, str):
        _check_parameters(prior, pop, names)
        terms = _terms(prior, pop.parameters, doubled)
    else:
        raise ArgumentError(f"prior must be a text over parameters or a dict of (mean, sd), not {brief(prior)}")
    if base.kind != objective.SQUARES or None in terms:
        if own.loss is None:
            raise ArgumentError(
                f"prior={brief(prior)}: with loss={own.named!r} each term must be a square times a number; "
                "loss='(f - y)^2 + 0' takes any"
            )
        base, terms = own.composed_as_sum(points, n_columns), [Summand(_tokens(prior, pop.parameters), 0.0, 1.0)]
    known = [term for term in terms if term is not None]
    constant = float(np.sum(np.log(2 * np.pi / np.array([term.weight for term in known])))) / 2
    return Penalty(tuple(known), base, constant if own.named == "gaussian" else 0.0)


def _check_parameters(text: str, pop: Population, names: list[str]) -> None:
    """An error for a text about a parameter that no expression has."""
    kinds, values = _tokens(text, pop.parameters)
    most = int(values[kinds == PARAMETER].max(initial=0))
    if most >= len(names):
        lacking = f"{NUMBERED[PARAMETER]}{most + 1}"
        raise ArgumentError(f"prior: there is no parameter {lacking!r}; there are {', '.join(names) or 'none'}")


def _measured(name: Any, pair: Any, names: list[str], share: float) -> Summand:
    """The term of a normal density."""
    place = place_of(name, names, "prior")
    mean, sd = _numbers(name, pair)
    return Summand((np.array([PARAMETER]), np.array([place])), mean, share / sd**2)


def _numbers(name: str, pair: Any) -> tuple[float, float]:
    numbers = listed(pair) or ()
    try:
        mean, sd = (float(number) for number in numbers)
    except (TypeError, ValueError):
        mean, sd = np.nan, np.nan
    if not (np.isfinite(mean) and 0 < sd < np.inf):
        raise ArgumentError(f"prior of {name!r} must be (mean, standard deviation), not {brief(pair)}")
    return mean, sd


def _as_text(name: str, pair: Any, parameters: Any) -> str:
    mean, sd = _numbers(name, pair)
    return f"(({name if parameters is None else f'`{name}`'} - {mean!r}) / {sd!r})^2 / 2"


def _tokens(text: str, parameters: Any) -> Tokens:
    try:
        kinds, values = formula_tokens(text, Names(0, parameters))
    except ParseError as error:
        raise ParseError(f"prior: {error}") from None
    expanded = formulas.expanded(kinds, values, np.array([0, len(kinds)]), formulas.user_formulas())
    return expanded.kinds, expanded.values


def _terms(text: str, parameters: Any, doubled: float) -> list[Summand | None]:
    """The summands, each as a square; None for one that is none."""
    kinds, values = _tokens(text, parameters)
    tree = _PenaltyTree(LossText(text, kinds, values, ()), LossPoints(np.zeros(1), None, {}))
    waiting, summands = [tree.root], list[Summand | None]()
    while waiting:
        node = waiting.pop()
        if node.code == ops.ADD:
            waiting += node.operands
        elif tree.is_free(node):
            raise ArgumentError(f"prior={brief(text)}: a term depends on no parameter")
        else:
            summands.append(_square(tree, node, doubled))
    return summands


def _square(tree: LossTree, node: Any, doubled: float) -> Summand | None:
    """The term of c (s h + t)^2."""
    with np.errstate(all="ignore"):
        outer = tree.without_factors(node)
        kind, inner, _ = tree.outermost(outer.inside)
        if kind != objective.SQUARES or inner is None:
            return None
        around = tree.affine(inner)
        target, weight = float(0.0 - around.shift[0]), float((doubled * outer.scale * around.scale**2)[0])
    return Summand(tree.tokens(around.inside), target, weight) if np.isfinite(target) and 0 < weight < np.inf else None


class _PenaltyTree(LossTree):
    """A penalty's tree: what holds no parameter is free."""

    def is_free(self, node: Any) -> bool:
        return not np.any(self.tokens(node)[0] == PARAMETER)


def _chosen(column: int, tokens: Tokens) -> Tokens:
    """The tokens of cond(column, …)."""
    kinds, values = tokens
    own = values.astype(np.uint64)
    return np.array([VARIABLE, *kinds, OPERATOR]), np.array([np.uint64(column), *own, np.uint64(ops.CHOOSE)], np.uint64)


@functools.cache
def _number(value: float) -> Tokens:
    return np.array([CONSTANT]), np.array([np.float64(value).view(np.uint64)])
