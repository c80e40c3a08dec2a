"""walk, word2vec and similar, against NumPy, SciPy and NetworkX."""

from collections import Counter, defaultdict
from itertools import pairwise, product
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from golden import adjacency, assert_same, check, columns, content, draws, run
from scipy.stats import chisquare, spearmanr

import penstock

# ---- walk

WALKS = {
    "deepwalk": "blocks w --length 12",
    "weighted": "weighted w --walks 2 --length 10",
    "ppr": "blocks w --app ppr --stop 0.2",
    "node2vec": "blocks w --app node2vec --p 0.5 --q 2 --length 12",
    "metapath": "kg w --app metapath --schema r0,r1,r2",
    "restart": "blocks w --restart 0.3 --length 20",
    "temporal": "weighted w --temporal --length 6 --walks 4",
    "custom": "weighted w --app custom --length 6 --weight 'weight/(1+degree) if step<4 else 1'",
    "starts": "weighted w --start p3 --start p1 --walks 3 --length 5 --seed 9",
}


@pytest.mark.parametrize("name", WALKS)
def test_walks_are_those_of_the_seed_and_follow_edges(given, name):
    report, walks = run(f"walk {given}/{WALKS[name]} --npy"), columns("w")
    check(f"walk {name}", walks)
    paths = walks["path"]
    assert walks["walk"] == list(range(report["walks"]))
    assert sum(map(len, paths)) == report["nodes"]
    graph = penstock.Graph.open(given / WALKS[name].split()[0])
    csr, ids = graph.csr(), graph.user_ids().to_pylist()
    kinds = {"metapath": csr.relations, "temporal": csr.times}.get(name, csr.indices)
    edges = defaultdict(list)
    for source, target, kind in zip(csr.sources(), csr.indices, kinds, strict=True):
        edges[ids[source], ids[target]].append(kind)
    for path in paths:
        time = 0
        for step, pair in enumerate(pairwise(path)):
            assert pair in edges or (name == "restart" and pair[1] == path[0])
            assert name != "metapath" or step in edges[pair]
            if name == "temporal":  # the earliest edge that was still to come
                time = min(one for one in edges[pair] if one >= time)
    starts = ["p3", "p1"] if name == "starts" else ids
    assert [path[0] for path in paths] == starts * (len(paths) // len(starts))
    rows = np.concatenate([np.load(one) for one in sorted(Path("w").glob("_block-*.npy"))])
    assert paths == [[ids[one] for one in row if one >= 0] for row in rows]


def assert_drawn(found, chances):
    """Assert that counts are as expected by a chi-squared test; rare ones are taken together."""
    assert (found[chances == 0] == 0).all()
    expected = chances * (found.sum() / chances.sum())
    often, rest = expected > 5, (expected > 0) & (expected <= 5)
    more = [rest] if rest.any() else []
    counts = [[*one[often], *(one[each].sum() for each in more)] for one in (found, expected)]
    assert chisquare(*counts).pvalue > 1e-4


@pytest.mark.parametrize("sampler", ["auto", "its", "alias", "rejection", "reservoir"])
@pytest.mark.parametrize("app", ["deepwalk", "node2vec"])
def test_samplers_draw_from_the_exact_distribution(given, app, sampler):
    graph = penstock.Graph.open(given / "weighted")
    matrix = adjacency(given / "weighted", weighted=True).toarray()  # parallel edges add up
    first = int(np.argmax((matrix > 0).sum(1)))
    p, q = (0.25, 4.0) if app == "node2vec" else (1.0, 1.0)
    options = {"app": app, "sampler": sampler, "start": graph.user_ids([first]).to_pylist()}
    options |= {"device": "cpu"} | ({"p": p, "q": q} if app == "node2vec" else {})
    walks = penstock.walk_array(graph, length=3, walks=40_000, seed=4, **options)
    chances, found = np.zeros_like(matrix), np.zeros_like(matrix)
    for second in np.flatnonzero(matrix[first]):
        onward = matrix[second] * np.where(matrix[first] > 0, 1, 1 / q)
        onward[first] = matrix[second, first] / p
        chances[second] = matrix[first, second] * onward / max(onward.sum(), 1e-300)
    whole = walks[walks[:, 2] >= 0]
    np.add.at(found, (whole[:, 1], whole[:, 2]), 1)
    assert_drawn(found, chances)


def test_an_expression_is_the_weight(given):
    graph = penstock.Graph.open(given / "weighted")
    csr, degrees = graph.csr(), graph.degrees
    first = int(np.argmax(degrees))
    options = {
        "app": "custom",
        "start": graph.user_ids([first]).to_pylist(),
        "length": 2,
        "device": "cpu",
    }
    weight = "weight/(1+degree) if step<4 else 1"  # which is compiled for WALKS already
    walks = penstock.walk_array(graph, weight=weight, walks=40_000, **options)
    row = slice(csr.indptr[first], csr.indptr[first + 1])
    ends = csr.indices[row]
    weights = csr.weights[row] / (1 + degrees[ends])
    found = np.bincount(walks[:, 1], minlength=csr.rows)
    assert_drawn(found, np.bincount(ends, weights, minlength=csr.rows))


def test_visits_of_ppr_are_personalised_pagerank(given):
    start = [str(penstock.Graph.open(given / "blocks").user_ids([5])[0])]
    options = {"app": "ppr", "stop": 0.2, "start": start, "length": 100, "device": "cpu"}
    walks = penstock.walk_array(given / "blocks", walks=30_000, **options)
    visits = np.bincount(walks[walks >= 0], minlength=400) / np.sum(walks >= 0)
    graph = nx.from_scipy_sparse_array(adjacency(given / "blocks"))
    expected = nx.pagerank(graph, alpha=0.8, personalization={5: 1}, tol=1e-12)
    np.testing.assert_allclose(visits, [expected[node] for node in range(400)], atol=2e-3)
    assert np.mean(np.sum(walks >= 0, axis=1)) == pytest.approx(1 / 0.2, rel=0.02)


# ---- word2vec


def test_word2vec_learns_blocks_and_the_same_for_a_seed(given):
    words = "--dim 8 --walks 10 --length 20 --deterministic"
    for name in ("one", "two"):
        run(f"word2vec train {given / 'blocks'} {name} {words}")
    found = content("word2vec", Path("one"))
    assert_same(found, content("word2vec", Path("two")))
    check("word2vec", found, tolerance=1e-3)
    labels = dict(
        zip(*(columns(given / "blocks/nodes.parquet")[n] for n in ("id", "label")), strict=True)
    )
    labels = np.array([labels[one] for one in found["id"]])
    vectors = found["vector"] - np.mean(found["vector"], axis=0)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    cosines, same = vectors @ vectors.T, labels[:, None] == labels
    assert cosines[same].mean() - cosines[~same].mean() > 0.3
    array = penstock.node2vec_array(given / "blocks", dim=8, walks=2, length=10)
    assert array.shape == (400, 8)


def test_word2vec_evaluates_words_as_numpy_does():
    # Vectors in which analogies hold now and then.
    grid = (draws(12 * 6, 1000, 1).reshape(12, 6) - 500) / 500
    noise = (draws(48 * 6, 1000, 2).reshape(48, 6) - 500) / 1000
    vectors = np.repeat(grid, 4, axis=0) + np.tile(grid[:4, ::-1], (12, 1)) + noise
    vectors = vectors.astype(np.float32)
    words = [f"w{row}.{column}" for row, column in product(range(12), range(4))]
    pd.DataFrame({"id": words, "vector": list(vectors)}).to_parquet("words.parquet")
    vectors = vectors.astype(np.float64)
    units = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    a, b, judged = draws(60, 48, 3), draws(60, 47, 4), draws(60, 9, 5)
    b += b >= a
    lines = [f"{words[x]} {words[y]} {z}\n" for x, y, z in zip(a, b, judged, strict=True)]
    Path("pairs.txt").write_text("# judged\n" + "".join(lines) + "w0.0 unknown 3\n")
    rows, places = [(0, 5), (1, 7), (2, 9), (3, 11), (6, 4), (8, 10)], [(0, 1), (1, 3), (2, 0)]
    questions = [[4 * i + m, 4 * i + n, 4 * j + m, 4 * j + n] for i, j in rows for m, n in places]
    lines = [" ".join(words[one] for one in four) + "\n" for four in questions]
    Path("analogies.txt").write_text(": one\n" + "".join(lines))
    report = run("word2vec evaluate words.parquet --pairs pairs.txt --analogies analogies.txt")
    cosines, found = (units[a] * units[b]).sum(1), report["pairs"][0]
    assert found["spearman"] == pytest.approx(spearmanr(cosines, judged)[0])
    assert found["pearson"] == pytest.approx(np.corrcoef(cosines, judged)[0, 1])
    assert (found["used"], found["unknown"]) == (60, 1)
    near, right = (1 + units @ units.T) / 2, Counter()
    for i, j, m, n in questions:
        add = units @ (units[j] - units[i] + units[m])
        for name, scores in {
            "3cosadd": add,
            "3cosmul": near[j] * near[m] / (near[i] + 1e-6),
        }.items():
            scores[[i, j, m]] = -np.inf
            right[name] += int(np.argmax(scores) == n)
    for name, count in right.items():
        assert 0 < count < len(questions)
        assert report["analogies"][0]["total"][name] == pytest.approx(count / len(questions))
