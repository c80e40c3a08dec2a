"""``penstock gnn predict``: from a run's weights to a Parquet dataset."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.files import FileEntry, file_entry, fresh_directory, save_json, sha256_of
from penstock.graph import Graph
from penstock.pipelines.gnn.declare import check_graph, warn_ignored
from penstock.pipelines.gnn.features import Matched, match_features
from penstock.pipelines.gnn.folder import Run
from penstock.pipelines.gnn.options import PredictOptions, WeightsOptions
from penstock.pipelines.gnn.planning import lowering, need_memory_to_predict
from penstock.pipelines.gnn.ranks import open_ranks, predict_on
from penstock.pipelines.gnn.report import PredictReport
from penstock.pipelines.gnn.split import counts_text, own_split_file, split_file
from penstock.sizes import need_disk
from penstock.workers.gnn.data.kept_split import SplitFile
from penstock.workers.gnn.task import PredictTask

FORMAT = "penstock-predictions"
VERSION = 1
KIND = "predictions"


def predict_nodes(
    run_at: Path, out: Path, options: PredictOptions, cluster: ClusterSpec, quiet: bool
) -> PredictReport:
    """Run the whole job."""
    begun = time.monotonic()
    job = opened(run_at, options, quiet=quiet)
    run, graph = job.run, job.graph
    width = sum(layer.width or 0 for layer in run.model.layers[-2:-1]) or run.features
    size = 24 + 4 * (width * options.embeddings + _outputs(run) * options.probabilities)
    folder = out
    need_disk(folder.parent, graph.num_nodes * size, f"predictions for {graph.num_nodes:,} nodes")
    with fresh_directory(folder, overwrite=options.overwrite, kind=KIND) as partial:
        count, device = predict_into(
            partial, job, options, cluster, quiet,
            embeddings=options.embeddings, probabilities=options.probabilities,
        )  # fmt: skip
        about = {
            "run": str(run_at),
            "checkpoint": options.checkpoint,
            "checkpoint_sha256": sha256_of(run.checkpoint(run_at, options.checkpoint)),
            "graph": str(graph.path),
            "graph_sha256": graph.digest,
            "task": run.task,
            "classes": run.classes,
            "split_by": "graph" if job.split is None else "run",
            "features": {"by": job.features.by, "ignored": job.features.ignored},
        }
        entries = _save_manifest(partial, about, graph.num_nodes)
    return PredictReport(
        predictions=str(out),
        run=str(run_at),
        graph=str(graph.path),
        checkpoint=options.checkpoint,
        ranks=count,
        device=device,
        nodes=graph.num_nodes,
        bytes=sum(entry.bytes for entry in entries),
        parts=len(entries),
        features_by=job.features.by,
        features_ignored=job.features.ignored,
        seconds=time.monotonic() - begun,
    )


@dataclass(frozen=True)
class Opened:
    """A run, the graph to predict on, and where the features are in it."""

    at: Path
    run: Run
    graph: Graph
    features: Matched
    split: SplitFile | None = None


def opened(run_at: Path, options: WeightsOptions, *, quiet: bool) -> Opened:
    """Open a run and the graph to predict on; raise where its weights do not fit it."""
    run = Run.load(run_at)
    run.checkpoint(run_at, options.checkpoint)
    if options.graph is None and not Path(run.graph).is_dir():
        raise UsageError(
            f"the graph of {run_at} is not at {run.graph} any more",
            remedy="Say where it is, or which other graph to take, with --graph",
        )
    graph = Graph.open(options.graph or run.graph, verify=options.verify, quiet=quiet)
    check_graph(graph, run.training, learns=False)
    same = graph.digest == run.graph_sha256
    features = match_features(run, run_at, graph, same=same)
    split, about_split = _split_for(run_at, run, graph, same=same)
    for note in (features.note(run_at, graph), about_split):
        if note and not quiet:
            print(note, file=sys.stderr)
    return Opened(run_at, run, graph, features, split)


def _split_for(
    run_at: Path, run: Run, graph: Graph, *, same: bool
) -> tuple[SplitFile | None, str | None]:
    """Return the split that counts on a graph, None for its own, and what to say of it.

    That of a training holds on every graph: a node that was trained on must not count as one to
    test on because another graph says so.
    """
    if same:
        return split_file(run_at, run.split), None
    if run.split is None:
        return _own_split_for(run_at, run, graph)
    own = graph.manifest.splits
    if graph.manifest.graphs is not None:
        counts = f"that of {graph.path} counts" if any(own.values()) else "no node is in a split"
        return None, (
            f"The split that {run_at} drew is of another graph, and nodes of a zoo cannot be found "
            f"by id: {counts}"
        )
    instead = f", not that of {graph.path} ({counts_text(own)})" if any(own.values()) else ""
    return split_file(run_at, run.split, by_id=True), (
        f"The split that {run_at} drew counts{instead}: nodes are found by id, new ones are in none"
    )


def _own_split_for(run_at: Path, run: Run, graph: Graph) -> tuple[SplitFile | None, str | None]:
    """Return the split that counts after a training on its graph's own, and what to say of it."""
    changed = (
        f"{graph.path} has changed since {run_at} was trained on it"
        if str(graph.path) == run.graph
        else f"{graph.path} is another graph than the one that {run_at} was trained on"
    )
    has_own = any(graph.manifest.splits.values())
    file = None if graph.manifest.graphs is not None else own_split_file(run_at)
    if file is not None:
        moved = file.differing(graph)
        if not moved:  # the two say the same
            return None, None
        count = f"{moved:,} of its {graph.num_nodes:,} nodes"
        if not has_own:
            return file, (
                f"{changed}, and has no split: {count} have that of the training, found by id"
            )
        return file, (
            f"{changed}: {count} are in another split there than in the training, whose split "
            "counts, by id"
        )
    why = (
        "nodes of a zoo cannot be found by id"
        if graph.manifest.graphs is not None
        else f"{run_at} keeps no split"
    )
    if not has_own:
        return None, f"{changed}, and {why}: no node is in a split"
    return None, (
        f"{changed}, and {why}: the split of {graph.path} counts, so nodes that were trained on "
        "may be among those to validate and test"
    )


