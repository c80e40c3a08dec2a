"""Walks of today on the base of yesterday's: those of a new run, to the bit."""

import json
import shutil
from itertools import product

import numpy as np
import pandas as pd
import pytest

from penstock import Graph, etl, walk
from penstock.errors import GraphError, InputError, UsageError
from penstock.pipelines.walk import output

NODES = 300
PLAIN = {"weight": "none", "relation": "none"}
# Options of the graph, and of the walks.
KINDS = {
    "uniform": (PLAIN, {}),
    "weighted": ({"relation": "none"}, {}),
    "reservoir": ({"relation": "none"}, {"sampler": "reservoir"}),
    "weights that do not count": ({"relation": "none"}, {"weighted": False}),
    "weighted node2vec": (
        {"relation": "none", "directed": True},
        {"app": "node2vec", "p": 4, "q": 0.2},
    ),
    "metapath": ({"weight": "none"}, {"app": "metapath", "schema": "r0,r1", "cyclic": True}),
    "ppr": (PLAIN, {"app": "ppr", "stop": 0.2}),
    "temporal": ({**PLAIN, "time": "time"}, {"temporal": True}),
    "window": ({**PLAIN, "time": "time"}, {"since": "3", "until": "8"}),
    "custom": (
        {},
        {
            "app": "custom",
            "weight": "(weight + relation + 2 * is_neighbor + 5 * (label == 1)) / (1 + degree)",
        },
    ),
    "a share": (PLAIN, {"fraction": 0.3}),
    "named": (PLAIN, {"start": ("u003", "u007", "u003"), "walks": 40}),
    "blocks": (PLAIN, {"npy": True}),
}


def edges(random, count):
    ends = random.integers(0, NODES, (count, 2))
    ends[:, 1] = ends[:, 0] // 10 * 10 + ends[:, 1] % 10  # groups, so that walks stay together
    return pd.DataFrame(
        {
            "src": np.array([f"u{number:03}" for number in ends[:, 0]], str),
            "dst": np.array([f"u{number:03}" for number in ends[:, 1]], str),
            "weight": random.integers(1, 40, count) / 8,
            "relation": np.char.add("r", random.integers(0, 2, count).astype(str)),
            "time": random.integers(0, 12, count),
        }
    )


def changed(frame, share, random):
    """Return the edges with a share of them replaced, some by edges of new nodes."""
    left = frame.sample(frac=1 - share, random_state=1)
    new = edges(random, len(frame) - len(left))
    new.loc[new.index[::5], "dst"] = "new" + new.loc[new.index[::5], "src"]
    return pd.concat([left, new])


def make(folder, name, frame, labels, options, **more):
    frame.to_parquet(folder / f"{name}.parquet")
    if labels is not None:
        ids = pd.unique(pd.concat([frame.src, frame.dst]))
        table = pd.DataFrame({"id": ids, "label": [labels[sum(map(ord, one)) % 50] for one in ids]})
        table.to_parquet(folder / f"{name}-nodes.parquet")
        more |= {"nodes": folder / f"{name}-nodes.parquet", "label": "label"}
        more |= {"label_kind": "class"}
    etl(folder / f"{name}.parquet", folder / name, **options, **more)
    return folder / name


def files(folder):
    """Return the digests of all files, and the digests of the rules and rows."""
    body = json.loads((folder / "_walks.json").read_text())
    assert body["files"].keys() == {p.name for p in folder.iterdir()} - {"_walks.json"}
    return body["files"]


def linked(folder):
    return [p for p in folder.glob("part-*") if p.stat().st_nlink > 1]


@pytest.fixture
def small_parts(monkeypatch):
    """Files of few walks, of which some visit no change."""
    monkeypatch.setattr(output, "FILE_IDS", (320, 320))


