"""Algebraic simplification of formulas to the fewest tokens.

In: an ``Expression`` without parameters.  Out: one with the same values up to rounding, of as few tokens or fewer.

    >>> import exprkit as ek
    >>> from exprkit.regression.formulas.simplify import simplified
    >>> print(simplified(ek.parse("3 * (x1 * 2) / (4 / x2) - (0 - x1) * 1")[0]))
    1.5 * x1 * x2 + x1

Method: a product is a number times powers of distinct bases (``_Factors``), a sum is a list of products.  Like factors
and like terms are collected, and of the equal trees of a node the one of fewest nodes is taken, from the leaves up.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from exprkit.expressions.expression import Expression
from exprkit.operators import defined, ops
from exprkit.regression.formulas.numbers import CACHE_SIZE, CLOSE, plain_numbers
from exprkit.regression.formulas.trees import Tree, expression_of, nodes, replacements, tree_of
from exprkit.regression.problem.effort import WORK
from exprkit.runtime.budget import spend
from exprkit.text.tokens import CONSTANT, OPERATOR


def simplified(expression: Expression) -> Expression:
    """The expression in its shortest form, or itself if that is no longer."""
    spend(expression.n_tokens * WORK.simplified_token)
    tree = tree_of(expression)
    for _ in range(3):
        shorter = _simple(tree)
        if shorter == tree:
            break
        tree = shorter
    short = expression_of(tree)
    return short if short.n_tokens <= expression.n_tokens else expression


def negated(expression: Expression) -> Expression:
    """The formula times -1."""
    return simplified(expression_of((OPERATOR, ops.NEG, tree_of(expression))))


def hoisted(expression: Expression) -> list[Expression]:
    """All formulas in which an operand, or an operand's operand, takes the place of its operator."""
    return [simplified(expression_of(tree)) for tree in replacements(tree_of(expression), _operands_of_two_levels)]


def _operands_of_two_levels(tree: Tree) -> list[Tree]:
    operands = tree[2:]
    return [*operands, *(inner for operand in operands if operand[0] == OPERATOR for inner in operand[2:])]


def rescaled(expression: Expression) -> list[Expression]:
    """All formulas with the coefficient of a term factored out of one of the sums: 2 a + b as 2 (a + b / 2)."""
    return [
        plain_numbers(expression_of(_simple(tree))) for tree in replacements(tree_of(expression), _without_coefficient)
    ]


def _without_coefficient(tree: Tree) -> Iterator[Tree]:
    """A sum as each of its coefficients times what is left."""
    if _is_sum(tree):
        terms = _terms(tree, 1.0)
        for number in {abs(term.number) for term in terms} - {0.0, 1.0}:
            inner = _sum_of([term._replace(number=term.number / number) for term in terms])
            yield OPERATOR, ops.MUL, (CONSTANT, number), inner


def as_quotient(expression: Expression) -> list[Expression]:
    """The formula with its quotients of sums brought to a common denominator, where that is shorter; a list of one."""
    return [simplified(expression_of(_as_quotients(tree_of(expression))))]


def expanded(expression: Expression) -> list[Expression]:
    """All formulas with one square of a sum multiplied out, simplified."""
    squares = replacements(tree_of(expression), _square_multiplied_out)
    return [as_quotient(plain_numbers(expression_of(tree)))[0] for tree in squares]


def _square_multiplied_out(tree: Tree) -> Iterator[Tree]:
    """The square of a sum of two or three terms as a sum."""
    if tree[1] != _SQUARES.code:
        return
    factors = _product(tree[2])
    sums = [base for base, exponent in factors.powers if exponent == 1 and _is_sum(base)]
    terms = _terms(sums[0], 1.0) if len(sums) == 1 else []
    if 1 < len(terms) <= 3:
        rest = _Factors(factors.number, tuple(power for power in factors.powers if power[0] != sums[0])).to(2.0)
        products = [term.times(term) for term in terms]
        for a, b in itertools.combinations(terms, 2):
            products.append(a.times(b)._replace(number=2 * a.number * b.number))
        yield functools.reduce(_plus, (rest.times(product).tree() for product in products))


