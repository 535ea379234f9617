"""``generate.exhaustive``: every expression up to a size.

The expressions of each size are built out of those of smaller sizes, as rows of a matrix of
*symbols*, one byte each:

==================================  ====================================================
symbol                              stands for
==================================  ====================================================
0 ... n_vars-1                      the variables
n_vars ... n_vars+n_constants-1     the constants
n_vars+n_constants                  a parameter, whichever (numbered in ``_spell``)
then                                the operators, in the order given
==================================  ====================================================
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, NamedTuple

import numpy as np

from exprkit import errors
from exprkit.errors import ArgumentError, checks_keywords, flag, whole
from exprkit.expressions import arguments
from exprkit.expressions.arguments import BYTES_PER_EXPRESSION, BYTES_PER_TOKEN, Operators
from exprkit.expressions.population import Population
from exprkit.operators import defined, ops
from exprkit.runtime import slices
from exprkit.runtime.bags import empty, zeros
from exprkit.runtime.jit import compiled, inline
from exprkit.runtime.progress import Progress, shown
from exprkit.text.tokens import CONSTANT, OPERATOR, PARAMETER, VARIABLE, NewTokens, Words

MOST_NODES = 1000  # of expressions that are counted


@checks_keywords
def exhaustive(
    max_nodes: int,
    operators: Operators = "esr",
    n_vars: int = 2,
    n_params: int = 2,
    *,
    constants: Sequence[float] = (),
    spelled_out: bool = False,
    limit: int | None = None,
    variables: Iterable[str] | None = None,
    progress: Progress = False,
) -> Population:
    """All expressions of at most ``max_nodes`` nodes, as exhaustive symbolic regression makes them.

    Of two expressions that differ only in the order of a commutative operator's operands
    one is made: the operand of more nodes first, else the one that comes earlier in this
    population.  Every parameter is one of its own, numbered in order of appearance.

    The order is stable: by size; then by operator, in the order given; then by the first
    operand, the larger sizes first; then by the second, and by the third.

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
    variables
        Names of the variables (as of a table: ``variables=table.columns[:-1]``); there are as many as names then.
    progress
        Show a bar; or a function that is called with (done, total).

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

    Examples
    --------
    >>> ek.generate.exhaustive(3, ["+", "exp"], n_vars=1, n_params=1).texts()
    ['x1', 'p1', 'exp(x1)', 'exp(p1)', 'x1 + x1', 'x1 + p1', 'exp(exp(x1))', 'exp(exp(p1))']
    """
    names, n_vars = arguments.names(variables, n_vars, 2)
    alphabet = _alphabet(max_nodes, operators, n_vars, n_params, constants)
    spelled_out = flag("spelled_out", spelled_out)
    counts = _first(_counts(alphabet), limit)
    _check_memory(counts)
    with shown(progress, sum(counts), "all expressions") as done:
        return _population(_build(counts, alphabet), alphabet, spelled_out, names, done)


def count_exhaustive(
    max_nodes: int,
    operators: Operators = "esr",
    n_vars: int = 2,
    n_params: int = 2,
    *,
    constants: Sequence[float] = (),
) -> int:
    """The number of expressions that ``exhaustive`` makes, without making them.

    Parameters
    ----------
    max_nodes, operators, n_vars, n_params, constants
        As for ``exhaustive``.

    Returns
    -------
    int

    Examples
    --------
    >>> ek.generate.count_exhaustive(5, n_vars=1)
    824
    """
    return sum(_counts(_alphabet(max_nodes, operators, n_vars, n_params, constants)))


class _Alphabet(NamedTuple):
    """The symbols: what leaves there are, and the operators' rows; and how many of them an expression may have."""

    max_nodes: int
    n_vars: int
    constants: np.ndarray
    n_params: int
    operators: list[defined.Written]

    @property
    def parameter(self) -> int:
        return self.n_vars + len(self.constants)

    def symbol(self, operator: defined.Written) -> int:
        return self.parameter + 1 + self.operators.index(operator)


