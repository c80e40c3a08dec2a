"""One step of a walk, in Numba: draws, candidates, proposals, judgement (kernels/walk_rules.py).

Functions take the Arrays, as pointers, and the Numbers of arrays.py. Words of a draw are
uint64; ids, edges and counters are int64.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64

from penstock.kernels.compiled import njit
from penstock.kernels.cpu.philox import philox4x32
from penstock.kernels.streams import Stream
from penstock.kernels.walk_rules import WALK_BITS

_STEP, _STOP = int(Stream.WALK_STEP), int(Stream.WALK_STOP)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)
_BITS = WALK_BITS
_ROUND = 2.0**32  # number of words


# -- draws -----------------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def words(seed: Any, stream: Any, walk: Any, step: Any, n: Any) -> Any:
    """Return the four words of the n-th draw for a step of a walk."""
    which = uint64(walk) | uint64(step) << uint64(_BITS)
    a, b, c, d = philox4x32(seed, uint64(stream), which, uint64(n))
    return uint64(a), uint64(b), uint64(c), uint64(d)


@njit(cache=True, error_model="numpy")
def draw(numbers: Any, walk: Any, step: Any, n: Any) -> Any:
    """Return ``wide``, word 2 and word 3 of the n-th draw for a step of a walk."""
    a, b, c, d = words(numbers.seed, _STEP, walk, step, n)
    return b << _HALF | a, c, d


@njit(cache=True, error_model="numpy")
def scaled(wide: Any, count: Any) -> Any:
    """Return ``wide * count >> 64`` exactly, as int64; count below 2**63."""
    count = uint64(count)
    high, low = wide >> _HALF, wide & _LOW
    count_high, count_low = count >> _HALF, count & _LOW
    middle = high * count_low + (low * count_low >> _HALF)
    carried = low * count_high + (middle & _LOW)
    return np.int64(high * count_high + (middle >> _HALF) + (carried >> _HALF))


@njit(cache=True, forceinline=True, error_model="numpy")
def ending(numbers: Any, walk: Any, step: Any) -> Any:
    """Return 1 if the walk stops before this step, 2 if it restarts, else 0."""
    if numbers.stop_below <= 0 and numbers.restart_below <= 0:
        return 0
    stop, again, _, _ = words(numbers.seed, _STOP, walk, step, 0)
    if np.int64(stop) < numbers.stop_below:
        return 1
    return 2 if np.int64(again) < numbers.restart_below else 0


# -- candidates ------------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def first_not_below(array: Any, low: Any, high: Any, value: Any) -> Any:
    """Return the first place of ascending ``array[low:high]`` not below a value."""
    count = high - low
    while count > 0:
        half = count >> 1
        beyond = array[low + half] < value
        low = low + half + 1 if beyond else low
        count = count - half - 1 if beyond else half
    return low


@njit(cache=True, error_model="numpy")
def first_above(array: Any, low: Any, high: Any, value: Any) -> Any:
    """Return the first place of ascending ``array[low:high]`` above a value."""
    count = high - low
    while count > 0:  # without a branch to mispredict
        half = count >> 1
        beyond = array[low + half] <= value
        low = low + half + 1 if beyond else low
        count = count - half - 1 if beyond else half
    return low


@njit(cache=True, forceinline=True, error_model="numpy")
def candidate_range(at: Any, numbers: Any, node: Any, step: Any, now: Any) -> Any:
    """Return the row, and the first and last + 1 of its edges that the step may propose.

    ``node`` is the place of the node's rows: its id, or in a part its local id.
    """
    row = np.int64(node) * numbers.groups
    if numbers.schema > 0:
        if step > numbers.schema and not numbers.cyclic:
            return row, np.int64(0), np.int64(0)
        row += at.schema[(step - 1) % numbers.schema]
    low, high = at.indptr[row], at.indptr[row + 1]
    if numbers.dated:
        earliest = max(now, numbers.earliest) if numbers.timed else numbers.earliest
        high = first_above(at.times, low, high, numbers.latest)
        low = first_not_below(at.times, low, high, earliest)
    return row, low, high


# -- proposals -------------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def propose_by_sums(
    at: Any, numbers: Any, row: Any, low: Any, high: Any, walk: Any, step: Any, n: Any
) -> Any:
    """Return an edge of ``low .. high`` by ITS (-1: all weights are 0), and its coin."""
    wide, _, coin = draw(numbers, walk, step, n)
    before = at.prefix[low - 1] if low > at.indptr[row] else 0.0
    total = at.prefix[high - 1] - before
    if total == 0.0:
        return np.int64(-1), coin
    passed = before + np.float64(wide >> uint64(11)) * 2.0**-53 * total
    edge = first_above(at.prefix, low, high, passed)
    while edge == high or at.weights[edge] == 0:
        edge -= 1
    return edge, coin


@njit(cache=True, error_model="numpy")
def decide_exactly(
    at: Any, numbers: Any, bound: Any, low: Any, high: Any, walk: Any, step: Any, n: Any
) -> Any:
    """Return an edge by sums of weights rounded down (-1: all are 0), its coin, the next draw."""
    bits, count = 62, high - low
    while count > 0:
        bits, count = bits - 1, count >> 1
    scale = np.float64(np.int64(1) << bits) / bound
    total = np.int64(0)
    for edge in range(low, high):
        total += np.int64(np.float64(at.weights[edge]) * scale)
    wide, _, coin = draw(numbers, walk, step, n)
    left = scaled(wide, total)
    for edge in range(low, high):
        left -= np.int64(np.float64(at.weights[edge]) * scale)
        if left < 0:
            return edge, coin, n + 1
    return np.int64(-1), coin, n + 1


# -- judgement -------------------------------------------------------------------------------------


@njit(cache=True, error_model="numpy")
def verdict_of_coin(numbers: Any, coin: Any, returns: Any) -> Any:
    """Return 1 or 0, taken or not, if the coin decides without a look-up; else -1."""
    height = np.float64(coin) * numbers.largest_factor
    if returns:
        return 1 if height < numbers.return_factor * _ROUND else 0
    if height < min(1.0, numbers.far_factor) * _ROUND:
        return 1
    return -1 if height < max(1.0, numbers.far_factor) * _ROUND else 0


@njit(cache=True, error_model="numpy")
def verdict_of_row(numbers: Any, coin: Any, near: Any) -> Any:
    """Return 1 or 0, taken or not, for a target that is not the previous node."""
    factor = 1.0 if near else numbers.far_factor
    return 1 if np.float64(coin) * numbers.largest_factor < factor * _ROUND else 0


@njit(cache=True, error_model="numpy")
def in_row(indptr: Any, indices: Any, row: Any, target: Any) -> Any:
    """Return whether an ascending row contains a target."""
    low, end = indptr[row], indptr[row + 1]
    count = end - low
    while count > 1:  # without a branch to mispredict
        half = count >> 1
        low = low + half if indices[low + half] <= target else low
        count -= half
    return low < end and indices[low] == target
