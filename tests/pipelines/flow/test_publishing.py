"""Publishing: all places or none, whatever fails and wherever it is killed."""

import datetime as dt
import json
import subprocess
import sys

import fsspec
import pytest
from made import make_outputs

from penstock.errors import OutputExists, PenstockError, PenstockWarning
from penstock.pipelines.cli import run as main
from penstock.pipelines.flow import run_flow
from penstock.pipelines.flow.places import Place
from penstock.pipelines.flow.records import all_runs

MODULE = """
import os, signal
from penstock.pipelines.flow.places import Place

def make(out, value=1):
    raise AssertionError("it is made already")

def write(out, value=1):
    out.write_text(str(value))

def die_at(step, count):
    original, calls = getattr(Place, step), []
    def dying(self, *given):
        calls.append(self)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        original(self, *given)
    setattr(Place, step, dying)
"""
FLOW = """
name: night
folder: out
variables: {value: 1}
stages:
  a: {python: "mine:make", value: "{{value}}", publish: [to/a, "memory://bucket/to"]}
  b: {python: "mine:make", value: "{{value}}", publish: to/b}
"""
ONE = """
name: NAME
folder: out-NAME
variables: {value: 1}
stages: {a: {python: "mine:make", value: "{{value}}", publish: pub}}
"""


@pytest.fixture
def home(tmp_path):
    fsspec.filesystem("memory").store.clear()
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "flow.yaml").write_text(FLOW)
    return tmp_path


def one(home, name="one"):
    path = home / f"{name}.yaml"
    path.write_text(ONE.replace("NAME", name))
    return path


def publish(flow, value, date=None, **options):
    make_outputs(flow, date, value=str(value))
    return run_flow(flow, variables={"value": str(value)}, date=date, **options)


def on(day):
    return dt.date(2026, 11, day)


def seen(place):
    """Return what a reader of a folder finds."""
    return (place / "latest/v").read_text() if (place / "latest").exists() else None


def seen_at_url():
    system = fsspec.filesystem("memory")
    if not system.exists("/bucket/to/latest.json"):
        return None
    latest = json.loads(system.cat("/bucket/to/latest.json"))["latest"]
    return str(system.cat(f"/bucket/to/{latest}/v").decode())


def all_seen(home):
    return [seen(home / "to/a"), seen_at_url(), seen(home / "to/b")]


def versions(place):
    return sorted(one.read_text() for one in place.glob("[!.]*/v") if one.parent.name != "latest")


def test_readers_find_the_newest_and_the_one_before_stays(home):
    for value in "123":
        publish(home / "flow.yaml", value)
        assert all_seen(home) == [value] * 3
    assert versions(home / "to/a") == ["2", "3"]
    system = fsspec.filesystem("memory")
    latest = json.loads(system.cat("/bucket/to/latest.json"))
    folders = {name.rpartition("/")[2] for name in system.ls("/bucket/to", detail=False)}
    assert folders == {latest["latest"], *latest["previous"], "latest.json"}
    assert len(latest["previous"]) == 1
    system.rm(f"/bucket/to/{latest['previous'][0]}", recursive=True)
    assert main(["publish", "--rollback", "memory://bucket/to"]) == 1  # there is nothing before
    assert seen_at_url() == "3"


def test_readers_keep_the_latest_date_and_a_backfill_changes_it_alone(home):
    flow = one(home)
    for value, day in (1, 27), (2, 28):
        publish(flow, value, date=on(day))
    with pytest.warns(PenstockWarning):
        said = publish(flow, 3, date=on(27)).published
    assert [(one["stage"], one["stays"][:10]) for one in said] == [("a", "2026-11-28")]
    assert (seen(home / "pub"), versions(home / "pub")) == ("2", ["1", "2"])
    publish(flow, 3, date=on(28))
    assert (seen(home / "pub"), versions(home / "pub")) == ("3", ["2", "3"])
    assert publish(flow, 3, date=on(29)).published == []


def test_what_is_unchanged_is_not_published_again(home):
    publish(home / "flow.yaml", 1)
    before = (home / "to/a/latest").readlink()
    publish(home / "flow.yaml", 1)
    assert (home / "to/a/latest").readlink() == before
    assert all_runs(home / "runs")[-1].body["published"] == []


def damaged(place):
    (place / "latest/v").write_text("")


def gone(place):
    (place / "latest").unlink()


@pytest.mark.parametrize("harm", [damaged, gone])
def test_what_is_damaged_or_gone_is_published_again(home, harm):
    publish(one(home), 1)
    harm(home / "pub")
    publish(one(home), 1)
    assert seen(home / "pub") == "1"


def test_a_file_is_published_in_a_folder(home):
    flow = one(home)
    flow.write_text(flow.read_text().replace("mine:make", "mine:write"))
    run_flow(flow)
    assert (home / "pub/latest/a").read_text() == "1"


# All or none


