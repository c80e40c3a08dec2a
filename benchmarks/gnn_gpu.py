"""The table of bench_gnn.py on one GPU: epochs and memory of Penstock and PyG, and the floor."""

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gnn_floor import gpu_floor_ms, work_of
from gnn_graphs import Data, products_like, write_case
from gnn_rates import GpuRates, gpu_rates
from gnn_sides import BENCH, LEAST_AGREEMENT, PEERS, call, disagreement, median_ms, versions

WAYS = ("edge_index", "edge_index-cached", "csr", "csr-cached")
EPOCHS, PEER_EPOCHS = 30, 8
OUT_OF_MEMORY = "out of memory"


@dataclass(frozen=True)
class GpuCase:
    """A row of the table: sizes, PyG's measured figures, and the requirements."""

    nodes: int
    edges: int
    width: int
    classes: int
    edge_index: float | None  # milliseconds
    csr: float
    at_most: float
    gigabytes: float

    @property
    def widths(self) -> list[int]:
        """Those of the features and of all layers."""
        return [self.width, 32, 32, self.classes]

    def make(self) -> Data:
        """Draw the graph on the GPU, and free the GPU's memory."""
        import cupy as cp

        data = products_like(self.nodes, self.edges, self.width, self.classes, cp)
        cp.get_default_memory_pool().free_all_blocks()
        return data


GPU_CASES = {
    "arxiv-like": GpuCase(169_343, 2_330_000, 128, 40, 14.5, 4.65, 1.5, 0.3),
    "products-like": GpuCase(2_449_029, 123_700_000, 100, 47, 662, 180, 35, 5),
    "reddit-like": GpuCase(232_965, 114_600_000, 602, 41, 552, 117, 25, 3),
    "amazon-like": GpuCase(1_569_960, 264_300_000, 200, 107, None, 369, 70, 9),
}


def gpu_speed(
    python: str | None, ways: tuple[str, ...], only: str, precision: str, cuda_graph: str
) -> bool:
    """Print the times of epochs on a GPU; return whether the promises are kept."""
    # Before cupy is first imported, which reads it. The children do not get it: see call().
    os.environ["CUPY_TF32"] = "1"
    import cupy as cp

    rates, name = gpu_rates(), cp.cuda.runtime.getDeviceProperties(0)["name"].decode()
    peer = "" if python is None else f"; peer: {versions(python)}, the fastest of {', '.join(ways)}"
    print(
        f"{name}, CuPy {cp.__version__}{peer}\n"
        f"memory copies {rates.memory / 1e12:.2f} TB/s, read and written; of the "
        f"{rates.cache_size >> 20} MiB of L2, 8 are read at {rates.cache / 1e12:.2f} TB/s; "
        f"products in TF32 {rates.flops / 1e12:.0f} TFLOP/s\n"
        f"ours in {precision}{'' if cuda_graph == 'yes' else ', kernels launched one by one'}\n"
    )
    print(
        "| graph | edge_index ms | csr ms | measured now | ours ms | at most | floor ms | of it | "
        "GB | at most | losses differ | |\n|" + "---|" * 12,
        flush=True,
    )
    kept = True
    for title, case in GPU_CASES.items():
        if only in title:
            kept &= _row(title, case, rates, python, ways, (precision, cuda_graph))
    return kept


def _row(
    title: str,
    case: GpuCase,
    rates: GpuRates,
    python: str | None,
    ways: tuple[str, ...],
    how: tuple[str, str],
) -> bool:
    """Print the row of one graph; return whether its promises are kept."""
    data = case.make()
    floor = gpu_floor_ms(work_of(data, case.widths), rates)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_case(folder, data, case.widths)
        del data
        words = ("ours", folder, ",".join(map(str, case.widths)), EPOCHS, "gpu", *how)
        mine = call(sys.executable, BENCH, *words, threads=os.cpu_count() or 1)
        theirs = {}
        for way in ways if python is not None else ():
            words = ("epochs", folder, way, PEER_EPOCHS, 8, "cuda")
            theirs[way] = call(python, PEERS, *words, threads=8)
    now, apart, agrees = _compared(mine, theirs)
    took, size = median_ms(mine), mine["peak"] / 1e9
    good = took <= case.at_most and size <= case.gigabytes
    cells = (
        title,
        OUT_OF_MEMORY if case.edge_index is None else f"{case.edge_index:g}",
        f"{case.csr:g}",
        now,
        f"{took:.2f}",
        f"{case.at_most:g}",
        f"{floor:.2f}",
        f"{floor / took:.0%}",
        f"{size:.2f}",
        f"{case.gigabytes:g}",
        apart,
        "WRONG" if not agrees else "kept" if good else "BROKEN",
    )
    print(f"| {' | '.join(cells)} |", flush=True)
    return good and agrees


def _compared(mine: dict[str, Any], theirs: dict[str, dict[str, Any]]) -> tuple[str, str, bool]:
    """Return the fastest of PyG's ways, the difference of losses, and whether they agree."""
    if not theirs:
        return "", "not compared", True
    found = {way: one for way, one in theirs.items() if not one.get("out_of_memory")}
    if not found:
        return OUT_OF_MEMORY, "not compared", True
    fastest = min(found, key=lambda way: median_ms(found[way]))
    now = f"{median_ms(found[fastest]):.2f}"
    if len(theirs) > 1:
        now += f" ({fastest})"
    apart = max(disagreement(mine, one) for one in found.values())
    return now, f"{apart:.1e}", apart <= LEAST_AGREEMENT
