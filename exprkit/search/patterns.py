"""Patterns: formulas with names for what is left open, and the expressions that hold them.

In: a population, and a pattern as text.  Out: the numbers of expressions that hold it.

    >>> import exprkit as ek
    >>> from exprkit.search.patterns import holders
    >>> pop = ek.parse(["3 * exp(-2 * x1) + 1", "exp(x1) * x2", "x1 - exp(x1)", "exp(x1) * 3"])
    >>> holders(pop, "a * exp(x1)").tolist(), holders(pop, "p1 * exp(b * x1)").tolist()
    ([1, 3], [0])

The spellings of a pattern are its texts with other orders of operands and signs, as postfix tokens.  How, plainly::

    for each expression that is short enough and has all operators and variables of a spelling, and its neighbours:
        find where the tree of each token begins
        for each token: compare the tree that ends there with each spelling, from the root on
            a name that is new stands for the tree, or number, that is there; a known one must be equal, token by token
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Annotated, Any, NamedTuple

import numpy as np

from exprkit.errors import ArgumentError, brief, flag, whole
from exprkit.expressions.parser import parse
from exprkit.expressions.population import Population
from exprkit.operators import defined, ops
from exprkit.runtime import slices
from exprkit.runtime.bags import empty
from exprkit.runtime.jit import compiled, inline
from exprkit.text.tokens import CONSTANT, MAX_TOKENS, OPERATOR, PARAMETER, VARIABLE

NUMBER, ANYTHING = PARAMETER, 4  # kinds of a spelling's tokens that stand for a number, and for any expression
NEAR = 1e-6  # relative distance of numbers that are equal: of the digits that tables show; chosen, not measured
MAX_SPELLINGS = 4096  # of a pattern: with ten sums and products of two things
AT_ONCE = 1 << 19  # expressions between two looks at whether enough hold the pattern; chosen, not measured
WORD = re.compile(r"`[^`]*`|(?<![\w.])([^\W\d]\w*)\s*(\(?)")
USUAL_COLUMN, USUAL_NUMBER = re.compile(r"x[1-9]\d*"), re.compile(r"p[1-9]\d*")
SUMS = (ops.ADD, ops.SUB)
LAST_BIT, MIXED = np.uint64(63), np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio: Knuth's hash

Spelling = tuple[tuple[int, int], ...]  # kind and value of each token, postfix


class _Spelled(NamedTuple):
    """A part of a pattern, and whether it stands for its negative too: a name that comes once, also in products."""

    tokens: Spelling
    is_free: bool


class _Patterns(NamedTuple):
    """Spellings, and what an expression has to have for each."""

    kinds: Annotated[np.ndarray, "uint8[n]"]
    values: Annotated[np.ndarray, "uint64[n]"]
    offsets: Annotated[np.ndarray, "int64[m]"]
    needs: Annotated[np.ndarray, "uint64[m]"]  # ``_bit`` of its tokens
    pairs: Annotated[np.ndarray, "uint64[m]"]  # ``_pair`` of its neighbours
    roots: Annotated[np.ndarray, "uint64[m]"]  # ``_bit`` of its last token
    most_tokens: int
    anywhere: bool  # else an expression itself is to be the pattern


class _Subjects(NamedTuple):
    """Tokens of a population, and room for the places of one expression."""

    kinds: np.ndarray
    values: np.ndarray
    offsets: np.ndarray
    arity: np.ndarray
    begins: Annotated[np.ndarray, "int64[n]"]  # by token: where its tree begins
    bound: Annotated[np.ndarray, "int64[names]"]  # by name: the last token of what it stands for, or -1


def holders(
    pop: Population, pattern: str | None, best: int | None = None, max_size: int | None = None, anywhere: bool = True
) -> np.ndarray:
    """The numbers of the expressions that hold a pattern, int64: all, or the first ``best``.

    ``max_size``: tokens of an expression at most.  Without ``anywhere`` the expression itself is to be the pattern, not
    a part of it.  Without a pattern: all that are as short.

    Raises
    ------
    ArgumentError
        For a pattern that is no text, or of too many sums and products; for limits that are no whole numbers >= 1.
    ParseError
        For a text that cannot be read.
    """
    for name, limit in (("best", best), ("max_size", max_size)):
        if limit is not None:
            whole(name, limit, 1)
    flag("anywhere", anywhere)
    most_tokens = MAX_TOKENS if max_size is None else max_size
    if pattern is None:
        return np.flatnonzero((pop.n_tokens > 0) & (pop.n_tokens <= most_tokens))[:best]
    patterns = _patterns_of(pop, pattern, most_tokens, anywhere)
    arity, n_names = defined.arity(), int((patterns.kinds >= PARAMETER).sum()) + 1
    chosen: list[np.ndarray] = [np.empty(0, np.int64)]
    for begin in range(0, len(pop), AT_ONCE):
        part = pop.part(begin, min(begin + AT_ONCE, len(pop)))
        is_holder = np.empty(len(part), np.bool_)

        def mark(first: int, end: int, part: Population = part, is_holder: np.ndarray = is_holder) -> None:
            offsets, longest = part.offsets[first : end + 1], part.longest
            tokens = empty(
                _Subjects, kinds=part.kinds, values=part.values, offsets=offsets, arity=arity, n=longest, names=n_names
            )
            _mark(tokens, patterns, is_holder[first:end])

        slices.each(mark, slices.cut(part.offsets))
        chosen.append(begin + np.flatnonzero(is_holder))
        if best is not None and sum(map(len, chosen)) >= best:
            break
    return np.concatenate(chosen)[:best]


def _patterns_of(pop: Population, pattern: str, most_tokens: int, anywhere: bool) -> _Patterns:
    if not isinstance(pattern, str):
        raise ArgumentError(f'pattern must be a text such as "a * x1 ^ b", not {brief(pattern)}')
    spellings = _spellings(pop, pattern)
    offsets = np.cumsum([0, *map(len, spellings)])
    kinds, values = np.array([token for tokens in spellings for token in tokens], np.uint64).T
    needs, pairs, roots = np.zeros((3, len(spellings)), np.uint64)
    patterns = _Patterns(kinds.astype(np.uint8), values.copy(), offsets, needs, pairs, roots, most_tokens, anywhere)
    _write_needs(patterns)
    return patterns


def _spellings(pop: Population, pattern: str) -> list[Spelling]:
    """A pattern's spellings, each once whatever its names are called."""
    words = list(dict.fromkeys(word for word, call in WORD.findall(pattern) if word and not call))
    known = parse(words, variables=pop.variables, errors="mask")
    free = [word for word, own in zip(words, known, strict=True) if not own.valid or own.kinds[0] == PARAMETER]
    free = [word for word in free if not USUAL_COLUMN.fullmatch(word)]
    parsed = parse(pattern, variables=pop.variables, parameters=free)[0]
    kinds = [NUMBER if USUAL_NUMBER.fullmatch(word) else ANYTHING for word in free]
    times = Counter(parsed.values[parsed.kinds == PARAMETER].tolist())

    def leaf(kind: int, value: int) -> list[_Spelled]:
        is_name = kind == PARAMETER
        return [_Spelled((((kinds[value] if is_name else kind), value),), is_name and times[value] == 1)]

    def operator(row: defined.Written, operands: list[list[_Spelled]]) -> list[_Spelled]:
        own = [spelled for parts in itertools.product(*operands) for spelled in _spelled(row, parts)]
        if len(own) > MAX_SPELLINGS:
            raise ArgumentError(f"pattern: {brief(pattern)} has too many sums and products to try all their orders")
        return list(dict.fromkeys(own))

    every = defined.folded(parsed.kinds, parsed.values, leaf, operator)
    return list(dict.fromkeys(_renamed(spelled.tokens) for spelled in every))


