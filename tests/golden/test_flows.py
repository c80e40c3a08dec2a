"""run, runs, report, schedule, schema, doctor and the command itself: exit codes, errors, keys."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

import jsonschema
import pytest
from golden import check_keys, columns, command, follows, keys, run, start

import penstock

FLOW = """
name: night
folder: out
variables: {length: 6, least: 100}
schedule: {cron: "30 2 * * *", timezone: Europe/Zurich, retries: 2}
stages:
  graph: {job: etl, input: e.parquet, expect: {nodes: ">= {{least}}"}}
  walks: {job: walk, input: graph, length: "{{length}}", publish: published/walks}
  central: {job: centrality, input: graph, metrics: pagerank, expect: {nodes: within 5 % of previous}}
  mine: {python: "mine:count", input: walks, expect: {walks: ">= 1"}}
"""
MINE = """
import pyarrow.parquet as pq
def count(walks, out):
    out.write_text("counted")
    return {"walks": pq.read_table(walks).num_rows}
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    follows().to_parquet(tmp_path / "e.parquet")
    (tmp_path / "night.yaml").write_text(FLOW)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def states(report: dict) -> dict[str, str]:
    return {name: stage["state"] for name, stage in report["stages"].items()}


def test_a_flow_runs_what_changed_and_publishes_what_passed(flow: Path) -> None:
    plan = run("run night.yaml --plan", folder=flow)
    assert {one["name"]: one["runs"] for one in plan["stages"]} == dict.fromkeys(
        ("graph", "walks", "central", "mine"), True
    )
    first = run("run night.yaml", folder=flow)
    assert first["state"] == "passed"
    assert set(states(first).values()) == {"done"}
    run("walk out/graph alone --length 6", folder=flow)
    published = columns(flow / "published" / "walks")
    assert published == columns(flow / "alone")
    assert set(states(run("run night.yaml", folder=flow)).values()) == {"skipped"}
    second = run("run night.yaml --set length=9", folder=flow)
    assert states(second) == {
        "graph": "skipped",
        "central": "skipped",
        "walks": "done",
        "mine": "done",
    }
    assert columns(flow / "published" / "walks.previous") == published
    published = columns(flow / "published" / "walks")
    assert max(map(len, published["path"])) == 9
    answer = command("run night.yaml --set least=1000 --set length=5 --json -q", folder=flow)
    report = json.loads(answer.stdout)
    assert (answer.returncode, report["state"]) == (1, "failed")
    (gate,) = report["stages"]["graph"]["gates"]
    assert (gate["met"], gate["value"]) == (False, first["stages"]["graph"]["metrics"]["nodes"])
    assert columns(flow / "published" / "walks") == published
    listed = run("runs list", folder=flow)
    assert [one["state"] for one in listed] == ["passed", "passed", "passed", "failed"]
    shown = run("runs show latest", folder=flow)
    assert (shown["flow"], shown["state"]) == ("night", "failed")
    page = flow / run("report --out page.html", folder=flow)["report"]
    assert "<html" in page.read_text()
    assert "night" in page.read_text()
    removed = run("runs clean --keep 1", folder=flow)["removed"]
    assert len(removed) == 2  # the last that passed stays, as gates compare with it
    assert len(run("runs list", folder=flow)) == 2
    assert penstock.run_flow(flow / "night.yaml", variables={"length": "9"}).state == "passed"


def test_schedules_are_added_and_listed_and_removed(flow: Path) -> None:
    state = "--state state.sqlite"
    run(f"schedule add night.yaml {state}", folder=flow)
    (entry,) = run(f"schedule list {state}", folder=flow)
    assert (entry["name"], entry["cron"]) == ("night", "30 2 * * *")
    due = datetime.fromisoformat(entry["next"])
    assert (due.hour, due.minute) == (2, 30)
    assert command(f"schedule add night.yaml {state}", folder=flow).returncode != 0
    assert command(f"schedule remove night {state} -q", folder=flow).returncode == 0
    answer = command(f"schedule list {state} --json", folder=flow)
    assert json.loads(answer.stdout) == []
    for kind, sign in {
        "cron": "30 2 * * *",
        "systemd": "OnCalendar",
        "k8s": "CronJob",
        "airflow": "DAG",
    }.items():
        answer = command(f"schedule night.yaml --emit {kind}", folder=flow)
        assert answer.returncode == 0
        assert sign in answer.stdout


