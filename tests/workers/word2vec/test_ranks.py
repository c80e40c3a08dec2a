"""Ranks that train copies of the vectors, on GPUs that run late and in any legal order."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import late_gpus
import numpy as np
import pytest

from penstock.kernels.cpu import word2vec as cpu
from penstock.kernels.naive import word2vec as naive
from penstock.kernels.word2vec_rules import Exchange, Losses, Noise, Sentences, Word2vecRules
from penstock.workers.word2vec import corpus as corpora
from penstock.workers.word2vec import deltas, state
from penstock.workers.word2vec import train as loop
from penstock.workers.word2vec.corpus import Encoded, EncodedPiece
from penstock.workers.word2vec.state import Checkpoints
from penstock.workers.word2vec.task import TrainingSettings, TrainTask

WORDS, DIM = 30, 16
# Of sentences, one of which has a third of all words, and some none.
LENGTHS = (12, 0, 9, 160, 1, 30, 0, 0, 25, 40, 14, 3, 60, 2, 17, 70, 8, 33, 0)
TRAINING = TrainingSettings(
    dim=DIM, rules=Word2vecRules(2, 3, seed=9), epochs=3, lr=0.05, min_lr=0.01, sample=1e-1,
    ns_exponent=0.75, deterministic=False, shards=1, sync_words=100, checkpoint_minutes=0,
)  # fmt: skip


@pytest.fixture
def corpus(tmp_path: Path) -> Encoded:
    tokens = np.random.default_rng(0).integers(0, WORDS, sum(LENGTHS), dtype=np.int32)
    offsets = np.concatenate([[0], np.cumsum(LENGTHS)]).astype(np.int64)
    folder = tmp_path / "corpus"
    piece = EncodedPiece("p", len(LENGTHS), len(tokens))
    piece.save(folder, tokens, offsets)
    np.save(folder / "counts.npy", np.bincount(tokens, minlength=WORDS).astype(np.int64))
    Encoded(folder).save([piece])
    return Encoded(folder)


@pytest.fixture
def trained(corpus: Encoded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Train on so many GPUs; return the Trained and the communicator of each rank."""
    monkeypatch.setattr(deltas, "_DEVICE_CHUNK_VALUES", 7 * DIM)  # 5 pieces of a table
    monkeypatch.setattr(loop, "GPU_BLOCK_WORDS", 40)
    monkeypatch.setattr(loop, "cores_of_rank", lambda comm: 1)
    late_gpus.install(monkeypatch, loop, corpora, deltas, state)

    def train(
        ranks: int,
        training: TrainingSettings = TRAINING,
        *,
        how: str = "late",
        seed: int = 0,
    ) -> list[Any]:
        folder = tmp_path / "run"
        folder.mkdir(exist_ok=True)
        task = TrainTask(corpus, WORDS, corpus.folder / "counts.npy", training, folder)
        return late_gpus.Gpus(ranks, seed, how).run(lambda comm: (loop.train(comm, task), comm))

    return train


