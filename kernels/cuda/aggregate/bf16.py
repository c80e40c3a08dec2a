"""Features as bfloat16 for ``gather`` on the GPU, as uint16: half the bytes that edges read."""

from __future__ import annotations

import numpy as np

from penstock.arrays import AnyArray, DeviceArray
from penstock.errors import UsageError
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
    """Refuse arrays that are not rows of bfloat16 with float32 arrays."""
    aligned = lanes_together(width, *others) == 4 and is_aligned(narrowed, 16)
    floats = all(array is None or array.dtype == np.float32 for array in others)
    if width % 8 or not aligned or not floats or narrowed.dtype != np.uint16:
        raise UsageError(
            "bfloat16 rows are read and written eight values at a time, together with float32",
            expected="uint16 and float32, a width that is a multiple of 8, rows at multiples of 16 "
            "bytes",
            got=", ".join(
                f"{array.dtype} of width {width}, {array.strides[0]} bytes apart"
                for array in (narrowed, *others)
                if array is not None
            ),
            remedy="fill the width up with columns of zeros, or gather float32",
        )
