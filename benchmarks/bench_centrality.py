"""Centralities of control-flow graphs on CPUs: Penstock, igraph, NetworKit and NetworkX.

    PENSTOCK_DATA=... python -P benchmarks/bench_centrality.py [--files 12] [--threads 2] [--cpu]
    python -P benchmarks/bench_centrality.py --whole 10000 [--metrics closeness] [--read-delay 0.1]

The graphs are those of OpenSSL's functions (zoo/openssl-cfg of the data), directed and without
weights; each file is the output of one compiler. Peers are called once per graph, as their users
do, on graphs in their own form; the conversion is not timed. igraph and NetworKit, if installed,
run on one core, and in one process per thread of Penstock, with graphs divided among these by cost;
NetworKit also runs with its threads, which share the sources of a graph. NetworkX computes every
STEP-th graph of each file, and its time is scaled by edges times nodes. Before any timing, all
values of these graphs must equal NetworkX's to 1e-9, and betweenness NetworKit's.

--whole times the command, from Parquet to Parquet, on graphs of table 3 of the SwarmGraph paper, in
turns without and with pieces that are read and written while another is computed. --read-delay adds
seconds to every read, to simulate a remote disk.
"""

import argparse
import gzip
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock import ClusterSpec, Graph, centrality, generate
from penstock.kernels.centrality_rules import GraphBatch, betweenness_scale, closeness
from penstock.kernels.cpu import centrality as kernels
from penstock.pipelines.centrality import pieces, tasks
from penstock.pipelines.etl.zoos.runs import GraphRange
from penstock.threads import spread

STEP = 20
REPEATS = 5
PIECES = 64  # pieces of all graphs, for threads


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


def cost_of(rows: list[list[int]]) -> int:
    return (len(rows) + 1) * (sum(map(len, rows)) + len(rows))


def cut(graphs: list[list[list[int]]]) -> list[GraphBatch]:
    """Cut the graphs, in their order, into pieces of about equal cost."""
    cost = list(map(cost_of, graphs))
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
    """Check every STEP-th graph against NetworkX; return its estimated seconds for all."""
    function = nx.closeness_centrality if metric == "closeness" else nx.betweenness_centrality
    spent, seen, total = 0.0, 0, 0
    for number, rows in enumerate(graphs):
        cost = cost_of(rows)
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


def igraph_calls(graphs: list, metric: str) -> list[Callable[[], object]]:
    import igraph

    made = [
        igraph.Graph(
            n=len(rows), edges=[(a, b) for a, row in enumerate(rows) for b in row], directed=True
        )
        for rows in graphs
    ]
    # igraph defines harmonic and plain closeness differently; the searches are the same.
    if metric == "closeness":
        return [partial(graph.closeness, mode="in") for graph in made]
    return [partial(graph.betweenness, directed=True) for graph in made]


def networkit_calls(graphs: list, metric: str, threads: int = 1) -> list[Callable[[], object]]:
    import networkit

    networkit.setNumberOfThreads(threads)
    made = []
    for rows in graphs:
        graph = networkit.Graph(len(rows), directed=True)
        for a, row in enumerate(rows):
            for b in row:
                graph.addEdge(a, b)
        made.append(graph)
    if metric == "betweenness":
        return [networkit.centrality.Betweenness(graph, True).run for graph in made]
    # These searches follow the edges, Penstock's reverse them: the same total number and lengths.
    kind = networkit.centrality.ClosenessVariant.GENERALIZED
    some = (graph for graph in made if graph.numberOfNodes())
    return [networkit.centrality.Closeness(graph, False, kind).run for graph in some]


PEERS = {"igraph": igraph_calls, "networkit": networkit_calls}


def spent(calls: list[Callable[[], object]], clock: Callable[[], float]) -> float:
    begun = clock()
    for call in calls:
        call()
    return clock() - begun


def _process(peer: str, graphs: list, metric: str, ready: Any, cpu: bool, times: Any) -> None:
    calls = PEERS[peer](graphs, metric)
    ready.wait()
    times.put(spent(calls, time.process_time if cpu else time.perf_counter))


def in_processes(peer: str, graphs: list, metric: str, count: int, *, cpu: bool) -> float:
    """Return the seconds of the last of several processes, or with cpu of all together.

    Each makes its graphs before any process begins; graphs are assigned by falling cost.
    """
    context = multiprocessing.get_context("spawn")
    ready, times = context.Barrier(count), context.Queue()
    ordered = sorted(graphs, key=cost_of, reverse=True)
    members = [
        context.Process(target=_process, args=(peer, ordered[n::count], metric, ready, cpu, times))
        for n in range(count)
    ]
    for member in members:
        member.start()
    seconds = [times.get(timeout=3600) for _ in members]
    for member in members:
        member.join()
    return sum(seconds) if cpu else max(seconds)


