"""Calls of operators that are Python functions of the user, which ``kernels`` does not compile.

In: a row and a form (``kernels``' table).  Out: the address of a kernel.  A function that Numba has compiled, and that
could not be traced (``operators.traced``), is called for one number after the other in machine code; any other is
given a tile of float64 numbers at a time, by the one thread that holds Python's lock.  What such a function raises is
kept, and raised when the loops have come back.

    >>> from exprkit.backends.cpu import callbacks
    >>> callbacks.raise_first()  # nothing has gone wrong so far
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numba import carray, cfunc, types

from exprkit.operators import ops
from exprkit.runtime.intrinsics import pointer

KERNEL = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)
_raised: list[BaseException] = []


def raise_first() -> None:
    """Raise what a function raised first since this was asked last."""
    if _raised:
        first = _raised[0]
        _raised.clear()
        raise first


def kernel(row: ops.Operator, scalars: tuple[int, ...], lanes: int, dtype: np.dtype, tile: int) -> Any:
    """``void k(y, a, b, n)``, of which operands that are ``scalars`` have one number; lanes 0: so has y.

    Of a row whose operand a is two, packed, the second lies a ``tile`` behind the first, or is the next number.
    It is to be kept as long as its ``address`` is used.
    """
    steps = [int(k not in scalars) for k in range(2)]
    between = np.dtype(dtype).itemsize * (tile if steps[0] else 1)  # bytes from one packed operand to the other
    if row.compiled is None:
        return _called(row, steps, lanes, dtype, between)
    return _compiled(row.compiled, 3 if row.packed else row.arity, steps, lanes, dtype, between)


def address(callback: Any) -> int:
    return int(getattr(callback, "address", 0) or ctypes.cast(callback, ctypes.c_void_p).value or 0)


def _called(row, steps, lanes, dtype, between):
    """The kernel of a Python function."""
    real = np.ctypeslib.as_ctypes_type(dtype)

    def numbers(place, n):
        return np.frombuffer((real * n).from_address(place), dtype).astype(np.float64)

    def run(y, a, b, n):
        size = n * lanes if lanes else 1
        out = np.frombuffer((real * size).from_address(y), dtype)
        try:
            operands = [
                numbers(place, size if step else 1) for place, step in zip((a, b)[: row.arity], steps, strict=False)
            ]
            if row.packed:
                operands.insert(1, numbers(a + between, size if steps[0] else 1))
            wide = np.broadcast_arrays(*operands)
            with np.errstate(all="ignore"):
                out[:] = row.numpy(wide[:2], wide[2]) if row.packed else row.numpy(*wide)
        except BaseException as error:  # the loop that has called cannot stop
            out[:] = np.nan
            _raised.append(error)

    return KERNEL(run)


_SIGNATURE = types.void(types.int64, types.int64, types.int64, types.int64)


def _compiled(function, arity, steps, lanes, dtype, between):
    """The kernel of a function of Numba's; operand b of one with three is its third."""
    real, (step, other_step) = np.dtype(dtype), steps

    @cfunc(_SIGNATURE)
    def run(y, a, b, n):
        size = n * lanes if lanes else 1
        out, first = carray(pointer(y), size, real), carray(pointer(a), size, real)
        second, last = carray(pointer(a + between), size, real), carray(pointer(b), size, real)
        for i in range(size):
            if arity == 1:
                out[i] = function(np.float64(first[i * step]))
            elif arity == 2:
                out[i] = function(np.float64(first[i * step]), np.float64(last[i * other_step]))
            else:
                packed = np.float64(first[i * step]), np.float64(second[i * step])
                out[i] = function(packed[0], packed[1], np.float64(last[i * other_step]))

    return run
