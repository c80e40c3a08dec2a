"""The training loop of one rank: ``gang.run(client, train, (task,), ranks=k)``, or alone."""

from __future__ import annotations

import json
import math
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np

from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.workers.device import gpu, to_host
from penstock.workers.gnn.clock import Clock
from penstock.workers.gnn.facts import Facts, facts_of
from penstock.workers.gnn.features import nonzeros
from penstock.workers.gnn.local import Local, open_local
from penstock.workers.gnn.network import Loss, Network
from penstock.workers.gnn.plan import Plan, lower
from penstock.workers.gnn.rates import GUESS, Rates, machine_rates
from penstock.workers.gnn.spec import LOSSES, Model, Training
from penstock.workers.gnn.state import State
from penstock.workers.gnn.task import Trained, TrainTask
from penstock.workers.gnn.threads import threads_of
from penstock.workers.gnn.workforce import Workforce

SPLITS = ("train", "valid", "test")
# Epochs that exchange by messages without computing meanwhile, to see what that alone takes.
_ALONE = range(2, 5)
_DRAWN = 8  # of the last epochs, in a profile
Report = Callable[[int, dict[str, Any]], None]


def train(comm: Any, task: TrainTask, report: Report | None = None) -> Trained:
    """Train on this rank's rows; every rank returns the same but for its own memory and times."""
    started = time.monotonic()
    training = task.training
    with (
        open_local(comm, task.graph, task.partition, weighted=training.weighted) as local,
        Workforce(threads_of(comm)) as crew,
        np.errstate(over="ignore", invalid="ignore"),  # the loss shows them, and ends the training
    ):
        run = _Run(comm, task, local, crew, report)
        return run.through(started)


