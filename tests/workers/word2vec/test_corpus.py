"""Corpora: ranges of sentences, whatever the pieces they lie in."""

import numpy as np
import pytest
from hypothesis import strategies as st

from penstock import walk_array
from penstock.kernels.walk_rules import WalkGraph, WalkRules
from penstock.workers.walk.starts import Starts
from penstock.workers.word2vec.corpus import WalkCorpus

sentences = st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=6)


def test_walks_of_epochs_are_those_of_more_walks(make_graph):
    graph = make_graph()
    csr = graph.csr()
    rows = WalkGraph(np.asarray(csr.indptr), np.asarray(csr.indices))
    rules = WalkRules(length=7, seed=5, symmetric=True)
    starts = Starts(graph.num_nodes, graph.num_nodes)
    new = WalkCorpus(rows, rules, starts, 2, False, 2)
    same = WalkCorpus(rows, rules, starts, 2, True, 2)
    whole = walk_array(graph, length=7, seed=5, walks=6)
    for epoch in range(3):
        tokens, offsets = new.read(epoch, 0, new.sentences)
        np.testing.assert_array_equal(tokens.reshape(-1, 7), whole[epoch * 200 : epoch * 200 + 200])
        np.testing.assert_array_equal(np.diff(offsets), 7)
        np.testing.assert_array_equal(same.read(epoch, 0, 200)[0].reshape(-1, 7), whole[:200])
    np.testing.assert_array_equal(new.read(1, 30, 50)[0].reshape(-1, 7), whole[230:250])
    assert new.counted == 200
    visits = new.visits(graph.num_nodes, 0, 100)
    np.testing.assert_array_equal(visits, np.bincount(whole[:100].ravel(), minlength=100))


@pytest.mark.parametrize("same", [False, True])
def test_walks_that_were_counted_are_those_that_are_read(make_graph, same):
    csr = make_graph().csr()
    rows = WalkGraph(np.asarray(csr.indptr), np.asarray(csr.indices))
    given = (rows, WalkRules(length=7, seed=5), Starts(100, 100), 3, same, 2)
    truth, corpus = WalkCorpus(*given), WalkCorpus(*given)
    expected = {epoch: truth.read(epoch, 0, 300)[0].reshape(-1, 7) for epoch in (0, 1)}
    corpus.visits(100, 50, 150)  # as a rank of several: its share of what is counted
    for first, last in ((0, 300), (60, 100), (50, 150), (0, 70), (140, 300), (0, 50), (150, 151)):
        tokens, offsets = corpus.read(0, first, last)
        np.testing.assert_array_equal(tokens.reshape(-1, 7), expected[0][first:last])
        np.testing.assert_array_equal(offsets, np.arange(last - first + 1) * 7)
    np.testing.assert_array_equal(corpus.read(1, 0, 300)[0].reshape(-1, 7), expected[1])
    assert (corpus.kept is None) is not same
