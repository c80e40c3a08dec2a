"""Training of embeddings: the same however it is interrupted, on one rank and on several."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from embed_runs import same, vectors
from graphs import write_graph

from penstock import CSR
from penstock.errors import GraphError, UsageError
from penstock.files import sha256_of
from penstock.pipelines.embed.run import keep_ids
from penstock.workers.embed import initial
from penstock.workers.embed import train as module
from penstock.workers.embed.negatives import Negatives
from penstock.workers.embed.spec import Training
from penstock.workers.embed.storage.versions import Checkpoints
from penstock.workers.embed.task import TrainTask
from penstock.workers.embed.train import train

SMALL = {"model": "complex", "dim": 8, "batch": 64, "negatives": 16, "epochs": 3, "lr": 0.3}
SMALL |= {"validate_sample": 100, "validate_every": 1, "schedule": "constant"}
LEFT = "nodes-0000-000099.table", ".nodes-0000-000099.table.0badc0de.tmp"
OTHER = {"checkpoint_minutes": 1e-9}, {"prefetch": False}, {"storage": "queues"}
DISK, DISK_OF_RANKS = {"partitions": 5, "batch": 16}, {"partitions": 12, "batch": 8}


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture(scope="session")
def run(graph, on_threads):
    """Return what trains in a folder on ranks, and returns what each reports."""

    def run(folder, ranks=1, stop=None, on=graph, init=None, **options):
        folder.mkdir(exist_ok=True)
        names = graph.manifest.relations if init else ()
        sha256 = sha256_of(init / "checkpoints/best.safetensors") if init else None
        training = Training(**{**SMALL, **options})
        task = TrainTask(on.path, folder, training, init, names, sha256)
        return on_threads(ranks, lambda comm: train(comm, task), stop=stop)

    return run


@pytest.fixture(scope="session")
def whole(run, tmp_path_factory):
    """Return the folder of a training that nothing interrupts; the same options train once."""
    made = {}

    def whole(ranks, **options):
        key = ranks, *options.items()
        if key not in made:
            made[key] = tmp_path_factory.mktemp("whole") / "run"
            run(made[key], ranks, **options)
        return made[key]

    return whole


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def losses(folder):
    return [line["loss"] for line in lines(folder) if "loss" in line]


@pytest.mark.parametrize(
    ("ranks", "more"),
    [(2, {}), (2, DISK_OF_RANKS), slow(3, {}), slow(3, DISK_OF_RANKS)],
)
def test_ranks_learn_and_agree(run, graph, tmp_path, on_threads, ranks, more):
    found = run(tmp_path / "r", ranks, epochs=8, **more)
    assert {one.epochs for one in found} == {8}
    for name in ("loss", "theorem"):
        assert len({getattr(one, name) for one in found}) == 1
    assert len({one.validation["mrr"] for one in found}) == 1
    first = found[0]
    assert first.validation["mrr"] > 0.1  # of a random order: 0.02
    assert (first.ranks, first.bytes_exchanged > 0, first.bytes_read > 0) == (
        ranks,
        True,
        bool(more),
    )
    assert (first.theorem or "").startswith("theorem 3 ") == bool(more)
    assert len(losses(tmp_path / "r")) == 8
    assert losses(tmp_path / "r")[-1] < 0.6 * losses(tmp_path / "r")[0]
    # What is evaluated during the training is what the files hold.
    assert vectors(tmp_path / "r", "best")[2]["scores"] == first.validation
    done = [metrics["done"] for _, metrics in on_threads.world.logged if "done" in metrics]
    assert max(done) == 8 * graph.num_edges
    assert not (tmp_path / "r/buckets").exists()


@pytest.mark.parametrize(
    ("ranks", "more", "optimizer"),
    [
        (1, {}, "adagrad"),
        (1, DISK, "adam"),
        (2, {}, "adam"),
        (2, DISK_OF_RANKS, "adagrad"),
        slow(2, DISK_OF_RANKS, "sgd"),
    ],
)
def test_a_resumed_training_is_the_same(run, tmp_path, ranks, more, optimizer):
    more = {**more, "optimizer": optimizer, "lr": 0.05}
    run(tmp_path / "whole", ranks, epochs=3, **more)
    run(tmp_path / "parts", ranks, epochs=1, **more)
    assert run(tmp_path / "parts", ranks, epochs=3, **more)[0].first_epoch == 1
    same(tmp_path / "whole", tmp_path / "parts")
    assert losses(tmp_path / "whole") == losses(tmp_path / "parts")
    # A process that is killed in a checkpoint leaves files that none names.
    left = [tmp_path / "parts/checkpoints" / name for name in LEFT]
    for path in left:
        path.touch()
    done = run(tmp_path / "parts", ranks, epochs=3, **more)[0]  # nothing is left
    assert not any(path.exists() for path in left)
    assert done.loss_before is None


@pytest.mark.parametrize(
    ("ranks", "more", "stops"),
    [
        (1, DISK, (30, 150, 170)),
        (2, {}, (15, 25, 35)),
        slow(2, DISK_OF_RANKS, (40, 150, 300)),
        slow(3, DISK_OF_RANKS, (40, 150, 300)),
    ],
)
def test_an_interrupted_training_resumes_within_an_epoch(
    run, whole, tmp_path, monkeypatch, ranks, more, stops
):
    monkeypatch.setattr(module, "LOOK", 0)  # at every batch
    places = set()
    more = {**more, "checkpoint_minutes": 1e-9}
    for stop in stops:
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "cut", ranks, stop, **more)
        if Checkpoints(tmp_path / "cut/checkpoints").has():
            about = Checkpoints(tmp_path / "cut/checkpoints").load().about
            places.add((about["epoch"], about["step"]))
    assert any(step for _, step in places)
    run(tmp_path / "cut", ranks, **more)
    same(whole(ranks, **more), tmp_path / "cut")
    assert [line["epoch"] for line in lines(tmp_path / "cut") if "loss" in line] == [1, 2, 3]


@pytest.mark.parametrize(
    ("ranks", "more", "other"),
    [
        *((1, DISK, other) for other in OTHER),
        (2, {}, OTHER[0]),  # in memory the others have nothing to decide
        *(slow(2, DISK_OF_RANKS, other) for other in OTHER),
    ],
)
def test_what_does_not_matter(run, whole, tmp_path, ranks, more, other):
    run(tmp_path / "other", ranks, **more, **other)
    (ours, *_), (theirs, *_) = vectors(whole(ranks, **more))[0], vectors(tmp_path / "other")[0]
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(("share", "power"), [(0.0, 1.0), (0.8, 0.5)])
def test_negatives_are_fairly_shared(run, graph, tmp_path, monkeypatch, share, power):
    """Of an own partition a node is as likely as in memory, of others by their degrees."""
    found, make = [], Negatives.pool

    def keep(self, phase, pair, rows):
        pool = make(self, phase, pair, rows)
        found.append((self.layout, phase.partitions, set(pair), pool, dict(rows)))
        return pool

    monkeypatch.setattr(Negatives, "pool", keep)
    run(tmp_path / "r", epochs=1, by_degree=share, degree_exponent=power, **DISK)
    degrees = graph.degrees + np.bincount(graph.csr().indices, minlength=graph.num_nodes)
    degrees = np.maximum(degrees, 1.0) ** power
    whole = (1 - share) / graph.num_nodes + share * degrees / degrees.sum()
    seen = set()
    for layout, there, pair, pool, rows in found:
        total = int(pool.start[-1])
        drawn = np.ones(total)
        if pool.chance is not None:
            drawn = pool.chance.astype(float)
            np.add.at(drawn, pool.other, 1 - pool.chance.astype(float))
        drawn /= total
        likely = {}  # of each row that is drawn from
        for range_, first in enumerate(pool.first):
            for at, chance in enumerate(drawn[pool.start[range_] : pool.start[range_ + 1]]):
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


@pytest.mark.parametrize(("ranks", "batch"), [(1, None), (2, 64)])
def test_vectors_that_are_not_finite_are_not_saved(run, graph, tmp_path, ranks, batch):
    """The checkpoint before is kept: of one batch the update that is too large follows the loss."""
    more = {"batch": batch or graph.num_edges, "optimizer": "sgd", "init_scale": 1.0, "lr": 0.01}
    run(tmp_path / "r", ranks, epochs=1, **more)
    found = run(tmp_path / "r", ranks, epochs=2, **{**more, "lr": 1e38})
    assert {(one.stopped, one.epochs) for one in found} == {("nan", 1)}
    for name in ("last", "best"):
        (ours, *_), _, about = vectors(tmp_path / "r", name)
        assert np.isfinite(ours).all()
        assert about["epoch"] == 1


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_warm_start_keeps_what_is_known(run, whole, graph, tmp_path, ranks):
    """Known nodes and relations begin with yesterday's vectors, by id."""
    first = Path(shutil.copytree(whole(1, **DISK), tmp_path / "first"))
    keep_ids(first, graph)
    # Tomorrow's graph: other numbers, a few nodes and a relation more.
    rng = np.random.default_rng(0)
    ids = [f"e{i}" for i in rng.permutation(graph.num_nodes + 20)]
    names = tuple(f"r{i}" for i in (5, 4, 3, 2, 1, 0))
    ends, relations = rng.integers(0, len(ids), (2, 2000)), rng.integers(0, 6, 2000)
    csr = CSR.from_edges(*ends, len(ids), relations=relations.astype(np.int32))
    tomorrow = write_graph(tmp_path / "g2", csr, ids, relations=names)
    # What is learnt is next to nothing: known nodes still have the vectors of the other run.
    more = {"epochs": 1, "lr": 1e-12, "partitions": 4, "batch": 16}
    found = run(tmp_path / "second", ranks, on=tomorrow, init=first, **more)
    assert found[0].known == {"nodes": 300, "relations": 5, "means": 0}
    (old, *_), of_old, _ = vectors(first)
    (new, *_), of_new, _ = vectors(tmp_path / "second")
    number = {name: i for i, name in enumerate(graph.user_ids().to_pylist())}
    for node, name in enumerate(ids):
        if (at := number.get(name)) is None:
            assert 0 < np.abs(new[node]).max() < 0.01  # of edges that fit nothing
        else:
            np.testing.assert_allclose(new[node], old[at], atol=1e-6)
    for i, name in enumerate(names):
        if name in graph.manifest.relations:
            at = graph.manifest.relations.index(name)
            for ours, theirs in ((i, at), (6 + i, 5 + at)):
                of_known = of_new["relations"][ours], of_old["relations"][theirs]
                np.testing.assert_allclose(*of_known, atol=1e-6)


