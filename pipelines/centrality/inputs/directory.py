"""Graphs of a directory in the format of docs/format.md: a zoo, or one graph."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.arrays import Array
from penstock.arrow import as_numpy, one_array, read_column, reading_parquet, take, written_bytes
from penstock.bounds import check_length
from penstock.csr import CSR, id_dtype, offsets_of
from penstock.errors import CorruptFile, InputError
from penstock.graph import Graph, load_npy
from penstock.manifest import COPY_AGAIN
from penstock.pipelines.centrality.inputs import CentralityInput
from penstock.pipelines.centrality.one_graph import (
    OneGraph,
    batch_of,
    gpu_bytes,
    load_batch,
    save_batch,
    weight_fault,
)
from penstock.pipelines.centrality.options import (
    COMMUNITIES,
    IN_ROWS,
    OF_PATHS,
    CentralityOptions,
)
from penstock.pipelines.centrality.pieces import Piece, PieceSpec, costs_of, cut

if TYPE_CHECKING:
    from penstock.output import Output
    from penstock.pipelines.job.workers import Workers

_SOME_IDS = 1 << 16  # ids sampled for their size in Parquet


class DirectoryInput(CentralityInput):
    """The graphs of a zoo's directory, or one graph."""

    sizes: Array
    edges: Array

    def __init__(self, graph: Graph, options: CentralityOptions) -> None:
        self.graph = self.reader = graph
        self.weighted, self.searched = options.weighted, []
        self.path, self.one = graph.path, graph.manifest.graphs is None
        self.kind = "graph" if self.one else "zoo"
        self.directed = graph.manifest.directed
        self.has_weights = "weights" in graph.manifest.dtypes
        self.bytes = sum(entry.bytes for entry in graph.manifest.files.values())
        self.sizes, self.edges = _extents(graph)
        self.nodes, self.graphs = graph.num_nodes, len(self.sizes)
        if self.nodes:
            some = _node_ids(graph, 0, min(self.nodes, _SOME_IDS))
            self.id_bytes = math.ceil(written_bytes(some))
        self.specs: list[PieceSpec] = list(self._specs(options))

    def about(self) -> dict[str, Any]:
        """Return its entry in centrality.json."""
        return {"graph": str(self.path), "graph_sha256": self.graph.digest}

    def prepare(self, workers: Workers, output: Output) -> list[PieceSpec]:
        """Return the pieces, which are known already; refuse a single graph with a bad weight."""
        if self.one and self.weighted:
            shards = self.graph.manifest.shards
            calls = [(str(self.path), number) for number in range(len(shards))]
            sizes = [shard.edges for shard in shards]
            found = workers.tasks("weights", check_weights, calls, sizes, "edges")
            for number, wrong in enumerate(found):
                if wrong:
                    raise InputError(
                        f"{self.path} has weights that are not lengths",
                        expected="numbers that are not negative",
                        got=f"in shard {number}, {wrong}",
                    )
        return list(self.specs)

    def _specs(self, options: CentralityOptions) -> Iterator[PieceSpec]:
        graph, version = self.graph, self.graph.digest
        ptr = offsets_of(self.sizes)
        items, costs = self.edges + self.sizes, costs_of(self.sizes, self.edges)
        squares = self.sizes.astype(np.float64) ** 2
        ids: Any = None
        shard, ranges = None, [(0, 1, True)]
        if not self.one:
            ids = read_column(graph.path / "graphs.parquet", "id").combine_chunks()
            starts = np.array([shard.start for shard in graph.manifest.shards], np.int64)
            if len(starts):
                shard = np.maximum.accumulate(np.searchsorted(starts, ptr[:-1], side="right") - 1)
                shard = np.clip(shard, 0, len(starts) - 1)  # none follows the last nodes
            weighed = items + (squares / 8).astype(np.int64) if options.distances else items
            ranges = cut(costs, weighed, shard)
        for first, stop, large in ranges:
            yield DirectoryPiece(
                # A copy: only these are sent.
                ids=None if ids is None else take(ids, np.arange(first, stop)),
                items=int(items[first:stop].sum()),
                cost=float(costs[first:stop].sum()),
                matrix=int(squares[first:stop].sum()),
                large=large,
                path=graph.path,
                version=version,
                directed=self.directed,
                ptr=ptr[first : stop + 1],
                shard=None if shard is None or first == stop else int(shard[first]),
            )


