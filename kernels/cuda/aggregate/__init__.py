"""Gathering over the rows of a block on the GPU; names and meaning are naive/aggregate.py's.

Values are float32 or float64. Rows are read 16 bytes at a time if width, strides and addresses
allow it, so widths that are multiples of 4 are the fastest. ``gather`` also reads bfloat16 rows,
made from float32 by aggregate/bf16.py: half the bytes, with sums in float32.

``ScaledCSR.right`` costs an extra read for every edge: if the caller may change x, it multiplies x
by ``right`` first (activation.scale_rows); conversion to bfloat16 includes that. Measured on an
H200 with 32 features and four open loads per edge, in ms:

    nodes, edges          as they are    with ``right``    bfloat16
    233 k, 114.6 M               1.56              1.97        1.10
    2.45 M, 123.7 M              3.38              4.16        3.18, and 0.13 to make it
    1.57 M, 264.3 M              5.31              6.97        4.39
"""

from __future__ import annotations

import cupy as cp
import numpy as np

from penstock.arrays import AnyArray, DeviceArray
from penstock.kernels.cuda.aggregate.bf16 import check_bf16
from penstock.kernels.cuda.aggregate.ranges import ranges_of_columns
from penstock.kernels.cuda.gnn.launch import (
    epilogue_arguments,
    lanes_together,
    matrix,
    vector,
)
from penstock.kernels.cuda.gnn.rows import join_sums, long_rows
from penstock.kernels.cuda.module import c_name, launch, launch_blocks
from penstock.kernels.gnn_rules import Epilogue, ScaledCSR

_FILE, _MAX_FILE = "aggregate/aggregate", "aggregate/max"
_THREADS = 128  # of a block with one row per warp: small, so that no warp waits long for others
EDGES_AT_ONCE = 1 << 25  # of a transpose
_EDGES_A_THREAD = 8  # kEdgesAThread of aggregate/aggregate.cu
_FEW_EDGES = 32  # per row: below, a neighbour's lanes take a row, else a warp does


def gather(
    block: ScaledCSR,
    x: DeviceArray,
    out: DeviceArray,
    first: int,
    last: int,
    epilogue: Epilogue | None = None,
) -> None:
    """Write the weighted sums of rows ``first .. last`` at ``out``, with their epilogue, if any."""
    if last <= first or not x.shape[1]:
        return
    width = x.shape[1]
    found = long_rows(block.indptr)
    cut = found.cut(first, last)
    partial = found.partial("sums", cut, width, out.dtype)
    shape, team = _shape(block, x, out, None if epilogue is None else epilogue.skip)
    kinds = f"{c_name(out)}, {'Bf16' if x.dtype == np.uint16 else c_name(x)}"
    row_end = (
        *(vector(part, out) for part in (block.left, block.right, block.diagonal)),
        np.int64(block.columns),
        *matrix(x),
        *matrix(out),
        np.int32(width),
        partial,
        *epilogue_arguments(epilogue, out),
    )
    launch_blocks(
        _FILE,
        f"gather<{kinds}, {c_name(block.indices)}, {shape}, {team}>",
        _blocks(last - first + len(cut.pieces), team),
        _THREADS,
        *(block.indptr, cut.pieces, np.int64(len(cut.pieces)), np.int64(first), np.int64(last)),
        *(block.indices, vector(block.weights, out)),
        *row_end,
    )
    if len(cut.rows):
        ends = (cut.rows, cut.first_piece, np.int64(cut.offset))
        launch_blocks(_FILE, f"join_sums<{kinds}>", len(cut.rows), 256, *ends, *row_end)


def gather_max(
    block: ScaledCSR, x: DeviceArray, out: DeviceArray, arg: DeviceArray, first: int, last: int
) -> None:
    """Write the maximum of each feature over a row's columns, and the argmax at ``arg``."""
    if last <= first or not x.shape[1]:
        return
    width = x.shape[1]
    found = long_rows(block.indptr)
    cut = found.cut(first, last)
    partial = found.partial("largest", cut, width, x.dtype)
    partial_arg = found.partial("whose", cut, width, arg.dtype)
    shape = _wide_shape(lanes_together(width, x, out, arg), width, x, block.indices)
    kinds = f"{c_name(x)}, {c_name(block.indices)}"
    launch_blocks(
        _MAX_FILE,
        f"gather_max<{kinds}, {shape}, 32>",
        _blocks(last - first + len(cut.pieces), 32),
        _THREADS,
        *(block.indptr, cut.pieces, np.int64(len(cut.pieces)), np.int64(first), np.int64(last)),
        *(block.indices, *matrix(x), *matrix(out), *matrix(arg), np.int32(width)),
        *(partial, partial_arg),
    )
    if len(cut.rows):
        launch_blocks(
            _MAX_FILE,
            f"join_largest<{kinds}>",
            len(cut.rows),
            256,
            *(cut.rows, cut.first_piece, np.int64(cut.offset)),
            *(partial, partial_arg, *matrix(out), *matrix(arg), np.int32(width)),
        )


