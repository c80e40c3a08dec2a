"""Centralities of many small graphs on one core: Penstock, igraph, NetworKit and NetworkX.

    PENSTOCK_DATA=... python -P benchmarks/bench_centrality.py [--quick] [--cpu]

The graphs are those of OpenSSL's functions (zoo/openssl-cfg of the data), directed and without
weights; each file is the output of one compiler. Every side runs on one core. igraph and NetworKit
get many graphs as one, as Penstock does, in their own form; the conversion is not timed. NetworkX
runs once. All values must equal its to 1e-9, and betweenness NetworKit's. The whole command is
compared with a script that reads the same Parquet table by Arrow, makes igraph's graphs, and writes
Parquet.
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

AT_ONCE = {"igraph": 1024, "networkit": 32, "ours": 1024}  # graphs; as many as is fastest
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


def batches_of(graphs: list[ROWS], size: int) -> list[GraphBatch]:
    return [batch_of(graphs[at : at + size]) for at in range(0, len(graphs), size)]


def batch_of(graphs: list[ROWS]) -> GraphBatch:
    ptr = np.cumsum([0, *map(len, graphs)], dtype=np.int64)
    degrees = [len(row) for rows in graphs for row in rows]
    flat = zip(ptr, graphs, strict=False)
    indices = [int(first) + other for first, rows in flat for row in rows for other in row]
    indptr = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)])
    return GraphBatch(ptr, indptr, np.array(indices, np.int32), directed=True)


def values_of(batch: GraphBatch, metric: str, *, normalized: bool = True) -> np.ndarray:
    """Return a metric of the nodes of graphs, or the distances of their pairs."""
    if metric == "distances":
        return kernels.distances(batch)
    if metric == "closeness":
        return closeness(kernels.shortest_paths(batch), batch.ptr)
    return kernels.betweenness(batch)[0] * scale_of(batch, normalized=normalized)


def ours(batches: list[GraphBatch], metric: str) -> np.ndarray:
    """Return a metric of the nodes of all graphs."""
    return np.concatenate([values_of(batch, metric) for batch in batches])


def scale_of(batch: GraphBatch, *, normalized: bool = True) -> np.ndarray:
    """Return the factor of each node's betweenness."""
    how = {"directed": batch.directed, "normalized": normalized, "endpoints": False}
    return np.repeat(betweenness_scale(batch.ptr, **how), batch.sizes)


def by_networkx(graphs: list[ROWS], metric: str) -> Timed:
    """Return the values of all graphs, and the seconds without the conversion."""
    function = nx.closeness_centrality if metric == "closeness" else nx.betweenness_centrality
    seconds, values = 0.0, list[float]()
    for rows in graphs:
        graph = nx.DiGraph()
        graph.add_nodes_from(range(len(rows)))
        graph.add_edges_from((a, b) for a, row in enumerate(rows) for b in row)
        run = timed(partial(function, graph))
        seconds += run.seconds
        values += run.value.values()
    return Timed(seconds, np.array(values))


def by_igraph(batches: list[GraphBatch], metric: str) -> Callable[[], Any]:
    import igraph

    made = [igraph.Graph(n=b.nodes, edges=ends_of(b).T, directed=True) for b in batches]
    # igraph defines harmonic and plain closeness differently; the searches are the same.
    if metric == "closeness":
        return lambda: [graph.closeness(mode="in") for graph in made]
    return lambda: [graph.betweenness(directed=True) for graph in made]


def by_networkit(batches: list[GraphBatch], metric: str) -> Callable[[], Any]:
    import networkit

    networkit.setNumberOfThreads(1)
    made = [
        networkit.GraphFromCoo(tuple(ends_of(b).astype(np.uint64)), n=b.nodes, directed=True)
        for b in batches
    ]
    # These searches follow the edges, Penstock's reverse them: the same total number and lengths.
    kind = networkit.centrality.ClosenessVariant.GENERALIZED
    if metric == "closeness":
        return lambda: [networkit.centrality.Closeness(g, False, kind).run() for g in made]
    return lambda: [networkit.centrality.Betweenness(graph).run() for graph in made]


