"""Training on a GPU: what it computes is what a CPU computes, as a CUDA graph or not."""

import json

import numpy as np
import pytest
import scipy.sparse as sp
from graphs import write_graph

from penstock import connect, gang, partition_graph
from penstock.csr import CSR
from penstock.errors import UsageError
from penstock.graph import Graph
from penstock.partition.part import partition_path
from penstock.workers.comm.single import SingleRank
from penstock.workers.gnn.plan.facts import facts_of
from penstock.workers.gnn.plan.lowering import lower
from penstock.workers.gnn.plan.rates import GUESS
from penstock.workers.gnn.plan.spec import Layer, Model, Training
from penstock.workers.gnn.task import TrainTask
from penstock.workers.gnn.train import train
from penstock.workers.resources import device

NODES, CLASSES = 1200, 5


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    """Return a folder of graphs with a hub: dense, sparse (features), directed, weighted."""
    folder, draw = tmp_path_factory.mktemp("graphs"), np.random.default_rng(0)
    label = draw.integers(0, CLASSES, NODES).astype(np.int32)
    ends = draw.integers(0, NODES, (2, 8000))
    ends = np.concatenate([ends, [np.zeros(900, int), draw.integers(0, NODES, 900)]], axis=1)
    dense = draw.standard_normal((NODES, 50)).astype(np.float32)
    dense[np.arange(NODES), label] += 1
    words = sp.random(NODES, 300, 0.02, "csr", np.float32, random_state=draw)
    words.sort_indices()
    for name in ("dense", "sparse", "directed", "weighted"):
        both = ends if name == "directed" else np.concatenate([ends, ends[::-1]], axis=1)
        keys = np.unique(both[0] * NODES + both[1])
        indptr = np.searchsorted(keys, np.arange(NODES + 1) * NODES).astype(np.int64)
        weights = None
        if name == "weighted":
            a, b = np.sort([keys // NODES, keys % NODES], axis=0)
            weights = np.abs(np.sin(a + 3.0 * b)).astype(np.float32) + np.float32(0.1)
        write_graph(
            folder / name,
            CSR(indptr, (keys % NODES).astype(np.int32), weights),
            nodes={"label": label, "split": draw.integers(0, 3, NODES).astype(np.int8)},
            features=words if name == "sparse" else dense,
            directed=name == "directed",
            labels="class",
            classes=tuple(f"c{i}" for i in range(CLASSES)),
        )
    return folder


@pytest.fixture
def run(graphs, tmp_path):
    """Train on the CPU or a GPU, and return the result with the losses of all epochs."""

    def run(graph, model, where="gpu", **options):
        folder = tmp_path / f"run{len(list(tmp_path.iterdir()))}"
        (folder / "checkpoints").mkdir(parents=True)
        training = Training(**{"epochs": 6, **options})
        device.ask(where)
        try:
            trained = train(SingleRank(), task(graphs / graph, None, model, training, folder))
        finally:
            device.withdraw(where)
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        # No validation loss where an epoch is not evaluated.
        losses = [
            [line.get(split, {}).get("loss", np.nan) for split in ("train", "valid")]
            for line in lines
        ]
        return trained, np.array(losses)

    return run


def task(graph, partition, model, training, folder):
    on_gpu = partition is not None or device.gpu()
    rates = GUESS["gpu" if on_gpu else "cpu"]
    facts = facts_of(Graph.open(graph), partition, training=training, on_gpu=on_gpu)
    plan = lower(model, facts, training, rates)
    return TrainTask(graph, partition, training, plan, folder)


def of(*layers, drop=0.0):
    return Model(layers=layers, input_dropout=drop)


MODELS = {
    "gcn": of(Layer("gcn", 32), Layer("gcn", 32), Layer("gcn")),
    "dropout": of(
        Layer("gcn", 32, dropout=0.5), Layer("gcn", 24, dropout=0.3), Layer("gcn"), drop=0.2
    ),
    "norms": of(
        Layer("gcn", 32, norm="layer", residual=True),
        Layer("gcn", 32, norm="batch", residual=True),
        Layer("gcn"),
    ),
    "wide": of(Layer("gcn", 200, "elu"), Layer("gcn", 70, "tanh"), Layer("gcn")),
    "mean": of(Layer("sage", 16), Layer("sage", 24, residual=True), Layer("sage")),
    "max": of(
        Layer("sage", 16, aggregate="max"), Layer("sage", 33, aggregate="max"), Layer("sage")
    ),
    "sum": of(Layer("sage", 16, aggregate="sum"), Layer("sage", aggregate="sum")),
    "gin": of(Layer("gin", 16, norm="batch"), Layer("gin")),
    "gat": of(
        Layer("gat", 64, "elu", heads=8, dropout=0.6, attention_dropout=0.6),
        Layer("gat", attention_dropout=0.6),
        drop=0.6,
    ),
    "gat mean": of(Layer("gat", 32, heads=4, residual=True), Layer("gat", heads=2, concat=False)),
}


@pytest.mark.gpu
@pytest.mark.parametrize("graph", ["dense", "sparse", "directed", "weighted"])
@pytest.mark.parametrize("name", MODELS)
def test_losses_are_those_of_cores(name, graph, run):
    # Machines differ in where leaving zeros out begins to be faster.
    layout = "sparse" if graph == "sparse" else "dense"
    options = {"weighted": graph == "weighted", "lr": 5e-3, "feature_layout": layout}
    theirs, expected = run(graph, MODELS[name], "cpu", **options)
    ours, found = run(graph, MODELS[name], **options)
    assert ours.sparse == theirs.sparse
    np.testing.assert_allclose(found, expected, rtol=2e-4)
    # All of the updates' way is that of a CPU, too, not just where it started.
    assert np.abs(expected[-1] / expected[0] - 1).max() > 1e-3


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "sgd", "clip": 0.1, "lr": 0.1},
        {"optimizer": "adamw", "weight_decay": 0.1, "schedule": "cosine"},
        {"order": "transform"},
        {"order": "aggregate", "precompute": False},
    ],
    ids=lambda options: ", ".join(map(str, options)),
)
def test_options_mean_what_they_mean_on_cores(options, run):
    _, expected = run("directed", MODELS["dropout"], "cpu", **options)
    _, found = run("directed", MODELS["dropout"], **options)
    np.testing.assert_allclose(found, expected, rtol=2e-4)


