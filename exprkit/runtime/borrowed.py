"""Named tuples passed to compiled loops by reference, their arrays without reference counting.

``jit`` hands every named tuple over like that; nothing else needs to know.

A tuple of ten arrays is seventy arguments for every function that it is handed to, which takes a
compiler longer than all that the function does.  And each call that is handed an array counts
references with locked instructions, which cost more than the small loops here and drain the buffers
of streaming stores.
"""
# mypy: disable-error-code="no-untyped-def"

from __future__ import annotations

from hashlib import sha256

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.extending import infer_getattr, lower_getattr_generic
from numba.core.imputils import lower_cast
from numba.core.typing.templates import AttributeTemplate
from numba.extending import NativeValue, intrinsic, models, register_model, unbox


class Borrowed(types.Type):
    """The address of a named tuple, whose fields are read as if it were the tuple itself."""

    def __init__(self, record: types.BaseNamedTuple) -> None:
        self.record = record
        text = sha256(f"{record} {record.fields}".encode()).hexdigest()[:16]  # becomes part of every function's name
        super().__init__(f"Borrowed({record.instance_class.__name__} {text})")


@register_model(Borrowed)
class _Address(models.OpaqueModel):
    def from_argument(self, builder, value):
        for promise in ("noalias", "nonnull"):  # a tuple stays as it is: fields are read once
            value.add_attribute(promise)
        return value


def argument_type(kind: types.Type) -> types.Type:
    """The type that a function is compiled for where it is called with this one.

    Named tuples are borrowed, their arrays taken for writable.  Whole numbers are int64, whatever array they come
    from, and never literals: Numba would compile the function once more for each of them.
    """
    kind = types.unliteral(kind)
    if isinstance(kind, types.BaseNamedTuple):
        return Borrowed(_writable(kind))
    return types.int64 if isinstance(kind, types.Integer) and kind.bitwidth < 64 else kind


def _writable(kind: types.Type) -> types.Type:
    """A type with all arrays writable: loops would be compiled once more for those that are not."""
    if isinstance(kind, types.BaseNamedTuple):
        return types.BaseTuple.from_types([_writable(field) for field in kind.types], kind.instance_class)
    return kind.copy(readonly=False) if isinstance(kind, types.Array) else kind


@lower_cast(types.BaseNamedTuple, Borrowed)
def _borrow(context, builder, kind, borrowed, value):
    return builder.bitcast(cgutils.alloca_once_value(builder, value), cgutils.voidptr_t)


@unbox(Borrowed)
def _from_python(kind, obj, c):
    native = c.unbox(kind.record, obj)
    address = _borrow(c.context, c.builder, kind.record, kind, native.value)

    def give_back():  # as Numba does with an argument of the tuple's own type
        if native.cleanup is not None:
            native.cleanup()
        c.context.nrt.decref(c.builder, kind.record, native.value)

    return NativeValue(address, is_error=native.is_error, cleanup=give_back)


@infer_getattr
class _Fields(AttributeTemplate):
    key = Borrowed

    def generic_resolve(self, kind, name):
        if name not in kind.record.fields:
            return None
        field = kind.record.types[kind.record.fields.index(name)]
        return Borrowed(field) if isinstance(field, types.BaseNamedTuple) else field


@lower_getattr_generic(Borrowed)
def _field(context, builder, kind, address, name):
    k = kind.record.fields.index(name)
    field = kind.record.types[k]
    whole = builder.bitcast(address, context.get_value_type(kind.record).as_pointer())
    place = cgutils.gep_inbounds(builder, whole, 0, k)
    if isinstance(field, types.BaseNamedTuple):
        return builder.bitcast(place, cgutils.voidptr_t)
    if not isinstance(field, types.Array):
        return builder.load(place)
    owned = context.make_array(field)(context, builder, ref=place)
    array = ir.Constant(context.get_value_type(field), None)  # all 0: nobody owns it
    for at, part in enumerate(owned._datamodel._fields):
        if part not in ("meminfo", "parent"):
            array = builder.insert_value(array, getattr(owned, part), at)
    return array


@intrinsic
def stored(typingctx, bag, address):
    """Copy a borrowed tuple to an address, unless that is 0; its number of bytes."""

    def code(context, builder, signature, args):
        size = ir.Constant(ir.IntType(64), context.get_abi_sizeof(context.get_value_type(bag.record)))
        with builder.if_then(cgutils.is_not_null(builder, args[1])):
            cgutils.raw_memcpy(builder, builder.inttoptr(args[1], cgutils.voidptr_t), args[0], size, 1)
        return size

    return types.int64(bag, types.int64), code
