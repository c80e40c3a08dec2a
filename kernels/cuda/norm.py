"""Normalising a layer's values on the GPU; names and meaning are naive/norm.py's.

Sums over rows are float64 and have the same order on any GPU.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.gnn.launch import (
    flat,
    matrix,
    partial_sums,
    power_of_2,
    summing_blocks,
    vector,
)
from penstock.kernels.cuda.module import c_name, launch, launch_blocks
from penstock.kernels.gnn_rules import Factors

_FILE = "norm"
_THREADS = 256
_BLOCKS = 1 << 16  # at most; beyond, a thread takes several rows


def column_sums(x: DeviceArray, sums: DeviceArray, first: int, last: int) -> None:
    """Add the sum of each column of rows ``first .. last`` to ``sums``, (width,)."""
    _add_sums("value_sums", [x], sums, first, last)


def layer_norm(
    z: DeviceArray,
    scale: DeviceArray,
    shift: DeviceArray,
    out: DeviceArray,
    moments: DeviceArray,
    first: int,
    last: int,
) -> None:
    """Write ``scale * (z - mean) / deviation + shift``, row by row."""
    lanes = power_of_2(z.shape[1])
    launch(
        _FILE,
        f"layer_norm<{c_name(z)}>",
        (last - first) * lanes if last > first else 0,
        *(*matrix(z), vector(scale, z), vector(shift, z), *matrix(out), flat(moments, z.dtype)),
        *(np.int64(first), np.int64(last), np.int32(z.shape[1]), np.int32(lanes)),
    )


def layer_norm_back(
    grad: DeviceArray,
    z: DeviceArray,
    scale: DeviceArray,
    moments: DeviceArray,
    sums: DeviceArray,
    first: int,
    last: int,
) -> None:
    """Turn ``grad``, that of ``out``, into the gradient of ``z``, in place."""
    moments = vector(moments, z)
    _add_sums("layer_sums", [grad, z], sums, first, last, moments)
    lanes = power_of_2(z.shape[1])
    launch(
        _FILE,
        f"layer_norm_back<{c_name(z)}>",
        (last - first) * lanes if last > first else 0,
        *(*matrix(grad), *matrix(z), vector(scale, z), moments),
        *(np.int64(first), np.int64(last), np.int32(z.shape[1]), np.int32(lanes)),
    )


def batch_moments(z: DeviceArray, sums: DeviceArray, first: int, last: int) -> None:
    """Add to ``sums``, (2, width), the sum of each column, and that of its squares."""
    _add_sums("batch_moment_sums", [z], sums, first, last)


def batch_norm(z: DeviceArray, factors: Factors, out: DeviceArray, first: int, last: int) -> None:
    """Write ``scale * (z - mean) * inverse + shift`` with one mean and inverse per column."""
    if last <= first:
        return
    launch_blocks(
        _FILE,
        f"batch_norm<{c_name(z)}>",
        _blocks(last - first, z.shape[1]),
        _THREADS,
        *(*matrix(z), *(vector(column, z) for column in factors)),
        *(*matrix(out), np.int64(first), np.int64(last), np.int32(z.shape[1])),
    )


def batch_norm_sums(
    grad: DeviceArray, z: DeviceArray, factors: Factors, sums: DeviceArray, first: int, last: int
) -> None:
    """Add to ``sums``, (2, width), the gradients of shift and scale."""
    columns = (vector(each, z) for each in factors[:2])
    _add_sums("batch_sums", [grad, z], sums, first, last, *columns)


def batch_norm_back(
    grad: DeviceArray, z: DeviceArray, factors: Factors, means: DeviceArray, first: int, last: int
) -> None:
    """Turn ``grad``, that of ``out``, into the gradient of ``z``, in place."""
    if last <= first:
        return
    launch_blocks(
        _FILE,
        f"batch_norm_back<{c_name(z)}>",
        _blocks(last - first, z.shape[1]),
        _THREADS,
        *(*matrix(grad), *matrix(z)),
        *(vector(column, z) for column in (*factors[:3], means)),
        *(np.int64(first), np.int64(last), np.int32(z.shape[1])),
    )


def _add_sums(
    kernel: str, matrices: list[DeviceArray], sums: DeviceArray, first: int, last: int, *more: Any
) -> None:
    if last <= first:
        return
    width, count = matrices[0].shape[1], sums.size
    blocks = summing_blocks(last - first, 8 * max(1, _THREADS // width))
    partial = partial_sums(blocks * count)
    pairs = [part for each in matrices for part in matrix(each)]
    launch_blocks(
        _FILE,
        f"{kernel}<{c_name(matrices[0])}>",
        blocks,
        _THREADS,
        *(*pairs, np.int64(first), np.int64(last), np.int32(width), *more, partial),
    )
    arguments = (partial, np.int32(blocks), np.int32(count), flat(sums, np.float64))
    launch(_FILE, "add_sums", count * 32, *arguments)


def _blocks(rows: int, width: int) -> int:
    return min(-(-rows // (4 * max(1, _THREADS // width))), _BLOCKS)
