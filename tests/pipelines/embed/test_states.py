"""Runs in every state: killed before a checkpoint, edited by hand, without their graph."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest
from embed_runs import same
from graphs import write_graph

from penstock import CSR, ClusterSpec, embed, etl, generate
from penstock.errors import (
    CorruptFile,
    GraphError,
    InputError,
    MissingFile,
    PenstockWarning,
    UsageError,
)
from penstock.pipelines.embed.run import Run
from penstock.pipelines.vectors import Vectors
from penstock.workers.comm.single import SingleRank
from penstock.workers.embed.source import TableSource
from penstock.workers.embed.task import TrainTask
from penstock.workers.embed.train import train
from penstock.workers.training import checkpoint

SMALL = {"dim": 16, "batch": 200, "negatives": 16, "schedule": "constant"}


def before_a_checkpoint(run):
    """Make of a run what a kill before its first checkpoint leaves."""
    for path in (run / "checkpoints").glob("*.safetensors"):
        path.unlink()
    edit(run / "run.json", lambda body: body.update(state="training", report=None))


def edit(path, change):
    """Change what a JSON file or a checkpoint says."""
    if path.suffix == ".safetensors":
        tensors, about = checkpoint.load(path)
        change(about)
        checkpoint.save(path, tensors, about)
        return
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))


@pytest.fixture
def mine(trained, tmp_path):
    """A copy of a run, to be changed."""
    shutil.copytree(trained[0], tmp_path / "mine")
    return tmp_path / "mine"


# -- read while it trains --------------------------------------------------------------------------


def test_a_run_that_trains_meanwhile_is_read_as_of_one_checkpoint(tmp_path, monkeypatch):
    """Partitions are read one after another, and written over in between."""
    generate("kg", tmp_path / "g", entities=60, triples=900, relations=2, valid=0.0, quiet=True)
    options = {**SMALL, "batch": 20, "partitions": 4, "checkpoint_minutes": 1e-9}
    embed.train(tmp_path / "g", tmp_path / "run", epochs=1, **options)
    held = Run.load(tmp_path / "run")
    rows, trained = TableSource.vectors, []

    def read_slowly(source, partition):
        if partition == 2 and len(trained) < 2:
            trained.append(3 + 2 * len(trained))
            training = replace(held.training, epochs=trained[-1])
            task = TrainTask(tmp_path / "g", tmp_path / "run", training)
            train(SingleRank(), task)
        return rows(source, partition)

    def export():
        embed.export(tmp_path / "run", tmp_path / "out", overwrite=True)
        return Vectors.open(tmp_path / "out").values.tolist()

    with monkeypatch.context() as patched:
        patched.setattr(TableSource, "vectors", read_slowly)
        found = export()
    assert trained == [3, 5]
    assert found == export()  # of the newest, which stays
    path = next((tmp_path / "run/checkpoints").glob("nodes-*.table"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(GraphError):
        export()


# -- killed, and resumed ---------------------------------------------------------------------------


@pytest.mark.parametrize("partitions", [None, 4])
def test_a_warm_start_that_was_killed_before_a_checkpoint_begins_anew(
    mine, graph, tmp_path, partitions
):
    options = {**SMALL, "init": mine, "epochs": 1, "batch": 50, "partitions": partitions}
    embed.train(graph, tmp_path / "whole", **options)
    embed.train(graph, tmp_path / "run", **options)
    before_a_checkpoint(tmp_path / "run")
    again = embed.train(graph, tmp_path / "run", resume=True, **options)
    assert again.trained.known == {"nodes": 400, "relations": 6, "means": 0}
    same(tmp_path / "whole", tmp_path / "run")
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 1
    before_a_checkpoint(tmp_path / "run")
    edit(
        mine / "checkpoints/best.safetensors",
        lambda body: body["about"].update(note="trained further"),
    )
    with pytest.raises(UsageError, match=str(mine)):
        embed.train(graph, tmp_path / "run", resume=True, **options)


def test_a_line_that_was_cut_off_is_dropped(graph, tmp_path):
    embed.train(graph, tmp_path / "run", epochs=1, **SMALL)
    lines = tmp_path / "run/metrics.jsonl"
    lines.write_bytes(lines.read_bytes() + b'{"epoch": 2, "lo\xc3')
    embed.train(graph, tmp_path / "run", epochs=2, resume=True, **SMALL)
    assert [json.loads(line)["epoch"] for line in lines.read_text().splitlines()] == [1, 2]


# -- edited by hand --------------------------------------------------------------------------------


def test_ids_of_other_nodes_are_refused_and_written_again(mine, graph, tmp_path):
    path, before = mine / "ids.parquet", pq.read_table(mine / "ids.parquet")
    pq.write_table(before.slice(1), path)
    for does in (
        lambda: embed.evaluate(mine),
        lambda: embed.predict(mine, head="e1", relation="r0"),
        lambda: embed.export(mine, tmp_path / "v"),
        lambda: embed.vectors(mine),
        lambda: embed.train(graph, tmp_path / "r", init=mine, dim=16),
    ):
        with pytest.raises(CorruptFile, match=path.name):
            does()
    embed.train(graph, mine, dim=16, epochs=10, batch=200, patience=9, resume=True)
    assert pq.read_table(path).equals(before)


@pytest.mark.gpu
def test_a_gpus_memory_is_given_back_after_training(graph, tmp_path):
    import cupy

    pool, spec = cupy.get_default_memory_pool(), ClusterSpec(cluster="threads", device="gpu")
    pool.free_all_blocks()
    split = pool.free_bytes()  # lies between what is still used, and stays
    cupy.empty(split + (64 << 20), cupy.uint8)  # goes back to the pool, which keeps it
    assert pool.free_bytes() >= 64 << 20
    found = embed.train(graph, tmp_path / "run", epochs=1, cluster=spec, **SMALL)
    assert found.device == "gpu"
    assert pool.free_bytes() < split + (8 << 20)


def test_places_that_are_not_there_are_refused(graph, tmp_path):
    run = tmp_path / "run"
    embed.train(graph, run, partitions=4, epochs=1, **{**SMALL, "batch": 50})
    path = run / "checkpoints/places.npy"
    places = np.load(path)
    places[3] = 10**6
    np.save(path, places)
    with pytest.raises(CorruptFile, match=path.name):
        embed.export(run, tmp_path / "v")
    path.unlink()  # without it every vector would get another node's id
    with pytest.raises(MissingFile, match=path.name):
        embed.export(run, tmp_path / "v")


# -- other graphs, and none ------------------------------------------------------------------------


def test_ids_of_another_type_are_compared_as_text(tmp_path):
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 40, (2, 400))
    csr = CSR.from_edges(*ends, 40, relations=rng.integers(0, 2, 400).astype(np.int32))
    for name, ids in (("number", list(range(40))), ("text", [*map(str, range(39)), "new"])):
        write_graph(tmp_path / name, csr, ids, relations=("a", "b"))
    small = {**SMALL, "batch": 50, "epochs": 1}
    for one, other in (("number", "text"), ("text", "number")):
        embed.train(tmp_path / one, tmp_path / f"{one}-run", **small)
        warm = {**small, "init": tmp_path / f"{one}-run"}
        found = embed.train(tmp_path / other, tmp_path / f"{other}-warm", **warm)
        assert found.trained.known == {"nodes": 39, "relations": 2, "means": 1}
        ranked = embed.evaluate(
            tmp_path / f"{one}-run", graph=tmp_path / other, split="train", unknown="skip"
        )
        assert ranked.skipped == np.count_nonzero((ends == 39).any(axis=0))


def test_known_answers_need_no_graph(mine, tmp_path):
    edit(mine / "run.json", lambda body: body.update(graph=str(tmp_path / "gone")))
    asked = {"head": "e1", "relation": "r0", "top": 3}
    assert len(embed.predict(mine, known=True, **asked).answers) == 3
    with pytest.raises(InputError):
        embed.predict(mine, **asked)


def test_triples_of_an_undirected_graph_answer_both_ways(tmp_path):
    """With every pair of nodes known, in one direction, no candidate is left to rank above."""
    edges = tmp_path / "edges.csv"
    edges.write_text("source,target\na,b\nb,c\n")
    etl(edges, tmp_path / "g", directed=False)
    more = {"dim": 4, "batch": 2, "epochs": 1, "model": "dot"}
    embed.train(tmp_path / "g", tmp_path / "run", **more)
    triples = tmp_path / "triples"
    triples.write_text("a\ta\nb\tb\nc\tc\na\tb\nb\tc\nc\ta\n")
    found = embed.evaluate(tmp_path / "run", triples=triples, filtered=True)
    assert found.scores["mr"] == 1


def test_a_graph_that_was_made_again_is_a_warning(tmp_path):
    made = {"entities": 60, "triples": 900, "relations": 2, "quiet": True}
    generate("kg", tmp_path / "g", **made)
    embed.train(tmp_path / "g", tmp_path / "run", epochs=1, batch=20, dim=4)
    generate("kg", tmp_path / "g", seed=1, overwrite=True, **made)
    with pytest.warns(PenstockWarning, match=str(tmp_path / "g")):
        embed.evaluate(tmp_path / "run")