def completed(expression: Expression) -> list[Expression]:
    """All formulas with terms of a sum as the square of a sum: a^2 - 2 a b + b^2 as (a - b)^2, and a^2 + 2 a + 3."""
    tree = tree_of(expression)
    starts = [tree, *replacements(tree, _square_multiplied_out)]
    while more := next(iter(replacements(starts[-1], _square_multiplied_out)), None):  # all of them
        starts.append(more)
    squares = (square for start in starts for square in replacements(start, _squares_of_sums))
    return [simplified(expression_of(square)) for square in squares]


def _squares_of_sums(tree: Tree) -> Iterator[Tree]:
    """A sum with three of its terms as the square of a sum of two; or with two, and a number for the third."""
    terms = _multiplied_out(tree) if _is_sum(tree) else []
    yield from _completed_squares(terms)
    squares = [term for term in terms if term.number > 0 and all(exponent % 2 == 0 for _, exponent in term.powers)]
    for a, b in itertools.combinations(squares, 2):
        roots = [term._replace(number=1.0).to(0.5) for term in (a, b)]
        both, size = frozenset(roots[0].times(roots[1]).powers), 2 * math.sqrt(a.number * b.number)
        for twice in terms:
            if frozenset(twice.powers) == both and abs(abs(twice.number) - size) <= CLOSE * size:
                second = roots[1]._replace(number=math.copysign(math.sqrt(b.number / a.number), twice.number))
                square = _Factors(a.number, ((_sum_of([roots[0], second]), 2.0),))
                yield _sum_of([square, *(term for term in terms if term not in (a, b, twice))])


def _completed_squares(terms: list[_Factors]) -> Iterator[Tree]:
    """A sum of terms with a t^2 + b t as a (t + b / (2 a))^2 - b^2 / (4 a)."""
    for square, linear in itertools.permutations(terms, 2):
        root = square._replace(number=1.0).to(0.5)
        if linear.powers and frozenset(root.powers) == frozenset(linear.powers):
            shift = linear.number / (2 * square.number)
            whole = _Factors(square.number, ((_sum_of([root, _NO_POWER._replace(number=shift)]), 2.0),))
            number = _NO_POWER._replace(number=-square.number * shift**2)
            yield _sum_of([whole, number, *(term for term in terms if term not in (square, linear))])


def _multiplied_out(tree: Tree) -> list[_Factors]:
    """The terms of a sum multiplied out; none where they are more than ``MAX_TERMS``, or a quotient."""
    with contextlib.suppress(_TooManyError):
        above, below = _quotient(tree)
        return above if below == [_NO_POWER] else []
    return []


def with_signs_inside(expression: Expression) -> Expression:
    """The formula with minus signs of products moved into their sums, if not longer: 2 * (x1 - 3) for -2 * (3 - x1)."""
    return expression_of(_positive(tree_of(expression)))


def _positive(tree: Tree) -> Tree:
    if tree[0] != OPERATOR:
        return tree
    tree = (*tree[:2], *map(_positive, tree[2:]))
    factors = _product(tree) if tree[1] in (ops.MUL, ops.DIV, ops.NEG) else _NO_POWER
    trees = [tree]
    for base, exponent in factors.powers if factors.number < 0 else ():
        if _is_sum(base) and abs(exponent) == 1:
            inner = _sum_of([term._replace(number=-term.number) for term in _terms(base, 1.0)])
            powers = tuple((inner if other is base else other, e) for other, e in factors.powers)
            trees.insert(0, _Factors(-factors.number, powers).tree())
    return min(trees, key=nodes)