def _extents(graph: Graph) -> tuple[Array, Array]:
    """Return the numbers of nodes and edges of each graph, (graphs,) int64 each."""
    if graph.manifest.graphs is None:
        return np.array([graph.num_nodes]), np.array([graph.num_edges])
    path = graph.path / "graphs.parquet"
    sizes = as_numpy(read_column(path, "nodes")).astype(np.int64)
    has, wanted = (len(sizes), int(sizes.sum())), (graph.manifest.graphs, graph.num_nodes)
    if has != wanted or (sizes < 0).any():
        raise CorruptFile(
            f"{path} does not match this zoo",
            expected=f"{wanted[0]:,} graphs of {wanted[1]:,} nodes in all, as in graph.json",
            got=f"{has[0]:,} graphs of {has[1]:,} nodes",
            remedy=COPY_AGAIN,
        )
    ptr = offsets_of(sizes)
    # graphs.parquet of a generated zoo lacks them; they follow from the rows at which graphs begin.
    before = np.zeros(len(ptr), np.int64)
    edges = 0
    for number, shard in enumerate(graph.manifest.shards):
        low, high = np.searchsorted(ptr, [shard.start, shard.stop + 1])
        # Mapped: one page per graph is read. Tasks check all of it before they use it.
        file = graph.path / "shards" / f"{number:05d}" / "indptr.npy"
        indptr = load_npy(file)
        check_length(indptr, shard.stop - shard.start + 1, file, remedy=COPY_AGAIN)
        before[low:high] = edges + indptr[ptr[low:high] - shard.start]
        edges += shard.edges
    return sizes, np.diff(before)


