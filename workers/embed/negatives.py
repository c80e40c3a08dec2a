"""Which nodes an edge is compared with: a sample of all, as far as partitions in memory allow.

Over the epochs the negatives of an edge should be a sample of the whole graph. Those of the edge's
own partitions could be drawn every time, those of others only while they happen to be in memory.
So each own partition gets its share of the whole graph, and the others in memory stand for
all that are not. Where nothing but an edge's own partitions is there, as for some edges while a
swap runs, they are all there is to draw from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from functools import cached_property
from types import ModuleType

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.csr import offsets_of
from penstock.graph import Graph
from penstock.kernels.embed_rules import NegativePool
from penstock.workers.embed.buffer import Phase
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.spec import Training
from penstock.workers.resources.device import to_device

Draw = Callable[[int, int], AnyArray]
"""Return the negatives of chunks of a batch, given how many and its number: (sides, chunks, N)."""


class Negatives:
    """The negatives of a training run.

    kernels     those of the device that trains
    candidates  whether each node may be a negative; None: all may
    """

    def __init__(
        self,
        graph: Graph,
        training: Training,
        layout: NodeLayout,
        kernels: ModuleType,
        candidates: Array | None = None,
    ) -> None:
        self.graph, self.training, self.layout, self.kernels = graph, training, layout, kernels
        self.candidates = candidates
        self.sides = len(training.rules(1).sides)

    def of(self, phase: Phase, pair: Set[int], first_rows: Mapping[int, int]) -> Draw:
        """Return what draws the negatives of edges between two partitions, in a phase."""
        count, seed = self.training.negatives, self.training.seed
        if count == "all":
            # In the order of the phase, whatever slots its partitions have: sums stay the same.
            every = np.concatenate([first_rows[p] + self._rows(p) for p in phase.partitions])
            if not len(every):  # no candidate is in memory
                sizes = ((first_rows[p], self.layout.sizes[p]) for p in phase.partitions)
                every = np.concatenate([first + np.arange(size) for first, size in sizes])
            everything = to_device(every.astype(np.int32)[None, None])
            return lambda chunks, number: everything
        pool = self.pool(phase, pair, first_rows)

        def draw(chunks: int, number: int) -> AnyArray:
            sides = self.sides
            drawn: AnyArray = self.kernels.draw_negatives(seed, number, sides, chunks, count, pool)
            return drawn

        return draw

    def _rows(self, partition: int) -> Array:
        """Return the rows of a partition that may be negatives."""
        rows = np.arange(self.layout.sizes[partition])
        if self.candidates is None:
            return rows
        return rows[self.candidates[self.layout.nodes_of(partition)]]

    def pool(self, phase: Phase, pair: Set[int], first_rows: Mapping[int, int]) -> NegativePool:
        """Return the rows that negatives of edges between two partitions are drawn from."""
        others = [p for p in phase.partitions if p not in pair]
        own = [p for p in phase.partitions if p in pair]
        partitions, sizes = own + others, self.layout.sizes
        if self.training.by_degree or self.candidates is not None:
            first, start = _ranges([(first_rows[p], sizes[p]) for p in partitions])
            chance, other = self._alias(own, others)
            alias = 2**32, to_device(chance), to_device(other)  # the table decides all
            return NegativePool(to_device(first), to_device(start), *alias)
        # A range that is listed several times is drawn from as often.
        times = dict.fromkeys(own, max(len(others), 1))
        times |= dict.fromkeys(others, self.layout.partitions - len(own))
        first, start = _ranges(
            [(first_rows[p], sizes[p]) for p in partitions for _ in range(times[p])]
        )
        return NegativePool(to_device(first), to_device(start))

    def _alias(self, own: list[int], others: list[int]) -> tuple[Array, Array]:
        """Return the alias table of the nodes of partitions, one after another.

        Nodes of own partitions are as likely as if the whole graph were there, those of the others
        as likely as all that are left together. If none of them is a candidate, all are.
        """
        from penstock.kernels.cpu.walk.tables import alias_table

        mine, theirs = (
            [self._chances[self.layout.nodes_of(p)] for p in partitions]
            for partitions in (own, others)
        )
        left = self._chances.sum() - sum(part.sum() for part in mine)
        there = sum(part.sum() for part in theirs)
        scale = left / there if there else 0.0
        weights = np.concatenate([*mine, *(part * scale for part in theirs)])
        if not weights.any():
            weights[:] = 1
        indptr = np.array([0, len(weights)], np.int64)
        chance, other = alias_table(indptr, weights.astype(np.float32))
        return chance, other

    @cached_property
    def _chances(self) -> Array:
        """How likely each node is, by degree and uniformly, times the number of nodes.

        Its degree is the number of edges that it is in; without any it counts as with one.
        """
        graph, share = self.graph, self.training.by_degree
        if not share:
            assert self.candidates is not None
            return self.candidates.astype(np.float64)
        degree = graph.degrees.copy()
        for number in range(graph.num_shards):
            degree += np.bincount(graph.shard(number).indices, minlength=graph.num_nodes)
        degree = np.maximum(degree, 1)
        found: Array = 1 - share + share * degree / degree.mean()
        return found if self.candidates is None else found * self.candidates


def _ranges(ranges: list[tuple[int, int]]) -> tuple[Array, Array]:
    """Return ranges of (first row, rows) as a pool has them."""
    first = np.array([first for first, _ in ranges], np.int64)
    return first, offsets_of(np.array([size for _, size in ranges], np.int64))
