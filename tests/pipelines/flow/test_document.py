"""The content of a flow's file, and its errors."""

import datetime as dt

import pytest

from penstock.errors import UsageError
from penstock.pipelines.flow.document import read_flow


@pytest.fixture
def write(tmp_path):
    def write(text, **settings):
        path = tmp_path / "flow.yaml"
        path.write_text(text)
        return read_flow(path, settings, date=dt.date(2026, 11, 23))

    return write


def test_stages_are_put_in_an_order_in_which_they_can_run(write, tmp_path):
    flow = write("""
stages:
  walks: {job: walk, input: graph, length: 5}
  graph: {job: etl, input: [a.csv, "b/*.csv"]}
  model: {job: gnn, input: graph, after: walks}
  score: {job: evaluate, input: model}
  vectors: {job: word2vec, input: graph}
  text: {job: export, input: vectors}
""")
    assert list(flow.stages)[:2] == ["graph", "walks"]
    assert flow.stages["text"].title == "vectors export"
    assert flow.stages["score"].title == "gnn evaluate"
    assert flow.stages["model"].needs == ("graph", "walks")
    assert [one.path for one in flow.stages["graph"].inputs] == [
        str(tmp_path / "a.csv"),
        str(tmp_path / "b/*.csv"),
    ]
    assert flow.folder == tmp_path / "flow"
    assert flow.output("score") == flow.output("model") == tmp_path / "flow/model"


def test_variables_come_from_outside_the_file_the_date_and_the_environment(write, monkeypatch):
    monkeypatch.setenv("WHERE", "/srv/in")
    text = """
name: n
folder: "out/{{date:%Y}}/{{date}}"
variables: {length: 7, day: "{{yesterday}}"}
stages:
  g: {job: etl, input: "{{env.WHERE}}/{{day}}.csv"}
  w: {job: walk, input: g, length: "{{length}}", seed: 1}
"""
    flow = write(text)
    assert flow.folder.parts[-3:] == ("out", "2026", "2026-11-23")
    assert flow.stages["g"].inputs[0].path == "/srv/in/2026-11-22.csv"
    assert flow.stages["w"].options == {"length": 7, "seed": 1}
    assert write(text, length="9").stages["w"].options["length"] == 9
    with pytest.raises(UsageError):
        write(text, lenght="9")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "flow.yaml"),
        ("a: [", "flow.yaml"),
        ("stages: {a: {}}", "stage a"),
        ("stages: {a: {job: wlak}}", "wlak"),
        ("stages: {a: {job: walk, input: g, overwrite: true}}", "overwrite"),
        ("stages: {a: {job: walk, input: g}, b: {job: walk, input: a/../x}}", "a/../x"),
        ("stages: {a: {job: evaluate, input: g}}", "evaluate"),
        ("name: runs\nstages: {a: {job: walk, input: g}}", "runs"),
        ("stages: {a: {job: embed, input: '{{previous}}'}}", "input"),
        ("stages: {a: {python: nothing}}", "python"),
        ("stages: {a: {job: walk}}", "stage a"),
        ("stages: {a: {job: walk, input: b}, b: {job: walk, input: a}}", "a"),
        ("stages: {a: {job: walk, input: g, after: z}}", "z"),
        ("stages: {a: {job: walk, input: '{{nope}}'}}", "nope"),
        ("stages: {a: {job: walk, input: '{{env.SURELY_NOT_SET}}'}}", "SURELY_NOT_SET"),
        ("variables: {a: '{{b}}', b: '{{a}}'}\nstages: {a: {job: walk, input: '{{a}}'}}", "a"),
        ("stages: {a: {job: info, input: g, publish: /x}}", "stage a"),
        ("cluster: {wokers: 3}\nstages: {a: {job: walk, input: g}}", "wokers"),
        ("stages: {a: {job: walk, input: g}, a: {job: walk, input: h}}", "a"),
        ("stages: {a: {job: embed, input: g, init: '{{previous}}/../b'}}", "init"),
        ("schedule: 0 99 * * *\nstages: {a: {job: walk, input: g}}", "schedule"),
        ("stages: !!python/object/apply:os.system [echo]", "flow.yaml"),
    ],
)
def test_a_bad_file_is_refused_and_says_where(write, text, named):
    with pytest.raises(UsageError) as error:
        write(text)
    assert named in str(error.value)


@pytest.mark.parametrize("place", ["out", "out/a/b", "runs"])
def test_a_place_does_not_lie_in_what_the_flow_writes(write, place):
    with pytest.raises(UsageError):
        write(f"""
folder: out
stages:
  a: {{job: walk, input: data/x, publish: {place}}}
  b: {{job: walk, input: g}}
""")


@pytest.mark.parametrize("value", ["12:30", "true", "7"])
def test_a_text_stays_a_text_unless_an_option_is_a_number(write, value):
    text = 'variables: {{v: {}}}\nstages: {{a: {{python: "m:f", x: "{{{{v}}}}"}}}}'
    for flow in (write(text.format(f"'{value}'")), write(text.format("''"), v=value)):
        assert flow.stages["a"].options["x"] == value
    flow = write("variables: {n: '0'}\nstages: {a: {job: walk, input: g, length: '{{n}}'}}", n="9")
    assert flow.stages["a"].options["length"] == 9


def test_a_variable_from_outside_has_the_type_of_its_default(write):
    text = 'variables: {n: 1, b: true}\nstages: {a: {python: "m:f", n: "{{n}}", b: "{{b}}"}}'
    assert write(text).stages["a"].options == {"n": 1, "b": True}
    assert write(text, n="1e-5", b="false").stages["a"].options == {"n": 1e-5, "b": False}
    with pytest.raises(UsageError):
        write(text, n="many")
