"""``Expression``: one expression of a population, to look at, to build by operators and to export.

An Expression is a view of its tokens, which cannot be changed.  Operators of Python,
NumPy's functions and the table's functions (``ek.exp``) on Expressions and numbers make
new ones; ``ek.parse`` takes lists of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from exprkit import expressions
from exprkit.errors import ArgumentError, OperandError, PopulationError, checks_keywords, checks_methods
from exprkit.numbers import as_numbers
from exprkit.operators import defined, ops
from exprkit.text.names import NUMBERED, PLURAL, Given, Names, usual_as_none
from exprkit.text.tokens import CONSTANT, MAX_TOKENS, OPERATOR, PARAMETER, VARIABLE, Words

if TYPE_CHECKING:
    import sympy

SHOWN = 200  # characters of a repr
SIGN = np.uint64(1 << 63)  # of a float64
TYPESET = 500  # tokens; notebooks show longer expressions as text

BY_UFUNC = {row.numpy: row for row in reversed(ops.OPERATORS) if isinstance(row.numpy, np.ufunc)}


def _operator(method: str) -> Callable[..., Expression]:
    """Python's special method ``method`` as the table has it."""
    row = ops.BY_METHOD[method]
    if row.arity == 1:
        return lambda self: Expression.applied(row, self)
    return lambda self, other: Expression.applied(row, self, other) if _is_operand(other) else NotImplemented


def _reflected(method: str) -> Callable[[Expression, Any], Expression]:
    row = ops.BY_METHOD[method]
    return lambda self, other: Expression.applied(row, other, self) if _is_operand(other) else NotImplemented


