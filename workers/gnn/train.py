"""Training on one rank: ``gang.run(client, train, (task,), ranks=k)``; loop.py drives it."""

from __future__ import annotations

import math
import resource
import time
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.errors import UsageError
from penstock.files import save_text
from penstock.graph import SPLITS
from penstock.workers.gnn.clock import Clock, EpochTimes, write_profile
from penstock.workers.gnn.cuda_graph import CudaGraphs, own_stream
from penstock.workers.gnn.data.local import LocalGraph, open_local
from penstock.workers.gnn.halo.overlap import measure_overlap
from penstock.workers.gnn.layers.network import Loss, Network
from penstock.workers.gnn.plan.spec import LOSSES
from penstock.workers.gnn.state import State
from penstock.workers.gnn.task import Trained, TrainTask
from penstock.workers.gnn.thread_pool import ThreadPool
from penstock.workers.resources.device import gpu, to_host
from penstock.workers.training.loop import Evaluation, Loop, Position, Step, Trainer
from penstock.workers.training.stopped import Stopped

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

Metrics = dict[str, dict[str, float]]  # loss and score of each split


def train(comm: AnyCommunicator, task: TrainTask) -> Trained:
    """Train on this rank's rows; results are the same on all ranks except memory and times."""
    started = time.monotonic()
    training = task.training
    with (
        open_local(
            comm, task.graph, task.partition, weighted=training.weighted, split=task.split
        ) as local,
        ThreadPool.of(comm) as pool,
        np.errstate(over="ignore", invalid="ignore"),  # the loss shows them and ends the run
        own_stream(active=gpu() and comm.size == 1),
    ):
        return _Trainer(comm, task, local, pool).run(started)


