"""The training of one rank: ``train(comm, task)``; training/loop.py drives it.

One rank alone trains its vectors in place, block after block, on all its threads or its GPU.
Several ranks, or the shards of ``--deterministic``, train copies on their own words, and combine
them after a number of words: see deltas.py.

Rounds of a GPU are launched one ahead: while it trains the next round, the host reads the losses of
the last, sends them to the other ranks and records them, so the GPU never waits for the host. The
host waits for the GPU only before a checkpoint, whose vectors must be those of the recorded words.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.arrays import AnyArray, Array, empty_lines
from penstock.arrow import one_array, read_column
from penstock.files import FileEntry, save_npy
from penstock.graph import load_npy
from penstock.kernels import kernel
from penstock.kernels.word2vec_rules import Losses, Noise, Sentences
from penstock.threads import cores_of_rank, spread
from penstock.workers.resources.device import arrays_of_device, gpu, to_device
from penstock.workers.training.loop import Evaluation, Loop, Position, Step, Trainer
from penstock.workers.word2vec.corpus import Corpus, WalkCorpus
from penstock.workers.word2vec.deltas import Pair, Shards
from penstock.workers.word2vec.state import Checkpoints, Parts, Sums
from penstock.workers.word2vec.task import BLOCK_WORDS, GPU_BLOCK_WORDS, Trained, TrainTask

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

_START_ROWS = 1 << 16  # numbers that are drawn, or read, at a time
_SAY_EVERY = 0.1  # seconds
# Rounds that are launched before the losses of one are read. CPUs gain nothing from that.
_ROUNDS_AHEAD, _ROUNDS_AHEAD_ON_CPUS = 1, 0
# The noise is drawn in proportion to counts to this power, like the kernels' tables.
_NOISE_POWER = 0.75


def train(comm: AnyCommunicator, task: TrainTask) -> Trained:
    """Train on this rank's share of the corpus; the results of ranks differ only in times."""
    threads = cores_of_rank(comm)
    alone = 1 if task.training.deterministic else threads
    with task.corpus.open(alone) as corpus:
        return _Trainer(comm, task, corpus, threads).run()


class _Block(NamedTuple):
    """A block of sentences that this rank trains.

    begin, end  of its round, on all ranks; end is None except in the last block of the round
    """

    epoch: int
    first: int
    last: int
    begin: int
    end: int | None


class _Round(NamedTuple):
    """A launched round: its losses, which are valid once the stream has reached ``mark``."""

    found: list[Callable[[], Losses]]
    mark: Any
    last: int


