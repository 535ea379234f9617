"""Templates: numbers inside of operators, which no lookup finds, by fits of very many formulas at once.

In: a ``Pool``, the ``Sample``.  Out: formulas ``f * (a + b * u(c * h))`` and ``f / (a + b * u(c * h))`` of least error,
f and h being small functions and u an operator that is no power.

    >>> import numpy as np
    >>> from exprkit.expressions.arguments import rows
    >>> from exprkit.regression.pool import Pool
    >>> from exprkit.regression.sample import Sample
    >>> from exprkit.regression.templates import fitted
    >>> X = np.random.default_rng(0).uniform(1, 2, (40, 2))
    >>> sample = Sample(X, X[:, 0] / (np.exp(0.7 * X[:, 0] / X[:, 1]) - 1))
    >>> pool = Pool(sample.X, rows(["*", "/", "exp"]), constants=[1.0])
    >>> pool.grow(3, most=100)
    >>> fitted(pool, sample, rows(["exp"]), most=15)[0].latex()
    '...'

Errors are weighted as shares of y, since a law holds where y is small as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.fitting.fit import FitProblem
from exprkit.operators import ops
from exprkit.regression.constants import as_constants
from exprkit.regression.polish import simplified
from exprkit.regression.pool import Pool
from exprkit.regression.sample import Sample
from exprkit.text.tokens import OPERATOR, PARAMETER

ROWS = 48  # of the sample, for the first fits
STEPS = 12  # of those, and
BEST = 40  # so many go on with
MORE_STEPS = 100
CHUNK = 4096  # formulas that are fitted at once
SIGNS = (1.0, -1.0)  # of c at the start


def fitted(
    pool: Pool, sample: Sample, unary: Sequence[ops.Operator], most: int, threads: int | None = None,
    go_on: Callable[[], None] = lambda: None, count: Callable[[int], None] = lambda n: None,
) -> list[Expression]:  # fmt: skip
    """The best of all pairs of the first ``most`` functions of a pool."""
    if not len(sample) or (sample.y == 0).any() or not unary:
        return []
    h = _same_but_for_a_factor(pool, pool.n_leaves + most)
    f = [i for i in h if pool.sizes[i] <= 3]
    pieces = {i: _tokens(pool.expression(i)) for i in {*f, *h}}
    jobs = [(i, way, row, j, sign) for row in unary for j in h for sign in SIGNS for i in f for way in (ops.MUL, ops.DIV)]
    few = sample.few(min(ROWS, len(sample)), 0)
    quick, thorough = (_problem(rows, steps, threads) for rows, steps in ((few, STEPS), (sample, MORE_STEPS)))
    scale = {j: 1 / max(float(np.median(np.abs(pool.values[j]))), 1e-300) for j in h}
    best: list[tuple[float, tuple[Expression, np.ndarray]]] = []
    for begin in range(0, len(jobs), CHUNK):
        go_on()
        some = jobs[begin : begin + CHUNK]
        pop = _population([(pieces[i], way, row, pieces[j]) for i, way, row, j, _ in some])
        start = np.array([[0.5 * sign, 1.0, sign * scale[j]] for *_, j, sign in some])
        result = quick.fit(pop, init=_begun(pop, start, few, threads))
        count(len(some))
        order = np.argsort(np.where(np.isfinite(result.loss), result.loss, np.inf), kind="stable")[:BEST]
        best += [(float(result.loss[k]), (pop[int(k)], result.params[k])) for k in order if np.isfinite(result.loss[k])]
        best = sorted(best, key=lambda pair: pair[0])[:BEST]
    if not best:
        return []
    pop = Population.concatenate([_one(formula) for _, (formula, _) in best])
    result = thorough.fit(pop, init=np.array([params for _, (_, params) in best]))
    found = as_constants(pop, np.where(np.isfinite(result.params), result.params, 1.0))
    order = np.argsort(np.where(np.isfinite(result.loss), result.loss, np.inf), kind="stable")
    return [simplified(found[int(k)]) for k in order]


def _problem(sample: Sample, steps: int, threads: int | None) -> FitProblem:
    weights = sample.w / sample.y**2
    return FitProblem(
        sample.X, sample.y, weights=weights / weights.max(), max_iter=steps, tol=1e-15, backend="cpu", dtype="float64",
        threads=threads,
    )  # fmt: skip


def _same_but_for_a_factor(pool: Pool, most: int) -> list[int]:
    """The first functions, without multiples of each other and without numbers."""
    seen, kept = set(), []
    for i in range(min(len(pool), 4 * most)):
        values = pool.values[i]
        if values.max() == values.min() and str(pool.expression(i)) != "1":
            continue
        key = np.round(values / values[np.argmax(np.abs(values))], 9).tobytes()
        if key not in seen:
            seen.add(key)
            kept.append(i)
    return kept[:most]


def _begun(pop: Population, start: np.ndarray, sample: Sample, threads: int | None) -> np.ndarray:
    """Starts: c is given, a and b of the size that y asks for."""
    from exprkit.evaluate.evaluator import Evaluator

    with np.errstate(all="ignore"):
        values = Evaluator(pop, sample.X, "cpu", dtype="float64", threads=threads).evaluate(start)
        ratio = np.median(np.abs(sample.y / values), axis=1)
    ratio = np.where(np.isfinite(ratio) & (ratio > 0), ratio, 1.0)
    divided = np.array([int(pop.values[end - 1]) == ops.DIV for end in pop.offsets[1:]])
    ratio = np.where(divided, 1 / ratio, ratio)
    return np.column_stack([start[:, :2] * ratio[:, None], start[:, 2]])


def _tokens(expression: Expression) -> tuple[list[int], list[int]]:
    return expression.kinds.tolist(), expression.values.tolist()


def _population(parts: list[tuple[tuple[list[int], list[int]], int, ops.Operator, tuple[list[int], list[int]]]]) -> Population:
    """f way (p1 + p2 * u(p3 * h)), of many."""
    kinds: list[int] = []
    values: list[int] = []
    offsets = [0]
    tail = [OPERATOR] * 5
    for f, way, row, h in parts:
        kinds += [*f[0], PARAMETER, PARAMETER, PARAMETER, *h[0], *tail]
        values += [*f[1], 0, 1, 2, *h[1], ops.MUL, row.code, ops.MUL, ops.ADD, way]
        offsets.append(len(kinds))
    return Population(np.array(kinds, np.uint8), np.array(values, np.uint64), np.array(offsets))


def _one(expression: Expression) -> Population:
    return Population(expression.kinds, expression.values, [0, expression.n_tokens])
