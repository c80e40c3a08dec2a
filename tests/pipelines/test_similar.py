"""``penstock similar``: of some ids here, of all on workers, the same either way."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.errors import CorruptFile, InputError, UsageError
from penstock.kernels.naive import neighbours as naive
from penstock.pipelines.similar import similar
from penstock.pipelines.vectors import write_vectors


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


def test_ids_that_are_not_there_are_named(folder):
    for ids, named in ((["0", "1", "x"], "'1', 'x'"), ([0, 270], "270"), (2**70, str(2**70))):
        with pytest.raises(InputError) as error:
            similar(folder, ids)
        assert named in str(error.value)
    assert similar(folder, 270, metric="dot", k=2).neighbours[270] == [(0, 0.0), (3, 0.0)]


# -- everyone ------------------------------------------------------------------------------------


def test_neighbours_of_all_ids(tmp_path):
    values = np.random.default_rng(0).standard_normal((2500, 12)).astype(np.float32)
    values[40], values[90] = values[7], 0
    folder, out = tmp_path / "vectors", tmp_path / "out"
    folder.mkdir()
    write_vectors(folder, np.arange(2500) * 3, values)
    report = similar(folder, out=out, k=4)
    assert (report.ids, report.files, report.zeros) == (2500, 3, 1)
    table = pq.read_table(out)
    truth, scores = naive.nearest(values, values, 4, skip=np.arange(2500)[:, None])
    assert table["id"].to_pylist() == np.repeat(np.arange(2500) * 3, 4).tolist()
    assert table["neighbour"].to_pylist() == (3 * truth).ravel().tolist()
    np.testing.assert_allclose(table["score"], scores.ravel(), atol=1e-7)
    body = json.loads((out / "_neighbours.json").read_text())
    assert (body["metric"], body["k"], body["ids"]) == ("cosine", 4, 2500)


def test_vectors_of_a_run(tmp_path):
    """They are mapped from a checkpoint, which no task could open as a matrix."""
    penstock.generate("sbm", tmp_path / "graph", nodes=600)
    penstock.embed.train(tmp_path / "graph", tmp_path / "run", model="dot", dim=8, epochs=1)
    vectors = penstock.embed.vectors(tmp_path / "run")
    similar(vectors, out=tmp_path / "out", k=3)
    found = pq.read_table(tmp_path / "out")["neighbour"].to_pylist()
    assert found[:3] == [
        one for one, _ in similar(vectors, vectors.ids[0].as_py(), k=3).neighbours[0]
    ]


# -- candidates and an index -----------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_neighbours_among_candidates(folder, values, tmp_path, metric):
    rows = np.arange(0, 250, 3)
    (tmp_path / "c.txt").write_text("".join(f"{3 * row}\n" for row in rows))
    given = {"k": 5, "metric": metric, "candidates": tmp_path / "c.txt"}
    near = values[rows]
    skip = np.where(np.arange(250) % 3 == 0, np.arange(250) // 3, -1)[:, None]
    truth, _ = naive.nearest(values, near, 5, skip=skip, cosine=metric == "cosine")
    similar(folder, out=tmp_path / "out", **given)
    found = pq.read_table(tmp_path / "out")["neighbour"].to_numpy().reshape(250, 5)
    np.testing.assert_array_equal(found, 3 * rows[truth])
    some = similar(folder, [21, 24], **given).neighbours
    assert [[one for one, _ in some[i]] for i in (21, 24)] == (3 * rows[truth[[7, 8]]]).tolist()
    (tmp_path / "two.txt").write_text("21\n27\n")  # 24 is not among them, and has both
    two = similar(folder, [21, 24], k=5, metric=metric, candidates=tmp_path / "two.txt").neighbours
    assert [len(two[i]) for i in (21, 24)] == [1, 2]
    with pytest.raises(InputError):
        (tmp_path / "c.txt").write_text("1\n2\n")
        similar(folder, out=tmp_path / "none", **given)


def test_workers_that_stay_search_among_the_candidates_of_each_run(folder, tmp_path):
    found = []
    with penstock.connect("local", workers=1, no_tls=True) as client:
        for name, first in (("one", 0), ("two", 300)):
            (tmp_path / name).write_text("".join(f"{3 * row + first}\n" for row in range(20)))
            similar(
                folder,
                out=tmp_path / f"out-{name}",
                k=5,
                candidates=tmp_path / name,
                cluster=client.scheduler.address,
            )
            found.append(pq.read_table(tmp_path / f"out-{name}")["neighbour"].to_numpy())
    assert found[0].max() <= 57
    assert found[1].min() >= 300


@pytest.mark.parametrize(("metric", "limited"), [("cosine", True), ("dot", False)])
def test_an_index_finds_nearly_all(tmp_path, metric, limited):
    pytest.importorskip("usearch")
    rng = np.random.default_rng(0)
    values = rng.standard_normal((40, 16))[rng.integers(0, 40, 3000)]
    values = (values + 0.5 * rng.standard_normal((3000, 16))).astype(np.float32)
    values[17] = 0
    np.save(tmp_path / "x.npy", values)
    given = {"k": 10, "metric": metric}
    if limited:
        (tmp_path / "c.txt").write_text("".join(f"{row}\n" for row in range(0, 3000, 2)))
        given["candidates"] = tmp_path / "c.txt"
    report = similar(tmp_path / "x.npy", out=tmp_path / "near", approximate=True, **given)
    assert report.recall > 0.9
    similar(tmp_path / "x.npy", out=tmp_path / "exact", **given)
    pairs = []
    for name in ("near", "exact"):
        rows = pq.read_table(tmp_path / name).to_pylist()
        assert not any(row["id"] == row["neighbour"] for row in rows)
        pairs.append({(row["id"], row["neighbour"]): row["score"] for row in rows})
    near, exact = pairs
    both = near.keys() & exact.keys()
    assert len(both) > 0.9 * len(exact)
    assert all(near[pair] == pytest.approx(exact[pair], abs=1e-5) for pair in both)
    for ignored in ({"approximate": True}, {"tolerance": 0.1}):
        with pytest.raises(UsageError):
            similar(tmp_path / "x.npy", [3], **ignored)
    np.save(tmp_path / "equal.npy", np.ones((300, 8), np.float32))
    equal = similar(tmp_path / "equal.npy", out=tmp_path / "equal", approximate=True)
    assert equal.recall == 1


def test_an_index_is_brought_forward(tmp_path):
    pytest.importorskip("usearch")
    rng = np.random.default_rng(1)
    centres = rng.standard_normal((20, 8))

    def some(count):
        return centres[rng.integers(0, 20, count)] + 0.3 * rng.standard_normal((count, 8))

    def night(name, ids, values, before=None, **given):
        at = tmp_path / f"vectors-{name}"
        at.mkdir()
        write_vectors(at, ids, values.astype(np.float32))
        before = None if before is None else tmp_path / before
        report = similar(at, out=tmp_path / name, k=5, approximate=True, index=before, **given)
        rows = pq.read_table(tmp_path / name).to_pylist()
        assert {row["neighbour"] for row in rows} <= {*ids}
        assert len(rows) == 5 * len(ids)
        assert report.recall > 0.9
        return report.index

    ids, values = np.array([f"n{i}" for i in range(1000)]), some(1000)
    new = {"kept": 0, "added": 1000, "replaced": 0, "removed": 0}
    assert night("first", ids, values) == new
    assert night("same", ids, values, "first") == new | {"kept": 1000, "added": 0}
    fewer = rng.permutation(950)
    values[fewer[:100]] = some(100)
    found = night("fewer", ids[fewer], values[fewer], "same")
    assert found == {"kept": 850, "added": 0, "replaced": 100, "removed": 50}
    ids, values = np.append(ids, [f"m{i}" for i in range(60)]), np.concatenate([values, some(60)])
    more = rng.permutation(1060)  # those that were removed come back
    found = night("more", ids[more], values[more], "fewer")
    assert found == {"kept": 950, "added": 110, "replaced": 0, "removed": 0}
    other = np.append(ids[30:], [f"o{i}" for i in range(20)])
    found = night("other", other, np.concatenate([values[30:], some(20)]), "more")
    assert found == {"kept": 1030, "added": 20, "replaced": 0, "removed": 30}
    assert night("anew", ids[:1000], some(1000), "more") == new

    with (tmp_path / "more/_index.usearch").open("r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    similar(tmp_path / "vectors-more", out=tmp_path / "exact")
    for error, vectors, given in (
        (UsageError, ids, {"before": "first", "metric": "dot"}),
        (UsageError, [f"x{i}" for i in range(1060)], {"before": "first"}),
        (UsageError, ids, {"before": "exact"}),
        (CorruptFile, ids, {"before": "more"}),
    ):
        with pytest.raises(error):
            night(f"bad-{error.__name__}-{len(given)}-{vectors[0]}", vectors, values, **given)
    with pytest.raises(UsageError):
        similar(tmp_path / "vectors-more", out=tmp_path / "out", index=tmp_path / "first")
