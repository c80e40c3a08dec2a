"""64 bits of each row of a graph: the reference."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array

MIX = np.uint64(0xD6E8FEB86659FD93)


def row_prints(indptr: Array, indices: Array, more: Array | None = None) -> Array:
    """Return bits of each row, which do not depend on the order of its edges: (rows,) uint64.

    Parameters
    ----------
    indptr, indices
        Of the rows.
    more
        (edges,) uint64 bits of what counts besides the neighbours.
    """
    keys = indices.astype(np.uint64)
    if more is not None:
        keys ^= more
    for shift in (32, 29):  # bits of every key depend on all of its bits, before they add up
        keys ^= keys >> np.uint64(shift)
        keys *= MIX
    keys ^= keys >> np.uint64(32)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(keys, dtype=np.uint64)])
    found: Array = np.diff(sums[indptr]) ^ np.diff(indptr).astype(np.uint64)
    return found
