"""Ranks are those that all scores give, whatever the partitions, blocks and loops."""

import numpy as np
import pytest

from penstock.kernels.embed_rules import EmbedRules, Model, Side
from penstock.workers.embed.edges import Edges
from penstock.workers.embed.evaluation import ranking
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.source import VectorSource

NODES = 40


class Held(VectorSource):
    """Vectors in memory, in partitions."""

    def __init__(self, values, layout):
        self.relations, self.layout = None, layout
        self.values = values if layout.order is None else values[layout.order]

    def parts(self):
        for first, stop in zip(self.layout.starts[:-1], self.layout.starts[1:], strict=True):
            yield int(first), self.values[first:stop]


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("limits", [{"BLOCK": 7, "ANSWERS": 3}, {"VALUES": 16}], ids=str)
def test_without_relations_a_node_does_not_answer_itself(partitions, loops, limits, monkeypatch):
    """Unless the graph has loops: then it is as any other."""
    for name, limit in limits.items():
        monkeypatch.setattr(ranking, name, limit)
    rng = np.random.default_rng(partitions)
    # Few different values, so that many scores are equal.
    values = rng.integers(-1, 2, (NODES, 4)).astype(np.float32)
    heads = rng.integers(0, NODES, 50)
    tails = (heads + rng.integers(1, NODES, 50)) % NODES
    held = [Edges(heads, np.zeros(50, np.int32), tails)]
    if loops:
        held.append(Edges(np.array([3]), np.zeros(1, np.int32), np.array([3])))
    layout = NodeLayout.ranges(NODES, 1)
    if partitions > 1:
        layout = NodeLayout.of_assignment(rng.integers(0, partitions, NODES), partitions)
    rules, asked = EmbedRules(Model.DOT, 4), held[0].take(slice(0, 20))
    known = ranking.known_answers(held, asked, rules.sides, layout, 0)
    found = ranking.rank(Held(values, layout), rules, asked, known=known)
    every = values.astype(float) @ values.T.astype(float)
    true = {(h, t) for some in held for h, t in zip(some.heads, some.tails, strict=True)}
    for i, (h, t) in enumerate(zip(asked.heads, asked.tails, strict=True)):
        for side, given, way in ((Side.TAIL, h, 1), (Side.HEAD, t, -1)):
            others = [n for n in range(NODES) if (given, n)[::way] not in true]
            scores = every[given, [n for n in others if loops or n != given]]
            rank = 1 + np.sum(scores > every[h, t]) + np.sum(scores == every[h, t]) / 2
            assert found[side][i] == rank
