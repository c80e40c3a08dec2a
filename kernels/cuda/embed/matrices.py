"""A batch whose relations are matrices: what differs from relations that are rows.

A gradient per edge would be as large as its matrix. So the gradients of queries are kept, and the
matrices' are sums of products over the edges of each; see matrices.cu. TUCKER's matrices are
products of relations and of rows that all share, and so are the gradients of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.embed.sort import SortedRows, sort_rows
from penstock.kernels.cuda.embed.tiles import TiledBatch, pieces_of
from penstock.kernels.cuda.gnn.launch import matrix
from penstock.kernels.cuda.module import launch, launch_blocks, processors
from penstock.kernels.cuda.product import product
from penstock.kernels.embed_rules import EmbedRules, Model, Optimizer, Side, Table

_FILE, _EDGES_FILE = "embed/matrices", "embed/edges"
_THREADS, _TILE = 256, 64  # of update_matrices
_BLOCKS = 8  # per multiprocessor


@dataclass(frozen=True, eq=False)
class MatrixBatch:
    """The queries of a batch, their gradients, and the order of both by matrix.

    matrices  rows of values, and their stride
    """

    batch: TiledBatch
    matrices: tuple[Any, np.int64]
    queries: DeviceArray
    in_asked: DeviceArray
    rows: SortedRows

    @classmethod
    def of(cls, batch: TiledBatch) -> MatrixBatch:
        """Return a batch; the queries are computed by ``pack``."""
        rules, edges = batch.tiles.rules, batch.tiles.edges
        none, sides = cp.empty(0, cp.int32), len(rules.sides)
        adds = tuple(rules.inverse if side == Side.HEAD else 0 for side in rules.sides)
        rows = sort_rows((none, none, none), 0, len(batch.relations[0]), batch.ends[2], adds)
        queries, in_asked = (cp.empty((sides * edges, rules.dim), cp.float32) for _ in range(2))
        matrices = batch.relations
        if rules.model == Model.TUCKER:
            own, shared = _divided(batch.relations[0], rules)
            composed = cp.empty((len(own), len(shared)), cp.float32)
            product(own, shared.T, composed)
            matrices = matrix(composed)
        return cls(batch, matrices, queries, in_asked, rows)

    def pack(
        self,
        queries: DeviceArray,
        query_notes: DeviceArray,
        others: DeviceArray,
        negative_notes: DeviceArray,
    ) -> None:
        """Compute the queries, and write them and negatives in the format of tiles."""
        batch, tiles, negatives = self.batch, self.batch.tiles, self.batch.negatives
        width = np.int32(tiles.width)
        launch(
            _FILE,
            f"matrix_queries<{pieces_of(tiles.width)}>",
            32 * len(self.queries),
            *(*batch.of_nodes, *self.matrices, *batch.of_edges, width),
            *(self.queries, queries, query_notes),
        )
        launch(
            _EDGES_FILE,
            f"pack_rows<{tiles.rules.model.name}, {pieces_of(tiles.width)}>",
            32 * negatives.size,
            *(*batch.of_nodes, negatives, np.int64(negatives.size), width, others, negative_notes),
        )

    def gradients(
        self,
        splits: int,
        vectors: DeviceArray,
        sums: Any,
        weights: DeviceArray,
        slopes: DeviceArray,
        losses: DeviceArray,
        *,
        exponential: bool,
    ) -> None:
        """Write the gradients of nodes and of queries, and the losses of edges."""
        batch, rules = self.batch, self.batch.tiles.rules
        launch(
            _FILE,
            f"matrix_gradients<{str(exponential).lower()}, {pieces_of(rules.dim)}>",
            32 * batch.tiles.edges,
            *(*batch.of_nodes, *self.matrices, *batch.of_edges, np.int32(splits)),
            *(vectors, sums, weights),
            *(self.queries, *batch.relations, np.int32(rules.relation_width)),
            *(np.float32(rules.node_penalty), np.float32(rules.relation_penalty)),
            *(np.int32(rules.power), slopes, self.in_asked, losses),
        )

    def update(self, table: Table, optimizer: Optimizer, rates: DeviceArray) -> None:
        """Change the relations of a table, before the nodes of the batch change."""
        rules, relations = self.batch.tiles.rules, self.batch.relations
        if rules.model == Model.RESCAL:
            changed = *matrix(table.values), *matrix(table.state), rates
            self._update_matrices(optimizer.name, *changed)
            return
        own, shared = _divided(relations[0], rules)
        in_matrices = cp.zeros((len(own), len(shared)), cp.float32)
        self._update_matrices("-1", *matrix(in_matrices), *matrix(None), rates)
        slopes = cp.empty((len(own) + len(shared), rules.relation_width), cp.float32)
        product(in_matrices, shared, slopes[: len(own)])
        product(in_matrices.T, own, slopes[len(own) :])
        launch(
            _FILE,
            f"update_composed<{optimizer.name}>",
            32 * (min(len(own), len(self.queries)) + len(shared)),
            *(self.rows.keys, np.int64(len(self.rows.keys)), self.rows.listed, self.rows.begins),
            *(np.int64(len(own)), np.int32(len(shared)), np.int32(rules.relation_width), slopes),
            *(np.float32(rules.relation_penalty), np.int32(rules.power), *relations),
            *(*matrix(table.values), *matrix(table.state), rates),
        )

    def _update_matrices(self, optimizer: str, *changed: Any) -> None:
        heads, tails, _, inverse = self.batch.ends
        rules, most = self.batch.tiles.rules, min(len(self.matrices[0]), len(self.queries))
        tiles = most * (-(-rules.dim // _TILE)) ** 2
        if not tiles:
            return
        launch_blocks(
            _FILE,
            f"update_matrices<{optimizer}>",
            min(tiles, _BLOCKS * processors()),
            _THREADS,
            *(*self.batch.of_nodes, heads, tails, inverse, np.int64(self.batch.tiles.edges)),
            *(np.int32(self.batch.head_sides), self.in_asked, self.rows.keys),
            *(np.int64(len(self.rows.keys)), self.rows.listed, self.rows.begins),
            *(np.float32(rules.relation_penalty), np.int32(rules.power), *self.matrices),
            *changed,
        )


def _divided(relations: DeviceArray, rules: EmbedRules) -> tuple[DeviceArray, DeviceArray]:
    """Return the rows of relations, and those that all share."""
    count = len(relations) - rules.shared_rows
    return relations[:count], relations[count:]
