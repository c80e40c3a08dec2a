"""Centralities of control-flow graphs on cores: our kernels beside igraph and NetworkX.

    PENSTOCK_DATA=... python -P benchmarks/bench_centrality.py [--files 12] [--threads 2] [--cpu]

The graphs are those of OpenSSL's functions (zoo/openssl-cfg of the data), directed and without
weights, each file a compiler's output. Peers are called a graph at a time, as their users do, on
graphs that they have already; their conversion is not timed. NetworkX takes every STEP-th graph of
each file, and its time is scaled by the number of edges times nodes that it saw. Nothing is timed
before all our values of these graphs equal NetworkX's to 1e-9.
"""

import argparse
import gzip
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np

from penstock.kernels.centrality_rules import GraphBatch, betweenness_scale, closeness
from penstock.kernels.cpu import centrality as kernels
from penstock.partition.threads import spread

STEP = 20
REPEATS = 5
PIECES = 64  # of all graphs, that threads take


def read_file(path: Path) -> list[list[list[int]]]:
    """Return the rows of each graph of a file: the distinct neighbours of every node."""
    with gzip.open(path, "rt") as file:
        graphs = []
        for _ in range(int(file.readline())):
            size = int(file.readline().split()[0])
            rows = []
            for _ in range(size):
                numbers = file.readline().split()
                count = int(numbers[7])
                rows.append(sorted({int(number) for number in numbers[8 : 8 + count]}))
            graphs.append(rows)
        return graphs


def batch_of(graphs: list[list[list[int]]]) -> GraphBatch:
    ptr = np.cumsum([0, *map(len, graphs)], dtype=np.int64)
    degrees = [len(row) for rows in graphs for row in rows]
    indices = [
        int(first) + other
        for first, rows in zip(ptr, graphs, strict=False)
        for row in rows
        for other in row
    ]
    indptr = np.concatenate([[0], np.cumsum(degrees, dtype=np.int64)])
    return GraphBatch(ptr, indptr, np.array(indices, np.int32), directed=True)


def ours(pieces: list[GraphBatch], metric: str, threads: int) -> list[np.ndarray]:
    """Return a metric of the nodes of all pieces."""
    found: list[np.ndarray] = [np.empty(0)] * len(pieces)

    def compute(number: int) -> None:
        batch = pieces[number]
        if metric == "closeness":
            found[number] = closeness(kernels.shortest_paths(batch), batch.ptr)
        else:
            options = {"directed": True, "normalized": True, "endpoints": False}
            nodes, _ = kernels.betweenness(batch)
            found[number] = nodes * np.repeat(betweenness_scale(batch.ptr, **options), batch.sizes)

    spread(compute, range(len(pieces)), threads)
    return found


def cut(graphs: list[list[list[int]]]) -> list[GraphBatch]:
    """Cut the graphs, in their order, into pieces of about equal cost."""
    cost = [(len(rows) + 1) * (sum(map(len, rows)) + len(rows)) for rows in graphs]
    before = np.cumsum(cost) - cost
    piece = (before * PIECES // (sum(cost) + 1)).astype(int)
    groups = [[] for _ in range(PIECES)]
    for number, rows in zip(piece, graphs, strict=True):
        groups[number].append(rows)
    return [batch_of(group) for group in groups]


def networkx_of(rows: list[list[int]]) -> nx.DiGraph:
    graph = nx.DiGraph()
    graph.add_nodes_from(range(len(rows)))
    graph.add_edges_from((a, b) for a, row in enumerate(rows) for b in row)
    return graph


def time_networkx(
    graphs: list,
    metric: str,
    values: np.ndarray,
    ptr: np.ndarray,
    clock: Callable[[], float],
) -> float:
    """Check every STEP-th graph against NetworkX; return the seconds that all would take it."""
    function = nx.closeness_centrality if metric == "closeness" else nx.betweenness_centrality
    spent, seen, total = 0.0, 0, 0
    for number, rows in enumerate(graphs):
        cost = (len(rows) + 1) * (sum(map(len, rows)) + len(rows))
        total += cost
        if number % STEP:
            continue
        graph = networkx_of(rows)
        begun = clock()
        wanted = function(graph)
        spent, seen = spent + clock() - begun, seen + cost
        mine = values[ptr[number] : ptr[number + 1]]
        np.testing.assert_allclose(mine, list(wanted.values()), rtol=1e-9, atol=1e-13)
    return spent * total / seen


def time_igraph(graphs: list, metric: str, clock: Callable[[], float]) -> float | None:
    try:
        import igraph
    except ImportError:
        return None
    made = [
        igraph.Graph(
            n=len(rows), edges=[(a, b) for a, row in enumerate(rows) for b in row], directed=True
        )
        for rows in graphs
    ]
    begun = clock()
    for graph in made:
        # igraph's harmonic and plain closeness count otherwise; the searches are the same.
        graph.closeness(mode="in") if metric == "closeness" else graph.betweenness(directed=True)
    return clock() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="CPU time of all threads, not elapsed")
    given = parser.parse_args()
    clock = time.process_time if given.cpu else time.perf_counter
    folder = os.environ.get("PENSTOCK_DATA")
    if not folder:
        sys.exit("needs real data: set PENSTOCK_DATA to its folder")
    paths = sorted((Path(folder) / "zoo/openssl-cfg").glob("*.txt.gz"))[: given.files]
    graphs = [rows for path in paths for rows in read_file(path)]
    pieces = cut(graphs)
    ptr = np.cumsum([0, *map(len, graphs)], dtype=np.int64)
    report = {"files": len(paths), "graphs": len(graphs), "nodes": int(ptr[-1])}
    for metric in ("closeness", "betweenness"):
        values = np.concatenate(ours(pieces, metric, given.threads))
        peers = {
            "networkx": time_networkx(graphs, metric, values, ptr, clock),
            "igraph": time_igraph(graphs, metric, clock),
        }
        times = []
        for _ in range(REPEATS):
            begun = clock()
            ours(pieces, metric, given.threads)
            times.append(clock() - begun)
        mine = statistics.median(times)
        report[metric] = {"seconds": mine, **peers}
        if not given.json:
            print(f"{metric}: {mine:.3f} s, {len(graphs) / mine:,.0f} graphs/s")
            for name, seconds in peers.items():
                said = "not installed" if seconds is None else f"{seconds / mine:.1f} times as long"
                print(f"  {name:10} {said}")
    if given.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
