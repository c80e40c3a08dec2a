"""Speed of training GNNs on one device, compared with PyG and the floor, and their accuracy.

    python -P benchmarks/bench_gnn.py --pyg VENV/bin/python [--threads 2]      on CPUs
    python -P benchmarks/bench_gnn.py accuracy --pyg VENV/bin/python           Cora, ten seeds
    python -P benchmarks/bench_gnn.py --gpu [--pyg PYTHON] [--ways csr,...]    on one GPU
        [--precision bf16] [--no-cuda-graph]
    python -P benchmarks/bench_gnn.py write amazon-like GRAPH                  only make a graph

An epoch is forward, backward and Adam's update on the whole graph, of a GCN with ReLU and biases.
Each side trains in a separate process, one after the other, from the same arrays and the same first
weights; times count only if the losses of the first epochs agree. Times are medians without the
first epoch. The peak is that of the process, Python and libraries included (on GPUs: of the pool of
CuPy or torch). On CPUs all of PyG's ways are timed, also with normalisation once ("cached"), and
the fastest counts; on a GPU those of --ways. The exit code is 1 if a promise is broken. Cora is
read from PENSTOCK_DATA. --pyg names a Python with torch and torch_geometric.

The floor is the least time of gathered rows, indices and products at rates measured first. On a
GPU, rows come from the L2 or from memory, by the power law of the sources, and products run at the
rate of TF32 or of their operands in memory, whichever is slower. Elementwise passes are not
counted. A gather can beat its floor, because the L1 serves some rows.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

# python -P leaves out the script's folder, which has the modules of this benchmark.
sys.path.insert(0, str(Path(__file__).resolve().parent))

from gnn_accuracy import accuracy
from gnn_cores import speed
from gnn_gpu import GPU_CASES, WAYS, gpu_speed
from gnn_graphs import write_graph
from gnn_sides import ours


def main() -> int:
    """Run the requested measurement."""
    if sys.argv[1:2] == ["ours"]:
        print(json.dumps(ours(*sys.argv[2:])))
        return 0
    if sys.argv[1:2] == ["write"]:
        case = GPU_CASES[sys.argv[2]]
        write_graph(Path(sys.argv[3]), case.make(), np.zeros(case.nodes, np.int8))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("speed", "accuracy"), default="speed")
    parser.add_argument("--pyg", metavar="PYTHON", help="a Python with torch and torch_geometric")
    parser.add_argument("--threads", type=int, default=2, help="for Penstock and for PyG")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="graphs whose name contains this"
    )
    parser.add_argument("--gpu", action="store_true", help="the four graphs of the table, on a GPU")
    parser.add_argument(
        "--ways",
        type=ways_of,
        default=("csr-cached",),
        metavar="WAY,WAY",
        help=f"how PyG is timed on a GPU: some of {', '.join(WAYS)}; csr-cached if not given",
    )
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument(
        "--no-cuda-graph", action="store_true", help="launch kernels one by one on a GPU"
    )
    parser.add_argument(
        "--peer-results", type=Path, help="keep PyG's accuracies here, and use them"
    )
    given = parser.parse_args()
    if given.gpu:
        graph = "no" if given.no_cuda_graph else "yes"
        return int(not gpu_speed(given.pyg, given.ways, given.only, given.precision, graph))
    python = given.pyg or sys.executable
    if given.what == "accuracy":
        return int(not accuracy(python, given.threads, given.peer_results))
    return int(not speed(python, given.threads, given.only))


def ways_of(text: str) -> tuple[str, ...]:
    """Return the ways of a list with commas."""
    ways = tuple(text.split(","))
    for way in ways:
        if way not in WAYS:
            raise argparse.ArgumentTypeError(f"no way of PyG: {way!r}; there are {', '.join(WAYS)}")
    return ways


if __name__ == "__main__":
    sys.exit(main())
