"""Populations to try things on: every expression up to a size, or random ones.

A source of populations beside ``parse``; everything after it is the same.

    >>> from exprkit.expressions import generate
    >>> len(generate.exhaustive(3, operators=("add", "sqr"), n_vars=2, n_params=1))
    14

``exhaustive`` builds the expressions of each size out of those of smaller sizes, as rows of a
matrix of *symbols*, one byte each:

==================================  ====================================================
symbol                              stands for
==================================  ====================================================
0 ... n_vars-1                      the variables
n_vars ... n_vars+n_constants-1     the constants
n_vars+n_constants                  a parameter, whichever (numbered in ``_spell``)
then                                the operators, in the order given
==================================  ====================================================

``random`` makes expression i from the seed and i alone, so a shorter population is the
beginning of a longer one, on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np

from exprkit import errors
from exprkit.errors import ArgumentError, nearest
from exprkit.expressions.population import Population
from exprkit.numbers import as_numbers
from exprkit.operators import ops
from exprkit.runtime.bags import empty, zeros
from exprkit.runtime.jit import compiled
from exprkit.runtime.machine import available_memory
from exprkit.text.tokens import CONSTANT, MAX_INDEX, MAX_TOKENS, OPERATOR, PARAMETER, VARIABLE

__all__ = ["count_exhaustive", "exhaustive", "random"]

MOST_NODES = 1000  # of expressions that are counted
BYTES_PER_TOKEN = 9  # of a population: kind and value
BYTES_PER_EXPRESSION = 13  # of a population: offset, parameter count, validity

Operators = str | Sequence[str]


# ── every expression up to a size ────────────────────────────────────────────────────


def exhaustive(
    max_nodes: int,
    operators: Operators = "esr",
    n_vars: int = 2,
    n_params: int = 2,
    *,
    constants: Sequence[float] = (),
    spelled_out: bool = False,
    limit: int | None = None,
) -> Population:
    """All expressions of at most ``max_nodes`` nodes, as exhaustive symbolic regression makes them.

    Of two expressions that differ only in the order of a commutative operator's operands
    one is made: the operand of more nodes first, else the one that comes earlier in this
    population.  Every parameter is one of its own, numbered in order of appearance.

    The order is stable: by size; then by operator, in the order given; then by the first
    operand, the larger sizes first; then by the second.

    Parameters
    ----------
    max_nodes
        Largest number of nodes (tokens) of an expression.
    operators
        Names or symbols of operators, or one of ``ops.SETS``: "esr" as in the thesis's
        data, "thesis", "gp".
    n_vars, n_params
        Number of variables, and the largest number of parameters in one expression.
    constants
        Numbers that stand as leaves as well.
    spelled_out
        Write operators that are two in one as the two, as the thesis's data does:
        ``abs(x1) ^ x2`` instead of ``powabs(x1, x2)``.  Counts as one node all the same.
    limit
        Only the first so many.

    Returns
    -------
    Population

    Raises
    ------
    ArgumentError
        If a name is unknown, a number too small, or the population would not fit in memory.

    References
    ----------
    D. J. Bartlett, H. Desmond, P. G. Ferreira, "Exhaustive Symbolic Regression", IEEE
    Transactions on Evolutionary Computation 28 (2024).
    """
    max_nodes = _whole("max_nodes", max_nodes, 1, MOST_NODES)
    if not isinstance(spelled_out, bool | np.bool_):
        raise ArgumentError(f"spelled_out must be True or False, not {errors.brief(spelled_out)}")
    alphabet = _alphabet(max_nodes, operators, n_vars, n_params, constants)
    counts = [sum(of_size) for of_size in _counts(max_nodes, alphabet)]
    counts = _first(counts, limit)
    _check_memory(counts, max_nodes)
    sizes = _build(counts, alphabet)
    return _population(sizes, alphabet, spelled_out)


def count_exhaustive(
    max_nodes: int,
    operators: Operators = "esr",
    n_vars: int = 2,
    n_params: int = 2,
    *,
    constants: Sequence[float] = (),
) -> int:
    """How many expressions ``exhaustive`` of the same arguments makes, without making them."""
    max_nodes = _whole("max_nodes", max_nodes, 1, MOST_NODES)
    alphabet = _alphabet(max_nodes, operators, n_vars, n_params, constants)
    return sum(sum(of_size) for of_size in _counts(max_nodes, alphabet))


class _Alphabet(NamedTuple):
    """The symbols: what leaves there are, and the operators' rows."""

    n_vars: int
    constants: np.ndarray
    n_params: int
    operators: list[ops.Operator]

    @property
    def parameter(self) -> int:
        return self.n_vars + len(self.constants)

    def symbol(self, operator: ops.Operator) -> int:
        return self.parameter + 1 + self.operators.index(operator)


