"""etl, generate, info, validate, partition and order, against pandas, SciPy and NetworkX."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from golden import adjacency, check, columns, draws, follows, graph_content, run

import penstock

Edges = list[tuple[Any, ...]]


def merged(table, directed, duplicates="sum", loops=False, *keys):
    """Return the edges that a graph must hold, by pandas."""
    names = ["src", "dst", *keys]
    table = table if loops else table[table["src"] != table["dst"]]
    if not directed:
        back = table[table["src"] != table["dst"]].rename(columns={"src": "dst", "dst": "src"})
        table = pd.concat([table, back[table.columns]]).sort_index(kind="stable")
    if duplicates != "keep":
        table = table.groupby(names, as_index=False, sort=False)["weight"].agg(duplicates)
    return sorted(table[[*names, "weight"]].itertuples(index=False, name=None))


def stored(path, *more):
    """Return the edges of a graph, by the ids of its users, and their columns."""
    graph = penstock.Graph.open(path)
    csr, ids = graph.csr(), graph.user_ids().to_pylist()
    ends = [[ids[one] for one in csr.sources()], [ids[one] for one in csr.indices]]
    return sorted(zip(*ends, *(getattr(csr, name).tolist() for name in more), strict=True))


def both_ways(pairs):
    return {tuple(sorted(pair[:2])) for pair in pairs}


def test_etl_splits_edges_and_nodes():
    words = "--split-edges 0.6 0.2 0.2 --split-nodes 0.5 0.25 0.25 --weight none --seed 3"
    for name, table in {"e": follows(), "fewer": follows()[1:]}.items():
        table.to_parquet(f"{name}.parquet")
        run(f"etl {name}.parquet {name} {words}")
    nodes = columns("e/nodes.parquet")
    parts = [both_ways(stored("e"))]
    for name in ("valid", "test"):
        ends = [np.load(f"e/heldout/{name}/{end}s.npy") for end in ("source", "target")]
        parts.append(
            {tuple(sorted(nodes["id"][n] for n in pair)) for pair in zip(*ends, strict=True)}
        )
        assert len(parts[-1]) == len(ends[0])
    whole = both_ways(merged(follows(), False))
    assert set.union(*parts) == whole
    assert sum(map(len, parts)) == len(whole)
    np.testing.assert_allclose([len(one) / len(whole) for one in parts], [0.6, 0.2, 0.2], atol=0.05)
    assert len(parts[0] ^ both_ways(stored("fewer"))) <= 1  # what an edge draws hangs on no other
    shares = np.bincount(nodes["split"], minlength=3) / len(nodes["id"])
    np.testing.assert_allclose(shares, [0.5, 0.25, 0.25], atol=0.15)


def test_etl_reads_triples_and_what_is_held_out():
    numbers = zip(draws(400, 60, 1), draws(400, 3, 2), draws(400, 60, 3), strict=True)
    triples = [(f"e{a}", f"is {r}", f"e{b}") for a, r, b in numbers]
    parts = {"train": triples[:300], "valid": triples[300:350], "test": triples[350:]}
    for name, part in parts.items():
        Path(f"{name}.txt").write_text("".join("\t".join(one) + "\n" for one in part))
    run("etl train.txt g --valid valid.txt --test test.txt")
    graph = penstock.Graph.open("g")
    ids, relations = (
        graph.user_ids().to_pylist(),
        json.loads(Path("g/graph.json").read_text())["relations"],
    )
    csr = graph.csr()
    found = {"train": (csr.sources(), csr.relations, csr.indices)}
    for name in ("valid", "test"):
        held = graph.heldout(name)
        found[name] = held["sources"], held["relations"], held["targets"]
    for name, part in parts.items():
        read = [(ids[a], relations[r], ids[b]) for a, r, b in zip(*found[name], strict=True)]
        assert sorted(set(read)) == sorted(set(part))
    assert csr.edges == len(set(parts["train"]))


GENERATED = {
    "rmat": "rmat g --scale 8 --edge-factor 4 --weights 1,5 --relations 3 --labels 4",
    "sbm": "sbm g --nodes 300 --blocks 3 --width 4",
    "sparse": "sbm g --nodes 300 --features sparse --width 40",
    "kg": "kg g --entities 100 --relations 3 --triples 800",
    "zoo": "zoo g --graphs 12",
}


@pytest.mark.parametrize("kind", GENERATED)
def test_generate_draws_what_it_drew(kind):
    report, content = run(f"generate {GENERATED[kind]} --seed 5"), graph_content("g")
    assert report["edges"] == len(content["indices"])
    check(f"generate {kind}", content)
    run("validate g")


@pytest.mark.parametrize(
    "method", ["auto", "metis", "components", "greedy", "streaming", "random", "hash"]
)
def test_partition_cuts_what_numpy_counts(given, method):
    if method in ("greedy", "components"):
        run(f"etl {given}/follows.parquet g --directed --weight weight")
    else:
        run("generate sbm g --nodes 400 --blocks 5 --width 16")
    report = run(f"partition g -k 3 --method {method} --seed 2")
    graph, made = penstock.Graph.open("g"), penstock.Partition.open("g/partition/k3")
    weighted = graph.csr().weights is not None
    matrix, owner = adjacency("g", weighted=weighted), np.asarray(made.assignment)
    edges = matrix.tocoo()
    cut = owner[edges.row] != owner[edges.col]
    load = np.bincount(owner, np.diff(matrix.indptr), minlength=3)
    parts = [made.part(number) for number in range(3)]
    assert report["cut_edges"] == cut.sum()
    assert report["load_imbalance"] == pytest.approx(load.max() / load.mean())
    assert report["ghosts"] == sum(len(part.ghosts) for part in parts)
    for number, part in enumerate(parts):
        ids = np.concatenate([part.owned, part.ghosts])
        np.testing.assert_array_equal(part.owned, np.flatnonzero(owner == number))
        assert set(part.ghosts) == set(edges.col[cut & (owner[edges.row] == number)])
        values = part.csr.weights if weighted else np.ones(part.csr.edges)
        arrays, shape = (
            (values, ids[part.csr.indices], part.csr.indptr),
            (len(part.owned), len(owner)),
        )
        assert abs(sp.csr_array(arrays, shape) - matrix[part.owned]).max() == 0
        for peer, span in part.receive.items():
            np.testing.assert_array_equal(parts[peer].owned[parts[peer].send[number]], ids[span])
        if not weighted:
            np.testing.assert_array_equal(part.features(), graph.features()[part.owned])
    if method in ("greedy", "random", "hash", "components"):  # METIS' versions differ
        check(f"partition {method}", {"owner": owner})


# Counts of buffer states in docs/order.md, the first filling as one.
COUNTS = {"prefetch 12": 33, "beta 12": 35, "prefetch 6": 8, "legend 8": 16, "cover 16": 80}


@pytest.mark.parametrize("case", COUNTS)
def test_order_trains_every_bucket_once(case):
    method, count = case.split()
    report = run(f"order -k {count} --method {method}")
    assert report["io"] == COUNTS[case]
    trained, buffer = [], set(report["steps"][0]["buffer"])
    for step, same in zip(report["steps"], penstock.order(method, int(count)).steps, strict=True):
        during = [tuple(pair) for pair in step["during"]]
        assert set(step["buffer"]) == buffer
        assert all(set(pair) <= buffer for pair in step["before"] + step["during"])
        assert (set(step["evict"]), set(during)) == (set(same.evict), set(same.during))
        assert not set(step["evict"]) & {one for pair in during for one in pair}
        trained += during + [tuple(pair) for pair in step["before"]]
        buffer = buffer - set(step["evict"]) | set(step["load"])
    assert sorted(trained) == sorted(product(range(int(count)), repeat=2))