@functools.lru_cache(maxsize=CACHE_SIZE)
def _simple(tree: Tree) -> Tree:
    """The tree with all operands simplified, and its root by the rule of its operator."""
    if tree[0] != OPERATOR:
        return tree
    row, operands = defined.known(tree[1]), [_simple(operand) for operand in tree[2:]]
    if all(operand[0] == CONSTANT for operand in operands):
        with np.errstate(all="ignore"):
            return CONSTANT, float(row.numpy(*(np.float64(operand[1]) for operand in operands)))
    tree = (OPERATOR, row.code, *operands)
    if row.code in (ops.MUL, ops.DIV):
        return _shortest(tree)
    if row.code in (ops.ADD, ops.SUB, ops.NEG):
        return _sum(tree)
    if row.code in (_SQUARES.code, _ROOTS.code, ops.POW):
        return min(tree, _product(tree).tree(), key=nodes)
    if row.code == EXP.code:
        return min(tree, _without_logarithms(operands[0]), key=nodes)
    return _evenly(row, operands[0]) if row.arity == 1 else tree


def _evenly(row: defined.Written, inner: Tree) -> Tree:
    """An even operator without the minus sign of its operand, by the operator's own rewrite rule."""
    if row.rewrite.inner.get(ops.BY_CODE[ops.NEG].name) == row.name and inner[:2] == (OPERATOR, ops.NEG):
        inner = inner[2]
    return OPERATOR, row.code, inner


class _Factors(NamedTuple):
    """A product: a number times powers (base, exponent) of distinct bases."""

    number: float
    powers: tuple[tuple[Tree, float], ...]

    def times(self, other: _Factors) -> _Factors:
        powers = dict(self.powers)
        for base, exponent in other.powers:
            powers[base] = powers.get(base, 0.0) + exponent
        return _Factors(self.number * other.number, tuple((b, e) for b, e in powers.items() if e))

    def to(self, exponent: float) -> _Factors:
        with np.errstate(all="ignore"):
            number = float(np.float64(self.number) ** exponent)
        return _Factors(number, tuple((base, e * exponent) for base, e in self.powers))

    def together(self) -> _Factors:
        """The product with powers of equal exponents as one power of a product, and exponentials as one of a sum."""
        if len(self.powers) < 2:
            return self
        raised: dict[float, list[tuple[Tree, float]]] = {}
        for base, exponent in self.powers:
            if base[:2] == (OPERATOR, _ROOTS.code) and abs(exponent) == 1:
                base, exponent = base[2], exponent / 2
            elif base[:2] == (OPERATOR, ops.POW) and base[3][0] == CONSTANT and abs(exponent) == 1:
                base, exponent = base[2], exponent * base[3][1]
            key = 0.0 if base[:2] == (OPERATOR, EXP.code) else abs(exponent)
            raised.setdefault(key, []).append((base, exponent))
        return _Factors(self.number, tuple(power for key, group in raised.items() for power in _merged(key, group)))

    def tree(self) -> Tree:
        powers = [_above(base, exponent) for base, exponent in self.together().powers]
        above = [_power(base, exponent) for base, exponent in powers if exponent > 0]
        below = [_power(base, -exponent) for base, exponent in powers if exponent < 0]
        number = self.number
        if number == 0 or not (above or below):
            return CONSTANT, number
        leading: list[Tree] = [] if abs(number) == 1 and above else [(CONSTANT, 1.0 if number == -1 else number)]
        tree = functools.reduce(_times, leading + above)
        if below:
            tree = (OPERATOR, ops.DIV, tree, functools.reduce(_times, below))
        return (OPERATOR, ops.NEG, tree) if number == -1 else tree


