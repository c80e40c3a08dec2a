"""Vector registers, pointers and bits for kernels in Numba, as LLVM's instructions.

A tile holds several features of a row in vector registers while a kernel runs over edges; loops
over arrays would read and write the sum in memory at every edge. It is a Numba type, an LLVM vector
of a power of two of numbers, which LLVM splits into registers of the processor. ``zeros`` makes
tiles; their type carries the size, so one Numba function serves all sizes.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core.cgutils import create_struct_proxy
from numba.core.datamodel.models import PrimitiveModel
from numba.extending import intrinsic, register_model

LINE = 64  # bytes per prefetch


class Tile(types.Type):  # type: ignore[misc]
    """A vector of numbers of one type."""

    def __init__(self, dtype: Any, lanes: int) -> None:
        self.dtype, self.lanes = dtype, lanes
        super().__init__(name=f"Tile({dtype}, {lanes})")

    @property
    def key(self) -> Any:
        """What makes two of these types equal."""
        return self.dtype, self.lanes


@register_model(Tile)
class TileModel(PrimitiveModel):  # type: ignore[misc]
    """A tile is an LLVM vector."""

    def __init__(self, manager: Any, tile: Any) -> None:
        element = ir.IntType(1)  # of a mask
        if tile.dtype != types.boolean:
            element = manager.lookup(tile.dtype).get_value_type()
        super().__init__(manager, tile, ir.VectorType(element, tile.lanes))


@intrinsic
def pointer(context: Any, array: Any) -> Any:
    """Return the address of an array's data, which kernels index without reference counts."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return create_struct_proxy(array)(context, builder, arguments[0]).data

    return types.CPointer(array.dtype)(array), code


@intrinsic
def moved(context: Any, pointer: Any, by: Any) -> Any:
    """Return the pointer, advanced by a number of elements."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.gep(arguments[0], [arguments[1]])

    return pointer(pointer, types.intp), code


@intrinsic
def address(context: Any, pointer: Any) -> Any:
    """Return a pointer as an integer, which an array can hold."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ptrtoint(arguments[0], context.get_value_type(types.intp))

    return types.intp(pointer), code


@intrinsic
def at_address(context: Any, like: Any, address: Any) -> Any:
    """Return ``address`` as a pointer of the type of ``like``."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[1], context.get_value_type(like))

    return like(like, types.intp), code


@intrinsic(prefer_literal=True)
def zeros(context: Any, pointer: Any, lanes: Any) -> Any:
    """Return a tile of ``lanes`` zeros, of the pointer's type."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(context.get_value_type(signature.return_type), None)

    return Tile(pointer.dtype, lanes.literal_value)(pointer, lanes), code


@intrinsic
def like(context: Any, pointer: Any, tile: Any) -> Any:
    """Return a tile of as many zeros, of the pointer's type."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return ir.Constant(context.get_value_type(signature.return_type), None)

    return Tile(pointer.dtype, tile.lanes)(pointer, tile), code


@intrinsic
def lanes(context: Any, tile: Any) -> Any:
    """Return the number of lanes of a tile."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_constant(types.intp, tile.lanes)

    return types.intp(tile), code


@intrinsic
def load(context: Any, tile: Any, pointer: Any, at: Any) -> Any:
    """Return the numbers from ``pointer[at]`` on, one per lane of ``tile``."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place, size = _place(context, builder, signature.return_type, arguments[1], arguments[2])
        return builder.load(place, align=size)

    return Tile(pointer.dtype, tile.lanes)(tile, pointer, types.intp), code


@intrinsic
def store(context: Any, tile: Any, pointer: Any, at: Any) -> Any:
    """Write a tile to ``pointer[at]`` and after."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place, size = _place(context, builder, tile, arguments[1], arguments[2])
        builder.store(arguments[0], place, align=size)
        return context.get_dummy_value()

    return types.void(tile, pointer, types.intp), code


@intrinsic
def plus_times(context: Any, tile: Any, factor: Any, other: Any) -> Any:
    """Return ``tile + factor * other``."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.fmul(_splat(builder, arguments[1], tile.lanes), arguments[2])
        product.flags.append("contract")  # one instruction if the processor has it
        return builder.fadd(arguments[0], product, flags=("contract",))

    return tile(tile, tile.dtype, tile), code


@intrinsic
def times(context: Any, tile: Any, factor: Any) -> Any:
    """Return ``factor * tile``."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fmul(arguments[0], _splat(builder, arguments[1], tile.lanes))

    return tile(tile, tile.dtype), code


