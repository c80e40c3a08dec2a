"""The rows of a whole graph, which a worker keeps for all its walks, and walks on threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import AnyArray, Array, DeviceArray
from penstock.graph import Graph
from penstock.kernels import kernel
from penstock.kernels.walk_rules import WalkGraph, WalkRules
from penstock.threads import spread
from penstock.workers.walk.rows import WalkGraphSpec

if TYPE_CHECKING:
    from penstock.workers.plugin import Resources

_BATCH_IDS = 1 << 18  # of a thread at a time


@dataclass(frozen=True, eq=False)
class _Kept:
    """A walk graph in a worker's cache; mapped arrays count as nothing."""

    rows: WalkGraph
    nbytes: int


@contextmanager
def held_rows(graph: Path, version: str, spec: WalkGraphSpec) -> Iterator[WalkGraph]:
    """Give the rows of a graph, which this worker keeps for later tasks."""
    from penstock.workers.plugin import resources

    held = resources()
    key = ("walk rows", str(graph), version, spec)
    with held.cache.hold(key, lambda: _load(held, graph, spec)) as kept:
        yield kept.rows


def _load(held: Resources, path: Path, spec: WalkGraphSpec) -> _Kept:
    graph = Graph.open(held.copies(path))
    put: Callable[[AnyArray], AnyArray] = np.asarray
    if held.device is not None:
        import cupy

        put, columns = cupy.asarray, columns_on_gpu(graph, spec)
    else:
        columns = columns_of(graph, spec)
    size = spec.bytes(graph.num_nodes, graph.num_edges, columns["indices"].itemsize)
    return _Kept(spec.build(columns, put), size)


def columns_on_gpu(graph: Graph, spec: WalkGraphSpec) -> dict[str, AnyArray]:
    """Return the columns of a graph that a spec needs, the neighbours on the GPU."""
    if spec.weighted or spec.relations or spec.times:  # prepared on the host
        return columns_of(graph, spec)
    import cupy

    from penstock.workers.resources.upload import upload

    indptr = np.zeros(graph.num_nodes + 1, np.int64)
    indices: DeviceArray = cupy.empty(graph.num_edges, graph.manifest.dtypes["indices"])

    def shards() -> Iterator[tuple[Array, DeviceArray]]:
        row = edge = 0
        for number in range(graph.num_shards):  # one is checked while others are copied
            shard = graph.shard(number)
            indptr[row + 1 : row + 1 + shard.rows] = shard.indptr[1:] + edge
            yield shard.indices, indices[edge : edge + shard.edges]
            row, edge = row + shard.rows, edge + shard.edges

    upload(shards())
    return _with_nodes({"indptr": indptr, "indices": indices}, graph, spec)


def columns_of(graph: Graph, spec: WalkGraphSpec) -> dict[str, AnyArray]:
    """Return the columns of a graph that a spec needs."""
    return _with_nodes(dict(graph.csr().arrays()), graph, spec)


def _with_nodes(
    columns: dict[str, AnyArray], graph: Graph, spec: WalkGraphSpec
) -> dict[str, AnyArray]:
    if spec.degrees:
        columns["degrees"] = np.diff(columns["indptr"]).astype(np.int32)
    if spec.labels:
        columns["labels"] = np.asarray(graph.labels(), np.int32)
    return columns


def walk_on_threads(
    rows: WalkGraph,
    rules: WalkRules,
    walks: Array,
    starts: Array,
    paths: Array,
    threads: int | None = None,
) -> None:
    """Write the nodes of each walk to ``paths``, (walks, length); threads take batches of walks."""
    module, size = kernel("walk", rows.indptr), max(1, _BATCH_IDS // rules.length)

    def walk(first: int) -> None:
        some = slice(first, first + size)
        paths[some] = module.walk(rows, rules, walks[some], starts[some])

    spread(walk, range(0, len(starts), size), threads)
