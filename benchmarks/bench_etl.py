"""ETL against Polars scripts, on the same cores, from Parquet to CSR on disk.

    python -P benchmarks/bench_etl.py [--quick]

The peer is a script of Polars and NumPy that holds all edges in memory: Polars reads, finds and
sorts ids on its streaming engine, and sorts edges as one 64-bit key; a table, an Enum or a join
gives ids their numbers. (Joins and sorts over two columns take five times longer.) Both read the
same Parquet files, drop self loops, store every edge in both directions, merge duplicates, number
the nodes 0, 1, ... in the order of their ids, and write indptr and indices as .npy and the ids as
Parquet. Penstock runs like the command, start of the workers included, and also checksums every
file. The two graphs must be equal. The floor is the time of only reading the input and writing and
hashing the result. Out of core, no process of two workers may use more than their 1.5 GB.

A zoo is a table (graph_id, src, dst) of many small graphs, of 20 to 60 nodes with separate ids and
about three edges per node, once graph after graph and once with its rows shuffled.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, command, installed, main, penstock, slow

from penstock import Graph
from penstock.files import save_npy

PEER = """
import sys
import numpy as np, polars as pl
source, out = sys.argv[1:]
edges = pl.scan_parquet(source + "/*.parquet")
if zoo := "graph_id" in edges.collect_schema():
    edges = edges.select(pl.col("src", "dst") + pl.col("graph_id") * 2**32)
else:
    edges = edges.select("src", "dst").filter(pl.col("src") != pl.col("dst"))
edges = edges.collect(engine="streaming")
ends = [edges["src"], edges["dst"]]
most = max(end.max() for end in ends)
if small := ends[0].dtype.is_integer() and most < 8 * len(edges):
    there = np.zeros(most + 1, bool)
    for end in ends:
        there[end.to_numpy()] = True
    ids = pl.Series(np.flatnonzero(there))
else:
    ids = pl.concat([end.unique() for end in ends]).unique().sort()
edges = edges.filter(pl.col("src") != pl.col("dst"))
if not ids.dtype.is_integer():
    u, v = (edges[end].cast(pl.Enum(ids)).to_physical().to_numpy() for end in ("src", "dst"))
elif small:
    names = np.zeros(most + 1, np.uint32)
    names[ids.to_numpy()] = np.arange(len(ids), dtype=np.uint32)
    u, v = (names[edges[end].to_numpy()] for end in ("src", "dst"))
else:
    names = pl.DataFrame({"id": ids}).with_row_index("new")
    u, v = (
        edges.select(id=end).join(names, on="id", how="left", maintain_order="left")["new"]
        for end in ("src", "dst")
    )
