"""The frame of jobs, seen through the complete job that CONTRIBUTING shows."""

import importlib.util
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from graphs import write_graph
from processes import python

from penstock import Graph
from penstock.csr import CSR
from penstock.errors import InputError, OutputExists, UsageError
from penstock.files import save_text, sha256_of
from penstock.output import Pieces

AT = Path(__file__).parents[1] / "example_job.py"


@pytest.fixture(scope="session")
def example():
    spec = importlib.util.spec_from_file_location("example_job", AT)
    sys.modules["example_job"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def graph(tmp_path):
    rng = np.random.default_rng(0)
    pairs = np.unique(rng.integers(0, 300, (4000, 2)), axis=0)
    csr = CSR.from_edges(pairs[:, 0], pairs[:, 1], 300)
    return write_graph(tmp_path / "graph", csr, shard_edges=900).path


def test_tasks_count_and_the_manifest_says_what(example, graph, tmp_path):
    report = example.degrees(graph, tmp_path / "out")
    assert (report.nodes, report.resumed) == (300, 0)
    assert report.seconds > 0
    assert sorted(os.listdir(tmp_path)) == ["graph", "out"]  # no lock, nothing hidden
    expected = np.bincount(Graph.open(graph).csr().degrees())
    np.testing.assert_array_equal(np.load(tmp_path / "out/degrees.npy"), expected)
    body = example.FORMAT.load(tmp_path / "out")
    assert body["options"] == {}
    assert body["files"]["degrees.npy"]["sha256"] == sha256_of(tmp_path / "out/degrees.npy")


@pytest.mark.mpi
@pytest.mark.slow  # other jobs do it in tests/golden/test_workers.py
def test_ranks_write_what_tasks_write(graph, tmp_path):
    for out, more in (("tasks", []), ("ranks", ["--parts", "2"])):
        said = python(AT, graph, out, *more, "--json", "-q", cwd=tmp_path)
        assert json.loads(said)["nodes"] == 300
    assert (graph / "partition/k2").is_dir()
    files = [tmp_path / out / "degrees.npy" for out in ("tasks", "ranks")]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_an_interrupted_run_resumes_with_its_whole_pieces(example, graph, tmp_path, monkeypatch):
    """With the same results: in tests/faults, for every job."""
    save, saved = Pieces.save, []

    def breaks(pieces, piece, *more):
        if len(saved) == 2:
            raise OSError("the cable")
        saved.append(piece)
        save(pieces, piece, *more)

    with monkeypatch.context() as patch:
        patch.setattr(Pieces, "save", breaks)
        with pytest.raises(OSError, match="cable"):
            example.degrees(graph, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="--parts"):
        example.degrees(graph, tmp_path / "out", parts=2, resume=True)
    assert example.degrees(graph, tmp_path / "out", resume=True).resumed == 2


def test_the_plan_says_what_would_run_and_writes_nothing(example, graph, tmp_path, monkeypatch):
    before = sorted(tmp_path.rglob("*"))
    planned = example.degrees.plan(graph, tmp_path / "out")
    assert sorted(tmp_path.rglob("*")) == before
    assert planned.disk.bytes > 0
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 10}))
    too_large = example.degrees.plan(graph, tmp_path / "out", parts=2)
    assert too_large.to_dict()["problem"]["error"] == "CapacityError"


@pytest.mark.parametrize("fails", [False, True])
def test_an_input_that_changes_while_it_is_read_ends_the_run(
    example, graph, tmp_path, monkeypatch, fails
):
    """It is named, whatever else is wrong then."""
    count = example.count_shard

    def changes(*call):
        count(*call)
        path = graph / "graph.json"
        save_text(path, path.read_text().replace('"types": {}', '"types": {"a": 300}'))
        if fails:
            raise ValueError("two files do not go together")

    monkeypatch.setattr(example, "count_shard", changes)
    with pytest.raises(InputError, match=str(graph)):
        example.degrees(graph, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_finished_output_that_lost_a_file_is_not_success(example, graph, tmp_path):
    example.degrees(graph, tmp_path / "out")
    assert example.degrees.plan(graph, tmp_path / "out", resume=True).problem is None
    (tmp_path / "out/degrees.npy").unlink()
    with pytest.raises(OutputExists):
        example.degrees(graph, tmp_path / "out", resume=True)
