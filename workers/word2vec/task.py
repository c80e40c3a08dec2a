"""The task and the result of ranks that train vectors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.files import FileEntry
from penstock.kernels.word2vec_rules import Word2vecRules
from penstock.limits import cores
from penstock.workers.training.stopped import Stopped
from penstock.workers.word2vec.corpus import Encoded, GraphWalks

BLOCK_WORDS = 1 << 20  # words between two checks for the client
GPU_BLOCK_WORDS = 1 << 25
FLOAT = 4
# Words between two exchanges per word of the vocabulary: the shards' changes then combine well, and
# exchanges take a small share of the time. GPUs need more words at a time to be busy, which harms
# only short runs. So all exchange at least SYNC_ROUNDS times, and more often in runs of at most
# SHORT words, which take little time anyway: GPUs with at least SYNC_LEAST_GPU words between
# exchanges, CPUs with at least SYNC_FEW per word of the vocabulary, because exchanging a word takes
# them several times as long as training it once. GPUs train SHORT_GPU words in less than a second:
# up to there they exchange four times as often, and less and less often in longer runs, but never
# with fewer words than the vocabulary has, because exchanging a word takes them about as long as
# training it once.
SYNC, SYNC_GPU, SYNC_FEW, SYNC_LEAST = 5, 100, 2, 100_000
SYNC_ROUNDS, SYNC_ROUNDS_SHORT, SHORT = 50, 150, 1_000_000_000
SYNC_ROUNDS_GPU, SHORT_GPU, SYNC_LEAST_GPU = 600, 100_000_000, 50_000


@dataclass(frozen=True)
class TrainingSettings:
    """How vectors are trained.

    min_lr         ``lr`` falls to it linearly, by words
    sample         the threshold of subsampling, 0 for none
    ns_exponent    negatives are drawn in proportion to counts to this power
    deterministic  the same bytes for any number of threads and ranks
    shards         parts into which deterministic training cuts the words between two exchanges
    sync_words     words of all ranks or shards between two exchanges; None: the vocabulary and the
                   length of the run decide
    """

    dim: int
    rules: Word2vecRules
    epochs: int
    lr: float
    min_lr: float
    sample: float
    ns_exponent: float
    deterministic: bool
    shards: int
    sync_words: int | None
    checkpoint_minutes: float
    checkpoint_epochs: int = 0

    def copies(self, ranks: int) -> int:
        """Return the number of copies of the vectors on the fullest rank, besides its own."""
        if self.deterministic:
            return -(-self.shards // ranks)
        return 0 if ranks == 1 else 1

    def words_between_exchanges(self, vocabulary: int, words: int, *, on_gpu: bool) -> int:
        """Return the words of all ranks or shards between two exchanges.

        words  of all epochs
        """
        if self.sync_words is not None:
            return self.sync_words
        few = words // (SYNC_ROUNDS_SHORT if words <= SHORT else SYNC_ROUNDS)
        if on_gpu:
            if words <= SHORT:
                rounds = SYNC_ROUNDS_GPU * SHORT_GPU // max(words, SHORT_GPU)
                few = words // max(rounds, SYNC_ROUNDS_SHORT)
            return max(min(SYNC_GPU * vocabulary, few), SYNC_LEAST_GPU, vocabulary)
        return max(min(max(SYNC * vocabulary, SYNC_LEAST), few), SYNC_FEW * vocabulary)

    def vector_bytes(self) -> int:
        """Return the bytes of a word's input and output vectors in one copy."""
        return 2 * FLOAT * self.dim

    def word_bytes(self, ranks: int, *, on_gpu: bool) -> int:
        """Return the bytes per word of the vocabulary on a rank."""
        # Noise and counts; a GPU also counts the changes of a word in flight, and computes shares.
        tables = 16 + (16 + 24 if on_gpu else 8)
        copies = self.copies(ranks)
        if copies:
            tables += 3 * FLOAT  # factors that combine the rows of shards
        return self.vector_bytes() * (1 + copies) + tables

    def block_bytes(self, *, on_gpu: bool) -> int:
        """Return the approximate bytes of windows, and of blocks that are read ahead."""
        blocks = 3 * 12 * (GPU_BLOCK_WORDS if on_gpu else BLOCK_WORDS)
        return blocks if on_gpu else blocks + self._window_bytes() * cores()

    def _window_bytes(self) -> int:
        """Return the approximate bytes of a thread's windows; it has 3 copies of their words."""
        return 2 * self.rules.half_window * (3 * FLOAT * self.dim + 40)


@dataclass(frozen=True)
class TrainTask:
    """A training run, the same for every rank.

    words   number of words in the vocabulary
    counts  an .npy file of their counts; None: counted in the walks
    start   a folder with words.npy, in.npy and maybe out.npy, for words that begin with vectors
    folder  rank 0 writes metrics.jsonl, checkpoints, and in the end the vectors there
    parts   folder for the Parquet files of the vectors, which rank 0 writes with the last
            checkpoint; None: no such files
    ids     a Parquet file with a column id, the words in their order, for these files
    """

    corpus: Encoded | GraphWalks
    words: int
    counts: Path | None
    training: TrainingSettings
    folder: Path
    start: Path | None = None
    parts: Path | None = None
    ids: Path | None = None


@dataclass(frozen=True)
class Trained:
    """The result of a training run; the same on every rank.

    vectors, context  files of the input and the output vectors; counts: file of the words' counts
    loss     the mean over the pairs of the last epoch
    words    trained words before subsampling, in this run and those that it resumed
    seconds  of training in this run alone; run_words: its words
    stopped  why it ended; never by patience
    resumed  the share of the words that earlier runs trained
    parts    the Parquet files that rank 0 wrote; none if nothing was left to train
    """

    vectors: Path
    context: Path
    counts: Path
    epochs: int
    loss: float
    words: int
    kept: int
    pairs: int
    seconds: float
    run_words: int
    stopped: Stopped
    resumed: float = 0.0
    unseen: int = 0
    threads: int = 1
    parts: tuple[FileEntry, ...] = ()
