"""The split that a run keeps: split.parquet, a row a node of the graph that it was trained on.

id      the user's id
split   int8: 0 train, 1 valid, 2 test; null: none
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy
from penstock.errors import CorruptFile, UsageError
from penstock.files import atomic
from penstock.graph import Graph

_BATCH = 1 << 20  # nodes that are copied at a time


@dataclass(frozen=True)
class SplitFile:
    """A split.parquet, and how its rows are found for a graph's nodes.

    by_id  by the user's ids, for another graph than the one it was kept for: nodes that it does
           not list are in no split. Otherwise row i is node i
    rest   nodes that it has in no split are in that of their graph, if it has one
    """

    path: Path
    by_id: bool = False
    rest: bool = False

    def splits(self, graph: Graph, nodes: Array | None = None) -> Array:
        """Return 0, 1, 2 or -1 (none) for nodes of a graph, by default all: (nodes,) int8."""
        import pyarrow.parquet as pq

        names = ["id", "split"] if self.by_id else ["split"]
        if not self.path.is_file():
            raise self._damaged("no such file")
        with pq.ParquetFile(self.path) as file:
            table = file.read(columns=names)
        splits = as_numpy(table["split"], -1).astype(np.int8)
        if self.by_id:
            listed, splits = splits, np.full(graph.num_nodes, -1, np.int8)
            with suppress(UsageError):  # ids of another type are ids of other nodes
                numbers = graph.internal_ids(table["id"].combine_chunks())
                splits[numbers[numbers >= 0]] = listed[numbers >= 0]
        elif len(splits) != graph.num_nodes:
            raise self._damaged(f"{len(splits)} rows for {graph.num_nodes} nodes")
        if self.rest and graph.manifest.splits:
            splits = np.where(splits >= 0, splits, _own_splits(graph)).astype(np.int8)
        return splits if nodes is None else splits[nodes]

    def differing(self, graph: Graph) -> int:
        """Return how many nodes are in another split than the graph's own says."""
        own = _own_splits(graph) if graph.manifest.splits else -1
        return int(np.count_nonzero(self.splits(graph) != own))

    def _damaged(self, got: str) -> CorruptFile:
        return CorruptFile(
            f"{self.path} is damaged",
            expected="the split that the run was trained on, a row a node",
            got=got,
            remedy="Copy the run again, or train again with --overwrite",
        )


def _own_splits(graph: Graph) -> Array:
    return as_numpy(graph.node_column("split"), -1)


def save_split(path: Path, graph: Graph, splits: Array) -> None:
    """Write split.parquet for the nodes of a graph."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"id": graph.user_ids(), "split": as_arrow(splits, splits < 0)})
    with atomic(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")


def copy_split(path: Path, graph: Graph) -> None:
    """Write split.parquet with the graph's own split, a batch of nodes at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = ["id", "split"]
    with atomic(path) as temporary, pq.ParquetFile(graph.path / "nodes.parquet") as nodes:
        schema = pa.schema([nodes.schema_arrow.field(name) for name in names])
        with pq.ParquetWriter(temporary, schema, compression="zstd") as kept:
            for batch in nodes.iter_batches(_BATCH, columns=names):
                kept.write_batch(batch.select(names))