def _alphabet(
    max_nodes: int, operators: Operators, n_vars: int, n_params: int, constants: Sequence[float]
) -> _Alphabet:
    n_vars, n_params = _whole("n_vars", n_vars, 0), _whole("n_params", n_params, 0)
    numbers = _numbers("constants", constants)
    if numbers.ndim != 1:
        raise ArgumentError(f"constants must be a list of numbers, not {errors.brief(constants)}")
    most_leaves = (max_nodes + 1) // 2
    alphabet = _Alphabet(n_vars, numbers, min(n_params, most_leaves), _rows(operators))
    if alphabet.parameter + len(alphabet.operators) > 255:
        raise ArgumentError("variables, constants and operators are more than 255 together")
    return alphabet


def _counts(max_nodes: int, alphabet: _Alphabet) -> list[list[int]]:
    """``[size][number of parameters]``: how many expressions there are; whole numbers without limit."""
    top = alphabet.n_params
    counts = [[0] * (top + 1) for _ in range(max_nodes + 1)]
    counts[1][0] = alphabet.parameter
    if top:
        counts[1][1] = 1
    for size in range(2, max_nodes + 1):
        for operator in alphabet.operators:
            if operator.arity == 1:
                counts[size] = [have + more for have, more in zip(counts[size], counts[size - 1], strict=True)]
                continue
            for left, right, half in _splits(size, operator):
                _add_pairs(counts[size], counts[left], counts[right], half)
    return counts


def _splits(size: int, operator: ops.Operator) -> list[tuple[int, int, bool]]:
    """Sizes of a binary operator's operands, larger first ones first; whether only half the pairs count."""
    lefts = range(size - 2, 0, -1)
    if not operator.commutative:
        return [(left, size - 1 - left, False) for left in lefts]
    return [(left, size - 1 - left, 2 * left == size - 1) for left in lefts if 2 * left >= size - 1]


def _add_pairs(total: list[int], left: list[int], right: list[int], half: bool) -> None:
    top = len(total) - 1
    for i, a in enumerate(left):
        for j, b in enumerate(right[: top - i + 1]):
            if not half:
                total[i + j] += a * b
            elif i == j:
                total[i + j] += a * (a + 1) // 2
            elif i < j:
                total[i + j] += a * b


def _first(counts: list[int], limit: int | None) -> list[int]:
    """The counts by size when only the first ``limit`` expressions are wanted."""
    if limit is None:
        return counts
    limit = _whole("limit", limit, 0)
    kept = []
    for count in counts:
        kept.append(min(count, limit))
        limit -= kept[-1]
    return kept


def _check_memory(counts: list[int], max_nodes: int) -> None:
    # The matrices of symbols and the population live side by side for a moment; an
    # operator that is spelled out takes a second token.
    needed = sum(n * (size * (1 + 1.5 * BYTES_PER_TOKEN) + BYTES_PER_EXPRESSION + 16) for size, n in enumerate(counts))
    what = f"up to {max_nodes} nodes there are {sum(counts):,} expressions, which"
    _check_available(needed, what, "take fewer nodes, operators, variables or parameters, or limit=")


def _check_available(needed: float, what: str, remedy: str) -> None:
    available = available_memory()
    if available is not None and needed > available:
        raise ArgumentError(
            f"{what} need about {needed / 1e9:,.1f} GB; {available / 1e9:,.1f} GB are available: {remedy}"
        )