class _Trainer(Trainer):
    """The trainer of one rank, in rounds; steps count sentences."""

    def __init__(
        self, comm: AnyCommunicator, task: TrainTask, corpus: Corpus, threads: int
    ) -> None:
        self.comm, self.task, self.corpus, self.threads = comm, task, corpus, threads
        self.training = training = task.training
        self.rules = replace(training.rules, pool=0) if gpu() else training.rules
        self.block = GPU_BLOCK_WORDS if gpu() else BLOCK_WORDS
        self.counts = self._counts()
        self.noise = self._noise()
        self.position, self.sums, self.vectors = Position(), Sums(), self._vectors()
        self.checkpoints = Checkpoints(task.folder)
        self.module = kernel("word2vec", self.vectors[0])
        self._said, self._before, self._words_before = 0.0, 0, 0
        self._seconds = 0.0  # of training
        self._parts: Future[Parts | None] | None = None  # of rank 0
        self._written: list[FileEntry] = []
        self._launched: deque[_Round] = deque()
        self._ahead_by = _ROUNDS_AHEAD if gpu() else _ROUNDS_AHEAD_ON_CPUS

    def run(self) -> Trained:
        """Run the remaining epochs."""
        training, folder = self.training, self.task.folder
        copies = training.copies(self.comm.size)
        self.corpus.hold(copies * sum(int(table.nbytes) for table in self.vectors))
        with ThreadPoolExecutor(1) as background:
            if self.comm.rank == 0:
                self._parts = background.submit(self._find_parts)
            stopped = Loop(self, training, folder).run().stopped
        self.comm.barrier()
        sums, number = self.sums, Checkpoints(folder).number
        return Trained(
            vectors=folder / f"checkpoints/in-{number}.npy",
            context=folder / f"checkpoints/out-{number}.npy",
            counts=folder / "counts.npy",
            epochs=self.position.epoch,
            loss=sums.last_loss,
            words=self._trained(),
            kept=sums.total.kept,
            pairs=sums.total.pairs,
            seconds=self._seconds,
            run_words=self._trained() - self._words_before,
            stopped=stopped,
            resumed=self._before / max(training.epochs * self.corpus.words, 1),
            unseen=int(np.count_nonzero(self.counts == 0)),
            threads=self.threads,
            parts=tuple(self._written),
        )

    def _find_parts(self) -> Parts | None:
        """Save the counts, and return the columns of the Parquet files, while others train."""
        save_npy(self.task.folder, "counts.npy", self.counts)
        if self.task.parts is None or self.task.ids is None:
            return None
        ids = one_array(read_column(self.task.ids, "id"))
        return Parts(self.task.parts, ids, self.counts, self.threads)

    # -- what stands before the first word ---------------------------------------------------------

    def _counts(self) -> AnyArray:
        """Return the counts of words from a file, or of nodes in the first walks of all starts."""
        if self.task.counts is not None:
            return np.asarray(load_npy(self.task.counts))
        corpus = self.corpus
        assert isinstance(corpus, WalkCorpus)
        walks, ranks, rank = corpus.counted, self.comm.size, self.comm.rank
        counts = corpus.visits(self.task.words, walks * rank // ranks, walks * (rank + 1) // ranks)
        self.comm.allreduce(counts)
        return counts

    def _noise(self) -> Noise:
        training, counts = self.training, self.counts
        drawn = counts
        if training.ns_exponent != _NOISE_POWER:
            with np.errstate(divide="ignore"):
                powered = counts.astype(np.float64) ** (training.ns_exponent / _NOISE_POWER)
            drawn = np.where(counts > 0, powered, 0.0)  # unseen words are never drawn
        shares = (counts / max(counts.sum(), 1)).astype(np.float32)
        counts, drawn = to_device(counts), to_device(drawn)
        module = kernel("word2vec", counts)
        chance, alias = module.noise_table(drawn)
        keep = module.keep_thresholds(counts, training.sample) if training.sample else None
        return Noise(chance, alias, keep, to_device(shares))

    def _pairs(self) -> tuple[Pair, AnyArray]:
        """Return pairs of each row per word of the corpus, and each row's share of negatives."""
        training, counts, rules = self.training, self.counts.astype(np.float64), self.training.rules
        kept = counts / max(counts.sum(), 1)
        if training.sample:
            share = np.where(kept > 0, training.sample / np.maximum(kept, 1e-300), 1.0)
            kept = kept * np.minimum(np.sqrt(share) + share, 1.0)
        noise = np.where(counts > 0, np.maximum(counts, 1) ** training.ns_exponent, 0.0)
        noise /= noise.sum()
        # Windows end with their sentence.
        length = self.corpus.words / max(self.corpus.sentences, 1)
        near, of_all = min(2 * rules.half_window, max(length - 1, 0)), kept.sum()
        into = kept * near * (1 + rules.negatives)
        out = near * (kept + noise * of_all * rules.negatives)
        single = [to_device(array.astype(np.float32)) for array in (into, out, noise)]
        return (single[0], single[1]), single[2]

    def _vectors(self) -> Pair:
        """Return the vectors to begin with."""
        words, dim, start = self.task.words, self.training.dim, self.task.start
        arrays = arrays_of_device()
        found = arrays.empty((words, dim), np.float32) if gpu() else empty_lines((words, dim))
        module, seed = kernel("word2vec", found), self.training.rules.seed

        def draw(first: int) -> None:
            last = min(first + _START_ROWS, words)
            found[first:last] = module.start_rows(seed, arrays.arange(first, last), dim)

        starts = range(0, words, _START_ROWS)
        if gpu():
            for first in starts:
                draw(first)
        else:
            spread(draw, starts, self.threads)
        # Not zeros: the system would use small pages, while NumPy asks for huge ones.
        context = arrays.empty_like(found) if gpu() else empty_lines((words, dim))
        context[:] = 0
        if start is not None:
            for into, where, what in ((found, "words", "in"), (context, "context_words", "out")):
                if (start / f"{what}.npy").is_file():
                    rows, values = (load_npy(start / f"{name}.npy") for name in (where, what))
                    for some in _pieces(len(rows)):
                        into[to_device(rows[some])] = to_device(values[some])
        return found, context

    # -- what the loop drives ----------------------------------------------------------------------

    def load(self) -> Position | None:
        """Load the last checkpoint."""
        if (saved := self.checkpoints.load()) is None:
            return None
        position, self.sums, vectors = saved
        for mine, theirs in zip(self.vectors, vectors, strict=True):
            for some in _pieces(len(theirs)):
                mine[some] = to_device(np.asarray(theirs[some]))
        return position

    def steps(self) -> Generator[Step, bool, None]:
        """Train one round per step."""
        self._before, self._words_before = self._done(), self._trained()
        if self.training.deterministic:
            yield from self._in_order()
            return
        words, vectors, shards = self.block, self.vectors, None
        if self.comm.size > 1:
            words, shards = self._words_of_round(), self._shards(self.comm.size)
            vectors = shards.copies[0]
        found: list[Callable[[], Losses]] = []
        for block, sentences in self._ahead(self._blocks(words, even=shards is not None)):
            found.append(self._train(vectors, sentences, self.threads))
            if block.end is None:
                continue
            launched, found = _Round(found, self.comm.mark(), block.end), []
            if shards is not None:
                self._combine(shards, block.epoch, block.begin, block.end)
            yield from self._known(launched, self._ahead_by)
        yield from self._known(None, 0)

    def is_finite(self) -> bool:
        """Return whether all vectors are finite numbers."""
        finite = all(
            math.isfinite(float(extreme))
            for vectors in self.vectors
            for extreme in (vectors.min(), vectors.max())
        )
        return all(self.comm.allgather(finite))

    def figures(
        self, evaluated: Evaluation | None, seconds: float
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the sums of an epoch, and its last learning rate."""
        self._seconds += seconds
        sums, last = self.sums.end_epoch(), self.corpus.sentences
        lr = float(self._lrs(self.position.epoch - 1, last - 1, last)[0])
        loss = sums.loss / sums.pairs if sums.pairs else None
        line = {"loss": loss, "words": sums.words, "kept": sums.kept, "pairs": sums.pairs}
        return {**line, "lr": round(lr, 10), "seconds": round(seconds, 3)}, {}

    def save(self, *, best: bool) -> None:
        """Write a checkpoint on rank 0; the last one also writes the requested files."""
        if self.comm.rank > 0:
            return
        parts = None
        if self.position.epoch == self.training.epochs and self._parts is not None:
            parts = self._parts.result()
        self._written = self.checkpoints.save(self.position, self.sums, self.vectors, parts)

    # -- rounds ------------------------------------------------------------------------------------

    def _in_order(self) -> Generator[Step, bool, None]:
        """Train shards of rounds, each in order by one thread."""
        shards = self._shards(self.training.shards)
        for first, last in self._rounds(self._words_of_round()):
            found = self._round_of_shards(shards, first, last)
            self._combine(shards, self.position.epoch, first, last)
            yield from self._known(_Round(found, None, last), 0)

    def _words_of_round(self) -> int:
        training = self.training
        return training.words_between_exchanges(
            self.task.words, training.epochs * self.corpus.words, on_gpu=gpu()
        )

    def _shards(self, count: int) -> Shards:
        pairs, weights = self._pairs()
        ordered, threads = self.training.deterministic, self.threads
        return Shards(
            self.comm, self.vectors, pairs, weights, count, ordered=ordered, threads=threads
        )

    def _round_of_shards(self, shards: Shards, first: int, last: int) -> list[Callable[[], Losses]]:
        """Train this rank's shards of a round, each in order by one thread."""
        cuts = self.corpus.shares(first, last, shards.count)
        found = [Losses() for _ in shards.numbers]

        def train(i: int) -> None:
            number = shards.numbers[i]
            for piece in self.corpus.pieces(cuts[number], cuts[number + 1], self.block):
                block = _Block(self.position.epoch, *piece, first, None)
                found[i] += self._train(shards.copies[i], self._read(block), 1)()

        spread(train, range(len(found)), self.threads)
        return [_given(each) for each in found]

    def _combine(self, shards: Shards, epoch: int, first: int, last: int) -> None:
        """Combine the changes of all shards.

        The losses are not known yet: if values are NaN already, the result is discarded later.
        """
        words = self.corpus.before(last) - self.corpus.before(first)
        shards.combine(words, float(self._lrs(epoch, first, first + 1)[0]))

    def _known(self, launched: _Round | None, ahead: int) -> Generator[Step, bool, None]:
        """Yield the rounds whose losses are read: all except the last, this many.

        All ranks call it at the same points. The host waits for the GPU only here, where the wait
        ends with the gang: otherwise it would wait for ever for the messages of a lost rank.
        """
        if launched is not None:
            self._launched.append(launched)
        wanted = False
        while len(self._launched) > (0 if wanted else ahead):
            one, total = self._launched.popleft(), Losses()
            self.comm.reach(one.mark)
            for found in self.comm.allgather([found() for found in one.found]):
                for losses in found:
                    total += losses
            self.sums.epoch += total
            if whole := not self._launched:  # with the last exchange
                self.comm.synchronize()
            done = one.last if one.last < self.corpus.sentences else 0
            wanted = yield Step(total.loss, done, whole)
            self._say(total)

    def _say(self, losses: Losses) -> None:
        self.comm.check()
        now = time.monotonic()
        if self.comm.rank == 0 and now - self._said > _SAY_EVERY:
            self._said = now
            loss = losses.loss / max(losses.pairs, 1)
            self.comm.log(done=self._done(), before=self._before, loss=loss)

    def _trained(self) -> int:
        """Return the number of trained words; positions beyond the ends of walks do not count."""
        return (self.sums.total + self.sums.epoch).words

    def _done(self) -> int:
        """Return the finished words of all epochs, positions beyond the ends of walks included."""
        position, corpus = self.position, self.corpus
        return position.epoch * corpus.words + corpus.before(position.step)

    # -- blocks ------------------------------------------------------------------------------------

    def _rounds(self, words: int) -> Iterator[tuple[int, int]]:
        """Yield the remaining rounds of this many words."""
        while self.position.epoch < self.training.epochs:
            first = self.position.step
            yield first, self.corpus.cut(first, words)

    def _blocks(self, words: int, *, even: bool = False) -> Iterator[_Block]:
        """Yield the blocks of this rank in rounds of this many words.

        even  make all rounds of an epoch about equally long, instead of a shorter last one
        """
        corpus, rank = self.corpus, self.comm.rank
        epoch, first = self.position.epoch, self.position.step
        while epoch < self.training.epochs:
            end = corpus.even_cut(first, words) if even else corpus.cut(first, words)
            mine = corpus.shares(first, end, self.comm.size)[rank : rank + 2]
            pieces = list(corpus.pieces(mine[0], mine[1], self.block)) or [(end, end)]
            for i, piece in enumerate(pieces, 1):
                yield _Block(epoch, *piece, first, end if i == len(pieces) else None)
            epoch, first = (epoch, end) if end < corpus.sentences else (epoch + 1, 0)

    def _ahead(self, blocks: Iterable[_Block]) -> Iterator[tuple[_Block, Sentences | None]]:
        """Yield blocks with their sentences, and read or walk the next ones meanwhile.

        A GPU walks and trains in the order of its stream; the host's work is hidden, so between two
        blocks the GPU only waits for the second launch.
        """
        with ThreadPoolExecutor(1) as pool:
            waiting = None
            for block in blocks:
                following = block, pool.submit(self._read, block)
                if waiting is not None:
                    yield waiting[0], waiting[1].result()
                waiting = following
            if waiting is not None:
                yield waiting[0], waiting[1].result()

    def _read(self, block: _Block) -> Sentences | None:
        if block.first == block.last:
            return None
        # Copies from the host first: later they would wait for the launched walks.
        lrs = to_device(self._lrs(block.epoch, block.first, block.last))
        tokens, offsets = self.corpus.read(block.epoch, block.first, block.last)
        return Sentences(tokens, offsets, lrs, first=block.first, epoch=block.epoch)

    def _lrs(self, epoch: int, first: int, last: int) -> Array:
        """Return the learning rate of each sentence: it falls with the words before it."""
        training, corpus = self.training, self.corpus
        words = corpus.before(np.arange(first, last, dtype=np.int64)).astype(np.float64)
        done = (epoch * corpus.words + words) / max(training.epochs * corpus.words, 1)
        lrs: Array = training.lr - (training.lr - training.min_lr) * done
        return lrs.astype(np.float32)

    def _train(
        self, vectors: Pair, sentences: Sentences | None, threads: int
    ) -> Callable[[], Losses]:
        """Train a block, or launch it on the GPU; return its losses."""
        if sentences is None:
            return Losses
        if gpu():
            begun: Callable[[], Losses]
            copies = self.comm.size
            begun = self.module.begin(*vectors, sentences, self.noise, self.rules, copies=copies)
            return begun
        found: Losses = self.module.train(
            *vectors, sentences, self.noise, self.rules, threads=threads
        )
        return _given(found)


def _pieces(rows: int) -> Iterator[slice]:
    """Yield pieces of a table: a GPU full of vectors has no room for a copy of it."""
    for first in range(0, rows, _START_ROWS):
        yield slice(first, first + _START_ROWS)


def _given(losses: Losses) -> Callable[[], Losses]:
    return lambda: losses
