"""Training on several ranks: the same curve as on one, and the hidden share of communication.

    python -P benchmarks/bench_gnn_distributed.py [--quick] [--nodes 76532] [--epochs 12]
    python -P benchmarks/bench_gnn.py write amazon-like g
    python -P benchmarks/bench_gnn_distributed.py --graph g         on GPUs, if there are two

The graph is a block model (3.9 M edges, 100 features, 47 classes) of which a share of the edges
leads to other blocks, cut by METIS; or your own graph, cut at random. The model is a GCN of 3
layers, hidden 32. Losses must be those of one rank, epoch by epoch, within 1e-4. Rounds after the
training measure the hidden share, like --measure-overlap of penstock gnn train (see docs/gnn.md):
medians. As root, two hosts of this machine (sets of namespaces, as in tests/netns) train over links
that tc shapes."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from harness import Case, Option, Side, Timed, absent, epochs_of, gpus, main, penstock, slow
from ranks import cluster_of

from penstock import generate, gnn, partition_graph

AGREEMENT = 1e-4
DEGREE = 50.5
NOISE = 100  # of features, so that losses, compared relatively, stay far from 0
HOSTS = Path(__file__).parent.parent / "tests/netns"
WORDS = "--layers 3 --hidden 32 --dropout 0 --evaluate-every 12 --json -k 2 --overwrite"
WHERE = "--cluster mpi -n 2 --hosts h1:1,h2:1 --interface eth0"


def block_model(path: Path, outside: float, nodes: int) -> Path:
    degrees = {"degree_inside": DEGREE * (1 - outside), "degree_outside": DEGREE * outside}
    generate("sbm", path, nodes=nodes, blocks=47, width=100, noise=NOISE, quiet=True, **degrees)
    return path


def losses_of(run: Path) -> np.ndarray:
    return np.array([epoch["train"]["loss"] for epoch in epochs_of(run)])


def train(graph: Path, run: Path, ranks: int, *, on_gpu: bool, epochs: int, **more: Any) -> Timed:
    """Train; return the seconds of an epoch, all losses and the measured overlap."""
    trained = gnn.train(
        graph,
        run,
        layers=3,
        hidden=32,
        epochs=epochs,
        parts=ranks,
        evaluate_every=epochs,
        checkpoint_epochs=0,
        checkpoint_minutes=0,
        cluster=cluster_of(ranks, on_gpu=on_gpu),
        overwrite=True,
        quiet=True,
        **more,
    ).trained
    return Timed(trained.epoch_seconds, (losses_of(run), trained.overlap))


def check(values: dict[str, Any]) -> dict[str, Any]:
    (mine, overlap), (one, _) = values["ours"], values["one rank"]
    apart = float(np.max(np.abs(mine - one) / np.abs(one)))
    assert apart <= AGREEMENT, f"losses differ by {apart:.1e}"
    return {"losses differ": apart, **shown(overlap)}


def shown(overlap: Any) -> dict[str, Any]:
    """Return the medians of what was measured, if it was."""
    if not overlap:
        return {}
    figures = {f"{name} ms": 1e3 * overlap[name][1] for name in ("exposed", "whole")}
    hidden = overlap["hidden"]
    return figures | {"hidden": "too little to tell" if hidden is None else hidden[1]}


def over_link(hosts: Any, graph: Path, run: Path, rounds: int) -> Timed:
    """Train on two hosts over a link of 1 Gbit/s."""
    for host in hosts.names:
        hosts.shape(host, "1gbit")
    words = [*penstock("gnn", "train", graph, run), *WORDS.split(), *WHERE.split()]
    more = ["--epochs", "12", "--measure-overlap", str(rounds)]
    env = {**os.environ, "PENSTOCK_LAUNCH_AGENT": hosts.agent}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    done = hosts.run("h1", [*words, *more], env=env, **pipes)
    out, err = done.communicate()
    if done.returncode:
        raise RuntimeError(err)
    overlap = json.loads(out)["overlap"]
    assert overlap["transport"] == "MPI messages"
    return Timed(overlap["usual"][1], (losses_of(run), overlap))


def root() -> str | None:
    return None if os.geteuid() == 0 else "needs root, for namespaces"


def cases(given: argparse.Namespace) -> Iterator[Case]:
    folder, on_gpu = given.scratch, gpus(2)() is None
    if given.gpu and not on_gpu:
        yield absent("two ranks", "needs 2 GPUs")
        return
    graphs = {"your graph": Path(given.graph)} if given.graph else {}
    for share in [] if given.graph else given.outside:
        name = f"{share:.1%} of edges to other blocks"
        graphs[name] = block_model(folder / f"g{share}", share, given.nodes)
    counts = [2, 4] if gpus(4)() is None else [2]
    # Measured on GPUs with the graph like AmazonProducts, and on cores with as many threads in all.
    faster = {2: 1.0} if not on_gpu else {2: 2.06, 4: 3.0} if given.graph else {}
    for name, graph in graphs.items():
        how = {"on_gpu": on_gpu, "epochs": given.epochs}
        for ranks in counts:
            method = "random" if given.graph else "auto"
            partition_graph(graph, k=ranks, method=method, quiet=True, overwrite=True)
        for dropout in (0.0, 0.5):
            run = partial(train, graph, folder / "run", dropout=dropout, **how)
            one = partial(run, 1)
            for ranks in counts:
                more = {} if dropout else {"measure_overlap": given.measured}
                ratio = faster.get(ranks)
                sides = {"one rank": Side(one, ratio, ratio and ratio / 2)}
                title = f"{name}, {ranks} ranks, dropout {dropout:g}"
                yield Case(title, partial(run, ranks, **more), check, sides)
    if given.gpu or root() or slow(given)[0]() or not graphs:
        return
    sys.path.insert(0, str(HOSTS))
    from conftest import Hosts

    with Hosts(2) as hosts:
        hosts.divide_cores()
        hosts.prefer()
        graph = next(iter(graphs.values()))
        plain = {"dropout": 0.0, "on_gpu": False, "epochs": 12}
        one = Side(partial(train, graph, folder / "run", 1, **plain), once=True)
        run = partial(over_link, hosts, graph, folder / "link", given.measured)
        yield Case("over a link of 1 Gbit/s", run, check, {"one rank": one}, rounds=1)


if __name__ == "__main__":
    sizes = [Option("--nodes", 76_532, 10_000), Option("--epochs", 12, 5)]
    sizes += [Option("--measured", 15, 7, "rounds that measure the hidden share")]
    sizes += [Option("--outside", [0.05], [0.05], "shares of edges to other blocks")]
    sizes += [Option("--graph", "", "", "to train on, instead of block models")]
    sys.exit(main(__doc__, cases, *sizes, gpu=cases))
