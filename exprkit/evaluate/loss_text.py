"""Losses given as text: an expression over f, y, w and columns, parsed and composed with the expressions of a
population.

In: its text, and y, weights and columns at every point.  Out: a ``Composition``: what is to be made of each
expression, the data it needs, and which of the sums that every backend has is the loss then.

    >>> from exprkit.evaluate.inputs import LossPoints
    >>> from exprkit.evaluate.loss_text import compose, parse_loss
    >>> import numpy as np
    >>> points = LossPoints(y=np.array([1.0, 4.0]), w=None, columns={"s": np.array([1.0, 2.0])})
    >>> made = compose(parse_loss("((sqrt(f) - y) / s)^2 / 2", ("s",)), points, n_columns=1)
    >>> made.summed, made.target, made.weights  # of the square roots of the expressions
    ('square', array([1., 4.]), array([0.5  , 0.125]))

What is recognised, plainly; c, s and t are whatever holds no f::

    c * (s * h(f) + t)^2     the sum of c s^2 (h(f) + t / s)^2: squares of h, against -t / s
    c * |s * h(f) + t|       the sum of c |s| |h(f) + t / s|: absolute errors of h
    c * huber(…, d)          in a fit, where d / |s| is one number: Huber's loss of h
    anything else            the sum of the expressions that have the loss around them

Where a factor without f is 0, as in ``y * log(f)``, 0 log 0 is 0.
Where h is f itself, the expressions are used as they are: such a loss costs what the squared one does.  Where it is
not, backends that can (``prepare_text``) add up the loss as it stands, in machine code that is made for it once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from exprkit.backends import objective
from exprkit.errors import ArgumentError, ParseError, brief
from exprkit.evaluate.inputs import LossPoints
from exprkit.expressions.population import Population
from exprkit.operators import defined, ops
from exprkit.operators.defined import OPERAND, table_of_rows
from exprkit.text import formulas
from exprkit.text.define import define, formula_tokens
from exprkit.text.names import Names
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

F, Y, W = range(3)  # variables of a loss; then its columns
USUAL = ("f", "y", "w")
MOST_TOKENS = 200  # of a loss: it is walked by recursion
SMALL = 1e-30  # beside ordinary numbers, also in float32
FITTED = {objective.KINDS[loss]: loss for loss in ("squares", "mae", "huber", "sum")}
SUMMED = {objective.SQUARES: "square", objective.ABSOLUTE: "absolute", objective.SUM: "sum"}


Tokens = tuple[np.ndarray, np.ndarray]


class Composition(NamedTuple):
    """A loss as a sum that backends have."""

    formula: tuple[np.ndarray, np.ndarray] | None  # of each expression, tokens with OPERAND 0; None: itself
    columns: list[np.ndarray]  # that stand behind those of X
    kind: int  # of ``objective``
    delta: float  # of HUBER
    target: np.ndarray  # float64 (n_points,)
    weights: np.ndarray  # float64 (n_points,)
    n_columns: int = 0  # of X

    @property
    def loss(self) -> str:
        """The loss of a fit that it is."""
        return FITTED[self.kind]

    @property
    def summed(self) -> str:
        """The name of the sum for ``contract.Engine.loss_sums``."""
        return SUMMED[self.kind]

    def of(self, pop: Population) -> Population:
        """The expressions that are compared with the target."""
        return pop if self.formula is None else pop.put_into(*self.formula)

    @staticmethod
    def under_link(pop: Population, link: str) -> Population:
        """Every expression under a link, which is given by its text."""
        if link == USUAL[F]:
            return pop
        composed = unchanged(LossPoints(np.zeros(0), None, {}), parse_link(link), pop.n_vars).of(pop)
        arrays = composed.kinds, composed.values, composed.offsets
        return Population(*arrays, variables=pop.variables, parameters=pop.parameters)


class Fused(NamedTuple):
    """A loss as a backend adds it up itself."""

    tokens: Tokens  # over f and columns
    columns: np.ndarray  # (n_columns, n_points)
    counted: bool  # the last column says how much a point counts


@dataclass(frozen=True, eq=False)
class LossText:
    """A loss or link, parsed; variables 0, 1 and 2 are f, y and w."""

    text: str
    kinds: np.ndarray
    values: np.ndarray
    columns: tuple[str, ...]

    def names(self, variable: int) -> bool:
        """Whether the text has f, y or w in it."""
        return bool(np.any((self.kinds == VARIABLE) & (self.values == variable)))

    @property
    def names_weights(self) -> bool:
        return self.names(W)

    @property
    def population(self) -> Population:
        """The loss over x1 (f), x2 (y), x3 (w) and the columns."""
        return Population(self.kinds, self.values, [0, len(self.kinds)]).expanded()


def parse_loss(text: str, columns: Iterable[str] = (), what: str = "loss") -> LossText:
    """Read a loss.

    Raises ArgumentError for one without f or a column without a proper name, ParseError with a caret under a mistake.
    """
    for formula in ops.LOSS_FORMULAS:
        if defined.spelled(formula.partition("(")[0]) is None:
            define(formula)
    names = tuple(columns)
    try:
        known = Names([*USUAL, *names], 0)
    except ParseError as error:
        raise ArgumentError(f"columns: {error}") from None
    try:
        kinds, values = formula_tokens(text, known)
    except ParseError as error:
        more = "; more by columns={…}" if what == "loss" else ""
        raise ParseError(f"{what}: {str(error).replace('; there are no parameters', more, 1)}") from None
    loss = LossText(text, *_without_log_of_cosh(kinds, values), names)
    if len(kinds) > MOST_TOKENS:
        raise ArgumentError(f"{what}: it has {len(kinds):,} tokens; the limit is {MOST_TOKENS}")
    if not loss.names(F):
        raise ArgumentError(f"{what}={brief(text)} does not depend on f, the value of the expression")
    return loss


def _without_log_of_cosh(kinds: np.ndarray, values: np.ndarray) -> Tokens:
    """``log(cosh(r))`` as ``logcosh(r)``, which costs less and is finite where cosh(r) is not."""
    logcosh, operator = defined.spelled("logcosh"), kinds == OPERATOR
    assert logcosh is not None
    both = operator[:-1] & operator[1:] & (values[:-1] == ops.COSH) & (values[1:] == ops.LOG)
    values = values.copy()
    values[:-1][both] = logcosh.code
    left = np.append(True, ~both)
    return kinds[left], values[left]


@table_of_rows
def _logarithms() -> frozenset[int]:
    """The codes of operators of which log(a / b) = log(a) - log(b), and log(0) is infinite."""

    def is_logarithm(log: Any) -> bool:
        return bool(np.isinf(log(np.float64(0.0))) and np.isclose(log(6.0) - log(2.0), log(3.0)))

    unary = (row for row in defined.table() if row.arity == 1 and row.width == 1 and not row.packed)
    with np.errstate(all="ignore"):
        return frozenset(row.code for row in unary if is_logarithm(row.numpy))


def _with_0_log_0(loss: LossText, points: LossPoints) -> tuple[LossText, LossPoints]:
    """A loss and its data with 0 log 0 = 0, as in likelihoods of counts and shares.

    Where a factor without f is 0, ``SMALL`` is added inside the logarithms of what it multiplies: 0 times a finite
    number is the 0 that it was, and the logarithm of a negative number stays nan.
    """
    if not np.isin(loss.values[loss.kinds == OPERATOR], list(_logarithms())).any():
        return loss, points
    tree, columns = LossTree(loss, points), dict(points.columns)

    def has_logarithm(node: _Branch) -> bool:
        return node.code in _logarithms() or any(map(has_logarithm, node.operands))

    def zeros_column(node: _Branch) -> int | None:
        """The number of the column with ``SMALL`` where a part without f is 0."""
        is_0 = tree.is_free(node) and (tree.value(node) == 0) & (True if points.w is None else points.w > 0)
        if not np.any(is_0):
            return None
        name = f"0 {len(columns)}"  # no user's
        columns[name] = np.where(is_0, SMALL, 0.0)
        return len(USUAL) + len(columns) - 1

    def written(node: _Branch, zeros: int | None = None) -> list[tuple[int, int]]:
        if node.code == ops.MUL and zeros is None:
            for k, other in ((1, 0), (0, 1)):
                if has_logarithm(node.operands[k]) and (own := zeros_column(node.operands[other])) is not None:
                    parts = [written(node.operands[j], own if j == k else None) for j in (0, 1)]
                    return [*parts[0], *parts[1], (OPERATOR, node.code)]
        if node.code in _logarithms() and zeros is not None:
            (inside,) = node.operands
            ratio = inside.operands if inside.code == ops.DIV else (inside,)
            logs = [
                [*written(part, zeros), (VARIABLE, zeros), (OPERATOR, ops.ADD), (OPERATOR, node.code)] for part in ratio
            ]
            return [token for log in logs for token in log] + [(OPERATOR, ops.SUB)] * (len(logs) - 1)
        kinds, values = tree.tokens(node)
        inner = [token for operand in node.operands for token in written(operand, zeros)]
        return [*inner, (int(kinds[-1]), int(values[-1]))]

    kinds, values = zip(*written(tree.root), strict=True)
    if len(columns) == len(points.columns):
        return loss, points
    tokens = np.array(kinds, np.uint8), np.array(values, np.uint64)
    return LossText(loss.text, *tokens, tuple(columns)), points._replace(columns=columns)


def parse_link(link: Any) -> LossText | None:
    """Read a link: an operator's name, or an expression over f; errors as of ``parse_loss``."""
    if link is None:
        return None
    if not isinstance(link, str):
        raise ArgumentError(f"link must be an operator's name or an expression over f, not {brief(link)}")
    row = defined.spelled(link)
    parsed = parse_loss(f"{link}({USUAL[F]})" if row is not None and row.arity == 1 else link, what="link")
    if parsed.names(Y) or parsed.names(W):
        raise ArgumentError(f"link={brief(link)} may depend on f alone")
    return parsed


