"""The rules of a training run, and its memory and disk."""

from __future__ import annotations

from typing import Any

from penstock.errors import UsageError
from penstock.kernels.word2vec_rules import MAX_POOL, Word2vecRules
from penstock.pipelines.job.context import Context
from penstock.pipelines.job.plan import Need
from penstock.pipelines.job.training import epochs_text
from penstock.pipelines.job.workers import Workers
from penstock.pipelines.word2vec.inputs import Input
from penstock.pipelines.word2vec.options import Word2vecOptions
from penstock.sizes import format_bytes, format_count, plural
from penstock.workers.word2vec.state import Checkpoints
from penstock.workers.word2vec.task import TrainingSettings

_SHARDS = 4  # for deterministic training
# Words of walks that share a pool of negatives, and uses of each word of the pool. The vectors of a
# pool should stay in the caches of a core: 400 with 5 negatives. With 8 and with 25 uses, 0.001 and
# 0.004 fewer edges of R-MAT are nearer than random pairs than without pools.
_POOL_PLACES, _POOL_USES = 640, 8


def settings_of(options: Word2vecOptions, kind: str) -> TrainingSettings:
    """Return the options that ranks need."""
    # No word of a sentence is further away, and buffers are as long as windows are wide.
    longest = options.length if kind == "graph" else options.max_sentence
    half = min(-(-options.window // 2), max(longest - 1, 1))
    rules = Word2vecRules(
        half_window=half,
        negatives=options.negatives,
        seed=options.seed,
        shared_windows=options.shared_windows,
        **_pool(options, kind),
    )
    given: dict[str, Any] = {
        n: getattr(options, n, None) for n in TrainingSettings.__dataclass_fields__
    }
    shards = _SHARDS if options.shards is None else options.shards
    return TrainingSettings(
        **given | {"rules": rules, "epochs": options.rounds(kind), "shards": shards}
    )


def _pool(options: Word2vecOptions, kind: str) -> dict[str, int]:
    """Return the pools for the rules: only walks have pools, since they have similar lengths."""
    on = options.shared_windows == 1 if options.pools is None else options.pools
    if kind != "graph" or not on:
        return {}
    sentences = max(1, round(_POOL_PLACES / options.length))
    words = -(-sentences * options.length * options.negatives // _POOL_USES)
    return {"pool": min(words, MAX_POOL), "pool_sentences": sentences}


def check_ranks(
    options: Word2vecOptions,
    training: TrainingSettings,
    ranks: int,
    *,
    on_gpu: bool = False,
    resumes: bool,
) -> None:
    """Raise UsageError for options that this number of ranks cannot use."""
    if on_gpu and options.pools:
        raise UsageError(
            "--pools is for CPUs: a GPU draws negative samples of all nodes",
            remedy="Give --device cpu, or leave --pools out",
        )
    copies = training.shards if training.deterministic else ranks
    # A run of several ranks may be resumed on one, with the same options.
    if copies == 1 and training.sync_words is not None and not resumes:
        one = "one shard" if training.deterministic else "one rank"
        raise UsageError(
            f"--sync-words is for exchanges among ranks or shards, and {one} has none",
            expected="--deterministic with --shards 2 or more, or --parts 2 or more",
            got=f"--sync-words {training.sync_words} on {one}",
            remedy="Leave --sync-words out",
        )
    if not training.deterministic:
        return
    if on_gpu:
        raise UsageError(
            "--deterministic is for CPUs: the threads of a GPU add to vectors in any order",
            remedy="Give --device cpu, or leave --deterministic out",
        )
    if training.shards < ranks:
        raise UsageError(
            "each rank needs a shard",
            expected=f"--shards {ranks} or more",
            got=f"--shards {training.shards} on {ranks} ranks",
        )


def plan_training(
    context: Context,
    source: Input,
    training: TrainingSettings,
    workers: Workers,
    words: int | None,
) -> str:
    """Plan the training; return the text of its memory and disk.

    words  number of words in the vocabulary; None: not counted yet
    """
    has, out = workers.capacity, context.out
    assert out is not None
    steps = [("input", f"{source.kind} {source.what}, {format_bytes(source.bytes)}")]
    disk, scratch, takes = None, 0, ""
    block = training.block_bytes(on_gpu=has.on_gpu)
    a_word = training.word_bytes(workers.count, on_gpu=has.on_gpu)
    if words is None:
        steps.append(("count", "words of all files, as tasks; then they are encoded"))
        most = max(has.memory - block, 0) // a_word
        fits = f"on every {has.worker}: at most {format_count(most)} words"
        memory = Need(None, has.memory, fits)
    else:
        needed = a_word * words + source.held_bytes(workers) + block
        remedy = "Take a smaller --dim, --max-vocab or --window, fewer --shards, or more memory"
        memory = Need(needed, has.memory, f"on every {has.worker}", remedy=remedy)
        # Vectors and context, each once more in Parquet files.
        disk = words * (training.vector_bytes() + 4 * training.dim + 40)
        # Checkpoints: the last one stays until the next is complete.
        scratch = 2 * words * training.vector_bytes() + source.scratch_bytes
        takes = (
            f"{format_bytes(needed)} of memory on every {has.worker}, "
            f"{format_bytes(disk + scratch)} of disk"
        )
    saved = Checkpoints(out.scratch).last() if out.resumes else None
    seen = 0 if saved is None else saved.position.epoch
    steps.append(("train", _train_text(source, training, workers.count, seen)))
    many = "" if words is None else f"{words:,} "
    context.plan(
        f"vectors of {many}{source.rows_are}, {plural(training.dim, 'dimension')}",
        steps=tuple(steps),
        memory=memory,
        disk=disk,
        scratch=scratch,
    )
    return takes


def _train_text(source: Input, training: TrainingSettings, ranks: int, seen: int) -> str:
    left = training.epochs - seen
    of = "" if source.tokens is None else f" of {format_count(source.tokens)} words"
    how = "deterministic, " if training.deterministic else ""
    where = "one rank" if ranks == 1 else f"{ranks} ranks"
    does = f"{how}{plural(left, 'epoch')}{of} on {where}"
    if not seen:
        return does
    more = "nothing is left to train" if left == 0 else does
    return f"{more}; {epochs_text(training.epochs, seen)}"
