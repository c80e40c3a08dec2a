"""Yesterday's partition: which nodes of today have a part in it, and which of its parts stay."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.csr import EDGE_COLUMNS
from penstock.errors import UsageError
from penstock.files import FileEntry, link
from penstock.graph import Graph
from penstock.graph_changes import RowPrints
from penstock.partition.part import Partition, part_folder

_OF_ROWS = ("indptr", "indices", "weights", "relations", "times")
_OF_NODES = ("owned", "ghosts", "receive_starts")


@dataclass(frozen=True, eq=False)
class Base:
    """Yesterday's partition, open.

    known    (nodes,) int32: the part of each node of today, -1 if it is new
    changed  (nodes,) bool: whether its row is another one
    """

    partition: Partition
    known: Array
    changed: Array

    @classmethod
    def open(cls, path: Path, graph: Graph, k: int) -> Base:
        """Open a partition, which is in its graph, a base of ``graph``."""
        partition, before = Partition.open(path), Graph.open(path.absolute().parent.parent)
        if partition.k != k:
            raise UsageError(
                f"--base {path} has other parts", expected=f"{k} parts", got=f"{partition.k}"
            )
        columns = [name for name in EDGE_COLUMNS if name in graph.manifest.dtypes]
        rows = RowPrints.of(before, set(columns) & before.manifest.dtypes.keys())
        now = RowPrints.of(graph, columns, known=rows)
        changed = now.changed_since(rows, before.path)
        known = np.full(graph.num_nodes, -1, np.int32)
        both = min(graph.num_nodes, before.num_nodes)
        same = rows.bits[1, :both] == now.bits[1, :both]
        known[:both][same] = partition.assignment[:both][same]
        return cls(partition, known, changed)

    @property
    def whole_cut(self) -> float:
        """The share of edges that were cut when the graph was last cut whole."""
        return self.partition.manifest.whole_cut

    def stays(self, rank: int, owned: Array, parts: Array) -> bool:
        """Return whether a part has the same nodes and rows, whose neighbours have the same
        parts."""
        part = self.partition.part(rank)
        return bool(
            part.owned.dtype == owned.dtype
            and np.array_equal(part.owned, owned)
            and not self.changed[owned].any()
            and np.array_equal(parts[part.ghosts], self.partition.assignment[part.ghosts])
        )

    def link_rows(self, rank: int, root: Path) -> list[FileEntry]:
        """Link the files of a part's rows."""
        names = (f"{part_folder(rank)}/{name}.npy" for name in (*_OF_ROWS, *_OF_NODES))
        files = self.partition.manifest.files
        entries = [files[name] for name in names if name in files]
        for entry in entries:
            link(self.partition.path / entry.name, root / entry.name)
        return entries
