"""Operators defined by functions: a NumPy function, CUDA text and derivatives become a row of the operator table.

In: what ``exprkit.operator`` takes besides a formula.  Out: a row that every backend runs as it runs the table's own.

    >>> import exprkit as ek, numpy as np
    >>> _ = ek.operator("sinc", numpy=np.sinc)
    >>> ek.Evaluator(ek.parse("sinc(x1 / 2)"), [[1.0]], backend="cpu", dtype="float64").evaluate().round(4)
    array([[0.6366]])

A function is given float64 arrays of one shape and gives one of that shape; it depends on nothing else, for it is
called in any order.  Nothing of it is saved: files and pickles hold the operator's name.

Programs know operators of one and two operands.  One of three is in texts a ``Definition``, which is written out as
``f((a, b), c)``: a row of two operands, the first of which is ``pair_of(a, b)``, two numbers side by side.  A program
computes a into a slot and b into the next one; what takes them has c, on a GPU in the accumulator.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from exprkit.errors import ArgumentError, ParseError, brief, listed, whole_number
from exprkit.operators import defined, ops, traced_vectors
from exprkit.operators.defined import OPERAND
from exprkit.operators.traced import trace_of
from exprkit.text import formulas
from exprkit.text.define import check_name, formula_tokens, intervals_of, latex_parts
from exprkit.text.names import Names
from exprkit.text.printer import texts as texts_of
from exprkit.text.tokens import OPERATOR

LETTERS = ("a", "b", "c", "y")  # of which a derivative is a text
MEANING = "a function of the user's own"
TRIED = 9  # numbers of its domain that a function is tried on
FORM = "write it as ek.operator('name(a)', numpy=…), with a and b for two operands, a, b and c for three"


def define(text: str, function: Any, cuda: str, derivative: Any, domain: Any, latex: str) -> defined.Written:
    """Put it into the table; arguments and errors are those of ``exprkit.operator``."""
    if not callable(function):
        raise ArgumentError(f"numpy must be a function of NumPy arrays, not {brief(function)}")
    name, arity = _head(text, function)
    if not isinstance(cuda, str):
        raise ArgumentError(f"operator {name!r}: cuda must be CUDA C as a text, not {brief(cuda)}")
    _check_known(name, arity)
    intervals = intervals_of(name, domain, arity)
    compiled = function if type(function).__module__.startswith("numba.") else None
    definition = _as_definition(name, arity, function, compiled)
    _try(name, definition, intervals)
    machine_code = _machine_code(definition, compiled, arity, intervals)
    slopes, operands = _slopes(name, arity, derivative), ("a", "b", "c")[:arity]
    parts = latex_parts(name, latex, operands) if arity == 3 else ()
    row = defined.add_row(
        ops.operator(
            name,
            min(arity, 2),
            MEANING,
            numpy=(lambda pair, c: definition(pair[0], pair[1], c)) if arity == 3 else definition,
            packed=arity == 3,
            domain=intervals,
            cuda=_cuda_cell(name, cuda, ("a", "a_low", "b") if arity == 3 else operands),
            derivative=slopes,
            latex="" if arity == 3 else latex,
            **machine_code,
        )
    )
    if arity < 3:
        return row
    return defined.add(
        defined.Definition(
            name=name,
            operands=operands,
            formula=MEANING,
            kinds=np.array([OPERAND, OPERAND, OPERATOR, OPERAND, OPERATOR], np.uint8),
            values=np.array([0, 1, ops.PAIR_OF, 2, row.code], np.uint64),
            uses=(),
            domain=intervals,
            latex=latex,
            latex_parts=parts,
            function=True,
        )
    )


def _cuda_cell(name: str, text: str, operands: Sequence[str]) -> ops.Cuda:
    """The call of the user's CUDA text, an expression or the body of a function."""
    body = text if "return" in text else f"return {text};"
    return ops.Cuda(f"user_{name}({', '.join(operands)})" if text.strip() else "", body=body)


def _machine_code(
    definition: Callable[..., np.ndarray], compiled: Any, arity: int, domain: tuple[ops.Interval, ...]
) -> dict[str, Any]:
    """Cells for the CPU backend: a function of Numba's, as vector code where it can be traced."""
    trace = None if compiled is None else trace_of(compiled, arity)
    if trace is None or not trace.agrees(definition, domain):
        return {"compiled": compiled}
    trace = trace._replace(in_floats=traced_vectors.is_close_in_floats(trace, definition, domain))
    simd, simd_fast = (traced_vectors.formula(trace, fast) for fast in (False, True))
    return {"compiled": compiled, "traced": trace, "simd": simd, "simd_fast": simd_fast}


def _check_known(name: str, arity: int) -> None:
    """An error for a name that means something else."""
    known = defined.spelled(name)
    functions = [*defined.functions(), *(definition for definition in defined.definitions() if definition.function)]
    if known is None or known not in functions:
        check_name(name)
    if known is not None and known not in functions:
        raise ArgumentError(f"operator {name!r} is a formula already; give the new one another name")
    if known is not None and (known.arity == 3) != (arity == 3):
        raise ArgumentError(f"operator {name!r} is {defined.head(known)!r} already; give the new one another name")


