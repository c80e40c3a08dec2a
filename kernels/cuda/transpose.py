"""The in-edges of one graph on the GPU, by a sort; meaning as in naive/transpose.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import cupy as cp
import numpy as np

from penstock.csr import CSR
from penstock.kernels.cuda.pagerank_edges import edges_of_rank
from penstock.kernels.ranks import EdgesOfRank, Ranks

_PIECE = 1 << 26  # edges whose sources are found at a time


def transpose(
    rows: Sequence[CSR],
    *,
    weighted: bool = False,
    folder: Path | None = None,
    threads: int | None = None,
    ranks: Ranks | None = None,
) -> list[CSR]:
    """Return the sources of each node's in-edges, ascending, and their weights if wanted.

    rows   one range; ``folder`` and ``threads`` have no effect
    ranks  of which each gets its share of the in-edges
    """
    (out,) = rows
    assert out.rows <= 1 << 32, "values of more nodes fit on no GPU"
    counts = cp.zeros(out.rows, np.int64)
    for first in range(0, out.edges, _PIECE):
        counts += cp.bincount(out.indices[first : first + _PIECE], minlength=out.rows)
    indptr = cp.zeros(out.rows + 1, np.int64)
    cp.cumsum(counts, out=indptr[1:])
    del counts
    low, high = (0, out.edges) if ranks is None else edges_of_rank(indptr, ranks)
    # The rows that have these edges, perhaps with others at both ends.
    begin = int(cp.searchsorted(indptr, cp.asarray([low]), side="right")[0]) - 1
    end = int(cp.searchsorted(indptr, cp.asarray([high]), side="left")[0])
    before, given = int(indptr[begin]), out.weights if weighted else None
    size = int(indptr[end]) - before if end > begin else 0
    ends = cp.empty(size, np.uint64)  # target and source of each edge
    columns = cp.empty(0 if given is None else size)
    at = 0
    for first in range(0, out.edges, _PIECE):
        target = out.indices[first : first + _PIECE]
        chosen = cp.flatnonzero((target >= begin) & (target < end))
        source = cp.searchsorted(out.indptr, first + chosen, side="right") - 1
        key = target[chosen].astype(np.uint64) << np.uint64(32) | source.astype(np.uint64)
        ends[at : at + len(key)] = key
        if given is not None:
            columns[at : at + len(key)] = given[first : first + _PIECE][chosen]
        at += len(key)
    weights = None
    mine = slice(low - before, high - before)
    if given is not None:
        order = cp.argsort(ends, kind="stable")[mine]
        ends, weights = ends[order], columns[order]
    else:
        ends.sort()
        ends = ends[mine]
    indices = (ends & np.uint64(0xFFFFFFFF)).astype(out.indices.dtype)
    if ranks is None:
        return [CSR(indptr, indices, weights=weights)]
    return [EdgesOfRank(indptr, indices, weights=weights, first_edge=low)]