@pytest.mark.gpu
@pytest.mark.parametrize("graph", ["dense", "sparse"])
@pytest.mark.parametrize("name", MODELS)
def test_cuda_graphs_are_the_same_to_the_last_bit(name, graph, run):
    layout = "sparse" if graph == "sparse" else "dense"
    options = {"epochs": 12, "evaluate_every": 2, "clip": 1.0, "feature_layout": layout}
    _, expected = run(graph, MODELS[name], cuda_graph=False, **options)
    _, found = run(graph, MODELS[name], cuda_graph=True, **options)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.gpu
def test_less_precision_gives_about_the_same(run):
    losses = {}
    for precision in ("fp32", "tf32", "bf16"):
        _, losses[precision] = run("dense", MODELS["gcn"], precision=precision, epochs=15)
    assert (losses["tf32"] != losses["fp32"]).any()
    assert (losses["bf16"] != losses["tf32"]).any()
    for precision in ("tf32", "bf16"):
        np.testing.assert_allclose(losses[precision], losses["fp32"], rtol=0.05)


@pytest.mark.gpu
def test_a_profile_waits_for_the_gpu(run):
    trained, _ = run("dense", MODELS["gcn"], profile=True)
    assert 0 < trained.shares["compute"] <= trained.epoch_seconds
    assert trained.memory > 0


@pytest.fixture(scope="module")
def two_gpus():
    with connect("mpi", workers=2, device="gpu") as client:
        yield client


@pytest.mark.multigpu
@pytest.mark.mpi
@pytest.mark.parametrize("graph", ["dense", "directed"])
@pytest.mark.parametrize("name", MODELS)
def test_two_gpus_compute_as_one(name, graph, run, graphs, tmp_path, two_gpus):
    options = {"epochs": 6, "lr": 5e-3, "feature_layout": "dense"}
    _, expected = run(graph, MODELS[name], **options)
    partition = partition_path(Graph.open(graphs / graph), 2)
    if not partition.exists():
        partition_graph(Graph.open(graphs / graph), k=2, method="random", quiet=True)
    found = {}
    for overlap in (True, False):
        folder = tmp_path / f"two-{overlap}"
        (folder / "checkpoints").mkdir(parents=True)
        training = Training(**options, overlap=overlap, measure_overlap=7 if overlap else None)
        given = task(graphs / graph, partition, MODELS[name], training, folder)
        first, second = gang.run(two_gpus, train, (given,), ranks=2)
        assert first.metrics == second.metrics
        if overlap:
            assert first.overlap["transport"] == "NCCL"
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        found[overlap] = [
            [json.loads(line)[split]["loss"] for split in ("train", "valid")] for line in lines
        ]
    np.testing.assert_allclose(found[True], expected, rtol=2e-4)
    np.testing.assert_array_equal(found[True], found[False])


def test_cores_refuse_what_only_gpus_can(run):
    with pytest.raises(UsageError):
        run("dense", MODELS["gcn"], "cpu", precision="bf16")
