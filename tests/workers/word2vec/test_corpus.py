"""Corpora: ranges of sentences, whatever the pieces they lie in."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import walk_array
from penstock.kernels.walk_rules import WalkGraph, WalkRules
from penstock.workers.walk.starts import Starts
from penstock.workers.word2vec import corpus as corpora
from penstock.workers.word2vec.corpus import Encoded, EncodedPiece, WalkCorpus


def encoded(folder: Path, pieces: list[list[list[int]]]) -> Encoded:
    made = []
    for number, sentences in enumerate(pieces):
        tokens = np.array([word for sentence in sentences for word in sentence], np.int32)
        offsets = np.cumsum([0, *map(len, sentences)]).astype(np.int64)
        piece = EncodedPiece(f"p{number}", len(sentences), len(tokens))
        piece.save(folder, tokens, offsets)
        made.append(piece)
    corpus = Encoded(folder)
    corpus.save(made)
    return corpus


sentences = st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=6)


@given(pieces=st.lists(sentences, min_size=1, max_size=4), words=st.integers(1, 12), data=st.data())
def test_ranges_of_an_encoded_corpus(
    tmp_path_factory: pytest.TempPathFactory, pieces: Any, words: int, data: Any
) -> None:
    every = [sentence for piece in pieces for sentence in piece]
    if not any(every):
        return
    with encoded(tmp_path_factory.mktemp("c"), pieces).open(1) as corpus:
        assert corpus.sentences == len(every)
        assert corpus.words == sum(map(len, every))
        first = data.draw(st.integers(0, len(every) - 1))
        last = data.draw(st.integers(first, len(every)))
        tokens, offsets = corpus.read(0, first, last)
        found = [tokens[a:b].tolist() for a, b in pairwise(offsets)]
        assert found == every[first:last]
        # Cuts go through all sentences, and hold no more words than asked for unless one does.
        covered = []
        for a, b in corpus.pieces(0, corpus.sentences, words):
            assert b > a
            assert sum(map(len, every[a:b])) <= words or b == a + 1
            covered += every[a:b]
        assert covered == every
        # As many of about the same length, from wherever a run goes on.
        evenly, end = 0, 0
        while end < len(every):
            begin, end, evenly = end, corpus.even_cut(end, words), evenly + 1
            assert end > begin
        assert end == len(every)
        assert evenly <= -(-corpus.words // words)
        shares = corpus.shares(first, last, 3)
        assert shares[0] == first
        assert shares[-1] == last
        assert shares == sorted(shares)


def test_walks_of_epochs_are_those_of_more_walks(make_graph: Any) -> None:
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


def test_nodes_are_counted_in_so_many_walks_of_each_start(
    make_graph: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    csr = make_graph().csr()
    rows = WalkGraph(np.asarray(csr.indptr), np.asarray(csr.indices))
    given: tuple[Any, ...] = (rows, WalkRules(length=7), Starts(100, 100), 10, False, 1)
    for words, walks in ((1, 1), (700, 1), (2099, 2), (2100, 3), (10**6, 10)):
        monkeypatch.setattr(corpora, "COUNTED_WORDS", words)
        assert WalkCorpus(*given).counted == 100 * walks


@pytest.mark.parametrize("same", [False, True])
def test_walks_that_were_counted_are_not_walked_again(
    make_graph: Any, monkeypatch: pytest.MonkeyPatch, same: bool
) -> None:
    csr = make_graph().csr()
    rows = WalkGraph(np.asarray(csr.indptr), np.asarray(csr.indices))
    given: tuple[Any, ...] = (rows, WalkRules(length=7, seed=5), Starts(100, 100), 3, same, 2)
    truth, corpus = WalkCorpus(*given), WalkCorpus(*given)
    expected = {epoch: truth.read(epoch, 0, 300)[0].reshape(-1, 7) for epoch in (0, 1)}
    corpus.visits(100, 50, 150)  # as a rank of several: its share of what is counted
    for first, last in ((0, 300), (60, 100), (50, 150), (0, 70), (140, 300), (0, 50), (150, 151)):
        tokens, offsets = corpus.read(0, first, last)
        np.testing.assert_array_equal(tokens.reshape(-1, 7), expected[0][first:last])
        np.testing.assert_array_equal(offsets, np.arange(last - first + 1) * 7)
    with monkeypatch.context() as patch:
        patch.setattr(corpora, "spread", lambda work, pieces, threads: None)
        np.testing.assert_array_equal(
            corpus.read(0, 50, 150)[0].reshape(-1, 7), expected[0][50:150]
        )
    np.testing.assert_array_equal(corpus.read(1, 0, 300)[0].reshape(-1, 7), expected[1])
    assert (corpus.kept is None) is not same


def test_many_walks_that_were_counted_are_not_kept(
    make_graph: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    csr = make_graph().csr()
    rows = WalkGraph(np.asarray(csr.indptr), np.asarray(csr.indices))
    monkeypatch.setattr(corpora, "COUNTED_WORDS", 699)
    corpus = WalkCorpus(rows, WalkRules(length=7), Starts(100, 100), 3, False, 1)
    assert corpus.counted == 100
    corpus.visits(100, 0, corpus.counted)
    assert corpus.kept is None


@pytest.mark.parametrize("listed", [False, True])
def test_a_gpu_gets_the_same_walks_as_rows(
    make_graph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: bool
) -> None:
    csr = make_graph(edges=150, directed=True).csr()  # where most walks end early
    rows = WalkGraph(np.asarray(csr.indptr), np.asarray(csr.indices))
    starts = Starts(100, 100)
    if listed:
        np.save(tmp_path / "starts.npy", np.array([7, 3, 99], np.int32))
        starts = Starts(3, 100, tmp_path / "starts.npy")
    given: tuple[Any, ...] = (rows, WalkRules(length=7, seed=5), starts, 3, False, 1)
    truth, corpus = WalkCorpus(*given), WalkCorpus(*given)
    count = truth.sentences
    tokens, offsets = truth.read(1, 2, count)
    visits = truth.visits(100, 0, count)
    assert visits.sum() < count * 7
    monkeypatch.setattr(corpora, "gpu", lambda: True)
    monkeypatch.setattr(corpora, "arrays_of_device", lambda: np)
    monkeypatch.setattr(corpora, "_VISITS_WORDS_GPU", 70)
    found, places = corpus.read(1, 2, count)
    assert places is None
    assert found.dtype == tokens.dtype
    np.testing.assert_array_equal(found, tokens.reshape(-1, 7))
    np.testing.assert_array_equal(np.diff(offsets), 7)
    np.testing.assert_array_equal(corpus.visits(100, 0, count), visits)
    assert corpus.kept is None
