"""The folder of a run: what is kept, what goes on, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Graph, gnn
from penstock.errors import OutputExists, UsageError
from penstock.pipelines.gnn.run import Run


@pytest.fixture
def train(
    blocks: Graph,
    tmp_path: Path,
) -> Callable[..., gnn.TrainReport]:
    def train(graph: Graph = blocks, **options: Any) -> gnn.TrainReport:
        return gnn.train(graph, tmp_path / "run", **{"epochs": 5, **options})

    return train


def epochs(tmp_path: Path) -> list[int]:
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch"] for line in lines]


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
