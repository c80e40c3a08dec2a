"""Pieces: some graphs of the input, which a task computes and writes together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, offsets_of
from penstock.kernels import kernel
from penstock.kernels.centrality_rules import GraphBatch
from penstock.pipelines.centrality.one_graph import ARRAYS, LARGE_ITEMS, OneGraph
from penstock.pipelines.centrality.options import CentralityOptions

if TYPE_CHECKING:
    import pyarrow as pa

_PIECES = 256  # about; it depends on the input alone, so that any cluster writes the same files
# Nodes and edges of a piece, unless a graph has more; the second for large inputs: the fixed cost
# of a piece is then a smaller share, and there are still enough pieces.
MOST_ITEMS, MOST_ITEMS_OF_LARGE = 1 << 22, 1 << 23
LEAST_COST = 1e7  # cost of a piece: some milliseconds
_LARGE_COST = 3e10  # of shortest paths: beyond it a graph is large, too


@dataclass(eq=False)
class Piece:
    """Some graphs in memory: their edges side by side, and the users' ids.

    given   all of them, or the only one
    failed  reasons of graphs that cannot be computed, by their number in the piece
    graphs  (graphs,) the users' ids; None: a directory that is one graph
    nodes   (nodes,) the users' ids
    counted distinct edges of one graph, and its loops
    """

    given: GraphBatch | OneGraph
    failed: dict[int, str]
    graphs: pa.Array | None
    nodes: pa.Array
    counted: tuple[int, int] | None = None

    @property
    def batch(self) -> GraphBatch:
        """The graphs in memory."""
        return self.given.batch if isinstance(self.given, OneGraph) else self.given

    @cached_property
    def one(self) -> OneGraph:
        """The only graph."""
        given = self.given
        return given if isinstance(given, OneGraph) else OneGraph.of_batch(given)

    @property
    def sizes(self) -> Array:
        """Number of nodes of each graph, (graphs,) int64."""
        return np.array([len(self.nodes)]) if self.graphs is None else self.batch.sizes

    def count(self, rows: Sequence[CSR]) -> None:
        """Count the edges of one graph, where its rows are."""
        indptr = rows[0].indptr if rows else np.empty(0)
        self.counted = kernel("degrees", indptr).count_edges(rows)

    @property
    def edges(self) -> Array:
        """Number of edges of each graph; parallel ones, and one that is stored both ways, count
        once."""
        if self.graphs is not None:
            from penstock.kernels.cpu.small_graphs import self_loops

            batch, directed = self.batch, self.batch.directed
            stored = np.diff(batch.indptr[batch.ptr])
            loops = 0 if directed else self_loops(batch.ptr, batch.indptr, batch.indices)
        else:
            directed = self.one.directed
            if self.counted is None:
                self.count(self.one.rows)
            stored, loops = np.array([self.counted]).T
        return np.asarray(stored if directed else (stored + loops) // 2)


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

    def keep(self, piece: Piece, stem: Path) -> PieceSpec:
        """Return an object that reads a large graph again, for every share of its sources.

        piece  the graph that was read; stem: of files to keep it in, if it has to be kept
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


def device_bytes(batch: GraphBatch) -> int:
    """Return the approximate bytes of a batch and the values of its nodes on a GPU."""
    arrays: Iterable[Array | None] = (getattr(batch, name) for name in ARRAYS)
    return sum(array.nbytes for array in arrays if array is not None) + 64 * batch.nodes
