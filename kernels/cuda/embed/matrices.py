"""A batch whose relations are matrices: what differs from relations that are rows.

A gradient per edge would be as large as its matrix. So the gradients of queries are kept, and the
matrices' are sums of products over the edges of each; see matrices.cu.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import cupy as cp
import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.embed.sort import SortedRows, sort_rows
from penstock.kernels.cuda.embed.tiles import Tiles, pieces_of, processors
from penstock.kernels.cuda.gnn.launch import matrix
from penstock.kernels.cuda.module import launch, launch_blocks
from penstock.kernels.embed_rules import EmbedRules, Optimizer, Side, Table

_FILE, _EDGES_FILE = "embed/matrices", "embed/edges"
_THREADS, _TILE = 256, 64  # of update_matrices
_BLOCKS = 8  # per multiprocessor


@dataclass(frozen=True, eq=False)
class MatrixBatch:
    """The queries of a batch, their gradients, and the order of both by matrix.

    nodes, matrices  rows of values, and their strides
    ends             heads, tails, relations and the distance to inverses
    head_sides       a bit for each side: whether heads are replaced
    """

    nodes: tuple[Any, np.int64]
    matrices: tuple[Any, np.int64]
    ends: tuple[Any, ...]
    rules: EmbedRules
    edges: int
    head_sides: int
    queries: DeviceArray
    in_asked: DeviceArray
    rows: SortedRows

    @classmethod
    def of(
        cls,
        nodes: tuple[Any, np.int64],
        matrices: tuple[Any, np.int64],
        ends: tuple[Any, ...],
        rules: EmbedRules,
        edges: int,
        head_sides: int,
    ) -> MatrixBatch:
        """Return a batch; the queries are computed by ``pack``."""
        none, sides = cp.empty(0, cp.int32), len(rules.sides)
        adds = tuple(rules.inverse if side == Side.HEAD else 0 for side in rules.sides)
        rows = sort_rows((none, none, none), 0, len(matrices[0]), ends[2], adds)
        made = (cp.empty((sides * edges, rules.dim), cp.float32) for _ in range(2))
        return cls(nodes, matrices, ends, rules, edges, head_sides, *made, rows)

    @property
    def _of_nodes(self) -> tuple[Any, ...]:
        return *self.nodes, np.int32(self.rules.dim)

    @property
    def _of_edges(self) -> tuple[Any, ...]:
        sides = np.int32(len(self.rules.sides))
        return *self.matrices, *self.ends, np.int64(self.edges), sides, np.int32(self.head_sides)

    def pack(
        self,
        negatives: DeviceArray,
        tiles: Tiles,
        queries: DeviceArray,
        query_notes: DeviceArray,
        others: DeviceArray,
        negative_notes: DeviceArray,
    ) -> None:
        """Compute the queries, and write them and negatives in the format of tiles."""
        width = np.int32(tiles.width)
        launch(
            _FILE,
            f"matrix_queries<{pieces_of(tiles.width)}>",
            32 * len(self.queries),
            *(*self._of_nodes, *self._of_edges, width, self.queries, queries, query_notes),
        )
        launch(
            _EDGES_FILE,
            f"pack_rows<{self.rules.model.name}, {pieces_of(tiles.width)}>",
            32 * negatives.size,
            *(*self._of_nodes, negatives, np.int64(negatives.size), width, others, negative_notes),
        )

    def gradients(
        self,
        splits: int,
        vectors: DeviceArray,
        sums: DeviceArray,
        weights: DeviceArray,
        slopes: DeviceArray,
        losses: DeviceArray,
        *,
        exponential: bool,
    ) -> None:
        """Write the gradients of nodes and of queries, and the losses of edges."""
        rules = self.rules
        launch(
            _FILE,
            f"matrix_gradients<{str(exponential).lower()}, {pieces_of(rules.dim)}>",
            32 * self.edges,
            *(*self._of_nodes, *self._of_edges, np.int32(splits), vectors, sums, weights),
            *(self.queries, np.float32(rules.node_penalty), np.float32(rules.relation_penalty)),
            *(np.int32(rules.power), slopes, self.in_asked, losses),
        )

    def update(self, table: Table, optimizer: Optimizer, rates: DeviceArray) -> None:
        """Change the matrices of a table, before the nodes of the batch change."""
        heads, tails, _, inverse = self.ends
        rules, most = self.rules, min(len(table.values), len(self.queries))
        tiles = most * (-(-rules.dim // _TILE)) ** 2
        if not tiles:
            return
        launch_blocks(
            _FILE,
            f"update_matrices<{optimizer.name}>",
            min(tiles, _BLOCKS * processors(cp.cuda.Device().id)),
            _THREADS,
            *(*self._of_nodes, heads, tails, inverse, np.int64(self.edges)),
            *(np.int32(self.head_sides), self.in_asked, self.rows.keys),
            *(np.int64(len(self.rows.keys)), self.rows.listed, self.rows.begins),
            *(np.float32(rules.relation_penalty), np.int32(rules.power), *self.matrices),
            *(*matrix(table.values), *matrix(table.state), rates),
        )
