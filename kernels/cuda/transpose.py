"""The in-edges of one graph on the GPU, by a sort; meaning as in naive/transpose.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cupy as cp
import numpy as np

from penstock.csr import CSR

_PIECE = 1 << 26  # edges whose sources are found at a time


def transpose(
    rows: Sequence[CSR],
    *,
    weighted: bool = False,
    folder: Path | None = None,
    threads: int | None = None,
) -> list[CSR]:
    """Return the sources of each node's in-edges, ascending, and their weights if wanted.

    rows  one range; ``folder`` and ``threads`` have no effect
    """
    (out,) = rows
    assert out.rows <= 1 << 32, "values of more nodes fit on no GPU"
    ends = cp.empty(out.edges, np.uint64)  # target and source of each edge
    for first in range(0, out.edges, _PIECE):
        edge = cp.arange(first, min(first + _PIECE, out.edges))
        source = cp.searchsorted(out.indptr, edge, side="right") - 1
        target = out.indices[first : first + _PIECE].astype(np.uint64)
        ends[first : first + _PIECE] = target << np.uint64(32) | source.astype(np.uint64)
    weights = None
    if weighted and out.weights is not None:
        order = cp.argsort(ends, kind="stable")
        ends, weights = ends[order], out.weights[order].astype(np.float64)
    else:
        ends.sort()
    indptr = cp.zeros(out.rows + 1, np.int64)
    step = cp.arange(1, out.rows + 1, dtype=np.uint64) << np.uint64(32)
    indptr[1:] = cp.searchsorted(ends, step)
    indices = (ends & np.uint64(0xFFFFFFFF)).astype(out.indices.dtype)
    return [CSR(indptr, indices, weights=weights)]
