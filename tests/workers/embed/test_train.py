"""A training run of embeddings: the same however it is cut into sittings, threads and swaps."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from embed_runs import same, vectors

from penstock import CSR, Graph
from penstock.errors import CorruptFile
from penstock.kernels.embed_rules import Batch, Table
from penstock.kernels.naive import embed as naive
from penstock.workers.embed import train as module
from penstock.workers.embed.negatives import Negatives
from penstock.workers.embed.penalty import mean_penalty
from penstock.workers.embed.spec import Training
from penstock.workers.embed.storage.versions import Checkpoints
from penstock.workers.embed.task import TrainTask
from penstock.workers.embed.train import train

SMALL = {
    "model": "complex",
    "dim": 8,
    "batch": 64,
    "negatives": 16,
    "epochs": 3,
    "validate_sample": 100,
    "validate_every": 1,
    "lr": 0.3,
    "schedule": "constant",
}


class Comm:
    """The communicator of the only rank, which may end it."""

    rank, size = 0, 1

    def __init__(self, stop=None):
        self.logged = []
        self.stop, self.checks = stop, 0

    def log(self, **metrics):
        self.logged.append(metrics)

    def check(self):
        self.checks += 1
        if self.stop is not None and self.checks >= self.stop:
            raise KeyboardInterrupt


def run(graph, folder, comm=None, **options):
    folder.mkdir(exist_ok=True)
    init = options.pop("init", None)
    names = options.pop("init_relations", ())
    task = TrainTask(graph.path, folder, Training(**{**SMALL, **options}), init, names)
    return train(comm or Comm(), task)


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


OUT_OF_CORE = {"partitions": 5, "batch": 16}


@pytest.mark.parametrize("optimizer", ["adagrad", "adam", "sgd"])
@pytest.mark.parametrize("more", [{}, OUT_OF_CORE], ids=["in memory", "out of core"])
def test_a_resumed_training_is_the_same(graph, tmp_path, more, optimizer):
    more = {**more, "optimizer": optimizer, "lr": 0.05}
    run(graph, tmp_path / "whole", epochs=3, **more)
    run(graph, tmp_path / "parts", epochs=1, **more)
    found = run(graph, tmp_path / "parts", epochs=3, **more)
    assert found.first_epoch == 1
    same(tmp_path / "whole", tmp_path / "parts")
    assert [line["loss"] for line in lines(tmp_path / "whole")] == [
        line["loss"] for line in lines(tmp_path / "parts")
    ]


def test_a_training_that_is_interrupted_goes_on_within_an_epoch(graph, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_LOOK", 0)  # at every batch
    more = {**OUT_OF_CORE, "checkpoint_minutes": 1e-9}
    run(graph, tmp_path / "whole", **more)
    places = set()
    for stop in (30, 150, 170):
        with pytest.raises(KeyboardInterrupt):
            run(graph, tmp_path / "cut", Comm(stop), **more)
        about = Checkpoints(tmp_path / "cut/checkpoints").load().about
        places.add((about["epoch"], about["step"]))
    assert any(state for _, state in places)
    run(graph, tmp_path / "cut", **more)
    same(tmp_path / "whole", tmp_path / "cut")
    epochs = [line["epoch"] for line in lines(tmp_path / "cut") if "loss" in line]
    assert epochs == [1, 2, 3]


@pytest.mark.parametrize(
    "other",
    [{"prefetch": False}, {"checkpoint_minutes": 1e-9}, {"validate_every": 2}],
    ids=["no prefetch", "many checkpoints", "fewer evaluations"],
)
def test_what_does_not_matter(graph, tmp_path, other):
    run(graph, tmp_path / "one", **OUT_OF_CORE)
    run(graph, tmp_path / "other", **OUT_OF_CORE, **other)
    (ours, _, _), (theirs, _, _) = vectors(tmp_path / "one"), vectors(tmp_path / "other")
    np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.parametrize(
    "more",
    [
        {"model": "dot"},
        {"model": "transe", "norm": 2, "corrupt": "tail"},
        {"model": "rotate", "loss": "self-adversarial", "lr": 0.05},
        {"negatives": "all"},
        {"by_degree": 1.0, **OUT_OF_CORE},
        {"order": "cover", **OUT_OF_CORE, "partitions": 16, "batch": 4},
        {"chunk": 16, "l2": 1e-3},
    ],
    ids=lambda more: "-".join(f"{value}" for value in more.values()),
)
def test_every_way_of_training_lowers_the_loss(graph, tmp_path, more):
    run(graph, tmp_path / "r", epochs=4, **more)
    losses = [line["loss"] for line in lines(tmp_path / "r")]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_negatives_are_fairly_shared_among_partitions(graph, tmp_path, monkeypatch, share):
    """Of an own partition a node is as likely as in memory, of others by their degrees."""
    found = []
    make = Negatives.pool

    def keep(self, phase, pair, rows):
        pool = make(self, phase, pair, rows)
        found.append((self.layout, phase.partitions, set(pair), pool, dict(rows)))
        return pool

    monkeypatch.setattr(Negatives, "pool", keep)
    run(graph, tmp_path / "r", epochs=1, by_degree=share, **OUT_OF_CORE)
    degrees = graph.degrees.astype(float)
    for number in range(graph.num_shards):
        degrees += np.bincount(graph.shard(number).indices, minlength=graph.num_nodes)
    degrees = np.maximum(degrees, 1)
    whole = (1 - share) / graph.num_nodes + share * degrees / degrees.sum()
    seen = set()
    for layout, there, pair, pool, rows in found:
        total = int(pool.start[-1])
        drawn = np.ones(total)
        if pool.chance is not None:
            drawn = pool.chance.astype(float)
            np.add.at(drawn, pool.other, 1 - pool.chance.astype(float))
        table = pool.by_degree / 2**32
        drawn = table * drawn / total + (1 - table) / total
        likely = {}  # of each row that is drawn from
        for range_, first in enumerate(pool.first):
            begin, end = pool.start[range_], pool.start[range_ + 1]
            for at, chance in enumerate(drawn[begin:end]):
                likely[first + at] = likely.get(first + at, 0.0) + chance
        own, others = pair & set(there), set(there) - pair
        left = 1 - sum(whole[layout.nodes_of(p)].sum() for p in own)
        there_too = sum(whole[layout.nodes_of(p)].sum() for p in others)
        scale = 1.0 if others else 1 / (1 - left)
        for p in there:
            chances = [likely[rows[p] + i] for i in range(layout.sizes[p])]
            by = scale if p in own else left / there_too
            np.testing.assert_allclose(chances, whole[layout.nodes_of(p)] * by, rtol=1e-3)
        seen.add((len(own), len(others)))
    assert {(1, 2), (2, 1), (1, 1), (2, 0)} <= seen


def test_vectors_that_are_no_numbers_are_not_saved(graph, tmp_path):
    """The checkpoint before is kept: an update that is too large comes after the last loss."""
    more = {"batch": graph.num_edges, "optimizer": "sgd", "init_scale": 1.0}
    run(graph, tmp_path / "r", epochs=1, **more)
    found = run(graph, tmp_path / "r", epochs=2, **{**more, "lr": 1e38})
    assert (found.stopped, found.epochs) == ("nan", 1)
    for name in ("last", "best"):
        (ours, *_), _, about = vectors(tmp_path / "r", name)
        assert np.isfinite(ours).all()
        assert about["epoch"] == 1


def test_a_warm_start_keeps_what_is_known(graph, tmp_path):
    """Known nodes and relations begin with yesterday's vectors, by id."""
    from penstock.pipelines.embed.run import keep_ids

    first = tmp_path / "first"
    run(graph, first, **OUT_OF_CORE)
    keep_ids(first, graph)
    # Tomorrow's graph: other numbers, a few nodes and a relation more.
    rng = np.random.default_rng(0)
    ids = [f"e{i}" for i in rng.permutation(graph.num_nodes + 20)]
    with Graph.create(tmp_path / "g2") as writer:
        ends = rng.integers(0, len(ids), (2, 2000))
        relations = rng.integers(0, 6, 2000).astype(np.int32)
        writer.edges(CSR.from_edges(*ends, len(ids), relations=relations))
        writer.nodes(ids)
        names = tuple(f"r{i}" for i in (5, 4, 3, 2, 1, 0))
        writer.manifest = replace(writer.manifest, relations=names)
    graph2 = Graph.open(tmp_path / "g2")
    names = graph.manifest.relations
    assert names is not None

    init = {"init": first, "init_relations": names}
    # What is learnt is next to nothing: known nodes still have the vectors of the other run.
    found = run(graph2, tmp_path / "second", epochs=1, lr=1e-12, partitions=4, batch=16, **init)
    assert found.known == {"nodes": 300, "relations": 5}
    (old, *_), of_old, _ = vectors(first)
    (new, *_), of_new, _ = vectors(tmp_path / "second", "last")
    number = {name: i for i, name in enumerate(graph.user_ids().to_pylist())}
    for node, name in enumerate(ids):
        if (at := number.get(name)) is None:
            assert 0 < np.abs(new[node]).max() < 0.01
        else:
            np.testing.assert_allclose(new[node], old[at], atol=1e-6)
    for i, name in enumerate(("r5", "r4", "r3", "r2", "r1", "r0")):
        if name in names:
            at = names.index(name)
            for ours, theirs in ((i, at), (6 + i, 5 + at)):
                of_known = of_new["relations"][ours], of_old["relations"][theirs]
                np.testing.assert_allclose(*of_known, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adagrad", "sgd", "adam"])
def test_a_warm_start_goes_on_as_the_other_run_would(graph, tmp_path, optimizer):
    """Adam divides what it has summed up by how many steps it took, of the other run as well."""
    from penstock.pipelines.embed.run import keep_ids

    # Batches of all edges and nodes: the numbers of epochs and batches decide nothing.
    more = {"batch": graph.num_edges, "negatives": "all", "optimizer": optimizer, "lr": 0.01}
    more |= {"validate_every": 100, "dim": 16}
    run(graph, tmp_path / "first", epochs=5, **more)
    keep_ids(tmp_path / "first", graph)
    shutil.copytree(tmp_path / "first", tmp_path / "same")
    run(graph, tmp_path / "same", epochs=8, **more)
    options = {**more, "init": tmp_path / "first", "init_relations": graph.manifest.relations}
    run(graph, tmp_path / "second", epochs=1, **options)
    run(graph, tmp_path / "second", epochs=2, **options)
    keep_ids(tmp_path / "second", graph)
    run(graph, tmp_path / "third", epochs=1, **{**options, "init": tmp_path / "second"})
    (ours, *_), tensors, _ = vectors(tmp_path / "third")
    (theirs, *_), others, _ = vectors(tmp_path / "same")
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    np.testing.assert_allclose(tensors["relations"], others["relations"], atol=1e-4)


def test_initial_vectors_do_not_depend_on_partitions(graph, tmp_path):
    found = []
    for partitions in (1, 4):
        options = {"partitions": partitions, "batch": 16, "lr": 1e-12, "epochs": 1}
        run(graph, tmp_path / str(partitions), **options)
        found.append(vectors(tmp_path / str(partitions), "last")[0][0])
    np.testing.assert_allclose(found[0], found[1], atol=1e-8)
    assert found[0].std() == pytest.approx(1e-3, rel=0.05)


@pytest.mark.parametrize("corrupt", ["tail", "both"])
@pytest.mark.parametrize(
    "loss", ["softmax", "contrastive", "logistic", "margin", "self-adversarial"]
)
@pytest.mark.parametrize("model", ["complex", "transe"])
@pytest.mark.parametrize("negatives", [7, "all"])
def test_the_loss_of_zeros(model, loss, corrupt, negatives):
    training = Training(model=model, dim=4, loss=loss, corrupt=corrupt, negatives=negatives)
    nodes, rules = 30, training.rules(3)
    zeros = Table(np.zeros((nodes, 4), np.float32), None)
    relations = Table(np.zeros((6, rules.relation_width), np.float32), None)
    ids = np.arange(nodes) if negatives == "all" else np.arange(10, 17)
    batch = Batch(np.array([1]), np.array([2]), np.array([3]), ids.astype(np.int32)[None, None])
    found, *_ = naive.gradients(zeros, relations, batch, rules)
    assert training.loss_of_zeros(nodes) == pytest.approx(float(found), rel=1e-6)
    own = np.zeros((1, 1, 1 if negatives == "all" else negatives), np.int32)
    batch = Batch(np.array([0]), np.array([2]), np.array([0]), own)
    found, *_ = naive.gradients(zeros, relations, batch, rules)
    assert training.loss_of_zeros(1) == pytest.approx(float(found), rel=1e-6)


def test_a_layout_of_other_nodes_is_refused(graph, tmp_path):
    """Rows beyond those of the table would be written."""
    run(graph, tmp_path / "r", epochs=1)
    np.save(tmp_path / "r/checkpoints/starts.npy", np.array([0, graph.num_nodes - 1]))
    with pytest.raises(CorruptFile) as error:
        run(graph, tmp_path / "r", epochs=2)
    assert "starts.npy" in str(error.value)


UNTRAINED = {"lr": 1e-9, "n3": 0, "epochs": 1, "init_scale": 1e-4}


@pytest.mark.parametrize("more", [{}, {"partitions": 5}], ids=["in memory", "out of core"])
def test_vectors_near_zero_have_the_loss_of_zeros(graph, tmp_path, more):
    """Of as many negatives as were in memory when an edge was trained."""
    more = {**more, "batch": 16, "negatives": "all", **UNTRAINED}
    found = run(graph, tmp_path / "r", **more)
    assert found.loss_of_zeros == pytest.approx(found.loss, rel=1e-4)


@pytest.mark.parametrize("more", [{"n3": 0.7}, {"l2": 0.7}, {"corrupt": "tail"}], ids=str)
@pytest.mark.parametrize("model", ["complex", "distmult", "transe", "rotate", "dot"])
def test_the_penalty_in_a_loss(model, more):
    if "n3" in more and model not in ("complex", "distmult"):
        return
    rules = Training(model=model, dim=4, **more).rules(3)
    rng = np.random.default_rng(3)
    nodes = Table(rng.normal(size=(9, 4)).astype(np.float32), None)
    width = rules.relation_width
    relations = Table(rng.normal(size=(6, width)).astype(np.float32), None) if width else None
    heads, typed, tails = (rng.integers(0, count, 8).astype(np.int32) for count in (9, 3, 9))
    drawn = rng.integers(0, 9, (len(rules.sides), 1, 5)).astype(np.int32)
    batch = Batch(heads, typed if width else None, tails, drawn)
    without = replace(rules, node_penalty=0.0, relation_penalty=0.0)
    whole, data = (naive.gradients(nodes, relations, batch, one)[0] for one in (rules, without))
    found = mean_penalty(nodes, relations, batch, rules)
    assert found == pytest.approx((whole - data) / 8, rel=1e-5, abs=1e-9)
