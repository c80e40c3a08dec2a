"""An exponential function that a loop can do for many float32 at once; float64 is left as it is."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from penstock.kernels.compiled import njit
from penstock.kernels.cpu.vector import as_float, as_int

_LOG2_E = np.float32(1.4426950408889634)
# ln 2 in two pieces: the first has so few digits that its product with a whole number is exact.
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440054690583e-4)
# Added to a small number, it leaves that number, rounded, in the lowest bits.
_ROUNDS = np.float32(1.5 * 2**23)
_BITS_OF_ROUNDS = np.int32(0x4B400000)
_BIAS = np.int32(127)
# Beyond these the power of two that is put together from bits would not be a float32.
_HIGHEST, _LOWEST = np.float32(88.37), np.float32(-87.3)
_INFINITY, _ZERO, _ONE = np.float32(np.inf), np.float32(0), np.float32(1)
# 1 / n!, from the seventh power down to the second.
_C7, _C6, _C5 = np.float32(1 / 5040), np.float32(1 / 720), np.float32(1 / 120)
_C4, _C3, _C2 = np.float32(1 / 24), np.float32(1 / 6), np.float32(1 / 2)


def exponential(value: Any) -> Any:
    """Return e to the power of a number, for kernels; NaN stays.

    In float32 what is below 1.2e-38 or above 2.3e38 becomes 0 or infinity.
    """
    return np.exp(value)


@overload(exponential)
def _exponential(value: Any) -> Any:
    return _float32 if value == types.float32 else _others


def _others(value: Any) -> Any:
    return math.exp(value)


def _float32(value: Any) -> Any:
    # Comparisons are such that NaN is not replaced.
    inside = _HIGHEST if value > _HIGHEST else value
    inside = _LOWEST if inside < _LOWEST else inside
    shifted = inside * _LOG2_E + _ROUNDS
    whole = shifted - _ROUNDS
    rest = inside - whole * _LN2_HIGH - whole * _LN2_LOW
    power = _C7 * rest + _C6
    power = power * rest + _C5
    power = power * rest + _C4
    power = power * rest + _C3
    power = power * rest + _C2
    power = power * rest + _ONE
    power = power * rest + _ONE
    exponent = (as_int(shifted) - _BITS_OF_ROUNDS + _BIAS) << np.int32(23)
    found = power * as_float(exponent)
    found = _ZERO if value < _LOWEST else found
    return _INFINITY if value > _HIGHEST else found


@njit(cache=True)
def exp_row(value: Any, less: Any, out: Any, width: Any) -> None:
    """Write ``exp(value - less)`` for each of a row's numbers, which are pointed to."""
    for f in range(width):
        out[f] = exponential(value[f] - less)


@njit(cache=True)
def exp_in_place(value: Any, less: Any, width: Any) -> None:
    """Make ``exp(value - less)`` of each of a row's numbers; exp_row is slow where both are one."""
    for f in range(width):
        value[f] = exponential(value[f] - less)


@njit(cache=True, fastmath={"reassoc"})
def total_of(value: Any, width: Any) -> Any:
    """Return the sum of a row's numbers, in an order that suits the processor."""
    total = value[0] - value[0] if width < 1 else value[0]
    for f in range(1, width):
        total += value[f]
    return total
