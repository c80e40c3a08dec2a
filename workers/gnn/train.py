"""The training loop of one rank: ``gang.run(client, train, (task,), ranks=k)``."""

from __future__ import annotations

import json
import math
import resource
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.errors import UsageError
from penstock.files import append_text, save_text
from penstock.graph import SPLITS
from penstock.workers.gnn.clock import Clock, EpochTimes, write_profile
from penstock.workers.gnn.cuda_graph import CudaGraphs, own_stream
from penstock.workers.gnn.data.local import LocalGraph, open_local
from penstock.workers.gnn.halo.overlap import measure_overlap
from penstock.workers.gnn.layers.network import Loss, Network
from penstock.workers.gnn.plan.spec import LOSSES
from penstock.workers.gnn.state import Metrics, State
from penstock.workers.gnn.task import Trained, TrainTask
from penstock.workers.gnn.thread_pool import ThreadPool
from penstock.workers.resources.device import gpu, to_host
from penstock.workers.stopped import Stopped

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator


def train(comm: AnyCommunicator, task: TrainTask) -> Trained:
    """Train on this rank's rows; every rank returns the same but for its own memory and times."""
    started = time.monotonic()
    training = task.training
    with (
        open_local(
            comm, task.graph, task.partition, weighted=training.weighted, split=task.split
        ) as local,
        ThreadPool.of(comm) as pool,
        np.errstate(over="ignore", invalid="ignore"),  # the loss shows them, and ends the run
        own_stream(active=gpu() and comm.size == 1),
    ):
        return _Trainer(comm, task, local, pool).run(started)


class _Epoch(NamedTuple):
    """An epoch whose update is done."""

    metrics: dict[str, float]  # of the training nodes, before the update
    seconds: float
    kinds: Mapping[Any, float]


