"""``generate.random``: random expressions.

Expression i is made from the seed and i alone, so a shorter population is the beginning of a
longer one, on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from exprkit import errors
from exprkit.errors import ArgumentError, checks_keywords, whole
from exprkit.expressions import arguments
from exprkit.expressions.arguments import Operators
from exprkit.expressions.population import Population
from exprkit.runtime import slices
from exprkit.runtime.bags import empty
from exprkit.runtime.hashes import next_word
from exprkit.runtime.jit import compiled, inline
from exprkit.runtime.progress import Progress, shown
from exprkit.text.tokens import CONSTANT, MAX_INDEX, MAX_TOKENS, OPERATOR, PARAMETER, VARIABLE, NewTokens


@checks_keywords
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
    variables: Iterable[str] | None = None,
    progress: Progress = False,
) -> Population:
    """Random expressions like those of a genetic-programming run.

    The number of tokens is drawn evenly from the range (of what the operators can make: odd
    numbers only where all take two operands), the operators evenly from those given, and the shape
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
    variables
        Names of the variables; there are as many as names then.
    progress
        Show a bar; or a function that is called with (done, total).

    Returns
    -------
    Population

    Raises
    ------
    ArgumentError
        If a name is unknown or a number does not make sense.

    Examples
    --------
    >>> ek.generate.random(2, (3, 5), ["+", "exp"], n_vars=2, n_params=0, seed=1).texts()
    ['x1 + -4.988 + x2', 'exp(exp(exp(-0.738)))']
    """
    names, n_vars = arguments.names(variables, n_vars, 10)
    n, n_vars = whole("n", n, 0, 2**40), whole("n_vars", n_vars, 1, MAX_INDEX)
    n_params, state = whole("n_params", n_params, 0, MAX_INDEX), np.uint64(whole("seed", seed, None) % 2**64)
    rows = sorted(arguments.operators_of(operators), key=lambda row: row.arity)
    n_unary, n_binary, n_ternary = (sum(row.arity == arity for row in rows) for arity in (1, 2, 3))
    sizes = _feasible_sizes(n_tokens, n_unary, n_binary, n_ternary)
    low, high = _thousandths(constant_range)
    share = int(_share(constant_share) * 2**32) if constant_range is not None else 0
    needed = n * (float(sizes.mean()) * arguments.BYTES_PER_TOKEN + arguments.BYTES_PER_EXPRESSION)
    arguments.check_memory(needed, "so many expressions", "take fewer, or shorter ones")
    offsets = np.zeros(n + 1, np.int64)
    _random_sizes(state, sizes, offsets)
    codes = np.array([row.code for row in rows], np.uint64)
    tokens = empty(NewTokens, n=offsets[-1])
    draw = _Draw(codes, n_unary, n_binary, n_vars, n_params, low, high, share)
    with shown(progress, n, "random expressions") as done:
        cuts = slices.short(offsets)
        slices.each(lambda begin, end: _random_tokens(state, begin, offsets[begin : end + 1], draw, tokens), cuts, done)
    return Population._adopt(*tokens, offsets, names)


class _Draw(NamedTuple):
    """The leaves and operators of random expressions."""

    codes: np.ndarray  # of the operators, unary ones first, then binary ones, then those of three operands
    n_unary: int
    n_binary: int
    n_vars: int
    n_params: int
    low: int  # of the constants, in thousandths
    high: int
    share: int  # of constants, times 2^32


def _feasible_sizes(n_tokens: tuple[int, int], n_unary: int, n_binary: int, n_ternary: int) -> np.ndarray:
    low, high = (whole("n_tokens", size, 1, MAX_TOKENS) for size in _pair_of("n_tokens", n_tokens))
    sizes = np.arange(low, high + 1)
    if not n_unary and n_binary and n_ternary:
        sizes = sizes[sizes != 2]
    elif not n_unary and n_binary:
        sizes = sizes[sizes % 2 == 1]
    elif not n_unary:
        sizes = sizes[sizes % 3 == 1] if n_ternary else sizes[sizes == 1]
    if not len(sizes):
        raise ArgumentError(f"n_tokens={n_tokens}: no expression of these operators has so many tokens")
    return sizes


def _thousandths(interval: tuple[float, float] | None) -> tuple[int, int]:
    if interval is None:
        return 0, 0
    ends = 1000 * arguments.numbers("constant_range", _pair_of("constant_range", interval))
    if ends.shape != (2,) or not np.all(np.abs(ends) < 2**31):
        raise ArgumentError(f"constant_range must be two numbers of at most 2 million, not {errors.brief(interval)}")
    low, high = int(np.ceil(ends[0])), int(np.floor(ends[1]))
    if low > high:
        raise ArgumentError(f"constant_range={interval} holds no multiple of 0.001")
    return low, high


@compiled
def _below(state, n):
    """A whole number from 0 to n-1 (n below 2^32)."""
    return np.int64(((next_word(state) >> np.uint64(32)) * np.uint64(n)) >> np.uint64(32))


@compiled
def _start(state, seed, stream, i):
    """Set the generator to the beginning of expression i's own sequence."""
    state[0] = seed
    state[0] = next_word(state) + np.uint64(stream)
    state[0] = next_word(state) + np.uint64(i)
    state[0] = next_word(state)