def linked(loss: LossText, link: LossText | None) -> LossText:
    """The loss with the link in the place of f."""
    if link is None:
        return loss
    operand = np.where(loss.kinds == VARIABLE, np.where(loss.values == F, OPERAND, VARIABLE), loss.kinds)
    offsets = np.array([0, len(link.kinds)])
    tokens = formulas.applied(link.kinds, link.values, offsets, (operand.astype(np.uint8), loss.values))
    if tokens.too_long >= 0:
        raise ArgumentError(f"loss={brief(loss.text)} of link={brief(link.text)} is too long")
    return LossText(loss.text, tokens.kinds, tokens.values, loss.columns)


def unchanged(points: LossPoints, link: LossText | None, n_columns: int) -> Composition:
    """The composition of a named loss: y and weights as they are, and the expressions through the link."""
    tree = None if link is None else LossTree(link, points)
    formula = None if tree is None else tree.formula(tree.root, n_columns)[0]
    return Composition(formula, [], objective.SQUARES, 1.0, points.y, points.weights, n_columns)


def compose(
    loss: LossText, points: LossPoints, n_columns: int, fitting: bool = False, recognise: bool = True
) -> Composition:
    """The sum that a loss is, beside ``n_columns`` of X; ``fitting``: Huber's loss counts as one of the kinds.

    If not ``recognise``, it is added up as it stands, whatever it is.
    """
    own = points.weights
    counts = np.where(own > 0, 1.0, 0.0) if loss.names(W) else own  # w of a text that does not say where it goes
    tree = LossTree(loss, points)
    with np.errstate(all="ignore"):
        known = _recognised(tree, counts, n_columns, fitting) if recognise else None
    if known is not None:
        return known
    tree = LossTree(*_with_0_log_0(loss, points))
    formula, columns = tree.formula(tree.root, n_columns)
    return Composition(formula, columns, objective.SUM, 1.0, np.zeros(len(own)), counts, n_columns)