def _merged(key: float, powers: list[tuple[Tree, float]]) -> list[tuple[Tree, float]]:
    """Powers whose exponents are ``key`` or its negative as one power; exponentials as one, if ``key`` is 0."""
    if len(powers) == 1 or key == 1:
        return powers
    if key == 0:
        exponent = functools.reduce(_plus, ((OPERATOR, ops.MUL, (CONSTANT, e), base[2]) for base, e in powers))
        return [((OPERATOR, EXP.code, _sum(exponent)), 1.0)]
    sign = 1.0 if any(exponent > 0 for _, exponent in powers) else -1.0
    parts = (_product(base).to(sign * exponent / key) for base, exponent in powers)
    inner = functools.reduce(_Factors.times, parts, _NO_POWER)
    return [(inner.tree(), sign * key)]


def _power(base: Tree, exponent: float) -> Tree:
    """A power as a tree; of an exponential in its exponent if that is as short, which over- and underflows later."""
    if exponent == 1:
        return base
    if base[:2] == (OPERATOR, EXP.code):
        inner = _product(base[2]).times(_Factors(exponent, ())).tree()
        return min((OPERATOR, EXP.code, inner), _raised(base, exponent), key=nodes)
    return _raised(base, exponent)


def _above(base: Tree, exponent: float) -> tuple[Tree, float]:
    """A power; 1 / exp(a) as exp(-a) if that is as short, which overflows later."""
    if exponent < 0 and base[:2] == (OPERATOR, EXP.code):
        other: Tree = (OPERATOR, EXP.code, _product(base[2]).times(_Factors(exponent, ())).tree())
        if nodes(other) <= nodes(_power(base, -exponent)):
            return other, 1.0
    return base, exponent


def _raised(base: Tree, exponent: float) -> Tree:
    for row, times in ((_SQUARES, 2.0), (_ROOTS, 0.5)):
        for depth in (1, 2):
            if exponent == times**depth:
                return functools.reduce(lambda tree, _: (OPERATOR, row.code, tree), range(depth), base)
    return OPERATOR, ops.POW, base, (CONSTANT, exponent)


def exponent_of(row: defined.Written) -> float | None:
    """The exponent of an operator that is a power of a positive operand; None if it is none."""
    at = np.array([0.3, 1.7, 5.0])
    with np.errstate(all="ignore"):
        logs = np.log(row.numpy(at)) / np.log(at)
    return float(np.round(logs[0], 9)) if np.allclose(logs, logs[0], rtol=1e-12) else None


def _unary_power(exponent: float) -> defined.Written:
    """The unary operator that raises to this power."""
    return next(row for row in ops.OPERATORS if row.arity == 1 and exponent_of(row) == exponent)


def _natural() -> tuple[defined.Written, defined.Written]:
    """The operators of the natural exponential and logarithm, identified by their values."""
    at, unary = np.array([0.3, 1.7, 5.0]), [row for row in ops.OPERATORS if row.arity == 1]
    with np.errstate(all="ignore"):
        exp = next(row for row in unary if np.allclose(row.numpy(at), math.e**at))
        return exp, next(row for row in unary if np.allclose(exp.numpy(row.numpy(at)), at))


_SQUARES, _ROOTS = _unary_power(2.0), _unary_power(0.5)
EXP, LOG = _natural()
_NO_POWER = _Factors(1.0, ())


def _times(a: Tree, b: Tree) -> Tree:
    return OPERATOR, ops.MUL, a, b


def _plus(a: Tree, b: Tree) -> Tree:
    return OPERATOR, ops.ADD, a, b


def _without_logarithms(inner: Tree) -> Tree:
    """The exponential of a sum, whose terms c log(f) become factors f^c."""
    terms = _terms(inner, 1.0)
    logs = [term for term in terms if _is_logarithm(term)]
    others = [term for term in terms if not _is_logarithm(term)]
    product = _Factors(1.0, (((OPERATOR, EXP.code, _sum_of(others)), 1.0),) if others else ())
    for term in logs:
        product = product.times(_Factors(1.0, ((term.powers[0][0][2], term.number),)))
    return product.tree()


def _is_logarithm(term: _Factors) -> bool:
    """Whether a term is a number times a logarithm."""
    return len(term.powers) == 1 and term.powers[0][1] == 1 and term.powers[0][0][:2] == (OPERATOR, LOG.code)