@checks_methods
class Expression:
    """A view of one expression's postfix tokens.

    Attributes
    ----------
    kinds : uint8 array, shape (n_tokens,)
    values : uint64 array, shape (n_tokens,)
        as in ``population``; no tokens for an expression that could not be read
    variables, parameters : tuple of str or None
        names; None for ``x1, x2, …`` and ``p1, p2, …``

    Examples
    --------
    >>> import exprkit as ek
    >>> x1, x2 = ek.variables(2)
    >>> p1, = ek.parameters(1)
    >>> print(p1 * x1**2 + ek.exp(-x2))
    p1 * x1 ^ 2 + exp(-x2)
    """

    __slots__ = ("kinds", "parameters", "values", "variables")

    def __init__(
        self, kinds: np.ndarray, values: np.ndarray, variables: Words = None, parameters: Words = None
    ) -> None:
        self.kinds = kinds
        self.values = values
        self.variables = variables
        self.parameters = parameters

    # ── building ──

    __add__, __radd__ = _operator("__add__"), _reflected("__add__")
    __sub__, __rsub__ = _operator("__sub__"), _reflected("__sub__")
    __mul__, __rmul__ = _operator("__mul__"), _reflected("__mul__")
    __truediv__, __rtruediv__ = _operator("__truediv__"), _reflected("__truediv__")
    __pow__, __rpow__ = _operator("__pow__"), _reflected("__pow__")
    __mod__, __rmod__ = _operator("__mod__"), _reflected("__mod__")
    __neg__, __abs__ = _operator("__neg__"), _operator("__abs__")
    __round__, __floor__, __ceil__ = _operator("__round__"), _operator("__floor__"), _operator("__ceil__")

    def __pos__(self) -> Expression:
        return self

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *operands: Any, **options: Any) -> Any:
        """NumPy's functions on Expressions and numbers: ``np.exp(x1)``, ``np.float64(2) * x1``."""
        row = BY_UFUNC.get(ufunc)
        if row is None or method != "__call__" or options or not all(map(_is_operand, operands)):
            return NotImplemented
        return Expression.applied(row, *operands)

    @staticmethod
    def applied(row: defined.Written, *operands: Expression | float) -> Expression:
        """The operator ``row`` on its ``operands``.

        Raises PopulationError where the operands' variables or parameters have different names, or for too many tokens.
        """
        parts = [operand if isinstance(operand, Expression) else constant(operand) for operand in operands]
        n_tokens = sum(part.n_tokens for part in parts) + 1
        if not all(part.valid for part in parts):
            raise PopulationError(f"an operand of {row.name} is an expression that could not be read")
        if n_tokens > MAX_TOKENS:
            raise PopulationError(f"an expression of {n_tokens:,} tokens; the limit is {MAX_TOKENS:,}")
        named = [
            common_names(((getattr(part, PLURAL[kind]), kind in part.kinds) for part in parts), kind)
            for kind in (VARIABLE, PARAMETER)
        ]
        checked_names(*named)
        return Expression(
            _frozen(np.concatenate([*(part.kinds for part in parts), [OPERATOR]]), np.uint8),
            _frozen(np.concatenate([*(part.values for part in parts), np.array([row.code], np.uint64)]), np.uint64),
            *named,
        )

    def with_numbers(self, params: Sequence[float] | np.ndarray) -> Expression:
        """The expression with ``params`` as constants, signs as one writes them: ``a - 2 * b``, not ``a + -2 * b``.

        Its values are the same to the last bit.

        >>> ek.parse("p1 - p2 * x1")[0].with_numbers([3, -2])
        <Expression: 3 + 2 * x1>
        """
        bits = np.asarray(params, np.float64).view(np.uint64)
        kinds, values = self.kinds.copy(), self.values.copy()
        places = np.flatnonzero(kinds == PARAMETER)
        if len(bits):
            values[places] = bits[values[places].astype(np.int64)]
        kinds[places] = CONSTANT
        negated = np.flatnonzero((kinds[1:] == OPERATOR) & (values[1:] == ops.NEG) & (kinds[:-1] == CONSTANT))
        values[negated] ^= SIGN
        kinds, values = np.delete(kinds, negated + 1), np.delete(values, negated + 1)
        _move_signs(kinds, values)
        return Expression(_frozen(kinds, np.uint8), _frozen(values, np.uint64), self.variables)

    # ── looking at it ──

    @property
    def valid(self) -> bool:
        """False for an expression that could not be read."""
        return len(self.kinds) > 0

    @property
    def n_tokens(self) -> int:
        return len(self.kinds)

    @property
    def offsets(self) -> np.ndarray:
        """As of a population of one."""
        return np.array([0, len(self.kinds)])

    @property
    def n_vars(self) -> int:
        return self._count(VARIABLE) if self.variables is None else len(self.variables)

    @property
    def n_params(self) -> int:
        return self._count(PARAMETER)

    def _count(self, kind: int) -> int:
        """The largest index of a kind + 1."""
        used = self.values[self.kinds == kind]
        return int(used.max()) + 1 if len(used) else 0

    def __str__(self) -> str:
        """The shortest text that ``parse`` reads back to the same tokens."""
        from exprkit.text.printer import texts

        return texts(self)[0]

    def __repr__(self) -> str:
        text = str(self) if self.valid else "not valid"
        return f"<Expression: {text if len(text) <= SHOWN else text[: SHOWN - 2] + ' …'}>"

    def latex(self) -> str:
        r"""LaTeX without dollar signs.

        >>> print(ek.parse("sqrt(x1) / x2")[0].latex())
        \frac{\sqrt{x_{1}}}{x_{2}}
        """
        from exprkit.text.printer import latex

        return latex(self)[0]

    def _repr_latex_(self) -> str | None:
        return f"${self.latex()}$" if 0 < self.n_tokens <= TYPESET else None

    def listing(self) -> str:
        """The postfix tokens as a row of cells: kind, text, bits or index or code.

        >>> print(ek.parse("x1 + 2")[0].listing())
        ┌──────────┬────────────────────┬──────────┐
        │ variable │ constant           │ operator │
        │ x1       │ 2                  │ +        │
        │ 0        │ 0x4000000000000000 │ 1        │
        └──────────┴────────────────────┴──────────┘
        """
        from exprkit.text.listing import listing

        return listing(self)

    def tree(self, max_depth: int = 40) -> str:
        """The tree, one operator or leaf per line; what is deeper than ``max_depth`` is only counted.

        >>> print(ek.parse("exp(-x1) + 2")[0].tree())
        +
        ├─ exp
        │  └─ -
        │     └─ x1
        └─ 2
        """
        from exprkit.text.listing import tree

        return tree(self, max_depth)

    def sympy(self) -> sympy.Expr:
        """The SymPy object, not simplified; constants keep their bits.

        >>> ek.parse("x1 * x1 + 2")[0].sympy()
        x1*x1 + 2
        """
        from exprkit.text.sympy_bridge import write

        return write(self)

    # ── its numbers ──

    def __call__(self, X: Any, params: Any = None) -> np.ndarray:
        """Its values at the data points, in float64 on the CPU.

        Parameters
        ----------
        X : array (n_points, n_vars), DataFrame, dict of columns or Dataset
            As for ``Evaluator``.
        params : list of float, optional
            A number for each parameter, where there are any; nan may follow, as in the rows of ``FitResult.params``.

        Returns
        -------
        float64 array, (n_points,)

        Raises
        ------
        DataError
            If ``X`` or ``params`` does not fit.
        """
        evaluator = expressions.evaluator(self, X, "cpu", dtype="float64")
        if params is not None:
            params = as_numbers("params", params)
            padded = params.ndim == 1 and len(params) > self.n_params and np.isnan(params[self.n_params :]).all()
            params = [params[: self.n_params] if padded else params]
        return np.asarray(evaluator.evaluate(params)[0])

    def to_numpy(self, params: Sequence[float] | None = None) -> str:
        """The text of a Python function ``f(X, params)`` over NumPy alone, which runs without exprkit.

        It gives what exprkit gives in float64, to some last places and special values included, but for ``lgamma``
        at -inf and below 1e-308; ``erf``, ``erfc``, ``gamma``, ``lgamma`` and ``digamma`` are taken from SciPy.

        Parameters
        ----------
        params : list of float, optional
            What ``params`` are if ``f`` is called without.

        Raises
        ------
        ParseError
            for an expression that could not be read.

        Examples
        --------
        >>> print(ek.parse("x1 + p1")[0].to_numpy([2.0]).splitlines()[-1].strip())
        return x1 + p1
        """
        from exprkit.text.python_writer import NUMPY, function

        return function(self, NUMPY, params)

    def code(self, language: str) -> str:
        """The text of a function in another language, for expressions of numbers alone.

        Parameters
        ----------
        language : {"c", "matlab", "julia", "excel"}
            C and Julia: of one data point; MATLAB: of a matrix of them; Excel: a formula for row 2, in which column A
            is the first variable.  Outside of an operator's domain MATLAB gives complex numbers, and Julia and Excel
            errors, where exprkit gives nan.

        Raises
        ------
        ParseError
            for an expression that could not be read.
        OperandError
            where the language has no such function or number, and where a parameter has no number.

        Examples
        --------
        >>> print(ek.parse("3 * exp(-x1)")[0].code("matlab"))
        % 3 * exp(-x1)
        function y = f(X)
            y = 3.0 .* exp(-X(:, 1));
        end
        """
        from exprkit.text.code_writer import code

        return code(self, language)

    def jax(self, params: Sequence[float] | None = None) -> str:
        """``to_numpy(params)`` for JAX, to be used with ``jax.grad`` and ``jax.jit``; float32 by JAX's default.

        >>> print(ek.parse("p1 * exp(-x1)")[0].jax([2.0]).splitlines()[-1].strip())
        return p1 * jnp.exp(-x1)
        """
        from exprkit.text.python_writer import JAX, function

        return function(self, JAX, params)

    def torch(self, params: Sequence[float] | None = None) -> str:
        """``to_numpy(params)`` for PyTorch tensors, on X's device; gradients flow through ``X`` and ``params``.

        Raises
        ------
        OperandError
            for ``gamma``, which PyTorch does not have.

        Examples
        --------
        >>> print(ek.parse("p1 * exp(-x1)")[0].torch([2.0]).splitlines()[-1].strip())
        return p1 * torch.exp(-x1)
        """
        from exprkit.text.python_writer import TORCH, function

        return function(self, TORCH, params)

    # ── as a value ──

    def _state(self) -> tuple[Any, ...]:
        variables = self.variables if self._count(VARIABLE) else None
        parameters = self.parameters if self._count(PARAMETER) else None
        return self.kinds.tobytes(), self.values.tobytes(), variables, parameters

    def __eq__(self, other: object) -> bool:
        """True if all tokens (constants bit by bit) and the names that matter are the same."""
        return self._state() == other._state() if isinstance(other, Expression) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._state())

    def __reduce__(self) -> tuple[Any, ...]:
        definitions = defined.saved(defined.codes_in(self.kinds, self.values, OPERATOR))
        return _rebuilt, (self.kinds, self.values, self.variables, self.parameters, definitions)


