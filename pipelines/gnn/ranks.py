"""On how many ranks a job runs, and how they are run: one as a plain task, several as a gang."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from penstock.cluster.connect import connect, kind_for
from penstock.cluster.count import check_count, check_ranks
from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError, GangError, PenstockError, UsageError
from penstock.graph import Graph
from penstock.limits import cores
from penstock.pipelines.capacity import Room, room_of
from penstock.pipelines.gnn.progress import EpochBar
from penstock.pipelines.parts import partition_into
from penstock.pipelines.stage import run_stage
from penstock.workers.gnn.task import Predicted, PredictTask, Trained, TrainTask

if TYPE_CHECKING:
    from penstock.workers.gnn.plan.rates import Rates

# A rank that dies takes its world with it, which is started again.
RETRIES = 2
_TELL_EVERY = 0.1  # seconds


@dataclass(frozen=True)
class Ranks:
    """Where a job runs: a client, how many ranks, and the parts that they read."""

    client: Any
    count: int
    partition: Path | None
    room: Room


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
        partition_into(graph, parts, quiet=quiet)
    ranks = None if alone else parts
    with connect(spec, ranks=ranks, on_gpu=True, quiet=quiet) as client:
        room = room_of(client)
        count = 1 if alone else parts or room.workers
        path = partition_into(graph, count, quiet=quiet) if count > 1 else None
        yield Ranks(client, count, path, room)


def rates_of(ranks: Ranks) -> Rates:
    """Return how fast the machine of a worker is."""
    from penstock.workers.gnn.plan.rates import machine_rates

    calls = [("gpu" if ranks.room.on_gpu else "cpu",)]
    found: list[Rates] = run_stage(
        ranks.client, "measure", machine_rates, calls, sizes=[1], unit="machines", quiet=True
    )
    return found[0]


def train_on(ranks: Ranks, task: TrainTask, *, scored: bool, quiet: bool) -> Trained:
    """Train, with a bar over the epochs, and return what came of it.

    scored  whether the share of right predictions says something, as it does of classes
    """
    with EpochBar(task.training.epochs, scored=scored, quiet=quiet) as bar:
        if ranks.count == 1:
            found = _alone(ranks.client, task, bar)
        else:
            from penstock.workers.gnn.train import train

            def hear(rank: int, metrics: dict[str, Any]) -> None:
                if rank == 0:
                    bar.tell(metrics)

            # Whoever comes after a lost rank finds what was saved last.
            found = _gang(ranks, train, task, quiet=quiet, on_metrics=hear)[0]
        if found.epochs > found.first_epoch:
            bar.tell({"epoch": found.epochs})  # not every epoch is told of
        return found


def predict_on(ranks: Ranks, task: PredictTask, *, quiet: bool) -> list[Predicted]:
    """Predict, a part of the output a rank."""
    if ranks.count == 1:
        calls = [(task,)]
        found: list[Predicted] = run_stage(
            ranks.client, "predict", predict_alone, calls, sizes=[1], unit="graphs", quiet=True
        )
        return found
    from penstock.workers.gnn.predict import predict

    return _gang(ranks, predict, task, quiet=quiet)


def _gang(
    ranks: Ranks,
    step: Any,
    task: Any,
    *,
    quiet: bool,
    on_metrics: Callable[[int, dict[str, Any]], None] | None = None,
) -> list[Any]:
    """Run a step on all ranks, again where one was lost, and return what each gives."""
    from penstock.cluster import gang

    for attempt in range(RETRIES + 1):
        try:
            return gang.run(ranks.client, step, (task,), ranks=ranks.count, on_metrics=on_metrics)
        except GangError as error:
            cause = error.__cause__
            if isinstance(cause, PenstockError) and not isinstance(cause, ClusterError):
                raise cause from error  # what is wrong with the input, not with the gang
            if attempt == RETRIES or not error.may_retry:
                raise
            if not quiet:
                print(f"{error.what}: starting its gang again", file=sys.stderr)
    raise AssertionError


def _alone(client: Any, task: TrainTask, bar: EpochBar) -> Trained:
    topic = f"penstock-gnn-{uuid4().hex}"
    client.subscribe_topic(topic, lambda event: bar.tell(event[1]))
    try:
        found: list[Trained] = run_stage(
            client, "train", train_alone, [(task, topic)], sizes=[1], unit="epochs", quiet=True
        )
    finally:
        client.unsubscribe_topic(topic)
    return found[0]


def train_alone(task: TrainTask, topic: str) -> Trained:
    """Train on one worker; runs there, and tells the client how far it is."""
    from penstock.workers.gnn.train import train

    return train(None, task, report=_Told(topic))


def predict_alone(task: PredictTask) -> Predicted:
    """Predict on one worker; runs there."""
    from penstock.workers.gnn.predict import predict

    return predict(None, task)


class _Told:
    """Takes an epoch's figures to the client, a few times a second at most.

    It ends the training once nobody waits for it any more: Dask does not stop what has begun.
    """

    def __init__(self, topic: str) -> None:
        from distributed import get_worker

        self._topic, self._worker = topic, get_worker()
        self._key = self._worker.get_current_task()
        self._sent = 0.0

    def __call__(self, done: int, metrics: dict[str, Any]) -> None:
        task = self._worker.state.tasks.get(self._key)
        if task is None or task.state == "cancelled":
            raise Abandoned
        if time.monotonic() - self._sent >= _TELL_EVERY:
            self._sent = time.monotonic()
            self._worker.log_event(self._topic, metrics)


class Abandoned(BaseException):
    """Raised in a training whose client has gone or has given it up."""
