"""The hidden share of the communication of two hosts, over links of several rates.

    python -P benchmarks/bench_gnn_link.py [--rates 1gbit,10gbit] [--outside 0.005,0.02]

Two hosts are two sets of namespaces of this machine, joined by a bridge whose ports are shaped with
tc tbf, as in tests/netns; this needs root, and two cores, one per host. Ranks exchange by MPI
messages. Graph and model are those of bench_gnn_distributed.py, which compares curves. The hidden
share is that of penstock gnn train --measure-overlap (see docs/gnn.md); medians, quartiles in
brackets.
"""

import argparse
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from penstock import partition_graph

sys.path.insert(0, str(Path(__file__).resolve().parent))
from bench_gnn_distributed import make_graph, quartiles

HARNESS = Path(__file__).parent.parent / "tests/netns/conftest.py"
TRAIN = (sys.executable, "-P", "-m", "penstock", "gnn", "train")
WORDS = "--layers 3 --hidden 32 --dropout 0 --epochs 12 --evaluate-every 12 --json -k 2"
WHERE = "--cluster mpi -n 2 --hosts h1:1,h2:1 --interface eth0"


def load_hosts():
    """Return the class Hosts of the tests."""
    about = importlib.util.spec_from_file_location("hosts", HARNESS)
    module = importlib.util.module_from_spec(about)
    about.loader.exec_module(module)
    return module.Hosts


def train(hosts, graph, run, rounds):
    """Train on both hosts; return the measurements."""
    done = hosts.run(
        "h1",
        [*TRAIN, graph, run, *WORDS.split(), *WHERE.split(), "--measure-overlap", rounds],
        env={**os.environ, "PENSTOCK_LAUNCH_AGENT": hosts.agent},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = done.communicate()
    if done.returncode:
        sys.exit(err)
    return json.loads(out)["overlap"]


def main():
    """Run the requested measurement."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rates", default="1gbit,10gbit", help="of the links, as tc writes them")
    parser.add_argument("--outside", default="0.005,0.02", help="shares of edges to other blocks")
    parser.add_argument("--nodes", type=int, default=153_064)
    parser.add_argument("--rounds", type=int, default=15)
    given = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    print(
        "| edges to other blocks | ghosts per node | link | epoch ms | communication left out ms | "
        "exposed ms | whole ms | hidden |\n|" + "---|" * 8,
        flush=True,
    )
    for share in map(float, given.outside.split(",")):
        with tempfile.TemporaryDirectory() as name, load_hosts()(2) as hosts:
            folder = Path(name)
            graph = make_graph(folder / "g", share, given.nodes)
            partition_graph(graph, k=2, quiet=True)
            about = json.loads((graph.path / "partition/k2/partition.json").read_text())
            ghosts = sum(part["ghosts"] for part in about["parts"]) / graph.num_nodes
            hosts.divide_cores()
            hosts.prefer()
            for rate in given.rates.split(","):
                for host in hosts.names:
                    hosts.shape(host, rate)
                found = train(hosts, graph.path, folder / rate, given.rounds)
                assert found["transport"] == {"rows": "MPI messages", "sums": "MPI messages"}
                times = [
                    quartiles([1e3 * value for value in found[name]], ".1f")
                    for name in ("usual", "left_out", "exposed", "whole")
                ]
                hidden = found["hidden"]
                times.append("too little to tell" if hidden is None else quartiles(hidden, ".0%"))
                cells = [f"{share:.1%}", f"{ghosts:.2f}", rate, *times]
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
