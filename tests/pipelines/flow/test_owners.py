"""A flow replaces nothing that it has not made, and two flows do not take turns at one place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import pytest

from penstock.errors import OutputExists, UsageError
from penstock.pipelines.cli import run as main
from penstock.pipelines.flow import run_flow
from penstock.pipelines.flow.document import read_flow
from penstock.pipelines.flow.publishing.owners import output_problem, target_problem
from penstock.pipelines.flow.records import all_runs
from penstock.pipelines.flow.state import FlowState

MODULE = """
from pathlib import Path
def make(*given, value=1, beside=None):
    out = given[-1]
    out.mkdir(parents=True, exist_ok=True)
    (out / "v").write_text(str(value))
    if beside:
        Path(beside).mkdir()
        (Path(beside) / "v").write_text("theirs")
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/mine.py").write_text(MODULE)
    return tmp_path / "home"


def flow(home: Path, name: str, stages: str, **more: Any) -> Path:
    """Write a flow of functions; ``stages`` are as YAML has them, within braces."""
    head = "".join(f"{key}: {value}\n" for key, value in more.items())
    text = stages.replace("make", 'python: "mine:make"')
    (home / f"{name}.yaml").write_text(f"{head}stages: {{{text}}}\n")
    return home / f"{name}.yaml"


def folder(path: Path, value: str = "theirs") -> Path:
    path.mkdir(parents=True)
    (path / "v").write_text(value)
    return path


def value(path: Path) -> str:
    return (path / "v").read_text()


def problems(path: Path) -> dict[str, str]:
    """What would be refused before a flow runs, by stage."""
    made = read_flow(path)
    state, found = FlowState(made), {}
    for name, stage in made.stages.items():
        places = map(made.destination, stage.publish)
        all_of_it = [target_problem(made, state, name, one, urls=False) for one in places]
        for problem in (output_problem(made, state, name), *all_of_it):
            if problem is not None:
                found[name] = str(problem)
    return found


# Outputs


