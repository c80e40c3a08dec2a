"""The edges of a phase in GPU memory, mixed there batch by batch.

If all edges of a graph fit beside the trained values, they are copied there once; a single bucket
is made there. Otherwise a thread copies the edges of a phase while the phase before it is trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.csr import offsets_of
from penstock.graph import Graph
from penstock.kernels.bucket_rules import Runs
from penstock.workers.embed.layout.buckets import EdgeBuckets, PhaseEdges, groups_of
from penstock.workers.resources.device import gpu

_SHARE = 0.5  # share of the free memory that all edges may take
_SORTED, _WHILE_SORTING = 40, 0.8  # bytes of an edge while it is sorted there, and that share


def buckets_on_device(buckets: EdgeBuckets) -> EdgeBuckets:
    """Return the buckets on this worker's GPU, if it has one and they fit beside the rest."""
    if not gpu():
        return buckets
    size = sum(column.nbytes for column in buckets.columns if column is not None)
    if not isinstance(buckets.columns[0], np.ndarray) or not _fit(size, _SHARE):
        return buckets
    there: Any = (None if array is None else _uploaded([array]) for array in buckets.columns)
    return replace(buckets, columns=tuple(there))


def sort_on_device(graph: Graph, seed: int) -> EdgeBuckets | None:
    """Return the one bucket of all edges, made on the current GPU; None if that takes too much.

    It is the bucket that hosts make, but for weights, which it lacks.
    """
    from penstock.kernels.cuda.buckets import shuffled_edges

    if not _fit(_SORTED * graph.num_edges, _WHILE_SORTING):
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
    return EdgeBuckets((*columns, None), np.array([[0, graph.num_edges]]))


def _fit(size: int, share: float) -> bool:
    import cupy

    free = cupy.cuda.runtime.memGetInfo()[0] + cupy.get_default_memory_pool().free_bytes()
    return bool(size <= share * free)


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


def on_device(edges: PhaseEdges) -> PhaseEdges:
    """Return the same edges on this worker's GPU, if it has one; their copy has begun."""
    if not gpu():
        return edges
    import cupy

    runs = Runs(*map(cupy.asarray, edges.runs))
    if not isinstance(edges.columns[0], np.ndarray):
        return replace(edges, runs=runs)
    # Allocated on the caller's stream, which frees it too: when the copy begins, kernels there no
    # longer read what this memory held before.
    copies: Any = tuple(
        None if column is None else cupy.empty(edges.count, column.dtype)
        for column in edges.columns
    )
    runs = runs._replace(begins=runs.offsets[:-1])  # they are contiguous there
    free = cupy.cuda.Event(disable_timing=True)
    free.record(cupy.cuda.get_current_stream())
    copied = _thread().submit(_copy, edges, copies, cupy.cuda.Device(), free)
    return replace(edges, columns=copies, runs=runs, copied=copied)


def _copy(edges: PhaseEdges, copies: Any, device: Any, free: Any) -> None:
    """Copy the runs one after another to columns there."""
    import cupy

    from penstock.kernels.cuda.uploads import upload

    with device, cupy.cuda.Stream(non_blocking=True) as stream:
        stream.wait_event(free)
        begins, offsets, *_ = edges.runs
        for here, there in zip(edges.columns, copies, strict=True):
            if here is None or there is None:
                continue
            for begin, at, stop in zip(begins, offsets[:-1], offsets[1:], strict=True):
                upload(here[begin : begin + stop - at], there[at:stop], stream)


@cache
def _thread() -> ThreadPoolExecutor:
    """Return the thread that copies, one phase after another."""
    return ThreadPoolExecutor(1, thread_name_prefix="embed-edges")