def predict_into(
    folder: Path,
    job: Opened,
    options: WeightsOptions,
    cluster: ClusterSpec,
    quiet: bool,
    *,
    embeddings: bool = False,
    probabilities: bool = False,
) -> tuple[int, str]:
    """Have ranks write their parts into ``folder``; return how many, and what they ran on."""
    run, graph = job.run, job.graph
    warn_ignored(graph, quiet=quiet)
    with open_ranks(graph, options.parts, cluster, quiet=quiet) as ranks:
        lowered = lowering(ranks, graph, run.training, features=run.features, outputs=_outputs(run))
        plan = lowered(run.model)
        need_memory_to_predict(ranks, plan)
        task = PredictTask(
            graph.path,
            ranks.partition,
            run.model,
            run.training,
            plan,
            run.checkpoint(job.at, options.checkpoint),
            folder,
            feature_columns=job.features.columns,
            split=job.split,
            embeddings=embeddings,
            probabilities=probabilities,
        )
        predict_on(ranks, task, quiet=quiet)
        return ranks.count, ranks.capacity.worker


def parts_of(folder: Path) -> list[Path]:
    """Return the parts of a dataset, in order."""
    return sorted(folder.glob("part-*.parquet"))


def _outputs(run: Run) -> int:
    return run.model.layers[-1].width or 1


def _save_manifest(folder: Path, about: dict[str, Any], nodes: int) -> list[FileEntry]:
    import pyarrow.parquet as pq

    entries = [file_entry(folder, part.name) for part in parts_of(folder)]
    written = sum(pq.read_metadata(part).num_rows for part in parts_of(folder))
    assert written == nodes, f"{written} predictions for {nodes} nodes"
    body = {
        "format": FORMAT,
        "version": VERSION,
        **about,
        "nodes": nodes,
        "columns": pq.read_schema(folder / entries[0].name).names if entries else [],
        "files": {entry.name: {"bytes": entry.bytes, "sha256": entry.sha256} for entry in entries},
    }
    save_json(folder / f"_{KIND}.json", body)
    return entries
