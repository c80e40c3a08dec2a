"""The edges of a phase in GPU memory, mixed there batch by batch.

If all edges of a graph fit beside the trained values, they are copied there once; a single bucket
is made there. Otherwise a thread copies the edges of a phase while the phase before it is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.csr import offsets_of
from penstock.graph import Graph
from penstock.workers.embed.layout.buckets import (
    BatchColumns,
    EdgeBuckets,
    PhaseEdges,
    groups_of,
)

_COLUMNS = ("heads", "tails", "relations", "weights")
_SHARE = 0.5  # share of the free memory that all edges may take
_SORTED = 48  # bytes of an edge while it is sorted there


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
    columns = {name: getattr(buckets, name) for name in _COLUMNS}
    size = sum(column.nbytes for column in columns.values() if column is not None)
    if not isinstance(buckets.heads, np.ndarray) or not _fit(size):
        return buckets
    there: Any = {n: None if array is None else _uploaded([array]) for n, array in columns.items()}
    return replace(buckets, **there)


def sort_on_device(graph: Graph, seed: int) -> EdgeBuckets | None:
    """Return the one bucket of all edges, made on the current GPU; None if that takes too much.

    It is the bucket that hosts make, but for weights, which it lacks.
    """
    from penstock.kernels.cuda.buckets import shuffled_edges

    if not _fit(_SORTED * graph.num_edges):
        return None
    shards = [graph.shard(number) for number in range(graph.num_shards)]
    indptr = offsets_of(np.concatenate([shard.degrees() for shard in shards]))
    relations = [shard.relations for shard in shards if shard.relations is not None]
    columns = shuffled_edges(
        _uploaded([indptr]),
        _uploaded([shard.indices for shard in shards]),
        _uploaded(relations) if relations else None,
        groups_of(graph.num_edges, 1),
        seed,
    )
    return EdgeBuckets(*columns, np.array([[0, graph.num_edges]]))


def _fit(size: int) -> bool:
    import cupy

    free = cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
    return bool(size <= _SHARE * free)


def _uploaded(arrays: Sequence[Array]) -> DeviceArray:
    """Return arrays on the current GPU, one after another."""
    import cupy

    from penstock.kernels.cuda.uploads import upload

    there: DeviceArray = cupy.empty(sum(map(len, arrays)), arrays[0].dtype)
    at = 0
    for array in arrays:
        upload(array, there[at : at + len(array)], cupy.cuda.get_current_stream())
        at += len(array)
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
