"""What edges predict of a node that a run does not have: the mean of its neighbours, by relation.

An edge's query is what the node would score highest with. If scores are distances, the mean of the
queries is the vector: with TransE, of heads plus relations. If they are products, queries determine
only a direction, and the vector gets the mean length of the neighbours. Such a vector would be the
best answer to every question of its neighbours: one that may be an answer is to fit its edges as
known nodes fit theirs.
"""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array, OptionalArray
from penstock.kernels import kernel
from penstock.kernels.embed_rules import EmbedRules, Side

_LEAST = 1e-30  # a length of 0 has no direction


class Means:
    """Sums over edges, for ``count`` nodes: of queries, of neighbours' lengths, and of edges."""

    def __init__(self, count: int, rules: EmbedRules) -> None:
        self.rules, self.totals = rules, np.zeros((count, rules.dim))
        self.lengths, self.number = np.zeros(count), np.zeros(count, np.int64)

    def add(
        self, new: Array, rows: Array, table: OptionalArray, relations: Array, side: Side
    ) -> None:
        """Add edges: the number of each new node, its neighbour's vector, and the relation.

        table  the vectors of relations
        """
        every = np.arange(len(rows))
        asked = kernel("embed", rows).queries(rows, table, every, relations, side, self.rules)
        if not self.rules.is_distance:
            asked /= np.maximum(np.linalg.norm(asked, axis=1, keepdims=True), _LEAST)
        np.add.at(self.totals, new, asked)
        np.add.at(self.lengths, new, np.linalg.norm(rows, axis=1))
        np.add.at(self.number, new, 1)

    def vectors(self, fit: float = 1.0, random: Array | None = None) -> Array:
        """Return the mean vector of each node, (count, dim) float32; 0 for one without edges.

        fit     of known edges, as ``fit_of`` returns it: the length is multiplied by it, or if
                scores are distances, the vector is moved as far in the direction of ``random``
        random  (count, dim)
        """
        number = np.maximum(self.number, 1)
        if self.rules.is_distance:
            means = (self.totals / number[:, None]).astype(np.float32)
            if random is None:
                return means
            away = -_scores(np.zeros_like(random), random, self.rules)
            return np.asarray(means + random * (fit / away)[:, None].astype(np.float32))
        scale = fit * self.lengths / number
        scale /= np.maximum(np.linalg.norm(self.totals, axis=1), _LEAST)
        return (self.totals * scale[:, None]).astype(np.float32)


def fit_of(
    heads: Array, tails: Array, table: OptionalArray, relations: Array, rules: EmbedRules
) -> float:
    """Return how well edges fit their queries: the mean distance, or the mean cosine.

    table  the vectors of relations
    """
    every = np.arange(len(heads))
    asked = kernel("embed", heads).queries(heads, table, every, relations, Side.TAIL, rules)
    scores = _scores(asked, tails, rules)
    if rules.is_distance:
        return float(-scores.mean())
    lengths = np.linalg.norm(asked, axis=1) * np.linalg.norm(tails, axis=1)
    return float((scores / np.maximum(lengths, _LEAST)).mean())


def _scores(asked: Array, answers: Array, rules: EmbedRules) -> Array:
    return np.asarray(kernel("embed", asked).answer_scores(asked, answers, rules))
