"""Speed of making graphs, compared with the limits of the machine's cores and disk.

    python benchmarks/bench_generate.py [--scale 22] [--folder /scratch]

First a small graph of each kind is compared with an independent construction from the naive kernels
(or with its options); nothing is timed if one differs. Each kind then runs in a separate process,
like the command, with cached kernels; the peak is that process's largest resident memory. Ceilings:
a file of the graph's size is written and hashed alone, and edges are drawn alone on one core.
"""

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from penstock import Graph, generate
from penstock.kernels import generate_rules
from penstock.kernels.cpu import rmat as cpu
from penstock.kernels.naive import rmat as naive
from penstock.kernels.naive.scramble import scramble
from penstock.kernels.streams import Stream

CHILD = """
import json, resource, sys
from penstock import generate
kind, out, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
report = generate(kind, out, quiet=True, **options).to_dict()
report["peak"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps(report))
"""


def check(folder: Path) -> None:
    """Compare a small R-MAT graph with SciPy's, and check the others."""
    generate("rmat", folder / "c", scale=12, weights="1,5", quiet=True)
    graph = Graph.open(folder / "c")
    names = scramble(0, Stream.RMAT_SCRAMBLE, 0, 4096, 4096)
    u, v = naive.edges(0, 12, generate_rules.thresholds(0.57, 0.19, 0.19), 0, 16 << 12, names)
    u, v = u[u != v], v[u != v]
    ends = np.concatenate([u, v]), np.concatenate([v, u])
    truth = sp.csr_matrix((np.ones(len(ends[0])), ends), shape=(4096, 4096))
    kept = np.flatnonzero(np.diff(truth.indptr))
    truth = truth[kept][:, kept]
    csr = graph.csr()
    same = [
        np.array_equal(csr.indptr, truth.indptr),
        np.array_equal(csr.indices, truth.indices),
        np.array_equal(graph.user_ids(), kept),
        np.array_equal(
            csr.weights,
            naive.weights(0, kept[csr.sources()], kept[csr.indices], 1, 5, ordered=False),
        ),
    ]
    for kind in ("sbm", "kg", "zoo"):
        generate(kind, folder / kind, quiet=True, **({"graphs": 50} if kind == "zoo" else {}))
        Graph.open(folder / kind).validate()
    degree = Graph.open(folder / "sbm").degrees.mean()
    same.append(abs(degree - 16) < 0.3)
    if not all(same):
        raise SystemExit(f"generated graphs are wrong: {same}")
    print("checked: R-MAT equals SciPy's graph of the naive edges; the others are valid\n")


def timed(kind: str, folder: Path, **options: object) -> dict[str, float]:
    """Make a graph in a process of its own and return its report."""
    import json

    out = folder / "g"
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-P", "-c", CHILD, kind, str(out), json.dumps(options)],
        check=True,
        capture_output=True,
        text=True,
    )
    report: dict[str, float] = json.loads(done.stdout)
    report["process"] = time.perf_counter() - start
    shutil.rmtree(out)
    return report


def write_alone(folder: Path, size: int) -> float:
    """Return the seconds that hashing and writing ``size`` bytes takes."""
    block = np.random.default_rng(0).bytes(1 << 24)
    start = time.perf_counter()
    digest = hashlib.sha256()
    with (folder / "plain").open("wb") as file:
        for _ in range(size >> 24):
            digest.update(block)
            file.write(block)
    seconds = time.perf_counter() - start
    (folder / "plain").unlink()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", type=int, default=22, help="of the R-MAT graphs (default 22)")
    parser.add_argument("--folder", default=None, help="output folder (default: a temporary one)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        check(folder)
        scale = arguments.scale
        hundred = 100e6 / 2**22  # edges for each node: 100 M at scale 22
        runs = {
            f"R-MAT {scale}, factor 16, weights, relations": (
                "rmat",
                {"scale": scale, "weights": "1,5", "relations": 5},
            ),
            f"R-MAT {scale}, factor {hundred:.1f}": (
                "rmat",
                {"scale": scale, "edge_factor": hundred},
            ),
            "the same, directed": (
                "rmat",
                {"scale": scale, "edge_factor": hundred, "undirected": False},
            ),
            "the same, Parquet": (
                "rmat",
                {"scale": scale, "edge_factor": hundred, "format": "parquet"},
            ),
            "the same graph in 1.5 GB": (
                "rmat",
                {"scale": scale, "edge_factor": hundred, "memory": "1.5GB"},
            ),
            "SBM, 1 M nodes, 64 features": ("sbm", {"nodes": 1_000_000}),
            "knowledge graph, 1 M entities, 20 M triples": (
                "kg",
                {"entities": 1_000_000, "triples": 20_000_000, "relations": 100},
            ),
            "zoo, 20,000 graphs": ("zoo", {"graphs": 20_000}),
        }
        print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}\n")
        print("| graph | nodes | drawn | stored | s | M drawn/s | peak GB | written GB | alone s |")
        print("|---|---|---|---|---|---|---|---|---|")
        for title, (kind, options) in runs.items():
            report = timed(kind, folder, **options)
            alone = write_alone(folder, int(report["bytes"]))
            print(
                f"| {title} | {report['nodes']:,} | {report['drawn']:,} | {report['edges']:,} "
                f"| {report['process']:.1f} | {report['drawn'] / report['process'] / 1e6:.1f} "
                f"| {report['peak'] / 1e9:.2f} | {report['bytes'] / 1e9:.2f} | {alone:.1f} |",
                flush=True,
            )
        draw_alone()


def draw_alone() -> None:
    """Print what drawing an edge costs on one core, in NumPy and in Numba."""
    shares = generate_rules.thresholds(0.57, 0.19, 0.19)
    cost = {}
    for name, module, count in (("NumPy", naive, 1 << 18), ("Numba", cpu, 1 << 23)):
        module.edges(0, 22, shares, 0, 1000)
        start = time.perf_counter()
        module.edges(0, 22, shares, 0, count)
        cost[name] = (time.perf_counter() - start) / count * 1e9
    print(
        f"\nan edge of scale 22, one core: NumPy {cost['NumPy']:.0f} ns, "
        f"Numba {cost['Numba']:.1f} ns, {cost['NumPy'] / cost['Numba']:.0f} times as fast"
    )


if __name__ == "__main__":
    main()
