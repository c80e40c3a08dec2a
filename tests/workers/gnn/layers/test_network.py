"""Gradients of whole models against finite differences, in float64, on naive kernels."""

import sys
from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import scipy.sparse as sp

from penstock.csr import CSR
from penstock.workers.comm.single import SingleRank
from penstock.workers.gnn.layers.network import Loss, Network
from penstock.workers.gnn.plan.lowering import lower
from penstock.workers.gnn.plan.rates import GUESS
from penstock.workers.gnn.plan.spec import Layer, Model, Training
from penstock.workers.gnn.thread_pool import ThreadPool

NODES, WIDTH, CLASSES = 10, 5, 3
KERNELS = ("activation", "aggregate", "attention", "loss", "norm", "optimizer")


@pytest.fixture(autouse=True)
def _naive(monkeypatch):
    """Compute with naive kernels, with which those of CPUs and GPUs are compared elsewhere."""
    for name in KERNELS:
        naive = import_module(f"penstock.kernels.naive.{name}")
        monkeypatch.setitem(sys.modules, f"penstock.kernels.cpu.{name}", naive)


@pytest.fixture
def whole(one_rank):
    """Return a graph of one rank: a hub, a node without edges, a loop."""

    def whole(*, directed=False, weighted=False, sparse=False):
        rng = np.random.default_rng(5)
        edges = {(int(a), int(b)) for a, b in rng.integers(0, NODES - 1, (20, 2)) if a != b}
        edges |= {(0, n) for n in range(1, NODES - 1)} | {(3, 3)}
        if not directed:
            edges |= {(b, a) for a, b in edges}
        sources, targets = (np.array(side) for side in zip(*sorted(edges), strict=True))
        low, high = (sources, targets) if directed else np.sort([sources, targets], axis=0)
        weights = 1 + np.sin(low + 3.0 * high) / 2
        csr = CSR.from_edges(sources, targets, NODES, weights=weights)
        features = rng.normal(size=(NODES, WIDTH))
        features[rng.random(features.shape) < 0.4] = 0
        features = sp.csr_matrix(features) if sparse else features
        return one_rank(csr, features, CLASSES, symmetric=not directed, weighted=weighted)

    return whole


def network_of(graph, model, training, pool):
    local, facts = graph
    plan = lower(model, facts, training, GUESS["cpu"])
    return Network(plan, training, local, pool, SingleRank(), dtype=np.float64)


def slopes(network, weights):
    """Return places, and the gradient of ``(outputs * weights).sum()`` by finite differences."""
    values, found = network.parameters.values, []
    places = np.flatnonzero(values)  # all that were given a value, which check() does
    places = np.random.default_rng(1).permutation(places)[:30]
    for i in places:
        kept, step, sides = values[i], 1e-6, []
        for sign in (1, -1):
            values[i] = kept + sign * step
            sides.append(float((network.forward(epoch=4, training=True) * weights).sum()))
        values[i] = kept
        found.append((sides[0] - sides[1]) / (2 * step))
    return places, np.array(found)


LAYERS = {
    "gcn": Layer("gcn", 4),
    "sage-mean": Layer("sage", 4, activation="tanh"),
    "sage-sum": Layer("sage", 4, aggregate="sum"),
    "sage-max": Layer("sage", 4, aggregate="max", activation="elu"),
    "gin": Layer("gin", 4, eps=0.3, hidden=6, activation="sigmoid"),
    "gat": Layer("gat", 4, heads=2, activation="elu"),
    "gat-mean": Layer("gat", 3, heads=2, concat=False, attention_dropout=0.4),
    "layer-norm": Layer("gcn", 4, norm="layer", residual=True, activation="leaky_relu"),
    "batch-norm": Layer("gin", 4, norm="batch"),
    "residual": Layer("sage", 4, residual=True, dropout=0.3),
    "no-bias": Layer("gcn", 4, bias=False, activation="none", dropout=0.5),
}


@pytest.mark.parametrize(("directed", "order"), [(False, "transform"), (True, "aggregate")])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_finite_differences(whole, name, directed, order):
    local = whole(directed=directed, weighted=name in ("gcn", "sage-mean", "residual"))
    layer = LAYERS[name]
    last = replace(layer, channels=None, residual=False, dropout=0.0)
    model = Model(layers=(layer, layer, last))
    if layer.kind == "gat" and layer.concat:
        model = replace(model, layers=(*model.layers[:2], Layer("gat")))
    check(local, model, Training(order=order, seed=3, precompute=False))


