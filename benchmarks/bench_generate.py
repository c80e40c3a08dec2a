"""Making graphs, compared with writing and hashing files of their size, and with NumPy.

    python -P benchmarks/bench_generate.py [--quick] [--scale 21] [--folder /scratch]

A small R-MAT graph must equal SciPy's of the naive kernels' edges, and others their options. Each
kind runs in a process, like the command. The floor is to write and hash a file of the graph's size.
The first edges that are drawn alone, on one core, must be those of the naive kernel.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import scipy.sparse as sp

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, clock, command, main, penstock

from penstock import Graph, generate
from penstock.kernels import generate_rules
from penstock.kernels.cpu import rmat as cpu
from penstock.kernels.naive import rmat as naive
from penstock.kernels.naive.scramble import scramble
from penstock.kernels.streams import Stream

SHARES = generate_rules.thresholds(0.57, 0.19, 0.19)


def small(path: Path) -> Path:
    """Make the graph that is compared with SciPy's."""
    generate("rmat", path, scale=12, weights="1,5", quiet=True, overwrite=True)
    return path


def check_small(values: dict[str, Any]) -> None:
    graph = Graph.open(values["ours"])
    graph.validate()
    names = scramble(0, Stream.RMAT_SCRAMBLE, 0, 4096, 4096)
    u, v = naive.edges(0, 12, SHARES, 0, 16 << 12, names)
    u, v = u[u != v], v[u != v]
    ends = np.concatenate([u, v]), np.concatenate([v, u])
    truth = sp.csr_matrix((np.ones(len(ends[0])), ends), shape=(4096, 4096))
    kept = np.flatnonzero(np.diff(truth.indptr))
    truth, csr = truth[kept][:, kept], graph.csr()
    assert np.array_equal(csr.indptr, truth.indptr)
    assert np.array_equal(csr.indices, truth.indices)
    assert np.array_equal(graph.user_ids(), kept)
    drawn = naive.weights(0, kept[csr.sources()], kept[csr.indices], 1, 5, ordered=False)
    assert np.array_equal(csr.weights, drawn)


def made(kind: str, out: Path, options: dict[str, Any]) -> Timed:
    """Run the command; return the graph and its peak of memory."""
    words = [w for name, value in options.items() for w in (f"--{name.replace('_', '-')}", value)]
    run = command(penstock("generate", kind, out, "-q", "--overwrite", *words))
    return Timed(run.seconds, (out, run.value.together))


def check(options: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Raise unless the graph is valid, and as large as was asked for."""
    path, peak = values["ours"]
    if options.get("format") == "parquet":
        edges = sum(pq.ParquetFile(f).metadata.num_rows for f in path.glob("*.parquet"))
        assert edges == round(options["edge_factor"] * 2 ** options["scale"])
        pq.read_table(path)
        return {"edges": edges, "GB at most": peak / 1e9}
    graph = Graph.open(path)
    graph.validate()
    asked = {"nodes": graph.num_nodes, "entities": graph.num_nodes, "graphs": graph.manifest.graphs}
    for name, found in asked.items():
        assert name not in options or found == options[name]
    if "scale" in options:
        assert 0.4 * 2 ** options["scale"] < graph.num_nodes <= 2 ** options["scale"]
    return {"nodes": graph.num_nodes, "edges": graph.num_edges, "GB at most": peak / 1e9}


def written(folder: Path, path: Path) -> Timed:
    """Hash and write as many bytes as a graph has."""
    block, digest = np.random.default_rng(0).bytes(1 << 20), hashlib.sha256()
    size = sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    begun = clock()
    with (folder / "plain").open("wb") as file:
        for _ in range(max(size >> 20, 1)):
            digest.update(block)
            file.write(block)
    return Timed(clock() - begun)


def drawn(count: int) -> list[np.ndarray]:
    """Draw edges of scale 22; return the first."""
    return [each[:10_000].copy() for each in cpu.edges(0, 22, SHARES, 0, count)]


def check_drawn(values: dict[str, Any]) -> None:
    np.testing.assert_array_equal(values["ours"], naive.edges(0, 22, SHARES, 0, 10_000))


def cases(given: argparse.Namespace) -> Iterator[Case]:
    folder, scale = given.scratch, given.scale
    yield Case("R-MAT 12, like SciPy's", partial(small, folder / "small"), check_small)
    many = 1 << 23
    yield Case("edges alone", partial(drawn, many), check_drawn, work=(many, "edges"))
    size = {"scale": scale, "edge_factor": 100e6 / 2**22}
    part = 2.0 ** (scale - 22)
    # A graph, and the share of its floor: measured at scale 21, and at 16, where the start counts.
    kinds: dict[str, tuple[str, dict[str, Any], tuple[float, float]]] = {
        "weights, relations": (
            "rmat",
            {"scale": scale, "weights": "1,5", "relations": 5},
            (0.23, 0.022),
        ),
        "R-MAT": ("rmat", size, (0.11, 0.011)),
        "Parquet": ("rmat", size | {"format": "parquet"}, (0.136, 0.007)),
        "in 1.5 GB": ("rmat", size | {"memory": "1.5GB"}, (0.107, 0.012)),
        "SBM": ("sbm", {"nodes": int(1e6 * part)}, (0.131, 0.0055)),
        "knowledge graph": (
            "kg",
            {"entities": int(1e6 * part), "triples": int(2e7 * part), "relations": 100},
            (0.038, 0.0028),
        ),
        "zoo": ("zoo", {"graphs": int(20_000 * part)}, (0.147, 0.0062)),
    }
    for name, (kind, options, shares) in kinds.items():
        out = folder / "g"
        floor = Side(partial(written, folder, out), *shares, floor=True)
        yield Case(
            f"{name}, scale {scale}" if "scale" in options else name,
            partial(made, kind, out, options),
            partial(check, options),
            {"writing": floor},
        )


if __name__ == "__main__":
    sys.exit(main(__doc__, cases, Option("--scale", 21, 16, "of R-MAT; others in proportion")))
