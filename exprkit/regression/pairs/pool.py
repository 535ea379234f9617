"""The pool: distinct functions of the variables and small constants, made size by size and compared by their values.

In: a few points of the data, operators.  Out: the functions' values there, and how each is made of smaller ones.

    >>> import numpy as np
    >>> from exprkit.expressions.arguments import operators_of
    >>> from exprkit.regression.pairs.pool import Pool
    >>> points = np.random.default_rng(0).uniform(1, 2, (16, 2))
    >>> pool = Pool(points, operators_of(["+", "*", "/"]), constants=[1.0])
    >>> pool.grow(3, most=1000)
    >>> len(pool), str(pool.expression(7))
    (15, 'x2 + 1')

A function is a row of values, and is kept where no function of the same size or less has the same values up to
their sign: what differs by rounding alone is one function.  Left out are functions that are not finite or the same
everywhere, differences of which little more than rounding is left, and operators where they magnify rounding
(``sin`` of 1e20).  An operator that is no power (``exp``, ``sin``, ...) is not put inside another one.

Sizes are counted in tokens; ``-f`` inside of a function costs one.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from exprkit.expressions.exhaustive import operand_sizes
from exprkit.expressions.expression import Expression
from exprkit.operators import defined, ops
from exprkit.regression.formulas.trees import Tree, expression_of, function_of
from exprkit.runtime import slices
from exprkit.runtime.bags import empty, larger
from exprkit.runtime.budget import check
from exprkit.runtime.hashes import GOLDEN
from exprkit.runtime.jit import compiled, inline
from exprkit.text.tokens import CONSTANT, OPERATOR, VARIABLE

CHUNK = 1 << 15  # combinations that a thread takes at a time
LEAF, NEGATED = 0, 256  # of ``made_by``: no operator; added where the operand is negated first
LARGEST = 1e150  # values beyond it, or all below its inverse, are no part of a law
CANCELLED = 1e-9  # what is left of a difference, as a share of its operands
FLAT = 1e-9  # variation of a function that counts as none, as a share of its size
SHIFT = 2.0**-40  # of an operand, to see how much an operator magnifies rounding
MAGNIFIED = 1e-6
ROUNDED, HALF = np.uint64(20), np.uint64(1 << 19)  # bits of a value that a hash leaves out: within 1e-10 two are one
SIGN, HASHED = np.uint64(1 << 63), np.uint64(0xFF51AFD7ED558CCD)
EMPTY = -1
PRODUCTS = 10  # combinations for every function that there is room for beside a full pool
FACTOR = 3  # tokens of a monomial's factor, at most: a variable, or an operator of it, once or twice
MONOMIAL = 4  # tokens of a monomial for every variable, four times at most


class Combinations(NamedTuple):
    """Combinations of one operator: of each operand, the numbers of functions, all with all."""

    row: defined.Written
    operands: tuple[np.ndarray, ...]
    negated: bool = False
    once: bool = False  # the two operands are the same, and their order does not matter

    @property
    def n(self) -> int:
        return math.prod(map(len, self.operands))

    @property
    def code(self) -> int:
        """The operator's code as in ``made_by``."""
        return self.row.code + NEGATED * self.negated


class Origins(NamedTuple):
    """Origins of functions: an operator's code as in ``made_by``, and the numbers of its operands."""

    code: int
    operands: tuple[np.ndarray, ...]


class PoolArrays(NamedTuple):
    """Arrays of a pool by function, with room for more of them."""

    values: Annotated[np.ndarray, "float64[n, n_points]"]
    sizes: Annotated[np.ndarray, "uint8[n]"]  # in tokens
    bounded: Annotated[np.ndarray, "bool[n]"]  # whether an operator that is no power stands inside
    made_by: Annotated[np.ndarray, "int16[n]"]  # the operator's code, plus NEGATED; LEAF
    left: Annotated[np.ndarray, "int32[n]"]  # numbers of the operands
    right: Annotated[np.ndarray, "int32[n]"]
    third: Annotated[np.ndarray, "int32[n]"]
    hashes: Annotated[np.ndarray, "uint64[n]"]


