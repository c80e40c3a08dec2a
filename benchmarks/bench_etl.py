"""ETL against a Polars script, on the same cores, from Parquet to CSR on disk.

    python benchmarks/bench_etl.py                   50 M edges, both, and the ratio
    python benchmarks/bench_etl.py --texts           2 M edges whose ids are texts, in one file
    python benchmarks/bench_etl.py --out-of-core     100 M edges, two workers of 1.5 GB

Polars runs its lazy API on its streaming engine, which is faster than the eager one. Both read the
same Parquet files, drop self loops, store every edge in both directions, merge duplicates, number
the nodes 0, 1, ... in the order of their ids, and write indptr and indices as .npy and the ids as
Parquet. Penstock runs like the command, start of the workers included, and also checksums every
file. The two graphs must be equal before any time is printed. Peak memory is the largest sum of
resident memory over a run's processes, and each worker's own peak; the floor is the time of only
reading the input and writing the result.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import psutil

PENSTOCK = [sys.executable, "-P", "-m", "penstock"]
PEER = """
import sys
import numpy as np, polars as pl
source, out = sys.argv[1:]
edges = pl.scan_parquet(source + "/*.parquet").select("src", "dst")
edges = edges.filter(pl.col("src") != pl.col("dst"))
ids = pl.concat([edges.select(id="src"), edges.select(id="dst")]).unique().sort("id")
ids = ids.with_row_index("new").collect(engine="streaming")
names = ids.lazy()
edges = (
    edges.join(names, left_on="src", right_on="id").rename({"new": "u"})
    .join(names, left_on="dst", right_on="id").rename({"new": "v"})
    .select("u", "v")
)
edges = pl.concat([edges, edges.select(u="v", v="u")]).unique().sort("u", "v")
edges = edges.collect(engine="streaming")
degrees = np.bincount(edges["u"].to_numpy(), minlength=len(ids))
np.save(out + "/indptr.npy", np.append(0, np.cumsum(degrees)))
np.save(out + "/indices.npy", edges["v"].to_numpy().astype(np.int32))
ids.write_parquet(out + "/nodes.parquet")
"""
TEXTS = 2_000_000  # edges, of at most half a million nodes


@dataclass
class Run:
    seconds: float = 0.0
    peak: int = 0  # of all processes together
    peaks: dict[int, int] = field(default_factory=dict)  # of each process


def measure(command: list[str]) -> Run:
    """Run a command to its end; if it fails, raise its message."""
    run, start = Run(), time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while process.poll() is None:
        total = 0
        try:
            family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(True)]
            for member in family:
                resident = member.memory_info().rss
                total += resident
                run.peaks[member.pid] = max(run.peaks.get(member.pid, 0), resident)
        except psutil.NoSuchProcess:
            pass
        run.peak = max(run.peak, total)
        time.sleep(0.05)
    run.seconds = time.monotonic() - start
    if process.returncode:
        assert process.stderr is not None
        sys.exit(process.stderr.read().decode())
    return run


def middle(runs: list[Run]) -> Run:
    return sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]


def etl(source: Path, out: Path, *options: str) -> Run:
    command = [*PENSTOCK, "etl", source, out, "-q", "--overwrite", "-n", "2", *options]
    return measure([str(word) for word in command])


def same_graph(ours: Path, theirs: Path) -> None:
    from penstock import Graph

    graph = Graph.open(ours)
    graph.validate()
    csr = graph.csr()
    np.testing.assert_array_equal(csr.indptr, np.load(theirs / "indptr.npy"))
    np.testing.assert_array_equal(csr.indices, np.load(theirs / "indices.npy", mmap_mode="r"))


def floor(source: Path, graph: Path) -> float:
    """Seconds to just read the two columns and to write and hash the graph's bytes, on one core."""
    import pyarrow.parquet as pq

    from penstock.files import save_npy

    size = sum(p.stat().st_size for p in graph.rglob("*") if p.is_file())
    result = np.ones(size, np.uint8)
    start = time.monotonic()
    for path in sorted(source.rglob("*.parquet")):
        pq.read_table(path, columns=["src", "dst"], use_threads=False)
    save_npy(graph.parent, "floor.npy", result)
    return time.monotonic() - start


def rmat(folder: Path, edges: int, scale: int) -> Path:
    """Write the input: a Parquet dataset of R-MAT edges, ids as 64-bit integers."""
    out = folder / "edges"
    factor = edges / 2**scale
    sizes = ["--scale", str(scale), "--edge-factor", str(factor)]
    command = [*PENSTOCK, "generate", "rmat", *sizes, "--format", "parquet", "-q", str(out)]
    subprocess.run(command, check=True)
    return out


def texts(folder: Path) -> Path:
    """Write the input: a Parquet file of edges whose ids are texts, some of them frequent."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    random, nodes = np.random.default_rng(0), 500_000
    ends = random.integers(0, nodes, TEXTS), random.zipf(1.3, TEXTS) % nodes
    src, dst = (pa.array([f"user-{number:07d}" for number in end]) for end in ends)
    out = folder / "edges"
    out.mkdir()
    pq.write_table(pa.table({"src": src, "dst": dst}), out / "edges.parquet")
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edges", type=float, default=None)
    parser.add_argument("--scale", type=int, default=None)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out-of-core", action="store_true")
    parser.add_argument("--texts", action="store_true", help="2 M edges whose ids are texts")
    parser.add_argument(
        "--folder", type=Path, default=None, help="folder of files [a temporary one]"
    )
    options = parser.parse_args()
    count = int(options.edges or (100e6 if options.out_of_core else 50e6))
    scale = options.scale or (23 if options.out_of_core else 22)
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        if options.texts:
            count, source, kind = TEXTS, texts(folder), "ids of 12 characters"
        else:
            source, kind = rmat(folder, count, scale), f"R-MAT scale {scale}"
        size = sum(p.stat().st_size for p in source.rglob("*.parquet"))
        print(f"{kind}, {count:,} edges, {size / 1e6:,.0f} MB of Parquet")
        etl(source, folder / "ours")  # compiles the kernels if they are not cached yet
        if options.out_of_core:
            run = etl(source, folder / "ours", "--memory-limit", "1.5GB")
            print(
                f"two workers of 1.5 GB: {run.seconds:.1f} s, "
                f"{count / run.seconds / 1e6:.2f} M edges/s"
            )
            print(
                "peak of each process:",
                ", ".join(f"{peak / 1e6:,.0f} MB" for peak in sorted(run.peaks.values())),
            )
            if max(run.peaks.values()) > 1.5e9:
                sys.exit("a process used more than its limit")
            return
        theirs = folder / "theirs"
        theirs.mkdir()
        polars = [sys.executable, "-c", PEER, str(source), str(theirs)]
        peer = middle([measure(polars) for _ in range(options.repeat if options.texts else 1)])
        same_graph(folder / "ours", theirs)
        found = {"polars": peer}
        for kind in ("threads", "local"):
            runs = [etl(source, folder / "ours", "--cluster", kind) for _ in range(options.repeat)]
            same_graph(folder / "ours", theirs)
            found[f"penstock etl, {kind}"] = middle(runs)
        for label, run in found.items():
            print(
                f"{label:22}{run.seconds:8.2f} s {count / run.seconds / 1e6:8.2f} M edges/s "
                f"{run.peak / 1e9:8.2f} GB at most {peer.seconds / run.seconds:8.2f} x"
            )
        print(
            f"{'floor':22}{floor(source, folder / 'ours') / 2:8.1f} s to read the columns and to "
            "write and hash the result, on two cores"
        )


if __name__ == "__main__":
    main()
