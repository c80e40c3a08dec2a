"""A training run on several ranks: as good as on one, and the same however it is interrupted."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from embed_runs import same, vectors

from penstock.errors import GraphError, UsageError
from penstock.workers.embed import train as module
from penstock.workers.embed.spec import Training
from penstock.workers.embed.storage.direct import DirectFile
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
OUT_OF_CORE = {"partitions": 12, "batch": 8}
WAYS = pytest.mark.parametrize("more", [{}, OUT_OF_CORE], ids=["in memory", "out of core"])
SLOW_ON_DISK = pytest.mark.parametrize(
    "more",
    [{}, pytest.param(OUT_OF_CORE, marks=pytest.mark.slow)],
    ids=["in memory", "out of core"],
)


@pytest.fixture
def run(graph, gang):
    """Return what trains in a folder on so many ranks."""

    def run(folder, ranks=2, stop=None, **options):
        folder.mkdir(exist_ok=True)
        init = options.pop("init", None)
        names = graph.manifest.relations if init else ()
        task = TrainTask(graph.path, folder, Training(**{**SMALL, **options}), init, names or ())
        return gang(ranks, lambda comm: train(comm, task), stop=stop)

    return run


def lines(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("ranks", "more"),
    [(2, {}), (3, {}), (2, OUT_OF_CORE), pytest.param(3, OUT_OF_CORE, marks=pytest.mark.slow)],
)
def test_a_training_learns_and_ranks_agree(run, graph, tmp_path, gang, more, ranks):
    found = run(tmp_path / "r", ranks, epochs=8, **more)
    assert {one.epochs for one in found} == {8}
    assert len({one.loss for one in found}) == 1
    assert len({one.validation["mrr"] for one in found}) == 1
    assert found[0].validation["mrr"] > 0.1  # of a random order: 0.02
    assert found[0].ranks == ranks
    assert found[0].bytes_exchanged > 0
    assert (found[0].bytes_read > 0) == bool(more)
    assert (found[0].theorem or "").startswith("theorem 3 ") == bool(more)
    assert len({one.theorem for one in found}) == 1
    losses = [line["loss"] for line in lines(tmp_path / "r")]
    assert len(losses) == 8
    assert losses[-1] < 0.6 * losses[0]
    # What is evaluated while it trains is what the files hold.
    assert vectors(tmp_path / "r", "best")[2]["scores"] == found[0].validation
    logged = [metrics["done"] for _, metrics in gang.world.logged if "done" in metrics]
    assert max(logged) == 8 * graph.num_edges
    assert not (tmp_path / "r/buckets").exists()


def test_ranks_on_other_hosts_can_read_the_buckets(run, tmp_path, monkeypatch):
    """A mapped file that is only in this host's page cache is not what another host reads."""
    synced = []

    def flush(array):
        synced.append(Path(str(array.filename)).name.split(".")[1])

    monkeypatch.setattr(np.memmap, "flush", flush)
    run(tmp_path / "alone", 1, epochs=1)
    assert not {*synced} & {"heads", "tails", "relations"}
    run(tmp_path / "two", 2, epochs=1)
    assert {*synced} >= {"heads", "tails", "relations"}


@WAYS
@pytest.mark.parametrize(
    "optimizer",
    ["adagrad", *(pytest.param(name, marks=pytest.mark.slow) for name in ("adam", "sgd"))],
)
def test_a_resumed_training_is_the_same(run, tmp_path, more, optimizer):
    more = {**more, "optimizer": optimizer, "lr": 0.05}
    run(tmp_path / "whole", epochs=3, **more)
    run(tmp_path / "parts", epochs=1, **more)
    found = run(tmp_path / "parts", epochs=3, **more)
    assert found[0].first_epoch == 1
    same(tmp_path / "whole", tmp_path / "parts")
    assert [line["loss"] for line in lines(tmp_path / "whole")] == [
        line["loss"] for line in lines(tmp_path / "parts")
    ]
    done = run(tmp_path / "parts", epochs=3, **more)[0]  # nothing is left
    assert (done.loss_before, done.loss_of_zeros) == (None, None)


@WAYS
@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_one_that_is_interrupted_goes_on_within_an_epoch(run, tmp_path, monkeypatch, more, ranks):
    monkeypatch.setattr(module, "_LOOK", 0)  # at every batch
    more = {**more, "checkpoint_minutes": 1e-9}
    run(tmp_path / "whole", ranks, **more)
    places = set()
    for stop in (40, 150, 300) if "partitions" in more else (15, 25, 35):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "cut", ranks, stop=stop, **more)
        if Checkpoints(tmp_path / "cut/checkpoints").has():
            about = Checkpoints(tmp_path / "cut/checkpoints").load().about
            places.add((about["epoch"], about["step"]))
    assert any(state for _, state in places)
    run(tmp_path / "cut", ranks, **more)
    same(tmp_path / "whole", tmp_path / "cut")
    epochs = [line["epoch"] for line in lines(tmp_path / "cut") if "loss" in line]
    assert epochs == [1, 2, 3]


