"""Curve shapes with several parameters inside operators, each fitted from several starts.

In: a ``Sample``, operators.  Out: formulas with their numbers, the best of each size, such as
``a + b * exp(c * h) * sin(d * h + e)``: growth, decay, peaks, oscillations, saturation, which no lookup finds.

    >>> import numpy as np
    >>> from exprkit.expressions.arguments import rows
    >>> from exprkit.expressions.parser import parse
    >>> from exprkit.regression.shapes.curves import curves
    >>> from exprkit.regression.problem.sample import Sample
    >>> X = np.linspace(0.1, 6, 60)[:, None]
    >>> sample = Sample(X, 2 * np.exp(-0.4 * X[:, 0]) * np.sin(3 * X[:, 0] + 1) + 5)
    >>> found = [one for some in curves(sample, rows(["+", "*", "exp", "sin"]), seed=0) for one in some]
    >>> bool(sample.is_exact(np.array([one(X) for one in found])).any())
    True

h is a variable, or two of them under a binary operator.  An inner function has one to three numbers, those that its
operator does not make a factor or a summand of the result: ``exp(c * h)`` has no summand inside, ``log(h + c)`` no
factor.  With three it is a power of what another one makes with a 1.  A shape is a number and a factor around one, also
times a line of a variable or of another one; a product of two, or a sum of two.  Very many shapes are fitted
roughly, at few rows, from few starts and for few steps; the best of them in earnest.  A start is drawn by what its
number does: a rate from the spread of h, a place from its range.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from exprkit.distributed.sharing import helpers
from exprkit.expressions.expression import Expression
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.fitting.fit import FitProblem
from exprkit.operators import defined, ops
from exprkit.regression.formulas.parameters import as_constants
from exprkit.regression.formulas.simplify import simplified
from exprkit.regression.formulas.values import values_of
from exprkit.regression.pairs.links import inverse
from exprkit.regression.pairs.pool import is_power
from exprkit.regression.problem.sample import Sample
from exprkit.regression.sums.formulas import Around, weighted
from exprkit.regression.sums.inside import is_logarithm

MOST_ARGUMENTS, MOST = 18, 3_000  # functions h (variables first), and shapes of a kind,
KEPT = 200  # of which so many are fitted in earnest; of fewer as large a share
SIMPLEST, WITHIN = 2, 3  # kinds that are tried below a 1 at once, and within operators as well
LINEAR, RATE, OVER, ANGLE, WIDTH, PHASE, PLACE, SHIFT, POWER, FACTOR, SIGNED, SQUARE = range(12)  # what a number does
_AT = np.array([0.11, 0.37, 0.52, 0.83])


class Effort(NamedTuple):
    """Of a fit of all shapes."""

    rows: int
    starts: int
    max_iter: int


ROUGH, EARNEST = Effort(48, 4, 20), Effort(200, 16, 40)
Role = tuple[int, int]  # what a number is, and of which h


class InnerFunction(NamedTuple):
    """A function of h; ``text`` has a ``{}`` for each number."""

    text: str
    roles: tuple[Role, ...]


Shape = InnerFunction  # the same of a whole formula, whose linear numbers belong to no h
_Kind = tuple[list[Shape], np.ndarray]  # and the values of all h


def curves(
    sample: Sample, operators: Sequence[defined.Written], seed: int, threads: int | None = None,
    go_on: Callable[[], None] = lambda: None, count: Callable[[int], None] = lambda n: None, most: int = MOST,
) -> Iterator[list[Expression]]:  # fmt: skip
    """The best formulas of one kind of shapes after the other, at last within an operator or below a 1.

    Of variables first, then of pairs of them as well.

    Parameters
    ----------
    sample : Sample
        Whose weighted squared errors are to be small.
    go_on, count
        Called before every fit, and with the number of shapes.
    most : int
        Shapes of a kind.
    """
    names = [f"x{k + 1}" for k in np.flatnonzero(np.ptp(sample.X, axis=0) > 0)[:MOST_ARGUMENTS]]
    if not names or not {ops.ADD, ops.MUL} <= {row.code for row in operators}:
        return
    levels: list[list[_Kind]] = []
    for functions in dict.fromkeys([(*names,), (*_arguments(names, operators),)]):
        h = values_of(list(parse(functions)), sample.X, threads)
        usable = np.isfinite(h).all(axis=1) & (h != h[:, :1]).any(axis=1)
        chosen, h = [text for text, use in zip(functions, usable, strict=True) if use], h[usable]
        levels.append([(shapes[:most], h) for shapes in _kinds(chosen, h, len(names), operators) if shapes])
    for place, kinds in _order(levels, operators):
        if (inside := weighted(place, sample)) is None:
            continue
        part = sample.with_y(inside[0]).with_weights(inside[1])
        for shapes, h in kinds:
            count(len(shapes))
            made = _fitted(shapes, -(-KEPT * min(most, MOST) // MOST), h, part, seed, threads, go_on)
            yield [simplified(place.expression(one)) for one in made]


def _order(
    levels: list[list[_Kind]], operators: Sequence[defined.Written]
) -> Iterator[tuple[Around, list[_Kind]]]:  # fmt: skip
    """Shapes of variables alone first, the simplest also below a 1; then of pairs of them; then within operators."""
    places = _places(operators)
    for kinds in levels:
        for some in (kinds[:SIMPLEST], kinds[SIMPLEST:WITHIN]):
            yield from ((place, some) for place in places if place.outer is None)
        yield Around(None, False), kinds[WITHIN:]
    for place in places:
        if place.outer is not None:
            yield place, [kind for kinds in levels for kind in kinds[:WITHIN]]


def _places(operators: Sequence[defined.Written]) -> list[Around]:
    """What a shape may stand in: nothing, below a 1, within a power, a logarithm or what undoes that."""
    unary = [row for row in operators if row.arity == 1]
    logarithms = [row for row in unary if is_logarithm(row)]
    plain = [row for row in unary if is_power(row) or row in logarithms or inverse(row) in logarithms]
    over = [Around(None, True)] * any(row.code == ops.DIV for row in operators)
    return [Around(None, False), *over, *(Around(row, False) for row in plain if inverse(row) is not None)]


def _fitted(
    shapes: list[Shape], kept: int, h: np.ndarray, sample: Sample, seed: int, threads: int | None,
    go_on: Callable[[], None],
) -> list[Expression]:
    pop = parse([_with_parameters(shape.text) for shape in shapes])
    roles = _as_arrays(shapes, pop.max_params)
    params = np.empty((0, *roles.shape[:2]))
    scale = float(np.abs(sample.y).max()) or 1.0
    for how in (ROUGH, EARNEST):
        go_on()
        part = sample.subsample(min(how.rows, len(sample)), seed)
        problem = FitProblem(
            part.X, part.y / scale, weights=part.w / part.w.mean(), max_iter=how.max_iter, backend="cpu",
            dtype="float64", accuracy="screen", threads=threads, client=helpers(),
        )  # fmt: skip
        found = problem.fit(pop, init=np.concatenate([params, _starts(roles, h, how.starts, seed)]))
        loss = np.where(_are_usual(found.params, roles, h), found.loss, np.nan)
        best = np.argsort(loss, kind="stable")[: min(kept, int(np.isfinite(loss).sum()))]
        if not len(best):
            return []
        pop = pop[best]
        roles, params = roles[best, : pop.max_params], np.nan_to_num(found.params[None, best, : pop.max_params])
    return _front(pop, np.where(roles[..., 0] == LINEAR, scale, 1.0) * params[0])


def _front(pop: Population, params: np.ndarray) -> list[Expression]:
    """Of formulas in the order of their losses those that nothing smaller is as good as."""
    sizes = pop.n_tokens
    best = np.flatnonzero(sizes < np.minimum.accumulate(np.append(np.iinfo(np.int64).max, sizes))[:-1])
    return list(as_constants(pop[best], params[best]))


# ── shapes ──


def _arguments(names: list[str], operators: Sequence[defined.Written]) -> list[str]:
    """What h may be, variables first."""
    arithmetic = [row for row in operators if row.code in (ops.ADD, ops.SUB, ops.MUL, ops.DIV)]
    pairs = list(itertools.combinations(names, 2))
    made = [f"{a} {row.infix} {b}" for row in arithmetic for a, b in pairs]
    made += [f"{b} {row.infix} {a}" for row in arithmetic if row.code == ops.DIV for a, b in pairs]
    return (names + made)[:MOST_ARGUMENTS]


def _kinds(
    functions: Sequence[str], h: np.ndarray, n_vars: int, operators: Sequence[defined.Written]
) -> Iterator[list[Shape]]:
    """Lists of shapes: ``g * inner``, ``(a + b * g) * inner``, products of two, sums with a variable, sums of two."""
    inner = [list(_inners(f"({name})", k, bool((h[k] >= 0).all()), operators)) for k, name in enumerate(functions)]
    every = [one for some in inner for one in some]
    plain = [[InnerFunction(form, ()) for form in _plain(x, operators)] for x in functions[:n_vars]]
    factors = [InnerFunction(g, ()) for g in functions]
    if any(row.code == ops.DIV for row in operators):
        factors += [InnerFunction(f"1 / {x}", ()) for x in functions[:n_vars]]
    alone = every + [_product(g, one) for g in factors for one in every]
    yield [_line(one) for one in alone[:MOST]]
    of_variables = [one for some in inner[:n_vars] for one in some]
    yield [_beside(g, one) for g in factors for one in of_variables][:MOST]
    few = sorted(every, key=lambda one: len(one.roles))[: int((2 * MOST) ** 0.5)]  # of all functions h the simplest
    pairs = list(itertools.combinations_with_replacement(few, 2))
    yield [_line(_product(one, other)) for one, other in pairs]
    terms = of_variables + [_product(InnerFunction(g, ()), one) for g in functions for one in of_variables]
    yield list(itertools.islice((_line(one, other) for some in plain for one in some for other in terms), MOST))
    yield [_line(one, other) for one, other in pairs]
    of_two = [one for one in itertools.permutations(of_variables, 2) if one[0].roles[0][1] != one[1].roles[0][1]]
    yield [_beside(one, other) for one, other in of_two[:MOST]]


def _plain(x: str, operators: Sequence[defined.Written]) -> list[str]:
    """Functions of a variable without a number inside."""
    has_squares, has_quotients = any(map(_is_square, operators)), any(row.code == ops.DIV for row in operators)
    squares, quotients = [f"{x} ^ 2"] * has_squares, [f"1 / {x}"] * has_quotients
    return [x, *squares, *quotients, *[f"{x} ^ -2"] * (has_squares and has_quotients)]


def _inners(h: str, k: int, is_positive: bool, operators: Sequence[defined.Written]) -> Iterator[InnerFunction]:
    """The functions of an h with a number or two inside."""
    codes = {row.code for row in operators}
    unary = [row for row in operators if row.arity == 1]
    logarithms = [row for row in unary if is_logarithm(row)]
    has_logarithms = any(inverse(row) in unary for row in logarithms)
    has_powers = is_positive and (ops.POW in codes or has_logarithms)
    waves: list[defined.Written] = []
    for row in (row for row in unary if not is_power(row)):
        name = row.name
        if row in logarithms:
            yield InnerFunction(f"{name}({h} + {{}})", ((SHIFT, k),))
        elif _is_exponential(row):
            yield InnerFunction(f"{name}({{}} * {h})", ((RATE, k),))
            if ops.DIV in codes:
                yield InnerFunction(f"{name}({{}} / {h})", ((OVER, k),))
            if any(map(_is_square, operators)):
                yield InnerFunction(f"{name}({{}} * ({h} - {{}}) ^ 2)", ((WIDTH, k), (PLACE, k)))
            if has_powers:
                yield InnerFunction(f"{name}({{}} * {h} ^ {{}})", ((RATE, k), (POWER, k)))
            yield InnerFunction(f"{name}({{}} * {name}({{}} * {h}))", ((SIGNED, k), (RATE, k)))
            if ops.DIV in codes:
                yield InnerFunction(f"1 / ({name}({{}} * {h}) + {{}})", ((RATE, k), (SIGNED, k)))
            if ops.POW in codes or has_logarithms:
                yield InnerFunction(f"({{}} * {name}({{}} * {h}) + 1) ^ {{}}", ((FACTOR, k), (RATE, k), (POWER, k)))
        elif _is_periodic(row):
            if not waves:
                yield InnerFunction(f"{name}({{}} * {h} + {{}})", ((ANGLE, k), (PHASE, k)))
            waves.append(row)
        else:
            yield InnerFunction(f"{name}({{}} * ({h} - {{}}))", ((RATE, k), (PLACE, k)))
    if ops.DIV in codes:
        yield InnerFunction(f"1 / ({h} - {{}})", ((PLACE, k),))
        if any(map(_is_square, operators)):
            yield InnerFunction(f"1 / (({h} - {{}}) ^ 2 + {{}})", ((PLACE, k), (SQUARE, k)))
        if has_powers:
            yield InnerFunction(f"1 / ({h} ^ {{}} + {{}})", ((POWER, k), (FACTOR, k)))
    if has_powers:
        yield InnerFunction(f"{h} ^ {{}}", ((POWER, k),))
        yield InnerFunction(f"({h} + {{}}) ^ {{}}", ((SHIFT, k), (POWER, k)))
        yield InnerFunction(f"(({{}} * {h}) ^ {{}} + 1) ^ {{}}", ((ANGLE, k), (POWER, k), (POWER, k)))


def _is_exponential(row: defined.Written) -> bool:
    """Whether a summand of the operand is a factor of the result."""
    with np.errstate(all="ignore"):
        return bool(np.ptp(row.numpy(_AT + 1.5) / row.numpy(_AT)) < 1e-12)


def _is_square(row: defined.Written) -> bool:
    return row.code == ops.POW or (row.arity == 1 and is_power(row) and bool(row.numpy(3.0) == 9))


def _is_periodic(row: defined.Written) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.allclose(row.numpy(_AT + 2 * np.pi), row.numpy(_AT), rtol=1e-9))


def _product(one: InnerFunction, other: InnerFunction) -> InnerFunction:
    return InnerFunction(f"({one.text}) * ({other.text})", one.roles + other.roles)


def _line(*terms: InnerFunction) -> Shape:
    """A number, and every term times one."""
    text = " + ".join(["{}", *(f"{{}} * ({term.text})" for term in terms)])
    roles = [(LINEAR, 0)]
    for term in terms:
        roles += [(LINEAR, 0), *term.roles]
    return Shape(text, tuple(roles))


def _beside(one: InnerFunction, other: InnerFunction) -> Shape:
    """A number, and the other times a line of the one."""
    linear = (LINEAR, 0)
    return Shape(f"{{}} + ({{}} + {{}} * ({one.text})) * ({other.text})", (linear,) * 3 + one.roles + other.roles)


def _with_parameters(text: str) -> str:
    return text.format(*(f"p{k + 1}" for k in range(text.count("{}"))))


# ── starts ──


def _as_arrays(shapes: Sequence[Shape], width: int) -> np.ndarray:
    """int (n_shapes, width, 2): roles and places of h; -1 where there is no number."""
    found = np.full((len(shapes), width, 2), -1)
    for k, shape in enumerate(shapes):
        found[k, : len(shape.roles)] = shape.roles
    return found


def _starts(roles: np.ndarray, h: np.ndarray, n_starts: int, seed: int) -> np.ndarray:
    """(n_starts, n_shapes, width): by what a number is and the values of its h."""
    random = np.random.Generator(np.random.Philox([seed, n_starts]))
    u, far, sign = random.random((3, n_starts, *roles.shape[:2]))
    sign = np.where(sign < 0.5, -1.0, 1.0)
    low, high, spread = _range(roles, h)
    beyond = spread * 10 ** (3.5 * u - 2)
    inside = np.where(far < 0.5, low + u * (high - low), np.where(sign > 0, high, low) + sign * beyond)
    drawn = {
        RATE: sign * 10 ** (2.7 * u - 1.5) / spread, ANGLE: 10 ** (1.8 * u - 0.5) / spread,
        OVER: sign * 10 ** (2.7 * u - 1.5) * np.maximum(np.abs(low), np.abs(high)),
        WIDTH: -(10 ** (2.2 * u - 1)) / spread**2, PHASE: np.pi * (2 * u - 1), PLACE: inside, SHIFT: beyond - low,
        POWER: sign * 10 ** (1.5 * u - 0.7), FACTOR: 10 ** (4 * u - 2), SIGNED: sign * 10 ** (3 * u - 1.5),
        SQUARE: spread**2 * 10 ** (3 * u - 2.5),
    }  # fmt: skip
    return np.select([roles[..., 0] == role for role in drawn], list(drawn.values()), 1.0)


def _are_usual(params: np.ndarray, roles: np.ndarray, h: np.ndarray) -> np.ndarray:
    """By shape, whether its numbers are such that a curve can be told from a line: almost all of them are near one."""
    low, high, spread = _range(roles, h)
    role, size = roles[..., 0], np.abs(params)
    least, most = np.zeros_like(size), np.full_like(size, np.inf)
    for one, (unit, (a, b)) in {
        RATE: (1 / spread, (0.02, 100)), ANGLE: (1 / spread, (0.1, 300)), WIDTH: (1 / spread**2, (0.02, 300)),
        OVER: (np.maximum(np.abs(low), np.abs(high)), (0.002, 100)), POWER: (1.0, (0.02, 30)),
    }.items():  # fmt: skip
        least, most = np.where(role == one, a * unit, least), np.where(role == one, b * unit, most)
    off = np.isin(role, [PLACE, SHIFT])
    middle = np.where(role == PLACE, 1, -1) * (low + high) / 2
    size, most = np.where(off, np.abs(params - middle), size), np.where(off, 50 * spread, most)
    fine = (size >= least) & (size <= most)
    return np.asarray((fine | (role < 0)).all(axis=1))


def _range(roles: np.ndarray, h: np.ndarray) -> tuple[np.ndarray, ...]:
    """The least, the largest, and the standard deviation of what every number belongs to."""
    return tuple(part[roles[..., 1]] for part in (h.min(axis=1), h.max(axis=1), h.std(axis=1)))
