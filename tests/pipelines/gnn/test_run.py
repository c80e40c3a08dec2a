"""The folder of a run: what is kept, what goes on, and what is refused. Ranks only count."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import ClusterSpec, Graph, gnn
from penstock.errors import (
    CorruptFile,
    InputError,
    NewerVersion,
    OutputExists,
    PenstockError,
    UsageError,
)
from penstock.pipelines.gnn.run import Run
from penstock.workers.gnn.task import TrainTask
from penstock.workers.stopped import Stopped


@pytest.fixture
def train(
    blocks: Graph, tmp_path: Path, cluster: ClusterSpec, rank: Any
) -> Callable[..., gnn.TrainReport]:
    def train(graph: Graph = blocks, **options: Any) -> gnn.TrainReport:
        return gnn.train(graph, tmp_path / "run", cluster=cluster, **{"epochs": 5, **options})

    return train


def epochs(tmp_path: Path) -> list[int]:
    lines = (tmp_path / "run/metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch"] for line in lines]


def break_in(number: int) -> Callable[[int], None]:
    def breaks(epoch: int) -> None:
        if epoch == number:
            raise OSError("the cable was pulled")

    return breaks


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
    assert body["metrics"]["test"] == {"loss": 0.7, "score": 0.5}
    assert body["edges_per_second"] == 200_000
    assert list(tmp_path.iterdir()) == [tmp_path / "run"], "no lock, nothing put aside"


def test_an_interrupted_run_goes_on(train: Any, tmp_path: Path, rank: Any) -> None:
    rank.in_epoch = break_in(4)
    with pytest.raises(OSError, match="cable"):
        train()
    assert Run.load(tmp_path / "run").state == "interrupted"
    rank.in_epoch = lambda epoch: None
    with pytest.raises(OutputExists):
        train()
    report = train(resume=True)
    assert epochs(tmp_path) == [1, 2, 3, 4, 5]
    assert report.trained.first_epoch == 3


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
    train: Any, tmp_path: Path, own_blocks: Graph, manifest_of: Callable[..., Graph]
) -> None:
    train()
    train(own_blocks, resume=True)  # a copy is the same graph
    other = manifest_of(made={"by": "somebody else"})
    before = (tmp_path / "run/run.json").read_bytes()
    with pytest.raises(UsageError) as caught:
        train(other, resume=True, hidden=32, lr=0.1, precompute=False)
    for part in ("channels: 32", "lr: 0.1", "graph"):
        assert part in str(caught.value)
    with pytest.raises(UsageError):
        train(resume=True, schedule="cosine", epochs=9)  # it looks ahead
    assert (tmp_path / "run/run.json").read_bytes() == before


def test_bad_input_leaves_things_as_they_were(train: Any, tmp_path: Path, rank: Any) -> None:
    def bad(task: TrainTask) -> None:
        raise InputError("feature 3 of node 'x' is nan")

    rank.at_start = bad
    with pytest.raises(InputError):
        train()
    assert list(tmp_path.iterdir()) == []
    rank.at_start = lambda task: None
    train()
    before = (tmp_path / "run/run.json").read_bytes()
    rank.at_start = bad
    with pytest.raises(InputError):
        train(overwrite=True, hidden=5)
    assert (tmp_path / "run/run.json").read_bytes() == before
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]


def test_overwrite_begins_anew(train: Any, tmp_path: Path, rank: Any) -> None:
    train()
    before = (tmp_path / "run/run.json").read_bytes()
    rank.in_epoch = break_in(1)
    with pytest.raises(OSError, match="cable"):
        train(overwrite=True, hidden=5)
    assert (tmp_path / "run/run.json").read_bytes() == before, "there is nothing of the new one"
    rank.in_epoch, rank.stopped, rank.saves = lambda epoch: None, Stopped.NAN, ()
    with pytest.raises(PenstockError):
        train(overwrite=True, hidden=5)
    assert (tmp_path / "run/run.json").read_bytes() == before
    rank.saves = ("best",)  # of epochs before the loss became NaN
    with pytest.raises(PenstockError):
        train(overwrite=True, hidden=5)
    assert Run.load(tmp_path / "run").state == "diverged"
    rank.stopped, rank.saves = Stopped.EPOCHS, ("last", "best")
    rank.in_epoch = break_in(2)
    with pytest.raises(OSError, match="cable"):
        train(overwrite=True, hidden=5)
    assert epochs(tmp_path) == [1], "the new one has begun, the old one is gone"
    rank.in_epoch = lambda epoch: None
    train(resume=True, hidden=5)
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]


def test_what_is_not_a_run_is_left_alone(train: Any, tmp_path: Path) -> None:
    """Nor is a run of another job: their manifests have one name."""
    (tmp_path / "run").mkdir()
    train()  # an empty folder will do
    file = tmp_path / "run/run.json"
    text = json.dumps(json.loads(file.read_text()) | {"format": "penstock-embed"})
    file.write_text(text)
    with pytest.raises(OutputExists):
        train(overwrite=True)
    assert file.read_text() == text
    file.unlink()
    for options in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(OutputExists):
            train(**options)
    assert epochs(tmp_path) == [1, 2, 3, 4, 5]


def test_two_do_not_train_in_one_folder(train: Any, tmp_path: Path) -> None:
    with (tmp_path / ".run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OutputExists):
            train()


def test_a_loss_that_is_nan_is_an_error_that_keeps_the_weights(
    train: Any, tmp_path: Path, rank: Any
) -> None:
    rank.stopped = Stopped.NAN
    with pytest.raises(PenstockError):
        train()
    run = Run.load(tmp_path / "run")
    assert run.state == "diverged"
    assert run.checkpoint(tmp_path / "run", "best").is_file()


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", CorruptFile),
        ('{"format": "other"}', InputError),
        ('{"format": "penstock-gnn", "version": 99}', NewerVersion),
        ('{"format": "penstock-gnn", "version": 1}', CorruptFile),
    ],
)
def test_a_manifest_that_is_not_ours(tmp_path: Path, text: str, error: type[Exception]) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(error):
        Run.load(tmp_path)


def test_no_run_no_weights(tmp_path: Path, train: Any, rank: Any) -> None:
    with pytest.raises(InputError):
        gnn.predict(tmp_path / "nosuch", tmp_path / "out")
    rank.in_epoch = break_in(2)
    with pytest.raises(OSError, match="cable"):
        train()
    (tmp_path / "run/checkpoints/best.safetensors").unlink()
    with pytest.raises(InputError):
        gnn.evaluate(tmp_path / "run")


def test_a_finished_run_with_nothing_left_keeps_what_was_measured(
    blocks: Graph, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"epochs": 3, "hidden": 4, "profile": True}
    options["cluster"] = ClusterSpec(cluster="threads")
    gnn.train(blocks, tmp_path / "run", **options)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    report = gnn.train(blocks, tmp_path / "run", resume=True, **options)
    assert (report.trained.first_epoch, report.trained.epochs) == (3, 3)
    assert report.trained.epoch_seconds > 0
    after = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    run = tmp_path / "run/run.json"
    old, new = json.loads(before.pop(run)), json.loads(after.pop(run))
    assert after == before
    assert new == old | {"options": new["options"]}


def test_a_run_that_stopped_early_is_resumed_without_another_epoch(
    blocks: Graph, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"patience": 1, "lr": 1e-30, "hidden": 4}
    options["cluster"] = ClusterSpec(cluster="threads")
    gnn.train(blocks, tmp_path / "run", epochs=50, **options)
    again = gnn.train(blocks, tmp_path / "run", epochs=60, resume=True, **options)
    assert (again.trained.first_epoch, again.trained.stopped) == (2, Stopped.PATIENCE)
    assert Run.load(tmp_path / "run").training.epochs == 60
