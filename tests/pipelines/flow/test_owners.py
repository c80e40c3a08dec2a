"""A flow replaces no output that it has not made, and no two stages write to one path."""

import json

import pytest
from made import make_outputs

from penstock.errors import OutputExists, UsageError
from penstock.pipelines.cli import run as main
from penstock.pipelines.flow import run_flow
from penstock.pipelines.flow.document import read_flow
from penstock.pipelines.flow.records import all_runs

MODULE = """
from pathlib import Path
def make(*given, value=1):
    out = given[-1]
    out.mkdir(parents=True, exist_ok=True)
    (out / "v").write_text(str(value))
"""


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    (tmp_path / "home/mine.py").write_text(MODULE)
    return tmp_path / "home"


def flow(home, name, stages, **more):
    """Write a flow of functions; ``stages`` are as YAML has them, within braces."""
    head = "".join(f"{key}: {value}\n" for key, value in more.items())
    text = stages.replace("make", 'python: "mine:make"')
    (home / f"{name}.yaml").write_text(f"{head}stages: {{{text}}}\n")
    return home / f"{name}.yaml"


def folder(path, value="theirs"):
    path.mkdir(parents=True)
    (path / "v").write_text(value)
    return path


def value(path):
    return (path / "v").read_text()


def test_an_output_that_the_flow_did_not_make_is_refused_before_anything_runs(home, capsys):
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


def test_two_flows_do_not_take_turns_at_an_output(home, capsys):
    one = flow(home, "one", "a: {make, value: 1}", folder="out")
    two = flow(home, "two", "a: {make, value: 2}", folder="out")
    same = flow(home, "same", "a: {make, value: 1}", folder="out")
    make_outputs(one)
    with pytest.raises(OutputExists):
        run_flow(two)
    assert value(home / "out/a") == "1"
    assert run_flow(same).stages["a"]["state"] == "skipped"  # it only reads the existing output
    make_outputs(two)  # as with --replace-outputs
    with pytest.raises(OutputExists):
        run_flow(one)
    home = home.rename(home.with_name(f"{home.name}-moved"))
    capsys.readouterr()
    for name, problem in (("one", True), ("two", False)):
        assert main(["run", str(home / f"{name}.yaml"), "--force", "--plan", "--json"]) == 0
        (planned,) = json.loads(capsys.readouterr().out)["stages"]
        assert bool(planned["problem"]) == problem  # all of it was moved


@pytest.mark.parametrize(
    ("one", "other"),
    [("pub", "{{flow}}/pub"), ("pub", "link/pub/deep"), ("s3://b/pub", "s3://b//pub/")],
)
def test_targets_that_are_one_place_are_refused_when_the_flow_is_read(home, one, other):
    (home / "link").symlink_to(home)
    text = f"a: {{make, publish: '{one}'}}, b: {{make, publish: '{other}'}}"
    for path in (
        flow(home, "two", text),
        flow(home, "list", f"a: {{make, publish: ['{one}', '{other}']}}"),
    ):
        with pytest.raises(UsageError):
            read_flow(path)


def test_stages_that_write_one_place_are_refused_when_the_flow_is_read(home):
    graph = "g: {job: generate sbm}, p: {job: partition, input: g, k: 4}, q: {job: partition, "
    read_flow(flow(home, "flow", graph + "input: g, k: 3}"))
    with pytest.raises(UsageError):
        read_flow(flow(home, "flow", graph + "input: g, k: 4, seed: 1}"))
    (home / "out").mkdir()
    (home / "out/b").symlink_to("a")
    with pytest.raises(UsageError):
        read_flow(flow(home, "flow", "a: {make}, b: {make}", folder="out"))
