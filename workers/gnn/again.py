"""Prediction with a base: only nodes that a change can have reached are computed again.

A layer reads a node's row, its neighbours' values, and in GCN their degrees. What may differ after
each layer follows from the rows and features that differ. Layers are computed one by one, each over
a small graph of the rows that later layers read.

Sums keep the order of a row's neighbours, and products are made in tiles, within which a node has
the place that it has in a whole prediction: results are equal to the last bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, id_dtype, offsets_of
from penstock.graph import Graph, load_npy
from penstock.kernels import kernel
from penstock.splits import own_splits
from penstock.workers.gnn.data.features import as_dense
from penstock.workers.gnn.data.local import LocalGraph
from penstock.workers.gnn.data.node_data import NodeData, checked_features, with_features
from penstock.workers.gnn.layers.network import Network
from penstock.workers.gnn.layers.structure import row_sums
from penstock.workers.gnn.plan.lowering import ModelPlan
from penstock.workers.gnn.state import load_tensors
from penstock.workers.gnn.task import PredictTask
from penstock.workers.gnn.thread_pool import ThreadPool
from penstock.workers.resources.device import gpu, to_host
from penstock.workers.training import checkpoint
from penstock.writer import row_cuts

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

TILE = 256  # rows of a product
_EDGES = 1 << 22  # read at once
_MOST = 0.3  # of the rows of all layers: beyond, a whole prediction is faster


def affected(
    csr: CSR, plan: ModelPlan, rows: Array, values: Array, most: float, *, symmetric: bool
) -> list[Array] | None:
    """Return which nodes' values may differ, before the first layer and after each: (nodes,) bool.

    rows, values  which nodes have another row, and other features
    most          nodes; None is returned if more may differ
    """
    found = [values]
    for one in plan.layers:
        read = found[-1] | rows if one.layer.kind == "gcn" else found[-1]
        found.append(found[-1] | rows)
        for nodes in _readers(csr, read, symmetric=symmetric):
            found[-1][nodes] = True
            if np.count_nonzero(found[-1]) > most:
                return None
    return found


def _readers(csr: CSR, read: Array, *, symmetric: bool) -> Iterator[Array]:
    """Yield nodes that have a neighbour among those of a mask, from some edges at a time."""
    for first, last in row_cuts(csr.indptr, _EDGES):
        low, high = int(csr.indptr[first]), int(csr.indptr[last])
        if symmetric:
            yield _columns(csr, first + np.flatnonzero(read[first:last]))
        else:
            at = low + np.flatnonzero(read[csr.indices[low:high]])
            yield np.searchsorted(csr.indptr, at, side="right") - 1


def _columns(csr: CSR, rows: Array, name: str = "indices") -> Array:
    column = np.asarray(getattr(csr, name))
    found: Array = kernel("halo", column).gather_rows(np.asarray(csr.indptr), rows, column)
    return found


def predict_again(
    comm: AnyCommunicator, task: PredictTask
) -> tuple[Array, Array, Array, Array] | None:
    """Return the nodes to predict, their outputs, their hidden values, and the splits of all.

    None: a whole prediction reads less.
    """
    assert task.base is not None
    graph, (rows, values) = Graph.open(task.graph), load_npy(task.base.changed)
    layers, most = len(task.plan.layers), _MOST * graph.num_nodes
    if np.count_nonzero(rows | values) > most:
        return None
    csr, symmetric = graph.csr(), not graph.manifest.directed
    differ = affected(csr, task.plan, rows, values, most, symmetric=symmetric)
    if differ is None:
        return None
    needed, mask = [np.flatnonzero(differ[-1])], differ[-1]
    for _ in range(layers - 1):
        mask, read = mask.copy(), mask
        for nodes in _readers(csr, read, symmetric=True):
            mask[nodes] = True
        needed.insert(0, np.flatnonzero(mask))
    if sum(map(len, needed)) > most * layers:
        return None
    tensors, _ = checkpoint.load(task.checkpoint)
    splits = own_splits(graph) if task.split is None else task.split.splits(graph)
    last = task.plan.layers[-1]
    # Nodes, and their values after the last layer that is made.
    found: tuple[Array, Array]
    found = np.empty(0, np.int64), np.empty((0, last.layer.channels or 1), np.float32)
    inputs: Array = np.empty((0, last.inputs), np.float32)
    if not differ[-1].any():
        return *found, inputs, splits
    with ThreadPool.of(comm) as pool:
        pool.tile = TILE
        for number, plan in enumerate(task.plan.layers):
            chosen = needed[number]
            block = _Block(csr, chosen)
            given: Any = None
            if number == 0:
                given = _features(graph, block.nodes, task)
            else:
                given = found[1][np.searchsorted(found[0], block.nodes)]
            local = block.local(graph, given, weighted=task.training.weighted)
            made = replace(task.plan, layers=(plan,), sparse=task.plan.sparse and number == 0)
            network = Network(made, task.training, local, pool, comm, device=gpu())
            load_tensors(network, tensors)
            out = network.forward()
            network.synchronize()
            found = chosen, to_host(out)[block.places_of(chosen)]
            if number == layers - 1:
                inputs = as_dense(given[np.searchsorted(block.nodes, chosen)])
    return *found, inputs, splits


class _Block:
    """The rows of some nodes, as a graph of them and of their neighbours, at places in tiles."""

    def __init__(self, csr: CSR, rows: Array) -> None:
        self.csr, self.rows = csr, rows
        mask = np.zeros(csr.rows, bool)
        mask[rows] = True
        mask[_columns(csr, rows)] = True
        self.nodes = np.flatnonzero(mask)
        within = self.nodes % TILE
        order = np.argsort(within, kind="stable")
        sorted_within = within[order]
        tile = np.arange(len(order)) - np.searchsorted(sorted_within, sorted_within)
        self.places = np.empty(len(order), np.int64)
        self.places[order] = tile * TILE + sorted_within
        self.count = (int(tile.max(initial=-1)) + 1) * TILE

    def places_of(self, nodes: Array) -> Array:
        """Return the places of nodes."""
        found: Array = self.places[np.searchsorted(self.nodes, nodes)]
        return found

    def local(self, graph: Graph, given: Any, *, weighted: bool) -> LocalGraph:
        """Return the graph; nodes that only are neighbours have no rows.

        given  values of the nodes
        """
        places = self.places_of(self.rows)
        order = np.argsort(places)
        chosen, lengths = self.rows[order], np.zeros(self.count, np.int64)
        lengths[places[order]] = np.diff(self.csr.indptr)[chosen]
        numbers = np.zeros(self.csr.rows, id_dtype(self.count))
        numbers[self.nodes] = self.places
        ids = np.zeros(self.count, np.int64)
        ids[self.places] = self.nodes
        sums, loops = self._sums(weighted=weighted)
        return LocalGraph(
            nodes=graph.num_nodes,
            edges=graph.num_edges,
            ids=ids,
            owned=self.count,
            interior=self.count,
            columns=self.count,
            indptr=offsets_of(lengths),
            indices=numbers[_columns(self.csr, chosen)],
            weights=_columns(self.csr, chosen, "weights") if weighted else None,
            symmetric=not graph.manifest.directed,
            features=self._spread(given),
            label_kind=None,
            labels=None,
            splits=np.full(self.count, -1, np.int8),
            whole_rows=(sums, loops),
        )

    def _spread(self, given: Any) -> Any:
        """Return the values of nodes at their places."""
        if isinstance(given, np.ndarray):
            found = np.zeros((self.count, given.shape[1]), given.dtype)
            found[self.places] = given
            return found
        import scipy.sparse as sp

        order, lengths = np.argsort(self.places), np.zeros(self.count, np.int64)
        lengths[self.places] = np.diff(given.indptr)
        some = given[order]
        shape = self.count, given.shape[1]
        return sp.csr_matrix((some.data, some.indices, offsets_of(lengths)), shape=shape)

    def _sums(self, *, weighted: bool) -> tuple[Array, Array]:
        """Return the sum of each place's row in the whole graph, and its number of loops."""
        csr, sums, loops = self.csr, np.zeros(self.count), np.zeros(self.count, np.int64)
        lengths = np.diff(csr.indptr)[self.nodes]
        of = np.repeat(np.arange(len(self.nodes)), lengths)
        own = _columns(csr, self.nodes) == self.nodes[of]
        loops[self.places] = np.bincount(of[own], minlength=len(self.nodes))
        weights = _columns(csr, self.nodes, "weights") if weighted else None
        sums[self.places] = row_sums(offsets_of(lengths), weights)
        return sums, loops


def _features(graph: Graph, nodes: Array, task: PredictTask) -> Any:
    stored = NodeData(nodes, graph.features(nodes))
    if task.feature_columns is not None:
        stored = with_features(stored, task.feature_columns)
    return checked_features(stored, graph.manifest, task.graph)