class _Size(NamedTuple):
    """All expressions of one size: a row of symbols each, and how many parameters it has."""

    symbols: Annotated[np.ndarray, "uint8[n, size]"]
    n_params: Annotated[np.ndarray, "uint8[n]"]


def _build(counts: list[int], alphabet: _Alphabet) -> list[_Size]:
    leaves = alphabet.parameter + (alphabet.n_params > 0)
    sizes = [empty(_Size, n=0, size=0)]
    for size in range(1, len(counts)):
        made = empty(_Size, n=counts[size], size=size)
        sizes.append(made)
        if size == 1:
            made.symbols[:, 0] = np.arange(leaves)[: counts[1]]
            made.n_params[:] = made.symbols[:, 0] == alphabet.parameter
            continue
        position = 0
        for operator in alphabet.operators:
            symbol = alphabet.symbol(operator)
            if operator.arity == 1:
                position = _apply(sizes[size - 1], symbol, made, position)
                continue
            for left, right, half in _splits(size, operator):
                position = _pair(sizes[left], sizes[right], half, symbol, alphabet.n_params, made, position)
    return sizes


def _apply(operand: _Size, symbol: int, made: _Size, position: int) -> int:
    """Write one unary operator over every operand; return the next free row."""
    end = min(position + len(operand.symbols), len(made.symbols))
    made.symbols[position:end, :-1] = operand.symbols[: end - position]
    made.symbols[position:end, -1] = symbol
    made.n_params[position:end] = operand.n_params[: end - position]
    return end


@compiled
def _pair(a, b, half, symbol, most_params, out, position):
    """Write one binary operator over every pair of operands; return the next free row."""
    symbols_a, symbols_b, symbols = a.symbols, b.symbols, out.symbols
    params_a, params_b, n_params = a.n_params, b.n_params, out.n_params
    width_a, width_b = symbols_a.shape[1], symbols_b.shape[1]
    for i in range(len(symbols_a)):
        for j in range(i if half else 0, len(symbols_b)):
            if position == len(symbols):
                return position
            count = params_a[i] + params_b[j]
            if count > most_params:
                continue
            row = symbols[position]
            for k in range(width_a):
                row[k] = symbols_a[i, k]
            for k in range(width_b):
                row[width_a + k] = symbols_b[j, k]
            row[width_a + width_b] = symbol
            n_params[position] = count
            position += 1
    return position


def _population(sizes: list[_Size], alphabet: _Alphabet, spelled_out: bool) -> Population:
    spelling = _spelling(alphabet, spelled_out)
    lengths = [_lengths(size.symbols, spelling.inner) for size in sizes]
    offsets = np.concatenate([np.zeros(1, np.int64), *lengths]).cumsum()
    tokens = empty(_NewTokens, n=offsets[-1])
    position = 0
    for size in sizes:
        position = _spell(size.symbols, spelling, tokens, position)
    return Population._adopt(*tokens, offsets)


class _NewTokens(NamedTuple):
    kinds: Annotated[np.ndarray, "uint8[n]"]
    values: Annotated[np.ndarray, "uint64[n]"]


class _Spelling(NamedTuple):
    """What each symbol stands for."""

    kinds: Annotated[np.ndarray, "uint8[n]"]
    values: np.ndarray  # uint64
    arity: Annotated[np.ndarray, "uint8[n]"]
    inner: Annotated[np.ndarray, "uint64[n]"]  # code of the operator to put on operand a first (0: none)


def _spelling(alphabet: _Alphabet, spelled_out: bool) -> _Spelling:
    n = alphabet.parameter + 1 + len(alphabet.operators)
    spelling = zeros(_Spelling, n=n, values=np.arange(n, dtype=np.uint64))
    kinds, values = spelling.kinds, spelling.values
    kinds[: alphabet.n_vars], kinds[alphabet.n_vars :] = VARIABLE, CONSTANT
    values[alphabet.n_vars : alphabet.parameter] = alphabet.constants.view(np.uint64)
    kinds[alphabet.parameter] = PARAMETER
    for symbol, row in enumerate(alphabet.operators, alphabet.parameter + 1):
        outer, spelling.inner[symbol] = _two_in_one(row) if spelled_out else (row, 0)
        kinds[symbol], values[symbol], spelling.arity[symbol] = OPERATOR, outer.code, row.arity
    return spelling