u, v = (np.asarray(end).astype(np.int64) for end in (u, v))
keys = pl.concat([pl.Series(u << 32 | v), pl.Series(v << 32 | u)]).sort().to_numpy()
keys = keys[np.append(True, keys[1:] != keys[:-1])]
np.save(out + "/indptr.npy", np.append(0, np.cumsum(np.bincount(keys >> 32, minlength=len(ids)))))
np.save(out + "/indices.npy", (keys & 0xFFFFFFFF).astype(np.int32))
ids = pl.DataFrame({"graph_id": ids // 2**32, "id": ids % 2**32} if zoo else {"id": ids})
ids.write_parquet(out + "/nodes.parquet")
"""
CHUNK = 1 << 22  # rows
LIMIT = 1.5e9  # bytes of a worker, out of core


def etl(source: Path, out: Path, *options: object) -> Timed:
    """Run the command; return its graph and the peak of its largest process."""
    run = command(penstock("etl", source, out, "-q", "--overwrite", "-n", 2, *options))
    return Timed(run.seconds, (out, max(run.value.peaks.values())))


def polars(source: Path, out: Path) -> Timed:
    out.mkdir(exist_ok=True)
    run = command([sys.executable, "-c", PEER, source, out])
    return Timed(run.seconds, (out, run.value.together))


def floor(source: Path, graph: Path) -> Timed:
    """Read the two columns, and write and hash the graph's bytes, on one core of two."""
    result = np.ones(sum(p.stat().st_size for p in graph.rglob("*") if p.is_file()), np.uint8)
    start = time.perf_counter()
    for path in sorted(source.rglob("*.parquet")):
        pq.read_table(path, columns=["src", "dst"], use_threads=False)
    save_npy(graph.parent, "floor.npy", result)
    return Timed((time.perf_counter() - start) / 2)


def check(values: dict[str, Any]) -> dict[str, Any]:
    (ours, peak), (theirs, largest) = values["ours"], values["Polars"]
    graph = Graph.open(ours)
    graph.validate()
    csr = graph.csr()
    np.testing.assert_array_equal(csr.indptr, np.load(theirs / "indptr.npy"))
    np.testing.assert_array_equal(csr.indices, np.load(theirs / "indices.npy", mmap_mode="r"))
    return {"GB of a process": peak / 1e9, "Polars GB": largest / 1e9}


def check_memory(values: dict[str, Any]) -> dict[str, Any]:
    out, peak = values["ours"]
    Graph.open(out).validate()
    assert peak <= LIMIT, f"a process used {peak / 1e9:.2f} GB"
    return {"GB of a process": peak / 1e9}


def rmat(out: Path, edges: int, scale: int) -> Path:
    """Write a Parquet dataset of R-MAT edges, ids as 64-bit integers."""
    sizes = ["--scale", scale, "--edge-factor", edges / 2**scale, "--format", "parquet"]
    command(penstock("generate", "rmat", *sizes, "-q", out))
    return out


def texts(out: Path, edges: int) -> Path:
    """Write a Parquet file of edges whose ids are texts, some of them frequent."""
    random, nodes = np.random.default_rng(0), edges // 4
    ends = random.integers(0, nodes, edges), random.zipf(1.3, edges) % nodes
    src, dst = (pa.array([f"user-{number:07d}" for number in end]) for end in ends)
    out.mkdir()
    pq.write_table(pa.table({"src": src, "dst": dst}), out / "edges.parquet")
    return out


def zoo(out: Path, graphs: int, *, shuffled: bool) -> int:
    """Write a table of graphs piece by piece; return its number of rows."""
    random = np.random.default_rng(1)
    nodes = random.integers(20, 61, graphs)
    ends, first_id = np.cumsum(3 * nodes), random.integers(0, 1 << 20, graphs)
    schema = pa.schema([(name, pa.int64()) for name in ("graph_id", "src", "dst")])
    out.mkdir()
    with pq.ParquetWriter(out / "zoo.parquet", schema) as writer:
        for start in range(0, rows := int(ends[-1]), CHUNK):
            row = np.arange(start, min(start + CHUNK, rows))
            if shuffled:
                row = random.integers(0, rows, len(row))  # rows of any graph
            graph = np.searchsorted(ends, row, side="right")
            pair = random.integers(0, nodes[graph], (2, len(row))) * 3 + first_id[graph]
            writer.write_table(pa.table([graph, *pair], schema=schema), row_group_size=CHUNK)
    return rows


def cases(given: argparse.Namespace) -> Iterator[Case]:
    folder, edges = given.scratch, int(given.edges)
    scale = max(int(np.log2(edges / 12)), 1)
    for kind, source, count, ratios in (
        (
            "R-MAT",
            rmat(folder / "edges", edges, scale),
            edges,
            {"threads": (1.65, 1.1), "local": (1.0, 0.25)},
        ),
        ("texts", texts(folder / "texts", given.texts), given.texts, {"threads": (1.2, 0.55)}),
    ):
        peer = partial(polars, source, folder / "theirs")
        for cluster, (full, quick) in ratios.items():
            sides = {"Polars": Side(peer, full, quick, [installed("polars")], once=count > 1e8)}
            if cluster == "threads":
                sides["floor"] = Side(partial(floor, source, folder / "ours"), floor=True)
            yield Case(
                f"{kind}, {count:,} edges, {cluster}",
                partial(etl, source, folder / "ours", "--cluster", cluster),
                check,
                sides,
                (count, "edges"),
                needs=[installed("polars")],
            )
    for order, full, quick in (("by graph", 1.7, 0.35), ("shuffled", 1.3, 0.35)):
        source = folder / order.replace(" ", "-")
        rows = zoo(source, given.graphs, shuffled=order == "shuffled")
        yield Case(
            f"zoo, {given.graphs:,} graphs, {order}",
            partial(etl, source, folder / "zoo", "--format", "zoo"),
            check,
            {"Polars": Side(partial(polars, source, folder / "theirs"), full, quick)},
            (rows, "rows"),
            needs=[installed("polars")],
        )
    edges = 100_000_000
    large = folder / "large"

    def out_of_core() -> Timed:
        if not large.exists():
            rmat(large, edges, 23)
        return etl(large, folder / "ours", "--memory-limit", "1.5GB")

    yield Case(
        f"R-MAT, {edges:,} edges, two workers of 1.5 GB",
        out_of_core,
        check_memory,
        work=(edges, "edges"),
        rounds=1,
        needs=slow(given),
    )


if __name__ == "__main__":
    sizes = [Option("--edges", 50e6, 2e6, "of R-MAT"), Option("--texts", 2_000_000, 200_000)]
    sizes.append(Option("--graphs", 250_000, 20_000, "of the zoo"))
    sys.exit(main(__doc__, cases, *sizes))
