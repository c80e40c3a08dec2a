"""What a plan decides, and that its memory is what a network takes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.workers.comm.single import SingleRank
from penstock.workers.gnn.data.local import LocalGraph
from penstock.workers.gnn.layers.network import Network
from penstock.workers.gnn.plan.facts import Facts
from penstock.workers.gnn.plan.lowering import TILE, Memory, lower
from penstock.workers.gnn.plan.rates import GUESS, Rates, machine_rates
from penstock.workers.gnn.plan.spec import Layer, Model, Training
from penstock.workers.gnn.thread_pool import ThreadPool

FACTS = Facts(
    rows=1000, columns=1000, edges=20_000, nodes=1000, ranks=1, features=100, nonzeros=100_000,
    labels="class", outputs=40, symmetric=True, weighted=False, on_gpu=False,
)  # fmt: skip
RATES = Rates(dense=5e10, sparse=1e10, gather=1e10, stream=1e10)
GCN = Model(layers=(Layer("gcn", 32), Layer("gcn", 32), Layer("gcn")))


def orders(model: Model, facts: Facts = FACTS, rates: Rates = RATES, **options: object) -> str:
    plan = lower(model, facts, Training(**options), rates)
    return " ".join(layer.order[0] + ("+" if layer.precomputed else "") for layer in plan.layers)


def test_the_sum_is_taken_over_the_narrower_side() -> None:
    # 100 to 32, precomputed; 32 to 32, either; 32 to 40.
    assert orders(GCN) in ("a+ t a", "a+ a a")
    assert orders(GCN, precompute=False).startswith("t ")
    assert orders(GCN, order="aggregate", precompute=False) == "a a a"


@pytest.mark.parametrize("kind", ["gcn", "sage", "gin", "gat"])
def test_a_forward_pass_alone_is_laid_out_as_in_training(kind: Any) -> None:
    model = Model(layers=(Layer(kind, 32), Layer(kind, 32, norm="layer"), Layer(kind)))
    whole = lower(model, FACTS, Training(), RATES)
    alone = lower(model, FACTS, Training(), RATES, backward=False)
    for ours, theirs in zip(alone.layers, whole.layers, strict=True):
        assert (ours.order, ours.precomputed) == (theirs.order, theirs.precomputed)
        assert "backward" not in " ".join(each.name for each in ours.operations)
        # What is precomputed is in no epoch.
        assert ours.seconds < theirs.seconds or ours.precomputed
    assert Memory.GRADIENTS not in alone.memory
    assert alone.memory_bytes == whole.memory_bytes - whole.memory[Memory.GRADIENTS] // 2


def test_a_gpu_never_holds_features_of_which_only_the_sum_is_kept() -> None:
    there = replace(FACTS, on_gpu=True)

    def held(facts: Facts, **options: object) -> int:
        return lower(GCN, facts, Training(**options), RATES).memory[Memory.FEATURES]

    assert held(FACTS) == held(there, precompute=False) == 4 * 1000 * 100
    assert held(there) == 4 * 1000 * 2 * TILE


@pytest.mark.parametrize(("share", "sparse"), [(0.01, True), (0.19, True), (0.21, False)])
def test_the_path_is_sparse_from_tau_on(share: float, sparse: bool) -> None:
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
def test_the_memory_is_what_a_network_takes(layer: Layer) -> None:
    rng = np.random.default_rng(0)
    degree, nodes = 6, FACTS.rows
    local = LocalGraph(
        rank=0, size=1, nodes=nodes, edges=degree * nodes, ids=np.arange(nodes), owned=nodes,
        interior=nodes, columns=nodes, indptr=np.arange(nodes + 1, dtype=np.int64) * degree,
        indices=np.sort(rng.integers(0, nodes, (nodes, degree)), axis=1).astype(np.int32).ravel(),
        weights=None, symmetric=False,
        features=rng.random((nodes, FACTS.features), np.float32), label_kind="class",
        labels=np.zeros(nodes, np.int32), splits=np.zeros(nodes, np.int8), outputs=40,
    )  # fmt: skip
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


def test_rates_are_measured_once_and_kept(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert machine_rates("cpu", measure=False) == GUESS["cpu"]
    first = machine_rates("cpu")
    assert first.measured
    assert min(first.dense, first.sparse, first.gather, first.stream) > 1e6
    assert 0 <= first.tau < 1  # 0 where the machine was busy during the dense product
    assert machine_rates("cpu") == first