def time_peers(graphs: list, metric: str, cores: int, *, cpu: bool) -> dict[str, float | None]:
    """Return the seconds of peers: on one core, in one process per core, NetworKit by threads."""
    clock = time.process_time if cpu else time.perf_counter
    found: dict[str, float | None] = {}
    for peer, calls in PEERS.items():
        there = find_spec(peer) is not None
        found[peer] = spent(calls(graphs, metric), clock) if there else None
        if cores > 1 and there:
            name = f"{peer}, {cores} processes"
            found[name] = in_processes(peer, graphs, metric, cores, cpu=cpu)
        if cores > 1 and there and peer == "networkit":
            threaded = networkit_calls(graphs, metric, cores)
            found[f"{peer}, {cores} threads"] = spent(threaded, clock)
    return found


def check_networkit(graphs: list, values: np.ndarray, ptr: np.ndarray) -> None:
    """Compare Penstock's betweenness of every STEP-th graph with NetworKit's."""
    if find_spec("networkit") is None:
        return
    for number in range(0, len(graphs), STEP):
        if len(graphs[number]) > 2:
            (run,) = networkit_calls(graphs[number : number + 1], "betweenness")
            theirs = run().scores()
            mine = values[ptr[number] : ptr[number + 1]]
            np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-13)


def draw_table(path: Path, graphs: int) -> None:
    """Write the edges of graphs as in table 3 of the SwarmGraph paper."""
    generate("zoo", path.parent / "zoo", graphs=graphs, seed=1)
    csr = Graph.open(path.parent / "zoo").csr()
    sizes = pq.read_table(path.parent / "zoo/graphs.parquet")["nodes"].to_numpy()
    first = np.cumsum(sizes) - sizes
    rows = np.repeat(np.arange(csr.rows), np.diff(csr.indptr))
    once = rows < csr.indices
    ends = [rows[once], np.asarray(csr.indices)[once].astype(np.int64)]
    graph = np.searchsorted(first, ends[0], side="right") - 1
    columns = {
        "graph_id": graph,
        "source": ends[0] - first[graph],
        "target": ends[1] - first[graph],
    }
    pq.write_table(pa.table(columns), path, row_group_size=500_000)


def whole_command(given: argparse.Namespace) -> dict[str, Any]:
    """Time Parquet to Parquet in this process, with pieces read and written ahead and without."""
    read, seconds = GraphRange.read, {}

    def slow(*arguments: Any) -> Any:
        time.sleep(given.read_delay)  # simulates a remote disk
        return read(*arguments)

    GraphRange.read = slow
    if given.items is not None:
        pieces._MOST_ITEMS = pieces._MOST_ITEMS_OF_LARGE = 1 << given.items
    with tempfile.TemporaryDirectory() as folder:
        edges = Path(folder) / "edges.parquet"
        draw_table(edges, given.whole)
        digests = set()
        depths = (0, tasks.AHEAD)
        for depth in depths * (1 + REPEATS):  # the first round warms up
            tasks.AHEAD, out = depth, Path(folder) / "out"
            cluster = ClusterSpec(cluster="threads", workers=given.threads)
            report = centrality(edges, out, metrics=given.metrics, cluster=cluster, overwrite=True)
            seconds.setdefault(depth, []).append(report.seconds_by_step["compute"])
            digests.add(str(json.loads((out / "centrality.json").read_text())["files"]))
    if len(digests) > 1:
        sys.exit("files differ with the number of pieces ahead")
    return {
        "graphs": given.whole,
        "pieces": report.pieces,
        "ahead": {str(depth): statistics.median(seconds[depth][1:]) for depth in depths},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    parser.add_argument(
        "--cpu", action="store_true", help="CPU time of all threads, not elapsed time"
    )
    parser.add_argument(
        "--whole", type=int, metavar="GRAPHS", help="time Parquet to Parquet instead"
    )
    parser.add_argument("--metrics", default="closeness", help="of --whole")
    parser.add_argument(
        "--read-delay", type=float, default=0.0, help="with --whole: seconds per row group"
    )
    parser.add_argument("--items", type=int, help="with --whole: pieces of 2 to this power")
    given = parser.parse_args()
    if given.whole:
        report = whole_command(given)
        if given.json:
            print(json.dumps(report))
            return
        print(f"{given.metrics} of {report['graphs']:,} graphs in {report['pieces']} pieces")
        for depth, seconds in report["ahead"].items():
            print(f"  {depth} pieces read or written ahead: {seconds:.2f} s")
        return
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
        peers = {"networkx": time_networkx(graphs, metric, values, ptr, clock)}
        if metric == "betweenness":
            check_networkit(graphs, values, ptr)
        peers |= time_peers(graphs, metric, given.threads, cpu=given.cpu)
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
                print(f"  {name:24} {said}")
    if given.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
