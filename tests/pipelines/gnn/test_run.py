"""The folder of a run: what is kept, what goes on, and what is refused. Ranks only count."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import ClusterSpec, Graph, gnn
from penstock.errors import (
    CapacityError,
    CorruptFile,
    InputError,
    NewerVersion,
    OutputExists,
    PenstockError,
    PenstockWarning,
    UsageError,
)
from penstock.pipelines import cli
from penstock.pipelines.gnn.options import GnnOptions
from penstock.pipelines.gnn.report import overlap_lines
from penstock.pipelines.gnn.run import Run
from penstock.pipelines.gnn.training import TrainJob
from penstock.pipelines.job import plan as plan_of
from penstock.pipelines.job import run as run_job
from penstock.pipelines.job.training_bar import TrainingBar
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
    assert run.results is not None
    assert run.results["parameters"] == 123
    assert epochs(tmp_path) == [1, 2, 3, 4, 5]
    text = report.text()
    for part in ("2 gcn layers of 8, 4 channels", "123 parameters", "75.00 %", "best epoch 5 of 5"):
        assert part in text
    assert "10 ms per epoch, 200 k edges/s" in text
    body = json.loads(json.dumps(report.to_dict()))
    assert body["metrics"]["test"] == {"loss": 0.7, "score": 0.5}
    assert body["edges_per_second"] == 200_000
    assert list(tmp_path.iterdir()) == [tmp_path / "run"], "no lock, nothing put aside"


def test_an_interrupted_run_goes_on(
    train: Any, tmp_path: Path, rank: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    rank.in_epoch = break_in(4)
    with pytest.raises(OSError, match="cable"):
        train()
    assert "--resume will resume from its last checkpoint" in capsys.readouterr().err
    assert Run.load(tmp_path / "run").state == "interrupted"
    rank.in_epoch = lambda epoch: None
    with pytest.raises(
        OutputExists, match=r"holds an interrupted run\. Resume it with --resume, replace"
    ):
        train()
    report = train(resume=True)
    assert epochs(tmp_path) == [1, 2, 3, 4, 5]
    assert report.trained.first_epoch == 3
    assert "best epoch 5 of 5, resumed after epoch 3" in report.text()


def test_a_finished_run_may_go_on_longer(train: Any, tmp_path: Path) -> None:
    train()
    with pytest.raises(OutputExists, match="a finished run. Resume it with --resume and more"):
        train()
    train(resume=True, epochs=7)
    assert epochs(tmp_path) == [1, 2, 3, 4, 5, 6, 7]
    assert Run.load(tmp_path / "run").training.epochs == 7


def test_a_run_of_an_older_version_goes_on(train: Any, tmp_path: Path) -> None:
    train()
    path = tmp_path / "run/run.json"
    body = json.loads(path.read_text())
    body["training"]["loss"] = "auto"  # which could be said once, and be nothing else
    path.write_text(json.dumps(body))
    train(resume=True, epochs=6)
    assert epochs(tmp_path) == [1, 2, 3, 4, 5, 6]


def test_what_no_epoch_was_timed_for_has_no_speed(
    train: Any, rank: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    call = type(rank).__call__
    monkeypatch.setattr(
        type(rank), "__call__", lambda *given, **how: replace(call(*given, **how), epoch_seconds=0)
    )
    report = train(epochs=1)  # the first epoch compiles, and is not counted
    assert report.to_dict()["edges_per_second"] is None
    assert "edges/s" not in report.text()
    assert "per epoch" not in report.text()
    assert " s in total; 100 MB peak memory of the whole process\n" in report.text()


def test_patience_is_told_in_evaluations(train: Any, rank: Any) -> None:
    rank.stopped, rank.best = Stopped.PATIENCE, 2
    text = train(patience=2, evaluate_every=2, epochs=7).text()
    assert "best epoch 2 of 7; early stopping, 2 evaluations without improvement" in text
    # A finished run that patience would have ended long before.
    text = train(patience=1, evaluate_every=2, epochs=7, overwrite=True).text()
    assert "best epoch 2 of 7; early stopping, 2 evaluations without improvement" in text


def test_the_bar_is_told_of_no_epoch_where_none_was_left(
    train: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[int] = []
    monkeypatch.setattr(TrainingBar, "advance", lambda bar, amount: told.append(amount))
    train()
    assert told
    told.clear()
    train(resume=True, patience=3)
    assert not told


def test_another_run_is_refused_and_says_what_differs(
    train: Any, tmp_path: Path, own_blocks: Graph, manifest_of: Callable[..., Graph]
) -> None:
    train()
    train(own_blocks, resume=True)  # a copy is the same graph
    other = manifest_of(made={"by": "somebody else"})
    before = (tmp_path / "run/run.json").read_bytes()
    with pytest.raises(UsageError) as caught:
        train(other, resume=True, hidden=32, lr=0.1, precompute=False)
    message = str(caught.value)
    for part in (
        "layers[0].channels: 32, in the run 64",
        "lr: 0.1, in the run 0.01",
        "the graph: ",
    ):
        assert part in message
    assert "precompute" not in message
    with pytest.raises(UsageError, match="epochs: 9, in the run 5"):
        train(resume=True, schedule="cosine", epochs=9)  # it looks ahead
    assert (tmp_path / "run/run.json").read_bytes() == before
    assert epochs(tmp_path) == [1, 2, 3, 4, 5]


def test_bad_input_leaves_things_as_they_were(train: Any, tmp_path: Path, rank: Any) -> None:
    def bad(task: TrainTask) -> None:
        raise InputError("feature 3 of node 'x' is nan")

    rank.at_start = bad
    with pytest.raises(InputError, match="feature 3"):
        train()
    assert list(tmp_path.iterdir()) == []
    rank.at_start = lambda task: None
    train()
    before = (tmp_path / "run/run.json").read_bytes()
    rank.at_start = bad
    with pytest.raises(InputError, match="feature 3"):
        train(overwrite=True, hidden=5)
    assert (tmp_path / "run/run.json").read_bytes() == before
    assert epochs(tmp_path) == [1, 2, 3, 4, 5]
    assert list(tmp_path.iterdir()) == [tmp_path / "run"]


def test_overwrite_begins_anew(train: Any, tmp_path: Path, rank: Any) -> None:
    train()
    before = (tmp_path / "run/run.json").read_bytes()
    rank.in_epoch = break_in(1)
    with pytest.raises(OSError, match="cable"):
        train(overwrite=True, hidden=5)
    assert (tmp_path / "run/run.json").read_bytes() == before, "there is nothing of the new one"
    rank.in_epoch, rank.stopped, rank.saves = lambda epoch: None, Stopped.NAN, ()
    with pytest.raises(PenstockError, match="run holds the run before, which was not replaced"):
        train(overwrite=True, hidden=5)
    assert (tmp_path / "run/run.json").read_bytes() == before
    rank.saves = ("best",)  # of epochs before the loss became NaN
    with pytest.raises(PenstockError, match="best.safetensors holds the last good weights"):
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
    (tmp_path / "run").mkdir()
    train()  # an empty folder will do
    (tmp_path / "run/run.json").unlink()
    for options in ({}, {"overwrite": True}, {"resume": True}):
        with pytest.raises(OutputExists, match="exists and is not a run"):
            train(**options)
    assert epochs(tmp_path) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("name", ["penstock-embed", "penstock-run"])
def test_runs_of_other_jobs_are_not_replaced(train: Any, tmp_path: Path, name: str) -> None:
    """The manifests of gnn, of embed and of flows have one name."""
    train()
    file = tmp_path / "run/run.json"
    text = json.dumps(json.loads(file.read_text()) | {"format": name})
    file.write_text(text)
    with pytest.raises(OutputExists, match=f'is not a run of penstock gnn.*"{name}"'):
        train(overwrite=True)
    assert file.read_text() == text
    file.write_text("{half")  # what is damaged may be replaced
    train(overwrite=True)
    assert Run.load(tmp_path / "run").state == "done"


def test_two_do_not_train_in_one_folder(train: Any, tmp_path: Path) -> None:
    with (tmp_path / ".run.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(OutputExists, match="another penstock gnn train is writing"):
            train()


def test_a_loss_that_is_nan_is_an_error_that_keeps_the_weights(
    train: Any, tmp_path: Path, rank: Any
) -> None:
    rank.stopped = Stopped.NAN
    with pytest.raises(PenstockError, match=r"loss became NaN or infinite in epoch 5.*lower --lr"):
        train()
    run = Run.load(tmp_path / "run")
    assert run.state == "diverged"
    assert run.checkpoint(tmp_path / "run", "best").is_file()


def test_what_is_too_wide_says_what_would_fit(
    train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.workers.plugin.Resources.memory_bytes", lambda self: 2_000_000)
    with pytest.raises(CapacityError, match=r"expected about|Expected about") as caught:
        train(hidden=4096)
    remedy = str(caught.value.remedy)
    width = int(remedy.removeprefix("--hidden ").split()[0])
    assert 16 < width < 1000
    assert "--memory-limit" in remedy
    assert not (tmp_path / "run").exists()
    train(hidden=width)
    with pytest.raises(CapacityError):
        train(hidden=width + 1, overwrite=True)
    assert epochs(tmp_path) == [1, 2, 3, 4, 5], "the run that fitted is still there"
    monkeypatch.setattr("penstock.workers.plugin.Resources.memory_bytes", lambda self: 100)
    with pytest.raises(CapacityError) as caught:
        train(overwrite=True)
    assert "would fit" not in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("{", CorruptFile, "is damaged"),
        ('{"format": "other"}', UsageError, "is not the manifest of a run"),
        ('{"format": "penstock-gnn", "version": 99}', NewerVersion, "by a later penstock"),
        ('{"format": "penstock-gnn", "version": 1}', CorruptFile, "is damaged"),
    ],
)
def test_a_manifest_that_is_not_ours(
    tmp_path: Path, text: str, error: type[Exception], message: str
) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(error, match=message):
        Run.load(tmp_path)


def test_no_run_no_weights(tmp_path: Path, train: Any, rank: Any) -> None:
    with pytest.raises(
        UsageError, match="is not a run of penstock gnn. Expected a directory with run.json"
    ):
        gnn.predict(tmp_path / "nosuch", tmp_path / "out")
    rank.in_epoch = break_in(2)
    with pytest.raises(OSError, match="cable"):
        train()
    (tmp_path / "run/checkpoints/best.safetensors").unlink()
    with pytest.raises(UsageError, match="has no weights yet"):
        gnn.evaluate(tmp_path / "run")


def test_the_hidden_share_is_told_with_what_it_means() -> None:
    found = {
        "rounds": 9,
        "exposed": [0.002, 0.003, 0.0041],
        "whole": [0.0091, 0.01, 0.011],
        "hidden": [0.59, 0.7, 0.8],
        "transport": {"rows": "MPI messages", "sums": "NCCL"},
    }
    first, *others = overlap_lines(found)
    assert first == (
        "hidden communication: 70 % (59 % to 80 %) (rows by MPI messages, sums by NCCL; 9 rounds)"
    )
    text = "\n".join(others)
    assert "exposed 3 ms (2 ms to 4.1 ms): what an epoch is longer than with the comm" in text
    assert "whole 10 ms (9.1 ms to 11 ms): the same where nothing overlaps, barriers" in text
    assert "hidden: 1 - exposed / the median whole; medians, and quartiles" in text
    first, *others = overlap_lines({**found, "hidden": None})
    assert first.startswith("hidden communication: too little to tell (rows by MPI messages")
    text = "\n".join(others)
    assert "exposed 3 ms (2 ms to 4.1 ms)" in text
    assert "whole 10 ms (9.1 ms to 11 ms)" in text
    assert "further apart than 75 % of the median whole" in text


def test_a_finished_run_with_nothing_left_keeps_what_was_measured(
    blocks: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"epochs": 3, "hidden": 4, "profile": True}
    options["cluster"] = ClusterSpec(cluster="threads")
    gnn.train(blocks, tmp_path / "run", **options)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    monkeypatch.setattr(TrainJob, "open_ranks", lambda *_: pytest.fail("a rank was started"))
    report = gnn.train(blocks, tmp_path / "run", resume=True, **options)
    assert (report.trained.first_epoch, report.trained.epochs) == (3, 3)
    assert report.trained.epoch_seconds > 0
    after = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    run = tmp_path / "run/run.json"
    old, new = json.loads(before.pop(run)), json.loads(after.pop(run))
    assert after == before
    assert new == old | {"options": new["options"]}


def test_fewer_epochs_than_were_trained_are_refused(blocks: Graph, tmp_path: Path) -> None:
    options: dict[str, Any] = {"hidden": 4, "cluster": ClusterSpec(cluster="threads")}
    gnn.train(blocks, tmp_path / "run", epochs=3, **options)
    before = (tmp_path / "run/run.json").read_bytes()
    with pytest.raises(UsageError, match="has trained 3 epochs. Expected --epochs 3 or more"):
        gnn.train(blocks, tmp_path / "run", epochs=2, resume=True, **options)
    assert (tmp_path / "run/run.json").read_bytes() == before


def test_a_lost_checkpoint_is_said(blocks: Graph, tmp_path: Path) -> None:
    options: dict[str, Any] = {"hidden": 4, "cluster": ClusterSpec(cluster="threads")}
    gnn.train(blocks, tmp_path / "run", epochs=3, **options)
    (tmp_path / "run/checkpoints/last.safetensors").unlink()
    with pytest.warns(PenstockWarning, match=r"last\.safetensors is not there: "):
        report = gnn.train(blocks, tmp_path / "run", epochs=3, resume=True, **options)
    assert report.trained.first_epoch == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"features": 5}, "do not fit each other. Expected layers.0.weight of shape"),
        ({"parts": -3}, "run.json is damaged.* with their values, got -3 parts"),
        ({"task": None}, "run.json is damaged.* with their values, got no 'task'"),
        ({"state": 5}, "run.json is damaged. Expected state: one of training, .*, got 5"),
        ({"state": "finished"}, "Expected state: one of training, .*, got 'finished'"),
        ({"training": {"epochs": "x"}}, "damaged: option --epochs .* a whole number, got 'x'. Res"),
        ({"model": {"layers": 3}}, "damaged: the model has a bad value at layers. Expected a list"),
        ({"results": 7}, "run.json is damaged.* got 7 for results"),
        ({"graph": 5}, "run.json is damaged.* got 5 for graph"),
        ({"features": "16"}, "run.json is damaged.* got '16' for features"),
        ({"classes": ["a"]}, "run.json is damaged.* 1 names of 4 classes"),
    ],
)
def test_a_run_that_was_edited_by_hand_is_refused(
    blocks: Graph, tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    cluster = ClusterSpec(cluster="threads")
    gnn.train(blocks, tmp_path / "run", epochs=1, hidden=4, cluster=cluster)
    path = tmp_path / "run/run.json"
    body = json.loads(path.read_text()) | change
    path.write_text(json.dumps({k: v for k, v in body.items() if k != "task" or v is not None}))
    with pytest.raises(CorruptFile, match=said):
        gnn.evaluate(tmp_path / "run", cluster=cluster)


def test_results_that_were_edited_by_hand_are_written_again(
    train: Callable[..., gnn.TrainReport], tmp_path: Path
) -> None:
    train()
    path = tmp_path / "run/run.json"
    body = json.loads(path.read_text())
    body["results"] |= {"metrics": None, "device": "cpu"}
    path.write_text(json.dumps(body))
    assert train(resume=True).trained.metrics["test"]["score"] == 0.5
    assert json.loads(path.read_text())["results"]["metrics"]


def test_a_plan_says_that_the_disk_is_too_small(
    blocks: Graph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    train = [
        "gnn",
        "train",
        str(blocks.path),
        str(tmp_path / "run"),
        "--plan",
        "--cluster",
        "threads",
    ]
    assert cli.run([*train, "--json"]) == 0
    assert "would not fit on its disk" in json.loads(capsys.readouterr().out)["problem"]["what"]


def test_a_plan_counts_the_epochs_that_are_done(
    blocks: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    cluster = ClusterSpec(cluster="threads")

    def job(epochs: int, *, resume: bool) -> TrainJob:
        options = GnnOptions(epochs=epochs, hidden=4, resume=resume)
        return TrainJob(blocks, tmp_path / "run", options, cluster, quiet=True)

    run_job(job(3, resume=False))
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    planned = plan_of(job(5, resume=True))
    assert planned.what == "a model of 2 layers, 3 of 5 epochs are done"
    with monkeypatch.context() as patch:  # a run that is there, and cannot be written
        patch.setattr(os, "access", lambda path, *_, **more: path != tmp_path / "run")
        said = f"cannot use {tmp_path}/run/run.json. Got Permission denied"
        assert str(plan_of(job(5, resume=True)).problem).startswith(said)
    monkeypatch.setattr(TrainJob, "open_ranks", lambda *_: pytest.fail("a rank was started"))
    planned = plan_of(job(3, resume=True))
    assert "train   nothing is left to train: 3 of 3 epochs are done" in planned.text()
    assert planned.memory.bytes == 0
    after = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    assert after == before


def test_a_plan_of_a_run_that_stopped_early_has_nothing_left(
    blocks: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"epochs": 50, "patience": 1, "lr": 1e-30, "hidden": 4}
    spec = ClusterSpec(cluster="threads")
    gnn.train(blocks, tmp_path / "run", cluster=spec, **options)
    given = GnnOptions(**options, resume=True)
    planned = plan_of(TrainJob(blocks, tmp_path / "run", given, spec, quiet=True))
    assert "nothing is left to train: early stopping after 2 of 50 epochs" in planned.text()
    # However many epochs there may be: ranks would stop at once.
    more = GnnOptions(**options | {"epochs": 60}, resume=True)
    monkeypatch.setattr(TrainJob, "open_ranks", lambda *_: pytest.fail("a rank was started"))
    planned = plan_of(job := TrainJob(blocks, tmp_path / "run", more, spec, quiet=True))
    assert "nothing is left to train: early stopping after 2 of 60 epochs" in planned.text()
    assert run_job(job).trained.stopped is Stopped.PATIENCE
    assert Run.load(tmp_path / "run").training.epochs == 60
