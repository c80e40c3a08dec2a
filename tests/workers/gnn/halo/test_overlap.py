"""The hidden share of the communication: its baseline is fair, and measuring changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.graph import Graph
from penstock.partition.part import partition_path
from penstock.pipelines.generate import generate
from penstock.pipelines.partition import partition_graph
from penstock.workers.gnn.plan.facts import facts_of
from penstock.workers.gnn.plan.lowering import lower
from penstock.workers.gnn.plan.rates import GUESS
from penstock.workers.gnn.plan.spec import Layer, Model, Training
from penstock.workers.gnn.task import Trained, TrainTask
from penstock.workers.gnn.train import train
from penstock.workers.training import checkpoint

MODELS = {
    "gcn": Model(layers=(Layer("gcn", 8, dropout=0.4), Layer("gcn")), input_dropout=0.2),
    "sage": Model(layers=(Layer("sage", 8, aggregate="max", residual=True), Layer("sage"))),
}
CLASSES = 4


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sbm") / "g"
    generate("sbm", path, quiet=True, nodes=300, blocks=CLASSES, width=6, noise=2, seed=3)
    partition_graph(Graph.open(path), k=2, method="random", quiet=True)
    return path


def task_of(graph: Path, model: Model, training: Training, folder: Path) -> TrainTask:
    opened = Graph.open(graph)
    partition, complete = partition_path(opened, 2), model.complete(CLASSES)
    facts = facts_of(opened, partition, training=training)
    plan = lower(complete, facts, training, GUESS["cpu"])
    return TrainTask(graph, partition, complete, training, plan, folder)


def two_ranks(graph: Path, folder: Path, model: Model, on_threads: Any, **options: Any) -> Trained:
    """Train on two ranks, and return what the first came to."""
    (folder / "checkpoints").mkdir(parents=True)
    task = task_of(graph, model, Training(**options), folder)
    found: list[Trained] = on_threads(2, lambda comm: train(comm, task))
    return found[0]


def curve(folder: Path) -> list[str]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [line.split(', "seconds"')[0] for line in lines]


@pytest.mark.parametrize("name", MODELS)
def test_a_measured_training_is_the_same_to_the_last_bit(
    name: str, graph: Path, tmp_path: Path, on_threads: Any
) -> None:
    options: dict[str, Any] = {"epochs": 5, "schedule": "cosine", "warmup": 2}
    plain = two_ranks(graph, tmp_path / "plain", MODELS[name], on_threads, **options)
    options["measure_overlap"] = 7
    measured = two_ranks(graph, tmp_path / "measured", MODELS[name], on_threads, **options)
    assert plain.overlap is None
    assert measured.overlap is not None
    assert measured.overlap["rounds"] == 7
    rows = "shared memory of one host"
    assert measured.overlap["transport"] == {"rows": rows, "sums": "messages between threads"}
    assert curve(tmp_path / "measured") == curve(tmp_path / "plain")
    assert len(curve(tmp_path / "plain")) == 5
    assert measured.metrics == plain.metrics
    for which in ("last", "best"):
        ours, _ = checkpoint.load(tmp_path / f"measured/checkpoints/{which}.safetensors")
        theirs, _ = checkpoint.load(tmp_path / f"plain/checkpoints/{which}.safetensors")
        assert {n: t.tobytes() for n, t in ours.items()} == {
            n: t.tobytes() for n, t in theirs.items()
        }
