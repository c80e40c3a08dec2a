"""Which nodes may be answers: the same for all questions, or the nodes that a relation leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.graph import Graph
from penstock.kernels.embed_rules import Side
from penstock.workers.embed.edges import Edges, train_pieces
from penstock.workers.embed.layout.nodes import NodeLayout

Groups = Callable[[Side, Array], Iterator[tuple[Array | slice, Array | None]]]
"""From a side and the relations of its questions to groups, each with the positions of its
candidates, ascending; None: all nodes."""


@dataclass(frozen=True)
class Candidates:
    """The candidates of a task.

    nodes  how many the run has
    bits   one per node, packed; None: by relation
    graph  by relation: the one that the run was trained on
    typed  by relation: whether the run has relations
    side   whose answers are limited; None: both
    """

    nodes: int
    bits: bytes | None = None
    graph: Path | None = None
    typed: bool = True
    side: Side | None = None

    @staticmethod
    def of(mask: Array) -> Candidates:
        """Return the nodes of a mask as candidates."""
        return Candidates(len(mask), np.packbits(mask).tobytes())

    def limiting(self, corrupt: str) -> Candidates:
        """Return the same for the side that the training corrupts: tail, head or both."""
        return replace(self, side=None if corrupt == "both" else Side[corrupt.upper()])

    @property
    def mask(self) -> Array:
        """Whether each node is a candidate."""
        assert self.bits is not None
        packed = np.frombuffer(self.bits, np.uint8)
        return np.unpackbits(packed, count=self.nodes).view(bool)

    def groups(self, layout: NodeLayout) -> Groups:
        """Return the function that groups questions by their candidates."""
        if self.bits is not None:
            return same_for_all(_placed(np.flatnonzero(self.mask), layout), self.side)
        assert self.graph is not None
        return _by_relation(Graph.open(self.graph), layout, typed=self.typed)


def same_for_all(positions: Array | None = None, only: Side | None = None) -> Groups:
    """Return a function that puts all questions of a side, or of both, into one group."""

    def groups(side: Side, relations: Array) -> Iterator[tuple[Array | slice, Array | None]]:
        yield slice(None), positions if only in (None, side) else None

    return groups


def _by_relation(graph: Graph, layout: NodeLayout, *, typed: bool) -> Groups:
    """Group by relation: its candidates are the nodes, or all nodes of the types, that it leads to.

    A relation without training edges leads to any node.
    """
    types = node_types(graph)
    count = graph.num_nodes if types is None else int(types.max(initial=0)) + 1
    seen = _seen(graph, types, count, typed=typed)

    @cache
    def positions(side: Side, relation: int) -> Array | None:
        low, high = np.searchsorted(seen[side], [relation * count, (relation + 1) * count])
        found = seen[side][low:high] - relation * count
        if not len(found):
            return None
        return _placed(found if types is None else np.flatnonzero(np.isin(types, found)), layout)

    def groups(side: Side, relations: Array) -> Iterator[tuple[Array | slice, Array | None]]:
        for relation in np.unique(relations).tolist():
            yield np.flatnonzero(relations == relation), positions(side, relation)

    return groups


def node_types(graph: Graph) -> Array | None:
    """Return the number of each node's type; None: nodes have no types."""
    if not graph.manifest.types:
        return None
    return np.asarray(graph.node_column("type").combine_chunks().dictionary_encode().indices)


def _seen(graph: Graph, types: Array | None, count: int, *, typed: bool) -> dict[Side, Array]:
    """Return ``relation * count + type`` of the answers to each side's questions, ascending; if
    nodes have no types, of these."""
    ends: dict[Side, list[Array]] = {side: [np.empty(0, np.int64)] for side in Side}
    for edges in train_pieces(graph, typed=typed):
        for side, answers in ((Side.TAIL, edges.tails), (Side.HEAD, edges.heads)):
            of = answers if types is None else types[answers]
            ends[side].append(np.unique(edges.relations.astype(np.int64) * count + of))
    return {side: np.unique(np.concatenate(keys)) for side, keys in ends.items()}


@dataclass(frozen=True, eq=False)
class RelationKinds:
    """Relations by the types of nodes that they lead to.

    of_relation  (relations,) the kind of each
    types        (nodes,) the type of each
    leads_to     for each side, (kinds, types) whether an answer has the type
    """

    of_relation: Array
    types: Array
    leads_to: dict[Side, Array]

    @property
    def count(self) -> int:
        """How many kinds there are."""
        return len(self.leads_to[Side.TAIL])

    @staticmethod
    def of(graph: Graph, relations: int) -> RelationKinds:
        """Return the kinds of a graph's relations; one without edges leads to any type."""
        types = node_types(graph)
        assert types is not None
        count = int(types.max(initial=0)) + 1
        every = []
        for keys in _seen(graph, types, count, typed=True).values():
            allowed = np.zeros((relations, count), bool)
            allowed.ravel()[keys] = True
            allowed[~allowed.any(axis=1)] = True
            every.append(allowed)
        found, kind = np.unique(np.concatenate(every, axis=1), axis=0, return_inverse=True)
        tails, heads = np.split(found, 2, axis=1)
        return RelationKinds(kind.ravel(), types, {Side.TAIL: tails, Side.HEAD: heads})


def _placed(nodes: Array, layout: NodeLayout) -> Array:
    return nodes if layout.positions is None else np.sort(layout.positions[nodes])


def mean_candidates(groups: Groups, edges: Edges, nodes: int) -> tuple[int, int]:
    """Return the mean number of candidates of the edges' questions for tails, and for heads."""
    means = []
    for side in Side:
        of_side = [
            len(edges.heads[of]) * (nodes if chosen is None else len(chosen))
            for of, chosen in groups(side, edges.relations)
        ]
        means.append(round(sum(of_side) / edges.count))
    return means[0], means[1]
