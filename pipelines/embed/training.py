"""``penstock embed train``: from options to a run's folder."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.cluster.query import ask_workers
from penstock.cluster.spec import ClusterSpec
from penstock.errors import PenstockError, UsageError, warn
from penstock.files import sha256_of
from penstock.graph import Graph
from penstock.options import asked, flag
from penstock.partition.order import order
from penstock.pipelines.display import Command
from penstock.pipelines.embed.options import EmbedOptions
from penstock.pipelines.embed.planning import (
    batch_problem,
    check_graph,
    disk_to_begin,
    disk_to_train,
    fewest_partitions,
    memory_there,
    memory_to_begin,
    memory_to_train,
    too_large,
    too_wide,
)
from penstock.pipelines.embed.progress import EdgeBar
from penstock.pipelines.embed.report import TrainReport
from penstock.pipelines.embed.run import (
    FORMAT,
    Run,
    check_rows,
    checkpoint_name,
    has_ids,
    keep_ids,
)
from penstock.pipelines.job import Job, Workers
from penstock.pipelines.job.following import sibling
from penstock.pipelines.job.plan import Need, Plan, disk_need
from penstock.pipelines.job.run_folder import (
    epochs_text,
    finished_plan,
    is_trained,
    refuse_fewer,
)
from penstock.run_output import RunState
from penstock.sizes import need_disk, plural
from penstock.workers.embed.spec import DISTANCES, Training
from penstock.workers.embed.storage.direct import check_file
from penstock.workers.embed.storage.versions import BEST, LAST, Checkpoints, table_path
from penstock.workers.embed.task import Trained, TrainTask
from penstock.workers.embed.warm import newest
from penstock.workers.stopped import Stopped

if TYPE_CHECKING:
    from distributed import Worker

_HARDLY = 0.01  # of the loss of vectors of zeros: what is within is no better or worse than they


class TrainJob(Job[TrainReport]):
    """Trains vectors of nodes and relations, in a folder that is there from the first epoch on."""

    command = "penstock embed train"
    visible = FORMAT
    options: EmbedOptions
    run: Run

    def __init__(
        self,
        graph: Graph,
        out: Path,
        options: EmbedOptions,
        cluster: str | ClusterSpec | None = None,
        *,
        quiet: bool,
    ) -> None:
        super().__init__(out, options, cluster, quiet=quiet)
        self.graph, self.ranks = graph, options.ranks
        self.checkpoints = Checkpoints(self.out / "checkpoints")
        self._told = False  # that --init has none of the nodes

    def check(self) -> None:
        """Raise where model, graph and the run to begin with do not go together."""
        graph, training, init_sha256 = self.graph, self.options.training, None
        self.resumes = self.options.resume and (self.out / FORMAT.file).is_file()
        self.before = before = Run.load(self.out) if self.resumes else None
        self.seen, begun = 0, 0
        if before is not None:
            self._check_rows(before)
            old, init_sha256 = before.training, before.init_sha256
            training = replace(
                training,
                model=training.model or old.model,
                batch=training.batch or old.batch,
                partitions=training.partitions or old.partitions,
            )
            self.seen, begun = _trained_so_far(self.checkpoints)
            refuse_fewer(self.out, self.seen, training.epochs)
        # As far as is known: training may stop early.
        self.edges = graph.num_edges * (training.epochs - self.seen) - begun
        training = training.for_graph(has_relations=graph.manifest.relations is not None)
        check_graph(graph, training, self.ranks)
        self._check_validated()
        names = graph.manifest.relations if training.has_relations else None
        self.init, self.begin = self._init(training), 0
        if self.init is not None:
            assert self.options.init is not None
            init_sha256 = _sum_of_newest(self.options.init)
            self.begin = memory_to_begin(graph, self.options.init, self.init)
        self.run = Run(
            graph=str(graph.path),
            graph_sha256=graph.digest,
            training=training,
            nodes=graph.num_nodes,
            relations=names,
            init=None if self.options.init is None else str(self.options.init),
            options=self.given,
            ranks=self.ranks,
            init_sha256=init_sha256,
        )
        if training.partitions is not None and (problem := self._batch_problem(training)):
            raise problem
        if self.options.partitions is not None:
            # Last: a plan says of the rest what would be done on a larger disk.
            need = self._disk(training)
            need_disk(self.out.parent, need, f"the vectors of {graph.num_nodes:,} nodes")
        if not self.resumes:
            _warn_ignored(graph, training)
        _warn_patience(training)

    def _check_rows(self, before: Run) -> None:
        """Raise where the checkpoint to go on from is not of the run in whose folder it is."""
        if self.checkpoints.has(LAST) and has_ids(self.out, before.nodes):  # else written again
            check_rows(self.out, LAST, self.checkpoints.digest(), before)

    def _check_validated(self) -> None:
        """Raise where an option of validation was given, and no edges are held out for it."""
        given = asked(self.options, "patience", "validate_every", "validate_sample")
        if given and not self.graph.manifest.heldout.get("valid"):
            name = flag(given[0])
            raise UsageError(
                f"{self.graph.path} holds out no edges to validate on, which {name} needs",
                remedy=f"Hold some out with penstock etl --valid, or leave {name} out",
            )

    def _init(self, training: Training) -> Run | None:
        """Return the run to begin with, which has vectors of the same kind.

        None: there is none, or the checkpoint to go on from has all that was taken from it.
        """
        folder = self.options.init
        if folder is None or (self.resumes and self.checkpoints.has_all()):
            return None
        if folder.resolve() == self.out.resolve():
            raise UsageError(
                "a run cannot begin with itself",
                remedy="Give it another folder, or go on with --resume",
            )
        found = Run.load(folder)
        checkpoint_name(folder, "best", found)
        for name in ("model", "dim", "norm", "optimizer", "is_reciprocal"):
            ours, theirs = getattr(training, name), getattr(found.training, name)
            if name == "norm":
                ours, theirs = ours or 1, theirs or 1
            if ours != theirs:
                option = flag(name.removeprefix("is_"))
                raise UsageError(
                    f"the vectors of {folder} do not fit: they have another {option}",
                    expected=f"{theirs}, as in that run",
                    got=str(ours),
                )
        return found

    def goes_on(self) -> bool:
        """Whether a run that is done may go on: not where its learning rate has fallen to 0."""
        return self.options.schedule == "constant"

    def plan(self) -> Plan:
        """Say what memory and disk the training run takes."""
        training, graph = self.run.training, self.graph
        what = f"vectors of {graph.num_nodes:,} nodes"
        if (finished := self._finished()) is not None:
            return finished_plan(what, training.epochs, self.seen, finished.stopped)
        # No parts of the graph: ranks distribute its nodes, and read what edges they train.
        with self.open_ranks(None, self.ranks, quiet=True) as workers:
            training = replace(training, partitions=self._partitions(workers))
            capacity, problem = workers.capacity, self._problem(workers, training)
        count = training.partitions or 1
        where = "in memory" if count == 1 else f"{count} partitions on disk, three in memory"
        if self.ranks > 1:
            where += f", on {self.ranks} ranks"
        needed = memory_to_train(graph, training, self.ranks, capacity, begin=self.begin)
        there = memory_there(capacity)
        return Plan(
            f"{what}, {epochs_text(training.epochs, self.seen)}",
            (("train", f"{training.model}, {plural(training.dim, 'value')} a node, {where}"),),
            Need(needed, there, f"on every {capacity.worker}"),
            disk_need(self.out.parent, self._disk(training)),
            problem=problem,
        )

    def work(self) -> None:
        """Train on ranks, and write run.json with the results."""
        graph, folder = self.graph, self.out
        if (finished := self._finished()) is not None:
            keep_ids(folder, graph)
            self.trained: Trained = finished
            assert self.before is not None
            done = replace(self.run, state=RunState.DONE, results=self.before.results)
            FORMAT.save(folder, done.to_dict())
            return
        with self.open_ranks(None, self.ranks) as workers:
            training = replace(self.run.training, partitions=self._partitions(workers))
            self.run = run = replace(self.run, training=training)
            if (problem := self._problem(workers, training)) is not None:
                raise problem
            _warn_in_memory(self.options, training.partitions)
            nodes = f"the vectors of {graph.num_nodes:,} nodes in {folder}"
            need_disk(folder, self._disk(training), nodes)
            FORMAT.save(folder, run.to_dict())
            ids = keep_ids(folder, graph)
            init, names = (None, None)
            if self.init is not None:
                init, names = self.options.init, self.init.relations
            begun = run.init_sha256
            task = TrainTask(graph.path, folder, training, init, names or (), ids, begun)
            edges = graph.num_edges * training.epochs
            with EdgeBar(edges, training.epochs, quiet=self.quiet) as bar:

                def on_metrics(rank: int, metrics: dict[str, Any]) -> None:
                    self._warn_unknown(metrics.get("known"))
                    bar.on_metrics(rank, metrics)

                train = "penstock.workers.embed.train:train"
                found = workers.ranks(train, (task,), title="train", on_metrics=on_metrics)
                self.trained = found[0]
            self.edges = graph.num_edges * (self.trained.epochs - self.trained.first_epoch)
            FORMAT.save(folder, run.ended(self.trained).to_dict())

    def _finished(self) -> Trained | None:
        """Return the results of a run that is resumed and was done, so that no rank is started.

        None: something is left to train, to rank, or to say of its checkpoints.
        """
        before, checkpoints = self.before, self.checkpoints
        if before is None or not checkpoints.has(LAST):
            return None
        if (trained := before.trained(Trained, self.out)) is None:
            return None
        if not is_trained(trained.stopped, before.training, self.run.training):
            return None
        held = checkpoints.load(LAST)
        for file in range(held.geometry.files):
            check_file(table_path(checkpoints.folder, held.geometry, file), held.geometry)
        has_best = trained.validation is None or checkpoints.has(BEST)
        done = {"epoch": trained.epochs, "state": 0, "scores": trained.validation}
        is_whole = has_best and all(held.about.get(name, ...) == done[name] for name in done)
        return trained.nothing_left() if is_whole else None

    def _warn_unknown(self, known: dict[str, int] | None) -> None:
        """Say so, once, where no node has a vector in the run to begin with."""
        if known and not known.get("nodes") and not self._told:
            self._told = True
            only = "only relations began" if any(known.values()) else "nothing began"
            warn(f"{self.options.init} has no node of {self.graph.path}: {only} with its vectors")

    def _problem(self, workers: Workers, training: Training) -> PenstockError | None:
        """Return the error of what does not fit these workers, or the buckets; None: it will do."""
        if workers.capacity.on_gpu and training.model in DISTANCES:
            # Only workers that have a GPU know how wide its kernels are.
            widest = min(ask_workers(workers.client, _widest).values())
            if (problem := too_wide(training, widest)) is not None:
                return problem
        large = too_large(self.graph, training, workers.capacity, self.ranks, begin=self.begin)
        return large or self._batch_problem(training)

    def _batch_problem(self, training: Training) -> PenstockError | None:
        """Return the error of a batch that is too large, of as many partitions as there will be."""
        given = self.options.partitions is not None
        return batch_problem(self.graph, training, self.ranks, partitions_given=given)

    def _disk(self, training: Training) -> int:
        """Return what a run still takes of the disk: one that is resumed has its files."""
        if self.resumes:
            return 0
        begin = 0 if self.init is None else disk_to_begin(self.graph, training, self.ranks)
        return disk_to_train(self.graph, training, self.ranks) + begin

    def _partitions(self, workers: Workers) -> int:
        training, on = self.run.training, workers.capacity
        return training.partitions or fewest_partitions(
            self.graph, training, memory_there(on), self.ranks, on, begin=self.begin
        )

    def report(self, seconds: float) -> TrainReport:
        """Return loss, scores and speed; raise where it, or a vector, became NaN."""
        if self.trained.stopped is Stopped.NAN:
            raise self._diverged()
        _warn_useless(self.out, self.trained, self.run.training)
        self._warn_unknown(self.trained.known)
        return TrainReport(
            run=str(self.out),
            graph=str(self.graph.path),
            training=self.run.training,
            trained=self.trained,
            seconds=seconds,
        )

    def _diverged(self) -> PenstockError:
        """Return the error of a loss or a vector that is no number."""
        remedy = "Train again with a lower --lr or --init-scale"
        if self.checkpoints.has(LAST):
            whose = "run before" if self.brought_back else "last checkpoint"
            remedy += f"; {self.out} holds the vectors of the {whose}"
        epoch = self.trained.epochs + 1
        return PenstockError(
            f"the loss or a vector became NaN or infinite in epoch {epoch}", remedy=remedy
        )

    def following(self) -> list[Command]:
        """Return what ranks held-out edges, and what writes the vectors."""
        export: Command = ("embed", "export", self.out, sibling(self.out, "vectors"))
        if not self.graph.manifest.heldout.get("test"):
            return [export]
        return [("embed", "evaluate", self.out, "--filtered"), export]


def _trained_so_far(checkpoints: Checkpoints) -> tuple[int, int]:
    """Return how many epochs a run that is resumed has, and edges of the one that is under way."""
    about = checkpoints.load(LAST).about if checkpoints.has(LAST) else {}
    # What is no number is found where the checkpoint is gone on from.
    epochs, edges = (about.get(name, 0) for name in ("epoch", "epoch_edges"))
    return epochs if isinstance(epochs, int) else 0, edges if isinstance(edges, int) else 0


def _widest(dask_worker: Worker) -> int:
    """Return how many values a vector may have whose distances a GPU's kernels train."""
    from penstock.kernels.cuda.embed.tiles import widest_distance

    return widest_distance()


