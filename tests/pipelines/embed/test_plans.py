"""What ``--plan`` says of jobs that read a run: whether it fits, and how long it will take."""

from __future__ import annotations

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

    run(job(3, resume=False))
    planned = plan(job(5, resume=True))
    assert planned.what == "vectors of 400 nodes, 3 of 5 epochs are done"
    monkeypatch.setattr(TrainJob, "open_ranks", lambda *_: pytest.fail("a rank was started"))
    planned = plan(job(3, resume=True))
    assert "nothing is left to train: 3 of 3 epochs are done" in planned.text()


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