def _spelled(row: defined.Written, parts: tuple[_Spelled, ...]) -> list[_Spelled]:
    """An operator of these parts in all orders, with other signs, and powers by their own operators."""
    calls = [(row.code, parts)]
    if row.code in SUMS and parts[1].is_free:
        calls = [(code, parts) for code in SUMS]
    if row.code == ops.ADD and parts[0].is_free:
        calls.append((ops.SUB, parts[::-1]))
    for number, code in ((2.0, ops.SQR), (3.0, ops.CUBE)):
        if row.code == ops.POW and parts[1].tokens == _number(number):
            calls.append((code, parts[:1]))
    if row.code == ops.DIV and parts[0].tokens == _number(1.0):
        calls.append((ops.INV, parts[1:]))
    calls += [(code, own[::-1]) for code, own in calls if defined.known(code).commutative and len(own) == 2]
    is_free = row.code in (ops.MUL, ops.DIV) and any(part.is_free for part in parts)
    spelled = [
        _Spelled((*itertools.chain.from_iterable(part.tokens for part in own), (OPERATOR, code)), is_free)
        for code, own in calls
    ]
    return [*spelled, *parts] if row.code == ops.NEG and parts[0].is_free else spelled


def _number(number: float) -> Spelling:
    return ((CONSTANT, int(np.float64(number).view(np.uint64))),)


def _renamed(tokens: Spelling) -> Spelling:
    """A spelling whose names are numbered as they come."""
    numbers: dict[Any, int] = {}
    return tuple(
        (token[0], numbers.setdefault(token, len(numbers))) if token[0] >= PARAMETER and token[0] != OPERATOR else token
        for token in tokens
    )