def _rebuilt(
    kinds: np.ndarray,
    values: np.ndarray,
    variables: Words,
    parameters: Words,
    definitions: tuple[defined.Saved, ...] = (),
) -> Expression:
    """An unpickled expression (NumPy forgets that an array was read-only)."""
    if definitions:
        from exprkit.text.define import restored

        values = restored(kinds, values, definitions)
    return Expression(_frozen(kinds, np.uint8), _frozen(values, np.uint64), variables, parameters)


# ── making expressions ───────────────────────────────────────────────────────────────


def variables(*names: int | str | Iterable[str]) -> tuple[Expression, ...]:
    """Variables to build expressions with, by number or ``names``: ``variables(2)`` or ``variables("r_k", "log_Re")``.

    Raises
    ------
    ParseError
        for a name that is not an identifier, is already in use, or is given twice.

    Examples
    --------
    >>> import exprkit as ek
    >>> r, t = ek.variables(["r", "t"])
    >>> print(ek.sqrt(r) + 2 * t)
    sqrt(r) + 2 * t
    """
    return _leaves(VARIABLE, names)


def parameters(*names: int | str | Iterable[str]) -> tuple[Expression, ...]:
    """Parameters to build expressions with, by number or ``names``: ``parameters(1)``, ``parameters("a", "b")``.

    Examples
    --------
    >>> import exprkit as ek
    >>> [str(p) for p in ek.parameters(2)]
    ['p1', 'p2']
    """
    return _leaves(PARAMETER, names)


