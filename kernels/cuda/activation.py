"""Activation, dropout and bias of a layer on a GPU, and backward; see naive/activation.py."""

from __future__ import annotations

from dataclasses import replace

import cupy as cp
import numpy as np

from penstock.arrays import AnyArray, DeviceArray
from penstock.kernels.cuda.gnn.launch import (
    c_id,
    c_value,
    dropout_arguments,
    epilogue_arguments,
    flat,
    is_aligned,
    lanes_together,
    matrix,
    vector,
)
from penstock.kernels.cuda.module import launch, launch_blocks
from penstock.kernels.gnn_rules import Dropout, Epilogue, ScaledCSR

_FILE = "activation"
_THREADS = 256
_BLOCKS = 1 << 16  # the most; beyond, a thread takes several rows


def apply_epilogue(
    z: DeviceArray, out: DeviceArray, epilogue: Epilogue, first: int, last: int
) -> None:
    """Apply an epilogue to rows ``first .. last`` of ``z`` into ``out``, which may be ``z``."""
    width = z.shape[1]
    if last <= first or not width:
        return
    launch_blocks(
        _FILE,
        f"apply_epilogue<{c_value(z)}, {_vec(z, out, epilogue.skip)}>",
        _blocks(last - first, -(-width // 4)),
        _THREADS,
        *(*matrix(z), *matrix(out), np.int64(first), np.int64(last), np.int32(width)),
        *epilogue_arguments(epilogue, z),
    )


def epilogue_backward(
    grad: DeviceArray, out: DeviceArray, epilogue: Epilogue, first: int, last: int
) -> None:
    """Make of ``grad``, that of ``out``, the gradient of ``z``; rows ``first .. last``, in place.

    ``out`` is what ``apply_epilogue`` made with the same epilogue. The gradients of bias and skip
    are the sums of columns, and ``grad`` itself.
    """
    width = grad.shape[1]
    if last <= first or not width:
        return
    launch_blocks(
        _FILE,
        f"epilogue_backward<{c_value(grad)}, {_vec(grad, out)}>",
        _blocks(last - first, -(-width // 4)),
        _THREADS,
        *(*matrix(grad), *matrix(out), np.int64(first), np.int64(last), np.int32(width)),
        *(np.int32(epilogue.activation), *dropout_arguments(epilogue.drop, grad)),
    )


def factors(drop: Dropout | None, first: int, last: int, like: DeviceArray) -> DeviceArray:
    """Return the factors of values at the end: 0 if they are dropped."""
    found = cp.ones((last - first, like.shape[1]), like.dtype)
    if drop is not None:
        apply_epilogue(
            found, found, Epilogue(drop=replace(drop, ids=drop.ids[first:last])), 0, last - first
        )
    return found


def scale_rows(
    x: DeviceArray, factors: DeviceArray, out: DeviceArray, first: int, last: int
) -> None:
    """Write rows ``first .. last`` of ``x``, each times its factor, at ``out``, maybe ``x`` itself.

    factors  (rows,), of x's type
    """
    width = x.shape[1]
    if last <= first or not width:
        return
    vec = 16 // x.itemsize
    if width % vec or not (is_aligned(x, 16) and is_aligned(out, 16)):
        vec = 1
    launch_blocks(
        _FILE,
        f"scale_rows<{c_value(x)}, {vec}>",
        _blocks(last - first, width // vec),
        _THREADS,
        *(*matrix(x), vector(factors, x), *matrix(out)),
        *(np.int64(first), np.int64(last), np.int32(width)),
    )


def drop_values(
    block: ScaledCSR, drop: Dropout, out: DeviceArray, *, rows_are_columns: bool
) -> None:
    """Write a sparse feature matrix' values with some dropped at ``out``, (edges,).

    ``block`` has nodes as rows, or, with ``rows_are_columns``, is the transpose: features as rows.
    A value is dropped as ``apply_epilogue`` drops that of its node and feature.
    """
    edges = block.edges
    launch(
        _FILE,
        f"drop_values<{c_value(out)}, {c_id(block.indices)}>",
        edges,
        *(block.indptr, np.int64(block.rows), block.indices, vector(block.weights, out)),
        *(np.int64(edges), np.int32(rows_are_columns), *dropout_arguments(drop, out)),
        flat(out, out.dtype),
    )


def _vec(x: DeviceArray, *others: AnyArray | None) -> int:
    """Return how many values a thread reads at once: 4 or 1."""
    fits = x.dtype == np.float32 and lanes_together(x.shape[1], x, *others) == 4
    return 4 if fits else 1


def _blocks(rows: int, places: int) -> int:
    """Return how many blocks have a thread for each place of each row."""
    return min(-(-rows // max(1, _THREADS // places)), _BLOCKS)
