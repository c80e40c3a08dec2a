"""The edges of a phase in GPU memory, mixed there batch by batch.

If all edges of a graph fit beside the trained values, they are copied there once. Otherwise a
thread copies the edges of a phase while the phase before it is trained.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.csr import offsets_of
from penstock.workers.embed.layout.buckets import BatchColumns, EdgeBuckets, PhaseEdges

_COLUMNS = ("heads", "tails", "relations", "weights")
_SHARE = 0.5  # share of the free memory that all edges may take


@dataclass(frozen=True, eq=False)
class DeviceEdges(PhaseEdges):
    """Edges that are, or will be, on the GPU; ``batch`` waits for them, and returns CuPy arrays.

    there   the arrays that ``mix_edges`` takes
    copied  a future that ends when they are filled
    """

    there: tuple[DeviceArray, ...]
    copied: Future[None]

    def batch(self, start: int, stop: int) -> BatchColumns:
        """Return the columns of edges ``start`` to ``stop``, nodes as rows."""
        import cupy

        from penstock.kernels.cuda.buckets import mix_edges

        self.copied.result()
        size = max(0, min(stop, self.count) - start)
        heads, tails = cupy.empty(size, self.dtype), cupy.empty(size, self.dtype)
        relations = None if self.relations is None else cupy.empty(size, cupy.int32)
        weights = None if self.weights is None else cupy.empty(size, cupy.float32)
        heads_in, tails_in, relations_in, weights_in, *tables = self.there
        begins, offsets, head_rows, tail_rows, keys = tables
        mix_edges(
            heads_in,
            tails_in,
            relations_in,
            weights_in,
            begins,
            offsets,
            head_rows,
            tail_rows,
            keys,
            self.count,
            start,
            (heads, tails, relations, weights),
        )
        return heads, relations, tails, weights


def buckets_on_device(buckets: EdgeBuckets) -> EdgeBuckets:
    """Return the buckets on the current GPU, or as they are if they would take too much memory."""
    import cupy

    columns = {name: getattr(buckets, name) for name in _COLUMNS}
    pool = cupy.get_default_memory_pool()
    free = cupy.cuda.runtime.memGetInfo()[0] + pool.free_bytes()
    if sum(column.nbytes for column in columns.values() if column is not None) > _SHARE * free:
        return buckets
    there: Any = {n: None if column is None else _copied(column) for n, column in columns.items()}
    return replace(buckets, **there)


def _copied(column: Array) -> DeviceArray:
    import cupy

    from penstock.kernels.cuda.uploads import upload

    there: DeviceArray = cupy.empty(len(column), column.dtype)
    upload(column, there, cupy.cuda.get_current_stream())
    return there


def on_device(edges: PhaseEdges) -> DeviceEdges:
    """Return the same edges on the current GPU; their copy has begun when this returns."""
    import cupy

    tables = (edges.begins, edges.offsets, edges.head_rows, edges.tail_rows)
    names = (*_COLUMNS, "begins", "offsets", "head_rows", "tail_rows", "keys", "dtype", "count")
    given = {name: getattr(edges, name) for name in names}
    columns = [given[name] for name in _COLUMNS]
    if not isinstance(edges.heads, np.ndarray):
        there = (*columns, *(cupy.asarray(table) for table in (*tables, edges.keys)))
        ready: Future[None] = Future()
        ready.set_result(None)
        return DeviceEdges(**given, there=there, copied=ready)

    # Allocated on the caller's stream, which frees it too: when the copy begins, kernels there no
    # longer read what this memory held before.
    copies = [
        None if column is None else cupy.empty(edges.count, column.dtype) for column in columns
    ]
    # first edge of each run; runs are contiguous there
    begins = offsets_of(np.diff(edges.offsets))[:-1]
    there = (*copies, *(cupy.asarray(table) for table in (begins, *tables[1:], edges.keys)))
    free = cupy.cuda.Event(disable_timing=True)
    free.record(cupy.cuda.get_current_stream())
    copied = _thread().submit(_copy, edges, copies, cupy.cuda.Device(), free)
    return DeviceEdges(**given, there=there, copied=copied)


def _copy(edges: PhaseEdges, columns: list[DeviceArray | None], device: Any, free: Any) -> None:
    """Copy the runs one after another."""
    import cupy

    from penstock.kernels.cuda.uploads import upload

    with device, cupy.cuda.Stream(non_blocking=True) as stream:
        stream.wait_event(free)
        given = (getattr(edges, name) for name in _COLUMNS)
        for here, there in zip(given, columns, strict=True):
            if here is None or there is None:
                continue
            for begin, at, stop in zip(
                edges.begins, edges.offsets[:-1], edges.offsets[1:], strict=True
            ):
                upload(here[begin : begin + stop - at], there[at:stop], stream)


@cache
def _thread() -> ThreadPoolExecutor:
    """Return the thread that copies, one phase after another."""
    return ThreadPoolExecutor(1, thread_name_prefix="embed-edges")
