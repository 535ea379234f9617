"""Growth: a formula with one function more, added at any of its nodes, and chosen by what it would gain.

In: a formula, ``Functions`` to choose from, the ``Sample`` at their rows.  Out: larger and smaller formulas; a fit of
their numbers follows.

    >>> import numpy as np
    >>> from exprkit.expressions.parser import parse
    >>> from exprkit.regression.shapes.growth import Functions, grown
    >>> from exprkit.regression.problem.sample import Sample
    >>> from exprkit.text.tokens import VARIABLE
    >>> X = np.random.default_rng(0).uniform(1, 2, (60, 2))
    >>> sample = Sample(X, np.exp(0.1 * X[:, 0] + 0.2 * X[:, 1]))
    >>> functions = Functions(sample.X.T, [(VARIABLE, 0), (VARIABLE, 1)], np.array([1, 1]))
    >>> any("exp(0.1 * x1 +" in str(formula) for formula in grown(parse(["exp(0.1 * x1)"])[0], functions, sample, 20))
    True

A node with the value ``v`` becomes ``v + c g`` or ``v * (1 + c g)``.  To first order the formula's value changes by c
times ``D g`` or ``D v g``, where D is its derivative by that node.  How much of the error this takes, with all of the
formula's numbers fitted again, is known without a fit: ``D g`` is projected off the derivatives by those numbers, as a
function is off a sum's in ``sums/selection.py``.  So some ten thousand changes are decided by some matrix products, and
only the best of every size are fitted.  Of those the error counts that every row has when it is left out (PRESS;
D. M. Allen, Technometrics 16, 1974): a function that is large at a single row explains nothing else.

The same for smaller formulas: an operator of two operands, or one with a number, gives way to one of its operands.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from exprkit.evaluate.evaluator import Evaluator
from exprkit.expressions.expression import Expression
from exprkit.expressions.population import Population
from exprkit.operators import ops
from exprkit.regression.formulas.front import Front
from exprkit.regression.formulas.parameters import as_parameters
from exprkit.regression.formulas.trees import Tree, expression_of, nodes, tree_of
from exprkit.regression.formulas.values import values_of
from exprkit.regression.problem.sample import Sample
from exprkit.regression.shapes.between_rows import wild_errors
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER

OF_A_SIZE = 4  # changes of every size that are fitted
LOOKED_AT = 4  # changes of every size at a place whose error without each row is found
LEAST_LEFT = 1e-3  # of a row's weight when it is predicted without itself
UNLIKE = 0.98  # cosine above which two functions do the same
ALONG = 1e-4  # share of a change that has to be left beside the derivatives by the formula's numbers
AT_ONCE = 256  # functions that are compared with those before them
DIRECTION = 7  # digits that tell derivatives apart
OF_A_NUMBER, OF_A_TOKEN = 2.0, 1.25  # nats that the best of very many formulas gains by accident

Path = tuple[int, ...]  # operands from the root down


class Functions(NamedTuple):
    """That are added: values by function and row, trees, sizes in tokens."""

    values: np.ndarray
    trees: list[Tree]
    sizes: np.ndarray


def unlike(functions: Functions) -> Functions:
    """Those that are no nearly linear functions of ones before them, the smallest first; in float32, of length 1."""
    order = np.argsort(functions.sizes, kind="stable")
    f = functions.values[order]
    with np.errstate(all="ignore"):
        f = f / np.abs(f).max(axis=1)[:, None]
        centred = f - f.mean(axis=1)[:, None]
        length = np.sqrt((centred**2).sum(axis=1))
        is_number = length <= 1e-6 * np.sqrt((f**2).sum(axis=1))
        centred = (centred / np.where(is_number, 1, length)[:, None]).astype(np.float32)
    kept = np.empty((0, f.shape[1]), np.float32)
    chosen: list[int] = []
    for begin in range(0, len(f), AT_ONCE):
        part = centred[begin : begin + AT_ONCE]
        new = np.flatnonzero(~(np.abs(part @ kept.T) > UNLIKE).any(axis=1))
        alike = np.abs(part[new] @ part[new].T) > UNLIKE
        left: list[int] = []
        for k in range(len(new)):
            if not alike[k, left].any():
                left.append(k)
        chosen += (begin + new[left]).tolist()
        kept = np.concatenate([kept, part[new[left]]])
    return Functions(functions.values[order[chosen]], [functions.trees[k] for k in order[chosen]],
                     functions.sizes[order[chosen]])


class _Subtree(NamedTuple):
    """Of a formula: where it is, what it is, its value at every row, and the formula's derivative by it."""

    path: Path
    tree: Tree
    value: np.ndarray
    slope: np.ndarray


