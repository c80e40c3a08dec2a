"""The folder of a run: what is kept, what resumes, and what is refused."""

import json

import pytest

from penstock import gnn
from penstock.errors import OutputExists, UsageError
from penstock.pipelines.gnn.run import Run


@pytest.fixture
def train(blocks, tmp_path):
    def train(graph=blocks, **options):
        return gnn.train(graph, tmp_path / "run", **{"epochs": 5, **options})

    return train


def epochs(tmp_path):
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch"] for line in lines]


def test_a_finished_run_may_go_on_longer(train, tmp_path):
    train()
    with pytest.raises(OutputExists):
        train()
    with pytest.raises(UsageError):
        train(resume=True, epochs=4)
    train(resume=True, epochs=7)
    assert epochs(tmp_path) == [1, 2, 3, 4, 5, 6, 7]
    assert Run.load(tmp_path / "run").training.epochs == 7


def test_another_run_is_refused_and_says_what_differs(train, tmp_path, own_blocks):
    train()
    train(own_blocks, resume=True)  # a copy is the same graph
    before = (tmp_path / "run/run.json").read_bytes()
    with pytest.raises(UsageError) as caught:
        train(resume=True, hidden=32, lr=0.1, precompute=False)
    named = [one for one in ("--hidden", "--lr", "--precompute") if one in str(caught.value)]
    assert named == ["--hidden", "--lr"]
    with pytest.raises(UsageError):
        train(resume=True, schedule="cosine", epochs=9)  # it looks ahead
    assert (tmp_path / "run/run.json").read_bytes() == before
