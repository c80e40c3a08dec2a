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
from penstock.kernels.ranks import EdgesOfRank, Ranks
from penstock.limits import cores
from penstock.threads import spread

_PIECE = 1 << 23  # bytes
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


def pieces(
    pairs: Iterable[tuple[Array, DeviceArray]], most: int = _PIECE
) -> Iterator[tuple[Array, DeviceArray]]:
    """Cut pairs of arrays of one axis into pieces of at most this many bytes."""
    for host, into in pairs:
        assert len(host) == len(into)
        step = most // into.itemsize
        for first in range(0, len(host), step):
            yield host[first : first + step], into[first : first + step]