def _leaves(kind: int, names: tuple[Any, ...]) -> tuple[Expression, ...]:
    words: Given = names[0] if len(names) == 1 and not isinstance(names[0], str) else names
    if kind == VARIABLE:
        checked = Names(variables=words)
        named, count = checked.variables, checked.max_x
    else:
        checked = Names(parameters=words)
        named, count = checked.parameters, checked.max_p
    return tuple(_leaf(kind, index, **{PLURAL[kind]: named}) for index in range(count if named is None else len(named)))


def _leaf(kind: int, value: int, **names: Words) -> Expression:
    return Expression(_frozen([kind], np.uint8), _frozen([value], np.uint64), **names)


def constant(number: float) -> Expression:
    """A number as an expression; one too large for float64 is inf, as in a text."""
    try:
        exact = np.float64(number)
    except OverflowError:
        exact = np.float64(np.inf if number > 0 else -np.inf)
    return _leaf(CONSTANT, int(np.float64(np.nan if np.isnan(exact) else exact).view(np.uint64)))


@checks_keywords
def operator(
    text: str, *, domain: Any = None, latex: str = "", numpy: Any = None, cuda: str = "", derivative: Any = None
) -> Callable[..., Expression]:
    r"""Define an operator, which the parser, generators, printers, SymPy and every backend then know.

    Parameters
    ----------
    text : str
        ``"swish(a) = a / (1 + exp(-a))"``: its name, one to three operands, and a formula of them as exprkit text,
        which may contain operators defined before.  ``"airy(a)"`` for an operator without a formula.
    domain : (low, high) for each operand, optional
        The usual range of its operands; stored with it, for samples.
    latex : str, optional
        How it is typeset: the name of a function, ``r"\operatorname{sw}"``, or a template with every operand in
        braces, in order, ``r"\frac{{a}}{{b}}"``.
    numpy : function, optional
        For an operator without a formula, its definition: a function of one to three float64 arrays of the same
        shape (a ufunc, for example).  A function compiled by ``numba.njit`` or ``numba.vectorize`` runs as machine
        code on the CPU: as vectors where it is made of arithmetic, functions of NumPy and ``math`` and conditions,
        for one number after the other where it is not, or where last places on the way decide the result.
        Of float32 data it is computed in float32 where that is exact to 16 units of the last place, of operands that
        may be off by as many, in numbers of ``domain`` and of every size; where it is not, or a number overflows on
        the way, in float64 (with precision="fast" never).  Any other is called for some 500 data points at a time.
    cuda : str, optional
        The same in CUDA C over ``a``, ``b``, ``c`` and their type ``T``: an expression, or the body of a function with
        ``return``.  It is your own program: NVRTC compiles it and the GPU runs it as it stands.  Without it, or if
        NVRTC rejects it, the GPU backends refuse the operator; "auto" skips them if it is missing.
    derivative : text or function, or one for each operand, optional
        dy/da (and dy/db, dy/dc) as exprkit text over a, b, c and the value y, ``"1 - y * y"``; or a function like
        ``numpy``, which becomes the operator ``dairy_da``.  Without it, parameters inside the operator cannot be
        fitted.

    Returns
    -------
    function
        It makes Expressions of Expressions and numbers; ``exprkit.swish`` is the same function.

    Raises
    ------
    ArgumentError
        For a name that is already in use with another meaning, and for a text that is no definition.
    ParseError
        For a formula that cannot be read; the message shows it with a caret.

    Notes
    -----
    Values, derivatives and speed are those of the same text written out: ``Population.expanded`` replaces the operator
    by its formula before lowering, which computes an operand only once even if the formula names it twice.  Files store
    only the name of a function operator: define it before you load them.

    Examples
    --------
    >>> import exprkit as ek
    >>> swish = ek.operator("swish(a) = a / (1 + exp(-a))")
    >>> pop = ek.parse(["p1 * swish(x1)", "swish(swish(x1))"])
    >>> print(pop[0], "=", pop.expanded()[0])
    p1 * swish(x1) = p1 * (x1 / (1 + exp(-x1)))
    """
    from exprkit.expressions import function_operators
    from exprkit.text.define import define

    if numpy is not None:
        return function(function_operators.define(text, numpy, cuda, derivative, domain, latex).name)
    if cuda or derivative is not None:
        raise ArgumentError("cuda= and derivative= belong to an operator that is a function: give it by numpy=")
    return function(define(text, domain, latex).name)


