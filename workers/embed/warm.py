"""A warm start: nodes begin with the vector and optimizer state of the same id in another run.

New nodes begin with what their edges to known nodes predict, and the mean of the states of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from penstock.arrays import Array
from penstock.arrow import positions, read_column
from penstock.errors import changed_input
from penstock.files import sha256_of
from penstock.graph import Graph
from penstock.kernels.embed_rules import EmbedRules, Model, Side
from penstock.workers.embed.edges import Edges, train_pieces
from penstock.workers.embed.evaluation.means import Means, fit_of
from penstock.workers.embed.source import open_checkpoint
from penstock.workers.embed.storage import Slot
from penstock.workers.embed.storage.versions import BEST, Checkpoints
from penstock.workers.resources.device import to_device, to_host

if TYPE_CHECKING:
    from penstock.workers.embed.task import TrainTask

_BYTES = 1 << 22  # read at a time
_FITTED = 1000  # edges between known nodes of which the fit is taken
_NODES = 1 << 14  # new nodes whose neighbours are read together
_ENDS: tuple[Literal["left", "right"], ...] = ("left", "right")
IDS = "ids.parquet"  # file of a run: the user's id of every node, by number


class WarmStart:
    """The nodes and relations of a graph that another run has, too.

    opened       closes the other run's file
    initialised  number of nodes and relations that begin with vectors of the run
    steps        of the optimizer before, needed for Adam's bias correction
    """

    def __init__(self, task: TrainTask, graph: Graph, rules: EmbedRules, opened: ExitStack) -> None:
        assert task.init is not None
        self._checkpoints = Checkpoints(task.init / "checkpoints")
        self._name = newest(self._checkpoints.folder)
        self._mark = self._checkpoints.mark(self._name)
        with self._unchanged():
            self._read(task, task.init, graph, rules, opened)

    def _read(
        self, task: TrainTask, run: Path, graph: Graph, rules: EmbedRules, opened: ExitStack
    ) -> None:
        names, path = task.init_relations, self._checkpoints.path(self._name)
        self.source, found = open_checkpoint(self._checkpoints.folder, self._name)
        opened.callback(self.source.close)
        if sha256_of(path) != task.init_sha256:
            raise changed_input(path)
        self.tensors, self._shrink = dict(found.tensors), np.float32(task.shrink)
        if rules.relation_width and rules.model != Model.ROTATE:  # whose relations are angles
            self.tensors["relations"] = self.tensors["relations"] * self._shrink
        self.steps = found.about["batches"] + found.about["steps"]
        nodes = numbers_of(graph.user_ids(), run)
        positions = self.source.layout.positions
        if positions is not None:
            nodes = np.where(nodes < 0, -1, positions[nodes])
        self.positions = nodes
        self.relations = numbers_of_relations(graph, names)
        self.old_relations, self.inverse = len(names), rules.inverse
        self.shared = rules.shared_rows
        self._rules = replace(rules, inverse=self.inverse and self.old_relations)
        self._fit = 1.0  # of edges between known nodes
        self._new = self._edges_of_new(graph)
        self.initialised = {
            "nodes": int(np.count_nonzero(nodes >= 0)),
            "relations": int(np.count_nonzero(self.relations >= 0)),
            "means": len(np.unique(self._new[0])),
        }

    def _edges_of_new(self, graph: Graph) -> Array:
        """Return the edges between new and known nodes: (4, edges) of new nodes, ascending,
        positions of known ones, relations of the other run, and sides."""
        is_new, found = self.positions < 0, [np.empty((4, 0), np.int64)]
        if is_new.any() and not is_new.all():
            for edges in train_pieces(graph):
                relations = np.zeros(edges.count, np.int64)
                if self._rules.relation_width:
                    relations = self.relations[edges.relations]
                if not found[1:]:
                    self._fit = self._fit_of(edges, relations)
                ends = (Side.TAIL, edges.heads, edges.tails), (Side.HEAD, edges.tails, edges.heads)
                for side, given, new in ends:
                    at = np.flatnonzero(is_new[new] & ~is_new[given] & (relations >= 0))
                    sides = np.full(len(at), side)
                    found.append(
                        np.stack([new[at], self.positions[given[at]], relations[at], sides])
                    )
        if self._fit <= 0:  # known edges tell nothing: new nodes begin at random
            found = found[:1]
        every = np.concatenate(found, axis=1)
        return every[:, np.argsort(every[0], kind="stable")]

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Raise if the other run has a new checkpoint after the block: it would have read two."""
        try:
            yield
        finally:
            if self._checkpoints.mark(self._name) != self._mark:
                raise changed_input(self._checkpoints.path(self._name))

    def fill(self, nodes: Array, slot: Slot) -> None:
        """Fill the rows of ``nodes``, the first of a slot, with their values in the other run, if
        any.
        """
        with self._unchanged():
            self._fill(nodes, slot)

    def _fill(self, nodes: Array, slot: Slot) -> None:
        wanted = self.positions[nodes]
        here = np.flatnonzero(wanted >= 0)
        for at, rows, is_state in self._rows(wanted[here]):
            slot[is_state][here[at]] = to_device(rows)
        new = np.flatnonzero(wanted < 0)
        new = new[np.isin(nodes[new], self._new[0])]
        for low in range(0, len(new), _NODES):
            some = new[low : low + _NODES]
            values, state = self._means(nodes[some], to_host(slot[0][some]))
            slot[0][some] = to_device(values)
            if state.size:
                slot[1][some] = to_device(state)

    def _fit_of(self, edges: Edges, relations: Array) -> float:
        """Return how well some of the edges between known nodes fit."""
        heads, tails = self.positions[edges.heads], self.positions[edges.tails]
        known = np.flatnonzero((heads >= 0) & (tails >= 0) & (relations >= 0))
        known = known[:: max(1, len(known) // _FITTED)]
        if not len(known):
            return 1.0
        rows = np.empty((2 * len(known), self._rules.dim), np.float32)
        for at, found, is_state in self._rows(np.concatenate([heads[known], tails[known]])):
            if not is_state:
                rows[at] = found
        ends = rows[: len(known)], rows[len(known) :]
        return fit_of(*ends, self.tensors.get("relations"), relations[known], self._rules)

    def _means(self, nodes: Array, random: Array) -> tuple[Array, Array]:
        """Return the values and states with which new nodes begin.

        random  the values of nodes without neighbours
        """
        order = np.argsort(nodes)
        firsts, ends = (np.searchsorted(self._new[0], nodes[order], side) for side in _ENDS)
        edges = self._new[:, int(firsts[0]) : int(ends[-1])]
        edges = edges[:, np.isin(edges[0], nodes)]
        which = order[np.searchsorted(nodes[order], edges[0])]
        means = Means(len(nodes), self._rules)
        state = np.zeros((len(nodes), self._rules.state_width(self._rules.dim)), np.float32)
        for at, rows, is_state in self._rows(edges[1]):
            if is_state:
                np.add.at(state, which[at], rows)
                continue
            for side in Side:
                of = edges[3, at] == side
                table, relations = self.tensors.get("relations"), edges[2, at[of]]
                means.add(which[at[of]], np.asarray(rows[of]), table, relations, side)
        return means.vectors(self._fit, random), state / means.number[:, None].astype(np.float32)

    def _rows(self, wanted: Array) -> Iterator[tuple[Array, Array, bool]]:
        """Yield blocks of rows, values or states, with their indices in ``wanted``."""
        order = np.argsort(wanted, kind="stable")
        ordered, layout = wanted[order], self.source.layout
        for partition in range(layout.partitions):
            first, stop = int(layout.starts[partition]), int(layout.starts[partition + 1])
            if np.searchsorted(ordered, first) == np.searchsorted(ordered, stop):
                continue
            low, high = np.searchsorted(ordered, [first, stop])
            for is_state, array in enumerate(self.source.mapped(partition)):
                most = max(1, _BYTES // (4 * array.shape[1]))
                for begin in range(low, high, most):
                    some = slice(begin, min(begin + most, high))
                    rows = array[ordered[some] - first]
                    if not is_state:
                        rows *= self._shrink
                    yield order[some], rows, bool(is_state)

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


def numbers_of_relations(graph: Graph, names: tuple[str, ...] | None) -> Array:
    """Return the run's number of each of a graph's relations, -1 if the run does not have it."""
    number = {name: i for i, name in enumerate(names or ())}
    now = graph.manifest.relations or ()
    return np.array([number.get(name, -1) for name in now], np.int32)


def newest(folder: Path) -> str:
    """Return the checkpoint to begin with: the best or, if there is none, the last."""
    return BEST if Checkpoints(folder).has(BEST) else "last"
