"""Flows that run: skipping, dependencies, gates, publishing, kills and resume."""

import datetime as dt
import json
import os
import signal
import sys
import time
from pathlib import Path
from subprocess import DEVNULL
from zoneinfo import ZoneInfo

import psutil
import pytest
from made import make_outputs, make_record
from processes import ended, launch, until

from penstock.cluster.local import prepare_to_spawn
from penstock.errors import CapacityError, OutputExists, UsageError
from penstock.pipelines.cli import run
from penstock.pipelines.flow import run_flow
from penstock.pipelines.flow.document import read_flow
from penstock.pipelines.flow.document.commands import job_of
from penstock.pipelines.flow.records import RunRecord, all_runs, previous_metrics

MODULE = """
import json, os, time
def make(*given, value=1, fail=False, seconds=0, die=False):
    *inputs, out = given
    out.mkdir(parents=True, exist_ok=True)
    (out / "begun").write_text(str(os.getpid()))
    time.sleep(seconds)
    if die: os.kill(os.getpid(), 9)
    if fail: raise ValueError("no luck")
    total = value + sum(json.loads((i / "v.json").read_text()) for i in inputs)
    (out / "v.json").write_text(json.dumps(total))
    return {"total": total, "inner": {"value": value}}
"""
FLOW = """
name: small
parallel: 1
variables: {value: 1, fail: false, least: 0}
stages:
  a: {python: "mine:make", value: "{{value}}"}
  b: {python: "mine:make", input: a, expect: {total: ">= {{least}}"}, publish: pub/b}
  c: {python: "mine:make", fail: "{{fail}}"}
  d: {python: "mine:make", input: [b, c]}
"""
KNOWLEDGE = """
name: real
cluster: {cluster: threads}
stages:
  graph: {job: generate kg, entities: 100, triples: 800, relations: 3}
"""


@pytest.fixture
def home(tmp_path):
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "flow.yaml").write_text(FLOW)
    return tmp_path


def flow(home, text):
    path = home / "flow.yaml"
    path.write_text(text)
    return path


def states(report):
    return {name: one["state"] for name, one in report.stages.items()}


def test_a_failure_ends_only_what_depends_on_it_and_says_why(home, capsys):
    path = home / "flow.yaml"
    assert run(["run", str(path), "--set", "fail=true"]) == 1
    said = capsys.readouterr()
    assert "no luck" in said.err
    record = all_runs(home / "runs")[-1]
    stages = record.body["stages"]
    assert [stages[name]["state"] for name in "abcd"] == ["done", "done", "failed", "not run"]
    assert not (home / "pub").exists()
    assert "no luck" in (record.folder / "logs/c.log").read_text()
    assert run(["run", str(path), "-q"]) == 0
    mended = all_runs(home / "runs")[-1].body["stages"]
    assert [mended[name]["state"] for name in "abcd"] == ["skipped", "skipped", "done", "done"]


@pytest.mark.slow
def test_only_some_stages_run(home, capsys):
    path = home / "flow.yaml"
    with pytest.raises(UsageError):
        run_flow(path, first="z")
    alone = run_flow(path, only=("c",))
    assert alone.stages["c"]["state"] == "done"
    assert alone.state == "passed"
    assert states(alone) == {"a": "not chosen", "b": "not chosen", "c": "done", "d": "not chosen"}
    assert not (home / "pub").exists()  # a flow that is only partly up to date
    refused = run_flow(path, only=("b",))
    assert refused.state == "failed"
    assert run(["run", str(path), "--only", "b", "--plan", "--json"]) == 0
    plan = {one["name"]: one["problem"] for one in json.loads(capsys.readouterr().out)["stages"]}
    assert plan.pop("a")
    assert set(plan.values()) == {None}
    assert states(refused) == {"a": "failed", "b": "not run", "c": "skipped", "d": "not chosen"}
    assert refused.stages["a"]["error"]["what"]
    run_flow(path)
    rest = run_flow(path, first="b", force=True)
    assert states(rest) == {"a": "skipped", "b": "done", "c": "skipped", "d": "done"}