class _Trainer(Trainer):
    def __init__(
        self, comm: AnyCommunicator, task: TrainTask, local: LocalGraph, pool: ThreadPool
    ) -> None:
        self.comm, self.task, self.local = comm, task, local
        self.training = task.training
        self.position = Position()
        profile = task.training.profile
        settle = None
        if profile and gpu():
            settle = comm.synchronize
        self.clock = Clock(profile, settle)
        if self.training.precision != "fp32" and not gpu():
            raise UsageError(
                f"--precision {self.training.precision} is for GPUs, and this worker has none",
                expected="--precision fp32, or --device gpu",
            )
        self.plan, given = task.plan, (task.training, local, pool, comm)
        self.network = Network(self.plan, *given, clock=self.clock, device=gpu())
        # Free the memory of the preparation; buffers are allocated as needed.
        self._peak = _peak_bytes(give_back=True)
        captured = gpu() and comm.size == 1 and self.training.cuda_graph and not profile
        self.passes = CudaGraphs(self.network.context, active=captured)
        self.loss_kind = LOSSES[str(local.label_kind)]
        self.loss = Loss(self.loss_kind, self.network, self._terms())
        self.state = State(self.network, task)
        self.times = EpochTimes(comm)
        # With dropout or norms over nodes, evaluation differs from training: it needs its own pass.
        layers = [one.layer for one in self.plan.layers]
        self.same = not self.plan.input_dropout and not any(
            layer.dropout or layer.attention_dropout or layer.norm == "batch" for layer in layers
        )
        self._next: Metrics | None = None  # of the next epoch's pass, if done
        self._metrics: Metrics = {}  # of this epoch's, before the update
        # Seconds of this and the next epoch that the loop does not count as training.
        self._seconds = self._next_seconds = 0.0
        self._kinds: Mapping[Any, float] | None = None

    def run(self, started: float) -> Trained:
        training, run = self.training, self.task.run
        if self.comm.rank == 0:
            save_text(run / "plan.txt", self.plan.text() + "\n")
        every, patience = training.evaluate_every, training.patience
        ended = Loop(self, training, run, evaluate_every=every, patience=patience).run()
        position = self.position
        if self.comm.rank == 0:
            self.state.save_best()
        if training.profile:
            epochs = position.epoch - ended.first_epoch
            write_profile(run / "profile.json", self.comm, self.clock, self.times, epochs)
        done = time.monotonic()
        return Trained(
            epochs=position.epoch,
            best_epoch=position.best_epoch,
            metrics=position.scores or {},
            loss=self.loss_kind,
            seconds=done - started,
            epoch_seconds=self.times.epoch_seconds(),
            nodes=self.local.nodes,
            edges=self.local.edges,
            parameters=self.network.parameters.size,
            stopped=ended.stopped,
            sparse=self.plan.sparse,
            memory=max(self._peak, _peak_bytes() + self.passes.bytes),
            shares=self.times.shares(),
            overlap=None if ended.stopped is Stopped.NAN else self._overlap(),
            first_epoch=ended.first_epoch,
            device="gpu" if self.network.context.on_gpu else "cpu",
            known=self.state.known,
        )

    # -- the loop's interface ----------------------------------------------------------------------

    def load(self) -> Position | None:
        return self.state.load()

    def steps(self) -> Generator[Step, bool, None]:
        while self.position.epoch < self.training.epochs:
            self._metrics, self._next = self._next or self._gradients(), None
            if _is_finite(self._metrics):
                with self.clock.span("update", "compute"):
                    self.state.update(self.position.epoch)
            if self.same:  # the evaluation is the next epoch's pass
                self._kinds = self.clock.epoch_done()
            yield Step(self._metrics["train"]["loss"], 0, whole=True)

    def evaluate(self, epoch: int) -> Evaluation:
        if self.same and epoch < self.training.epochs:
            found = self._ahead(epoch)
        else:
            found = self._evaluate(epoch)
        loss = found.get("valid", found["train"])["loss"]
        return Evaluation(-loss, found, finite=_is_finite(found))

    def is_finite(self) -> bool:
        epoch = self.position.epoch + 1
        if not self.state.is_finite():
            return False
        return not self.same or epoch >= self.training.epochs or _is_finite(self._ahead(epoch))

    def figures(
        self, evaluated: Evaluation | None, seconds: float
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        kinds = self._kinds or self.clock.epoch_done()
        seconds += self._seconds
        self._seconds, self._next_seconds, self._kinds = self._next_seconds, 0.0, None
        self.times.after(seconds, kinds)
        metrics = {**(evaluated.scores if evaluated else {}), "train": self._metrics["train"]}
        shown = {name: round(found["score"], 4) for name, found in metrics.items()}
        shown["done"] = self.position.epoch
        return {
            **metrics,
            "seconds": round(seconds, 6),
            "kinds": {name: round(value, 6) for name, value in kinds.items()},
        }, {"loss": round(metrics["train"]["loss"], 4), **shown}

    def hold_best(self) -> bool:
        self.state.hold_best(self.position)
        return True

    def save(self, *, best: bool) -> None:
        """Write checkpoints: only rank 0, as all hold the same."""
        if self.comm.rank == 0:
            self.state.save(self.position)

    # -- passes ------------------------------------------------------------------------------------

    def _ahead(self, epoch: int) -> Metrics:
        """Return the metrics of the next epoch's pass, computed now if needed."""
        if self._next is None:
            begun = time.perf_counter()
            self._next = self._gradients(epoch)
            self._next_seconds = time.perf_counter() - begun
        return self._next

    def _gradients(self, epoch: int | None = None) -> Metrics:
        """Do the forward and backward pass; return the metrics of the forward pass.

        epoch  0, 1, ... [default: the next one]
        """
        if epoch is None:
            epoch = self.position.epoch
        loss = self.passes("train", epoch, lambda: self._forward_and_backward(epoch), training=True)
        if self.training.profile and self.comm.size > 1:
            with self.clock.span("wait for slower ranks", "other"):
                self.comm.barrier()  # else that would count as gradients
        self.network.reducer.wait()
        return _metrics(loss())

    def _forward_and_backward(self, epoch: int) -> Callable[[], Array]:
        network = self.network
        outputs = network.forward(epoch=epoch, training=True)
        grad = network.gradient_buffer()
        loss = self._over_ranks(self.loss(outputs, grad))  # overlaps the backward pass
        network.backward(grad)
        return loss

    def _evaluate(self, epoch: int) -> Metrics:
        def forward() -> Callable[[], Array]:
            return self._over_ranks(self.loss(self.network.forward(epoch=epoch)))

        return _metrics(self.passes("evaluation", epoch, forward, training=False)())

    def _overlap(self) -> dict[str, Any] | None:
        """Measure the hidden share of the communication, if requested.

        The run is already complete; this does not change its weights.
        """
        rounds = self.training.measure_overlap
        if rounds is None or self.comm.size == 1:
            return None

        restore = self.state.snapshot()
        return measure_overlap(self.comm, self.network, self.bare_epoch, restore, rounds)

    def bare_epoch(self) -> Metrics:
        """Do an epoch's passes and update, without evaluation, report and checkpoint."""
        loss = self._forward_and_backward(self.position.epoch)
        self.network.reducer.wait()
        metrics = _metrics(loss())
        self.state.update(self.position.epoch)
        return metrics

    def _over_ranks(self, sums: AnyArray) -> Callable[[], Array]:
        """Start a sum over all ranks; the returned function waits for it."""
        wait = self.network.reducer.later(sums)

        def finish() -> Array:
            with self.clock.span("loss of all ranks", "other"):
                wait()
            self.network.synchronize()
            return to_host(sums)

        return finish

    def _terms(self) -> int:
        count = np.array([np.count_nonzero(self.local.counted == 0)], np.int64)
        self.comm.allreduce(count)
        outputs = self.plan.layers[-1].layer.channels or 1
        return int(count[0]) * (outputs if self.loss_kind == "binary" else 1)


def _peak_bytes(*, give_back: bool = False) -> int:
    if gpu():
        import cupy

        pool = cupy.get_default_memory_pool()
        found = int(pool.total_bytes())
        if give_back:
            pool.free_all_blocks()
        return found
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _is_finite(metrics: Metrics) -> bool:
    return math.isfinite(metrics["train"]["loss"])


def _metrics(sums: AnyArray) -> Metrics:
    found = {}
    for name, (loss, terms, right, of) in zip(SPLITS, sums.tolist(), strict=True):
        if terms or name == "train":
            found[name] = {"loss": loss / max(terms, 1), "score": right / max(of, 1)}
    return found