def _head(text: Any, function: Any) -> tuple[str, int]:
    """Name and number of operands."""
    name, bracket, operands = text.strip().partition("(") if isinstance(text, str) else ("", "", "")
    arity = operands.count(",") + 1 if bracket else _arity_of(function)
    letters = "abc"[: arity or 0]
    if not name.strip() or (bracket and operands.replace(" ", "") != f"{','.join(letters)})"):
        raise ArgumentError(f"{brief(text)} does not name an operator that is a function: {FORM}")
    if arity is None or not 1 <= arity <= defined.MOST_OPERANDS:
        raise ArgumentError(f"operator {name!r}: a function has one to three operands, a, b and c; {FORM}")
    return name.strip(), arity


def _arity_of(function: Any) -> int | None:
    """How many arrays a function takes; None where it does not say."""
    if (n := whole_number(getattr(function, "nin", None))) is not None:
        return n
    try:
        parameters = inspect.signature(getattr(function, "py_func", function)).parameters.values()
    except (TypeError, ValueError):
        return None
    kinds = [parameter.kind for parameter in parameters if parameter.default is parameter.empty]
    return len(kinds) if all(kind in (0, 1) for kind in kinds) else None


def _as_definition(name: str, arity: int, function: Any, compiled: Any) -> Callable[..., np.ndarray]:
    """The function as the definition has it: of float64 arrays, and complained of by its name."""
    of_arrays = function
    if compiled is not None and not hasattr(function, "nin"):  # of single numbers, by numba.njit
        from numba import float64, vectorize

        scalars = lambda a: function(a), lambda a, b: function(a, b), lambda a, b, c: function(a, b, c)
        of_arrays = vectorize([float64(*[float64] * arity)])(scalars[arity - 1])

    def definition(*operands: np.ndarray) -> np.ndarray:
        shape = np.broadcast_shapes(*map(np.shape, operands))
        try:
            array = np.asarray(of_arrays(*operands))
            result = array.astype(np.float64, copy=False) if array.dtype.kind in "fiub" else None
        except Exception as error:
            raise ArgumentError(f"operator {name!r}: its function raised {type(error).__name__}: {error}") from error
        if result is None:
            raise ArgumentError(f"operator {name!r}: its function makes {array.dtype} of float64")
        if result.shape != shape:
            raise ArgumentError(f"operator {name!r}: its function makes {result.shape} of arrays of shape {shape}")
        return result

    return definition


def _try(name: str, definition: Callable[..., np.ndarray], domain: tuple[ops.Interval, ...]) -> None:
    """Call it on some numbers of its domain, in an order that tells numbers apart."""
    operands = [np.linspace(low, high, TRIED + 2)[1:-1] for low, high in domain]
    with np.errstate(all="ignore"):
        together = definition(*operands)
        last = definition(*(a[-1:] for a in operands))
    if not np.allclose(together[-1:], last, rtol=1e-9, atol=0, equal_nan=True):
        raise ArgumentError(f"operator {name!r}: its function gives a number alone another result than among others")


def _slopes(name: str, arity: int, derivative: Any) -> tuple[str, ...]:
    """The derivatives in exprkit's own text over its operands and y, with formulas written out."""
    if derivative is None:
        return ()
    alone = callable(derivative) or isinstance(derivative, str)
    slopes: Sequence[Any] = [derivative] if alone else listed(derivative) or []
    if len(slopes) != arity:
        raise ArgumentError(f"operator {name!r}: derivative must be a text or function for each of {arity} operands")
    texts = []
    for letter, head in zip("abc", slopes, strict=False):
        if callable(head):
            row = define(f"d{name}_d{letter}({', '.join('abc'[:arity])})", head, "", None, None, "")
            head = defined.head(row)
        if not isinstance(head, str):
            words = ", ".join("abc"[:arity])
            raise ArgumentError(f"operator {name!r}: a derivative is a text over {words} and y or a function")
        texts.append(_written_out(name, head, arity))
    return tuple(texts)


class _OneRule(NamedTuple):
    """A derivative's tokens, as printers take them."""

    kinds: np.ndarray
    values: np.ndarray
    offsets: np.ndarray
    variables: tuple[str, ...]
    parameters: None = None


def _written_out(name: str, text: str, arity: int) -> str:
    """A derivative without operators that are formulas."""
    letters = LETTERS if arity == 3 else ("a", "b", "y")
    try:
        kinds, values = formula_tokens(text, Names(letters, 0))
    except ParseError as error:
        raise ParseError(f"operator {name!r}, derivative: {error}") from None
    expansion = formulas.expanded(kinds, values, np.array([0, len(kinds)]), formulas.user_formulas())
    tokens = defined.unpacked(expansion.kinds, expansion.values, expansion.offsets)
    return texts_of(_OneRule(*tokens, letters))[0]
