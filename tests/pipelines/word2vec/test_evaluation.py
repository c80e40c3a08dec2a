"""Evaluation: as SciPy, gensim and the definitions say."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, stats

from penstock import evaluate_vectors as evaluate
from penstock import export_vectors
from penstock.errors import CapacityError, InputError, UsageError
from penstock.graph import Graph
from penstock.pipelines.vectors import Vectors, write_vectors
from penstock.pipelines.word2vec.evaluation import EvaluateOptions, labels, words


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


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=30))
def test_rank_correlation_with_ties_is_that_of_scipy(pairs):
    one, other = np.array(pairs, float).T
    ours = words.correlation(words.ranks(one), words.ranks(other))
    np.testing.assert_array_equal(words.ranks(one), stats.rankdata(one))
    if len(set(one)) == 1 or len(set(other)) == 1:
        assert ours is None
    else:
        assert ours == pytest.approx(stats.spearmanr(one, other).statistic, abs=1e-12)


def test_case_matters_where_it_shall(vectors, tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("BERLIN w0 1\nBerlin w1 2\nw2 W3 5\n")
    assert evaluate(vectors, pairs=[path]).pairs[0].used == 3
    strict = evaluate(vectors, pairs=[path], case_sensitive=True).pairs[0]
    assert (strict.used, strict.unknown) == (2, 1)
    few = evaluate(vectors, pairs=[path], restrict=5).pairs[0]  # W3 is w3, the first of both
    assert (few.used, few.unknown) == (1, 2)


def test_judgements_that_are_not_finite_numbers_are_skipped(vectors, tmp_path):
    path = tmp_path / "pairs.txt"
    path.write_text("w0 w1 nan\nw1 w2 1e999\nw2 w3 5\nw3 w4 2\nw5 w6 x\n")
    (found,) = evaluate(vectors, pairs=[path]).pairs
    assert (found.used, found.skipped) == (2, 3)
    assert found.spearman is not None


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


def test_analogies_without_sections(vectors, tmp_path):
    path = tmp_path / "google.txt"
    path.write_text("\n".join(questions_of(np.random.default_rng(3), 10)))
    (result,) = evaluate(vectors, analogies=[path]).analogies
    assert [section.name for section in result.sections] == ["google"]
    assert result.total.right_add == result.sections[0].right_add


def test_words_that_are_not_there(vectors, tmp_path):
    path = tmp_path / "x.txt"
    for data in (b"nobody knows 3\nw1\n", b"\xff\xfe 1 2\n", b"# nothing\n", b"w0,w1,3\n"):
        path.write_bytes(data)
        with pytest.raises(InputError) as error:
            evaluate(vectors, pairs=[path])
        assert path.name in str(error.value)
    with pytest.raises(InputError):
        evaluate(vectors, analogies=[tmp_path / "none.txt"])


# -- labels --------------------------------------------------------------------------------------


def test_the_classifier_is_at_the_minimum():
    random = np.random.default_rng(0)
    features = random.standard_normal((60, 4))
    targets = (features @ random.standard_normal((4, 3)) + random.standard_normal((60, 3))) > 0.5
    weights = labels.fit(features, targets, l2=0.7)
    for one in range(3):
        sign = np.where(targets[:, one], 1, -1)

        def loss(w, sign=sign):
            margins = sign * (features @ w[:-1] + w[-1])
            return np.logaddexp(0, -margins).sum() + 0.35 * (w[:-1] ** 2).sum()

        truth = optimize.minimize(loss, np.zeros(5), method="BFGS", options={"gtol": 1e-7})
        np.testing.assert_allclose(weights[:, one], truth.x, atol=0.02)
        assert loss(weights[:, one]) <= truth.fun + 1e-3
    warm = labels.fit(features, targets, l2=0.7, start=weights + 1)
    np.testing.assert_allclose(warm, weights, atol=0.02)


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


def test_labels_of_a_table(blocks, tmp_path):
    vectors, of = blocks
    lists = [[f"c{one}"] + ["even"] * int(one == 0) for one in of]
    lists[3:6] = [None, [], None]
    ids = [*(5 * np.arange(200)), 99_999]
    pq.write_table(pa.table({"id": ids, "label": [*lists, ["c1"]]}), tmp_path / "nodes.parquet")
    report = evaluate(vectors, labels=tmp_path / "nodes.parquet", shares=(0.5, 0.2), repeats=3)
    found = report.labels
    assert (found.nodes, found.unknown, found.classes) == (197, 1, 4)
    assert [share.share for share in found.shares] == [0.5, 0.2]
    assert found.shares[0].micro_f1 > 0.97
    assert found.shares[0].macro_f1 > 0.97
    again = evaluate(vectors, labels=tmp_path / "nodes.parquet", shares=(0.5, 0.2), repeats=3)
    assert again.labels == found
    other = evaluate(vectors, labels=tmp_path / "nodes.parquet", shares=(0.5, 0.2), seed=1)
    assert other.labels.shares != found.shares


def test_labels_in_a_line_each(blocks, tmp_path):
    vectors, of = blocks
    lines = [(5 * i, f"c{one}") for i, one in enumerate(of)]
    lines += [(5 * i, "even") for i, one in enumerate(of) if one == 0]
    lists = [[f"c{one}"] + ["even"] * int(one == 0) for one in of]
    table = "id,label\n" + "".join(f"{name},{label}\n" for name, label in lines)
    (tmp_path / "lines.csv").write_text(table)
    pq.write_table(pa.table({"id": 5 * np.arange(200), "label": lists}), tmp_path / "lists.parquet")
    one, other = (
        evaluate(vectors, labels=tmp_path / name, shares=(0.5,), repeats=2).labels
        for name in ("lines.csv", "lists.parquet")
    )
    assert (one.nodes, one.classes) == (200, 4)
    assert one.shares == other.shares  # no node is trained on and predicted too


def test_missing_labels_are_missing_in_every_format(blocks, tmp_path):
    vectors, of = blocks
    labels = [int(one) if i % 4 else None for i, one in enumerate(of)]
    table = pd.DataFrame({"id": 5 * np.arange(200), "label": labels})
    pq.write_table(pa.Table.from_pandas(table), tmp_path / "floats.parquet")
    table["label"] = table["label"].astype("Int64")
    pq.write_table(pa.Table.from_pandas(table), tmp_path / "l.parquet")
    table.to_csv(tmp_path / "empty.csv", index=False)
    table.fillna(-1).to_csv(tmp_path / "minus.csv", index=False)
    given = {"shares": (0.5,), "repeats": 2}
    found = [
        evaluate(vectors, labels=tmp_path / name, **given).labels
        for name in ("l.parquet", "floats.parquet", "empty.csv", "minus.csv")
    ]
    assert found[0].nodes == 150
    assert len({(one.nodes, one.classes, str(one.shares)) for one in found}) == 1


def test_labels_of_a_graph(make_graph, tmp_path):
    graph = make_graph(nodes=120, labels=4)
    random = np.random.default_rng(0)
    of = np.asarray(graph.labels())
    known = make(tmp_path / "good", np.arange(120), np.eye(4)[of] + random.random((120, 4)) / 9)
    noise = make(tmp_path / "bad", np.arange(120), random.random((120, 4)))
    good = evaluate(known, labels=graph.path, shares=(0.5,)).labels.shares[0]
    bad = evaluate(noise, labels=graph.path, shares=(0.5,)).labels.shares[0]
    assert good.micro_f1 == 1
    assert bad.micro_f1 < 0.5


def test_a_class_that_is_not_in_the_training_share_is_not_predicted(tmp_path):
    values = np.random.default_rng(0).standard_normal((20, 3))
    vectors = make(tmp_path / "v", np.arange(20), values)
    named = pa.table({"id": np.arange(20), "label": [*"ab" * 9, "c", "d"]})
    pq.write_table(named, tmp_path / "l.parquet")
    found = evaluate(vectors, labels=tmp_path / "l.parquet", shares=(0.1,), repeats=2).labels
    assert all(0 <= share.macro_f1 <= 1 for share in found.shares)


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
        with pytest.raises(InputError) as error:
            evaluate(blocks[0], labels=path, repeats=1)
        assert path.name in str(error.value)


def test_options(vectors):
    with pytest.raises(UsageError):
        evaluate(vectors)
    for options in ({"pairs": ("x",), "l2": 2}, {"labels": "x", "restrict": 2}):
        with pytest.raises(UsageError):
            EvaluateOptions(**options)


def test_nan_is_refused(tmp_path):
    vectors = make(tmp_path / "v", ["a", "b"], [[1, np.nan], [1, 2]])
    (tmp_path / "p").write_text("a b 1\n")
    with pytest.raises(InputError):
        evaluate(vectors, pairs=[tmp_path / "p"])


def test_a_graph_of_multi_labels(tmp_path):
    from penstock.csr import CSR

    path = tmp_path / "multi"
    with Graph.create(path) as writer:
        writer.edges(CSR.from_edges(np.arange(30), (np.arange(30) + 1) % 30, 30))
        writer.nodes(label=pa.array([[i % 3, 3] if i % 2 else [i % 3] for i in range(30)]))
        writer.manifest = replace(writer.manifest, labels="multi", classes=tuple("abcd"))
    values = np.hstack([np.eye(3)[np.arange(30) % 3], (np.arange(30) % 2)[:, None]])
    vectors = make(tmp_path / "v", np.arange(30), values * 5)
    found = evaluate(vectors, labels=path, shares=(0.6,), repeats=2).labels
    assert found.shares[0].micro_f1 == 1


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


@pytest.mark.parametrize("kind", ["pairs", "analogies"])
def test_words_take_the_memory_that_is_planned(tmp_path, kind):
    rows, dimension, path = 20_000, 64, tmp_path / "file"
    values = np.random.default_rng(0).standard_normal((rows, dimension)).astype(np.float32)
    path.write_text("w1 w2 3\n" if kind == "pairs" else "w1 w2 w3 w4\n" * 40)
    vectors = Vectors(pa.array([f"w{i}" for i in range(rows)]), values, "v")
    evaluate(vectors, **{kind: [path]})  # libraries are loaded
    taken = taken_by(lambda: evaluate(vectors, **{kind: [path]}))
    said = words.memory(rows, dimension, by_pairs=kind == "pairs", by_analogies=kind != "pairs")
    assert taken < said < 3 * taken


def taken_by(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_what_does_not_fit_is_refused_before_it_begins(blocks, tmp_path, monkeypatch):
    path = tmp_path / "nodes.parquet"
    pq.write_table(pa.table({"id": 5 * np.arange(200), "label": blocks[1]}), path)
    monkeypatch.setattr("penstock.sizes.available_memory", lambda: 1000)
    with pytest.raises(CapacityError):
        evaluate(tmp_path / "blocks", labels=path)
    with pytest.raises(CapacityError):
        export_vectors(tmp_path / "blocks", tmp_path / "b.txt")
    assert not (tmp_path / "b.txt").exists()
