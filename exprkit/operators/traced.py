"""Numba functions as programs of the table's operators: what they compute, found by calling them with symbols.

In: a function that Numba has compiled.  Out: a ``TracedFunction``, of which ``kernels`` makes vector code as of any
operator; None for a function that needs more than arithmetic, NumPy's and ``math``'s functions, and conditions.  One
whose results are not the function's on the numbers of ``agrees`` is not used.

    >>> import numba, numpy as np
    >>> from exprkit.operators.traced import trace_of
    >>> trace_of(numba.njit(lambda a: np.exp(a) + 1 if a < 0 else 2.0), 1).listing()
    ['v1 = less(a, 0.0)', 'v2 = exp(a)', 'v3 = add(v2, 1.0)', 'v4 = v3 if v1 else 2.0']

A condition is met one way and, in another call, the other way; both results are computed then, and one of them is
chosen.  ``traced_vectors`` makes code of it.
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from exprkit.operators import ops

MOST_LINES, MOST_CALLS = 500, 64  # of a trace, and of its function: one for each way through its conditions
LETTERS = "abc"
CHOICE = -1  # the code of "b if a else c"
ORDINARY = 64  # numbers of each operand that a trace is tried with
# signs change there, halves and whole numbers are rounded, and what is large or small is no longer a number or not 0
SPECIAL = (
    0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 3.0, 0.5, -0.5, 1.5, -1.5, 2.5, 10.0, 100.0, -1e-9, 1e9, 1e-30, 1e-300, -1e-300,
    1e300, -1e300, math.inf, -math.inf, math.nan,
)  # fmt: skip
MOST_OWN = 8  # of a function's own numbers that are tried as well, with what is next to them
CLOSE = 1e-9
LAST_PLACE, OFF, TIMES = 2.0**-52, 1e-6, 4  # of float64; by how much a result may change with them, as often tried


class Line(NamedTuple):
    """One operation; operands are numbers, or places: of the function's operands, then of lines."""

    code: int
    operands: tuple[int | float, ...]  # a place is an int

    @property
    def places(self) -> list[int]:
        """The operands that are places."""
        return [operand for operand in self.operands if isinstance(operand, int)]


class TracedFunction(NamedTuple):
    """A function as operations one after the other."""

    arity: int
    lines: tuple[Line, ...]
    result: int | float
    in_floats: bool = False  # whether float32 is exact enough (``traced_vectors.is_close_in_floats``)

    def listing(self) -> list[str]:
        """The operations as text."""
        names = [*LETTERS[: self.arity], *(f"v{k + 1}" for k in range(len(self.lines)))]
        words = []
        for code, operands in self.lines:
            arguments = [names[operand] if isinstance(operand, int) else repr(operand) for operand in operands]
            name = "" if code == CHOICE else ops.BY_CODE[code].name
            words.append(
                "{1} if {0} else {2}".format(*arguments) if code == CHOICE else f"{name}({', '.join(arguments)})"
            )
        return [f"{name} = {word}" for name, word in zip(names[self.arity :], words, strict=True)]

    def run(
        self,
        operands: Sequence[Any],
        number: Callable[[float], Any],
        applied: Callable[[ops.Operator, list[Any]], Any],
        choose: Callable[[Any, Any, Any], Any],
    ) -> list[Any]:
        """The operands, the value of every line by these functions, and behind them the result."""
        values = list(operands)
        for code, places in self.lines:
            arguments = [values[operand] if isinstance(operand, int) else number(operand) for operand in places]
            values.append(choose(*arguments) if code == CHOICE else applied(ops.BY_CODE[code], arguments))
        return [*values, values[self.result] if isinstance(self.result, int) else number(self.result)]

    def agrees(self, definition: Callable[..., np.ndarray], domain: Sequence[tuple[float, float]]) -> bool:
        """Whether it gives what the function does, on ordinary numbers and on special ones that it takes.

        Then operators are off by last places, as they are in machine code: it has to be nearly the same.
        """
        random = np.random.default_rng(0)
        usual = [random.uniform(low, high, ORDINARY) for low, high in domain]
        try:
            definition(*usual)
        except Exception:  # as for a division by zero
            return False
        operands = [np.concatenate(samples) for samples in zip(usual, *self._hard(random), strict=True)]
        with np.errstate(all="ignore"):
            expected, known = defined_values(definition, operands)

            def is_close(share: float, close: float, least: float) -> bool:
                def applied(row: ops.Operator, given: list[Any]) -> np.ndarray:
                    error = max(row.ulp[1] - 0.5, 0.0) * share * random.choice([-1.0, 1.0], known.shape)
                    return np.asarray(row.numpy(*given) * (1 + error))

                computed = np.broadcast_to(self.run(operands, float, applied, _chosen)[-1], known.shape)[known]
                return np.allclose(computed, expected[known], rtol=close, atol=least, equal_nan=True)

            return is_close(0.0, CLOSE, 1e-300) and all(is_close(LAST_PLACE, OFF, OFF) for _ in range(TIMES))

    def _hard(self, random: np.random.Generator) -> Iterator[list[np.ndarray]]:
        """Operands of every size, and every choice of special numbers."""
        for largest in (6, 300):
            yield [
                random.normal(size=ORDINARY) * 10.0 ** random.uniform(-largest, largest, ORDINARY)
                for _ in range(self.arity)
            ]
        own = dict.fromkeys(number for line in self.lines for number in line.operands if isinstance(number, float))
        near = [
            side
            for number in list(own)[:MOST_OWN]
            for side in (number, -number, *np.nextafter(number, (-np.inf, np.inf)))
        ]
        special = [*SPECIAL, *near] if self.arity < 3 else SPECIAL
        yield [axis.ravel() for axis in np.meshgrid(*[np.array(special)] * self.arity)]


