"""Pieces: some graphs of the input, which a task computes and writes together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array, DeviceArray
from penstock.csr import CSR, id_dtype, offsets_of
from penstock.kernels import kernel
from penstock.kernels.centrality_rules import SCRATCH, GraphBatch
from penstock.pipelines.centrality.options import (
    IN_ROWS,
    OF_DISTANCES,
    OF_TRIANGLES,
    STRONG,
    CentralityOptions,
)
from penstock.workers.resources.upload import upload, upload_rows

if TYPE_CHECKING:
    import pyarrow as pa

_PIECES = 256  # about; it depends on the input alone, so that any cluster writes the same files
# Nodes and edges of a piece, unless a graph has more; the second for large inputs: the fixed cost
# of a piece is then a smaller share, and there are still enough pieces.
MOST_ITEMS, MOST_ITEMS_OF_LARGE = 1 << 22, 1 << 23
LEAST_COST = 1e7  # cost of a piece: some milliseconds
# A graph beyond these is computed by several tasks, each with a share of its sources.
LARGE_ITEMS = 1 << 23
_LARGE_COST = 3e10
_LONGEST = 1e290  # weight of an edge: the longest path of a graph that fits in memory is finite


_BLOCKS = 264  # at most, of a graph on a GPU
_UPLOADED = 1 << 28  # bytes of an array from which several threads copy it to a GPU
ARRAYS = ("ptr", "indptr", "indices", "weights", "sums")  # of a batch


class Piece:
    """Some graphs in memory: their edges side by side, and the users' ids.

    failed  reasons of graphs that cannot be computed, by their number in the piece
    graphs  (graphs,) the users' ids; None: a directory that is one graph
    nodes   (nodes,) the users' ids
    """

    def __init__(
        self,
        batch: GraphBatch | Callable[[], GraphBatch],
        failed: dict[int, str],
        graphs: pa.Array | None,
        nodes: pa.Array,
        mapped: Sequence[CSR] | None = None,
        *,
        directed: bool = False,
    ) -> None:
        """Take a batch, or of one graph whose rows are ``mapped``, how it is made if needed."""
        self._batch, self._mapped, self._directed = batch, mapped, directed
        self.failed, self.graphs, self.nodes = failed, graphs, nodes
        self._counted: tuple[int, int] | None = None  # distinct edges of one graph, and loops

    @cached_property
    def batch(self) -> GraphBatch:
        """The graphs in memory."""
        return self._batch() if callable(self._batch) else self._batch

    @property
    def directed(self) -> bool:
        """Whether edges have a direction."""
        return self.batch.directed if self._mapped is None else self._directed

    @cached_property
    def rows(self) -> Sequence[CSR]:
        """The rows of one graph, with weights of parallel edges that add up to theirs."""
        if self._mapped is not None:
            return self._mapped
        weights = self.batch.weights if self.batch.sums is None else self.batch.sums
        return [CSR(self.batch.indptr, self.batch.indices, weights=weights)]

    @property
    def sizes(self) -> Array:
        """Number of nodes of each graph, (graphs,) int64."""
        return self.batch.sizes if self._mapped is None else np.array([len(self.nodes)])

    def count(self, rows: Sequence[CSR]) -> None:
        """Count the edges of one graph, where its rows are."""
        indptr = rows[0].indptr if rows else np.empty(0)
        self._counted = kernel("degrees", indptr).count_edges(rows)

    @property
    def edges(self) -> Array:
        """Number of edges of each graph; parallel ones, and one that is stored both ways, count
        once."""
        if self._mapped is None:
            from penstock.kernels.cpu.small_graphs import self_loops

            batch = self.batch
            stored = np.diff(batch.indptr[batch.ptr])
            loops = 0 if batch.directed else self_loops(batch.ptr, batch.indptr, batch.indices)
        else:
            if self._counted is None:
                self.count(self._mapped)
            stored, loops = np.array([self._counted]).T
        return np.asarray(stored if self.directed else (stored + loops) // 2)


@dataclass(frozen=True, eq=False, kw_only=True)
class PieceSpec(ABC):
    """A piece as it is sent to a task, which then reads it.

    ids    the users' ids of its graphs; None: a directory that is one graph
    items  its nodes and edges, or a bound; cost: approximate cost of all its shortest paths
    matrix entries of the distances of all pairs; None: not known before it is read
    large  whether it is one graph whose sources are divided among tasks
    """

    ids: pa.Array | None
    items: int
    cost: float
    matrix: int | None = None
    large: bool = False

    @property
    def graphs(self) -> int:
        """Number of graphs."""
        return 1 if self.ids is None else len(self.ids)

    @abstractmethod
    def read(self, *, weighted: bool) -> Piece:
        """Read the graphs; runs on a worker."""

    def keep(self, piece: Piece, folder: Path, stem: str) -> PieceSpec:
        """Return an object that reads a large graph again, for every share of its sources.

        piece  the graph that was read; stem: of files in ``folder``, if it has to be kept there
        """
        return self

    def bytes(self, options: CentralityOptions, *, on_gpu: bool = False) -> int:
        """Return its approximate bytes in memory, or on a GPU, while it is computed."""
        matrix = (self.matrix or 0) * distance_bytes(options) if options.distances else 0
        return self._graph_bytes(options, on_gpu=on_gpu) + matrix

    def in_edges(self, options: CentralityOptions) -> int:
        """Return the bytes of in-edges that PageRank of one large graph makes."""
        return 0

    def in_edges_on_disk(self, options: CentralityOptions, memory: int) -> bool:
        """Return whether in-edges are made on the scratch disk, beyond this memory of a worker."""
        needs = self.in_edges(options)
        return needs > 0 and self.bytes(options) + needs > memory

    def _graph_bytes(self, options: CentralityOptions, *, on_gpu: bool) -> int:
        """Return the bytes of its edges and nodes, input and results."""
        return self.items * (24 if on_gpu else 40)


def distance_bytes(options: CentralityOptions) -> int:
    """Return the bytes of one distance: a number of steps, or with weights a sum."""
    return 8 if options.weighted else 4


def matrix_bytes(sizes: Array, options: CentralityOptions) -> int:
    """Return the bytes of the distances of all pairs, for graphs of these sizes."""
    return int((sizes.astype(np.float64) ** 2).sum()) * distance_bytes(options)


def costs_of(sizes: Array, edges: Array) -> Array:
    """Return the cost of all shortest paths: every edge is read from every node."""
    wide = sizes.astype(np.float64)
    found: Array = (wide + 1) * (edges + wide + 1)
    return found


def cut(
    costs: Array,
    items: Array,
    barriers: Array | None = None,
    *,
    least_cost: float | None = None,
) -> list[tuple[int, int, bool]]:
    """Cut graphs into ranges of about equal cost: first, one after the last, and whether large.

    barriers  (graphs,) int64, ascending: a range has graphs of one value only
    A large graph has a range of its own.
    """
    least = LEAST_COST if least_cost is None else least_cost
    most = max(float(costs.sum()) / _PIECES, least)
    most_items = min(max(int(items.sum()) // _PIECES, MOST_ITEMS), MOST_ITEMS_OF_LARGE)
    large = (items > LARGE_ITEMS) | (costs > max(_LARGE_COST, 8 * most))
    before_costs = np.concatenate([[0.0], np.cumsum(costs)])
    before_items = offsets_of(items)
    larges = np.flatnonzero(large)
    found, first, count = [], 0, len(costs)
    while first < count:
        if large[first]:
            found.append((first, first + 1, True))
            first += 1
            continue
        stop = min(
            int(np.searchsorted(before_costs, before_costs[first] + most, side="right")) - 1,
            int(np.searchsorted(before_items, before_items[first] + most_items, "right")) - 1,
            count,
        )
        at = int(np.searchsorted(larges, first))
        if at < len(larges):
            stop = min(stop, int(larges[at]))
        if barriers is not None:
            stop = min(stop, int(np.searchsorted(barriers, barriers[first], side="right")))
        stop = max(stop, first + 1)
        found.append((first, stop, False))
        first = stop
    return found or [(0, 0, False)]  # empty tables are also written


def bad_weights(weights: Array) -> Array:
    """Return a mask of weights that are not lengths: negative, NaN, or with sums that overflow."""
    longest = _LONGEST if weights.dtype == np.float64 else np.inf  # smaller sums are finite
    return np.flatnonzero(~(weights >= 0) | (weights >= longest))


def bad_weight(weight: float) -> str:
    """Return the reason for a weight that is not a length."""
    return f"an edge has the weight {weight:g}"


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


def device_bytes(batch: GraphBatch) -> int:
    """Return the approximate bytes of a batch and the values of its nodes on a GPU."""
    arrays: Iterable[Array | None] = (getattr(batch, name) for name in ARRAYS)
    return sum(array.nbytes for array in arrays if array is not None) + 64 * batch.nodes


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


def rows_on_device(
    rows: Sequence[CSR], merged: Callable[[], GraphBatch], *, directed: bool
) -> GraphBatch:
    """Return one graph without weights on this worker's GPU.

    merged  makes the graph in host memory, if it has parallel edges
    """
    import cupy

    for whole in upload_rows(rows):
        if not kernel("small_graphs", whole.indptr).parallel_edges(whole.indptr, whole.indices):
            ptr = cupy.asarray([0, whole.rows])
            return GraphBatch(ptr, whole.indptr, whole.indices, directed=directed)
    return on_device(merged())