def test_an_output_that_the_flow_did_not_make_is_refused_before_anything_runs(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one of the kind that the job makes, which --overwrite of the job would replace."""
    theirs = folder(home / "out/graph")
    (theirs / "graph.json").write_text("{}")
    path = home / "flow.yaml"
    path.write_text("folder: out\nstages: {graph: {job: generate sbm, nodes: 200}}")
    assert main(["run", str(path), "--plan"]) == 0
    assert main(["run", str(path), "-q", "--no-report"]) == 1
    assert str(theirs) in capsys.readouterr().err
    assert value(theirs) == "theirs"
    assert [(one.state, one.stages) for one in all_runs(home / "runs")] == [("failed", {})]
    flow(home, "flow", "graph: {make}", folder="out")
    assert main(["run", str(path), "-q", "--no-report"]) == 1
    assert value(theirs) == "theirs"
    assert main(["run", str(path), "-q", "--no-report", "--replace-outputs"]) == 0
    assert value(theirs) == "1"
    assert problems(path) == {}  # from then on it is the flow's own


# What was published before


def test_a_previous_one_that_the_flow_did_not_keep_is_refused(home: Path) -> None:
    theirs = folder(home / "pub.previous")
    folder(home / "other.previous-2")
    stage = 'a: {make, value: "{{v}}", publish: %s}'
    path = flow(home, "two", stage % "other", variables="{v: 1}", keep=2)
    assert "other.previous-2" in problems(path)["a"]
    path = flow(home, "flow", stage % "pub", variables="{v: 1}")
    with pytest.raises(OutputExists):
        run_flow(path)
    assert value(theirs) == "theirs"
    assert not (home / "flow/a").exists()
    theirs.rename(home / "aside")
    for day in "123":  # what it has kept itself it may replace, also when all was moved
        run_flow(path, variables={"v": day})
        home = home.rename(home.with_name(f"home{day}"))
        path = home / "flow.yaml"
    assert (value(home / "pub"), value(home / "pub.previous")) == ("3", "2")


# Two flows


def test_two_flows_do_not_take_turns_at_a_target(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = flow(home, "one", "a: {make, value: 1, publish: pub}")
    two = flow(home, "two", "a: {make, value: 2, publish: pub}")
    first = Path(run_flow(one).run).name
    assert main(["run", str(two), "-q", "--no-report"]) == 1
    assert first in capsys.readouterr().err
    assert not (home / "two/a").exists()
    run_flow(two, replace_targets=True)
    # The first one has nothing to do: all of its own is as it was. But its target is not.
    with pytest.raises(OutputExists):
        run_flow(one)
    assert value(home / "pub") == "2"
    run_flow(one, replace_targets=True)
    assert (value(home / "pub"), value(home / "pub.previous")) == ("1", "2")
    assert problems(one) == {}
    # One that was renamed is the same flow.
    (one.rename(home / "new.yaml")).write_text("name: one\n" + (home / "new.yaml").read_text())
    assert problems(home / "new.yaml") == {}
    assert "has published since" in problems(two)["a"]


def test_two_flows_do_not_take_turns_at_a_url(home: Path) -> None:
    system = fsspec.filesystem("memory")
    system.store.clear()
    one = flow(home, "one", "a: {make, value: 1, publish: 'memory://b/pub'}")
    two = flow(home, "two", "a: {make, value: 2, publish: 'memory://b/pub/'}")
    run_flow(one)
    with pytest.raises(OutputExists):
        run_flow(two)
    run_flow(two, replace_targets=True)
    latest = json.loads(system.cat("/b/pub/latest.json"))
    assert latest["published_by"]["flow"] == "two"
    run_flow(one)  # it has nothing to publish, and a URL is not asked without need
    flow(home, "one", "a: {make, value: 3, publish: 'memory://b/pub'}")
    with pytest.raises(OutputExists):
        run_flow(one)
    run_flow(one, replace_targets=True)
    assert json.loads(system.cat("/b/pub/latest.json"))["published_by"]["flow"] == "one"


def test_what_others_publish_while_the_flow_runs_is_refused_at_its_end(home: Path) -> None:
    path = flow(home, "flow", "a: {make, beside: pub, publish: pub}")
    with pytest.raises(OutputExists):
        run_flow(path)
    assert value(home / "pub") == "theirs"


def test_two_flows_do_not_take_turns_at_an_output(home: Path) -> None:
    one = flow(home, "one", "a: {make, value: 1}", folder="out")
    two = flow(home, "two", "a: {make, value: 2}", folder="out")
    same = flow(home, "same", "a: {make, value: 1}", folder="out")
    run_flow(one)
    with pytest.raises(OutputExists):
        run_flow(two)
    assert value(home / "out/a") == "1"
    assert run_flow(same).stages["a"]["state"] == "skipped"  # it only reads the existing output
    run_flow(two, replace_outputs=True)
    with pytest.raises(OutputExists):
        run_flow(one)
    home = home.rename(home.with_name("moved"))
    assert run_flow(home / "two.yaml", force=True).state == "passed"  # all of it was moved


def test_a_flow_writes_nothing_within_what_another_made_or_published(home: Path) -> None:
    run_flow(flow(home, "one", "a: {make, publish: pub}", folder="out"))
    within = flow(home, "two", "b: {make}", folder="out/a/deep")
    assert "in what the flow one" in problems(within)["b"]
    published = flow(home, "two", "b: {make}", folder="pub")
    assert "published" in problems(published)["b"]
    targets = flow(home, "two", "b: {make, publish: [out/a/x, pub/x]}")
    assert "in what the flow one" in problems(targets)["b"]
    alone = flow(home, "two", "b: {make, publish: pub2}", folder="out")  # another stage's name
    assert problems(alone) == {}


# One flow


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("pub", "{{flow}}/pub"),
        ("pub", "link/pub/deep"),
        ("pub/a.previous/x", "pub/a"),
        ("s3://b/pub", "s3://b//pub/"),
    ],
)
def test_targets_that_are_one_place_are_refused_when_the_flow_is_read(
    home: Path, one: str, other: str
) -> None:
    (home / "link").symlink_to(home)
    text = f"a: {{make, publish: '{one}'}}, b: {{make, publish: '{other}'}}"
    for path in (
        flow(home, "two", text),
        flow(home, "list", f"a: {{make, publish: ['{one}', '{other}']}}"),
    ):
        with pytest.raises(UsageError):
            read_flow(path)


def test_stages_that_write_one_place_are_refused_when_the_flow_is_read(home: Path) -> None:
    graph = "g: {job: generate sbm}, p: {job: partition, input: g, k: 4}, q: {job: partition, "
    read_flow(flow(home, "flow", graph + "input: g, k: 3}"))
    with pytest.raises(UsageError):
        read_flow(flow(home, "flow", graph + "input: g, k: 4, seed: 1}"))
    (home / "out").mkdir()
    (home / "out/b").symlink_to("a")
    with pytest.raises(UsageError):
        read_flow(flow(home, "flow", "a: {make}, b: {make}", folder="out"))
