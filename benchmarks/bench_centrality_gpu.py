"""Centralities of small graphs on GPUs: computing alone, on several GPUs, and the whole command.

    python -P benchmarks/bench_centrality_gpu.py [--quick] [--graphs 100000]

The graphs are those of table 3 of the SwarmGraph paper, as ``penstock generate zoo`` makes them: 32
to 1,024 nodes in its shares, an average degree between 8 and 16, undirected. CUDA events time calls
of the kernels' functions, from batches in device memory to values there. Distances of all graphs
would not fit in memory, so they are summed on the device. Values of the first graphs must equal the
CPU's.

The floor is the least work per source: each edge is read once, and for betweenness once more in the
backward sweep, with 32 lanes per instruction (64 sources a lane, except for betweenness) and four
instructions per cycle and multiprocessor. Several GPUs share the batches, each in a thread. The
whole command is compared with only reading its table by Arrow; values of its first graphs must be
those that it gives on a core.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bench_centrality import check_nodes, nodes_of, whole, write_table, zoo
from harness import Case, Option, Side, Timed, alike, gpus, main, on_gpu, slow, together

from penstock.kernels.centrality_rules import GraphBatch
from penstock.kernels.cpu import centrality as cpu

COLUMNS = 1 << 14
CHECKED = 200  # graphs
# The floor over the time on one H200 (results/centrality.md): 1.73, 24.15, 16.64 and 5.30 us.
SHARES = {"closeness": 0.00079, "betweenness": 0.0072, "betweenness, float32": 0.01}
SHARES |= {"distances": 0.00026}


def first_graphs(batch: GraphBatch, count: int) -> GraphBatch:
    """Return the first graphs of a batch."""
    ptr = batch.ptr[: count + 1]
    indptr = batch.indptr[: ptr[-1] + 1]
    return GraphBatch(ptr, indptr, batch.indices[: indptr[-1]], directed=False)


def uploaded(batch: GraphBatch) -> GraphBatch:
    """Return the batch in the memory of the current GPU."""
    import cupy as cp

    arrays = (cp.asarray(each) for each in (batch.ptr, batch.indptr, batch.indices))
    return GraphBatch(*arrays, directed=False)


def computed(batch: GraphBatch, metric: str) -> list[Any]:
    """Return the values of a batch; of distances their first ones, all summed."""
    from penstock.kernels.cuda import centrality as cuda

    if metric.startswith("betweenness"):
        dtype = np.float32 if "32" in metric else np.float64
        return [cuda.betweenness(batch, dtype=dtype)[0]]
    if metric == "closeness":
        found = cuda.shortest_paths(batch)
        return [found.total, found.reached]
    found = cuda.distances(batch)
    rows = len(found) // COLUMNS  # CuPy sums all of an array in one block, rows side by side
    found[: rows * COLUMNS].reshape(rows, COLUMNS).sum(axis=1, dtype=np.int64).sum()
    return [found[: COLUMNS * CHECKED].copy()]


def ours(batches: list[GraphBatch], metric: str) -> Timed:
    """Compute all batches; return the first graphs' values."""
    kept: list[Any] = []

    def work() -> None:
        for number, batch in enumerate(batches):
            found = computed(batch, metric)
            if not number:
                kept[:] = found

    run = on_gpu(work, repeats=1, warm=0)
    return Timed(run.seconds, [each[: COLUMNS * CHECKED].get() for each in kept])


def check(some: GraphBatch, metric: str, values: dict[str, Any]) -> None:
    mine = values["ours"]
    if metric == "closeness":
        truth = cpu.shortest_paths(some)
        np.testing.assert_array_equal(mine[0][: some.nodes], truth.total)
        np.testing.assert_array_equal(mine[1][: some.nodes], truth.reached)
    elif metric == "distances":
        truth = cpu.distances(some)[: len(mine[0])]
        np.testing.assert_array_equal(mine[0][: len(truth)], truth)
    else:
        truth = cpu.betweenness(some)[0]
        close = (1e-5, 1e-6 * truth.max()) if "32" in metric else (1e-9, 1e-9)
        np.testing.assert_allclose(mine[0][: some.nodes], truth, rtol=close[0], atol=close[1])


