"""What ``--plan`` says of jobs that read a run: whether it fits, and how long it will take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock import ClusterSpec, Graph, embed
from penstock.errors import CapacityError
from penstock.pipelines.embed.evaluation import EvaluateJob, VectorsJob
from penstock.pipelines.embed.exporting import ExportJob
from penstock.pipelines.embed.options import (
    EmbedOptions,
    EvaluateOptions,
    ExportOptions,
    PredictOptions,
)
from penstock.pipelines.embed.prediction import PredictJob
from penstock.pipelines.embed.training import TrainJob
from penstock.pipelines.job import plan, run
from penstock.workers.stopped import Stopped

Trained = tuple[Path, embed.TrainReport]


@pytest.fixture
def jobs(trained: Trained, tmp_path: Path, cluster: ClusterSpec) -> list[Any]:
    at, asked = trained[0], PredictOptions(head="e1", relation="r0")
    return [
        EvaluateJob(at, at, EvaluateOptions(split="valid"), cluster, quiet=True),
        PredictJob(at, at, asked, cluster, quiet=True),
        ExportJob(at, tmp_path / "v", ExportOptions(overwrite=True), quiet=True),
    ]


def test_a_plan_of_what_writes_nothing_names_no_output(jobs: list[Any], tmp_path: Path) -> None:
    evaluation, prediction, export = map(plan, jobs)
    assert evaluation.text().startswith("penstock embed evaluate would print the ranks of edges\n")
    assert prediction.text().startswith("penstock embed predict would print the best answers\n")
    for made in (evaluation, prediction):
        assert "disk" not in made.text()
        assert (made.to_dict()["out"], made.to_dict()["disk_bytes"]) == (None, 0)
    assert export.out == str(tmp_path / "v")
    assert "disk" in export.text()


def test_a_plan_after_a_run_has_a_time(
    jobs: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))
    for job in jobs:
        assert plan(job).seconds is None
        run(job)
        assert (plan(job).seconds or 0) > 0, job.command


def test_what_does_not_fit_is_said_before_anything_is_ranked(
    jobs: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VectorsJob, "memory", lambda self: 1 << 50)
    monkeypatch.setattr(EvaluateJob, "memory", lambda self: 1 << 50)
    for job in jobs[:2]:
        assert isinstance(plan(job).problem, CapacityError)
        with pytest.raises(CapacityError, match="would not fit on a worker"):
            run(job)


def test_a_plan_says_that_the_disk_is_too_small(
    monkeypatch: pytest.MonkeyPatch, graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    job = TrainJob(graph, tmp_path / "run", EmbedOptions(), cluster, quiet=True)
    assert plan(job).problem is None
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    assert "would not fit on its disk. Expected about" in str(plan(job).problem)


def test_a_plan_counts_the_epochs_that_are_done(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_CACHE", str(tmp_path / "cache"))

    def job(epochs: int, *, resume: bool) -> TrainJob:
        options = EmbedOptions(dim=4, epochs=epochs, schedule="constant", resume=resume)
        return TrainJob(graph, tmp_path / "run", options, cluster, quiet=True)

    run(done := job(3, resume=False))
    planned = plan(resumed := job(5, resume=True))
    assert planned.what == "vectors of 400 nodes, 3 of 5 epochs are done"
    assert "for what is left, by 1 run here" in planned.text()
    assert done.amount()[1] == 3 * graph.num_edges
    assert resumed.amount() == (done.amount()[0], 2 * graph.num_edges)
    monkeypatch.setattr(TrainJob, "open_ranks", lambda *_: pytest.fail("a rank was started"))
    planned = plan(job(3, resume=True))
    assert "nothing is left to train: 3 of 3 epochs are done" in planned.text()
    assert planned.seconds == 0


def test_a_plan_counts_the_edges_of_an_epoch_that_are_done(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    options: dict[str, Any] = {"dim": 4, "epochs": 3, "partitions": 4, "batch": 100}
    embed.train(graph, tmp_path / "run", cluster=cluster, **options)
    path = tmp_path / "run/checkpoints/last.json"
    body = json.loads(path.read_text())
    body["about"] |= {"epoch": 1, "state": 2, "epoch_edges": 1000}
    path.write_text(json.dumps(body))
    resumed = TrainJob(
        graph, tmp_path / "run", EmbedOptions(**options, resume=True), cluster, quiet=True
    )
    assert plan(resumed).what == "vectors of 400 nodes, 1 of 3 epochs is done"
    assert resumed.amount()[1] == 2 * graph.num_edges - 1000


def test_a_plan_of_a_run_that_stopped_early_has_nothing_left(
    graph: Graph, tmp_path: Path, cluster: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many epochs there may be: ranks would stop at once."""
    options: dict[str, Any] = {"dim": 4, "lr": 1e-30, "patience": 1, "validate_every": 1}
    options |= {"schedule": "constant", "cluster": cluster}
    done = embed.train(graph, tmp_path / "run", epochs=20, **options)
    assert done.trained.epochs == 2
    del options["cluster"]
    given = EmbedOptions(epochs=30, resume=True, **options)
    monkeypatch.setattr(TrainJob, "open_ranks", lambda *_: pytest.fail("a rank was started"))
    planned = plan(job := TrainJob(graph, tmp_path / "run", given, cluster, quiet=True))
    assert "nothing is left to train: early stopping after 2 of 30 epochs" in planned.text()
    assert run(job).trained.stopped is Stopped.PATIENCE