def test_the_schema_knows_every_job(flow: Path) -> None:
    schema = json.loads(command("schema").stdout)
    stages = {
        "g": {"job": "etl", "input": "e.parquet"},
        "w": {"job": "walk", "input": "g", "length": 3},
    }
    jsonschema.validate({"name": "n", "stages": stages}, schema)
    stages["w"]["lenght"] = 3
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "n", "stages": stages}, schema)


def test_doctor_finds_a_healthy_machine(tmp_path: Path) -> None:
    report = run("doctor . --no-bandwidth", folder=tmp_path)
    assert report["healthy"]
    assert {one["subject"]: one["state"] for one in report["findings"]}["Numba"] == "ok"
    assert {"etl", "walk", "gnn", "embed", "word2vec", "centrality"} <= set(
        report["allows"]["jobs"]
    )


COMMANDS = """centrality cluster completion demo doctor embed etl generate gnn info order partition
report run runs schedule schema similar validate walk word2vec""".split()
SILENT = {"demo", "completion", "schema"}  # without --json, or slow


def test_the_command_lists_its_commands_and_their_keys_are_stored() -> None:
    lines = command("--help").stdout.splitlines()
    listed = {line.split()[0] for line in lines if line.startswith("  ") and line[2] not in " -"}
    assert listed == set(COMMANDS)
    assert {name.split()[0] for name in keys()} == set(COMMANDS) - SILENT
    assert command("--version").stdout.split()[-1] == penstock.__version__
    for shell in ("bash", "zsh", "fish"):
        assert "penstock" in command(f"completion {shell}").stdout
    for name in COMMANDS:
        assert command(f"{name} --help").returncode == 0


CALLS = {
    "info {0}/missing": 1,
    "validate e.parquet": 1,
    "etl missing.parquet out": 1,
    "etl e.parquet out --source nope": 1,
    "etl bad.csv out": 1,
    "walk {0} out --start nobody": 1,
    "walk {0}/missing out": 1,
    "run missing.yaml": 2,
    "run bad.yaml": 2,
    "walk {0} out --app nope": 2,
    "walk {0} out --length 0": 2,
    "walk {0} out --placement replicated --parts 2": 2,
    "walk {0}": 2,
    "partition {0}": 2,
    "order -k 5 --method cover": 2,
    "embed train {0} out --beta1 0.9": 2,
    "nope": 2,
    "info {0} --nope": 2,
}


def test_exit_codes_and_errors(given: Path, flow: Path) -> None:
    (flow / "bad.csv").write_text("src,dst\n1,2\n3,\n")
    (flow / "bad.yaml").write_text("name: n\nstages:\n  a: {job: nope}\n")
    codes = {}
    for words in CALLS:
        answer = command(words.format(given / "weighted"), "--json", "-q", folder=flow)
        codes[words] = answer.returncode
        assert answer.stderr.startswith("penstock: ")
        assert "Traceback" not in answer.stderr
        assert set(json.loads(answer.stdout)) == {"error", "what", "expected", "got", "remedy"}
        assert not (flow / "out").exists()
    assert codes == CALLS
    assert "bad.csv" in command("etl bad.csv out", folder=flow).stderr
    assert "nobody" in command(f"walk {given / 'weighted'} out --start nobody").stderr


def test_a_process_of_its_own_ends_with_these_codes(given: Path, tmp_path: Path) -> None:
    for words, code in {f"info {given / 'one'}": 0, "info missing": 1, "info --nope": 2}.items():
        with start(f"{words} --json", folder=tmp_path) as process:
            out, err = process.communicate(timeout=120)
        assert process.returncode == code
        assert ("penstock: " in err) == (code > 0)
        if code == 0:
            check_keys("info", json.loads(out))


def test_an_output_that_is_there_is_replaced_only_if_asked(given: Path, tmp_path: Path) -> None:
    words = f"walk {given / 'one'} out --length 4 --json -q"
    assert command(words, folder=tmp_path).returncode == 0
    first = columns(tmp_path / "out")
    answer = command(words + " --seed 1", folder=tmp_path)
    assert answer.returncode == 1
    assert json.loads(answer.stdout)["error"] == "OutputExists"
    assert columns(tmp_path / "out") == first
    assert command(words + " --seed 1 --overwrite", folder=tmp_path).returncode == 0
    assert columns(tmp_path / "out") != first
    plan = run(f"walk {given / 'one'} other --plan", folder=tmp_path)
    assert plan["disk_bytes"] > 0
    assert not (tmp_path / "other").exists()
