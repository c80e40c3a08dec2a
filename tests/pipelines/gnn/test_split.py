"""``gnn train --split``: what is drawn, what is kept with the run, and where it counts."""

import json
import math
import shutil

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from graphs import write_graph

from penstock import CSR, Graph, etl, gnn
from penstock.errors import CorruptFile, PenstockWarning, UsageError
from penstock.pipelines.gnn.run import Run
from penstock.splits import split_nodes

CLASSES = ("a", "b", "c")


@pytest.fixture
def ring(tmp_path):
    """Write a ring of 90 nodes; every tenth has no label. Nothing is said of a split."""

    def make(name="g", *, order=None, **columns):
        count = 90
        order = np.arange(count) if order is None else order
        ends = np.argsort(order)  # where each user's id is
        there = np.roll(ends, -1)
        rng = np.random.default_rng(0)
        label = pa.array(rng.integers(0, 3, count)[order], pa.int32(), mask=order % 10 == 0)
        csr = CSR.from_edges(np.r_[ends, there], np.r_[there, ends], count)
        given = {"features": rng.random((count, 5), np.float32)[order]}
        given |= {"nodes": {"label": label, **columns}, "directed": False, "labels": "class"}
        return write_graph(tmp_path / name, csr, order * 2, classes=CLASSES, **given)

    return make


def kept(folder):
    found = pq.read_table(folder / "split.parquet")
    return dict(zip(found["id"].to_pylist(), found["split"].to_pylist(), strict=True))


def predicted(folder):
    parts = sorted(folder.glob("part-*.parquet"))
    found = pa.concat_tables(pq.read_table(part) for part in parts)
    return dict(zip(found["id"].to_pylist(), found["split"].to_pylist(), strict=True))


# -- what is drawn ---------------------------------------------------------------------------------


IDS = {
    "integers": lambda i: 7 * i - 300,
    "unsigned": lambda i: 2**63 + i,
    "strings": lambda i: f"knoten-ß{i}",
}


