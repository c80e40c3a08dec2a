"""What a plan decides, and that its memory is what a network takes."""

from dataclasses import replace

import numpy as np
import pytest

from penstock.csr import CSR
from penstock.workers.comm.single import SingleRank
from penstock.workers.gnn.layers.network import Network
from penstock.workers.gnn.plan.lowering import lower
from penstock.workers.gnn.plan.rates import GUESS, Rates, machine_rates
from penstock.workers.gnn.plan.spec import Layer, Model, Training
from penstock.workers.gnn.thread_pool import ThreadPool

RATES = Rates(dense=5e10, sparse=1e10, gather=1e10, stream=1e10)
GCN = Model(layers=(Layer("gcn", 32), Layer("gcn", 32), Layer("gcn")))


@pytest.fixture(scope="module")
def graph(one_rank):
    rng = np.random.default_rng(0)
    ends = np.repeat(np.arange(1000), 6), rng.integers(0, 1000, 6000)
    features = rng.random((1000, 100), np.float32)
    return one_rank(CSR.from_edges(*ends, 1000), features, 40, symmetric=False)


@pytest.mark.parametrize(("share", "sparse"), [(0.01, True), (0.19, True), (0.21, False)])
def test_the_path_is_sparse_from_tau_on(graph, share, sparse):
    assert RATES.tau == pytest.approx(0.8)
    facts = replace(graph[1], nonzeros=round(share * 1000 * 100))
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
def test_the_memory_is_what_a_network_takes(graph, layer):
    local, facts = graph
    model = Model(layers=(layer, replace(layer), Layer("gcn")))
    plan = lower(model, facts, Training(), GUESS["cpu"])
    with ThreadPool(1) as pool:
        network = Network(plan, Training(), local, pool, SingleRank())
        network.forward(training=True)
        grad = network.gradient_buffer()
        grad[...] = 1
        network.backward(grad)
    predicted = sum(plan.memory[kind] for kind in ("activations", "gradients"))
    assert 0.5 * predicted < network.bytes < 1.1 * predicted


def test_rates_are_measured_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    first = machine_rates("cpu")
    assert min(first.dense, first.sparse, first.gather, first.stream) > 1e6
    assert 0 <= first.tau < 1  # 0 where the machine was busy during the dense product
    assert machine_rates("cpu") == first