@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_a_warm_start_continues_as_the_other_run_would(run, graph, tmp_path, optimizer):
    """Adam divides what it has summed up by how many steps it took, of the other run as well."""
    # Batches of all edges and nodes: the numbers of epochs and batches decide nothing.
    more = {"batch": graph.num_edges, "negatives": "all", "optimizer": optimizer, "lr": 0.01}
    more |= {"validate_every": 100, "dim": 16}
    run(tmp_path / "first", epochs=5, **more)
    keep_ids(tmp_path / "first", graph)
    shutil.copytree(tmp_path / "first", tmp_path / "same")
    run(tmp_path / "same", epochs=8, **more)
    for epochs in (1, 2):
        run(tmp_path / "second", epochs=epochs, init=tmp_path / "first", **more)
    keep_ids(tmp_path / "second", graph)
    run(tmp_path / "third", epochs=1, init=tmp_path / "second", **more)
    (ours, *_), tensors, _ = vectors(tmp_path / "third")
    (theirs, *_), others, _ = vectors(tmp_path / "same")
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    np.testing.assert_allclose(tensors["relations"], others["relations"], atol=1e-4)


def test_patience_ends_all_ranks(run, tmp_path):
    found = run(tmp_path / "r", 2, epochs=60, patience=2, lr=1.0)
    assert {one.stopped for one in found} == {"patience"}
    assert len({one.epochs for one in found}) == 1
    assert vectors(tmp_path / "r", "best")[2]["epoch"] == found[0].best_epoch


