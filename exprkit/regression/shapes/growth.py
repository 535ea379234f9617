"""Growth: forward selection of one more function at any node of a formula, and backward elimination of nodes.

In: a formula, ``Functions`` to choose from, the ``Rows`` at their rows.  Out: larger and smaller formulas, whose
numbers are fitted afterwards.

A node with the value ``v`` becomes ``v + c g`` or ``v * (1 + c g)``.  To first order the formula's value changes by c
times ``D g`` or ``D v g``, where D is its derivative by that node.  How much of the error this takes, with all of the
formula's numbers fitted again, is known without a fit (the score test; C. R. Rao, 1948): ``D g`` is projected off the
derivatives by those numbers, as a function is off a sum's in ``sums/selection.py``.  So ten thousand changes take a few
matrix products, and only the best of every size are fitted.  Those are compared by their leave-one-out errors
(PRESS; D. M. Allen, Technometrics 16, 1974): a function that is large at a single row explains nothing else.

Smaller formulas: an operator is replaced by one of its operands.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.regression.formulas.front import NATS_PER_NUMBER, NATS_PER_TOKEN, FrontView
from exprkit.regression.formulas.parameters import as_parameters
from exprkit.regression.formulas.trees import Tree, combination, expression_of, nodes, tree_of
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem.effort import WORK
from exprkit.regression.problem.rows import Rows
from exprkit.regression.shapes.between_rows import errors_between_rows
from exprkit.regression.sums.inside import Functions
from exprkit.runtime.budget import check
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER

FITTED_PER_SIZE = 4  # changes (chosen, not measured)
COMPARED_PER_SIZE = 4  # changes at a site by leave-one-out errors (chosen, not measured)
MIN_WEIGHT = 1e-3  # of 1 less a row's leverage, which its leave-one-out error is divided by (chosen, not measured)
MAX_COSINE = 0.98  # of two functions that are added (chosen, not measured)
MIN_PART = 1e-4  # of a change, orthogonal to the derivatives by the formula's numbers (chosen, not measured)
BLOCK = 256  # functions at a time (chosen, not measured)
DIGITS = 7  # to which proportional derivatives are the same (chosen, not measured)

Path = tuple[int, ...]  # operands from the root down


def dissimilar(functions: Functions) -> Functions:
    """The functions whose correlations with all smaller ones chosen are at most ``MAX_COSINE``, the smallest first."""
    order = np.argsort(functions.sizes, kind="stable")
    f = functions.values[order]
    with np.errstate(all="ignore"):
        f = f / np.abs(f).max(axis=1)[:, None]
        centred = f - f.mean(axis=1)[:, None]
        length = np.sqrt((centred**2).sum(axis=1))
        is_number = length <= 1e-6 * np.sqrt((f**2).sum(axis=1))
        centred = (centred / np.where(is_number, 1, length)[:, None]).astype(np.float32)
    basis = np.empty((0, f.shape[1]), np.float32)
    indices: list[int] = []
    for begin in range(0, len(f), BLOCK):
        block = centred[begin : begin + BLOCK]
        new = np.flatnonzero(~(np.abs(block @ basis.T) > MAX_COSINE).any(axis=1))
        is_similar = np.abs(block[new] @ block[new].T) > MAX_COSINE
        first: list[int] = []
        for k in range(len(new)):
            if not is_similar[k, first].any():
                first.append(k)
        indices += (begin + new[first]).tolist()
        basis = np.concatenate([basis, block[new[first]]])
    return Functions(
        functions.values[order[indices]], [functions.trees[k] for k in order[indices]], functions.sizes[order[indices]]
    )


class _Subtree(NamedTuple):
    """A node of a formula: path, tree, value at every row, and the formula's derivative by it."""

    path: Path
    tree: Tree
    value: np.ndarray
    slope: np.ndarray


class _Site(NamedTuple):
    """A node with the way to add a function there, as a factor or a summand, and the derivative by it at every row."""

    node: _Subtree
    is_factor: bool
    carrier: np.ndarray


