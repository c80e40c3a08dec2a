"""etl, generate, info, validate, partition and order, against pandas, SciPy and NetworkX."""

from __future__ import annotations

import gzip
import json
from itertools import product
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from golden import adjacency, check, columns, command, draws, follows, graph_content, run
from scipy.sparse.csgraph import connected_components

import penstock

NUMBERED = follows().assign(
    src=lambda table: table["src"].str[1:].astype(int),
    dst=lambda table: table["dst"].str[1:].astype(int),
)


def write_input(kind: str, folder: Path) -> tuple[str, pd.DataFrame]:
    """Write the edges as a kind of input; return the words that read it, and the edges in it."""
    table, numbers = follows(), NUMBERED
    if kind == "parquet":
        table.to_parquet(folder / "e.parquet")
        return "e.parquet", table
    if kind == "files":
        (folder / "e").mkdir()
        table[:700].to_parquet(folder / "e" / "a.parquet")
        table[700:].to_parquet(folder / "e" / "b.parquet")
        return "e", table
    if kind in ("csv", "tsv"):
        table.to_csv(folder / f"e.{kind}", sep=",\t"[kind == "tsv"], index=False)
        return f"e.{kind}", table
    if kind == "edgelist":
        text = "# comment\n" + numbers.to_csv(sep=" ", index=False, header=False)
        (folder / "e.txt.gz").write_bytes(gzip.compress(text.encode()))
        return "e.txt.gz --weight 2", numbers
    matrix = sp.coo_array((numbers["weight"], (numbers["src"], numbers["dst"])), (200, 200))
    sp.save_npz(folder / "e.npz", matrix)
    return "e.npz", numbers


def merged(
    table: pd.DataFrame,
    *,
    directed: bool,
    duplicates: str = "sum",
    loops: bool = False,
    keys: tuple[str, ...] = ("src", "dst"),
) -> list[tuple[Any, ...]]:
    """Return the edges that a graph must hold, by pandas."""
    if not loops:
        table = table[table["src"] != table["dst"]]
    if not directed:
        back = table[table["src"] != table["dst"]].rename(columns={"src": "dst", "dst": "src"})
        table = pd.concat([table, back[table.columns]]).sort_index(kind="stable")
    if duplicates != "keep":
        table = table.groupby(list(keys), as_index=False, sort=False)["weight"].agg(duplicates)
    return sorted(table[[*keys, "weight"]].itertuples(index=False, name=None))


def stored(path: Path, *, times: bool = False) -> list[tuple[Any, ...]]:
    """Return the edges that a graph holds, by the ids of its users."""
    graph = penstock.Graph.open(path)
    csr, ids = graph.csr(), graph.user_ids().to_pylist()
    assert (np.diff(csr.indices)[np.diff(csr.sources()) == 0] >= 0).all()
    found = [[ids[one] for one in csr.sources()], [ids[one] for one in csr.indices]]
    found += [csr.times.tolist()] if times else []
    found += [csr.weights.tolist()] if csr.weights is not None else []
    return sorted(zip(*found, strict=True))


@pytest.mark.parametrize(
    ("kind", "directed", "duplicates", "loops"),
    [
        ("parquet", False, "sum", False),
        ("parquet", True, "keep", False),
        ("files", False, "max", True),
        ("csv", True, "max", False),
        ("tsv", False, "first", False),
        ("edgelist", True, "sum", True),
        ("npz", True, "sum", False),
    ],
)
def test_etl_keeps_the_edges_that_pandas_keeps(
    tmp_path: Path, kind: str, directed: bool, duplicates: str, loops: bool
) -> None:
    words, table = write_input(kind, tmp_path)
    words += f" --duplicates {duplicates} --self-loops {'keep' if loops else 'drop'}"
    report = run(f"etl {words} g --{'directed' if directed else 'undirected'}", folder=tmp_path)
    expected = merged(table, directed=directed, duplicates=duplicates, loops=loops)
    assert stored(tmp_path / "g") == expected
    assert (report["edges"], report["directed"]) == (len(expected), directed)
    ids = columns(tmp_path / "g" / "nodes.parquet")["id"]
    assert ids == sorted(ids)
    if kind != "npz":
        assert set(ids) == {*table["src"], *table["dst"]}
    run("validate g", folder=tmp_path)


