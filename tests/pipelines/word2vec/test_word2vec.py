"""``penstock word2vec train`` from inputs to vectors."""

import gzip
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import ClusterSpec, Graph, walk, word2vec
from penstock.errors import CorruptFile, InputError, PenstockError, UsageError
from penstock.pipelines.generate import generate
from penstock.pipelines.tables import text
from penstock.pipelines.vectors import Vectors
from penstock.pipelines.word2vec.inputs import files
from penstock.workers.word2vec.state import Checkpoints

SMALL = {"dim": 16, "epochs": 2}


@pytest.fixture(scope="module")
def blocks(tmp_path_factory):
    """A graph whose ten groups are easily separated."""
    path = tmp_path_factory.mktemp("blocks") / "g"
    generate("sbm", path, nodes=400, degree_inside=12, degree_outside=1, quiet=True)
    return Graph.open(path)


def agreement(vectors, labels):
    """Return how often the nearest node is of the same group."""
    rows = np.asarray(vectors.values) / np.linalg.norm(vectors.values, axis=1, keepdims=True)
    near = rows @ rows.T
    np.fill_diagonal(near, -9)
    return float(np.mean(labels[near.argmax(axis=1)] == labels))


def same(one, other):
    for name in ("vectors.npy", "context.npy"):
        assert (one / name).read_bytes() == (other / name).read_bytes()


# -- graphs ----------------------------------------------------------------------------------------


def test_streamed_walks_train_as_written_ones(blocks, tmp_path):
    more = {"deterministic": True, "shards": 2, "sync_words": 5000, "dim": 16}
    steps = {"walks": 2, "length": 20, "pools": False}
    walk(blocks, tmp_path / "w", walks=2, length=20, seed=3)
    word2vec(blocks, tmp_path / "a", seed=3, same_walks=True, epochs=2, **steps, **more)
    word2vec(tmp_path / "w", tmp_path / "b", graph=blocks, seed=3, epochs=2, **more)
    same(tmp_path / "a", tmp_path / "b")  # and nodes are counted in the same walks
    # Without the flag the second epoch has walks of its own.
    word2vec(blocks, tmp_path / "c", seed=3, epochs=2, **steps, **more)
    assert (tmp_path / "c/vectors.npy").read_bytes() != (tmp_path / "a/vectors.npy").read_bytes()


def test_few_starts_are_counted_in_all_their_walks(blocks, tmp_path):
    pq.write_table(pa.table({"id": [7]}), tmp_path / "starts.parquet")
    options = {"starts": tmp_path / "starts.parquet", "walks": 500, "length": 20}
    report = word2vec(blocks, tmp_path / "v", dim=8, **options)
    counts = pq.read_table(tmp_path / "v/part-00000.parquet")["count"].to_numpy()
    assert counts.sum() == report.words == 500 * 20
    assert report.unseen == int((counts == 0).sum()) < 200


def test_walks_draw_negatives_from_pools_by_default(blocks, tmp_path):
    more = {"deterministic": True, "walks": 2, "length": 20, "dim": 16}

    def vectors(name, **options):
        word2vec(blocks, tmp_path / name, **more, **options)
        return (tmp_path / name / "vectors.npy").read_bytes()

    default, all_words = vectors("a"), vectors("b", pools=False)
    assert vectors("c", pools=True) == default != all_words
    shared = vectors("d", shared_windows=4)
    assert vectors("e", shared_windows=4, pools=False) == shared
    assert vectors("f", shared_windows=4, pools=True) != shared


@pytest.mark.mpi
@pytest.mark.slow
def test_two_ranks_learn_as_much_as_one(blocks, tmp_path):
    two = ClusterSpec(cluster="mpi", workers=2)
    more = {"walks": 20, "length": 20, "dim": 16, "window": 9}
    report = word2vec(blocks, tmp_path / "h", cluster=two, sample=0, sync_words=3000, **more)
    alone = word2vec(blocks, tmp_path / "alone", sample=0, **more)
    assert report.ranks == 2
    assert report.words == alone.words
    assert report.loss == pytest.approx(alone.loss, rel=0.1)
    assert agreement(Vectors.open(tmp_path / "h"), blocks.labels()) > 0.9


# -- walks and lists -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.large_string(), pa.uint64(), pa.date32(), pa.float64()])
def test_lists_of_any_type(tmp_path, kind, monkeypatch):
    monkeypatch.setattr(files, "TARGET", 200)
    rng = np.random.default_rng(0)
    rows = [rng.integers(0, 9, rng.integers(0, 8)).tolist() for _ in range(60)]
    as_kind = pa.array(range(9)).cast(pa.int32() if kind == pa.date32() else pa.int64()).cast(kind)
    column = pa.array([[as_kind[i] for i in row] for row in rows], pa.list_(kind))
    pq.write_table(
        pa.table({"n": range(60), "s": column}), tmp_path / "a.parquet", row_group_size=7
    )
    word2vec(tmp_path / "a.parquet", tmp_path / "v", **SMALL)
    table = pq.read_table(tmp_path / "v/part-00000.parquet")
    assert table["id"].type == kind
    every = np.bincount([i for row in rows for i in row], minlength=9)
    found = dict(zip(table["id"].to_pylist(), table["count"].to_pylist(), strict=True))
    assert found == dict(zip(as_kind.to_pylist(), every.tolist(), strict=True))
    with pytest.raises(UsageError):
        word2vec(tmp_path / "a.parquet", tmp_path / "x", column="n")