def fused(loss: LossText, points: LossPoints, fast: bool = False) -> Fused:
    """The loss as it stands.

    What holds no f is a column of its own, and of what something is divided by that is the reciprocal, unless it is
    extreme and the loss not ``fast``.
    Weights that are a factor of the whole text are those of the points, as where it does not name them.
    """
    loss, points = _with_0_log_0(loss, points)
    loss = LossTree(loss, points).without_weights()
    named = loss.names(W)
    loss, points = LossTree(loss, points).with_columns(fast)
    values, columns = _numbered(loss.kinds, loss.values, points, 1)
    if points.w is not None:
        columns.append(np.where(points.w > 0, 1.0, 0.0) if named else points.w)
    return Fused((loss.kinds, values), np.array(columns or [points.y]), points.w is not None)


def _numbered(
    kinds: np.ndarray, values: np.ndarray, points: LossPoints, first: int
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Values of tokens in which f is 0 and what else is used is numbered from ``first``, and the numbers of these."""
    known = [points.y, points.weights, *points.columns.values()]
    variable = kinds == VARIABLE
    used = [index for index in range(1, len(known) + 1) if np.any(variable & (values == index))]
    numbers = np.zeros(len(known) + 1, np.uint64)
    numbers[used] = first + np.arange(len(used))
    values = values.copy()
    values[variable] = numbers[values[variable]]
    return values, [known[index - 1] for index in used]


def fused_known(made: Composition, fast: bool = False) -> Fused:
    """Squares or absolute errors of a formula as a ``Fused``: what holds no f is one target and one weight a point.

    Of a ``fast`` loss, squares are those of the formula times the weight's root, less the target times that: one
    operation less.
    """
    assert made.formula is not None
    kinds, values = (array.copy() for array in made.formula)
    f, variable = kinds == OPERAND, kinds == VARIABLE
    values[variable] += np.int64(2 - made.n_columns).astype(np.uint64)  # behind f and the target
    kinds[f], values[f] = VARIABLE, F
    columns, counted = [made.target, *made.columns], not np.all(made.weights > 0)
    weighted = not np.all(made.weights == 1)
    if fast and weighted and not counted and made.kind == objective.SQUARES:
        root = np.sqrt(made.weights)
        columns = [made.target * root, *made.columns, root]
        outer = [(VARIABLE, len(columns)), (OPERATOR, ops.MUL), (VARIABLE, 1), (OPERATOR, ops.SUB), (OPERATOR, ops.SQR)]
        return Fused(_followed_by(outer, kinds, values), np.array(columns), False)
    outer = [(VARIABLE, 1), (OPERATOR, ops.SUB), (OPERATOR, ops.SQR if made.kind == objective.SQUARES else ops.ABS)]
    if weighted:
        columns.append(made.weights)
        outer += [] if counted else [(VARIABLE, len(columns)), (OPERATOR, ops.MUL)]
    return Fused(_followed_by(outer, kinds, values), np.array(columns), counted)


def _followed_by(tokens: Iterable[tuple[int, int]], kinds: np.ndarray, values: np.ndarray) -> Tokens:
    more_kinds, more_values = zip(*tokens, strict=True)
    return np.append(kinds, np.array(more_kinds, kinds.dtype)), np.append(values, np.array(more_values, values.dtype))


def _recognised(tree: LossTree, counts: np.ndarray, n_columns: int, fitting: bool) -> Composition | None:
    """The loss as squares, absolute errors or Huber's loss, if it is that."""
    scale, _, inside = tree.without_factors(tree.root)
    kind, inner, bend = tree.outermost(inside)
    if inner is None or (kind == objective.HUBER and not fitting):
        return None
    s, shift, h = tree.affine(inner)
    target, weights = 0.0 - shift, counts * scale * (np.abs(s) if kind == objective.ABSOLUTE else s * s)
    some = counts > 0
    if not np.all(np.isfinite(s[some]) & (s[some] != 0) & (scale[some] >= 0) & np.isfinite(weights[some])):
        return None
    delta = bend / np.abs(s)
    if kind == objective.HUBER and not (np.any(some) and np.ptp(delta[some]) == 0 and 0 < delta[some][0] < np.inf):
        return None
    formula, columns = (None, []) if h.code < 0 and not tree.is_free(h) else tree.formula(h, n_columns)
    clean = np.where(some, target, 0.0), np.where(some, weights, 0.0)
    bends = float(delta[some][0]) if np.any(some) else 1.0
    return Composition(formula, columns, kind, bends, *clean, n_columns)


@dataclass(frozen=True, eq=False)
class OwnGoal:
    """A fit's loss of the user's own, or a named one through a link or with a prior."""

    named: str
    loss: LossText | None  # None: the one that is named
    link: LossText | None
    columns: Any
    prior: bool = False

    @classmethod
    def of(
        cls, loss: Any, link: Any, columns: Any, known: Iterable[str], prior: bool = False, what: str = "loss"
    ) -> OwnGoal | None:
        """None for a loss that has a name, and no link and no ``prior``; ``what``: the user's word for the loss."""
        own = cls.is_text(loss, known)
        if columns is not None and not own:
            raise ArgumentError(f"loss={loss!r} takes no columns; a loss of your own does, an expression over f and y")
        if not own and link is None and not prior:
            return None
        names = () if columns is None else columns
        return cls(loss, parse_loss(loss, names, what) if own else None, parse_link(link), columns, prior)

    @staticmethod
    def is_text(loss: Any, known: Iterable[str]) -> bool:
        """Whether a loss is given as an expression, and not by a name or what may be one misspelt."""
        return isinstance(loss, str) and loss not in known and not loss.strip().isidentifier()

    @property
    def text(self) -> LossText:
        """The loss, of the user's own."""
        assert self.loss is not None
        return self.loss

    @property
    def link_text(self) -> str:
        return USUAL[F] if self.link is None else self.link.text

    @property
    def words(self) -> str:
        words = self.named if self.link is None else f"{self.named}, link {self.link.text}"
        return f"{words}, prior" if self.prior else words

    def composed(self, points: LossPoints, n_columns: int, fitting: bool) -> Composition:
        if self.loss is None:
            return unchanged(points, self.link, n_columns)
        return compose(linked(self.loss, self.link), points, n_columns, fitting)

    def composed_as_sum(self, points: LossPoints, n_columns: int) -> Composition:
        """A loss of the user's own, as it stands."""
        return compose(linked(self.text, self.link), points, n_columns, recognise=False)


# ── the loss as a tree ───────────────────────────────────────────────────────────────


class _Branch(NamedTuple):
    """A part of the loss: its tokens begin:end, its operator's code (-1: a leaf), its operands."""

    begin: int
    end: int
    code: int
    operands: tuple[_Branch, ...]


class AffinePart(NamedTuple):
    """A part of a loss as ``scale * (inside + shift)``."""

    scale: np.ndarray
    shift: np.ndarray
    inside: _Branch


class LossTree:
    """The tokens of a loss, part by part, and what those without f are at every point."""

    def __init__(self, loss: LossText, points: LossPoints) -> None:
        self.loss, self.points = loss, points
        stack: list[_Branch] = []
        for t, (kind, value) in enumerate(zip(loss.kinds.tolist(), loss.values.tolist(), strict=True)):
            row = defined.row(value) if kind == OPERATOR else None
            n = row.arity if row is not None else 0
            operands = tuple(stack[len(stack) - n :])
            del stack[len(stack) - n :]
            stack.append(_Branch(operands[0].begin if n else t, t + 1, value if n else -1, operands))
        (self.root,) = stack

    def with_columns(self, fast: bool) -> tuple[LossText, LossPoints]:
        """The loss with every part without f that takes an operator as a column."""
        names, columns = list(self.loss.columns), dict(self.points.columns)

        def column(node: _Branch, reciprocal: bool = False) -> list[tuple[int, int]]:
            name = f"{b''.join(map(np.ndarray.tobytes, self.tokens(node))).hex()} {reciprocal}"  # no user's
            if name not in columns:
                names.append(name)
                with np.errstate(all="ignore"):
                    columns[name] = 1 / self.value(node) if reciprocal else self.value(node)
            return [(VARIABLE, len(USUAL) + names.index(name))]

        def written(node: _Branch) -> list[tuple[int, int]]:
            if node.code >= 0 and self.is_free(node) and self._varies(node):
                return column(node)
            if node.code == ops.DIV and self.is_free(node.operands[1]) and self._varies(node.operands[1]):
                a, b = node.operands
                if fast or self._has_reciprocals(b):
                    return [*written(a), *column(b, reciprocal=True), (OPERATOR, ops.MUL)]
            kinds, values = self.tokens(node)
            inner = [token for operand in node.operands for token in written(operand)]
            return [*inner, (int(kinds[-1]), int(values[-1]))]

        kinds, values = zip(*written(self.root), strict=True)
        tokens = np.array(kinds, np.uint8), np.array(values, np.uint64)
        return LossText(self.loss.text, *tokens, tuple(names)), self.points._replace(columns=columns)

    def without_weights(self) -> LossText:
        """The loss without the weights if they are an outermost factor and stand nowhere else, else itself."""
        for weights, rest in (self.root.operands, self.root.operands[::-1]) if self.root.code == ops.MUL else ():
            kinds, values = self.tokens(rest)
            if self.leaf(weights) == W and not self.is_free(rest) and not np.any((kinds == VARIABLE) & (values == W)):
                return LossText(self.loss.text, kinds, values, self.loss.columns)
        return self.loss

    def _has_reciprocals(self, node: _Branch) -> bool:
        """Whether those are ordinary numbers, also in float32."""
        with np.errstate(all="ignore"):
            size = np.abs(self.value(node))
        return bool(np.all((size > SMALL) & (size < 1 / SMALL)))

    def _varies(self, node: _Branch) -> bool:
        """Whether it is a number of its own at every point."""
        return bool(np.any(self.tokens(node)[0] == VARIABLE))

    def tokens(self, node: _Branch) -> tuple[np.ndarray, np.ndarray]:
        return self.loss.kinds[node.begin : node.end], self.loss.values[node.begin : node.end]

    def leaf(self, node: _Branch) -> int:
        """The variable that a part is; -1: more than that, or none."""
        kinds, values = self.tokens(node)
        return int(values[0]) if len(kinds) == 1 and kinds[0] == VARIABLE else -1

    def is_free(self, node: _Branch) -> bool:
        """Whether there is no f in it."""
        kinds, values = self.tokens(node)
        return not np.any((kinds == VARIABLE) & (values == F))

    def value(self, node: _Branch) -> np.ndarray:
        """The value of a part without f at every point, float64 (n_points,)."""
        from exprkit.backends.reference.engine import Engine

        kinds, values = self.tokens(node)
        points, n_points = self.points, len(self.points.y)
        X = np.column_stack([np.zeros(n_points), points.y, points.weights, *points.columns.values()])
        pop, out = Population(kinds, values, [0, len(kinds)]).expanded(), np.empty((1, 1, n_points))
        Engine(pop, X, precision="ieee", dtype=X.dtype).evaluate(np.empty((1, 1, 0)), out)
        return out[0, 0]

    def without_factors(self, node: _Branch) -> AffinePart:
        """``scale * inside``."""
        return self._walk(node, (ops.MUL, ops.DIV, ops.NEG))

    def affine(self, node: _Branch) -> AffinePart:
        """``scale * (inside + shift)``."""
        return self._walk(node, (ops.MUL, ops.DIV, ops.NEG, ops.ADD, ops.SUB))

    def _walk(self, node: _Branch, allowed: tuple[int, ...]) -> AffinePart:
        """Take off operators one of whose operands has no f, as long as there are any."""
        scale, shift = np.ones(len(self.points.y)), np.zeros(len(self.points.y))
        while node.code in allowed:
            if node.code == ops.NEG:
                scale, shift = -scale, -shift
                node = node.operands[0]
                continue
            a, b = node.operands
            if self.is_free(a) == self.is_free(b) or (node.code == ops.DIV and self.is_free(a)):
                break
            free, other = (a, b) if self.is_free(a) else (b, a)
            v = self.value(free)
            if node.code in (ops.MUL, ops.DIV):
                scale, shift = (scale * v, shift / v) if node.code == ops.MUL else (scale / v, shift * v)
            elif node.code == ops.SUB and free is b:
                shift = shift - v
            else:
                shift = shift + v
                if node.code == ops.SUB:  # v - h is -(h - v)
                    scale, shift = -scale, -shift
            node = other
        return AffinePart(scale, shift, node)

    def outermost(self, node: _Branch) -> tuple[int, _Branch | None, np.ndarray]:
        """(kind, what it is of, where Huber's loss bends); None for what is no loss that backends know."""
        none = np.zeros(len(self.points.y))
        operands = node.operands
        is_square = node.code == ops.MUL and all(map(np.array_equal, *map(self.tokens, operands)))
        if node.code == ops.SQR or is_square or (node.code == ops.POW and self._is_two(operands[1])):
            return objective.SQUARES, operands[0], none
        if node.code == ops.ABS:
            return objective.ABSOLUTE, operands[0], none
        row = defined.row(node.code) if node.code >= 0 else None
        is_huber = isinstance(row, defined.Definition) and row.text == ops.HUBER
        if is_huber and not self.is_free(operands[0]) and self.is_free(operands[1]):
            return objective.HUBER, operands[0], self.value(operands[1])
        return -1, None, none

    def _is_two(self, node: _Branch) -> bool:
        kinds, values = self.tokens(node)
        return len(kinds) == 1 and kinds[0] == CONSTANT and values.view(np.float64)[0] == 2

    def formula(self, node: _Branch, n_columns: int) -> tuple[tuple[np.ndarray, np.ndarray], list[np.ndarray]]:
        """(kinds, values) of a part with f as operand 0, and the columns that it reads, behind those of X."""
        kinds, values = self.tokens(node)
        numbered, columns = _numbered(kinds, values, self.points, n_columns)
        kinds = np.where((kinds == VARIABLE) & (values == F), OPERAND, kinds).astype(np.uint8)
        written = formulas.expanded(kinds, numbered, np.array([0, len(kinds)]), formulas.user_formulas())
        return (written.kinds, written.values), columns