def test_etl_keeps_times(tmp_path: Path) -> None:
    follows().to_parquet(tmp_path / "e.parquet")
    words = "etl e.parquet {} --time time --weight weight --since 200 --until 800"
    run(words.format("g"), folder=tmp_path)
    table = follows().query("200 <= time < 800")
    expected = merged(table, directed=False, keys=("src", "dst", "time"))
    assert stored(tmp_path / "g", times=True) == expected
    run(words.format("merged") + " --merge-times", folder=tmp_path)
    both = pd.DataFrame(expected, columns=["src", "dst", "time", "weight"])
    both = both.groupby(["src", "dst"], as_index=False).agg({"time": "max", "weight": "sum"})
    assert stored(tmp_path / "merged", times=True) == sorted(
        both.itertuples(index=False, name=None)
    )


def test_etl_filters_and_numbers_nodes(tmp_path: Path) -> None:
    table = follows()[::5]
    table.to_parquet(tmp_path / "e.parquet")
    full = nx.Graph(list(zip(table["src"], table["dst"], strict=True)))
    full.remove_edges_from(list(nx.selfloop_edges(full)))
    kept = full.subgraph([node for node, degree in full.degree if degree >= 2])
    largest = max(nx.connected_components(kept), key=len)
    run(
        "etl e.parquet g --min-degree 2 --largest-component --weight none --relabel degree",
        folder=tmp_path,
    )
    graph = penstock.Graph.open(tmp_path / "g")
    assert set(graph.user_ids().to_pylist()) == largest
    assert (np.diff(graph.degrees) <= 0).all()
    assert {pair for pair in stored(tmp_path / "g") if pair[0] < pair[1]} == {
        tuple(sorted(pair)) for pair in kept.subgraph(largest).edges
    }


def test_etl_puts_what_a_table_says_at_its_nodes(tmp_path: Path) -> None:
    follows().to_parquet(tmp_path / "e.parquet")
    people = pd.DataFrame({"id": [f"p{n}" for n in range(220)], "team": draws(220, 4, 6)})
    people["team"] = people["team"].map(lambda number: None if number == 3 else f"team {number}")
    people["x0"], people["x1"] = draws(220, 100, 7) / 8, draws(220, 100, 8) / 8
    people["part"] = [["train", "valid", "test"][number] for number in draws(220, 3, 9)]
    people.to_csv(tmp_path / "people.csv", index=False)
    run(
        "etl e.parquet g --nodes people.csv --label team --split part --feature-columns x*",
        folder=tmp_path,
    )
    graph = penstock.Graph.open(tmp_path / "g")
    classes = json.loads((tmp_path / "g" / "graph.json").read_text())["classes"]
    nodes = pd.DataFrame(columns(tmp_path / "g" / "nodes.parquet")).set_index("id")
    people = people.set_index("id").loc[nodes.index]
    assert len(nodes) == 220
    named = [None if pd.isna(label) else classes[int(label)] for label in nodes["label"]]
    assert named == [None if pd.isna(team) else team for team in people["team"]]
    assert [("train", "valid", "test")[one] for one in nodes["split"]] == people["part"].tolist()
    np.testing.assert_array_equal(graph.features(), people[["x0", "x1"]])


