"""A warm start: the vectors and the optimizer's state of what another run knows by id."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import read_column
from penstock.graph import Graph
from penstock.kernels.embed_rules import EmbedRules
from penstock.workers.embed.buffer import state_rows
from penstock.workers.embed.source import open_checkpoint
from penstock.workers.embed.storage import Slot
from penstock.workers.embed.versions import BEST, Checkpoints
from penstock.workers.resources.device import to_device

IDS = "ids.parquet"  # of a run: the user's id of every node, in the order of their numbers


class WarmStart:
    """What of a graph another run knows.

    known  how many nodes and relations
    """

    def __init__(self, run: Path, names: tuple[str, ...], graph: Graph, rules: EmbedRules) -> None:
        folder = run / "checkpoints"
        self.source, found = open_checkpoint(folder, newest(folder))
        self.tensors = found.tensors
        self._reading = threading.Lock()  # the source has one partition in memory
        nodes = numbers_of(graph.user_ids(), run)
        places = self.source.layout.places
        if places is not None:
            nodes = np.where(nodes < 0, -1, places[nodes])
        self.places = nodes
        now = graph.manifest.relations or ()
        number = {name: i for i, name in enumerate(names)}
        self.relations = np.array([number.get(name, -1) for name in now], np.int64)
        self.old_relations, self.inverse = len(names), rules.inverse
        self.known = {
            "nodes": int(np.count_nonzero(nodes >= 0)),
            "relations": int(np.count_nonzero(self.relations >= 0)),
        }

    def fill(self, nodes: Array, slot: Slot) -> None:
        """Give the known ones of ``nodes``, which are the first rows of a slot, what they had.

        Threads may call it at once: several partitions may be filled while others are written.
        """
        with self._reading:
            self._fill(nodes, slot)

    def _fill(self, nodes: Array, slot: Slot) -> None:
        wanted = self.places[nodes]
        layout = self.source.layout
        for partition in range(layout.partitions):
            first, stop = int(layout.starts[partition]), int(layout.starts[partition + 1])
            here = np.flatnonzero((wanted >= first) & (wanted < stop))
            if len(here):
                held = self.source.states(partition)
                old = wanted[here] - first
                slot[0][here] = to_device(held[0][old])
                state_rows(slot)[here] = to_device(state_rows(held)[old])

    def fill_relations(self, values: Array, state: Array) -> None:
        """Give known relations what they had, their inverses too."""
        here = np.flatnonzero(self.relations >= 0)
        old = self.relations[here]
        for array, name in ((values, "relations"), (state, "relations_state")):
            array[here] = self.tensors[name][old]
            if self.inverse:
                array[self.inverse + here] = self.tensors[name][self.old_relations + old]

    def close(self) -> None:
        """Close the other run's file."""
        self.source.close()


def numbers_of(ids: Any, run: Path) -> Array:
    """Return which node of a run each of a graph's ids is, and -1 where it knows none of that id.

    Ids of another type are compared as text.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    old = read_column(run / IDS, "id").combine_chunks()
    ids = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    if ids.type != old.type:
        ids, old = ids.cast(pa.large_string()), old.cast(pa.large_string())
    found = pc.index_in(ids, value_set=old)
    return np.asarray(pc.fill_null(found.cast(pa.int64()), -1))


def newest(folder: Path) -> str:
    """Return the checkpoint to begin with: the best, or the last where there is none."""
    return BEST if Checkpoints(folder).has(BEST) else "last"