def _alphabet(
    max_nodes: int, operators: Operators, n_vars: int, n_params: int, constants: Sequence[float]
) -> _Alphabet:
    max_nodes = whole("max_nodes", max_nodes, 1, MOST_NODES)
    n_vars, n_params = whole("n_vars", n_vars, 0), whole("n_params", n_params, 0)
    numbers = arguments.numbers("constants", constants)
    if numbers.ndim != 1:
        raise ArgumentError(f"constants must be a list of numbers, not {errors.brief(constants)}")
    rows = arguments.operators_of(operators)
    n_params = min(n_params, most_leaves(max_nodes, rows))
    alphabet = _Alphabet(max_nodes, n_vars, numbers, n_params, rows)
    if alphabet.parameter + len(alphabet.operators) > 255:
        raise ArgumentError("variables, constants and operators are more than 255 together")
    return alphabet


def most_leaves(max_nodes: int, operators: Iterable[defined.Written]) -> int:
    """The most leaves of an expression of so many nodes: an operator of n operands adds n - 1."""
    most = [1] * (max_nodes + 1)
    arities = {row.arity for row in operators}
    for size in range(2, max_nodes + 1):
        most[size] = max([most[size - 1], *(most[size - n] + n - 1 for n in arities if n < size)])
    return most[max_nodes]


def _counts(alphabet: _Alphabet) -> list[int]:
    """How many expressions there are by size; whole numbers without limit."""
    top = alphabet.n_params + 1
    counts = [[1, *[0] * alphabet.n_params]]  # [size][number of parameters]; no operand: one of size 0
    counts.append([alphabet.parameter, 1, *[0] * top][:top])
    for size in range(2, alphabet.max_nodes + 1):
        total = [0] * top
        for operator in alphabet.operators:
            for (a, b, c), half in operand_sizes(size, operator):
                ways = _products(_products(counts[a], counts[b], half), counts[c], False)
                total = [have + more for have, more in zip(total, ways, strict=True)]
        counts.append(total)
    return [0, *map(sum, counts[1:])]


def operand_sizes(size: int, operator: defined.Written) -> list[tuple[tuple[int, int, int], bool]]:
    """(sizes of the operands, 0 where there is none; whether half the pairs count), larger first ones first."""
    if operator.arity == 1:
        return [((size - 1, 0, 0), False)]
    if operator.arity == 2:
        is_half = operator.commutative
        lefts = (left for left in range(size - 2, 0, -1) if not is_half or 2 * left >= size - 1)
        return [((left, size - 1 - left, 0), is_half and 2 * left == size - 1) for left in lefts]
    pairs = ((a, b) for a in range(size - 3, 0, -1) for b in range(size - 2 - a, 0, -1))
    return [((a, b, size - 1 - a - b), False) for a, b in pairs]


def _products(left: list[int], right: list[int], half: bool) -> list[int]:
    """Numbers of pairs by their parameters, those of the operands given likewise; ``half``: (b, a) is (a, b)."""
    total = [0] * len(left)
    for i, a in enumerate(left):
        for j, b in enumerate(right[: len(left) - i]):
            if not half or i <= j:
                total[i + j] += a * (a + 1) // 2 if half and i == j else a * b
    return total


def _first(counts: list[int], limit: int | None) -> list[int]:
    """The counts by size when only the first ``limit`` expressions are wanted."""
    if limit is None:
        return counts
    limit = whole("limit", limit, 0)
    ends = [min(end, limit) for end in itertools.accumulate(counts, initial=0)]
    return [end - begin for begin, end in itertools.pairwise(ends)]


def _check_memory(counts: list[int]) -> None:
    # The matrices of symbols and the population live side by side for a moment; an
    # operator that is spelled out takes a second token.
    sizes = enumerate(counts)
    needed = sum(n * (size * (1 + 1.5 * BYTES_PER_TOKEN) + BYTES_PER_EXPRESSION + 16) for size, n in sizes)
    what = f"up to {len(counts) - 1} nodes there are {sum(counts):,} expressions, which"
    arguments.check_memory(needed, what, "take fewer nodes, operators, variables or parameters, or limit=")