def _two_in_one(row: ops.Operator) -> tuple[ops.Operator, int]:
    """The operator and the code of the one on its operand a that ``row`` is made of, where it is two in one."""
    for outer in ops.OPERATORS:
        for inner, fused in outer.rewrite.inner.items():
            if fused == row.name and outer is not row:
                return outer, ops.BY_NAME[inner].code
    return row, 0


@compiled
def _lengths(symbols, inner):
    """Tokens of each row, counting the operators put in between."""
    n, width = symbols.shape
    lengths = np.empty(n, np.int64)
    for i in range(n):
        lengths[i] = width
        for k in range(width):
            lengths[i] += inner[symbols[i, k]] != 0
    return lengths


@compiled
def _spell(symbols, spelling, tokens, position):
    """Turn rows of symbols into tokens; return the next free token.

    ``starts`` is a stack of where each open operand starts.  The operator that is put on
    operand a goes where a ends, which is where b starts, or where its own token stands.
    """
    kinds, values, arity, inner = spelling.kinds, spelling.values, spelling.arity, spelling.inner
    out_kinds, out_values = tokens.kinds, tokens.values
    n, width = symbols.shape
    starts = np.empty(width + 1, np.int64)
    before = np.zeros(width + 1, np.uint64)
    for i in range(n):
        top = 0
        before[:] = 0
        for k in range(width):
            symbol = symbols[i, k]
            if arity[symbol] == 0:
                starts[top] = k
                top += 1
            elif arity[symbol] == 1:
                before[k] = inner[symbol]
            else:
                top -= 1
                before[starts[top]] = inner[symbol]
        parameter = 0
        for k in range(width):
            if before[k]:
                out_kinds[position], out_values[position] = OPERATOR, before[k]
                position += 1
            symbol = symbols[i, k]
            out_kinds[position], out_values[position] = kinds[symbol], values[symbol]
            if kinds[symbol] == PARAMETER:
                out_values[position] = parameter
                parameter += 1
            position += 1
    return position


# ── random expressions ───────────────────────────────────────────────────────────────


def random(
    n: int,
    n_tokens: tuple[int, int] = (10, 50),
    operators: Operators = "gp",
    n_vars: int = 10,
    n_params: int = 2,
    *,
    constant_range: tuple[float, float] | None = (-5.0, 5.0),
    constant_share: float = 0.2,
    seed: int = 0,
) -> Population:
    """Random expressions like those of a genetic-programming run.

    The number of tokens is drawn evenly from the range (odd numbers only where all
    operators take two operands), the operators evenly from those given, and the shape
    evenly from all trees that have these operators.

    Parameters
    ----------
    n
        How many.
    n_tokens
        Smallest and largest number of tokens of an expression.
    operators
        Names or symbols of operators, or one of ``ops.SETS``: "gp", "thesis", "esr".
    n_vars, n_params
        Number of variables; parameters in each expression, fewer only where it would be
        left without another leaf.  They are numbered in order of appearance.
    constant_range
        Interval of the constants, which are multiples of 0.001; None for no constants.
    constant_share
        Share of constants among the leaves that are not parameters.
    seed
        A whole number; the same seed gives the same population on every machine.

    Returns
    -------
    Population

    Raises
    ------
    ArgumentError
        If a name is unknown or a number does not make sense.
    """
    n, n_vars = _whole("n", n, 0, 2**40), _whole("n_vars", n_vars, 1, MAX_INDEX)
    n_params, state = _whole("n_params", n_params, 0, MAX_INDEX), np.uint64(_whole("seed", seed, None) % 2**64)
    rows = sorted(_rows(operators), key=lambda row: row.arity)
    n_unary = sum(row.arity == 1 for row in rows)
    sizes = _feasible_sizes(n_tokens, n_unary, len(rows) - n_unary)
    low, high = _thousandths(constant_range)
    share = int(_share(constant_share) * 2**32) if constant_range is not None else 0
    needed = n * (float(sizes.mean()) * BYTES_PER_TOKEN + BYTES_PER_EXPRESSION)
    _check_available(needed, "so many expressions", "take fewer, or shorter ones")
    offsets = np.zeros(n + 1, np.int64)
    _random_sizes(state, sizes, offsets)
    codes = np.array([row.code for row in rows], np.uint64)
    tokens = empty(_NewTokens, n=offsets[-1])
    _random_tokens(state, offsets, _Draw(codes, n_unary, n_vars, n_params, low, high, share), tokens)
    return Population._adopt(*tokens, offsets)


