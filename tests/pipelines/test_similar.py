"""``penstock similar``: of some ids here, of all on workers, the same either way."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.errors import CapacityError, InputError, OutputExists, UsageError
from penstock.kernels.naive import neighbours as naive
from penstock.pipelines.cli import run
from penstock.pipelines.job import plan
from penstock.pipelines.similar import SimilarOptions, similar
from penstock.pipelines.similar import job as jobs
from penstock.pipelines.vectors import Vectors, write_vectors


@pytest.fixture
def values():
    values = np.random.default_rng(0).standard_normal((250, 12)).astype(np.float32)
    values[40] = values[7]
    values[90] = 0
    return values


@pytest.fixture
def folder(tmp_path, values):
    path = tmp_path / "vectors"
    path.mkdir()
    write_vectors(path, np.arange(250) * 3, values)
    return path


@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_neighbours_of_some_ids(folder, values, metric):
    rows = np.array([7, 40, 200])
    truth, scores = naive.nearest(
        values[rows], values, 6, cosine=metric == "cosine", skip=rows[:, None]
    )
    report = similar(folder, (rows * 3).tolist(), k=6, metric=metric)
    assert list(report.neighbours) == (rows * 3).tolist()
    for row, near, score in zip(rows, truth, scores, strict=True):
        found = report.neighbours[row * 3]
        assert [one for one, _ in found] == (near * 3).tolist()
        np.testing.assert_allclose([s for _, s in found], score, rtol=1e-6)
    assert penstock.similar is similar


def test_one_id_and_text_for_a_number(folder):
    one = similar(folder, 21, k=3).neighbours
    assert similar(Vectors.open(folder), "21", k=3).neighbours == one
    assert one[21][0] == (120, pytest.approx(1))


def test_ranges_of_rows_are_searched_by_several_threads(folder, values, monkeypatch):
    from penstock.pipelines import similar as module

    whole = similar(folder, [0, 21], k=249).neighbours
    monkeypatch.setattr(module, "_RANGE", 11)
    monkeypatch.setattr(module, "cores", lambda: 40)
    assert similar(folder, [0, 21], k=249).neighbours == whole


def test_more_than_there_are(folder):
    found = similar(folder, 0, k=10_000).neighbours[0]
    assert len(found) == 249
    assert len({one for one, _ in found} | {0}) == 250


def test_what_cannot_be_asked(folder, tmp_path):
    with pytest.raises(InputError, match="no vectors of 2 of 3 ids.*'1', 'x'"):
        similar(folder, ["0", "1", "x"])
    with pytest.raises(InputError, match="1 of these 2 have a vector of zeros.*270"):
        similar(folder, [0, 270])
    with pytest.raises(InputError, match="no vectors of 1 of 1 ids"):
        similar(folder, 2**70)
    assert similar(folder, 270, metric="dot", k=2).neighbours[270] == [(0, 0.0), (3, 0.0)]
    with pytest.raises(UsageError, match="one of the two"):
        similar(folder)
    with pytest.raises(UsageError, match="one of the two"):
        similar(folder, [0], out=tmp_path / "o")
    with pytest.raises(UsageError, match="-k|--k"):
        similar(folder, [0], k=0)
    with pytest.raises(UsageError, match="--resume is for the neighbours of all ids"):
        similar(folder, [0], resume=True)
    with pytest.raises(UsageError, match="a cluster is for the neighbours of all ids"):
        similar(folder, [0], cluster=penstock.ClusterSpec())


def test_nan_is_refused(tmp_path):
    write_vectors(tmp_path, np.arange(3), np.array([[1, 2], [np.nan, 1], [2, 3]]))
    with pytest.raises(InputError, match="1 vector with NaN"):
        similar(tmp_path, 0)
    with pytest.raises(InputError, match="1 vector with NaN"):
        similar(tmp_path, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


# -- everyone ------------------------------------------------------------------------------------


def test_everyones_neighbours(folder, values, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "_ROWS_OF_FILE", (60, 60))
    report = similar(folder, out=tmp_path / "out", k=4)
    assert (report.ids, report.files, report.zeros) == (250, 5, 1)
    assert "250 ids" in report.text()
    table = pq.read_table(tmp_path / "out")
    truth, scores = naive.nearest(values, values, 4, skip=np.arange(250)[:, None])
    assert table["id"].to_pylist() == np.repeat(np.arange(250) * 3, 4).tolist()
    assert table["neighbour"].to_pylist() == (3 * truth).ravel().tolist()
    np.testing.assert_allclose(table["score"], scores.ravel(), atol=1e-7)
    body = json.loads((tmp_path / "out" / "_neighbours.json").read_text())
    assert (body["metric"], body["k"], body["ids"]) == ("cosine", 4, 250)
    with pytest.raises(OutputExists):
        similar(folder, out=tmp_path / "out", k=4)
    similar(folder, out=tmp_path / "out", k=3, overwrite=True)
    assert len(pq.read_table(tmp_path / "out")) == 750


def test_other_formats_give_the_same_bytes(folder, tmp_path):
    similar(folder, out=tmp_path / "ours", metric="dot")
    penstock.export_vectors(folder, tmp_path / "x.parquet", format="parquet")
    similar(tmp_path / "x.parquet", out=tmp_path / "theirs", metric="dot")
    name = "part-00000.parquet"
    assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "theirs" / name).read_bytes()


def test_an_interrupted_run_is_resumed(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(jobs, "_ROWS_OF_FILE", (60, 60))
    similar(folder, out=tmp_path / "whole")
    save = jobs._save

    def breaks(task, number, *rest):
        if number == 3:
            raise RuntimeError("the power failed")
        return save(task, number, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "_save", breaks)
        with pytest.raises(RuntimeError):
            similar(folder, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert "--resume" in capsys.readouterr().err
    with pytest.raises(UsageError, match="another --k"):
        similar(folder, out=tmp_path / "out", resume=True, k=4)
    report = similar(folder, out=tmp_path / "out", resume=True)
    assert report.resumed_files > 0
    for path in sorted((tmp_path / "whole").glob("*.parquet")):
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes()


def test_plan_writes_nothing(folder, tmp_path):
    job = jobs.SimilarJob(
        Vectors.open(folder), tmp_path / "out", SimilarOptions(), penstock.ClusterSpec(), quiet=True
    )
    made = plan(job)
    assert "10 neighbours of each of 250 ids, 1 file\n" in made.text()
    assert made.problem is None
    assert not (tmp_path / "out").exists()


def test_vectors_that_do_not_fit(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "_SCRATCH_ON_CPU", 1 << 50)
    with pytest.raises(CapacityError, match="250 vectors would not fit"):
        similar(folder, out=tmp_path / "out")


def test_one_vector_has_no_neighbour(tmp_path):
    write_vectors(tmp_path, np.array([1]), np.ones((1, 2), np.float32))
    alone = similar(tmp_path, 1)
    assert alone.neighbours == {1: []}
    assert alone.text() == "1: there is no other vector"
    with pytest.raises(UsageError, match="two at least"):
        similar(tmp_path, out=tmp_path / "out")
    with pytest.raises(UsageError, match=r"names the vectors themselves|two at least"):
        similar(tmp_path, out=tmp_path)


# -- the command ---------------------------------------------------------------------------------


def test_the_command(folder, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["similar", "vectors", "21", "0", "-k", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "21"
    assert lines[1].split() == ["1.0000", "120"]
    assert len(lines) == 6
    assert run(["similar", "vectors", "21", "-k", "1", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["neighbours"]
    assert found["id"] == 21
    assert found["neighbours"][0]["id"] == 120
    assert run(["similar", "vectors", "--all", "out", "--metric", "dot", "-q"]) == 0
    assert len(pq.read_table("out")) == 2500
    assert run(["similar", "vectors", "--all", "out2", "--plan"]) == 0
    assert "penstock similar would write out2" in capsys.readouterr().out
    assert run(["similar", "vectors"]) == 2
    assert "Expected one of the two, got neither" in capsys.readouterr().err
    assert run(["similar", "vectors", "3", "--plan"]) == 2
    assert run(["similar", "vectors", "3", "-n", "2"]) == 2
    assert run(["similar", "vectors", "4"]) == 1
    assert "no vectors of 1 of 1 ids" in capsys.readouterr().err


def test_everyones_neighbours_are_a_graph(folder, tmp_path, capsys, monkeypatch):
    """The command that is printed next makes one."""
    monkeypatch.chdir(tmp_path)
    assert run(["similar", "vectors", "--all", "near", "-k", "3"]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert run([*line.split("penstock ")[1].split(), "-q"]) == 0
    assert penstock.Graph.open("near-graph").num_nodes == 250


def test_a_run_does_not_go_on_with_other_ids(tmp_path, values, monkeypatch):
    monkeypatch.setattr(jobs, "_ROWS_OF_FILE", (60, 60))
    save = jobs._save

    def breaks(task, number, *rest):
        if number == 3:
            raise RuntimeError("the power failed")
        return save(task, number, *rest)

    np.save(tmp_path / "x.npy", values)
    for name in ("x.ids.txt", "listed.txt"):
        (tmp_path / name).write_text("".join(f"a{i}\n" for i in range(250)))
        ids = {} if name == "x.ids.txt" else {"id_file": tmp_path / name}
        with monkeypatch.context() as patch:
            patch.setattr(jobs, "_save", breaks)
            with pytest.raises(RuntimeError):
                similar(tmp_path / "x.npy", out=tmp_path / "out", **ids)
        (tmp_path / name).write_text("".join(f"other{i}\n" for i in range(250)))
        with pytest.raises(UsageError, match="changed|another"):
            similar(tmp_path / "x.npy", out=tmp_path / "out", resume=True, **ids)
        shutil.rmtree(tmp_path / ".out.partial")
