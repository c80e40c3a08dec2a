"""What an array is to type checkers: in host memory, or on a GPU."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
DeviceArray = Any  # a cupy.ndarray; CuPy has no types, and is imported only where there is a GPU
AnyArray = Array | DeviceArray  # either, where what is done is the same

_LINE = 64  # bytes that processors read and write at once


def frozen_view(array: Array) -> Array:
    """Return a read-only view: mapped arrays are that, and Numba compiles for each kind."""
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


def empty_lines(shape: tuple[int, ...]) -> Array:
    """Return float32 of any values, from the begin of a cache line on.

    NumPy's arrays begin anywhere: there a register of a line's size is read from two lines.
    """
    count, line = int(np.prod(shape)), _LINE // 4
    whole = np.empty(count + line, np.float32)
    begin = -(whole.ctypes.data // 4) % line
    return whole[begin : begin + count].reshape(shape)


def copy_in_lines(array: Any) -> Any:
    """Return a copy, of a NumPy array one that begins with a cache line."""
    if not isinstance(array, np.ndarray):
        return array.copy()
    copied = empty_lines(array.shape)
    copied[...] = array
    return copied
