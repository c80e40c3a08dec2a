"""Yesterday's partition, and which nodes of today have a part in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.graph_changes import same_nodes
from penstock.partition.part import Partition


@dataclass(frozen=True, eq=False)
class Base:
    """Yesterday's partition, open.

    known  (nodes,) int32: the part of each node of today, -1 if it is new
    """

    partition: Partition
    known: Array

    @classmethod
    def open(cls, path: Path, graph: Graph, k: int) -> Base:
        """Open a partition, which is in its graph, a base of ``graph``."""
        partition, before = Partition.open(path), Graph.open(path.absolute().parent.parent)
        if partition.k != k:
            raise UsageError(
                f"--base {path} has other parts", expected=f"{k} parts", got=f"{partition.k}"
            )
        same = np.flatnonzero(same_nodes(before, graph))
        known = np.full(graph.num_nodes, -1, np.int32)
        known[same] = partition.assignment[same]
        return cls(partition, known)

    @property
    def whole_cut(self) -> float:
        """The share of edges that were cut when the graph was last cut whole."""
        return self.partition.manifest.whole_cut
