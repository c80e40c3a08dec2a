"""Edges of one graph on the GPU; meaning as in naive/degrees.py."""

from __future__ import annotations

from collections.abc import Sequence

import cupy as cp
import numpy as np

from penstock.csr import CSR
from penstock.kernels.cuda.module import c_name, launch_blocks

_THREADS = 256  # as in rows.cuh


def count_edges(rows: Sequence[CSR]) -> tuple[int, int]:
    """Return the numbers of distinct entries of all rows, and of those that are loops."""
    totals = cp.zeros(2, np.uint64)
    for each in rows:
        if each.rows:
            name, blocks = f"count_edges<{c_name(each.indices)}>", -(-each.rows // _THREADS)
            given = np.int64(each.rows), each.indptr, each.indices, totals
            launch_blocks("degrees", name, min(blocks, 1 << 30), _THREADS, *given)
    distinct, loops = totals.get().tolist()
    return distinct, loops
