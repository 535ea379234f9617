"""What compiled loops need and Numba does not offer: calls by address, arrays without owners.

Used by ``lower`` and the CPU backend.

    >>> import numpy as np
    >>> from exprkit.native import take
    >>> counter = np.zeros(1, np.int64)
    >>> take(counter.ctypes.data), take(counter.ctypes.data)
    (0, 1)
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from exprkit.compiled import compiled

_I64 = ir.IntType(64)


@intrinsic
def borrowed(typingctx, fields):
    """The same named tuple, its arrays without ownership.

    Every call that is handed an array counts references with locked instructions, which
    cost more than the small loops here and drain the buffers of streaming stores; arrays
    without an owner are spared.  The caller holds the owners.
    """

    def without_owners(context, builder, signature, args):
        parts = []
        for kind, value in zip(fields.types, cgutils.unpack_tuple(builder, args[0]), strict=True):
            if isinstance(kind, types.Array):
                array = context.make_array(kind)(context, builder, value=value)
                array.meminfo = cgutils.get_null_value(array.meminfo.type)
                value = array._getvalue()
            parts.append(value)
        return context.make_tuple(builder, fields, parts)

    return fields(fields), without_owners


@intrinsic
def call(typingctx, address, arguments):
    """Call the function at ``address`` with whole numbers or addresses; it returns nothing."""

    def code(context, builder, signature, args):
        _call(builder, ir.VoidType(), args)
        return context.get_dummy_value()

    return types.void(types.int64, types.UniTuple(types.int64, len(arguments))), code


@intrinsic
def call_number(typingctx, address, arguments):
    """Call the function at ``address``; it returns a float64."""

    def code(context, builder, signature, args):
        return _call(builder, ir.DoubleType(), args)

    return types.float64(types.int64, types.UniTuple(types.int64, len(arguments))), code


def _call(builder, result, args):
    operands = cgutils.unpack_tuple(builder, args[1])
    kind = ir.FunctionType(result, [_I64] * len(operands))
    return builder.call(builder.inttoptr(args[0], kind.as_pointer()), operands)


@intrinsic
def _fetch_add(typingctx, address):
    def code(context, builder, signature, args):
        counter = builder.inttoptr(args[0], _I64.as_pointer())
        return builder.atomic_rmw("add", counter, _I64(1), "monotonic")

    return types.int64(types.int64), code


@compiled
def take(counter):
    """The number at the address ``counter``, which grows by one: no two threads get the same."""
    return _fetch_add(counter)
