"""run, runs, report, schedule, schema, doctor and the command itself: exit codes, errors, keys."""

import json
from datetime import datetime
from pathlib import Path

import jsonschema
import pytest
from golden import columns, command, follows, load, run

import penstock

FLOW = """
name: night
folder: out
variables: {length: 6, least: 100}
schedule: {cron: "30 2 * * *", timezone: Europe/Zurich, retries: 2}
stages:
  graph: {job: etl, input: e.parquet, expect: {nodes: [">= {{least}}", within 5 % of previous]}}
  walks: {job: walk, input: graph, length: "{{length}}", publish: published/walks}
  mine: {python: "mine:count", input: walks, expect: {walks: ">= 1"}}
"""
MINE = """
def count(walks, out):
    out.write_text("counted")
    return {"walks": sum(1 for _ in walks.glob("*.parquet"))}
"""


@pytest.fixture
def _flow(_folder):
    follows().to_parquet("e.parquet")
    Path("night.yaml").write_text(FLOW)
    Path("mine.py").write_text(MINE)


def states(report):
    return {name: stage["state"] for name, stage in report["stages"].items()}


@pytest.mark.usefixtures("_flow")
def test_a_flow_runs_what_changed_and_publishes_what_passed():
    plan = run("run night.yaml --plan")["stages"]
    assert [(one["name"], one["runs"]) for one in plan] == [
        (name, True) for name in ("graph", "walks", "mine")
    ]
    first = run("run night.yaml")
    assert (first["state"], set(states(first).values())) == ("passed", {"done"})
    run("walk out/graph alone --length 6")
    published = columns("published/walks/latest")
    assert published == columns("alone")
    assert set(states(run("run night.yaml")).values()) == {"skipped"}
    changed = {"graph": "skipped", "walks": "done", "mine": "done"}
    again = penstock.run_flow("night.yaml", variables={"length": "9"})
    assert (again.state, {name: one["state"] for name, one in again.stages.items()}) == (
        "passed",
        changed,
    )
    assert columns(min(Path("published/walks").glob("2*"))) == published
    published = columns("published/walks/latest")
    assert max(map(len, published["path"])) == 9
    answer = command("run night.yaml --set least=1000 --set length=5 --json -q")
    report = json.loads(answer.stdout)
    assert (answer.returncode, report["state"]) == (1, "failed")
    gates = report["stages"]["graph"]["gates"]
    assert [gate["met"] for gate in gates] == [False, True]
    assert gates[0]["value"] == first["stages"]["graph"]["metrics"]["nodes"]
    assert columns("published/walks/latest") == published
    assert [one["state"] for one in run("runs list")] == ["passed", "passed", "passed", "failed"]
    shown = run("runs show latest")
    assert (shown["flow"], shown["state"]) == ("night", "failed")
    page = Path(run("report --out page.html")["report"]).read_text()
    assert "<html" in page
    assert "night" in page
    removed = run("runs clean --keep 1")["removed"]
    assert (len(removed), len(run("runs list"))) == (2, 2)  # the last that passed stays


@pytest.mark.usefixtures("_flow")
def test_schedules_are_added_and_listed():
    run("schedule add night.yaml --state state")
    (entry,) = run("schedule list --state state")
    due = datetime.fromisoformat(entry["next"])
    assert (entry["name"], entry["cron"], due.hour, due.minute) == ("night", "30 2 * * *", 2, 30)


def test_the_schema_knows_every_job():
    schema = json.loads(command("schema").stdout)
    stages = {"g": {"job": "etl", "input": "e"}, "w": {"job": "walk", "input": "g", "length": 3}}
    jsonschema.validate({"name": "n", "stages": stages}, schema)
    stages["w"]["lenght"] = 3
    known = jsonschema.validators.validator_for(schema)(schema)
    assert not known.is_valid({"name": "n", "stages": stages})


COMMANDS = set(
    "centrality cluster completion demo doctor embed etl generate gnn info init order partition "
    "publish report run runs schedule schema similar validate vectors walk word2vec".split()
)
SILENT = {"demo", "completion", "schema"}  # without --json, or slow


def test_the_command_lists_its_commands_and_their_keys_are_stored():
    lines = command("--help").stdout.splitlines()
    assert {
        line.split()[0] for line in lines if line[:2] == "  " and line[2] not in " -"
    } == COMMANDS
    assert {name.split()[0] for name in load()["keys"]} == COMMANDS - SILENT
    assert command("--version").stdout.split()[-1] == penstock.__version__
    for words in ("walk --help", "completion bash"):
        answer = command(words)
        assert (answer.returncode, "penstock" in answer.stdout) == (0, True)
