"""Centralities of many small graphs on one core: Penstock, igraph, NetworKit and NetworkX.

    PENSTOCK_DATA=... python -P benchmarks/bench_centrality.py [--quick] [--cpu]

The graphs are those of OpenSSL's functions (zoo/openssl-cfg of the data), directed and without
weights; each file is the output of one compiler. Peers are called once per graph, as their users
do, on graphs in their own form; the conversion is not timed. NetworkX computes every STEP-th graph,
and its time is scaled by edges times nodes. All values of these graphs must equal NetworkX's to
1e-9, and betweenness NetworKit's. The whole command is compared with a script that reads the same
Parquet table by Arrow, makes igraph's graphs, and writes Parquet.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, data, installed, main, real, timed

from penstock import ClusterSpec, Graph, centrality, generate
from penstock.kernels.centrality_rules import GraphBatch, betweenness_scale, closeness
from penstock.kernels.cpu import centrality as kernels

STEP = 60
ROWS = list[list[int]]  # the distinct neighbours of each node of a graph


def read_file(path: Path) -> list[ROWS]:
    """Return the graphs of a file."""
    with gzip.open(path, "rt") as file:
        graphs = []
        for _ in range(int(file.readline())):
            rows = []
            for _ in range(int(file.readline().split()[0])):
                numbers = file.readline().split()
                rows.append(sorted({int(each) for each in numbers[8 : 8 + int(numbers[7])]}))
            graphs.append(rows)
        return graphs


def batch_of(graphs: list[ROWS]) -> GraphBatch:
    ptr = np.cumsum([0, *map(len, graphs)], dtype=np.int64)
    degrees = [len(row) for rows in graphs for row in rows]
    flat = zip(ptr, graphs, strict=False)
    indices = [int(first) + other for first, rows in flat for row in rows for other in row]
    indptr = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)])
    return GraphBatch(ptr, indptr, np.array(indices, np.int32), directed=True)


def ours(batches: list[GraphBatch], metric: str) -> np.ndarray:
    """Return a metric of the nodes of all graphs."""
    found = []
    for batch in batches:
        if metric == "closeness":
            found.append(closeness(kernels.shortest_paths(batch), batch.ptr))
            continue
        scale = betweenness_scale(batch.ptr, directed=True, normalized=True, endpoints=False)
        found.append(kernels.betweenness(batch)[0] * np.repeat(scale, batch.sizes))
    return np.concatenate(found)


def edges_of(rows: ROWS) -> list[tuple[int, int]]:
    return [(a, b) for a, row in enumerate(rows) for b in row]


def cost_of(rows: ROWS) -> int:
    return (len(rows) + 1) * (sum(map(len, rows)) + len(rows))


def by_networkx(graphs: list[ROWS], metric: str) -> Timed:
    """Return the values of every STEP-th graph, and the estimated seconds of all."""
    function = nx.closeness_centrality if metric == "closeness" else nx.betweenness_centrality
    some = [nx.DiGraph() for _ in graphs[::STEP]]
    for graph, rows in zip(some, graphs[::STEP], strict=True):
        graph.add_nodes_from(range(len(rows)))
        graph.add_edges_from(edges_of(rows))
    run = timed(lambda: [list(function(graph).values()) for graph in some])
    share = sum(map(cost_of, graphs[::STEP])) / sum(map(cost_of, graphs))
    return Timed(run.seconds / share, run.value)


def igraph_calls(graphs: list[ROWS], metric: str) -> list[Callable[[], Any]]:
    import igraph

    made = [igraph.Graph(n=len(rows), edges=edges_of(rows), directed=True) for rows in graphs]
    # igraph defines harmonic and plain closeness differently; the searches are the same.
    if metric == "closeness":
        return [partial(graph.closeness, mode="in") for graph in made]
    return [partial(graph.betweenness, directed=True) for graph in made]


def networkit_calls(graphs: list[ROWS], metric: str) -> list[Callable[[], Any]]:
    import networkit

    networkit.setNumberOfThreads(1)
    made = [networkit.Graph(len(rows), directed=True) for rows in graphs]
    for graph, rows in zip(made, graphs, strict=True):
        for ends in edges_of(rows):
            graph.addEdge(*ends)
    some = [graph for graph in made if graph.numberOfNodes() > 2]
    if metric == "betweenness":
        return [networkit.centrality.Betweenness(graph, True).run for graph in some]
    # These searches follow the edges, Penstock's reverse them: the same total number and lengths.
    kind = networkit.centrality.ClosenessVariant.GENERALIZED
    return [networkit.centrality.Closeness(graph, False, kind).run for graph in some]


def check(ptr: np.ndarray, graphs: list[ROWS], metric: str, values: dict[str, Any]) -> None:
    """Compare every STEP-th graph with NetworkX's, and betweenness with NetworKit's."""
    mine = np.split(values["ours"], ptr[1:-1])
    for found, wanted in zip(mine[::STEP], values["networkx"], strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-13)
    if metric == "betweenness" and "networkit" in values:
        large = [found for found, rows in zip(mine, graphs, strict=True) if len(rows) > 2]
        for found, run in zip(large, values["networkit"], strict=True):
            np.testing.assert_allclose(found, run.scores(), rtol=1e-9, atol=1e-13)


def write_table(path: Path, graphs: int) -> int:
    """Write the edges of graphs as in table 3 of the SwarmGraph paper; return their number."""
    generate("zoo", path.parent / "zoo", graphs=graphs, seed=1, quiet=True)
    csr = Graph.open(path.parent / "zoo").csr()
    sizes = pq.read_table(path.parent / "zoo/graphs.parquet")["nodes"].to_numpy()
    first = np.cumsum(sizes) - sizes
    rows, indices = np.asarray(csr.sources()), np.asarray(csr.indices).astype(np.int64)
    once = rows < indices
    rows, indices = rows[once], indices[once]
    graph = np.searchsorted(first, rows, side="right") - 1
    columns = {"graph_id": graph, "source": rows - first[graph], "target": indices - first[graph]}
    pq.write_table(pa.table(columns), path, row_group_size=500_000)
    return len(rows)


def whole_by_igraph(edges: Path, out: Path) -> Path:
    """Read, make graphs, compute and write, as a script with igraph does."""
    import igraph

    columns = pq.read_table(edges).to_pydict()
    ids, ends = np.array(columns["graph_id"]), list(zip(*list(columns.values())[1:], strict=True))
    starts = np.flatnonzero(np.diff(ids, prepend=-1))
    graph, node, value = [], [], []
    for first, last in zip(starts, [*starts[1:], len(ids)], strict=True):
        made = igraph.Graph(edges=ends[first:last])
        names = [each.index for each in made.vs if each.degree()]
        graph += [ids[first]] * len(names)
        node += names
        value += made.harmonic_centrality(names, normalized=False)
    pq.write_table(pa.table({"graph_id": graph, "node": node, "harmonic": value}), out)
    return out


def whole(edges: Path, out: Path) -> Path:
    cluster = ClusterSpec(cluster="threads", workers=1)
    centrality(edges, out, metrics="harmonic", cluster=cluster, overwrite=True, quiet=True)
    return out


def check_whole(values: dict[str, Any]) -> None:
    mine, theirs = (
        pq.read_table(values["ours"] / "nodes"),
        pq.read_table(values["igraph and Arrow"]),
    )
    mine, theirs = (
        each.sort_by([("graph_id", "ascending"), (each.column_names[1], "ascending")])
        for each in (mine, theirs)
    )
    assert mine["graph_id"].equals(theirs["graph_id"])
    np.testing.assert_allclose(mine["harmonic"], theirs["harmonic"], rtol=1e-9)


def cases(given: argparse.Namespace) -> Iterator[Case]:
    paths = sorted(real("zoo/openssl-cfg").glob("*.txt.gz"))[: given.files]
    graphs = [rows for path in paths for rows in read_file(path)]
    batches = [batch_of(graphs[at : at + 1024]) for at in range(0, len(graphs), 1024)]
    ptr = np.cumsum([0, *map(len, graphs)], dtype=np.int64)
    for metric, igraph, networkit in (("closeness", 2.8, 2.1), ("betweenness", 2.6, 10.3)):
        calls = {"igraph": igraph_calls, "networkit": networkit_calls}
        sides = {"networkx": Side(partial(by_networkx, graphs, metric), once=True)}
        for name, ratio in (("igraph", igraph), ("networkit", networkit)):
            if installed(name)() is None:
                some = calls[name](graphs, metric)
                run = lambda some=some: [call() for call in some]  # noqa: E731
            else:
                run = list
            sides[name] = Side(run, ratio, needs=[installed(name)])
        yield Case(
            f"{metric} of {len(graphs):,} graphs",
            partial(ours, batches, metric),
            partial(check, ptr, graphs, metric),
            sides,
            (len(graphs), "graphs"),
        )
    edges = given.scratch / "edges.parquet"
    rows = write_table(edges, given.graphs)
    yield Case(
        f"the command, harmonic centrality of {given.graphs:,} graphs",
        partial(whole, edges, given.scratch / "out"),
        check_whole,
        {
            "igraph and Arrow": Side(
                partial(whole_by_igraph, edges, given.scratch / "theirs.parquet"),
                10,
                needs=[installed("igraph")],
                once=True,
            )
        },
        (rows, "rows"),
    )


if __name__ == "__main__":
    sizes = Option("--files", 12, 1, "of OpenSSL"), Option("--graphs", 1000, 300, "of the command")
    sys.exit(main(__doc__, cases, *sizes, needs=(data,)))
