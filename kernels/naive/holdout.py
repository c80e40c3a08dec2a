"""Which edges are kept apart for validation and test: the truth."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.naive.philox import philox4x32
from penstock.kernels.streams import Stream


def split_edges(
    sources: Array,
    targets: Array,
    relations: Array | None,
    seed: int,
    limits: tuple[int, int],
    *,
    directed: bool,
) -> Array:
    """Return 0 (train), 1 (valid) or 2 (test) for each edge: (m,) int8.

    The draw belongs to the edge itself, its ends and relation, so both directions of an
    undirected edge and all copies of an edge go the same way, whatever the order or the batches.
    An edge with draw d trains if d < limits[0], validates if d < limits[1], else tests.
    """
    u, v = sources.astype(np.uint64), targets.astype(np.uint64)
    if not directed:
        u, v = np.minimum(u, v), np.maximum(u, v)
    # One-to-one below 2^32 nodes, and well mixed above.
    which = (u << np.uint64(32) | u >> np.uint64(32)) ^ v
    step = np.zeros(len(u), np.uint64) if relations is None else relations.astype(np.uint64)
    draw = philox4x32(seed, Stream.SPLIT_EDGES, which, step)[0].astype(np.int64)
    return (draw >= limits[0]).astype(np.int8) + (draw >= limits[1]).astype(np.int8)