@pytest.mark.parametrize("kind", IDS)
def test_a_split_depends_on_seed_and_id_alone(tmp_path, kind):
    """With a node fewer, in another order and drawn by the training run, all others keep theirs."""
    count, fractions = 400, (0.6, 0.2, 0.2)
    ids = [IDS[kind](i) for i in range(count)]
    nodes = pd.DataFrame({"id": ids, "kind": ["a", "b"] * (count // 2), "x": 0.5})
    nodes.loc[::9, "kind"] = None
    found = {}
    for name, gone, relabel, seed in (
        ("whole", 0, "sorted", 5),
        ("other", 0, "sorted", 6),
        ("less", 1, "random", 5),
    ):
        left = [*ids[:100], *ids[100 + gone :]]
        frame = pd.DataFrame({"src": left, "dst": [*left[1:], left[0]]})
        frame.to_parquet(tmp_path / f"{name}.parquet")
        nodes[nodes.id.isin(left)].to_parquet(tmp_path / "n.parquet")
        etl(
            tmp_path / f"{name}.parquet",
            tmp_path / name,
            nodes=tmp_path / "n.parquet",
            label="kind",
            feature_columns=("x",),
            relabel=relabel,
            seed=seed,
            split_nodes=fractions,
        )
        graph = Graph.open(tmp_path / name)
        splits = graph.node_column("split").to_pylist()
        found[name] = dict(zip(graph.user_ids().to_pylist(), splits, strict=True))
    gnn.train(tmp_path / "less", tmp_path / "run", split=fractions, epochs=1, hidden=4, seed=5)
    whole, less = found["whole"], found["less"]
    assert less == kept(tmp_path / "run") == {user: whole[user] for user in less}
    assert whole.keys() - less.keys() == {ids[100]}
    assert all((whole[user] is None) == (i % 9 == 0) for i, user in enumerate(ids))
    drawn = [split for split in whole.values() if split is not None]
    for split, share in enumerate(fractions):
        deviation = math.sqrt(len(drawn) * share * (1 - share))
        assert abs(drawn.count(split) - share * len(drawn)) < 4 * deviation
    assert found["other"] != whole


@pytest.mark.parametrize("fractions", [(0.6, 0.2, 0.2), (0.5, 0.1, 0.1), (1.0, 0.0, 0.0)])
def test_every_class_has_its_fractions(fractions):
    rng = np.random.default_rng(0)
    classes = np.r_[np.zeros(500, int), np.ones(37, int), np.repeat(np.arange(2, 60), 3)]
    classes = rng.permutation(classes)
    chosen = rng.random(len(classes)) < 0.9
    keys = np.arange(len(classes), dtype=np.uint64)
    found = split_nodes(keys, fractions, 3, np.where(chosen, classes, -1))
    assert (found[~chosen] == -1).all()
    for number in range(60):
        there = chosen & (classes == number)
        for split, fraction in enumerate(fractions):
            count = int((found[there] == split).sum())
            assert math.floor(fraction * there.sum()) <= count <= math.ceil(fraction * there.sum())
    # Small classes are not all rounded the same way.
    small = chosen & (classes >= 2)
    for split, fraction in enumerate(fractions):
        assert (found[small] == split).sum() == pytest.approx(fraction * small.sum(), abs=25)
    if fractions[1]:
        assert (found[small] == 1).any()


# -- what is kept ----------------------------------------------------------------------------------


def test_a_graph_without_a_split_is_trained_on(ring, tmp_path):
    """From a graph that has none to one that has moved."""
    graph, folder, moved = ring(), tmp_path / "run", tmp_path / "moved"
    options = {"hidden": 8}
    with pytest.raises(UsageError):
        gnn.train(graph, folder, epochs=2, **options)
    options["split"] = (0.5, 0.25, 0.15)
    gnn.train(graph, folder, epochs=2, **options)
    splits = kept(folder)
    counts = [list(splits.values()).count(split) for split in range(3)]
    assert min(counts) > 0
    assert sum(counts) < 81, "nine of 90 have no label, and a tenth is in no split"
    assert all(splits[2 * node] is None for node in range(0, 90, 10))
    graph.path.rename(moved)
    before = (folder / "split.parquet").read_bytes()
    assert gnn.train(moved, folder, epochs=4, resume=True, **options).trained.first_epoch == 2
    assert (folder / "split.parquet").read_bytes() == before
    with pytest.raises(UsageError):
        gnn.train(moved, folder, epochs=4, resume=True, **{**options, "split": (0.6, 0.2, 0.2)})
    found = gnn.evaluate(folder).to_dict()
    assert (found["nodes"], found["drawn"]) == (counts[2], True)
    found = gnn.evaluate(folder, split="all").to_dict()
    assert (found["nodes"], found["drawn"]) == (81, False), "with a label, whatever was drawn"
    gnn.predict(folder, tmp_path / "p")
    names = ("train", "valid", "test")
    expected = {user: None if n is None else names[n] for user, n in splits.items()}
    assert predicted(tmp_path / "p") == expected


def test_it_takes_the_place_of_the_graphs(ring, tmp_path):
    graph = ring(split=np.repeat([0, 1, 2], 30).astype(np.int8))
    options = {"epochs": 2, "hidden": 8}
    drawn = {"split": (0.6, 0.2, 0.2), "split_stratified": True}
    report = gnn.train(graph, tmp_path / "run", **drawn, **options)
    body = json.loads(json.dumps(report.to_dict()))
    assert sum(body["split"]["nodes"].values()) == 81
    for name, count in body["split"]["nodes"].items():
        assert gnn.evaluate(tmp_path / "run", split=name).scores["nodes"] == count
    # Nor can a run on the graph's own split resume with another.
    gnn.train(graph, tmp_path / "own", **options)
    assert kept(tmp_path / "own") == {2 * node: node // 30 for node in range(90)}
    with pytest.raises(UsageError):
        gnn.train(graph, tmp_path / "own", resume=True, **drawn, **options)
    gnn.train(graph, tmp_path / "run", overwrite=True, **options)
    assert Run.load(tmp_path / "run").split is None
    assert kept(tmp_path / "run") == kept(tmp_path / "own"), "not what was drawn before"


def test_another_graph_does_not_make_test_nodes_of_what_was_trained_on(ring, tmp_path):
    folder = tmp_path / "run"
    gnn.train(ring(), folder, epochs=2, hidden=8, split=(0.6, 0.2, 0.2))
    splits = kept(folder)
    turned = np.random.default_rng(1).permutation(90)
    for given in ({}, {"split": np.full(90, 2, np.int8)}):
        other = ring("other", order=turned, **given)
        options = {"graph": other}
        with pytest.warns(PenstockWarning, match="split"):
            gnn.predict(folder, tmp_path / "p", overwrite=True, **options)
        names = (*("train", "valid", "test"), None)
        assert predicted(tmp_path / "p") == {
            user: names[3 if n is None else n] for user, n in splits.items()
        }
        there = gnn.evaluate(folder, **options).scores
        assert there["confusion"] == gnn.evaluate(folder).scores["confusion"]
        shutil.rmtree(other.path)


def test_a_split_that_is_lost_is_drawn_again_or_missed(ring, tmp_path):
    folder, graph = tmp_path / "run", ring()
    options = {"hidden": 8, "split": (0.6, 0.2, 0.2)}
    gnn.train(graph, folder, epochs=2, **options)
    before = (folder / "split.parquet").read_bytes()
    (folder / "split.parquet").unlink()
    with pytest.raises(CorruptFile, match="split.parquet"):
        gnn.evaluate(folder)
    gnn.train(graph, folder, epochs=3, resume=True, **options)
    assert (folder / "split.parquet").read_bytes() == before
