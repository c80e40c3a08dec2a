"""Attention over the rows of a block (GAT) on the GPU; names and meaning are naive/attention.py's.

The arrays of ``Heads``, ``dot``, ``dleft`` and ``dright`` have no gaps and z's type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.gnn.launch import (
    dropout_arguments,
    flat,
    lanes_together,
    matrix,
    partial_sums,
    power_of_2,
    summing_blocks,
    vector,
)
from penstock.kernels.cuda.gnn.rows import Cut, LongRows, join_sums, long_rows
from penstock.kernels.cuda.module import c_name, launch, launch_blocks
from penstock.kernels.gnn_rules import Heads, ScaledCSR

_FILE, _BACK_FILE = "attention/attention", "attention/back"
_THREADS = 128  # of a block with one row per warp: kThreads of attention/attention.cu


def scores(z: DeviceArray, vectors: DeviceArray, out: DeviceArray) -> None:
    """Write each head's product with its vector, (heads, width), at ``out``, (nodes, heads)."""
    heads, width = vectors.shape
    _head_products(z, (vector(vectors, z), np.int64(0)), 0, len(z), heads, width, out)


def scores_back(
    grad: DeviceArray, z: DeviceArray, vectors: DeviceArray, dz: DeviceArray, dvectors: DeviceArray
) -> None:
    """Add to ``dz`` and ``dvectors`` what ``grad``, of ``scores``' out, gives: (nodes, heads)."""
    heads, width = vectors.shape
    if not len(z):
        return
    kind, count = c_name(z), heads * width
    shape = (np.int64(len(z)), np.int32(heads), np.int32(width))
    blocks = summing_blocks(len(z), 8 * max(1, 256 // count))
    partial = partial_sums(blocks * count)
    grad = vector(grad, z)
    launch_blocks(
        _FILE, f"vector_gradients<{kind}>", blocks, 256, *(grad, *matrix(z), *shape, partial)
    )
    launch(
        _FILE,
        f"add_vector_gradients<{kind}>",
        count * 32,
        *(partial, np.int32(blocks), np.int32(count), flat(dvectors, z.dtype)),
    )
    threads = min(256, -(-count // 32) * 32)
    launch_blocks(
        _FILE,
        f"add_score_gradients<{kind}>",
        min(len(z), 1 << 20),
        threads,
        *(grad, vector(vectors, z), *shape, *matrix(dz)),
    )


def attend(
    block: ScaledCSR, z: DeviceArray, heads: Heads, out: DeviceArray, first: int, last: int
) -> None:
    """Write rows ``first .. last`` of the weighted sums to ``out``, and heads.peak and total."""
    if last <= first:
        return
    found, cut = _long(block, first, last)
    count, kinds = heads.count, f"{c_name(z)}, {c_name(block.indices)}"
    lanes = power_of_2(count)
    peaks, totals = (
        found.partial(name, cut, count, z.dtype) for name in ("peaks of heads", "totals of heads")
    )
    peak, total = flat(heads.peak, z.dtype), flat(heads.total, z.dtype)
    launch_blocks(
        _FILE,
        f"attend_totals<{kinds}>",
        _blocks(first, last, cut),
        _THREADS,
        *_spans(block, cut, first, last, block.rows),
        *(vector(heads.left, z), vector(heads.right, z), np.int32(count)),
        *(z.dtype.type(heads.slope), np.int32(lanes), peak, total, peaks, totals),
    )
    launch(
        _FILE,
        f"join_totals<{c_name(z)}>",
        len(cut.rows) * count * 32,
        *(cut.rows, cut.first_piece, np.int64(cut.offset), np.int64(len(cut.rows))),
        *(np.int32(count), peaks, totals, peak, total),
    )
    partial = found.partial("sums", cut, z.shape[1], z.dtype)
    launch_blocks(
        _FILE,
        f"attend<{kinds}, {_shape(heads, z, block, out)}>",
        _blocks(first, last, cut),
        _THREADS,
        *_spans(block, cut, first, last, block.rows),
        *_attention(heads, z),
        *(*matrix(z), *matrix(out), partial),
    )
    join_sums(cut, partial, out)


def attend_back_rows(
    block: ScaledCSR,
    z: DeviceArray,
    heads: Heads,
    out: DeviceArray,
    grad: DeviceArray,
    dot: DeviceArray,
    dleft: DeviceArray,
    first: int,
    last: int,
) -> None:
    """Write, for rows ``first .. last``, the gradient of heads.left to ``dleft``, (rows, heads)."""
    if last <= first:
        return
    found, cut = _long(block, first, last)
    count = heads.count
    _head_products(grad, matrix(out), first, last, count, grad.shape[1] // count, dot)
    partial = found.partial("heads", cut, count, z.dtype)
    launch_blocks(
        _BACK_FILE,
        f"attend_back_rows<{c_name(z)}, {c_name(block.indices)}, {_shape(heads, z, block, grad)}>",
        _blocks(first, last, cut),
        _THREADS,
        *_spans(block, cut, first, last, block.rows),
        *_attention(heads, z),
        *(*matrix(z), *matrix(grad), dot, flat(dleft, z.dtype), partial),
    )
    join_sums(cut, partial, dleft)


def attend_back_columns(
    transpose: ScaledCSR,
    z: DeviceArray,
    heads: Heads,
    grad: DeviceArray,
    dot: DeviceArray,
    dz: DeviceArray,
    dright: DeviceArray,
    first: int,
    last: int,
) -> None:
    """Write, for columns ``first .. last``, the gradients of z and heads.right."""
    if last <= first:
        return
    found, cut = _long(transpose, first, last)
    partial = found.partial("sums", cut, z.shape[1], z.dtype)
    partial_right = found.partial("heads", cut, heads.count, z.dtype)
    shape = _shape(heads, z, transpose, grad, dz)
    launch_blocks(
        _BACK_FILE,
        f"attend_back_columns<{c_name(z)}, {c_name(transpose.indices)}, {shape}>",
        _blocks(first, last, cut),
        _THREADS,
        *_spans(transpose, cut, first, last, len(grad)),
        *_attention(heads, z),
        *(*matrix(z), *matrix(grad), vector(dot, z), *matrix(dz), flat(dright, z.dtype)),
        *(partial, partial_right),
    )
    join_sums(cut, partial, dz)
    join_sums(cut, partial_right, dright)


def _head_products(
    a: DeviceArray,
    b: tuple[Any, np.int64],
    first: int,
    last: int,
    heads: int,
    width: int,
    out: DeviceArray,
) -> None:
    launch(
        _FILE,
        f"head_products<{c_name(a)}>",
        (last - first) * 32,
        *(*matrix(a), *b, np.int64(first), np.int64(last)),
        *(np.int32(heads), np.int32(width), np.int32(power_of_2(width)), flat(out, a.dtype)),
    )


def _long(block: ScaledCSR, first: int, last: int) -> tuple[LongRows, Cut]:
    found = long_rows(block.indptr)
    return found, found.cut(first, last)


def _blocks(first: int, last: int, cut: Cut) -> int:
    return -(-(last - first + len(cut.pieces)) * 32 // _THREADS)


def _spans(block: ScaledCSR, cut: Cut, first: int, last: int, selves: int) -> tuple[Any, ...]:
    return (
        *(block.indptr, cut.pieces, np.int64(len(cut.pieces))),
        *(np.int64(first), np.int64(last), np.int64(selves), block.indices),
    )


def _attention(heads: Heads, z: DeviceArray) -> tuple[Any, ...]:
    return (
        *(vector(part, z) for part in (heads.left, heads.right, heads.peak, heads.total)),
        *(np.int32(heads.count), np.int32(z.shape[1] // heads.count), z.dtype.type(heads.slope)),
        *dropout_arguments(heads.drop, z),
        np.uint64(heads.drop.nodes if heads.drop else 0),
    )


def _shape(heads: Heads, z: DeviceArray, block: ScaledCSR, *others: DeviceArray) -> str:
    """Return Vec, Lanes and Tiles; adjacent values belong to one head."""
    common = z.dtype == np.float32 and block.indices.dtype == np.int32
    width = z.shape[1]
    if common and lanes_together(width // heads.count, z, *others) == 4:
        lanes = next((lanes for lanes in (4, 8, 16) if width <= 4 * lanes), 32)
        return f"4, {lanes}, 1"
    return "1, 16, 1" if common and width <= 16 else "1, 32, 2"
