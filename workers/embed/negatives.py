"""The negatives of an edge: a sample of all nodes, as far as partitions in memory allow.

Over the epochs, the negatives of an edge should be a sample of the whole graph. Nodes of the edge's
own partitions can always be drawn, other nodes only while their partition is in memory. So each own
partition is drawn from as often as its share of the graph, and other partitions in memory also
stand for all that are not. If only an edge's own partitions are in memory, as for some edges during
a swap, all negatives come from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache, cached_property
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.csr import offsets_of
from penstock.graph import Graph
from penstock.kernels.embed_rules import Batch, EmbedRules, NegativePool, Side
from penstock.workers.embed.buffer import Phase
from penstock.workers.embed.evaluation.candidates import RelationKinds
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.spec import BATCH, Training
from penstock.workers.resources.device import arrays_of_device, to_device

# A window has at most this many batches, and edges unless one batch has more: the larger it is,
# the longer one set of types is trained at a time, which costs quality.
_BATCHES, _EDGES = 16, 1 << 20


class Draw(Protocol):
    """Draws the negatives of a batch: (sides, chunks, N)."""

    def __call__(self, chunks: int, number: int, kind: int = 0) -> AnyArray:
        """Return them for the number of its chunks, the batch's own, and its edges' kind."""


class Negatives:
    """The negatives of a training run.

    kernels     the kernels of the device that trains
    candidates  whether each node may be a negative; None: all may
    kinds       an edge's negatives have the types that its relation leads to; None: any
    """

    def __init__(
        self,
        graph: Graph,
        training: Training,
        layout: NodeLayout,
        kernels: ModuleType,
        candidates: Array | None = None,
        kinds: RelationKinds | None = None,
    ) -> None:
        self.graph, self.training, self.layout, self.kernels = graph, training, layout, kernels
        self.candidates, self.kinds = candidates, kinds
        self.sides = training.rules(1).sides
        self._kind_of = None if kinds is None else to_device(kinds.of_relation)
        # Edges that are cut into batches together, so that each kind may fill some.
        self.window = size = training.batch or BATCH
        if kinds is not None:
            self.window *= max(1, min(kinds.count, _BATCHES, _EDGES // size))
        self._totals: dict[tuple[Side, int], float] = {}

    def of(self, phase: Phase, pair: Set[int], first_rows: Mapping[int, int]) -> Draw:
        """Return the function that draws negatives of edges between two partitions in a phase."""
        count, seed = self.training.negatives, self.training.seed
        if count == "all":
            # In the order of the phase, not of slots, so that sums do not depend on the slots.
            every = np.concatenate([first_rows[p] + self._rows(p) for p in phase.partitions])
            if not len(every):  # no candidate is in memory
                sizes = ((first_rows[p], self.layout.sizes[p]) for p in phase.partitions)
                every = np.concatenate([first + np.arange(size) for first, size in sizes])
            everything = to_device(every.astype(np.int32)[None, None])
            return lambda chunks, number, kind=0: everything
        sides = len(self.sides)
        if self.kinds is None:
            pool = self.pool(phase, pair, first_rows)

            def draw(chunks: int, number: int, kind: int = 0) -> AnyArray:
                drawn: AnyArray = self.kernels.draw_negatives(
                    seed, number, sides, chunks, count, pool
                )
                return drawn

            return draw

        @cache
        def pool_of(side: Side, kind: int) -> NegativePool:
            return self.pool(phase, pair, first_rows, (side, kind))

        def draw_of_kind(chunks: int, number: int, kind: int = 0) -> AnyArray:
            given = seed, number, sides, chunks, count
            drawn = [
                self.kernels.draw_negatives(*given, pool_of(side, kind))[place : place + 1]
                for place, side in enumerate(self.sides)
            ]
            joined: AnyArray = arrays_of_device().concatenate(drawn)
            return joined

        return draw_of_kind

    def batches(
        self,
        draw: Draw,
        number: int,
        rules: EmbedRules,
        heads: AnyArray,
        relations: AnyArray | None,
        tails: AnyArray,
        weights: AnyArray | None,
    ) -> Iterator[Batch]:
        """Yield the batches of a window of edges, with their negatives, kind by kind."""
        parts: Iterable[tuple[int, Any]] = [(0, slice(None))]
        if self._kind_of is not None and relations is not None:
            parts = self._by_kind(self._kind_of[relations])
        most = 1 if self.kinds is None else 2 * self.kinds.count
        for part, (kind, of) in enumerate(parts):
            yield Batch(
                heads[of],
                None if relations is None else relations[of],
                tails[of],
                draw(rules.chunks(len(heads[of])), number * most + part, kind),
                None if weights is None else weights[of],
            )

    def _by_kind(self, kinds: AnyArray) -> Iterator[tuple[int, AnyArray]]:
        """Yield edges of the same kind, at most a batch, and their kind."""
        module, size = arrays_of_device(), self.training.batch or BATCH
        for kind in module.unique(kinds).tolist():
            of = module.flatnonzero(kinds == kind)
            for begin in range(0, len(of), size):
                yield kind, of[begin : begin + size]

    def _rows(self, partition: int) -> Array:
        """Return the rows of a partition that may be negatives."""
        rows = np.arange(self.layout.sizes[partition])
        if self.candidates is None:
            return rows
        return rows[self.candidates[self.layout.nodes_of(partition)]]

    def pool(
        self,
        phase: Phase,
        pair: Set[int],
        first_rows: Mapping[int, int],
        of: tuple[Side, int] | None = None,
    ) -> NegativePool:
        """Return the rows that negatives of edges between two partitions are drawn from.

        of  a side, and the kind of relations
        """
        others = [p for p in phase.partitions if p not in pair]
        own = [p for p in phase.partitions if p in pair]
        partitions, sizes = own + others, self.layout.sizes
        if self.training.by_degree or self.candidates is not None or of is not None:
            first, start = _ranges([(first_rows[p], sizes[p]) for p in partitions])
            chance, other = self._alias(own, others, of)
            alias = to_device(chance), to_device(other)
            return NegativePool(to_device(first), to_device(start), *alias)
        # A range that is listed n times is drawn from n times as often.
        times = dict.fromkeys(own, max(len(others), 1))
        times |= dict.fromkeys(others, self.layout.partitions - len(own))
        first, start = _ranges(
            [(first_rows[p], sizes[p]) for p in partitions for _ in range(times[p])]
        )
        return NegativePool(to_device(first), to_device(start))

    def _alias(
        self, own: list[int], others: list[int], of: tuple[Side, int] | None
    ) -> tuple[Array, Array]:
        """Return the alias table of the nodes of partitions, one after another.

        Nodes of own partitions have the probability that they have in the whole graph; nodes of
        other partitions share the remaining probability. If none of them is a candidate, all are.
        """
        from penstock.kernels.cpu.walk.tables import alias_table

        mine, theirs = (
            [self._chances_of(self.layout.nodes_of(p), of) for p in partitions]
            for partitions in (own, others)
        )
        left = self._total(of) - sum(part.sum() for part in mine)
        there = sum(part.sum() for part in theirs)
        scale = left / there if there else 0.0
        weights = np.concatenate([*mine, *(part * scale for part in theirs)])
        if not weights.any():
            weights[:] = 1
        indptr = np.array([0, len(weights)], np.int64)
        chance, other = alias_table(indptr, weights.astype(np.float32))
        return chance, other

    def _chances_of(self, nodes: Array | slice, of: tuple[Side, int] | None) -> Array:
        chances: Array = self._chances[nodes]
        if of is None or self.kinds is None:
            return chances
        side, kind = of
        limited: Array = chances * self.kinds.leads_to[side][kind][self.kinds.types[nodes]]
        return limited

    def _total(self, of: tuple[Side, int] | None) -> float:
        if of is None:
            return float(self._chances.sum())
        if of not in self._totals:
            self._totals[of] = float(self._chances_of(slice(None), of).sum())
        return self._totals[of]

    @cached_property
    def _chances(self) -> Array:
        """Return the probability of each node times the number of nodes, by degree and uniform.

        The degree is the number of the node's edges, at least 1.
        """
        graph, share = self.graph, self.training.by_degree
        if not share:
            if self.candidates is None:
                return np.ones(graph.num_nodes)
            return self.candidates.astype(np.float64)
        degree = graph.degrees.copy()
        for number in range(graph.num_shards):
            degree += np.bincount(graph.shard(number).indices, minlength=graph.num_nodes)
        degree = np.maximum(degree, 1) ** self.training.degree_exponent
        found: Array = 1 - share + share * degree / degree.mean()
        return found if self.candidates is None else found * self.candidates


def _ranges(ranges: list[tuple[int, int]]) -> tuple[Array, Array]:
    """Return ranges of (first row, rows) as a pool has them."""
    first = np.array([first for first, _ in ranges], np.int64)
    return first, offsets_of(np.array([size for _, size in ranges], np.int64))