class Pool:
    """Distinct functions with their values at a few points.

    ``constants`` are leaves as well.  ``anywhere``: unary operators stand anywhere, not at variables alone.
    ``values`` is float64 (n_functions, n_points), ``sizes`` uint8 (n_functions,), in tokens, and rises; ``monomials``
    are numbers of functions, none before ``multiply``.
    """

    xp: Any = np  # what has the arrays

    def __init__(
        self,
        points: np.ndarray,
        operators: Sequence[defined.Written],
        constants: Sequence[float] = (1.0, 2.0),
        anywhere: bool = True,
    ) -> None:
        self._anywhere, self._points = anywhere, points
        self.n_vars, self._constants = points.shape[1], tuple(constants)
        self._unary = [row for row in operators if row.arity == 1]
        self._binary = [row for row in operators if row.arity == 2]
        self._ternary = [row for row in operators if row.arity == 3]
        self.powers = {row.code for row in self._unary if is_power(row)}
        self.tried, self._n, self._ends = 0, 0, [0, 0]
        self.monomials = self.xp.zeros(0, np.int64)
        self._begin()
        leaves = np.vstack([points.T, *(np.full((1, len(points)), c) for c in self._constants)])
        self._keep(leaves, Origins(LEAF, (np.arange(len(leaves)),)), len(leaves))
        self._ends[1] = self._n
        self.n_leaves = self._n

    def _begin(self) -> None:
        """Allocate the arrays for the first functions."""
        self._arrays = empty(PoolArrays, n=1024, n_points=len(self._points))
        self._table = np.full(1 << 12, EMPTY, np.int64)

    def __len__(self) -> int:
        return self._n

    @property
    def largest(self) -> int:
        """The largest size of functions that has been enumerated, completely or in part."""
        return len(self._ends) - 1

    def grow(self, size: int, most: int) -> None:
        """Add functions up to a size, no more than ``most`` in all."""
        while self.largest < size and self._n < most:
            for block in self._blocks(self.largest + 1):
                self._add(block, most)
            self._ends.append(self._n)

    def multiply(self, most: int) -> None:
        """Add monomials of more tokens than have been reached, then their products with the smallest other functions.

        The monomials are a pool of their own, of products, quotients and powers; half of what is added.  Sizes no
        longer rise, and the pool no longer grows.  Products of a size that has been made are all there.
        """
        rows = [row for row in (*self._binary, *self._unary) if row.code in (ops.MUL, ops.DIV, *self.powers)]
        product = next((row for row in self._binary if row.code == ops.MUL), None)
        if product is None:
            return
        room, old = most - self._n, self._n
        monomials = self._other(rows)
        monomials.grow(4 * MONOMIAL * self.n_vars, room // 2)
        self.monomials = numbers = self._take_in(monomials)
        is_monomial = self.xp.zeros(self._n, np.bool_)
        is_monomial[numbers] = True
        others = self.xp.flatnonzero(~is_monomial[:old])
        others = others[others >= self.n_vars + len(self._constants)]
        by_size = [
            {size: group[self.sizes[group] == size] for size in self.xp.unique(self.sizes[group]).tolist()}
            for group in (numbers, others)
        ]
        n_left = PRODUCTS * room
        for total in range(self.largest - 1, sum(map(max, by_size)) + 1 if all(by_size) else 0):
            for size, group in by_size[0].items():
                other = by_size[1].get(total - size, ())
                if len(other) and n_left > 0 and self._n < most:
                    block = Combinations(product, (group[: -(-n_left // len(other))], other))
                    self._add(block, most)
                    n_left -= block.n
        self.tried += monomials.tried

    def multiply_operators(self, most: int) -> None:
        """Add products and quotients of variables and operators of them, as ``x1 * x2 * cos(x3)``, in no order."""
        products = [row for row in self._binary if row.code in (ops.MUL, ops.DIV)]
        other = self._other([*products, *self._unary])
        other.grow(4 * MONOMIAL * self.n_vars, most - self._n)
        self._take_in(other)
        self.tried += other.tried

    def operate(self, most: int) -> None:
        """Add operators that are no powers of products and quotients of two variables, and of those with a minus."""
        made_by, n = self.made_by[: self._n], self.n_vars
        two = np.flatnonzero(np.isin(made_by, [ops.MUL, ops.DIV]) & (self.sizes[: self._n] == 3))
        two = two[(self.left[two] < n) & (self.right[two] < n)]
        for row in (row for row in self._unary if row.code not in self.powers):
            for negated in (False, True):
                self._add(Combinations(row, (two,), negated=negated), most)

    def _other(self, rows: Sequence[defined.Written]) -> Pool:
        """A new pool of the variables alone, with these operators."""
        return Pool(self._points, rows, (), anywhere=False)

    def _take_in(self, other: Pool) -> np.ndarray:
        """Add another pool's functions, of the same variables and fewer constants; their numbers here."""
        numbers = self.xp.arange(len(other))
        for size in range(2, other.largest + 1):
            span = other._of(size)
            for row in (*other._unary, *other._binary):
                indices = span[other.made_by[span] == row.code]
                operands = tuple(numbers[part[indices]] for part in (other.left, other.right)[: row.arity])
                origins = Origins(row.code, operands)
                numbers[indices] = self._keep(other.values[indices], origins, self._n + len(indices))
        return numbers

    def tree(self, i: int) -> Tree:
        """Function ``i`` as nested tuples."""
        made_by, a, b, c = self._origin(i)
        if made_by == LEAF:
            return (VARIABLE, a) if a < self.n_vars else (CONSTANT, self._constants[a - self.n_vars])
        row = defined.known(made_by % NEGATED)
        if row.arity > 1:
            return OPERATOR, row.code, *map(self.tree, (a, b, c)[: row.arity])
        inner = self.tree(a)
        return OPERATOR, row.code, (OPERATOR, ops.NEG, inner) if made_by >= NEGATED else inner

    def expression(self, i: int) -> Expression:
        """Function ``i``, over x1, x2, …"""
        return expression_of(self.tree(i))

    def expressions(self, numbers: Sequence[int]) -> list[Expression]:
        """The functions of these numbers, over x1, x2, …"""
        return [self.expression(i) for i in numbers]

    def values_at(self, X: np.ndarray, dtype: Any = np.float64) -> np.ndarray:
        """The functions' values at other points X, (n_points, n_vars), as (n_functions, n_points)."""
        values = np.empty((self._n, len(X)), dtype)
        leaves = [*X.T, *self._constants]
        changes = np.flatnonzero(np.diff(self.made_by) | np.diff(self.sizes))  # operands are smaller, and before
        ends = np.unique([*changes + 1, self.n_leaves, self._n])
        for i, leaf in enumerate(leaves):
            values[i] = leaf
        with np.errstate(all="ignore"):
            for begin, end in itertools.pairwise(ends[ends >= self.n_leaves].tolist()):
                made_by = int(self.made_by[begin])
                row = defined.known(made_by % NEGATED)
                operands = [column[begin:end] for column in (self.left, self.right, self._arrays.third)[: row.arity]]
                inputs = [-values[k] if made_by >= NEGATED else values[k] for k in operands]
                values[begin:end] = function_of(row)(*inputs)
        return values

    def costs(self) -> np.ndarray:
        """Complexities, (n_functions,): products cost less than sums, and those less than nested operators."""
        cost, rise = np.ones(self._n), {ops.MUL: 0.5, ops.DIV: 0.5}
        for i in range(self.n_leaves, self._n):
            made_by, a, b, c = self._origin(i)
            row = defined.known(made_by % NEGATED)
            if row.arity == 1:
                cost[i] = cost[a] + 1.5 + (cost[a] > (1 if row.code in self.powers else 2.5))
            else:
                cost[i] = cost[[a, b, c][: row.arity]].sum() + rise.get(row.code, 1.5)
        return cost

    def _origin(self, i: int) -> tuple[int, int, int, int]:
        """Operator and operands of function i: its code as in ``made_by``, and three numbers."""
        return int(self.made_by[i]), int(self.left[i]), int(self.right[i]), int(self._arrays.third[i])

    # ── combinations ──

    def _of(self, size: int) -> np.ndarray:
        inside = 1 <= size < len(self._ends)
        ends = self._ends[size - 1 : size + 1] if inside else (0, 0)
        return self.xp.arange(*ends)

    def _blocks(self, size: int) -> Iterator[Combinations]:
        """All combinations that make functions of a size."""
        for row in self._unary:
            yield Combinations(row, (self._of(size - 1) if self._anywhere else self._near_leaves(row, size - 1),))
            if self._anywhere and (row.code not in self.powers or not is_symmetric(row.numpy)):
                yield Combinations(row, (self._of(size - 2),), negated=True)
        if not self._anywhere:
            yield from self._multiplied(size)
            return
        for a in range(1, size - 1):
            for row in self._binary:
                b = size - 1 - a
                turned = row.commutative or row.code == ops.SUB
                if a <= b or not turned:
                    yield Combinations(row, (self._of(a), self._of(b)), once=turned and a == b)
        for row in self._ternary:
            yield from (Combinations(row, tuple(map(self._of, sizes))) for sizes, _ in operand_sizes(size, row))

    def _near_leaves(self, row: defined.Written, size: int) -> np.ndarray:
        """Variables, and the same operator of a variable."""
        a = self._of(size)
        leaf = self.made_by[a] == LEAF
        return a[leaf | ((self.made_by[a] == row.code) & (self.made_by[self.left[a] * ~leaf] == LEAF))]

    def _multiplied(self, size: int) -> Iterator[Combinations]:
        """Functions times and over one more factor: a monomial is made of factors one by one, whatever their order."""
        for b in range(1, min(FACTOR, size - 2) + 1):
            factors = self._of(b)
            for row in self._binary:
                factors = factors[self.made_by[factors] != row.code]
            for row in self._binary:
                yield Combinations(row, (self._of(size - 1 - b), factors))

    def _add(self, block: Combinations, most: int) -> None:
        for begin in range(0, block.n, 4 * CHUNK):
            if self._n >= most:
                return
            check()
            end = min(begin + 4 * CHUNK, block.n)
            cuts = [(i, min(i + CHUNK, end)) for i in range(begin, end, CHUNK)]
            for values, origins in slices.each(lambda i, j: self._combine(block, i, j), cuts):
                self._keep(values, origins, most)
            self.tried += end - begin

    def _combine(self, block: Combinations, begin: int, end: int) -> tuple[np.ndarray, Origins]:
        """Values and origins of the combinations from begin to end that are functions."""
        row = block.row
        places = np.unravel_index(np.arange(begin, end), [len(numbers) for numbers in block.operands])
        if block.once:
            in_order = places[0] <= places[1] if row.commutative else places[0] < places[1]
            places = tuple(place[in_order] for place in places)
        operands = tuple(numbers[place] for numbers, place in zip(block.operands, places, strict=True))
        operands = self._allowed(block.code, operands)
        if row.arity == 1 and row.code not in self.powers:
            operands = (operands[0][~self._arrays.bounded[operands[0]]],)
        inputs = [-self.values[numbers] if block.negated else self.values[numbers] for numbers in operands]
        with np.errstate(all="ignore"):
            values = function_of(row)(*inputs)
            if row.arity == 2:
                left, right, disturbed = *inputs, values
            else:
                shifts = (1 + SHIFT, 1 - SHIFT, 1 + SHIFT)
                left, right = values, values
                disturbed = function_of(row)(*(a * shift for a, shift in zip(inputs, shifts, strict=False)))
        is_usable = np.empty(len(values), np.bool_)
        _check_functions(_Checked(values, left, right, disturbed, is_usable), row.arity != 2)
        return values[is_usable], Origins(block.code, tuple(numbers[is_usable] for numbers in operands))

    def _allowed(self, code: int, operands: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
        """The combinations of operands that the rules allow: here all."""
        return operands

    def _keep(self, values: np.ndarray, origins: Origins, most: int) -> np.ndarray:
        """Append the functions that are new; return the numbers of all, -1 where there was no room."""
        hashes = np.empty(len(values), np.uint64)
        _hash(_Hashed(values.view(np.uint64), hashes))
        self._make_room(self._n + len(values))
        arrays = self._arrays
        new, numbers = np.zeros(len(values), np.bool_), np.full(len(values), EMPTY, np.int64)
        n = int(_insert(hashes, arrays.hashes, self._table, self._n, most, new, numbers))
        if n == self._n:
            return numbers
        span, arrays.made_by[self._n : n] = slice(self._n, n), origins.code
        operands = [numbers[new] for numbers in origins.operands]
        for k, column in enumerate((arrays.left, arrays.right, arrays.third)):
            column[span] = operands[k] if k < len(operands) else 0
        arrays.values[span], arrays.sizes[span], arrays.bounded[span] = values[new], 1, False
        if origins.code != LEAF:
            code = origins.code % NEGATED
            arrays.sizes[span] += origins.code >= NEGATED
            arrays.bounded[span] = len(operands) == 1 and code not in self.powers
            for operand in operands:
                arrays.sizes[span] += arrays.sizes[operand]
                arrays.bounded[span] |= arrays.bounded[operand]
        self._n = n
        return numbers

    def _make_room(self, n: int) -> None:
        """Room for n functions in the arrays, and a table that is at most half full."""
        if n > len(self._arrays.values):
            self._arrays = larger(
                self._arrays, self._n, n=max(n, 2 * len(self._arrays.values)), n_points=self._points.shape[0]
            )
        if 2 * n > len(self._table):
            hashes, scratch = self._arrays.hashes[: self._n], np.empty(self._n, np.bool_)
            self._table = np.full(2 << (n - 1).bit_length(), EMPTY, np.int64)
            _insert(hashes, hashes, self._table, 0, self._n, scratch, np.empty(self._n, np.int64))

    @property
    def values(self) -> np.ndarray:
        return self._arrays.values[: self._n]

    @property
    def sizes(self) -> np.ndarray:
        return self._arrays.sizes[: self._n]

    @property
    def made_by(self) -> np.ndarray:
        return self._arrays.made_by[: self._n]

    @property
    def left(self) -> np.ndarray:
        return self._arrays.left[: self._n]

    @property
    def right(self) -> np.ndarray:
        return self._arrays.right[: self._n]


def without_multiples(values: np.ndarray, indices: Iterable[int], most: int) -> list[int]:
    """The first of these indices whose rows of values are no multiples of each other, at most so many."""
    seen, distinct = set(), []
    for i in indices:
        row = values[i]
        key = np.round(row / row[np.argmax(np.abs(row))], 9).tobytes()
        if key not in seen:
            seen.add(key)
            distinct.append(i)
        if len(distinct) == most:
            break
    return distinct


def is_power(row: defined.Written) -> bool:
    """Whether an operator of a product is the product of its own: ``sqr``, ``sqrt``, ``inv``, ``abs``, …"""
    a, b = np.array([0.3, 1.7, 5.0]), np.array([2.5, 0.2, 3.0])
    with np.errstate(all="ignore"):
        return bool(np.allclose(row.numpy(a * b), row.numpy(a) * row.numpy(b), rtol=1e-12))


def is_symmetric(function: Callable[[np.ndarray], np.ndarray]) -> bool:
    """Whether the sign of the operand changes no more than that of the result."""
    a = np.array([0.3, 0.7, 0.9])
    with np.errstate(all="ignore"):
        return bool(np.array_equal(np.abs(function(a)), np.abs(function(-a))))


class _Checked(NamedTuple):
    """Values, two operands and values of disturbed operands; a bag, since rows of arrays in one cost nothing."""

    values: np.ndarray
    left: np.ndarray
    right: np.ndarray
    disturbed: np.ndarray
    is_usable: np.ndarray


@compiled
def _check_functions(rows, may_magnify):
    for i in range(len(rows.values)):
        is_usable = is_function(rows.values[i], rows.left[i], rows.right[i])
        rows.is_usable[i] = is_usable and (not may_magnify or is_steady(rows.values[i], rows.disturbed[i]))


@inline
def is_function(values, left, right):
    """Whether values are those of a function: finite, of usual size, not constant, and no mere rounding."""
    low, high, largest = np.inf, -np.inf, 0.0
    for k in range(len(values)):
        v = values[k]
        if not abs(v) < LARGEST:
            return False
        low, high, largest = min(low, v), max(high, v), max(largest, abs(v))
    if not (largest > 1 / LARGEST and high - low > FLAT * largest):
        return False
    return is_left(values, left, right)


@inline
def is_left(values, left, right):
    """Whether somewhere more is left of the operands than rounding; products and quotients are never too small."""
    for k in range(len(values)):
        a, b, v = abs(left[k]), abs(right[k]), abs(values[k])
        if v > CANCELLED * max(a, b) or v < min(a, b) * 1e-300 or v == a * b or (b != 0.0 and v == a / b):
            return True
    return False


@inline
def is_steady(values, again):
    """Whether an operator's values, finite ones, stay when its operand changes by a little."""
    largest = 0.0
    for k in range(len(values)):
        largest = max(largest, abs(values[k]))
    for k in range(len(values)):  # noqa: SIM110  translated as it stands
        if not abs(again[k] - values[k]) <= MAGNIFIED * largest:
            return False
    return True


class _Hashed(NamedTuple):
    """Bits of values, and hashes of their rows."""

    bits: np.ndarray
    hashes: np.ndarray


@compiled
def _hash(rows):
    for i in range(len(rows.bits)):
        rows.hashes[i] = hash_of(rows.bits[i])


@inline
def hash_of(words):
    """A hash of values up to their common sign, rounded; ``words``: their bits."""
    flip = SIGN if words[0] > SIGN else np.uint64(0)
    h = GOLDEN
    for k in range(len(words)):
        one = words[k] ^ flip
        one = np.uint64(0) if one == SIGN else one
        h = (h ^ (one + HALF) >> ROUNDED) * HASHED
        h = h ^ h >> np.uint64(32)
    return h


@compiled
def _insert(hashes, known, slots, n, most, new, numbers):
    """Number hashes that are not in the table of ``known`` ones as n, n + 1, …; returns how many there are then."""
    mask = np.uint64(len(slots) - 1)
    for i in range(len(hashes)):
        slot = np.int64(hashes[i] & mask)
        while slots[slot] != EMPTY and known[slots[slot]] != hashes[i]:
            slot = np.int64(np.uint64(slot + 1) & mask)
        if slots[slot] == EMPTY and n < most:
            slots[slot], known[n], new[i] = n, hashes[i], True
            n += 1
        numbers[i] = slots[slot]
    return n
