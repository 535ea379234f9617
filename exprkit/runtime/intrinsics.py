"""What compiled loops need and Numba does not offer: calls by address, arrays without owners.

The compiled loops of all stages use them.

    >>> import numpy as np
    >>> from exprkit.runtime.intrinsics import take
    >>> counter = np.zeros(1, np.int64)
    >>> take(counter.ctypes.data), take(counter.ctypes.data)
    (0, 1)
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

import platform
from hashlib import sha256

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.extending import infer_getattr, lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import intrinsic, models, register_model

from exprkit.runtime.jit import compiled

_I64 = ir.IntType(64)
_ONE = np.int64(1)
_PAUSES = {"x86": ("llvm.x86.sse2.pause", []), "arm": ("llvm.aarch64.isb", [15])}  # instruction, its numbers
_PROCESSORS = {"x86_64": "x86", "amd64": "x86", "aarch64": "arm", "arm64": "arm"}


class Lent(types.Type):
    """The address of a named tuple, whose fields are read as if it were the tuple itself."""

    def __init__(self, record: types.BaseNamedTuple) -> None:
        self.record = record
        text = sha256(str(record).encode()).hexdigest()[:16]  # Numba puts it into the name of every function
        super().__init__(f"Lent({record.instance_class.__name__} {text})")


register_model(Lent)(models.OpaqueModel)


@intrinsic
def lent(typingctx, fields):
    """The named tuple by its address, its arrays without ownership.

    A tuple of ten arrays is seventy arguments for every function that it is handed to, which
    takes a compiler longer than all that the function does.  And every call that is handed an
    array counts references with locked instructions, which cost more than the small loops
    here and drain the buffers of streaming stores.  Good until the caller, who holds the owners, returns.
    """

    def address(context, builder, signature, args):
        return builder.bitcast(cgutils.alloca_once_value(builder, args[0]), cgutils.voidptr_t)

    return Lent(fields)(fields), address


@infer_getattr
class _LentFields(AttributeTemplate):
    key = Lent

    def generic_resolve(self, kind, name):
        return kind.record.types[kind.record.fields.index(name)] if name in kind.record.fields else None


@lower_getattr_generic(Lent)
def _lent_field(context, builder, kind, address, name):
    k = kind.record.fields.index(name)
    whole = builder.bitcast(address, context.get_value_type(kind.record).as_pointer())
    place = cgutils.gep_inbounds(builder, whole, 0, k)
    if not isinstance(kind.record.types[k], types.Array):
        return builder.load(place)
    source = context.make_array(kind.record.types[k])(context, builder, ref=place)
    found = ir.Constant(context.get_value_type(kind.record.types[k]), None)  # all 0: nobody owns it
    for at, part in enumerate(source._datamodel._fields):
        if part not in ("meminfo", "parent"):
            found = builder.insert_value(found, getattr(source, part), at)
    return found


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
def look(typingctx, address):
    """The number at ``address``; this and the next three happen in one order that all threads agree on."""

    def code(context, builder, signature, args):
        return builder.load_atomic(builder.inttoptr(args[0], _I64.as_pointer()), "seq_cst", 8)

    return types.int64(types.int64), code


@intrinsic
def publish(typingctx, address, number):
    """Write a number, for others to see together with all that was written before."""

    def code(context, builder, signature, args):
        builder.atomic_rmw("xchg", builder.inttoptr(args[0], _I64.as_pointer()), args[1], "seq_cst")
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), code


@intrinsic
def add(typingctx, address, number):
    """Add to the number at ``address``; returns what it was."""

    def code(context, builder, signature, args):
        return builder.atomic_rmw("add", builder.inttoptr(args[0], _I64.as_pointer()), args[1], "seq_cst")

    return types.int64(types.int64, types.int64), code


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
    return add(counter, _ONE)