@pytest.mark.parametrize(
    ("kind", "share"),
    [*((kind, 0.001) for kind in KINDS), *product(("uniform", "a share"), (0, 0.1, 1))],
)
def test_walks_are_those_of_a_new_run(tmp_path, small_parts, kind, share):
    graph_options, options = KINDS[kind]
    options = {"length": 6, "walks": 3, "seed": 5, **options}
    random = np.random.default_rng(7)
    before = edges(random, 900)
    labels = random.integers(0, 3, 50) if kind == "custom" else None
    make(tmp_path, "g0", before, labels, graph_options)
    walk(tmp_path / "g0", tmp_path / "w0", **options)
    if labels is not None and share:
        labels = labels.copy()
        labels[3] = 1 - labels[3] % 2
    after = changed(before, share, random)
    make(tmp_path, "g1", after, labels, graph_options, base=tmp_path / "g0")
    shutil.rmtree(tmp_path / "g0")  # in a flow today's graph is at its place
    walk(tmp_path / "g1", tmp_path / "new", **options)
    report = walk(tmp_path / "g1", tmp_path / "w1", base=tmp_path / "w0", **options)
    assert files(tmp_path / "w1") == files(tmp_path / "new")
    assert not linked(tmp_path / "new")
    if kind == "named":
        assert report.anew
    elif share == 0:
        assert report.from_base.kept == report.walks
        assert len(linked(tmp_path / "w1")) == report.files == report.linked_files
    elif share < 0.1:
        assert 0 < report.from_base.kept < report.walks
    elif share == 1:
        assert report.from_base.kept == 0


def test_nodes_that_go_leave_no_trace(tmp_path, small_parts):
    before = edges(np.random.default_rng(1), 900)
    make(tmp_path, "g0", before, None, PLAIN)
    after = before[~before.src.isin(["u001", "u050"]) & ~before.dst.isin(["u001", "u050"])]
    make(tmp_path, "g1", after, None, PLAIN, base=tmp_path / "g0")
    assert Graph.open(tmp_path / "g1").num_nodes < Graph.open(tmp_path / "g0").num_nodes
    for ids in ("user", "internal"):
        options = {"length": 5, "walks": 2, "ids": ids}
        walk(tmp_path / "g0", tmp_path / f"w0{ids}", **options)
        walk(tmp_path / "g1", tmp_path / f"new{ids}", **options)
        given = {"base": tmp_path / f"w0{ids}", **options}
        report = walk(tmp_path / "g1", tmp_path / f"w1{ids}", **given)
        assert files(tmp_path / f"w1{ids}") == files(tmp_path / f"new{ids}")
        assert 0 < report.from_base.kept < report.walks
    # The base may have other ids in its paths, and no blocks.
    options = {"length": 5, "walks": 2}
    walk(tmp_path / "g1", tmp_path / "newnpy", npy=True, **options)
    walk(tmp_path / "g1", tmp_path / "w1npy", npy=True, base=tmp_path / "w0internal", **options)
    assert files(tmp_path / "w1npy") == files(tmp_path / "newnpy")


@pytest.mark.parametrize(("ids_of_a_file", "second"), [(2048, 50), (256, 49), (256, 52)])
def test_only_files_with_a_change_are_written_and_the_base_may_go(
    tmp_path, monkeypatch, ids_of_a_file, second
):
    """Rings whose nodes follow one another: some come or go, and then an edge of one differs."""
    monkeypatch.setattr(output, "FILE_IDS", (ids_of_a_file, ids_of_a_file))
    days = [rings(50), rings(second), rings(second)]
    days[2].loc[130, "dst"] = 121
    for number, frame in enumerate(days):
        graph, walks = tmp_path / f"g{number}", tmp_path / f"w{number}"
        before = {"base": tmp_path / f"g{number - 1}"} if number else {}
        make(tmp_path, graph.name, frame, None, {"id_type": "int64"}, **before)
        walk(graph, tmp_path / f"new{number}", length=8)
        before = {"base": tmp_path / f"w{number - 1}"} if number else {}
        report = walk(graph, walks, length=8, **before)
        assert report.linked_files == len(linked(walks))
        for path in before.values():
            shutil.rmtree(path)
        assert files(walks) == files(tmp_path / f"new{number}")
        if number == 1:  # with 52 rings, more nodes have one bit of the visits
            assert bool(report.anew) == (second == 52)
            assert report.linked_files >= (0 if report.anew else report.files - 1)
    assert report.files - 6 <= report.linked_files < report.files


