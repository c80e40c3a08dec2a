"""Types of arrays for type checkers: in host memory, or on a GPU.

CuPy has no types, and is imported only if a GPU exists: results of its functions have type Any. Its
arrays have NumPy's methods and operators, so they are checked as NumPy's, and a few more mistakes
are found: an array is not a str or None, has no attributes that NumPy's lack, and one in host
memory is not a DeviceArray. A type checker skips code after ``not isinstance(array, np.ndarray)``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]  # in host memory
AnyArray = Array  # in either memory, for common code
OptionalArray = AnyArray | Any  # or None: other fields show whether it exists

if TYPE_CHECKING:

    class DeviceArray(Array):
        """On a GPU: a cupy.ndarray, like all arrays derived from it."""

        data: Any
        device: Any
        get: Callable[..., Array]
        set: Callable[..., None]
        __getitem__: Callable[..., DeviceArray]
        astype: Callable[..., DeviceArray]
        copy: Callable[..., DeviceArray]
        ravel: Callable[..., DeviceArray]
        reshape: Callable[..., DeviceArray]
        view: Callable[..., Any]
else:
    DeviceArray = Any

_LINE = 64  # bytes that processors read and write at once


def frozen_view(array: Array) -> Array:
    """Return a read-only view, as of mapped arrays: Numba compiles for each kind."""
    view = array.view(np.ndarray)
    view.flags.writeable = False
    return view


def empty_lines(shape: tuple[int, ...]) -> Array:
    """Return uninitialised float32, aligned to a cache line.

    NumPy's arrays may start anywhere: then a register of a line's size is read from two lines.
    """
    count, line = int(np.prod(shape)), _LINE // 4
    whole = np.empty(count + line, np.float32)
    begin = -(whole.ctypes.data // 4) % line
    return whole[begin : begin + count].reshape(shape)


def copy_in_lines(array: AnyArray) -> AnyArray:
    """Return a copy; NumPy's is aligned to a cache line."""
    if not isinstance(array, np.ndarray):
        return array.copy()
    copied = empty_lines(array.shape)
    copied[...] = array
    return copied
