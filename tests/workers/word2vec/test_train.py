"""The training loop: what it computes, checkpoints, shards."""

import json
from dataclasses import replace

import numpy as np
import pytest

from penstock.errors import CorruptFile
from penstock.kernels.naive import word2vec as naive
from penstock.kernels.word2vec_rules import Losses, Noise, Sentences, Word2vecRules
from penstock.workers.comm.single import SingleRank
from penstock.workers.training.loop import Position
from penstock.workers.word2vec import train as loop
from penstock.workers.word2vec.corpus import Encoded, EncodedPiece
from penstock.workers.word2vec.deltas import Shards
from penstock.workers.word2vec.state import Checkpoints, Sums
from penstock.workers.word2vec.task import TrainingSettings, TrainTask
from penstock.workers.word2vec.train import train

WORDS, LENGTH, SENTENCES = 30, 12, 40
TRAINING = TrainingSettings(
    dim=16,
    rules=Word2vecRules(2, 3, seed=9),
    epochs=2,
    lr=0.05,
    min_lr=0.01,
    sample=1e-2,
    ns_exponent=0.75,
    deterministic=False,
    shards=1,
    sync_words=None,
    checkpoint_minutes=0,
)


@pytest.fixture
def corpus(tmp_path):
    tokens = np.random.default_rng(0).integers(0, WORDS, SENTENCES * LENGTH, dtype=np.int32)
    offsets = np.arange(SENTENCES + 1, dtype=np.int64) * LENGTH
    folder = tmp_path / "corpus"
    piece = EncodedPiece("p", SENTENCES, len(tokens))
    piece.save(folder, tokens, offsets)
    np.save(folder / "counts.npy", np.bincount(tokens, minlength=WORDS).astype(np.int64))
    Encoded(folder).save([piece])
    return Encoded(folder)


def run(corpus, folder, training=TRAINING, **more):
    folder.mkdir(exist_ok=True)
    task = TrainTask(corpus, WORDS, corpus.folder / "counts.npy", training, folder, **more)
    return train(SingleRank(), task)


def test_epochs_are_those_of_naive(corpus, tmp_path):
    in_order = replace(TRAINING, deterministic=True, shards=1, sync_words=10**6)
    trained = run(corpus, tmp_path / "r", in_order)
    counts = np.load(corpus.folder / "counts.npy")
    noise = Noise(*naive.noise_table(counts), naive.keep_thresholds(counts, 1e-2))
    vectors = naive.start_rows(9, np.arange(WORDS), 16), np.zeros((WORDS, 16), np.float32)
    tokens = np.load(corpus.folder / "p.tokens.npy")
    offsets = np.load(corpus.folder / "p.offsets.npy")
    sums = []
    for epoch in range(2):
        done = (epoch * len(tokens) + offsets[:-1]) / (2 * len(tokens))
        lrs = (0.05 - 0.04 * done).astype(np.float32)
        sentences = Sentences(tokens, offsets, lrs, epoch=epoch)
        sums.append(naive.train(*vectors, sentences, noise, TRAINING.rules))
    np.testing.assert_allclose(np.load(trained.vectors), vectors[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.load(trained.context), vectors[1], rtol=1e-4, atol=1e-6)
    lines = [json.loads(line) for line in (tmp_path / "r/metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [1, 2]
    for line, each in zip(lines, sums, strict=True):
        assert line["loss"] == pytest.approx(each.loss / each.pairs, rel=1e-4)
        assert (line["words"], line["kept"], line["pairs"]) == (each.words, each.kept, each.pairs)
    assert trained.loss == lines[1]["loss"]
    assert trained.words == sum(each.words for each in sums)


@pytest.mark.parametrize("shards", [1, 3])
def test_threads_do_not_change_a_byte(corpus, tmp_path, monkeypatch, shards):
    training = replace(TRAINING, deterministic=True, shards=shards, sync_words=100)
    found = []
    for threads in (1, 4):
        monkeypatch.setattr(loop, "cores_of_rank", lambda comm, threads=threads: threads)
        found.append(np.load(run(corpus, tmp_path / f"{threads}", training).vectors))
    np.testing.assert_array_equal(*found)


def test_a_damaged_checkpoint_is_refused(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    assert checkpoints.load() is None
    vectors = np.ones((3, 2), np.float32), np.zeros((3, 2), np.float32)
    checkpoints.save(Position(epoch=1, step=4), Sums(total=Losses(1.5, 2, 4, 3)), vectors)
    position, sums, found = checkpoints.load() or pytest.fail("nothing saved")
    assert sums.total == Losses(1.5, 2, 4, 3)
    assert position == Position(epoch=1, step=4)
    np.testing.assert_array_equal(found[0], vectors[0])
    file = next((tmp_path / "checkpoints").glob("in-*.npy"))
    file.write_bytes(file.read_bytes()[:-1] + b"\1")
    with pytest.raises(CorruptFile, match=file.name):
        checkpoints.load()


@pytest.mark.parametrize("count", [2, 5])
def test_rows_go_most_of_the_way_of_shards_but_not_far_beyond(count):
    """Rows that are drawn to a place: what shards have of the way adds up where it is little."""
    rng = np.random.default_rng(2)
    dim, words, lr = 32, 10_000, 0.025
    # Random rows have the same curvature in all directions.
    others = rng.normal(size=(500, dim)).astype(np.float32)
    pairs = np.geomspace(1e-3, 10, 500).astype(np.float32)
    base = np.zeros((500, dim), np.float32), others
    weights = np.full(500, 1 / 500, np.float32)
    shards = Shards(SingleRank(), base, (pairs, pairs), weights, count, ordered=True, threads=1)
    curvature = 0.25 * float((others**2).mean())
    way = 1 - np.exp(-curvature * lr * pairs * words / count)
    for copy in shards.copies:
        copy[0][...] = way[:, None]  # of the way to 1
    shards.combine(words=words, lr=lr)
    moved = shards.vectors[0].mean(axis=1)
    in_turn = 1 - (1 - way) ** count
    assert np.all(moved <= in_turn + 1e-3)
    assert np.all(moved >= np.minimum(in_turn, 1.8 * way) - 1e-3)
    assert np.all(moved > 1.3 * way * (1 - way))  # more than the mean, where little is gone
