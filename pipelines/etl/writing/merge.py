"""Which edges are duplicates, and how their weights and times merge: one rule for all graphs.

Edges with equal ends, relation and time are duplicates. With ``merge_times`` the time does
not count: the latest stays, or with ``first`` the time of the first edge. In an undirected graph an
edge may be listed in both directions; the lowest bit of its key is its direction.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.kernels import kernel
from penstock.pipelines.etl.options import EtlOptions
from penstock.workers.resources.device import to_host

_PLAIN = 1 << 22  # up to this many edges, NumPy is faster than loading Numba


@dataclass(frozen=True)
class Merging:
    """How duplicates merge: sum, max, min or first of the weights; or keep all."""

    how: str
    times: bool = False  # also merge edges that differ only in time
    directions: str | None = None  # undirected: add or once; None: keys have no bit for them

    @classmethod
    def of(cls, options: EtlOptions) -> Merging:
        """Return the rule of the options."""
        directions = None if options.directed else options.both_directions or "add"
        return cls(options.duplicates, options.merge_times, directions)


def with_direction(sources: Any, targets: Any, relations: Any | None) -> Any:
    """Return relations with one more, lowest bit: whether the source is the larger end."""
    way = (sources > targets).astype(np.int32)
    return way if relations is None else 2 * relations + way


def rows_of_keys(
    keys: Any,
    rows: int,
    target_bits: int,
    relation_bits: int,
    columns: Mapping[str, Callable[[], Any]],
    merging: Merging,
    *,
    first_row: int = 0,
) -> tuple[CSR, int]:
    """Sort the keys of ``rows`` rows and cut them into rows, duplicates merged.

    Return the rows, and how many of their edges are listed in both directions.

    columns  how to read those of ``weights`` and ``times`` that exist, in the order of the keys:
             one after the other, because both together may not fit
    """
    csr = kernel("csr", keys, plain=_PLAIN)
    bits = max(rows - 1, 0).bit_length() + target_bits + relation_bits
    both_ways, once = merging.directions is not None, merging.directions == "once"
    given: Any = keys if both_ways else None
    # The order of both directions matters if the merged edge keeps a value of the first.
    skip = int(both_ways and (bool(columns) or (once and merging.how == "keep")))
    keys, order = csr.sort_keys(keys, bits, with_order=bool(columns), skip=skip)
    times, pairs = None, 0
    if "times" in columns and not merging.times:
        alike = keys >> np.uint64(1) if both_ways else keys
        order, times = csr.sort_times(alike, order, columns["times"]())
        keys = given[order] if both_ways else keys
    del given
    if both_ways:
        keys, keep, pairs = csr.compare_directions(keys, times, once=once)
        if keep is not None:
            keys, order, times = (a if a is None else a[keep] for a in (keys, order, times))
    indptr, indices, relations, first = csr.build_rows(
        keys, rows, target_bits, relation_bits, merge=merging.how != "keep", times=times
    )
    del keys
    found: dict[str, Array] = {}
    if times is not None:
        found["times"] = to_host(times[first[:-1]])
        del times
    for name, read in columns.items():
        if name not in found:
            found[name] = to_host(csr.merge_values(read(), order, first, _how(name, merging.how)))
    if relations is not None:
        found["relations"] = to_host(relations)
    return CSR(to_host(indptr), to_host(indices), first_row=first_row, **found), pairs


def _how(column: str, how: str) -> str:
    if how == "keep":
        return "first"
    return "max" if column == "times" and how != "first" else how