@intrinsic
def plus(context: Any, tile: Any, other: Any) -> Any:
    """Return ``tile + other``."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.fadd(*arguments)

    return tile(tile, tile), code


@intrinsic
def splat(context: Any, tile: Any, value: Any) -> Any:
    """Return a tile whose numbers are all ``value``."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _splat(builder, arguments[1], tile.lanes)

    return tile(tile, tile.dtype), code


@intrinsic
def beats(context: Any, tile: Any, other: Any) -> Any:
    """Return where ``tile`` is larger than ``other``; the first NaN is largest."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        mine, theirs = arguments
        larger = builder.fcmp_unordered(">", mine, theirs)
        return builder.and_(larger, builder.fcmp_ordered("==", theirs, theirs))

    return Tile(types.boolean, tile.lanes)(tile, tile), code


@intrinsic
def equal(context: Any, tile: Any, other: Any) -> Any:
    """Return where two tiles of integers are equal."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.icmp_signed("==", *arguments)

    return Tile(types.boolean, tile.lanes)(tile, tile), code


@intrinsic
def choose(context: Any, where: Any, tile: Any, other: Any) -> Any:
    """Return ``tile`` where the mask is set, else ``other``."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.select(*arguments)

    return tile(where, tile, tile), code


@intrinsic
def prefetch(context: Any, tile: Any, pointer: Any, at: Any) -> Any:
    """Request the cache lines that ``load(tile, pointer, at)`` will read."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        byte = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [byte, *[ir.IntType(32)] * 3])
        call = builder.module.globals.get("llvm.prefetch.p0")
        if call is None:
            call = ir.Function(builder.module, kind, "llvm.prefetch.p0")
        size = context.get_abi_sizeof(context.get_value_type(pointer.dtype))
        # For reading, into all levels, data.
        how = [ir.Constant(ir.IntType(32), value) for value in (0, 3, 1)]
        first = builder.bitcast(builder.gep(arguments[1], [arguments[2]]), byte)
        # A tile may begin within a line: its last number may be in one more.
        last = [tile.lanes * size - 1] if tile.lanes > 1 else []
        for offset in [*range(0, tile.lanes * size, LINE), *last]:
            place = builder.gep(first, [ir.Constant(ir.IntType(64), offset)])
            builder.call(call, [place, *how])
        return context.get_dummy_value()

    return types.void(tile, pointer, types.intp), code


@intrinsic
def swap_if_equal(context: Any, pointer: Any, at: Any, expected: Any, new: Any) -> Any:
    """Write ``new`` if a place holds ``expected``, as one atomic step; return what it held."""
    number = pointer.dtype

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place, at, expected, new = arguments
        found = builder.cmpxchg(builder.gep(place, [at]), expected, new, "monotonic", "monotonic")
        return builder.extract_value(found, 0)

    return number(pointer, types.int64, number, number), code


@intrinsic
def bit_count(context: Any, word: Any) -> Any:
    """Return the number of set bits of an unsigned integer, as int64."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.cast(builder, builder.ctpop(arguments[0]), word, types.int64)

    return types.int64(word), code


@intrinsic
def trailing_zeros(context: Any, word: Any) -> Any:
    """Return the position of the lowest set bit of an unsigned integer, as int64."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        place = builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))
        return context.cast(builder, place, word, types.int64)

    return types.int64(word), code


@intrinsic
def as_int(context: Any, value: Any) -> Any:
    """Return the bits of a float32 as an integer."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.IntType(32))

    return types.int32(types.float32), code


@intrinsic
def as_float(context: Any, value: Any) -> Any:
    """Return the float32 with these bits."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], ir.FloatType())

    # Numba widens integers: bits shifted out above do not matter.
    def narrow(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        low = builder.trunc(arguments[0], ir.IntType(32))
        return builder.bitcast(low, ir.FloatType())

    return types.float32(value), code if value.bitwidth == 32 else narrow


def _place(context: Any, builder: Any, tile: Any, pointer: Any, at: Any) -> tuple[Any, int]:
    """Return a pointer to a vector, and its guaranteed alignment: that of one number."""
    place = builder.gep(pointer, [at])
    kind = context.get_value_type(tile)
    return builder.bitcast(place, kind.as_pointer()), context.get_abi_sizeof(kind.element)


def _splat(builder: Any, value: Any, lanes: int) -> Any:
    kind = ir.VectorType(value.type, lanes)
    one = builder.insert_element(
        ir.Constant(kind, ir.Undefined), value, ir.Constant(ir.IntType(32), 0)
    )
    order = ir.Constant(ir.VectorType(ir.IntType(32), lanes), None)
    return builder.shuffle_vector(one, ir.Constant(kind, ir.Undefined), order)