class _Trainer:
    """What trains on one rank, from the first epoch that is left to the last."""

    def __init__(
        self, comm: AnyCommunicator, task: TrainTask, local: LocalGraph, pool: ThreadPool
    ) -> None:
        self.comm, self.task, self.local = comm, task, local
        self.training = task.training
        profile = task.training.profile
        settle = None
        if profile and gpu():
            settle = comm.synchronize
        self.clock = Clock(profile, settle)
        self.first_rank = comm.rank == 0
        if self.training.precision != "fp32" and not gpu():
            raise UsageError(
                f"--precision {self.training.precision} is for GPUs, and this worker has none",
                expected="--precision fp32, or --device gpu",
            )
        self.plan, self.model = task.plan, task.model
        self.network = Network(
            self.plan, self.model, self.training, local, pool, comm,
            clock=self.clock, device=gpu(),
        )  # fmt: skip
        # What preparing took is freed, so that buffers are allocated as they are needed.
        self._peak = _peak_bytes(give_back=True)
        captured = gpu() and comm.size == 1 and self.training.cuda_graph and not profile
        self.passes = CudaGraphs(self.network.context, active=captured)
        self.loss_kind = LOSSES[str(local.label_kind)]
        self.loss = Loss(self.loss_kind, self.network, self._terms())
        self.state = State(self.network, self.training, self.model, task)
        # What evaluation gives when values are dropped, or normalised over nodes, is not what
        # training gives: it needs a pass of its own.
        self.same = not self.model.input_dropout and not any(
            layer.dropout or layer.attention_dropout or layer.norm == "batch"
            for layer in self.model.layers
        )
        self._unfinished: _Epoch | None = None  # updated, and neither compared nor reported yet
        self._evaluated = 0  # the last epoch that was evaluated here

    def run(self, started: float) -> Trained:
        """Run all epochs."""
        state, times = self.state, EpochTimes(self.comm)
        if self.task.resume:
            state.resume(self.first_rank)
        if self.first_rank:
            save_text(self.task.run / "plan.txt", self.plan.text() + "\n")
        first_epoch = state.epoch
        stopped = self._epochs(times)
        if stopped is not Stopped.NAN:
            state.save(self.first_rank)
        state.save_best(self.first_rank)
        if self.training.profile:
            path = self.task.run / "profile.json"
            write_profile(path, self.comm, self.clock, state.epoch - first_epoch)
        done = time.monotonic()
        return Trained(
            epochs=state.epoch,
            best_epoch=state.best_epoch,
            metrics=state.best_metrics,
            loss=self.loss_kind,
            seconds=done - started,
            epoch_seconds=times.epoch_seconds(),
            nodes=self.local.nodes,
            edges=self.local.edges,
            parameters=self.network.parameters.size,
            stopped=stopped,
            sparse=self.plan.sparse,
            memory=max(self._peak, _peak_bytes() + self.passes.bytes),
            shares=times.shares(),
            overlap=None if stopped is Stopped.NAN else self._overlap(),
            first_epoch=first_epoch,
            device="gpu" if self.network.context.on_gpu else "cpu",
        )

    def _epochs(self, times: EpochTimes) -> Stopped:
        """Run the epochs that are left; return what ended them."""
        state, first_epoch = self.state, self.state.epoch
        while state.epoch < self.training.epochs and not self._patience_ends():
            begun = time.perf_counter()
            metrics = self._gradients()
            if self._unfinished is not None:  # this pass evaluates the epoch before
                paused = time.perf_counter()
                self._finish_epoch(metrics)
                begun += time.perf_counter() - paused
            if not _finite(metrics):
                state.epoch += 1
                return Stopped.NAN
            if self._patience_ends():
                break
            with self.clock.span("update", "compute"):
                state.update()
            evaluated = self._evaluate() if state.evaluation_due() and not self.same else None
            seconds = time.perf_counter() - begun
            kinds = self.clock.epoch_done()
            times.after(state.epoch - 1 - first_epoch, seconds, kinds)
            self._unfinished = _Epoch(metrics["train"], seconds, kinds)
            if not self.same and not self._finish_epoch(evaluated):
                return Stopped.NAN
        # The last epoch's weights are evaluated whatever --evaluate-every says.
        known = self._evaluated == state.epoch and state.best_epoch
        if not known and not self._finish_epoch(self._evaluate(), last=True):
            return Stopped.NAN
        return Stopped.PATIENCE if self._patience_ends() else Stopped.EPOCHS

    def _patience_ends(self) -> bool:
        # Not before the last update is evaluated, which may be the best.
        return self._unfinished is None and self.state.out_of_patience()

    def _gradients(self) -> Metrics:
        """Do the forward and backward pass; return the metrics of the forward pass."""
        loss = self.passes("train", self.state.epoch, self._forward_and_backward, training=True)
        if self.training.profile and self.comm.size > 1:
            with self.clock.span("wait for slower ranks", "other"):
                self.comm.barrier()  # else that would count as gradients'
        self.network.reducer.wait()
        return _metrics(loss())

    def _finish_epoch(self, evaluated: Metrics | None, *, last: bool = False) -> bool:
        """Report the last epoch, keep it if it is the best; return whether to go on.

        Where training's own pass gives what an evaluation would, the next epoch's finishes it.
        """
        state, done, good = self.state, self._unfinished, True
        if evaluated is not None:
            good = _finite(evaluated)
            if good and (last or state.evaluation_due()):
                state.update_best(evaluated, last=last)
                self._evaluated = state.epoch
            else:
                evaluated = None
        if done is not None:
            self._unfinished = None
            self._report({**(evaluated or {}), "train": done.metrics}, done.seconds, done.kinds)
            if good:
                state.save_if_due(self.first_rank)
        return good

    def _forward_and_backward(self) -> Callable[[], Array]:
        network, epoch = self.network, self.state.epoch
        outputs = network.forward(epoch=epoch, training=True)
        grad = network.gradient_buffer()
        loss = self._over_ranks(self.loss(outputs, grad))  # overlaps the backward pass
        network.backward(grad)
        return loss

    def _overlap(self) -> dict[str, Any] | None:
        """Measure which share of the communication is hidden, where that was asked for.

        The run is complete before; nothing of this changes its weights.
        """
        rounds = self.training.measure_overlap
        if rounds is None or self.comm.size == 1:
            return None

        restore = self.state.snapshot()
        return measure_overlap(self.comm, self.network, self.bare_epoch, restore, rounds)

    def bare_epoch(self) -> Metrics:
        """Do an epoch's passes and update, without evaluation, report and checkpoint."""
        loss = self._forward_and_backward()
        self.network.reducer.wait()
        metrics = _metrics(loss())
        self.state.update()
        return metrics

    def _evaluate(self) -> Metrics:
        epoch = self.state.epoch

        def forward() -> Callable[[], Array]:
            return self._over_ranks(self.loss(self.network.forward(epoch=epoch)))

        return _metrics(self.passes("evaluation", epoch, forward, training=False)())

    def _over_ranks(self, sums: AnyArray) -> Callable[[], Array]:
        """Start to add sums up over all ranks; what is returned waits for them."""
        wait = self.network.reducer.later(sums)

        def finish() -> Array:
            with self.clock.span("loss of all ranks", "other"):
                wait()
            self.network.synchronize()
            return to_host(sums)

        return finish

    def _terms(self) -> int:
        """Return over how many training terms of the whole graph the loss is a mean."""
        local = self.local
        count = np.array([np.count_nonzero(local.counted == 0)], np.int64)
        self.comm.allreduce(count)
        return int(count[0]) * (local.outputs if self.loss_kind == "binary" else 1)

    def _report(self, metrics: Metrics, seconds: float, kinds: Mapping[Any, float]) -> None:
        epoch = self.state.epoch
        shown = {
            "loss": round(metrics["train"]["loss"], 4),
            **{name: round(metrics[name]["score"], 4) for name in metrics},
        }
        if self.first_rank:
            line = {"epoch": epoch, **metrics, "seconds": round(seconds, 6)}
            line["kinds"] = {name: round(value, 6) for name, value in kinds.items()}
            append_text(self.task.run / "metrics.jsonl", json.dumps(line) + "\n")
            self.comm.log(epoch=epoch, **shown)
            self.comm.advance()


def _peak_bytes(*, give_back: bool = False) -> int:
    """Return the most memory that this process, or its pool on the GPU, has held so far."""
    if gpu():
        import cupy

        pool = cupy.get_default_memory_pool()
        found = int(pool.total_bytes())
        if give_back:
            pool.free_all_blocks()
        return found
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _finite(metrics: Metrics) -> bool:
    return math.isfinite(metrics["train"]["loss"])


def _metrics(sums: AnyArray) -> Metrics:
    """Return the mean loss and the score of each split that has rows."""
    found = {}
    for name, (loss, terms, right, of) in zip(SPLITS, sums.tolist(), strict=True):
        if terms or name == "train":
            found[name] = {"loss": loss / max(terms, 1), "score": right / max(of, 1)}
    return found