class _Tangent(NamedTuple):
    """Orthonormal basis of a formula's derivatives by its numbers, roots of weights, and residuals orthogonal to it."""

    columns: np.ndarray
    root: np.ndarray
    residuals: np.ndarray


class _Change(NamedTuple):
    """The squared error to first order, how many tokens more, and the node at a path with the tree in its place."""

    error: float
    more: int
    path: Path
    tree: Tree


def grown(formula: Expression, functions: Functions, rows: Rows, most_size: int) -> list[Expression]:
    """The best larger and smaller formulas of every size, the new coefficient to first order, the others as before."""
    tree = tree_of(formula)
    derivatives = _nodes_of(tree, rows)
    if derivatives is None:
        return []
    subtrees, tangent = derivatives
    check(WORK.growth_round + WORK.growth_row * len(rows))
    changes = list(_smaller(subtrees, tangent))
    room, sites = most_size - nodes(tree), _sites(subtrees, tangent)
    for site, gain in zip(sites, _gains(sites, functions.values, tangent), strict=True):
        changes += _larger(site, functions, gain, tangent, room)
    best = [change for of_size in _by_size(changes).values() for change in of_size[:FITTED_PER_SIZE]]
    return list(dict.fromkeys(expression_of(_replaced(tree, change.path, change.tree)) for change in best))


def leave_one_out_errors(formulas: list[Expression], rows: Rows) -> np.ndarray:
    """Leave-one-out mean squared errors (PRESS), (n_formulas,): each row is predicted by numbers fitted to the others.

    To first order, by the rows' leverages; with the errors between rows; inf where a value or derivative is no number.
    """
    pop, params = as_parameters(Population.of(formulas))
    ev = Evaluator(pop, rows.X, "cpu", dtype="float64")
    counts = (~np.isnan(params)).sum(axis=1)
    params = np.where(np.isnan(params), 0.0, params)
    weight = rows.w / rows.w.sum()
    with np.errstate(all="ignore"):
        residuals, slopes = (rows.y - ev.evaluate(params)) * np.sqrt(weight), ev.jacobian(params)
        errors = np.full(len(formulas), np.inf)
        for i, n in enumerate(counts.tolist()):
            columns = slopes[i][:, :n] * np.sqrt(weight)[:, None]
            if np.isfinite(columns).all() and np.isfinite(residuals[i]).all():
                weights = np.maximum(1 - (_orthonormal(columns) ** 2).sum(axis=1), MIN_WEIGHT)
                errors[i] = ((residuals[i] / weights) ** 2).sum()
    return errors * (1 + errors_between_rows(formulas, rows))


class Growing:
    """Rounds in which formulas of a front grow."""

    def __init__(self, front: FrontView, functions: Functions) -> None:
        self._front, self._functions = front, functions
        self._grown: set[Expression] = set()
        self._press: dict[Expression, float] = {}  # errors at rows left out

    def rounds(self, rows: Callable[[], Rows]) -> Iterator[list[Expression]]:
        """Round by round what the two shortest to describe and the two smallest formulas grow to, each formula once."""
        while new := [entry.expression for entry in self._front.by_nats() if entry.expression not in self._grown]:
            parents = dict.fromkeys([*new[:2], *sorted(new, key=lambda formula: formula.n_tokens)[:2]])
            self._grown.update(parents)
            children = (grown(parent, self._functions, rows(), self._front.maxsize) for parent in parents)
            yield list(itertools.chain.from_iterable(children))

    def better(self, formulas: list[Expression], rows: Rows) -> list[Expression]:
        """Formulas of less leave-one-out error than every shorter one of the front, by more than accident gives."""
        if not formulas:
            return []
        entries = self._front.entries()
        candidates = [*formulas, *(entry.expression for entry in entries)]
        new = [formula for formula in candidates if formula not in self._press]
        errors = leave_one_out_errors(new, rows) if new else ()
        self._press.update(zip(new, errors, strict=True))
        with np.errstate(all="ignore"):
            nats, front_nats = (
                self._front.rows / 2 * np.log([self._press[formula] for formula in group])
                for group in (formulas, [entry.expression for entry in entries])
            )
            more = np.subtract.outer([formula.n_tokens for formula in formulas], [entry.size for entry in entries])
            is_better = nats[:, None] + NATS_PER_NUMBER + NATS_PER_TOKEN * more < front_nats
        return [formulas[k] for k in np.flatnonzero((is_better | (more <= 0)).all(axis=1) & np.isfinite(nats))]


