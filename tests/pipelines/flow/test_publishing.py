"""Publishing: all targets or none, whatever fails and wherever it is killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from penstock import output
from penstock.errors import OutputExists, PenstockError, UsageError
from penstock.pipelines.cli import run as main
from penstock.pipelines.flow import run_flow
from penstock.pipelines.flow.publishing import Item, Publication, targets
from penstock.pipelines.flow.publishing.targets import LocalTarget, RemoteTarget
from penstock.pipelines.flow.records import all_runs

NAMES = ("a", "b", "c")


def folder(path: Path, value: str) -> Path:
    path.mkdir(parents=True)
    (path / "v").write_text(value)
    return path


def publication(home: Path, noted: list[Any] | None = None) -> Publication:
    noted = [] if noted is None else noted
    return Publication(home / "journal.json", lambda *one: noted.append(one))


def publish(home: Path, output: Path, places: list[Path | str], run: str, keep: int = 1) -> None:
    items = [Item(f"s{n}", run, output, str(place)) for n, place in enumerate(places)]
    publication(home).publish(items, run, keep=keep)


def values(place: Path) -> dict[str, str]:
    there = [one for one in place.iterdir() if not one.name.startswith(".")]
    return {one.name: (one / "v").read_text() for one in there}


@pytest.fixture
def bucket() -> str:
    fsspec.filesystem("memory").store.clear()
    return "memory://bucket/out"


def pointed(url: str) -> str | None:
    system, root = fsspec.url_to_fs(url)
    if not system.exists(f"{root}/latest.json"):
        return None
    latest = json.loads(system.cat(f"{root}/latest.json"))["run"]
    return str(system.cat(f"{root}/{latest}/v").decode())


def test_as_many_earlier_ones_are_kept_as_told(tmp_path: Path) -> None:
    for day in "1234":
        publish(tmp_path, folder(tmp_path / day, day), [tmp_path / "to/here"], f"run-{day}", 2)
    assert values(tmp_path / "to") == {"here": "4", "here.previous": "3", "here.previous-2": "2"}
    publish(tmp_path, folder(tmp_path / "5", "5"), [tmp_path / "to/here"], "run-5", 0)
    assert (tmp_path / "to/here/v").read_text() == "5"
    assert not (tmp_path / "journal.json").exists()


def test_a_url_gets_its_pointer_last(tmp_path: Path, bucket: str) -> None:
    for day in "123":
        publish(tmp_path, folder(tmp_path / day, day), [bucket], f"run-{day}")
    system = fsspec.filesystem("memory")
    latest = json.loads(system.cat("/bucket/out/latest.json"))
    assert latest == {"run": "run-3", "previous": ["run-2"]}
    assert system.cat("/bucket/out/run-3/v") == b"3"
    assert not system.exists("/bucket/out/run-1")


def test_a_file_is_published_too(tmp_path: Path) -> None:
    for day in "12":
        (tmp_path / day).write_text(day)
        publish(tmp_path, tmp_path / day, [tmp_path / "to/here"], f"run-{day}")
    found = {one.name: one.read_text() for one in (tmp_path / "to").iterdir()}
    assert found == {"here": "2", "here.previous": "1"}


def test_a_place_within_the_output_is_refused(tmp_path: Path) -> None:
    out = folder(tmp_path / "out", "1")
    with pytest.raises(UsageError):
        publish(tmp_path, out, [out / "sub"], "run")
    assert (out / "v").read_text() == "1"


# All or none


@pytest.fixture(params=["exchange", "renames"])
def places(
    request: pytest.FixtureRequest, tmp_path: Path, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> list[Path | str]:
    """Three paths and a URL; the first path is new, and the others have been published once."""
    if request.param == "renames":
        monkeypatch.setattr(output, "exchange", lambda one, other: False)
        monkeypatch.setattr(targets, "exchange", lambda one, other: False)
    there: list[Path | str] = [tmp_path / "to" / name for name in NAMES]
    publish(tmp_path, folder(tmp_path / "1", "1"), [*there[1:], bucket], "run-1")
    return [*there, bucket]


def seen(places: list[Path | str]) -> list[str | None]:
    found: list[str | None] = []
    for one in places:
        if isinstance(one, str):
            found.append(pointed(one))
        else:
            found.append((one / "v").read_text() if one.exists() else None)
    return found


def steps() -> list[tuple[type, str, int]]:
    local = [(LocalTarget, name, n) for name in ("prepare", "swap") for n in (1, 2, 3)]
    return [*local, (RemoteTarget, "prepare", 1), (RemoteTarget, "swap", 1)]


def fail_at(
    monkeypatch: pytest.MonkeyPatch, kind: type, step: str, count: int, error: Callable[[], Any]
) -> None:
    """Have the nth call of a target's step fail: half of it is done."""
    original, calls = getattr(kind, step), []

    def failing(self: Any, *given: Any) -> None:
        calls.append(self)
        if len(calls) == count:
            if step == "prepare":
                original(self, *given)
            error()
        original(self, *given)

    monkeypatch.setattr(kind, step, failing)


