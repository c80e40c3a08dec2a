"""ETL against a reference that does the same steps with pandas and NetworkX."""

from __future__ import annotations

import json
import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from penstock import Graph, etl
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


def arcs_of(graph: Graph) -> Arcs:
    ids = graph.user_ids().to_pylist()
    csr = graph.csr()
    arcs: Arcs = {}
    for e, (u, v) in enumerate(zip(csr.sources(), csr.indices, strict=True)):
        r = () if csr.relations is None else (graph.manifest.relations[csr.relations[e]],)
        weight = 1.0 if csr.weights is None else float(csr.weights[e])
        arcs.setdefault((ids[u], ids[v], *r), []).append(weight)
    return arcs


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
            tmp_path / "e.parquet",
            tmp_path / name,
            cluster=cluster,
            directed=False,
            split_edges=(0.6, 0.2, 0.2),
            **options,
        )
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
            tmp_path / "edges.parquet",
            out,
            cluster=cluster,
            time="time",
            relation="none",
            split_edges=(0.6, 0.2, 0.2),
            directed=directed,
        )
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
        tmp_path / "kg.txt",
        tmp_path / "g",
        cluster=cluster,
        format="triples",
        split_edges=(0.7, 0.15, 0.15),
    )
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
        etl(
            tmp_path / "e.parquet",
            tmp_path / "h",
            split_edges=(0.8, 0.1, 0.1),
            split_edges_by="time",
        )
    table["t"] = times[0]
    table.to_parquet(tmp_path / "e.parquet")
    with pytest.raises(InputError):
        etl(tmp_path / "e.parquet", tmp_path / "h", split_edges_by="time", **options)
    with pytest.raises(UsageError):
        etl(
            tmp_path / "e.parquet",
            tmp_path / "h",
            split_edges_by="time",
            merge_times=True,
            **options,
        )