def gather_max_back(
    transpose: ScaledCSR,
    grad: DeviceArray,
    arg: DeviceArray,
    out: DeviceArray,
    first: int,
    last: int,
) -> None:
    """Write the gradient of ``gather_max``'s x at rows ``first .. last`` of ``out``."""
    if last <= first or not grad.shape[1]:
        return
    width = grad.shape[1]
    found = long_rows(transpose.indptr)
    cut = found.cut(first, last)
    partial = found.partial("sums", cut, width, grad.dtype)
    shape = _wide_shape(lanes_together(width, grad, out, arg), width, grad, transpose.indices)
    launch_blocks(
        _MAX_FILE,
        f"gather_max_back<{c_name(grad)}, {c_name(transpose.indices)}, {shape}, 32>",
        _blocks(last - first + len(cut.pieces), 32),
        _THREADS,
        *(transpose.indptr, cut.pieces, np.int64(len(cut.pieces)), np.int64(first), np.int64(last)),
        *(transpose.indices, *matrix(grad), *matrix(arg), *matrix(out), np.int32(width), partial),
    )
    join_sums(cut, partial, out)


def transpose(block: ScaledCSR) -> ScaledCSR:
    """Return the transpose of a block: the same edges, listed by column.

    Besides the result it takes 16 bytes for each of at most EDGES_AT_ONCE edges, or of the largest
    column.
    """
    ids, weights = block.indices, block.weights
    indptr = cp.zeros(block.columns + 1, np.int64)
    counts = cp.zeros(block.columns, np.uint64)
    cp.add.at(counts, ids, np.uint64(1))  # bincount takes half a gigabyte of scratch
    indptr[1:] = cp.cumsum(counts)
    del counts
    listed = cp.empty(block.edges, ids.dtype)
    transposed_weights = None if weights is None else cp.empty(block.edges, weights.dtype)
    # The largest range first: later ones fit into its memory, so that a memory pool does not grow.
    ranges = sorted(ranges_of_columns(indptr, EDGES_AT_ONCE), key=lambda part: part[2] - part[3])
    keys = cp.empty(ranges[0][3] - ranges[0][2] if ranges else 0, np.uint64)
    for first, last, low, high in ranges:
        order = _edges_by_column(ids, first, last, keys[: high - low])
        launch(
            _FILE,
            f"rows_in_order<{c_name(ids)}>",
            high - low,
            *(block.indptr, np.int64(block.rows), order, np.int64(high - low), listed[low:high]),
        )
        if transposed_weights is not None and weights is not None:
            transposed_weights[low:high] = weights[order]
    diagonal = own = block.diagonal
    if own is not None:
        diagonal = cp.zeros(block.columns, own.dtype)
        count = min(block.rows, block.columns)
        diagonal[:count] = own[:count]
    return ScaledCSR(
        indptr, listed, block.rows, transposed_weights, block.right, block.left, diagonal
    )


def _edges_by_column(ids: AnyArray, first: int, last: int, keys: DeviceArray) -> DeviceArray:
    """Return the numbers of the edges whose column is in ``first .. last``, sorted by column.

    keys  scratch: one uint64 each
    """
    edges = len(ids)
    bits = max(1, (edges - 1).bit_length())
    launch(
        _FILE,
        f"keys_of_columns<{c_name(ids)}>",
        -(-edges // _EDGES_A_THREAD),
        *(ids, np.int64(edges), np.int64(first), np.int64(last), np.int32(bits)),
        *(cp.zeros(1, np.uint64), keys),
    )
    keys.sort()  # in any order before; all are distinct
    keys &= np.uint64((1 << bits) - 1)
    return keys.view(np.int64)


# -- instances -------------------------------------------------------------------------------------


def _blocks(items: int, team: int) -> int:
    return -(-items * team // _THREADS)


def _shape(
    block: ScaledCSR, x: DeviceArray, out: DeviceArray, skip: AnyArray | None
) -> tuple[str, int]:
    width, ids = x.shape[1], block.indices
    if x.dtype == np.uint16:
        check_bf16(width, x, out, skip)
        lanes = next((lanes for lanes in (2, 4, 8, 16) if width <= 8 * lanes), 32)
        return f"8, {lanes if ids.dtype == np.int32 else 4}, 1", 32
    assert x.dtype == out.dtype, (x.dtype, out.dtype)
    vec = lanes_together(width, x, out, skip)
    if x.dtype != np.float32:
        return "1, 32, 2", 32
    if ids.dtype != np.int32:
        return ("4, 8, 1" if vec == 4 else "1, 32, 2"), 32
    packs = width // vec
    if vec == 4:
        options = [(2, 1), (4, 1), (8, 1), (16, 1), (32, 1), (32, 2)]
    elif vec == 2:
        options = [(16, 1), (32, 1), (32, 2)]
    else:
        options = [(8, 1), (16, 1), (16, 2), (16, 3), (32, 2), (32, 4)]
    lanes, tiles = next(
        ((lanes, tiles) for lanes, tiles in options if packs <= lanes * tiles), options[-1]
    )
    small = block.edges < _FEW_EDGES * block.rows and vec != 2 and lanes <= 8
    return f"{vec}, {lanes}, {tiles}", lanes if small else 32


def _wide_shape(vec: int, width: int, x: DeviceArray, ids: AnyArray) -> str:
    if vec < 4 or x.dtype != np.float32 or ids.dtype != np.int32:
        return "1, 32, 2"
    lanes = next((lanes for lanes in (8, 16) if width <= 4 * lanes), 32)
    return f"4, {lanes}, 1"
