"""Conserved quantities: sums of a few simple functions of the states that right-hand sides leave as they are.

In: right-hand sides, and states.  Out: formulas.

A sum of functions is conserved where its derivative along the equations, its gradient times the right-hand sides, is 0
everywhere.  Of all sums of a few functions those are sought whose derivative is least beside their own spread: a
generalised eigenvalue problem of small matrices, at states all over the box of those that were measured.

    >>> import exprkit as ek, numpy as np
    >>> from exprkit.dynamics.integration import RightHandSides
    >>> from exprkit.dynamics.invariants import invariants
    >>> from exprkit.regression.estimator.equations import rounded
    >>> swing = RightHandSides(ek.parse(["x2", "-4 * sin(x1)"]), has_time=False)
    >>> [str(rounded(formula, 3)) for formula in invariants(swing, np.array([[-1.0, -2.0], [1.0, 2.0]]))]
    ['sqr(x2) - 8 * cos(x1)']
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from exprkit.dynamics.integration import RightHandSides
from exprkit.dynamics.terms import monomials
from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.trees import combination, expression_of, tree_of
from exprkit.text.tokens import OPERATOR, VARIABLE

# Chosen, not measured.
POINTS = 400  # states
DEGREE = 3  # of monomials; 2 of more than ``FEW`` states
FEW = 3
FUNCTIONS = [
    row.code for row in ops.OPERATORS if row.name in ops.SETS["search"] and row.arity == 1 and row.code != ops.SQR
]
MOST_TERMS = 4
STILL = 1e-6  # rate of change beside the functions' median: exact but for rounding
ALIKE = 0.01  # least singular value of gradients of length 1, below which one quantity is a function of the others
RIDGE = 1e-13  # of correlations, so that functions that are the same to rounding do no harm


def invariants(f: RightHandSides, states: np.ndarray) -> list[Expression]:
    """Conserved quantities that do not depend on each other, those of fewest functions first.

    ``states``: float64 (n, n_states), whose box is that in which they are conserved.
    """
    low, high, d = states.min(axis=0), states.max(axis=0), states.shape[1]
    x = np.random.default_rng(0).uniform(low, high, (POINTS, d))
    functions = [*monomials(d, DEGREE if d <= FEW else 2)[1:]]
    functions += [expression_of((OPERATOR, code, (VARIABLE, k))) for code in FUNCTIONS for k in range(d)]
    with np.errstate(all="ignore"):
        slope = f(x, np.empty((POINTS, 0)), np.zeros(POINTS), np.broadcast_to(f.numbers, (POINTS, len(f.numbers))))
        values, gradient = _values(functions, x)
        spread = values.std(axis=1)
        able = np.isfinite(values).all(axis=1) & np.isfinite(gradient).all(axis=(1, 2)) & (spread > 0)
    known = np.isfinite(slope).all(axis=1)
    functions = [function for function, can in zip(functions, able, strict=True) if can]
    size, values, gradient = spread[able], values[able][:, known], gradient[able][:, known]
    values, gradient = values / size[:, None], gradient / size[:, None, None]
    change = np.einsum("fpd,pd->fp", gradient, slope[known])
    centred = values - values.mean(axis=1, keepdims=True)
    moving, spreading = change @ change.T, centred @ centred.T
    chosen, gradients = list[tuple[int, ...]](), np.empty((int(known.sum()), d, 0))
    formulas: list[Expression] = []
    for terms, sums in _still(moving, spreading):
        if len(formulas) == d - 1:
            break
        more = np.concatenate([gradients, np.einsum("f,fpd->pd", sums, gradient[terms])[..., None]], axis=2)
        more /= np.linalg.norm(more, axis=1, keepdims=True)
        is_new = np.median(np.linalg.svd(more, compute_uv=False)[:, -1]) > ALIKE
        if not is_new or any(set(others) <= set(terms) for others in chosen):
            continue
        chosen.append(tuple(terms))
        gradients, numbers = more, sums / size[terms]
        pairs = zip((numbers / numbers[0]).tolist(), (tree_of(functions[k]) for k in terms), strict=True)
        formulas.append(simplified(expression_of(combination(pairs))))
    return formulas


def _still(moving: np.ndarray, spreading: np.ndarray) -> Iterator[tuple[list[int], np.ndarray]]:
    """Functions and the numbers of their sums that change slower than ``STILL``, fewest first."""
    for n in range(1, MOST_TERMS + 1):
        chosen = np.array(list(itertools.combinations(range(len(moving)), n)))
        rates, sums = _slowest(moving, spreading, chosen)
        for k in np.argsort(np.maximum(rates, STILL), kind="stable")[: int(np.sum(rates < STILL))]:
            yield chosen[k].tolist(), sums[k]


def _values(functions: list[Expression], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values (n_functions, n) and gradients (n_functions, n, n_states) at states."""
    pop = Population.of(functions)
    each = [pop, *(pop.diff(f"x{k + 1}") for k in range(x.shape[1]))]
    values, *slopes = (Evaluator(one, x, "numpy", dtype="float64").evaluate() for one in each)
    return values, np.stack(slopes, axis=2)


def _slowest(moving: np.ndarray, spreading: np.ndarray, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of each choice of functions the least rate of change of a sum of them, beside all functions'; its numbers."""
    pick = chosen[:, :, None], chosen[:, None, :]
    n = chosen.shape[1]
    A, B = moving[pick], spreading[pick]
    B = B + RIDGE * np.trace(B, axis1=1, axis2=2)[:, None, None] * np.eye(n)
    inverse = np.linalg.inv(np.linalg.cholesky(B))
    squares, vectors = np.linalg.eigh(inverse @ A @ inverse.transpose(0, 2, 1))
    rate = np.sqrt(np.maximum(squares[:, 0], 0.0) / np.median(np.diag(moving) / np.diag(spreading)))
    return rate, np.einsum("kij,kj->ki", inverse.transpose(0, 2, 1), vectors[:, :, 0])
