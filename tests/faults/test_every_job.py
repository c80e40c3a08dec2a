"""Every job on a disk that is read-only or full, and with input that was cut off.

What a run leaves is told by a sentence; the second run finishes, with the bytes of an undisturbed
one. A job is a row of tests/support/every_job.py. Besides this: commands that are killed or hear
Ctrl-C (test_every_job_ended.py), killed workers and ranks (test_every_job_workers.py), flows
(test_flow_killed.py).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from every_job import JOBS, VISIBLE, published, results, run_again, words_of

from penstock import sizes
from penstock.formats import Format
from penstock.pipelines.cli import run
from penstock.pipelines.flow.document.commands import command_of, job_names

GRAPH = "graph/shards/00000/indices.npy"
# What of an input is cut off.
CUT = [
    ("etl", "edges.parquet"),
    ("partition", GRAPH),
    ("walk", GRAPH),
    ("word2vec", "walks/part-00000.parquet"),
    ("vectors", "vectors/vectors.npy"),
    ("embed", GRAPH),
    ("nodes", "embedded/checkpoints/nodes.table"),
    ("gnn", GRAPH),
    ("predict", GRAPH),
    ("predict", "run/checkpoints/best.safetensors"),
    ("centrality", "edges.parquet"),
    ("similar", "vectors/vectors.npy"),
]
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")


def test_every_job_that_writes_is_a_row() -> None:
    """Every kind of generate writes as sbm does."""
    writing = {name for name in job_names() if command_of(name).writes} | {"partition", "similar"}
    writing = {name for name in writing if not name.startswith("generate")} | {"generate sbm"}
    assert {" ".join(row.split("{")[0].split()) for row in JOBS.values()} == writing
    assert {job for job, _ in CUT} == {*JOBS} - {"generate"}  # which reads nothing


def said_by(capsys: pytest.CaptureFixture[str]) -> str:
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert "This is a bug" not in said
    return said


@root
@pytest.mark.parametrize("job", JOBS)
def test_a_disk_that_is_read_only(
    job: str, given: Path, mount: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan says so as the run does, before anything is read or computed."""
    words = words_of(job, given, mount("size=8m") / "out")
    disk = mount("remount,ro")
    assert run([*words, "--plan"]) == 0
    planned = said_by(capsys).splitlines()[-1]
    assert run(words) == 1
    said = said_by(capsys)
    assert "Read-only file system" in said
    assert str(disk / "out") in said.replace("/.out", "/out")
    assert planned in said.splitlines()


@pytest.mark.parametrize(("job", "name"), CUT)
def test_an_input_that_was_cut_off(
    job: str, name: str, given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "given"
    shutil.copytree(given, copy)
    shard = copy / name
    os.truncate(shard, shard.stat().st_size // 2)
    words = words_of(job, copy, tmp_path / "out")
    if job == "partition":
        shard = tmp_path / "out/shards/00000/indices.npy"
    before = sorted(tmp_path.rglob("*"))
    assert run(words) == 1
    said = said_by(capsys)
    assert said.count(str(shard)) == 1
    assert "again" in said or "is damaged" in said  # the remedy
    assert sorted(tmp_path.rglob("*")) == before


def test_an_export_removes_what_a_killed_one_left(given: Path, tmp_path: Path) -> None:
    left = tmp_path / ".out.partial/file/out"
    left.parent.mkdir(parents=True)
    left.touch()
    assert run(words_of("vectors", given, tmp_path / "out")) == 0
    assert [one.name for one in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("job", sorted(VISIBLE))
def test_a_training_that_is_interrupted_before_it_says_what_it_is(
    job: str, given: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def save(self: Format, folder: Path, body: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Format, "save", save)
    assert run(words_of(job, given, tmp_path / "out")) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("job", sorted(VISIBLE))
def test_a_training_that_was_killed_before_it_said_what_it_is(
    job: str, given: Path, tmp_path: Path
) -> None:
    """Its folder holds half a run.json: it was taken for something else than a run."""
    out = tmp_path / "out"
    out.mkdir()
    (out / ".run.json.0123abcd.tmp").touch()
    assert run([*words_of(job, given, out), "--plan"]) == 0
    assert run(words_of(job, given, out)) == 0
    assert published(job, out)
    assert not list(out.glob(".*"))


@root
@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS)
def test_a_disk_that_fills_up(
    job: str, given: Path, mount: Callable[[str], Path], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    disk = mount("size=8m")
    words = words_of(job, given, disk / "out")
    found = os.statvfs(disk)
    filler = disk / "filler"
    filler.write_bytes(bytes(found.f_bavail * found.f_frsize - 12288))
    with monkeypatch.context() as patch:  # else they would say before they begin that it is small
        patch.setattr(sizes, "free_disk", lambda *_: 1 << 40)
        assert run(words) == 1
    assert "the disk is full" in said_by(capsys)
    filler.unlink()
    assert run_again(job, words) == 0
    whole = tmp_path / "whole"
    assert run(words_of(job, given, whole)) == 0
    assert results(disk / "out") == results(whole)