class _Run:
    """One training on one rank."""

    def __init__(
        self, comm: Any, task: TrainTask, local: Local, crew: Workforce, report: Report | None
    ) -> None:
        self.comm, self.task, self.local, self.report = comm, task, local, report
        self.training = task.training
        self.clock = Clock(timeline=task.training.profile)
        self.first_rank = comm is None or comm.rank == 0
        self.plan, self.model = plan_of(comm, task, local)
        self.network = Network(
            self.plan, self.model, self.training, local, crew,
            comm=comm, clock=self.clock, device=gpu(),
        )  # fmt: skip
        self.loss_kind = _loss_kind(self.training, local)
        self.loss = Loss(self.loss_kind, self.network, self._terms())
        self.state = State(self.network, self.training, self.model, task)
        # What evaluation gives when values are dropped, or normalised over nodes, is not what
        # training gives: it needs a pass of its own.
        self.same = not self.model.input_dropout and not any(
            layer.dropout or layer.attention_dropout or layer.norm == "batch"
            for layer in self.model.layers
        )

    def through(self, started: float) -> Trained:
        """Run all epochs."""
        state, times = self.state, _Times(self.training, self.comm)
        if self.task.resume:
            state.resume(self.first_rank)
        if self.first_rank:
            (self.task.run / "plan.txt").write_text(self.plan.text() + "\n", encoding="utf-8")
        first_epoch, stopped = state.epoch, "epochs"
        while state.epoch < self.training.epochs:
            begun = time.perf_counter()
            times.before(state.epoch - first_epoch, self.network)
            metrics = self._epoch()
            seconds = time.perf_counter() - begun
            kinds = self.clock.epoch_done()
            times.after(state.epoch - 1 - first_epoch, seconds, kinds)
            if not math.isfinite(metrics["train"]["loss"]):
                stopped = "nan"
                break
            self._tell(metrics, seconds, kinds)
            state.save_if_due(self.first_rank)
            if self.training.patience and state.epoch - state.best_epoch >= self.training.patience:
                stopped = "patience"
                break
        if stopped != "nan":
            self._last_look()
            state.save(self.first_rank)
        state.save_best(self.first_rank)
        if self.training.profile:
            self._write_profile(times, first_epoch)
        return Trained(
            epochs=state.epoch,
            best_epoch=state.best_epoch,
            metrics=state.best_metrics,
            loss=self.loss_kind,
            seconds=time.monotonic() - started,
            epoch_seconds=times.epoch_seconds(),
            nodes=self.local.nodes,
            edges=self.local.edges,
            parameters=self.network.parameters.size,
            stopped=stopped,
            sparse=self.plan.sparse,
            memory=_peak_bytes(),
            shares=times.shares(),
            first_epoch=first_epoch,
        )

    def _epoch(self) -> dict[str, dict[str, float]]:
        """Train one epoch; return its metrics."""
        network, state, training = self.network, self.state, self.training
        outputs = network.forward(epoch=state.epoch, training=True)
        grad = network.gradient_buffer()
        loss = self._over_ranks(self.loss(outputs, grad))  # travels during the way back
        network.back(grad)
        if self.comm is not None and self.comm.size > 1:
            with self.clock.span("wait for slower ranks", "other"):
                self.comm.barrier()  # which is no communication's fault
        network.sums.wait()
        metrics = _metrics(loss())
        if not math.isfinite(metrics["train"]["loss"]):
            state.epoch += 1
            return metrics
        if self.same:
            state.judge(metrics)
        with self.clock.span("update", "compute"):
            state.update()
        if not self.same and state.epoch % training.evaluate_every == 0:
            evaluated = self._evaluate()
            metrics = {**evaluated, "train": metrics["train"]}
            state.judge(metrics)
        return metrics

    def _last_look(self) -> None:
        """Judge the last update too, where epochs are judged before their own."""
        if self.same:
            self.state.judge(self._evaluate())

    def _evaluate(self) -> dict[str, dict[str, float]]:
        outputs = self.network.forward(epoch=self.state.epoch)
        return _metrics(self._over_ranks(self.loss(outputs))())

    def _over_ranks(self, sums: Any) -> Callable[[], Any]:
        """Start to add sums up over all ranks; what is returned waits for them."""
        host = np.ascontiguousarray(to_host(sums))
        request = None if self.comm is None else self.comm.iallreduce(host)

        def finish() -> Any:
            if request is not None:
                with self.clock.span("loss of all ranks", "other"):
                    self.comm.wait(request)
            return host

        return finish

    def _terms(self) -> int:
        """Return over how many training terms of the whole graph the loss is a mean."""
        local = self.local
        rows = local.roles == 0
        if local.label_kind == "class":
            rows = rows & (np.asarray(local.labels) >= 0)
        elif local.label_kind == "value":
            rows = rows & ~np.isnan(local.labels)
        count = np.array([int(rows.sum())], np.int64)
        if self.comm is not None:
            self.comm.allreduce(count)
        return int(count[0]) * (local.outputs if self.loss_kind == "binary" else 1)

    def _tell(
        self, metrics: dict[str, dict[str, float]], seconds: float, kinds: Mapping[Any, float]
    ) -> None:
        epoch = self.state.epoch
        shown = {
            "loss": round(metrics["train"]["loss"], 4),
            **{name: round(metrics[name]["score"], 4) for name in metrics},
        }
        if self.first_rank:
            line = {"epoch": epoch, **metrics, "seconds": round(seconds, 6)}
            line["kinds"] = {name: round(value, 6) for name, value in kinds.items()}
            with (self.task.run / "metrics.jsonl").open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            if self.report is not None:
                self.report(1, {"epoch": epoch, **shown})
            elif self.comm is not None:
                self.comm.advance()
                self.comm.log(epoch=epoch, **shown)

    def _write_profile(self, times: _Times, first_epoch: int) -> None:
        """Write what every rank did by name, and when, in the last epochs and those alone."""
        alone = [n for n in _ALONE if times.measures]
        run = self.state.epoch - first_epoch
        kept = {*alone, *range(run - _DRAWN, run)}
        rows = [row for row in self.clock.timeline() if row[0] in kept]
        mine = {"kinds": self.clock.totals(), "timeline": rows}
        ranks = [mine] if self.comm is None else self.comm.allgather(mine)
        if self.first_rank:
            text = json.dumps({"ranks": ranks, "alone": alone})
            (self.task.run / "profile.json").write_text(text, encoding="utf-8")


