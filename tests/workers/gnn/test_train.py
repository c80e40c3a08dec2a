"""The training loop of one rank: it learns, stops, saves and goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import UsageError
from penstock.pipelines.generate import generate
from penstock.workers.gnn import checkpoint
from penstock.workers.gnn.spec import Layer, Model, Training
from penstock.workers.gnn.task import Trained, TrainTask
from penstock.workers.gnn.train import train

MODEL = Model(layers=(Layer("gcn", 16, dropout=0.3), Layer("gcn")))


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sbm") / "g"
    generate("sbm", path, quiet=True, nodes=600, blocks=4, width=12, noise=2, seed=3)
    return path


def run(
    graph: Path, folder: Path, model: Model = MODEL, *, resume: bool = False, **options: Any
) -> Trained:
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    options = {"epochs": 20, **options}
    return train(None, TrainTask(graph, None, model, Training(**options), folder, resume))


def curve(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    for line in found:
        del line["seconds"], line["kinds"]
    return found


@pytest.mark.parametrize("kind", ["gcn", "sage", "gin", "gat"])
def test_blocks_are_learnt(kind: str, graph: Path, tmp_path: Path) -> None:
    more = {"gat": {"heads": 4, "activation": "elu"}, "gin": {"norm": "batch"}}.get(kind, {})
    model = Model(layers=(Layer(kind, 16, **more), Layer(kind)))
    trained = run(graph, tmp_path, model, epochs=60, rate=0.02)
    assert trained.metrics["test"]["score"] > 0.95
    assert trained.metrics["train"]["loss"] < 0.3
    assert (trained.nodes, trained.stopped, trained.epochs) == (600, "epochs", 60)
    assert "layer 1" in (tmp_path / "plan.txt").read_text()


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd", "rate": 0.1, "clip": 1.0},
        {"optimizer": "adamw", "schedule": "cosine", "warmup": 3},
        {"optimizer": "adam", "schedule": "step", "every": 7},
    ],
)
def test_a_resumed_training_has_the_curve_of_one_without_a_break(
    options: dict[str, Any], graph: Path, tmp_path: Path
) -> None:
    model = Model(layers=(Layer("gcn", 8, dropout=0.4, norm="batch"), Layer("gcn")))
    whole = run(graph, tmp_path / "whole", model, **options)

    class Stop(Exception):
        pass

    def stop(done: int, metrics: dict[str, Any]) -> None:
        if metrics["epoch"] == 13:
            raise Stop

    folder = tmp_path / "broken"
    (folder / "checkpoints").mkdir(parents=True)
    training = Training(epochs=20, checkpoint_epochs=5, **options)
    with pytest.raises(Stop):
        train(None, TrainTask(graph, None, model, training, folder), stop)
    assert len(curve(folder)) == 13
    resumed = train(None, TrainTask(graph, None, model, training, folder, resume=True))
    assert resumed.first_epoch == 10
    assert curve(folder) == curve(tmp_path / "whole")
    assert resumed.metrics == whole.metrics
    for name in ("last", "best"):
        ours, _ = checkpoint.load(folder / f"checkpoints/{name}.safetensors")
        theirs, _ = checkpoint.load(tmp_path / f"whole/checkpoints/{name}.safetensors")
        assert ours.keys() == theirs.keys()
        for tensor in ours:
            np.testing.assert_array_equal(ours[tensor], theirs[tensor])


def test_the_same_seed_gives_the_same_curve_and_another_does_not(
    graph: Path, tmp_path: Path
) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(graph, tmp_path / name, seed=seed, epochs=5)
    assert curve(tmp_path / "a") == curve(tmp_path / "b")
    assert curve(tmp_path / "a") != curve(tmp_path / "c")


def test_patience_ends_a_training_that_gets_no_better(graph: Path, tmp_path: Path) -> None:
    trained = run(graph, tmp_path, epochs=500, patience=4, rate=0.3)
    assert trained.stopped == "patience"
    assert trained.epochs == trained.best_epoch + 4


def test_the_best_epoch_is_the_one_with_the_least_validation_loss(
    graph: Path, tmp_path: Path
) -> None:
    trained = run(graph, tmp_path, epochs=15, rate=0.2)
    losses = [line["valid"]["loss"] for line in curve(tmp_path)]
    assert trained.best_epoch == 1 + int(np.argmin(losses))
    assert trained.metrics["valid"]["loss"] == min(losses)
    _, about = checkpoint.load(tmp_path / "checkpoints/best.safetensors")
    assert about["epoch"] == trained.best_epoch


def test_a_loss_of_nan_stops_and_keeps_the_last_good_checkpoint(
    graph: Path, tmp_path: Path
) -> None:
    trained = run(graph, tmp_path, epochs=50, rate=1e30, optimizer="sgd", checkpoint_epochs=1)
    assert trained.stopped == "nan"
    assert trained.epochs < 50
    for name in ("last", "best"):
        tensors, _ = checkpoint.load(tmp_path / f"checkpoints/{name}.safetensors")
        assert all(np.isfinite(tensor).all() for tensor in tensors.values())


def test_a_checkpoint_of_another_model_is_refused_with_what_differs(
    graph: Path, tmp_path: Path
) -> None:
    run(graph, tmp_path, epochs=2)
    before = (tmp_path / "checkpoints/last.safetensors").read_bytes()
    wider = Model(layers=(Layer("gcn", 32, dropout=0.3), Layer("gcn")))
    with pytest.raises(UsageError, match=r"layers\[0\]\.width: 32, in the checkpoint 16"):
        run(graph, tmp_path, wider, resume=True)
    with pytest.raises(UsageError, match=r"rate: 0.5, in the checkpoint 0.01"):
        run(graph, tmp_path, rate=0.5, resume=True)
    assert (tmp_path / "checkpoints/last.safetensors").read_bytes() == before


def test_a_loss_that_does_not_suit_the_labels_is_refused(graph: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="loss squared does not suit labels of kind class"):
        run(graph, tmp_path, loss="squared")


def test_profile_has_a_timeline_of_every_rank(graph: Path, tmp_path: Path) -> None:
    run(graph, tmp_path, epochs=3, profile=True)
    ranks = json.loads((tmp_path / "profile.json").read_text())["ranks"]
    assert len(ranks) == 1
    assert {row[0] for row in ranks[0]["timeline"]} >= {0, 1, 2}
    assert "layers.0 product" in ranks[0]["kinds"]