def ends_of(batch: GraphBatch) -> np.ndarray:
    """Return sources and targets of all edges."""
    sources = np.repeat(np.arange(batch.nodes), np.diff(batch.indptr))
    return np.stack([sources, batch.indices])


def check(batches: list[GraphBatch], metric: str, values: dict[str, Any]) -> None:
    """Compare with NetworkX's values, and betweenness with NetworKit's."""
    np.testing.assert_allclose(values["ours"], values["networkx"], rtol=1e-9, atol=1e-13)
    if metric == "betweenness" and "networkit" in values:
        scores = np.concatenate([run.scores() for run in values["networkit"]])
        scores *= np.concatenate([scale_of(batch) for batch in batches])
        np.testing.assert_allclose(values["ours"], scores, rtol=1e-9, atol=1e-13)


def zoo(path: Path, graphs: int, seed: int = 1) -> GraphBatch:
    """Make graphs as in table 3 of the SwarmGraph paper, undirected."""
    generate("zoo", path, graphs=graphs, seed=seed, quiet=True, overwrite=True)
    csr = Graph.open(path).csr()
    sizes = pq.read_table(path / "graphs.parquet")["nodes"].to_numpy()
    ptr = np.append(0, np.cumsum(sizes, dtype=np.int64))
    indptr, indices = np.array(csr.indptr, np.int64), np.array(csr.indices, np.int32)
    return GraphBatch(ptr, indptr, indices, directed=False)


def write_table(path: Path, graphs: int, seed: int = 1, first: int = 0) -> int:
    """Write the edges of such graphs, each once; return their number."""
    batch = zoo(path.parent / "zoo", graphs, seed)
    rows, indices = ends_of(batch)
    once = rows < indices
    rows, indices = rows[once], indices[once]
    graph = np.searchsorted(batch.ptr, rows, side="right") - 1
    start = batch.ptr[graph]
    columns = {"graph_id": first + graph, "source": rows - start, "target": indices - start}
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


def whole(edges: Path, out: Path, metrics: str = "harmonic", **how: Any) -> Path:
    """Run the command, by default on one core."""
    how = how or {"cluster": ClusterSpec(cluster="threads", device="cpu", workers=1)}
    centrality(edges, out, metrics=metrics, overwrite=True, quiet=True, **how)
    return out


def nodes_of(file: Path, **how: Any) -> pa.Table:
    """Return the values of nodes, in order."""
    return pq.read_table(file, **how).sort_by([("graph_id", "ascending"), ("node", "ascending")])


def check_nodes(mine: pa.Table, truth: pa.Table, metric: str, rtol: float, atol: float) -> None:
    assert mine["graph_id"].equals(truth["graph_id"])
    np.testing.assert_allclose(mine[metric], truth[metric], rtol, atol)


def check_whole(values: dict[str, Any]) -> None:
    theirs = nodes_of(values["igraph and Arrow"])
    check_nodes(nodes_of(values["ours"] / "nodes"), theirs, "harmonic", 1e-9, 0.0)


def cases(given: argparse.Namespace) -> Iterator[Case]:
    paths = sorted(real("zoo/openssl-cfg").glob("*.txt.gz"))[: given.files]
    graphs = [rows for path in paths for rows in read_file(path)]
    batches = {name: batches_of(graphs, size) for name, size in AT_ONCE.items()}
    for metric, ratios in (("closeness", (2.7, 1.85)), ("betweenness", (2.3, 11.0))):
        sides = {"networkx": Side(partial(by_networkx, graphs, metric), once=True)}
        for name, make, ratio in zip(AT_ONCE, (by_igraph, by_networkit), ratios, strict=False):
            needs = [installed(name)]
            run = list if needs[0]() else make(batches[name], metric)
            sides[name] = Side(run, ratio, needs=needs)
        yield Case(
            f"{metric} of {len(graphs):,} graphs",
            partial(ours, batches["ours"], metric),
            partial(check, batches["ours"], metric),
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
            )
        },
        (rows, "rows"),
    )


if __name__ == "__main__":
    sizes = Option("--files", 12, 1, "of OpenSSL"), Option("--graphs", 1000, 300, "of the command")
    sys.exit(main(__doc__, cases, *sizes, needs=(data,)))
