"""``penstock gnn predict``: from a run's weights to a Parquet dataset."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from penstock.errors import PenstockError, UsageError, warn
from penstock.files import FileEntry, file_entry, file_table, sha256_of
from penstock.formats import Format
from penstock.graph import Graph
from penstock.output import Output
from penstock.pipelines.display import Command
from penstock.pipelines.gnn.declare import EdgeRules, check_graph, warn_ignored
from penstock.pipelines.gnn.features import Matched, match_features
from penstock.pipelines.gnn.options import PredictOptions, WeightsOptions
from penstock.pipelines.gnn.planning import (
    Lowered,
    lowering,
    plan_job,
    too_large_to_predict,
)
from penstock.pipelines.gnn.report import PredictReport
from penstock.pipelines.gnn.run import Run
from penstock.pipelines.job import R, RunJob, Workers
from penstock.pipelines.job.plan import Plan
from penstock.sizes import need_disk
from penstock.splits import SplitFile, counts_text, own_split_file, split_file
from penstock.workers.gnn.task import PredictTask

KIND = "predictions"
_ATTEMPTS = 5  # to predict with weights that training replaces meanwhile
FORMAT = Format(
    name="penstock-predictions",
    version=1,
    file=f"_{KIND}.json",
    thing="directory of predictions",
    make="Make one with penstock gnn predict",
    restore="Restore the file, or predict again with --overwrite",
)


class WeightsJob(RunJob[R]):
    """Predicts with the weights of a run: what ``predict`` and ``evaluate`` share.

    labels, embeddings, probabilities  columns that the predictions have besides
    """

    on_gpu = True
    what: ClassVar[str]
    labels: ClassVar[bool] = False
    embeddings: bool = False
    probabilities: bool = False
    folder_remedy: ClassVar[str] = "Name an output on such a disk"
    options: WeightsOptions
    run: Run

    def check(self) -> None:
        """Open the run and the graph to predict on; raise where its weights do not fit it."""
        at, options = self.at, self.options
        self.run = run = Run.load(at)
        run.checkpoint(at, options.checkpoint)
        remedy = "Say where it is, or which other graph to take, with --graph"
        path = self.graph_path(run.graph, remedy)
        self.graph = graph = Graph.open(path, verify=options.verify, quiet=self.quiet)
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
        self.opened = OpenedRun(run, graph, features, split)

    @property
    def elsewhere(self) -> Command:
        """The options that name another graph than that of the training run, and its split."""
        graph, split_by = self.options.graph, self.options.split_by
        named: Command = () if graph is None else ("--graph", graph)
        return named if split_by == "run" else (*named, "--split-by", split_by)

    @property
    def bytes(self) -> int:
        """What the predictions take on the disk, about; a column fewer than given takes less."""
        run = self.run
        width = sum(layer.channels or 0 for layer in run.model.layers[-2:-1]) or run.features
        numbers = self.embeddings * width + self.probabilities * run.outputs
        return self.graph.num_nodes * (16 + 4 * numbers)

    @property
    def folder(self) -> Path:
        """Where the ranks' files go."""
        return self.out.parent

    def check_disk(self) -> None:
        """Raise CapacityError where the disk is too small for the predictions."""
        need_disk(self.folder, self.bytes, f"predictions for {self.graph.num_nodes:,} nodes")

    def plan(self) -> Plan:
        """Lower the model for the graph and a worker."""
        return plan_job(
            self,
            self.graph,
            what=f"{self.what} of {self.graph.num_nodes:,} nodes of {self.graph.path}",
            folder=self.folder,
            size=self.bytes,
            lowered_by=self._lowered,
        )

    def _lowered(self, workers: Workers) -> Lowered:
        run, sizes = self.run, {"features": self.run.features, "outputs": self.run.outputs}
        plan = lowering(workers, self.graph, run.training, backward=False, **sizes)(run.model)
        return plan, too_large_to_predict(workers, plan)

    def predict_into(self, folder: Path) -> str:
        """Have ranks write their files into ``folder``; return the SHA-256 of the weights.

        Every rank reads them. Where training replaces them meanwhile, all predict again.
        """
        run, graph, options = self.run, self.graph, self.options
        weights = run.checkpoint(self.at, options.checkpoint)
        if self.opened.features.by != "graph":  # else the training run warned
            warn_ignored(graph)
        with self.open_ranks(graph, options.parts) as workers:
            plan, problem = self._lowered(workers)
            if problem is not None:
                raise problem
            task = PredictTask(
                graph.path,
                workers.partition_path,
                run.model,
                run.training,
                plan,
                weights,
                folder,
                feature_columns=self.opened.features.columns,
                classes=run.classes if self.labels else None,
                split=self.opened.split,
                embeddings=self.embeddings,
                probabilities=self.probabilities,
                out_remedy=self.folder_remedy,
            )
            found = sha256_of(weights)
            for _ in range(_ATTEMPTS):
                workers.ranks("penstock.workers.gnn.predict:predict", (task,), title="predict")
                before, found = found, sha256_of(weights)
                if found == before:
                    return found
        raise PenstockError(
            f"{weights} was replaced {_ATTEMPTS} times while it was read",
            expected="weights that last until they are read",
            got="a run that saves the next ones sooner",
            remedy="Wait for the end of the run, or train with more --checkpoint-epochs",
        )