class _Size(NamedTuple):
    """All expressions of one size: a row of symbols each, and how many parameters it has."""

    symbols: Annotated[np.ndarray, "uint8[n, size]"]
    n_params: Annotated[np.ndarray, "uint8[n]"]


def _build(counts: list[int], alphabet: _Alphabet) -> list[_Size]:
    """The expressions by size from 1 on."""
    sizes = [zeros(_Size, n=1, size=0)]  # no operand
    for size in range(1, len(counts)):
        rows, position = empty(_Size, n=counts[size], size=size), 0
        sizes.append(rows)
        if size == 1:
            rows.symbols[:, 0] = np.arange(alphabet.parameter + (alphabet.n_params > 0))[: counts[1]]
            rows.n_params[:] = rows.symbols[:, 0] == alphabet.parameter
            continue
        for operator in alphabet.operators:
            symbol = alphabet.symbol(operator)
            for (a, b, c), half in operand_sizes(size, operator):
                operands = sizes[a], sizes[b], sizes[c]
                position = _combine(*operands, half, symbol, alphabet.n_params, rows, position)
    return sizes[1:]


@inline
def _copied(row, start, symbols, i):
    """Write an operand from ``start`` on; return where it ends."""
    width = symbols.shape[1]
    for k in range(width):
        row[start + k] = symbols[i, k]
    return start + width


@compiled
def _combine(a, b, c, half, symbol, most_params, out, position):
    """Write an operator over all its operands, one of each kind; return the next free row."""
    symbols_a, symbols_b, symbols_c, symbols = a.symbols, b.symbols, c.symbols, out.symbols
    params_a, params_b, params_c, n_params = a.n_params, b.n_params, c.n_params, out.n_params
    for i in range(len(symbols_a)):
        for j in range(i if half else 0, len(symbols_b)):
            for k in range(len(symbols_c)):
                if position == len(symbols):
                    return position
                count = params_a[i] + params_b[j] + params_c[k]
                if count > most_params:
                    continue
                row = symbols[position]
                row[_copied(row, _copied(row, _copied(row, 0, symbols_a, i), symbols_b, j), symbols_c, k)] = symbol
                n_params[position] = count
                position += 1
    return position


def _population(
    sizes: list[_Size], alphabet: _Alphabet, spelled_out: bool, names: Words, done: Callable[[int], None]
) -> Population:
    spelling = _spelling(alphabet, spelled_out)
    lengths = [_lengths(size.symbols, spelling.inner) for size in sizes]
    offsets = np.concatenate([np.zeros(1, np.int64), *lengths]).cumsum()
    tokens, first = empty(NewTokens, n=offsets[-1]), 0
    for size in sizes:
        starts = offsets[first : first + len(size.symbols) + 1]
        slices.each(functools.partial(_spell, size.symbols, spelling, tokens, starts), slices.short(starts), done)
        first += len(size.symbols)
    return Population._adopt(*tokens, offsets, names)


class _Spelling(NamedTuple):
    """The token of each symbol."""

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


def _two_in_one(row: defined.Written) -> tuple[defined.Written, int]:
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
def _spell(symbols, spelling, tokens, offsets, begin, end):
    """Turn rows ``begin`` to ``end`` of symbols into tokens.

    ``starts`` is a stack of where each open operand starts.  The operator that is put on
    operand a goes where a ends, which is where b starts, or where its own token stands.
    """
    kinds, values, arity, inner = spelling.kinds, spelling.values, spelling.arity, spelling.inner
    out_kinds, out_values = tokens.kinds, tokens.values
    width, position = symbols.shape[1], offsets[begin]
    starts = np.empty(width + 1, np.int64)
    before = np.zeros(width + 1, np.uint64)
    for i in range(begin, end):
        top = 0
        before[:] = 0
        for k in range(width):
            symbol = symbols[i, k]
            if arity[symbol] == 0:
                starts[top] = k
                top += 1
            elif arity[symbol] == 1:
                before[k] = inner[symbol]
            elif arity[symbol] == 2:
                top -= 1
                before[starts[top]] = inner[symbol]
            else:
                top -= 2
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
