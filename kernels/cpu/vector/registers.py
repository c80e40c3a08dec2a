"""Building blocks of window kernels: vectors of LANES numbers, as LLVM's instructions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils

LANES = 16

FLOATS = ir.VectorType(ir.FloatType(), LANES)
WHOLE = ir.VectorType(ir.IntType(32), LANES)
FMA = ("contract",)  # one instruction if the processor has it


def integer(value: int) -> Any:
    """Return a 64-bit integer."""
    return ir.Constant(ir.IntType(64), value)


def constant(value: float) -> Any:
    """Return a vector of equal float32."""
    return ir.Constant(FLOATS, [value] * LANES)


def variable(builder: Any, value: Any) -> Any:
    """Return a variable for a value; LLVM keeps it in a register."""
    place = cgutils.alloca_once(builder, value.type)
    builder.store(value, place)
    return place


@contextmanager
def over(builder: Any, count: Any) -> Iterator[Any]:
    """Emit a loop of ``count`` rounds around the block; give the round's number."""
    with cgutils.for_range(builder, count) as loop:
        yield loop.index


def times_lanes(builder: Any, value: Any) -> Any:
    """Return the start of a chunk."""
    return builder.mul(value, integer(LANES))


def load(builder: Any, base: Any, at: Any) -> Any:
    """Return the vector from ``base[at]`` on."""
    place = builder.bitcast(builder.gep(base, [at]), FLOATS.as_pointer())
    return builder.load(place, align=4)


def store(builder: Any, vector: Any, base: Any, at: Any) -> None:
    """Write a vector, of four numbers or of LANES, to ``base[at]`` and after."""
    place = builder.bitcast(builder.gep(base, [at]), vector.type.as_pointer())
    builder.store(vector, place, align=4)


def splat(builder: Any, value: Any, kind: Any = FLOATS) -> Any:
    """Return a vector, of float32 or of another kind, whose numbers are all ``value``."""
    undefined = ir.Constant(kind, ir.Undefined)
    one = builder.insert_element(undefined, value, integer(0))
    order = ir.Constant(ir.VectorType(ir.IntType(32), kind.count), None)
    return builder.shuffle_vector(one, undefined, order)


def plus_product(builder: Any, total: Any, one: Any, other: Any) -> Any:
    """Return ``total + one * other``."""
    return builder.fadd(total, builder.fmul(one, other, flags=FMA), flags=FMA)


def sums_of_neighbours(builder: Any, one: Any, other: Any, width: int) -> Any:
    """Return the sums of neighbouring groups of ``width``, 1 or 4, of two vectors.

    Sums of numbers stay in their four, two of ``one`` and then two of ``other``; sums of fours are
    all of ``one`` and then all of ``other``: each order is one shuffle instruction.
    """
    block = 4 if width == 1 else LANES
    low: list[int] = []
    high: list[int] = []
    for start in range(0, LANES, block):
        for base in (start, LANES + start):
            for group in range(base, base + block, 2 * width):
                low += range(group, group + width)
                high += range(group + width, group + 2 * width)
    return builder.fadd(_picked(builder, one, other, low), _picked(builder, one, other, high))


def _picked(builder: Any, one: Any, other: Any, places: list[int]) -> Any:
    order = ir.Constant(ir.VectorType(ir.IntType(32), len(places)), places)
    return builder.shuffle_vector(one, other, order)


def sum_of_fours(builder: Any, vector: Any) -> Any:
    """Return the sum of a vector's four fours."""
    while vector.type.count > 4:
        half = vector.type.count // 2
        low = _picked(builder, vector, vector, list(range(half)))
        high = _picked(builder, vector, vector, list(range(half, 2 * half)))
        vector = builder.fadd(low, high)
    return vector
