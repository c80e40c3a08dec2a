"""The table of bench_gnn.py on CPUs: epochs and peak memory of Penstock and of PyG's ways."""

import os
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from gnn_floor import cores_floor_ms, work_of
from gnn_graphs import Data, cora, cora_like, products_like, write_case
from gnn_sides import BENCH, LEAST_AGREEMENT, PEERS, call, disagreement, median_ms, versions


@dataclass(frozen=True)
class Case:
    """A timed case, and its required speed relative to PyG's ways."""

    name: str
    make: Callable[[], Data]
    hidden: tuple[int, ...] = (32, 32)
    epochs: int = 10
    peer_epochs: int = 4
    ways: tuple[str, ...] = ("edge_index", "edge_index-cached", "csr", "csr-cached")
    faster: dict[str, float] = field(default_factory=dict)
    smaller: float | None = None  # than edge_index


SPARSE = {
    "epochs": 100,
    "peer_epochs": 8,
    "ways": ("edge_index", "edge_index-cached", "csr-cached", "csr-cached-sparse"),
}
CORA_16 = 16 * 2708, 16 * 5278  # nodes and edges
CASES = (
    Case(
        "products-like / 16",
        lambda: products_like(153_064, 7_731_250, 100, 47),
        faster={"edge_index": 15, "csr": 5},
        smaller=5,
    ),
    Case("Cora, 2 layers of 64", cora, hidden=(64,), **SPARSE),
    Case("Cora, 3 layers", cora, **SPARSE, faster={"edge_index": 20}),
    Case(
        "Cora x 16, 2 layers of 64", lambda: cora_like(*CORA_16, 1433, 18), hidden=(64,), **SPARSE
    ),
    Case(
        "Cora x 16, 3 layers",
        lambda: cora_like(*CORA_16, 1433, 18),
        **SPARSE,
        faster={"edge_index": 20},
    ),
    Case(
        "the same, 2,879 features of which 50",
        lambda: cora_like(*CORA_16, 2879, 50),
        **SPARSE,
        faster={"edge_index": 20},
    ),
    Case(
        "as large as CoraFull, 2 layers of 64",
        lambda: cora_like(19_793, 63_421, 8710, 57, 70),
        hidden=(64,),
        **SPARSE,
        faster={"edge_index": 20},
    ),
)


def speed(python: str, threads: int, only: str) -> bool:
    """Print the times of epochs on CPUs; return whether the promises are kept."""
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, {threads} threads, Python "
        f"{platform.python_version()}, NumPy {np.__version__}; peer: {versions(python)}"
    )
    kept = True
    for case in CASES:
        if only in case.name:
            kept &= speed_of(case, python, threads)
    return kept


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
        theirs = {}
        for way in case.ways:
            words = ("epochs", folder, way, case.peer_epochs, threads, "cpu")
            theirs[way] = call(python, PEERS, *words, threads=threads)
        words = ("ours", folder, ",".join(map(str, widths)), case.epochs, "cpu")
        mine = call(sys.executable, BENCH, *words, threads=threads)
    floor, own = cores_floor_ms(work_of(data, widths), threads), median_ms(mine)
    apart = max(disagreement(mine, found) for found in theirs.values())
    print("\n| | epoch ms | times ours | peak MB | of which imported | times ours |")
    print("|---|---|---|---|---|---|")
    for way, found in [*theirs.items(), ("ours", mine)]:
        convs = (
            way,
            f"{median_ms(found):,.4g}" if median_ms(found) < 1000 else f"{median_ms(found):,.0f}",
            f"{median_ms(found) / own:.1f}",
            f"{found['peak'] / 1e6:,.0f}",
            f"{found['imported'] / 1e6:,.0f}",
            f"{found['peak'] / mine['peak']:.1f}",
        )
        print(f"| {' | '.join(convs)} |", flush=True)
    print(
        f"\nlosses differ by {apart:.1e} at most; floor {floor:.3g} ms, {floor / own:.0%} of it; "
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
