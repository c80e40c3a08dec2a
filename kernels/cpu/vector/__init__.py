"""Vector registers, pointers and bits for kernels in Numba, as LLVM's instructions.

A tile holds several features of a row in vector registers while a kernel runs over edges; loops
over arrays would read and write the sum in memory at every edge. It is a Numba type, an LLVM vector
of a power of two of numbers, which LLVM splits into registers of the processor. ``zeros`` makes
tiles; their type carries the size, so one Numba function serves all sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

from llvmlite import ir
from numba import types
from numba.core.cgutils import create_struct_proxy
from numba.core.datamodel.models import PrimitiveModel
from numba.extending import intrinsic, register_model

from penstock.kernels.cpu.vector import registers

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


class Emit(NamedTuple):
    """What the code of an instruction is made with: Numba's context and types, LLVM's builder."""

    context: Any
    builder: Any
    signature: Any


def instruction(signature: Callable[..., Any], *, prefer_literal: bool = False) -> Any:
    """Make an intrinsic of a function that emits its code from an ``Emit`` and LLVM's values.

    signature  returns its type from those of the arguments
    """

    def made(emit: Callable[..., Any]) -> Any:
        @wraps(emit)
        def typed(_: Any, *kinds: Any) -> Any:
            def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
                found = emit(Emit(context, builder, signature), *arguments)
                return context.get_dummy_value() if found is None else found

            return signature(*kinds), code

        return intrinsic(prefer_literal=prefer_literal)(typed)

    return made


def _without_arrays(given: Any) -> Any:
    """Return the type of a tuple with pointers in place of arrays, of the same class."""
    kinds = [types.CPointer(k.dtype) if isinstance(k, types.Array) else k for k in given]
    return types.BaseTuple.from_types(kinds, getattr(given, "instance_class", None))(given)


@instruction(lambda array: types.CPointer(array.dtype)(array))
def pointer(emit: Emit, array: Any) -> Any:
    """Return the address of an array's data, which kernels index without reference counts."""
    return _data(emit, emit.signature.args[0], array)


@instruction(_without_arrays)
def pointers(emit: Emit, given: Any) -> Any:
    """Return a tuple whose arrays are pointers, valid while the arrays live."""
    values = [
        _data(emit, kind, value) if isinstance(kind, types.Array) else value
        for number, kind in enumerate(emit.signature.args[0])
        for value in [emit.builder.extract_value(given, number)]
    ]
    return emit.context.make_tuple(emit.builder, emit.signature.return_type, values)


@instruction(lambda pointer, by: pointer(pointer, types.intp))
def moved(emit: Emit, pointer: Any, by: Any) -> Any:
    """Return the pointer, advanced by a number of elements."""
    return emit.builder.gep(pointer, [by])


@instruction(lambda pointer: types.intp(pointer))
def address(emit: Emit, pointer: Any) -> Any:
    """Return a pointer as an integer, which an array can hold."""
    return emit.builder.ptrtoint(pointer, emit.context.get_value_type(types.intp))


@instruction(lambda like, address: like(like, types.intp))
def at_address(emit: Emit, like: Any, address: Any) -> Any:
    """Return ``address`` as a pointer of the type of ``like``."""
    return emit.builder.inttoptr(address, like.type)


@instruction(
    lambda pointer, lanes: Tile(pointer.dtype, lanes.literal_value)(pointer, lanes),
    prefer_literal=True,
)
def zeros(emit: Emit, pointer: Any, lanes: Any) -> Any:
    """Return a tile of ``lanes`` zeros, of the pointer's type."""
    return ir.Constant(emit.context.get_value_type(emit.signature.return_type), None)


@instruction(lambda pointer, tile: Tile(pointer.dtype, tile.lanes)(pointer, tile))
def like(emit: Emit, pointer: Any, tile: Any) -> Any:
    """Return a tile of as many zeros, of the pointer's type."""
    return ir.Constant(emit.context.get_value_type(emit.signature.return_type), None)


@instruction(lambda tile: types.intp(tile))
def lanes(emit: Emit, tile: Any) -> Any:
    """Return the number of lanes of a tile."""
    return emit.context.get_constant(types.intp, tile.type.count)


@instruction(lambda tile, pointer, at: Tile(pointer.dtype, tile.lanes)(tile, pointer, types.intp))
def load(emit: Emit, tile: Any, pointer: Any, at: Any) -> Any:
    """Return the numbers from ``pointer[at]`` on, one per lane of ``tile``."""
    place, size = _place(emit, emit.signature.return_type, pointer, at)
    return emit.builder.load(place, align=size)


@instruction(lambda tile, pointer, at: types.void(tile, pointer, types.intp))
def store(emit: Emit, tile: Any, pointer: Any, at: Any) -> None:
    """Write a tile to ``pointer[at]`` and after."""
    place, size = _place(emit, emit.signature.args[0], pointer, at)
    emit.builder.store(tile, place, align=size)


@instruction(lambda tile, factor, other: tile(tile, tile.dtype, tile))
def plus_times(emit: Emit, tile: Any, factor: Any, other: Any) -> Any:
    """Return ``tile + factor * other``."""
    product = emit.builder.fmul(registers.splat(emit.builder, factor, tile.type), other)
    product.flags.append("contract")  # one instruction if the processor has it
    return emit.builder.fadd(tile, product, flags=("contract",))


