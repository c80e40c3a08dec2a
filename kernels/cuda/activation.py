"""Activation, dropout and bias of a layer on a GPU, and backward; see naive/activation.py."""

from __future__ import annotations

from dataclasses import replace

import cupy as cp
import numpy as np

from penstock.arrays import AnyArray, DeviceArray
from penstock.kernels.cuda.gnn.launch import (
    dropout_arguments,
    epilogue_arguments,
    flat,
    is_aligned,
    lanes_together,
    matrix,
    vector,
)
from penstock.kernels.cuda.module import c_name, launch, launch_blocks
from penstock.kernels.gnn_rules import Dropout, Epilogue, ScaledCSR

_FILE = "activation"
_THREADS = 256
_BLOCKS = 1 << 16  # at most; beyond, a thread takes several rows


def apply_epilogue(
    z: DeviceArray, out: DeviceArray, epilogue: Epilogue, first: int, last: int
) -> None:
    """Apply an epilogue to rows ``first .. last`` of ``z`` into ``out``, which may be ``z``."""
    width = z.shape[1]
    if last <= first or not width:
        return
    launch_blocks(
        _FILE,
        f"apply_epilogue<{c_name(z)}, {_vec(z, out, epilogue.skip)}>",
        _blocks(last - first, -(-width // 4)),
        _THREADS,
        *(*matrix(z), *matrix(out), np.int64(first), np.int64(last), np.int32(width)),
        *epilogue_arguments(epilogue, z),
    )


def epilogue_backward(
    grad: DeviceArray, out: DeviceArray, epilogue: Epilogue, first: int, last: int
) -> None:
    """Turn rows ``first .. last`` of ``grad``, that of ``out``, into the gradient of ``z``."""
    width = grad.shape[1]
    if last <= first or not width:
        return
    launch_blocks(
        _FILE,
        f"epilogue_backward<{c_name(grad)}, {_vec(grad, out)}>",
        _blocks(last - first, -(-width // 4)),
        _THREADS,
        *(*matrix(grad), *matrix(out), np.int64(first), np.int64(last), np.int32(width)),
        *(np.int32(epilogue.activation), *dropout_arguments(epilogue.drop, grad)),
    )


def factors(drop: Dropout | None, first: int, last: int, like: DeviceArray) -> DeviceArray:
    """Return the final factors of values: 0 for dropped ones."""
    found = cp.ones((last - first, like.shape[1]), like.dtype)
    if drop is not None:
        apply_epilogue(
            found, found, Epilogue(drop=replace(drop, ids=drop.ids[first:last])), 0, last - first
        )
    return found


def scale_rows(
    x: DeviceArray, factors: DeviceArray, out: DeviceArray, first: int, last: int
) -> None:
    """Write rows ``first .. last`` of ``x``, each times its factor, to ``out`` (maybe ``x``)."""
    width = x.shape[1]
    if last <= first or not width:
        return
    vec = 16 // x.itemsize
    if width % vec or not (is_aligned(x, 16) and is_aligned(out, 16)):
        vec = 1
    launch_blocks(
        _FILE,
        f"scale_rows<{c_name(x)}, {vec}>",
        _blocks(last - first, width // vec),
        _THREADS,
        *(*matrix(x), vector(factors, x), *matrix(out)),
        *(np.int64(first), np.int64(last), np.int32(width)),
    )


def drop_values(
    block: ScaledCSR, drop: Dropout, out: DeviceArray, *, rows_are_columns: bool
) -> None:
    """Write a sparse feature matrix' values, some dropped, to ``out``, (edges,)."""
    edges = block.edges
    launch(
        _FILE,
        f"drop_values<{c_name(out)}, {c_name(block.indices)}>",
        edges,
        *(block.indptr, np.int64(block.rows), block.indices, vector(block.weights, out)),
        *(np.int64(edges), np.int32(rows_are_columns), *dropout_arguments(drop, out)),
        flat(out, out.dtype),
    )


def _vec(x: DeviceArray, *others: AnyArray | None) -> int:
    fits = x.dtype == np.float32 and lanes_together(x.shape[1], x, *others) == 4
    return 4 if fits else 1


def _blocks(rows: int, places: int) -> int:
    return min(-(-rows // max(1, _THREADS // places)), _BLOCKS)
