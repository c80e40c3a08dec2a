"""A warm start: nodes begin with the vector and optimizer state of the same id in another run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import positions, read_column
from penstock.errors import GraphError, UsageError
from penstock.files import sha256_of
from penstock.graph import Graph
from penstock.kernels.embed_rules import EmbedRules
from penstock.workers.embed.source import open_checkpoint
from penstock.workers.embed.storage import Slot
from penstock.workers.embed.storage.versions import BEST, Checkpoints
from penstock.workers.resources.device import to_device

_BYTES = 1 << 22  # read at a time
IDS = "ids.parquet"  # file of a run: the user's id of every node, by number


class WarmStart:
    """The nodes and relations of a graph that another run has, too.

    opened       closes the other run's file
    sha256       of the checkpoint to begin with; None: any
    initialised  number of nodes and relations that begin with vectors of the run
    steps        of the optimizer before, needed for Adam's bias correction
    """

    def __init__(
        self,
        run: Path,
        names: tuple[str, ...],
        graph: Graph,
        rules: EmbedRules,
        opened: ExitStack,
        sha256: str | None = None,
    ) -> None:
        folder = run / "checkpoints"
        self.source, found = open_checkpoint(folder, newest(folder))
        opened.callback(self.source.close)
        self._checkpoint = Checkpoints(folder).path(found.name)
        self._sha256 = sha256 or sha256_of(self._checkpoint)
        self._check_same()
        self.tensors = found.tensors
        self.steps = found.about["batches"] + found.about["steps"]
        nodes = numbers_of(graph.user_ids(), run)
        positions = self.source.layout.positions
        if positions is not None:
            nodes = np.where(nodes < 0, -1, positions[nodes])
        self.positions = nodes
        now = graph.manifest.relations or ()
        number = {name: i for i, name in enumerate(names)}
        self.relations = np.array([number.get(name, -1) for name in now], np.int64)
        self.old_relations, self.inverse = len(names), rules.inverse
        self.shared = rules.shared_rows
        self.initialised = {
            "nodes": int(np.count_nonzero(nodes >= 0)),
            "relations": int(np.count_nonzero(self.relations >= 0)),
        }

    def _check_same(self) -> None:
        """Raise if the other run has a new checkpoint by now: ranks would mix the two."""
        if sha256_of(self._checkpoint) != self._sha256:
            raise UsageError(
                f"{self._checkpoint} was replaced while a training run began with its vectors",
                expected="a run that does not train meanwhile",
                remedy="Wait for its end, and train again",
            )

    def fill(self, nodes: Array, slot: Slot) -> None:
        """Fill the rows of ``nodes``, the first of a slot, with their values in the other run, if
        any.
        """
        wanted = self.positions[nodes]
        here = np.flatnonzero(wanted >= 0)
        for at, rows, is_state in self._rows(wanted[here]):
            slot[is_state][here[at]] = to_device(rows)

    def _rows(self, wanted: Array) -> Iterator[tuple[Array, Array, bool]]:
        """Yield blocks of rows, values or states, with their indices in ``wanted``."""
        order = np.argsort(wanted, kind="stable")
        ordered, layout = wanted[order], self.source.layout
        for partition in range(layout.partitions):
            first, stop = int(layout.starts[partition]), int(layout.starts[partition + 1])
            if np.searchsorted(ordered, first) == np.searchsorted(ordered, stop):
                continue
            low, high = np.searchsorted(ordered, [first, stop])
            for is_state, array in enumerate(self._mapped(partition)):
                most = max(1, _BYTES // (4 * array.shape[1]))
                for begin in range(low, high, most):
                    some = slice(begin, min(begin + most, high))
                    yield order[some], array[ordered[some] - first], bool(is_state)

    def _mapped(self, partition: int) -> list[Array]:
        try:
            return self.source.mapped(partition)
        except GraphError:
            self._check_same()  # training removes files that no checkpoint names
            raise

    def fill_relations(self, values: Array, state: Array) -> None:
        """Fill relations with their values in the other run, if any; and their inverses, and shared
        rows."""
        here = np.flatnonzero(self.relations >= 0)
        old = self.relations[here]
        for array, name in ((values, "relations"), (state, "relations_state")):
            array[here] = self.tensors[name][old]
            if self.inverse:
                array[self.inverse + here] = self.tensors[name][self.old_relations + old]
            old_shared = self.tensors[name][len(self.tensors[name]) - self.shared :]
            array[len(array) - self.shared :] = old_shared


def numbers_of(ids: Any, run: Path) -> Array:
    """Return the run's node of each of a graph's ids, -1 if the run does not have the id.

    Ids of another type are compared as text.
    """
    import pyarrow as pa

    old = read_column(run / IDS, "id")
    if ids.type != old.type:
        ids, old = ids.cast(pa.large_string()), old.cast(pa.large_string())
    return positions(old, ids)


def newest(folder: Path) -> str:
    """Return the checkpoint to begin with: the best or, if there is none, the last."""

    return BEST if Checkpoints(folder).has(BEST) else "last"