@SLOW_ON_DISK
@pytest.mark.parametrize(
    "other",
    [{"prefetch": False}, {"checkpoint_minutes": 1e-9}, {"validate_every": 2}],
    ids=["no prefetch", "many checkpoints", "fewer evaluations"],
)
def test_what_does_not_matter(run, tmp_path, more, other):
    run(tmp_path / "one", **more)
    run(tmp_path / "other", **more, **other)
    (ours, _, _), (theirs, _, _) = vectors(tmp_path / "one"), vectors(tmp_path / "other")
    np.testing.assert_array_equal(ours[0], theirs[0])


@pytest.mark.parametrize(
    "more",
    [
        {"model": "rotate", "loss": "self-adversarial", "lr": 0.05},
        {"by_degree": 0.5, **OUT_OF_CORE},
        {"order": "cover", "partitions": 8, "batch": 4},
    ],
    ids=lambda more: "-".join(f"{value}" for value in more.values()),
)
def test_every_way_of_training_lowers_the_loss(run, tmp_path, more):
    run(tmp_path / "r", epochs=4, **more)
    losses = [line["loss"] for line in lines(tmp_path / "r")]
    assert losses[-1] < losses[0]


@WAYS
def test_a_warm_start_on_ranks_reads_the_other_run_once_a_rank(
    run, graph, tmp_path, monkeypatch, more
):
    from penstock.pipelines.embed.run import keep_ids

    run(tmp_path / "first", 2, epochs=1)
    keep_ids(tmp_path / "first", graph)
    found = Checkpoints(tmp_path / "first/checkpoints").load("best")
    read = []
    stream = DirectFile.stream

    def seen(table, version):
        read.append(version.partition)
        return stream(table, version)

    monkeypatch.setattr(DirectFile, "stream", seen)
    # What is learnt is next to nothing: all vectors are still those of the other run.
    run(tmp_path / "then", 2, epochs=1, init=tmp_path / "first", lr=1e-12, **more)
    assert set(read) == set(range(found.geometry.partitions))
    assert max(Counter(read).values()) <= 2  # ranks
    ours, theirs = vectors(tmp_path / "then")[0], vectors(tmp_path / "first", "best")[0]
    np.testing.assert_allclose(ours[0], theirs[0], atol=1e-6)


def test_patience_ends_all_ranks(run, tmp_path):
    found = run(tmp_path / "r", epochs=60, patience=2, lr=1.0)
    assert {one.stopped for one in found} == {"patience"}
    assert len({one.epochs for one in found}) == 1
    assert vectors(tmp_path / "r", "best")[2]["epoch"] == found[0].best_epoch


def test_the_best_vectors_are_ranked_again_by_another_sample(run, tmp_path):
    run(tmp_path / "whole", epochs=3)
    run(tmp_path / "r", epochs=2, validate_sample=1)
    for epochs in (2, 3):  # of those that are done already, too
        found = run(tmp_path / "r", epochs=epochs)
        assert len({one.validation["mrr"] for one in found}) == 1
        assert found[0].validation["ranks"] == 200
    (ours, _, _), (theirs, _, _) = vectors(tmp_path / "r"), vectors(tmp_path / "whole")
    np.testing.assert_array_equal(ours[0], theirs[0])


@WAYS
def test_a_loss_that_is_no_number_ends_all_ranks(run, tmp_path, more):
    found = run(tmp_path / "r", optimizer="sgd", lr=1e30, **more)
    assert {one.stopped for one in found} == {"nan"}
    assert not (tmp_path / "r/checkpoints/last.safetensors").exists()


def lost(path):
    path.unlink()


def damaged(path):
    path.write_bytes(bytes(path.stat().st_size))


@SLOW_ON_DISK
@pytest.mark.parametrize("change", [lost, damaged])
def test_a_table_that_one_rank_has_lost_ends_all(run, tmp_path, more, change):
    run(tmp_path / "r", epochs=1, **more)
    folder = tmp_path / "r/checkpoints"
    change(folder / "nodes-001.table")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(GraphError) as error:
        run(tmp_path / "r", epochs=2, **more)
    assert "nodes-001.table" in str(error.value)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize("theirs", ["older", "no folder"])
def test_ranks_that_see_different_checkpoints_do_not_train(run, graph, tmp_path, gang, theirs):
    """As where the folder of the run is not shared, but there on both hosts."""
    ours, other = tmp_path / "ours", tmp_path / "other"
    run(ours, epochs=1)
    if theirs != "no folder":
        shutil.copytree(ours, other)
    run(ours, epochs=2)
    for folders in ((ours, other), (other, ours)):

        def resume(comm, folders=folders):
            training = Training(**{**SMALL, "epochs": 3})
            return train(comm, TrainTask(graph.path, folders[comm.rank], training))

        with pytest.raises(UsageError):
            gang(2, resume)