class _Times:
    """Times of epochs, and of what is exchanged in them with and without computing meanwhile."""

    def __init__(self, training: Training, comm: Any) -> None:
        self._overlap = training.overlap
        self._comm = comm if comm is not None and comm.size > 1 else None
        self.measures = self._comm is not None and training.overlap
        self._epochs: list[tuple[bool, float, Mapping[Any, float]]] = []

    def before(self, number: int, network: Network) -> None:
        """Exchange alone, by messages, in a few epochs, to see what that takes."""
        if self.measures:
            usual = number not in _ALONE
            network.halo.overlap = network.halo.sharing = network.sums.overlap = usual

    def after(self, number: int, seconds: float, kinds: Mapping[Any, float]) -> None:
        """Remember an epoch; the first compiles and folds, and is left out."""
        if number:
            self._epochs.append((self.measures and number in _ALONE, seconds, kinds))

    def epoch_seconds(self) -> float:
        """Return the median epoch."""
        return median([s for alone, s, _ in self._epochs if not alone] or [0.0])

    def shares(self) -> dict[str, float]:
        """Return the median seconds of each kind, the mean over ranks; every rank calls it."""
        usual = [kinds for alone, _, kinds in self._epochs if not alone]
        names = ("compute", "halo", "gradient", "other")
        values = [median([kinds.get(n, 0.0) for kinds in usual] or [0.0]) for n in names]
        alone = [kinds for is_alone, _, kinds in self._epochs if is_alone]
        for name in ("halo", "gradient"):
            values.append(median([kinds.get(name, 0.0) for kinds in alone] or [0.0]))
        slowest = np.array([values[0]])
        total = np.array(values)
        if self._comm is not None:
            self._comm.allreduce(total)
            self._comm.allreduce(slowest, "max")
            total /= self._comm.size
        keys = (*names, "halo_alone", "gradient_alone")
        found = {key: float(value) for key, value in zip(keys, total, strict=True)}
        found["imbalance"] = float(slowest[0] / total[0]) if total[0] else 1.0
        return found


def plan_of(comm: Any, task: Any, local: Local, outputs: int | None = None) -> tuple[Plan, Model]:
    """Return what runs, the same on every rank, and the model with every width named."""
    training: Training = task.training
    facts = _facts(comm, task, local)
    if outputs is not None:
        facts = replace(facts, outputs=outputs)
    rates = _rates(comm)
    model = task.model.complete(facts.outputs)
    return lower(task.model, facts, training, rates), model


def _facts(comm: Any, task: Any, local: Local) -> Facts:
    facts = facts_of(Graph.open(task.graph), task.partition, training=task.training, on_gpu=gpu())
    # All ranks take the path that suits all of the features.
    counts = np.array([nonzeros(local.features), local.owned], np.int64)
    if comm is not None:
        comm.allreduce(counts)
    stored = round(int(counts[0]) / max(int(counts[1]), 1) * facts.rows)
    return replace(facts, nonzeros=stored, outputs=local.outputs or facts.outputs)


def _rates(comm: Any) -> Rates:
    """Return rank 0's rates: plans that differ would wait for each other."""
    device = "gpu" if gpu() else "cpu"
    if comm is None:
        return machine_rates(device)
    mine = machine_rates(device) if comm.rank == 0 else GUESS[device]
    first: Rates = comm.allgather(mine)[0]
    return first


def _peak_bytes() -> int:
    """Return the most memory that this process, or its pool on the GPU, has held."""
    if gpu():
        import cupy

        return int(cupy.get_default_memory_pool().total_bytes())
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _loss_kind(training: Training, local: Local) -> str:
    kind = LOSSES[str(local.label_kind)]
    if training.loss not in ("auto", kind):
        raise UsageError(
            f"loss {training.loss} does not suit labels of kind {local.label_kind}",
            expected=f"--loss {kind} or auto",
        )
    return kind


def _metrics(sums: Any) -> dict[str, dict[str, float]]:
    """Return the mean loss and the score of each split that has rows."""
    found = {}
    for name, (loss, terms, right, of) in zip(SPLITS, sums.tolist(), strict=True):
        if terms or name == "train":
            found[name] = {"loss": loss / max(terms, 1), "score": right / max(of, 1)}
    return found
