"""Which edges are kept apart for validation and test, in Numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.philox import philox4x32
from penstock.kernels.streams import Stream

_STREAM = int(Stream.SPLIT_EDGES)


def split_edges(
    sources: Array,
    targets: Array,
    relations: Array | None,
    seed: int,
    limits: tuple[int, int],
    *,
    directed: bool,
) -> Array:
    """Return 0 (train), 1 (valid) or 2 (test) for each edge: (m,) int8."""
    empty = np.empty(0, np.int32)
    typed = relations is not None
    splits: Array = _split_edges(
        sources,
        targets,
        relations if typed else empty,
        typed,
        np.uint64(seed),
        limits[0],
        limits[1],
        directed,
    )
    return splits


@njit(cache=True, nogil=True)
def _split_edges(
    sources: Array,
    targets: Array,
    relations: Array,
    typed: bool,
    seed: Any,
    valid_from: int,
    test_from: int,
    directed: bool,
) -> Array:
    splits = np.empty(len(sources), np.int8)
    half = np.uint64(32)
    for i in range(len(sources)):
        u, v = np.uint64(sources[i]), np.uint64(targets[i])
        if not directed and u > v:
            u, v = v, u
        which = (u << half | u >> half) ^ v
        step = np.uint64(relations[i]) if typed else np.uint64(0)
        draw = np.int64(philox4x32(seed, _STREAM, which, step)[0])
        splits[i] = (draw >= valid_from) + (draw >= test_from)
    return splits
