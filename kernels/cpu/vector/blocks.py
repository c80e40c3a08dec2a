"""A window's two products, in vector registers.

Rows are given by addresses, and have whole chunks of LANES columns. Products are computed for
blocks of BLOCK rows of X and BLOCK rows of Y: twelve rows and their sums fit into the 32 registers
of a processor with AVX-512. The order of sums does not depend on the processor: with smaller or
fewer registers, LLVM splits tiles and spills.
"""

from __future__ import annotations

from typing import Any

from numba import types

from penstock.kernels.cpu.vector import Emit, instruction
from penstock.kernels.cpu.vector.registers import (
    FLOATS,
    LANES,
    constant,
    integer,
    load,
    over,
    plus_product,
    splat,
    store,
    sum_of_fours,
    sums_of_neighbours,
    times_lanes,
    variable,
)

BLOCK = 6
PAIRS = BLOCK * BLOCK
_PASS = 3  # rows of X per read of Y in ``scores``

_NUMBERS = types.CPointer(types.float32)
_ADDRESSES = types.CPointer(types.intp)


@instruction(lambda *_: types.void(_ADDRESSES, _ADDRESSES, types.intp, _NUMBERS))
def scores(emit: Emit, x: Any, y: Any, chunks: Any, out: Any) -> None:
    """Write the products of a block of X and one of Y: ``out[i * BLOCK + j]``.

    x, y   addresses of BLOCK rows each
    """
    builder = emit.builder
    rows_x, rows_y = _rows(builder, x), _rows(builder, y)
    fours = _Fours(builder, out)
    for first in range(0, BLOCK, _PASS):
        sums = [variable(builder, constant(0)) for _ in range(_PASS * BLOCK)]
        with over(builder, chunks) as chunk:
            at = times_lanes(builder, chunk)
            right = [load(builder, row, at) for row in rows_y]
            for i in range(_PASS):
                left = load(builder, rows_x[first + i], at)
                for j in range(BLOCK):
                    place = sums[i * BLOCK + j]
                    total = plus_product(builder, builder.load(place), left, right[j])
                    builder.store(total, place)
        for place in sums:
            fours.add(builder.load(place))
    fours.end()


@instruction(lambda *_: types.void(_ADDRESSES, _ADDRESSES, types.intp, _NUMBERS))
def step(emit: Emit, x: Any, y: Any, chunks: Any, gradient: Any) -> None:
    """Add ``gradient Y`` to a block of X and ``gradient^T X`` to one of Y, both as before.

    Rows are as for ``scores``, and gradient is like its ``out``.
    """
    rows_x, rows_y = _rows(emit.builder, x), _rows(emit.builder, y)
    _step(emit.builder, rows_x, rows_x, rows_y, rows_y, chunks, gradient)


@instruction(lambda *_: types.void(*[_ADDRESSES] * 4, types.intp, _NUMBERS))
def step_of_blocks(
    emit: Emit, x_before: Any, x: Any, y_before: Any, y: Any, chunks: Any, gradient: Any
) -> None:
    """Like ``step``, for one of several blocks: the rows as before are separate."""
    before, after, others, others_after = (
        _rows(emit.builder, each) for each in (x_before, x, y_before, y)
    )
    _step(emit.builder, before, after, others, others_after, chunks, gradient)


def _step(
    builder: Any,
    rows_x_before: list[Any],
    rows_x: list[Any],
    rows_y_before: list[Any],
    rows_y: list[Any],
    chunks: Any,
    gradient: Any,
) -> None:
    with over(builder, chunks) as chunk:
        at = times_lanes(builder, chunk)
        right = [load(builder, row, at) for row in rows_y_before]
        after = list(right)
        if rows_y is not rows_y_before:
            after = [load(builder, row, at) for row in rows_y]
        for i in range(BLOCK):
            left = moved = load(builder, rows_x_before[i], at)
            if rows_x is not rows_x_before:
                moved = load(builder, rows_x[i], at)
            for j in range(BLOCK):
                weight = builder.load(builder.gep(gradient, [integer(i * BLOCK + j)]))
                weight = splat(builder, weight)
                moved = plus_product(builder, moved, weight, right[j])
                after[j] = plus_product(builder, after[j], weight, left)
            store(builder, moved, rows_x[i], at)
        for row, vector in zip(rows_y, after, strict=True):
            store(builder, vector, row, at)


def _rows(builder: Any, addresses: Any) -> list[Any]:
    numbers = [builder.load(builder.gep(addresses, [integer(i)])) for i in range(BLOCK)]
    return [builder.inttoptr(number, FLOATS.element.as_pointer()) for number in numbers]


class _Fours:
    """Sums of vectors, added in pairs as they arrive, and written by LANES."""

    def __init__(self, builder: Any, out: Any) -> None:
        self.builder, self.out, self.written = builder, out, 0
        # Sums of 1, 2, 4 and 8 vectors that wait for their pair.
        self.waiting: list[Any] = [None] * 4

    def add(self, vector: Any) -> None:
        for level, width in enumerate((1, 1, 4, 4)):
            if self.waiting[level] is None:
                self.waiting[level] = vector
                return
            vector = sums_of_neighbours(self.builder, self.waiting[level], vector, width)
            self.waiting[level] = None
        self._write(vector, LANES)

    def end(self) -> None:
        """Write the rest: four sums or none."""
        ones, twos, vector, eights = self.waiting
        assert ones is twos is eights is None
        if vector is not None:
            self._write(sum_of_fours(self.builder, vector), 4)

    def _write(self, vector: Any, count: int) -> None:
        store(self.builder, vector, self.out, integer(self.written))
        self.written += count