def test_etl_splits_edges_and_nodes(tmp_path: Path) -> None:
    follows().to_parquet(tmp_path / "e.parquet")
    follows()[1:].to_parquet(tmp_path / "fewer.parquet")
    words = "--split-edges 0.6 0.2 0.2 --split-nodes 0.5 0.25 0.25 --weight none --seed 3"
    for name in ("e", "fewer"):
        run(f"etl {name}.parquet {name} {words}", folder=tmp_path)
    kept, ids = set(stored(tmp_path / "e")), columns(tmp_path / "e" / "nodes.parquet")["id"]
    apart = {}
    for name in ("valid", "test"):
        ends = [np.load(tmp_path / f"e/heldout/{name}/{end}s.npy") for end in ("source", "target")]
        apart[name] = {tuple(sorted((ids[a], ids[b]))) for a, b in zip(*ends, strict=True)}
        assert len(apart[name]) == len(ends[0])
    both = {tuple(sorted(pair)) for pair in kept}
    assert len(both) * 2 == len(kept)
    whole = {tuple(sorted(pair[:2])) for pair in merged(follows(), directed=False)}
    assert both | apart["valid"] | apart["test"] == whole
    assert len(both) + len(apart["valid"]) + len(apart["test"]) == len(whole)
    assert abs(len(both) / len(whole) - 0.6) < 0.05
    # What one edge draws hangs on no other.
    assert len(both ^ {tuple(sorted(pair)) for pair in stored(tmp_path / "fewer")}) <= 1
    splits = np.bincount(columns(tmp_path / "e" / "nodes.parquet")["split"], minlength=3)
    np.testing.assert_allclose(splits / len(ids), [0.5, 0.25, 0.25], atol=0.1)


def test_etl_reads_triples_and_what_is_held_out(tmp_path: Path) -> None:
    names = [f"is {number}" for number in range(3)]
    triples = [
        (f"e{a}", names[r], f"e{b}")
        for a, r, b in zip(draws(400, 60, 1), draws(400, 3, 2), draws(400, 60, 3), strict=True)
    ]
    for name, part in {
        "train": triples[:300],
        "valid": triples[300:350],
        "test": triples[350:],
    }.items():
        (tmp_path / f"{name}.txt").write_text("".join("\t".join(one) + "\n" for one in part))
    run("etl train.txt g --valid valid.txt --test test.txt", folder=tmp_path)
    graph = penstock.Graph.open(tmp_path / "g")
    relations = json.loads((tmp_path / "g" / "graph.json").read_text())["relations"]
    ids, csr = graph.user_ids().to_pylist(), graph.csr()
    found = zip(csr.sources(), csr.relations, csr.indices, strict=True)
    assert {(ids[a], relations[r], ids[b]) for a, r, b in found} == set(triples[:300])
    assert csr.edges == len(set(triples[:300]))
    for name, part in {"valid": triples[300:350], "test": triples[350:]}.items():
        held = graph.heldout(name)
        found = zip(held["sources"], held["relations"], held["targets"], strict=True)
        assert {(ids[a], relations[r], ids[b]) for a, r, b in found} == set(part)


