"""The graph of one rank in training: its rows, renumbered so that those without ghosts come first.

    with open_local(comm, graph, partition, weighted=False) as local:
        local.indptr, local.indices        rows of the owned nodes, with local columns
        local.features, local.labels       in the same order

Columns are the owned nodes, then the ghosts. Owned nodes whose rows read no ghost come first
(interior: computed while ghosts travel), then the others (boundary).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, id_dtype, offsets_of
from penstock.graph import Graph
from penstock.kernels import kernel
from penstock.manifest import Manifest
from penstock.partition.manifest import PartitionManifest
from penstock.partition.part import Part, Partition, part_folder
from penstock.splits import SplitFile
from penstock.workers.gnn.data.node_data import (
    NodeData,
    labelled,
    nodes_of_graph,
    nodes_of_part,
    read_nodes,
    with_features,
)
from penstock.workers.plugin import resources

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

_PIECE = 1 << 22  # edges renumbered at once


@dataclass(frozen=True, eq=False)
class LocalGraph:
    """One rank's rows and node data, in host memory; arrays may be mapped, and are read-only.

    nodes, edges  of the whole graph
    ids           (columns,) int64: the number of each column in the whole graph: interior rows
                  ascending, boundary rows ascending, then ghosts by owner, ascending
    owned         number of rows; the first ``interior`` of them read no ghost
    indptr        (owned + 1,) int64
    indices       columns, ascending within a row
    weights       (edges here,) float32, or None
    symmetric     whether the rows equal their transpose
    send          {peer: rows to send, in the order in which the peer stores them}
    receive       {peer: slice of columns where its rows land}
    features      (owned, width): dense float32, or SciPy CSR of float32
    label_kind    class, multi, value, or None: no labels
    labels        class: (owned,) int32, -1 none; value: (owned,) float32, NaN none; multi:
                  (indptr int64, classes int32, labelled bool); or None
    splits         (owned,) int8: 0 train, 1 valid, 2 test, -1 none
    whole_rows    if some rows are left out: the sum of each column's row, and its number of loops
    """

    nodes: int
    edges: int
    ids: Array
    owned: int
    interior: int
    columns: int
    indptr: Array
    indices: Array
    weights: Array | None
    symmetric: bool
    features: Any
    label_kind: str | None
    labels: Any
    splits: Array
    send: dict[int, Array] = field(default_factory=dict)
    receive: dict[int, slice] = field(default_factory=dict)
    whole_rows: tuple[Array, Array] | None = None

    @property
    def counted(self) -> Array:
        """The splits of the rows that have a label, -1 for the others: (owned,) int8."""
        return np.where(labelled(self.labels), self.splits, np.int8(-1))


@contextmanager
def open_local(
    comm: AnyCommunicator,
    graph: Path,
    partition: Path | None,
    *,
    weighted: bool,
    for_training: bool = True,
    feature_columns: tuple[int, ...] | None = None,
    split: SplitFile | None = None,
) -> Iterator[LocalGraph]:
    """Open this rank's part of a graph; without a partition, all of it.

    Every rank calls it. Data that cannot be trained on is refused; ``for_training=False`` needs no
    labels and splits. ``feature_columns`` picks features, None takes all; ``split`` replaces the
    graph's own.
    """

    def read(stored: NodeData, manifest: Manifest) -> NodeData:
        if feature_columns is not None:
            stored = with_features(stored, feature_columns)
        if split is not None:
            stored = replace(stored, splits=split.splits(Graph.open(graph), stored.ids))
        return read_nodes(stored, manifest, graph, comm, for_training=for_training)

    if partition is None:
        assert comm.size == 1
        with resources().copies.hold(graph) as path:
            opened = Graph.open(path)
            yield _local(
                opened.manifest,
                opened.csr(),
                np.arange(opened.num_nodes, dtype=np.int64),
                read(nodes_of_graph(opened), opened.manifest),
                weighted=weighted,
            )
        return
    parts = PartitionManifest.load(partition)
    assert parts.k == comm.size
    parts.check_graph(partition, graph)
    manifest, rank = Manifest.load(graph), comm.rank
    with resources().copies.hold(partition, part_folder(rank)) as path:
        part = Partition.open(path).part(rank)
        found = read(nodes_of_part(part), manifest)
        yield _local(manifest, part.csr, part.global_ids, found, part, weighted=weighted)


def _local(
    manifest: Manifest,
    csr: CSR,
    ids: Array,
    found: NodeData,
    part: Part | None = None,
    *,
    weighted: bool,
) -> LocalGraph:
    assert csr.weights is not None or not weighted
    columns, owned = len(ids), csr.rows
    order, interior = interior_first(csr.indptr, csr.indices, owned)
    weights = csr.weights if weighted else None
    indptr, indices = csr.indptr, csr.indices.astype(id_dtype(columns), copy=False)
    send: dict[int, Array] = {} if part is None else dict(part.send)
    if order is not None:
        indptr, indices, weights = reordered(indptr, indices, weights, order, interior, columns)
        position = np.empty(owned, np.int64)
        position[order] = np.arange(owned)
        send = {peer: position[rows] for peer, rows in send.items()}
        ids = np.concatenate([ids[:owned][order], ids[owned:]])
        found = found.reordered(order)
    return LocalGraph(
        nodes=manifest.nodes,
        edges=manifest.edges,
        ids=_plain(ids, np.int64),
        owned=owned,
        interior=interior,
        columns=columns,
        indptr=_plain(indptr, np.int64),
        indices=_plain(indices, indices.dtype),
        weights=None if weights is None else _plain(weights, np.float32),
        symmetric=not manifest.directed and columns == owned == manifest.nodes,
        features=found.features,
        label_kind=manifest.labels,
        labels=found.labels,
        splits=found.splits,
        send={peer: np.asarray(rows, np.intp) for peer, rows in send.items()},
        receive={} if part is None else part.receive,
    )


def _plain(array: Array, dtype: Any) -> Array:
    return np.asarray(array, dtype).view(np.ndarray)


def interior_first(indptr: Array, indices: Array, owned: int) -> tuple[Array | None, int]:
    """Return the order of rows that puts those without ghosts first, and their number.

    Columns from ``owned`` on are ghosts; columns ascend within a row. None: rows already have this
    order.
    """
    boundary = np.zeros(owned, bool)
    filled = np.flatnonzero(indptr[1:] > indptr[:-1])
    boundary[filled] = indices[indptr[filled + 1] - 1] >= owned
    interior = owned - int(np.count_nonzero(boundary))
    if not boundary[:interior].any():
        return None, interior
    return np.argsort(boundary, kind="stable"), interior


def reordered(
    indptr: Array, indices: Array, weights: Array | None, order: Array, interior: int, columns: int
) -> tuple[Array, Array, Array | None]:
    """Return rows in a new order, with columns renumbered and ascending again.

    order  (rows,): the row at each position. The first ``interior`` columns, the other rows', and
           those beyond the rows each ascend; the last stay.
    """
    rows, module = len(order), kernel("halo", indices)
    position = np.arange(columns, dtype=indices.dtype)
    position[order] = position[:rows].copy()
    bounds = np.array([interior, rows], indices.dtype)
    starts = offsets_of(np.diff(indptr)[order])
    found = np.empty_like(indices, shape=len(indices), subok=False)
    moved = None if weights is None else np.empty(len(indices), np.float32)
    first = 0
    while first < rows:
        last = int(np.searchsorted(starts, starts[first] + _PIECE, side="right")) - 1
        last = max(last, first + 1)
        piece, span = order[first:last], slice(int(starts[first]), int(starts[last]))
        here = module.gather_rows(indptr, piece, indices)
        found[span], sort = module.local_rows(
            starts[first : last + 1] - starts[first], here, position, bounds, weights is not None
        )
        if weights is not None and moved is not None:
            moved[span] = module.gather_rows(indptr, piece, weights)[sort]
        first = last
    return starts, found, moved
