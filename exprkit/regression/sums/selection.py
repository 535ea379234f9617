"""Best-subset selection by orthogonal least squares: sets of functions whose linear combination fits v best.

In: values of functions, v, weights.  Out: a ``Subset`` of functions for every size and number of them.

    >>> import numpy as np
    >>> from exprkit.regression.sums.selection import selected
    >>> functions = np.random.default_rng(0).standard_normal((50, 40))
    >>> v = 3 * functions[7] - 2 * functions[11] + 0.5 * functions[30] + 4
    >>> best = selected(functions, np.full(50, 3), v, np.ones(40) / 40, most_terms=3, most_size=20)
    >>> best[-1].functions, bool(best[-1].error < 1e-12)
    ((7, 11, 30), True)

Sets grow by one function at a time (orthogonal least squares; S. Chen, S. A. Billings and W. Luo, 1989), but many of
them at once: sets of one function with every other, and of every size the best sets with every further one.  What
a function adds to a set is found from its products with the set's orthonormal columns and with what they leave of v.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import functools
from typing import Annotated, NamedTuple

import numpy as np

from exprkit.runtime import slices
from exprkit.runtime.bags import empty
from exprkit.runtime.budget import check, spend
from exprkit.runtime.jit import compiled

SUBSETS_PER_SIZE = 24  # sets of a size and number of functions
SETS, TOGETHER = 32, 128  # that a thread takes at a time; between two looks at the clock
ACROSS = 256  # functions at a time, whose sums stay in the first cache
MIN_PART = 1e-6  # share of a function that has to be left beside a set
MIN_DECREASE, ROUNDING = 0.999, 1e-22  # of an error: at least by so much for more tokens; as good as 0
TERM_VALUE, EXTENSION = (
    1e-9,
    2.5e-6,
)  # s, of a term at a row, and of a set with one more, on one core of an AMD EPYC (2026-11)
TERM = 2  # tokens of a term besides its function's: a number and an operator


class Subset(NamedTuple):
    """Numbers of functions, the squared error as a share of v's, and the size of the sum."""

    functions: tuple[int, ...]
    error: float
    size: int


class _SubsetWork(NamedTuple):
    """Functions by row and number, of length 1; columns and rest of v of every set by row."""

    f: Annotated[np.ndarray, "float64[n_rows, n]"]
    columns: Annotated[np.ndarray, "float64[n_sets, n_columns, n_rows]"]
    rest: Annotated[np.ndarray, "float64[n_sets, n_rows]"]
    group: Annotated[np.ndarray, "int64[n]"]


class _Added(NamedTuple):
    """By set and group of functions: the most that one takes off the squared error, and which it is."""

    gain: Annotated[np.ndarray, "float64[n_sets, n_groups]"]
    function: Annotated[np.ndarray, "int64[n_sets, n_groups]"]


def selected(
    functions: np.ndarray, sizes: np.ndarray, v: np.ndarray, weight: np.ndarray, most_terms: int, most_size: int,
    constant: bool = True, first: tuple[int, int] = (600, 300), kept: int = SUBSETS_PER_SIZE,
    seconds: float = 0.0, returned: int = 4,
) -> list[Subset]:  # fmt: skip
    """Best-subset selection: the sets of functions of least squared error of every size, the smallest first.

    Functions are (n, n_rows), their sizes in tokens; the weights add up to 1.  ``constant``: a number stands in every
    sum as well.  Sets begin with as many of the ``first`` functions, and of those that explain most alone.  ``kept``:
    sets of a size and number of functions that further functions are added to.  ``seconds``: of work that a block of
    sets counts as, beside its terms.  ``returned``: sets of a size that come back.
    """
    root = np.sqrt(weight)
    f, left, usable = _prepared(functions, v * root, root, constant)
    whole = float(left @ left)
    if not len(usable) or not whole > 0:
        return []
    f, sizes = f[usable], np.asarray(sizes, np.int64)[usable]
    kinds, group = np.unique(sizes, return_inverse=True)
    extend = functools.partial(_extended, f, np.ascontiguousarray(f.T), left, group, kinds, seconds)
    along = f @ left
    sets = [Subset((k,), float((whole - along[k] ** 2) / whole), int(sizes[k]) + TERM) for k in range(len(f))]
    best_subsets = _best(sets, returned)
    best = np.argsort(-(along**2), kind="stable")[: first[1]]
    sets = [sets[k] for k in np.union1d(np.arange(min(first[0], len(sets))), best).tolist()]
    for _ in range(1, most_terms):
        sets = [subset for subset in sets if subset.size + TERM + int(kinds[0]) <= most_size]
        if not sets:
            break
        sets = _best([subset for subset in extend(sets, whole) if subset.size <= most_size], kept)
        best_subsets += _best(sets, returned)
    front = _pareto_front(best_subsets, returned)
    return [subset._replace(functions=tuple(int(usable[k]) for k in subset.functions)) for subset in front]


