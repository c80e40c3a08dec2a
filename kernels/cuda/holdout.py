"""Which edges are kept apart for validation and test, on the GPU."""

from __future__ import annotations

from typing import Any

import cupy as cp

from penstock.kernels.cuda.module import load
from penstock.kernels.streams import Stream

_THREADS = 256


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
    kernel = load("holdout").get_function("split_edges")
    if len(splits):
        kernel(
            ((len(splits) + _THREADS - 1) // _THREADS,),
            (_THREADS,),
            (
                sources.astype(cp.int64), targets.astype(cp.int64),
                cp.zeros(0, cp.int32) if relations is None else relations,
                cp.int32(relations is not None), cp.uint64(seed), cp.uint32(Stream.SPLIT_EDGES),
                cp.int64(limits[0]), cp.int64(limits[1]), cp.int32(directed),
                cp.int64(len(splits)), splits,
            ),
        )
    return splits
