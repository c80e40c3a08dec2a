"""Whether values are finite, on the GPU; the meaning is naive/finite.py's."""

from __future__ import annotations

import cupy as cp

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.module import launch


def are_finite(array: DeviceArray) -> DeviceArray:
    """Return whether all values of a float array are finite.

    One kernel reads the array once; nothing waits until the caller reads the bool.
    """
    found = cp.empty((), cp.bool_)
    found.data.memset_async(1, 1)
    launch("finite", "are_finite", array.size, array, cp.int64(array.size), found)
    return found
