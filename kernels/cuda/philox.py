"""Draws of any numbers, on the GPU; their meaning is naive/philox.py's."""

from __future__ import annotations

import cupy as cp

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.module import launch


def draws(seed: int, stream: int, which: DeviceArray, step: DeviceArray | int = 0) -> DeviceArray:
    """Return the first word of each draw of ``which``: (n,) uint32; one step, or one step each."""
    steps = cp.atleast_1d(cp.asarray(step, cp.uint32))
    found = cp.empty(len(which), cp.uint32)
    launch(
        "philox",
        "draws",
        len(which),
        cp.uint64(seed),
        cp.uint32(stream),
        cp.ascontiguousarray(which, cp.uint64),
        steps,
        cp.int64(len(steps) - 1),
        cp.int64(len(which)),
        found,
    )
    return found
