"""From mapped files to a GPU and back: several threads copy pieces through pinned memory.

A direct copy waits for every page of a mapping, or of new memory, in one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.csr import CSR, offsets_of
from penstock.kernels.cpu.components import FIRST, first_edges
from penstock.kernels.cpu.halo import gather_rows
from penstock.kernels.ranks import EdgesOfRank, Ranks
from penstock.limits import cores
from penstock.threads import spread

_PIECE = 1 << 23  # bytes
_WORTH = 8  # of a graph's edges more are copied faster in their order than row by row
_THREADS = 8  # these nearly saturate a machine's memory


def upload(pairs: Iterable[tuple[Array, DeviceArray]]) -> None:
    """Copy each array to its GPU array of the same length; types may differ."""

    def copy(host: Array, there: DeviceArray, pinned: Array, stream: Any) -> None:
        pinned[...] = host
        there.set(pinned, stream=stream)
        stream.synchronize()

    _on_threads(pairs, copy)


def download(array: DeviceArray) -> Array:
    """Return a copy of a GPU's array of one axis."""
    found = np.empty(array.shape, array.dtype)

    def copy(host: Array, there: DeviceArray, pinned: Array, stream: Any) -> None:
        there.get(out=pinned, stream=stream)
        stream.synchronize()
        host[...] = pinned

    _on_threads([(found, array)], copy)
    return found


def _on_threads(
    pairs: Iterable[tuple[Array, DeviceArray]],
    copy: Callable[[Array, DeviceArray, Array, Any], None],
) -> None:
    import cupy

    device, of_thread = cupy.cuda.Device(), threading.local()
    # A kernel may still read the memory's former content, or write what is copied.
    cupy.cuda.get_current_stream().synchronize()

    def work(piece: tuple[Array, DeviceArray]) -> None:
        host, there = piece
        device.use()
        if not hasattr(of_thread, "stream"):
            of_thread.stream = cupy.cuda.Stream(non_blocking=True)
            memory: Any = cupy.cuda.alloc_pinned_memory(_PIECE)
            of_thread.buffer = np.frombuffer(memory, np.uint8, _PIECE)
        pinned = of_thread.buffer[: there.nbytes].view(there.dtype)
        copy(host, there, pinned, of_thread.stream)

    spread(work, pieces(pairs), min(cores(), _THREADS))


def upload_rows(
    rows: Sequence[CSR], *, weighted: bool = False, ranks: Ranks | None = None
) -> list[CSR]:
    """Return consecutive row ranges as one on this process' GPU, with their weights if wanted.

    ranks  which have a share of the edges each
    """
    import cupy

    if not rows:
        return []
    names = ["indices", "weights"][: 1 + (weighted and all(r.weights is not None for r in rows))]
    firsts = offsets_of(np.array([each.edges for each in rows])).tolist()
    ends = offsets_of(np.array([each.rows for each in rows])).tolist()
    indptr = cupy.empty(ends[-1] + 1, np.int64)
    upload((r.indptr[:-1], indptr[a:b]) for r, (a, b) in zip(rows, pairwise(ends), strict=True))
    for (row, stop), edge in zip(pairwise(ends), firsts, strict=False):
        indptr[row:stop] += edge
    indptr[-1] = firsts[-1]
    low, high = 0, firsts[-1]
    if ranks is not None:
        from penstock.kernels.cuda.pagerank_edges import edges_of_rank

        low, high = edges_of_rank(indptr, ranks)
    columns = {n: cupy.empty(high - low, getattr(rows[0], n).dtype) for n in names}
    parts: list[tuple[Array, DeviceArray]] = []
    for each, (first, stop) in zip(rows, pairwise(firsts), strict=True):
        begin, end = max(low, first), max(low, first, min(high, stop))
        for name, there in columns.items():
            held = getattr(each, name)[begin - first : end - first]
            parts.append((held, there[begin - low : end - low]))
    upload(parts)
    if ranks is None:
        return [CSR(indptr, **columns)]
    return [EdgesOfRank(indptr, **columns, first_edge=low)]


def upload_first(rows: Sequence[CSR]) -> tuple[list[CSR], Callable[[DeviceArray], CSR]]:
    """Return the first edges of each row that components read, on this process' GPU, and a function
    that returns the rows of a mask with all their edges, and maybe others.

    A row with fewer edges has loops instead.
    """
    import cupy

    dtype, nodes, count = rows[0].indices.dtype, sum(each.rows for each in rows), FIRST
    first = np.empty((nodes, count), dtype)
    for each in rows:
        first_edges(each, count, first[each.first_row : each.first_row + each.rows])
    indices = cupy.empty(nodes * count, dtype)
    upload([(first.reshape(-1), indices)])

    def others(mask: DeviceArray) -> CSR:
        chosen = download(cupy.flatnonzero(mask))
        bounds = np.searchsorted(chosen, [0, *(each.first_row + each.rows for each in rows)])
        own = [
            chosen[a:b] - each.first_row
            for each, (a, b) in zip(rows, pairwise(bounds), strict=True)
        ]
        degrees = np.concatenate(
            [r.indptr[at + 1] - r.indptr[at] for r, at in zip(rows, own, strict=True)]
        )
        edges = int(degrees.sum())
        if edges > sum(each.edges for each in rows) // _WORTH:
            return upload_rows(rows)[0]
        indptr = cupy.zeros(nodes + 1, np.int64)
        indptr[1:][cupy.asarray(chosen)] = cupy.asarray(degrees)
        cupy.cumsum(indptr, out=indptr)
        there, at = cupy.empty(edges, dtype), 0
        for each, mine in zip(rows, own, strict=True):
            part = gather_rows(each.indptr, mine, each.indices)
            upload([(part, there[at : at + len(part)])])
            at += len(part)
        return CSR(indptr, there)

    return [CSR(cupy.arange(0, nodes * count + 1, count), indices)], others


def pieces(
    pairs: Iterable[tuple[Array, DeviceArray]], most: int = _PIECE
) -> Iterator[tuple[Array, DeviceArray]]:
    """Cut pairs of arrays of one axis into pieces of at most this many bytes."""
    for host, into in pairs:
        assert len(host) == len(into)
        step = most // into.itemsize
        for first in range(0, len(host), step):
            yield host[first : first + step], into[first : first + step]
