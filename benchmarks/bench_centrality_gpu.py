"""Centralities of small graphs on GPUs: computing alone, on several GPUs, and the whole command.

    python -P benchmarks/bench_centrality_gpu.py [--quick] [--graphs 100000]

The graphs are those of table 3 of the SwarmGraph paper: 32 to 1,024 nodes in its shares, an average
degree between 8 and 16, about half of them R-MAT, undirected. They are drawn on the GPU; drawing is
not timed. CUDA events time calls of the kernels' functions, from batches in device memory to values
there. Distances of all graphs would not fit in memory, so they are summed on the device. Values of
the first graphs must equal the CPU's.

The floor is the least work per source: each edge is read once, and for betweenness once more in the
backward sweep, with 32 lanes per instruction (64 sources a lane, except for betweenness) and four
instructions per cycle and multiprocessor. Several GPUs share the batches, each in a thread. The
whole command is compared with only reading its table by Arrow.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, gpus, main, on_gpu, slow, together

from penstock.kernels.centrality_rules import GraphBatch
from penstock.kernels.cpu import centrality as cpu

# Size and share of table 3, R-MAT and random together.
SIZES = {32: 0.1, 64: 0.1, 128: 0.2, 256: 0.2, 512: 0.2, 1024: 0.2}
ROUNDS = 10  # of R-MAT: 1,024 nodes
COLUMNS = 1 << 14
CHECKED = 200  # graphs
RMAT = (0.57, 0.19, 0.19)
# The floor over the time on one H200 (results/centrality.md): 1.73, 24.15, 16.64 and 5.30 us.
SHARES = {"closeness": 0.00079, "betweenness": 0.0072, "betweenness, float32": 0.01}
SHARES |= {"distances": 0.00026}


def draw(graphs: int, seed: int, xp: Any) -> GraphBatch:
    """Return a batch: symmetric, no loops, no parallel edges."""
    host = np.random.default_rng(seed)
    sizes = host.choice(list(SIZES), graphs, p=list(SIZES.values()))
    halves = (sizes * host.uniform(8, 16, graphs) / 2).astype(np.int64)
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    xp.random.seed(seed)
    owner = xp.asarray(np.repeat(np.arange(graphs, dtype=np.int32), halves))
    size, base = xp.asarray(sizes)[owner], xp.asarray(ptr[:-1])[owner]
    rmat = xp.asarray(host.random(graphs) < 0.54)[owner]
    ends = [(xp.random.random(len(owner)) * size).astype(xp.int64) for _ in range(2)]
    left, right = xp.zeros(len(owner), xp.int64), xp.zeros(len(owner), xp.int64)
    a, b, c = RMAT
    for _ in range(ROUNDS):
        chance = xp.random.random(len(owner))
        left = 2 * left + (chance >= a + b)
        right = 2 * right + (((chance >= a) & (chance < a + b)) | (chance >= a + b + c))
    ends = [
        xp.where(rmat, drawn * size >> ROUNDS, end)
        for drawn, end in zip((left, right), ends, strict=True)
    ]
    kept = ends[0] != ends[1]
    tails, heads = ((base + end)[kept] for end in ends)
    nodes = int(ptr[-1])
    keys = xp.unique(xp.concatenate([tails * nodes + heads, heads * nodes + tails]))
    rows, indices = keys // nodes, (keys % nodes).astype(xp.int32)
    indptr = xp.zeros(nodes + 1, xp.int64)
    indptr[1:] = xp.cumsum(xp.bincount(rows, minlength=nodes))
    return GraphBatch(xp.asarray(ptr), indptr, indices, None, directed=False)


def first_graphs(batch: GraphBatch, count: int) -> GraphBatch:
    """Return the first graphs of a batch in host memory."""
    ptr = batch.ptr[: count + 1].get()
    indptr = batch.indptr[: ptr[-1] + 1].get()
    return GraphBatch(ptr, indptr, batch.indices[: indptr[-1]].get(), None, directed=False)


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
        sizes, ends = (np.diff(each.get()) for each in (batch.ptr, batch.indptr[batch.ptr]))
        looks += float((sizes * ends).sum())
    return Timed(looks * twice / 32 / rate)


def shared(size: int, count: int, devices: int, metric: str, kept: dict[Any, Any]) -> Timed:
    """Compute batches on several GPUs, each with every so manieth; return sums of the values."""
    import cupy as cp

    def own(device: int) -> list[GraphBatch]:
        key = devices, device
        if key not in kept:
            kept[key] = [draw(size, n, cp) for n in range(device, count, devices)]
            computed(kept[key][0], metric)
        return kept[key]

    def work(device: int) -> float:
        return sum(float(computed(batch, metric)[0].sum()) for batch in own(device))

    together(own, devices)
    seconds, sums = together(work, devices)
    return Timed(seconds, sum(sums))


def check_sums(values: dict[str, Any]) -> None:
    np.testing.assert_allclose(values["ours"], values["one GPU"], rtol=1e-9)


def write_table(folder: Path, graphs: int, size: int) -> int:
    """Write graphs as edges, each once, one file per batch; return the number of rows."""
    import cupy as cp

    folder.mkdir()
    total = 0
    for number in range(-(-graphs // size)):
        batch = draw(size, number, cp)
        rows = cp.searchsorted(batch.indptr, cp.arange(len(batch.indices)), side="right") - 1
        once = rows < batch.indices
        tails, heads = rows[once], batch.indices[once].astype(cp.int64)
        graph = cp.searchsorted(batch.ptr, tails, side="right") - 1
        first = batch.ptr[graph]
        columns = [(number * size + graph).get(), (tails - first).get(), (heads - first).get()]
        table = pa.table(dict(zip(("graph_id", "source", "target"), columns, strict=True)))
        pq.write_table(table, folder / f"part-{number:05d}.parquet", row_group_size=1 << 20)
        total += len(table)
    return total


def whole(edges: Path, out: Path, metrics: str) -> tuple[Path, int]:
    from penstock import centrality

    report = centrality(edges, out, metrics=metrics, overwrite=True, quiet=True)
    return out, report.graphs


def check_whole(some: GraphBatch, graphs: int, metric: str, values: dict[str, Any]) -> None:
    """Compare the first graphs' closeness or betweenness with the CPU's kernels."""
    out, count = values["ours"]
    assert count == graphs
    table = pq.read_table(sorted((out / "nodes").glob("*.parquet"))[0])
    mine = table[metric].to_numpy()
    assert np.isfinite(mine).all()
    first = table["graph_id"].to_numpy() == 0
    from penstock.kernels.centrality_rules import betweenness_scale, closeness

    one = first_of(some)
    if metric == "closeness":
        truth = closeness(cpu.shortest_paths(one), one.ptr)
    else:
        scale = betweenness_scale(one.ptr, directed=False, normalized=True, endpoints=False)
        truth = cpu.betweenness(one)[0] * np.repeat(scale, one.sizes)
    np.testing.assert_allclose(np.sort(mine[first]), np.sort(truth), rtol=1e-6, atol=1e-9)


def first_of(some: GraphBatch) -> GraphBatch:
    """Return the first graph without nodes that have no edges: a table of edges has none."""
    degrees = np.diff(some.indptr[: some.ptr[1] + 1])
    linked = degrees > 0
    numbers, indptr = np.cumsum(linked) - 1, np.append(0, np.cumsum(degrees[linked]))
    indices = numbers[some.indices[: indptr[-1]]].astype(np.int32)
    return GraphBatch(np.array([0, linked.sum()]), indptr, indices, None, directed=False)


def cases(given: argparse.Namespace) -> Iterator[Case]:
    import cupy as cp

    size = min(given.graphs, 20_000)
    batches = [draw(size, number, cp) for number in range(given.graphs // size)]
    some, about = first_graphs(batches[0], CHECKED), cp.cuda.Device().attributes
    rate = about["MultiProcessorCount"] * about["ClockRate"] * 1e3 * 4
    for metric, share in SHARES.items():
        yield Case(
            f"{metric}, {given.graphs:,} graphs",
            partial(ours, batches, metric),
            partial(check, some, metric),
            {"floor": Side(partial(floor, batches, metric, rate), share, floor=True)},
            (given.graphs, "graphs"),
            rounds=3,
        )
    del batches
    cp.get_default_memory_pool().free_all_blocks()
    kept: dict[Any, Any] = {}
    for metric in ("closeness", "betweenness"):
        one = partial(shared, size, 8, 1, metric, kept)
        yield Case(
            f"{metric}, {8 * size:,} graphs, two GPUs",
            partial(shared, size, 8, 2, metric, kept),
            check_sums,
            {"one GPU": Side(one, 1.98)},
            (8 * size, "graphs"),
            needs=[gpus(2)],
        )
    kept.clear()
    if given.quick:
        return
    edges = given.scratch / "edges"
    rows = write_table(edges, given.parquet, size)
    cp.get_default_memory_pool().free_all_blocks()
    for metric in ("closeness", "betweenness"):
        yield Case(
            f"the command, {metric} of {given.parquet:,} graphs",
            partial(whole, edges, given.scratch / "out", metric),
            partial(check_whole, some, given.parquet, metric),
            {"reading by Arrow": Side(lambda: pq.read_table(edges).num_rows, floor=True)},
            (rows, "rows"),
            rounds=3,
            needs=slow(given),
        )


if __name__ == "__main__":
    sizes = Option("--graphs", 100_000, 20_000), Option("--parquet", 100_000, 0, "of the command")
    sys.exit(main(__doc__, cases, *sizes, needs=(gpus(1),), gpu=cases))
