"""Launch arguments of the kernels of graph neural networks, and their instances."""

from __future__ import annotations

from functools import cache
from typing import Any, cast

import cupy as cp
import numpy as np
from numpy.typing import DTypeLike

from penstock.arrays import AnyArray, DeviceArray
from penstock.kernels.gnn_rules import Dropout, Epilogue

_SUMMING_BLOCKS = 1024  # the most that share a sum; the same on every GPU


def vector(array: AnyArray | None, x: DeviceArray) -> Any:
    """Return a contiguous array of x's type; None for None."""
    if array is None:
        return None
    ready = array.dtype == x.dtype and array.flags.c_contiguous
    return array if ready else cp.ascontiguousarray(array, x.dtype)


def matrix(array: AnyArray | None) -> tuple[Any, np.int64]:
    """Return an array of rows, and their stride in values."""
    if array is None:
        return None, np.int64(0)
    assert array.shape[1] <= 1 or array.strides[1] == array.itemsize, array.strides
    return array, np.int64(array.strides[0] // array.itemsize)


def flat(array: AnyArray, dtype: DTypeLike) -> AnyArray:
    """Return an array for a kernel to write, which must be contiguous and of this type."""
    assert array.dtype == dtype, array.dtype
    assert array.flags.c_contiguous, array.strides
    return array


def lanes_together(width: int, *arrays: AnyArray | None) -> int:
    """Return how many values (4, 2 or 1) can be read at once, a divisor of the width."""
    for count in (4, 2):
        if width % count == 0 and all(
            array is None or is_aligned(array, count * array.itemsize) for array in arrays
        ):
            return count
    return 1


def is_aligned(array: AnyArray, size: int) -> bool:
    """Return whether all rows are aligned to ``size`` bytes."""
    return (
        int(cast("DeviceArray", array).data.ptr) % size == 0 and int(array.strides[0]) % size == 0
    )


def dropout_arguments(drop: Dropout | None, x: DeviceArray) -> tuple[Any, ...]:
    """Return the fields of gnn/values.cuh's Dropout, with the address of the epoch after the
    step."""
    kind = x.dtype.type
    if drop is None:
        return None, np.uint64(0), np.uint32(0), np.uint32(0), None, np.uint64(0), kind(1)
    return (
        cp.ascontiguousarray(drop.ids, np.int64),
        np.uint64(drop.seed & (2**64 - 1)),
        np.uint32(drop.stream),
        np.uint32(drop.step & (2**32 - 1)),
        None if drop.epoch_at is None else flat(drop.epoch_at, np.uint32),
        np.uint64(drop.below),
        kind(drop.scale),
    )


def epilogue_arguments(epilogue: Epilogue | None, x: DeviceArray) -> tuple[Any, ...]:
    """Return the fields of gnn/values.cuh's Epilogue."""
    epilogue = epilogue or Epilogue()
    return (
        vector(epilogue.bias, x),
        *matrix(epilogue.skip),
        np.int32(epilogue.activation),
        *dropout_arguments(epilogue.drop, x),
    )


def power_of_2(count: int) -> int:
    """Return the least power of 2 that is not smaller, at most 32: lanes of a warp."""
    return min(32, 1 << max(0, count - 1).bit_length())


def summing_blocks(rows: int, rows_a_block: int) -> int:
    """Return how many blocks share a sum over rows; each has partial sums."""
    return max(1, min(_SUMMING_BLOCKS, -(-rows // rows_a_block)))


def partial_sums(count: int) -> DeviceArray:
    """Return float64 scratch for a number of partial sums, kept: a CUDA graph may have its
    address."""
    stream = int(cp.cuda.get_current_stream().ptr)
    return _kept(cp.cuda.Device().id, stream, 1 << max(count - 1, 1).bit_length())


@cache
def _kept(device: int, stream: int, count: int) -> DeviceArray:
    return cp.empty(count, np.float64)
