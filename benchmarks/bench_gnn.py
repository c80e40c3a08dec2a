"""How fast GNNs are trained on one device, beside PyG and the floor, and how good they get.

    python -P benchmarks/bench_gnn.py --pyg VENV/bin/python [--threads 2]      on cores
    python -P benchmarks/bench_gnn.py accuracy --pyg VENV/bin/python           Cora, ten seeds
    python -P benchmarks/bench_gnn.py --gpu [--pyg PYTHON]                     on one GPU
    python -P benchmarks/bench_gnn.py write amazon-like GRAPH                  only make a graph

An epoch is forward, backward and Adam's update on the whole graph, of a GCN with ReLU and biases.
Each side trains in a process of its own, one after the other, from the same arrays and the same
first weights; times count only where the losses of the first epochs agree. They are medians
without the first epoch, the peak is the most that the process ever had in memory, Python and
libraries included (on GPUs: what the pool of CuPy or torch took). PyG is timed twice, as it is and
normalising once ("cached"), and the faster one is compared with. Ends with 1 where a promise is
broken. Accuracy needs PENSTOCK_DATA. --pyg names a Python with torch and torch_geometric.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from penstock.csr import CSR
from penstock.writer import create_graph

PEERS = Path(__file__).with_name("gnn_peers.py")
LEAST_AGREEMENT = 1e-4  # relative difference of losses, of the epochs below
AGREED = 3
ACCURACY = 0.01  # of PyG's that ours may be below
SEEDS = 10


@dataclass(frozen=True)
class Data:
    """A graph whose rows gather their columns, and its nodes."""

    csr: CSR
    features: Any
    labels: Any
    classes: int
    directed: bool = True


@dataclass(frozen=True)
class Case:
    """What is timed, and what is asked for: how many times as fast as which of PyG's ways."""

    name: str
    make: Callable[[], Data]
    hidden: tuple[int, ...] = (32, 32)
    epochs: int = 10
    peer_epochs: int = 4
    ways: tuple[str, ...] = ("edge_index", "edge_index-cached", "csr", "csr-cached")
    faster: dict[str, float] = field(default_factory=dict)
    smaller: float | None = None  # than edge_index


@dataclass(frozen=True)
class GpuCase:
    """A row of the table: sizes, PyG's figures as they were measured, and what is asked for."""

    nodes: int
    edges: int
    width: int
    classes: int
    edge_index: float | None  # milliseconds
    csr: float
    at_most: float
    gigabytes: float


GPU_CASES = {
    "arxiv-like": GpuCase(169_343, 2_330_000, 128, 40, 14.5, 4.65, 1.5, 0.3),
    "products-like": GpuCase(2_449_029, 123_700_000, 100, 47, 662, 180, 35, 5),
    "reddit-like": GpuCase(232_965, 114_600_000, 602, 41, 552, 117, 25, 3),
    "amazon-like": GpuCase(1_569_960, 264_300_000, 200, 107, None, 369, 70, 9),
}


# Graphs


