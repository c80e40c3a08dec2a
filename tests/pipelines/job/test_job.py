"""The frame of jobs, seen through the complete job that CONTRIBUTING shows."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock import ClusterSpec, Graph
from penstock.csr import CSR
from penstock.errors import InputError, OutputExists, UsageError
from penstock.files import sha256_of
from penstock.pipelines.job import plan, run
from penstock.pipelines.job.partial import Records
from penstock.writer import create_graph

AT = Path(__file__).parents[1] / "example_job.py"


@pytest.fixture(scope="session")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("example_job", AT)
    assert spec is not None
    assert spec.loader is not None
    sys.modules["example_job"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, 300, (4000, 2)), axis=0)
    with create_graph(tmp_path / "graph") as writer:
        writer.edges(CSR.from_edges(pairs[:, 0], pairs[:, 1], 300), shard_edges=900)
        writer.nodes()
    return tmp_path / "graph"


def job(example: Any, graph: Path, out: Path, **options: Any) -> Any:
    given = example.DegreeOptions(**options)
    return example.DegreeJob(graph, out, given, ClusterSpec(), quiet=True)


def test_the_example_stays_short() -> None:
    assert len(AT.read_text().splitlines()) < 150


def test_tasks_count_and_the_manifest_says_what(example: Any, graph: Path, tmp_path: Path) -> None:
    report = run(job(example, graph, tmp_path / "out"))
    assert (report.nodes, report.resumed) == (300, 0)
    assert report.seconds > 0
    assert sorted(os.listdir(tmp_path)) == ["graph", "out"]  # no lock, nothing hidden
    expected = np.bincount(Graph.open(graph).csr().degrees())
    np.testing.assert_array_equal(np.load(tmp_path / "out/degrees.npy"), expected)
    body = example.FORMAT.load(tmp_path / "out")
    assert body["graph_sha256"] == sha256_of(graph / "graph.json") == Graph.open(graph).digest
    assert body["options"] == {}
    assert body["files"]["degrees.npy"]["sha256"] == sha256_of(tmp_path / "out/degrees.npy")


@pytest.mark.mpi
def test_ranks_write_what_tasks_write(graph: Path, tmp_path: Path) -> None:
    for out, more in (("tasks", []), ("ranks", ["--parts", "2"])):
        command = [sys.executable, "-P", str(AT), str(graph), out, *more, "--json", "-q"]
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True
        )
        assert json.loads(done.stdout)["nodes"] == 300
        assert json.loads(done.stdout)["out"] == str(tmp_path / out)  # made absolute
    assert (graph / "partition/k2").is_dir()
    files = [tmp_path / out / "degrees.npy" for out in ("tasks", "ranks")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_an_interrupted_run_goes_on_with_what_is_whole(
    example: Any,
    graph: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    save, saved = Records.save, []

    def breaks(records: Records, piece: str, *more: Any) -> None:
        if len(saved) == 2:
            raise OSError("the cable")
        saved.append(piece)
        save(records, piece, *more)

    with monkeypatch.context() as patch:
        patch.setattr(Records, "save", breaks)
        with pytest.raises(OSError, match="cable"):
            run(job(example, graph, tmp_path / "out"))
    assert "--resume" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="another one.*--parts"):
        run(job(example, graph, tmp_path / "out", parts=2, resume=True))
    report = run(job(example, graph, tmp_path / "out", resume=True))
    assert report.resumed == 2
    run(job(example, graph, tmp_path / "whole"))
    whole, resumed = (tmp_path / name / "degrees.npy" for name in ("whole", "out"))
    assert whole.read_bytes() == resumed.read_bytes()
    assert sorted(os.listdir(tmp_path)) == ["graph", "out", "whole"]


def test_what_is_there_is_replaced_only_if_told(example: Any, graph: Path, tmp_path: Path) -> None:
    run(job(example, graph, tmp_path / "out"))
    with pytest.raises(OutputExists, match="--overwrite"):
        run(job(example, graph, tmp_path / "out"))
    with pytest.raises(OutputExists, match="--overwrite"):
        plan(job(example, graph, tmp_path / "out"))
    run(job(example, graph, tmp_path / "out", overwrite=True))
    with pytest.raises(OutputExists, match="is not a directory of degrees"):
        run(job(example, graph, graph, overwrite=True))


def test_bad_input_leaves_nothing(example: Any, tmp_path: Path) -> None:
    with create_graph(tmp_path / "empty") as writer:
        nothing = np.empty(0, np.int64)
        writer.edges(CSR.from_edges(nothing, nothing, 3))
        writer.nodes()
    with pytest.raises(InputError, match="has no edges"):
        run(job(example, tmp_path / "empty", tmp_path / "out"))
    with pytest.raises(UsageError, match="there is no cluster 'nosuch'"):
        given = example.DegreeOptions()
        cluster = ClusterSpec(cluster="nosuch")
        with create_graph(tmp_path / "one") as writer:
            writer.edges(CSR.from_edges(np.array([0]), np.array([1]), 2))
            writer.nodes()
        run(example.DegreeJob(tmp_path / "one", tmp_path / "out", given, cluster, quiet=True))
    assert sorted(os.listdir(tmp_path)) == ["empty", "one"]


def test_the_plan_says_what_would_run_and_writes_nothing(
    example: Any, graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sorted(tmp_path.rglob("*"))
    planned = plan(job(example, graph, tmp_path / "out"))
    assert sorted(tmp_path.rglob("*")) == before
    shards = Graph.open(graph).num_shards
    assert planned.steps == (("count", f"{shards} tasks, a shard each"),)
    assert planned.disk.bytes == 8 * 300 * (1 + shards)
    assert "not known" in planned.text()
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    too_large = plan(job(example, graph, tmp_path / "out", parts=2))
    assert "would not fit on the disk" in str(too_large.problem)
    assert too_large.to_dict()["problem"]["error"] == "CapacityError"
    assert "2 ranks, a part each" in too_large.text()


def test_the_plan_says_that_the_output_cannot_be_written(
    example: Any, graph: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also as root, to whom all folders of most disks are writable."""
    access, denied = os.access, tmp_path / "denied"
    denied.mkdir()
    monkeypatch.setattr(
        os, "access", lambda path, *how, **more: path != denied and access(path, *how, **more)
    )
    for out, made in (("denied/out", ".out.lock"), ("denied/new/out", "new")):
        planned = plan(job(example, graph, tmp_path / out))
        said = f"cannot use {denied}/{made}. Got Permission denied. Check the path, its permissions"
        assert str(planned.problem).startswith(said)
    other = job(example, graph, tmp_path / "out")
    assert other.unwritable() is None
    other.options = SimpleNamespace(scratch=denied)
    assert str(other.unwritable()).startswith(f"cannot use {denied}/penstock-")


@pytest.mark.parametrize(
    "text",
    [
        "{", "[]", "null", "7", '"files"', "{}", '{"n": 1}', '{"n": 1, "files": 5}',
        '{"n": 1, "files": [5]}', '{"n": 1, "files": [{"a": 1}]}', '{"files": []}',
        '{"n": 1, "files": [{"name": "../x", "bytes": 1, "sha256": "a"}]}',
        '{"n": 1, "files": [{"name": "x", "bytes": 1, "sha256": "a"}]}',
    ],
)  # fmt: skip
def test_a_record_that_is_none_is_a_piece_to_be_made(tmp_path, text):
    """However it came to that: a disk that broke, or somebody who edited it."""
    records = Records(tmp_path, tmp_path)
    (tmp_path / "piece.json").write_text(text)
    assert not records.done("piece", "n")
    records.save("piece", {"n": 1}, [])
    assert records.done("piece", "n")
