"""The input in pieces: ranges of the graphs of a zoo, of about equal cost, one a task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_numpy, read_column
from penstock.csr import CSR
from penstock.graph import Graph
from penstock.kernels.centrality_rules import GraphBatch

if TYPE_CHECKING:
    import pyarrow as pa

_PIECES = 256  # about; they follow from the input alone, so that any cluster writes the same files
_MOST_ITEMS = 1 << 22  # nodes and edges of a piece, unless a graph has more
_LEAST_COST = 1e7  # of a piece: some milliseconds


@dataclass(frozen=True)
class Zoo:
    """Where the graphs of a directory lie: all of a zoo, or the one graph that it is.

    ptr    (graphs + 1,) int64: the first node of each
    edges  (graphs,) int64: of each, as they are stored
    """

    ptr: Array
    edges: Array

    @staticmethod
    def of(graph: Graph) -> Zoo:
        """Read where the graphs of a directory lie."""
        if graph.manifest.graphs is None:
            return Zoo(np.array([0, graph.num_nodes]), np.array([graph.num_edges]))
        path = graph.path / "graphs.parquet"
        nodes = as_numpy(read_column(path, "nodes")).astype(np.int64)
        ptr = np.concatenate([[0], np.cumsum(nodes)])
        # graphs.parquet of a generated zoo does not say them.
        before = np.concatenate([[0], np.cumsum(graph.degrees)])
        return Zoo(ptr, np.diff(before[ptr]))

    @property
    def graphs(self) -> int:
        """Number of graphs."""
        return len(self.edges)

    @property
    def costs(self) -> Array:
        """What the shortest paths of each graph cost: a look at every edge from every node."""
        sizes = np.diff(self.ptr).astype(np.float64)
        return (sizes + 1) * (self.edges + sizes + 1)

    def pieces(self, shard_starts: Array) -> list[tuple[int, int]]:
        """Cut the graphs into ranges: first, and one after the last.

        shard_starts  the first node of each shard, none of which a piece crosses
        """
        costs, items = self.costs, self.edges + np.diff(self.ptr)
        most = max(float(costs.sum()) / _PIECES, _LEAST_COST)
        shard = np.searchsorted(shard_starts, self.ptr[:-1], side="right")
        found, first, cost, size = [], 0, 0.0, 0
        for graph in range(self.graphs):
            full = cost + costs[graph] > most or size + items[graph] > _MOST_ITEMS
            if graph > first and (full or shard[graph] != shard[first]):
                found.append((first, graph))
                first, cost, size = graph, 0.0, 0
            cost += float(costs[graph])
            size += int(items[graph])
        return [*found, (first, self.graphs)] if self.graphs else []


@dataclass(frozen=True, eq=False)
class Piece:
    """Some graphs, read: their edges side by side, and by what users know them.

    failed  why a graph cannot be computed, by its number in the piece
    graphs  (graphs,) the users' ids; None: of a directory that is one graph
    nodes   (nodes,) the users' ids
    """

    batch: GraphBatch
    failed: dict[int, str]
    graphs: pa.Array | None
    nodes: pa.Array


def read_piece(path: Path, first: int, stop: int, *, weighted: bool) -> Piece:
    """Read the graphs ``first .. stop`` of a directory."""
    graph = Graph.open(path)
    ptr = Zoo.of(graph).ptr[first : stop + 1]
    low, high = int(ptr[0]), int(ptr[-1])
    batch, failed = batch_of(rows_of(graph, low, high), ptr, graph, weighted=weighted)
    graphs: Any = None
    if graph.manifest.graphs is not None:
        graphs = read_column(graph.path / "graphs.parquet", "id").slice(first, stop - first)
        graphs = graphs.combine_chunks()
    nodes: Any = graph.user_ids().slice(low, high - low).combine_chunks()
    return Piece(batch, failed, graphs, nodes)


def rows_of(graph: Graph, low: int, high: int) -> CSR:
    """Return the rows of the nodes ``low .. high``, which lie in one shard, or are all."""
    for number, shard in enumerate(graph.manifest.shards):
        if shard.start <= low and high <= shard.stop and low < shard.stop:
            return graph.shard(number).row_range(low - shard.start, high - shard.start)
    return graph.csr().row_range(low, high)


def batch_of(
    rows: CSR, ptr: Array, graph: Graph, *, weighted: bool
) -> tuple[GraphBatch, dict[int, str]]:
    """Return the batch of some rows, in which parallel edges are one, and which graphs have failed.

    Of parallel edges the shortest counts.
    """
    indptr = np.asarray(rows.indptr, np.int64)
    indices = np.asarray(rows.indices - rows.first_row)
    weights = None
    failed: dict[int, str] = {}
    ptr = ptr - rows.first_row
    if weighted and rows.weights is not None:
        weights = np.asarray(rows.weights, np.float64)
        bad = np.flatnonzero(~(weights >= 0) | np.isinf(weights))
        of = np.searchsorted(indptr[ptr], bad, side="right") - 1
        for number in np.unique(of):
            worst = weights[bad[of == number][0]]
            failed[int(number)] = f"an edge has the weight {worst:g}"
        if len(bad):
            weights = weights.copy()
            weights[bad] = 1
    owner = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    again = np.zeros(len(indices), bool)
    again[1:] = (indices[1:] == indices[:-1]) & (owner[1:] == owner[:-1])
    if again.any():
        starts = np.flatnonzero(~again)
        if weights is not None:
            weights = np.minimum.reduceat(weights, starts)
        indices, owner = indices[starts], owner[starts]
        counts = np.bincount(owner, minlength=len(indptr) - 1)
        indptr = np.concatenate([[0], np.cumsum(counts)])
    batch = GraphBatch(ptr, indptr, indices, weights, directed=graph.manifest.directed)
    return batch, failed


def on_device(batch: GraphBatch) -> GraphBatch:
    """Return a copy of a batch on this worker's GPU."""
    import cupy

    arrays: dict[str, Any] = {
        name: None if array is None else cupy.asarray(array)
        for name in ("ptr", "indptr", "indices", "weights")
        for array in [getattr(batch, name)]
    }
    return replace(batch, **arrays)
