"""Links: the forms in which two functions of a pool f and h and two free numbers a and b make y.

In: the unary operators.  Out: the links that are tried, and the inverses that they are taken apart by.

    >>> from exprkit.expressions.arguments import operators_of
    >>> from exprkit.regression.pairs.links import all_links
    >>> [link.text for link in all_links(operators_of(["exp"]))][:4]
    ['f * (a + b * h)', 'f / (a + b * h)', 'f + a + b * h', 'f * exp(a + b * h)']

An inverse is found by values in the table of operators: ``log`` is what makes x of ``exp(x)``.  Where an operator
takes several numbers to one (``sin``), its inverse is one of them, and only data in that range are understood.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.operators import defined, ops
from exprkit.regression.formulas.trees import expression_of, replaced_variables, tree_of

TIMES, OVER, PLUS, LESS, MINUS = range(5)  # how f stands with the rest: f times it, over it, and it, less it; it less f
HIDDEN = 1e4  # times its size may be the summand f of a value: more would be cancelled, and hide it
SAME = 1e-9  # to within which an inverse has to lead back to where it came from
_AT = np.array([0.11, 0.37, 0.52, 0.83])  # where inverses are recognised; every operator of the table is defined there


@functools.cache
def _parsed(text: str) -> Expression:
    return parse([text])[0]


class Undone(NamedTuple):
    """A function that no operator of a search undoes, and its inverse, as texts over x1."""

    name: str
    inverse: str

    def numpy(self, x: np.ndarray) -> np.ndarray:
        return np.asarray(_parsed(self.name)(x[:, None]))

    def undoing(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(_parsed(self.inverse)(y[:, None]))


UNDONE = tuple(Undone(*texts) for texts in ops.INVERSES)
INVERSE = Undone("1 / x1", "1 / x1")


class Link(NamedTuple):
    """``outer(f * inner(a + b h))``, with ``/``, ``+`` or ``-`` in the place of ``*``; None: no operator there."""

    outer: defined.Written | Undone | None
    way: int
    inner: defined.Written | None

    @property
    def text(self) -> str:
        z = "a + b * h" if self.way == PLUS else "(a + b * h)"
        z = f"{self.inner.name}(a + b * h)" if self.inner else z
        body = f"{z} - f" if self.way == MINUS else f"f {'*/+-'[self.way]} {z}"
        return f"{self.outer.name}({body})" if self.outer else body

    def behind(self, y: np.ndarray) -> np.ndarray | None:
        """The value behind the outer operator, of f and the rest; None where no operand gives this y."""
        return y if self.outer is None else inverted(self.outer, y)

    def linear_part(self, v: np.ndarray, f: np.ndarray) -> np.ndarray:
        """The values of ``a + b h`` for a v of ``behind``, nan where there is none; any shapes that broadcast."""
        with np.errstate(all="ignore"):
            q = remainder(self.way, v, f)
            if self.way in (PLUS, LESS, MINUS):
                q = np.where(np.abs(f) <= HIDDEN * np.abs(v), q, np.nan)
            if self.inner is None:
                return q
            z = inverse(self.inner).numpy(q)  # type: ignore[union-attr]
            back = self.inner.numpy(z)
            return np.where(np.abs(back - q) <= SAME * np.abs(q), z, np.nan)

    def expression(self, f: Expression | None, z: Expression) -> Expression:
        """The whole, ``z`` being the linear part; an f that is None is 1 (or 0, of a sum)."""
        body = z if self.inner is None else Expression.applied(self.inner, z)
        if f is not None:
            body = beside(self.way, f, body)
        elif self.way == OVER:
            body = 1.0 / body
        return body if self.outer is None else around_of(self.outer, body)


def remainder(way: int, v: np.ndarray, f: np.ndarray) -> np.ndarray:
    """The rest that v has beside f, by the way in which they are combined."""
    with np.errstate(all="ignore"):
        if way in (TIMES, OVER):
            return v / f if way == TIMES else f / v
        return v - f if way == PLUS else f - v if way == LESS else v + f


def beside(way: int, f: Expression, rest: Expression) -> Expression:
    """f and the rest combined in a way, as an expression."""
    return (f.__mul__, f.__truediv__, f.__add__, f.__sub__, f.__rsub__)[way](rest)


@functools.cache
def _inverses() -> dict[int, defined.Written]:
    """By an operator's code the one that undoes it."""
    unary = [row for row in ops.OPERATORS if row.arity == 1]
    inverses: dict[int, defined.Written] = {}
    for row in unary:
        for other in unary:
            with np.errstate(all="ignore"):
                back = other.numpy(row.numpy(_AT))
            if row.code not in inverses and np.allclose(back, _AT, rtol=1e-9) and not np.allclose(row.numpy(_AT), _AT):
                inverses[row.code] = other
    return inverses


