"""The edges of a split of a graph, as columns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.arrays import Array
from penstock.csr import id_dtype
from penstock.graph import Graph
from penstock.workers.embed.layout.buckets import row_pieces, rows_of


@dataclass(frozen=True)
class Edges:
    """Edges as columns: node, relation (0 if the graph has none), node."""

    heads: Array
    relations: Array
    tails: Array

    def take(self, at: Array | slice) -> Edges:
        """Return the edges at ``which``."""
        return Edges(self.heads[at], self.relations[at], self.tails[at])

    def without_relations(self) -> Edges:
        """Return the same edges, all of relation 0."""
        return Edges(self.heads, np.zeros_like(self.relations), self.tails)

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.heads)


def train_pieces(graph: Graph) -> Iterator[Edges]:
    """Yield the edges of a graph's shards, some at a time."""
    dtype = id_dtype(graph.num_nodes)
    for piece in row_pieces(graph):
        csr = rows_of(graph, piece)
        first, rows = csr.first_row, len(csr.indptr) - 1
        heads = np.repeat(np.arange(first, first + rows, dtype=dtype), np.diff(csr.indptr))
        tails = np.asarray(csr.indices, dtype)
        relations = csr.relations
        if relations is None:
            relations = np.zeros(len(tails), np.int32)
        yield Edges(heads, np.asarray(relations, np.int32), tails)


def train_edges(graph: Graph) -> Edges:
    """Return the edges of a graph's shards as stored: undirected edges in both directions."""
    found = list(train_pieces(graph))
    if len(found) == 1:
        return found[0]
    columns = ("heads", "relations", "tails")
    return Edges(*(np.concatenate([getattr(one, name) for one in found]) for name in columns))


def split_edges(graph: Graph, split: str) -> Edges:
    """Return the edges of a split: train, or those held out for valid or test, each once."""
    if split == "train":
        return train_edges(graph)
    found = graph.heldout(split)
    dtype = id_dtype(graph.num_nodes)
    heads, tails = (np.asarray(found[name], dtype) for name in ("sources", "targets"))
    relations = found.get("relations")
    if relations is None:
        relations = np.zeros(len(heads), np.int32)
    return Edges(heads, np.asarray(relations, np.int32), tails)


def in_no_edge(graph: Graph) -> Array:
    """Return for each node whether no training edge has it: only negatives move its vector."""
    alone = np.ones(graph.num_nodes, bool)
    for edges in train_pieces(graph):
        alone[edges.heads] = False
        alone[edges.tails] = False
    return alone


def all_edges(graph: Graph) -> Iterator[Edges]:
    """Yield the edges of every split, some at a time; undirected edges in both directions.

    Shards store both directions of an undirected edge, held-out splits store one.
    """
    yield from train_pieces(graph)
    for name in graph.manifest.heldout:
        held = split_edges(graph, name)
        yield held
        if not graph.manifest.directed:
            yield Edges(held.tails, held.relations, held.heads)
