"""The demo: every stage runs from nothing, and the closing table says what came of it."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock import Graph
from penstock.errors import OutputExists, UsageError
from penstock.pipelines import demo as module
from penstock.pipelines.cli import app, run
from penstock.pipelines.demo import STAGES, DemoOptions, DemoRun, Done, Stage, demo, run_demo


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "why_alone", lambda: "mpi4py loads no MPI")


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch, alone: None) -> list[str]:
    """Two stages that write a file each, and what they were told."""
    told: list[str] = []

    def stage(name: str, **figures: Any) -> Stage:
        def work(context: DemoRun) -> Done:
            told.append(f"{name} {context.nodes} {context.ranks}")
            context.at(name).write_text("")
            return Done(f"{name} is done", figures, (name,))

        return Stage(name, f"penstock {name} {{at}}/g -k {{ranks}}", work)

    stages = (stage("walk", steps_per_second=2.5e6), stage("gnn", accuracy=0.97))
    monkeypatch.setattr(module, "STAGES", stages)
    return told


def test_titles_are_commands(tmp_path: Path) -> None:
    context = DemoRun(tmp_path, 1000)
    for stage in STAGES:
        words = shlex.split(stage.title(context).partition(",")[0])
        words += [str(tmp_path)] if words[1] == "generate" else []
        assert words[0] == "penstock"
        app.parse_args(words[1:], exit_on_error=False, print_error=False)


def test_it_runs_from_nothing_on_one_rank(
    tmp_path: Path, alone: None, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new" / "demo"
    report = run_demo(folder, DemoOptions(nodes=2000), quiet=False)
    shown = capsys.readouterr().err
    assert [stage["name"] for stage in report.stages] == [stage.name for stage in STAGES]
    assert "5/7 penstock gnn train" in shown
    assert "on one rank, as there is no MPI here: mpi4py loads no MPI" in shown
    for stage in report.stages:
        for file in stage["files"]:
            assert (folder / file).exists()
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    assert report.figure("accuracy") > 0.8
    graph = Graph.open(folder / "graph")
    ids = pq.read_table(folder / "nodes.parquet", columns=["id"])["id"].to_pylist()
    assert sorted(graph.user_ids().to_pylist()) == sorted(ids)
    predicted = pq.read_table(sorted((folder / "predictions").glob("*.parquet")))
    assert sorted(predicted["id"].to_pylist()) == sorted(ids)
    assert report.figure("graphs") == 200
    assert len(pq.read_table(folder / "central/graphs")) == 200
    kept = json.loads((folder / "demo.json").read_text())
    assert kept.pop("state") == "done"
    assert kept == report.to_dict()


@pytest.mark.mpi
def test_it_runs_on_two_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["demo", str(tmp_path / "demo"), "--nodes", "2000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["ranks"] == 2
    assert found["accuracy"] > 0.8


def test_the_table_has_every_stage(
    tmp_path: Path, short: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "demo"
    assert run(["demo", str(folder)]) == 0
    assert short == ["walk 20000 1", "gnn 20000 1"]
    out, err = capsys.readouterr()
    for text in (
        "walk is done",
        "gnn is done",
        "accuracy on the test nodes 97.0%",
        "2.5 M steps/s",
    ):
        assert text in out
    assert f"1/2 penstock walk {folder}/g -k 1" in err


def test_quiet_says_nothing(
    tmp_path: Path, short: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["demo", str(tmp_path / "demo"), "-q"]) == 0
    assert capsys.readouterr() == ("", "")


def test_only_a_demo_is_replaced(tmp_path: Path, short: list[str]) -> None:
    demo(tmp_path / "demo")
    (tmp_path / "demo/old").write_text("")
    with pytest.raises(OutputExists, match="give --overwrite"):
        demo(tmp_path / "demo")
    demo(tmp_path / "demo", overwrite=True)
    assert not (tmp_path / "demo/old").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("")
    with pytest.raises(OutputExists, match="is not a demo"):
        demo(tmp_path / "mine", overwrite=True)
    assert (tmp_path / "mine/thesis.tex").exists()


def test_an_interrupted_demo_can_be_replaced(
    tmp_path: Path, short: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(context: DemoRun) -> Done:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "STAGES", (Stage("fails", "penstock fails", fail),))
    with pytest.raises(KeyboardInterrupt):
        demo(tmp_path / "demo")
    assert json.loads((tmp_path / "demo/demo.json").read_text()) == {"state": "begun"}
    monkeypatch.setattr(module, "STAGES", ())
    demo(tmp_path / "demo", overwrite=True)


def test_too_few_nodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--nodes"):
        demo(tmp_path / "demo", nodes=10)
