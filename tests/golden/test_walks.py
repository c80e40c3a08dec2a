"""walk, word2vec and similar, against NumPy, SciPy and NetworkX."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from golden import adjacency, assert_same, check, columns, draws, run
from scipy.optimize import minimize
from scipy.stats import chisquare, spearmanr

import penstock

WALKS = {
    "deepwalk": ("blocks", "--length 12"),
    "weighted": ("weighted", "--walks 2 --length 10"),
    "ppr": ("blocks", "--app ppr --stop 0.2"),
    "node2vec": ("blocks", "--app node2vec --p 0.5 --q 2 --length 12"),
    "metapath": ("kg", "--app metapath --schema r0,r1,r2"),
    "restart": ("blocks", "--restart 0.3 --length 20"),
    "temporal": ("weighted", "--temporal --length 6 --walks 4"),
    "custom": ("weighted", "--app custom --length 6 --weight 'weight/(1+degree) if step<4 else 1'"),
    "starts": ("weighted", "--start p3 --start p1 --walks 3 --length 5 --seed 9"),
}


@pytest.mark.parametrize("name", WALKS)
def test_walks_are_those_of_the_seed_and_follow_edges(
    tmp_path: Path, given: Path, name: str
) -> None:
    source, words = WALKS[name]
    report = run(f"walk {given / source} w {words} --npy", folder=tmp_path)
    walks = columns(tmp_path / "w")
    assert walks["walk"] == list(range(report["walks"]))
    assert sum(map(len, walks["path"])) == report["nodes"]
    graph = penstock.Graph.open(given / source)
    csr, ids = graph.csr(), graph.user_ids().to_pylist()
    kinds = csr.relations if name == "metapath" else csr.times if name == "temporal" else None
    edges: dict[tuple[object, object], list[int]] = {}
    for number, ends in enumerate(zip(csr.sources(), csr.indices, strict=True)):
        edges.setdefault((ids[ends[0]], ids[ends[1]]), []).append(
            number if kinds is None else int(kinds[number])
        )
    for path in walks["path"]:
        time = 0
        for step, pair in enumerate(pairwise(path)):
            if name == "restart" and pair[1] == path[0]:
                continue
            assert pair in edges
            if name == "metapath":
                assert step in edges[pair]
            if name == "temporal":  # the earliest edge that was still to come
                time = min(one for one in edges[pair] if one >= time)
    starts = ["p3", "p1"] if name == "starts" else ids
    assert [path[0] for path in walks["path"]] == starts * (report["walks"] // len(starts))
    place = {one: number for number, one in enumerate(ids)}
    blocks = np.concatenate([np.load(one) for one in sorted((tmp_path / "w").glob("_block-*.npy"))])
    assert [[place[one] for one in path] for path in walks["path"]] == [
        row[row >= 0].tolist() for row in blocks
    ]
    check(f"walk {name}", walks)


def assert_drawn(found: np.ndarray, chances: np.ndarray) -> None:
    """Assert that counts are as expected by a chi-squared test; rare ones are taken together."""
    assert (found[chances == 0] == 0).all()
    expected = chances * (found.sum() / chances.sum())
    often = expected > 5
    counts = [*found[often], found[~often].sum()], [*expected[often], expected[~often].sum()]
    least = 0 if counts[1][-1] else -1
    assert chisquare(*(one[: least or None] for one in counts)).pvalue > 1e-4


@pytest.mark.parametrize("sampler", ["auto", "its", "alias", "rejection", "reservoir"])
@pytest.mark.parametrize("app", ["deepwalk", "node2vec"])
def test_samplers_draw_from_the_exact_distribution(given: Path, app: str, sampler: str) -> None:
    graph = penstock.Graph.open(given / "weighted")
    matrix = adjacency(given / "weighted", weighted=True).toarray()  # parallel edges add up
    first = int(np.argmax((matrix > 0).sum(1)))
    p, q = (0.25, 4.0) if app == "node2vec" else (1.0, 1.0)
    walks = penstock.walk_array(
        graph,
        app=app,
        sampler=sampler,
        length=3,
        walks=40_000,
        start=graph.user_ids([first]).to_pylist(),
        seed=4,
        **({"p": p, "q": q} if app == "node2vec" else {}),
    )
    chances, found = np.zeros_like(matrix), np.zeros_like(matrix)
    for second in np.flatnonzero(matrix[first]):
        onward = matrix[second] * np.where(matrix[first] > 0, 1, 1 / q)
        onward[first] = matrix[second, first] / p
        chances[second] = matrix[first, second] * onward / max(onward.sum(), 1e-300)
    whole = walks[walks[:, 2] >= 0]
    np.add.at(found, (whole[:, 1], whole[:, 2]), 1)
    assert_drawn(found, chances)


def test_an_expression_is_the_weight(given: Path) -> None:
    graph = penstock.Graph.open(given / "weighted")
    csr, degrees = graph.csr(), graph.degrees
    first = int(np.argmax(degrees))
    walks = penstock.walk_array(
        graph,
        app="custom",
        weight="weight * weight if degree > 7 else 1 / (1 + degree)",
        length=2,
        walks=40_000,
        start=graph.user_ids([first]).to_pylist(),
    )
    row = slice(csr.indptr[first], csr.indptr[first + 1])
    ends = csr.indices[row]
    weights = np.where(degrees[ends] > 7, csr.weights[row] ** 2.0, 1 / (1 + degrees[ends]))
    found = np.bincount(walks[:, 1], minlength=csr.rows)
    assert_drawn(found, np.bincount(ends, weights, minlength=csr.rows))


def test_visits_of_ppr_are_personalised_pagerank(given: Path) -> None:
    graph = penstock.Graph.open(given / "blocks")
    name = str(graph.user_ids([5])[0].as_py())
    walks = penstock.walk_array(graph, app="ppr", stop=0.2, length=100, walks=30_000, start=[name])
    visits = np.bincount(walks[walks >= 0], minlength=400) / np.sum(walks >= 0)
    expected = nx.pagerank(
        nx.from_scipy_sparse_array(adjacency(given / "blocks")),
        alpha=0.8,
        personalization={5: 1},
        tol=1e-12,
    )
    np.testing.assert_allclose(visits, [expected[node] for node in range(400)], atol=2e-3)
    lengths = np.sum(walks >= 0, axis=1)
    assert np.mean(lengths) == pytest.approx(1 / 0.2, rel=0.02)


@pytest.mark.parametrize("kind", ["graph", "walks", "lists", "text"])
def test_word2vec_has_a_vector_for_every_word(tmp_path: Path, given: Path, kind: str) -> None:
    run(f"walk {given / 'blocks'} w --length 12 --walks 4", folder=tmp_path)
    sentences = columns(tmp_path / "w")["path"]
    words: list[object] = [one for path in sentences for one in path]
    if kind == "lists":
        pq.write_table(pa.table({"path": sentences}), tmp_path / "lists.parquet")
    elif kind == "text":
        text = "\n".join(" ".join(f"w{one}" for one in path) for path in sentences)
        (tmp_path / "text.txt").write_text(text)
        words = [f"w{one}" for one in words]
    source = {"graph": given / "blocks", "walks": "w", "lists": "lists.parquet", "text": "text.txt"}
    more = " --walks 4 --length 12 --app node2vec --q 2" if kind == "graph" else ""
    report = run(f"word2vec train {source[kind]} v --dim 16{more}", folder=tmp_path)
    counts = Counter(words)
    least = 5 if kind == "text" else 1
    vectors = penstock.Vectors.open(tmp_path / "v")
    table = pq.read_table(sorted((tmp_path / "v").glob("part-*.parquet"))).to_pydict()
    assert report["rows"] == len(vectors) == len(table["id"])
    if kind == "graph":
        assert set(table["id"]) == set(counts)
        assert sum(table["count"]) == 400 * 4 * 12
    else:
        assert dict(zip(table["id"], table["count"], strict=True)) == {
            one: count for one, count in counts.items() if count >= least
        }
        assert (np.diff(table["count"]) <= 0).all()
    np.testing.assert_array_equal(table["vector"], np.load(tmp_path / "v" / "vectors.npy"))
    np.testing.assert_array_equal(vectors[table["id"][7]], table["vector"][7])


def test_word2vec_learns_blocks_and_the_same_for_a_seed(tmp_path: Path, given: Path) -> None:
    words = f"word2vec train {given / 'blocks'} {{}} --dim 8 --walks 10 --length 20 --deterministic"
    for name in ("one", "two"):
        run(words.format(name), folder=tmp_path)
    found = [columns(tmp_path / name / "part-00000.parquet") for name in ("one", "two")]
    assert_same(*found)
    nodes = pd.DataFrame(columns(given / "blocks" / "nodes.parquet")).set_index("id")
    labels = nodes.loc[found[0]["id"], "label"].to_numpy()
    vectors = np.asarray(found[0]["vector"])
    vectors -= vectors.mean(0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines, same = vectors @ vectors.T, labels[:, None] == labels
    assert cosines[same].mean() - cosines[~same].mean() > 0.3
    check("word2vec", found[0], tolerance=1e-3)
    array = penstock.node2vec_array(given / "blocks", dim=8, walks=2, length=10)
    assert array.shape == (400, 8)


def vectors_of_words(folder: Path) -> tuple[list[str], np.ndarray]:
    """Write vectors in which analogies hold now and then."""
    grid = (draws(12 * 6, 1000, 1).reshape(12, 6) - 500) / 500
    noise = (draws(48 * 6, 1000, 2).reshape(48, 6) - 500) / 1000
    vectors = np.repeat(grid, 4, axis=0) + np.tile(grid[:4, ::-1], (12, 1)) + noise
    words = [f"w{row}.{column}" for row in range(12) for column in range(4)]
    table = {"id": words, "vector": list(vectors.astype(np.float32))}
    pd.DataFrame(table).to_parquet(folder / "words.parquet")
    return words, vectors.astype(np.float32).astype(np.float64)


def test_word2vec_evaluates_words_as_numpy_does(tmp_path: Path) -> None:
    words, vectors = vectors_of_words(tmp_path)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    pairs = [
        (a, b, judged)
        for a, b, judged in zip(draws(60, 48, 3), draws(60, 48, 4), draws(60, 9, 5), strict=True)
        if a != b
    ]
    lines = [f"{words[a]} {words[b]} {judged}\n" for a, b, judged in pairs]
    (tmp_path / "pairs.txt").write_text("# judged\n" + "".join(lines) + "w0.0 unknown 3\n")
    questions = [
        [4 * a + c, 4 * a + d, 4 * b + c, 4 * b + d]
        for a, b in [(0, 5), (1, 7), (2, 9), (3, 11), (6, 4), (8, 10)]
        for c, d in [(0, 1), (1, 3), (2, 0)]
    ]
    text = ": one\n" + "".join(" ".join(words[one] for one in four) + "\n" for four in questions)
    (tmp_path / "analogies.txt").write_text(text)
    report = run(
        "word2vec evaluate words.parquet --pairs pairs.txt --analogies analogies.txt",
        folder=tmp_path,
    )
    cosines = [units[a] @ units[b] for a, b, _ in pairs]
    judged = report["pairs"][0]
    assert judged["spearman"] == pytest.approx(spearmanr(cosines, [one[2] for one in pairs])[0])
    assert judged["pearson"] == pytest.approx(np.corrcoef(cosines, [one[2] for one in pairs])[0, 1])
    assert (judged["used"], judged["unknown"]) == (len(pairs), 1)
    right = {"3cosadd": 0, "3cosmul": 0}
    for a, b, c, d in questions:
        near = (1 + units @ units.T) / 2
        scores = {
            "3cosadd": units @ (units[b] - units[a] + units[c]),
            "3cosmul": near[b] * near[c] / (near[a] + 1e-6),
        }
        for name, score in scores.items():
            score[[a, b, c]] = -np.inf
            right[name] += int(np.argmax(score) == d)
    total = report["analogies"][0]["total"]
    for name, count in right.items():
        assert 0 < count < len(questions)
        assert total[name] == pytest.approx(count / len(questions))


def test_word2vec_predicts_labels_as_scipy_does(tmp_path: Path) -> None:
    labels, count = draws(300, 3, 1), 300
    noise = sum(draws(count * 4, 1000, stream) for stream in (2, 3, 4)).reshape(count, 4) / 500 - 3
    vectors = np.eye(3, 4)[labels] * 1.2 + noise
    ids = np.arange(count)
    pd.DataFrame({"id": ids, "vector": list(vectors.astype(np.float32))}).to_parquet(
        tmp_path / "v.parquet"
    )
    pd.DataFrame({"id": ids, "label": labels}).to_parquet(tmp_path / "labels.parquet")
    report = run(
        "word2vec evaluate v.parquet --labels labels.parquet --shares 0.5", folder=tmp_path
    )
    random, scores = np.random.default_rng(0), []
    inputs = np.hstack([vectors, np.ones((count, 1))])
    for _ in range(10):
        order = random.permutation(count)
        train, test = order[:150], order[150:]
        predicted = []
        for one in range(3):
            sign = np.where(labels[train] == one, 1, -1)

            def loss(w: np.ndarray, sign: np.ndarray = sign, train: np.ndarray = train) -> float:
                return float(np.logaddexp(0, -sign * (inputs[train] @ w)).sum() + w[:4] @ w[:4] / 2)

            predicted.append(inputs[test] @ minimize(loss, np.zeros(5)).x)
        scores.append(np.mean(np.argmax(predicted, axis=0) == labels[test]))
    (share,) = report["labels"]["shares"]
    assert share["micro_f1"] == pytest.approx(np.mean(scores), abs=0.03)
    assert 0.5 < share["macro_f1"] < 0.95


@pytest.mark.parametrize(
    ("form", "name"),
    [("text", "o.txt"), ("binary", "o.bin"), ("npy", "o.npy"), ("parquet", "o.parquet")],
)
def test_word2vec_exports_every_digit(tmp_path: Path, form: str, name: str) -> None:
    words, vectors = vectors_of_words(tmp_path)
    run(f"word2vec export words.parquet {name} --format {form}", folder=tmp_path)
    out = tmp_path / name
    if form == "npy":
        found = np.load(out), columns(tmp_path / "o.ids.parquet")["id"]
    elif form == "parquet":
        table = columns(out)
        found = np.asarray(table["vector"]), table["id"]
    else:
        head, _, body = out.read_bytes().partition(b"\n")
        assert head.split() == [b"48", b"6"]
        if form == "text":
            lines = [line.split(" ") for line in body.decode().splitlines()]
            found = (
                np.asarray([line[1:] for line in lines], np.float32),
                [line[0] for line in lines],
            )
        else:
            names, rows = [], []
            while body.strip():
                word, _, body = body.lstrip(b"\n").partition(b" ")
                names.append(word.decode())
                rows.append(np.frombuffer(body[:24], np.float32))
                body = body[24:]
            found = np.asarray(rows), names
    np.testing.assert_array_equal(found[0], vectors)
    assert found[1] == words
    (near,) = run(f"similar {name} w3.1 -k 4", folder=tmp_path)["neighbours"]
    expected = penstock.similar(tmp_path / "words.parquet", ["w3.1"], k=4).neighbours["w3.1"]
    assert [(one["id"], one["score"]) for one in near["neighbours"]] == expected


@pytest.mark.parametrize("metric", ["cosine", "dot"])
def test_similar_finds_what_numpy_finds(tmp_path: Path, metric: str) -> None:
    words, vectors = vectors_of_words(tmp_path)
    if metric == "cosine":
        vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    scores = vectors @ vectors.T
    np.fill_diagonal(scores, -np.inf)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :5]
    run(f"similar words.parquet --all near -k 5 --metric {metric}", folder=tmp_path)
    table = columns(tmp_path / "near")
    assert table["id"] == [one for one in words for _ in range(5)]
    assert table["neighbour"] == [words[one] for row in order for one in row]
    np.testing.assert_allclose(
        table["score"], np.take_along_axis(scores, order, 1).ravel(), rtol=1e-6
    )
    near = penstock.similar(tmp_path / "words.parquet", ["w2.2", "w0.1"], k=5, metric=metric)
    for one in ("w2.2", "w0.1"):
        row = words.index(one)
        assert [name for name, _ in near.neighbours[one]] == [words[n] for n in order[row]]
    assert json.loads((tmp_path / "near" / "_neighbours.json").read_text())