@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("kind", ["gcn", "sage", "gin", "gat"])
def test_gradients_with_input_dropout_with_both_layouts(whole, kind, layout):
    model = Model(layers=(Layer(kind, 4), Layer(kind)), input_dropout=0.4)
    check(whole(sparse=layout == "dense"), model, Training(feature_layout=layout, seed=1))


def check(local, model, training):
    rng = np.random.default_rng(11)
    weights = rng.normal(size=(NODES, CLASSES))
    with ThreadPool(1) as pool:
        network = network_of(local, model, training, pool)
        # Away from where a ReLU bends: every first value but the biases' is random, those are 0.
        for name in network.parameters.named():
            place = network.parameters[name]
            place += rng.normal(size=place.shape) * 0.1
        places, wanted = slopes(network, weights)
        network.forward(epoch=4, training=True)
        grad = network.gradient_buffer()
        grad[...] = weights
        network.backward(grad)
        found = network.parameters.gradients[places]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-6)
        assert np.abs(wanted).max() > 0.1


@pytest.mark.parametrize("kind", ["gcn", "sage", "gin", "gat"])
def test_layouts_orders_and_precomputing_give_the_same_numbers(whole, kind):
    local = whole()
    model = Model(layers=(Layer(kind, 4), Layer(kind)))
    found = []
    for training in (
        Training(feature_layout="dense", order="transform"),
        Training(feature_layout="dense", order="aggregate"),
        Training(feature_layout="dense", order="aggregate", precompute=False),
        Training(feature_layout="sparse"),
    ):
        with ThreadPool(1) as pool:
            network = network_of(local, model, training, pool)
            loss = Loss("cross_entropy", network, 7)
            for epoch in range(2):  # what is precomputed is used in the second
                outputs = network.forward(epoch=epoch, training=True).copy()
                grad = network.gradient_buffer()
                sums = loss(outputs, grad)
                network.backward(grad)
            found.append((outputs, sums, network.parameters.gradients))
    for other in found[1:]:
        for ours, theirs in zip(found[0], other, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["gcn", "sage-mean", "sage-sum", "gin", "gat"])
def test_parallel_edges_count_each_in_every_model(whole, kind):
    # As relations make them. A node's own row counts once where a model adds it: two loops do not
    # make it two.
    rng = np.random.default_rng(3)
    count = rng.integers(0, 4, (NODES, NODES)) * (rng.random((NODES, NODES)) < 0.4)
    count[:, 0], count[4] = 3, 0
    np.fill_diagonal(count, [0, 1, 2, 3, 0, 0, 2, 0, 1, 0])
    local, facts = whole(directed=True)
    sources, targets = np.nonzero(count)
    times = count[sources, targets]
    csr = CSR.from_edges(np.repeat(sources, times), np.repeat(targets, times), NODES)
    local = replace(local, edges=csr.edges, indptr=csr.indptr, indices=csr.indices)
    facts = replace(facts, edges=csr.edges)
    name, _, aggregate = kind.partition("-")
    layer = Layer(name, aggregate=aggregate or "mean", bias=False)
    with ThreadPool(1) as pool:
        network = network_of((local, facts), Model(layers=(layer,)), Training(), pool)
        found = network.forward()
        of = {n.removeprefix("layers.0."): v for n, v in network.parameters.named().items()}
    x, once = local.features, count.astype(float)
    np.fill_diagonal(once, 1)
    if kind == "gcn":
        root = 1 / np.sqrt(once.sum(axis=1))
        expected = (root[:, None] * once * root) @ x @ of["weight"]
    elif name == "sage":
        total = np.maximum(count.sum(axis=1), 1) if kind == "sage-mean" else np.ones(NODES)
        expected = (count / total[:, None]) @ x @ of["weight"] + x @ of["self"]
    elif kind == "gin":
        inner = (count + np.eye(NODES)) @ x @ of["weight"]
        expected = np.maximum(inner, 0) @ of["second"]
    else:
        z = x @ of["weight"]
        score = (z @ of["left"].T) + (z @ of["right"].T).T
        weight = once * np.exp(np.where(score > 0, score, 0.2 * score))
        expected = (weight / weight.sum(axis=1, keepdims=True)) @ z
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
