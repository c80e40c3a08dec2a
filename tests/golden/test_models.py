"""gnn and embed: what they learn and score, against the same in NumPy."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from golden import adjacency, check, columns, content, curve, draws, follows, run, tensors
from scipy.special import log_softmax, softmax
from scipy.stats import rankdata

import penstock

SPLITS = ["train", "valid", "test"]

# ---- gnn


def with_loops(path):
    matrix = adjacency(path)
    return sp.csr_array(matrix + sp.eye_array(matrix.shape[0]))


def normalized(path):
    matrix = with_loops(path)
    scale = sp.diags_array(1 / np.sqrt(matrix.sum(1)))
    return sp.csr_array(scale @ matrix @ scale)


def layers(path):
    """Return the weights of each of two layers by name, of float64."""
    found = tensors(path).items()
    return [
        {name[9:]: one.astype(float) for name, one in found if name.startswith(f"layers.{n}.")}
        for n in (0, 1)
    ]


def test_gcn_learns_as_numpy_does(given):
    words = "--hidden 8 --dropout 0 --optimizer sgd --momentum 0 --weight-decay 0 --lr 0.5"
    for epochs in (1, 6):
        run(f"gnn train {given / 'blocks'} run{epochs} {words} --epochs {epochs}")
    graph, matrix = penstock.Graph.open(given / "blocks"), normalized(given / "blocks")
    labels, first = np.asarray(graph.labels()), matrix @ graph.features()
    nodes = {name: np.flatnonzero(graph.split(name)) for name in SPLITS}
    (w0, b0), (w1, b1) = (
        (one["weight"], one["bias"]) for one in layers("run1/checkpoints/last.safetensors")
    )

    def forward():
        hidden = np.maximum(first @ w0 + b0, 0)
        return hidden, matrix @ hidden @ w1 + b1

    def same(logged, name):
        scores, here = forward()[1], nodes[name]
        loss = -log_softmax(scores, 1)[here, labels[here]].mean()
        score = np.mean(scores[here].argmax(1) == labels[here])
        return logged == pytest.approx({"loss": loss, "score": score}, rel=1e-4)

    for line in curve("run6")[1:]:
        assert same(line["train"], "train")
        hidden, scores = forward()
        gradient = np.zeros_like(scores)
        gradient[nodes["train"]] = (softmax(scores, 1) - np.eye(5)[labels])[nodes["train"]]
        gradient /= len(nodes["train"])
        back = matrix.T @ gradient
        inner = (back @ w1.T) * (hidden > 0)
        w1, b1 = w1 - 0.5 * hidden.T @ back, b1 - 0.5 * gradient.sum(0)
        w0, b0 = w0 - 0.5 * first.T @ inner, b0 - 0.5 * inner.sum(0)
        assert same(line["valid"], "valid")
        assert same(line["test"], "test")


def layer(kind, path, x, weight):
    """Return what a layer makes of its input, before the activation."""
    matrix, loops, product = adjacency(path), with_loops(path), x @ weight["weight"]
    spans = [matrix.indices[a:b] for a, b in zip(matrix.indptr, matrix.indptr[1:], strict=False)]
    if kind == "gcn":
        return normalized(path) @ product + weight["bias"]
    if kind == "gin":
        inner = np.maximum(loops @ product + weight["between"], 0)
        return inner @ weight["second"] + weight["bias"]
    if kind == "gat":
        product = product.reshape(len(x), len(weight["left"]), -1)
        left, right = ((product * weight[name]).sum(2) for name in ("left", "right"))
        out = np.empty_like(product)
        for node, near in enumerate(spans):
            attention = left[node] + right[[node, *near]]
            shares = softmax(np.where(attention > 0, attention, 0.2 * attention), 0)
            out[node] = (product[[node, *near]] * shares[:, :, None]).sum(0)
        return out.reshape(len(x), -1) + weight["bias"]
    if kind == "max":
        reached = np.stack([x[near].max(0) for near in spans]) @ weight["weight"]
    else:
        reached = matrix @ product / (matrix.sum(1)[:, None] if kind == "mean" else 1)
    return reached + x @ weight["self"] + weight["bias"]


@pytest.mark.parametrize("kind", ["gcn", "mean", "max", "sum", "gin", "gat"])
def test_predictions_are_those_of_numpy(given, kind):
    graph = given / "blocks"
    model = f"sage --aggregate {kind}" if kind in ("mean", "max", "sum") else kind
    more = {"gat": "--heads 2", "gin": "--norm none --lr 0.001"}.get(kind, "")
    run(f"gnn train {graph} run --model {model} {more} --hidden 8 --epochs 8")
    run("gnn predict run out --probabilities --embeddings")
    first, second = layers("run/checkpoints/best.safetensors")
    hidden = layer(kind, graph, penstock.Graph.open(graph).features(), first)
    hidden = np.where(hidden > 0, hidden, np.expm1(np.minimum(hidden, 0)) if kind == "gat" else 0)
    table, nodes = columns("out"), columns(graph / "nodes.parquet")
    chances = np.asarray(table["probabilities"])
    assert table["id"] == nodes["id"]
    np.testing.assert_allclose(table["embedding"], hidden, rtol=1e-3, atol=1e-4)
    expected = softmax(layer(kind, graph, hidden, second), 1)
    np.testing.assert_allclose(chances, expected, rtol=1e-3, atol=1e-5)
    classes = json.loads((graph / "graph.json").read_text())["classes"]
    assert table["prediction"] == chances.argmax(1).tolist()
    assert table["predicted_label"] == [classes[one] for one in table["prediction"]]
    assert table["probability"] == chances.max(1).tolist()
    assert table["split"] == [SPLITS[one] for one in nodes["split"]]
    test = np.asarray(table["split"]) == "test"
    assert_scores(run("gnn evaluate run"), np.asarray(nodes["label"])[test], chances[test])


def assert_scores(report, labels, chances):
    """Compare an evaluation with counts and ranks."""
    confusion = np.zeros((5, 5), int)
    np.add.at(confusion, (labels, chances.argmax(1)), 1)
    assert report["confusion"] == confusion.tolist()
    f1 = 2 * np.diag(confusion) / np.maximum(confusion.sum(0) + confusion.sum(1), 1)
    np.testing.assert_allclose(report["f1"], f1)
    areas = []
    for one in range(5):
        ranks, yes = rankdata(chances[:, one]), labels == one
        count = yes.sum()
        areas.append((ranks[yes].mean() - (count + 1) / 2) / (~yes).sum())
    expected = {"accuracy": np.trace(confusion) / len(labels), "macro_f1": f1.mean()}
    assert {name: report[name] for name in expected} == pytest.approx(expected)
    assert report["roc_auc"] == pytest.approx(np.mean(areas))


@pytest.mark.parametrize("kind", ["value", "multi"])
def test_gnn_learns_values_and_several_classes(kind):
    follows().to_parquet("e.parquet")
    x = draws(200 * 4, 100, 1).reshape(200, 4) / 50 - 1
    people = pd.DataFrame(x, columns=["x0", "x1", "x2", "x3"])
    people["id"], people["split"] = [f"p{number}" for number in range(200)], draws(200, 3, 2)
    lists = [[f"c{n}" for n in range(3) if row[n] > 0] for row in x]
    people["label"] = x[:, 0] - x[:, 1] / 2 if kind == "value" else lists
    people.to_parquet("people.parquet")
    words = f"--label label --label-kind {kind} --split split --feature-columns x*"
    run(f"etl e.parquet g --nodes people.parquet {words}")
    run("gnn train g run --model sage --epochs 60 --hidden 16")
    run("gnn predict run out")
    report = run("gnn evaluate run")
    check(f"gnn {kind}", content("gnn", Path("run")), tolerance=1e-3)
    test = people[people["split"] == 2].set_index("id")
    found = pd.DataFrame(columns("out")).set_index("id").loc[test.index]
    if kind == "value":
        error = (found["prediction"] - test["label"]).to_numpy()
        expected = {"mse": np.mean(error**2), "mae": np.mean(np.abs(error))}
        expected["r2"] = 1 - expected["mse"] / np.var(test["label"].to_numpy())
        assert report["r2"] > 0.5
    else:
        pairs = list(zip(found["predicted_label"], test["label"], strict=True))
        right = sum(len({*guess} & {*true}) for guess, true in pairs)
        expected = {"micro_f1": 2 * right / sum(len(guess) + len(true) for guess, true in pairs)}
        assert report["micro_f1"] > 0.7
    assert {name: report[name] for name in expected} == pytest.approx(expected, rel=1e-3)


def test_gnn_resumes_with_more_epochs_and_predicts_on_a_copy(given):
    words = f"gnn train {given / 'blocks'} {{}} --model sage --seed 2 --epochs"
    report = run(words.format("run") + " 40")
    run(words.format("again") + " 15")
    run(words.format("again") + " 40 --resume")
    one, other = (
        [[line[name] for name in SPLITS] for line in curve(run)] for run in ("run", "again")
    )
    assert one == other
    best = min(curve("run"), key=lambda line: line["valid"]["loss"])
    assert (report["best_epoch"], report["metrics"]["test"]) == (best["epoch"], best["test"])
    assert best["test"]["score"] > 0.9
    shutil.copytree(given / "blocks", "copy")
    run("gnn predict run here")
    run("gnn predict run there --graph copy")
    assert columns("here") == columns("there")


# ---- embed


def scores_of(model, head, relation, tail):
    """Return the scores of edges by docs/embed.md, along the last axis."""
    half = head.shape[-1] // 2
    if model in ("complex", "rotate"):
        h, t = (one[..., :half] + 1j * one[..., half:] for one in (head, tail))
        if model == "rotate":
            return -np.abs(h * np.exp(1j * relation) - t).sum(-1)
        return (h * (relation[..., :half] + 1j * relation[..., half:]) * t.conj()).real.sum(-1)
    if model.startswith("transe"):
        return -np.linalg.norm(head + relation - tail, ord=int(model[-1]), axis=-1)
    if model == "rescal":
        matrix = relation.reshape(*relation.shape[:-1], 8, 8)
        return np.einsum("...i,...ij,...j", head, matrix, tail)
    return (head * tail * (relation if model == "distmult" else 1)).sum(-1)


def ranks_of(scores, answers, hidden):
    """Return the rank of each answer in its row; of equal scores the mean."""
    own = np.take_along_axis(scores, answers[:, None], 1)
    scores = np.where(hidden, -np.inf, scores)
    np.put_along_axis(scores, answers[:, None], own, 1)
    return (scores > own).sum(1) + ((scores == own).sum(1) + 1) / 2


@pytest.mark.parametrize(
    "model", ["complex", "distmult", "rescal", "transe1", "transe2", "rotate", "dot"]
)
def test_embed_ranks_as_numpy_does(given, model):
    path = given / "kg"
    if model == "dot":
        path = Path("pairs")
        run(f"etl {given}/follows.parquet pairs --split-edges 0.8 0.1 0.1 --weight none")
    more = {"dot": "", "rotate": ""}.get(model, "--no-reciprocal")
    more = f"--norm {model[-1]}" if model.startswith("transe") else more
    run(f"embed train {path} run --model {model.rstrip('12')} --dim 8 --epochs 4 {more}")
    graph, relations = penstock.Graph.open(path), np.zeros((1, 8))
    ids = graph.user_ids().to_pylist()
    found = content("embed", Path("run"))
    np.testing.assert_array_equal(np.load("run-nodes/vectors.npy"), found["vector"])
    nodes = np.asarray(found["vector"])[[found["id"].index(one) for one in ids]]
    if model != "dot":
        run("embed export run relations --relations")
        table = columns("relations/part-00000.parquet")
        relations = np.asarray([table["vector"][table["id"].index(f"r{n}")] for n in range(4)])
        check(f"embed {model}", {"nodes": nodes, "relations": relations}, tolerance=1e-3)
    known = np.zeros((len(ids), len(relations), len(ids)), bool)
    csr, zeros = graph.csr(), np.zeros(graph.num_edges, int)
    known[csr.sources(), zeros if csr.relations is None else csr.relations, csr.indices] = True
    for name in ("valid", "test"):
        held = graph.heldout(name)
        a, b = held["sources"], held["targets"]
        r = held.get("relations", zeros[: len(a)])
        known[a, r, b] = True
    if model == "dot":
        known |= known.transpose(2, 1, 0) | np.eye(len(ids), dtype=bool)[:, None]
    relation = relations[r][:, None]
    tails = scores_of(model, nodes[a][:, None], relation, nodes[None]), b, known[a, r]
    heads = scores_of(model, nodes[None], relation, nodes[b][:, None]), a, known[:, r, b].T
    for words, use in {"": False, "--filtered": True}.items():
        report = run(f"embed evaluate run {words}")
        ranks = np.concatenate([ranks_of(*one[:2], one[2] & use) for one in (tails, heads)])
        expected = {"mr": ranks.mean(), "mrr": (1 / ranks).mean()}
        expected |= {f"hits{k}": np.mean(ranks <= k) for k in (1, 3, 10)}
        assert {name: report[name] for name in expected} == pytest.approx(expected, rel=1e-3)
    head = int(csr.sources()[3])
    words = "" if model == "dot" else "--relation r0"
    answers = run(f"embed predict run --head {ids[head]} {words} -k 5")["answers"]
    scores = scores_of(model, nodes[head], relations[0], nodes)
    best = np.argsort(np.where(known[head, 0], np.inf, -scores))[:5]
    assert [one["id"] for one in answers] == [ids[n] for n in best]
    np.testing.assert_allclose([one["score"] for one in answers], scores[best], rtol=1e-4)


def test_embed_learns_warm_starts_and_swaps_partitions(given):
    words = f"embed train {given / 'kg'} {{}} --dim 32 --epochs"
    inside = run(words.format("run") + " 20")["validation"]["mrr"]
    outside = run(words.format("parts") + " 20 --partitions 8")["validation"]["mrr"]
    assert inside > 0.15  # of a random order 0.03
    assert outside == pytest.approx(inside, abs=0.08)
    scores = run("embed evaluate parts --filtered --split valid")
    assert scores["mrr"] == pytest.approx(outside, rel=1e-3)
    run(words.format("warm") + " 1 --lr 1e-9 --init run")
    warm, before = (penstock.embed.vectors(name) for name in ("warm", "run"))
    for one in ("e3", "e77"):
        np.testing.assert_allclose(warm[one], before[one], atol=1e-5)
