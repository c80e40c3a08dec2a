from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from penstock import Graph, generate
from penstock.workers.gnn.task import Trained, TrainTask
from penstock.workers.training.checkpoint import epochs_of, save
from penstock.workers.training.stopped import Stopped


@pytest.fixture(scope="session")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """A block model that is easily learnt; tests only read it."""
    path = tmp_path_factory.mktemp("gnn") / "blocks"
    generate("sbm", path, nodes=400, blocks=4, width=16, noise=1, quiet=True)
    return Graph.open(path)


@pytest.fixture
def own_blocks(blocks: Graph, tmp_path: Path) -> Graph:
    """The same, to change."""
    shutil.copytree(blocks.path, tmp_path / "g")
    return Graph.open(tmp_path / "g")


@pytest.fixture
def manifest_of(own_blocks: Graph) -> Callable[..., Graph]:
    """The same with other entries in its manifest."""

    def change(**entries: Any) -> Graph:
        replace(own_blocks.manifest, **entries).save(own_blocks.path)
        return Graph.open(own_blocks.path)

    return change


@dataclass
class FakeRank:
    """Stands for the ranks' ``train``: it counts epochs, and does what a test wants in one."""

    in_epoch: Callable[[int], None] = lambda epoch: None
    at_start: Callable[[TrainTask], None] = lambda task: None
    tasks: list[TrainTask] = field(default_factory=list)
    stopped: Stopped = Stopped.EPOCHS
    saves: tuple[str, ...] = ("last", "best")
    best: int | None = None

    def __call__(self, comm: Any, task: TrainTask) -> Trained:
        self.tasks.append(task)
        self.at_start(task)
        last = task.run / "checkpoints/last.safetensors"
        first = epochs_of(last) if last.is_file() else 0
        last.parent.mkdir(exist_ok=True)
        for epoch in range(first + 1, task.training.epochs + 1):
            self.in_epoch(epoch)
            with (task.run / "metrics.jsonl").open("a") as file:
                file.write(json.dumps({"epoch": epoch}) + "\n")
            for name in self.saves:
                save(last.parent / f"{name}.safetensors", {}, {"epoch": epoch})
            comm.log(epoch=epoch, loss=1 / epoch, train=0.5, valid=0.25)
            comm.advance()
        return Trained(
            epochs=task.training.epochs,
            best_epoch=task.training.epochs if self.best is None else self.best,
            metrics={"train": {"loss": 0.5, "score": 0.75}, "test": {"loss": 0.7, "score": 0.5}},
            loss="cross_entropy",
            seconds=1.0,
            epoch_seconds=0.01,
            nodes=400,
            edges=1000,
            parameters=123,
            stopped=self.stopped,
            sparse=False,
            memory=10**8,
            first_epoch=first,
        )


@pytest.fixture
def rank(monkeypatch: pytest.MonkeyPatch) -> FakeRank:
    """What ranks do, in this process, in place of training."""
    from penstock.workers.gnn.plan.rates import GUESS

    fake = FakeRank()
    monkeypatch.setattr("penstock.workers.gnn.train.train", fake)
    monkeypatch.setattr(
        "penstock.workers.gnn.plan.rates.machine_rates", lambda device: GUESS["cpu"]
    )
    return fake
