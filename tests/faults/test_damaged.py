"""Files whose bits changed and whose size did not: an error that names the file, in every job."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from penstock import Graph, generate, partition_graph
from penstock.errors import CorruptFile
from penstock.partition.part import Partition, partition_path


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("damaged") / "g"
    generate("sbm", path, nodes=400, seed=1, quiet=True)
    partition_graph(path, k=2, quiet=True)
    return path


@pytest.fixture
def damage(whole):
    """Write another value into a file of the graph, whose size stays; put it right afterwards."""
    kept = {}

    def change(name, at, value):
        path = whole / name
        kept.setdefault(path, path.read_bytes())
        array = np.load(path)
        array[at] = value
        np.save(path, array)
        assert path.stat().st_size == len(kept[path])
        return path

    yield change
    for path, content in kept.items():
        path.write_bytes(content)
        os.utime(path)


def run(*words):
    command = [sys.executable, "-P", "-m", "penstock", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stderr


BAD = [
    ("shards/00000/indices.npy", 7, 10**6),
    ("shards/00000/indices.npy", 0, -5),
    ("shards/00000/indptr.npy", 5, 10**9),
    ("shards/00000/indptr.npy", -1, 3),
]


@pytest.mark.parametrize(("name", "at", "value"), BAD)
def test_a_shard(whole, damage, name, at, value):
    damage(name, at, value)
    with pytest.raises(CorruptFile, match=name):
        Graph.open(whole).shard(0)
    with pytest.raises(CorruptFile, match=name):
        Graph.open(whole).csr()


@pytest.mark.parametrize(
    "command",
    [
        "info {g}",
        "walk {g} {out} --length 5 --cluster threads",
        "partition {g} -k 3 --method streaming",
        "gnn train {g} {out} --epochs 1 --cluster threads",
    ],
)
def test_every_job_names_the_file(whole, damage, tmp_path, command):
    damage("shards/00000/indices.npy", 7, 10**6)
    code, error = run(*command.format(g=whole, out=tmp_path / "out").split())
    assert code == 1
    assert "shards/00000/indices.npy" in error
    assert "Traceback" not in error
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        ("indices.npy", 3, 10**6),
        ("indptr.npy", 4, -1),
        ("owned.npy", 0, -1),
        ("ghosts.npy", 0, 10**6),
        ("send.npy", 0, 10**6),
        ("send_starts.npy", -1, 10**6),
        ("receive_starts.npy", -1, 10**6),
    ],
)
def test_a_part(whole, damage, name, at, value):
    path = "partition/k2/parts/00000/" + name
    damage(path, at, value)
    part = Partition.open(partition_path(Graph.open(whole), 2)).part(0)
    with pytest.raises(CorruptFile, match=name):
        for read in ("csr", "owned", "ghosts", "send", "receive"):
            getattr(part, read)


@pytest.mark.parametrize(("name", "value"), [("assignment.npy", 9), ("local.npy", 10**6)])
def test_an_assignment(whole, damage, name, value):
    damage("partition/k2/" + name, 0, value)
    partition = Partition.open(partition_path(Graph.open(whole), 2))
    with pytest.raises(CorruptFile, match=name):
        for read in ("assignment", "local"):
            getattr(partition, read)


def test_splits_of_a_part(whole, damage):
    from penstock.manifest import Manifest
    from penstock.workers.gnn.data.node_data import nodes_of_part, read_nodes

    damage("partition/k2/parts/00000/split.npy", 3, 7)
    part = Partition.open(partition_path(Graph.open(whole), 2)).part(0)
    with pytest.raises(CorruptFile, match="splits"):
        read_nodes(nodes_of_part(part), Manifest.load(whole), whole, None, for_training=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["shards"][0].update(stop=399),
        lambda body: body.update(nodes="many"),
        lambda body: body.update(heldout={"../../etc": 1}),
    ],
)
def test_a_manifest_edited_by_hand(whole, change):
    path = whole / "graph.json"
    text = path.read_text()
    try:
        body = json.loads(text)
        change(body)
        path.write_text(json.dumps(body))
        with pytest.raises(CorruptFile, match="graph.json"):
            Graph.open(whole)
    finally:
        path.write_text(text)