class _Spot(NamedTuple):
    """Where a function may be added, as a factor or a summand, and what it is multiplied by then at every row."""

    node: _Subtree
    is_factor: bool
    carrier: np.ndarray


class _Tangent(NamedTuple):
    """Orthonormal columns that changes of a formula's numbers span, roots of weights, and what is left of y."""

    columns: np.ndarray
    root: np.ndarray
    rest: np.ndarray


class _Change(NamedTuple):
    """The error that is left, tokens more, and the formula."""

    error: float
    more: int
    made: Callable[[], Tree]


def grown(
    formula: Expression, functions: Functions, sample: Sample, most_size: int, go_on: Callable[[], None] = lambda: None
) -> list[Expression]:
    """The best larger and smaller formulas of every size: new numbers by least squares, the others as before."""
    tree = tree_of(formula)
    known = _nodes_of(tree, sample)
    if known is None:
        return []
    found, tangent = known
    go_on()
    changes = list(_smaller(tree, found, tangent))
    room, places = most_size - nodes(tree), _places(found, tangent)
    for place, gain in zip(places, _gains(places, functions.values, tangent), strict=True):
        changes += _larger(tree, place, functions, gain, tangent, room)
    best = [change for some in _by_size(changes).values() for change in some[:OF_A_SIZE]]
    return list(dict.fromkeys(expression_of(change.made()) for change in best))


def left_out_errors(formulas: list[Expression], sample: Sample, threads: int | None = None) -> np.ndarray:
    """The mean squared error of every formula when each row is predicted by numbers fitted to the others.

    To first order, by the rows' leverages; larger for a formula that is wild between rows, and inf where a value or
    derivative is no number.
    """
    pop, params = as_parameters(Population.of(formulas))
    ev = Evaluator(pop, sample.X, "cpu", dtype="float64", threads=threads)
    counts = (~np.isnan(params)).sum(axis=1)
    params = np.where(np.isnan(params), 0.0, params)
    weight = sample.w / sample.w.sum()
    with np.errstate(all="ignore"):
        rest, slopes = (sample.y - ev.evaluate(params)) * np.sqrt(weight), ev.jacobian(params)
        errors = np.full(len(formulas), np.inf)
        for i, n in enumerate(counts.tolist()):
            columns = slopes[i][:, :n] * np.sqrt(weight)[:, None]
            if np.isfinite(columns).all() and np.isfinite(rest[i]).all():
                left = np.maximum(1 - (_orthonormal(columns) ** 2).sum(axis=1), LEAST_LEFT)
                errors[i] = ((rest[i] / left) ** 2).sum()
    return errors * (1 + wild_errors(formulas, sample, threads))


