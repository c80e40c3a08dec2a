"""One run of ``penstock word2vec train``: from the input to vectors.

The output is hidden until it is complete, unlike the run of ``penstock gnn train``: readers see the
old vectors until the new ones replace them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

from penstock.errors import InputError
from penstock.files import FileEntry, atomic, file_entry
from penstock.graph import load_npy
from penstock.options import given_options
from penstock.output import Output
from penstock.pipelines.job.context import Context
from penstock.pipelines.job.ranks import resolve_ranks
from penstock.pipelines.job.training import diverged
from penstock.pipelines.job.training_bar import TrainingBar
from penstock.pipelines.vectors.store import CONTEXT, FORMAT, VALUES, save_vectors
from penstock.pipelines.word2vec.inputs import Input
from penstock.pipelines.word2vec.options import Word2vecOptions
from penstock.pipelines.word2vec.planning import check_ranks, plan_training, settings_of
from penstock.pipelines.word2vec.report import Word2vecReport
from penstock.pipelines.word2vec.warm import WarmStart
from penstock.sizes import format_count
from penstock.workers.training.stopped import Stopped
from penstock.workers.word2vec.state import METRICS, Checkpoints
from penstock.workers.word2vec.task import Trained, TrainTask

_START = "start"  # folder and record of the vectors to begin with
_GENTLE = 0.05  # the largest learning rate that an error suggests


def train(context: Context, source: Input, out: Output, options: Word2vecOptions) -> Word2vecReport:
    """Make a corpus, train on ranks, and write the vectors."""
    graph, scratch = source.graph, out.scratch
    training, resumes = settings_of(options, source.kind), out.resumes
    begun = resumes and out.pieces.done(_START)  # then --init is not read again
    source.choose(scratch if begun else None)
    warm = None
    if options.init is not None and not begun:
        warm = WarmStart(options.init, options.dim)
    _, asked = resolve_ranks(options.parts, context.cluster)
    if asked is not None:  # before a cluster is started
        check_ranks(options, training, asked, resumes=resumes)
    workers = context.ranks(None, options.parts)
    has = workers.capacity
    check_ranks(options, training, workers.count, on_gpu=has.on_gpu, resumes=resumes)
    known = None if graph is None else graph.num_nodes
    plan_training(context, source, training, workers, known)
    # Errors that the vocabulary decides are raised before the corpus is written.
    vocabulary = source.counted(workers, scratch)
    takes = plan_training(context, source, training, workers, vocabulary.words)
    if warm is not None:
        warm.prepare(vocabulary, graph, scratch / _START)
    prepared = source.prepare(workers, scratch)
    if warm is not None:
        context.init.check()
        out.pieces.save(_START, {"known": warm.initialised, "averaged": warm.averaged}, [])
    started = {} if options.init is None else out.pieces.load(_START)[0]
    if not context.quiet:
        what = "nodes" if source.rows_are == "nodes" else "words in the vocabulary"
        words = f"{format_count(prepared.tokens)} words per epoch"
        print(f"{vocabulary.words:,} {what}, {words}; {takes}", file=sys.stderr)
    task = TrainTask(
        prepared.corpus,
        vocabulary.words,
        prepared.counts,
        training,
        scratch,
        scratch / _START if started else None,
        parts=out.result,
        ids=vocabulary.file,
    )
    total = prepared.tokens * training.epochs
    with TrainingBar(total, "words", quiet=context.quiet) as bar:
        function = "penstock.workers.word2vec.train:train"
        trained: Trained = workers.ranks(
            function, (task,), title="train", on_metrics=bar.on_metrics
        )[0]
    if trained.stopped is Stopped.NAN:
        remedy = f"Train with a lower --lr, such as {min(options.lr / 4, _GENTLE):g}"
        kept = scratch if Checkpoints(scratch).number else None
        raise diverged(trained.epochs, remedy, kept)
    if not trained.pairs:
        raise _untrained(trained, source.what, options.sample)
    with atomic(out.result / METRICS) as copy:
        shutil.copyfile(scratch / METRICS, copy)
    numbers = source.internal and graph is None
    of: dict[str, Any] = {}
    if graph is not None:
        of = {"graph": str(graph.path), "graph_sha256": graph.digest}
    files = [file_entry(out.result, METRICS)]
    if (rows := source.rows()) is not None:
        files.append(rows.save(out.result))
        of["prints"] = rows.about
    size, body = save_vectors(
        out.result,
        vocabulary.ids(),
        load_npy(trained.vectors),
        counts=load_npy(trained.counts),
        context=load_npy(trained.context),
        written=_checkpoint_files(scratch),
        parts=trained.parts,
        files=files,
        made_by="penstock word2vec train",
        input=source.sources,
        input_kind=source.kind,
        **of,
        **({"ids_are": "internal"} if numbers else {}),
        options=given_options(options),
        epochs=training.epochs,
        loss=trained.loss,
        words=trained.words,
    )
    out.describe(FORMAT, body)
    return Word2vecReport(
        vectors=str(out.named),
        input=source.what,
        kind=source.kind,
        rows=vocabulary.words,
        rows_are=source.rows_are,
        dimension=training.dim,
        epochs=trained.epochs,
        loss=trained.loss,
        words=trained.words,
        kept=trained.kept,
        pairs=trained.pairs,
        ranks=workers.count,
        device=has.device,
        on_gpu=has.on_gpu,
        bytes=size,
        train_seconds=trained.seconds,
        # Shorter runs mostly time the start.
        words_per_second=trained.run_words / trained.seconds if trained.seconds > 1 else None,
        resumed=trained.resumed,
        unseen=trained.unseen,
        **started,
        internal_ids=numbers,
    )


def _untrained(trained: Trained, what: str, sample: float) -> InputError:
    left_out = trained.words - trained.kept
    if not left_out:
        return InputError(
            f"{what} has nothing to train on: no word has a neighbour",
            expected="sentences, or walks, of two words or more",
        )
    return InputError(
        f"subsampling left nothing of {what} to train on: no kept word has a neighbour to it",
        expected="sentences, or walks, of two words or more",
        got=f"--sample {sample:g}, which left out {left_out:,} of {trained.words:,} words",
        remedy="Give --sample 0, or a larger one",
    )


def _checkpoint_files(folder: Path) -> dict[str, tuple[Path, FileEntry]]:
    """Return the files of the last checkpoint, by their names in a directory of vectors."""
    saved = Checkpoints(folder).last()
    assert saved is not None
    return {
        name: (folder / entry.name, entry)
        for name, entry in zip((VALUES, CONTEXT), saved.files, strict=True)
    }