def _prepared(
    functions: np.ndarray, v: np.ndarray, root: np.ndarray, constant: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normalised functions and v, both orthogonal to a constant if there is one; and the usable functions."""
    with np.errstate(all="ignore"):
        f = functions * root
        f = f / np.abs(f).max(axis=1)[:, None]
        before = np.sqrt((f * f).sum(axis=1))
        if constant:
            f = f - (f * root).sum(axis=1)[:, None] * root
            v = v - (v @ root) * root
        after = np.sqrt((f * f).sum(axis=1))
        f = f / after[:, None]
    usable = np.flatnonzero(np.isfinite(f).all(axis=1) & (after > 1e-7 * before))
    return f, v, usable


def _extended(
    f: np.ndarray,
    by_row: np.ndarray,
    v: np.ndarray,
    group: np.ndarray,
    kinds: np.ndarray,
    seconds: float,
    sets: list[Subset],
    whole: float,
) -> list[Subset]:
    """Every subset with the function of every size that lowers its error most."""
    extended: dict[tuple[int, ...], Subset] = {}
    for begin in range(0, len(sets), TOGETHER):
        check(seconds)
        block = sets[begin : begin + TOGETHER]
        terms = (len(block[0].functions) + 1) * f.size
        spend(len(block) * (terms * TERM_VALUE + len(kinds) * EXTENSION))
        work = _SubsetWork(by_row, *_orthogonal(f, v, block), group)
        added = empty(_Added, n_sets=len(block), n_groups=len(kinds))
        cuts = [(i, min(i + SETS, len(block))) for i in range(0, len(block), SETS)]
        slices.each(functools.partial(_add, work, added), cuts)
        for subset, rest, gains, which in zip(block, work.rest, added.gain, added.function, strict=True):
            left = float(rest @ rest)
            for size, gain, k in zip(kinds.tolist(), gains.tolist(), which.tolist(), strict=True):
                if gain > 0:
                    numbers = tuple(sorted((*subset.functions, k)))
                    error = max(left - gain, 0.0) / whole
                    extended.setdefault(numbers, Subset(numbers, error, subset.size + size + TERM))
    return list(extended.values())


def _orthogonal(f: np.ndarray, v: np.ndarray, sets: list[Subset]) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal columns of every subset (Gram-Schmidt, twice), and the residuals of v."""
    columns = f[np.array([subset.functions for subset in sets])]
    for _ in range(2):  # the second time takes off what rounding left
        for k in range(columns.shape[1]):
            for other in range(k):
                along = (columns[:, k] * columns[:, other]).sum(axis=1)
                columns[:, k] -= along[:, None] * columns[:, other]
            columns[:, k] /= np.sqrt((columns[:, k] ** 2).sum(axis=1))[:, None]
    rest = np.repeat(v[None], len(sets), axis=0)
    for _ in range(2):
        for k in range(columns.shape[1]):
            rest -= (rest * columns[:, k]).sum(axis=1)[:, None] * columns[:, k]
    return columns, rest


def _best(sets: list[Subset], each: int) -> list[Subset]:
    """The ``each`` subsets of least error of every size, the least error first."""
    count: dict[int, int] = {}
    best = []
    for subset in sorted(sets, key=lambda subset: (subset.error, subset.functions)):
        if np.isfinite(subset.error) and count.get(subset.size, 0) < each:
            count[subset.size] = count.get(subset.size, 0) + 1
            best.append(subset)
    return best


def _pareto_front(sets: list[Subset], each: int) -> list[Subset]:
    """The Pareto front of size and error: subsets that lower the error of all smaller ones."""
    front: list[Subset] = []
    least, size = np.inf, 0  # error of the smaller ones, and how small they are
    for subset in sorted(_best(sets, each), key=lambda subset: (subset.size, subset.error)):
        if subset.size > size:
            least, size = min([least, *(other.error for other in front)]), subset.size
        if subset.error < MIN_DECREASE * least and least > ROUNDING:
            front.append(subset)
    return sorted(front, key=lambda subset: (subset.size, -subset.error))


@compiled
def _add(work, added, begin, end):
    """The best further function of every group, for the subsets from begin to end."""
    n_rows, n = work.f.shape
    n_columns = work.columns.shape[1]
    sums = np.empty((n_columns + 1, ACROSS))
    for i in range(begin, end):
        for g in range(added.gain.shape[1]):
            added.gain[i, g], added.function[i, g] = 0.0, 0
        for first in range(0, n, ACROSS):
            m = min(ACROSS, n - first)
            for c in range(n_columns + 1):
                for j in range(m):
                    sums[c, j] = 0.0
                for row in range(n_rows):
                    at = work.rest[i, row] if c == n_columns else work.columns[i, c, row]
                    for j in range(m):
                        sums[c, j] += at * work.f[row, first + j]
            _compare(work, added, i, first, m, sums)


@compiled
def _compare(work, added, i, first, m, sums):
    n_columns = len(sums) - 1
    for j in range(m):
        left = 1.0
        for c in range(n_columns):
            left -= sums[c, j] ** 2
        group = work.group[first + j]
        if left > MIN_PART and sums[n_columns, j] ** 2 > left * added.gain[i, group]:
            added.gain[i, group], added.function[i, group] = sums[n_columns, j] ** 2 / left, first + j
