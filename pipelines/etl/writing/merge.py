"""Which edges are duplicates, and what becomes of their weights and times: one rule for all graphs.

Edges of equal ends, relation and time are duplicates. With ``merge_times`` the time does not tell
edges apart: then the latest stays, with ``first`` that of the first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.kernels import kernel
from penstock.pipelines.etl.options import EtlOptions
from penstock.workers.resources.device import to_host


@dataclass(frozen=True)
class Merging:
    """What becomes of duplicates: how their weights merge (sum, max, first), or keep for all."""

    how: str
    times: bool = False  # also merge edges that differ in their times alone

    @classmethod
    def of(cls, options: EtlOptions) -> Merging:
        """Return what the options ask for."""
        return cls(options.duplicates, options.merge_times)


def rows_of_keys(
    keys: Any,
    rows: int,
    target_bits: int,
    relation_bits: int,
    columns: Mapping[str, Callable[[], Any]],
    merging: Merging,
    *,
    first_row: int = 0,
) -> CSR:
    """Sort the keys of ``rows`` rows and cut them into rows, duplicates merged.

    columns  how to read ``weights`` and ``times``, those that exist, in the order of the keys:
             one after the other, since both at once may not fit
    """
    csr = kernel("csr", keys)
    bits = max(rows - 1, 0).bit_length() + target_bits + relation_bits
    keys, order = csr.sort_keys(keys, bits, with_order=bool(columns))
    times = None
    if "times" in columns and not merging.times:
        order, times = csr.sort_times(keys, order, columns["times"]())
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
    return CSR(to_host(indptr), to_host(indices), first_row=first_row, **found)


def _how(column: str, how: str) -> str:
    if how == "keep":
        return "first"
    # Times do not add up.
    return "max" if column == "times" and how == "sum" else how
