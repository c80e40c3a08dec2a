"""A window's two products, in vector registers.

Rows are kept in chunks of LANES columns: chunk c of row r stands at ``(c * stride + r) * LANES``.
Products are made for blocks of BLOCK rows of X and BLOCK rows of Y: twelve rows and as many sums
are what the 32 registers of a processor with AVX-512 hold. The order of sums does not depend on the
processor: where its registers are smaller or fewer, LLVM cuts tiles and spills.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

LANES = 16
BLOCK = 6
PAIRS = BLOCK * BLOCK
_PASS = 2  # rows of X for which ``scores`` reads Y once

_FLOATS = types.CPointer(types.float32)
_TILE = ir.VectorType(ir.FloatType(), LANES)
_FMA = ("contract",)  # one instruction where the processor has it


@intrinsic
def scores(
    context: Any, x: Any, slots: Any, x_stride: Any, y: Any, y_stride: Any, chunks: Any, out: Any
) -> Any:
    """Write the products of a block of X and one of Y: ``out[i * BLOCK + j]``.

    x, y   pointers to rows in chunks; X's are ``slots[0 .. BLOCK]``, Y's are ``0 .. BLOCK``
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, slots, x_stride, y, y_stride, chunks, out = arguments
        rows = _rows(builder, x, slots)
        for first in range(0, BLOCK, _PASS):
            sums = [_variable(builder, _zeros()) for _ in range(_PASS * BLOCK)]
            with _over(builder, chunks) as chunk:
                x_at = _times_lanes(builder, builder.mul(chunk, x_stride))
                y_at = _times_lanes(builder, builder.mul(chunk, y_stride))
                right = [_load(builder, y, y_at, j) for j in range(BLOCK)]
                for i in range(_PASS):
                    left = _load(builder, rows[first + i], x_at)
                    for j in range(BLOCK):
                        _add_product(builder, sums[i * BLOCK + j], left, right[j])
            for k in range(0, _PASS * BLOCK, 4):
                four = _sums_of_four(builder, [builder.load(each) for each in sums[k : k + 4]])
                place = builder.gep(out, [_int(first * BLOCK + k)])
                builder.store(four, builder.bitcast(place, four.type.as_pointer()), align=4)
        return context.get_dummy_value()

    signed = types.intp
    given = (_FLOATS, types.CPointer(types.int64), signed, _FLOATS, signed, signed, _FLOATS)
    return types.void(*given), code


@intrinsic
def step(
    context: Any,
    x: Any,
    slots: Any,
    x_stride: Any,
    y: Any,
    y_stride: Any,
    chunks: Any,
    gradient: Any,
) -> Any:
    """Add ``gradient Y`` to a block of X and ``gradient^T X`` to one of Y, both as they were.

    Rows are given as to ``scores``, and gradient as its ``out``.
    """

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x, slots, x_stride, y, y_stride, chunks, gradient = arguments
        rows = _rows(builder, x, slots)
        with _over(builder, chunks) as chunk:
            x_at = _times_lanes(builder, builder.mul(chunk, x_stride))
            y_at = _times_lanes(builder, builder.mul(chunk, y_stride))
            right = [_load(builder, y, y_at, j) for j in range(BLOCK)]
            after = list(right)
            for i in range(BLOCK):
                left = moved = _load(builder, rows[i], x_at)
                for j in range(BLOCK):
                    weight = _splat(builder, gradient, i * BLOCK + j)
                    moved = _plus_product(builder, moved, weight, right[j])
                    after[j] = _plus_product(builder, after[j], weight, left)
                _store(builder, moved, rows[i], x_at)
            for j in range(BLOCK):
                _store(builder, after[j], y, y_at, j)
        return context.get_dummy_value()

    signed = types.intp
    given = (_FLOATS, types.CPointer(types.int64), signed, _FLOATS, signed, signed, _FLOATS)
    return types.void(*given), code


