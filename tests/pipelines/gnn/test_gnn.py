"""``penstock gnn`` from a graph to scores, on real ranks."""

import json
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from graphs import write_graph

from penstock import CSR, ClusterSpec, Graph, etl, generate, gnn
from penstock.errors import PenstockWarning, UsageError
from penstock.files import sha256_of
from penstock.pipelines.cli import run
from penstock.workers.gnn import predict
from penstock.workers.training import checkpoint


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def table(folder):
    return pa.concat_tables(pq.read_table(part) for part in sorted(folder.glob("part-*.parquet")))


@pytest.fixture(scope="module")
def trained(blocks, tmp_path_factory):
    """A run that other tests only read."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    return folder, gnn.train(blocks, folder, epochs=40, hidden=16, profile=True)


@pytest.fixture
def ring(tmp_path):
    """Write a ring of nodes with labels of any kind."""

    def make(label, *, in_split=True, **about):
        count = len(label)
        ends = np.arange(count)
        sources, targets = np.r_[ends, ends], np.r_[(ends + 1) % count, (ends - 1) % count]
        rng = np.random.default_rng(0)
        split = np.where(in_split, rng.integers(0, 3, count), -1).astype(np.int8)
        about |= {"nodes": {"label": label, "split": split}, "directed": False}
        about["features"] = rng.random((count, 5), np.float32)
        return write_graph(tmp_path / "ring", CSR.from_edges(sources, targets, count), **about)

    return make


# -- train, evaluate, predict ----------------------------------------------------------------------


def test_a_training_is_profiled(trained):
    folder, report = trained
    assert len(report.to_dict()["profile"]["ranks"]) == 1
    assert str(folder) in report.text()
    assert gnn.evaluate(folder).text()


def test_another_graph(trained, manifest_of, tmp_path):
    folder, _ = trained
    unlabelled = manifest_of(labels=None, classes=None)
    gnn.predict(folder, tmp_path / "p", graph=unlabelled)
    assert table(tmp_path / "p").num_rows == 400
    with pytest.raises(UsageError):
        gnn.evaluate(folder, graph=unlabelled)
    with pytest.raises(UsageError):  # none of its classes
        gnn.evaluate(folder, graph=manifest_of(labels="class", classes=("a", "b", "c", "d")))
    generate("sbm", tmp_path / "wide", nodes=100, blocks=2, width=17, quiet=True)
    with pytest.raises(UsageError):
        gnn.predict(folder, tmp_path / "q", graph=tmp_path / "wide")
    assert not (tmp_path / "q").exists()


@pytest.mark.parametrize(
    ("first", "other", "refused"),
    [
        ({}, {"directed": True}, True),
        ({}, {"duplicates": "max"}, False),  # the run uses no weights
        ({"relation": "how", "since": 20}, {"relation": "how"}, True),
        ({"weight": "when"}, {"weight": "when", "both_directions": "once"}, True),
    ],
    ids=str,
)
def test_edges_of_another_kind_are_refused(tmp_path, first, other, refused):
    ends = np.arange(40)
    edges = pd.DataFrame(
        {"src": ends, "dst": (ends * 7) % 40, "how": np.where(ends < 20, "r", "s")}
    )
    edges.assign(when=ends).to_csv(tmp_path / "e.csv", index=False)
    nodes = pd.DataFrame({"id": ends, "kind": np.where(ends % 3, "a", "b"), "x": ends / 40})
    for name, more in (("first", first), ("other", other)):
        graph_of(tmp_path, name, nodes, feature_columns=("x",), time="when", **more)
    weighted = bool(first.get("weight"))
    gnn.train(tmp_path / "first", tmp_path / "run", epochs=1, hidden=4, weighted=weighted)
    line = ["gnn", "evaluate", str(tmp_path / "run"), "--cluster", "threads"]
    assert run(line) == 0
    assert run([*line, "--graph", str(tmp_path / "other")]) == (2 if refused else 0)


@pytest.mark.parametrize("kind", ["class", "multi"])
def test_classes_of_another_graph_are_found_by_name(ring, tmp_path, kind):
    """The class b is gone; nodes of the class new are never right."""

    def labels(classes, names):
        numbers = [None if name is None else classes.index(name) for name in names]
        if kind == "class":
            return pa.array(numbers, pa.int32())
        return pa.array([None if n is None else [n] for n in numbers], pa.list_(pa.int32()))

    learnt, there = ("a", "b", "c"), ("c", "new", "a")
    first = ring(labels(learnt, [*"abacaa"] * 10), labels=kind, classes=learnt)
    gnn.train(first, tmp_path / "run", epochs=20, hidden=8)
    shutil.rmtree(first.path)
    names = ["a", "new", "c", "a", None, "c"] * 10
    other = ring(labels(there, names), labels=kind, classes=there)
    found = gnn.evaluate(tmp_path / "run", graph=other, split="all")
    gnn.predict(tmp_path / "run", tmp_path / "p", graph=other)
    given = table(tmp_path / "p")["predicted_label"].to_pylist()
    known = [(n, g) for n, g in zip(names, given, strict=True) if n is not None]
    right = [g == (n if kind == "class" else [n]) for n, g in known]
    assert any(right)
    assert found.scores["accuracy"] == pytest.approx(np.mean(right))
    assert found.classes == ("a", "b", "c", "new")
    assert (found.new_classes, found.scores["f1"][3]) == ({"new": 10}, 0)


def graph_of(folder, name, nodes, **options):
    """Make a graph of e.csv and of a table of nodes."""
    nodes.to_csv(folder / f"{name}.csv", index=False)
    given = {"nodes": folder / f"{name}.csv", "label": "kind", "split_nodes": (0.6, 0.2, 0.2)}
    etl(folder / "e.csv", folder / name, **given, **options)
    return folder / name


@pytest.fixture
def people(tmp_path):
    """Make a graph of a ring and of a node table with the columns that are named."""
    rng = np.random.default_rng(1)
    ends = np.arange(50)
    pd.DataFrame({"src": ends, "dst": (ends + 1) % 50}).to_csv(tmp_path / "e.csv", index=False)
    columns = {name: rng.random(50) for name in ("age", "income", "visits", "score", "more")}

    def make(name, *named):
        nodes = pd.DataFrame({"id": ends, "kind": np.where(ends % 3, "a", "b")})
        chosen = nodes.assign(**{column: columns[column] for column in named})
        return graph_of(tmp_path, name, chosen, feature_columns=named)

    return make


def test_features_are_found_by_name(people, tmp_path):
    first = people("first", "age", "income", "visits")
    folder = tmp_path / "run"
    gnn.train(first, folder, epochs=3, hidden=8)
    assert Graph.open(first).manifest.feature_names == ("age", "income", "visits")

    def predicted(graph):
        options = {"probabilities": True, "overwrite": True}
        report = gnn.predict(folder, tmp_path / "p", graph=graph, **options)
        return report, np.array(table(tmp_path / "p")["probabilities"].to_pylist())

    own, expected = predicted(first)
    assert own.features_by == "graph"
    report, found = predicted(people("turned", "visits", "age", "income"))
    assert (report.features_by, report.features_ignored) == ("name", ())
    np.testing.assert_array_equal(found, expected)
    wider = people("wider", "score", "income", "more", "age", "visits")
    with pytest.warns(PenstockWarning):
        report, found = predicted(wider)
    assert report.features_ignored == ("score", "more")
    np.testing.assert_array_equal(found, expected)
    about = json.loads((tmp_path / "p/_predictions.json").read_text())
    assert about["features"] == {"by": "name", "ignored": ["score", "more"]}
    with pytest.raises(UsageError, match="income.*visits"):
        predicted(people("others", "age", "score", "more"))
    scores = gnn.evaluate(folder, graph=wider)
    assert scores.scores["accuracy"] == gnn.evaluate(folder).scores["accuracy"]


def test_another_graph_is_standardised_as_the_first(people, tmp_path):
    people("first", "age")
    frame = pd.read_csv(tmp_path / "first.csv")
    columns = {"feature_columns": ("age", "plan"), "standardise": True}

    def make(name, ages, plans, **more):
        nodes = frame.assign(age=ages, plan=np.resize(plans, 50))
        return graph_of(tmp_path, name, nodes, **more)

    today = make("today", frame.age, ["free", "pro"], **columns)
    gnn.train(today, tmp_path / "run", epochs=2, hidden=8)
    changed = (frame.age * 2, ["team", "free"])
    tomorrow = make("tomorrow", *changed, features_as=today)
    report = gnn.predict(tmp_path / "run", tmp_path / "p", graph=tomorrow)
    assert (report.features_by, report.features_ignored) == ("name", ())
    changed = (frame.age * 2, ["pro", "free"])
    other = make("other", *changed, **columns)
    with pytest.raises(UsageError, match="age"):
        gnn.predict(tmp_path / "run", tmp_path / "q", graph=other)


@pytest.mark.parametrize("kind", ["class", "value", "multi"])
def test_nodes_without_a_label_count_nowhere(ring, tmp_path, kind):
    """Their label, or none, moves neither a loss nor a score."""
    full = {
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
        report = gnn.train(graph, run, epochs=4, hidden=8)
        scores = [gnn.evaluate(run, split=s).scores for s in ("train", "test")]
        found.append((report.trained.metrics, scores))
        assert scores[1]["nodes"] == int((graph.split("test") & known).sum())
        shutil.rmtree(graph.path)
    assert found[0] == found[1]


# -- plans -----------------------------------------------------------------------------------------


def test_ranks_read_the_same_weights_if_training_replaces_them(
    trained, blocks, tmp_path, monkeypatch
):
    """Of two ranks, one might have the old ones, and the other the new."""
    folder, other, real = tmp_path / "run", tmp_path / "other", predict.predict
    shutil.copytree(trained[0], folder)
    gnn.train(blocks, other, epochs=1, hidden=16)
    for one in (folder, other):
        gnn.predict(one, tmp_path / f"by_{one.name}")

    def replace_first(comm, task):
        (other / "checkpoints/best.safetensors").replace(folder / "checkpoints/best.safetensors")
        return real(comm, task)

    monkeypatch.setattr(predict, "predict", replace_first)
    gnn.predict(folder, tmp_path / "p")
    part = "part-00000.parquet"
    here, old, new = (sha256_of(tmp_path / name / part) for name in ("p", "by_run", "by_other"))
    assert here == old != new


# -- ranks -----------------------------------------------------------------------------------------


@pytest.mark.mpi
@pytest.mark.slow
def test_two_ranks_learn_the_same(trained, own_blocks, tmp_path):
    folder = tmp_path / "run"
    two = ClusterSpec(cluster="mpi", workers=2)
    report = gnn.train(own_blocks, folder, epochs=30, hidden=16, cluster=two, profile=True)
    assert report.ranks == 2
    assert (own_blocks.path / "partition/k2").is_dir()
    # It resumes with one rank, and predicts with two.
    gnn.train(own_blocks, folder, epochs=40, hidden=16, resume=True)
    expected = [line["valid"]["loss"] for line in metrics(trained[0])]
    found = [line["valid"]["loss"] for line in metrics(folder)]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    there = gnn.evaluate(folder, parts=2, cluster=two).scores
    here = gnn.evaluate(folder).scores
    assert there["confusion"] == here["confusion"]
    assert there["roc_auc"] == pytest.approx(here["roc_auc"], abs=1e-6)


@pytest.mark.parametrize("optimizer", ["sgd", "adam"])
def test_a_warm_start_continues_as_the_other_run_would(blocks, tmp_path, optimizer):
    options = {"hidden": 8, "dropout": 0.0}
    options["optimizer"] = optimizer
    gnn.train(blocks, tmp_path / "whole", epochs=9, **options)
    gnn.train(blocks, tmp_path / "run", epochs=5, **options)
    warm = {**options, "init": tmp_path / "run", "overwrite": True}
    report = gnn.train(blocks, tmp_path / "run", epochs=4, **warm)  # in the place of that run
    assert report.trained.known == report.trained.parameters
    found, expected = (
        checkpoint.load(tmp_path / name / "checkpoints/last.safetensors")[0]
        for name in ("run", "whole")
    )
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])
    again = gnn.train(
        blocks, tmp_path / "run", epochs=6, resume=True, **{**warm, "overwrite": False}
    )
    assert (again.trained.known, again.trained.first_epoch) == (report.trained.known, 4)


def test_a_warm_start_keeps_no_layer_of_other_features_or_classes(tmp_path):
    """As many of them, under other names: their numbers stand for others."""
    random, runs = np.random.default_rng(0), {}
    edges = pd.DataFrame(random.integers(0, 60, (300, 2)), columns=["src", "dst"])
    edges.to_parquet(tmp_path / "edges.parquet")
    for name, kind, plan in (("a", "xyz", "pqr"), ("b", "wxy", "pqr"), ("c", "xyz", "oqr")):
        table = pd.DataFrame({"id": range(60), "label": [*kind] * 20, "plan": [*plan] * 20})
        table.to_parquet(tmp_path / "nodes.parquet")
        table = {"nodes": tmp_path / "nodes.parquet", "label": "label", "unknown_nodes": "error"}
        table |= {"feature_columns": ["plan"], "split_nodes": (0.8, 0.1, 0.1)}
        etl(tmp_path / "edges.parquet", tmp_path / name, **table)
        given = {"epochs": 2, "hidden": 5, "model": "gcn"}
        init = {} if name == "a" else {"init": tmp_path / "run-a"}
        runs[name] = gnn.train(tmp_path / name, tmp_path / f"run-{name}", **given, **init).trained
    first, last = 3 * 5 + 5, 5 * 3 + 3
    assert (runs["a"].parameters, runs["b"].known, runs["c"].known) == (first + last, first, last)
