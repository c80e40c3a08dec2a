"""Balance, cut and time of partitions, compared with pymetis.

    PENSTOCK_DATA=/data python benchmarks/bench_partition.py [--scale 18] [--k 2 4 8 16]

Every graph is checked before its row is printed: the parts' edges are the graph's, send lists equal
receive lists, and the report's figures are counted again from the assignment. Plain pymetis gets
the same weights and tolerance, and its parts are compared at their load.
"""

import argparse
import os
import platform
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pymetis
import scipy.io
import scipy.sparse as sp

import penstock
from penstock import Graph
from penstock.csr import CSR
from penstock.partition.metis import shared_adjacency
from penstock.partition.part import Partition
from penstock.writer import create_graph

COLUMNS = ("graph", "k", "method", "made by", "cut %", "load", "nodes", "replication", "assign s")
COLUMNS += ("METIS s", "build s", "pymetis cut %", "its load", "its s", "cut / pymetis")


def write(path, sources, targets, nodes):
    """Write an undirected simple graph."""
    keep = sources != targets
    pairs = np.concatenate([[sources[keep], targets[keep]], [targets[keep], sources[keep]]], axis=1)
    keys = np.unique(pairs[0].astype(np.int64) * nodes + pairs[1])
    indptr = np.concatenate([[0], np.cumsum(np.bincount(keys // nodes, minlength=nodes))])
    with create_graph(path) as writer:
        writer.edges(CSR(indptr, (keys % nodes).astype(np.int32)))
        writer.nodes()
        writer.manifest = replace(writer.manifest, directed=False)
    return path


def real_graphs(folder):
    """Yield the existing graphs under PENSTOCK_DATA."""
    data = os.environ.get("PENSTOCK_DATA")
    if data is None:
        print("PENSTOCK_DATA is not set: real graphs are left out")
        return
    nodes = Path(data) / "nodes"
    with np.load(nodes / "cora.npz", allow_pickle=True) as cora:
        csr = cora["adj_data"], cora["adj_indices"], cora["adj_indptr"]
        matrices = {"cora": sp.csr_matrix(csr, cora["adj_shape"])}
    matrices["blogcatalog"] = scipy.io.loadmat(nodes / "blogcatalog.mat")["network"]
    matrices["amherst41"] = scipy.io.loadmat(nodes / "Amherst41.mat")["A"]
    for name, matrix in matrices.items():
        edges = matrix.tocoo()
        yield name, write(folder / name, edges.row, edges.col, matrix.shape[0])


def made_graphs(folder, scale):
    """Yield R-MAT, a grid, a star, and ten thousand components."""
    path = folder / f"rmat{scale}"
    penstock.generate("rmat", path, scale=scale, edge_factor=16, seed=1, quiet=True)
    yield f"rmat{scale}", path
    side = 500
    ids = np.arange(side * side).reshape(side, side)
    sources = np.concatenate([ids[:, :-1].ravel(), ids[:-1].ravel()])
    targets = np.concatenate([ids[:, 1:].ravel(), ids[1:].ravel()])
    yield "grid500", write(folder / "grid", sources, targets, side * side)
    leaves = np.arange(1, 100_001)
    yield "star", write(folder / "star", np.zeros_like(leaves), leaves, 100_001)
    paths = np.arange(70_000).reshape(-1, 7)
    ends = paths[:, :-1].ravel(), paths[:, 1:].ravel()
    yield "components", write(folder / "components", *ends, 70_000)


def check(path, report):
    """Raise unless the parts are the graph and the report counts are right."""
    graph, partition = Graph.open(path), Partition.open(report.path)
    partition.validate()
    csr, parts = graph.csr(), np.asarray(partition.assignment)
    crossing = int(np.sum(parts[csr.sources()] != parts[csr.indices]))
    loads = np.bincount(parts, graph.degrees, report.k)
    assert report.cut_edges == crossing
    assert np.isclose(report.load_imbalance, loads.max() / loads.mean())
    ranks = [partition.part(rank) for rank in range(report.k)]
    for part in ranks:
        rows = [csr.indices[csr.indptr[v] : csr.indptr[v + 1]] for v in part.owned[:1000]]
        found = part.global_ids[part.csr.indices[: sum(map(len, rows))]]
        sums = [row.sum(dtype=np.int64) for row in rows if len(row)]
        starts = part.csr.indptr[: len(rows)][[len(row) > 0 for row in rows]]
        assert not rows or np.array_equal(np.add.reduceat(found.astype(np.int64), starts), sums)
        for peer, slots in part.receive.items():
            sent = ranks[peer].owned[ranks[peer].send[part.rank]]
            assert np.array_equal(sent, part.global_ids[slots])
    assert sum(part.csr.edges for part in ranks) == csr.edges


def plain_pymetis(path, k):
    """Return the share of arcs that plain pymetis cuts, its load and its time."""
    graph = Graph.open(path)
    csr = graph.csr()
    with shared_adjacency(graph) as adjacency:
        start = time.perf_counter()
        cut = pymetis.part_graph(
            k,
            pymetis.CSRAdjacency(adjacency.indptr, adjacency.indices),
            vweights=adjacency.weights,
            recursive=False,
            options=pymetis.Options(ufactor=30),
        )
        seconds = time.perf_counter() - start
    loads = np.bincount(cut.vertex_part, csr.degrees(), k)
    return 2 * cut.edge_cuts / csr.edges, loads.max() / loads.mean(), seconds


def row(name, path, k, method):
    report = penstock.partition_graph(path, k=k, method=method, overwrite=True, quiet=True)
    check(path, report)
    if report.made_by.startswith("metis"):
        bound = max(1.05, report.reachable_load)
        assert report.load_imbalance <= bound + 1e-9, report.load_imbalance
    if report.made_by == "greedy":
        assert report.load_imbalance <= max(1.01, report.reachable_load) + 1e-9
    seconds = report.seconds
    cells = [name, k, method, report.made_by, f"{report.cut_share:.2%}"]
    cells += [f"{report.load_imbalance:.3f}", f"{report.node_imbalance:.3f}"]
    cells += [f"{report.replication:.2f}", f"{seconds['assign']:.2f}"]
    cells += [f"{seconds.get('METIS', 0):.2f}", f"{seconds['build']:.2f}"]
    if report.made_by.startswith("metis"):
        share, load, took = plain_pymetis(path, k)
        ratio = report.cut_share / share
        cells += [f"{share:.2%}", f"{load:.3f}", f"{took:.2f}", f"{ratio:.3f}"]
        assert ratio <= 1.03 or load > report.load_imbalance, (name, k, ratio)
    print(
        "| "
        + " | ".join(str(cell) for cell in [*cells, *[""] * (len(COLUMNS) - len(cells))])
        + " |"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=18, help="of the R-MAT graph")
    parser.add_argument("--k", type=int, nargs="+", default=[4, 16])
    arguments = parser.parse_args()
    print(
        f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, pymetis {pymetis.version}\n"
    )
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    with tempfile.TemporaryDirectory() as folder:
        # Compile before the timing.
        warm = write(Path(folder) / "warm", np.arange(99), np.arange(1, 100), 100)
        for method in ("metis", "streaming", "greedy"):
            penstock.partition_graph(warm, k=2, method=method, overwrite=True, quiet=True)
        for graphs in (real_graphs(Path(folder)), made_graphs(Path(folder), arguments.scale)):
            for name, path in graphs:
                methods = ["auto", "greedy", "streaming"]
                methods = ["auto"] if name in ("star", "components") else methods
                for k in arguments.k:
                    for method in methods:
                        row(name, path, k, method)


if __name__ == "__main__":
    main()