def rounds_of(lengths: tuple[int, ...], words: int) -> list[int]:
    """Return where rounds of an epoch begin, and where the last ends: about as long each."""
    before = np.concatenate([[0], np.cumsum(lengths)])
    count = -(-int(before[-1]) // words)
    places = [int(before[-1]) * number // count for number in range(count + 1)]
    ends = [int(np.searchsorted(before, place)) for place in places]
    return [0, *dict.fromkeys(end for end in ends[1:-1] if end), len(lengths)]


def in_numpy(corpus: Encoded, ranks: int, training: TrainingSettings = TRAINING) -> Any:
    """Return the vectors, and the sums of losses of each epoch, as the exchange is defined."""
    tokens = np.load(corpus.folder / "p.tokens.npy")
    before = np.load(corpus.folder / "p.offsets.npy")
    counts, words = np.load(corpus.folder / "counts.npy"), int(before[-1])
    noise = Noise(*naive.noise_table(counts), naive.keep_thresholds(counts, training.sample))
    shares = counts / counts.sum()
    kept = shares * np.minimum(np.sqrt(training.sample / shares) + training.sample / shares, 1)
    drawn = counts**0.75 / (counts**0.75).sum()
    # Of 4 words around each, and 3 negatives.
    pairs = kept * 4 * (1 + 3), 4 * (kept + drawn * kept.sum() * 3)
    near = min(4, words / len(LENGTHS) - 1) / 4
    base = naive.start_rows(9, np.arange(WORDS), DIM), np.zeros((WORDS, DIM), np.float32)
    sums = []
    for epoch in range(training.epochs):
        done = (epoch * words + before[:-1]) / (training.epochs * words)
        lrs = (0.05 - 0.04 * done).astype(np.float32)
        found = Losses()
        assert training.sync_words is not None
        cuts = rounds_of(LENGTHS, training.sync_words)
        for first, last in pairwise(cuts):
            start, trained = before[first], int(before[last] - before[first])
            moved = [np.zeros_like(table) for table in base]
            places = [np.searchsorted(before, start + trained * i // ranks) for i in range(ranks)]
            ends = [first, *np.clip(places[1:], first, last), last]
            for begin, end in pairwise(ends):
                copy = base[0].copy(), base[1].copy()
                some = before[begin : end + 1]
                block = tokens[some[0] : some[-1]], some - some[0], lrs[begin:end]
                if len(block[0]):
                    given = Sentences(*block, first=int(begin), epoch=epoch)
                    found += cpu.train(*copy, given, noise, training.rules, threads=1)
                for into, table, old in zip(moved, copy, base, strict=True):
                    into += table - old
            weights = drawn.astype(np.float32)
            squares = [naive.mean_square(weights, table) for table in reversed(base)]
            exchange = Exchange(ranks, trained, float(lrs[first]))
            for table, change, of, square in zip(base, moved, pairs, squares, strict=True):
                of = (of * near).astype(np.float32)
                naive.apply_changes(table, [], change, of, square, exchange)
        sums.append(found)
    return base, sums


def assert_as_in_numpy(
    corpus: Encoded, folder: Path, found: list[Any], training: TrainingSettings
) -> None:
    base, sums = in_numpy(corpus, len(found), training)
    one = found[0][0]
    np.testing.assert_allclose(np.load(one.vectors), base[0], rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(np.load(one.context), base[1], rtol=1e-4, atol=1e-6)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["epoch"] for line in lines] == [*range(1, training.epochs + 1)]
    for line, each in zip(lines, sums, strict=True):
        assert line["loss"] == pytest.approx(each.loss / each.pairs, rel=1e-5)
        assert (line["words"], line["kept"], line["pairs"]) == (each.words, each.kept, each.pairs)
    for other, _ in found:
        assert (other.loss, other.words, other.pairs) == (one.loss, one.words, one.pairs)
        assert other.words == training.epochs * sum(LENGTHS)


@pytest.mark.parametrize("sync_words", [1, 100, 10**9])
@pytest.mark.parametrize(
    ("ranks", "how", "seed"), [(2, "late", 1), (2, "eager", 2), (2, "any", 3), (3, "any", 4)]
)
def test_vectors_move_by_what_all_ranks_changed(
    corpus: Encoded, tmp_path: Path, trained: Any, ranks: int, sync_words: int, how: str, seed: int
) -> None:
    training = replace(TRAINING, sync_words=sync_words)
    found = trained(ranks, training, how=how, seed=seed)
    assert_as_in_numpy(corpus, tmp_path / "run", found, training)
    # The host is a round ahead, but for the end: the last round, and the exchange after it.
    rounds = training.epochs * (len(rounds_of(LENGTHS, sync_words)) - 1)
    for _, comm in found:
        assert comm.ahead == [*([1] * (rounds - 1)), 0, 0]


@pytest.mark.parametrize("stop", [1, 5])
@pytest.mark.parametrize("how", ["late", "any"])
def test_ranks_go_on_from_a_checkpoint_as_if_there_had_been_no_end(
    corpus: Encoded,
    tmp_path: Path,
    trained: Any,
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    stop: int,
) -> None:
    save, saved = Checkpoints.save, list[Any]()

    def stop_soon(self: Checkpoints, *given: Any) -> None:
        save(self, *given)
        saved.append(given[0])
        if len(saved) == stop:
            raise KeyboardInterrupt

    monkeypatch.setattr(Checkpoints, "save", stop_soon)
    with pytest.raises(KeyboardInterrupt):
        trained(2, replace(TRAINING, checkpoint_minutes=1e-9), how=how)
    monkeypatch.setattr(Checkpoints, "save", save)
    assert saved[-1].epoch + saved[-1].step > 0
    found = trained(2, how=how)
    assert 0 < found[0][0].resumed < 1
    assert_as_in_numpy(corpus, tmp_path / "run", found, TRAINING)


def test_ranks_end_together_where_a_loss_is_no_number(
    trained: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def overflow(into: Any, out: Any, block: Sentences, *given: Any, **more: Any) -> Losses:
        found = train(into, out, block, *given, **more)
        if block.epoch == 1 and block.first <= 9 < block.first + len(block.lrs):
            into[:] = np.nan
        return found

    train = cpu.train
    monkeypatch.setattr(cpu, "train", overflow)
    found = trained(2)
    assert {one.stopped for one, _ in found} == {"nan"}
    assert {one.epochs for one, _ in found} == {1}
    assert not (tmp_path / "run/checkpoints").exists()
