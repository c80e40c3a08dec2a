"""How long it takes until a command begins to work: import, help, and opening a graph.

    python benchmarks/bench_startup.py [--gigabytes 1]

Each figure is the best of several fresh processes with compiled bytecode, the interpreter's own
start included where it says process.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from penstock.csr import CSR
from penstock.graph import Graph
from penstock.writer import create_graph

ROUNDS = 10


def process(*arguments: str) -> float:
    """Return the seconds of a whole process."""
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as cwd:
        subprocess.run(
            [sys.executable, *arguments], cwd=cwd, env=env, check=True, stdout=subprocess.DEVNULL
        )
    return time.perf_counter() - start


def write_graph(path: Path, size: int) -> Graph:
    """Write a graph of about ``size`` bytes: a ring with many chords."""
    nodes = 1 << 20
    degree = max(1, size // (4 * nodes))
    steps = np.arange(1, degree + 1, dtype=np.int64)
    indices = (np.arange(nodes, dtype=np.int64)[:, None] + steps) % nodes
    indices.sort(axis=1)
    indptr = np.arange(nodes + 1, dtype=np.int64) * degree
    with create_graph(path) as writer:
        writer.edges(CSR(indptr, indices.ravel().astype(np.int32)))
        writer.nodes()
    return Graph.open(path)


def check(graph: Graph) -> None:
    """Check that what is opened is what was written."""
    first, degree = graph.shard(0), graph.num_edges // graph.num_nodes
    assert np.array_equal(first.indices[:degree], np.arange(1, degree + 1))
    assert isinstance(first.indices, np.memmap)


def best(measure) -> float:
    return min(measure() for _ in range(ROUNDS))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=1.0)
    size = int(parser.parse_args().gigabytes * 1e9)
    help_page = subprocess.run(
        [sys.executable, "-m", "penstock", "--help"],
        check=True,
        text=True,
        cwd=tempfile.gettempdir(),
        capture_output=True,
    ).stdout
    assert "partition" in help_page
    rows = [
        ("python -c pass, process", None, best(lambda: process("-c", "pass"))),
        ("import penstock, process", 0.150, best(lambda: process("-c", "import penstock"))),
        ("penstock --help, process", 0.400, best(lambda: process("-m", "penstock", "--help"))),
    ]
    with tempfile.TemporaryDirectory() as folder:
        graph = write_graph(Path(folder) / "g", size)
        check(graph)

        def open_graph() -> float:
            start = time.perf_counter()
            Graph.open(graph.path).shard(0)
            return time.perf_counter() - start

        rows.append((f"open and map {size / 1e9:g} GB", None, best(open_graph)))
        start = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "penstock", "info", "-q", str(graph.path)],
            cwd=folder,
            check=True,
        )
        rows.append((f"penstock info, {size / 1e9:g} GB", None, time.perf_counter() - start))
    print(f"| what | best of {ROUNDS} | promised |\n|---|---|---|")
    for name, limit, seconds in rows:
        promised = "" if limit is None else f"< {limit * 1000:.0f} ms"
        print(f"| {name} | {seconds * 1000:.1f} ms | {promised} |")


if __name__ == "__main__":
    main()
