"""An exponential function that loops can vectorise over float32; float64 uses the library's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from penstock.kernels.compiled import njit
from penstock.kernels.cpu.vector import as_float, as_int, exponent

_LOG2_E = np.float32(exponent.LOG2_E)
_LN2_HIGH, _LN2_LOW = np.float32(exponent.LN2_HIGH), np.float32(exponent.LN2_LOW)
_ROUNDS, _BITS_OF_ROUNDS = np.float32(exponent.ROUNDS), np.int32(exponent.BITS_OF_ROUNDS)
_BIAS = np.int32(127)
_HIGHEST, _LOWEST = np.float32(exponent.HIGHEST), np.float32(exponent.LOWEST)
_INFINITY, _ZERO = np.float32(np.inf), np.float32(0)
_C7, _C6, _C5, _C4, _C3, _C2, _ONE, _ = (np.float32(power) for power in exponent.POWERS)


def exponential(value: Any) -> Any:
    """Return e to the power of a number, for kernels; NaN stays NaN.

    In float32, results below 1.2e-38 or above 2.3e38 become 0 or infinity.
    """
    return np.exp(value)


@overload(exponential)
def _exponential(value: Any) -> Any:
    return _float32 if value == types.float32 else _others


def _others(value: Any) -> Any:
    return math.exp(value)


def _float32(value: Any) -> Any:
    # These comparisons keep NaN.
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
    bits = (as_int(shifted) - _BITS_OF_ROUNDS + _BIAS) << np.int32(23)
    found = power * as_float(bits)
    found = _ZERO if value < _LOWEST else found
    return _INFINITY if value > _HIGHEST else found


@njit(cache=True)
def exp_row(value: Any, less: Any, out: Any, width: Any) -> None:
    """Write ``exp(value - less)`` for each number of a row, given by pointers."""
    for f in range(width):
        out[f] = exponential(value[f] - less)


@njit(cache=True)
def exp_in_place(value: Any, less: Any, width: Any) -> None:
    """Replace each number of a row by ``exp(value - less)``; exp_row is slow in place."""
    for f in range(width):
        value[f] = exponential(value[f] - less)


@njit(cache=True, fastmath={"reassoc"})
def total_of(value: Any, width: Any) -> Any:
    """Return the sum of a row's numbers, in an order that suits vector registers."""
    total = value[0] - value[0] if width < 1 else value[0]
    for f in range(1, width):
        total += value[f]
    return total
