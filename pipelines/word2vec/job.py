"""One run of ``penstock word2vec train``: what it checks, plans and does.

The output is hidden until it is whole, as that of walks is, and not a folder to watch, as that of
``penstock gnn train``: who reads yesterday's vectors does so until today's take their place.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from penstock.cluster.count import check_ranks
from penstock.cluster.spec import ClusterSpec
from penstock.errors import InputError, PenstockError, UsageError
from penstock.files import FileEntry, atomic, file_entry
from penstock.graph import load_npy
from penstock.options import given_options
from penstock.output import Output, refuse_own_input
from penstock.pipelines.display import Command
from penstock.pipelines.job import Job, Workers
from penstock.pipelines.job.capacity import Capacity
from penstock.pipelines.job.plan import Need, Plan, disk_need
from penstock.pipelines.job.ranks import resolve_ranks
from penstock.pipelines.job.run_folder import epochs_text
from penstock.pipelines.job.training_bar import TrainingBar
from penstock.pipelines.vectors.store import CONTEXT, KIND, VALUES, write_vectors
from penstock.pipelines.word2vec.inputs import open_input
from penstock.pipelines.word2vec.options import Word2vecOptions
from penstock.pipelines.word2vec.planning import (
    checkpoint_bytes,
    disk_of,
    memory_of,
    settings_of,
    too_large,
)
from penstock.pipelines.word2vec.report import Word2vecReport, report_of
from penstock.pipelines.word2vec.warm import WarmStart
from penstock.sizes import format_bytes, format_count, plural
from penstock.workers.stopped import Stopped
from penstock.workers.word2vec.state import EPOCHS, Checkpoints, Position
from penstock.workers.word2vec.task import Trained, TrainTask

_GENTLE = 0.05  # a learning rate that is offered, at most


class Word2vecJob(Job[Word2vecReport]):
    """Trains vectors on ranks."""

    command = "penstock word2vec train"
    kind = KIND
    on_gpu = True
    # The rates too: what diverged goes on from its checkpoint with lower ones. A checkpoint says
    # which sentences are done, and so fits any number of ranks.
    passing = frozenset(
        {"resume", "overwrite", "verify", "checkpoint_minutes", "lr", "min_lr", "parts"}
    )

    def __init__(
        self,
        inputs: Sequence[Path],
        out: Path,
        options: Word2vecOptions,
        cluster: str | ClusterSpec | None = None,
        *,
        quiet: bool,
    ) -> None:
        super().__init__(out, options, cluster, quiet=quiet)
        self.input = open_input(inputs, options, quiet=quiet)
        self.training = settings_of(options, self.input.kind)
        self.resumes = Output(self.out, kind=KIND, resume=options.resume).resumes
        self.warm = None if options.init is None else WarmStart(options.init, options.dim)

    # -- before the run ----------------------------------------------------------------------------

    def check(self) -> None:
        """Fit the options to the ranks and the input, and known sizes to the disk."""
        refuse_own_input(self.out, self.input.paths)
        kind, asked = resolve_ranks(self.options.parts, self.cluster)
        if asked is not None:
            if asked > 1:
                check_ranks(kind, self.cluster.workers, asked)
            self._check_ranks(asked, on_gpu=False)  # again once it is known what they compute on
        self.input.check()
        if self.input.words is not None:
            self._need_disk(self.input.words)

    def identity(self) -> dict[str, Any]:
        """Return the input and the vectors of a warm start."""
        warm = {} if self.warm is None else {"init": self.warm.identity()}
        return {**self.input.identity(), **warm}

    def plan(self) -> Plan:
        """Say what would be trained where; text and lists are not counted for that."""
        training, source = self.training, self.input
        words, what = source.words, source.rows_are
        steps = [("input", f"{source.kind} {source.what}, {format_bytes(source.bytes)}")]
        memory, disk, problem = Need(None), Need(None), None
        with self.open_ranks(None, self.options.parts) as workers:
            has = workers.capacity
            self._check_ranks(workers.count, on_gpu=has.on_gpu)
            where = "one rank" if workers.count == 1 else f"{workers.count} ranks"
            if words is None:
                steps.append(("count", "words of all files, as tasks; then they are encoded"))
                memory_left = has.memory - training.block_bytes(on_gpu=has.on_gpu)
                a_word = training.word_bytes(workers.count, on_gpu=has.on_gpu)
                most = max(memory_left, 0) // a_word
                fits = f"on every {has.worker}: at most {format_count(most)} words"
                memory = Need(None, has.memory, fits)
            else:
                rows = source.held_bytes(workers, has.rows)
                needed = memory_of(training, words, workers.count, rows, on_gpu=has.on_gpu)
                memory = Need(needed, has.memory, f"on every {has.worker}")
                disk = disk_need(self.out.parent, self._disk(words))
                problem = too_large(training, words, workers.count, rows, has)
        seen = self._position().epoch
        left = training.epochs - seen
        of = "" if source.tokens is None else f" of {format_count(source.tokens)} words"
        how = "deterministic, " if training.deterministic else ""
        does = f"{how}{plural(left, 'epoch')}{of} on {where}"
        if seen:
            more = "nothing is left to train" if left == 0 else does
            does = f"{more}; {epochs_text(training.epochs, seen)}"
        steps.append(("train", does))
        many = "" if words is None else f"{words:,} "
        return Plan(
            f"vectors of {many}{what}, {plural(training.dim, 'dimension')}",
            tuple(steps),
            memory,
            disk,
            problem=problem,
        )

    def _position(self) -> Position:
        """Return where the checkpoint was written that this run goes on from, if it does."""
        found = Checkpoints(self.destination.scratch, 0).position() if self.resumes else None
        return found or Position()

    def _need_disk(self, words: int) -> None:
        self.need_disk(
            disk_of(self.training, words),
            f"vectors of {words:,} words of {plural(self.training.dim, 'dimension')}",
            scratch=checkpoint_bytes(self.training, words) + self.input.scratch_bytes,
        )

    def _disk(self, words: int) -> int:
        made = disk_of(self.training, words) + self.input.scratch_bytes
        return made + checkpoint_bytes(self.training, words)

    # -- the run -----------------------------------------------------------------------------------

    def work(self, partial: Output) -> None:
        """Make a corpus, train on ranks, and write the vectors."""
        training, scratch = self.training, partial.scratch
        with self.open_ranks(None, self.options.parts) as workers:
            has = workers.capacity
            self._check_ranks(workers.count, on_gpu=has.on_gpu)
            # Whatever the vocabulary decides is said before the corpus is written.
            vocabulary = self.input.counted(workers, scratch)
            memory = self._check_size(vocabulary.words, workers)
            start = None
            if self.warm is not None:
                start = self.warm.prepare(vocabulary, self.input.graph, scratch / "start")
            prepared = self.input.prepare(workers, has.rows, scratch)
            self._say_size(vocabulary.words, prepared.tokens, memory, has)
            task = TrainTask(
                prepared.corpus,
                vocabulary.words,
                prepared.counts,
                training,
                scratch,
                start,
                parts=partial.result,
                ids=vocabulary.file,
            )
            total = prepared.tokens * training.epochs
            with TrainingBar(total, "words", "words", quiet=self.quiet) as bar:
                train = "penstock.workers.word2vec.train:train"
                self.trained: Trained = workers.ranks(
                    train, (task,), title="train", on_metrics=bar.on_metrics
                )[0]
        if self.trained.stopped is Stopped.NAN:
            raise self._diverged(partial)
        if not self.trained.pairs:
            raise self._untrained()
        trained = self.trained
        with atomic(partial.result / EPOCHS) as copy:
            shutil.copyfile(scratch / EPOCHS, copy)
        ids = vocabulary.ids()
        self.rows, self.example = vocabulary.words, str(ids[0].as_py())
        self.bytes = write_vectors(
            partial.result,
            ids,
            load_npy(trained.vectors),
            counts=load_npy(trained.counts),
            context=load_npy(trained.context),
            written=_checkpoint_files(scratch),
            parts=trained.parts,
            files=[file_entry(partial.result, EPOCHS)],
            made_by=self.command,
            **self._about(),
        )

    def _about(self) -> dict[str, Any]:
        graph = self.input.graph
        of = {} if graph is None else {"graph": str(graph.path), "graph_sha256": graph.digest}
        return {
            "input": [str(path) for path in self.input.paths],
            "input_kind": self.input.kind,
            **of,
            **({"ids_are": "internal"} if self.input.has_internal_ids else {}),
            "options": given_options(self.options, passing={"resume", "overwrite", "verify"}),
            "epochs": self.training.epochs,
            "loss": self.trained.loss,
            "words": self.trained.words,
        }

    def _check_ranks(self, ranks: int, *, on_gpu: bool) -> None:
        """Refuse what so many ranks cannot do, before the input is read."""
        training = self.training
        if on_gpu and self.options.pools:
            raise UsageError(
                "--pools is for CPUs: a GPU draws negative samples of all nodes",
                remedy="Give --device cpu, or leave --pools out",
            )
        copies = training.shards if training.deterministic else ranks
        # A run of several ranks may be resumed on one, with the options that it had.
        if copies == 1 and training.sync_words is not None and not self.resumes:
            one = "one shard" if training.deterministic else "one rank"
            raise UsageError(
                f"--sync-words is about exchanges among ranks or shards, and {one} has none",
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
                "ranks without a shard would have nothing to do",
                expected=f"--shards {ranks} or more",
                got=f"--shards {training.shards} on {ranks} ranks",
            )

    def _check_size(self, words: int, workers: Workers) -> int:
        """Return what training takes of a rank's memory; CapacityError where it does not fit."""
        training, has = self.training, workers.capacity
        rows = self.input.held_bytes(workers, has.rows)
        problem = too_large(training, words, workers.count, rows, has)
        if problem is not None:
            raise problem
        self._need_disk(words)
        return memory_of(training, words, workers.count, rows, on_gpu=has.on_gpu)

    def _say_size(self, words: int, tokens: int, memory: int, has: Capacity) -> None:
        if self.quiet:
            return
        what = "nodes" if self.input.rows_are == "nodes" else "words in the vocabulary"
        print(
            f"{words:,} {what}, {format_count(tokens)} words an epoch; {format_bytes(memory)} of "
            f"memory on every {has.worker}, {format_bytes(self._disk(words))} of disk",
            file=sys.stderr,
        )

    def report(self, seconds: float) -> Word2vecReport:
        """Return what was trained."""
        ranks, on_gpu = self.connected.count, self.connected.capacity.on_gpu
        about = {
            "vectors": str(self.out),
            "input": self.input.what,
            "kind": self.input.kind,
            "rows": self.rows,
            "rows_are": self.input.rows_are,
            "internal_ids": self.input.has_internal_ids,
            "dimension": self.training.dim,
            "on_gpu": on_gpu,
            "bytes": self.bytes,
        }
        if self.warm is not None:
            about |= {"known": self.warm.initialised, "averaged": self.warm.averaged}
        device = "gpu" if on_gpu else "cpu"
        return report_of(self.trained, about, seconds=seconds, ranks=ranks, device=device)

    def following(self) -> list[Command]:
        """Return the command to run next."""
        return [("similar", self.out, self.example)]

    # -- what went wrong ---------------------------------------------------------------------------

    def _untrained(self) -> InputError:
        trained, sample = self.trained, self.options.sample
        left_out = trained.words - trained.kept
        if not left_out:
            return InputError(
                f"{self.input.what} has nothing to train on: no word has another next to it",
                expected="sentences, or walks, of two words or more",
            )
        return InputError(
            f"subsampling left nothing of {self.input.what} to train on: no word that was kept has "
            "another next to it",
            expected="sentences, or walks, of two words or more",
            got=f"--sample {sample:g}, which left out {left_out:,} of {trained.words:,} words",
            remedy="Give --sample 0, or a larger one",
        )

    def _diverged(self, partial: Output) -> PenstockError:
        trained, lr = self.trained, self.options.lr
        saved = trained.saved
        lower = f"Train with a lower --lr, such as {min(lr / 4, _GENTLE):g}"
        if saved:
            lower += f"; with --resume it goes on from the checkpoint of {saved}, which is kept"
        return PenstockError(
            "the loss became NaN or infinite in epoch "
            f"{min(trained.epochs + 1, self.training.epochs)}",
            expected="a learning rate at which vectors do not grow without bound",
            got=f"--lr {lr:g}",
            remedy=lower,
        )


def _checkpoint_files(folder: Path) -> dict[str, tuple[Path, FileEntry]]:
    """Return the files of the last checkpoint, by their names among vectors."""
    entries = Checkpoints(folder, 0).entries()
    return {
        name: (folder / entry.name, entry)
        for name, entry in zip((VALUES, CONTEXT), entries, strict=True)
    }
