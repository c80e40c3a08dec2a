"""What a flow's file says, and every way in which it can be wrong."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import UsageError
from penstock.pipelines.flow.document import Input, read_flow
from penstock.pipelines.flow.document.commands import command_of, job_names
from penstock.pipelines.flow.stage import StageProcess
from penstock.pipelines.flow.state import FlowState


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def write(text: str, **settings: str) -> Any:
        path = tmp_path / "flow.yaml"
        path.write_text(text)
        moment = dt.datetime(2026, 11, 23, 2, 30, tzinfo=dt.UTC)
        return read_flow(path, settings, now=moment)

    return write


def test_stages_are_put_in_an_order_in_which_they_can_run(write, tmp_path):
    flow = write("""
stages:
  walks: {job: walk, input: graph, length: 5}
  graph: {job: etl, input: [a.csv, "b/*.csv"]}
  model: {job: gnn, input: graph, after: walks}
  score: {job: evaluate, input: model}
""")
    assert list(flow.stages) == ["graph", "walks", "model", "score"]
    assert flow.stages["score"].title == "gnn evaluate"
    assert flow.stages["model"].needs == ("graph", "walks")
    assert [one.path for one in flow.stages["graph"].inputs] == [
        str(tmp_path / "a.csv"), str(tmp_path / "b/*.csv")]  # fmt: skip
    assert flow.folder == tmp_path / "flow"
    assert flow.output("score") == flow.output("model") == tmp_path / "flow/model"


def test_paths_of_a_flow_have_one_form(write, tmp_path):
    flow = write("""
folder: x/../out/.
stages:
  a: {job: walk, input: ../g/./h, publish: y/../walks}
""")
    assert flow.folder == tmp_path / "out"
    assert flow.stages["a"].inputs[0].path == str(tmp_path.parent / "g/h")
    assert flow.destination("y/../walks") == str(tmp_path / "walks")


def test_variables_come_from_outside_the_file_the_date_and_the_environment(write, monkeypatch):
    monkeypatch.setenv("WHERE", "/srv/in")
    text = """
name: n
folder: "out/{{date}}"
variables: {length: 7, day: "{{yesterday}}"}
stages:
  g: {job: etl, input: "{{env.WHERE}}/{{day}}.csv"}
  w: {job: walk, input: g, length: "{{length}}", seed: 1}
"""
    flow = write(text)
    assert flow.folder.parts[-2:] == ("out", "2026-11-23")
    assert flow.stages["g"].inputs[0].path == "/srv/in/2026-11-22.csv"
    assert flow.stages["w"].options == {"length": 7, "seed": 1}
    assert write(text, length="9").stages["w"].options["length"] == 9
    with pytest.raises(UsageError, match="no such variable"):
        write(text, lenght="9")


def test_an_option_can_name_a_file_of_another_stage(write):
    flow = write("""
stages:
  a: {job: generate sbm}
  b: {job: walk, input: a, starts: "{{stage.a}}/starts.txt"}
""")
    assert flow.stages["b"].needs == ("a",)


def test_options_that_need_each_other_may_name_stages(write, tmp_path):
    """The label needs the table of nodes, which another stage makes."""
    (tmp_path / "seeds.txt").write_text("1")
    flow = write("""
stages:
  t: {python: "m:f"}
  g: {job: etl, input: t/edges.csv, nodes: "{{stage.t}}/nodes.csv", label: group}
  w: {job: walk, input: g, starts: seeds.txt}