@intrinsic
def step_of_blocks(
    context: Any,
    x_before: Any,
    x: Any,
    slots: Any,
    x_stride: Any,
    y_before: Any,
    y: Any,
    y_stride: Any,
    chunks: Any,
    gradient: Any,
) -> Any:
    """Do as ``step`` does for one of several blocks: rows as they were are given apart."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        x_before, x, slots, x_stride, y_before, y, y_stride, chunks, gradient = arguments
        rows, rows_before = _rows(builder, x, slots), _rows(builder, x_before, slots)
        with _over(builder, chunks) as chunk:
            x_at = _times_lanes(builder, builder.mul(chunk, x_stride))
            y_at = _times_lanes(builder, builder.mul(chunk, y_stride))
            right = [_load(builder, y_before, y_at, j) for j in range(BLOCK)]
            after = [_load(builder, y, y_at, j) for j in range(BLOCK)]
            for i in range(BLOCK):
                left = _load(builder, rows_before[i], x_at)
                moved = _load(builder, rows[i], x_at)
                for j in range(BLOCK):
                    weight = _splat(builder, gradient, i * BLOCK + j)
                    moved = _plus_product(builder, moved, weight, right[j])
                    after[j] = _plus_product(builder, after[j], weight, left)
                _store(builder, moved, rows[i], x_at)
            for j in range(BLOCK):
                _store(builder, after[j], y, y_at, j)
        return context.get_dummy_value()

    signed = types.intp
    left, right = (_FLOATS, _FLOATS, types.CPointer(types.int64), signed), (_FLOATS, _FLOATS)
    return types.void(*left, *right, signed, signed, _FLOATS), code


# -- what these are made of ------------------------------------------------------------------------


def _int(value: int) -> Any:
    return ir.Constant(ir.IntType(64), value)


def _zeros() -> Any:
    return ir.Constant(_TILE, None)


def _variable(builder: Any, value: Any) -> Any:
    """Return a place for a tile; LLVM keeps it in a register."""
    place = cgutils.alloca_once(builder, value.type)
    builder.store(value, place)
    return place


@contextmanager
def _over(builder: Any, count: Any) -> Iterator[Any]:
    with cgutils.for_range(builder, count) as loop:
        yield loop.index


def _times_lanes(builder: Any, value: Any) -> Any:
    return builder.mul(value, _int(LANES))


def _rows(builder: Any, x: Any, slots: Any) -> list[Any]:
    """Return pointers to the first chunks of a block's rows."""
    numbers = [builder.load(builder.gep(slots, [_int(i)])) for i in range(BLOCK)]
    return [builder.gep(x, [_times_lanes(builder, number)]) for number in numbers]


def _place(builder: Any, base: Any, at: Any, row: int) -> Any:
    place = builder.gep(base, [builder.add(at, _int(row * LANES))])
    return builder.bitcast(place, _TILE.as_pointer())


def _load(builder: Any, base: Any, at: Any, row: int = 0) -> Any:
    return builder.load(_place(builder, base, at, row), align=4)


def _store(builder: Any, tile: Any, base: Any, at: Any, row: int = 0) -> None:
    builder.store(tile, _place(builder, base, at, row), align=4)


def _splat(builder: Any, base: Any, at: int) -> Any:
    value = builder.load(builder.gep(base, [_int(at)]))
    one = builder.insert_element(ir.Constant(_TILE, ir.Undefined), value, _int(0))
    order = ir.Constant(ir.VectorType(ir.IntType(32), LANES), None)
    return builder.shuffle_vector(one, ir.Constant(_TILE, ir.Undefined), order)


def _plus_product(builder: Any, total: Any, one: Any, other: Any) -> Any:
    return builder.fadd(total, builder.fmul(one, other, flags=_FMA), flags=_FMA)


def _add_product(builder: Any, place: Any, one: Any, other: Any) -> None:
    builder.store(_plus_product(builder, builder.load(place), one, other), place)


def _sums_of_four(builder: Any, tiles: list[Any]) -> Any:
    """Return the sums of four tiles, as a vector of four."""
    while tiles[0].type.count > 4:  # halves: wide registers have no sums across
        half = tiles[0].type.count // 2
        low, high = range(half), range(half, 2 * half)
        tiles = [
            builder.fadd(_picked(builder, t, t, low), _picked(builder, t, t, high)) for t in tiles
        ]
    while len(tiles) > 1:  # every second number of two, and the others
        even, odd = range(0, 8, 2), range(1, 8, 2)
        tiles = [
            builder.fadd(_picked(builder, a, b, even), _picked(builder, a, b, odd))
            for a, b in zip(tiles[::2], tiles[1::2], strict=True)
        ]
    return tiles[0]


def _picked(builder: Any, one: Any, other: Any, places: range) -> Any:
    index = ir.IntType(32)
    order = ir.Constant(ir.VectorType(index, len(places)), [index(place) for place in places])
    return builder.shuffle_vector(one, other, order)