def test_a_changed_module_or_a_changed_file_makes_a_stage_run(home, capsys):
    (home / "in").mkdir()
    (home / "in/v.json").write_text("1")
    path = flow(home, 'stages: {a: {python: "mine:make", input: in}}')
    make_outputs(path)

    def planned():
        capsys.readouterr()
        assert run(["run", str(path), "--plan", "--json"]) == 0
        (stage,) = json.loads(capsys.readouterr().out)["stages"]
        return stage["why"] if stage["runs"] else ""

    assert not planned()
    os.utime(home / "in/v.json")  # the content is the same
    assert not planned()
    (home / "in/v.json").write_text("2")
    assert planned()
    make_outputs(path)
    (home / "mine.py").write_text(MODULE + "\n# a comment")
    assert not planned()
    (home / "mine.py").write_text(MODULE + "\nmore = 1")
    assert "mine.py" in planned()
    make_outputs(path)
    (home / "flow/a/v").unlink()
    assert planned()
    make_outputs(path)
    record = home / "flow/.flow/a.json"  # as an earlier version had made it
    record.write_text(json.dumps(json.loads(record.read_text()) | {"key": "0" * 64}))
    assert planned()


def test_files_in_a_scratch_folder_are_no_input(home):
    (home / "edges.csv").write_text("src,dst\n1,2\n2,3\n")
    (home / "scratch").mkdir()
    path = flow(home, "stages: {a: {job: etl, input: edges.csv, scratch: scratch}}")
    make_outputs(path)
    (home / "scratch/others").touch()
    assert states(run_flow(path)) == {"a": "skipped"}


def test_a_stage_whose_job_gives_other_results_now_runs_again(home, capsys, monkeypatch):
    path = flow(home, KNOWLEDGE)
    make_outputs(path)
    for version, runs in ((job_of("generate kg").version, False), (9, True)):
        monkeypatch.setattr(job_of("generate kg"), "version", version)
        assert run(["run", str(path), "--plan", "--json"]) == 0
        (planned,) = json.loads(capsys.readouterr().out)["stages"]
        assert planned["runs"] == runs


def test_a_stage_that_dies_is_run_again_and_one_that_takes_too_long_is_stopped(home):
    (home / "mine.py").write_text("""
import os, time
def flaky(out):
    out.mkdir(exist_ok=True)
    tries = len(list(out.iterdir()))
    (out / str(tries)).write_text("")
    if tries < 1: os.kill(os.getpid(), 9)
    return {"tries": tries}
def hangs(out): time.sleep(1000)
""")
    text = "{a: {python: 'mine:flaky', retries: 2}, b: {python: 'mine:hangs', timeout: 2}}"
    report = run_flow(flow(home, f"stages: {text}"))
    assert states(report) == {"a": "done", "b": "failed"}
    assert report.stages["a"]["metrics"] == {"tries": 1.0}


def test_gates_compare_with_the_last_run_that_passed(home):
    text = """
variables: {v: 100}
stages: {a: {python: "mine:make", value: "{{v}}", expect: {total: within 5 % of previous}}}
"""
    path = flow(home, text)

    def night(day, value, **more):
        date = dt.date(2026, 11, day)
        make_outputs(path, date, v=str(value))
        return run_flow(path, variables={"v": str(value)}, date=date, **more)

    assert night(2, 100).state == "passed"
    assert night(3, 104).state == "passed"
    far = night(4, 110)
    assert far.state == "failed"
    assert far.stages["a"]["gates"][0]["previous"] == 104
    assert night(5, 109).state == "passed"  # of 104, not of 110
    assert night(3, 100).stages["a"]["gates"][0]["previous"] == 100  # never of a later day
    assert night(1, 500).state == "passed"  # there is no day before
    step = night(6, 200, accept=("a",), reason="the new source")
    assert (step.state, step.stages["a"]["accepted"]) == ("passed", "the new source")
    assert night(7, 201).state == "passed"


def test_a_range_of_dates_runs_day_by_day(home, capsys):
    text = """
timezone: Pacific/Kiritimati
folder: "out/{{date}}"
stages: {a: {python: "mine:make", value: 1}}
"""
    path = flow(home, text)
    today = dt.datetime.now(ZoneInfo("Pacific/Kiritimati")).date()
    days = [dt.date(2026, 11, 1), dt.date(2026, 11, 2), today]
    for day in days:
        make_outputs(path, day)
    assert run(["run", str(path), "--dates", "2026-11-01..2026-11-02", "-q", "--no-report"]) == 0
    assert run(["run", str(path), "-q", "--no-report"]) == 0
    assert [one.date for one in all_runs(home / "runs")] == [day.isoformat() for day in days]
    capsys.readouterr()
    words = ["runs", "list", "--json", "--folder", str(home / "runs")]
    assert run([*words, "--date", "2026-11-02"]) == 0
    assert [one["date"] for one in json.loads(capsys.readouterr().out)] == ["2026-11-02"]
    assert run([*words, "--state", "bogus"]) == 2
    for wrong in (["--dates", "2026-11-02..2026-11-01"], ["--date", "1.11."], ["--accept", "a"]):
        assert run(["run", str(path), *wrong]) == 2