@instruction(lambda tile, factor: tile(tile, tile.dtype))
def times(emit: Emit, tile: Any, factor: Any) -> Any:
    """Return ``factor * tile``."""
    return emit.builder.fmul(tile, registers.splat(emit.builder, factor, tile.type))


@instruction(lambda tile, other: tile(tile, tile))
def plus(emit: Emit, tile: Any, other: Any) -> Any:
    """Return ``tile + other``."""
    return emit.builder.fadd(tile, other)


@instruction(lambda tile, value: tile(tile, tile.dtype))
def splat(emit: Emit, tile: Any, value: Any) -> Any:
    """Return a tile whose numbers are all ``value``."""
    return registers.splat(emit.builder, value, tile.type)


@instruction(lambda tile, other: Tile(types.boolean, tile.lanes)(tile, tile))
def beats(emit: Emit, tile: Any, other: Any) -> Any:
    """Return where ``tile`` is larger than ``other``; the first NaN is largest."""
    larger = emit.builder.fcmp_unordered(">", tile, other)
    return emit.builder.and_(larger, emit.builder.fcmp_ordered("==", other, other))


@instruction(lambda tile, other: Tile(types.boolean, tile.lanes)(tile, tile))
def equal(emit: Emit, tile: Any, other: Any) -> Any:
    """Return where two tiles of integers are equal."""
    return emit.builder.icmp_signed("==", tile, other)


@instruction(lambda where, tile, other: tile(where, tile, tile))
def choose(emit: Emit, where: Any, tile: Any, other: Any) -> Any:
    """Return ``tile`` where the mask is set, else ``other``."""
    return emit.builder.select(where, tile, other)


@instruction(lambda tile, pointer, at: types.void(tile, pointer, types.intp))
def prefetch(emit: Emit, tile: Any, pointer: Any, at: Any) -> None:
    """Request the cache lines that ``load(tile, pointer, at)`` will read."""
    builder = emit.builder
    byte = ir.IntType(8).as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [byte, *[ir.IntType(32)] * 3])
    call = builder.module.globals.get("llvm.prefetch.p0")
    if call is None:
        call = ir.Function(builder.module, kind, "llvm.prefetch.p0")
    tile_kind, pointer_kind, _ = emit.signature.args
    size = emit.context.get_abi_sizeof(emit.context.get_value_type(pointer_kind.dtype))
    # For reading, into all levels, data.
    how = [ir.Constant(ir.IntType(32), value) for value in (0, 3, 1)]
    first = builder.bitcast(builder.gep(pointer, [at]), byte)
    # A tile may begin within a line: its last number may be in one more.
    last = [tile_kind.lanes * size - 1] if tile_kind.lanes > 1 else []
    for offset in [*range(0, tile_kind.lanes * size, LINE), *last]:
        place = builder.gep(first, [ir.Constant(ir.IntType(64), offset)])
        builder.call(call, [place, *how])


@instruction(lambda pointer, *_: pointer.dtype(pointer, types.int64, *[pointer.dtype] * 2))
def swap_if_equal(emit: Emit, pointer: Any, at: Any, expected: Any, new: Any) -> Any:
    """Write ``new`` if a place holds ``expected``, as one atomic step; return what it held."""
    place = emit.builder.gep(pointer, [at])
    found = emit.builder.cmpxchg(place, expected, new, "monotonic", "monotonic")
    return emit.builder.extract_value(found, 0)


@instruction(lambda word: types.int64(word))
def bit_count(emit: Emit, word: Any) -> Any:
    """Return the number of set bits of an unsigned integer, as int64."""
    return emit.context.cast(
        emit.builder, emit.builder.ctpop(word), emit.signature.args[0], types.int64
    )


@instruction(lambda word: types.int64(word))
def trailing_zeros(emit: Emit, word: Any) -> Any:
    """Return the position of the lowest set bit of an unsigned integer, as int64."""
    place = emit.builder.cttz(word, ir.Constant(ir.IntType(1), 1))
    return emit.context.cast(emit.builder, place, emit.signature.args[0], types.int64)


@instruction(lambda value: types.int32(types.float32))
def as_int(emit: Emit, value: Any) -> Any:
    """Return the bits of a float32 as an integer."""
    return emit.builder.bitcast(value, ir.IntType(32))


@instruction(lambda value: types.float32(value))
def as_float(emit: Emit, value: Any) -> Any:
    """Return the float32 with these bits."""
    if value.type.width != 32:  # Numba widens integers: bits shifted out above do not matter
        value = emit.builder.trunc(value, ir.IntType(32))
    return emit.builder.bitcast(value, ir.FloatType())


def _data(emit: Emit, kind: Any, array: Any) -> Any:
    return create_struct_proxy(kind)(emit.context, emit.builder, array).data


def _place(emit: Emit, tile: Any, pointer: Any, at: Any) -> tuple[Any, int]:
    """Return a pointer to a vector, and its guaranteed alignment: that of one number."""
    place = emit.builder.gep(pointer, [at])
    kind = emit.context.get_value_type(tile)
    return emit.builder.bitcast(place, kind.as_pointer()), emit.context.get_abi_sizeof(kind.element)
