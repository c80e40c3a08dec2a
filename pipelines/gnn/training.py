"""``penstock gnn train``: from options to a run's folder."""

from __future__ import annotations

import sys
from typing import Any

from penstock.graph import Graph
from penstock.options import given_options
from penstock.pipelines.gnn.declare import EdgeRules, complete, ignored, warn_ignored
from penstock.pipelines.gnn.options import GnnOptions
from penstock.pipelines.gnn.planning import disk_to_train, plan_on
from penstock.pipelines.gnn.report import TrainReport
from penstock.pipelines.gnn.run import FORMAT, Run
from penstock.pipelines.job.context import Context
from penstock.pipelines.job.ranks import resolve_ranks
from penstock.pipelines.job.training import diverged, epochs_text, refuse_fewer
from penstock.pipelines.job.training_bar import TrainingBar
from penstock.run_output import RunOutput
from penstock.sizes import plural
from penstock.splits import DrawnSplit, draw_split, keep_split, split_file
from penstock.workers.gnn.task import Trained, TrainTask
from penstock.workers.training.checkpoint import LAST, load, save
from penstock.workers.training.stopped import Stopped

INIT = "init.safetensors"  # the last checkpoint of the run that this one began with


def train_model(context: Context, graph: Graph, out: RunOutput, options: GnnOptions) -> TrainReport:
    """Fit the model to the graph, and train it on ranks."""
    model, training = complete(graph, options)
    ranks = resolve_ranks(options.parts, context.cluster)[1]
    options.check_effect(model, graph.manifest, ranks)
    seen, split, splits = 0, None, None
    if not out.resumes:
        warn_ignored(graph)
    elif (out.result / LAST).is_file():
        seen = load(out.result / LAST)[1]["epoch"]
        refuse_fewer(out.named, seen, training.epochs)
    if options.split is not None:  # the same nodes, if the run is resumed
        split = DrawnSplit(options.split, options.split_stratified)
        split, splits = draw_split(split, graph, training.seed)
    first, before, held = None, None, None
    if options.init is not None and not (out.resumes and (out.result / INIT).is_file()):
        before = Run.load(options.init)
        first = before.checkpoint(options.init, "last")
        held = load(first)
    about = graph.manifest
    assert about.features is not None
    assert about.labels is not None  # complete

    layers = plural(len(model.layers), "layer")
    what = f"a model of {layers}, {epochs_text(training.epochs, seen)}"
    disk = disk_to_train(model, about.features.width, training.epochs)
    disk += 0 if first is None else first.stat().st_size
    workers, plan = plan_on(context, graph, options.parts, what, model, training, disk=disk)
    run = Run(
        graph=str(graph.path),
        graph_sha256=graph.digest,
        model=model,
        training=training,
        task=about.labels,
        features=about.features.width,
        classes=about.classes,
        feature_names=about.feature_names,
        feature_scales=about.feature_scales(),
        edges=EdgeRules.of(graph, weighted=training.weighted),
        split=split,
        parts=workers.count,
        options=given_options(options),
    )
    out.begin(FORMAT, run.to_dict())
    init = out.result / INIT
    if before is not None and held is not None:
        save(init, _known(before, run, held[0]), held[1])
        context.init.check()
    keep_split(out.result, graph, splits)
    if split is not None and not context.quiet:
        print(f"Drew a split {split.declared}", file=sys.stderr)
    task = TrainTask(
        graph.path,
        workers.partition_path,
        training,
        plan,
        out.result,
        init if init.is_file() else None,
        split_file(out.result, split),
    )
    # Accuracy exists for classes only.
    names = () if run.task == "value" else ("train", "valid")
    scores = {name: f"{name} {{:.1%}}" for name in names}
    with TrainingBar(training.epochs, "epochs", scores=scores, quiet=context.quiet) as bar:
        function = "penstock.workers.gnn.train:train"
        trained: Trained = workers.ranks(
            function, (task,), title="train", on_metrics=bar.on_metrics
        )[0]
        if trained.epochs > trained.first_epoch:
            bar.on_metrics(0, {"done": trained.epochs})  # not every epoch is reported
    if trained.stopped is Stopped.NAN:
        out.diverge()
        remedy = "Train again with a lower --lr, with --warmup, or with --clip 1"
        raise diverged(trained.epochs, remedy, out.result if out.has_checkpoint else None)
    return TrainReport(
        run=str(out.named),
        graph=str(graph.path),
        task=run.task,
        model=model.to_dict(),
        patience=training.patience,
        evaluate_every=training.evaluate_every,
        split=split,
        ranks=workers.count,
        device=workers.capacity.device,
        on_gpu=trained.device == "gpu",
        trained=trained,
        ignored=ignored(graph),
        profile=str(out.named / "profile.json") if training.profile else None,
    )


def _known(before: Run, now: Run, tensors: dict[str, Any]) -> dict[str, Any]:
    """Return the tensors of an earlier run without layers whose inputs or outputs stand for others:
    the first if the features have other names, and the last if the classes do.
    """
    last = len(before.model.layers) - 1
    names = (before.feature_names, now.feature_names, 0), (before.classes, now.classes, last)
    other = {f"layers.{at}" for one, two, at in names if one and two and one != two}
    return {
        name: tensor
        for name, tensor in tensors.items()
        if ".".join(name.rpartition("/")[2].split(".")[:2]) not in other
    }
