"""A piece of tables of edges: a range of graphs is read from runs, nodes numbered by graph."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from penstock.arrow import as_numpy
from penstock.kernels.centrality_rules import GraphBatch
from penstock.pipelines.centrality.one_graph import load_batch, save_batch, without_bad_weights
from penstock.pipelines.centrality.pieces import Piece, PieceSpec
from penstock.pipelines.etl.nodes.sorted_ids import SortedIds, as_user_has_them
from penstock.pipelines.etl.zoos.runs import GraphRange, Run


@dataclass(frozen=True, eq=False, kw_only=True)
class TablePiece(PieceSpec):
    """Some graphs of tables of edges.

    part      their range; runs: those that may have some of them
    unsigned  whether ids of nodes are unsigned; see Layout.id_type
    added     whether weights of parallel edges are added
    """

    part: GraphRange
    runs: list[Run]
    unsigned: bool
    directed: bool
    added: bool

    def read(self, *, weighted: bool) -> Piece:
        """Read the rows, and number the nodes of each graph."""
        from penstock.kernels.cpu.small_graphs import rows_of_edges

        read = self.part.read(self.runs)
        failed, weights = dict[int, str](), None
        if weighted:
            weights = np.array(as_numpy(read.columns.column("weight"), np.nan))
            weights[(read.us < 0) | (read.vs < 0)] = 1  # a row without an edge has no weight
            weights, failed = without_bad_weights(weights, read.starts)
        rows = read.starts, read.ptr, read.us, read.vs, weights
        found = rows_of_edges(*rows, directed=self.directed, added=self.added)
        batch = GraphBatch(read.ptr, *found[:3], directed=self.directed, sums=found[3])
        nodes = as_user_has_them(read.ids.to_arrow(), unsigned=self.unsigned)
        return Piece(batch, failed, self.ids, as_short(nodes))

    def keep(self, piece: Piece, stem: Path) -> KeptPiece:
        """Write the graph that was read."""
        save_batch(piece.batch, stem)
        SortedIds(piece.nodes).save(stem.parent, f"{stem.name}-nodes")
        return KeptPiece(
            ids=self.ids,
            items=self.items,
            cost=self.cost,
            matrix=piece.batch.nodes**2,
            large=True,
            stem=stem,
            directed=piece.batch.directed,
            failed=piece.failed,
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class KeptPiece(PieceSpec):
    """A large graph that was read from tables and kept: .npy files of this stem."""

    stem: Path
    directed: bool
    failed: dict[int, str]

    def read(self, *, weighted: bool) -> Piece:
        """Map it."""
        batch = load_batch(self.stem, directed=self.directed)
        nodes = SortedIds.load(self.stem.parent, f"{self.stem.name}-nodes").to_arrow()
        return Piece(batch, self.failed, self.ids, nodes)


def as_short(ids: pa.Array) -> pa.Array:
    """Return ids, texts with offsets of 32 bits, which suffice for a piece."""
    return ids.cast(pa.string()) if pa.types.is_large_string(ids.type) else ids
