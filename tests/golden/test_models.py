"""gnn and embed: what they learn and score, against the same in NumPy."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from golden import adjacency, check, columns, draws, follows, run, tensors
from scipy.special import log_softmax, softmax
from scipy.stats import rankdata

import penstock

# ---- gnn


def curve(path: Path) -> list[dict[str, Any]]:
    """Return the losses and scores of every epoch."""
    lines = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    return [{key: line[key] for key in ("epoch", "train", "valid", "test")} for line in lines]


def normalized(path: Path) -> sp.csr_array:
    matrix = adjacency(path) + sp.eye_array(adjacency(path).shape[0])
    scale = sp.diags_array(1 / np.sqrt(matrix.sum(1)))
    return sp.csr_array(scale @ matrix @ scale)


def test_gcn_learns_as_numpy_does(tmp_path: Path, given: Path) -> None:
    words = (
        f"gnn train {given / 'blocks'} {{}} --hidden 8 --dropout 0 --optimizer sgd --momentum 0 "
        "--weight-decay 0 --lr 0.5 --epochs"
    )
    run(words.format("first") + " 1", folder=tmp_path)
    run(words.format("run") + " 6", folder=tmp_path)
    graph = penstock.Graph.open(given / "blocks")
    features, labels = graph.features(), np.asarray(graph.labels())
    train = np.flatnonzero(graph.split("train"))
    matrix, weights = (
        normalized(given / "blocks"),
        tensors(tmp_path / "first" / "checkpoints" / "last.safetensors"),
    )
    w0, b0, w1, b1 = (
        weights[f"layers.{n}.{name}"].astype(float) for n in (0, 1) for name in ("weight", "bias")
    )
    wanted, lines = np.eye(5)[labels], curve(tmp_path / "run")
    aggregated = matrix @ features
    for line in lines[1:]:
        before = aggregated @ w0 + b0
        hidden = np.maximum(before, 0)
        scores = matrix @ hidden @ w1 + b1
        loss = -(wanted * log_softmax(scores, 1)).sum(1)[train].mean()
        assert line["train"]["loss"] == pytest.approx(loss, rel=1e-4)
        gradient = np.zeros_like(scores)
        gradient[train] = (softmax(scores, 1) - wanted)[train] / len(train)
        back = matrix.T @ gradient
        inner = (back @ w1.T) * (before > 0)
        b1 -= 0.5 * gradient.sum(0)
        w1 = w1 - 0.5 * hidden.T @ back
        b0 -= 0.5 * inner.sum(0)
        w0 -= 0.5 * aggregated.T @ inner
        scores = matrix @ np.maximum(aggregated @ w0 + b0, 0) @ w1 + b1
        for name in ("valid", "test"):
            nodes = graph.split(name)
            loss = -(wanted * log_softmax(scores, 1)).sum(1)[nodes].mean()
            assert line[name]["loss"] == pytest.approx(loss, rel=1e-4)
            right = np.mean(scores[nodes].argmax(1) == labels[nodes])
            assert line[name]["score"] == pytest.approx(right)
    assert lines[-1]["train"]["loss"] < lines[0]["train"]["loss"]


def layer(kind: str, path: Path, x: np.ndarray, weight: dict[str, np.ndarray]) -> np.ndarray:
    """Return what a layer makes of its input, before the activation."""
    matrix, product = adjacency(path), x @ weight["weight"]
    loops = sp.csr_array(matrix + sp.eye_array(matrix.shape[0]))
    if kind == "gcn":
        return normalized(path) @ product + weight["bias"]
    if kind == "gin":
        inner = np.maximum(loops @ product + weight["between"], 0)
        return inner @ weight["second"] + weight["bias"]
    if kind == "gat":
        heads = len(weight["left"])
        by_head = product.reshape(len(x), heads, -1)
        left, right = ((by_head * weight[name]).sum(2) for name in ("left", "right"))
        out = np.empty_like(by_head)
        for node in range(len(x)):
            near = loops.indices[loops.indptr[node] : loops.indptr[node + 1]]
            attention = left[node] + right[near]
            shares = softmax(np.where(attention > 0, attention, 0.2 * attention), 0)
            out[node] = (by_head[near] * shares[:, :, None]).sum(0)
        return out.reshape(len(x), -1) + weight["bias"]
    sums = {
        "mean": sp.diags_array(1 / np.maximum(matrix.sum(1), 1)) @ matrix @ product,
        "sum": matrix @ product,
    }
    if kind == "max":
        spans = zip(matrix.indptr, matrix.indptr[1:], strict=False)
        most = np.stack([x[matrix.indices[a:b]].max(0) for a, b in spans])
        sums["max"] = most @ weight["weight"]
    return sums[kind] + x @ weight["self"] + weight["bias"]


@pytest.mark.parametrize("kind", ["gcn", "mean", "max", "sum", "gin", "gat"])
def test_predictions_are_those_of_numpy(tmp_path: Path, given: Path, kind: str) -> None:
    graph = given / "blocks"
    model = f"sage --aggregate {kind}" if kind in ("mean", "max", "sum") else kind
    more = {"gat": "--heads 2", "gin": "--norm none --lr 0.001"}.get(kind, "")
    run(f"gnn train {graph} run --model {model} {more} --hidden 8 --epochs 8", folder=tmp_path)
    run("gnn predict run out --probabilities --embeddings", folder=tmp_path)
    weights = tensors(tmp_path / "run" / "checkpoints" / "best.safetensors")
    x = penstock.Graph.open(graph).features()
    first, second = (
        {
            name.split(".")[2]: one
            for name, one in weights.items()
            if name.startswith(f"layers.{n}.")
        }
        for n in (0, 1)
    )
    hidden = layer(kind, graph, x, first)
    hidden = np.where(hidden > 0, hidden, np.expm1(np.minimum(hidden, 0)) if kind == "gat" else 0)
    chances = softmax(layer(kind, graph, hidden, second), 1)
    table = columns(tmp_path / "out")
    nodes = columns(graph / "nodes.parquet")
    assert table["id"] == nodes["id"]
    np.testing.assert_allclose(table["embedding"], hidden, rtol=1e-3, atol=1e-4)
    np.testing.assert_allclose(table["probabilities"], chances, rtol=1e-3, atol=1e-5)
    classes = json.loads((graph / "graph.json").read_text())["classes"]
    assert [classes[one] for one in table["prediction"]] == table["predicted_label"]
    np.testing.assert_allclose(table["probability"], np.max(table["probabilities"], axis=1))
    assert [("train", "valid", "test").index(one) for one in table["split"]] == nodes["split"]
    report = run("gnn evaluate run", folder=tmp_path)
    test = np.flatnonzero(np.asarray(table["split"]) == "test")
    compare_classes(
        report, np.asarray(nodes["label"])[test], np.asarray(table["probabilities"])[test]
    )


def compare_classes(report: dict[str, Any], labels: np.ndarray, chances: np.ndarray) -> None:
    """Compare an evaluation with counts and ranks."""
    predicted, count = chances.argmax(1), chances.shape[1]
    confusion = np.zeros((count, count), int)
    np.add.at(confusion, (labels, predicted), 1)
    assert report["confusion"] == confusion.tolist()
    assert report["accuracy"] == pytest.approx(np.mean(labels == predicted))
    both = confusion.sum(0) + confusion.sum(1)
    f1 = 2 * np.diag(confusion) / np.maximum(both, 1)
    np.testing.assert_allclose(report["f1"], f1)
    assert report["macro_f1"] == pytest.approx(f1.mean())
    areas = []
    for one in range(count):
        ranks, yes = rankdata(chances[:, one]), labels == one
        many, others = yes.sum(), (~yes).sum()
        areas.append((ranks[yes].sum() - many * (many + 1) / 2) / (many * others))
    assert report["roc_auc"] == pytest.approx(np.mean(areas), abs=1e-3)


@pytest.mark.parametrize("kind", ["value", "multi"])
def test_gnn_learns_values_and_several_classes(tmp_path: Path, given: Path, kind: str) -> None:
    follows().to_parquet(tmp_path / "e.parquet")
    x = draws(200 * 4, 100, 1).reshape(200, 4) / 50 - 1
    people = pd.DataFrame(x, columns=["x0", "x1", "x2", "x3"])
    people["id"] = [f"p{number}" for number in range(200)]
    people["split"] = draws(200, 3, 2)
    if kind == "value":
        people["label"] = x[:, 0] - x[:, 1] / 2
    else:
        people["label"] = [[f"c{n}" for n in range(3) if row[n] > 0] for row in x]
    people.to_parquet(tmp_path / "people.parquet")
    words = "--nodes people.parquet --label label --split split --feature-columns x* --label-kind"
    run(f"etl e.parquet g {words} {kind}", folder=tmp_path)
    run("gnn train g run --model sage --epochs 60 --hidden 16", folder=tmp_path)
    run("gnn predict run out", folder=tmp_path)
    report = run("gnn evaluate run", folder=tmp_path)
    losses = [line["valid"]["loss"] for line in curve(tmp_path / "run")]
    check(f"gnn {kind}", {"losses": losses}, tolerance=1e-3)
    table = pd.DataFrame(columns(tmp_path / "out")).set_index("id")
    test = people[people["split"] == 2].set_index("id")
    found = table.loc[test.index]
    assert (found["split"] == "test").all()
    if kind == "value":
        error = (found["prediction"] - test["label"]).to_numpy()
        spread = np.mean((test["label"] - test["label"].mean()) ** 2)
        assert report["mse"] == pytest.approx(np.mean(error**2), rel=1e-4)
        assert report["mae"] == pytest.approx(np.mean(np.abs(error)), rel=1e-4)
        assert report["r2"] == pytest.approx(1 - np.mean(error**2) / spread, rel=1e-3)
        assert report["r2"] > 0.5
        return
    true, guess = (
        np.array([[f"c{n}" in row for n in range(3)] for row in rows])
        for rows in (test["label"], found["predicted_label"])
    )
    f1 = 2 * (true & guess).sum() / (true.sum() + guess.sum())
    assert report["micro_f1"] == pytest.approx(f1)
    assert f1 > 0.7


def test_gnn_resumes_with_more_epochs_and_predicts_on_a_copy(tmp_path: Path, given: Path) -> None:
    words = f"gnn train {given / 'blocks'} {{}} --model sage --seed 2 --epochs"
    report = run(words.format("run") + " 40", folder=tmp_path)
    run(words.format("again") + " 15", folder=tmp_path)
    run(words.format("again") + " 40 --resume", folder=tmp_path)
    assert curve(tmp_path / "run") == curve(tmp_path / "again")
    assert report["metrics"]["test"]["score"] > 0.9
    best = min(curve(tmp_path / "run"), key=lambda line: line["valid"]["loss"])
    assert report["best_epoch"] == best["epoch"]
    assert report["metrics"]["test"] == best["test"]
    shutil.copytree(given / "blocks", tmp_path / "copy")
    run("gnn predict run here", folder=tmp_path)
    run("gnn predict run there --graph copy", folder=tmp_path)
    assert columns(tmp_path / "here") == columns(tmp_path / "there")


# ---- embed


def scores_of(model: str, head: np.ndarray, relation: np.ndarray, tail: np.ndarray) -> np.ndarray:
    """Return the scores of edges by docs/embed.md, along the last axis."""
    half = head.shape[-1] // 2
    if model in ("complex", "rotate"):
        h, t = (one[..., :half] + 1j * one[..., half:] for one in (head, tail))
        if model == "complex":
            r = relation[..., :half] + 1j * relation[..., half:]
            return (h * r * t.conj()).real.sum(-1)
        return -np.abs(h * np.exp(1j * relation) - t).sum(-1)
    if model == "distmult":
        return (head * relation * tail).sum(-1)
    if model.startswith("transe"):
        return -np.linalg.norm(head + relation - tail, ord=int(model[-1]), axis=-1)
    return (head * tail).sum(-1)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph without relations, of which edges are held out."""
    folder = tmp_path_factory.mktemp("pairs")
    follows().to_parquet(folder / "e.parquet")
    run("etl e.parquet pairs --split-edges 0.8 0.1 0.1 --weight none", folder=folder)
    return folder / "pairs"


