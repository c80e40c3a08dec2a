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
    """Edges as columns: node, relation (0 if there is none, or it does not count), node."""

    heads: Array
    relations: Array
    tails: Array

    def take(self, at: Array | slice) -> Edges:
        """Return the edges at ``which``."""
        return Edges(self.heads[at], self.relations[at], self.tails[at])

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.heads)


def _edges(heads: Array, relations: Array | None, tails: Array, *, typed: bool) -> Edges:
    if relations is None or not typed:
        relations = np.zeros(len(heads), np.int32)
    return Edges(heads, np.asarray(relations, np.int32), tails)


def train_pieces(graph: Graph, *, typed: bool = True) -> Iterator[Edges]:
    """Yield the edges of a graph's shards, some at a time.

    typed  whether their relations count
    """
    dtype = id_dtype(graph.num_nodes)
    for piece in row_pieces(graph):
        csr = rows_of(graph, piece)
        first, rows = csr.first_row, len(csr.indptr) - 1
        heads = np.repeat(np.arange(first, first + rows, dtype=dtype), np.diff(csr.indptr))
        tails = np.asarray(csr.indices, dtype)
        yield _edges(heads, csr.relations, tails, typed=typed)


def split_edges(graph: Graph, split: str, *, typed: bool = True) -> Edges:
    """Return the edges of a split: those held out for valid or test, each once.

    Those of train are as stored: undirected edges in both directions.
    """
    if split == "train":
        pieces = list(train_pieces(graph, typed=typed))
        columns = ("heads", "relations", "tails")
        return Edges(*(np.concatenate([getattr(one, name) for one in pieces]) for name in columns))
    found = graph.heldout(split)
    dtype = id_dtype(graph.num_nodes)
    heads, tails = (np.asarray(found[name], dtype) for name in ("sources", "targets"))
    return _edges(heads, found.get("relations"), tails, typed=typed)


def in_no_edge(graph: Graph) -> Array:
    """Return for each node whether no training edge has it: only negatives move its vector."""
    alone = np.ones(graph.num_nodes, bool)
    for edges in train_pieces(graph):
        alone[edges.heads] = False
        alone[edges.tails] = False
    return alone


def all_edges(graph: Graph, *, typed: bool = True) -> Iterator[Edges]:
    """Yield the edges of every split, some at a time; undirected edges in both directions.

    Shards store both directions of an undirected edge, held-out splits store one.
    """
    yield from train_pieces(graph, typed=typed)
    for name in graph.manifest.heldout:
        held = split_edges(graph, name, typed=typed)
        yield held
        if not graph.manifest.directed:
            yield Edges(held.tails, held.relations, held.heads)
