"""One row of a gathering: its sum, or its maxima, over its edges, in registers.

Any width from T to 2 T is covered by two tiles of T numbers; the second ends with the row and may
overlap the first. So a few tile sizes serve all widths without a remainder; wider rows are done
CHUNK numbers at a time. Rows of x for later edges are prefetched while earlier ones are added: they
are scattered, which no processor predicts.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.activation.row import read_only
from penstock.kernels.cpu.vector import (
    beats,
    choose,
    equal,
    lanes,
    like,
    load,
    plus,
    plus_times,
    pointers,
    prefetch,
    splat,
    store,
    times,
    zeros,
)
from penstock.kernels.gnn_rules import ScaledCSR

CHUNK = 128
_AHEAD = 2048  # prefetched numbers; divided by a row's numbers: edges ahead


class CSRPointers(NamedTuple):
    """A ScaledCSR for a kernel: missing arrays are empty. All are arrays, or all pointers."""

    indptr: Array
    indices: Array
    weights: Array
    left: Array
    right: Array
    diagonal: Array
    edges: int
    has_weights: bool
    has_left: bool
    has_right: bool
    has_diagonal: bool
    one: Any  # of the type of values


# With small graphs, kernels are called thousands of times a second with few blocks.
_KNOWN: WeakKeyDictionary[ScaledCSR, CSRPointers] = WeakKeyDictionary()


def csr_fields(block: ScaledCSR, like: Array) -> CSRPointers:
    """Return a block whose missing values have the type of ``like``."""
    rows = _KNOWN.get(block)
    if rows is None or type(rows.one) is not like.dtype.type:
        rows = _KNOWN[block] = _rows_of(block, like)
    return rows


def _rows_of(block: ScaledCSR, like: Array) -> CSRPointers:
    return CSRPointers(
        read_only(block.indptr, like),
        read_only(block.indices, like),
        read_only(block.weights, like),
        read_only(block.left, like),
        read_only(block.right, like),
        read_only(block.diagonal, like),
        len(block.indices),
        block.weights is not None,
        block.left is not None,
        block.right is not None,
        block.diagonal is not None,
        like.dtype.type(1),
    )


@njit(cache=True, inline="always")
def csr_pointers(given: Any) -> Any:
    """Return Rows of pointers, valid while the arrays live.

    Rows come as a plain tuple: Numba takes longer to type a named one, at every call.
    """
    return pointers(CSRPointers(*given))


@njit(cache=True, inline="always")
def ahead_of(width: Any) -> Any:
    """Return how many edges ahead rows are prefetched."""
    return min(max(_AHEAD // max(width, 1), 4), 32)


@njit(cache=True)
def sum_row(rows: Any, row: Any, x: Any, stride: Any, out: Any, width: Any) -> None:
    """Write the weighted sum of a row of the block to ``out``."""
    chunk = CHUNK if width >= 4 else 2
    begin = 0
    while begin < width:
        part = min(width - begin, chunk)
        at = begin
        if width > CHUNK:
            at, part = min(begin, width - CHUNK), CHUNK  # repeats some, instead of smaller tiles
        if part > 64:
            _sum_pair(zeros(x, 64), rows, row, x, stride, out, at, part)
        elif part > 32:
            _sum_pair(zeros(x, 32), rows, row, x, stride, out, at, part)
        elif part > 16:
            _sum_pair(zeros(x, 16), rows, row, x, stride, out, at, part)
        elif part > 8:
            _sum_pair(zeros(x, 8), rows, row, x, stride, out, at, part)
        elif part >= 4:
            _sum_pair(zeros(x, 4), rows, row, x, stride, out, at, part)
        else:
            _sum_pair(zeros(x, 1), rows, row, x, stride, out, at, part)
        begin += chunk


@njit(cache=True, inline="always")
def _sum_pair(
    tile: Any, rows: Any, row: Any, x: Any, stride: Any, out: Any, at: Any, part: Any
) -> None:
    from_a, from_b = at, at + part - lanes(tile)
    sum_a, sum_b = tile, tile
    ahead = ahead_of(part)
    for e in range(rows.indptr[row], rows.indptr[row + 1]):
        if e + ahead < rows.edges:
            # Beyond this row's end these are the next rows' edges, which helps too.
            later = np.int64(rows.indices[e + ahead]) * stride
            prefetch(tile, x, later + from_a)
            prefetch(tile, x, later + from_b)
        column = np.int64(rows.indices[e])
        factor = rows.one
        if rows.has_weights:
            factor *= rows.weights[e]
        if rows.has_right:
            factor *= rows.right[column]
        sum_a = plus_times(sum_a, factor, load(tile, x, column * stride + from_a))
        sum_b = plus_times(sum_b, factor, load(tile, x, column * stride + from_b))
    if rows.has_diagonal:
        factor = rows.diagonal[row]
        if rows.has_right:
            factor *= rows.right[row]
        sum_a = plus_times(sum_a, factor, load(tile, x, row * stride + from_a))
        sum_b = plus_times(sum_b, factor, load(tile, x, row * stride + from_b))
    if rows.has_left:
        sum_a, sum_b = times(sum_a, rows.left[row]), times(sum_b, rows.left[row])
    store(sum_a, out, from_a)
    store(sum_b, out, from_b)


@njit(cache=True)
def max_row(
    indices: Any, span: Any, edges: Any, x: Any, stride: Any, out: Any, arg: Any, width: Any
) -> None:
    """Write the maxima over the columns of a span of edges, and the argmax."""
    size = 16 if width >= 16 else 1
    at = 0
    while at < width:
        at = min(at, width - size)
        if size == 16:
            _max_tile(zeros(x, 16), indices, span, edges, x, stride, out, arg, at)
        else:
            _max_tile(zeros(x, 1), indices, span, edges, x, stride, out, arg, at)
        at += size


@njit(cache=True)
def _max_tile(
    tile: Any, indices: Any, span: Any, edges: Any, x: Any, stride: Any, out: Any, arg: Any, at: Any
) -> None:
    best = load(tile, x, np.int64(indices[span[0]]) * stride + at)
    whose = splat(like(arg, tile), indices[span[0]])
    ahead = ahead_of(lanes(tile))
    for e in range(span[0] + 1, span[1]):
        if e + ahead < edges:
            prefetch(tile, x, np.int64(indices[e + ahead]) * stride + at)
        value = load(tile, x, np.int64(indices[e]) * stride + at)
        larger = beats(value, best)
        best = choose(larger, value, best)
        whose = choose(larger, splat(whose, indices[e]), whose)
    store(best, out, at)
    store(whose, arg, at)


@njit(cache=True)
def max_back_row(edges: Any, grad: Any, arg: Any, column: Any, out: Any, width: Any) -> None:
    """Write the sum of the gradients of those readers whose argmax is the column.

    edges      all readers, the column's first and last, and their number
    grad, arg  with the lengths of their rows
    """
    at = 0
    size = 16 if width >= 16 else 1
    while at < width:
        at = min(at, width - size)
        if size == 16:
            _max_back_tile(zeros(grad[0], 16), edges, grad, arg, column, out, at)
        else:
            _max_back_tile(zeros(grad[0], 1), edges, grad, arg, column, out, at)
        at += size


@njit(cache=True)
def _max_back_tile(
    tile: Any, edges: Any, grads: Any, args: Any, column: Any, out: Any, at: Any
) -> None:
    readers, begin, end, count = edges
    grad, grad_stride = grads
    arg, arg_stride = args
    total, nothing = tile, tile
    mine = splat(like(arg, tile), column)
    ahead = ahead_of(lanes(tile))
    last = np.int64(-1)
    for e in range(begin, end):
        if e + ahead < count:
            later = np.int64(readers[e + ahead])
            prefetch(tile, grad, later * grad_stride + at)
            prefetch(mine, arg, later * arg_stride + at)
        row = np.int64(readers[e])
        if row != last:
            last = row
            given = load(tile, grad, row * grad_stride + at)
            taken = equal(load(mine, arg, row * arg_stride + at), mine)
            total = plus(total, choose(taken, given, nothing))
    store(total, out, at)
