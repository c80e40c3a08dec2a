"""A table of many small graphs becomes a zoo: penstock etl against a Polars script, checked first.

    python benchmarks/bench_zoo.py [--graphs 250000] [--workers 2] [--memory-limit 1.5GB]
                                   [--without-polars]

Graphs have 20 to 60 nodes with separate ids and about three edges per node, in a Parquet table
(graph_id, src, dst), once graph after graph and once shuffled. Both sides drop loops and
duplicates, store edges both ways, and number nodes 0, 1, ... by graph and id. The peak is the
largest worker's unique memory, sampled every 50 ms.
"""

import argparse
import gc
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType

import numpy as np
import polars as pl
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.cluster.spec import ClusterSpec
from penstock.graph import Graph
from penstock.pipelines.etl import etl

CHUNK = 1 << 22


class PeakMemory:
    """The largest unique memory of any child process while the block runs."""

    def __enter__(self) -> "PeakMemory":
        self.bytes, self._stop = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            for child in psutil.Process().children(recursive=True):
                try:
                    self.bytes = max(self.bytes, child.memory_full_info().uss)
                except psutil.Error:
                    continue


def write_table(path: Path, graphs: int, *, shuffled: bool) -> int:
    """Write the table piece by piece and return its number of rows."""
    random = np.random.default_rng(1)
    nodes = random.integers(20, 61, graphs)
    ends = np.cumsum(3 * nodes)
    rows = int(ends[-1])
    first_id = random.integers(0, 1 << 20, graphs)
    schema = pa.schema([(name, pa.int64()) for name in ("graph_id", "src", "dst")])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, CHUNK):
            row = np.arange(start, min(start + CHUNK, rows))
            if shuffled:
                row = random.integers(0, rows, len(row))  # rows of any graph
            graph = np.searchsorted(ends, row, side="right")
            pair = random.integers(0, nodes[graph], (2, len(row))) * 3 + first_id[graph]
            writer.write_table(pa.table([graph, *pair], schema=schema), row_group_size=CHUNK)
    return rows


def with_polars(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Do the same steps in Polars and return indptr and indices."""
    edges = pl.read_parquet(path).filter(pl.col("src") != pl.col("dst"))
    loops = pl.read_parquet(path).filter(pl.col("src") == pl.col("dst"))
    back = edges.select("graph_id", src="dst", dst="src")
    edges = pl.concat([edges, back]).unique()
    nodes = (
        pl.concat([edges.select("graph_id", id="src"), loops.select("graph_id", id="src")])
        .unique()
        .sort("graph_id", "id")
        .with_row_index("node")
    )
    edges = (
        edges.join(nodes, left_on=["graph_id", "src"], right_on=["graph_id", "id"])
        .join(nodes, left_on=["graph_id", "dst"], right_on=["graph_id", "id"], suffix="_dst")
        .select("node", "node_dst")
        .sort("node", "node_dst")
    )
    counts = np.bincount(edges["node"].to_numpy(), minlength=len(nodes))
    return np.append(0, np.cumsum(counts)), edges["node_dst"].to_numpy().astype(np.int32)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--graphs", type=int, default=250_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory-limit", default="1.5GB")
    parser.add_argument("--without-polars", action="store_true", help="for more than memory holds")
    given = parser.parse_args()
    cluster = ClusterSpec(workers=given.workers, memory_limit=given.memory_limit)
    print("| rows | graphs | nodes | M rows | etl s | M rows/s | peak MB | polars s | ratio |")
    print("|---|---|---|---|---|---|---|---|---|")
    for order in ("by graph", "shuffled"):
        with tempfile.TemporaryDirectory() as folder:
            path, out = Path(folder) / "zoo.parquet", Path(folder) / "zoo"
            rows = write_table(path, given.graphs, shuffled=order == "shuffled")
            with PeakMemory() as peak:
                start = time.perf_counter()
                etl(path, out, format="zoo", cluster=cluster)
                ours = time.perf_counter() - start
            graph = Graph.open(out)
            theirs = "", ""
            if given.without_polars:
                graph.validate()
            else:
                start = time.perf_counter()
                indptr, indices = with_polars(path)
                seconds = time.perf_counter() - start
                csr = graph.csr()
                assert np.array_equal(csr.indptr, indptr)
                assert np.array_equal(csr.indices, indices)
                theirs = f"{seconds:.1f}", f"{seconds / ours:.2f}"
                del indptr, indices, csr
                gc.collect()
            print(
                f"| {order} | {graph.manifest.graphs:,} | {graph.num_nodes:,} | {rows / 1e6:.1f} "
                f"| {ours:.1f} | {rows / ours / 1e6:.2f} | {peak.bytes / 1e6:.0f} "
                f"| {theirs[0]} | {theirs[1]} |"
            )


if __name__ == "__main__":
    main()
