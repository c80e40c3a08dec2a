"""Connected components of one graph on the GPU; meaning as in naive/components.py.

Two edges of each node are read, and if edges are stored at both ends, of the others those of nodes
outside the largest tree. Besides the graph, memory holds up to 20 bytes per node, on several ranks
up to 36.
"""

from __future__ import annotations

from collections.abc import Sequence

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.csr import CSR, id_dtype
from penstock.kernels.cuda.module import c_name, launch
from penstock.kernels.cuda.pagerank_edges import indices_of
from penstock.kernels.ranks import Ranks, passed_around

_FILE = "components"
_FIRST, _SAMPLES = 2, 1024  # as in cpu/components.py
_EDGES = 32  # of a thread, as in components.cu


def components(
    rows: Sequence[CSR],
    *,
    symmetric: bool,
    threads: int | None = None,
    ranks: Ranks | None = None,
) -> DeviceArray:
    """Return the component of each node of a graph, given as one range of rows.

    rows       of a rank, with its edges only; ``threads`` has no effect
    """
    if not rows or not rows[0].rows:
        return cp.empty(0, np.int32)
    (csr,) = rows
    nodes, dtype = np.int64(csr.rows), csr.indices.dtype
    parent, name = cp.arange(csr.rows, dtype=dtype), c_name(csr.indices)
    (indices, first) = indices_of(csr)
    given = nodes, np.int64(first), np.int64(first + csr.edges), csr.indptr, indices

    def shorten() -> None:
        launch(_FILE, f"shorten<{name}>", csr.rows, nodes, parent)

    def meet() -> None:
        if ranks is None or ranks.size == 1:
            return
        each_once = cp.arange(csr.rows + 1)
        for other in passed_around(parent.copy(), cp.empty_like(parent), ranks):
            of_all = nodes, np.int64(0), nodes, each_once, other
            launch(_FILE, f"join_first<{name}>", csr.rows, *of_all, np.int32(0), parent)
        shorten()

    for number in range(_FIRST):
        launch(_FILE, f"join_first<{name}>", csr.rows, *given, np.int32(number), parent)
        shorten()
    meet()
    giant = -1
    if symmetric:
        some = cp.asnumpy(parent[:: max(1, csr.rows // _SAMPLES)])
        roots, counts = np.unique(some, return_counts=True)
        giant = int(roots[counts.argmax()])
    launch(
        _FILE,
        f"join_edges<{name}>",
        -(-csr.edges // _EDGES),
        *given,
        np.int32(_FIRST),
        np.int64(giant),
        parent,
    )
    shorten()
    meet()
    roots = parent == cp.arange(csr.rows, dtype=dtype)
    labels = cp.cumsum(roots, dtype=id_dtype(csr.rows))
    labels -= 1
    return labels[parent]
