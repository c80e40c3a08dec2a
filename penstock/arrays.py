"""What an array is to type checkers: in host memory, or on a GPU.

CuPy has no types, and is imported only if there is a GPU: the results of its functions pass as
anything. Its arrays have NumPy's methods and operators, so they are checked as NumPy's with a few
more: an array is no str and not None, has no attribute that NumPy's lack, and one in host memory is
no DeviceArray. What follows ``not isinstance(array, np.ndarray)`` is left out by a type checker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]  # in host memory
AnyArray = Array  # in either memory, for code that is the same
OptionalArray = AnyArray | Any  # or None: readers know by other fields whether it exists

if TYPE_CHECKING:

    class DeviceArray(Array):
        """On a GPU: a cupy.ndarray. What is made of one lies there, too."""

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


def copy_in_lines(array: AnyArray) -> AnyArray:
    """Return a copy, of a NumPy array one that begins with a cache line."""
    if not isinstance(array, np.ndarray):
        return array.copy()
    copied = empty_lines(array.shape)
    copied[...] = array
    return copied
