"""What a training run takes of memory and disk, and what would fit where it takes too much."""

from __future__ import annotations

from penstock.errors import CapacityError
from penstock.kernels.word2vec_rules import MAX_POOL, Word2vecRules
from penstock.pipelines.job.capacity import Capacity
from penstock.pipelines.word2vec.options import Word2vecOptions
from penstock.sizes import plural
from penstock.workers.word2vec.task import TrainingSettings

_SHARDS = 4  # of deterministic training
# Words of walks that have a pool of negatives, and how often one of it is drawn. Vectors of a pool
# are to stay in the caches of a core: 400 with 5 negatives. With 8 uses and with 25 edges of R-MAT
# are a little less near than with negatives of all, by 0.001 and 0.004 of the pairs.
_POOL_PLACES, _POOL_USES = 640, 8


def settings_of(options: Word2vecOptions, kind: str) -> TrainingSettings:
    """Return what ranks are given of the options."""
    # No word of a sentence is further away: buffers are as long as windows are wide.
    longest = options.length if kind == "graph" else options.max_sentence
    half = min(-(-options.window // 2), max(longest - 1, 1))
    rules = Word2vecRules(
        half_window=half,
        negatives=options.negatives,
        seed=options.seed,
        shared_windows=options.shared_windows,
        **_pool(options, kind),
    )
    return TrainingSettings(
        dim=options.dim,
        rules=rules,
        epochs=options.rounds(kind),
        lr=options.lr,
        min_lr=options.min_lr,
        sample=options.sample,
        ns_exponent=options.ns_exponent,
        deterministic=options.deterministic,
        shards=_SHARDS if options.shards is None else options.shards,
        sync_words=options.sync_words,
        checkpoint_minutes=options.checkpoint_minutes,
    )


def _pool(options: Word2vecOptions, kind: str) -> dict[str, int]:
    """Return what rules are given of pools: they are for walks, which are all about as long."""
    on = options.shared_windows == 1 if options.pools is None else options.pools
    if kind != "graph" or not on:
        return {}
    sentences = max(1, round(_POOL_PLACES / options.length))
    words = -(-sentences * options.length * options.negatives // _POOL_USES)
    return {"pool": min(words, MAX_POOL), "pool_sentences": sentences}


def memory_of(
    training: TrainingSettings, words: int, ranks: int, rows: int, *, on_gpu: bool
) -> int:
    """Return the bytes that the fullest rank takes; rows: of a graph that it holds."""
    a_word = training.word_bytes(ranks, on_gpu=on_gpu)
    return a_word * words + rows + training.block_bytes(on_gpu=on_gpu)


def disk_of(training: TrainingSettings, words: int) -> int:
    """Return what vectors, context and Parquet files take of the disk."""
    return words * (training.vector_bytes() + 4 * training.dim + 40)


def checkpoint_bytes(training: TrainingSettings, words: int) -> int:
    """Return what checkpoints take: the last one is there until the next is whole."""
    return 2 * words * training.vector_bytes()


def too_large(
    training: TrainingSettings, words: int, ranks: int, rows: int, has: Capacity
) -> CapacityError | None:
    """Return the error of a vocabulary that does not fit on a rank, None where it does."""
    needed = memory_of(training, words, ranks, rows, on_gpu=has.on_gpu)
    if needed <= has.memory:
        return None
    remedy = "Take a smaller --dim, --max-vocab or --window, fewer --shards, or more memory"
    return has.too_small(
        f"training {words:,} words of {plural(training.dim, 'dimension')}", needed, remedy=remedy
    )