def power_law(nodes: int, edges: int, xp: Any = np) -> CSR:
    """Return rows whose columns, the sources of messages, follow a power law; all edges differ.

    The k-th of the sources has about k**-1/2 of the edges of the first; names are shuffled.
    """
    draw = xp.random.default_rng(0)
    names = xp.random.RandomState(0).permutation(nodes)
    keys = xp.zeros(0, xp.int64)
    while len(keys) < edges:
        more = (edges - len(keys)) * 11 // 10 + 1000
        sources = names[(draw.random(more) ** 2 * nodes).astype(xp.int64)]
        rows = draw.integers(0, nodes, more, dtype=xp.int64)
        keys = xp.sort(xp.concatenate([keys, rows * nodes + sources]))
        keys = keys[xp.concatenate([xp.ones(1, bool), keys[1:] != keys[:-1]])]
    keys = xp.sort(keys[xp.random.RandomState(1).permutation(len(keys))[:edges]])
    indptr = xp.zeros(nodes + 1, xp.int64)
    xp.cumsum(xp.bincount(keys // nodes, minlength=nodes), out=indptr[1:])
    arrays = indptr, (keys % nodes).astype(xp.int32)
    return CSR(*(a.get() if xp is not np else a for a in arrays))


def products_like(nodes: int, edges: int, width: int, classes: int, xp: Any = np) -> Data:
    """Return a graph with power-law sources and dense features."""
    draw = np.random.default_rng(1)
    features = draw.standard_normal((nodes, width), dtype=np.float32)
    csr = power_law(nodes, edges, xp)
    return Data(csr, features, draw.integers(0, classes, nodes).astype(np.int32), classes)


def cora() -> Data:
    """Return Cora, edges both ways, all 2,708 nodes."""
    if "PENSTOCK_DATA" not in os.environ:
        raise SystemExit("Cora is looked for in $PENSTOCK_DATA/nodes/cora.npz: set PENSTOCK_DATA")
    path = Path(os.environ["PENSTOCK_DATA"]) / "nodes/cora.npz"
    with np.load(path, allow_pickle=True) as file:
        adjacency, features = (
            sp.csr_matrix(
                (file[f"{n}_data"], file[f"{n}_indices"], file[f"{n}_indptr"]), file[f"{n}_shape"]
            )
            for n in ("adj", "attr")
        )
        labels = file["labels"].astype(np.int32)
    both = (adjacency + adjacency.T).tolil()
    both.setdiag(0)
    both = both.tocsr()
    both.eliminate_zeros()
    both.sort_indices()
    features.sort_indices()
    csr = CSR(both.indptr.astype(np.int64), both.indices.astype(np.int32))
    return Data(csr, features.astype(np.float32), labels, int(labels.max()) + 1, directed=False)


def cora_like(times: int, width: int, words: int) -> Data:
    """Return a random graph of Cora's density with as many times the nodes; words are ones."""
    draw, nodes, edges = np.random.default_rng(0), 2708 * times, 5278 * times
    ends = draw.integers(0, nodes, (2, edges))
    ends = ends[:, ends[0] != ends[1]]
    keys = np.unique(np.concatenate([ends[0] * nodes + ends[1], ends[1] * nodes + ends[0]]))
    indptr = np.searchsorted(keys, np.arange(nodes + 1) * nodes)
    csr = CSR(indptr.astype(np.int64), (keys % nodes).astype(np.int32))
    chosen = np.argpartition(draw.random((nodes, width), dtype=np.float32), words, axis=1)
    chosen = np.sort(chosen[:, :words], axis=1).astype(np.int32)
    ones = np.ones(nodes * words, np.float32)
    starts = np.arange(nodes + 1, dtype=np.int32) * words
    features = sp.csr_matrix((ones, chosen.ravel(), starts), (nodes, width))
    return Data(csr, features, draw.integers(0, 7, nodes).astype(np.int32), 7, directed=False)


SPARSE = {
    "epochs": 100,
    "peer_epochs": 8,
    "ways": ("edge_index", "edge_index-cached", "csr-cached", "csr-cached-sparse"),
}
CASES = (
    Case(
        "products-like / 16",
        lambda: products_like(153_064, 7_731_250, 100, 47),
        faster={"edge_index": 15, "csr": 5},
        smaller=5,
    ),
    Case("Cora, 2 layers of 64", cora, hidden=(64,), **SPARSE),
    Case("Cora, 3 layers", cora, **SPARSE, faster={"edge_index": 20}),
    Case("Cora x 16, 2 layers of 64", lambda: cora_like(16, 1433, 18), hidden=(64,), **SPARSE),
    Case(
        "Cora x 16, 3 layers", lambda: cora_like(16, 1433, 18), **SPARSE, faster={"edge_index": 20}
    ),
    Case(
        "the same, 2,879 features of which 50",
        lambda: cora_like(16, 2879, 50),
        **SPARSE,
        faster={"edge_index": 20},
    ),
)


def write_case(folder: Path, data: Data, widths: list[int], roles: Any = None) -> None:
    """Write the graph for us, and arrays and first weights for PyG; every node is trained on."""
    nodes = data.csr.rows
    if roles is None:
        roles = np.zeros(nodes, np.int8)
    write_graph(folder / "graph", data, roles)
    arrays: dict[str, Any] = {"indptr": data.csr.indptr, "indices": data.csr.indices}
    if isinstance(data.features, np.ndarray):
        arrays["features"] = data.features
    else:
        for part in ("indptr", "indices", "data"):
            arrays[f"feature_{part}"] = getattr(data.features, part)
        arrays["width"] = data.features.shape[1]
    first = first_weights(widths)
    np.savez(folder / "peer.npz", labels=data.labels, train=roles == 0, **arrays, **first)


def write_graph(path: Path, data: Data, roles: Any) -> None:
    """Write a graph directory."""
    with create_graph(path, overwrite=True) as writer:
        writer.edges(data.csr, shard_edges=1 << 40)
        writer.nodes(label=data.labels, split=roles)
        writer.features(data.features)
        classes = tuple(f"c{number}" for number in range(data.classes))
        writer.manifest = replace(
            writer.manifest, directed=data.directed, labels="class", classes=classes
        )


def first_weights(widths: list[int]) -> dict[str, Any]:
    """Return the weights that our network begins with, for seed 0; biases begin at 0."""
    from penstock.workers.gnn.parameters import Parameters, constant, glorot

    entries = []
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        entries.append(glorot(f"layers.{number}.weight", inputs, outputs))
        entries.append(constant(f"layers.{number}.bias", outputs))
    named = Parameters(entries, np.float32, 0, device=False).named()
    return {f"weight{i}": named[f"layers.{i}.weight"] for i in range(len(widths) - 1)}


# The two sides


def ours(folder: str, widths: str, epochs: str, device: str) -> dict[str, Any]:
    """Train in this process, and return losses, seconds and peak."""
    import dask

    dask.config.set({"penstock.device": device})
    imported = _resident()
    from penstock.workers.gnn.spec import Layer, Model, Training
    from penstock.workers.gnn.task import TrainTask
    from penstock.workers.gnn.train import train

    hidden = [int(width) for width in widths.split(",")][1:-1]
    layers = [*(Layer("gcn", width) for width in hidden), Layer("gcn")]
    training = Training(epochs=int(epochs), decay=0.0, checkpoint_epochs=None)
    run = Path(folder) / "run"
    run.mkdir(exist_ok=True)
    task = TrainTask(Path(folder) / "graph", None, Model(layers), training, run)
    trained = train(None, task)
    peak = _resident()
    if device == "gpu":
        import cupy

        imported, peak = 0, cupy.get_default_memory_pool().total_bytes()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        "seconds": [line["seconds"] for line in lines],
        "losses": [line["train"]["loss"] for line in lines],
        "peak": peak,
        "imported": imported,
        "sparse": trained.sparse,
    }


def _resident() -> int:
    # Not ru_maxrss, in which what the parent had at the fork counts too.
    status = Path("/proc/self/status").read_text().split("VmHWM:")[1]
    return 1024 * int(status.split()[0])


def call(python: str, script: Path, *words: Any, threads: int) -> dict[str, Any]:
    """Run one side on as many cores, and return what it printed last."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    done = subprocess.run(
        [python, "-P", "-W", "ignore", str(script), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
        env=os.environ | {"OMP_NUM_THREADS": str(threads)},
    )
    if done.returncode:
        raise RuntimeError(f"{script.name} {words} failed: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def median_ms(found: dict[str, Any]) -> float:
    """Return the median epoch, the first left out."""
    return 1e3 * float(np.median(found["seconds"][1:]))


def disagreement(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Return the largest relative difference of the first losses."""
    a, b = (np.array(found["losses"][:AGREED]) for found in (ours, theirs))
    return float(np.max(np.abs(a - b) / np.abs(b)))


# The floor


def read_rate(size: int, threads: int) -> float:
    """Return the bytes a second at which threads read arrays of together ``size`` bytes in order.

    Small ones come from the caches, as rows do that are gathered again and again.
    """
    parts = [np.ones(size // 4 // threads, np.float32) for _ in range(threads)]
    repeats = max(4, (256 << 20) // size)

    def read(part: Any) -> None:
        for _ in range(repeats):
            np.dot(part, part)

    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            begun = time.perf_counter()
            list(pool.map(read, parts))
            best = max(best, repeats * size / (time.perf_counter() - begun))
    return best


def product_rate(threads: int) -> float:
    """Return the floating point operations a second of a product of squares."""
    from threadpoolctl import threadpool_limits

    square = np.ones((1536, 1536), np.float32)
    times = []
    with threadpool_limits(threads):
        for _ in range(4):
            begun = time.perf_counter()
            square @ square
            times.append(time.perf_counter() - begun)
    return 2 * 1536**3 / min(times)


def work_of(data: Data, widths: list[int]) -> tuple[list[tuple[float, int]], float]:
    """Return the least an epoch does: gathers as (rows gathered, width), and flops of products.

    A layer gathers the narrower of what it takes and gives, forward and back; the first, with dense
    features, not at all: what it gathers is the same in every epoch. Sparse features are gathered
    like edges, rows of weights and of gradients.
    """
    nodes, edges = data.csr.rows, data.csr.edges
    dense = isinstance(data.features, np.ndarray)
    gathers, flops = [], 0.0
    for number, (inputs, outputs) in enumerate(pairwise(widths)):
        if number:
            gathers += [(edges, min(inputs, outputs))] * 2
            flops += 3 * 2.0 * nodes * inputs * outputs
        elif dense:
            flops += 2 * 2.0 * nodes * inputs * outputs
        else:
            gathers += [(data.features.nnz, outputs)] * 2 + [(edges, outputs)] * 2
    return gathers, flops


def floor_ms(data: Data, widths: list[int], threads: int) -> float:
    """Return what reading the gathered rows and their indices, and the products, take at least."""
    gathers, flops = work_of(data, widths)
    memory, seconds = read_rate(256 << 20, threads), flops / product_rate(threads)
    for rows, width in gathers:
        table = max(4 * width * data.csr.rows, 1 << 16)
        seconds += 4 * rows * width / read_rate(table, threads) + 4 * rows / memory
    return 1e3 * seconds


# On cores


def speed(python: str, threads: int, only: str) -> bool:
    """Print how fast epochs are on cores; return whether the promises are kept."""
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, {threads} threads, Python "
        f"{platform.python_version()}, NumPy {np.__version__}; peer: {versions(python)}"
    )
    kept = True
    for case in CASES:
        if only in case.name:
            kept &= speed_of(case, python, threads)
    return kept


def versions(python: str) -> str:
    """Return which torch and PyG the other Python has."""
    ask = "from torch import __version__ as t; from torch_geometric import __version__ as g; "
    ask += "print(f'torch {t}, PyG {g}')"
    done = subprocess.run([python, "-P", "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def speed_of(case: Case, python: str, threads: int) -> bool:
    """Print the table of one graph; return whether its promises are kept."""
    data = case.make()
    widths = [data.features.shape[1], *case.hidden, data.classes]
    nonzeros = getattr(data.features, "nnz", data.csr.rows * widths[0])
    print(
        f"\n{case.name}: {data.csr.rows:,} nodes, {data.csr.edges:,} edges, features and widths "
        f"{' > '.join(map(str, widths))}, {1 - nonzeros / data.csr.rows / widths[0]:.1%} zeros"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_case(folder, data, widths)
        theirs = {
            way: call(python, PEERS, "epochs", folder, way, case.peer_epochs, threads, "cpu",
                      threads=threads)
            for way in case.ways
        }  # fmt: skip
        words = ("ours", folder, ",".join(map(str, widths)), case.epochs, "cpu")
        mine = call(sys.executable, Path(__file__), *words, threads=threads)
    floor, own = floor_ms(data, widths, threads), median_ms(mine)
    apart = max(disagreement(mine, found) for found in theirs.values())
    print("\n| | epoch ms | times ours | peak MB | of which imported | times ours |")
    print("|---|---|---|---|---|---|")
    for way, found in [*theirs.items(), ("ours", mine)]:
        cells = (
            way,
            f"{median_ms(found):,.4g}" if median_ms(found) < 1000 else f"{median_ms(found):,.0f}",
            f"{median_ms(found) / own:.1f}",
            f"{found['peak'] / 1e6:,.0f}",
            f"{found['imported'] / 1e6:,.0f}",
            f"{found['peak'] / mine['peak']:.1f}",
        )
        print(f"| {' | '.join(cells)} |", flush=True)
    print(
        f"\nlosses differ by {apart:.1e} at most; floor {floor:.3g} ms, {floor / own:.0%} of ours; "
        f"{'sparse' if mine['sparse'] else 'dense'} path"
    )
    if apart > LEAST_AGREEMENT:
        print("WRONG: the losses are not those of PyG")
        return False
    kept = True
    for way, least in case.faster.items():
        best = min(median_ms(f) for w, f in theirs.items() if w.startswith(way)) / own
        kept &= _verdict(f"{best:.1f} times as fast as {way}", best >= least, f"{least:g}")
    if case.smaller is not None:
        ratio = min(f["peak"] for w, f in theirs.items() if w.startswith("edge")) / mine["peak"]
        text = f"peak memory of edge_index is {ratio:.1f} times ours"
        kept &= _verdict(text, ratio >= case.smaller, f"{case.smaller:g}")
    return kept


def _verdict(text: str, kept: bool, asked: str) -> bool:
    print(f"{text}, {asked} asked for: {'kept' if kept else 'BROKEN'}", flush=True)
    return kept


# Accuracy


MODELS = {"gcn": "GCN, 64", "sage": "SAGE mean, 64", "gat": "GAT, 8 heads of 8"}


def roles_of(labels: Any, seed: int) -> Any:
    """Return 20 nodes of each class to train on, 500 others to validate on, the rest to test on."""
    draw = np.random.default_rng(seed)
    roles, order = np.full(len(labels), 2, np.int8), draw.permutation(len(labels))
    train = np.concatenate([order[labels[order] == c][:20] for c in range(int(labels.max()) + 1)])
    roles[train] = 0
    roles[order[roles[order] == 2][:500]] = 1
    return roles


def accuracy(python: str, threads: int, peer_results: Path | None) -> bool:
    """Print the accuracy on Cora of ours and PyG's models; return whether ours are as good."""
    data = cora()
    roles = np.stack([roles_of(data.labels, seed) for seed in range(SEEDS)])
    print(
        f"Cora: {data.csr.rows:,} nodes, {data.csr.edges:,} edges, {SEEDS} seeds, each with its "
        "own split and weights; test accuracy at the best validation epoch of 200\n"
    )
    print("| model | PyG mean | deviation | ours mean | deviation | asked | |\n|" + "---|" * 7)
    kept, known = True, {}
    if peer_results is not None and peer_results.exists():
        known = json.loads(peer_results.read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_case(folder, data, [data.features.shape[1], 64, data.classes])
        with np.load(folder / "peer.npz") as file:
            np.savez(folder / "peer.npz", **{**file, "roles": roles})
        for kind, title in MODELS.items():
            if kind not in known:
                found = call(python, PEERS, "accuracy", folder, kind, threads, threads=threads)
                known[kind] = found["accuracy"]
            mine = [our_accuracy(folder, data, kind, seed, roles[seed]) for seed in range(SEEDS)]
            a, b = np.array(known[kind]), np.array(mine)
            good = b.mean() >= a.mean() - ACCURACY
            kept &= good
            cells = [f"{100 * v:.2f}" for v in (a.mean(), a.std(), b.mean(), b.std())]
            asked = f"{100 * (a.mean() - ACCURACY):.2f}"
            verdict = "kept" if good else "BROKEN"
            print(f"| {title} | {' | '.join(cells)} | {asked} | {verdict} |", flush=True)
    if peer_results is not None:
        peer_results.write_text(json.dumps(known))
    return kept


def our_accuracy(folder: Path, data: Data, kind: str, seed: int, roles: Any) -> float:
    """Train one model, and return its test accuracy at the best validation epoch."""
    from penstock.workers.gnn.spec import Layer, Model, Training
    from penstock.workers.gnn.task import TrainTask
    from penstock.workers.gnn.train import train

    graph, run = folder / "seeded", folder / f"run-{kind}-{seed}"
    write_graph(graph, data, roles)
    run.mkdir()
    drop = 0.6 if kind == "gat" else 0.5
    layers: tuple[Layer, ...] = Layer(kind, 64, dropout=drop), Layer(kind)
    if kind == "gat":
        first = Layer("gat", 64, "elu", dropout=drop, heads=8, attention_dropout=drop)
        layers = first, Layer("gat", attention_dropout=drop)
    rate = 0.005 if kind == "gat" else 0.01
    training = Training(epochs=200, rate=rate, decay=5e-4, seed=seed, checkpoint_epochs=None)
    train(None, TrainTask(graph, None, Model(layers, input_dropout=drop), training, run))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    best = max(lines, key=lambda line: line["valid"]["score"])  # the first of equals
    return float(best["test"]["score"])


# On a GPU


def gpu_speed(python: str | None, only: str) -> bool:
    """Print how fast epochs are on a GPU; return whether the promises are kept."""
    import cupy as cp

    device = cp.cuda.runtime.getDeviceProperties(0)
    cached, memory, flop_rate = copy_rate(8 << 20), copy_rate(2 << 30), tf32_rate()
    print(
        f"{device['name'].decode()}, CuPy {cp.__version__}; copies {memory / 1e12:.2f} TB/s, of "
        f"8 MB in the L2 {cached / 1e12:.2f} TB/s, products {flop_rate / 1e12:.0f} TFLOP/s\n"
    )
    print(
        "| graph | edge_index ms | csr ms | measured now | ours ms | at most | floor ms | of it | "
        "GB | at most | losses differ | |\n|" + "---|" * 12
    )
    kept = True
    for name, case in GPU_CASES.items():
        if only not in name:
            continue
        data = products_like(case.nodes, case.edges, case.width, case.classes, cp)
        cp.get_default_memory_pool().free_all_blocks()
        widths = [case.width, 32, 32, case.classes]
        gathers, flops = work_of(data, widths)
        floor = 1e3 * flops / flop_rate
        for rows, width in gathers:
            # Of the accesses, those to the most popular share s of sources are sqrt(s).
            hits = min(1.0, device["l2CacheSize"] / (4 * width * case.nodes)) ** 0.5
            floor += 4e3 * rows * width * (hits / cached + (1 - hits) / memory)
            floor += 4e3 * rows / memory
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write_case(folder, data, widths)
            del data
            now, apart = "", "not compared"
            words = ("ours", folder, ",".join(map(str, widths)), 30, "gpu")
            mine = call(sys.executable, Path(__file__), *words, threads=os.cpu_count() or 1)
            if python is not None:
                way = "csr-cached"
                peer = call(python, PEERS, "epochs", folder, way, 8, 8, "cuda", threads=8)
                now = f"{median_ms(peer):.2f}"
                difference = disagreement(mine, peer)
                apart = f"{difference:.1e}"
                kept &= difference <= LEAST_AGREEMENT
        took, size = median_ms(mine), mine["peak"] / 1e9
        good = took <= case.at_most and size <= case.gigabytes
        kept &= good
        cells = (
            name, "out of memory" if case.edge_index is None else f"{case.edge_index:g}",
            f"{case.csr:g}", now, f"{took:.2f}", f"{case.at_most:g}", f"{floor:.2f}",
            f"{floor / took:.0%}", f"{size:.2f}", f"{case.gigabytes:g}", apart,
            "kept" if good else "BROKEN",
        )  # fmt: skip
        print(f"| {' | '.join(cells)} |", flush=True)
    return kept


def copy_rate(size: int) -> float:
    """Return the bytes a second that a copy on the device reads and writes."""
    import cupy as cp

    source, target = cp.ones(size // 8, cp.float32), cp.empty(size // 8, cp.float32)
    repeats = max(10, (1 << 33) // size)
    return repeats * size / _device_seconds(lambda: cp.copyto(target, source), repeats)


def tf32_rate() -> float:
    """Return the floating point operations a second of a product in TF32."""
    import cupy as cp

    a = cp.ones((8192, 8192), cp.float32)
    out = cp.empty_like(a)
    os.environ.setdefault("CUPY_TF32", "1")
    return 20 * 2 * 8192**3 / _device_seconds(lambda: cp.matmul(a, a, out=out), 20)


def _device_seconds(work: Callable[[], Any], repeats: int) -> float:
    import cupy as cp

    work()
    start, end = cp.cuda.Event(), cp.cuda.Event()
    start.record()
    for _ in range(repeats):
        work()
    end.record()
    end.synchronize()
    return 1e-3 * float(cp.cuda.get_elapsed_time(start, end))


def main() -> int:
    """Measure what was asked for."""
    if sys.argv[1:2] == ["ours"]:
        print(json.dumps(ours(*sys.argv[2:])))
        return 0
    if sys.argv[1:2] == ["write"]:
        import cupy

        case = GPU_CASES[sys.argv[2]]
        data = products_like(case.nodes, case.edges, case.width, case.classes, cupy)
        write_graph(Path(sys.argv[3]), data, np.zeros(case.nodes, np.int8))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("speed", "accuracy"), default="speed")
    parser.add_argument("--pyg", metavar="PYTHON", help="one that has torch and torch_geometric")
    parser.add_argument("--threads", type=int, default=2, help="for ours and for PyG")
    parser.add_argument("--only", default="", metavar="TEXT", help="graphs whose name has this")
    parser.add_argument("--gpu", action="store_true", help="the four graphs of the table, on a GPU")
    parser.add_argument(
        "--peer-results", type=Path, help="keep PyG's accuracies here, and use them"
    )
    given = parser.parse_args()
    if given.gpu:
        return int(not gpu_speed(given.pyg, given.only))
    python = given.pyg or sys.executable
    if given.what == "accuracy":
        return int(not accuracy(python, given.threads, given.peer_results))
    return int(not speed(python, given.threads, given.only))


if __name__ == "__main__":
    sys.exit(main())
