"""``penstock gnn predict``: from a run's weights to a Parquet dataset."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.files import FileEntry, file_entry, fresh_directory, save_json, sha256_of
from penstock.graph import Graph
from penstock.manifest import FILE_NAME as GRAPH_FILE
from penstock.pipelines.gnn.declare import check_graph
from penstock.pipelines.gnn.folder import Run
from penstock.pipelines.gnn.memory import need_room_to_predict
from penstock.pipelines.gnn.options import PredictOptions, WeightsOptions
from penstock.pipelines.gnn.ranks import facts_and_rates, open_ranks, predict_on
from penstock.pipelines.gnn.report import PredictReport
from penstock.sizes import need_disk
from penstock.workers.gnn.task import PredictTask

FORMAT = "penstock-predictions"
VERSION = 1
KIND = "predictions"


def predict_nodes(
    run_at: Path, out: Path, options: PredictOptions, cluster: ClusterSpec, quiet: bool
) -> PredictReport:
    """Run the whole job."""
    begun = time.monotonic()
    run, graph = opened(run_at, options)
    width = sum(layer.width or 0 for layer in run.model.layers[-2:-1]) or run.features
    size = 24 + 4 * (width * options.embeddings + _outputs(run) * options.probabilities)
    folder = out
    need_disk(folder.parent, graph.num_nodes * size, f"predictions for {graph.num_nodes:,} nodes")
    with fresh_directory(folder, overwrite=options.overwrite, kind=KIND) as partial:
        count, device = predict_into(
            partial, run_at, run, graph, options, cluster, quiet,
            embeddings=options.embeddings, probabilities=options.probabilities,
        )  # fmt: skip
        about = {
            "run": str(run_at),
            "checkpoint": options.checkpoint,
            "checkpoint_sha256": sha256_of(run.checkpoint(run_at, options.checkpoint)),
            "graph": str(graph.path),
            "graph_sha256": sha256_of(graph.path / GRAPH_FILE),
            "task": run.task,
            "classes": run.classes,
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
        seconds=time.monotonic() - begun,
    )


def opened(run_at: Path, options: WeightsOptions) -> tuple[Run, Graph]:
    """Return a run and the graph to predict on; raise where its weights do not fit it."""
    run = Run.load(run_at)
    run.checkpoint(run_at, options.checkpoint)
    if options.graph is None and not Path(run.graph).is_dir():
        raise UsageError(
            f"the graph of {run_at} is not at {run.graph} any more",
            remedy="Say where it is, or which other graph to take, with --graph",
        )
    graph = Graph.open(options.graph or run.graph)
    check_graph(graph, run.training, learns=False)
    features = graph.manifest.features
    assert features is not None
    if features.width != run.features:
        raise UsageError(
            f"{graph.path} has other features than the graph of {run_at}",
            expected=f"{run.features} of them",
            got=str(features.width),
        )
    return run, graph


def predict_into(
    folder: Path,
    run_at: Path,
    run: Run,
    graph: Graph,
    options: WeightsOptions,
    cluster: ClusterSpec,
    quiet: bool,
    *,
    embeddings: bool = False,
    probabilities: bool = False,
) -> tuple[int, str]:
    """Have ranks write their parts into ``folder``; return how many, and what they ran on."""
    with open_ranks(graph, options.parts, cluster, quiet=quiet) as ranks:
        facts, rates = facts_and_rates(ranks, graph, run.training)
        facts = replace(facts, outputs=_outputs(run))
        need_room_to_predict(ranks, run.model, facts, run.training, rates)
        task = PredictTask(
            graph.path,
            ranks.partition,
            run.model,
            run.training,
            run.checkpoint(run_at, options.checkpoint),
            folder,
            embeddings=embeddings,
            probabilities=probabilities,
        )
        predict_on(ranks, task, quiet=quiet)
        return ranks.count, ranks.room.worker


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