class Growing:
    """Growth of a front's formulas, round after round.

    Parameters
    ----------
    front : Front
    functions : Functions
    """

    def __init__(self, front: Front, functions: Functions) -> None:
        self._front, self._functions = front, functions
        self._grown: set[Expression] = set()
        self._left_out: dict[Expression, float] = {}  # errors at rows left out

    def rounds(self, sample: Callable[[], Sample], go_on: Callable[[], None]) -> Iterator[list[Expression]]:
        """What some formulas of the front grow to, those that are shortest to describe and the smallest, each once."""
        while every := [one.expression for one in self._front.by_nats() if one.expression not in self._grown]:
            chosen = dict.fromkeys([*every[:2], *sorted(every, key=lambda one: one.n_tokens)[:2]])
            self._grown.update(chosen)
            found = (grown(one, self._functions, sample(), self._front.maxsize, go_on) for one in chosen)
            yield [formula for some in found for formula in some]

    def better(self, formulas: list[Expression], sample: Sample, threads: int | None) -> list[Expression]:
        """Those that predict rows left out better than every shorter one, by more than tokens gain by accident."""
        if not formulas:
            return []
        entries = self._front.entries()
        new = [one for one in (*formulas, *(entry.expression for entry in entries)) if one not in self._left_out]
        errors = left_out_errors(new, sample, threads) if new else ()
        self._left_out.update(zip(new, errors, strict=True))
        with np.errstate(all="ignore"):
            nats, least = (self._front.rows / 2 * np.log([self._left_out[one] for one in some])
                           for some in (formulas, [entry.expression for entry in entries]))  # fmt: skip
            more = np.subtract.outer([one.n_tokens for one in formulas], [entry.size for entry in entries])
            is_better = nats[:, None] + OF_A_NUMBER + OF_A_TOKEN * more < least
        return [formulas[k] for k in np.flatnonzero((is_better | (more <= 0)).all(axis=1) & np.isfinite(nats))]


# ── what is known of a formula ──


def _nodes_of(tree: Tree, sample: Sample) -> tuple[list[_Subtree], _Tangent] | None:
    """All nodes with values and derivatives, and the tangent; None where some are no numbers."""
    pop, params = as_parameters(Population.of([expression_of(tree)]))
    free, n = tree_of(pop[0]), pop.max_params
    paths = list(_paths(tree))
    shifted = expression_of(_shifted(free, (), {path: n + k for k, path in enumerate(paths)}))
    point = np.concatenate([params[0], np.zeros(len(paths))])
    ev = Evaluator(Population.of([shifted]), sample.X, "cpu", dtype="float64", threads=1)
    with np.errstate(all="ignore"):
        slopes = np.asarray(ev.jacobian([point]))[0]
        values = values_of([expression_of(_at(tree, path)) for path in paths], sample.X, 1)
    if not (np.isfinite(slopes).all() and np.isfinite(values).all()):
        return None
    root = np.sqrt(sample.w / sample.w.sum())
    columns = _orthonormal(slopes[:, :n] * root[:, None])
    rest = (sample.y - values[0]) * root
    rest = rest - columns @ (columns.T @ rest)
    every = [_Subtree(path, _at(tree, path), values[k], slopes[:, n + k]) for k, path in enumerate(paths)]
    return every, _Tangent(columns, root, rest)


def _orthonormal(columns: np.ndarray) -> np.ndarray:
    """A basis of what they span."""
    length = np.sqrt((columns**2).sum(axis=0))
    columns = columns[:, length > 0] / length[length > 0]
    basis, sizes, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(basis[:, sizes > 1e-9 * sizes.max(initial=0)])


def _paths(tree: Tree, path: Path = ()) -> Iterator[Path]:
    """Of all nodes, the root first."""
    yield path
    if tree[0] == OPERATOR:
        for k, operand in enumerate(tree[2:]):
            yield from _paths(operand, (*path, k))


def _at(tree: Tree, path: Path) -> Tree:
    for k in path:
        tree = tree[2 + k]
    return tree


def _with(tree: Tree, path: Path, other: Tree) -> Tree:
    """The tree with another in a node's place."""
    if not path:
        return other
    operand = _with(tree[2 + path[0]], path[1:], other)
    return (*tree[: 2 + path[0]], operand, *tree[3 + path[0] :])


def _shifted(tree: Tree, path: Path, numbers: dict[Path, int]) -> Tree:
    """Every node with a parameter of its own added."""
    if tree[0] == OPERATOR:
        tree = (*tree[:2], *(_shifted(operand, (*path, k), numbers) for k, operand in enumerate(tree[2:])))
    return OPERATOR, ops.ADD, tree, (PARAMETER, numbers[path])


# ── changes ──


def _places(every: list[_Subtree], tangent: _Tangent) -> list[_Spot]:
    """Those that differ in what they do, the first of the shortest ways to do it."""
    seen, places = set(), []
    for is_factor in (False, True):
        for node in every:
            carrier = node.slope * node.value if is_factor else node.slope
            largest = np.argmax(np.abs(carrier))
            if carrier[largest] == 0 or (is_factor and node.tree[0] == CONSTANT):
                continue
            key = np.round(carrier / carrier[largest], DIRECTION).tobytes()
            if key not in seen:
                seen.add(key)
                places.append(_Spot(node, is_factor, carrier * tangent.root))
    return places


