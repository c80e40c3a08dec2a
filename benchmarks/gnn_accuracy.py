"""Accuracy on Cora: Penstock's and PyG's models, with split and weights of each of ten seeds."""

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from gnn_graphs import Data, cora, write_case, write_graph
from gnn_sides import PEERS, call

ACCURACY = 0.01  # allowed difference to PyG
SEEDS = 10

MODELS = {"gcn": "GCN, 64", "sage": "SAGE mean, 64", "gat": "GAT, 8 heads of 8"}


def roles_of(labels: Any, seed: int) -> Any:
    """Return 20 nodes of each class to train on, 500 others to validate on, the rest to test on."""
    draw = np.random.default_rng(seed)
    roles, order = np.full(len(labels), 2, np.int8), draw.permutation(len(labels))
    train = np.concatenate([order[labels[order] == c][:20] for c in range(int(labels.max()) + 1)])
    roles[train] = 0
    roles[order[roles[order] == 2][:500]] = 1
    return roles


def accuracy(python: str, threads: int, peer_results: Path | None) -> bool:
    """Print the accuracy of both on Cora; return whether Penstock's models are as good."""
    data = cora()
    roles = np.stack([roles_of(data.labels, seed) for seed in range(SEEDS)])
    print(
        f"Cora: {data.csr.rows:,} nodes, {data.csr.edges:,} edges, {SEEDS} seeds, each with its "
        "own split and weights; test accuracy at the epoch of 200 with the least validation loss, "
        "whose weights penstock gnn train keeps\n"
    )
    print("| model | PyG mean | deviation | ours mean | deviation | asked | |\n|" + "---|" * 7)
    kept, known = True, {}
    if peer_results is not None and peer_results.exists():
        known = json.loads(peer_results.read_text())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_case(folder, data, [data.features.shape[1], 64, data.classes])
        with np.load(folder / "peer.npz") as file:
            np.savez(folder / "peer.npz", **{**file, "roles": roles})
        for kind, title in MODELS.items():
            if kind not in known:
                found = call(python, PEERS, "accuracy", folder, kind, threads, threads=threads)
                known[kind] = found["accuracy"]
            mine = [our_accuracy(folder, data, kind, seed, roles[seed]) for seed in range(SEEDS)]
            a, b = np.array(known[kind]), np.array(mine)
            good = b.mean() >= a.mean() - ACCURACY
            kept &= good
            convs = [f"{100 * v:.2f}" for v in (a.mean(), a.std(), b.mean(), b.std())]
            asked = f"{100 * (a.mean() - ACCURACY):.2f}"
            verdict = "kept" if good else "BROKEN"
            print(f"| {title} | {' | '.join(convs)} | {asked} | {verdict} |", flush=True)
    if peer_results is not None:
        peer_results.write_text(json.dumps(known))
    return kept


def our_accuracy(folder: Path, data: Data, kind: str, seed: int, roles: Any) -> float:
    """Train one model, and return the test accuracy of the weights that the run keeps."""
    from penstock.graph import Graph
    from penstock.workers.comm.single import SingleRank
    from penstock.workers.gnn.plan.facts import facts_of, outputs_of
    from penstock.workers.gnn.plan.lowering import lower
    from penstock.workers.gnn.plan.rates import machine_rates
    from penstock.workers.gnn.plan.spec import Layer, Model, Training
    from penstock.workers.gnn.task import TrainTask
    from penstock.workers.gnn.train import train

    graph, run = folder / "seeded", folder / f"run-{kind}-{seed}"
    write_graph(graph, data, roles)
    run.mkdir()
    drop = 0.6 if kind == "gat" else 0.5
    layers: tuple[Layer, ...] = Layer(kind, 64, dropout=drop), Layer(kind)
    if kind == "gat":
        first = Layer("gat", 64, "elu", dropout=drop, heads=8, attention_dropout=drop)
        layers = first, Layer("gat", attention_dropout=drop)
    rate = 0.005 if kind == "gat" else 0.01
    training = Training(epochs=200, lr=rate, weight_decay=5e-4, seed=seed, checkpoint_epochs=0)
    model = Model(layers, input_dropout=drop).complete(outputs_of(Graph.open(graph)))
    facts = facts_of(Graph.open(graph), None, training=training)
    plan = lower(model, facts, training, machine_rates())
    task = TrainTask(graph, None, model, training, plan, run)
    return float(train(SingleRank(), task).metrics["test"]["score"])
