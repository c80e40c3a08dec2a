"""``penstock gnn train``: from options to a run's folder."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

from penstock.cluster.spec import ClusterSpec
from penstock.errors import PenstockError, UsageError
from penstock.graph import Graph
from penstock.options import given_options
from penstock.pipelines.gnn.declare import complete, ignored, task_of, warn_ignored
from penstock.pipelines.gnn.folder import Run, run_folder
from penstock.pipelines.gnn.options import GnnOptions
from penstock.pipelines.gnn.planning import lowering, need_disk_to_train, need_memory_to_train
from penstock.pipelines.gnn.ranks import open_ranks, train_on
from penstock.pipelines.gnn.report import TrainReport
from penstock.pipelines.gnn.split import FILE_NAME as SPLIT_FILE
from penstock.pipelines.gnn.split import (
    DrawnSplit,
    declared_split,
    draw_split,
    keep_split,
    split_file,
)
from penstock.workers.gnn.plan.spec import Model, Training
from penstock.workers.gnn.task import Trained, TrainTask


def train_model(
    path: Path,
    out: Path,
    options: GnnOptions,
    cluster: ClusterSpec,
    quiet: bool,
    declared: Model | None = None,
) -> TrainReport:
    """Run the whole job; ``declared`` is a model that was made in Python."""
    begun = time.monotonic()
    graph, folder = Graph.open(path, verify=options.verify, quiet=quiet), out
    resumes = options.resume and (folder / "run.json").is_file()
    split, roles = declared_split(options), None
    if resumes:
        # What was drawn stays; another --split is refused when the folder is opened.
        old = Run.load(folder).split
        if old is not None and (split is None or split.declared == old.declared):
            split = old
    model, training = complete(graph, options, declared, drawn=split is not None)
    warn_ignored(graph, quiet=quiet)
    if split is not None and not (resumes and (folder / SPLIT_FILE).is_file()):
        split, roles = draw_split(split, graph, training.seed)
    run = run_of(graph, model, training, options, split)
    with (
        run_folder(folder, run, resume=options.resume, overwrite=options.overwrite),
        open_ranks(graph, options.parts, cluster, quiet=quiet) as ranks,
    ):
        if training.measure_overlap is not None and ranks.count == 1:
            raise UsageError(
                "--measure-overlap measures the communication of several ranks",
                got="one rank",
                remedy="Train with -k 2 or more, or leave --measure-overlap out",
            )
        run = replace(run, parts=ranks.count)
        run.save(folder)
        if roles is not None or split is None:
            keep_split(folder, graph, roles)
        if split is not None and not quiet:
            does = "Resumes with the" if resumes else "Drew a"
            print(f"{does} split {split.declared}", file=sys.stderr)
        lowered = lowering(ranks, graph, training)
        need_memory_to_train(ranks, model, lowered)
        need_disk_to_train(folder, model, run.features, training.epochs)
        # Always resume: a rank that is started again finds the checkpoint of the first.
        task = TrainTask(
            graph.path, ranks.partition, model, training, lowered(model), folder, resume=True,
            split=split_file(folder, split),
        )  # fmt: skip
        trained = train_on(ranks, task, scored=run.task != "value", quiet=quiet)
        state = "diverged" if trained.stopped == "nan" else "done"
        replace(run, state=state, results=asdict(trained)).save(folder)
        capacity = ranks.capacity
    if trained.stopped == "nan":
        raise _diverged(out, folder, trained)
    return TrainReport(
        run=str(out),
        graph=str(path),
        task=run.task,
        model=model.to_dict(),
        patience=training.patience,
        evaluate_every=training.evaluate_every,
        split=split,
        ranks=run.parts,
        device=capacity.worker,
        on_gpu=capacity.on_gpu,
        trained=trained,
        seconds=time.monotonic() - begun,
        ignored=ignored(graph),
        profile=folder / "profile.json" if training.profile else None,
    )


def run_of(
    graph: Graph,
    model: Model,
    training: Training,
    options: GnnOptions,
    split: DrawnSplit | None = None,
) -> Run:
    """Return what run.json will say at first."""
    about = graph.manifest
    assert about.features is not None
    return Run(
        graph=str(graph.path),
        graph_sha256=graph.digest,
        model=model,
        training=training,
        task=task_of(graph),
        features=about.features.width,
        classes=about.classes,
        feature_names=about.feature_names,
        split=split,
        options=given_options(options, passing={"verify"}),
    )


def _diverged(out: Path, folder: Path, trained: Trained) -> PenstockError:
    kept = [name for name in ("best", "last") if _weights(folder, name).is_file()]
    again = "train again with a lower --lr, with --warmup, or with --clip 1"
    return PenstockError(
        f"the loss became NaN or infinite in epoch {trained.epochs}",
        remedy=f"{out}/checkpoints/{kept[0]}.safetensors holds the last good weights; {again}"
        if kept
        else again.capitalize(),
    )


def _weights(folder: Path, which: str) -> Path:
    return folder / "checkpoints" / f"{which}.safetensors"