# ── derivatives of a formula ──


def _nodes_of(tree: Tree, rows: Rows) -> tuple[list[_Subtree], _Tangent] | None:
    """All nodes of a tree with values and derivatives, and the tangent; None where any of them is no number."""
    pop, params = as_parameters(Population.of([expression_of(tree)]))
    parametric, n = tree_of(pop[0]), pop.max_params
    paths = list(_paths(tree))
    shifted = expression_of(_shifted(parametric, (), {path: n + k for k, path in enumerate(paths)}))
    point = np.concatenate([params[0], np.zeros(len(paths))])
    ev = Evaluator(Population.of([shifted]), rows.X, "cpu", dtype="float64", threads=1)
    with np.errstate(all="ignore"):
        slopes = np.asarray(ev.jacobian([point]))[0]
        values = values_of([expression_of(_subtree(tree, path)) for path in paths], rows.X)
    if not (np.isfinite(slopes).all() and np.isfinite(values).all()):
        return None
    root = np.sqrt(rows.w / rows.w.sum())
    columns = _orthonormal(slopes[:, :n] * root[:, None])
    residuals = (rows.y - values[0]) * root
    residuals = residuals - columns @ (columns.T @ residuals)
    subtrees = [_Subtree(path, _subtree(tree, path), values[k], slopes[:, n + k]) for k, path in enumerate(paths)]
    return subtrees, _Tangent(columns, root, residuals)


