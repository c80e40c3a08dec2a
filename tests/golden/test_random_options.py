"""Graphs of random edges with random options are those that pandas and NetworkX make."""

import random
from collections import Counter
from pathlib import Path

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import penstock

COUNT, TOGETHER = 80, 20


def drawn(seed):
    """Draw edges, a table of nodes or none, and options."""
    draw = random.Random(seed)
    count, ids = draw.randrange(1, 60), draw.randrange(2, 15)
    name = draw.choice([int, "n{}".format])
    ends = {end: [name(draw.randrange(ids)) for _ in range(count)] for end in ("src", "dst")}
    rows = pd.DataFrame(ends)
    options = {
        "directed": draw.random() < 0.5,
        "duplicates": draw.choice(["sum", "max", "min", "first", "keep"]),
        "relabel": draw.choice(["sorted", "sorted", "degree", "random"]),
    }
    if draw.random() < 0.6:
        rows["weight"] = [float(draw.randrange(1, 9)) for _ in range(count)]
    if draw.random() < 0.3:
        rows["relation"] = [draw.choice("abc") for _ in range(count)]
    if draw.random() < 0.4:
        rows["when"] = [draw.randrange(20) for _ in range(count)]
        options["time"] = "when"
        if draw.random() < 0.5:
            options["since"], options["until"] = draw.randrange(8), draw.randrange(12, 21)
        if options["duplicates"] != "keep" and draw.random() < 0.3:
            options["merge_times"] = True
    if not options["directed"]:
        options["both_directions"] = draw.choice(["add", "once"])
    if draw.random() < 0.5:
        options["self_loops"] = draw.choice(["keep", "drop"])
    nodes = None
    if draw.random() < 0.4:
        nodes = pd.DataFrame({"id": [name(i) for i in range(0, ids + 3, draw.choice([1, 2]))]})
        options["unknown_nodes"] = draw.choice(["add", "drop"])
    more = {"min_degree": draw.randrange(1, 4), "largest_component": True, "drop_isolated": True}
    options |= {option: value for option, value in more.items() if draw.random() < 0.25}
    return rows, nodes, options


def expected(rows, nodes, options):
    """Return ids of nodes in order, and edges as (source, target, weight, relation, time)."""
    directed, merge = options["directed"], options["duplicates"]
    if "since" in options:
        rows = rows[(rows.when >= options["since"]) & (rows.when < options["until"])]
    known = {*rows.src, *rows.dst} if nodes is None else {*rows.src, *rows.dst, *nodes.id}
    loops = options.get("self_loops") or ("keep" if "relation" in rows else "drop")
    if loops == "drop":
        rows = rows[rows.src != rows.dst]
    rows = rows.assign(position=range(len(rows)))
    if not directed:
        pairs = [tuple(sorted(pair)) for pair in zip(rows.src, rows.dst, strict=True)]
        rows = rows.assign(forward=(rows.src <= rows.dst).to_list())
        rows[["src", "dst"]] = pd.DataFrame(pairs, columns=["src", "dst"], index=rows.index)
    keys = ["src", "dst", *(["relation"] if "relation" in rows else [])]
    if "when" in rows and not options.get("merge_times"):
        keys.append("when")
    if not directed and options["both_directions"] == "once" and len(rows):
        first = rows.groupby(keys).forward.transform("first")
        rows = rows[rows.forward == first]
    if merge != "keep" and len(rows):
        how = {"weight": merge, "when": "first" if merge == "first" else "max"}
        columns = {name: (name, how[name]) for name in how if name in rows and name not in keys}
        rows = rows.groupby(keys, as_index=False).agg(position=("position", "first"), **columns)
    graph = nx.MultiDiGraph() if directed else nx.MultiGraph()
    graph.add_nodes_from(known)
    for row in rows.to_dict("records"):
        about = tuple(row.get(name) for name in ("weight", "relation", "when"))
        graph.add_edge(row["src"], row["dst"], about=about)
    if options.get("unknown_nodes") == "drop":
        graph.remove_nodes_from(known - {*nodes.id})
    if least := options.get("min_degree"):
        ends = Counter(end for edge in graph.edges() for end in {*edge})
        graph.remove_nodes_from([one for one in graph if ends[one] < least])
    if options.get("largest_component") and len(graph):
        parts = (
            nx.weakly_connected_components(graph) if directed else nx.connected_components(graph)
        )
        keep = max(parts, key=lambda part: (len(part), -sorted(graph).index(min(part))))
        graph.remove_nodes_from(set(graph) - keep)
    if options.get("drop_isolated"):
        graph.remove_nodes_from(list(nx.isolates(graph)))
    edges = Counter((u, v, *about) for u, v, about in graph.edges(data="about"))
    if not directed:
        edges += Counter({(v, u, *a): n for (u, v, *a), n in edges.items() if u != v})
    return sorted(graph), edges


def found(path):
    graph = penstock.Graph.open(path)
    csr, ids = graph.csr(), graph.user_ids().to_pylist()
    of = csr.sources().astype(np.int64), csr.indices.astype(np.int64)
    relations = () if csr.relations is None else (csr.relations,)
    assert (np.lexsort((*relations, *of[::-1])) == np.arange(csr.edges)).all()
    if not graph.manifest.directed:
        forth, back = (one * graph.num_nodes + other for one, other in (of, of[::-1]))
        assert (np.sort(forth) == np.sort(back)).all()
    names = graph.manifest.relations or ()
    sources = np.repeat(ids, np.diff(csr.indptr)).tolist()
    columns = [
        [None] * len(sources) if csr.weights is None else csr.weights.tolist(),
        [None] * len(sources) if csr.relations is None else [names[i] for i in csr.relations],
        [None] * len(sources) if csr.times is None else csr.times.tolist(),
    ]
    targets = [ids[i] for i in csr.indices]
    return sorted(ids), Counter(zip(sources, targets, *columns, strict=True))


@pytest.mark.parametrize("first", range(0, COUNT, TOGETHER))
def test_a_graph_is_what_pandas_and_networkx_make(first, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for seed in range(first, first + TOGETHER):
        rows, nodes, options = drawn(seed)
        wanted = expected(rows, nodes, options)
        rows.to_parquet("e.parquet", row_group_size=1 + seed % 17)
        given = dict(options)
        if nodes is not None:
            nodes.to_parquet("n.parquet")
            given["nodes"] = "n.parquet"
        if not wanted[0]:
            continue  # nothing is left, which is refused
        report = penstock.etl("e.parquet", "g", cluster="threads", overwrite=True, **given)
        assert found(Path("g")) == wanted, (seed, options, rows)
        assert (report.nodes, report.edges) == (len(wanted[0]), wanted[1].total())
