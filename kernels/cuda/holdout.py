"""Which edges are kept apart for validation and test, on the GPU."""

from __future__ import annotations

from typing import Any

import cupy as cp

from penstock.kernels.cuda.module import launch
from penstock.kernels.streams import Stream


def split_edges(
    sources: Any,
    targets: Any,
    relations: Any | None,
    seed: int,
    limits: tuple[int, int],
    *,
    directed: bool,
) -> Any:
    """Return 0 (train), 1 (valid) or 2 (test) for each edge: (m,) int8."""
    splits = cp.empty(len(sources), cp.int8)
    launch(
        "holdout",
        f"split_edges<{str(directed).lower()}>",
        len(splits),
        sources.astype(cp.int64),
        targets.astype(cp.int64),
        cp.uint64(0) if relations is None else relations,
        cp.uint64(seed),
        cp.uint32(Stream.SPLIT_EDGES),
        cp.int64(limits[0]),
        cp.int64(limits[1]),
        cp.int64(len(splits)),
        splits,
    )
    return splits
