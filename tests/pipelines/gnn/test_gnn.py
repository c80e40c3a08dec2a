"""``penstock gnn`` from a graph to scores, on real ranks."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import CSR, ClusterSpec, Graph, etl, generate, gnn, partition_graph
from penstock.errors import (
    CapacityError,
    OutputExists,
    PenstockError,
    PenstockWarning,
    UsageError,
)
from penstock.files import sha256_of
from penstock.output_lock import output_lock
from penstock.pipelines.cli import run
from penstock.pipelines.gnn import GnnOptions
from penstock.pipelines.gnn.training import TrainJob, unnamed_run
from penstock.pipelines.job import plan as plan_of
from penstock.pipelines.job.workers import open_ranks
from penstock.workers.gnn import predict


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def table(folder: Path) -> Any:
    return pa.concat_tables(pq.read_table(part) for part in sorted(folder.glob("part-*.parquet")))


@pytest.fixture(scope="module")
def trained(
    blocks: Graph, tmp_path_factory: pytest.TempPathFactory, cluster: ClusterSpec
) -> tuple[Path, gnn.TrainReport]:
    """A run that other tests only read."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    return folder, gnn.train(blocks, folder, epochs=40, hidden=16, cluster=cluster)


@pytest.fixture
def ring(tmp_path: Path) -> Callable[..., Graph]:
    """Write a ring of nodes with labels of any kind."""

    def make(label: Any, *, in_split: Any = True, **about: Any) -> Graph:
        count = len(label)
        ends = np.arange(count)
        sources, targets = np.r_[ends, ends], np.r_[(ends + 1) % count, (ends - 1) % count]
        rng = np.random.default_rng(0)
        with Graph.create(tmp_path / "ring") as writer:
            writer.edges(CSR.from_edges(sources, targets, count))
            split = np.where(in_split, rng.integers(0, 3, count), -1)
            writer.nodes(label=label, split=split.astype(np.int8))
            writer.features(rng.random((count, 5), np.float32))
            writer.manifest = replace(writer.manifest, directed=False, **about)
        return Graph.open(tmp_path / "ring")

    return make


# -- train, evaluate, predict ----------------------------------------------------------------------


def test_blocks_are_learnt(trained: tuple[Path, gnn.TrainReport], cluster: ClusterSpec) -> None:
    folder, report = trained
    assert report.trained.metrics["test"]["score"] > 0.95
    assert len(metrics(folder)) == 40
    assert "dense features" in report.text()
    body = gnn.evaluate(folder, cluster=cluster).to_dict()
    assert body["accuracy"] == pytest.approx(report.trained.metrics["test"]["score"])
    assert body["roc_auc"] > 0.99
    assert np.sum(body["confusion"]) == body["nodes"]
    assert not list(folder.glob(".evaluate*"))