def _orthonormal(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the span of these columns."""
    length = np.sqrt((columns**2).sum(axis=0))
    columns = columns[:, length > 0] / length[length > 0]
    basis, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(basis[:, sizes > 1e-9 * sizes.max(initial=0)])


def _paths(tree: Tree, path: Path = ()) -> Iterator[Path]:
    """Paths from the root to all nodes of a tree, the root first."""
    yield path
    if tree[0] == OPERATOR:
        for k, operand in enumerate(tree[2:]):
            yield from _paths(operand, (*path, k))


def _subtree(tree: Tree, path: Path) -> Tree:
    for k in path:
        tree = tree[2 + k]
    return tree


def _replaced(tree: Tree, path: Path, other: Tree) -> Tree:
    """A tree with the node at a path replaced by another tree."""
    if not path:
        return other
    operand = _replaced(tree[2 + path[0]], path[1:], other)
    return (*tree[: 2 + path[0]], operand, *tree[3 + path[0] :])


def _shifted(tree: Tree, path: Path, numbers: dict[Path, int]) -> Tree:
    """A tree in which a parameter of its own is added to every node; ``numbers``: the parameters by path."""
    if tree[0] == OPERATOR:
        tree = (*tree[:2], *(_shifted(operand, (*path, k), numbers) for k, operand in enumerate(tree[2:])))
    return OPERATOR, ops.ADD, tree, (PARAMETER, numbers[path])


# ── changes ──


def _sites(subtrees: list[_Subtree], tangent: _Tangent) -> list[_Site]:
    """Sites at all nodes as summand and as factor, those with proportional derivatives once."""
    seen, sites = set(), []
    for is_factor in (False, True):
        for node in subtrees:
            carrier = node.slope * node.value if is_factor else node.slope
            largest = np.argmax(np.abs(carrier))
            if carrier[largest] == 0 or (is_factor and node.tree[0] == CONSTANT):
                continue
            key = np.round(carrier / carrier[largest], DIGITS).tobytes()
            if key not in seen:
                seen.add(key)
                sites.append(_Site(node, is_factor, carrier * tangent.root))
    return sites


def _larger(site: _Site, functions: Functions, gain: np.ndarray, tangent: _Tangent, room: int) -> Iterator[_Change]:
    """Changes that add the best functions of every size at a site."""
    f, node = functions.values, site.node
    more = functions.sizes + (6 if site.is_factor else 4)
    gain[more > room] = 0
    best = np.array([k for size in np.unique(more).tolist() for k in _largest(gain, more == size)], np.int64)
    for k, error, c in zip(best.tolist(), *_press(site.carrier * f[best], tangent), strict=True):
        yield _Change(error, int(more[k]), node.path, _changed(node.tree, site.is_factor, c, functions.trees[k]))


def _largest(gain: np.ndarray, mask: np.ndarray) -> list[int]:
    """Indices of the ``COMPARED_PER_SIZE`` largest positive gains within a mask."""
    candidates = np.flatnonzero(mask & (gain > 0))
    largest: list[int] = candidates[np.argsort(-gain[candidates], kind="stable")[:COMPARED_PER_SIZE]].tolist()
    return largest


def _changed(tree: Tree, is_factor: bool, c: float, g: Tree) -> Tree:
    """``tree + c * g`` or ``tree * (1 + c * g)``."""
    if is_factor:
        return OPERATOR, ops.MUL, tree, combination([(1.0, None), (c, g)])
    return OPERATOR, ops.ADD, tree, combination([(c, g)])


def _gains(sites: list[_Site], f: np.ndarray, tangent: _Tangent) -> np.ndarray:
    """Decrease of the squared error by every function at every site, to first order, (n_sites, n_functions)."""
    carriers = np.array([site.carrier / np.abs(site.carrier).max() for site in sites])
    targets = np.column_stack([tangent.columns, tangent.residuals])
    along = f @ (carriers.T[:, :, None] * targets[:, None, :]).reshape(f.shape[1], -1)
    along = along.reshape(len(f), len(sites), -1)
    total = f**2 @ (carriers**2).T
    remainder = total - (along[:, :, :-1] ** 2).sum(axis=2)
    is_usable = remainder > MIN_PART * total  # beside what the formula's own numbers do
    return np.where(is_usable, along[:, :, -1] ** 2 / np.where(is_usable, remainder, 1.0), 0.0).T


def _press(added: np.ndarray, tangent: _Tangent) -> tuple[list[float], list[float]]:
    """Leave-one-out squared errors (PRESS) with each of these functions added, and the functions' coefficients."""
    added = added - (added @ tangent.columns) @ tangent.columns.T
    total = (added**2).sum(axis=1)
    c = added @ tangent.residuals / total
    weights = np.maximum(1 - (tangent.columns**2).sum(axis=1) - added**2 / total[:, None], MIN_WEIGHT)
    errors = (((tangent.residuals - c[:, None] * added) / weights) ** 2).sum(axis=1)
    return errors.tolist(), c.tolist()


def _smaller(subtrees: list[_Subtree], tangent: _Tangent) -> Iterator[_Change]:
    """Changes that replace an operator by one of its operands."""
    by_path = {node.path: node for node in subtrees}
    for node in subtrees:
        if node.tree[0] != OPERATOR:
            continue
        for k, operand in enumerate(node.tree[2:]):
            if operand[0] == CONSTANT:
                continue
            change = (by_path[(*node.path, k)].value - node.value) * node.slope * tangent.root
            residuals = tangent.residuals - change
            residuals = residuals - tangent.columns @ (tangent.columns.T @ residuals)
            n_fewer = nodes(node.tree) - nodes(operand)
            yield _Change(float(residuals @ residuals), -n_fewer, node.path, operand)


def _by_size(changes: list[_Change]) -> dict[int, list[_Change]]:
    """Changes grouped by their tokens more, in each group the least error first."""
    groups: dict[int, list[_Change]] = {}
    for change in sorted(changes, key=lambda change: change.error):
        groups.setdefault(change.more, []).append(change)
    return groups
