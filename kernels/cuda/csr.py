"""Edges become rows on the GPU: CuPy's sorts and scans, and csr.cu for merging in input order."""

from __future__ import annotations

from typing import Any

import cupy as cp

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.module import c_name, launch


def bin_edges(
    sources: Any,
    targets: Any,
    relations: Any | None,
    starts: Any,
    target_bits: int,
    relation_bits: int,
    *,
    both_ways: bool,
    keep_loops: bool,
) -> tuple[Any, Any, Any]:
    """Group edges by the bin of their source, in input order inside a bin."""
    starts = cp.asarray(starts, cp.int64)
    edge = cp.arange(len(sources), dtype=cp.int32)
    if both_ways:
        rows = cp.stack([sources, targets], 1).ravel()
        ends = cp.stack([targets, sources], 1).ravel()
        edge = cp.repeat(edge, 2)
        keep = cp.ones(len(rows), bool)
        keep[1::2] = sources != targets
    else:
        rows, ends, keep = sources, targets, cp.ones(len(sources), bool)
    if not keep_loops:
        keep &= rows != ends
    rows, ends, edge = rows[keep], ends[keep], edge[keep]
    bins = (cp.searchsorted(starts, rows.astype(cp.int64), side="right") - 1).astype(cp.int32)
    order = cp.argsort(bins, kind="stable")
    rows, ends, edge, bins = rows[order], ends[order], edge[order], bins[order]
    offsets = cp.zeros(len(starts), cp.int64)
    offsets[1:] = cp.cumsum(cp.bincount(bins, minlength=len(starts) - 1))
    keys = (rows - starts[bins]).astype(cp.uint64) << cp.uint64(target_bits + relation_bits)
    keys |= ends.astype(cp.uint64) << cp.uint64(relation_bits)
    if relations is not None:
        keys |= relations[edge].astype(cp.uint64)
    return keys, edge, offsets


def sort_keys(keys: Any, bits: int, *, with_order: bool, skip: int = 0) -> tuple[Any, Any | None]:
    """Sort keys by ``bits`` bits above the lowest ``skip``; equal keys stay in input order."""
    if not with_order and not skip:
        return cp.sort(keys), None
    order = cp.argsort(keys >> cp.uint64(skip), kind="stable")
    return keys[order], order.astype(cp.int32) if with_order else None


def sort_times(keys: Any, order: Any, times: Any) -> tuple[Any, Any]:
    """Sort equal keys by time as well; equal times stay in input order."""
    by_time = cp.argsort(times[order], kind="stable")
    order = order[by_time[cp.argsort(keys[by_time], kind="stable")]]
    return order, times[order]


def compare_directions(keys: Any, times: Any | None, *, once: bool) -> tuple[Any, Any | None, int]:
    """Find edges that are listed in both directions, and remove the direction from their keys."""
    way, keys = (keys & cp.uint64(1)).astype(bool), keys >> cp.uint64(1)
    new = cp.ones(len(keys), bool)
    new[1:] = keys[1:] != keys[:-1]
    if times is not None:
        new[1:] |= times[1:] != times[:-1]
    group = cp.cumsum(new) - 1
    other = way != way[cp.flatnonzero(new)][group]
    mixed = cp.zeros(len(keys), bool)
    mixed[group[other]] = True
    return keys, ~other if once else None, int(cp.count_nonzero(mixed))


def build_rows(
    keys: Any,
    rows: int,
    target_bits: int,
    relation_bits: int,
    *,
    merge: bool,
    times: Any | None = None,
) -> tuple[Any, Any, Any | None, Any]:
    """Cut sorted keys into rows; ``merge`` makes equal keys (and times, if given) one edge."""
    new = cp.ones(len(keys), bool)
    if merge:
        new[1:] = keys[1:] != keys[:-1]
        if times is not None:
            new[1:] |= times[1:] != times[:-1]
    first = cp.append(cp.flatnonzero(new), len(keys)).astype(cp.int64)
    kept = keys[new]
    row = (kept >> cp.uint64(target_bits + relation_bits)).astype(cp.int64)
    indptr = cp.searchsorted(row, cp.arange(rows + 1, dtype=cp.int64)).astype(cp.int64)
    target = (kept >> cp.uint64(relation_bits)) & cp.uint64((1 << target_bits) - 1)
    indices = target.astype(cp.int32 if target_bits <= 31 else cp.int64)
    relations = (kept & cp.uint64((1 << relation_bits) - 1)).astype(cp.int32)
    return indptr, indices, relations if relation_bits else None, first


def merge_values(
    values: DeviceArray, order: DeviceArray, first: DeviceArray, how: str
) -> DeviceArray:
    """Merge the values of equal keys: ``sum``, ``max``, ``min`` or ``first``, in input order."""
    merged = cp.empty(len(first) - 1, values.dtype)
    number = ("sum", "max", "first", "min").index(how)
    instance = f"merge_values<{c_name(values)}, {number}>"
    launch("csr", instance, len(merged), values, order, first, cp.int64(len(merged)), merged)
    return merged