@pytest.mark.parametrize("kind", ["table", "tu"])
def test_etl_makes_zoos(tmp_path: Path, kind: str) -> None:
    graphs = {f"g{n:02d}": nx.gnm_random_graph(5 + n, 6 + 2 * n, seed=n) for n in range(20)}
    if kind == "table":
        rows = [(name, a, b) for name, graph in graphs.items() for a, b in graph.edges]
        table = pd.DataFrame(rows, columns=["graph_id", "src", "dst"])
        table.sample(frac=1, random_state=0).to_csv(tmp_path / "zoo.csv", index=False)
        words = "zoo.csv --format zoo"
    else:
        first, lines, indicator = 1, [], []
        for number, graph in enumerate(graphs.values(), start=1):
            lines += [
                f"{a + first}, {b + first}\n{b + first}, {a + first}\n" for a, b in graph.edges
            ]
            indicator += [f"{number}\n"] * len(graph)
            first += len(graph)
        (tmp_path / "TU").mkdir()
        (tmp_path / "TU" / "TU_A.txt").write_text("".join(lines))
        (tmp_path / "TU" / "TU_graph_indicator.txt").write_text("".join(indicator))
        words = "TU"
    assert run(f"etl {words} zoo", folder=tmp_path)["graphs"] == 20
    matrix = adjacency(tmp_path / "zoo")
    rows = pd.DataFrame(columns(tmp_path / "zoo" / "graphs.parquet")).sort_values("id")
    ids = columns(tmp_path / "zoo" / "nodes.parquet")["id"]
    for (first, nodes, edges), graph in zip(
        rows[["first", "nodes", "edges"]].to_numpy(), graphs.values(), strict=True
    ):
        block = matrix[first : first + nodes, first : first + nodes].tocoo()
        here = np.asarray(ids[first : first + nodes]) - (0 if kind == "table" else first + 1)
        pairs = zip(here[block.row].tolist(), here[block.col].tolist(), strict=True)
        assert {*pairs} == {*graph.edges, *((b, a) for a, b in graph.edges)}
        assert edges == 2 * graph.number_of_edges()