def rings(count):
    nodes = np.arange(40 * count)
    return pd.DataFrame({"src": nodes, "dst": nodes // 40 * 40 + (nodes + 1) % 40})


def test_parallel_edges_in_another_order_are_walked_anew(tmp_path, small_parts):
    frame = edges(np.random.default_rng(8), 900)
    frame["dst"] = "u" + frame.src.str[-1]  # ten targets
    options, given = {"relation": "none", "duplicates": "keep"}, {"length": 6, "sampler": "alias"}
    make(tmp_path, "g0", frame, None, options)
    make(tmp_path, "g1", frame[::-1], None, options, base=tmp_path / "g0")
    walk(tmp_path / "g0", tmp_path / "w0", **given)
    walk(tmp_path / "g1", tmp_path / "new", **given)
    walk(tmp_path / "g1", tmp_path / "w1", base=tmp_path / "w0", **given)
    assert files(tmp_path / "w1") == files(tmp_path / "new") != files(tmp_path / "w0")


def test_walks_of_other_rules_or_starts_are_made_anew(tmp_path, small_parts):
    before = edges(np.random.default_rng(4), 300)
    make(tmp_path, "g0", before, None, PLAIN)
    walk(tmp_path / "g0", tmp_path / "w0", length=6)
    for number, options in enumerate(({"seed": 1}, {"length": 7}, {"start": ("u001", "u002")})):
        given = {"length": 6, **options}
        report = walk(tmp_path / "g0", tmp_path / f"w{number}1", base=tmp_path / "w0", **given)
        walk(tmp_path / "g0", tmp_path / f"new{number}", **given)
        assert files(tmp_path / f"w{number}1") == files(tmp_path / f"new{number}")
        assert report.from_base.kept == 0
        assert report.anew
    # More walks of each start keep those that there are.
    for name, options, kept in (("more", {"walks": 2}, 0.4), ("few", {"fraction": 0.5}, 0)):
        report = walk(tmp_path / "g0", tmp_path / name, length=6, base=tmp_path / "w0", **options)
        walk(tmp_path / "g0", tmp_path / f"new {name}", length=6, **options)
        assert files(tmp_path / name) == files(tmp_path / f"new {name}")
        assert kept * report.walks <= report.from_base.kept < report.walks


def test_a_base_of_another_kind_or_a_damaged_one_is_refused(tmp_path):
    before = edges(np.random.default_rng(5), 300)
    make(tmp_path, "g0", before, None, PLAIN)
    walk(tmp_path / "g0", tmp_path / "w0", length=6)
    for number, options in enumerate(({**PLAIN, "directed": True}, {"relation": "none"}, {})):
        graph = make(tmp_path, f"other{number}", before, None, options)
        with pytest.raises(InputError):
            walk(graph, tmp_path / "w1", length=6, base=tmp_path / "w0")
    with pytest.raises(UsageError):
        walk(tmp_path / "g0", tmp_path / "w1", length=6, base=tmp_path / "w0", parts=2)
    with pytest.raises(GraphError):
        walk(tmp_path / "g0", tmp_path / "w1", length=6, base=tmp_path / "g0")
    part = tmp_path / "w0/part-00000.parquet"
    part.write_bytes(part.read_bytes()[:-9])
    with pytest.raises(GraphError):
        walk(tmp_path / "g0", tmp_path / "w1", length=6, base=tmp_path / "w0")
    assert not (tmp_path / "w1").exists()
