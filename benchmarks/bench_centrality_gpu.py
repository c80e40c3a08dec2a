"""Centralities of a million small graphs on one GPU, computing only.

    python -P benchmarks/bench_centrality_gpu.py [--graphs 1000000] [--batch 20000] [--json]

The graphs are those of table 3 of the SwarmGraph paper: 32 to 1,024 nodes in its shares, an average
degree between 8 and 16, about half of them R-MAT, undirected. They are drawn on the GPU, a batch at
a time, each batch fresh; drawing is not timed. Times are those of CUDA events around a call of the
kernels' functions, from a batch in device memory to values there; of distances, which no memory
holds for all graphs, the sum is taken on the device. Before a metric is timed, its values of a
sample of graphs are compared with those of cores.

The floor counts what every source must do at least: look at each edge once, and for betweenness
once more on the way back, 32 lanes an instruction, four instructions a cycle and multiprocessor.
"""

import argparse
import json

import cupy as cp
import numpy as np

from penstock.kernels.centrality_rules import GraphBatch
from penstock.kernels.cpu import centrality as cpu
from penstock.kernels.cuda import centrality as cuda

# Size and share of table 3, R-MAT and random together.
SIZES = {32: 0.1, 64: 0.1, 128: 0.2, 256: 0.2, 512: 0.2, 1024: 0.2}
AT_MOST = {"betweenness": 25.0, "closeness": 5.0, "distances": 8.0}  # s of a million graphs
ROUNDS = 10  # of R-MAT: 1,024 nodes
COLUMNS = 1 << 14
RMAT = (0.57, 0.19, 0.19)


def draw(graphs: int, seed: int) -> GraphBatch:
    """Return a batch in device memory: symmetric, no loops, no parallel edges."""
    host = np.random.default_rng(seed)
    sizes = host.choice(list(SIZES), graphs, p=list(SIZES.values()))
    halves = (sizes * host.uniform(8, 16, graphs) / 2).astype(np.int64)
    ptr = np.concatenate([[0], np.cumsum(sizes)])
    cp.random.seed(seed)
    owner = cp.asarray(np.repeat(np.arange(graphs, dtype=np.int32), halves))
    size, base = cp.asarray(sizes)[owner], cp.asarray(ptr[:-1])[owner]
    rmat = cp.asarray(host.random(graphs) < 0.54)[owner]
    ends = [(cp.random.random(len(owner)) * size).astype(cp.int64) for _ in range(2)]
    left, right = cp.zeros(len(owner), cp.int64), cp.zeros(len(owner), cp.int64)
    a, b, c = RMAT
    for _ in range(ROUNDS):
        chance = cp.random.random(len(owner))
        left = 2 * left + (chance >= a + b)
        right = 2 * right + (((chance >= a) & (chance < a + b)) | (chance >= a + b + c))
    ends = [
        cp.where(rmat, drawn * size >> ROUNDS, end)
        for drawn, end in zip((left, right), ends, strict=True)
    ]
    kept = ends[0] != ends[1]
    tails, heads = ((base + end)[kept] for end in ends)
    nodes = int(ptr[-1])
    keys = cp.unique(cp.concatenate([tails * nodes + heads, heads * nodes + tails]))
    rows, indices = keys // nodes, (keys % nodes).astype(cp.int32)
    indptr = cp.zeros(nodes + 1, cp.int64)
    indptr[1:] = cp.cumsum(cp.bincount(rows, minlength=nodes))
    return GraphBatch(cp.asarray(ptr), indptr, indices, None, directed=False)


def first_graphs(batch: GraphBatch, count: int) -> GraphBatch:
    """Return the first graphs of a batch in host memory."""
    ptr = batch.ptr[: count + 1].get()
    indptr = batch.indptr[: ptr[-1] + 1].get()
    return GraphBatch(ptr, indptr, batch.indices[: indptr[-1]].get(), None, directed=False)


