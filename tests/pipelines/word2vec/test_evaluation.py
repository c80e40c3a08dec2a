"""Evaluation: as SciPy, gensim and the definitions say."""

import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import evaluate_vectors as evaluate
from penstock import export_vectors
from penstock.errors import CapacityError, InputError, UsageError
from penstock.pipelines.vectors import Vectors, write_vectors
from penstock.pipelines.word2vec.evaluation import EvaluateOptions, labels


def make(folder, ids, values):
    folder.mkdir()
    write_vectors(folder, ids, np.asarray(values, np.float32))
    return Vectors.open(folder)


@pytest.fixture
def vectors(tmp_path):
    """Forty words, some of which differ only in their case."""
    random = np.random.default_rng(5)
    ids = [f"w{i}" for i in range(36)] + ["W3", "Berlin", "W5", "w0x"]
    grid = random.standard_normal((6, 8))[:, None] + 0.9 * random.standard_normal((6, 8))[None]
    values = np.concatenate([grid.reshape(36, 8), random.standard_normal((4, 8))])
    return make(tmp_path / "vectors", ids, values)


# -- pairs ---------------------------------------------------------------------------------------


def test_case_and_lines_that_are_left_out(vectors, tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("BERLIN w0 1\nBerlin w1 2\nw2 W3 5\nw0 w1 nan\nw1 w2 1e999\nw5 w6 x\n")
    for given, counts in (
        ({}, (3, 0, 3)),
        ({"case_sensitive": True}, (2, 1, 3)),
        ({"restrict": 5}, (1, 2, 3)),  # W3 is w3, the first of both
    ):
        (found,) = evaluate(vectors, pairs=[path], **given).pairs
        assert (found.used, found.unknown, found.skipped) == counts
    path.write_text("w0 w1 2\nw1 w2 2\n")
    assert evaluate(vectors, pairs=[path]).pairs[0].spearman is None


# -- analogies -----------------------------------------------------------------------------------


def questions_of(random, count):
    found = []
    for _ in range(count):
        a, b = random.choice(6, 2, replace=False)
        c, d = random.choice(6, 2, replace=False)
        names = [f"w{6 * a + c}", f"w{6 * a + d}", f"w{6 * b + c}", f"w{6 * b + d}"]
        found.append(" ".join(name.upper() if random.random() < 0.3 else name for name in names))
    return found


@pytest.mark.filterwarnings("ignore:Call to deprecated")  # by gensim itself
@pytest.mark.parametrize("case_sensitive", [False, True])
def test_analogies_as_gensim_counts_them(vectors, tmp_path, case_sensitive):
    keyed = pytest.importorskip("gensim.models").KeyedVectors
    random = np.random.default_rng(2)
    lines = [": rows", *questions_of(random, 120), "w1 w2 nobody w4", "w1 w2"]
    lines += [": columns of it", *questions_of(random, 90), ": nothing"]
    path = tmp_path / "analogies.txt"
    path.write_text("\n".join(lines))
    theirs = keyed(vectors.dimension)
    theirs.add_vectors(vectors.ids.to_pylist(), np.asarray(vectors.values))
    score, sections = theirs.evaluate_word_analogies(str(path), case_insensitive=not case_sensitive)
    (ours,) = evaluate(vectors, analogies=[path], case_sensitive=case_sensitive).analogies
    assert [section.name for section in ours.sections] == ["rows", "columns of it", "nothing"]
    for section, their in zip([*ours.sections, ours.total], sections, strict=True):
        assert section.right_add == len(their["correct"])
        assert len(section.questions) == len(their["correct"]) + len(their["incorrect"])
    assert ours.total.to_dict()["3cosadd"] == pytest.approx(score)
    assert 0 < ours.total.right_add < len(ours.total.questions)
    assert ours.total.unknown >= 1
    assert ours.skipped == 1


def test_candidates_are_all_that_is_known(vectors, make_graph, tmp_path):
    """As vectors that hold nothing else."""
    path, chosen = tmp_path / "analogies.txt", [*range(0, 36, 2), *range(36)[::7], 39]
    path.write_text("\n".join(questions_of(np.random.default_rng(4), 200)))
    ids = vectors.ids.take(pa.array(sorted({*chosen})))
    pq.write_table(pa.table({"word": ids}), tmp_path / "few.parquet")
    few = make(tmp_path / "few", ids, vectors.values[sorted({*chosen})])
    given = {"analogies": [path], "pairs": [tmp_path / "pairs"]}
    (tmp_path / "pairs").write_text("w0 w2 1\nw4 w6 2\nw8 w1 3\nw10 w12 1\n")
    found = evaluate(vectors, candidates=str(tmp_path / "few.parquet"), **given)
    assert (found.rows, found.pairs) == (len(ids), evaluate(few, **given).pairs)
    assert found.analogies == evaluate(few, **given).analogies
    assert found.analogies[0].total.unknown > 0
    graph = make_graph(nodes=120, labels=4)
    of = np.asarray(graph.labels())
    nodes = make(tmp_path / "nodes", np.arange(120), np.eye(4)[of])
    name = graph.manifest.classes[2]
    given = {"labels": graph.path, "shares": (0.5,), "repeats": 1}
    assert evaluate(nodes, candidates=f"label:{name}", **given).labels.nodes == (of == 2).sum()
    for wrong in ("label:none", "type:x", str(tmp_path / "pairs"), str(tmp_path / "no")):
        with pytest.raises((InputError, UsageError)):
            evaluate(nodes, candidates=wrong, **given)
    with pytest.raises(UsageError):  # of which graph?
        evaluate(nodes, candidates=f"label:{name}", pairs=[tmp_path / "pairs"])


def test_words_that_are_not_there(vectors, tmp_path):
    path = tmp_path / "x.txt"
    for data in (b"nobody knows 3\nw1\n", b"\xff\xfe 1 2\n", b"# nothing\n", b"w0,w1,3\n"):
        path.write_bytes(data)
        with pytest.raises(InputError, match=path.name):
            evaluate(vectors, pairs=[path])


# -- labels --------------------------------------------------------------------------------------


def test_f1_by_hand():
    targets = np.array([[1, 1, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]], bool)
    scores = np.array([[3, 1, 2], [0, 5, 1], [1, 2, 0], [0.1, 0.2, 0.3]])
    predicted = labels.predict_top(scores, targets.sum(axis=1))
    assert predicted.tolist() == [
        [True, False, True],
        [False, True, False],
        [False, True, False],
        [False, False, True],
    ]
    # right 1, 1, 1; there 2, 2, 1; predicted 1, 2, 2
    micro, macro = labels.f1_scores(targets, predicted)
    assert micro == pytest.approx(2 * 3 / 10)
    assert macro == pytest.approx((2 / 3 + 2 / 4 + 2 / 3) / 3)
    assert labels.f1_scores(targets, targets) == (1, 1)
    nowhere = np.zeros((4, 1), bool)
    assert labels.f1_scores(np.hstack([targets, nowhere]), np.hstack([targets, nowhere]))[1] == 0.75


@pytest.fixture
def blocks(tmp_path):
    """Vectors around three centres, and what belongs to which."""
    random = np.random.default_rng(7)
    of = random.integers(0, 3, 200)
    values = 2 * np.eye(3, 6)[of] + random.standard_normal((200, 6)) * 0.4
    return make(tmp_path / "blocks", np.arange(200) * 5, values), of


def test_labels_of_tables(blocks, tmp_path):
    """Several classes in a list or in lines of their own; missing ones in every format."""
    vectors, of = blocks
    lists = [[f"c{one}"] + ["even"] * int(one == 0) for one in of]
    lists[3:6] = [None, [], None]
    ids = [*(5 * np.arange(200)), 99_999]
    pq.write_table(pa.table({"id": ids, "label": [*lists, ["c1"]]}), tmp_path / "lists.parquet")
    lines = [
        (i, label) for i, some in zip(ids, [*lists, ["c1"]], strict=True) for label in some or ()
    ]
    (tmp_path / "lines.csv").write_text("id,label\n" + "".join(f"{i},{x}\n" for i, x in lines))
    missing = [int(one) if i % 4 else None for i, one in enumerate(of)]
    table = pd.DataFrame({"id": 5 * np.arange(200), "label": missing})
    pq.write_table(pa.Table.from_pandas(table), tmp_path / "floats.parquet")
    table["label"] = table["label"].astype("Int64")
    table.to_csv(tmp_path / "empty.csv", index=False)
    table.fillna(-1).to_csv(tmp_path / "minus.csv", index=False)

    def found(name, **given):
        return evaluate(
            vectors, labels=tmp_path / name, shares=(0.5, 0.2), repeats=3, **given
        ).labels

    one, other = found("lists.parquet"), found("lines.csv")
    assert (one.nodes, one.unknown, one.classes) == (197, 1, 4)
    assert one.shares == other.shares  # no node is trained on and predicted too
    assert [share.share for share in one.shares] == [0.5, 0.2]
    assert min(one.shares[0].micro_f1, one.shares[0].macro_f1) > 0.97
    assert found("lists.parquet", seed=1).shares != one.shares
    some = [found(name) for name in ("floats.parquet", "empty.csv", "minus.csv")]
    assert {(one.nodes, one.classes, str(one.shares)) for one in some} == {
        (150, 3, str(some[0].shares))
    }


def test_labels_of_a_graph(make_graph, tmp_path):
    graph = make_graph(nodes=120, labels=4)
    random = np.random.default_rng(0)
    of = np.asarray(graph.labels())
    known = make(tmp_path / "good", np.arange(120), np.eye(4)[of] + random.random((120, 4)) / 9)
    assert evaluate(known, labels=graph.path, shares=(0.5,)).labels.shares[0].micro_f1 == 1
    noise = make(tmp_path / "bad", np.arange(120), random.random((120, 4)))
    assert evaluate(noise, labels=graph.path, shares=(0.5,)).labels.shares[0].micro_f1 < 0.5


def test_labels_that_do_not_fit(blocks, tmp_path):
    path = tmp_path / "l.parquet"
    for ids, label in (
        (["x", "y"], [1, 2]),
        ([0, 5], [1, 1]),
        ([0, 5], [1.5, 2.5]),
        ([0, 5], [[[1]], [[2]]]),
        ([0, 5], [[], None]),
    ):
        pq.write_table(pa.table({"id": ids, "label": label}), path)
        with pytest.raises(InputError, match=path.name):
            evaluate(blocks[0], labels=path, repeats=1)


# -- plans ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "dimension", "classes"), [(6000, 64, 4), (4000, 16, 30)])
def test_labels_take_the_memory_that_is_planned(rows, dimension, classes):
    random = np.random.default_rng(0)
    values = random.standard_normal((rows, dimension)).astype(np.float32)
    every, of = np.arange(rows), random.integers(0, classes, rows)
    found = labels.Labels("l", every, every, of, list(range(classes)), 0)
    options = EvaluateOptions(labels="l", shares=(0.5, 0.9), repeats=1)
    vectors = Vectors(pa.array(every), values, "v")
    labels.evaluate_labels(vectors, found, options, lambda count: None)  # libraries are loaded
    taken = taken_by(lambda: labels.evaluate_labels(vectors, found, options, lambda count: None))
    assert taken < found.memory(dimension, 1) < 3 * taken


def taken_by(work):
    """Return the least peak of three: other threads of the process allocate memory, too."""
    peaks = []
    for _ in range(3):
        tracemalloc.start()
        try:
            work()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(peaks)


def test_what_does_not_fit_is_refused_before_it_begins(blocks, tmp_path, monkeypatch):
    path = tmp_path / "nodes.parquet"
    pq.write_table(pa.table({"id": 5 * np.arange(200), "label": blocks[1]}), path)
    monkeypatch.setattr("penstock.sizes.available_memory", lambda: 1000)
    with pytest.raises(CapacityError):
        evaluate(tmp_path / "blocks", labels=path)
    with pytest.raises(CapacityError):
        export_vectors(tmp_path / "blocks", tmp_path / "b.txt")
    assert not (tmp_path / "b.txt").exists()
