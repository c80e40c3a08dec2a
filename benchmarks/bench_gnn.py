"""Training GNNs on one device, compared with tuned PyTorch, PyG and the floor; and their accuracy.

    python -P benchmarks/bench_gnn.py [--quick] --peers VENV/bin/python     torch, torch_geometric
    python -P benchmarks/bench_gnn.py write amazon-like GRAPH               only make a graph

An epoch is forward, backward and Adam's update on the whole graph, of a GCN with ReLU and biases,
in fp32. Each side trains in a separate process, ours as a command, from the same arrays and the
same first weights; the losses of the first epochs must agree. Times are medians without the first
epochs; peaks are those of the process with its libraries, on GPUs of the pool of CuPy or torch.
PyTorch runs in each round, PyG once: medians of epochs vary little. "PyTorch" is as its
authors would tune it: CSR, normalised once, a cached transpose for the backward pass, and the first
aggregation of dense features computed once. PyG's ways are its layers over edge_index and over
torch.sparse_csr, normalised once. On a GPU one sum over neighbours is also compared with cuSPARSE,
by its fastest algorithm with the plan made before. Accuracy on Cora is compared with PyG's, of 20
seeds.

The floor is the least time of gathered rows, indices and products at rates measured first; see
gnn_floor.py. A gather can beat it, because the L1 serves some rows.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
from gnn_floor import cores_floor, gpu_floor, work_of
from gnn_rates import gpu_rates
from gnn_sums import Sums
from graphs import Data, cora, cora_like, products_like, write_case, write_graph
from harness import (
    Case,
    Side,
    Timed,
    absent,
    by_peer,
    command,
    data,
    epochs_of,
    gpus,
    in_peers,
    main,
    penstock,
    slow,
    wanted,
)

from penstock import ClusterSpec, gnn

PEERS = Path(__file__).with_name("gnn_peers.py")
AGREEMENT, AGREED = 1e-5, 3  # of losses, relatively, in the first epochs; measured: 1.6e-6
PLAIN = "--dropout 0 --weight-decay 0 --checkpoint-epochs 0"
WARM = 2  # epochs that are not timed
ACCURACY, SEEDS = 0.01, 20
SUM = ", a sum of 32 values"


@dataclass(frozen=True)
class Graph:
    """A graph, and the measured ratios of PyTorch, of PyG and of the floor."""

    make: Callable[[], Data]
    hidden: tuple[int, ...] = (32, 32)
    epochs: int = 10
    ways: tuple[str, ...] = ("edge_index-cached", "csr-cached")
    ratios: tuple[float | None, ...] = (None, None, None)  # as ways, after the tuned way
    floor: float | None = None
    quick: bool = False


SPARSE: dict[str, Any] = {"epochs": 40, "ways": ("edge_index-cached", "csr-cached-sparse")}
CORES = {
    "products-like / 16": Graph(
        lambda: products_like(153_064, 7_731_250, 100, 47),
        ways=("csr-cached",),
        ratios=(1.1, 14.0),
        floor=0.5,
    ),
    "Cora, 2 layers of 64": Graph(
        cora, (64,), **SPARSE, ratios=(None, 3.0, 2.1), floor=0.21, quick=True
    ),
    "as large as CoraFull": Graph(
        lambda: cora_like(19_793, 63_421, 8710, 57, 70),
        (64,),
        **SPARSE,
        ratios=(None, 10.5, 4.4),
        floor=0.5,
    ),
}


def on_device(nodes: int, edges: int, width: int, classes: int) -> Data:
    """Draw a graph on the GPU, and free the GPU's memory."""
    import cupy as cp

    made = products_like(nodes, edges, width, classes, cp)
    cp.get_default_memory_pool().free_all_blocks()
    return made


GPU: dict[str, Any] = {"epochs": 30, "ways": ("csr-cached",)}
GPUS = {
    "arxiv-like": Graph(
        lambda: on_device(169_343, 2_330_000, 128, 40),
        **GPU,
        ratios=(None, 5.5),
        floor=0.26,
        quick=True,
    ),
    "products-like": Graph(
        lambda: on_device(2_449_029, 123_700_000, 100, 47), **GPU, ratios=(2.7, 8.8), floor=0.64
    ),
    "reddit-like": Graph(
        lambda: on_device(232_965, 114_600_000, 602, 41), **GPU, ratios=(3.3, 14.7), floor=0.89
    ),
}
LARGE = {"amazon-like": Graph(lambda: on_device(1_569_960, 264_300_000, 200, 107))}


