"""Ranks are those that all scores give, whatever the partitions, blocks and filters."""

import numpy as np
import pytest

from penstock.kernels.embed_rules import EmbedRules, Model, Side
from penstock.workers.embed.edges import Edges
from penstock.workers.embed.evaluation import ranking
from penstock.workers.embed.evaluation.ranking import Scores, known_answers, rank, sample
from penstock.workers.embed.layout.nodes import NodeLayout
from penstock.workers.embed.source import VectorSource

NODES, RELATIONS = 40, 3


class Held(VectorSource):
    """Vectors in memory, in partitions."""

    def __init__(self, values, relations, layout):
        self.relations, self.layout = relations, layout
        order = layout.order if layout.order is not None else np.arange(layout.nodes)
        self.values = values[order]

    def parts(self):
        for first, stop in zip(self.layout.starts[:-1], self.layout.starts[1:], strict=True):
            yield int(first), self.values[first:stop]


def edges(count, seed):
    rng = np.random.default_rng(seed)
    heads, tails = rng.integers(0, NODES, (2, count)).astype(np.int32)
    return Edges(heads, rng.integers(0, RELATIONS, count).astype(np.int32), tails)


def scores(values, relations):
    """Return the score of every (head, relation, tail) of ComplEx, by its definition."""
    half = values.shape[1] // 2
    x = values[:, :half] + 1j * values[:, half:]
    r = relations[:, :half] + 1j * relations[:, half:]
    return np.einsum("hk,rk,tk->hrt", x, r, x.conj()).real


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("candidates", [None, 12])
@pytest.mark.parametrize("limits", [{"BLOCK": 7, "ANSWERS": 3}, {"VALUES": 16}])
def test_ranks_are_those_of_all_scores(partitions, filtered, candidates, limits, monkeypatch):
    for name, limit in limits.items():
        monkeypatch.setattr(ranking, name, limit)
    rng = np.random.default_rng(partitions)
    # Few different values, so that many scores are equal.
    values = rng.integers(-1, 2, (NODES, 4)).astype(np.float32)
    relations = rng.integers(-1, 2, (RELATIONS, 4)).astype(np.float32)
    layout = NodeLayout.ranges(NODES, 1)
    if partitions > 1:
        layout = NodeLayout.of_assignment(rng.integers(0, partitions, NODES), partitions)
    rules = EmbedRules(Model.COMPLEX, 4)
    asked, held = edges(30, 1), [edges(200, 2), edges(30, 1)]
    known = None
    if filtered:
        known = known_answers(held, asked, rules.sides, layout, RELATIONS)
    source = Held(values, relations, layout)
    groups = None if candidates is None else ranking.drawn(NODES, candidates, 5)
    found = rank(source, rules, asked, known=known, candidates=groups)
    chosen = np.ones(NODES, bool)
    if candidates is not None:
        keys = ranking.random_keys(5, ranking.Stream.EMBED_CANDIDATE, ranking._CANDIDATES, NODES)
        order = layout.order if layout.order is not None else np.arange(NODES)
        chosen[:] = False
        chosen[order[np.argsort(keys)[:candidates]]] = True
    every = scores(values, relations)
    true = {
        (h, r, t)
        for some in held
        for h, r, t in zip(some.heads, some.relations, some.tails, strict=True)
    }
    for i, (h, r, t) in enumerate(zip(asked.heads, asked.relations, asked.tails, strict=True)):
        for side, line, answer in ((Side.TAIL, every[h, r], t), (Side.HEAD, every[:, r, t], h)):
            allowed = chosen.copy()
            allowed[answer] = False
            for node in range(NODES):
                triple = (h, r, node) if side == Side.TAIL else (node, r, t)
                if filtered and triple in true:
                    allowed[node] = False
            greater = np.sum(line[allowed] > line[answer])
            equal = np.sum(line[allowed] == line[answer])
            assert found[side][i] == 1 + greater + equal / 2


def test_scores_of_ranks():
    found = Scores.of(np.array([1.0, 2.5, 4.0, 20.0]))
    assert found.mr == pytest.approx(6.875)
    assert found.mrr == pytest.approx((1 + 1 / 2.5 + 1 / 4 + 1 / 20) / 4)
    assert (found.hits1, found.hits3, found.hits10, found.ranks) == (0.25, 0.5, 0.75, 4)


def test_a_sample_is_drawn_once_without_repetition():
    whole = Edges(*(np.arange(100, dtype=np.int32) for _ in range(3)))
    one, again = sample(whole, 30, 7), sample(whole, 30, 7)
    assert len(set(one.heads.tolist())) == one.count == 30
    np.testing.assert_array_equal(one.heads, again.heads)
    assert not np.array_equal(one.heads, sample(whole, 30, 8).heads)
    assert sample(whole, 200, 7) is whole
    assert sample(whole, None, 7) is whole


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("loops", [False, True])
def test_without_relations_a_node_is_no_answer_to_itself(partitions, loops):
    """Unless the graph has loops, where it is as any other."""
    rng = np.random.default_rng(partitions)
    values = rng.normal(size=(NODES, 4)).astype(np.float32)
    heads = rng.integers(0, NODES, 50)
    tails = (heads + rng.integers(1, NODES, 50)) % NODES
    held = [Edges(heads, np.zeros(50, np.int32), tails)]
    if loops:
        held.append(Edges(np.array([3]), np.zeros(1, np.int32), np.array([3])))
    layout = NodeLayout.ranges(NODES, 1)
    if partitions > 1:
        layout = NodeLayout.of_assignment(rng.integers(0, partitions, NODES), partitions)
    rules, asked = EmbedRules(Model.DOT, 4), held[0].take(slice(0, 20))
    known = known_answers(held, asked, rules.sides, layout, 0)
    found = rank(Held(values, None, layout), rules, asked, known=known)
    every = values.astype(float) @ values.T.astype(float)
    true = {(h, t) for some in held for h, t in zip(some.heads, some.tails, strict=True)}
    for i, (h, t) in enumerate(zip(asked.heads, asked.tails, strict=True)):
        others = [n for n in range(NODES) if (h, n) not in true and (loops or n != h)]
        assert found[Side.TAIL][i] == 1 + np.sum(every[h, others] > every[h, t])
        others = [n for n in range(NODES) if (n, t) not in true and (loops or n != t)]
        assert found[Side.HEAD][i] == 1 + np.sum(every[t, others] > every[h, t])
