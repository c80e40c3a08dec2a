"""The folder of a run: what is kept, what goes on, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import ClusterSpec, Graph, gnn
from penstock.errors import (
    OutputExists,
    UsageError,
)
from penstock.pipelines.gnn.run import Run
from penstock.workers.training.stopped import Stopped


@pytest.fixture
def train(blocks: Graph, tmp_path: Path, cluster: ClusterSpec) -> Callable[..., gnn.TrainReport]:
    def train(graph: Graph = blocks, **options: Any) -> gnn.TrainReport:
        return gnn.train(graph, tmp_path / "run", cluster=cluster, **{"epochs": 5, **options})

    return train


def epochs(tmp_path: Path) -> list[int]:
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch"] for line in lines]


def test_the_folder_tells_what_was_trained(train: Any, tmp_path: Path, blocks: Graph) -> None:
    report = train(hidden=8, seed=3)
    run = Run.load(tmp_path / "run")
    assert (run.state, run.task, run.features, run.parts) == ("done", "class", 16, 1)
    assert run.classes == ("b0", "b1", "b2", "b3")
    assert run.graph == str(blocks.path)
    assert [layer.channels for layer in run.model.layers] == [8, 4]
    assert (run.training.epochs, run.training.seed) == (5, 3)
    assert run.options == {"epochs": 5, "hidden": 8, "seed": 3}
    assert epochs(tmp_path) == [1, 2, 3, 4, 5]
    body = json.loads(json.dumps(report.to_dict()))
    assert set(body["metrics"]) == {"train", "valid", "test"}
    assert body["edges_per_second"] > 0
    assert list(tmp_path.iterdir()) == [tmp_path / "run"], "no lock, nothing put aside"


def test_a_finished_run_may_go_on_longer(train: Any, tmp_path: Path) -> None:
    train()
    with pytest.raises(OutputExists):
        train()
    with pytest.raises(UsageError):
        train(resume=True, epochs=4)
    train(resume=True, epochs=7)
    assert epochs(tmp_path) == [1, 2, 3, 4, 5, 6, 7]
    assert Run.load(tmp_path / "run").training.epochs == 7


def test_another_run_is_refused_and_says_what_differs(
    train: Any, tmp_path: Path, own_blocks: Graph
) -> None:
    train()
    train(own_blocks, resume=True)  # a copy is the same graph
    before = (tmp_path / "run/run.json").read_bytes()
    with pytest.raises(UsageError) as caught:
        train(resume=True, hidden=32, lr=0.1, precompute=False)
    assert "--hidden, --lr." in str(caught.value)
    with pytest.raises(UsageError):
        train(resume=True, schedule="cosine", epochs=9)  # it looks ahead
    assert (tmp_path / "run/run.json").read_bytes() == before


def test_a_run_that_stopped_early_is_resumed_without_another_epoch(
    blocks: Graph, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"patience": 1, "lr": 1e-30, "hidden": 4}
    options["cluster"] = ClusterSpec(cluster="threads")
    gnn.train(blocks, tmp_path / "run", epochs=50, **options)
    again = gnn.train(blocks, tmp_path / "run", epochs=60, resume=True, **options)
    assert (again.trained.first_epoch, again.trained.stopped) == (2, Stopped.PATIENCE)
    assert Run.load(tmp_path / "run").training.epochs == 60
