"""Corpora: ranges of sentences, whatever the pieces they lie in."""

import numpy as np
import pytest

from penstock.kernels.walk_rules import WalkGraph, WalkRules
from penstock.workers.walk.starts import Starts
from penstock.workers.word2vec.corpus import WalkCorpus


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
