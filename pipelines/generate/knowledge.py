"""A knowledge graph with a planted rule, and held-out triples to test whether it was learned."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrays import Array
from penstock.files import save_npy
from penstock.kernels import generate_rules
from penstock.kernels.cpu import knowledge as kernels
from penstock.kernels.cpu.philox import random_words
from penstock.kernels.cpu.rmat import mark_ends
from penstock.kernels.streams import Stream
from penstock.pipelines.generate.budget import shuffle
from penstock.pipelines.generate.build import EdgeRules, EdgeSource, Ends, ShardBuilder
from penstock.pipelines.generate.job import Generator
from penstock.pipelines.generate.options import KnowledgeOptions
from penstock.writer import GrowingGraph

_HELD_OUT = {1: "valid", 2: "test"}


class KnowledgeSource(EdgeSource):
    """Triples drawn by the planted rule; shards set the held-out ones aside."""

    columns = ()

    def __init__(self, options: KnowledgeOptions) -> None:
        self.options = options
        self.nodes, self.relations = options.entities, options.relations
        self.units = self.expected = options.triples
        self.clusters = -(-options.entities // options.cluster_size)
        self.noise = round(options.noise * 2**32)
        self.valid, self.test = round(options.valid * 2**32), round(options.test * 2**32)
        word = random_words(options.seed, Stream.KG_FACTOR, 0, options.relations)[:, 0]
        # The clusters by which each relation turns the ring.
        self.shifts = (word.astype(np.int64) * self.clusters >> 32).astype(np.int32)
        self.heads = generate_rules.zipf_quantiles(options.entities, options.entity_skew)
        self.kinds = generate_rules.zipf_quantiles(options.relations, options.relation_skew)
        self.entities = np.empty(0, np.int32)
        self.seen = np.empty(0, np.bool_)
        self.seen_relations = np.zeros(options.relations, np.bool_)
        self.aside: dict[int, tuple[Array, Array, Array, Array]] = {}

    def prepare(self, threads: int) -> None:
        """Place the entities on the ring."""
        nodes, seed = self.nodes, self.options.seed
        self.entities = shuffle(seed, Stream.PERMUTE_NODES, nodes, threads)
        self.seen = np.zeros(nodes, np.bool_)

    def draw(self, first: int, count: int) -> Ends:
        """Return some triples, and record the entities and relations for training."""
        options = self.options
        heads, tails, relations = kernels.triples(
            options.seed,
            self.entities,
            self.clusters,
            self.shifts,
            self.heads,
            self.kinds,
            self.noise,
            first,
            count,
        )
        train = self._splits(heads, tails, relations) == 0
        mark_ends(heads[train], tails[train], self.seen, keep_loops=False)
        self.seen_relations[relations[train & (heads != tails)]] = True
        return heads, tails, relations

    def keep(self, sources: Array, targets: Array, relations: Array | None) -> Array | None:
        """Return which triples stay for training; the others are set aside."""
        if relations is None:
            raise TypeError("triples have relations")
        split = self._splits(sources, targets, relations)
        # A model cannot learn entities or relations that never occur in training: such triples
        # stay.
        known = self.seen[sources] & self.seen[targets] & self.seen_relations[relations]
        split[~known] = 0
        out = split > 0
        if out.any():
            # By first row, so that the order does not depend on which thread came first.
            self.aside[int(sources[0])] = (sources[out], targets[out], relations[out], split[out])
        kept: Array = split == 0
        return kept

    def held_out(self, split: int) -> dict[str, Array]:
        """Return a split's held-out triples, by head, then tail, then relation."""
        parts = [self.aside[row] for row in sorted(self.aside)]
        none = np.empty(0, np.int32)
        joined = [np.concatenate([none, *(part[i] for part in parts)]) for i in range(4)]
        mine = joined[3] == split
        names = ("sources", "targets", "relations")
        return {name: array[mine] for name, array in zip(names, joined, strict=False)}

    def _splits(self, heads: Array, tails: Array, relations: Array) -> Array:
        return kernels.splits(self.options.seed, heads, tails, relations, self.valid, self.test)


class KnowledgeGenerator(Generator):
    """Writes a knowledge graph."""

    kind = "kg"
    title = "knowledge graph"
    options: KnowledgeOptions

    def sizes(self) -> int:
        """Reserve memory for triples and entities; return the size."""
        options = self.options
        self.source = source = KnowledgeSource(options)
        self.nodes, self.edges = source.nodes, source.expected
        self.budget.take(source.nodes * 5, "the ring of all entities")
        held = options.triples * (options.valid + options.test)
        self.budget.take(int(held * 26), "the triples held out")
        return options.triples * 12 + options.entities * 24

    def fill(self, graph: GrowingGraph, *, quiet: bool) -> None:
        """Write shards, held-out triples, entities, and the planted rule."""
        options, source = self.options, self.source
        rules = EdgeRules(undirected=False)
        builder = ShardBuilder(source, rules, self.budget, quiet=quiet)
        self.drawn, _, _ = builder.run(graph)
        _write_held_out(graph, source)
        graph.node_rows(_node_columns(source))
        graph.add(
            save_npy(graph.root, "planted/shifts.npy", source.shifts),
            relations=tuple(f"r{i}" for i in range(options.relations)),
            labels="class",
            made=self.how | {"clusters": source.clusters},
        )
        held = ", ".join(f"{n:,} {name}" for name, n in graph.manifest.heldout.items())
        self.details = {
            "relations": options.relations,
            "clusters": source.clusters,
            "held_out": held,
        }


def _write_held_out(graph: GrowingGraph, source: KnowledgeSource) -> None:
    counts = {}
    for split, name in _HELD_OUT.items():
        arrays = source.held_out(split)
        counts[name] = len(arrays["sources"])
        for column, array in arrays.items():
            graph.add(save_npy(graph.root, f"heldout/{name}/{column}.npy", array))
    graph.add(heldout=counts)


def _node_columns(source: KnowledgeSource) -> Callable[[int, int], dict[str, pa.Array]]:
    cluster = np.empty(source.nodes, np.int32)
    position = np.arange(source.nodes, dtype=np.int64)
    cluster[source.entities] = position * source.clusters // source.nodes

    def columns(first: int, count: int) -> dict[str, pa.Array]:
        numbers = pa.array(np.arange(first, first + count)).cast(pa.string())
        names = pc.binary_join_element_wise("e", numbers, "")
        return {"id": names, "label": pa.array(cluster[first : first + count])}

    return columns