def _product(tree: Tree) -> _Factors:
    """A tree as a product."""
    if tree[0] == CONSTANT:
        return _Factors(tree[1], ())
    code = tree[1] if tree[0] == OPERATOR else None
    if code == ops.MUL:
        return _product(tree[2]).times(_product(tree[3]))
    if code == ops.DIV:
        return _product(tree[2]).times(_inverse(_product(tree[3])))
    if code == ops.INV:
        return _inverse(_product(tree[2]))
    if code == ops.NEG:
        return _product(tree[2]).times(_Factors(-1.0, ()))
    if code == _SQUARES.code:
        return _product(tree[2]).to(2.0)
    if code == _ROOTS.code or (code == ops.POW and tree[3][0] == CONSTANT):
        exponent = 0.5 if code == _ROOTS.code else tree[3][1]
        inner = _product(tree[2])
        return inner.to(exponent) if _is_single_power(inner, exponent) else _Factors(1.0, ((tree, 1.0),))
    return _Factors(1.0, ((tree, 1.0),))


def _is_single_power(inner: _Factors, exponent: float) -> bool:
    """Whether a product to this exponent is a number times a single power; sqrt(a^2) is not a."""
    if len(inner.powers) != 1 or inner.number <= 0:
        return False
    within = inner.powers[0][1]
    return within % 2 != 0 or (within * exponent) % 2 == 0


def _inverse(factors: _Factors) -> _Factors:
    return factors.to(-1.0) if factors.number else factors._replace(number=math.inf)


def _shortest(tree: Tree) -> Tree:
    """The shortest of a product, with a factor multiplied into a sum, or numbers taken out of exponentials.

    a * (b + c / a) is a * b + c; 2 * exp(3 + a) is 40.2 * exp(a).
    """
    factors = _product(tree)
    best, shifted = factors.tree(), _without_shifts(factors)
    if shifted != factors:
        best = min(best, shifted.tree(), key=nodes)
    sums = [base for base, exponent in factors.powers if exponent == 1 and _is_sum(base)]
    for inner in sums:
        for base, exponent in factors.powers:
            if base is inner or exponent not in (-1, 1):
                continue
            rest = _Factors(factors.number, tuple(power for power in factors.powers if power[0] not in (inner, base)))
            moved = _sum_of([term.times(_Factors(1.0, ((base, exponent),))) for term in _terms(inner, 1.0)])
            best = min(best, rest.times(_product(moved)).tree(), key=nodes)
    return best


def _without_shifts(factors: _Factors) -> _Factors:
    """The product with numbers of exponents as factors: exp(3 + a) is 20.1 * exp(a)."""
    product = _Factors(factors.number, ())
    for base, exponent in factors.powers:
        inner = _product(base[2]) if base[:2] == (OPERATOR, EXP.code) else _NO_POWER
        number = 1.0
        if len(inner.powers) == 1 and inner.powers[0][1] == 1 and _is_sum(inner.powers[0][0]):
            terms = [term._replace(number=term.number * inner.number) for term in _terms(inner.powers[0][0], 1.0)]
            with np.errstate(all="ignore"):
                shift = float(np.exp(np.float64(exponent * sum(term.number for term in terms if not term.powers))))
            if 0 < shift < math.inf:
                number, base = shift, (OPERATOR, EXP.code, _sum_of([term for term in terms if term.powers]))
        product = product.times(_Factors(number, ((base, exponent),)))
    return product


def _is_sum(tree: Tree) -> bool:
    return tree[0] == OPERATOR and tree[1] in (ops.ADD, ops.SUB)


