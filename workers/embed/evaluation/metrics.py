"""Scores from ranks of answers: of lists of the best k, by relation, and by kind of relation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.embed_rules import Side
from penstock.workers.embed.edges import Edges
from penstock.workers.embed.evaluation.ranking import scores_of

# mean answers to a query of a relation, from which on it is N, not 1 (Bordes et al., 2013)
_SEVERAL = 1.5


def list_scores(
    given: Array, relations: Array, answers: Array, ranks: Array, k: int, *, filtered: bool
) -> dict[str, float]:
    """Return recall, precision and NDCG of the best ``k`` answers, the means of all queries.

    A query is a given node and a relation; its answers are the edges passed in. Filtered ranks
    leave out the other answers of a query, but a list contains them: each better answer moves an
    answer one place back.
    """
    triples = np.stack([given, relations, answers]).astype(np.int64)
    _, once = np.unique(triples, axis=1, return_index=True)
    triples, ranks = triples[:, once], ranks[once]
    order = np.lexsort((ranks, triples[1], triples[0]))
    triples, ranks = triples[:, order], ranks[order]
    first = np.ones(len(ranks), bool)
    first[1:] = (triples[:2, 1:] != triples[:2, :-1]).any(axis=0)
    starts = np.flatnonzero(first)
    counts = np.diff(starts, append=len(ranks))
    place = np.arange(len(ranks)) - np.repeat(starts, counts)
    at = ranks + place if filtered else ranks
    hit = at <= k
    gains = np.where(hit, 1 / np.log2(1 + at), 0.0)
    best = np.concatenate([[0.0], np.cumsum(1 / np.log2(2 + np.arange(k)))])
    hits = np.add.reduceat(hit.astype(np.float64), starts)
    ndcg = np.add.reduceat(gains, starts) / best[np.minimum(counts, k)]
    return {
        "recall": float((hits / counts).mean()),
        "precision": float((hits / k).mean()),
        "ndcg": float(ndcg.mean()),
        "queries": len(starts),
    }


def relation_kinds(pieces: Iterable[Edges], relations: int) -> list[str]:
    """Return the kind of every relation, heads to tails: 1-1, 1-N, N-1, N-N or unseen.

    pieces  the training edges; copies of an edge are in the same piece, and count once
    """
    edges = np.zeros(relations, np.int64)
    heads, tails = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for some in pieces:
        once = _once(some)
        edges += np.bincount(once.relations, minlength=relations)
        for found, ends in ((heads, once.heads), (tails, once.tails)):
            found.append(np.unique(ends.astype(np.int64) * relations + once.relations))
    different = (
        np.bincount(np.unique(np.concatenate(found)) % relations, minlength=relations)
        for found in (heads, tails)
    )
    of_head, of_tail = (edges / np.maximum(count, 1) for count in different)
    return [
        f"{'N' if by_tail >= _SEVERAL else 1}-{'N' if by_head >= _SEVERAL else 1}"
        if count
        else "unseen"
        for by_head, by_tail, count in zip(of_head, of_tail, edges, strict=True)
    ]


def _once(edges: Edges) -> Edges:
    """Return each edge once."""
    order = np.lexsort((edges.tails, edges.relations, edges.heads))
    columns = edges.heads[order], edges.relations[order], edges.tails[order]
    first = np.ones(len(order), bool)
    first[1:] = np.any([one[1:] != one[:-1] for one in columns], axis=0)
    return edges.take(order[first])


def grouped_scores(ranks: dict[Side, Array], group: Array, names: list[str]) -> dict[str, Any]:
    """Return the scores of both sides for each group of edges that is not empty."""
    found = {}
    for number, name in enumerate(names):
        of = group == number
        if of.any():
            sides = {side.name.lower(): scores_of(one[of]) for side, one in ranks.items()}
            found[name] = {"edges": int(of.sum()), **sides}
    return found
