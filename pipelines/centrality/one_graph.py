"""One graph in any form: its rows, its batch for searches, and both on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.csr import CSR, id_dtype, offsets_of
from penstock.errors import UsageError
from penstock.files import save_npy
from penstock.graph import load_npy
from penstock.kernels import kernel
from penstock.kernels.centrality_rules import SCRATCH, GraphBatch
from penstock.pipelines.centrality.options import IN_ROWS, OF_DISTANCES, OF_TRIANGLES, STRONG
from penstock.sizes import does_not_fit
from penstock.workers.resources.device import computes_on_gpu, gpu
from penstock.workers.resources.pool import gpu_memory
from penstock.workers.resources.upload import upload, upload_rows

# A graph beyond this is computed by several tasks, each with a share of its sources, or on a GPU.
LARGE_ITEMS = 1 << 23
ARRAYS = ("ptr", "indptr", "indices", "weights", "sums")  # of a batch
_LONGEST = 1e290  # weight of an edge: the longest path of a graph that fits in memory is finite
_BLOCKS = 264  # at most, of a graph on a GPU
_UPLOADED = 1 << 28  # bytes of an array from which several threads copy it to a GPU
_NO_EDGES = np.empty(0, np.int64), np.empty(0, np.int64)


@dataclass(frozen=True, eq=False)
class OneGraph:
    """A graph of any kind, as kernels take it.

    rows      its row ranges, which may be mapped, with weights if they are used
    directed  whether edges have a direction; otherwise all are stored at both ends
    find      returns the numbers of nodes by their names, -1: unknown; None: numbers are names
    made      its batch, if there is one already
    """

    rows: Sequence[CSR]
    directed: bool
    find: Callable[[list[Any]], Array] | None = None
    made: GraphBatch | None = None

    @staticmethod
    def of_batch(batch: GraphBatch) -> OneGraph:
        """Return a batch of one graph."""
        weights = batch.weights if batch.sums is None else batch.sums
        rows = [CSR(batch.indptr, batch.indices, weights=weights)]
        return OneGraph(rows, batch.directed, made=batch)

    @property
    def weighted(self) -> bool:
        """Whether edges have weights, and they are used."""
        return any(each.weights is not None for each in self.rows)

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return sum(each.rows for each in self.rows)

    @property
    def edges(self) -> int:
        """Number of edges as they are stored."""
        return sum(each.edges for each in self.rows)

    def numbers(self, what: str, nodes: Any) -> Array:
        """Return the numbers of the nodes that a caller names."""
        listed = list(nodes)
        if not listed:
            return _NO_EDGES[0]
        found = np.full(len(listed), -1)
        if self.find is not None:
            found = self.find(listed)
        elif (given := np.asarray(listed)).dtype.kind in "iu":
            found = np.where((given >= 0) & (given < self.nodes), given, -1).astype(np.int64)
        unknown = np.flatnonzero(found < 0)
        if len(unknown):
            got = repr(listed[unknown[0]])
            raise UsageError(f"{what} has a node that the graph lacks", got=got)
        return found

    def gpu_bytes(self, wanted: frozenset[str], parts: int | None = None) -> int:
        """Return the bytes on a GPU of metrics of it, computed one after another by ``parts``."""
        given = {"directed": self.directed, "weighted": self.weighted}
        return gpu_bytes(self.nodes, self.edges, wanted, parts=parts, **given)

    def on_gpu(self, metric: str, device: str) -> bool:
        """Return whether to compute this metric on this process' GPU; ``auto``: if the graph is
        large, and fits there."""
        if device == "auto":
            if self.nodes + self.edges <= LARGE_ITEMS or not gpu():
                return False
        elif not computes_on_gpu(device):
            return False
        needs, there = self.gpu_bytes(frozenset({metric})), gpu_memory()
        if needs > there and device == "gpu":
            what = f"a graph of {self.nodes:,} nodes and {self.edges:,} edges"
            raise does_not_fit(what, "on a GPU", needs, there, remedy="Give device='cpu'")
        return needs <= there

    def searched_on_gpu(self, metric: str, device: str) -> bool:
        """Return the same of a metric that searches for shortest paths."""
        weighted = self.weighted if self.made is None else self.made.weights is not None
        if weighted and device == "gpu":
            raise UsageError(f"weighted {metric} of one graph is computed on cores, not on a GPU")
        return not weighted and self.on_gpu(metric, device)

    def rows_for(self, metric: str, device: str) -> Sequence[CSR]:
        """Return the rows where this metric is computed."""
        if not self.on_gpu(metric, device):
            return self.rows
        return upload_rows(self.rows, weighted=True)

    def merged_on_gpu(self) -> GraphBatch:
        """Return the graph without weights on this process' GPU, with parallel edges merged."""
        import cupy

        for whole in upload_rows(self.rows):
            if not kernel("small_graphs", whole.indptr).parallel_edges(whole.indptr, whole.indices):
                ptr = cupy.asarray([0, whole.rows])
                return GraphBatch(ptr, whole.indptr, whole.indices, directed=self.directed)
        return on_device(self.batch)

    @cached_property
    def batch(self) -> GraphBatch:
        """The graph in memory, with parallel edges merged."""
        if self.made is not None:
            return self.made
        csr = CSR.concatenate(self.rows) if self.rows else CSR.from_edges(*_NO_EDGES, 0)
        ptr = np.array([0, csr.rows])
        return batch_of(csr, ptr, directed=self.directed)[0]