def _larger(
    tree: Tree, place: _Spot, functions: Functions, gain: np.ndarray, tangent: _Tangent, room: int
) -> Iterator[_Change]:  # fmt: skip
    """The formula with the best functions of every size at a place."""
    f, node = functions.values, place.node
    more = functions.sizes + (6 if place.is_factor else 4)
    gain[more > room] = 0
    best = np.array([k for size in np.unique(more).tolist() for k in _largest(gain, more == size)], np.int64)
    for k, error, c in zip(best.tolist(), *_left_out(place.carrier * f[best], tangent), strict=True):
        yield _Change(error, int(more[k]), lambda k=k, c=c: _with(  # type: ignore[misc]
            tree, node.path, _changed(node.tree, place.is_factor, c, functions.trees[k])))


def _largest(gain: np.ndarray, among: np.ndarray) -> list[int]:
    """Places of the largest, some."""
    some = np.flatnonzero(among & (gain > 0))
    found: list[int] = some[np.argsort(-gain[some], kind="stable")[:LOOKED_AT]].tolist()
    return found


def _changed(tree: Tree, is_factor: bool, c: float, g: Tree) -> Tree:
    term = (OPERATOR, ops.MUL, (CONSTANT, c), g)
    if is_factor:
        return OPERATOR, ops.MUL, tree, (OPERATOR, ops.ADD, (CONSTANT, 1.0), term)
    return OPERATOR, ops.ADD, tree, term


def _gains(places: list[_Spot], f: np.ndarray, tangent: _Tangent) -> np.ndarray:
    """What every function takes off the squared error at every place: (places, functions)."""
    carriers = np.array([place.carrier / np.abs(place.carrier).max() for place in places])
    beside = np.column_stack([tangent.columns, tangent.rest])
    along = f @ (carriers.T[:, :, None] * beside[:, None, :]).reshape(f.shape[1], -1)
    along = along.reshape(len(f), len(places), -1)
    whole = f**2 @ (carriers**2).T
    left = whole - (along[:, :, :-1] ** 2).sum(axis=2)
    enough = left > ALONG * whole  # beside what the formula's own numbers do
    return np.where(enough, along[:, :, -1] ** 2 / np.where(enough, left, 1.0), 0.0).T


def _left_out(added: np.ndarray, tangent: _Tangent) -> tuple[list[float], list[float]]:
    """Of every added row of values the squared error when every row is predicted without itself, and its number."""
    added = added - (added @ tangent.columns) @ tangent.columns.T
    whole = (added**2).sum(axis=1)
    c = added @ tangent.rest / whole
    weight = np.maximum(1 - (tangent.columns**2).sum(axis=1) - added**2 / whole[:, None], LEAST_LEFT)
    errors = (((tangent.rest - c[:, None] * added) / weight) ** 2).sum(axis=1)
    return errors.tolist(), c.tolist()


def _smaller(tree: Tree, every: list[_Subtree], tangent: _Tangent) -> Iterator[_Change]:
    """The formula with an operand in the place of its operator."""
    by_path = {node.path: node for node in every}
    for node in every:
        if node.tree[0] != OPERATOR:
            continue
        for k, operand in enumerate(node.tree[2:]):
            if operand[0] == CONSTANT:
                continue
            change = (by_path[(*node.path, k)].value - node.value) * node.slope * tangent.root
            rest = tangent.rest - change
            rest = rest - tangent.columns @ (tangent.columns.T @ rest)
            less = nodes(node.tree) - nodes(operand)
            yield _Change(float(rest @ rest), -less,
                          lambda node=node, operand=operand: _with(tree, node.path, operand))  # type: ignore[misc]


def _by_size(changes: list[_Change]) -> dict[int, list[_Change]]:
    found: dict[int, list[_Change]] = {}
    for change in sorted(changes, key=lambda change: change.error):
        found.setdefault(change.more, []).append(change)
    return found
