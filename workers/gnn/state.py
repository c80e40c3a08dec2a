"""The state of a training run: parameters, the optimizer's moments, and checkpoints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.kernels import kernel
from penstock.kernels.gnn_rules import Descent
from penstock.workers.gnn.layers.network import Network
from penstock.workers.gnn.task import TrainTask
from penstock.workers.resources.device import to_device
from penstock.workers.training import checkpoint
from penstock.workers.training.checkpoint import BEST, LAST
from penstock.workers.training.loop import Position

Weights = tuple[AnyArray, dict[str, AnyArray]]  # all parameters as one vector, and moments by name


class State:
    """One training run's state; every rank holds the same."""

    def __init__(self, network: Network, task: TrainTask) -> None:
        self.network, self.training, self.task = network, task.training, task
        values = network.parameters.values
        count = 1 if self.training.optimizer == "sgd" else 2
        self.moments = [np.zeros_like(values) for _ in range(count)]
        self.steps_before = 0  # the optimizer's, in the run that this one began with
        self.known = 0  # parameters that began with that run's values
        # The best so far, with its metadata, until it is saved.
        self._best: tuple[Weights, dict[str, Any]] | None = None

    def update(self, epoch: int) -> None:
        """Do the optimizer's step of epoch 0, 1, ..."""
        training, parameters = self.training, self.network.parameters
        module = kernel("optimizer", parameters.values)
        scale = 1.0
        if training.clip is not None:
            norm = float(np.sqrt((parameters.gradients.astype(np.float64) ** 2).sum()))
            scale = min(1.0, training.clip / max(norm, 1e-300))
        how = Descent(
            *(training.lr_at(epoch), scale, self.steps_before + epoch + 1),
            *(training.weight_decay, training.momentum, training.beta1, training.beta2),
            *(training.epsilon, training.optimizer == "adamw"),
        )
        step = module.sgd if training.optimizer == "sgd" else module.adam
        step(parameters.values, parameters.gradients, *self.moments, how)

    def is_finite(self) -> bool:
        """Return whether all parameters are finite."""
        values = self.network.parameters.values
        return bool(kernel("finite", values).are_finite(values))

    def snapshot(self) -> Callable[[], None]:
        """Return a function that restores everything that an epoch changes."""
        network = self.network
        kept = [network.parameters.values, network.parameters.gradients, *self.moments]
        kept += network.moments().values()
        copies = [array.copy() for array in kept]

        def restore() -> None:
            for array, copy in zip(kept, copies, strict=True):
                array[...] = copy

        return restore

    # Checkpoints

    def hold_best(self, position: Position) -> None:
        """Copy the parameters as the best so far."""
        self._best = self._copy(), self._about(position)

    def save(self, position: Position) -> None:
        """Save a checkpoint to resume from, and before it the best, whose epoch it has."""
        self.save_best()
        tensors = {**self._named(self._copy()), **self._optimizer()}
        checkpoint.save(self.task.run / LAST, tensors, self._about(position))

    def save_best(self) -> None:
        """Save the best parameters, for predictions, if they are new."""
        if self._best is not None:
            weights, about = self._best
            checkpoint.save(self.task.run / BEST, self._named(weights), about)
            self._best = None

    def load(self) -> Position | None:
        """Load the last checkpoint, and return its position; None: no checkpoint."""
        path = self.task.run / LAST
        if not path.exists():
            if self.task.init is not None:
                self._begin_with(self.task.init)
            return None
        tensors, about = checkpoint.load(path)
        load_tensors(self.network, tensors)
        put = _putter(self.network)
        for name, array in self._optimizer().items():
            array[...] = put(tensors[name])
        self.steps_before, self.known = about["steps"], about["known"]
        return Position.of(about)

    def _begin_with(self, path: Path) -> None:
        tensors, about = checkpoint.load(path)
        put, parameters = _putter(self.network), self.network.parameters.named()
        kept = {**parameters, **self.network.moments()}
        if about["optimizer"] == self.training.optimizer:
            kept |= self._optimizer()
            self.steps_before = about["steps"] + about["epoch"]
        for name, array in kept.items():
            if name in tensors and tensors[name].shape == array.shape:
                array[...] = put(tensors[name])
                self.known += int(array.size) * (name in parameters)

    def _optimizer(self) -> dict[str, AnyArray]:
        return {
            f"optimizer/{i}/{name}": array
            for i, vector in enumerate(self.moments)
            for name, array in self.network.parameters.named(vector).items()
        }

    def _copy(self) -> Weights:
        moments = {name: value.copy() for name, value in self.network.moments().items()}
        return self.network.parameters.values.copy(), moments

    def _named(self, weights: Weights) -> dict[str, AnyArray]:
        return {**self.network.parameters.named(weights[0]), **weights[1]}

    def _about(self, position: Position) -> dict[str, Any]:
        return {
            "optimizer": self.training.optimizer,
            "label_kind": self.network.local.label_kind,
            "steps": self.steps_before,
            "known": self.known,
            **asdict(position),
        }


def load_tensors(network: Network, tensors: dict[str, Array]) -> None:
    """Copy a checkpoint's tensors into the network."""
    put = _putter(network)
    for name, array in {**network.parameters.named(), **network.moments()}.items():
        array[...] = put(tensors[name])


def _putter(network: Network) -> Callable[[Array], AnyArray]:
    return to_device if network.context.on_gpu else np.asarray
