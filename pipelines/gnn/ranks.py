"""On how many ranks a job runs, and how they are run: a gang, of one rank or several."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.cluster.connect import connect, kind_for
from penstock.cluster.count import check_count, check_ranks
from penstock.cluster.gang import listening
from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.limits import cores
from penstock.pipelines.job.capacity import Capacity, capacity_of
from penstock.pipelines.job.parts import partition_into
from penstock.pipelines.job.ranks import run_ranks
from penstock.pipelines.job.tasks import run_tasks
from penstock.progress import Progress
from penstock.workers.comm.single import run_single
from penstock.workers.gnn.task import Predicted, PredictTask, Trained, TrainTask

if TYPE_CHECKING:
    from penstock.workers.gnn.plan.rates import Rates


@dataclass(frozen=True)
class Ranks:
    """Where a job runs: a client, how many ranks, and the parts that they read."""

    client: Any
    count: int
    partition: Path | None
    capacity: Capacity


@contextmanager
def open_ranks(
    graph: Graph, parts: int | None, cluster: ClusterSpec, *, quiet: bool
) -> Iterator[Ranks]:
    """Connect to as many workers as a job needs; the partition is made where it is missing."""
    spec = cluster.configured()
    kind = kind_for(spec, 0, None, on_gpu=True)
    if parts is None and kind == "mpi":
        parts = spec.workers  # or as many as come
    elif parts is not None and kind == "mpi" and (spec.workers or parts) < parts:
        raise UsageError(
            f"-k {parts} needs as many ranks",
            expected=f"-n {parts} or more, or no -n",
            got=f"-n {spec.workers}",
        )
    alone = parts == 1 or (parts is None and kind != "mpi")
    if alone and kind == "local" and spec.workers is None:
        # One process that has the machine, rather than one of many that has a core.
        spec = replace(spec, workers=1, threads=spec.threads or cores())
    if not alone and parts is not None:
        # Before a partition is made for ranks that cannot be started.
        kind = kind_for(spec, 0, parts, on_gpu=True)
        check_ranks(kind)
        check_count(spec, kind, parts)
        partition_into(graph, parts, quiet=quiet, worker_timeout=spec.worker_timeout)
    ranks = None if alone else parts
    with connect(spec, ranks=ranks, on_gpu=True, quiet=quiet) as client:
        capacity = capacity_of(client)
        count = 1 if alone else parts or capacity.workers
        path = None
        if count > 1:
            path = partition_into(graph, count, quiet=quiet, worker_timeout=spec.worker_timeout)
        yield Ranks(client, count, path, capacity)


def rates_of(ranks: Ranks) -> Rates:
    """Return how fast the machine of a worker is."""
    from penstock.workers.gnn.plan.rates import machine_rates

    calls = [("gpu" if ranks.capacity.on_gpu else "cpu",)]
    found: list[Rates] = run_tasks(
        ranks.client, "measure", machine_rates, calls, sizes=[1], unit="machines", quiet=True
    )
    return found[0]


def train_on(ranks: Ranks, task: TrainTask, *, scored: bool, quiet: bool) -> Trained:
    """Train, with a bar over the epochs, and return what came of it.

    scored  whether the share of right predictions says something, as it does of classes
    """
    with EpochBar(task.training.epochs, scored=scored, quiet=quiet) as bar:

        def show(rank: int, metrics: dict[str, Any]) -> None:
            if rank == 0:
                bar.update(metrics)

        # A rank that is started again finds the last checkpoint.
        found: Trained = _run(ranks, "train", _train, task, quiet=quiet, on_metrics=show)[0]
        if found.epochs > found.first_epoch:
            bar.update({"epoch": found.epochs})  # not every epoch is reported
        return found


def predict_on(ranks: Ranks, task: PredictTask, *, quiet: bool) -> list[Predicted]:
    """Predict, a part of the output a rank."""
    return _run(ranks, "predict", _predict, task, quiet=quiet)


def _train(comm: Any, task: TrainTask) -> Trained:
    from penstock.workers.gnn.train import train

    return train(comm, task)


def _predict(comm: Any, task: PredictTask) -> Predicted:
    from penstock.workers.gnn.predict import predict

    return predict(comm, task)


def _run(
    ranks: Ranks,
    title: str,
    function: Callable[[Any, Any], Any],
    task: Any,
    *,
    quiet: bool,
    on_metrics: Callable[[int, dict[str, Any]], None] | None = None,
) -> list[Any]:
    """Run a function on all ranks, again where one was lost, and return every result."""
    if ranks.count > 1:
        return run_ranks(
            ranks.client, function, lambda: (task,),
            ranks=ranks.count, quiet=quiet, on_metrics=on_metrics,
        )  # fmt: skip
    # A gang of one needs no MPI: it is a task of Dask, which retries it.
    name = f"{title}-{uuid4().hex}"

    def hear(report: dict[str, Any]) -> None:
        if on_metrics is not None and report["metrics"]:
            on_metrics(0, report["metrics"])

    with listening(ranks.client, name, hear):
        call = name, function, (task,)
        return run_tasks(
            ranks.client, title, run_single, [call], sizes=[1], unit="ranks", quiet=True
        )


class EpochBar(Progress):
    """Progress in epochs: ``train: 40 %, 25 epochs/s, loss 0.61, train 83.1 %, valid 79.4 %``."""

    def __init__(self, epochs: int, *, scored: bool = True, quiet: bool = False) -> None:
        super().__init__("train", total=epochs, unit="epochs", quiet=quiet)
        self.epochs, self._before = epochs, -1
        self._shown = ("train", "valid") if scored else ()
        self._figures: dict[str, Any] = {}

    def __enter__(self) -> EpochBar:
        super().__enter__()
        return self

    def update(self, metrics: dict[str, Any]) -> None:
        """Take the metrics of an epoch: its number, from 1, loss, and scores of splits."""
        epoch = metrics.get("epoch")
        if epoch is None:
            return
        if self._before < 0:
            self._before = int(epoch) - 1  # what was done before this run is not its speed
            self.total = max(self.epochs - self._before, 1)
        self._figures.update(metrics)
        # A rank that was restarted resumes from its checkpoint.
        self.advance(int(epoch) - self._before - self.done)

    def _state(self, elapsed: float) -> str:
        figures = [super()._state(elapsed)]
        if (loss := self._figures.get("loss")) is not None:
            figures.append(f"loss {loss:.4g}")
        for name in self._shown:
            if (score := self._figures.get(name)) is not None:
                figures.append(f"{name} {100 * score:.1f} %")
        return ", ".join(figures)
