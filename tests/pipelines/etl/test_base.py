"""A graph of today on the base of yesterday's: the same content, and ids that stay."""

from __future__ import annotations

import shutil
from collections import Counter

import numpy as np
import pandas as pd
import pytest

from penstock import Graph, etl, generate
from penstock.errors import InputError, UsageError
from penstock.pipelines.cli import run
from penstock.pipelines.etl.job import EtlJob

PLAIN = {"relation": "none"}  # the tables have columns that are found by their names
KINDS = {
    "weighted": PLAIN | {"self_loops": "keep"},
    "listed first": PLAIN | {"duplicates": "first", "directed": True},
    "relations": {"weight": "none"},
    "undirected times": PLAIN | {"time": "time"},
    "times kept": {"time": "time", "duplicates": "keep"},
    "latest time": PLAIN | {"time": "time", "merge_times": True},
    "types": {"source_type": "user", "target_type": "item"},
    "random": {"relabel": "random", "seed": 3},
}
TRIMMED = {
    "of some degree": PLAIN | {"min_degree": 3},
    "one component": {"largest_component": True},
    "by degree": {"relabel": "degree"},
    "held out": {"split_edges": (0.8, 0.1, 0.1)},
}


def table(random, rows, first=0, ids=60):
    ends = (random.random((rows, 2)) ** 2 * ids).astype(np.int64) + first
    return pd.DataFrame(
        {
            "src": ends[:, 0] * 7,
            "dst": ends[:, 1] * 7,
            "weight": random.integers(1, 50, rows).astype(np.float32) / 8,
            "relation": np.char.add("r", random.integers(first // 40, 4, rows).astype(str)),
            "time": random.integers(0, 5, rows),
        }
    )


def save(folder, name, frame):
    frame.to_parquet(folder / f"{name}.parquet")
    return folder / f"{name}.parquet"


def content(graph):
    """Return the edges by the user's ids, and what each node that is not isolated has."""
    ids = graph.user_ids().to_pylist()
    csr = graph.csr()
    names = graph.manifest.relations
    columns = dict(csr.columns())
    if names is not None:
        columns["relations"] = np.array(names)[columns["relations"]]
    edges = Counter(
        (ids[source], ids[target], *rest)
        for source, target, *rest in zip(
            csr.sources().tolist(),
            csr.indices.tolist(),
            *(a.tolist() for a in columns.values()),
            strict=True,
        )
    )
    held = graph.manifest.heldout
    for name in held:
        part = graph.heldout(name)
        edges.update(
            (name, ids[u], ids[v])
            for u, v in zip(part["sources"].tolist(), part["targets"].tolist(), strict=True)
        )
    joined = {one for edge in edges for one in edge[-2:] if held} | {
        ids[i] for i in (*np.flatnonzero(graph.degrees), *np.unique(csr.indices).tolist())
    }
    return edges, dict.fromkeys(joined, ())


def stays(before, after):
    """Every node that both graphs have keeps its id, unless ids beyond the end are gone."""
    old, new = before.user_ids().to_pylist(), after.user_ids().to_pylist()
    assert len(set(new)) == len(new)
    was = {one: i for i, one in enumerate(old)}
    for i, one in enumerate(new):
        if (at := was.get(one)) is not None and at < len(new):
            assert at == i


@pytest.mark.parametrize("kind", [*KINDS, *TRIMMED])
def test_a_snapshot_has_the_content_of_a_rebuild_and_yesterdays_ids(tmp_path, kind):
    options = {**KINDS, **TRIMMED}[kind]
    random = np.random.default_rng(len(kind))
    before = table(random, 400)
    lost = before[before.src % 3 > 0]
    after = pd.concat([lost, table(random, 80, 40)]).sample(frac=1, random_state=1)
    for name, frame in (("before", before), ("after", after), ("less", lost)):
        save(tmp_path, name, frame)
    etl(tmp_path / "before.parquet", tmp_path / "g0", **options)
    for name in ("after", "less"):
        etl(tmp_path / f"{name}.parquet", tmp_path / f"{name}-1", **options)
        etl(tmp_path / f"{name}.parquet", tmp_path / name, base=tmp_path / "g0", **options)
        based = Graph.open(tmp_path / name)
        based.validate()
        assert content(based) == content(Graph.open(tmp_path / f"{name}-1"))
        assert based.num_nodes == Graph.open(tmp_path / f"{name}-1").num_nodes
        stays(Graph.open(tmp_path / "g0"), based)
        base = Graph.open(tmp_path / "g0")
        one, other = ({*graph.user_ids().to_pylist()} for graph in (base, based))
        counts = {"nodes_added": len(other - one), "nodes_gone": len(one - other)}
        assert based.manifest.made["base"] == base.digest
        assert based.manifest.made["changes"] == {k: n for k, n in counts.items() if n}


@pytest.mark.parametrize("nodes", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_change_has_the_content_of_a_rebuild_and_yesterdays_ids(tmp_path, kind, nodes):
    """``nodes``: some nodes are removed with their edges, also those that edges to remove name."""
    options, more = KINDS[kind], {}
    random = np.random.default_rng(len(kind))
    before, new = table(random, 400), table(random, 40, 40)
    keys = ["src", "dst"]
    keys += ["relation"] if "relation" not in options else []
    keys += ["time"] if "time" in options and "merge_times" not in options else []
    gone = before.sample(30, random_state=2)
    if options.get("self_loops") != "keep" and "relation" in options:
        gone = gone[gone.src != gone.dst]
    if not options.get("directed", "relation" not in options):  # either direction names the edge
        gone.loc[gone.index[::2], ["src", "dst"]] = gone.loc[gone.index[::2], ["dst", "src"]].values
        twins = pd.concat([gone, gone.rename(columns={"src": "dst", "dst": "src"})])
    else:
        twins = gone
    left = before.merge(twins[keys].drop_duplicates(), how="left", on=keys, indicator=True)
    left = left[left._merge == "left_only"][before.columns]
    if nodes:
        lost = pd.DataFrame({"id": [*gone.src[:3].unique(), 0, 7, 280, 9999]})
        more["remove_nodes"] = save(tmp_path, "lost", lost)
        ends = ["src"] if kind == "types" else ["src", "dst"]
        left, new = (one[~one[ends].isin([*lost.id]).any(axis=1)] for one in (left, new))
        if kind == "types":
            more["node_type"] = "user"
    for name, frame in (("before", before), ("new", new), ("after", pd.concat([left, new]))):
        save(tmp_path, name, frame)
    save(tmp_path, "gone", gone[keys])
    etl(tmp_path / "before.parquet", tmp_path / "g0", **options)
    etl(tmp_path / "after.parquet", tmp_path / "whole", **options)
    report = etl(
        [],
        tmp_path / "g1",
        base=tmp_path / "g0",
        add=[tmp_path / "new.parquet"],
        remove=[tmp_path / "gone.parquet"],
        **more,
    )
    based = Graph.open(tmp_path / "g1")
    based.validate()
    assert content(based) == content(Graph.open(tmp_path / "whole"))
    stays(Graph.open(tmp_path / "g0"), based)
    assert report.not_removed == 0
    changes = based.manifest.made["changes"]
    more_nodes = based.num_nodes - Graph.open(tmp_path / "g0").num_nodes
    assert changes["nodes_added"] - changes.get("nodes_gone", 0) == more_nodes
    if nodes:
        named = [f"user:{one}" for one in lost.id] if kind == "types" else [*lost.id]
        assert not {*named} & {*based.user_ids().to_pylist()}
        assert report.nodes_gone + report.nodes_not_removed == lost.id.nunique()
        assert report.nodes_not_removed >= 1
    elif options.get("duplicates") == "keep":
        assert (changes["added"], changes["removed"]) == (len(new), len(before) - len(left))


def test_only_shards_that_changed_are_written_and_links_outlive_their_base(tmp_path):
    random = np.random.default_rng(5)
    ends = random.integers(0, 20_000, (60_000, 2))
    frame = pd.DataFrame({"src": ends[:, 0], "dst": ends[:, 1]})
    save(tmp_path, "before", frame)
    save(tmp_path, "after", pd.concat([frame, pd.DataFrame({"src": [3, 3], "dst": [4, 90_000]})]))
    save(tmp_path, "new", pd.DataFrame({"src": [3, 3], "dst": [4, 90_000]}))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(EtlJob, "bin_edges", 8_000)
        etl(tmp_path / "before.parquet", tmp_path / "g0")
        etl(tmp_path / "after.parquet", tmp_path / "g1", base=tmp_path / "g0")
        words = f"etl {tmp_path}/g2 --base {tmp_path}/g0 --add {tmp_path}/new.parquet --quiet"
        assert run(words.split()) == 0
    shards = len(Graph.open(tmp_path / "g0").manifest.shards)
    for name in ("g1", "g2"):
        files = list((tmp_path / name).rglob("shards/*/*.npy"))
        linked = [p for p in files if p.stat().st_nlink > 1]
        assert shards > 10
        assert 2 * (shards - 2) <= len(linked) < len(files)
    shutil.rmtree(tmp_path / "g0")
    for name in ("g1", "g2"):
        Graph.open(tmp_path / name, verify=True).validate()
    assert content(Graph.open(tmp_path / "g1")) == content(Graph.open(tmp_path / "g2"))


def test_edges_to_remove_that_are_not_there_are_counted_or_refused(tmp_path):
    frame = pd.DataFrame({"src": [0, 1, 2, 0], "dst": [1, 2, 3, 2], "relation": list("aabb")})
    etl(save(tmp_path, "before", frame), tmp_path / "g0", directed=False)
    gone = pd.DataFrame({"src": [1, 3, 9, 0], "dst": [0, 1, 2, 1], "relation": list("aaac")})
    given = save(tmp_path, "gone", gone)
    options = {"base": tmp_path / "g0", "remove": [given]}
    report = etl([], tmp_path / "g1", **options)
    assert (report.removed, report.not_removed) == (1, 3)
    changed = Graph.open(tmp_path / "g1")
    assert (changed.num_edges, changed.manifest.relations) == (6, ("a", "b"))
    with pytest.raises(InputError):
        etl([], tmp_path / "g2", strict=True, **options)
    nobody = save(tmp_path, "nobody", pd.DataFrame({"id": []}, dtype=np.int64))
    assert etl([], tmp_path / "same", base=tmp_path / "g0", remove_nodes=nobody).nodes == 4
    assert etl([], tmp_path / "both", remove_nodes=nobody, **options).removed == 1
    some = save(tmp_path, "some", pd.DataFrame({"id": [2, 9]}))
    assert etl([], tmp_path / "g3", base=tmp_path / "g0", remove_nodes=some).nodes_not_removed == 1
    for more in ({"strict": True}, {"add": [tmp_path / "before.parquet"]}):
        with pytest.raises(InputError):  # 9 is not there; edges to add name 2
            etl([], tmp_path / "g2", base=tmp_path / "g0", remove_nodes=some, **more)
    etl(tmp_path / "before.parquet", tmp_path / "trimmed", directed=False, min_degree=1)
    with pytest.raises(UsageError):  # which lacks edges that may be needed
        etl([], tmp_path / "g2", base=tmp_path / "trimmed", add=[given])
    assert not (tmp_path / "g2").exists()


@pytest.mark.parametrize(
    ("change", "options"),
    [
        ("src", {"directed": True}),
        ("src", {"relation": "none"}),
        ("weight", {}),
        ("time", {}),
    ],
)
def test_a_base_of_another_kind_is_refused(tmp_path, change, options):
    random = np.random.default_rng(1)
    frame = table(random, 50)
    given = {"time": "time", "directed": False}
    etl(save(tmp_path, "before", frame), tmp_path / "g0", **given)
    renamed = frame.rename(columns={change: "other"} if change != "src" else {})
    after = save(tmp_path, "after", renamed)
    for edges, more in (
        (after, {"time": None if change == "time" else "time", "directed": False}),
        ([], {"add": [after]}),
    ):
        with pytest.raises(InputError):
            etl(edges, tmp_path / "g1", base=tmp_path / "g0", **{**more, **options})
    assert not (tmp_path / "g1").exists()


def test_new_nodes_need_the_values_that_others_have(tmp_path):
    nodes = pd.DataFrame({"id": np.arange(50), "label": np.arange(50) % 3})
    nodes["split"] = np.where(nodes.id % 3, "train", "test")
    nodes[["x0", "x1"]] = np.random.default_rng(0).normal(size=(50, 2))
    ring = save(tmp_path, "ring", pd.DataFrame({"src": nodes.id, "dst": np.roll(nodes.id, 1)}))
    given = {"nodes": save(tmp_path, "nodes", nodes), "label": "label", "split": "split"}
    given |= {"feature_columns": ["x*"], "directed": True}
    etl(ring, tmp_path / "g2", **given)
    strange = save(tmp_path, "strange", pd.DataFrame({"src": [0], "dst": [77]}))
    other = save(tmp_path, "other", nodes[:3])
    for more in ({}, {"nodes": other}):  # node 77 has no values
        with pytest.raises(InputError) as caught:
            etl([], tmp_path / "g3", base=tmp_path / "g2", add=[strange], **more)
        assert "77" in caught.value.got
    unlabelled = save(tmp_path, "unlabelled", nodes[:3].drop(columns="label"))
    for more, error in (
        ({"nodes": unlabelled}, InputError),
        ({"nodes": other, "feature_columns": ["x0"]}, UsageError),
        ({"nodes": other, "split_nodes": (0.5, 0.2, 0.3)}, UsageError),
    ):
        with pytest.raises(error):
            etl([], tmp_path / "g3", base=tmp_path / "g2", **more)
    etl(ring, tmp_path / "plain")
    with pytest.raises(UsageError):  # its nodes have no labels
        etl([], tmp_path / "g3", base=tmp_path / "plain", nodes=other, label="label")
    assert not (tmp_path / "g3").exists()


def people(random, ids, classes):
    frame = pd.DataFrame({"id": ids, "class": random.choice([*classes, None], len(ids))})
    frame["value"] = np.where(random.random(len(ids)) < 0.8, random.normal(size=len(ids)), np.nan)
    frame["lists"] = [[*random.choice([*classes], 2)] for _ in ids]
    frame["split"] = random.choice(["train", "test", ""], len(ids))
    frame["x0"] = random.normal(size=len(ids)) * 5
    frame.loc[random.random(len(ids)) < 0.2, "x0"] = np.nan
    frame["x1"] = random.choice(["red", "blue"], len(ids))
    frame["x2"] = pd.Timestamp("2026-11-01") + pd.to_timedelta(random.integers(0, 9, len(ids)), "D")
    return frame


def of_nodes(graph):
    """Return what each node has, by its user's id; classes by name."""
    about, columns = graph.manifest, [graph.features().tolist()]
    names = ("label",) * (about.labels is not None) + ("split",) * bool(about.splits)
    for name in names:
        values = graph.node_column(name).to_pylist()
        if name == "label" and about.classes is not None:
            lists = [v if isinstance(v, list) or v is None else [v] for v in values]
            values = [v if v is None else [about.classes[n] for n in v] for v in lists]
        columns.append(values)
    return dict(zip(graph.user_ids().to_pylist(), zip(*columns, strict=True), strict=True))


VALUES = {
    "classes": {"label": "class", "split": "split", "standardise": True},
    "lists of classes": {"label": "lists", "split_nodes": (0.5, 0.2, 0.3), "seed": 4},
    "values": {"label": "value", "unknown_nodes": "add"},
    "no labels": {"split": "split"},
}


@pytest.mark.parametrize("kind", VALUES)
def test_new_values_of_nodes_are_those_of_a_rebuild(tmp_path, kind):
    """Over four days: values, new nodes with and without edges, edges only, values only.

    On the third and fourth day nodes are removed as well.
    """
    random = np.random.default_rng(len(kind))
    given = {"feature_columns": ["x*"], "missing_features": "mean", "directed": True}
    given |= VALUES[kind] | PLAIN
    edges = table(random, 300)[["src", "dst"]]
    nodes = people(random, np.arange(60) * 7, "abc")
    save(tmp_path, "edges", edges)
    etl(tmp_path / "edges.parquet", tmp_path / "g0", nodes=save(tmp_path, "n", nodes), **given)
    for day in range(1, 5):
        new = table(random, 20, 0 if day == 2 else 20 + 10 * day)[["src", "dst"]]
        gone = edges.sample(10, random_state=day).drop_duplicates()
        changed = people(random, random.choice(nodes.id, 8, False), "abcdz"[: 3 + day])
        late = {*new.src, *new.dst} - {*nodes.id} if kind != "values" else set()
        late.add(7000 + day)
        changed = pd.concat([changed, people(random, np.array([*late]), "abc")])
        more = {}
        if day < 4:
            more |= {"add": [save(tmp_path, "new", new)], "remove": [save(tmp_path, "gone", gone)]}
            left = edges.merge(gone, how="left", on=["src", "dst"], indicator=True)
            edges = pd.concat([left[left._merge == "left_only"][["src", "dst"]], new])
        if day != 2:
            more["nodes"] = save(tmp_path, "changed", changed.sample(frac=1, random_state=day))
            nodes = pd.concat([nodes[~nodes.id.isin(changed.id)], changed])
        if day > 2:
            named = {*changed.id, *new.src, *new.dst}
            lost = nodes.id[~nodes.id.isin(named)].sample(5, random_state=day)
            more["remove_nodes"] = save(tmp_path, "lost", lost.to_frame())
            nodes = nodes[~nodes.id.isin(lost)]
            edges = edges[~(edges.src.isin(lost) | edges.dst.isin(lost))]
        etl([], tmp_path / f"g{day}", base=tmp_path / f"g{day - 1}", **more)
        whole = {**given, "nodes": save(tmp_path, "nodes", nodes), "features_as": tmp_path / "g0"}
        etl(save(tmp_path, "edges", edges), tmp_path / f"whole-{day}", **whole)
        based, anew = (Graph.open(tmp_path / f"{name}{day}") for name in ("g", "whole-"))
        based.validate()
        stays(Graph.open(tmp_path / f"g{day - 1}"), based)
        assert content(based) == content(anew)
        assert based.manifest.splits == anew.manifest.splits
        if day != 2:
            assert based.manifest.made["changes"]["nodes_changed"] == 8
        found, expected = of_nodes(based), of_nodes(anew)
        assert {node: found[node] for node in expected} == expected
        # A rebuild leaves out a node without edges that no table has.
        assert len(found) == len(expected) or kind == "values"


def test_a_table_of_nodes_goes_on_to_list_them(tmp_path):
    ids = save(tmp_path, "ids", pd.DataFrame({"id": [0, 1, 2]}))
    edges = save(tmp_path, "edges", pd.DataFrame({"src": [0, 1], "dst": [1, 2]}))
    etl(edges, tmp_path / "g0", nodes=ids, directed=False)
    inside = save(tmp_path, "inside", pd.DataFrame({"src": [0], "dst": [2]}))
    assert etl([], tmp_path / "g1", base=tmp_path / "g0", add=[inside]).edges == 6
    outside = save(tmp_path, "outside", pd.DataFrame({"src": [0], "dst": [77]}))
    for base in ("g0", "g1"):
        with pytest.raises(InputError):
            etl([], tmp_path / "g2", base=tmp_path / base, add=[outside])


def test_relations_keep_their_numbers_and_new_ones_follow(tmp_path):
    frame = pd.DataFrame({"src": [0, 1, 2], "dst": [1, 2, 3], "relation": [10, 30, 30]})
    etl(save(tmp_path, "before", frame), tmp_path / "g0")
    new = save(tmp_path, "new", pd.DataFrame({"src": [3], "dst": [0], "relation": [20]}))
    gone = save(tmp_path, "gone", frame[frame.relation == 10])
    for name, options in (
        ("g1", {"add": [new], "remove": [gone]}),
        ("g2", {"remove": [gone]}),
    ):
        etl([], tmp_path / name, base=tmp_path / "g0", **options)
    etl(
        save(tmp_path, "after", frame.assign(relation=[10, 30, 20])),
        tmp_path / "g3",
        base=tmp_path / "g0",
    )
    found = [Graph.open(tmp_path / name) for name in ("g1", "g2", "g3")]
    assert [one.manifest.relations for one in found] == [
        ("10", "30", "20"),
        ("10", "30"),
        ("10", "30", "20"),
    ]
    assert [sorted(one.csr().relations.tolist()) for one in found] == [[1, 1, 2], [1, 1], [0, 1, 2]]


def test_held_out_files_are_numbered_as_the_graph_is(tmp_path):
    edges = save(tmp_path, "e", pd.DataFrame({"src": [1, 2, 3], "dst": [2, 3, 4]}))
    held = save(tmp_path, "v", pd.DataFrame({"src": [1], "dst": [3]}))
    etl(edges, tmp_path / "g0", valid=held)
    for name, options in (("g1", {"base": tmp_path / "g0"}), ("g2", {"relabel": "random"})):
        etl(edges, tmp_path / name, valid=held, **options)
        assert content(Graph.open(tmp_path / name)) == content(Graph.open(tmp_path / "g0"))


def test_changes_follow_the_rules_and_types_of_their_base(tmp_path):
    random = np.random.default_rng(3)
    frame = table(random, 60).rename(columns={"weight": "amount"}).drop(columns="relation")
    given = {"weight": "amount", "time": "time", "since": 1, "directed": True}
    etl(save(tmp_path, "whole", frame.astype({"time": float})), tmp_path / "g0", **given)
    gone = tmp_path / "gone.csv"
    frame.loc[:9, ["src", "dst", "time"]].to_csv(gone, index=False)  # times look like integers
    new = save(tmp_path, "new", frame.loc[:9].astype({"time": float}))
    none = save(tmp_path, "none", frame.loc[:-1])
    base = {"base": tmp_path / "g0"}
    etl([], tmp_path / "less", remove=[gone], **base)
    left = frame.merge(
        frame.loc[:9, ["src", "dst", "time"]].drop_duplicates(), how="left", indicator=True
    )
    left = left[left._merge == "left_only"][frame.columns].astype({"time": float})
    etl(save(tmp_path, "left", left), tmp_path / "left-1", **given)
    assert content(Graph.open(tmp_path / "less"))[0] == content(Graph.open(tmp_path / "left-1"))[0]
    etl([], tmp_path / "same", add=[none], remove=[none], **base)
    old = save(tmp_path, "old", frame.loc[:3].assign(time=0.5))  # before --since
    etl([], tmp_path / "filtered", add=[old], **base)
    for more in ({"duplicates": "max"}, {"self_loops": "keep"}, {"merge_times": True}):
        with pytest.raises(InputError):
            etl([], tmp_path / "g1", add=[new], **base, **more)
    etl([], tmp_path / "more", add=[new], remove=[none], **base)
    doubled = pd.concat([frame, frame.loc[:9]]).astype({"time": float})
    etl(save(tmp_path, "doubled", doubled), tmp_path / "more-1", **given)
    for one, other in (("same", "g0"), ("filtered", "g0"), ("more", "more-1")):
        assert content(Graph.open(tmp_path / one)) == content(Graph.open(tmp_path / other))
    with pytest.raises(InputError):  # its times are floats, those to add are not
        etl([], tmp_path / "g1", add=[save(tmp_path, "whole", frame)], **base)


@pytest.mark.parametrize("directed", [True, False])
def test_a_window_slides_over_changes_as_over_all_edges(tmp_path, directed):
    frame = table(np.random.default_rng(0), 400).assign(time=np.arange(400) // 4)
    given = {"time": "time", "weight": "weight", "window": 30, "directed": directed}
    given |= {"relation": "none"}
    etl(save(tmp_path, "g", frame[frame.time < 60]), tmp_path / "g0", until=60, **given)
    assert Graph.open(tmp_path / "g0").csr().times.min() == 30
    whole = etl(save(tmp_path, "whole", frame), tmp_path / "whole", until=70, **given)
    new = save(tmp_path, "new", frame[(frame.time >= 60)])
    report = etl([], tmp_path / "g1", base=tmp_path / "g0", add=[new], until=70)
    based = Graph.open(tmp_path / "g1")
    based.validate()
    assert content(based) == content(Graph.open(tmp_path / "whole"))
    assert report.edges == whole.edges
    before = Graph.open(tmp_path / "g0").manifest
    gone = frame[frame.time.between(30, 39) & (frame.src != frame.dst)]
    assert 0 < report.left_window <= len(gone)
    assert before.nodes <= based.num_nodes


def test_a_window_has_an_end_and_a_length_in_the_unit_of_the_times(tmp_path):
    days = pd.date_range("2026-11-01", periods=40)
    frame = pd.DataFrame({"src": np.arange(40), "dst": np.arange(1, 41), "time": days})
    edges = save(tmp_path, "edges", frame)
    given = {"time": "time", "until": "2026-12-01", "directed": True}
    assert etl(edges, tmp_path / "g", window="10d", **given).edges == 10
    assert etl(edges, tmp_path / "h", window="36h", **given).edges == 1
    for bad in ("10", "d", "-3d", "0d", "3 weeks"):
        with pytest.raises(UsageError):
            etl(edges, tmp_path / "x", window=bad, **given)
    for more in ({"time": "time"}, {**given, "since": "2026-11-02"}, {}):
        with pytest.raises(UsageError):
            etl(edges, tmp_path / "x", window="10d", **more)
    nothing = save(tmp_path, "nothing", frame[:0])  # a day without edges
    gone = save(tmp_path, "gone", frame[:1])
    for number, changes in enumerate(
        ({"add": [nothing]}, {"remove": [nothing]}, {"remove": [gone]})
    ):
        out = tmp_path / f"g{number}"
        assert etl([], out, base=tmp_path / "g", until="2026-12-03", **changes).edges == 8
    numbers = save(tmp_path, "numbers", frame.assign(time=np.arange(40)))
    with pytest.raises(UsageError):
        etl(numbers, tmp_path / "x", time="time", until=30, window="10d")
    etl(numbers, tmp_path / "merged", time="time", until=30, window=10, merge_times=True)
    with pytest.raises(UsageError):
        etl([], tmp_path / "x", base=tmp_path / "merged", add=[numbers], until=31)


def test_edges_added_to_a_generated_graph_with_parallel_edges_and_loops_are_more_of_them(tmp_path):
    kept = {"deduplicate": False, "keep_loops": True, "weights": (1, 5)}
    before = generate("rmat", tmp_path / "g0", scale=4, undirected=False, **kept)
    csr = Graph.open(before.path).csr()
    ids = Graph.open(before.path).user_ids().to_pylist()
    loop = int(np.flatnonzero(csr.sources() == csr.indices)[0])
    ends = csr.sources()[[0, 0, loop]], csr.indices[[0, 0, loop]]
    new = {"src": [ids[n] for n in ends[0]], "dst": [ids[n] for n in ends[1]], "weight": 9.0}
    add = save(tmp_path, "new", pd.DataFrame(new))
    etl([], tmp_path / "g1", base=before.path, add=[add])
    csr = Graph.open(tmp_path / "g1").csr()
    assert (csr.edges, np.count_nonzero(csr.weights == 9)) == (before.edges + 3, 3)
