"""Strongly connected components of one graph on the GPU; meaning as in naive/strong_components.py.

The node of the largest degree has the largest number, so that the first round finds the component
that has nearly all nodes of most graphs; other numbers are in no order, so that a round divides the
rest into many parts. Of what is left after some launches, as of long paths, one thread of the host
finds the components. Besides the graph, memory holds up to 64 bytes per node (96 of more than 2^31
nodes).
"""

from __future__ import annotations

from collections.abc import Sequence

import cupy as cp
import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.csr import CSR
from penstock.kernels.cpu.centrality.structure import tarjan
from penstock.kernels.cuda.components import components
from penstock.kernels.cuda.module import c_name, launch_blocks

_FILE = "strong_components"
_THREADS = 256  # as in rows.cuh
_LAUNCHES = 256  # over the nodes that are left
_FACTOR = 0x9E3779B97F4A7C15  # odd: no two nodes have one number


def strong_components(rows: Sequence[CSR], *, threads: int | None = None) -> DeviceArray:
    """Return the component of each node: 0, 1, ... in the order of their smallest members.

    rows  one range; ``threads`` has no effect
    """
    if not rows or not rows[0].rows:
        return cp.empty(0, np.int32)
    (csr,) = rows
    kind = np.dtype(f"uint{8 * csr.indices.itemsize}").type
    end = int(np.iinfo(kind).max) + 1
    factor, inverse = kind(_FACTOR % end), kind(pow(_FACTOR, -1, end))
    mask = kind(end - 1 - int(cp.diff(csr.indptr).argmax()) * _FACTOR % end)

    def numbers(nodes: DeviceArray) -> DeviceArray:
        return (nodes.astype(kind) * factor ^ mask)[:, None]

    left, launches = cp.arange(csr.rows), 0
    now, before = cp.empty((csr.rows, 2), kind), None
    now[left] = numbers(left)
    grew = cp.empty(1, np.int32)
    while len(left) and launches < _LAUNCHES:
        launches += 1
        grew.fill(0)
        launch_blocks(
            _FILE,
            f"spread<{c_name(csr.indices)}>",
            min(-(-len(left) // _THREADS), 1 << 30),
            _THREADS,
            *(np.int64(len(left)), left, csr.indptr, csr.indices, mask, inverse),
            *(before, now, grew),
        )
        if int(grew[0]):
            continue
        if before is None:
            before = now.copy()
        else:
            before[left] = now[left]
        left = left[now[left, 0] != now[left, 1]]
        now[left] = numbers(left)
    del before
    of = ((now[:, 0] ^ mask) * inverse).astype(csr.indices.dtype)  # a node of the component
    del now
    if len(left):
        of[left] = left[cp.asarray(tarjan(*_among(csr, left))[0])].astype(of.dtype)
    return components([CSR(cp.arange(csr.rows + 1), of)], symmetric=False)


def _among(csr: CSR, nodes: DeviceArray) -> tuple[Array, Array]:
    """Return the row starts and ends of the edges from some nodes, in host memory.

    The nodes have numbers from 0; an edge to another node becomes a loop.
    """
    number = cp.full(csr.rows, -1, csr.indices.dtype)
    number[nodes] = cp.arange(len(nodes), dtype=number.dtype)
    starts = cp.zeros(len(nodes) + 1, np.int64)
    cp.cumsum(csr.indptr[nodes + 1] - csr.indptr[nodes], out=starts[1:])
    indptr = cp.asnumpy(starts)
    indices = np.empty(int(indptr[-1]), number.dtype)
    size = max(csr.rows // 4, 1 << 20)  # of edges at a time
    for first in range(0, len(indices), size):
        edge = cp.arange(first, min(first + size, len(indices)))
        source = cp.searchsorted(starts, edge, side="right") - 1
        end = number[csr.indices[csr.indptr[nodes[source]] + edge - starts[source]]]
        indices[first : first + size] = cp.asnumpy(cp.where(end < 0, source, end))
    return indptr, indices