@dataclass(frozen=True, eq=False, kw_only=True)
class DirectoryPiece(PieceSpec):
    """Some graphs of a directory.

    ptr    (graphs + 1,) int64: the first node of each; shard: the one that holds them, or None
    joined the beginning of the names of files with all shards of one graph, if they were joined
    """

    path: Path
    version: str
    directed: bool
    ptr: Array
    shard: int | None
    joined: Path | None = None

    def read(self, *, weighted: bool) -> Piece:
        """Read the graphs from this worker's copy; a GPU reads one graph once, where it is."""
        from penstock.workers.plugin import resources  # imports Dask, which --help does not need

        held = resources()
        once = self.ids is None and held.device is not None
        graph = _opened(self.path if once else Path(held.copies(self.path)), self.version)
        low, high = int(self.ptr[0]), int(self.ptr[-1])
        nodes, directed = _node_ids(graph, low, high), graph.manifest.directed
        if self.ids is None:
            # The client has checked the weights.
            made = None if self.joined is None else load_batch(self.joined, directed=directed)
            one = OneGraph(shards_of(graph, weighted=weighted), directed, made=made)
            return Piece(one, {}, None, nodes)
        rows = CSR(np.zeros(1, np.int64), np.empty(0, np.int32))
        if self.shard is not None:
            start = graph.manifest.shards[self.shard].start
            rows = graph.shard(self.shard).row_range(low - start, high - start)
        rows = rows if weighted else replace(rows, weights=None)
        batch, failed = batch_of(rows, self.ptr - low, directed=directed)
        return Piece(batch, failed, self.ids, nodes)

    def keep(self, piece: Piece, stem: Path) -> PieceSpec:
        """Write the shards of one graph as one, which all workers map; a single one is mapped."""
        if self.ids is not None or len(piece.one.rows) < 2:
            return self
        save_batch(piece.batch, stem)
        return replace(self, joined=stem)

    def in_edges(self, options: CentralityOptions) -> int:
        """Return the bytes of in-edges that PageRank of one large graph makes."""
        if self.ids is not None or not self.directed or "pagerank" not in options.wanted:
            return 0
        from penstock.kernels.cpu.transpose import EDGE_BYTES, WEIGHT_BYTES

        nodes = int(self.ptr[-1])
        each = EDGE_BYTES * id_dtype(nodes).itemsize // 4 + WEIGHT_BYTES * options.weighted
        return -(-each * (self.items - nodes) // (options.parts or 1))

    def _graph_bytes(self, options: CentralityOptions, *, on_gpu: bool) -> int:
        """Return the bytes per edge and per node, for these metrics."""
        nodes, paths = int(self.ptr[-1] - self.ptr[0]), bool(options.wanted & OF_PATHS)
        whole = self.ids is None and not options.distances
        if whole and on_gpu:
            given = {"directed": self.directed, "weighted": options.weighted}
            edges = self.items - nodes
            return gpu_bytes(nodes, edges, options.wanted, parts=options.parts, **given)
        if whole and options.wanted <= IN_ROWS:
            return (80 + 16 * len(options.names)) * nodes  # edges are mapped
        edge = id_dtype(int(self.ptr[-1])).itemsize
        if options.weighted:  # stored, and as float64; a heap, and a tree of paths
            edge += 12 + 32 * paths
        if "edge-betweenness" in options.wanted:  # values of arcs, and the columns of edges
            edge += 64
        if options.wanted.intersection(
            COMMUNITIES
        ):  # weights, sources, and the graph of communities
            edge += 48
        if options.wanted & {"clustering", "triangles"}:  # directed ones are read both ways
            edge += 24
        node = 64 + 16 * len(options.names) + 256 * (paths and self.large)
        return edge * (self.items - nodes) + node * nodes


def shards_of(graph: Graph, *, weighted: bool) -> list[CSR]:
    """Return the rows of a graph, mapped, with their weights if these are used."""
    shards = [graph.shard(number) for number in range(graph.num_shards)]
    return shards if weighted else [replace(each, weights=None) for each in shards]


def check_weights(path: str, number: int) -> str | None:
    """Return the fault of the weights of a shard, or None; runs on a worker."""
    return weight_fault(Graph.open(Path(path)).shard(number).weights)


@lru_cache(maxsize=4)
def _opened(path: Path, version: str) -> Graph:
    return Graph.open(path)


@lru_cache(maxsize=4)
def _row_groups(path: Path, version: str) -> tuple[Any, Array]:
    """Return the metadata of nodes.parquet, and the first row of each row group."""
    with reading_parquet(path):
        metadata = pq.read_metadata(path)
    counts = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    return metadata, offsets_of(np.array(counts, np.int64))


def _node_ids(graph: Graph, low: int, high: int) -> pa.Array:
    """Return the users' ids of some nodes, reading only the row groups that have them."""
    path = graph.path / "nodes.parquet"
    version = graph.manifest.files["nodes.parquet"].sha256
    _, starts = _row_groups(path, version)
    first = max(int(np.searchsorted(starts, low, side="right")) - 1, 0)
    stop = int(np.searchsorted(starts, high, side="left"))
    parts = []
    for group in range(first, stop):
        ids = _read_ids(path, version, group)
        begin, end = max(low - int(starts[group]), 0), high - int(starts[group])
        parts.append(ids.slice(begin, min(end, len(ids)) - begin))
    if not parts:
        return graph.user_ids().combine_chunks().slice(0, 0)
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)


@lru_cache(maxsize=8)  # consecutive pieces share them
def _read_ids(path: Path, version: str, group: int) -> pa.Array:
    metadata, _ = _row_groups(path, version)
    with reading_parquet(path), pq.ParquetFile(path, metadata=metadata, memory_map=True) as file:
        return one_array(file.read_row_group(group, columns=["id"], use_threads=False).column(0))