def trained(folder: Path, hidden: tuple[int, ...], epochs: int, device: str) -> Timed:
    """Train by the command; return the median of the epochs, losses and peak.

    Without TF32: on a GPU only the floor's products use it.
    """
    run = folder / "run"
    words = ["gnn", "train", folder / "graph", run, "--layers", len(hidden) + 1]
    words += ["--hidden", hidden[0], "--epochs", epochs, "--cluster", "threads", "--device", device]
    words += [*PLAIN.split(), "--overwrite", "--json"]
    made = command(penstock(*words), CUPY_TF32="0").value
    report = json.loads(made.out)
    losses = [epoch["train"]["loss"] for epoch in epochs_of(run)]
    peak = report["memory"] if device == "gpu" else made.together
    return Timed(report["epoch_seconds"], {"losses": losses, "peak": peak})


def called(python: str, *words: Any) -> Timed:
    """Train by a peer; return the median of its epochs, and what it found."""
    found = by_peer(python, PEERS, *words)
    if "seconds" not in found:
        return Timed(float("inf"), found)  # the GPU's memory did not suffice
    return Timed(statistics.median(found["seconds"][WARM:]), found)


def check(values: dict[str, Any]) -> dict[str, Any]:
    mine, figures = values.pop("ours"), {}
    for side, theirs in values.items():
        if theirs is None or "losses" not in theirs:
            continue
        a, b = (np.array(found["losses"][:AGREED]) for found in (mine, theirs))
        apart = float(np.max(np.abs(a - b) / np.abs(b)))
        assert apart <= AGREEMENT, f"losses differ from those of {side} by {apart:.1e}"
        figures |= {f"losses differ, {side}": apart, f"MB, {side}": theirs["peak"] / 1e6}
    return {"MB": mine["peak"] / 1e6, **figures}


def roles_of(labels: Any, seed: int) -> Any:
    """Return 20 nodes of each class to train on, 500 others to validate on, the rest to test on."""
    draw = np.random.default_rng(seed)
    roles, order = np.full(len(labels), 2, np.int8), draw.permutation(len(labels))
    train = np.concatenate([order[labels[order] == c][:20] for c in range(int(labels.max()) + 1)])
    roles[train] = 0
    roles[order[roles[order] == 2][:500]] = 1
    return roles


def accuracy(folder: Path, made: Data, kind: str) -> list[float]:
    """Train models of this kind; return the test accuracies of the weights that runs keep."""
    drop, how = 0.5, dict[str, Any]()
    if kind == "gat":
        drop, how = 0.6, {"heads": 8, "attention_dropout": 0.6, "lr": 0.005}
    how |= {"hidden": 64, "dropout": drop, "input_dropout": drop, "checkpoint_epochs": 0}
    found = []
    for seed in range(SEEDS):
        graph = folder / "seeded"
        write_graph(graph, made, roles_of(made.labels, seed))
        where = {"cluster": ClusterSpec(cluster="threads", device="cpu"), "overwrite": True}
        run = gnn.train(graph, folder / "run", model=kind, seed=seed, quiet=True, **where, **how)
        found.append(run.trained.metrics["test"]["score"])
    return found


def pyg_accuracy(folder: Path, python: str, kind: str, processes: int) -> list[float]:
    """Train PyG's models, seeds side by side: a thread for each process is fastest."""

    def some(first: int) -> list[float]:
        found = by_peer(python, PEERS, "accuracy", folder, kind, first, processes)
        return list(found["accuracy"])

    with ThreadPoolExecutor(processes) as pool:
        return [score for found in pool.map(some, range(processes)) for score in found]


