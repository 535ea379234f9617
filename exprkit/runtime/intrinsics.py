"""Intrinsics that Numba lacks: calls by address, fused products, and atomic operations on shared numbers.

>>> import numpy as np
>>> from exprkit.runtime.intrinsics import take
>>> counter = np.zeros(1, np.int64)
>>> take(counter.ctypes.data), take(counter.ctypes.data)
(0, 1)
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import platform

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from exprkit.runtime.jit import compiled

_I64 = ir.IntType(64)
_PAUSES = {"x86": ("llvm.x86.sse2.pause", []), "arm": ("llvm.aarch64.isb", [15])}  # instruction, its numbers
_PROCESSORS = {"x86_64": "x86", "amd64": "x86", "aarch64": "arm", "arm64": "arm"}


def _caller(kind, result):
    """The intrinsic that calls the function at an address with a tuple of whole numbers or addresses."""

    @intrinsic
    def called(typingctx, address, arguments):
        def code(context, builder, signature, args):
            operands = cgutils.unpack_tuple(builder, args[1])
            pointer_type = ir.FunctionType(result, [_I64] * len(operands)).as_pointer()
            value = builder.call(builder.inttoptr(args[0], pointer_type), operands)
            if kind == types.void:
                return context.get_dummy_value()
            return builder.sext(value, _I64) if kind == types.int64 else value  # of 64 bits as it is

        return kind(types.int64, types.UniTuple(types.int64, len(arguments))), code

    return called


call = _caller(types.void, ir.VoidType())  # of a function that returns nothing,
call_number = _caller(types.float64, ir.DoubleType())  # a float64,
call_status = _caller(types.int64, ir.IntType(32))  # an int of C's,
call_whole = _caller(types.int64, _I64)  # an int64


@intrinsic
def fma(typingctx, a, b, c):
    """a * b + c, rounded once."""

    def code(context, builder, signature, args):
        return builder.fma(*args)

    return types.float64(types.float64, types.float64, types.float64), code


@intrinsic
def atomic_load(typingctx, address):
    """The number at ``address``; this and the next four happen in one order that all threads agree on."""

    def code(context, builder, signature, args):
        return builder.load_atomic(builder.inttoptr(args[0], _I64.as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), code


@intrinsic
def atomic_store(typingctx, address, number):
    """Write a number, for others to see together with all that was written before."""

    def code(context, builder, signature, args):
        builder.atomic_rmw("xchg", builder.inttoptr(args[0], _I64.as_pointer()), args[1], "seq_cst")
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


@intrinsic
def atomic_add(typingctx, address, number):
    """Add to the number at ``address``; returns what it was."""

    def code(context, builder, signature, args):
        return builder.atomic_rmw("add", builder.inttoptr(args[0], _I64.as_pointer()), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), code


@intrinsic
def exchange(typingctx, address, known, number):
    """Write a number where ``known`` is; whether it was."""

    def code(context, builder, signature, args):
        place = builder.inttoptr(args[0], _I64.as_pointer())
        return builder.extract_value(builder.cmpxchg(place, args[1], args[2], "seq_cst", "seq_cst"), 1)

    return types.boolean(types.int64, types.int64, types.int64), code


@intrinsic
def pause(typingctx):
    """Let the other thread of this core go ahead for a moment."""

    def code(context, builder, signature, args):
        name, numbers = _PAUSES.get(_PROCESSORS.get(platform.machine().lower(), ""), ("", []))
        if name:
            i32 = ir.IntType(32)
            kind = ir.FunctionType(ir.VoidType(), [i32] * len(numbers))
            builder.call(cgutils.get_or_insert_function(builder.module, kind, name), [i32(n) for n in numbers])
        return context.get_dummy_value()

    return types.void(), code


@intrinsic
def pointer(typingctx, address):
    """The address for ``numba.carray``."""

    def code(context, builder, signature, args):
        return builder.inttoptr(args[0], cgutils.voidptr_t)

    return types.voidptr(types.int64), code


@compiled
def take(counter):
    """The number at the address ``counter``, which grows by one: no two threads get the same."""
    return atomic_add(counter, 1)