""")
    state = FlowState(flow)
    assert set(state.made_of(flow.stages["g"], {"t": "k"}).inputs) == {"t/edges.csv", "t"}
    assert str(tmp_path / "seeds.txt") in state.made_of(flow.stages["w"], {"g": "k"}).inputs


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no flow"),
        ("a: [", "cannot read"),
        ("stages: {}", "no stages"),
        ("stages: {a: {job: walk}}\nfoo: 1", "unknown key 'foo'"),
        ("stages: {a: {}}", "either job"),
        ("stages: {a: {job: walk, python: 'm:f'}}", "either job"),
        ("stages: {a: {job: wlak}}", "no job 'wlak'"),
        ("stages: {a: {job: demo}}", "no job 'demo'"),
        ("stages: {a: {job: cluster start}}", "no job"),
        ("stages: {a: {job: walk, input: g, lenght: 3}}", "no option 'lenght'"),
        ("stages: {a: {job: walk, input: g, length: 0}}", "--length"),
        ("stages: {a: {job: walk, input: g, length: many}}", "--length"),
        ("stages: {a: {job: walk, input: g, overwrite: true}}", "is the flow's"),
        ("stages: {a: {job: walk}}", "takes 1 input"),
        ("stages: {a: {job: walk, input: [g, h]}}", "takes 1 input"),
        ("stages: {a: {job: walk, input: b}, b: {job: walk, input: a}}", "wait for each other"),
        ("stages: {a: {job: walk, input: a}}", "its own output"),
        ("stages: {a: {job: walk, input: g}, b: {job: walk, input: a/../x}}", "leads out of"),
        (
            "stages: {a: {job: walk, input: g}, b: {job: walk, input: '{{stage.a}}/../x'}}",
            "leads out of",
        ),
        ("stages: {a: {job: walk, input: g, after: z}}", "which there is not"),
        ("stages: {a: {job: evaluate, input: g}}", "follows a stage"),
        ("stages: {a: {job: walk, input: '{{nope}}'}}", "unknown variable 'nope'"),
        ("stages: {a: {job: walk, input: '{{env.SURELY_NOT_SET}}'}}", "not set"),
        ("variables: {a: '{{b}}', b: '{{a}}'}\nstages: {a: {job: walk, input: '{{a}}'}}", "name"),
        ("stages: {a: {job: walk, input: g, expect: {steps: lots}}}", "expected"),
        ("stages: {a: {job: walk, input: g, expect: 3}}", "expect"),
        ("stages: {a: {job: walk, input: g, expect: {steps: []}}}", "'steps' is expected"),
        ("stages: {a: {job: walk, input: g, expect: {steps: [1, lots]}}}", "'steps' is expected"),
        ("stages: {a: {job: walk, input: g, retries: -1}}", "retries"),
        ("stages: {a: {job: walk, input: g, timeout: soon}}", "timeout"),
        ("stages: {a: {job: info, input: g, publish: /x}}", "writes no output"),
        ("stages: {a: {python: nothing}}", "module:function"),
        ("stages: {1a: {job: walk}}", "name of a stage"),
        ("name: ../x\nstages: {a: {job: walk, input: g}}", "name"),
        ("cluster: {wokers: 3}\nstages: {a: {job: walk, input: g}}", "wokers"),
        ("stages: {a: {job: walk, input: g}, a: {job: walk, input: h}}", "'a' stands twice"),
        ("stages: {a: {job: walk, input: g, expect: {x: 1}, expect: {y: 1}}}", "stands twice"),
        ("stages: {a: &a {job: walk, input: [*a]}}", "stands within itself"),
        ("stages:\n\ta: {job: walk, input: g}", "cannot read"),
        ("stages: {a: {job: walk, input: g, expect: {steps: .inf}}}", "stage a.*'steps'"),
        ("stages: {a: {job: walk, input: g, expect: {steps: '< 1e400'}}}", "'steps'"),
        ("variables: {v: }\nstages: {a: {job: walk, input: g}}", "v. Expected a text"),
        ("variables: {v: [1]}\nstages: {a: {job: walk, input: g}}", "v. Expected a text"),
        ("stages: {a: {job: walk, input: '{{stage.z}}/x'}}", "'z', which there is not"),
        ("stages: {a: {job: walk, input: g, publish: '{{stage.a}}'}}", "publish names the output"),
        ("name: runs\nstages: {a: {job: walk, input: g}}", "where the records of runs are"),
        ("folder: .\nstages: {runs: {job: walk, input: g}}", "where the records of runs are"),
        ("stages: {a: {job: embed, input: '{{previous}}'}}", "input names {{previous}}"),
        ("stages: {a: {job: embed, input: g, init: 'x/{{previous}}'}}", "init names {{previous}}"),
        ("stages: {a: {job: embed, input: g, init: '{{previous}}/../b'}}", "init names {{prev"),
        ("stages: {a: {job: embed, input: g, init: ['{{previous}}']}}", "init names {{previous}}"),
        ("stages: {a: {job: info, input: g, x: '{{previous}}'}}", "no option 'x'"),
        ("stages: {a: {python: 'm:f', x: '{{previous}}'}}", "no output of its own"),
        ("stages: {a: {job: embed evaluate, input: g, triples: '{{previous}}/t'}}", "of its own"),
        ("folder: '{{previous}}'\nstages: {a: {job: walk, input: g}}", "unknown variable"),
        ("parallel: 0\nstages: {a: {job: walk, input: g}}", "parallel"),
        ("parallel: 1000000000000\nstages: {a: {job: walk, input: g}}", "from 1 to 1000, got"),
        ("keep: 1000000000000\nstages: {a: {job: walk, input: g}}", "from 0 to 1000, got"),
        ("stages: {a: {job: walk, input: g, retries: 1000000000000}}", "from 0 to 100, got"),
        ("stages: {a: {job: walk, input: g, min-x: 1, min_x: 1}}", "min_x is given twice"),
        (
            "cluster: {kind: local}\nstages: {a: {job: walk, input: g}}",
            r"flow\.yaml: cluster: there is no option 'kind'\. Expected one of cluster, ",
        ),
        (
            "cluster: {workers: true}\nstages: {a: {job: walk, input: g}}",
            r"flow\.yaml: cluster: option --workers has .*Expected a whole number, got true",
        ),
        (
            "stages: {a: {job: walk, input: g, length: true}}",
            r"flow\.yaml: stage a: option --length .*Expected a whole number, got true",
        ),
        (
            "stages: {a: {job: walk, input: g, p: [1]}}",
            r"flow\.yaml: stage a: option --p .*Expected a number, got \[1\]",
        ),
        (
            "schedule: {cron: 5}\nstages: {a: {job: walk, input: g}}",
            r"flow\.yaml: schedule: option --cron has a bad value\. Expected text, got 5",
        ),
        (
            "schedule: 0 99 * * *\nstages: {a: {job: walk, input: g}}",
            r"flow\.yaml: schedule: the hour of the cron expression",
        ),
        (
            "schedule: {cron: 0 1 * * *, retries: 1000}\nstages: {a: {job: walk, input: g}}",
            r"flow\.yaml: schedule: option --retries",
        ),
    ],
)
def test_a_bad_file_is_refused_and_says_where(write, text, says):
    with pytest.raises(UsageError, match=says) as error:
        write(text)
    assert str(error.value).count(".yaml: ") <= 1


@pytest.mark.parametrize(
    "place", [".", "/", "out", "out/a/b", "out/b", "out/.flow", "runs", "runs/x", "data", "data/x"]
)
def test_what_publishing_would_replace_must_not_be_needed(write, place):
    with pytest.raises(UsageError, match="would publish to"):
        write(f"""
