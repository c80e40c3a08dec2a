"""The state of training: parameters, the optimizer's moments, the best; checkpoint, resume."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.errors import CorruptFile
from penstock.kernels import kernel
from penstock.workers.epoch_lines import keep_epochs
from penstock.workers.gnn import checkpoint
from penstock.workers.gnn.checkpoint import BEST, LAST
from penstock.workers.gnn.layers.network import Network
from penstock.workers.gnn.plan.spec import Model, Training
from penstock.workers.gnn.task import TrainTask
from penstock.workers.resources.device import to_device, to_host

Weights = tuple[AnyArray, dict[str, AnyArray]]  # all parameters as one vector, and moments by name
Metrics = dict[str, dict[str, float]]  # loss and score of each split


class State:
    """One training run's state; every rank holds the same."""

    def __init__(self, network: Network, training: Training, model: Model, task: TrainTask) -> None:
        self.network, self.training, self.model, self.task = network, training, model, task
        values = network.parameters.values
        self.moments = [np.zeros_like(values) for _ in range(self._moment_count())]
        self.epoch, self.best_epoch = 0, 0  # a best epoch of 0: none has been evaluated yet
        self.best_loss = math.inf
        self.best_metrics: Metrics = {}
        self._best: Weights | None = None
        self._saved_at, self._saved_epoch = time.monotonic(), 0
        self._best_saved = False

    def _moment_count(self) -> int:
        return 1 if self.training.optimizer == "sgd" else 2

    def update(self) -> None:
        """Take one step of the optimizer."""
        training, parameters = self.training, self.network.parameters
        module = kernel("optimizer", parameters.values)
        scale = 1.0
        if training.clip is not None:
            norm = float(np.sqrt((parameters.gradients.astype(np.float64) ** 2).sum()))
            scale = min(1.0, training.clip / max(norm, 1e-300))
        lr = training.lr_at(self.epoch)
        self.epoch += 1
        if training.optimizer == "sgd":
            module.sgd(
                parameters.values, parameters.gradients, self.moments[0],
                lr=lr, momentum=training.momentum, weight_decay=training.weight_decay, scale=scale,
            )  # fmt: skip
            return
        module.adam(
            parameters.values, parameters.gradients, *self.moments,
            lr=lr, beta1=training.beta1, beta2=training.beta2, epsilon=training.epsilon,
            weight_decay=training.weight_decay, decoupled=training.optimizer == "adamw",
            scale=scale, step=self.epoch,
        )  # fmt: skip

    def snapshot(self) -> Callable[[], None]:
        """Return what restores everything that an epoch changes to what it is now."""
        network, epoch = self.network, self.epoch
        kept = [network.parameters.values, network.parameters.gradients, *self.moments]
        kept += network.moments().values()
        copies = [array.copy() for array in kept]

        def restore() -> None:
            self.epoch = epoch
            for array, copy in zip(kept, copies, strict=True):
                array[...] = copy

        return restore

    def evaluation_due(self) -> bool:
        """Return whether the epoch just done is evaluated; the last one always is."""
        last = self.epoch >= self.training.epochs
        return last or self.epoch % self.training.evaluate_every == 0

    def update_best(self, metrics: Metrics, *, last: bool = False) -> None:
        """Keep the parameters if their validation (or else training) loss is the best.

        ``metrics`` are of an evaluation of the parameters as they are. ``last`` takes them where
        none were finite before, so that a training run that ends has some.
        """
        loss = metrics.get("valid", metrics["train"])["loss"]
        if loss < self.best_loss or (last and self._best is None):
            self.best_loss, self.best_epoch, self.best_metrics = loss, self.epoch, metrics
            self._best, self._best_saved = self._copy(), False

    def out_of_patience(self) -> bool:
        """Return whether as many evaluations as the patience have passed without a better loss."""
        every, patience = self.training.evaluate_every, self.training.patience
        # Not counted one by one: a run that was resumed counts as one that was not.
        return patience is not None and self.epoch // every - self.best_epoch // every >= patience

    # Saving

    def save_if_due(self, first_rank: bool) -> None:
        """Save every so many epochs or minutes; only the first rank writes, all hold the same."""
        training, now = self.training, time.monotonic()
        due = training.checkpoint_epochs and (
            self.epoch - self._saved_epoch >= training.checkpoint_epochs
        )
        if training.checkpoint_minutes and now - self._saved_at > 60 * training.checkpoint_minutes:
            due = True
        if due:
            self.save(first_rank)
            self.save_best(first_rank)

    def save(self, first_rank: bool) -> None:
        """Save a checkpoint to resume from."""
        self._saved_at, self._saved_epoch = time.monotonic(), self.epoch
        if not first_rank:
            return
        vectors = {f"optimizer/{i}": to_host(v) for i, v in enumerate(self.moments)}
        if self._best is not None:
            vectors |= {f"best/{n}": value for n, value in self._tensors(self._best).items()}
        checkpoint.save(self.task.run / LAST, self._tensors(), vectors, self._about())

    def save_best(self, first_rank: bool) -> None:
        """Save the best parameters, for predictions, once some have been evaluated."""
        if self._best is None:
            return
        if not self._best_saved and first_rank:
            about = {**self._about(), "epoch": self.best_epoch}
            checkpoint.save(self.task.run / BEST, self._tensors(self._best), {}, about)
        self._best_saved = True

    def resume(self, first_rank: bool) -> None:
        """Resume from the last checkpoint, if there is one."""
        path = self.task.run / LAST
        if not path.exists():
            if first_rank:
                keep_epochs(self.task.run / "metrics.jsonl", 0)
            return
        tensors, about = checkpoint.load(path)
        load_tensors(self.network, tensors, path)
        put = _putter(self.network)
        for i, vector in enumerate(self.moments):
            vector[...] = put(tensors[f"optimizer/{i}"])
        self.epoch = self._saved_epoch = about["epoch"]
        if about["best_epoch"]:
            self._best = self._copy()
            for name, array in self._named(self._best).items():
                array[...] = put(tensors[f"best/{name}"])
            loss = about["best_loss"]
            self.best_loss = math.inf if loss is None else loss
            self.best_epoch, self.best_metrics = about["best_epoch"], about["best_metrics"]
        if first_rank:
            keep_epochs(self.task.run / "metrics.jsonl", self.epoch)

    def _copy(self) -> Weights:
        """Return the parameters as they are now, and the moments of batch norms."""
        moments = {name: value.copy() for name, value in self.network.moments().items()}
        return self.network.parameters.values.copy(), moments

    def _named(self, weights: Weights) -> dict[str, AnyArray]:
        return {**self.network.parameters.named(weights[0]), **weights[1]}

    def _tensors(self, weights: Weights | None = None) -> dict[str, Array]:
        named = self._named(weights or self._copy())
        return {name: np.array(to_host(value)) for name, value in named.items()}

    def _about(self) -> dict[str, Any]:
        return {
            "model": self.model.to_dict(),
            "training": asdict(self.training),
            "graph": str(self.task.graph),
            "outputs": self.network.local.outputs,
            "label_kind": self.network.local.label_kind,
            "epoch": self.epoch,
            "best_epoch": self.best_epoch,
            "best_loss": self.best_loss if math.isfinite(self.best_loss) else None,
            "best_metrics": self.best_metrics,
        }


def load_tensors(network: Network, tensors: dict[str, Array], path: Path) -> None:
    """Put the tensors of the checkpoint ``path`` where they belong."""
    put = _putter(network)
    for name, array in {**network.parameters.named(), **network.moments()}.items():
        found = tensors[name].shape if name in tensors else "none"
        if found != array.shape:
            raise CorruptFile(
                f"{path} and the run.json next to it do not fit each other",
                expected=f"{name} of shape {array.shape}",
                got=f"{found}",
                remedy="Restore both, or train again with --overwrite",
            )
        array[...] = put(tensors[name])


def _putter(network: Network) -> Callable[[Array], AnyArray]:
    return to_device if network.context.on_gpu else np.asarray