def check(batch: GraphBatch, metric: str, count: int = 200) -> None:
    some = first_graphs(batch, count)
    nodes = some.nodes
    if metric == "betweenness":
        mine, truth = cuda.betweenness(batch)[0][:nodes], cpu.betweenness(some)[0]
        np.testing.assert_allclose(mine.get(), truth, rtol=1e-9, atol=1e-9)
        single = cuda.betweenness(batch, dtype=np.float32)[0][:nodes]
        scale = truth.max()
        np.testing.assert_allclose(single.get(), truth, rtol=1e-5, atol=1e-6 * scale)
    elif metric == "closeness":
        mine, truth = cuda.shortest_paths(batch), cpu.shortest_paths(some)
        np.testing.assert_array_equal(mine.total[:nodes].get(), truth.total)
        np.testing.assert_array_equal(mine.reached[:nodes].get(), truth.reached)
    else:
        truth = cpu.distances(some)
        np.testing.assert_array_equal(cuda.distances(batch)[: len(truth)].get(), truth)


def call(batch: GraphBatch, metric: str, dtype: type) -> None:
    if metric == "betweenness":
        cuda.betweenness(batch, dtype=dtype)
    elif metric == "closeness":
        cuda.shortest_paths(batch)
    else:
        found = cuda.distances(batch)
        rows = len(found) // COLUMNS  # CuPy sums all of an array in one block, rows side by side
        found[: rows * COLUMNS].reshape(rows, COLUMNS).sum(axis=1, dtype=np.int64).sum()


def timed(batch: GraphBatch, metric: str, dtype: type) -> float:
    start, stop = cp.cuda.Event(), cp.cuda.Event()
    cp.cuda.Device().synchronize()
    start.record()
    call(batch, metric, dtype)
    stop.record()
    stop.synchronize()
    return float(cp.cuda.get_elapsed_time(start, stop)) / 1000


def floor(batch: GraphBatch, metric: str) -> float:
    """Return the seconds that the looks at edges alone take."""
    sizes = np.diff(batch.ptr.get())
    edges = np.diff(batch.indptr[batch.ptr].get())
    looks = float((sizes * edges).sum()) * (2 if metric == "betweenness" else 1)
    width = 32 if metric == "betweenness" else 32 * 64
    found = cp.cuda.runtime.getDeviceProperties(cp.cuda.Device().id)
    rate = found["multiProcessorCount"] * found["clockRate"] * 1e3 * 4 * width
    return looks / rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=20_000)
    parser.add_argument("--metrics", default="closeness,betweenness,betweenness32,distances")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    metrics = given.metrics.split(",")
    spent, floors = dict.fromkeys(metrics, 0.0), dict.fromkeys(metrics, 0.0)
    sampled = draw(1000, 12345)
    for name in metrics:
        check(sampled, name.removesuffix("32"))
        timed(sampled, name.removesuffix("32"), np.float32 if "32" in name else np.float64)
    batches, edges = -(-given.graphs // given.batch), 0
    for number in range(batches):
        batch = draw(given.batch, number)
        edges += len(batch.indices)
        for name in metrics:
            metric, dtype = name.removesuffix("32"), np.float32 if "32" in name else np.float64
            spent[name] += timed(batch, metric, dtype)
            floors[name] += floor(batch, metric)
    count = batches * given.batch
    device = cp.cuda.runtime.getDeviceProperties(cp.cuda.Device().id)["name"].decode()
    report = {"device": device, "graphs": count, "edges": edges}
    for name in metrics:
        most = AT_MOST[name.removesuffix("32")] * count / 1e6
        seconds = spent[name]
        report[name] = {"seconds": seconds, "at_most": most, "floor": floors[name]}
        if not given.json:
            verdict = "kept" if seconds <= most else "NOT KEPT"
            share = floors[name] / seconds
            print(
                f"{name:14} {seconds:7.2f} s for {count:,} graphs on {device}: "
                f"{1e6 * seconds / count:.2f} us a graph; at most {most:.2f} s: {verdict}; "
                f"{share:.0%} of the floor"
            )
    if given.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