class PredictJob(WeightsJob[PredictReport]):
    """Writes a file of the dataset per rank."""

    command = "penstock gnn predict"
    kind = KIND
    what = "predictions"
    labels = True
    options: PredictOptions

    def check(self) -> None:
        """Refuse weights that do not fit the graph, and a disk that is too small."""
        super().check()
        self.embeddings = self.options.embeddings
        self.probabilities = self.options.probabilities
        self.check_disk()

    def work(self, partial: Output) -> None:
        """Predict every node, and write _predictions.json."""
        options, run, opened = self.options, self.run, self.opened
        sha256 = self.predict_into(partial.result)
        about = {
            "run": str(self.at),
            "checkpoint": options.checkpoint,
            "checkpoint_sha256": sha256,
            "graph": str(self.graph.path),
            "graph_sha256": self.graph.digest,
            "task": run.task,
            "classes": run.classes,
            "split_by": opened.split_by,
            "features": {"by": opened.features.by, "ignored": opened.features.ignored},
        }
        self.entries = _save_manifest(partial.result, about, self.graph.num_nodes)

    def report(self, seconds: float) -> PredictReport:
        """Return what was written."""
        return PredictReport(
            predictions=str(self.out),
            run=str(self.at),
            graph=str(self.graph.path),
            checkpoint=self.options.checkpoint,
            ranks=self.connected.count,
            device=self.connected.capacity.worker,
            nodes=self.graph.num_nodes,
            bytes=sum(entry.bytes for entry in self.entries),
            files=len(self.entries),
            features_by=self.opened.features.by,
            features_ignored=self.opened.features.ignored,
            seconds=seconds,
        )

    def following(self) -> list[Command]:
        """Return what says how good the predictions are, where there is something to test on."""
        drawn = None if self.opened.split is None else self.run.split
        splits = self.graph.manifest.splits if drawn is None else drawn.nodes or {}
        if self.graph.manifest.labels != self.run.task or not splits.get("test"):
            return []
        return [("gnn", "evaluate", self.at, *self.elsewhere)]


@dataclass(frozen=True)
class OpenedRun:
    """A run, the graph to predict on, where the features are in it, and which split counts.

    split  that of the run; None: the graph's
    """

    run: Run
    graph: Graph
    features: Matched
    split: SplitFile | None = None

    @property
    def split_by(self) -> str:
        """Whose split counts: graph or run."""
        return "graph" if self.split is None else "run"


def _check_edges(graph: Graph, run: Run, run_at: Path) -> None:
    """Raise if edges have another meaning than those that the run was trained on."""
    if run.edges is None:
        return
    here = EdgeRules.of(graph, weighted=run.training.weighted)
    if found := here.differences(run.edges):
        raise UsageError(
            f"{graph.path} has other edges than those that {run_at} was trained on",
            got="; ".join(found),
            remedy="Make it with the options of penstock etl that made the graph of the run",
        )


def _split_for(
    run_at: Path, run: Run, graph: Graph, *, same: bool
) -> tuple[SplitFile | None, str | None]:
    """Return the split that counts on a graph, None for its own, and what to say of it.

    That of a training run holds on every graph: a node that was trained on must not count as one to
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
            f"the split that {run_at} drew is of another graph, and nodes of a zoo cannot be found "
            f"by id: {counts}"
        )
    instead = f", not that of {graph.path} ({counts_text(own)})" if any(own.values()) else ""
    return split_file(run_at, run.split, by_id=True), (
        f"the split that {run_at} drew counts{instead}: nodes are found by id, new ones are in none"
    )


def _own_split_for(run_at: Path, run: Run, graph: Graph) -> tuple[SplitFile | None, str | None]:
    """Return the split that counts after training on its graph's own, and what to say of it."""
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
                f"{changed}, and has no split: {count} have that of the training run, found by id"
            )
        return file, (
            f"{changed}: {count} are in another split there than in the training run, whose split "
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


def files_of(folder: Path) -> list[Path]:
    """Return the files of a dataset, in order."""
    return sorted(folder.glob("part-*.parquet"))


def _save_manifest(folder: Path, about: dict[str, Any], nodes: int) -> list[FileEntry]:
    import pyarrow.parquet as pq

    entries = [file_entry(folder, file.name) for file in files_of(folder)]
    written = sum(pq.read_metadata(file).num_rows for file in files_of(folder))
    assert written == nodes, f"{written} predictions for {nodes} nodes"
    columns = pq.read_schema(folder / entries[0].name).names if entries else []
    FORMAT.save(folder, {**about, "nodes": nodes, "columns": columns, "files": file_table(entries)})
    return entries
