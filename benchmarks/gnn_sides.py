"""The two sides of bench_gnn.py: each trains in a separate process and returns its figures."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

BENCH = Path(__file__).with_name("bench_gnn.py")
PEERS = Path(__file__).with_name("gnn_peers.py")
LEAST_AGREEMENT = 1e-4  # relative difference of losses, of the epochs below
AGREED = 3


def ours(
    folder: str,
    widths: str,
    epochs: str,
    device: str,
    precision: str = "fp32",
    cuda_graph: str = "yes",
) -> dict[str, Any]:
    """Train in this process, and return losses, seconds and peak."""
    import dask

    dask.config.set({"penstock.device": device})
    imported = _resident()
    from penstock.graph import Graph
    from penstock.workers.comm.single import SingleRank
    from penstock.workers.gnn.plan.facts import facts_of, outputs_of
    from penstock.workers.gnn.plan.lowering import lower
    from penstock.workers.gnn.plan.rates import machine_rates
    from penstock.workers.gnn.plan.spec import Layer, Model, Training
    from penstock.workers.gnn.task import TrainTask
    from penstock.workers.gnn.train import train

    hidden = [int(width) for width in widths.split(",")][1:-1]
    layers = [*(Layer("gcn", width) for width in hidden), Layer("gcn")]
    training = Training(
        epochs=int(epochs),
        weight_decay=0.0,
        checkpoint_epochs=0,
        precision=precision,
        cuda_graph=cuda_graph == "yes",
    )
    run = Path(folder) / "run"
    run.mkdir(exist_ok=True)
    graph = Graph.open(Path(folder) / "graph")
    model = Model(layers).complete(outputs_of(graph))
    rates = machine_rates(device)
    facts = facts_of(graph, None, training=training, on_gpu=device == "gpu")
    plan = lower(model, facts, training, rates)
    task = TrainTask(graph.path, None, model, training, plan, run)
    trained = train(SingleRank(), task)
    peak = _resident()
    if device == "gpu":
        imported, peak = 0, trained.memory
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {
        "seconds": [line["seconds"] for line in lines],
        "losses": [line["train"]["loss"] for line in lines],
        "peak": peak,
        "imported": imported,
        "sparse": trained.sparse,
    }


def _resident() -> int:
    # Not ru_maxrss, which includes the parent's memory at the fork.
    status = Path("/proc/self/status").read_text().split("VmHWM:")[1]
    return 1024 * int(status.split()[0])


def call(python: str, script: Path, *words: Any, threads: int) -> dict[str, Any]:
    """Run one side on a number of cores, and return its last line of output.

    Without TF32: on a GPU only the floor's products use it.
    """
    cores = sorted(os.sched_getaffinity(0))[:threads]
    inherited = {name: value for name, value in os.environ.items() if name != "CUPY_TF32"}
    done = subprocess.run(
        [python, "-P", "-W", "ignore", str(script), *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: os.sched_setaffinity(0, cores),
        env=inherited | {"OMP_NUM_THREADS": str(threads)},
    )
    if done.returncode:
        raise RuntimeError(f"{script.name} {words} failed: {done.stderr.strip()[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def median_ms(found: dict[str, Any]) -> float:
    """Return the median epoch, the first left out."""
    return 1e3 * float(np.median(found["seconds"][1:]))


def disagreement(ours: dict[str, Any], theirs: dict[str, Any]) -> float:
    """Return the largest relative difference of the first losses."""
    a, b = (np.array(found["losses"][:AGREED]) for found in (ours, theirs))
    return float(np.max(np.abs(a - b) / np.abs(b)))


def versions(python: str) -> str:
    """Return the versions of torch and PyG in the other Python."""
    ask = "from torch import __version__ as t; from torch_geometric import __version__ as g; "
    ask += "print(f'torch {t}, PyG {g}')"
    done = subprocess.run([python, "-P", "-c", ask], capture_output=True, text=True, check=True)
    return done.stdout.strip()
