"""What a plan decides, and that its memory is what a network takes."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.workers.comm.single import SingleRank
from penstock.workers.gnn.data.local import LocalGraph
from penstock.workers.gnn.layers.network import Network
from penstock.workers.gnn.plan.facts import Facts
from penstock.workers.gnn.plan.lowering import Memory, lower
from penstock.workers.gnn.plan.rates import GUESS, Rates, machine_rates
from penstock.workers.gnn.plan.spec import Layer, Model, Training
from penstock.workers.gnn.thread_pool import ThreadPool

FACTS = Facts(
    rows=1000,
    columns=1000,
    edges=20_000,
    nodes=1000,
    ranks=1,
    features=100,
    nonzeros=100_000,
    labels="class",
    outputs=40,
    symmetric=True,
    weighted=False,
    on_gpu=False,
)
RATES = Rates(dense=5e10, sparse=1e10, gather=1e10, stream=1e10)
GCN = Model(layers=(Layer("gcn", 32), Layer("gcn", 32), Layer("gcn")))


@pytest.mark.parametrize(("share", "sparse"), [(0.01, True), (0.19, True), (0.21, False)])
def test_the_path_is_sparse_from_tau_on(share, sparse):
    assert RATES.tau == pytest.approx(0.8)
    facts = replace(FACTS, nonzeros=round(share * FACTS.rows * FACTS.features))
    assert lower(GCN, facts, Training(), RATES).sparse is sparse
    assert lower(GCN, facts, Training(feature_layout="dense"), RATES).sparse is False


@pytest.mark.parametrize(
    "layer",
    [
        Layer("gcn", 24),
        Layer("sage", 24, residual=True),
        Layer("sage", 24, aggregate="max"),
        Layer("gin", 24, norm="batch", hidden=30),
        Layer("gat", 24, heads=4),
    ],
)
def test_the_memory_is_what_a_network_takes(layer):
    rng = np.random.default_rng(0)
    degree, nodes = 6, FACTS.rows
    local = LocalGraph(
        rank=0,
        size=1,
        nodes=nodes,
        edges=degree * nodes,
        ids=np.arange(nodes),
        owned=nodes,
        interior=nodes,
        columns=nodes,
        indptr=np.arange(nodes + 1, dtype=np.int64) * degree,
        indices=np.sort(rng.integers(0, nodes, (nodes, degree)), axis=1).astype(np.int32).ravel(),
        weights=None,
        symmetric=False,
        features=rng.random((nodes, FACTS.features), np.float32),
        label_kind="class",
        labels=np.zeros(nodes, np.int32),
        splits=np.zeros(nodes, np.int8),
        outputs=40,
    )
    facts = replace(FACTS, edges=local.edges, symmetric=False)
    model = Model(layers=(layer, replace(layer), Layer("gcn")))
    plan = lower(model, facts, Training(), GUESS["cpu"])
    with ThreadPool(1) as pool:
        network = Network(plan, model.complete(40), Training(), local, pool, SingleRank())
        network.forward(training=True)
        grad = network.gradient_buffer()
        grad[...] = 1
        network.backward(grad)
    predicted = sum(plan.memory[kind] for kind in (Memory.ACTIVATIONS, Memory.GRADIENTS))
    assert 0.5 * predicted < network.bytes < 1.1 * predicted


def test_rates_are_measured_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert machine_rates("cpu", measure=False) == GUESS["cpu"]
    first = machine_rates("cpu")
    assert first.measured
    assert min(first.dense, first.sparse, first.gather, first.stream) > 1e6
    assert 0 <= first.tau < 1  # 0 where the machine was busy during the dense product
    assert machine_rates("cpu") == first