class _Draw(NamedTuple):
    """What random expressions are drawn from."""

    codes: np.ndarray  # of the operators, unary ones first
    n_unary: int
    n_vars: int
    n_params: int
    low: int  # of the constants, in thousandths
    high: int
    share: int  # of constants, times 2^32


def _feasible_sizes(n_tokens: tuple[int, int], n_unary: int, n_binary: int) -> np.ndarray:
    low, high = (_whole("n_tokens", size, 1, MAX_TOKENS) for size in _pair_of("n_tokens", n_tokens))
    sizes = np.arange(low, high + 1)
    if not n_unary:
        sizes = sizes[sizes % 2 == 1]
    if not n_unary and not n_binary:
        sizes = sizes[sizes == 1]
    if not len(sizes):
        raise ArgumentError(f"n_tokens={n_tokens}: no expression of these operators has so many tokens")
    return sizes


def _thousandths(interval: tuple[float, float] | None) -> tuple[int, int]:
    if interval is None:
        return 0, 0
    ends = 1000 * _numbers("constant_range", _pair_of("constant_range", interval))
    if ends.shape != (2,) or not np.all(np.abs(ends) < 2**31):
        raise ArgumentError(f"constant_range must be two numbers of at most 2 million, not {errors.brief(interval)}")
    low, high = int(np.ceil(ends[0])), int(np.floor(ends[1]))
    if low > high:
        raise ArgumentError(f"constant_range={interval} holds no multiple of 0.001")
    return low, high


@compiled
def _next(state):
    """Advance the generator held in ``state[0]`` (SplitMix64; Steele, Lea and Flood, 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@compiled
def _below(state, n):
    """A whole number from 0 to n-1 (n below 2^32)."""
    return np.int64(((_next(state) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@compiled
def _start(state, seed, stream, i):
    """Set the generator to the beginning of expression i's own sequence."""
    state[0] = seed
    state[0] = _next(state) + np.uint64(stream)
    state[0] = _next(state) + np.uint64(i)
    state[0] = _next(state)


@compiled
def _random_sizes(seed, sizes, offsets):
    state = np.zeros(1, np.uint64)
    for i in range(len(offsets) - 1):
        _start(state, seed, 0, i)
        offsets[i + 1] = offsets[i] + sizes[_below(state, len(sizes))]


@compiled
def _random_tokens(seed, offsets, draw, tokens):
    """Fill in the tokens of every expression.

    Per expression: draw operators until they and their leaves make up its length; shuffle
    them all; turn the sequence round to where it is a postfix form, which is one place
    (the cycle lemma of Dvoretzky and Motzkin, 1947); name the leaves.
    """
    kinds, values = tokens.kinds, tokens.values
    state = np.zeros(1, np.uint64)
    longest = 1
    for i in range(len(offsets) - 1):
        longest = max(longest, offsets[i + 1] - offsets[i])
    drawn = np.empty(longest, np.int64)  # place in ``codes``, or -1 for a leaf
    for i in range(len(offsets) - 1):
        start, n = offsets[i], offsets[i + 1] - offsets[i]
        _start(state, seed, 1, i)
        leaves = _draw_operators(state, n, len(draw.codes), draw.n_unary, drawn)
        _shuffle(state, drawn, n)
        first = _postfix_start(drawn, n, draw.n_unary)
        wanted, parameter = min(draw.n_params, leaves - 1), 0
        for k in range(n):
            token = drawn[(first + k) % n]
            if token >= 0:
                kinds[start + k], values[start + k] = OPERATOR, draw.codes[token]
                continue
            if _below(state, leaves) < wanted:
                kinds[start + k], values[start + k] = PARAMETER, parameter
                parameter += 1
                wanted -= 1
            elif _below(state, 1 << 31) < (draw.share >> 1):
                number = (draw.low + _below(state, draw.high - draw.low + 1)) / 1000.0
                kinds[start + k], values[start + k] = CONSTANT, np.float64(number).view(np.uint64)
            else:
                kinds[start + k], values[start + k] = VARIABLE, _below(state, draw.n_vars)
            leaves -= 1


