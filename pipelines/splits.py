"""Which nodes train, validate and test: drawn by seed, the same on any number of ranks."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.cpu.philox import random_keys
from penstock.kernels.streams import Stream

_EXACT = 1e-6  # fractions that add up to this less than one leave no node out


def draw_splits(
    positions: Array | None,
    chosen: Array,
    fractions: tuple[float, float, float],
    seed: int,
    classes: Array | None = None,
) -> Array:
    """Return 0 (train), 1 (valid), 2 (test) or -1 (none) a node: (nodes,) int8.

    positions  (nodes,) among all of the user's ids, by which numbers are drawn, so that it does
               not matter how nodes are numbered; None: they are numbered so
    chosen     (nodes,) bool: of these the fractions are taken, exactly
    classes    (nodes,) class numbers: take them of every class instead, to within one node
    """
    count = len(chosen) if positions is None else int(positions.max(initial=-1)) + 1
    keys = random_keys(seed, Stream.SPLIT_NODES, 0, count)
    keys = keys if positions is None else keys[positions]
    nodes = np.flatnonzero(chosen)
    nodes = nodes[np.argsort(keys[nodes], kind="stable")]
    splits = np.full(len(chosen), -1, np.int8)
    ends = np.cumsum(fractions)
    if classes is None:
        cuts = np.round(ends * len(nodes)).astype(np.int64)
        for number, (start, stop) in enumerate(zip([0, *cuts[:2]], cuts, strict=True)):
            splits[nodes[start:stop]] = number
        return splits
    if ends[-1] > 1 - _EXACT:
        ends[-1] = 2
    nodes = nodes[np.argsort(classes[nodes], kind="stable")]
    sizes = np.bincount(classes[nodes])
    first = np.repeat(np.cumsum(sizes) - sizes, sizes)  # where each node's class begins
    # Every class is spread evenly over 0 to 1 from a start of its own, its first node's number:
    # rounding would give a class of three nodes none to validate on, in every such class alike.
    start = keys[nodes[first]] / 2.0**64
    at = (np.arange(len(nodes)) - first + start) / np.repeat(sizes, sizes)
    drawn = np.searchsorted(ends, at, side="right")
    splits[nodes] = np.where(drawn > 2, -1, drawn)
    return splits
