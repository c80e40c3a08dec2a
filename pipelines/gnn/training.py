"""``penstock gnn train``: from options to a run's folder."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from penstock.cluster.spec import ClusterSpec
from penstock.errors import PenstockError
from penstock.graph import Graph
from penstock.pipelines.display import Command
from penstock.pipelines.gnn.declare import EdgeRules, complete, ignored, task_of, warn_ignored
from penstock.pipelines.gnn.options import GnnOptions
from penstock.pipelines.gnn.planning import (
    Lowered,
    disk_to_train,
    lowering,
    need_disk_to_train,
    plan_job,
    too_large_to_train,
)
from penstock.pipelines.gnn.report import TrainReport
from penstock.pipelines.gnn.run import FORMAT, Run
from penstock.pipelines.job import Job, Workers
from penstock.pipelines.job.following import sibling
from penstock.pipelines.job.plan import Plan
from penstock.pipelines.job.ranks import resolve_ranks
from penstock.pipelines.job.run_folder import (
    RunState,
    epochs_text,
    finished_plan,
    is_trained,
    refuse_fewer,
)
from penstock.pipelines.job.training_bar import TrainingBar
from penstock.sizes import plural
from penstock.splits import FILE_NAME as SPLIT_FILE
from penstock.splits import DrawnSplit, draw_split, keep_split, split_file
from penstock.workers.gnn.checkpoint import BEST, LAST, epochs_of
from penstock.workers.gnn.plan.spec import Model
from penstock.workers.gnn.task import Trained, TrainTask
from penstock.workers.stopped import Stopped


class TrainJob(Job[TrainReport]):
    """Trains a model on ranks, in a folder that is there from the first epoch on."""

    command = "penstock gnn train"
    visible = FORMAT
    run: Run

    def __init__(
        self,
        graph: Graph,
        out: Path,
        options: GnnOptions,
        cluster: str | ClusterSpec | None = None,
        declared: Model | None = None,
        *,
        quiet: bool,
    ) -> None:
        super().__init__(out, options, cluster, quiet=quiet)
        self.graph, self.declared = graph, declared

    def check(self) -> None:
        """Fit the model to the graph, and draw the split where one is to be drawn."""
        graph, options = self.graph, self.options
        self.resumes = options.resume and (self.out / FORMAT.file).is_file()
        split, self.splits = None, None
        if options.split is not None:
            split = DrawnSplit(options.split, options.split_stratified)
        self.before = Run.load(self.out) if self.resumes else None
        if self.before is not None:
            # What was drawn stays; another --split is refused when the folder is opened.
            old = self.before.split
            if old is not None and (split is None or split.declared == old.declared):
                split = old
        model, training = complete(graph, options, self.declared, drawn=split is not None)
        options.check_effect(model, graph.manifest, resolve_ranks(options.parts, self.cluster)[1])
        self.seen = 0
        if self.before is None:
            warn_ignored(graph)
        else:
            self.seen = _epochs_seen(self.out, training.epochs)
        if split is not None and not (self.resumes and (self.out / SPLIT_FILE).is_file()):
            split, self.splits = draw_split(split, graph, training.seed)
        about = graph.manifest
        assert about.features is not None
        self.epochs = training.epochs - self.seen  # as far as is known: it may stop early
        self.run = Run(
            graph=str(graph.path),
            graph_sha256=graph.digest,
            model=model,
            training=training,
            task=task_of(graph),
            features=about.features.width,
            classes=about.classes,
            feature_names=about.feature_names,
            feature_scales=about.feature_scales(),
            edges=EdgeRules.of(graph, weighted=training.weighted),
            split=split,
            options=self.given,
        )

    def plan(self) -> Plan:
        """Lower the model for the graph and a worker."""
        run, epochs, layers = self.run, self.run.training.epochs, len(self.run.model.layers)
        what = f"a model of {plural(layers, 'layer')}"
        if (finished := self._finished()) is not None:
            return finished_plan(what, epochs, self.seen, finished.stopped)

        def lowered_by(workers: Workers) -> Lowered:
            lowered = lowering(workers, self.graph, run.training)
            return lowered(run.model), too_large_to_train(workers, run.model, lowered)

        return plan_job(
            self,
            self.graph,
            what=f"{what}, {epochs_text(epochs, self.seen)}",
            folder=self.out.parent,
            size=disk_to_train(run.model, run.features, epochs),
            lowered_by=lowered_by,
        )

    def work(self) -> None:
        """Train on ranks, and write run.json with the results."""
        graph, run, folder, training = self.graph, self.run, self.out, self.run.training
        if (finished := self._finished()) is not None:
            self.trained: Trained = finished
            assert self.before is not None
            if self.splits is not None:
                keep_split(folder, graph, self.splits)
            self.run = replace(run, parts=self.before.parts)
            self.device = finished.device
            done = replace(self.run, state=RunState.DONE, results=self.before.results)
            FORMAT.save(folder, done.to_dict())
            return
        with self.open_ranks(graph, self.options.parts) as workers:
            self.run = run = replace(run, parts=workers.count)
            self.device = workers.capacity.device
            FORMAT.save(folder, run.to_dict())
            if self.splits is not None or run.split is None:
                keep_split(folder, graph, self.splits)
            if run.split is not None and not self.quiet:
                does = "Resumes with the" if self.resumes else "Drew a"
                print(f"{does} split {run.split.declared}", file=sys.stderr)
            lowered = lowering(workers, graph, training)
            if (problem := too_large_to_train(workers, run.model, lowered)) is not None:
                raise problem
            need_disk_to_train(folder, run.model, run.features, training.epochs)
            # Always resume: a rank that is started again finds the checkpoint of the first.
            task = TrainTask(
                graph.path, workers.partition_path, run.model, training, lowered(run.model), folder,
                resume=True, split=split_file(folder, run.split),
            )  # fmt: skip
            # The share of right predictions says something of classes only.
            scores = () if run.task == "value" else ("train", "valid")
            with TrainingBar(
                training.epochs, "epochs", "epoch", scores=scores, quiet=self.quiet
            ) as bar:
                train = "penstock.workers.gnn.train:train"
                self.trained = workers.ranks(
                    train, (task,), title="train", on_metrics=bar.on_metrics
                )[0]
                self.epochs = self.trained.epochs - self.trained.first_epoch
                if self.epochs:
                    # Not every epoch is reported.
                    bar.on_metrics(0, {"epoch": self.trained.epochs})
            FORMAT.save(folder, run.ended(self.trained).to_dict())

    def _finished(self) -> Trained | None:
        """Return the results of a run that is resumed with nothing left to train."""
        before, run = self.before, self.run
        if before is None or (trained := before.trained(Trained, self.out)) is None:
            return None
        if not is_trained(trained.stopped, before.training, run.training):
            return None
        left = trained.stopped is Stopped.EPOCHS and self.seen < run.training.epochs
        if left or self.seen != trained.epochs or not (self.out / BEST).is_file():
            return None
        return replace(trained, first_epoch=trained.epochs)

    def report(self, seconds: float) -> TrainReport:
        """Return the metrics of the best epoch; raise where the loss became NaN."""
        if self.trained.stopped is Stopped.NAN:
            raise self._diverged()
        training = self.run.training
        return TrainReport(
            run=str(self.out),
            graph=str(self.graph.path),
            task=self.run.task,
            model=self.run.model.to_dict(),
            patience=training.patience,
            evaluate_every=training.evaluate_every,
            split=self.run.split,
            ranks=self.run.parts,
            device=self.device,
            on_gpu=self.trained.device == "gpu",
            trained=self.trained,
            seconds=seconds,
            ignored=ignored(self.graph),
            profile=self.out / "profile.json" if training.profile else None,
        )

    def _diverged(self) -> PenstockError:
        """Return the error of a loss that is no number."""
        kept = [self.out / name for name in (BEST, LAST) if (self.out / name).is_file()]
        again = "train again with a lower --lr, with --warmup, or with --clip 1"
        holds = f"{kept[0]} holds the last good weights" if kept else ""
        if self.brought_back:
            holds = f"{self.out} holds the run before, which was not replaced"
        return PenstockError(
            f"the loss became NaN or infinite in epoch {self.trained.epochs}",
            remedy=f"{holds}; {again}" if holds else again.capitalize(),
        )

    def following(self) -> list[Command]:
        """Return what applies the weights, and scores them where there are nodes to test on."""
        predict: Command = ("gnn", "predict", self.out, sibling(self.out, "predictions"))
        if "test" not in self.trained.metrics:
            return [predict]
        return [("gnn", "evaluate", self.out), predict]


def unnamed_run(graph: Path) -> Path:
    """Return a folder next to a graph that is not there, of a run that is only planned."""
    run = sibling(graph, "run")
    return run if not run.exists() else unnamed_run(run)


def _epochs_seen(out: Path, epochs: int) -> int:
    """Return how many epochs a run that is resumed has; raise where it cannot go on."""
    if not (out / LAST).is_file():
        return 0
    seen = epochs_of(out / LAST)
    refuse_fewer(out, seen, epochs)
    return seen