def batch_of(rows: CSR, ptr: Array, *, directed: bool) -> tuple[GraphBatch, dict[int, str]]:
    """Return the batch of some rows, parallel edges merged, and the graphs that failed."""
    from penstock.kernels.cpu.small_graphs import parallel_edges

    indptr = np.asarray(rows.indptr, np.int64)
    indices = rows.indices
    if rows.first_row:
        indices = indices - indices.dtype.type(rows.first_row)
    weights = sums = None
    failed: dict[int, str] = {}
    if rows.weights is not None:
        weights, failed = without_bad_weights(np.asarray(rows.weights, np.float64), indptr[ptr])
    if parallel_edges(indptr, indices):
        owner = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
        first = np.ones(len(indices), bool)
        first[1:] = (indices[1:] != indices[:-1]) | (owner[1:] != owner[:-1])
        starts = np.flatnonzero(first)
        if weights is None:
            sums = np.diff(starts, append=len(indices)).astype(np.float64)
        else:
            sums = np.add.reduceat(weights, starts)
            weights = np.minimum.reduceat(weights, starts)
        indices, owner = indices[starts], owner[starts]
        counts = np.bincount(owner, minlength=len(indptr) - 1)
        indptr = offsets_of(counts)
    indices = np.asarray(indices)
    return GraphBatch(ptr, indptr, indices, weights, directed=directed, sums=sums), failed


def save_batch(batch: GraphBatch, stem: Path) -> None:
    """Write the arrays of a batch, in files whose names begin with a stem."""
    for name in ARRAYS:
        if (array := getattr(batch, name)) is not None:
            save_npy(stem.parent, f"{stem.name}-{name}.npy", array)


def load_batch(stem: Path, *, directed: bool) -> GraphBatch:
    """Return a batch that ``save_batch`` wrote, mapped."""
    files = {name: stem.with_name(f"{stem.name}-{name}.npy") for name in ARRAYS}
    arrays = {name: load_npy(file) for name, file in files.items() if file.exists()}
    return GraphBatch(**arrays, directed=directed)


def bad_weights(weights: Array) -> Array:
    """Return a mask of weights that are not lengths: negative, NaN, or with sums that overflow."""
    longest = _LONGEST if weights.dtype == np.float64 else np.inf  # smaller sums are finite
    return np.flatnonzero(~(weights >= 0) | (weights >= longest))


def bad_weight(weight: float) -> str:
    """Return the reason for a weight that is not a length."""
    return f"an edge has the weight {weight:g}"


def weight_fault(weights: Array | None) -> str | None:
    """Return the reason why weights are not lengths, or None."""
    if weights is None or not len(bad := bad_weights(weights)):
        return None
    return bad_weight(weights[bad[0]])


def without_bad_weights(weights: Array, starts: Array) -> tuple[Array, dict[int, str]]:
    """Return weights with bad ones replaced by 1, and the reasons of failed graphs, by number.

    starts  (graphs + 1,): the first weight of each graph
    """
    bad = bad_weights(weights)
    if not len(bad):
        return weights, {}
    of, first = np.unique(np.searchsorted(starts, bad, side="right") - 1, return_index=True)
    failed = {int(graph): bad_weight(weights[bad[at]]) for graph, at in zip(of, first, strict=True)}
    weights = weights.copy()
    weights[bad] = 1
    return weights, failed


def gpu_bytes(
    nodes: int,
    edges: int,
    wanted: frozenset[str],
    *,
    directed: bool,
    weighted: bool,
    parts: int | None = None,
) -> int:
    """Return the bytes on a GPU of one graph and of metrics of it, computed one after another.

    parts  ranks that share the edges, or of directed ones the in-edges
    """
    ids, own = id_dtype(nodes).itemsize, -(-edges // (parts or 1))
    if not directed and wanted <= IN_ROWS:
        edges = own
    # In-edges, sorted: their ends twice, and with weights their order and sorted copies.
    into = directed * (
        8 * nodes + (own if wanted <= IN_ROWS else edges) * (16 + ids + 32 * weighted)
    )
    more = {
        "pagerank": 60 * nodes + edges // 32 + into,
        "component": (5 * ids + 16 * (parts is not None)) * nodes,
        STRONG: (8 * ids + 32) * nodes,
        "betweenness": _in_blocks(784, nodes) + into if weighted else 124 * nodes + into,
        "edge-betweenness": _in_blocks(784 if weighted else 660, nodes) + 8 * edges + into,
        **dict.fromkeys(OF_DISTANCES, into + (_in_blocks(276, nodes) if weighted else 148 * nodes)),
        **dict.fromkeys(OF_TRIANGLES, 48 * nodes + (ids + 1) * (directed * 2 * edges + edges // 2)),
    }
    most = max((more[name] for name in wanted & more.keys()), default=0)
    return 8 * nodes + edges * (ids + 8 * weighted) + most


def _in_blocks(each: int, nodes: int) -> int:
    """Return the bytes of blocks with ``each`` per node, and of their sums: see teams.py."""
    return sum(max(size * nodes, min(_BLOCKS * size * nodes, SCRATCH)) for size in (each, 24))


def on_device(batch: GraphBatch) -> GraphBatch:
    """Return a copy of a batch on this worker's GPU."""
    import cupy

    from penstock.kernels.cuda.uploads import to_gpu

    def put(array: Array) -> DeviceArray:
        if array.nbytes < _UPLOADED:
            return to_gpu(array)
        there: DeviceArray = cupy.empty(array.shape, array.dtype)
        upload([(array, there)])
        return there

    arrays: dict[str, Any] = {
        name: None if array is None else put(array)
        for name in ARRAYS
        for array in [getattr(batch, name)]
    }
    return replace(batch, **arrays)
