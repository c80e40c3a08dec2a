"""``penstock gnn predict``: from a run's weights to a Parquet dataset."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import BaseRefused, UsageError, warn
from penstock.files import file_entry, file_table, save_npy, sha256_of
from penstock.formats import Format
from penstock.graph import Graph
from penstock.output import Output
from penstock.pipelines.display import FromBase
from penstock.pipelines.gnn.base import Prints, prints_of_base
from penstock.pipelines.gnn.declare import EdgeRules, check_graph, warn_ignored
from penstock.pipelines.gnn.features import Matched, match_features
from penstock.pipelines.gnn.options import PredictOptions, WeightsOptions
from penstock.pipelines.gnn.planning import plan_on
from penstock.pipelines.gnn.report import PredictReport
from penstock.pipelines.gnn.run import Run
from penstock.pipelines.job.declare import Context, RunFolder
from penstock.pipelines.job.workers import Workers
from penstock.splits import SplitFile, own_split_file, split_file
from penstock.workers.gnn.plan.lowering import ModelPlan
from penstock.workers.gnn.task import Columns, PredictBase, PredictTask
from penstock.workers.training.checkpoint import load

_CHANGED = "changed.npy"  # file of a prediction with a base: which rows and features differ
FORMAT = Format(
    name="penstock-predictions",
    version=1,
    file="_predictions.json",
    thing="directory of predictions",
    make="Make one with penstock gnn predict",
    restore="Restore the file, or predict again with --overwrite",
)


@dataclass(frozen=True)
class OpenedRun:
    """A run, the graph to predict on, its features, and the split that counts.

    split      that of the run; None: the graph's
    elsewhere  the options that name another graph than that of the run, and its split
    """

    folder: RunFolder
    run: Run
    graph: Graph
    features: Matched
    split: SplitFile | None
    elsewhere: tuple[str, ...]

    @property
    def path(self) -> Path:
        """The folder of the run."""
        return self.folder.path

    def stamps(self) -> dict[str, Any]:
        """Return the stamps of the run and the graph."""
        return {**self.folder.stamps(), **self.graph.stamps()}

    def copy_weights(self, which: str, folder: Path) -> Path:
        """Copy a checkpoint, which training may replace while ranks read it."""
        weights = self.run.checkpoint(self.path, which)
        load(weights)  # an error names it, not its copy
        return Path(shutil.copyfile(weights, folder / weights.name))

    @property
    def split_by(self) -> str:
        """Whose split counts: graph or run."""
        return "graph" if self.split is None else "run"


def open_run(folder: RunFolder, options: WeightsOptions, *, quiet: bool) -> OpenedRun:
    """Open a run and the graph to predict on; raise if its weights do not fit it."""
    at, run = folder.path, Run.load(folder.path)
    run.checkpoint(at, options.checkpoint)
    remedy = "Give its path, or another graph, with --graph"
    path = folder.graph_path(options.graph, run.graph, remedy)
    graph = Graph.open(path, verify=options.verify, quiet=quiet)
    check_graph(graph, run.training, learns=False)
    _check_edges(graph, run, at)
    same = graph.digest == run.graph_sha256
    features = match_features(run, at, graph, same=same)
    split, about_split = None, None
    if options.split_by == "run":
        split, about_split = _split_for(at, run, graph, same=same)
    for note in (features.note(at, graph), about_split):
        if note:
            warn(note)
    named = () if options.graph is None else ("--graph", str(options.graph))
    elsewhere = named if options.split_by == "run" else (*named, "--split-by", options.split_by)
    return OpenedRun(folder, run, graph, features, split, elsewhere)


def plan_prediction(
    context: Context,
    opened: OpenedRun,
    options: WeightsOptions,
    columns: Columns,
    what: str,
    folder: Path | None = None,
) -> tuple[Workers, ModelPlan]:
    """Return the predicting ranks, and the model's plan; ``--plan`` ends here.

    folder  where predictions are written, if not to the output
    """
    run, graph = opened.run, opened.graph
    if opened.features.by != "graph":  # else the training run warned
        warn_ignored(graph)

    # Approximate: fewer columns take less.
    width = sum(layer.channels or 0 for layer in run.model.layers[-2:-1]) or run.features
    numbers = columns.embeddings * width + columns.probabilities * run.outputs
    return plan_on(
        context,
        graph,
        options.parts,
        f"{what} of {graph.num_nodes:,} nodes of {graph.path}",
        run.model,
        run.training,
        disk=graph.num_nodes * (16 + 4 * numbers),
        folder=folder,
        backward=False,
        features=run.features,
        outputs=run.outputs,
    )


def predict_into(
    folder: Path,
    workers: Workers,
    plan: ModelPlan,
    opened: OpenedRun,
    weights: Path,
    columns: Columns,
    *,
    remedy: str = "Name an output on such a disk",
    base: PredictBase | None = None,
) -> int:
    """Let ranks write their files into ``folder``, and return how many nodes they computed.

    remedy  for a folder that a rank does not see
    """
    task = PredictTask(
        opened.graph.path,
        workers.partition_path,
        opened.run.training,
        plan,
        weights,
        folder,
        columns,
        feature_columns=opened.features.columns,
        split=opened.split,
        out_remedy=remedy,
        base=base,
    )
    return sum(workers.ranks("penstock.workers.gnn.predict:predict", (task,), title="predict"))


def write_predictions(
    context: Context, opened: OpenedRun, out: Output, options: PredictOptions
) -> PredictReport:
    """Predict every node: one file of the dataset per rank."""
    import pyarrow.parquet as pq

    run, graph, features = opened.run, opened.graph, opened.features
    columns = Columns(run.task, run.classes, options.embeddings, options.probabilities)
    workers, plan = plan_prediction(context, opened, options, columns, "predictions")
    weights = opened.copy_weights(options.checkpoint, out.scratch)
    sha256, before, prints, base = sha256_of(weights), None, None, None
    if options.base is not None:
        before = prints_of_base(options.base, columns.names, sha256)
    single = workers.count == 1 and graph.manifest.graphs is None
    if single:
        prints = Prints.of(opened, plan, workers.capacity.device, before)
    if options.base is not None and before is not None:
        if prints is None:
            raise BaseRefused("--base is for one rank, and one graph")
        save_npy(out.scratch, _CHANGED, prints.changed(before, options.base))
        base = PredictBase(options.base, out.scratch / _CHANGED)
    made = predict_into(out.result, workers, plan, opened, weights, columns, base=base)
    files = files_of(out.result)
    entries = [file_entry(out.result, file.name) for file in files]
    more = [] if prints is None else prints.save(out.result)
    written = sum(pq.read_metadata(file).num_rows for file in files)
    assert written == graph.num_nodes, f"{written} predictions for {graph.num_nodes} nodes"
    about = {
        "run": str(opened.path),
        "checkpoint": options.checkpoint,
        "checkpoint_sha256": sha256,
        "graph": str(graph.path),
        "graph_sha256": graph.digest,
        "task": run.task,
        "classes": run.classes,
        "split_by": opened.split_by,
        "features": {"by": features.by, "ignored": features.ignored},
        "nodes": graph.num_nodes,
        "columns": pq.read_schema(files[0]).names if files else [],
        **({} if prints is None else {"prints": prints.about}),
        "files": file_table([*entries, *more]),
    }
    out.describe(FORMAT, about)
    drawn = None if opened.split is None else run.split
    splits = graph.manifest.splits if drawn is None else drawn.nodes or {}
    return PredictReport(
        predictions=str(out.named),
        run=str(opened.path),
        graph=str(graph.path),
        checkpoint=options.checkpoint,
        ranks=workers.count,
        device=workers.capacity.device,
        nodes=graph.num_nodes,
        bytes=sum(entry.bytes for entry in (*entries, *more)),
        files=len(entries),
        features_by=features.by,
        features_ignored=features.ignored,
        elsewhere=opened.elsewhere,
        tested=graph.manifest.labels == run.task and bool(splits.get("test")),
        from_base=None if base is None else FromBase("nodes", graph.num_nodes - made, made),
    )


def _check_edges(graph: Graph, run: Run, run_at: Path) -> None:
    """Raise if edges have another meaning than those of the training."""
    here = EdgeRules.of(graph, weighted=run.training.weighted)
    if found := here.differences(run.edges):
        raise UsageError(
            f"{graph.path} has other edges than the graph of {run_at}",
            got="; ".join(found),
            remedy="Make it with the options of penstock etl that made the graph of the run",
        )


def _split_for(
    run_at: Path, run: Run, graph: Graph, *, same: bool
) -> tuple[SplitFile | None, str | None]:
    """Return the split that counts on a graph, None for its own, and a note about it.

    A training run's split holds on every graph: a training node must not count as a test node
    because another graph has it so.
    """
    if same:
        return split_file(run_at, run.split), None
    file = None
    if graph.manifest.graphs is None:  # nodes of a zoo have no unique id
        drawn = split_file(run_at, run.split, by_id=True)
        file = own_split_file(run_at) if drawn is None else drawn
    if file is None:
        return None, (
            f"nodes have the split of {graph.path}, if it has one: those that {run_at} was trained "
            "on may be among those to validate and test"
        )
    if run.split is None and not file.differs(graph):
        return None, None
    return file, f"nodes of {graph.path} have the split of {run_at}, found by id, not the graph's"


def files_of(folder: Path) -> list[Path]:
    """Return the files of a dataset, in order."""
    return sorted(folder.glob("part-*.parquet"))
