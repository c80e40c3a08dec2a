"""ETL against a reference that does the same steps with pandas and NetworkX."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import Graph, etl, walk_array
from penstock.cluster.spec import ClusterSpec
from penstock.errors import InputError, UsageError
from penstock.pipelines.cli import run
from penstock.pipelines.etl.job import EtlJob
from penstock.pipelines.etl.nodes import number as number_nodes

Arcs = dict[tuple[Any, ...], list[float]]


def random_edges(seed: int, kind: str = "int", rows: int = 400, ids: int = 60) -> pd.DataFrame:
    random = np.random.default_rng(seed)
    # Squaring makes some ids frequent, so that there are duplicates, loops and rare nodes.
    ends = (random.random((rows, 2)) ** 2 * ids).astype(np.int64)
    names: Any = {
        "int": ends * 7 - 100,
        "wide": ends * 2**55 - 2**60,
        "string": np.char.add("n", ends.astype(str)),
    }[kind]
    return pd.DataFrame(
        {
            "src": names[:, 0],
            "dst": names[:, 1],
            "weight": random.integers(1, 50, rows).astype(np.float32) / 8,
            "relation": np.char.add("r", random.integers(0, 4, rows).astype(str)),
            "time": random.integers(0, 1000, rows),
        }
    )


def expected_arcs(table: pd.DataFrame, options: dict[str, Any]) -> Arcs:
    """Return {(source, target, relation): weights}, by the steps that docs/etl.md lists."""
    relation = options.get("relation")
    directed = options.get("directed", relation is not None)
    arcs: Arcs = {}
    for row in table.itertuples():
        u, v, w = row.src, row.dst, float(row.weight) if options.get("weight") else 1.0
        if u == v and options.get("self_loops", "keep" if relation else "drop") == "drop":
            continue
        r = (row.relation,) if relation else ()
        arcs.setdefault((u, v, *r), []).append(w)
        if not directed and u != v:
            arcs.setdefault((v, u, *r), []).append(w)
    if not options.get("weight"):
        if options.get("duplicates") != "keep":
            arcs = {key: [1.0] for key in arcs}
        return arcs
    merge = {"sum": sum, "max": max, "min": min, "first": lambda w: w[0]}.get(
        options.get("duplicates", "sum")
    )
    if merge is not None:
        arcs = {key: [float(np.float32(merge(weights)))] for key, weights in arcs.items()}
    return arcs


def expected_nodes(table: pd.DataFrame, arcs: Arcs, options: dict[str, Any]) -> set[Any]:
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(pd.concat([table.src, table.dst]).tolist())
    for key, weights in arcs.items():
        graph.add_edges_from([key[:2]] * len(weights))

    directed = options.get("directed", options.get("relation") is not None)

    def degree(node: Any) -> int:
        return int(graph.out_degree(node) + (graph.in_degree(node) if directed else 0))

    if options.get("min_degree"):
        few = [node for node in graph if degree(node) < options["min_degree"]]
        graph.remove_nodes_from(few)
    if options.get("largest_component"):
        components = list(nx.weakly_connected_components(graph))
        largest = max(components, key=lambda c: (len(c), [-x for x in [sorted_rank(table, c)]]))
        graph = graph.subgraph(largest).copy()
    if options.get("drop_isolated"):
        graph.remove_nodes_from([node for node in list(graph) if degree(node) == 0])
    return set(graph)


def sorted_rank(table: pd.DataFrame, nodes: set[Any]) -> int:
    ids = sorted(set(table.src) | set(table.dst))
    return min(ids.index(node) for node in nodes)


def arcs_of(graph: Graph) -> Arcs:
    ids = graph.user_ids().to_pylist()
    csr = graph.csr()
    arcs: Arcs = {}
    for e, (u, v) in enumerate(zip(csr.sources(), csr.indices, strict=True)):
        r = () if csr.relations is None else (graph.manifest.relations[csr.relations[e]],)
        weight = 1.0 if csr.weights is None else float(csr.weights[e])
        arcs.setdefault((ids[u], ids[v], *r), []).append(weight)
    return arcs


CASES: list[dict[str, Any]] = [
    {},
    {"directed": True},
    {"weight": "weight"},
    {"weight": "weight", "duplicates": "max"},
    {"weight": "weight", "duplicates": "min"},
    {"weight": "weight", "duplicates": "first", "directed": True},
    {"weight": "weight", "duplicates": "keep"},
    {"duplicates": "keep", "directed": True, "self_loops": "keep"},
    {"weight": "weight", "self_loops": "keep"},
    {"relation": "relation", "weight": "weight", "directed": False},
    {"relation": "relation", "directed": True, "drop_isolated": True},
    {"min_degree": 4, "weight": "weight"},
    {"min_degree": 3, "directed": True, "drop_isolated": True, "relation": "relation"},
    {"largest_component": True, "weight": "weight"},
    {"relabel": "random", "min_degree": 2, "largest_component": True, "drop_isolated": True},
    {"relabel": "degree", "directed": True, "largest_component": True},
]


@pytest.mark.parametrize("options", CASES, ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()))
@pytest.mark.parametrize("kind", ["int", "string"])
def test_graph_is_what_the_reference_makes(
    tmp_path: Path, cluster: ClusterSpec, options: dict[str, Any], kind: str
) -> None:
    table = random_edges(
        len(str(options)), kind, rows=90 if "largest_component" in options else 400
    )
    table.to_parquet(tmp_path / "edges.parquet", row_group_size=70)
    unnamed = {name: "none" for name in ("weight", "relation") if name not in options}
    report = etl(tmp_path / "edges.parquet", tmp_path / "g", cluster=cluster, **options, **unnamed)
    graph = Graph.open(tmp_path / "g")
    graph.validate()
    arcs = expected_arcs(table, options)
    nodes = expected_nodes(table, arcs, options)
    arcs = {key: weights for key, weights in arcs.items() if {key[0], key[1]} <= nodes}
    assert set(graph.user_ids().to_pylist()) == nodes
    assert arcs_of(graph) == arcs
    assert (report.nodes, report.edges) == (len(nodes), sum(map(len, arcs.values())))
    assert report.rows_read == len(table)


def test_internal_ids_follow_the_order_asked_for(tmp_path: Path, cluster: ClusterSpec) -> None:
    table = random_edges(3)
    table.to_parquet(tmp_path / "edges.parquet")
    ids = {}
    for relabel in ("sorted", "degree", "random"):
        etl(
            tmp_path / "edges.parquet",
            tmp_path / relabel,
            cluster=cluster,
            relabel=relabel,
            relation="none",
        )
        ids[relabel] = Graph.open(tmp_path / relabel).user_ids().to_pylist()
    assert ids["sorted"] == sorted(ids["sorted"])
    degrees = Graph.open(tmp_path / "degree").degrees
    assert np.all(np.diff(degrees) <= 0)
    assert sorted(ids["random"]) == ids["sorted"] != ids["random"]
    etl(tmp_path / "edges.parquet", tmp_path / "other", cluster=cluster, relabel="random", seed=1)
    assert Graph.open(tmp_path / "other").user_ids().to_pylist() != ids["random"]


@pytest.mark.parametrize("kind", ["int", "wide", "string"])
def test_same_bytes_however_the_input_is_cut(
    tmp_path: Path, cluster: ClusterSpec, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = random_edges(5, kind, rows=3000, ids=500)
    options = {
        "weight": "weight",
        "relation": "relation",
        "time": "time",
        "relabel": "random",
        "split_edges": (0.8, 0.1, 0.1),
    }
    table.to_parquet(tmp_path / "one.parquet")
    etl(tmp_path / "one.parquet", tmp_path / "a", cluster=cluster, **options)
    many = tmp_path / "many"
    many.mkdir()
    for i, start in enumerate(range(0, 3000, 450)):
        table.iloc[start : start + 450].to_parquet(many / f"part-{i}.parquet", row_group_size=100)
    # Several ranges of ids, too.
    monkeypatch.setattr(number_nodes, "_ID_BYTES", 10**7)
    etl(many, tmp_path / "b", cluster=cluster, **options)
    files = [Graph.open(tmp_path / name).manifest.files for name in "ab"]
    assert files[0] == files[1]
    assert len(list((tmp_path / "a" / "heldout").iterdir())) == 2


def test_bins_cut_rows_but_not_results(
    tmp_path: Path, cluster: ClusterSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = random_edges(6, rows=3000, ids=500)
    table.to_parquet(tmp_path / "edges.parquet")
    etl(
        tmp_path / "edges.parquet",
        tmp_path / "a",
        cluster=cluster,
        weight="weight",
        relabel="degree",
    )
    monkeypatch.setattr(EtlJob, "bin_edges", 256)
    etl(
        tmp_path / "edges.parquet",
        tmp_path / "b",
        cluster=cluster,
        weight="weight",
        relabel="degree",
    )
    a, b = Graph.open(tmp_path / "a"), Graph.open(tmp_path / "b")
    assert a.num_shards == 1 < b.num_shards
    for (name, left), (_, right) in zip(a.csr().arrays(), b.csr().arrays(), strict=True):
        np.testing.assert_array_equal(left, right, err_msg=name)


def test_weights_of_both_directions_are_bitwise_equal(tmp_path: Path, cluster: ClusterSpec) -> None:
    table = random_edges(7, rows=5000, ids=20)
    table["weight"] = np.random.default_rng(0).random(5000).astype(np.float32)
    table.to_parquet(tmp_path / "edges.parquet", row_group_size=999)
    etl(
        tmp_path / "edges.parquet", tmp_path / "g", cluster=cluster, weight="weight", directed=False
    )
    csr = Graph.open(tmp_path / "g").csr()
    import scipy.sparse as sp

    matrix = sp.csr_matrix((csr.weights, csr.indices, csr.indptr)).toarray()
    np.testing.assert_array_equal(matrix, matrix.T)


TIMED: list[dict[str, Any]] = [
    {},
    {"weight": "weight"},
    {"weight": "weight", "duplicates": "first", "directed": True},
    {"weight": "weight", "duplicates": "keep", "relation": "relation", "directed": True},
    {"weight": "weight", "merge_times": True},
    {"weight": "weight", "merge_times": True, "duplicates": "first", "directed": True},
    {"merge_times": True, "duplicates": "max", "relation": "relation", "min_degree": 1},
]


@pytest.mark.parametrize("options", TIMED, ids=lambda o: ",".join(f"{k}={v}" for k, v in o.items()))
@pytest.mark.parametrize("dtype", ["int64", "float64"])
def test_an_edge_repeated_at_another_time_is_another_edge(
    tmp_path: Path, cluster: ClusterSpec, options: dict[str, Any], dtype: str
) -> None:
    table = random_edges(9, rows=900, ids=12)
    table["time"] = np.random.default_rng(1).integers(-3, 3, len(table)).astype(dtype)
    table.to_parquet(tmp_path / "edges.parquet", row_group_size=130)
    unnamed = {name: "none" for name in ("weight", "relation") if name not in options}
    report = etl(
        tmp_path / "edges.parquet", tmp_path / "g", cluster=cluster, time="time",
        **options, **unnamed,
    )  # fmt: skip
    graph = Graph.open(tmp_path / "g")
    graph.validate()
    ids, csr = graph.user_ids().to_pylist(), graph.csr()
    found = [
        (ids[u], ids[v], 0 if csr.relations is None else int(csr.relations[e]),
         csr.times[e], 1.0 if csr.weights is None else csr.weights[e])
        for e, (u, v) in enumerate(zip(csr.sources(), csr.indices, strict=True))
    ]  # fmt: skip
    # What pandas makes of it, by the steps of docs/etl.md.
    # Edges with relations keep those from a node to itself.
    frame = table if "relation" in options else table[table.src != table.dst]
    if not options.get("directed", "relation" in options):
        back = frame[frame.src != frame.dst].rename(columns={"src": "dst", "dst": "src"})
        frame = pd.concat([frame, back]).sort_index(kind="stable")
    typed = "relation" in options
    names = {name: i for i, name in enumerate(graph.manifest.relations or ())}
    frame = frame.assign(
        relation=frame.relation.map(names) if typed else 0,
        weight=frame.weight.astype(np.float64) if "weight" in options else 1.0,
    )
    by, how = ["src", "dst", "relation", "time"], options.get("duplicates", "sum")
    arcs = len(frame)
    if options.get("merge_times"):
        by.remove("time")
    if how != "keep":
        rules = {"weight": how if "weight" in options else "first"}
        if options.get("merge_times"):
            rules["time"] = "first" if how == "first" else "max"
        frame = frame.groupby(by, as_index=False).agg(rules)
    columns = ["src", "dst", "relation", "time", "weight"]
    expected = frame[columns].astype({"weight": np.float32}).itertuples(index=False, name=None)
    assert sorted(found) == sorted(expected)
    assert report.duplicates_merged == arcs - len(found)
    # Among edges that are equal else, times ascend.
    rank = {node: i for i, node in enumerate(ids)}
    keys = [(rank[u], rank[v], r, when) for u, v, r, when, _ in found]
    assert keys == sorted(keys)


def test_a_walk_in_time_finds_the_way_that_the_first_of_two_edges_opens(
    tmp_path: Path, cluster: ClusterSpec
) -> None:
    (tmp_path / "e.csv").write_text("src,dst,time\na,b,1\nb,c,5\na,b,9\na,b,9\n")
    etl(tmp_path / "e.csv", tmp_path / "g", cluster=cluster, time="time")
    paths = walk_array(tmp_path / "g", temporal=True, length=3, walks=40)
    assert [0, 1, 2] in paths.tolist()


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, {"ab": 9, "bc": 8}),
        ({"both_directions": "once"}, {"ab": 3, "bc": 8}),
        ({"both_directions": "once", "duplicates": "min"}, {"ab": 1, "bc": 8}),
        ({"both_directions": "once", "duplicates": "keep", "weight": "none"}, {"ab": 2, "bc": 1}),
    ],
)
def test_an_edge_listed_in_both_directions(
    tmp_path: Path, cluster: ClusterSpec, options: dict[str, Any], weights: dict[str, float]
) -> None:
    (tmp_path / "e.csv").write_text("src,dst,weight\na,b,1\na,b,2\nb,a,6\nc,b,8\nc,c,1\n")
    report = etl(tmp_path / "e.csv", tmp_path / "g", cluster=cluster, **options)
    assert report.in_both_directions == 1
    graph = Graph.open(tmp_path / "g")
    arcs = {u + v: sum(each) for (u, v), each in arcs_of(graph).items()}
    assert arcs == {**weights, **{pair[::-1]: weight for pair, weight in weights.items()}}
    assert graph.manifest.made["options"]["both_directions"] == options.get(
        "both_directions", "add"
    )


@pytest.mark.parametrize("prefix", ["", "user-", "https://example.org/users/"])
def test_text_ids_are_numbered_in_the_order_of_their_bytes(
    tmp_path: Path, cluster: ClusterSpec, prefix: str
) -> None:
    random = np.random.default_rng(7)
    ends = [str(n) for n in random.integers(0, 3000, 2000)]
    ends += ["a", "a\0", "a\0b", "Ä", "ä-long-enough-to-tie", "ä-long-enough-to-", "ä-long-enough!"]
    ids = [prefix + end for end in ends]
    pd.DataFrame({"src": ids, "dst": ids[::-1]}).to_parquet(tmp_path / "edges.parquet")
    etl(tmp_path / "edges.parquet", tmp_path / "g", cluster=cluster)
    assert Graph.open(tmp_path / "g").user_ids().to_pylist() == sorted(set(ids), key=str.encode)


@pytest.mark.parametrize(
    ("name", "given"), [("m.npz", "m.npz"), ("m.dat", "m.dat"), ("d/m.npz", "d")]
)
def test_a_matrix_names_its_nodes_however_it_is_named(
    tmp_path: Path, cluster: ClusterSpec, name: str, given: str
) -> None:
    import scipy.sparse as sp

    (tmp_path / "d").mkdir()
    with (tmp_path / name).open("wb") as file:
        sp.save_npz(file, sp.coo_matrix(([1.0, 1.0], ([0, 1], [1, 0])), (5, 5)))
    etl(tmp_path / given, tmp_path / "g", cluster=cluster, format="npz")
    assert Graph.open(tmp_path / "g").num_nodes == 5


@pytest.mark.parametrize("once", [True, False])
def test_a_symmetric_matrix_lists_each_edge_twice(
    tmp_path: Path, cluster: ClusterSpec, once: bool
) -> None:
    import scipy.sparse as sp

    matrix = sp.random(40, 40, 0.1, "csr", np.float32, random_state=1)
    matrix = matrix + matrix.T if once else matrix
    sp.save_npz(tmp_path / "m.npz", matrix.tocoo())
    etl(tmp_path / "m.npz", tmp_path / "g", cluster=cluster, self_loops="keep")
    graph = Graph.open(tmp_path / "g")
    csr, both = graph.csr(), matrix.toarray()
    if not once:
        both = both + both.T - np.diag(both.diagonal())
    stored = sp.csr_matrix((csr.weights, csr.indices, csr.indptr), (40, 40)).toarray()
    np.testing.assert_allclose(stored, both, rtol=1e-6)
    assert graph.manifest.made["options"]["both_directions"] == ("once" if once else "add")


@pytest.mark.parametrize("named", [False, True])
def test_an_edge_keeps_its_split_if_others_go(
    tmp_path: Path, cluster: ClusterSpec, named: bool
) -> None:
    rng = np.random.default_rng(3)
    pairs = rng.integers(0, 200, (2000, 2))
    table = pd.DataFrame(pairs * 7, columns=["source", "target"])
    if named:
        table = "n" + table.astype(str)
    gone = table["source"].iloc[0]

    def held(name: str, rows: pd.DataFrame, **options: Any) -> dict[frozenset[Any], str]:
        rows.to_parquet(tmp_path / "e.parquet")
        etl(
            tmp_path / "e.parquet", tmp_path / name, cluster=cluster, directed=False,
            split_edges=(0.6, 0.2, 0.2), **options,
        )  # fmt: skip
        graph = Graph.open(tmp_path / name)
        ids = graph.user_ids().to_pylist()
        return {
            frozenset((ids[a], ids[b])): split
            for split in ("valid", "test")
            for edges in [graph.heldout(split)]
            for a, b in zip(edges["sources"], edges["targets"], strict=True)
        }

    whole = held("whole", table)
    assert held("degree", table, relabel="degree") == whole
    rest = held("rest", table[(table != gone).all(axis=1)])
    assert rest == {edge: split for edge, split in whole.items() if gone not in edge}


def test_all_times_of_an_edge_are_held_out_together(tmp_path: Path, cluster: ClusterSpec) -> None:
    table = random_edges(8, rows=3000, ids=40)
    table.to_parquet(tmp_path / "edges.parquet")
    for directed in (False, True):
        out = tmp_path / f"g{directed}"
        etl(
            tmp_path / "edges.parquet", out, cluster=cluster, time="time", relation="none",
            split_edges=(0.6, 0.2, 0.2), directed=directed,
        )  # fmt: skip
        graph = Graph.open(out)
        csr = graph.csr()
        pairs = {"train": set(zip(csr.sources().tolist(), csr.indices.tolist(), strict=True))}
        for name in ("valid", "test"):
            edges = graph.heldout(name)
            assert len(edges["times"]) == len(edges["sources"])
            ends = list(zip(edges["sources"].tolist(), edges["targets"].tolist(), strict=True))
            assert len(ends) > len(set(ends))  # some at several times
            pairs[name] = set(ends)
        assert not pairs["train"] & (pairs["valid"] | pairs["test"])
        assert not pairs["valid"] & pairs["test"]


TRIPLES = "a\tlikes\tb\nb\tlikes\ta\na\tlikes\tb\nb\tknows\tc\na\tknows\tb\n"


@pytest.mark.parametrize(
    ("kind", "arcs"), [("triples", {"ab", "ba", "bc", "cb"}), ("tsv", {"a-", "b-", "-a", "-b"})]
)
def test_triples_without_relations(
    tmp_path: Path, cluster: ClusterSpec, kind: str, arcs: set[str]
) -> None:
    (tmp_path / "kg.txt").write_text("a\t-\tb\nb\t-\tc\na\t-\tb\n")
    etl(tmp_path / "kg.txt", tmp_path / "g", cluster=cluster, format=kind, relation="none")
    graph = Graph.open(tmp_path / "g")
    assert graph.manifest.relations is None
    ids, csr = graph.user_ids().to_pylist(), graph.csr()
    assert {ids[u] + ids[v] for u, v in zip(csr.sources(), csr.indices, strict=True)} == arcs


def test_triples_are_directed_and_the_same_triple_twice_is_one(
    tmp_path: Path, cluster: ClusterSpec
) -> None:
    (tmp_path / "kg.txt").write_text(TRIPLES)
    report = etl(tmp_path / "kg.txt", tmp_path / "g", cluster=cluster)
    graph = Graph.open(tmp_path / "g")
    assert graph.manifest.directed
    assert set(arcs_of(graph)) == {
        ("a", "b", "likes"), ("b", "a", "likes"), ("b", "c", "knows"), ("a", "b", "knows"),
    }  # fmt: skip
    assert report.edges == report.duplicates_merged + 3 == 4
    report = etl(tmp_path / "kg.txt", tmp_path / "u", cluster=cluster, directed=False)
    assert not Graph.open(tmp_path / "u").manifest.directed
    assert report.edges == 6  # likes and knows of a and b, knows of b and c, both ways


TU_FILES = {"A": "1, 1\n1, 2\n2, 1\n", "graph_indicator": "1\n1\n", "edge_labels": "0\n1\n1\n"}
ZOO = "graph_id,source,target,relation\n7,a,a,x\n7,a,b,y\n"


@pytest.mark.parametrize("asked", [None, "keep", "drop"])
@pytest.mark.parametrize("relation", [None, "none"])
@pytest.mark.parametrize("kind", ["triples", "zoo", "tu"])
def test_self_loops_are_kept_where_edges_have_relations(
    tmp_path: Path, cluster: ClusterSpec, kind: str, relation: str | None, asked: Any
) -> None:
    path = tmp_path / ("SMALL" if kind == "tu" else f"{kind}.csv")
    if kind == "tu":
        path.mkdir()
        for name, text in TU_FILES.items():
            (path / f"SMALL_{name}.txt").write_text(text)
    else:
        path.write_text(ZOO if kind == "zoo" else "a\tx\ta\na\ty\tb\n")
    options = {"format": kind, "relation": relation, "self_loops": asked}
    report = etl(path, tmp_path / "g", cluster=cluster, **options)
    graph = Graph.open(tmp_path / "g")
    kept = asked == "keep" or (asked is None and relation is None)
    csr = graph.csr()
    assert np.count_nonzero(csr.sources() == csr.indices) == kept
    assert (report.loops_kept, report.loops_dropped) == (int(kept), int(not kept))
    # What was decided is what identifies the run, and what the graph says of its making.
    assert (graph.manifest.made or {})["options"]["self_loops"] == ("keep" if kept else "drop")


@pytest.mark.parametrize("suffix", ["csv", "parquet", "edgelist"])
def test_a_column_of_relations_makes_a_table_directed(
    tmp_path: Path, cluster: ClusterSpec, suffix: str
) -> None:
    rows = [line.split("\t") for line in TRIPLES.splitlines()]
    table, path = pd.DataFrame(rows, columns=["head", "relation", "tail"]), tmp_path / f"e.{suffix}"
    if suffix == "parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, sep="," if suffix == "csv" else " ")
    typed = etl(path, tmp_path / "typed", cluster=cluster, format="auto")
    assert (typed.directed, typed.edges) == (True, 4)
    plain = etl(path, tmp_path / "plain", cluster=cluster, relation="none")
    assert (plain.directed, plain.edges) == (False, 4)


def test_relations_of_a_zoo_direct_nothing(tmp_path: Path, cluster: ClusterSpec) -> None:
    (tmp_path / "z.csv").write_text("graph,source,target,relation\n1,1,2,single\n1,2,3,double\n")
    report = etl(tmp_path / "z.csv", tmp_path / "g", cluster=cluster, format="zoo")
    assert (report.directed, report.edges) == (False, 4)


def test_the_command_line_asks_for_either_direction(tmp_path: Path) -> None:
    (tmp_path / "kg.txt").write_text(TRIPLES)
    for number, (flags, directed) in enumerate(
        [([], True), (["--undirected"], False), (["--directed"], True)]
    ):
        out = tmp_path / f"g{number}"
        assert run(["etl", str(tmp_path / "kg.txt"), str(out), "-q", *flags]) == 0
        assert Graph.open(out).manifest.directed == directed


def test_triples_are_split_one_by_one(tmp_path: Path, cluster: ClusterSpec) -> None:
    random = np.random.default_rng(0)
    rows = {(int(h), int(r), int(t)) for h, r, t in random.integers(0, [60, 3, 60], (4000, 3))}
    rows = sorted((h, r, t) for h, r, t in rows if h != t)
    pd.DataFrame(rows).to_csv(tmp_path / "kg.txt", sep="\t", header=False, index=False)
    etl(
        tmp_path / "kg.txt", tmp_path / "g", cluster=cluster, format="triples",
        split_edges=(0.7, 0.15, 0.15),
    )  # fmt: skip
    graph = Graph.open(tmp_path / "g")
    graph.validate()
    ids, names = graph.user_ids().to_pylist(), [int(name) for name in graph.manifest.relations]
    csr = graph.csr()
    found = [list(zip(csr.sources(), csr.relations, csr.indices, strict=True))]
    for name in ("valid", "test"):
        edges = graph.heldout(name)
        columns = (edges[column] for column in ("sources", "relations", "targets"))
        found.append(list(zip(*columns, strict=True)))
        assert 0.12 < len(found[-1]) / len(rows) < 0.18
    triples = [(ids[h], names[r], ids[t]) for part in found for h, r, t in part]
    assert sorted(triples) == rows  # every triple is in exactly one part


def test_bad_rows_are_counted_and_kept_aside(tmp_path: Path, cluster: ClusterSpec) -> None:
    table = random_edges(4)
    table.loc[[5, 17], "weight"] = np.nan
    table.loc[30, "weight"] = -2
    table.to_csv(tmp_path / "edges.csv", index=False)
    options: dict[str, Any] = {"cluster": cluster, "weight": "weight", "relation": "none"}
    with pytest.raises(InputError, match=r"edges\.csv.*7"):
        etl(tmp_path / "edges.csv", tmp_path / "g", **options)
    report = etl(tmp_path / "edges.csv", tmp_path / "g", on_bad_rows="skip", **options)
    assert report.bad_rows == 3
    kept = json.loads((tmp_path / "g" / "bad_rows.json").read_text())
    assert [bad["row"] for bad in kept["first"]] == [7, 19, 32]


def test_the_plan_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "e.csv").write_text("from,to,weight\n1,2,3\n2,3,1\n")
    words = ["etl", str(tmp_path / "e.csv"), str(tmp_path / "g"), "--plan", "--json"]
    assert run([*words, "--source", "from", "--target", "to"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert os.listdir(tmp_path) == ["e.csv"]
    assert plan["disk_bytes"] == 4 * (tmp_path / "e.csv").stat().st_size
    assert plan["memory_bytes"] is plan["problem"] is None
    assert run([*words, "--source", "nobody"]) == 1
    assert "nobody" in capsys.readouterr().err


def test_the_plan_of_columns_that_are_small_on_disk_has_room_for_their_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, path = 100_000, tmp_path / "zoo.parquet"
    columns = {
        "graph_id": np.arange(rows) // 100,
        "source": np.zeros(rows),
        "target": np.ones(rows),
    }
    pq.write_table(pa.table(columns), path)
    for job in ("etl", "centrality"):
        words = [job, str(path), str(tmp_path / "out"), "--format", "zoo", "--plan", "--json"]
        assert run(words) == 0
        least = 10 * path.stat().st_size
        assert json.loads(capsys.readouterr().out)["disk_bytes"] >= max(3 * 8 * rows, least)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("kind", ["int", "date", "float"])
def test_the_newest_edges_are_held_out(
    tmp_path: Path, cluster: ClusterSpec, kind: str, directed: bool
) -> None:
    rng = np.random.default_rng(0)
    rows = 20_000
    times: Any = rng.permutation(rows)
    if kind == "date":
        times = pd.Timestamp("2026-01-01") + pd.to_timedelta(times, "min")
    elif kind == "float":
        times = times / 8
    ends = rng.integers(0, 10**6, (rows, 2))
    table = pd.DataFrame({"source": ends[:, 0], "target": ends[:, 1], "t": times})
    table.to_parquet(tmp_path / "e.parquet")
    options: dict[str, Any] = {"time": "t", "split_edges": (0.7, 0.1, 0.2), "directed": directed}
    etl(tmp_path / "e.parquet", tmp_path / "g", cluster=cluster, split_edges_by="time", **options)
    graph = Graph.open(tmp_path / "g")
    parts = [graph.csr().times, *(graph.heldout(name)["times"] for name in ("valid", "test"))]
    counts = [len(part) / (1 if directed or i else 2) for i, part in enumerate(parts)]
    assert np.allclose(np.array(counts) / rows, (0.7, 0.1, 0.2), atol=0.002)
    for older, newer in pairwise(parts):
        assert older.max() < newer.min()
    with pytest.raises(UsageError):
        etl(tmp_path / "e.parquet", tmp_path / "h", split_edges=(0.8, 0.1, 0.1),
            split_edges_by="time")  # fmt: skip
    table["t"] = times[0]
    table.to_parquet(tmp_path / "e.parquet")
    with pytest.raises(InputError):
        etl(tmp_path / "e.parquet", tmp_path / "h", split_edges_by="time", **options)
    with pytest.raises(UsageError):
        etl(tmp_path / "e.parquet", tmp_path / "h", split_edges_by="time", merge_times=True,
            **options)  # fmt: skip