def check_accuracy(values: dict[str, Any]) -> dict[str, Any]:
    mine, theirs = np.array(values["ours"]), np.array(values["PyG"])
    assert (mine <= 1).all()
    assert mine.mean() >= theirs.mean() - ACCURACY, (mine.mean(), theirs.mean())
    figures = {"ours": mine.mean(), "deviation": mine.std(), "PyG": theirs.mean()}
    return {**figures, "its deviation": theirs.std()}


def graph_cases(graphs: dict[str, Graph], given: argparse.Namespace) -> Iterator[Case]:
    """Yield the case of each graph; a quick run leaves some out."""
    on_gpu = gpus(1)() is None
    device, threads = ("gpu" if on_gpu else "cpu"), os.cpu_count() or 1
    peer = [in_peers(given, "torch", "torch_geometric")]
    rates = None
    if on_gpu:
        os.environ["CUPY_TF32"] = "1"  # before cupy is first imported, which reads it
        rates = gpu_rates()
    for name, graph in graphs.items():
        if given.quick and not graph.quick:
            continue
        if not any(wanted(title, given) for title in (name, name + SUM)):
            continue
        if graph.make is cora and (why := data()):
            yield absent(name, why)
            continue
        made, folder = graph.make(), given.scratch / name.replace(" ", "-").replace("/", "")
        widths = [made.features.shape[1], *graph.hidden, made.classes]
        folder.mkdir()
        write_case(folder, made, widths)
        work = work_of(made, widths)
        if on_gpu:
            yield from sums_case(name, made)
        del made
        sides = {}
        for way, ratio in zip(("tuned", *graph.ways), graph.ratios, strict=False):
            words = ("epochs", folder, way, max(graph.epochs // 3, 6), threads, device)
            run = partial(called, given.peers, *words)
            title = "PyTorch" if way == "tuned" else f"PyG {way}"
            sides[title] = Side(run, ratio, needs=peer, once=way != "tuned")
        least = partial(gpu_floor, work, rates) if rates else partial(cores_floor, work, threads)
        sides["floor"] = Side(lambda run=least: Timed(run()), graph.floor, floor=True)
        yield Case(
            name,
            partial(trained, folder, graph.hidden, graph.epochs, device),
            check,
            sides,
            rounds=1 if on_gpu else None,  # a process's time is the median of its epochs
            needs=peer,  # whose losses are compared
        )


def sums_case(name: str, made: Data) -> Iterator[Case]:
    """Yield the case of one sum over neighbours; then free the GPU's memory."""
    import cupy as cp

    sums = Sums(made)
    sides = {"cuSPARSE": Side(sums.cusparse, once=True)}
    work = float(made.csr.edges), "edges"
    yield Case(name + SUM, sums.ours, sums.check, sides, work, rounds=3)
    sums.__dict__.clear()  # the harness keeps the object
    cp.get_default_memory_pool().free_all_blocks()


def accuracies(given: argparse.Namespace) -> Iterator[Case]:
    """Yield a case for each model on Cora."""
    if data() is not None:
        return
    threads = os.cpu_count() or 1
    made, folder = cora(), given.scratch / "accuracy"
    folder.mkdir()
    write_case(folder, made, [made.features.shape[1], 64, made.classes])
    with np.load(folder / "peer.npz") as file:
        roles = np.stack([roles_of(made.labels, seed) for seed in range(SEEDS)])
        np.savez(folder / "peer.npz", **{**file, "roles": roles})
    for kind in ("gcn", "sage", "gat"):
        theirs = partial(pyg_accuracy, folder, given.peers, kind, threads)
        yield Case(
            f"accuracy of {kind} on Cora",
            partial(accuracy, folder, made, kind),
            check_accuracy,
            {"PyG": Side(theirs, once=True)},
            rounds=1,
            needs=[in_peers(given, "torch", "torch_geometric"), *slow(given)],
        )


def cases(given: argparse.Namespace) -> Iterator[Case]:
    on_gpu = gpus(1)() is None
    yield from graph_cases(GPUS if on_gpu else CORES, given)
    if not on_gpu:
        yield from accuracies(given)


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        graph = (GPUS | LARGE)[sys.argv[2]].make()
        write_graph(Path(sys.argv[3]), graph, np.zeros(graph.csr.rows, np.int8))
    else:
        sys.exit(main(__doc__, cases, gpu=cases))
