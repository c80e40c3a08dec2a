"""Rows of uniform random numbers, on the GPU; the meaning is naive/uniform_rows.py's."""

from __future__ import annotations

import cupy as cp

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.module import launch


def uniform_rows(
    seed: int, stream: int, which: DeviceArray, width: int, step: int = 0
) -> DeviceArray:
    """Return numbers between -1 and 1, both excluded: (len(which), width) float32."""
    rows = cp.empty((len(which), width), cp.float32)
    launch(
        "uniform_rows",
        "uniform_rows",
        len(which) * -(-width // 4),
        cp.uint64(seed),
        cp.uint32(stream),
        cp.ascontiguousarray(which, cp.int64),
        cp.int64(len(which)),
        cp.int32(width),
        cp.uint32(step),
        rows,
    )
    return rows