def _logarithms(terms: list[_Factors]) -> list[_Factors]:
    """Terms with logarithms of equal coefficients as one, numbers taken out: log(2 a) - log(b) is log(a / b) + 0.7."""
    inner: dict[tuple[float, frozenset[tuple[Tree, float]]], _Factors] = {}
    collected = []
    for term in terms:
        logs = [base for base, exponent in term.powers if exponent == 1 and base[:2] == (OPERATOR, LOG.code)]
        operand = _product(logs[0][2]) if len(logs) == 1 else _NO_POWER
        if not operand.powers or not 0 < operand.number < math.inf:
            collected.append(term)
            continue
        rest = term.times(_Factors(1.0, ((logs[0], -1.0),)))
        collected.append(rest._replace(number=rest.number * math.log(operand.number)))
        key = abs(rest.number), frozenset(rest.powers)
        operand = operand._replace(number=1.0).to(math.copysign(1.0, rest.number))
        inner[key] = inner[key].times(operand) if key in inner else operand
    for (number, powers), operand in inner.items():
        sign = 1.0 if any(exponent > 0 for _, exponent in operand.powers) else -1.0
        log: Tree = (OPERATOR, LOG.code, operand.to(sign).tree())
        collected.append(_Factors(sign * number, tuple(powers)).times(_Factors(1.0, ((log, 1.0),))))
    return [term for term in collected if term.number]


def _terms(tree: Tree, sign: float) -> list[_Factors]:
    """The terms of ``sign`` times a sum; one term of any other tree."""
    code = tree[1] if tree[0] == OPERATOR else None
    if code in (ops.ADD, ops.SUB):
        second = sign if code == ops.ADD else -sign
        return _terms(tree[2], sign) + _terms(tree[3], second)
    if code == ops.NEG:
        return _terms(tree[2], -sign)
    factors = _product(tree)
    return [_Factors(sign * factors.number, factors.powers)]


def _sum(tree: Tree) -> Tree:
    """A sum with like terms collected, logarithms merged or a common factor before it, whichever is shortest."""
    terms = _terms(tree, 1.0)
    best, logarithms = _sum_of(terms), _logarithms(terms)
    if logarithms != terms:
        best = min(best, _sum_of(logarithms), key=nodes)
    for base, exponent in terms[0].powers:
        if all(dict(term.powers).get(base) == exponent for term in terms):
            common = _Factors(1.0, ((base, exponent),))
            inner = _sum_of([term.times(common.to(-1.0)) for term in terms])
            best = min(best, common.times(_product(inner)).tree(), key=nodes)
    return best


def _sum_of(terms: list[_Factors]) -> Tree:
    """The sum of terms as a tree, like terms collected, positive terms first and numbers after others."""
    collected: dict[frozenset[tuple[Tree, float]], _Factors] = {}
    for term in terms:
        key = frozenset(term.powers)
        number = term.number + (collected[key].number if key in collected else 0.0)
        collected[key] = _Factors(number, term.powers)
    numbers = [term for term in collected.values() if not term.powers and term.number]
    nonzero = [term for term in collected.values() if term.powers and term.number] + numbers
    nonzero = sorted(nonzero, key=lambda term: term.number < 0) or [_NO_POWER._replace(number=0.0)]
    tree = nonzero[0].tree()
    for term in nonzero[1:]:
        code = ops.SUB if term.number < 0 else ops.ADD
        tree = (OPERATOR, code, tree, _Factors(abs(term.number), term.powers).tree())
    return tree


# ── quotients of sums ──

MAX_TERMS = 16  # of a numerator or denominator; chosen, not measured
Terms = list[_Factors]


class _TooManyError(Exception):
    """A numerator or denominator has more than ``MAX_TERMS`` terms."""


def _as_quotients(tree: Tree) -> Tree:
    """The tree with every sum, product and quotient as one quotient of sums, where that is shorter."""
    if tree[0] != OPERATOR:
        return tree
    tree = (*tree[:2], *(_as_quotients(operand) for operand in tree[2:]))
    if tree[1] not in (ops.ADD, ops.SUB, ops.MUL, ops.DIV, ops.NEG, ops.INV):
        return tree
    try:
        above, below = _quotient(tree)
    except _TooManyError:
        return tree
    if not above or not below:
        return tree
    (common, above), (under, below) = _without_common(above), _without_common(below)
    common = common.times(_inverse(under))
    quotients = (common.times(_product(quotient)).tree() for quotient in _quotient_trees(above, below))
    return min([tree, *quotients], key=nodes)