folder: out
stages:
  a: {{job: walk, input: data/x, publish: {place}}}
  b: {{job: walk, input: g}}
""")


def test_anchors_and_merges_are_yamls(write):
    flow = write("""
stages:
  a: &same {python: "m:f", x: 1}
  b: {<<: *same, x: 2}
""")
    assert [one.options for one in flow.stages.values()] == [{"x": 1}, {"x": 2}]


@pytest.mark.parametrize(
    ("value", "means"),
    [("0.00001", 1e-5), ("12:30", "12:30"), ("010", "010"), ("1e-5", 1e-5), ("true", True),
     ("7", 7), ("0", 0), ("2026-01-02", "2026-01-02"), ("x: y", "x: y")],
)  # fmt: skip
def test_a_variable_alone_is_what_it_looks_like(write, value, means):
    text = 'variables: {{v: {}}}\nstages: {{a: {{python: "m:f", x: "{{{{v}}}}"}}}}'
    for flow in (write(text.format(f"'{value}'")), write(text.format("0"), v=value)):
        found = flow.stages["a"].options["x"]
        assert (found, type(found)) == (means, type(means))
    if not isinstance(means, str):
        assert write(text.format(value)).stages["a"].options["x"] == means


def test_an_input_can_be_named_as_options_name_it(write):
    flow = write("""
