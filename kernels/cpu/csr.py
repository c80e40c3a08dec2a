"""Edges become rows, in Numba; names and meaning are naive/csr.py's.

One pass over the edges counts bins and one scatters; the stable sort is a least-significant-digit
radix sort over the bits that vary. Kernels run on one thread and release the GIL: ETL runs one task
per core. NumPy makes most arrays, as Numba compiles np.zeros longer than a loop; a kernel makes
those for which it is faster if they are known not to overlap.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.sort import stable_order

_DIGIT = 11  # 2,048 counters and as many open cache lines stay within L2
_COARSE = 4096  # entries of the row-to-bin table: stays within L1


def bin_edges(
    sources: Array,
    targets: Array,
    relations: Array | None,
    starts: Array,
    target_bits: int,
    relation_bits: int,
    *,
    both_ways: bool,
    keep_loops: bool,
) -> tuple[Array, Array, Array]:
    """Group edges by the bin of their source, in input order inside a bin."""
    starts = np.asarray(starts, np.int64)
    rows = int(starts[-1])
    shift = max(0, max(rows - 1, 1).bit_length() - _COARSE.bit_length() + 1)
    firsts = np.arange((rows >> shift) + 1, dtype=np.int64) << shift
    coarse = (np.searchsorted(starts, firsts, side="right") - 1).astype(np.int32)
    empty = np.empty(0, np.int32)
    result: tuple[Array, Array, Array] = _bin_edges(
        sources,
        targets,
        empty if relations is None else relations,
        relations is not None,
        starts,
        coarse,
        shift,
        target_bits,
        relation_bits,
        both_ways,
        keep_loops,
    )
    return result


@njit(cache=True, inline="always")
def _bin_of(row: Any, starts: Array, coarse: Array, shift: int) -> Any:
    # The table has the bin at the start of each block of rows; few blocks contain a border.
    guess = coarse[row >> shift]
    while row >= starts[guess + 1]:
        guess += 1
    return guess


@njit(cache=True, nogil=True)
def _bin_edges(
    sources: Array,
    targets: Array,
    relations: Array,
    typed: bool,
    starts: Array,
    coarse: Array,
    shift: int,
    target_bits: int,
    relation_bits: int,
    both_ways: bool,
    keep_loops: bool,
) -> tuple[Array, Array, Array]:
    bins = len(starts) - 1
    offsets = np.zeros(bins + 1, np.int64)
    for i in range(len(sources)):
        u, v = np.int64(sources[i]), np.int64(targets[i])
        if u == v:
            if keep_loops:
                offsets[_bin_of(u, starts, coarse, shift) + 1] += 1
            continue
        offsets[_bin_of(u, starts, coarse, shift) + 1] += 1
        if both_ways:
            offsets[_bin_of(v, starts, coarse, shift) + 1] += 1
    for b in range(bins):
        offsets[b + 1] += offsets[b]
    at = offsets[:-1].copy()
    keys = np.empty(offsets[-1], np.uint64)
    order = np.empty(offsets[-1], np.int32)
    row_shift, target_shift = np.uint64(target_bits + relation_bits), np.uint64(relation_bits)
    for i in range(len(sources)):
        u, v = np.int64(sources[i]), np.int64(targets[i])
        if u == v and not keep_loops:
            continue
        low = np.uint64(relations[i]) if typed else np.uint64(0)
        b = _bin_of(u, starts, coarse, shift)
        keys[at[b]] = (np.uint64(u - starts[b]) << row_shift) | (np.uint64(v) << target_shift) | low
        order[at[b]] = i
        at[b] += 1
        if both_ways and u != v:
            b = _bin_of(v, starts, coarse, shift)
            keys[at[b]] = (
                (np.uint64(v - starts[b]) << row_shift) | (np.uint64(u) << target_shift) | low
            )
            order[at[b]] = i
            at[b] += 1
    return keys, order, offsets


def sort_keys(
    keys: Array, bits: int, *, with_order: bool, skip: int = 0
) -> tuple[Array, Array | None]:
    """Sort keys by ``bits`` bits above the lowest ``skip``; equal keys stay in input order."""
    if not with_order and not skip:
        return np.sort(keys), None  # in vector registers, twice as fast as by digits
    passes = max(1, -(-bits // _DIGIT))
    digit = -(-bits // passes) or 1
    starts = np.zeros((passes, 1 << digit), np.int64)
    keys, spare = keys.copy(), np.empty_like(keys)
    order, spare_order = np.arange(len(keys), dtype=np.int32), np.empty(len(keys), np.int32)
    _sort_with_order(keys, spare, order, spare_order, starts, digit, skip)
    if passes % 2:
        keys, order = spare, spare_order
    return keys, order if with_order else None


@njit(cache=True)
def _fill_starts(starts: Array, keys: Array, digit: int, skip: int) -> None:
    passes = len(starts)
    mask = np.uint64((1 << digit) - 1)
    for key in keys:
        left = key >> np.uint64(skip)
        for p in range(passes):
            starts[p, left & mask] += 1
            left >>= np.uint64(digit)
    for p in range(passes):
        total = 0
        for d in range(1 << digit):
            count = starts[p, d]
            starts[p, d] = total
            total += count


@njit(cache=True, nogil=True)
def _sort_with_order(
    keys: Array,
    spare: Array,
    order: Array,
    spare_order: Array,
    starts: Array,
    digit: int,
    skip: int,
) -> None:
    _fill_starts(starts, keys, digit, skip)
    mask = np.uint64((1 << digit) - 1)
    a, b, old, new = keys, spare, order, spare_order
    for p in range(len(starts)):
        shift, at = np.uint64(skip + p * digit), starts[p]
        for i in range(len(a)):
            d = (a[i] >> shift) & mask
            b[at[d]] = a[i]
            new[at[d]] = old[i]
            at[d] += 1
        a, b = b, a
        old, new = new, old


@njit(cache=True, nogil=True)
def sort_times(keys: Array, order: Array, times: Array) -> tuple[Array, Array]:
    """Sort equal keys by time as well; equal times stay in input order."""
    order, sorted_times = order.copy(), times[order]
    start = 0
    while start < len(keys):
        stop, ascending = start + 1, True
        while stop < len(keys) and keys[stop] == keys[start]:
            ascending = ascending and sorted_times[stop] >= sorted_times[stop - 1]
            stop += 1
        if not ascending:  # rare: most edges are unique, and logs ascend in time
            place = stable_order(sorted_times[start:stop])
            order[start:stop] = order[start:stop][place]
            sorted_times[start:stop] = sorted_times[start:stop][place]
        start = stop
    return order, sorted_times


def compare_directions(
    keys: Array, times: Array | None, *, once: bool
) -> tuple[Array, Array | None, int]:
    """Find edges that are listed in both directions, and remove the direction from their keys."""
    timed, when = times is not None, np.empty(0, np.int64) if times is None else times
    found, keep, pairs = _compare_directions(keys, when, timed, once)
    return found, keep if once else None, int(pairs)


@njit(cache=True, nogil=True)
def _compare_directions(
    keys: Array, times: Array, timed: bool, once: bool
) -> tuple[Array, Array, int]:
    found = np.empty_like(keys)
    keep = np.ones(len(keys) if once else 0, np.bool_)
    one, pairs, start = np.uint64(1), 0, 0
    while start < len(keys):
        key, both, i = keys[start] >> one, False, start
        while i < len(keys) and keys[i] >> one == key and (not timed or times[i] == times[start]):
            found[i] = key
            if keys[i] != keys[start]:
                both = True
                if once:
                    keep[i] = False
            i += 1
        pairs += both
        start = i
    return found, keep, pairs


def build_rows(
    keys: Array,
    rows: int,
    target_bits: int,
    relation_bits: int,
    *,
    merge: bool,
    times: Array | None = None,
) -> tuple[Array, Array, Array | None, Array]:
    """Cut sorted keys into rows; ``merge`` makes equal keys (and times, if given) one edge."""
    timed, when = times is not None, np.empty(0, np.int64) if times is None else times
    indptr = np.zeros(rows + 1, np.int64)
    indices = np.empty(len(keys), np.int32 if target_bits <= 31 else np.int64)
    relations = np.empty(len(keys) if relation_bits else 0, np.int32)
    first = np.empty(len(keys) + 1, np.int64)
    kept = _build_rows(
        keys, when, timed, target_bits, relation_bits, merge, indptr, indices, relations, first
    )
    return indptr, indices[:kept], relations[:kept] if relation_bits else None, first[: kept + 1]


@njit(cache=True, inline="always")
def _repeats(keys: Array, times: Array, timed: bool, i: int) -> Any:
    return i > 0 and keys[i] == keys[i - 1] and (not timed or times[i] == times[i - 1])


@njit(cache=True, nogil=True)
def _build_rows(
    keys: Array,
    times: Array,
    timed: bool,
    target_bits: int,
    relation_bits: int,
    merge: bool,
    indptr: Array,
    indices: Array,
    relations: Array,
    first: Array,
) -> int:
    row_shift, target_shift = np.uint64(target_bits + relation_bits), np.uint64(relation_bits)
    target_mask = np.uint64((np.uint64(1) << np.uint64(target_bits)) - np.uint64(1))
    relation_mask = np.uint64((np.uint64(1) << np.uint64(relation_bits)) - np.uint64(1))
    e = 0
    for i in range(len(keys)):
        key = keys[i]
        if merge and _repeats(keys, times, timed, i):
            continue
        indptr[np.int64(key >> row_shift) + 1] += 1
        indices[e] = (key >> target_shift) & target_mask
        if relation_bits:
            relations[e] = key & relation_mask
        first[e] = i
        e += 1
    first[e] = len(keys)
    for row in range(len(indptr) - 1):
        indptr[row + 1] += indptr[row]
    return e


def merge_values(values: Array, order: Array, first: Array, how: str) -> Array:
    """Merge the values of equal keys: ``sum``, ``max``, ``min`` or ``first``, in input order."""
    merged = np.empty(len(first) - 1, values.dtype)
    _merge_values(values, order, first, ("sum", "max", "first", "min").index(how), merged)
    return merged


@njit(cache=True, nogil=True)
def _merge_values(values: Array, order: Array, first: Array, how: int, merged: Array) -> None:
    for i in range(len(merged)):
        value = values[order[first[i]]]
        if how == 0 and first[i + 1] - first[i] > 1:
            total = np.float64(0.0)
            for j in range(first[i], first[i + 1]):
                total += values[order[j]]
            merged[i] = total
            continue
        if how == 1:
            for j in range(first[i] + 1, first[i + 1]):
                value = max(value, values[order[j]])
        if how == 3:
            for j in range(first[i] + 1, first[i + 1]):
                value = min(value, values[order[j]])
        merged[i] = value
