"""The partition of each node, and its row there.

The nodes of a partition are consecutive in an order; ``positions`` has the position of each node.
If the order is that of the numbers, partition p has nodes ``starts[p] .. starts[p + 1] - 1``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.bounds import check_indices, check_length
from penstock.csr import id_dtype, offsets_of
from penstock.files import save_npy
from penstock.graph import load_npy
from penstock.workers.embed.storage import RESTORE


@dataclass(frozen=True, eq=False)
class NodeLayout:
    """The location of every node.

    starts  (partitions + 1,) int64: first position of each partition
    positions  (nodes,): position of each node; None: its own number
    """

    starts: Array
    positions: Array | None = None

    @staticmethod
    def ranges(nodes: int, partitions: int) -> NodeLayout:
        """Return partitions of consecutive nodes whose sizes differ by at most one."""
        return NodeLayout(np.arange(partitions + 1, dtype=np.int64) * nodes // partitions)

    @staticmethod
    def of_assignment(parts: Array, partitions: int) -> NodeLayout:
        """Return the layout of an assignment: ``parts``, (nodes,) in 0 .. partitions - 1."""
        positions = np.empty(len(parts), id_dtype(len(parts)))
        positions[np.argsort(parts, kind="stable")] = np.arange(len(parts), dtype=positions.dtype)
        return NodeLayout(offsets_of(np.bincount(parts, minlength=partitions)), positions)

    @property
    def nodes(self) -> int:
        """How many nodes."""
        return int(self.starts[-1])

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self.starts) - 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of nodes of each partition."""
        return tuple(int(size) for size in np.diff(self.starts))

    @cached_property
    def order(self) -> Array | None:
        """The nodes, those of a partition one after another; None: by their numbers."""
        if self.positions is None:
            return None
        order = np.empty_like(self.positions)
        order[self.positions] = np.arange(self.nodes, dtype=order.dtype)
        return order

    def nodes_of(self, partition: int) -> Array:
        """Return the nodes of a partition, by row."""
        start, stop = int(self.starts[partition]), int(self.starts[partition + 1])
        if self.order is None:
            return np.arange(start, stop, dtype=id_dtype(self.nodes))
        return self.order[start:stop]

    def save(self, folder: Path) -> None:
        """Write the positions to ``folder``; checkpoints have the starts."""
        if self.positions is not None:
            save_npy(folder, "places.npy", self.positions)

    @staticmethod
    def open(folder: Path, starts: Array) -> NodeLayout:
        """Return the layout of a checkpoint's starts, its positions mapped, and each checked."""
        if len(starts) == 2:
            return NodeLayout(starts)
        path, nodes = folder / "places.npy", int(starts[-1])
        positions = load_npy(path, remedy=RESTORE)
        check_length(positions, nodes, path, remedy=RESTORE)
        check_indices(positions, nodes, path, remedy=RESTORE)
        return NodeLayout(starts, positions)