# -- damaged and other files -----------------------------------------------------------------------


@pytest.mark.parametrize("more", [{}, slow(DISK_OF_RANKS)], ids=["memory", "disk"])
@pytest.mark.parametrize("left", [None, b""], ids=["lost", "cut off"])
def test_a_partition_that_is_lost_ends_all_ranks(run, tmp_path, more, left):
    run(tmp_path / "r", 2, epochs=1, **more)
    table = sorted((tmp_path / "r/checkpoints").glob("nodes-*.table"))[1]
    table.unlink()
    if left is not None:
        table.write_bytes(left)
    before = {path.name: path.read_bytes() for path in table.parent.iterdir()}
    with pytest.raises(GraphError, match=table.name):
        run(tmp_path / "r", 2, epochs=2, **more)
    assert {path.name: path.read_bytes() for path in table.parent.iterdir()} == before


@pytest.mark.parametrize("theirs", ["older", "no folder"])
def test_ranks_that_see_different_checkpoints_do_not_train(
    run, graph, tmp_path, on_threads, theirs
):
    """The folder of the run exists on both hosts, and is not shared."""
    ours, other = tmp_path / "ours", tmp_path / "other"
    run(ours, 2, epochs=1)
    if theirs == "older":
        shutil.copytree(ours, other)
    run(ours, 2, epochs=2)
    for folders in ((ours, other), (other, ours)):
        task = TrainTask(graph.path, ours, Training(**SMALL))
        with pytest.raises(UsageError):
            on_threads(2, lambda comm, t=task, f=folders: train(comm, replace(t, run=f[comm.rank])))


@pytest.mark.gpu
def test_a_gpu_draws_the_initial_vectors_of_cores(monkeypatch):
    import cupy as cp

    nodes = np.random.default_rng(0).permutation(5000)[:3000]
    on_cores = np.full((3001, 100), np.nan, np.float32)
    initial.fill_nodes(7, nodes, on_cores, 0.3)
    monkeypatch.setattr(initial, "DEVICE_BYTES", 1 << 18)  # several pieces
    on_device = cp.full((3001, 100), cp.nan, cp.float32)
    initial.fill_nodes(7, nodes, on_device, 0.3)
    np.testing.assert_array_equal(on_device.get(), on_cores)
    assert not on_cores[3000].any()