def fail_at(monkeypatch, step, count):
    original, calls = getattr(Place, step), []

    def failing(self, *given):
        calls.append(self)
        if len(calls) == count:
            raise PenstockError("no luck")
        original(self, *given)

    monkeypatch.setattr(Place, step, failing)


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("step", ["put", "move"])
def test_the_next_run_publishes_what_one_could_not(home, step, count, monkeypatch):
    """If a copy fails, no place moves."""
    publish(home / "flow.yaml", 1)
    with monkeypatch.context() as patch:
        fail_at(patch, step, count)
        with pytest.raises(PenstockError):
            publish(home / "flow.yaml", 2)
    assert all_runs(home / "runs")[-1].state == "failed"
    if step == "put":
        assert all_seen(home) == ["1"] * 3
    publish(home / "flow.yaml", 2)
    assert all_seen(home) == ["2"] * 3


def test_the_next_date_moves_what_is_left_at_a_place_of_the_date_before(home, monkeypatch):
    flow = one(home)
    flow.write_text(flow.read_text().replace("publish: pub", 'publish: "pub/{{date}}"'))
    with monkeypatch.context() as patch:
        fail_at(patch, "move", 1)
        with pytest.raises(PenstockError):
            publish(flow, 1, date=on(27))
    publish(flow, 1, date=on(28))
    assert [seen(home / f"pub/2026-11-{day}") for day in (27, 28)] == ["1", "1"]


@pytest.mark.parametrize(("step", "count", "new"), [("put", 2, False), ("move", 2, True)])
def test_a_run_that_is_killed_while_it_publishes(home, step, count, new):
    flow = home / "flow.yaml"
    flow.write_text(flow.read_text().replace(', "memory://bucket/to"', ", to/c"))
    publish(flow, 1)
    code = (
        "import sys; sys.path.append('.'); import mine; from penstock.pipelines.flow import "
        f"run_flow; mine.die_at('{step}', {count}); run_flow('flow.yaml', "
        "variables={'value': '2'})"
    )
    make_outputs(flow, value="2")
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=home, timeout=120)
    assert done.returncode == -9
    found = [seen(home / "to" / name) for name in "abc"]
    assert sorted(map(str, found)) == (["1", "1", "2"] if new else ["1"] * 3)
    publish(flow, 1)  # the run before is completed first, and then its own is published
    assert [seen(home / "to" / name) for name in "abc"] == ["1"] * 3
    assert versions(home / "to/b") == (["1", "2"] if new else ["1"])


# Places of others


def test_a_folder_that_is_not_a_place_is_refused_before_anything_runs(home):
    (home / "pub").mkdir()
    (home / "pub/v").write_text("theirs")
    flow = one(home)
    assert main(["run", str(flow), "--plan"]) == 0
    assert main(["run", str(flow), "-q", "--no-report"]) == 1
    assert not (home / "out-one/a").exists()
    assert (home / "pub/v").read_text() == "theirs"


def test_two_flows_do_not_take_turns_at_a_place(home):
    publish(one(home), 1)
    with pytest.raises(OutputExists):
        run_flow(one(home, "two"))
    assert not (home / "out-two/a").exists()
    publish(one(home, "two"), 2, replace_targets=True, date=on(1))  # also of an earlier date
    assert seen(home / "pub") == "2"
    with pytest.raises(OutputExists):  # all of its own is as it was, but its place is not
        publish(one(home), 1)
    publish(one(home), 1, replace_targets=True)
    assert seen(home / "pub") == "1"
    copy = home / "copy"
    copy.mkdir()
    flow = one(copy)  # of the same name
    flow.write_text(flow.read_text().replace("publish: pub", "publish: ../pub"))
    with pytest.raises(OutputExists):
        publish(flow, 2)
    assert seen(home / "pub") == "1"


# By hand


def test_a_publication_is_rolled_back_and_stays_so(home):
    for value in "12":
        publish(one(home), value)
    assert main(["publish", "--rollback", str(home / "pub"), "-q"]) == 0
    assert seen(home / "pub") == "1"
    publish(one(home), 2)  # unchanged since it was rolled back
    assert seen(home / "pub") == "1"
    publish(one(home), 3)
    assert seen(home / "pub") == "3"
    assert versions(home / "pub") == ["1", "3"]  # what readers had until now


def test_an_output_is_published_by_hand(home, capsys):
    run, other = publish(one(home), 1).run, home / "other"
    words = ["publish", str(run), "a", f"file://{other}", "-q"]
    for _ in range(2):  # the second time it is there
        assert main(words) == 0
        assert versions(other) == ["1"]
    (other / "latest/v").write_text("12")
    damaged = (other / "latest").readlink()
    assert main(words) == 0
    assert (seen(other), versions(other)) == ("1", ["1", "12"])
    assert main(["publish", "--rollback", f"file://{other}", "-q"]) == 0
    assert (other / "latest").readlink() == damaged
    (other / "latest.json").write_text("{")
    assert main(words) == 1
    assert str(other / "latest.json") in capsys.readouterr().err
    (other / "latest.json").unlink()
    (home / "out-one/a/v").write_text("cut off")
    assert main(words) == 1
    publish(one(home), 2)
    assert main(words) == 1  # the output is another run's now
    assert main(["publish", str(run)]) == 2