def _sum_of_newest(run: Path) -> str:
    """Return what identifies the vectors that a warm start takes from a run."""
    folder = run / "checkpoints"
    return sha256_of(folder / f"{newest(folder)}.json")


def _warn_useless(out: Path, trained: Trained, training: Training) -> None:
    """Say so where vectors of zeros would have been as good as what was trained.

    Losses are compared without penalties, which zeros do not have.
    """
    zeros, loss = trained.loss_of_zeros, trained.loss
    # Without zeros nothing is compared: what loss there is is the penalty's.
    if not zeros or loss is None or not trained.edges or trained.penalty is None:
        return
    if (ours := loss - trained.penalty) >= (1 - _HARDLY) * zeros:
        without = " without penalties" if training.penalty[1] else ""
        warn(
            f"{out}: the loss{without}, {ours:.4g}, is no better than the {zeros:.4g} of vectors "
            "of zeros: train again with more --epochs, a lower --lr, or a smaller penalty"
        )


def _warn_in_memory(options: EmbedOptions, partitions: int | None) -> None:
    """Say so where options of partitions on the disk were given, and all of them are in memory."""
    given = asked(options, "prefetch", "order")
    count = max(1, (partitions or 1) // options.ranks)
    if given and (count == 1 or len(order(options.order, count).states) == 1):
        names = " and ".join(flag(name) for name in given)
        warn(f"{names}: of no effect, as all vectors are in memory; --partitions divides them")


def _warn_patience(training: Training) -> None:
    """Say so where training cannot stop early: a first evaluation is always the best so far."""
    patience, every, epochs = training.patience, training.validate_every, training.epochs
    if patience is not None and (patience + 1) * every >= epochs:
        warn(
            f"--patience {patience}: of no effect, as there are {epochs // every} evaluations; "
            "take a smaller --patience or --validate-every"
        )


def _warn_ignored(graph: Graph, training: Any) -> None:
    about, found = graph.manifest, []
    if not training.has_relations and about.relations and len(about.relations) > 1:
        found.append(f"{len(about.relations):,} relations")
    found += [name for name in ("weights", "times") if name in about.dtypes]
    if found:
        warn(f"{graph.path}: embed ignores its {' and '.join(found)}; all edges are alike")