@pytest.mark.parametrize("model", ["complex", "distmult", "transe1", "transe2", "rotate", "dot"])
def test_embed_ranks_as_numpy_does(tmp_path: Path, given: Path, pairs: Path, model: str) -> None:
    path = pairs if model == "dot" else given / "kg"
    words = f"--model {model.rstrip('12')} --dim 8 --epochs 4"
    words += f" --norm {model[-1]}" if model.startswith("transe") else ""
    words += " --no-reciprocal" if model in ("complex", "distmult") else ""
    run(f"embed train {path} run {words}", folder=tmp_path)
    run("embed export run nodes", folder=tmp_path)
    graph = penstock.Graph.open(path)
    ids = graph.user_ids().to_pylist()
    found = columns(tmp_path / "nodes" / "part-00000.parquet")
    np.testing.assert_array_equal(np.load(tmp_path / "nodes" / "vectors.npy"), found["vector"])
    nodes = np.asarray(found["vector"])[[found["id"].index(one) for one in ids]]
    relations = np.zeros((1, 1))
    if model != "dot":
        run("embed export run relations --relations", folder=tmp_path)
        table = columns(tmp_path / "relations" / "part-00000.parquet")
        relations = np.asarray([table["vector"][table["id"].index(f"r{n}")] for n in range(4)])
    csr = graph.csr()
    triples = {"train": (csr.sources(), csr.relations, csr.indices)}
    for name in ("valid", "test"):
        held = graph.heldout(name)
        triples[name] = held["sources"], held.get("relations"), held["targets"]
    known = {
        (int(a), int(r), int(b))
        for one in triples.values()
        for a, r, b in zip(
            one[0], np.zeros_like(one[0]) if one[1] is None else one[1], one[2], strict=True
        )
    }
    if model == "dot":
        known |= {(b, r, a) for a, r, b in known} | {(a, 0, a) for a in range(len(ids))}
    held, ranks = triples["test"], {False: [], True: []}
    for a, r, b in zip(
        held[0], held[1] if model != "dot" else np.zeros_like(held[0]), held[2], strict=True
    ):
        for side in ("tail", "head"):
            fixed, answer = (nodes[a], b) if side == "tail" else (nodes[b], a)
            ends = (fixed, nodes) if side == "tail" else (nodes, fixed)
            scores = scores_of(model, ends[0], relations[r], ends[1])
            true = [
                n for n in range(len(ids)) if ((a, r, n) if side == "tail" else (n, r, b)) in known
            ]
            for filtered in (False, True):
                left = np.delete(scores, [n for n in true if n != answer]) if filtered else scores
                better, equal = (left > scores[answer]).sum(), (left == scores[answer]).sum()
                ranks[filtered].append(better + (equal + 1) / 2)
    for filtered in (False, True):
        report = run(f"embed evaluate run {'--filtered' if filtered else ''}", folder=tmp_path)
        each = np.asarray(ranks[filtered])
        expected = {"mr": each.mean(), "mrr": (1 / each).mean()}
        expected |= {f"hits{k}": np.mean(each <= k) for k in (1, 3, 10)}
        assert {name: report[name] for name in expected} == pytest.approx(expected, rel=1e-3)
    head = int(triples["train"][0][3])
    relation = "" if model == "dot" else "--relation r1"
    report = run(f"embed predict run --head {ids[head]} {relation} -k 5", folder=tmp_path)
    scores = scores_of(model, nodes[head], relations[min(1, len(relations) - 1)], nodes)
    number = 0 if model == "dot" else 1
    scores[[n for n in range(len(ids)) if (head, number, n) in known]] = -np.inf
    best = np.argsort(-scores)[:5]
    assert [one["id"] for one in report["answers"]] == [ids[n] for n in best]
    np.testing.assert_allclose([one["score"] for one in report["answers"]], scores[best], rtol=1e-4)
    if model != "dot":
        check(f"embed {model}", {"nodes": nodes, "relations": relations}, tolerance=1e-3)


def test_embed_learns_warm_starts_and_swaps_partitions(tmp_path: Path, given: Path) -> None:
    words = f"embed train {given / 'kg'} {{}} --dim 32 --epochs"
    report = run(words.format("run") + " 20", folder=tmp_path)
    assert report["validation"]["mrr"] > 0.15  # of a random order 0.03
    out_of_core = run(words.format("parts") + " 20 --partitions 8", folder=tmp_path)
    assert out_of_core["partitions"] == 8
    assert out_of_core["validation"]["mrr"] == pytest.approx(report["validation"]["mrr"], abs=0.08)
    scores = run("embed evaluate parts --filtered --split valid", folder=tmp_path)
    assert scores["mrr"] == pytest.approx(out_of_core["validation"]["mrr"], rel=1e-3)
    run(words.format("warm") + " 1 --lr 1e-9 --init run", folder=tmp_path)
    warm, before = (penstock.embed.vectors(tmp_path / name) for name in ("warm", "run"))
    for one in ("e3", "e77"):
        np.testing.assert_allclose(warm[one], before[one], atol=1e-5)