def _quotient_trees(above: Terms, below: Terms) -> list[Tree]:
    """Trees of a quotient of sums with a coefficient of the denominator 1, also with a number split off."""
    parts: list[tuple[float, Terms, Terms]] = []
    for scale in dict.fromkeys([1.0, *(abs(term.number) for term in below)]):
        a, b = ([term._replace(number=term.number / scale) for term in terms] for terms in (above, below))
        parts += [(0.0, a, b), *_with_number(a, b)]
    inverses = [_inverse(_product(_sum(_sum_of(terms)))) for _, _, terms in parts]
    sums = [_product(_sum(_sum_of(terms))) for _, terms, _ in parts]
    trees = [product.times(inverse).tree() for product, inverse in zip(sums, inverses, strict=True)]
    return [_simple(_plus(tree, (CONSTANT, k)) if k else tree) for tree, (k, _, _) in zip(trees, parts, strict=True)]


def _with_number(above: Terms, below: Terms) -> list[tuple[float, Terms, Terms]]:
    """A quotient as numbers k plus quotients of fewer terms: (k, numerator, denominator)."""
    parts = []
    coefficients = {frozenset(term.powers): term.number for term in below}
    for term in above if len(above) > 1 else []:
        if frozenset(term.powers) in coefficients:
            k = term.number / coefficients[frozenset(term.powers)]
            rest = _collected([*above, *(other._replace(number=-k * other.number) for other in below)])
            parts += [(k, rest, below)] * (0 < len(rest) < len(above))
    return parts


def _quotient(tree: Tree) -> tuple[Terms, Terms]:
    """A tree as a quotient of two sums: terms of the numerator and of the denominator, multiplied out."""
    numerator: Terms = []
    denominator = [_NO_POWER]
    for term in _terms(tree, 1.0):
        above, below = [term._replace(powers=())], [_NO_POWER]
        for base, exponent in term.powers:
            if _is_sum(base) and exponent in (1, -1):
                inner = _quotient(base)[:: int(exponent)]
            else:
                inner = [_Factors(1.0, ((base, exponent),))], [_NO_POWER]
            above, below = _multiplied(above, inner[0]), _multiplied(below, inner[1])
        if denominator != below:
            above = _multiplied(above, denominator)
            numerator, denominator = _multiplied(numerator, below), _multiplied(denominator, below)
        numerator = _collected(numerator + above)
    return numerator, denominator


def _multiplied(a: Terms, b: Terms) -> Terms:
    """The product of two sums, multiplied out."""
    return _collected([term.times(other) for term in a for other in b])


def _collected(terms: Terms) -> Terms:
    """Terms with like ones added up, without sums that are rounding alone."""
    numbers: dict[frozenset[tuple[Tree, float]], list[float]] = {}
    for term in terms:
        numbers.setdefault(frozenset(term.powers), []).append(term.number)
    if len(numbers) > MAX_TERMS:
        raise _TooManyError
    return [
        _Factors(math.fsum(summands), tuple(powers))
        for powers, summands in numbers.items()
        if abs(math.fsum(summands)) > CLOSE * max(map(abs, summands))
    ]


def _without_common(terms: Terms) -> tuple[_Factors, Terms]:
    """The greatest common factor of all terms, and the terms divided by it."""
    bases = dict.fromkeys(base for term in terms for base, _ in term.powers)
    least = ((base, min(dict(term.powers).get(base, 0.0) for term in terms)) for base in bases)
    common = _Factors(1.0, tuple((base, exponent) for base, exponent in least if exponent))
    return common, [term.times(common.to(-1.0)) for term in terms]
