"""Centralities of a million small graphs on one GPU, computing only.

    python -P benchmarks/bench_centrality_gpu.py [--graphs 1000000] [--batch 20000] [--json]
    python -P benchmarks/bench_centrality_gpu.py --devices 2 [--batches 8]
    python -P benchmarks/bench_centrality_gpu.py --parquet FOLDER [--cluster local -n 4 --threads 4]

The graphs are those of table 3 of the SwarmGraph paper: 32 to 1,024 nodes in its shares, an average
degree between 8 and 16, about half of them R-MAT, undirected. They are drawn on the GPU, batch by
batch; drawing is not timed. CUDA events time calls of the kernels' functions, from a batch in
device memory to values there. Distances of all graphs would not fit in memory, so they are summed
on the device. Before a metric is timed, its values of a sample of graphs are compared with the
CPU's.

--devices computes the same batches, which fit into one GPU's memory, on one GPU and on several,
with one process per GPU: packed by predicted cost, largest first, and timed from a barrier to the
last value. --parquet times the command from Parquet to Parquet; in one process (the kind threads)
it also shows elapsed and CPU seconds of reading, copying, computing and writing in all threads.

The floor is the least work per source: each edge is read once, and for betweenness once more in the
backward sweep, with 32 lanes per instruction and four instructions per cycle and multiprocessor.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import cupy as cp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from penstock.kernels.centrality_rules import GraphBatch
from penstock.kernels.cpu import centrality as cpu
from penstock.kernels.cuda import centrality as cuda

# Size and share of table 3, R-MAT and random together.
SIZES = {32: 0.1, 64: 0.1, 128: 0.2, 256: 0.2, 512: 0.2, 1024: 0.2}
AT_MOST = {"betweenness": 25.0, "closeness": 5.0, "distances": 8.0}  # seconds for a million graphs
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
    """Return the seconds that reading edges alone takes."""
    sizes = np.diff(batch.ptr.get())
    edges = np.diff(batch.indptr[batch.ptr].get())
    looks = float((sizes * edges).sum()) * (2 if metric == "betweenness" else 1)
    width = 32 if metric == "betweenness" else 32 * 64
    found = cp.cuda.runtime.getDeviceProperties(cp.cuda.Device().id)
    rate = found["multiProcessorCount"] * found["clockRate"] * 1e3 * 4 * width
    return looks / rate


# -- several GPUs ---------------------------------------------------------------------------------


def cost(batch: GraphBatch) -> float:
    sizes = np.diff(batch.ptr.get())
    return float((sizes * np.diff(batch.indptr[batch.ptr].get())).sum())


def packed(costs: list[float], parts: int) -> list[list[int]]:
    """Return the numbers of batches of each part: the most costly first, to the part with the
    least."""
    found, loads = [list[int]() for _ in range(parts)], [0.0] * parts
    for number in sorted(range(len(costs)), key=lambda n: -costs[n]):
        at = loads.index(min(loads))
        found[at].append(number)
        loads[at] += costs[number]
    return found


def on_one_of_several(
    device: int, numbers: list[int], size: int, names: list[str], barrier: Any, done: Any
) -> None:
    with cp.cuda.Device(device):
        batches = [draw(size, number) for number in numbers]
        for name in names:
            metric, dtype = name.removesuffix("32"), np.float32 if "32" in name else np.float64
            call(batches[0], metric, dtype)
            for _ in range(3):
                cp.cuda.Device().synchronize()
                barrier.wait()
                for batch in batches:
                    call(batch, metric, dtype)
                cp.cuda.Device().synchronize()
                done.put((name, time.time()))
                barrier.wait()


def on_devices(
    count: int, size: int, shares: list[list[int]], names: list[str]
) -> dict[str, float]:
    """Return the least seconds of three from the start of all to the end of the last."""
    context = multiprocessing.get_context("spawn")
    barrier, done = context.Barrier(count + 1), context.Queue()
    processes = [
        context.Process(target=on_one_of_several, args=(n, shares[n], size, names, barrier, done))
        for n in range(count)
    ]
    for process in processes:
        process.start()
    found = {}
    for name in names:
        least = np.inf
        for _ in range(3):
            barrier.wait(300)
            begun = time.time()
            ends = [done.get(timeout=300)[1] for _ in range(count)]
            least = min(least, max(ends) - begun)
            barrier.wait(300)
        found[name] = float(least)
    for process in processes:
        process.join()
    return found


def several_devices(given: argparse.Namespace, names: list[str]) -> dict[str, Any]:
    costs = []
    for number in range(given.batches):
        costs.append(cost(draw(given.batch, number)))
    cp.get_default_memory_pool().free_all_blocks()
    found = {
        count: on_devices(count, given.batch, packed(costs, count), names)
        for count in (1, given.devices)
    }
    return {
        "graphs": given.batches * given.batch,
        **{
            name: {
                "one": found[1][name],
                "all": found[given.devices][name],
                "ratio": found[1][name] / found[given.devices][name],
            }
            for name in names
        },
    }


# -- from Parquet to Parquet ----------------------------------------------------------------------

ROW_GROUP = 1 << 20
FILES_AT_ONCE = 8


def write_table(folder: Path, graphs: int, size: int) -> None:
    """Write graphs as edges, each once: one file per batch, and row groups of a million."""
    folder.mkdir(parents=True)

    def write(number: int, columns: list[Any]) -> None:
        names = ["graph_id", "source", "target"]
        table = pa.table(dict(zip(names, columns, strict=True)))
        pq.write_table(table, folder / f"part-{number:05d}.parquet", row_group_size=ROW_GROUP)

    with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
        made = []
        for number in range(-(-graphs // size)):
            batch = draw(size, number)
            rows = cp.searchsorted(batch.indptr, cp.arange(len(batch.indices)), side="right") - 1
            once = rows < batch.indices
            tails, heads = rows[once], batch.indices[once].astype(cp.int64)
            graph = cp.searchsorted(batch.ptr, tails, side="right") - 1
            first = batch.ptr[graph]
            columns = [number * size + graph, tails - first, heads - first]
            if len(made) >= FILES_AT_ONCE:
                made[-FILES_AT_ONCE].result()
            made.append(pool.submit(write, number, [column.get() for column in columns]))
        for one in made:
            one.result()


class Phases:
    """Seconds of functions in all threads of this process: elapsed and CPU time."""

    def __init__(self) -> None:
        self._lock, self.spent = threading.Lock(), dict[str, list[float]]()

    def watch(self, owner: Any, name: str, phase: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*given: Any, **options: Any) -> Any:
            begun, cpu = time.perf_counter(), time.thread_time()
            try:
                return function(*given, **options)
            finally:
                with self._lock:
                    sums = self.spent.setdefault(phase, [0.0, 0.0])
                    sums[0] += time.perf_counter() - begun
                    sums[1] += time.thread_time() - cpu

        setattr(owner, name, timed)


def from_parquet(given: argparse.Namespace) -> dict[str, Any]:
    from penstock import ClusterSpec, centrality
    from penstock.pipelines.centrality import pieces, tasks
    from penstock.pipelines.centrality.inputs import table as tables
    from penstock.pipelines.centrality.inputs.table_piece import TablePiece
    from penstock.pipelines.centrality.output import CentralityWriter

    if given.items is not None:
        tables.LEAST_COST, pieces.MOST_ITEMS = 2e10, 1 << given.items
        pieces.MOST_ITEMS_OF_LARGE = 1 << given.items
    if given.switch is not None:
        sys.setswitchinterval(given.switch)
    folder = Path(given.parquet)
    edges, out = folder / f"edges-{given.graphs}", folder / "out"
    report: dict[str, Any] = {"graphs": given.graphs}
    begun = time.perf_counter()
    if not edges.exists():
        write_table(edges, given.graphs, given.batch)
        cp.get_default_memory_pool().free_all_blocks()
        report["drawn"] = time.perf_counter() - begun
        print(f"drawn in {report['drawn']:.1f} s", flush=True)
    warm = folder / "edges-1"
    if not warm.exists():
        warm.mkdir()
        table = pq.read_table(sorted(edges.glob("*.parquet"))[0]).slice(0, 3 << 20)
        pq.write_table(table, warm / "part-00000.parquet", row_group_size=ROW_GROUP)
    cluster = ClusterSpec(cluster=given.cluster, workers=given.workers, threads=given.threads)
    phases = Phases()
    phases.watch(TablePiece, "read", "reading")
    phases.watch(tasks, "_computed", "on the GPU, with waiting for it")
    phases.watch(tasks, "on_device", "of that copying to it")
    phases.watch(tasks, "compute", "of that launching, computing and copying back")
    phases.watch(CentralityWriter, "save", "writing")
    for name in given.metrics.split(","):
        metric, dtype = name.removesuffix("32"), "float32" if "32" in name else "float64"
        options: dict[str, Any] = {"metrics": WHOLE[metric], "dtype": dtype, "cluster": cluster}
        centrality(warm, out, overwrite=True, **options)
        phases.spent.clear()
        before, begun = os.times(), time.perf_counter()
        done = centrality(edges, out, overwrite=True, **options)
        seconds, after = time.perf_counter() - begun, os.times()
        most = WHOLE_AT_MOST[metric] * given.graphs / 1e6
        cpu = {"user": after.user - before.user, "system": after.system - before.system}
        report[name] = {
            "seconds": seconds,
            "at_most": most,
            "stages": done.seconds_by_step,
            "cpu": cpu,
            "phases": phases.spent.copy(),
            "pieces": done.pieces,
        }
        if not given.json:
            verdict = "kept" if seconds <= most else "NOT KEPT"
            print(
                f"{name:14} {seconds:7.2f} s for {done.graphs:,} graphs in {done.pieces} pieces; "
                f"at most {most:.1f} s: {verdict}; {done.devices}; user {cpu['user']:.1f}, system "
                f"{cpu['system']:.1f} s; "
                + ", ".join(f"{stage} {took:.1f}" for stage, took in done.seconds_by_step.items())
            )
            for phase, (elapsed, used) in phases.spent.items():
                print(f"    {phase:48} {elapsed:8.1f} s, CPU {used:8.1f} s", flush=True)
        shutil.rmtree(out)
    return report


WHOLE = {
    "closeness": "closeness",
    "betweenness": "betweenness",
    "distances": "eccentricity,diameter",
}
WHOLE_AT_MOST = {"betweenness": 60.0, "closeness": 30.0, "distances": 40.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graphs", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=20_000)
    parser.add_argument("--metrics", default="closeness,betweenness,betweenness32,distances")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--devices", type=int, help="compare one GPU with this number")
    parser.add_argument("--batches", type=int, default=8, help="of --devices")
    parser.add_argument("--parquet", metavar="FOLDER", help="time the whole command there")
    parser.add_argument("--cluster", default="auto", help="of --parquet, as -n and --threads are")
    parser.add_argument("-n", "--workers", type=int)
    parser.add_argument("--items", type=int, help="of --parquet: pieces of 2 to the power of that")
    parser.add_argument("--switch", type=float, help="of --parquet: sys.setswitchinterval, s")
    parser.add_argument("--threads", type=int)
    given = parser.parse_args()
    metrics = given.metrics.split(",")
    if given.parquet:
        report = from_parquet(given)
        if given.json:
            print(json.dumps(report))
        return
    if given.devices:
        if cp.cuda.runtime.getDeviceCount() < given.devices:
            sys.exit(f"{given.devices} GPUs are needed; there are fewer")
        report = several_devices(given, metrics)
        if given.json:
            print(json.dumps(report))
            return
        for name in metrics:
            one, several, ratio = report[name].values()
            print(
                f"{name:14} {report['graphs']:,} graphs: {one:.2f} s on one GPU, {several:.2f} s "
                f"on {given.devices}: {ratio:.2f} times as fast"
            )
        return
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
                f"{1e6 * seconds / count:.2f} us per graph; at most {most:.2f} s: {verdict}; "
                f"{share:.0%} of the floor"
            )
    if given.json:
        print(json.dumps(report))


if __name__ == "__main__":
    main()
