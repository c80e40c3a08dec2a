"""Edges become rows: the reference for binning, sorting and merging, in plain NumPy.

An edge travels as one 64-bit key, ``row within its bin | target | relation``, most significant
first, so that sorting keys sorts edges; ``target_bits`` and ``relation_bits`` are the widths of the
lower fields.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array


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
    """Group edges by the bin of their source, in input order inside a bin.

    sources, targets  (m,) ids; relations (m,) or None
    starts            (bins + 1,) first row of each bin, then the number of rows
    both_ways         also take each edge reversed, right after itself (a loop only once)
    ->                keys (e,) uint64 bin after bin, order (e,) the edge each key comes from,
                      offsets (bins + 1,) the start of each bin
    """
    edge = np.arange(len(sources), dtype=np.int32)
    if not keep_loops:
        edge = np.flatnonzero(sources != targets).astype(np.int32)
    rows, ends = sources[edge], targets[edge]
    if both_ways:
        rows, ends = np.stack([rows, ends], 1).ravel(), np.stack([ends, rows], 1).ravel()
        edge = np.repeat(edge, 2)
        once = rows != ends
        once[::2] = True
        rows, ends, edge = rows[once], ends[once], edge[once]
    bins = np.searchsorted(starts, rows, side="right") - 1 if len(starts) > 2 else None
    if bins is not None:
        order = np.argsort(bins, kind="stable")
        rows, ends, edge, bins = rows[order], ends[order], edge[order], bins[order]
        rows = rows - starts[bins]
    count = [len(rows)] if bins is None else np.bincount(bins, minlength=len(starts) - 1)
    keys = rows.astype(np.uint64) << np.uint64(target_bits + relation_bits)
    keys |= ends.astype(np.uint64) << np.uint64(relation_bits)
    if relations is not None:
        keys |= relations[edge].astype(np.uint64)
    return keys, edge, np.append(0, np.cumsum(count))


def sort_keys(
    keys: Array, bits: int, *, with_order: bool, skip: int = 0
) -> tuple[Array, Array | None]:
    """Sort keys by ``bits`` bits above the lowest ``skip``; equal keys stay in input order.

    -> the sorted keys, and with ``with_order`` the position each came from: (n,) int32
    """
    if not with_order and not skip:
        return np.sort(keys), None
    order = np.argsort(keys >> np.uint64(skip), kind="stable")
    return keys[order], order.astype(np.int32) if with_order else None


def sort_times(keys: Array, order: Array, times: Array) -> tuple[Array, Array]:
    """Sort equal keys by time as well; equal times stay in input order.

    keys, order  from sort_keys; times (m,) in input order
    ->           the position each key comes from now: (n,) int32, and the times in that order
    """
    order = order[np.lexsort((times[order], keys))]
    return order, times[order]


def compare_directions(
    keys: Array, times: Array | None, *, once: bool
) -> tuple[Array, Array | None, int]:
    """Find edges that are listed in both directions, and remove the direction from their keys.

    keys   (n,) sorted except by the lowest bit, the direction in which an edge is listed
    times  (n,) in the order of the keys, if they distinguish edges; or None
    ->     the keys without that bit; with ``once`` a mask of the edges listed in the direction of
           the first of their equals; the number of different edges with both directions
    """
    found = keys >> np.uint64(1)
    new = _are_new(found, times)
    turns = np.flatnonzero(~new[1:] & (keys[1:] != keys[:-1])) + 1
    groups = np.flatnonzero(new)
    pairs = len(np.unique(np.searchsorted(groups, turns, side="right")))
    if not once:
        return found, None, pairs
    return found, keys == np.repeat(keys[groups], np.diff(np.append(groups, len(keys)))), pairs


def build_rows(
    keys: Array,
    rows: int,
    target_bits: int,
    relation_bits: int,
    *,
    merge: bool,
    times: Array | None = None,
) -> tuple[Array, Array, Array | None, Array]:
    """Cut sorted keys into rows; ``merge`` makes equal keys (and times, if given) one edge.

    times  (n,) in the order of the keys, from sort_times
    -> indptr (rows + 1,) int64, indices (e,) int32 (int64 above 31 bits),
       relations (e,) int32 or None without relation bits,
       first (e + 1,) int64: edge i stands for the keys first[i]:first[i + 1]
    """
    new = _are_new(keys, times) if merge else np.ones(len(keys), bool)
    first = np.append(np.flatnonzero(new), len(keys))
    kept = keys[first[:-1]]
    row = kept >> np.uint64(target_bits + relation_bits)
    indptr = np.zeros(rows + 1, np.int64)
    np.cumsum(np.bincount(row.astype(np.int64), minlength=rows), out=indptr[1:])
    target = (kept >> np.uint64(relation_bits)) & np.uint64((1 << target_bits) - 1)
    indices = target.astype(np.int32 if target_bits <= 31 else np.int64)
    relations = None
    if relation_bits:
        relations = (kept & np.uint64((1 << relation_bits) - 1)).astype(np.int32)
    return indptr, indices, relations, first


def _are_new(keys: Array, times: Array | None) -> Array:
    new = np.ones(len(keys), bool)
    np.not_equal(keys[1:], keys[:-1], out=new[1:])
    if times is not None:
        new[1:] |= times[1:] != times[:-1]
    return new


def merge_values(values: Array, order: Array, first: Array, how: str) -> Array:
    """Merge the values of equal keys: ``sum``, ``max``, ``min`` or ``first``, in input order.

    values  (m,) in input order; order (n,) from sort_keys; first (e + 1,) from build_rows
    ->      (e,) of the dtype of values; sums are taken in float64
    """
    edges = len(first) - 1
    if how == "first" or edges == 0:
        return values[order[first[:-1]]]
    if how == "sum":
        group = np.repeat(np.arange(edges), np.diff(first))
        totals = np.bincount(group, weights=values[order], minlength=edges)  # in input order
        return totals.astype(values.dtype)
    reduce = np.maximum if how == "max" else np.minimum
    return np.asarray(reduce.reduceat(values[order], first[:-1]))
