"""``penstock similar``: of some ids here, of all on workers, the same either way."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.errors import InputError, OutputExists, UsageError
from penstock.kernels.naive import neighbours as naive
from penstock.pipelines.similar import job as jobs
from penstock.pipelines.similar import similar
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
    for ids, named in ((["0", "1", "x"], "'1', 'x'"), ([0, 270], "270"), (2**70, str(2**70))):
        with pytest.raises(InputError) as error:
            similar(folder, ids)
        assert named in str(error.value)
    assert similar(folder, 270, metric="dot", k=2).neighbours[270] == [(0, 0.0), (3, 0.0)]
    for more in (
        {},
        {"ids": [0], "out": tmp_path / "o"},
        {"ids": [0], "k": 0},
        {"ids": [0], "resume": True},
        {"ids": [0], "cluster": penstock.ClusterSpec()},
    ):
        with pytest.raises(UsageError):
            similar(folder, **more)


# -- everyone ------------------------------------------------------------------------------------


def test_everyones_neighbours(folder, values, tmp_path, monkeypatch):
    monkeypatch.setattr(jobs, "_ROWS_OF_FILE", (60, 60))
    report = similar(folder, out=tmp_path / "out", k=4)
    assert (report.ids, report.files, report.zeros) == (250, 5, 1)
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


def test_one_vector_has_no_neighbour(tmp_path):
    write_vectors(tmp_path, np.array([1]), np.ones((1, 2), np.float32))
    assert similar(tmp_path, 1).neighbours == {1: []}
    with pytest.raises(UsageError):
        similar(tmp_path, out=tmp_path / "out")