def test_walks_of_internal_ids_say_so_and_are_verified(blocks, tmp_path):
    walk(blocks, tmp_path / "w", walks=1, length=9, ids="internal")
    word2vec(tmp_path / "w", tmp_path / "v", dim=8, verify=True)
    assert Vectors.open(tmp_path / "v").about["ids_are"] == "internal"
    assert not word2vec(tmp_path / "w", tmp_path / "u", graph=blocks, dim=8).internal_ids
    with pytest.raises(UsageError):
        word2vec(tmp_path / "w", tmp_path / "x", walks=5)
    part = tmp_path / "w/part-00000.parquet"
    data = bytearray(part.read_bytes())
    data[len(data) // 2] ^= 1
    part.write_bytes(data)
    with pytest.raises(CorruptFile, match=part.name):
        word2vec(tmp_path / "w", tmp_path / "x", verify=True)


def test_ids_that_the_graph_does_not_have(make_graph, tmp_path):
    graph = make_graph()
    ids = graph.user_ids().combine_chunks()
    rows = [[ids[i] for i in range(5)]] * 4 + [
        [
            ids[3],
            pa.scalar("nobody", ids.type)
            if pa.types.is_string(ids.type)
            else pa.scalar(10**6, ids.type),
        ]
    ]
    table = pa.table({"path": pa.array(rows, pa.list_(ids.type))})
    pq.write_table(table, tmp_path / "p.parquet")
    with pytest.raises(InputError, match=r"p\.parquet, row 5, value 2"):
        word2vec(tmp_path / "p.parquet", tmp_path / "v", graph=graph.path)
    # Numbers of nodes are known by the graph that was walked.
    walk(graph, tmp_path / "w", ids="internal")
    word2vec(tmp_path / "w", tmp_path / "v", graph=graph.path, **SMALL)
    assert Vectors.open(tmp_path / "v").ids.equals(ids)
    with pytest.raises(InputError):
        word2vec(tmp_path / "w", tmp_path / "x", graph=make_graph(seed=3, name="o").path)


def test_lists_with_nulls_or_without_ids(tmp_path):
    kind, path = pa.list_(pa.int64()), tmp_path / "n.parquet"
    pq.write_table(pa.table({"s": pa.array([[1, 2], None, [3, None]], kind)}), path)
    with pytest.raises(InputError, match="row 3, value 2"):
        word2vec(path, tmp_path / "v")
    pq.write_table(pa.table({"s": pa.array([[], None], kind)}), path)
    with pytest.raises(InputError):
        word2vec(path, tmp_path / "v")


def test_words_of_text_are_those_of_split(tmp_path):
    """Whatever blanks are between them, at the ends of lines too."""
    blanks = " \t\n\r\v\f\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000"
    rng = np.random.default_rng(0)
    text = "".join(rng.choice([*blanks, *"xyzxyzxyzxyz", "\u200b", "ä", "日", "\n", "\n"], 20_000))
    (tmp_path / "t.txt").write_bytes(text.encode())
    word2vec(tmp_path / "t.txt", tmp_path / "v", **SMALL, min_count=1)
    table = pq.read_table(tmp_path / "v/part-00000.parquet")
    found = dict(zip(table["id"].to_pylist(), table["count"].to_pylist(), strict=True))
    assert found == Counter(text.split())


@pytest.mark.parametrize("longest", [2, 100])
def test_long_sentences_are_cut(tmp_path, longest):
    """As if they had been written so: in lists, and in lines of text."""
    rng = np.random.default_rng(0)
    rows = [[f"w{i}" for i in rng.integers(0, 9, n)] for n in rng.integers(1, 12, 60)]
    short = [row[at : at + longest] for row in rows for at in range(0, len(row), longest)]
    found = []
    for number, some in enumerate((rows, short)):
        text, table = tmp_path / f"{number}.txt", tmp_path / f"{number}.parquet"
        text.write_text("\n".join(map(" ".join, some)))
        pq.write_table(pa.table({"s": some}), table)
        for path in (text, table):
            more = {**SMALL, "deterministic": True, "min_count": 4}
            word2vec(path, tmp_path / "v", max_sentence=longest, overwrite=True, **more)
            found.append((tmp_path / "v/vectors.npy").read_bytes())
    assert found == found[:1] * 4


# -- text ------------------------------------------------------------------------------------------

LINES = [f"w{i % 7} w{i % 3} žluťoučký" + " x" * (i % 5) for i in range(80)]


def packed(path, data):
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(data))
    elif path.suffix == ".zst":
        with pa.CompressedOutputStream(str(path), "zstd") as stream:
            stream.write(data)
    else:
        path.write_bytes(data)
    return path