@compiled
def _draw_operators(state, n, n_codes, n_unary, drawn):
    """Put the operators of an expression of n tokens, then its leaves, in ``drawn``; return the leaves."""
    count, left = 0, n - 1
    leaves = 1
    while left > 0:
        choices = n_unary if left == 1 else n_codes
        token = _below(state, choices)
        drawn[count] = token
        count += 1
        if token < n_unary:
            left -= 1
        else:
            left -= 2
            leaves += 1
    drawn[count:n] = -1
    return leaves


@compiled
def _shuffle(state, drawn, n):
    for k in range(n - 1, 0, -1):
        other = _below(state, k + 1)
        drawn[k], drawn[other] = drawn[other], drawn[k]


@compiled
def _postfix_start(drawn, n, n_unary):
    """Where to begin so that no operator comes before its operands: after the last lowest height."""
    height, lowest, first = 0, 0, 0
    for k in range(n - 1):
        if drawn[k] < 0:
            height += 1
        elif drawn[k] >= n_unary:
            height -= 1
        if height <= lowest:
            lowest, first = height, k + 1
    return first


# ── arguments ────────────────────────────────────────────────────────────────────────


def _rows(operators: Operators) -> list[ops.Operator]:
    """The operators' rows, in the order given, each once; a symbol stands for its binary operator."""
    if isinstance(operators, str):
        if operators not in ops.SETS:
            raise ArgumentError(_unknown("set of operators", operators, ops.SETS) + "; several operators go in a tuple")
        operators = ops.SETS[operators]
    symbols = {row.infix: row for row in ops.OPERATORS if row.infix and row.arity == 2}
    rows: dict[int, ops.Operator] = {}
    if not hasattr(operators, "__iter__") or getattr(operators, "ndim", 1) == 0:
        raise ArgumentError(f"operators must be a set's name or a list of names, not {errors.brief(operators)}")
    for name in operators:
        row = (symbols.get(name) or ops.BY_SPELLING.get(name)) if isinstance(name, str) else None
        if row is None:
            raise ArgumentError(_unknown("operator", name, ops.BY_SPELLING))
        rows.setdefault(row.code, row)
    return list(rows.values())


def _unknown(what: str, name: str, possible: Sequence[str] | dict) -> str:
    near = nearest(str(name), possible)
    hint = f"; did you mean {near!r}?" if near else f"; there are {', '.join(possible)}"
    return f"there is no {what} {name!r}{hint}"


def _whole(name: str, value: object, least: int | None, most: int | None = None) -> int:
    number = errors.whole_number(value)
    if number is None or (least is not None and number < least):
        bound = "" if least is None else f", {least} or more"
        raise ArgumentError(f"{name} must be a whole number{bound}, not {errors.brief(value)}")
    if most is not None and number > most:
        raise ArgumentError(f"{name} must be at most {most:,}, not {errors.brief(value)}")
    return number


def _pair_of(name: str, value: object) -> Sequence[float]:
    if isinstance(value, np.ndarray) and value.ndim:
        value = value.tolist()
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ArgumentError(f"{name} must be two numbers, not {errors.brief(value)}")
    return value


def _numbers(name: str, values: object) -> np.ndarray:
    return as_numbers(name, values, gaps=False).astype(np.float64)


def _share(value: object) -> float:
    found = _numbers("constant_share", value)
    if found.ndim or not 0 <= found <= 1:
        raise ArgumentError(f"constant_share must be a number from 0 to 1, not {errors.brief(value)}")
    return float(found)
