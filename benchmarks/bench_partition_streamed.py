"""The loss of quality if a graph is streamed and refined, not cut by METIS.

    PENSTOCK_DATA=/data python benchmarks/bench_partition_streamed.py [--scale 18] [--k 2 8]

Both get the same graph and k. A row has the cut arcs of each, their ratio, and the imbalance of
load and of nodes, counted again from the assignment.
"""

import argparse
import os
import platform
import tarfile
import tempfile
from pathlib import Path

import numpy as np
from bench_partition import real_graphs, write

import penstock
from penstock import Graph
from penstock.partition.assign import assign

COLUMNS = ("graph", "k", "METIS cuts", "streamed cuts", "ratio", "METIS load", "streamed load")
COLUMNS += ("METIS nodes", "streamed nodes")


def written_edges(folder):
    """Yield the graphs under PENSTOCK_DATA that come as edges."""
    data = os.environ.get("PENSTOCK_DATA")
    if data is None:
        return
    votes = Path(data) / "walks" / "wiki-Vote.edgelist"
    penstock.etl(str(votes), folder / "votes", quiet=True)
    yield "wiki-Vote", folder / "votes"
    penstock.etl(str(votes), folder / "directed", directed=True, quiet=True)
    yield "wiki-Vote, directed", folder / "directed"
    with tarfile.open(Path(data) / "kg" / "FB15k-237.tar.gz") as archive:
        member = next(m for m in archive.getmembers() if m.name.endswith("train.txt"))
        (folder / "train.txt").write_bytes(archive.extractfile(member).read())
    penstock.etl(str(folder / "train.txt"), folder / "fb", format="triples", quiet=True)
    yield "FB15k-237", folder / "fb"


def made_graphs(folder, scale):
    """Yield R-MAT, blocks, and a grid with its nodes in order and shuffled."""
    path = folder / "rmat"
    penstock.generate("rmat", path, scale=scale, edge_factor=16, seed=1, quiet=True)
    yield f"R-MAT {scale}", path
    for inside in (0.02, 0.04):
        rng = np.random.default_rng(1)
        ids, of = np.arange(20_000), np.arange(20_000) // 1000
        near = of[:, None] * 1000 + rng.integers(0, 1000, (len(ids), int(1000 * inside)))
        far = rng.integers(0, len(ids), (len(ids), 10))
        ends = np.concatenate([near, far], axis=1)
        ends = write(
            folder / f"blocks{inside}", np.repeat(ids, ends.shape[1]), ends.ravel(), 20_000
        )
        yield f"20 blocks, {2 * int(1000 * inside)} inside, 20 across", ends
    ids = np.arange(500 * 500).reshape(500, 500)
    sources = np.concatenate([ids[:, :-1].ravel(), ids[:-1].ravel()])
    targets = np.concatenate([ids[:, 1:].ravel(), ids[1:].ravel()])
    yield "grid 500 x 500", write(folder / "grid", sources, targets, ids.size)
    place = np.random.default_rng(1).permutation(ids.size)
    yield "grid, shuffled", write(folder / "shuffled", place[sources], place[targets], ids.size)


def row(name, path, k):
    graph = Graph.open(path)
    csr, cells = graph.csr(), []
    for options in ({"method": "metis"}, {"method": "streaming"}):
        parts = assign(graph, k, **options).parts
        loads, nodes = np.bincount(parts, graph.degrees, k), np.bincount(parts, minlength=k)
        crossing = int(np.sum(parts[csr.sources()] != parts[csr.indices]))
        cells.append((crossing, loads.max() / loads.mean(), nodes.max() / nodes.mean()))
    (best, load, even), (cut, streamed_load, streamed_even) = cells
    shown = (name, k, f"{best:,}", f"{cut:,}", f"{cut / best:.3f}")
    shown += tuple(f"{x:.3f}" for x in (load, streamed_load, even, streamed_even))
    print("| " + " | ".join(map(str, shown)) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=18, help="of the R-MAT graph")
    parser.add_argument("--k", type=int, nargs="+", default=[2, 8])
    arguments = parser.parse_args()
    print(f"{platform.machine()}\n")
    print("| " + " | ".join(COLUMNS) + " |\n" + "|---" * len(COLUMNS) + "|")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for graphs in (
            real_graphs(folder),
            written_edges(folder),
            made_graphs(folder, arguments.scale),
        ):
            for title, path in graphs:
                for k in arguments.k:
                    row(title, path, k)


if __name__ == "__main__":
    main()