def test_etl_counts_bad_rows(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("src,dst,weight\n1,2,0.5\n3,,1\n2,3,nan\n3,1,-1\n4,1,2\n")
    report = run("etl e.csv g --weight weight --on-bad-rows skip", folder=tmp_path)
    assert report["bad_rows"] == 3
    assert (tmp_path / "g" / "bad_rows.json").exists()
    assert stored(tmp_path / "g") == [(1, 2, 0.5), (1, 4, 2.0), (2, 1, 0.5), (4, 1, 2.0)]


GENERATED = {
    "rmat": "rmat --scale 8 --edge-factor 4 --weights 1,5 --relations 3 --labels 4",
    "sbm": "sbm --nodes 300 --blocks 3 --width 4",
    "sparse": "sbm --nodes 300 --features sparse --width 40",
    "kg": "kg --entities 100 --relations 3 --triples 800",
    "zoo": "zoo --graphs 12",
}


@pytest.mark.parametrize("kind", GENERATED)
def test_generate_draws_what_it_drew(tmp_path: Path, kind: str) -> None:
    kind_words, _, options = GENERATED[kind].partition(" ")
    report = run(f"generate {kind_words} g {options} --seed 5", folder=tmp_path)
    content = graph_content(tmp_path / "g")
    assert report["edges"] == len(content["indices"])
    check(f"generate {kind}", content)
    run("validate g", folder=tmp_path)


def test_info_counts_as_scipy_does(given: Path) -> None:
    for name in ("blocks", "weighted"):
        about, matrix = run(f"info {given / name}"), adjacency(given / name)
        degrees = np.diff(matrix.indptr)
        parts, part = connected_components(matrix, directed=False)
        assert about["nodes"] == matrix.shape[0]
        assert about["arcs"] == matrix.nnz
        assert about["isolated"] == np.sum(
            degrees + np.bincount(matrix.indices, minlength=len(degrees)) == 0
        )
        assert (about["components"], about["largest_component"]) == (parts, np.bincount(part).max())
        shown = about["degrees"]
        assert (shown["min"], shown["max"]) == (degrees.min(), degrees.max())
        assert shown["mean"] == pytest.approx(degrees.mean())
        assert shown["median"] == np.quantile(degrees, 0.5, method="inverted_cdf")
        assert shown["p99"] == np.quantile(degrees, 0.99, method="inverted_cdf")
        for low, high, count in shown["histogram"]:
            assert count == np.sum((degrees >= low) & (degrees <= high))
    assert penstock.info(given / "blocks").nodes == 400


def test_validate_finds_a_flipped_bit(tmp_path: Path) -> None:
    run("generate sbm g --nodes 100", folder=tmp_path)
    run("validate g", folder=tmp_path)
    file = tmp_path / "g" / "shards" / "00000" / "indices.npy"
    data = bytearray(file.read_bytes())
    data[-4] ^= 1
    file.write_bytes(data)
    answer = command("validate g", folder=tmp_path)
    assert answer.returncode == 1
    assert "indices.npy" in answer.stderr


@pytest.mark.parametrize(
    ("method", "k"),
    [
        ("auto", 3),
        ("metis", 2),
        ("components", 2),
        ("greedy", 3),
        ("streaming", 3),
        ("random", 4),
        ("hash", 2),
    ],
)
def test_partition_cuts_what_numpy_counts(tmp_path: Path, given: Path, method: str, k: int) -> None:
    source = "weighted" if method in ("greedy", "components") else "blocks"
    words = "--directed --weight weight" if source == "weighted" else ""
    if words:
        run(f"etl {given / 'follows.parquet'} g {words}", folder=tmp_path)
    else:
        run("generate sbm g --nodes 400 --blocks 5 --width 16 --noise 2", folder=tmp_path)
    report = run(f"partition g -k {k} --method {method} --seed 2", folder=tmp_path)
    matrix = adjacency(tmp_path / "g", weighted=bool(words))
    made = penstock.Partition.open(tmp_path / "g" / "partition" / f"k{k}")
    owner, edges = np.asarray(made.assignment), matrix.tocoo()
    cut = owner[edges.row] != owner[edges.col]
    assert report["cut_edges"] == cut.sum()
    load = np.bincount(owner, np.diff(matrix.indptr), minlength=k)
    assert report["load_imbalance"] == pytest.approx(load.max() / load.mean())
    whole, ghosts = sp.lil_array(matrix.shape), 0
    parts = [made.part(number) for number in range(k)]
    for number, part in enumerate(parts):
        local = np.concatenate([part.owned, part.ghosts])
        assert (owner[part.owned] == number).all()
        assert set(part.ghosts) == set(edges.col[cut & (owner[edges.row] == number)])
        ghosts += len(part.ghosts)
        weights = part.csr.weights if words else np.ones(part.csr.edges)
        block = sp.csr_array(
            (weights, local[part.csr.indices], part.csr.indptr), (len(part.owned), matrix.shape[1])
        )
        whole[part.owned] = block
        for peer, span in part.receive.items():
            sent = parts[peer].owned[parts[peer].send[number]]
            np.testing.assert_array_equal(sent, local[span])
        if not words:
            features = penstock.Graph.open(tmp_path / "g").features()
            np.testing.assert_array_equal(part.features(), features[part.owned])
    assert report["ghosts"] == ghosts
    assert abs(sp.csr_array(whole) - matrix).max() == 0
    if method in ("greedy", "random", "hash", "components"):  # METIS' versions differ
        check(f"partition {method}", {"owner": owner})


# docs/order.md: the count of buffer states, the first filling as one.
COUNTS = {
    ("prefetch", 12): 33,
    ("beta", 12): 35,
    ("prefetch", 6): 8,
    ("legend", 8): 16,
    ("cover", 16): 80,
}


@pytest.mark.parametrize(("method", "count"), COUNTS)
def test_order_trains_every_bucket_once(method: str, count: int) -> None:
    report = run(f"order -k {count} --method {method}")
    order = penstock.order(method, count)
    assert report["io"] == COUNTS[method, count]
    trained, buffer = [], set(report["steps"][0]["buffer"])
    for step, same in zip(report["steps"], order.steps, strict=True):
        assert set(step["buffer"]) == buffer
        assert {tuple(pair) for pair in step["before"]} == set(same.before)
        for pair in step["before"] + step["during"]:
            assert set(pair) <= buffer
        assert not set(step["evict"]) & {one for pair in step["during"] for one in pair}
        trained += [tuple(pair) for pair in step["before"] + step["during"]]
        buffer = buffer - set(step["evict"]) | set(step["load"])
    assert sorted(trained) == sorted(product(range(count), repeat=2))