@compiled
def _random_sizes(seed, sizes, offsets):
    state = np.zeros(1, np.uint64)
    for i in range(len(offsets) - 1):
        _start(state, seed, 0, i)
        offsets[i + 1] = offsets[i] + sizes[_below(state, len(sizes))]


@compiled
def _random_tokens(seed, begin, offsets, draw, tokens):
    """Fill in the tokens of expressions from number ``begin`` on, which are to stand from offset to offset.

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
        _start(state, seed, 1, begin + i)
        leaves = _draw_operators(state, n, draw, drawn)
        _shuffle(state, drawn, n)
        first = _postfix_start(drawn, n, draw)
        parameters_left, parameter = min(draw.n_params, leaves - 1), 0
        for k in range(n):
            token = drawn[(first + k) % n]
            if token >= 0:
                kinds[start + k], values[start + k] = OPERATOR, draw.codes[token]
                continue
            if _below(state, leaves) < parameters_left:
                kinds[start + k], values[start + k] = PARAMETER, parameter
                parameter += 1
                parameters_left -= 1
            elif _below(state, 1 << 31) < (draw.share >> 1):
                number = (draw.low + _below(state, draw.high - draw.low + 1)) / 1000.0
                kinds[start + k], values[start + k] = CONSTANT, np.float64(number).view(np.uint64)
            else:
                kinds[start + k], values[start + k] = VARIABLE, _below(state, draw.n_vars)
            leaves -= 1


@compiled
def _draw_operators(state, n, draw, drawn):
    """Put the operators of an expression of n tokens, then its leaves, in ``drawn``; return the leaves."""
    count, left = 0, n - 1
    leaves = 1
    n_codes, at_most_two = len(draw.codes), draw.n_unary + draw.n_binary
    pairs_only = draw.n_unary == 0 and draw.n_binary > 0
    while left > 0:  # what is drawn must not leave 1 where no operator has a single operand
        first, end = 0, n_codes
        if left == 1:
            end = draw.n_unary
        elif left == 2 or (left == 4 and pairs_only):
            end = at_most_two
        elif left == 3 and pairs_only and n_codes > at_most_two:
            first = at_most_two
        token = first + _below(state, end - first)
        drawn[count] = token
        count += 1
        arity = _arity(token, draw)
        left -= arity
        leaves += arity - 1
    drawn[count:n] = -1
    return leaves


@inline
def _arity(token, draw):
    """Operands of the operator at a place in ``codes``."""
    return 1 + (token >= draw.n_unary) + (token >= draw.n_unary + draw.n_binary)


@compiled
def _shuffle(state, drawn, n):
    for k in range(n - 1, 0, -1):
        other = _below(state, k + 1)
        drawn[k], drawn[other] = drawn[other], drawn[k]


@compiled
def _postfix_start(drawn, n, draw):
    """Where to begin so that no operator comes before its operands: after the last lowest height."""
    height, lowest, first = 0, 0, 0
    for k in range(n - 1):
        height += 1 - (_arity(drawn[k], draw) if drawn[k] >= 0 else 0)
        if height <= lowest:
            lowest, first = height, k + 1
    return first


def _pair_of(name: str, value: object) -> Sequence[float]:
    if isinstance(value, np.ndarray) and value.ndim:
        value = value.tolist()
    if not isinstance(value, list | tuple) or len(value) != 2:
        raise ArgumentError(f"{name} must be two numbers, not {errors.brief(value)}")
    return value


def _share(value: object) -> float:
    share = arguments.numbers("constant_share", value)
    if share.ndim or not 0 <= share <= 1:
        raise ArgumentError(f"constant_share must be a number from 0 to 1, not {errors.brief(value)}")
    return float(share)