@pytest.mark.parametrize(("block", "target"), [(16, 60), (64, 500), (1 << 20, 70)])
def test_text_cut_anywhere_is_the_same(tmp_path, monkeypatch, block, target):
    long = "one long line " * 40
    data = ("\n\n" + "\n".join(LINES) + f"\n{long}").encode()
    more = {"deterministic": True, "sync_words": 1000, **SMALL, "max_sentence": 9}
    word2vec(packed(tmp_path / "a.txt", data), tmp_path / "a", **more)
    monkeypatch.setattr(text, "BLOCK", block)
    monkeypatch.setattr(files, "TEXT_TARGET", target)
    monkeypatch.setattr(files, "PIECE_WORDS", 100)
    folder = tmp_path / "folder"
    folder.mkdir()
    packed(folder / "1.txt.gz", "\n".join(LINES[:40]).encode())
    packed(folder / "2.txt", "\n".join(["\ufeff", *LINES[40:], long]).encode())
    for name in ("b.txt", "d.txt.zst"):
        packed(tmp_path / name, data)
    for name in ("b.txt", "d.txt.zst", "folder/*.t*"):
        word2vec(tmp_path / name, tmp_path / "v", overwrite=True, **more)
        same(tmp_path / "a", tmp_path / "v")
    every = [word for line in [*LINES, long] for word in line.split()]
    table = pq.read_table(tmp_path / "a/part-00000.parquet")
    for word, count in zip(table["id"].to_pylist(), table["count"].to_pylist(), strict=True):
        assert every.count(word) == count
    assert table.num_rows == len({one for one in every if every.count(one) >= 5})


def test_min_count_and_max_vocab(tmp_path):
    path = packed(tmp_path / "t.txt", b"a a a a b b b c c d\n" * 3)
    word2vec(path, tmp_path / "v", min_count=6, **SMALL)
    assert Vectors.open(tmp_path / "v").ids.to_pylist() == ["a", "b", "c"]
    word2vec(path, tmp_path / "m", max_vocab=2, min_count=1, **SMALL)
    assert Vectors.open(tmp_path / "m").ids.to_pylist() == ["a", "b"]
    with pytest.raises(InputError):
        word2vec(path, tmp_path / "x", min_count=100)


# -- memory, rates, stops --------------------------------------------------------------------------


def test_a_rate_that_is_too_high(blocks, tmp_path, monkeypatch):
    options = {"dim": 16, "walks": 4, "length": 20, "epochs": 6}
    options |= {"checkpoint_minutes": 1e-9, "deterministic": True, "sync_words": 8000}
    save, saved = Checkpoints.save, list[Any]()

    def stop_soon(self, *given):
        save(self, *given)
        saved.append(given[0])
        if len(saved) == 9:
            raise PenstockError("stopped here")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", stop_soon)
        with pytest.raises(PenstockError, match="stopped here"):
            word2vec(blocks, tmp_path / "v", lr=0.05, **options)
    # The checkpoint is kept, and trained on at another learning rate.
    with pytest.raises(PenstockError):
        word2vec(blocks, tmp_path / "v", lr=1e5, **options, resume=True)
    assert not (tmp_path / "v").exists()
    report = word2vec(blocks, tmp_path / "v", lr=0.02, **options, resume=True)
    assert report.resumed > 0
    assert np.isfinite(report.loss)
    assert np.isfinite(Vectors.open(tmp_path / "v").values).all()


# -- warm start ------------------------------------------------------------------------------------


def test_new_nodes_begin_with_the_mean_of_their_neighbours(blocks, tmp_path):
    word2vec(blocks, tmp_path / "old", dim=16, walks=10, length=20)
    old = Vectors.open(tmp_path / "old")
    known = np.setdiff1d(np.arange(400), [5, 17])
    pq.write_table(
        pa.table(
            {
                "id": old.ids.take(pa.array(known)),
                "vector": pa.array(old.values[known].tolist(), pa.list_(pa.float32())),
            }
        ),
        tmp_path / "part.parquet",
    )
    report = word2vec(
        blocks,
        tmp_path / "v",
        dim=16,
        walks=1,
        length=20,
        init=tmp_path / "part.parquet",
        lr=1e-12,
        min_lr=0,
    )
    assert (report.known, report.averaged) == (398, 2)
    new, csr = Vectors.open(tmp_path / "v"), blocks.csr()
    np.testing.assert_allclose(new.values[known], old.values[known], atol=1e-6)
    for node in (5, 17):
        near = csr.indices[csr.indptr[node] : csr.indptr[node + 1]]
        near = near[~np.isin(near, [5, 17])]
        np.testing.assert_allclose(new.values[node], old.values[near].mean(axis=0), atol=1e-5)
    with pytest.raises(UsageError):
        word2vec(blocks, tmp_path / "x", dim=8, init=tmp_path / "old")
    path = packed(tmp_path / "t.txt", b"quite other words " * 9)
    with pytest.raises(UsageError):
        word2vec(path, tmp_path / "x", dim=16, init=tmp_path / "old")