def inverse(row: defined.Written) -> defined.Written | None:
    """The operator that undoes this one, or None."""
    return _inverses().get(row.code)


def around_of(row: defined.Written | Undone, body: Expression) -> Expression:
    """A formula within an operator, or within a function that no operator undoes."""
    if not isinstance(row, Undone):
        return Expression.applied(row, body)
    return expression_of(replaced_variables(tree_of(_parsed(row.name)), [tree_of(body)]))


def inverted(row: defined.Written | Undone, y: np.ndarray) -> np.ndarray | None:
    """The operand for which an operator gives y; None where there is none, or no inverse."""
    x, known = operands(row, y)
    return x if known.all() else None


def operands(row: defined.Written | Undone, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The operands for which an operator gives y, and where there are any, both of y's shape."""
    undoing = row.undoing if isinstance(row, Undone) else getattr(inverse(row), "numpy", None)
    if undoing is None:
        return y, np.zeros(y.shape, np.bool_)
    with np.errstate(all="ignore"):
        x = undoing(y)
        return x, np.isfinite(x) & (np.abs(row.numpy(x) - y) <= SAME * np.abs(y))


def _is_odd(row: defined.Written) -> bool:
    """Whether f(-x) = -f(x)."""
    with np.errstate(all="ignore"):
        return bool(np.array_equal(row.numpy(-_AT), -row.numpy(_AT)))


def pair_numbers(f: np.ndarray, h: np.ndarray, link: Link, y: np.ndarray) -> tuple[float, float] | None:
    """a and b of a pair of a link without inner operator, in the terms of what is behind the outer one."""
    v = link.behind(y)
    with np.errstate(all="ignore"):
        f = 1 / f if link.way == OVER else f
        columns = np.column_stack([f, f * h])
        scale = 1 / np.abs(columns).max(axis=0)
    if v is None or not np.isfinite(columns * scale).all():
        return None
    a, b = np.linalg.lstsq(columns * scale, v, rcond=None)[0] * scale
    return (float(a), float(b)) if np.isfinite([a, b]).all() and b != 0 else None


def all_links(
    unary: Sequence[defined.Written], outermost: Sequence[defined.Written | Undone] = (), divides: bool = True
) -> list[Link]:
    """All links with at most one of these operators, the simplest first; some may be outer ones only.

    ``INVERSE`` stands around sums alone: a product has its reciprocal among the others.
    """
    able = [row for row in unary if inverse(row) is not None]
    plain = [Link(None, way, None) for way in (TIMES, OVER, PLUS)]
    inner = [Link(None, way, row) for row in able for way in range(5) if way != LESS or not _is_odd(row)]
    around = (*able, *(row for row in outermost if row != INVERSE))
    outer = [Link(row, way, None) for row in around for way in (TIMES, PLUS, OVER)]
    sums = [Link(None, PLUS, None), *(link for link in inner if link.way in (PLUS, LESS, MINUS))]
    reciprocals = [link._replace(outer=INVERSE) for link in sums if divides and INVERSE in outermost]
    return [link for link in plain + inner + outer if divides or link.way != OVER] + reciprocals
