"""Which nodes an edge is compared with: a sample of all, as far as partitions in memory allow.

Over the epochs the negatives of an edge should be a sample of the whole graph. Those of the edge's
own partitions could be drawn every time, those of others only while they happen to be in memory.
So each own partition gets its share of the whole graph, and the others that are there stand for
all that are not. Where nothing but an edge's own partitions is there, as for some edges while a
swap runs, they are all there is to draw from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import offsets_of
from penstock.graph import Graph
from penstock.kernels.embed_rules import NegativePool
from penstock.workers.embed.buffer import Phase
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.spec import Training
from penstock.workers.resources.device import to_device

Draw = Callable[[int, int], Any]
"""The negatives of so many chunks of a batch, whose number is given: (sides, chunks, N) rows."""


class Negatives:
    """The negatives of a training.

    kernels  those of the device that trains
    """

    def __init__(
        self, graph: Graph, training: Training, layout: NodeLayout, kernels: ModuleType
    ) -> None:
        self.graph, self.training, self.layout, self.kernels = graph, training, layout, kernels
        self.sides = len(training.rules(1).sides)

    def of(self, phase: Phase, pair: Set[int], first_rows: Mapping[int, int]) -> Draw:
        """Return what draws the negatives of edges between two partitions, in a phase."""
        count, seed = self.training.negatives, self.training.seed
        if count == "all":
            # In the order of the phase, whatever slots its partitions have: sums stay the same.
            at = [(first_rows[p], self.layout.sizes[p]) for p in phase.partitions]
            rows = [np.arange(first, first + size, dtype=np.int32) for first, size in at]
            everything = to_device(np.concatenate(rows)[None, None])
            return lambda chunks, number: everything
        pool = self.pool(phase, pair, first_rows)

        def draw(chunks: int, number: int) -> Any:
            return self.kernels.draw_negatives(seed, number, self.sides, chunks, count, pool)

        return draw

    def pool(self, phase: Phase, pair: Set[int], first_rows: Mapping[int, int]) -> NegativePool:
        """Return the rows that negatives of edges between two partitions are drawn from."""
        others = [p for p in phase.partitions if p not in pair]
        own = [p for p in phase.partitions if p in pair]
        partitions, sizes = own + others, self.layout.sizes
        times = dict.fromkeys(own, max(len(others), 1))
        times |= dict.fromkeys(others, self.layout.partitions - len(own))
        if self.training.by_degree:
            first, start = _ranges([(first_rows[p], sizes[p]) for p in partitions])
            share, chance, other = self._alias(partitions, times)
            alias = share, to_device(chance), to_device(other)
            return NegativePool(to_device(first), to_device(start), *alias)
        # A range that is there several times is drawn from as often.
        first, start = _ranges(
            [(first_rows[p], sizes[p]) for p in partitions for _ in range(times[p])]
        )
        return NegativePool(to_device(first), to_device(start))

    def _alias(self, partitions: list[int], times: Mapping[int, int]) -> tuple[int, Array, Array]:
        """Return the alias table of the nodes of partitions, and the share that it decides.

        It has their degrees. Where some partitions stand for others it has all that decides, the
        share that is uniform as well.
        """
        from penstock.kernels.cpu.walk.tables import alias_table

        weights = np.concatenate([self._degrees[self.layout.nodes_of(p)] for p in partitions])
        share, most = self.training.by_degree, 2**32 - 1
        if len({times[p] for p in partitions}) > 1:
            often = np.repeat(
                [float(times[p]) for p in partitions], [self.layout.sizes[p] for p in partitions]
            )
            weights = weights * often
            weights = share * weights / weights.sum() + (1 - share) * often / often.sum()
            weights, share = weights / weights.max(), 1.0
        indptr = np.array([0, len(weights)], np.int64)
        chance, other = alias_table(indptr, weights.astype(np.float32))
        return min(round(share * 2**32), most), chance, other

    @cached_property
    def _degrees(self) -> Array:
        """In how many edges each node is; a node without any counts as with one."""
        graph = self.graph
        degree = graph.degrees.copy()
        for number in range(graph.num_shards):
            degree += np.bincount(graph.shard(number).indices, minlength=graph.num_nodes)
        found: Array = np.maximum(degree, 1)
        return found


def _ranges(ranges: list[tuple[int, int]]) -> tuple[Array, Array]:
    """Return ranges of (first row, rows) as a pool has them."""
    first = np.array([first for first, _ in ranges], np.int64)
    return first, offsets_of(np.array([size for _, size in ranges], np.int64))
