"""What ranks that train vectors are given, and what they return."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.files import FileEntry
from penstock.kernels.word2vec_rules import Word2vecRules
from penstock.limits import cores
from penstock.workers.training.stopped import Stopped
from penstock.workers.word2vec.corpus import Encoded, GraphWalks

BLOCK_WORDS = 1 << 20  # trained between two checks whether the client is still there
GPU_BLOCK_WORDS = 1 << 25
FLOAT = 4
# Words between two exchanges for each word of the vocabulary: the shards' changes then add up about
# as well as they would one by one, and exchanging takes a small share of the time. GPUs need more
# words at a time to be busy, which a long run stands and a short one does not. So all exchange
# SYNC_ROUNDS times at least in all, and more often if they train SHORT words at most, which takes
# little time however often they exchange: GPUs as far as that leaves them SYNC_LEAST_GPU words,
# CPUs as far as it leaves SYNC_FEW for each word of the vocabulary, whose exchange takes them
# several times as long as training it once. GPUs, which train SHORT_GPU words in less than a
# second, do so four times as often in what is shorter still, and less and less often in what is
# longer; but never with fewer words than the vocabulary has, whose exchange takes them about as
# long as training it once.
SYNC, SYNC_GPU, SYNC_FEW, SYNC_LEAST = 5, 100, 2, 100_000
SYNC_ROUNDS, SYNC_ROUNDS_SHORT, SHORT = 50, 150, 1_000_000_000
SYNC_ROUNDS_GPU, SHORT_GPU, SYNC_LEAST_GPU = 600, 100_000_000, 50_000


@dataclass(frozen=True)
class TrainingSettings:
    """How vectors are trained.

    min_lr         ``lr`` falls to it in a straight line, by words seen
    sample         the threshold of subsampling, 0 for none
    ns_exponent    negatives are drawn as often as counts to this power say
    deterministic  the same bytes whatever the number of threads and ranks
    shards         into how many parts deterministic training cuts the words between two exchanges
    sync_words     words of all ranks or shards between two exchanges; None: as many as follow from
                   the vocabulary
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
        """Return how many copies of the vectors the fullest rank holds besides its own."""
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
        """Return the bytes of a word's input and output vectors, of one copy."""
        return 2 * FLOAT * self.dim

    def word_bytes(self, ranks: int, *, on_gpu: bool) -> int:
        """Return the bytes that a word of the vocabulary takes on a rank."""
        # Of noise and counts; a GPU has how many of a word are under way besides, and makes shares.
        tables = 16 + (16 + 24 if on_gpu else 8)
        copies = self.copies(ranks)
        if copies:
            tables += 3 * FLOAT  # by which rows of shards are combined
        return self.vector_bytes() * (1 + copies) + tables

    def block_bytes(self, *, on_gpu: bool) -> int:
        """Return about what windows take, and blocks that are read while others are trained."""
        blocks = 3 * 12 * (GPU_BLOCK_WORDS if on_gpu else BLOCK_WORDS)
        return blocks if on_gpu else blocks + self._window_bytes() * cores()

    def _window_bytes(self) -> int:
        """Return about what a thread takes for the words of a window, of which it has 3 copies."""
        return 2 * self.rules.half_window * (3 * FLOAT * self.dim + 40)


@dataclass(frozen=True)
class TrainTask:
    """A training run: every rank gets the same.

    words   of the vocabulary
    counts  a file of how often each of them is, .npy; None: counted in the walks
    start   a folder with words.npy, in.npy and maybe out.npy, of words that have vectors already
    folder  rank 0 writes there: metrics.jsonl, checkpoints, and in the end the vectors
    parts   where rank 0 writes the Parquet files of the vectors with the last checkpoint; None: not
    ids     a Parquet file with a column id, of the words in their order, for these files
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

    vectors, context  files of the input and the output vectors; counts: of the words' counts
    loss     the mean over the pairs of the last epoch
    words    that were trained, by this run and those that it went on from, before subsampling
    seconds  of training in this run alone; run_words: the words of these seconds
    stopped  why it ended: not by patience
    resumed  the share of the words that were there from the run before
    parts    the Parquet files that rank 0 wrote; none where there was nothing left to train
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
