"""Which nodes may be answers: the same for all questions, or the nodes that a relation leads to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.graph import Graph
from penstock.kernels.cpu.philox import random_keys
from penstock.kernels.embed_rules import Side
from penstock.kernels.streams import Stream
from penstock.workers.embed.edges import Edges, train_pieces
from penstock.workers.embed.layout.nodes import NodeLayout

_CANDIDATES = 1 << 62  # the first draw of EMBED_CANDIDATE; see also ranking.py
Groups = Callable[[Side, Array], Iterator[tuple[Array | slice, Array | None]]]
"""From a side and the relations of its questions to groups, each with the positions of its
candidates, ascending; None: all nodes."""


@dataclass(frozen=True)
class Candidates:
    """The candidates of a task: by default all nodes.

    bits   one per node, packed
    side   whose answers these bits limit; None: both
    drawn  how many nodes to draw with ``seed``
    graph  by relation: the one that the run was trained on
    typed  by relation: whether the run has relations
    """

    bits: bytes | None = None
    side: Side | None = None
    drawn: int | None = None
    seed: int = 0
    graph: Path | None = None
    typed: bool = True

    def mask(self, nodes: int) -> Array | None:
        """Return whether each node is a candidate, if bits decide that."""
        if self.bits is None:
            return None
        return np.unpackbits(np.frombuffer(self.bits, np.uint8), count=nodes).view(bool)

    def groups(self, layout: NodeLayout) -> Groups:
        """Return the function that groups questions by their candidates."""
        if (mask := self.mask(layout.nodes)) is not None:
            return _same_for_all(_placed(np.flatnonzero(mask), layout), self.side)
        if self.graph is not None:
            return _by_relation(Graph.open(self.graph), layout, typed=self.typed)
        if self.drawn is None or self.drawn >= layout.nodes:
            return _same_for_all(None)
        keys = random_keys(self.seed, Stream.EMBED_CANDIDATE, _CANDIDATES, layout.nodes)
        return _same_for_all(np.sort(np.argpartition(keys, self.drawn)[: self.drawn]))


ALL_NODES = Candidates()


def _same_for_all(positions: Array | None, only: Side | None = None) -> Groups:
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
