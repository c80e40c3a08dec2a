"""A warm start: the vectors and the optimizer's state of what another run knows by id."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.arrow import read_column
from penstock.graph import Graph
from penstock.kernels.embed_rules import EmbedRules
from penstock.workers.embed.buffer import state_rows
from penstock.workers.embed.source import open_checkpoint
from penstock.workers.embed.storage import Slot
from penstock.workers.embed.versions import BEST, Checkpoints

IDS = "ids.parquet"  # of a run: the user's id of every node, in the order of their numbers


class WarmStart:
    """What of a graph another run knows.

    known  how many nodes and relations
    """

    def __init__(self, run: Path, names: tuple[str, ...], graph: Graph, rules: EmbedRules) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        folder = run / "checkpoints"
        self.source, found = open_checkpoint(folder, newest(folder))
        self.tensors = found.tensors
        old = read_column(run / IDS, "id").combine_chunks()
        ids = graph.user_ids()
        ids = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
        at = pc.index_in(ids.cast(old.type), value_set=old)
        nodes = np.asarray(pc.fill_null(at.cast(pa.int64()), -1))
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
        """Give the known ones of ``nodes``, which are the first rows of a slot, what they had."""
        wanted = self.places[nodes]
        layout = self.source.layout
        for partition in range(layout.partitions):
            first, stop = int(layout.starts[partition]), int(layout.starts[partition + 1])
            here = np.flatnonzero((wanted >= first) & (wanted < stop))
            if len(here):
                held = self.source.states(partition)
                old = wanted[here] - first
                slot[0][here] = held[0][old]
                state_rows(slot)[here] = state_rows(held)[old]

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


def newest(folder: Path) -> str:
    """Return the checkpoint to begin with: the best, or the last where there is none."""
    return BEST if Checkpoints(folder).has(BEST) else "last"