def test_a_prediction_that_does_not_fit_is_refused(
    trained: tuple[Path, gnn.TrainReport],
    cluster: ClusterSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.workers.plugin.Resources.memory_bytes", lambda self: 10_000)
    said = "predicting on the whole graph would not fit"
    with pytest.raises(CapacityError, match=said) as caught:
        gnn.predict(trained[0], tmp_path / "out", cluster=cluster)
    assert "-k" in str(caught.value.remedy)
    assert not (tmp_path / "out").exists()


def test_predictions_have_the_users_ids(
    trained: tuple[Path, gnn.TrainReport], blocks: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    folder, report = trained
    made = gnn.predict(folder, tmp_path / "p", embeddings=True, probabilities=True, cluster=cluster)
    found = table(tmp_path / "p")
    assert made.nodes == found.num_rows == 400
    assert found["id"].to_pylist() == blocks.user_ids().to_pylist()
    chances = np.array(found["probabilities"].to_pylist())
    assert chances.shape == (400, 4)
    np.testing.assert_allclose(chances.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(chances.argmax(axis=1), found["prediction"])
    labels = [f"b{number}" for number in found["prediction"].to_pylist()]
    assert found["predicted_label"].to_pylist() == labels
    assert np.array(found["embedding"].to_pylist()).shape == (400, 16)
    test = blocks.split("test")
    right = np.asarray(found["prediction"])[test] == blocks.labels()[test]
    assert right.mean() == pytest.approx(report.trained.metrics["test"]["score"])
    about = json.loads((tmp_path / "p/_predictions.json").read_text())
    assert about["classes"] == ["b0", "b1", "b2", "b3"]
    assert (tmp_path / "p" / next(iter(about["files"]))).is_file()
    with pytest.raises(OutputExists):
        gnn.predict(folder, tmp_path / "p")
    gnn.predict(folder, tmp_path / "p", checkpoint="last", overwrite=True, cluster=cluster)
    names = ["id", "prediction", "predicted_label", "probability", "split"]
    assert table(tmp_path / "p").column_names == names


def test_another_graph(
    trained: tuple[Path, gnn.TrainReport],
    manifest_of: Callable[..., Graph],
    tmp_path: Path,
    cluster: ClusterSpec,
) -> None:
    folder, _ = trained
    unlabelled = manifest_of(labels=None, classes=None)
    gnn.predict(folder, tmp_path / "p", graph=unlabelled, cluster=cluster)
    assert table(tmp_path / "p").num_rows == 400
    with pytest.raises(UsageError, match=str(unlabelled.path)):
        gnn.evaluate(folder, graph=unlabelled)
    with pytest.raises(UsageError, match="b0, b1, b2, b3"):  # none of its classes
        gnn.evaluate(folder, graph=manifest_of(labels="class", classes=("a", "b", "c", "d")))
    generate("sbm", tmp_path / "wide", nodes=100, blocks=2, width=17, quiet=True)
    with pytest.raises(UsageError, match="other features .* Expected 16 of them, got 17"):
        gnn.predict(folder, tmp_path / "q", graph=tmp_path / "wide")
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize(
    ("first", "other", "refused"),
    [
        ({}, {"directed": True}, True),
        ({}, {"self_loops": "keep"}, True),
        ({}, {"duplicates": "keep"}, True),
        ({}, {"duplicates": "max"}, False),  # the run uses no weights
        ({}, {"relation": "how", "directed": False, "self_loops": "drop"}, True),
        ({"relation": "how"}, {"directed": True, "self_loops": "keep"}, True),
        ({"relation": "how"}, {"relation": "how", "since": 20}, False),  # one relation is left
        ({"relation": "how", "since": 20}, {"relation": "how"}, True),
    ],
    ids=str,
)
def test_edges_of_another_kind_are_refused(
    tmp_path: Path,
    cluster: ClusterSpec,
    first: dict[str, Any],
    other: dict[str, Any],
    refused: bool,
) -> None:
    ends = np.arange(40)
    edges = pd.DataFrame(
        {"src": ends, "dst": (ends * 7) % 40, "how": np.where(ends < 20, "r", "s")}
    )
    edges.assign(when=ends).to_csv(tmp_path / "e.csv", index=False)
    nodes = pd.DataFrame({"id": ends, "kind": np.where(ends % 3, "a", "b"), "x": ends / 40})
    nodes.to_csv(tmp_path / "n.csv", index=False)
    for name, more in (("first", first), ("other", other)):
        etl(
            tmp_path / "e.csv", tmp_path / name, cluster=cluster, nodes=tmp_path / "n.csv",
            label="kind", feature_columns=("x",), split_nodes=(0.5, 0.2, 0.3), time="when", **more,
        )  # fmt: skip
    gnn.train(tmp_path / "first", tmp_path / "run", epochs=1, hidden=4, cluster=cluster)
    line = ["gnn", "evaluate", str(tmp_path / "run"), "--cluster", "threads"]
    assert run(line) == 0
    assert run([*line, "--graph", str(tmp_path / "other")]) == (2 if refused else 0)


@pytest.mark.parametrize("kind", ["class", "multi"])
def test_classes_of_another_graph_are_found_by_name(
    ring: Callable[..., Graph], tmp_path: Path, cluster: ClusterSpec, kind: str
) -> None:
    """There is no b any more; nodes of the class new are never right."""

    def labels(classes: tuple[str, ...], names: list[str | None]) -> Any:
        numbers = [None if name is None else classes.index(name) for name in names]
        if kind == "class":
            return pa.array(numbers, pa.int32())
        return pa.array([None if n is None else [n] for n in numbers], pa.list_(pa.int32()))

    learnt, there = ("a", "b", "c"), ("c", "new", "a")
    first = ring(labels(learnt, [*"abacaa"] * 10), labels=kind, classes=learnt)
    gnn.train(first, tmp_path / "run", epochs=20, hidden=8, cluster=cluster)
    shutil.rmtree(first.path)
    names = ["a", "new", "c", "a", None, "c"] * 10
    other = ring(labels(there, names), labels=kind, classes=there)
    found = gnn.evaluate(tmp_path / "run", graph=other, split="all", cluster=cluster)
    gnn.predict(tmp_path / "run", tmp_path / "p", graph=other, cluster=cluster)
    given = table(tmp_path / "p")["predicted_label"].to_pylist()
    known = [(n, g) for n, g in zip(names, given, strict=True) if n is not None]
    right = [g == (n if kind == "class" else [n]) for n, g in known]
    assert any(right)
    assert found.scores["accuracy"] == pytest.approx(np.mean(right))
    assert found.classes == ("a", "b", "c", "new")
    assert (found.new_classes, found.scores["f1"][3]) == ({"new": 10}, 0)


@pytest.fixture
def people(tmp_path: Path, cluster: ClusterSpec) -> Callable[..., Path]:
    """Make a graph of a ring and of a node table with the columns that are named."""
    rng = np.random.default_rng(1)
    ends = np.arange(50)
    pd.DataFrame({"src": ends, "dst": (ends + 1) % 50}).to_csv(tmp_path / "e.csv", index=False)
    columns = {name: rng.random(50) for name in ("age", "income", "visits", "score", "more")}

    def make(name: str, *named: str) -> Path:
        nodes = pd.DataFrame({"id": ends, "kind": np.where(ends % 3, "a", "b")})
        chosen = nodes.assign(**{column: columns[column] for column in named})
        chosen.to_csv(tmp_path / f"{name}.csv", index=False)
        etl(
            tmp_path / "e.csv",
            tmp_path / name,
            cluster=cluster,
            nodes=tmp_path / f"{name}.csv",
            label="kind",
            feature_columns=named,
            split_nodes=(0.6, 0.2, 0.2),
        )
        return tmp_path / name

    return make


def test_features_are_found_by_name(
    people: Callable[..., Path],
    tmp_path: Path,
    cluster: ClusterSpec,
) -> None:
    first = people("first", "age", "income", "visits")
    folder = tmp_path / "run"
    gnn.train(first, folder, epochs=3, hidden=8, cluster=cluster)
    assert Graph.open(first).manifest.feature_names == ("age", "income", "visits")

    def predicted(graph: Path) -> Any:
        options = {"probabilities": True, "overwrite": True}
        report = gnn.predict(folder, tmp_path / "p", graph=graph, cluster=cluster, **options)
        return report, np.array(table(tmp_path / "p")["probabilities"].to_pylist())

    own, expected = predicted(first)
    assert own.features_by == "graph"
    with warnings.catch_warnings():
        warnings.simplefilter("error", PenstockWarning)
        report, found = predicted(people("turned", "visits", "age", "income"))
    assert (report.features_by, report.features_ignored) == ("name", ())
    np.testing.assert_array_equal(found, expected)
    wider = people("wider", "score", "income", "more", "age", "visits")
    said = f"2 features of {wider} ignored, which {folder} was not trained on: score, more"
    with pytest.warns(PenstockWarning, match=f"^{said}$"):
        report, found = predicted(wider)
    assert report.features_ignored == ("score", "more")
    np.testing.assert_array_equal(found, expected)
    about = json.loads((tmp_path / "p/_predictions.json").read_text())
    assert about["features"] == {"by": "name", "ignored": ["score", "more"]}
    with pytest.raises(
        UsageError, match=r"lacks 2 of the 3 .* Expected income, visits.* got age, score, more"
    ):
        predicted(people("others", "age", "score", "more"))
    scores = gnn.evaluate(folder, graph=wider, cluster=cluster)
    assert scores.scores["accuracy"] == gnn.evaluate(folder, cluster=cluster).scores["accuracy"]
    assert scores.features_ignored == ("score", "more")


def test_features_without_names_are_taken_in_their_order(
    people: Callable[..., Path],
    tmp_path: Path,
    cluster: ClusterSpec,
) -> None:
    first = people("first", "age", "income")
    folder = tmp_path / "run"
    gnn.train(first, folder, epochs=2, hidden=8, cluster=cluster)
    named, unnamed = people("named", "income", "age"), people("unnamed", "age", "income")
    about = Graph.open(unnamed).manifest
    replace(about, feature_names=None).save(unnamed)

    def predicted(graph: Path) -> None:
        options = {"overwrite": True, "cluster": cluster}
        assert gnn.predict(folder, tmp_path / "p", graph=graph, **options).features_by == "order"

    said = f"{unnamed} has no feature names: its features are taken"
    with pytest.warns(PenstockWarning, match=said):
        predicted(unnamed)
    # A run of an earlier penstock.
    body = json.loads((folder / "run.json").read_text())
    del body["feature_names"]
    (folder / "run.json").write_text(json.dumps(body))
    said = f"{folder} has no feature names: those of {named} are taken"
    with pytest.warns(PenstockWarning, match=said):
        predicted(named)
    with pytest.raises(UsageError, match=r"other features .* Expected 2 of them, got 1\. Make"):
        predicted(people("narrow", "age"))


def test_a_split_without_nodes(
    trained: tuple[Path, gnn.TrainReport], own_blocks: Graph, cluster: ClusterSpec
) -> None:
    path = own_blocks.path / "nodes.parquet"
    nodes = pq.read_table(path)
    place = nodes.column_names.index("split")
    nodes = nodes.set_column(place, "split", pa.array(np.zeros(400, np.int8)))
    with Graph.create(own_blocks.path.with_name("h")) as writer:
        writer.edges(own_blocks.csr())
        writer.nodes(
            np.arange(400) + 1000,
            **{name: nodes[name] for name in nodes.column_names if name != "id"},
        )
        writer.features(own_blocks.features())
        about = own_blocks.manifest
        kept = {"directed": about.directed, "labels": "class", "classes": about.classes}
        writer.manifest = replace(writer.manifest, **kept)
    with pytest.raises(UsageError, match="train 400, valid 0"):
        gnn.evaluate(trained[0], graph=own_blocks.path.with_name("h"))
    everything = gnn.evaluate(trained[0], split="all", cluster=cluster)
    assert everything.scores["nodes"] == 400


def test_a_class_that_no_node_has(
    manifest_of: Callable[..., Graph], tmp_path: Path, cluster: ClusterSpec
) -> None:
    graph = manifest_of(classes=("b0", "b1", "b2", "b3", "nobody"))
    report = gnn.train(graph, tmp_path / "run", epochs=2, cluster=cluster)
    assert report.model["layers"][-1]["channels"] == 5
    found = gnn.evaluate(tmp_path / "run", cluster=cluster)
    assert len(found.scores["confusion"]) == 5
    graph.path.rename(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="is not at .* any more. Say where it is"):
        gnn.evaluate(tmp_path / "run")
    again = gnn.evaluate(tmp_path / "run", graph=tmp_path / "elsewhere", cluster=cluster)
    assert again.scores == found.scores


def test_values_and_several_classes(
    ring: Callable[..., Graph], tmp_path: Path, cluster: ClusterSpec
) -> None:
    label = np.linspace(0, 1, 60)
    label[7] = np.nan
    graph = ring(label.astype(np.float32), labels="value")
    report = gnn.train(graph, tmp_path / "value", epochs=5, hidden=8, cluster=cluster)
    assert "%" not in report.text().split("best epoch")[0]
    found = gnn.evaluate(tmp_path / "value", split="all", cluster=cluster)
    assert found.scores["nodes"] == 59
    assert found.scores["mse"] > 0
    assert "MSE" in found.text()
    shutil.rmtree(graph.path)
    lists = pa.array([[i % 3, 3] if i % 2 else [] for i in range(60)], pa.list_(pa.int32()))
    graph = ring(lists, labels="multi", classes=("a", "b", "c", "d"))
    gnn.train(graph, tmp_path / "multi", epochs=5, hidden=8, cluster=cluster)
    gnn.predict(tmp_path / "multi", tmp_path / "named", cluster=cluster)
    rows = table(tmp_path / "named").to_pylist()
    assert [row["predicted_label"] for row in rows] == [
        ["abcd"[number] for number in row["prediction"]] for row in rows
    ]
    assert any(row["prediction"] for row in rows)
    found = gnn.evaluate(tmp_path / "multi", cluster=cluster)
    test = [lists[int(i)].as_py() for i in np.flatnonzero(graph.split("test"))]
    assert [row[0] + row[2] for row in found.scores["confusion"]][3] == sum(3 in x for x in test)
    assert "micro F1" in found.text()


@pytest.mark.parametrize("kind", ["class", "value", "multi"])
def test_nodes_without_a_label_count_nowhere(
    ring: Callable[..., Graph], tmp_path: Path, cluster: ClusterSpec, kind: str
) -> None:
    """What they are told to be, a label or none, moves neither a loss nor a score."""
    full: dict[str, pa.Array] = {
        "class": pa.array([i % 3 for i in range(60)], pa.int32()),
        "value": pa.array([i / 60 for i in range(60)], pa.float32()),
        "multi": pa.array([[i % 3, 3][: i % 4] for i in range(60)], pa.list_(pa.int32())),
    }
    known = np.arange(60) % 5 != 0
    labels = full[kind].to_pylist()
    some = pa.array([x if k else None for x, k in zip(labels, known, strict=True)], full[kind].type)
    about = {"labels": kind, "classes": None if kind == "value" else ("a", "b", "c", "d")}
    found = []
    for label, in_split in ((some, True), (full[kind], known)):
        graph = ring(label, in_split=in_split, **about)
        run = tmp_path / f"run{len(found)}"
        report = gnn.train(graph, run, epochs=4, hidden=8, cluster=cluster)
        scores = [gnn.evaluate(run, split=s, cluster=cluster).scores for s in ("train", "test")]
        found.append((report.trained.metrics, scores))
        assert scores[1]["nodes"] == int((graph.split("test") & known).sum())
        shutil.rmtree(graph.path)
    assert found[0] == found[1]


def test_an_interrupted_curve_is_the_same_curve(
    trained: tuple[Path, gnn.TrainReport], blocks: Graph, tmp_path: Path, cluster: ClusterSpec
) -> None:
    options = {"hidden": 16, "cluster": cluster}
    gnn.train(blocks, tmp_path / "run", epochs=15, **options)
    gnn.train(blocks, tmp_path / "run", epochs=40, resume=True, **options)
    expected = [line["train"]["loss"] for line in metrics(trained[0])]
    found = [line["train"]["loss"] for line in metrics(tmp_path / "run")]
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_a_model_is_lowered_once(
    blocks: Graph, tmp_path: Path, cluster: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a plan depends on is measured: a second one could be another."""
    from penstock.pipelines.gnn import planning

    lowered, lower = [], planning.lower

    def counted(model: Any, **more: Any) -> Any:
        lowered.append(model)
        return lower(model, **more)

    monkeypatch.setattr(planning, "lower", counted)
    gnn.train(blocks, tmp_path / "run", epochs=1, cluster=cluster)
    assert len(lowered) == 1


def test_the_command_line(
    blocks: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "run")
    line = ["gnn", "train", str(blocks.path), folder, "--epochs", "3", "--profile"]
    assert run([*line, "--hidden", "8"]) == 0
    out = capsys.readouterr().out
    assert "2 gcn layers of 8, 4 channels" in out
    assert "rank  compute" in out
    assert "█ compute" in out
    assert run(["gnn", "evaluate", folder, "--json"]) == 0
    assert 0 <= json.loads(capsys.readouterr().out)["macro_f1"] <= 1
    assert run(["gnn", "predict", folder, str(tmp_path / "p")]) == 0
    assert "400 predictions in 1 file" in capsys.readouterr().out


@pytest.mark.slow
def test_few_evaluations_still_keep_trained_weights(
    blocks: Graph, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "run")
    line = ["gnn", "train", str(blocks.path), folder, "--json", "--cluster", "threads"]
    line += ["--epochs", "60", "--patience", "10", "--evaluate-every", "20"]
    assert run(line) == 0
    trained = json.loads(capsys.readouterr().out)
    assert trained["best_epoch"] in (20, 40, 60)
    assert set(trained["metrics"]) == {"train", "valid", "test"}
    for split in ("train", "test"):
        assert run(["gnn", "evaluate", folder, "--split", split, "--json"]) == 0
        found = json.loads(capsys.readouterr().out)["accuracy"]
        assert found == pytest.approx(trained["metrics"][split]["score"])
        assert found > 0.9
    assert run([*line, "--resume"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] == trained["metrics"]
    diverges = ["--lr", "1e30", "--optimizer", "sgd"]
    assert run([*line, "--overwrite", *diverges]) == 1
    said = f"infinite in epoch 2. {folder} holds the run before, which was not replaced; train"
    assert said in capsys.readouterr().err
    assert run(["gnn", "evaluate", folder, "-q"]) == 0
    line[3] = folder = str(tmp_path / "other")
    assert run([*line, *diverges]) == 1
    assert "infinite in epoch 2. Train again with a lower --lr" in capsys.readouterr().err
    assert run(["gnn", "evaluate", folder]) == 2
    assert "has no weights yet" in capsys.readouterr().err


@pytest.mark.slow
def test_relations_are_ignored_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], cluster: ClusterSpec
) -> None:
    rng = np.random.default_rng(0)
    pairs, kind = rng.integers(0, 30, (2, 60)), rng.integers(0, 3, 60)
    lines = "\n".join(f"n{a},n{b},r{k}" for a, b, k in zip(*pairs, kind, strict=True))
    (tmp_path / "edges.csv").write_text("source,target,relation\n" + lines)
    nodes = "\n".join(f"n{i},{i % 2},{'train' if i % 3 else 'test'},{i}" for i in range(30))
    (tmp_path / "nodes.csv").write_text("id,label,split,x\n" + nodes)
    etl = ["etl", str(tmp_path / "edges.csv"), str(tmp_path / "g"), "-q", "--cluster", "threads"]
    etl += ["--nodes", str(tmp_path / "nodes.csv"), "--label", "label"]
    etl += ["--split", "split", "--feature-columns", "x"]
    assert run(etl) == 0  # a column named relation is taken without being asked for
    said = (
        "g: gnn ignores its 3 relations. All edges are alike, and each of several from one node to "
        "another counts. For one edge instead, make the graph with --relation none --directed\n"
    )
    graph, folder = str(tmp_path / "g"), str(tmp_path / "run")
    shutil.copytree(graph, tmp_path / "other/g")
    shutil.copytree(graph, tmp_path / "changed/g")
    body = json.loads((tmp_path / "changed/g/graph.json").read_text())
    body["made"]["note"] = "another digest"
    (tmp_path / "changed/g/graph.json").write_text(json.dumps(body))
    train = ["gnn", "train", graph, folder, "--epochs", "2", "--cluster", "threads"]
    predict = ["gnn", "predict", folder, str(tmp_path / "p"), "--overwrite", "--cluster", "threads"]
    for line, times in (
        (["gnn", "plan", graph, "--cluster", "threads"], 1),
        (train, 1),
        ([*train, "--resume"], 0),  # said before, of the same graph
        (predict, 0),
        (["gnn", "evaluate", folder, "--cluster", "threads"], 0),
        ([*predict, "--graph", str(tmp_path / "other/g")], 0),
        ([*predict, "--graph", str(tmp_path / "changed/g")], 1),
    ):
        capsys.readouterr()
        assert run(line) == 0
        assert capsys.readouterr().err.count(said) == times, line
    assert run([*train, "--overwrite", "-q"]) == 0
    assert capsys.readouterr().err == f"penstock: warning: {tmp_path}/{said}"
    assert run([*predict, "--graph", str(tmp_path / "changed/g"), "-q"]) == 0
    for line in (lines := capsys.readouterr().err.splitlines()):
        assert line.startswith("penstock: warning: ")
    assert len(lines) == 1
    with pytest.warns(PenstockWarning, match="g: gnn ignores its 3 relations") as found:
        report = gnn.train(tmp_path / "g", tmp_path / "run2", epochs=1, cluster=cluster)
    assert [one.filename for one in found] == [__file__]
    assert report.to_dict()["ignored"] == ["relations"]
    capsys.readouterr()
    assert run([*etl, "--overwrite", "--relation", "none", "--directed"]) == 0
    distinct = {(a, b) for a, b in pairs.T.tolist() if a != b}
    made = Graph.open(tmp_path / "g").manifest
    assert (made.edges, made.directed, made.relations) == (len(distinct), True, None)
    assert run([*train, "--overwrite"]) == 0
    assert "gnn ignores" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (
            ["--duplicates", "keep"],
            "g: its duplicate edges were kept. All edges are alike, and each of several from one "
            "node to another counts. For one edge instead, make the graph without --duplicates "
            "keep\n",
        ),
        (
            ["--duplicates", "keep", "--time", "when"],
            "g: gnn ignores its times, and its duplicate edges were kept. All edges are alike, and "
            "each of several from one node to another counts. For one edge instead, make the graph "
            "without --time and --duplicates keep\n",
        ),
        (
            ["--relation", "kind", "--undirected", "--time", "when"],
            "g: gnn ignores its 2 relations and times. All edges are alike, and each of several "
            "from one node to another counts. For one edge instead, make the graph with --relation "
            "none and without --time\n",
        ),
        ([], None),
        (["--duplicates", "max"], None),
    ],
)
def test_what_makes_parallel_edges_is_said(
    asked: list[str], said: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "e.csv").write_text("source,target,kind,when\na,b,r,1\na,b,s,2\na,b,s,2\nb,c,r,3\n")
    (tmp_path / "n.csv").write_text("id,label,split,x\na,0,train,1\nb,1,train,2\nc,1,test,3\n")
    etl = ["etl", str(tmp_path / "e.csv"), str(tmp_path / "g"), "-q", "--cluster", "threads"]
    etl += ["--nodes", str(tmp_path / "n.csv"), "--label", "label", "--split", "split"]
    assert run([*etl, "--feature-columns", "x", *asked]) == 0
    capsys.readouterr()
    assert run(["gnn", "plan", str(tmp_path / "g"), "--cluster", "threads"]) == 0
    told = capsys.readouterr().err
    assert told.endswith(said) if said else told == ""


# -- plans -----------------------------------------------------------------------------------------


def test_a_plan_is_shown_and_nothing_is_trained(
    blocks: Graph, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ["gnn", "plan", str(blocks.path), "--layers", "3", "--cluster", "threads"]
    assert run(line) == 0
    out, err = capsys.readouterr()
    assert "layer 3: gcn, 64 to 4" in out
    assert err == ""
    monkeypatch.setattr("penstock.workers.plugin.Resources.memory_bytes", lambda self: 10_000)
    assert run([*line, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["memory_bytes"] > 10_000
    assert "would not fit on a worker" in err
    with pytest.warns(PenstockWarning, match="training on the whole graph would not fit"):
        assert gnn.plan(blocks, cluster=ClusterSpec(cluster="threads")).memory_bytes > 10_000


@pytest.mark.parametrize("command", ["train", "predict", "evaluate"])
@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["-k", "2", "--cluster", "threads"], "a gang needs workers that are processes"),
        (["-k", "3", "--cluster", "mpi", "-n", "2"], "-k 3 needs as many ranks. Expected -n 3"),
    ],
)
def test_a_plan_refuses_the_ranks_that_the_run_refuses(
    trained: tuple[Path, gnn.TrainReport],
    blocks: Graph,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    command: str,
    asked: list[str],
    said: str,
) -> None:
    inputs = [str(blocks.path)] if command == "train" else [str(trained[0])]
    out = [] if command == "evaluate" else [str(tmp_path / "out")]
    for more in ([], ["--plan"]):
        assert run(["gnn", command, *inputs, *out, *asked, *more]) == 2
        assert said in capsys.readouterr().err


def test_a_plan_of_ranks_has_the_memory_of_ranks(
    own_blocks: Graph,
    trained: tuple[Path, gnn.TrainReport],
    tmp_path: Path,
    cluster: ClusterSpec,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They are started for it, and the graph is not cut."""
    g = own_blocks.path
    options = GnnOptions(parts=2)
    job = TrainJob(own_blocks, tmp_path / "run", options, cluster, quiet=True)
    made = plan_of(job)
    names = [name for name, _ in made.steps]
    assert (names, job.connected.count, made.detail) == (["cut", "run"], 2, None)
    text = made.text()
    assert f"{g} into 2 parts, which takes about" in text
    said = "until the graph is cut, nor is the time of an epoch: penstock partition"
    assert f"memory  not known {said} {g} -k 2 does that" in text
    assert not (g / "partition").exists()
    with pytest.raises(UsageError, match="has no partition into 2 parts.*Make it with"):
        gnn.plan(own_blocks, parts=2, cluster=cluster)
    partition_graph(own_blocks, k=2)
    made = plan_of(job)
    assert made.memory.there == job.connected.capacity.memory
    assert job.connected.partition_path == g / "partition/k2"
    assert isinstance(made.detail, gnn.ModelPlan)
    assert made.memory.bytes == made.detail.memory_bytes
    assert made.detail.facts.ranks == 2


def test_a_prediction_has_no_backward_pass(
    trained: tuple[Path, gnn.TrainReport], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command, *out in (("predict", str(tmp_path / "p")), ("evaluate",)):
        line = ["gnn", command, str(trained[0]), *out, "--plan", "--cluster", "threads"]
        assert run(line) == 0
        text = capsys.readouterr().out
        for word in ("backward", "gradient", "epoch"):
            assert word not in text
        assert "predicted time of the forward pass" in text
        [[needed], [total]] = (
            re.findall(how, text) for how in ("memory  about (.*?) of", "total +(.*)")
        )
        assert needed == total
        assert run([*line, "--json"]) == 0
        body = json.loads(capsys.readouterr().out)
        assert body["memory_bytes"] == body["detail"]["memory_bytes"]
        assert body["detail"]["backward"] is False


def test_what_a_killed_evaluation_left_goes_with_the_next(
    trained: tuple[Path, gnn.TrainReport], tmp_path: Path, cluster: ClusterSpec
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(trained[0], folder)
    killed, busy = folder / ".evaluate-killed", folder / ".evaluate-busy"
    for left in (killed, busy):
        left.mkdir()
        (left / "part-00000.parquet").touch()
    with output_lock(busy):
        gnn.evaluate(folder, cluster=cluster)
        assert busy.is_dir()
    assert not killed.exists()
    gnn.evaluate(folder, cluster=cluster)
    assert not [*folder.glob(".*")]


@pytest.mark.parametrize("replaced", [1, 9], ids=["once", "again and again"])
def test_weights_that_training_replaces_meanwhile_are_read_again(
    trained: tuple[Path, gnn.TrainReport],
    tmp_path: Path,
    cluster: ClusterSpec,
    monkeypatch: pytest.MonkeyPatch,
    replaced: int,
) -> None:
    """Each rank reads them: of two, one might have the old ones, and the other the new."""
    folder, out = tmp_path / "run", tmp_path / "p"
    shutil.copytree(trained[0], folder)
    real, calls, other = predict.predict, list[int](), tmp_path / "other"
    paths = [folder / f"checkpoints/{name}.safetensors" for name in ("last", "best")]
    versions = [path.read_bytes() for path in paths]

    def replace_after(comm: Any, task: Any) -> Any:
        found = real(comm, task)
        calls.append(1)
        if len(calls) <= replaced:
            other.write_bytes(versions[len(calls) % 2 - 1])
            other.replace(paths[1])
        return found

    monkeypatch.setattr(predict, "predict", replace_after)
    if replaced > 1:
        with pytest.raises(PenstockError, match="was replaced 5 times while it was read"):
            gnn.predict(folder, out, cluster=cluster)
        assert not out.exists()
        return
    gnn.predict(folder, out, cluster=cluster)
    assert len(calls) == 2
    said = json.loads((out / "_predictions.json").read_text())["checkpoint_sha256"]
    assert said == sha256_of(paths[1])


def test_a_run_that_is_read_only_is_evaluated(
    trained: tuple[Path, gnn.TrainReport],
    tmp_path: Path,
    cluster: ClusterSpec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What ranks predict goes to a temporary folder of this machine, whose disk is asked."""
    expected = gnn.evaluate(trained[0], cluster=cluster).scores
    access, make = os.access, tempfile.TemporaryDirectory

    def denied(path: Any, mode: int) -> bool:
        return access(path, mode) and not (mode & os.W_OK and Path(path) == trained[0])

    def made(**given: Any) -> Any:
        assert given["dir"] != trained[0]
        return make(**given)

    monkeypatch.setattr(os, "access", denied)
    monkeypatch.setattr(tempfile, "TemporaryDirectory", made)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert gnn.evaluate(trained[0], cluster=cluster).scores == expected
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr("penstock.sizes.free_disk", lambda folder: 100)
    with pytest.raises(CapacityError, match=f"would not fit on the disk of {tmp_path}"):
        gnn.evaluate(trained[0], cluster=cluster)


def test_a_plan_is_that_of_train(own_blocks: Graph, capsys: pytest.CaptureFixture[str]) -> None:
    graph, more = str(own_blocks.path), ["--model", "gat", "--split", "0.5", "0.2", "0.3"]
    run_at, told = f"{graph}-run", []
    for line in (["plan", graph], ["plan", graph, run_at], ["train", graph, run_at, "--plan"]):
        assert run(["gnn", *line, *more, "--cluster", "threads"]) == 0
        text = re.sub(r"[\d.]+ [kMGT]B", "", capsys.readouterr().out)
        assert run(["gnn", *line, *more, "--cluster", "threads", "--json"]) == 0
        body = json.loads(capsys.readouterr().out)
        told.append((text, body | {"memory_there": 0, "disk_free": 0}))
    assert told[0] == told[1] == told[2]
    plan = gnn.plan(own_blocks, model="gat", split=(0.5, 0.2, 0.3))
    assert told[0][1]["detail"] == json.loads(json.dumps(plan.to_dict()))
    Path(f"{graph}-run").mkdir()
    (Path(f"{graph}-run") / "run.json").write_text("{}")
    assert run(["gnn", "plan", graph, "--cluster", "threads"]) == 0  # of another
    assert "g-run-run: a model of 2 layers" in capsys.readouterr().out


def test_a_run_without_a_name_is_planned_where_it_could_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert unnamed_run(tmp_path / "data/g") == tmp_path / "data/g-run"
    monkeypatch.setattr(os, "access", lambda path, *how, **more: path != tmp_path / "data")
    assert unnamed_run(tmp_path / "data/g") == tmp_path / "g-run"
    (tmp_path / "g-run").mkdir()
    assert unnamed_run(tmp_path / "data/g") == tmp_path / "g-run-run"


def test_every_command_shows_what_it_would_do_and_does_not(
    trained: tuple[Path, gnn.TrainReport],
    blocks: Graph,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph, done = str(blocks.path), str(trained[0])
    threads = ["--cluster", "threads", "--plan"]
    assert run(["gnn", "train", graph, str(tmp_path / "r"), "--epochs", "7", *threads]) == 0
    text = capsys.readouterr().out
    assert "a model of 2 layers, 7 epochs" in text
    assert "layer 2: gcn, 64 to 4" in text
    assert "predicted time of an epoch" in text
    before = sorted(trained[0].iterdir())
    for command in ("predict", "evaluate"):
        out = [str(tmp_path / "p")] if command == "predict" else []
        assert run(["gnn", command, done, *out, "--json", *threads]) == 0
        plan = json.loads(capsys.readouterr().out)
        assert plan["out"] == (out[0] if out else None)
        assert plan["detail"]["facts"]["rows"] == 400
        assert 0 < plan["memory_bytes"] == plan["detail"]["memory_bytes"]
    assert run(["gnn", "train", graph, done, "--cluster", "threads", "--plan"]) == 1
    assert "holds a finished run" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert sorted(trained[0].iterdir()) == before


def test_reports_end_with_what_to_type_next(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every command that is shown runs as it stands, from graph to scores."""
    monkeypatch.chdir(tmp_path)

    def following(*words: str) -> list[list[str]]:
        assert run([*words, "--json"]) == 0
        return [shlex.split(line)[1:] for line in json.loads(capsys.readouterr().out)["next"]]

    g, made = str(tmp_path / "my g"), f"{tmp_path / 'my g'}-run"
    learn, walk = following("generate", "sbm", "my g", "--nodes", "100", "--blocks", "2")
    assert learn == ["gnn", "train", g, made]
    assert walk == ["walk", g, f"{g}-walks"]
    assert following(*walk) == [["word2vec", "train", walk[2], f"{walk[2]}-vectors"]]
    assert following("partition", g, "-k", "1") == [[*learn, "-k", "1"]]
    evaluate, predict = following(*learn, "--epochs", "2")
    assert following(*evaluate) == [predict] == [["gnn", "predict", made, f"{made}-predictions"]]
    assert following(*predict) == [evaluate] == [["gnn", "evaluate", made]]
    [only] = following(*learn[:3], "untested", "--epochs", "1", "--split", "0.5", "0.5", "0")
    assert only[:2] == ["gnn", "predict"]  # nothing is there to test on
    assert following(*only) == []
    line = ["gnn", "evaluate", made]
    assert run(line) == 0
    out = capsys.readouterr().out
    assert out.endswith("  next: penstock gnn predict 'my g-run' 'my g-run-predictions'\n")
    assert run([*line, "-q"]) == 0
    assert capsys.readouterr().out == ""
    [etl] = following("generate", "rmat", "edges", "--scale", "6", "--format", "parquet")
    assert etl == ["etl", str(tmp_path / "edges"), str(tmp_path / "edges-graph")]
    walk, cut = following(*etl)
    assert cut == ["partition", etl[2], "-k", "2"]
    assert following(*cut) == [[*walk, "--parts", "2"]]
    embed, walk = following("generate", "kg", "kg", "--entities", "50", "--triples", "500")
    assert embed == ["embed", "train", str(tmp_path / "kg"), f"{tmp_path / 'kg'}-run"]
    assert walk[:2] == ["walk", str(tmp_path / "kg")]


# -- ranks -----------------------------------------------------------------------------------------


def test_more_parts_than_ranks(blocks: Graph) -> None:
    cluster = ClusterSpec(cluster="mpi", workers=2)
    with (
        pytest.raises(
            UsageError, match="-k 3 needs as many ranks. Expected -n 3 or more.*got -n 2"
        ),
        open_ranks(blocks, 3, cluster, quiet=True),
    ):
        pass


@pytest.mark.mpi
@pytest.mark.slow
def test_two_ranks_learn_the_same(
    trained: tuple[Path, gnn.TrainReport], own_blocks: Graph, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    two = ClusterSpec(cluster="mpi", workers=2)
    report = gnn.train(own_blocks, folder, epochs=30, hidden=16, cluster=two, profile=True)
    assert report.ranks == 2
    assert "2 ranks; " in report.text()
    assert "including waits for slower ranks" in report.text()
    assert "hidden" not in report.text(), "it was not measured"
    assert (own_blocks.path / "partition/k2").is_dir()
    # It goes on with one rank, and predicts with two.
    gnn.train(own_blocks, folder, epochs=40, hidden=16, resume=True)
    expected = [line["valid"]["loss"] for line in metrics(trained[0])]
    found = [line["valid"]["loss"] for line in metrics(folder)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    there = gnn.evaluate(folder, parts=2, cluster=two).scores
    here = gnn.evaluate(folder).scores
    assert there["confusion"] == here["confusion"]
    assert there["roc_auc"] == pytest.approx(here["roc_auc"], abs=1e-6)
