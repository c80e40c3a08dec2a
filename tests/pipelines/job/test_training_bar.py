"""Progress of training counts what ranks log, and not what an earlier run has done."""

from __future__ import annotations

import pytest

from penstock.pipelines.job.training_bar import TrainingBar


def test_the_bar_shows_the_latest_figures(capsys: pytest.CaptureFixture[str]) -> None:
    scores = {"train": "train {:.1%}", "valid": "valid {:.1%}"}
    with TrainingBar(10, "epochs", scores=scores, quiet=False) as bar:
        bar._start -= 5  # nothing is said of what takes less than two seconds
        for epoch in range(1, 11):
            bar.on_metrics(0, {"done": epoch, "loss": 1 / epoch, "train": 0.5, "valid": epoch / 20})
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10
    assert lines[-1].startswith("train: 100 %, ")
    assert lines[-1].endswith("epochs/s, loss 0.1, train 50.0 %, valid 50.0 %")


def test_the_bar_begins_where_the_run_goes_on_and_goes_back(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with TrainingBar(100, "epochs", quiet=False) as bar:
        bar._start -= 5
        bar.on_metrics(0, {"done": 51, "loss": 0.5, "train": 0.0})
        assert (bar.done, bar.total) == (1, 50)
        bar.on_metrics(0, {"done": 100})
        assert bar.done == 50
        bar.on_metrics(0, {"done": 60})  # a rank was lost
        assert bar.done == 10
        bar.on_metrics(0, {"loss": 0.2})
        assert bar.done == 10
    assert "train 0" not in capsys.readouterr().err


def test_what_was_done_before_is_said_by_the_ranks() -> None:
    with TrainingBar(1000, "words", quiet=True) as bar:
        bar.on_metrics(0, {"done": 700, "before": 600, "loss": 2.5})
        bar.on_metrics(1, {"done": 900, "before": 600, "loss": 2.5})  # all ranks know the same
        assert (bar.done, bar.total) == (100, 400)
        bar.on_metrics(0, {"done": 1000, "before": 600, "loss": 2.5})
        assert bar.done == 400