def refuse() -> None:
    raise PenstockError("no luck")


@pytest.mark.parametrize(("kind", "step", "count"), steps())
def test_a_failure_takes_all_back(
    tmp_path: Path,
    places: list[Path | str],
    kind: type,
    step: str,
    count: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        fail_at(patch, kind, step, count, refuse)
        with pytest.raises(PenstockError):
            publish(tmp_path, folder(tmp_path / "2", "2"), places, "run-2")
    assert seen(places) == [None, "1", "1", "1"]
    assert sorted(os.listdir(tmp_path / "to")) == ["b", "c"]
    assert not (tmp_path / "journal.json").exists()
    assert not fsspec.filesystem("memory").exists("/bucket/out/run-2")
    publish(tmp_path, tmp_path / "2", places, "run-3")
    assert seen(places) == ["2"] * 4


class Killed(BaseException):
    """Ends at once, and nothing that stands in a handler is done."""


def kill() -> None:
    raise Killed


@pytest.mark.parametrize("renames", range(6))
@pytest.mark.parametrize(
    ("kind", "step", "count"),
    [*steps(), *[(LocalTarget, "settle", n) for n in (1, 2, 3)], (RemoteTarget, "settle", 1)],
)
def test_the_next_run_ends_what_a_kill_left(
    tmp_path: Path,
    places: list[Path | str],
    kind: type,
    step: str,
    count: int,
    renames: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Publication, "_give_up", lambda *given: None)
        fail_at(patch, kind, step, count, kill)
        if renames:  # earlier, if there are enough: between two renames
            renames_killed_after(patch, renames)
        with pytest.raises(Killed):
            publish(tmp_path, folder(tmp_path / "2", "2"), places, "run-2")
    noted: list[Any] = []
    said = publication(tmp_path, noted).recover()
    new = seen(places) == ["2"] * 4
    assert new or seen(places) == [None, "1", "1", "1"]
    assert said is not None
    assert ("complete now" in said) == new
    assert [one[2] for one in noted] == ["run-2"] * (4 if new else 0)
    if step == "settle":
        assert new or renames
    names = {"a", "b", "c", "b.previous", "c.previous"} if new else {"b", "c"}
    assert set(os.listdir(tmp_path / "to")) == names
    if new:
        assert (tmp_path / "to/b.previous/v").read_text() == "1"
    assert publication(tmp_path).recover() is None


def renames_killed_after(patch: pytest.MonkeyPatch, count: int) -> None:
    """Die after a number of renames of published files."""
    original, calls = Path.rename, []

    def rename(self: Path, other: Path) -> Path:
        found = original(self, other)
        if "journal" not in self.name:
            calls.append(self)
            if len(calls) == count:
                raise Killed
        return found

    patch.setattr(Path, "rename", rename)


def test_what_cannot_be_completed_is_taken_back(
    tmp_path: Path, places: list[Path | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Publication, "_give_up", lambda *given: None)
        fail_at(patch, LocalTarget, "swap", 3, kill)
        with pytest.raises(Killed):
            publish(tmp_path, folder(tmp_path / "2", "2"), places, "run-2")
    assert sorted(filter(None, seen(places))) == ["1", "2", "2", "2"]
    LocalTarget(str(places[2])).discard()  # a user cleaned up
    said = publication(tmp_path).recover()
    assert said is not None
    assert seen(places) == [None, "1", "1", "1"]


MODULE = """
import json, os, signal
from penstock.pipelines.flow.publishing.targets import LocalTarget

def make(out, value=1, kill=0):
    out.mkdir(parents=True, exist_ok=True)
    (out / "v").write_text(str(value))

def die_at(count):
    original, calls = LocalTarget.swap, []
    def swap(self):
        calls.append(self)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGKILL)
        original(self)
    LocalTarget.swap = swap
"""
FLOW = """
variables: {value: 1}
stages:
  a: {python: "mine:make", value: "{{value}}", publish: [to/a, to/b]}
  b: {python: "mine:make", value: "{{value}}", publish: to/c}
"""


@pytest.mark.slow
def test_a_run_that_is_killed_between_two_targets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "flow.yaml").write_text(FLOW)
    run_flow(tmp_path / "flow.yaml")
    assert values(tmp_path / "to") == dict.fromkeys(NAMES, "1")
    code = (
        "import mine; from penstock.pipelines.flow import run_flow; mine.die_at(2); "
        "run_flow('flow.yaml', variables={'value': '2'})"
    )
    words = [sys.executable, "-P", "-c", "import sys; sys.path.append('.'); " + code]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == -9, done.stderr
    mixed = [(tmp_path / "to" / name / "v").read_text() for name in NAMES]
    assert sorted(mixed) == ["1", "1", "2"]
    again = run_flow(tmp_path / "flow.yaml", variables={"value": "2"}, quiet=False)
    assert [(tmp_path / "to" / name / "v").read_text() for name in NAMES] == ["2"] * 3
    assert [(tmp_path / f"to/{name}.previous/v").read_text() for name in NAMES] == ["1"] * 3
    assert again.published == []  # the run before had noted what it published


# What the flow has not published

ONE = """
name: one
keep: {keep}
folder: out-{{{{day}}}}
variables: {{day: 1}}
stages: {{a: {{python: "mine:make", value: "{{{{day}}}}", publish: {place}}}}}
"""


def one_target(home: Path, place: Path | str, keep: int = 1) -> Path:
    (home / "mine.py").write_text(MODULE)
    (home / "flow.yaml").write_text(ONE.format(place=place, keep=keep))
    return home / "flow.yaml"


def test_what_others_have_put_there_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = folder(tmp_path / "pub", "theirs")
    path = one_target(tmp_path, f"file://{place}")
    assert main(["run", str(path), "--plan"]) == 0
    assert main(["run", str(path), "-q", "--no-report"]) == 1
    assert str(place) in capsys.readouterr().err
    assert not list(tmp_path.glob("out-1/a"))
    assert [run.state for run in all_runs(tmp_path / "runs")] == ["failed"]
    run_flow(path, replace_targets=True)
    assert (tmp_path / "pub.previous/v").read_text() == "theirs"
    assert (place / "v").read_text() == "1"
    # From then on it is the flow's own, also from another folder every day.
    run_flow(path, variables={"day": "2"})
    assert (place / "v").read_text() == "2"
    # If it was removed it is published again, from the existing output.
    place.rename(tmp_path / "gone")
    run_flow(path, variables={"day": "2"})
    assert (place / "v").read_text() == "2"


def test_a_flow_that_was_moved_knows_what_it_has_published(tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "pub").mkdir(parents=True)  # by who gave us the place
    path = one_target(home, "pub")
    run_flow(path)
    home.rename(tmp_path / "moved")
    assert run_flow(tmp_path / "moved/flow.yaml").published == []
    run_flow(tmp_path / "moved/flow.yaml", variables={"day": "2"})
    assert (tmp_path / "moved/pub/v").read_text() == "2"
    assert (tmp_path / "moved/pub.previous/v").read_text() == "1"


def test_a_pointer_of_others_at_a_url_is_refused(tmp_path: Path, bucket: str) -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/bucket/out/theirs/v", b"theirs")
    system.pipe("/bucket/out/latest.json", b'{"run": "theirs", "previous": []}')
    path = one_target(tmp_path, f"{bucket}/", keep=0)
    with pytest.raises(OutputExists):
        run_flow(path)
    assert system.cat("/bucket/out/theirs/v") == b"theirs"
    assert pointed(bucket) == "theirs"
    run_flow(path, replace_targets=True)
    run_flow(path, variables={"day": "2"})
    assert pointed(bucket) == "2"
