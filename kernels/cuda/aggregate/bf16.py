"""Features as bfloat16 for ``gather`` on the GPU, as uint16: half the bytes that edges read."""

from __future__ import annotations

import numpy as np

from penstock.arrays import AnyArray, DeviceArray
from penstock.kernels.cuda.gnn.launch import is_aligned, lanes_together, matrix, vector
from penstock.kernels.cuda.module import launch_blocks


def narrow(
    x: DeviceArray, out: DeviceArray, first: int, last: int, factors: DeviceArray | None = None
) -> None:
    """Write rows ``first .. last`` of x, float32, as bfloat16 to ``out``, uint16, for ``gather``.

    factors  (rows,) applied first, such as a block's ``right``
    """
    width = x.shape[1]
    check_bf16(width, out, x)
    if last > first:
        launch_blocks(
            "aggregate/aggregate",
            "narrow",
            min(-(-(last - first) // (4 * max(1, 1024 // width))), 1 << 16),
            256,
            *(*matrix(x), vector(factors, x), np.int64(first), np.int64(last), np.int32(width)),
            *matrix(out),
        )


def check_bf16(width: int, narrowed: DeviceArray, *others: AnyArray | None) -> None:
    """Assert that arrays are rows of bfloat16, and float32 arrays."""
    assert narrowed.dtype == np.uint16, narrowed.dtype
    assert all(array is None or array.dtype == np.float32 for array in others)
    # Eight values are read and written at a time, together with four of float32.
    assert width % 8 == 0, width
    assert lanes_together(width, *others) == 4
    assert is_aligned(narrowed, 16)