def defined_values(
    definition: Callable[..., np.ndarray], operands: Sequence[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """The values of a function, and where it has any: it may raise an error for some of these numbers."""
    try:
        return definition(*operands), np.ones(len(operands[0]), bool)
    except Exception:
        values, known = np.full(len(operands[0]), np.nan), np.ones(len(operands[0]), bool)
    for i in range(len(values)):
        try:
            values[i] = definition(*(a[i : i + 1] for a in operands))[0]
        except Exception:
            known[i] = False
    return values, known


def _chosen(condition: np.ndarray, a: Any, b: Any) -> np.ndarray:
    return np.where(np.not_equal(condition, 0.0), a, b)


def trace_of(function: Any, arity: int) -> TracedFunction | None:
    """The trace of a function of Numba's; None where it can't be made."""
    recorder = _Recorder(arity)
    try:
        return recorder.trace(_plain(function, {}))
    except Exception:  # the function may do anything
        return None


# ── symbols ──────────────────────────────────────────────────────────────────────────


class _NotTraceable(Exception):
    """The function does what no trace does."""


class _Recorder:
    """The operations of the calls of a function so far, equal ones once."""

    def __init__(self, arity: int) -> None:
        self._arity, self._lines = arity, {}  # type: tuple[int, dict[Line, int]]
        self._decisions: list[bool] = []
        self._asked: list[int] = []  # the places of conditions of this call
        self._n_calls = 0

    def trace(self, function: Callable[..., Any]) -> TracedFunction:
        result = self._explored(function, [])
        return TracedFunction(self._arity, tuple(self._lines), result)

    def _explored(self, function: Callable[..., Any], decisions: list[bool]) -> int | float:
        """The result after these decisions: all later conditions go both ways."""
        self._n_calls += 1
        if self._n_calls > MOST_CALLS:
            raise _NotTraceable
        self._decisions, self._asked = decisions, []
        result = self.place(function(*(_Symbol(self, k) for k in range(self._arity))))
        asked = self._asked
        for k in range(len(asked) - 1, len(decisions) - 1, -1):
            way = [*decisions, *[True] * (k - len(decisions))]
            result = self.add(CHOICE, asked[k], result, self._explored(function, [*way, False]))
        return result

    def decide(self, place: int) -> bool:
        """Which way a condition goes."""
        k = len(self._asked)
        if k >= MOST_CALLS:
            raise _NotTraceable
        self._asked.append(place)
        return self._decisions[k] if k < len(self._decisions) else True

    def place(self, value: Any) -> int | float:
        """The place of a symbol, or a number."""
        if isinstance(value, _Symbol):
            return value.place
        if isinstance(value, bool | int | float | np.bool_ | np.integer | np.floating):
            return float(value)
        raise _NotTraceable

    def add(self, code: int, *operands: int | float) -> int:
        line = Line(code, operands)
        if len(self._lines) >= MOST_LINES:
            raise _NotTraceable
        return self._lines.setdefault(line, self._arity + len(self._lines))

    def applied(self, row: ops.Operator, *operands: Any) -> _Symbol:
        """An operator of symbols and numbers."""
        places = [self.place(operand) for operand in operands]
        b = places[-1]
        if len(places) == 2 and isinstance(b, float):
            if b in row.rewrite.constant_b:
                row, places = ops.BY_NAME[row.rewrite.constant_b[b]], places[:1]
            elif row.rewrite.whole_b and b.is_integer():  # which fast powers have no numbers below 0 without
                row = ops.BY_NAME[row.rewrite.whole_b]
        return _Symbol(self, self.add(row.code, *places))

    def chosen(self, condition: Any, a: Any, b: Any) -> _Symbol:
        return _Symbol(self, self.add(CHOICE, *map(self.place, (condition, a, b))))


class _Symbol:
    """Stands for a number; what is done with it is recorded."""

    __hash__ = None  # type: ignore[assignment]
    __slots__ = ("place", "recorder")

    def __init__(self, recorder: _Recorder, place: int) -> None:
        self.recorder, self.place = recorder, place

    def __bool__(self) -> bool:
        return self.recorder.decide(self.place)

    def __pos__(self) -> _Symbol:
        return self

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **more: Any) -> Any:
        if method != "__call__" or more or ufunc not in _UFUNCS:
            raise _NotTraceable
        return _UFUNCS[ufunc](*operands)


Function = Callable[..., Any]


def _of_row(row: ops.Operator) -> Function:
    """An operator on numbers, at least one of which is a symbol."""

    def function(*operands: Any) -> _Symbol:
        if len(operands) != row.arity:
            raise _NotTraceable
        (recorder, *_) = (operand.recorder for operand in operands if isinstance(operand, _Symbol))
        return recorder.applied(row, *operands)

    return function


def _reflected(function: Function) -> Function:
    return lambda a, b: function(b, a)


_greater, _less, _at_least, _at_most = (
    _of_row(ops.BY_CODE[code]) for code in (ops.GREATER, ops.LESS, ops.GREATEREQUAL, ops.LESSEQUAL)
)


def _equal(a: Any, b: Any) -> _Symbol:
    return _at_least(a, b) * _at_most(a, b)


def _different(a: Any, b: Any) -> _Symbol:
    is_equal: Any = _equal(a, b)
    return _less(is_equal, 1.0)


def _outer(is_outer: Function) -> Function:
    """The larger or smaller of two, as NumPy has it: nan where one is."""

    def function(a: Any, b: Any) -> _Symbol:
        choice = is_outer(b, a).recorder.chosen
        first: _Symbol = choice(is_outer(b, a), b, a)
        return choice(_different(b, b), b, first) if isinstance(b, _Symbol) else first

    return function


_UFUNCS: dict[Any, Function] = {
    **{row.numpy: _of_row(row) for row in ops.OPERATORS if isinstance(row.numpy, np.ufunc)},
    np.maximum: _outer(_greater),
    np.minimum: _outer(_less),
    np.isnan: lambda a: _different(a, a),
    np.equal: _equal,
    np.not_equal: _different,
    np.greater: _greater,
    np.less: _less,
    np.greater_equal: _at_least,
    np.less_equal: _at_most,
    np.fabs: _of_row(ops.BY_CODE[ops.ABS]),
}
for _method, _row in ops.BY_METHOD.items():
    setattr(_Symbol, _method, _of_row(_row))
    if _row.arity == 2:
        setattr(_Symbol, f"__r{_method[2:]}", _reflected(_of_row(_row)))
for _method, _compare in zip(
    ("gt", "lt", "ge", "le", "eq", "ne"), (_greater, _less, _at_least, _at_most, _equal, _different), strict=True
):
    setattr(_Symbol, f"__{_method}__", _compare)


# ── the function, so that it takes them ──────────────────────────────────────────────


class _Math:
    """Stands for the module ``math``."""

    def __getattr__(self, name: str) -> Any:
        value, row = getattr(math, name), ops.BY_SPELLING.get(name)
        if not callable(value):
            return value
        other = _UFUNCS.get(getattr(np, name, None)) if row is None else _of_row(row)

        def function(*operands: Any) -> Any:
            if not any(isinstance(operand, _Symbol) for operand in operands):
                return value(*operands)
            if other is None:
                raise _NotTraceable
            return other(*operands)

        return function


def _plain(function: Any, known: dict[int, Any]) -> Any:
    """A function of Numba's as Python has it, with ``math`` and other functions of Numba's in it replaced."""
    inner = getattr(function, "py_func", None) or getattr(getattr(function, "_dispatcher", None), "py_func", None)
    if not isinstance(inner, types.FunctionType):
        raise _NotTraceable
    if id(inner) in known:
        return known[id(inner)]
    names = dict(inner.__globals__)
    copy = known[id(inner)] = types.FunctionType(
        inner.__code__,
        names,
        inner.__name__,
        inner.__defaults__,
        (tuple(types.CellType(_replaced(cell.cell_contents, known)) for cell in inner.__closure__ or ())),
    )
    for name, value in inner.__globals__.items():
        names[name] = _replaced(value, known)
    return copy


def _replaced(value: Any, known: dict[int, Any]) -> Any:
    if value is math:
        return _Math()
    if isinstance(value, types.BuiltinFunctionType) and value.__module__ == math.__name__:
        return getattr(_Math(), value.__name__)
    if type(value).__module__.startswith("numba.") and hasattr(value, "py_func"):
        return _plain(value, known)
    return value