# ── the compiled part ────────────────────────────────────────────────────────────────


@inline
def _bit(kind, value):
    """A bit of an operator or variable, which it may share with others; none of a number or name, and no branch."""
    is_own = np.uint64((kind == OPERATOR) | (kind == VARIABLE))
    return is_own << (value * np.uint64(2) + np.uint64(kind == VARIABLE) & LAST_BIT)


@inline
def _pair(before, bit):
    """A bit of the two bits of neighbours in postfix, none where one has none; it may be that of other two."""
    return np.uint64((before != 0) & (bit != 0)) << ((before ^ bit * np.uint64(3)) * MIXED >> np.uint64(58))


@compiled
def _write_needs(patterns):
    for s in range(len(patterns.roots)):
        for t in range(patterns.offsets[s], patterns.offsets[s + 1]):
            bit = _bit(patterns.kinds[t], patterns.values[t])
            patterns.needs[s] |= bit
            patterns.pairs[s] |= _pair(patterns.roots[s], bit)
            patterns.roots[s] = bit


@compiled
def _mark(expressions, patterns, is_holder):
    """Note of every expression whether it holds a spelling."""
    kinds, values, offsets = expressions.kinds, expressions.values, expressions.offsets
    for i in range(len(is_holder)):
        begin, end = offsets[i], offsets[i + 1]
        has = pairs = before = np.uint64(0)
        is_holder[i] = False
        if begin == end or end - begin > patterns.most_tokens:
            continue
        for t in range(begin, end):
            bit = _bit(kinds[t], values[t])
            has |= bit
            pairs |= _pair(before, bit)
            before = bit
        for s in range(len(patterns.roots)):
            if not (patterns.needs[s] & ~has | patterns.pairs[s] & ~pairs):
                _find_begins(expressions, begin, end)
                is_holder[i] = _holds(expressions, patterns, begin, end, has, pairs)
                break


@inline
def _find_begins(expressions, begin, end):
    """Write where the tree of each token begins, counted from the expression's first token."""
    begins = expressions.begins
    for t in range(end - begin):
        begins[t] = t
        if expressions.kinds[begin + t] == OPERATOR:
            for _ in range(expressions.arity[expressions.values[begin + t]]):
                begins[t] = begins[begins[t] - 1]


@inline
def _holds(expressions, patterns, begin, end, has, pairs):
    """Whether an expression, or with ``anywhere`` a part of it, is a spelling."""
    for root in range(begin if patterns.anywhere else end - 1, end):
        bit = _bit(expressions.kinds[root], expressions.values[root])
        for s in range(len(patterns.roots)):
            lacks = patterns.roots[s] & ~bit | patterns.needs[s] & ~has | patterns.pairs[s] & ~pairs
            if not lacks and _is_spelling(expressions, patterns, s, begin, root):
                return True
    return False


@inline
def _is_spelling(expressions, patterns, s, begin, root):
    """Whether the tree that ends with a token is a spelling: both are read from the root on."""
    kinds, values, bound = expressions.kinds, expressions.values, expressions.bound
    first, t = patterns.offsets[s], root
    for k in range(patterns.offsets[s + 1] - 1, first - 1, -1):
        kind, value = patterns.kinds[k], patterns.values[k]
        if kind in (OPERATOR, VARIABLE):
            if kinds[t] != kind or values[t] != value:
                return False
            t -= 1
        elif kind == CONSTANT:
            if kinds[t] != CONSTANT:
                return False
            number, other = np.uint64(value).view(np.float64), np.uint64(values[t]).view(np.float64)
            if not (number == other or abs(number - other) <= NEAR * abs(number)):
                return False
            t -= 1
        else:
            if kind == NUMBER and kinds[t] != CONSTANT and kinds[t] != PARAMETER:
                return False
            is_new = True
            for after in range(k + 1, patterns.offsets[s + 1]):  # names have the same numbers in all spellings
                if patterns.kinds[after] == kind and patterns.values[after] == value:
                    is_new = False
            if is_new:
                bound[value] = t
            elif not _equal(expressions, begin, bound[value], t):
                return False
            t = begin + expressions.begins[t - begin] - 1
    return True


@inline
def _equal(expressions, begin, a, b):
    """Whether the trees that end with these tokens are equal, token by token."""
    length = a - expressions.begins[a - begin]
    if length != b - expressions.begins[b - begin]:
        return False
    for k in range(length - begin + 1):
        if (
            expressions.kinds[a - k] != expressions.kinds[b - k]
            or expressions.values[a - k] != expressions.values[b - k]
        ):
            return False
    return True