@defined.table_of_rows
def function(name: str) -> Callable[..., Expression]:
    """The function of this name, for Expressions and numbers; ``exprkit.<name>`` is the same.

    Raises
    ------
    KeyError
        for a name that no operator has.
    """
    row = defined.spellings()[name]

    def apply(*operands: Expression | float) -> Expression:
        if len(operands) < row.arity or (len(operands) > row.arity and not row.chain):
            more = " or more" if row.chain else ""
            takes = f"{row.arity}{more} argument{'s' * (row.arity > 1)}"
            raise OperandError(f"{name}() takes {takes}, {len(operands)} given")
        for operand in operands:
            if not _is_operand(operand):
                raise OperandError(f"{name}() takes Expressions and numbers, not {type(operand).__name__}")
        result = Expression.applied(row, *operands[: row.arity])
        for operand in operands[row.arity :]:
            result = Expression.applied(row, result, operand)
        return result

    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = row.meaning
    return apply


def common_names(named: Iterable[tuple[Words, bool]], kind: int) -> Words:
    """The names that all of ``(names, whether one is used)`` agree on; raises PopulationError where they do not."""
    pairs = [(usual_as_none(names, kind), is_used) for names, is_used in named]
    used = list(dict.fromkeys(names for names, is_used in pairs if is_used))
    if len(used) > 1:
        shown = " and ".join(f"({', '.join(names or (NUMBERED[kind] + '1', '…'))})" for names in used[:2])
        raise PopulationError(f"expressions with different {PLURAL[kind]}: {shown}; name them together, in one call")
    return used[0] if used else next((names for names, _ in pairs if names is not None), None)


@lru_cache(maxsize=16)  # of the populations in use: a set of names may be large
def checked_names(variables: Words, parameters: Words) -> Names:
    """The names of a population, once they are known to differ from each other and from functions."""
    return Names(variables, parameters, of_data=True)


def tokens_under(expression: Expression, names: Names) -> tuple[np.ndarray, np.ndarray]:
    """(kinds, values) of an expression that is to stand among others with these names.

    Raises PopulationError where its own names are others.
    """
    for kind in (VARIABLE, PARAMETER):
        target = getattr(names, PLURAL[kind])
        common_names([(target, True), (getattr(expression, PLURAL[kind]), kind in expression.kinds)], kind)
    return expression.kinds, expression.values


def _is_operand(operand: object) -> bool:
    return isinstance(operand, Expression) or (isinstance(operand, Real) and not isinstance(operand, bool))


def _frozen(data: Any, dtype: type) -> np.ndarray:
    array: np.ndarray = np.array(data, dtype)
    array.flags.writeable = False
    return array


def _move_signs(kinds: np.ndarray, values: np.ndarray) -> None:
    """Subtract what is added with a negative factor, and the other way round."""
    opposite = {ops.ADD: ops.SUB, ops.SUB: ops.ADD}
    factors_of: list[int] = []  # of each operand that waits its first factor that is a negative number, -1 if none is
    for token, (kind, value) in enumerate(zip(kinds.tolist(), values.tolist(), strict=True)):
        if kind != OPERATOR:
            factors_of.append(token if kind == CONSTANT and _is_negative(values[token]) else -1)
            continue
        row = defined.row(value)
        arity = 1 if row is None else row.arity
        factors_of, operands = factors_of[:-arity], factors_of[-arity:]
        if value in opposite and operands[1] >= 0:
            values[operands[1]] ^= SIGN
            values[token] = opposite[value]
        factors = operands if value in (ops.MUL, ops.DIV) else []
        factors_of.append(next((factor for factor in factors if factor >= 0), -1))


def _is_negative(bits: np.uint64) -> bool:
    return bool(bits & SIGN) and not np.isnan(bits.view(np.float64))
