"""The speed of this machine at a plan's operations: measured once, and kept in a file."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.caches import cache_folder
from penstock.errors import PenstockError
from penstock.files import save_json
from penstock.kernels import kernel
from penstock.kernels.gnn_rules import ScaledCSR
from penstock.limits import cores
from penstock.workers.gnn.cuda_graph import own_stream
from penstock.workers.gnn.thread_pool import ThreadPool, edge_cuts
from penstock.workers.resources.device import to_device

_VERSION = 2


@dataclass(frozen=True)
class Rates:
    """Rates that give seconds; tau is the sparsity from which sparse features are faster.

    dense, sparse  floating point operations per second of products with dense and sparse features
    gather         bytes of neighbours' rows per second
    stream         bytes read or written in order per second
    exchange       bytes per second between ranks, and latency in seconds per message
    """

    dense: float
    sparse: float
    gather: float
    stream: float
    exchange: float = 2e9
    latency: float = 50e-6

    @property
    def tau(self) -> float:
        """The threshold of algorithm 1: 1 - sparse / dense."""
        return min(max(1 - self.sparse / self.dense, 0.0), 0.999)


# Of two cores, and of one H200. What is between ranks is not measured.
GUESS = {
    "cpu": Rates(1e11, 2e10, 1.5e10, 1e10),
    "gpu": Rates(3e13, 6e12, 4e12, 3.5e12, 3e11, 20e-6),
}


def machine_rates(device: str = "cpu") -> Rates:
    """Return this machine's rates, measured now if needed; ``device`` is cpu or gpu."""
    path = _path(device)
    try:
        found = {} if path is None else json.loads(path.read_bytes())
        if found.pop("version") == _VERSION:
            return Rates(**found)
    except (OSError, ValueError, TypeError, KeyError):
        pass  # missing, or of another version: measure again
    # On the training stream: cuBLAS keeps a workspace of 16 MiB per stream.
    with own_stream(active=device == "gpu"):
        rates = _measured(device)
    if device == "gpu":
        import cupy

        cupy.get_default_memory_pool().free_all_blocks()
    try:
        if path is not None:  # without a folder it is measured in each run, for a second
            save_json(path, {"version": _VERSION, **asdict(rates)})
    except (OSError, PenstockError):
        pass
    return rates


def _path(device: str) -> Path | None:
    folder = cache_folder()
    name = f"gnn-rates-{platform.node()}-{device}-{cores()}.json"
    return None if folder is None else folder / name


def _measured(device: str) -> Rates:
    """Measure this machine: about a second."""
    put = to_device if device == "gpu" else np.asarray
    rng = np.random.default_rng(0)
    rows, features, width = 1 << 14, 512, 32
    x = put(rng.random((rows, features), np.float32))
    weight = put(rng.random((features, width), np.float32))
    out = put(np.zeros((rows, width), np.float32))
    with ThreadPool(1 if device == "gpu" else cores()) as pool:
        dense = _seconds(lambda: pool.product(x, weight, out), out)
        # One value in twenty, like bags of words, and random neighbours.
        sparse = _random_block(rng, rows, features, features // 20, put, weighted=True)
        product = _gathering(pool, sparse, weight, out)
        wide = 1 << 17
        graph = _random_block(rng, wide, wide, 16, put, weighted=False)
        values = put(rng.random((wide, width), np.float32))
        sums = put(np.zeros((wide, width), np.float32))
        gathered = _gathering(pool, graph, values, sums)
    streamed = _seconds(lambda: np.multiply(values, 1.5, out=sums), sums)
    return Rates(
        dense=2 * rows * features * width / dense,
        sparse=2 * sparse.edges * width / product,
        gather=graph.edges * width * 4 / gathered,
        stream=2 * values.nbytes / streamed,
        exchange=GUESS[device].exchange,
        latency=GUESS[device].latency,
    )


def _random_block(
    rng: np.random.Generator,
    rows: int,
    columns: int,
    degree: int,
    put: Callable[[Array], AnyArray],
    *,
    weighted: bool,
) -> ScaledCSR:
    indices = np.sort(rng.integers(0, columns, (rows, degree)), axis=1).astype(np.int32).ravel()
    weights = put(rng.random(rows * degree, np.float32)) if weighted else None
    indptr = np.arange(0, rows * degree + 1, degree, dtype=np.int64)
    return ScaledCSR(put(indptr), put(indices), columns, weights)


def _gathering(pool: ThreadPool, block: ScaledCSR, x: AnyArray, out: AnyArray) -> float:
    module, on_gpu = kernel("aggregate", x), not isinstance(x, np.ndarray)
    cuts = [0, block.rows] if on_gpu else edge_cuts(block.indptr, 0, block.rows, x.shape[1])
    return _seconds(lambda: pool.over(cuts, lambda a, b: module.gather(block, x, out, a, b)), out)


def _seconds(work: Callable[[], object], out: AnyArray) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        work()
        if not isinstance(out, np.ndarray):
            out.ravel()[:1].get()  # waits for the GPU
        times.append(time.perf_counter() - start)
    return max(min(times), 1e-9)
