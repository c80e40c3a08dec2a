"""``penstock embed train``: from options to a run's folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import Array
from penstock.cluster.query import ask_workers
from penstock.errors import PenstockError, UsageError
from penstock.files import save_npy, sha256_of
from penstock.graph import Graph, load_npy
from penstock.graph_changes import RowPrints
from penstock.options import Rules, flag, given_options, refuse_ignored
from penstock.pipelines.candidates import mask_of
from penstock.pipelines.changed_rows import rows_to_train
from penstock.pipelines.embed.candidates import FILE as CANDIDATES
from penstock.pipelines.embed.candidates import find_candidates
from penstock.pipelines.embed.options import BY_RELATION, EmbedOptions
from penstock.pipelines.embed.planning import (
    WIDEST_TILE,
    check_graph,
    disk_to_train,
    fewest_partitions,
    memory_there,
    memory_to_begin,
    memory_to_train,
    scratch_to_train,
    spare_versions,
)
from penstock.pipelines.embed.report import TrainReport
from penstock.pipelines.embed.run import FORMAT, Run, checkpoint_of, keep_ids
from penstock.pipelines.job.context import Context
from penstock.pipelines.job.training import diverged, epochs_text, refuse_fewer
from penstock.pipelines.job.training_bar import TrainingBar
from penstock.pipelines.job.workers import Workers
from penstock.run_output import RunOutput
from penstock.sizes import free_disk, plural
from penstock.workers.embed.evaluation.candidates import RelationKinds
from penstock.workers.embed.layout.buckets import edges_of
from penstock.workers.embed.spec import DISTANCES, MATRICES, Training
from penstock.workers.embed.storage.versions import LAST, Checkpoint, Checkpoints
from penstock.workers.embed.task import TrainTask
from penstock.workers.embed.trained import Trained
from penstock.workers.embed.warm import newest
from penstock.workers.training.stopped import Stopped

if TYPE_CHECKING:
    from distributed import Worker

_SMALLER = "Take more --partitions, a smaller --dim, fewer --negatives, or more memory"
CHOSEN = "chosen.npy"  # file of a run: whether the edges of each node's row are trained
_IGNORED: Rules = (
    (
        ("patience", "validate_every", "validate_sample"),
        "on a graph that holds out no edges to validate on, as penstock etl --valid does",
        lambda o, graph: not graph.heldout.get("valid"),
    ),
)


def train_vectors(
    context: Context, graph: Graph, out: RunOutput, options: EmbedOptions
) -> TrainReport:
    """Train on ranks, in a folder that exists from the first epoch on."""
    ranks, training, seen = options.ranks, options.training, 0
    checkpoints, last = Checkpoints(out.result / "checkpoints"), None
    before = None if out.before is None else Run.of(out.before, out.result)
    if before is not None:  # with the same number of partitions
        training = replace(training, partitions=before.training.partitions)
        last = checkpoints.load(LAST) if checkpoints.has(LAST) else None
        seen = 0 if last is None else last.about["epoch"]
        refuse_fewer(out.named, seen, training.epochs)
    training = training.for_graph(has_relations=graph.manifest.relations is not None)
    check_graph(graph, training, ranks)
    refuse_ignored(options, _IGNORED, graph.manifest)
    mask = None
    by_relation = options.candidates == BY_RELATION
    if by_relation and not (training.has_relations and graph.manifest.types):
        raise UsageError(
            f"--candidates {BY_RELATION} is for relations between nodes of types",
            expected="a graph whose nodes have types, and a model with relations",
            remedy="Name types with penstock etl --source-type and --target-type",
        )
    if options.candidates is not None and not by_relation:
        mask = mask_of(options.candidates, graph.user_ids().combine_chunks(), lambda: graph)
    init = _init(options, training, last, out.result)
    begin = 0
    if init is not None and options.init is not None:
        begin = memory_to_begin(graph, options.init, init)

    more = {"begin": begin, "tables": _tables(graph, options, training)}
    # The graph need not be partitioned: ranks distribute its nodes, and read the edges they train.
    workers = context.ranks(None, ranks)
    has = workers.capacity
    count = training.partitions or fewest_partitions(
        graph, training, memory_there(has), ranks, has, **more
    )
    training = replace(training, partitions=count)
    where = "in memory" if count == 1 else f"{count} partitions on disk, {training.held} in memory"
    if ranks > 1:
        where += f", on {ranks} ranks"
    needed = memory_to_train(graph, training, ranks, has, **more)
    # Before the disk is looked at: the run may lie on the one that has the scratch.
    scratch, too_small = scratch_to_train(graph, training, ranks, workers, out.result)
    held = checkpoints.folder.glob("nodes-*.table")
    there = free_disk(out.result) + sum(path.stat().st_size for path in held)
    spare = spare_versions(graph, training, ranks, there)
    disk = disk_to_train(graph, training, ranks, spare)
    rows, chosen = _rows_of(graph, options, training, out, init)
    edges = edges_of(graph, chosen)
    steps = [("train", f"{training.model}, {plural(training.dim, 'value')} a node, {where}")]
    if chosen is not None:
        steps += [("edges", f"{edges:,} of {graph.num_edges:,}, in rows that changed or are drawn")]
    context.plan(
        f"vectors of {graph.num_nodes:,} nodes, {epochs_text(training.epochs, seen)}",
        steps=(*steps, *([] if scratch is None else [("scratch", scratch)])),
        memory=has.need(needed, _SMALLER, there=memory_there(has)),
        disk=disk,
        problem=_too_wide(training, workers) or too_small,
    )
    run = Run(
        graph=str(graph.path),
        graph_sha256=graph.digest,
        training=training,
        nodes=graph.num_nodes,
        relations=graph.manifest.relations if training.has_relations else None,
        init=None if options.init is None else str(options.init),
        options=given_options(options),
        ranks=ranks,
        init_sha256=_init_sha256(options, init, before),
        rows=rows.about,
    )
    if init is not None:
        context.init.check()  # ranks read the checkpoint of this SHA-256
    out.begin(FORMAT, run.to_dict())
    keep_ids(out.result, graph)
    rows.save(out.result)
    if chosen is not None:
        save_npy(out.result, CHOSEN, chosen)
    if mask is not None:
        save_npy(out.result, CANDIDATES, np.packbits(mask))
    task = TrainTask(
        graph.path,
        out.result,
        training,
        None if init is None else options.init,
        () if init is None else init.relations or (),
        run.init_sha256,
        find_candidates(None, out.result, run, lambda: graph),
        spare,
        None if chosen is None else out.result / CHOSEN,
        options.shrink,
    )
    total, scores = edges * training.epochs, {"mrr": "valid MRR {:.3f}"}
    with TrainingBar(total, "edges", scores=scores, quiet=context.quiet) as bar:
        function = "penstock.workers.embed.train:train"
        trained: Trained = workers.ranks(
            function, (task,), title="train", on_metrics=bar.on_metrics
        )[0]
    if trained.stopped is Stopped.NAN:
        out.diverge()
        remedy = "Train again with a lower --lr or --init-scale"
        raise diverged(trained.epochs, remedy, out.result if out.has_checkpoint else None)
    return TrainReport(
        run=str(out.named),
        graph=str(graph.path),
        training=training,
        trained=trained,
        tested=bool(graph.manifest.heldout.get("test")),
    )


def _tables(graph: Graph, options: EmbedOptions, training: Training) -> int:
    """Return how many alias tables candidates need: one, or one per side and set of types."""
    if not options.candidates or training.negatives == "all":
        return 0
    if options.candidates != BY_RELATION:
        return 1
    rules = training.rules(1)
    kinds = RelationKinds.of(graph, len(graph.manifest.relations or ()))
    return kinds.count * len(rules.sides)


def _too_wide(training: Training, workers: Workers) -> PenstockError | None:
    """Return the error of vectors too wide for the GPUs that train; None if they are not."""
    if not workers.capacity.on_gpu or training.model not in (*DISTANCES, *MATRICES):
        return None
    widest = WIDEST_TILE
    if training.model in DISTANCES:  # only a worker with a GPU knows
        widest = min(ask_workers(workers.client, _widest).values())
    if training.dim <= widest:
        return None
    return UsageError(
        f"vectors of {training.dim:,} values cannot be trained with --model {training.model} "
        "on a GPU",
        expected=f"--dim {widest:,} or less",
        got=str(training.dim),
        remedy="Take a smaller --dim, another --model, or train on CPUs with --device cpu",
    )


def _init(
    options: EmbedOptions, training: Training, last: Checkpoint | None, out: Path
) -> Run | None:
    """Return the run to begin with, whose vectors are of the same kind.

    None: there is none, or the training resumes from a checkpoint.
    """
    folder = options.init
    if folder is None or (last is not None and last.is_whole):
        return None
    if folder.resolve() == out:
        raise UsageError(
            "a run cannot begin with itself",
            remedy="Give it another folder, or --resume it",
        )
    found = Run.load(folder)
    checkpoint_of(folder, "best", found)
    for name in ("model", "dim", "relation_dim", "norm", "optimizer", "is_reciprocal"):
        ours, theirs = getattr(training, name), getattr(found.training, name)
        if name in ("norm", "relation_dim"):
            default = 1 if name == "norm" else training.dim
            ours, theirs = ours or default, theirs or default
        if ours != theirs:
            option = flag(name.removeprefix("is_"))
            raise UsageError(
                f"the vectors of {folder} do not fit: they have another {option}",
                expected=f"{theirs}, as in that run",
                got=str(ours),
            )
    return found


def _rows_of(
    graph: Graph, options: EmbedOptions, training: Training, out: RunOutput, init: Run | None
) -> tuple[RowPrints, Array | None]:
    """Return the bits of the graph's rows, and which rows are trained; None: all."""
    columns = ["relations"] * training.has_relations + ["weights"] * training.weighted
    columns = [name for name in columns if name in graph.manifest.dtypes]
    if options.init is None or options.share is None:
        return RowPrints.of(graph, columns), None
    if out.resumes and (out.result / CHOSEN).is_file():
        return RowPrints.of(graph, columns), load_npy(out.result / CHOSEN)
    return rows_to_train(graph, columns, options, FORMAT, None if init is None else init.rows)


def _init_sha256(options: EmbedOptions, init: Run | None, before: Run | None) -> str | None:
    """Return the SHA-256 of the warm start's vectors, which must be the same on resume."""
    known = None if before is None else before.init_sha256
    if init is None or options.init is None:
        return known
    folder = options.init / "checkpoints"
    found = sha256_of(Checkpoints(folder).path(newest(folder)))
    if known not in (None, found):
        raise UsageError(
            f"{options.init} changed since this run began with its vectors",
            remedy="Run without --resume to start over",
        )
    return found


def _widest(dask_worker: Worker) -> int:
    """Return the most values of a vector for which a GPU's kernels train distances."""
    from penstock.kernels.cuda.embed.tiles import widest_distance

    return widest_distance()