def test_more_gpus_than_there_are_are_refused_before_anything_runs(home):
    with pytest.raises(CapacityError):
        run_flow(flow(home, 'stages: {a: {python: "mine:make", gpus: 64}}'))
    assert not (home / "flow").exists()


def start(home):
    """Run a flow; return its process once its stage a has begun."""
    process = launch("run", home / "flow.yaml", cwd=home.parent, stdout=DEVNULL, stderr=DEVNULL)
    begun = home / "flow/a/begun"
    until(lambda: begun.exists() and begun.stat().st_size, process, 60)
    return process


@pytest.mark.parametrize(
    ("number", "times"),
    [
        pytest.param(signal.SIGKILL, 1, marks=pytest.mark.slow),
        (signal.SIGTERM, 1),
        pytest.param(signal.SIGINT, 1, marks=pytest.mark.slow),
        pytest.param(signal.SIGINT, 20, marks=pytest.mark.slow),
    ],
)
def test_a_flow_that_is_ended_takes_its_stages_along_and_runs_again(home, number, times):
    text = 'stages: {a: {python: "mine:make", seconds: %d}, b: {python: "mine:make"}}'
    flow(home, text % 100)
    process = start(home)
    stage = psutil.Process(int((home / "flow/a/begun").read_text()))
    with pytest.raises(OutputExists):  # two runs never meet
        run_flow(home / "flow.yaml")
    for _ in range(times):  # one alone may be heard as the same as the one before it
        process.send_signal(number)
        time.sleep(0.02 * (times > 1))
    process.wait(60)
    stage.wait(60)
    assert not stage.is_running()
    ended = all_runs(home / "runs")[-1]
    assert ended.state == ("killed" if number == signal.SIGKILL else "interrupted")
    assert ended.stages["a"]["state"] == ended.state  # it did nothing wrong: it has not failed
    assert run(["runs", "list", "--folder", str(home / "runs")]) == 0
    report = run_flow(flow(home, text % 0))
    assert report.state == "passed"
    assert report.stages["a"]["state"] == "done"


@pytest.mark.slow
def test_a_stage_that_was_interrupted_may_replace_an_older_output(home):
    text = KNOWLEDGE
    text += "  walks: {job: walk, input: graph}\n"
    text += "  vectors: {job: embed, input: graph, dim: 8, epochs: 2, batch: 100}\n"
    path = flow(home, text)
    assert run_flow(path).state == "passed"
    trained = (home / "real/vectors/run.json").read_bytes()
    for name in ("walks", "vectors"):  # killed just before their ends were noted
        record = home / f"real/.flow/{name}.json"
        body = json.loads(record.read_text())
        record.write_text(json.dumps({"key": body["key"], "by": body["by"]}))
    again = run_flow(path)
    assert again.state == "passed", again.stages
    assert again.stages["walks"]["state"] == "done"
    assert (home / "real/vectors/run.json").read_bytes() == trained, "nothing was left to train"


@pytest.mark.slow
def test_a_training_run_that_failed_without_a_checkpoint_begins_again(home):
    """It has restored the run that it was to replace, which it cannot resume."""
    text = KNOWLEDGE + "  vectors: {job: embed, input: graph, dim: 8, epochs: 2, batch: 100%s}\n"
    assert run_flow(flow(home, text % "")).state == "passed"
    before = (home / "real/vectors/run.json").read_bytes()
    for lr in ("1.e+30, retries: 1", "1.e+30", "2.e+30"):
        failed = run_flow(flow(home, text % f", optimizer: sgd, lr: {lr}"))
        assert "NaN or infinite in epoch 1" in failed.stages["vectors"]["error"]["what"]
        assert (home / "real/vectors/run.json").read_bytes() == before
    report = run_flow(flow(home, text % ", seed: 1"))
    assert report.state == "passed", report.stages
    assert (home / "real/vectors/run.json").read_bytes() != before