def floor(batches: list[GraphBatch], metric: str, rate: float) -> Timed:
    """Return the seconds that reading edges alone takes, at instructions per second."""
    twice = 2 if metric.startswith("betweenness") else 1 / 64
    looks = 0.0
    for batch in batches:
        sizes, ends = (np.diff(each) for each in (batch.ptr, batch.indptr[batch.ptr]))
        looks += float((sizes * ends).sum())
    return Timed(looks * twice / 32 / rate)


def shared(batches: list[GraphBatch], devices: int, metric: str, kept: dict[Any, Any]) -> Timed:
    """Compute batches on several GPUs, each a share of them; return sums of the values."""

    def own(device: int) -> list[GraphBatch]:
        key = devices, device
        if key not in kept:
            kept[key] = [uploaded(batch) for batch in batches[device::devices]]
            computed(kept[key][0], metric)
        return kept[key]

    def work(device: int) -> float:
        return sum(float(computed(batch, metric)[0].sum()) for batch in own(device))

    together(own, devices)
    seconds, sums = together(work, devices)
    return Timed(seconds, sum(sums))


def check_whole(edges: Path, graphs: int, metric: str, values: dict[str, Any]) -> None:
    """Compare the first graphs with those of a command on a core."""
    assert len(pq.read_table(values["ours"] / "graphs")) == graphs
    first = [("graph_id", "<", CHECKED)]
    few, out = edges.with_name("few.parquet"), edges.with_name("few")
    pq.write_table(pq.read_table(edges / "part-0.parquet", filters=first), few)
    truth = nodes_of(whole(few, out, metric) / "nodes")
    check_nodes(nodes_of(values["ours"] / "nodes", filters=first), truth, metric, 1e-6, 1e-9)


def cases(given: argparse.Namespace) -> Iterator[Case]:
    import cupy as cp

    size = min(given.graphs, 20_000)
    several = 8 if gpus(2)() is None else 0
    hosts = [zoo(given.scratch / "zoo", size, n) for n in range(max(given.graphs // size, several))]
    drawn = hosts[: given.graphs // size]
    batches = [uploaded(batch) for batch in drawn]
    some, about = first_graphs(hosts[0], CHECKED), cp.cuda.Device().attributes
    rate = about["MultiProcessorCount"] * about["ClockRate"] * 1e3 * 4
    for metric, share in SHARES.items():
        yield Case(
            f"{metric}, {given.graphs:,} graphs",
            partial(ours, batches, metric),
            partial(check, some, metric),
            {"floor": Side(partial(floor, drawn, metric, rate), share, floor=True)},
            (given.graphs, "graphs"),
            rounds=3,
        )
    del batches
    cp.get_default_memory_pool().free_all_blocks()
    kept: dict[Any, Any] = {}
    for metric in ("closeness", "betweenness"):
        one = partial(shared, hosts[:8], 1, metric, kept)
        yield Case(
            f"{metric}, {8 * size:,} graphs, two GPUs",
            partial(shared, hosts[:8], 2, metric, kept),
            partial(alike, rtol=1e-9),
            {"one GPU": Side(one, 1.98)},
            (8 * size, "graphs"),
            needs=[gpus(2)],
        )
    kept.clear()
    if given.quick:
        return
    edges, rows = given.scratch / "edges", 0
    edges.mkdir()
    for first in range(0, given.parquet, size):
        made = given.scratch / f"part-{first}.parquet"
        rows += write_table(made, size, seed=first // size, first=first)
        made.rename(edges / made.name)
    cp.get_default_memory_pool().free_all_blocks()
    for metric in ("closeness", "betweenness"):
        yield Case(
            f"the command, {metric} of {given.parquet:,} graphs",
            partial(whole, edges, given.scratch / "out", metric, cluster="auto"),
            partial(check_whole, edges, given.parquet, metric),
            {"reading by Arrow": Side(lambda: pq.read_table(edges).num_rows, floor=True)},
            (rows, "rows"),
            rounds=3,
            needs=slow(given),
        )


if __name__ == "__main__":
    sizes = Option("--graphs", 100_000, 20_000), Option("--parquet", 100_000, 0, "of the command")
    sys.exit(main(__doc__, cases, *sizes, needs=(gpus(1),), gpu=cases))