stages: {b: {python: "m:f"}, a: {python: "m:f", input: "{{stage.b}}/x"}}
""")
    assert flow.stages["a"].inputs == (Input("b", "x"),)


def test_yaml_of_a_flow_makes_no_objects(write):
    with pytest.raises(UsageError, match="cannot read"):
        write("stages: !!python/object/apply:os.system [echo]")


def test_every_command_that_makes_something_can_be_a_stage():
    names = job_names()
    assert {"etl", "walk", "partition", "gnn train", "gnn predict", "centrality"} <= set(names)
    assert not {"demo", "run", "cluster start", "completion", "schema", "runs list"} & set(names)
    walk = command_of("walk")
    assert (walk.inputs, walk.writes, walk.in_place) == ((1, 1), True, False)
    etl = command_of("etl")
    assert (etl.inputs, etl.listed, etl.writes) == ((1, None), True, True)
    assert command_of("partition").in_place
    assert not command_of("gnn evaluate").writes
    similar = command_of("similar")  # as a stage it always writes the neighbours of all ids
    assert (similar.inputs, similar.writes, similar.has("all")) == ((1, 1), True, False)
    with pytest.raises(UsageError, match="option all is the flow's"):
        similar.arguments({"all": "near"})


def test_a_stage_can_begin_with_the_output_that_it_had_before(write, tmp_path, monkeypatch):
    """A copy, which lasts while the stage makes another one, and when that fails or is cut off."""
    text = "stages: {v: {job: embed, input: g, init: '{{previous}}', publish: pub}}"
    flow = write(text)
    stage, state, out = flow.stages["v"], FlowState(flow), flow.output("v")

    def given(previous: Path | None) -> Any:
        return StageProcess(flow, stage, {}, None, previous=previous).order["options"].get("init")

    made = state.made_of(stage, {})
    assert state.keep_previous(stage) is None
    assert given(None) is None  # there is nothing yet
    (out / "checkpoints").mkdir(parents=True)
    (out / "checkpoints/nodes.table").write_text("yesterday")
    (out / ".buckets").write_text("")
    state.begin("v", made, {})
    assert state.keep_previous(stage) is None  # what was cut off is no output
    state.end(stage, made, {}, 1.0)
    assert state.made_of(stage, {}) == made
    assert state.why(stage, made) is None  # what it had before is no input

    copy = state.keep_previous(stage)
    assert copy is not None
    assert given(copy) == str(copy)
    held = copy / "checkpoints/nodes.table"
    assert held.samefile(out / "checkpoints/nodes.table")
    assert [path.name for path in copy.iterdir()] == ["checkpoints"]
    state.begin("v", made, {})
    shutil.rmtree(out)
    out.mkdir()
    assert state.keep_previous(stage) == copy
    assert held.read_text() == "yesterday"
    state.end(stage, made, {}, 1.0)
    assert not copy.exists()

    monkeypatch.setattr(os, "link", no_links)
    (out / "new").write_text("today")
    state.end(stage, made, {}, 1.0)
    copy = state.keep_previous(stage)
    assert copy is not None
    assert (copy / "new").read_text() == "today"
    named = write("variables: {previous: /srv/v}\n" + text)
    assert named.stages["v"].options["init"] == "/srv/v"


def no_links(*_: Any, **more: Any) -> None:
    raise OSError("no links here")