def test_a_plan_writes_nothing_and_says_what_would_run(home, capsys):
    path = home / "flow.yaml"
    assert run(["run", str(path), "--plan", "--json"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert [one["runs"] for one in body["stages"]] == [True] * 4
    assert not (home / "small").exists()
    assert not (home / "runs").exists()
    make_outputs(path)
    assert run(["run", str(path), "--plan", "--json", "--set", "value=3"]) == 0
    body = json.loads(capsys.readouterr().out)
    assert {one["name"]: one["runs"] for one in body["stages"]} == {
        "a": True,
        "b": True,
        "c": False,
        "d": True,
    }


def test_a_hook_knows_how_the_run_ended_and_may_publish_it(home):
    text = f"""
on_success: >-
  echo "$PENSTOCK_RUN_STATE" > hook.txt;
  {sys.executable} -P -m penstock publish "$PENSTOCK_RUN" a pub -q
on_failure: echo "$PENSTOCK_RUN_STATE" > failed
stages: {{a: {{python: "mine:make"}}}}
"""
    make_outputs(flow(home, text))
    assert run(["run", str(home / "flow.yaml"), "-q"]) == 0
    assert (home / "hook.txt").read_text() == "passed\n"
    assert (home / "pub/latest/v").exists()
    assert not (home / "failed").exists()


def test_a_hook_that_hangs_ends_with_its_children_and_the_metrics_were_written_before_it(home):
    text = """
hook_timeout: 1
on_success: cp -n runs/flow.prom hook.txt; sleep 100 & echo $! > child; wait
stages: {a: {python: "mine:make"}, b: {python: "mine:make", value: 1}}
"""
    make_outputs(flow(home, text))
    assert run_flow(home / "flow.yaml").state == "passed"
    assert "penstock_run_passed" in (home / "hook.txt").read_text()
    child = int((home / "child").read_text())
    assert ended(child)
    flow(home, text.replace("value: 1", "value: 2"))
    run_flow(home / "flow.yaml", only=("a",))  # a part of the flow
    assert (home / "runs/flow.prom").read_text() == (home / "hook.txt").read_text()


@pytest.mark.slow
def test_stages_share_one_cluster(home):
    text = """
cluster: {cluster: local, workers: 1}
stages:
  graph: {job: generate sbm, nodes: 1000}
  walks: {job: walk, input: graph, length: 5}
  more: {job: walk, input: graph, length: 6}
  bad: {python: "mine:make", fail: true}
"""
    read_flow(flow(home, text))
    prepare_to_spawn()  # it stays: with it among the others, they would all be waited for
    before = {one.pid for one in psutil.Process().children(recursive=True)}
    report = run_flow(home / "flow.yaml")
    assert states(report) == {"graph": "done", "walks": "done", "more": "done", "bad": "failed"}
    _, alive = psutil.wait_procs(
        [one for one in psutil.Process().children(recursive=True) if one.pid not in before], 10
    )
    assert [" ".join(one.cmdline()) for one in alive] == []


@pytest.mark.slow
def test_what_was_made_anew_is_read_and_published_anew(home):
    """A function may return something else each time: its key alone does not show it."""
    (home / "mine.py").write_text("""
import time
def fetch(out):
    out.mkdir(exist_ok=True)
    (out / "v").write_text(str(time.time_ns()))
def copy(given, out):
    out.mkdir(exist_ok=True)
    (out / "v").write_text((given / "v").read_text())
""")
    path = flow(
        home,
        """
folder: out
stages:
  a: {python: "mine:fetch", publish: pub/a}
  b: {python: "mine:copy", input: a}
""",
    )
    run_flow(path)
    run_flow(path, only=("a",), force=True)
    last = run_flow(path)
    assert states(last) == {"a": "skipped", "b": "done"}
    now = (home / "out/a/v").read_text()
    assert (home / "out/b/v").read_text() == (home / "pub/a/latest/v").read_text() == now
    assert set(states(run_flow(path)).values()) == {"skipped"}


def test_what_a_function_prints_raises_and_leaves_behind(home):
    (home / "mine.py").write_text("""
import os, subprocess, sys, time
def prints(out):
    print("printed")
    return {"n": 1}
def exits(out): sys.exit("enough")
def leaves(out): os._exit(0)
def raises(out): raise KeyError("lost")
def asks(out): input("sure? ")
def starts(out, hang=False):
    child = subprocess.Popen(["sleep", "1000"])
    out.with_suffix(".child").write_text(str(child.pid))
    time.sleep(1000 * hang)
""")
    names = ("asks", "prints", "exits", "leaves", "raises")
    stages = "".join(f"\n  {name}: {{python: 'mine:{name}'}}" for name in names)
    stages += "\n  starts: {python: 'mine:starts'}"
    stages += "\n  hangs: {python: 'mine:starts', hang: true, timeout: 4}"
    report = run_flow(flow(home, f"parallel: 2\nstages: {stages}"))
    well = {"prints": "done", "starts": "done"}
    assert states(report) == dict.fromkeys([*names, "hangs"], "failed") | well
    assert report.stages["prints"]["metrics"] == {"n": 1.0}
    logs = {one.stem: one.read_text() for one in Path(report.run).glob("logs/*")}
    assert "printed" in logs["prints"]
    assert "in raises" in logs["raises"]  # the traceback
    assert ended(*(int(one.read_text()) for one in (home / "flow").glob("*.child")))


@pytest.mark.slow
def test_a_stage_that_does_not_hear_that_its_flow_is_gone_is_killed(home):
    """Its flow is killed, and the stage catches all signals."""
    (home / "mine.py").write_text("""
import os, signal, subprocess, time
def deaf(out):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "1000"])
    out.mkdir()
    (out / "new").write_text(f"{os.getpid()} {child.pid}")
    (out / "new").rename(out / "begun")
    time.sleep(1000)
""")
    flow(home, 'stages: {a: {python: "mine:deaf"}}')
    process = start(home)
    alive = [int(pid) for pid in (home / "flow/a/begun").read_text().split()]
    process.kill()
    process.wait(60)
    assert ended(*alive, seconds=60)


REGIONS = """
variables: {region: ch, n: 1}
folder: "out/{{region}}/{{date}}"
stages: {a: {python: "mine:make", value: "{{n}}", expect: {total: within 10 % of previous}}}
"""


def test_runs_with_other_variables_in_another_folder_are_not_compared_and_a_flow_may_move(home):
    def night(region, n, day):
        given, date = {"region": region, "n": str(n)}, dt.date(2026, 11, day)
        make_outputs(home / "flow.yaml", date, **given)
        return run_flow(home / "flow.yaml", variables=given, date=date)

    flow(home, REGIONS)
    assert [night("ch", 100, 27).state, night("de", 900, 27).state] == ["passed", "passed"]
    assert night("ch", 101, 28).stages["a"]["gates"][0]["previous"] == 100
    home = home.rename(home.with_name(f"{home.name}-moved"))
    assert night("ch", 500, 29).state == "failed"


def test_a_run_of_another_host_that_is_gone_was_killed(home):
    folder = home / "runs/f-20261128-040000"
    make_record(folder, series="f", state="running", host="gone", process=1)
    (folder / "flow.yaml").touch()
    assert [one.state for one in all_runs(home / "runs")] == ["killed"]


def test_cleaning_keeps_the_newest_days_and_what_others_look_up(home):
    base, part = home / "runs", {"a": {"job": "walk", "state": "not chosen"}}
    published = {"stage": "a", "place": "pub", "version": "2026-11-11-f"}
    days = {
        "20261128-040000": {"date": "2026-11-28"},
        "20261129-010000": {"date": "2026-11-10"},  # of a backfill
        "20261129-020000": {"date": "2026-11-11", "published": [published]},
        "20261129-030000": {"date": "2026-11-12", "scheduled": "nightly"},
        "20261129-040000": {"date": "2026-11-29", "stages": part},
        "20261129-050000": {"date": "2026-11-01", "series": "other"},
    }
    for name, more in days.items():
        make_record(base / f"f-{name}", **{"series": "f", **more})
    assert run(["runs", "clean", "--keep", "1", "--folder", str(base), "-q"]) == 0
    gone = set(days) - {one.name[2:] for one in all_runs(base)}
    assert gone == {"20261129-010000"}


def test_runs_are_ordered_and_compared_over_summer_time(home):
    """At the end of summer time the hour from 2 to 3 comes twice: later is not always larger."""
    base = home / "runs"
    for name, began, value in (
        ("f-20261025-023000", "2026-10-25T02:30:00+02:00", 1),
        ("f-20261025-021500", "2026-10-25T02:15:00+01:00", 2),
    ):
        body = {"date": began[:10], "began": began, "series": "f"}
        stages = {"a": {"job": "walk", "state": "done", "metrics": {"m": value}}}
        make_record(base / name, stages=stages, **body)
    assert [one.name for one in all_runs(base)][-1] == "f-20261025-021500"
    now = {"flow": "f", "series": "f", "date": "2026-10-26", "began": "2026-10-26T02:00:00+01:00"}
    assert previous_metrics(RunRecord(base / "now", now), "a") == {"m": 2}
