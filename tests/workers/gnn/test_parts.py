"""A model on a graph in parts gives what it gives on the whole graph."""

import numpy as np
import pytest
from graphs import write_graph

from penstock.csr import CSR
from penstock.partition.part import partition_path
from penstock.pipelines.partition import partition_graph
from penstock.workers.comm.single import SingleRank
from penstock.workers.gnn.data.local import open_local
from penstock.workers.gnn.layers.network import Loss, Network
from penstock.workers.gnn.plan.facts import facts_of
from penstock.workers.gnn.plan.lowering import lower
from penstock.workers.gnn.plan.rates import GUESS
from penstock.workers.gnn.plan.spec import Layer, Model, Training
from penstock.workers.gnn.thread_pool import ThreadPool

NODES, CLASSES = 60, 4
MODELS = {
    "gcn": Model(layers=(Layer("gcn", 8, dropout=0.5), Layer("gcn")), input_dropout=0.2),
    "sage-max": Model(layers=(Layer("sage", 8, aggregate="max"), Layer("sage", aggregate="max"))),
    "sage-mean": Model(layers=(Layer("sage", 8, residual=True), Layer("sage"))),
    "gin": Model(layers=(Layer("gin", 8, norm="batch"), Layer("gin"))),
    "gat": Model(
        layers=(
            Layer("gat", 8, heads=2, attention_dropout=0.3),
            Layer("gat", heads=2, concat=False),
        )
    ),
}


@pytest.fixture(scope="module", params=[False, True], ids=["undirected", "directed"])
def graph(tmp_path_factory, request):
    rng = np.random.default_rng(2)
    pairs = {(int(a), int(b)) for a, b in rng.integers(0, NODES, (150, 2)) if a != b}
    pairs |= {(0, n) for n in range(1, 40)} | {(7, 7)}
    if not request.param:
        pairs |= {(b, a) for a, b in pairs}
    sources, targets = (np.array(side) for side in zip(*sorted(pairs), strict=True))
    nodes = {"label": rng.integers(0, CLASSES, NODES), "split": rng.integers(0, 3, NODES)}
    features = rng.normal(size=(NODES, 6)).astype(np.float32)
    given = {"nodes": nodes, "features": features, "directed": request.param, "labels": "class"}
    path, csr = tmp_path_factory.mktemp("graph") / "g", CSR.from_edges(sources, targets, NODES)
    graph = write_graph(path, csr, **given)
    for k in (2, 3):
        partition_graph(graph, k=k, method="greedy", quiet=True)
    return graph


def one_pass(comm, graph, parts, model, training):
    facts = facts_of(graph, parts, training=training)
    plan = lower(model, facts, training, GUESS["cpu"])
    with open_local(comm, graph.path, parts, weighted=False) as local, ThreadPool(1) as pool:
        network = Network(plan, training, local, pool, comm)
        loss = Loss("cross_entropy", network, 10)
        for epoch in range(2):
            outputs = network.forward(epoch=epoch, training=True).copy()
            grad = network.gradient_buffer()
            sums = loss(outputs, grad)
            network.backward(grad)
            network.reducer.wait()
        return local.ids[: local.owned], outputs, sums, network.parameters.gradients.copy()


CASES = [
    (name, options)
    for name in MODELS
    for options in (
        {"order": "transform"},
        {"order": "aggregate", "overlap": False},
    )
]


@pytest.mark.parametrize(("name", "options"), CASES, ids=str)
def test_parts_give_what_the_whole_gives(name, options, graph, on_threads):
    model, training = MODELS[name], Training(**options, seed=5)
    _, outputs, sums, gradients = one_pass(SingleRank(), graph, None, model, training)
    for k in (2, 3):
        parts = partition_path(graph, k)
        ranks = on_threads(k, one_pass, graph, parts, model, training)
        together = np.zeros_like(outputs)
        for ids, of_rank, _, _ in ranks:
            together[ids] = of_rank
        close = {"rtol": 2e-4, "atol": 2e-5}
        np.testing.assert_allclose(together, outputs, **close)
        np.testing.assert_allclose(sum(rank[2] for rank in ranks), sums, **close)
        for rank in ranks:
            np.testing.assert_allclose(rank[3], gradients, **close)
