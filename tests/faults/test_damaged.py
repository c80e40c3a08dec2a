"""Damaged artifacts, whose file an error names: manifests, indices out of range, flipped bits."""

import json
import shutil

import numpy as np
import pytest
from every_job import call, cells, refused, words_of

from penstock import Graph, partition_graph
from penstock.errors import CorruptFile, PenstockError
from penstock.partition.part import Partition
from penstock.pipelines.cli import run

MANIFESTS = {
    "partition": "graph.json",
    "walk": "graph/graph.json",
    "word2vec": "walks/_walks.json",
    "vectors": "vectors/vectors.json",
    "embed": "graph/graph.json",
    "nodes": "embedded/run.json",
    "gnn": "graph/graph.json",
    "predict": "run/run.json",
    "similar": "vectors/vectors.json",
}
READS_GRAPH = ["info", "partition", "walk", "embed", "gnn", "predict"]


@pytest.fixture(scope="module")
def parted(given, tmp_path_factory):
    """The inputs, whose graph has a partition."""
    folder = shutil.copytree(given, tmp_path_factory.mktemp("parted") / "given")
    partition_graph(folder / "graph", k=2, quiet=True)
    return folder


@pytest.fixture
def copy(parted, tmp_path):
    """A copy of the inputs, which a test may damage."""
    return shutil.copytree(parted, tmp_path / "given")


def change(path, at, value):
    """Write another value into an array, whose file keeps its size."""
    size, array = path.stat().st_size, np.load(path)
    array[at] = value
    np.save(path, array)
    assert path.stat().st_size == size


def flip(path):
    """Change a bit of the last number of a file, so that it stays in bounds."""
    content = bytearray(path.read_bytes())
    content[-8] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("text", ["[]", "half"])
@pytest.mark.parametrize("job", cells(MANIFESTS))
def test_a_manifest_that_does_not_parse(job, text, copy, tmp_path):
    words = words_of(job, copy, tmp_path / "out")
    home = tmp_path / "out" if job == "partition" else copy
    path = home / MANIFESTS[job]
    path.write_text(path.read_text()[: path.stat().st_size // 2] if text == "half" else text)
    refused(words, tmp_path, path, codes=(1,))


@pytest.mark.parametrize("job", READS_GRAPH)
def test_an_index_out_of_range(job, copy, tmp_path):
    out = tmp_path / "out"
    words = ["info", str(copy / "graph")] if job == "info" else words_of(job, copy, out)
    file = (out if job == "partition" else copy / "graph") / "shards/00000/indices.npy"
    change(file, 7, 10**6)
    refused(words, tmp_path, file, codes=(1,))


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [("indices", 7, 10**6), ("indices", 0, -5), ("indptr", 5, 10**9), ("indptr", -1, 3)],
)
def test_a_shard(copy, name, at, value):
    file = copy / f"graph/shards/00000/{name}.npy"
    change(file, at, value)
    with pytest.raises(CorruptFile, match=str(file)):
        Graph.open(copy / "graph").csr()


PART = "parts/00000/"


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [
        (PART + "indices.npy", 3, 10**6),
        (PART + "indptr.npy", 4, -1),
        (PART + "owned.npy", 0, -1),
        (PART + "ghosts.npy", 0, 10**6),
        (PART + "send.npy", 0, 10**6),
        (PART + "send_starts.npy", -1, 10**6),
        (PART + "receive_starts.npy", -1, 10**6),
        ("assignment.npy", 0, 9),
        ("local.npy", 0, 10**6),
    ],
)
def test_a_partition(copy, name, at, value):
    path = copy / "graph/partition/k2"
    change(path / name, at, value)
    with pytest.raises(CorruptFile, match=name):
        partition = Partition.open(path)
        part = partition.part(0)
        for read in ("csr", "owned", "ghosts", "send", "receive"):
            getattr(part, read)
        for read in ("assignment", "local"):
            getattr(partition, read)


@pytest.mark.parametrize(
    "change",
    [
        lambda body: body["shards"][0].update(stop=399),
        lambda body: body.update(nodes="many"),
        lambda body: body.update(features={}),
        lambda body: body.pop("nodes"),
        lambda body: body.update(heldout={"../../etc": 1}),
        lambda body: body["files"].update({"../../x": next(iter(body["files"].values()))}),
    ],
)
def test_a_manifest_that_cannot_be_meant(copy, change):
    """Its values do not fit together, or its paths leave the artifact."""
    path = copy / "graph/graph.json"
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))
    with pytest.raises(PenstockError, match=str(path)):
        Graph.open(copy / "graph")


def test_the_split_of_a_run(copy, tmp_path):
    path = tmp_path / "run"
    words = ["gnn", "train", str(copy / "graph"), str(path), "--epochs", "1"]
    call([*words, "--split", "0.6", "0.2", "0.2"])
    file = path / "split.parquet"
    file.write_bytes(file.read_bytes()[:100])
    refused(["gnn", "evaluate", str(path)], tmp_path, file, codes=(1,))


@pytest.mark.parametrize("where", [slice(10, 60), slice(-60, -20)], ids=["rows", "footer"])
def test_the_nodes_of_a_graph(where, copy, tmp_path):
    file = copy / "graph/nodes.parquet"
    content = bytearray(file.read_bytes())
    content[where] = b"\xff" * len(content[where])
    file.write_bytes(content)
    words = ["centrality", str(copy / "graph"), str(tmp_path / "out"), "--metrics", "pagerank"]
    refused(words, tmp_path, file, codes=(1,))


@pytest.mark.parametrize("job", ["walk", "partition", "predict"])
def test_verify_finds_a_flipped_bit(job, copy, tmp_path):
    """Before anything is computed with it; so does validate, and nothing else."""
    words = words_of(job, copy, tmp_path / "out")
    graph = tmp_path / "out" if job == "partition" else copy / "graph"
    call([*words, "--verify", "--plan"])
    file = graph / "features/00000.npy"
    flip(file)
    refused([*words, "--verify"], tmp_path, file, codes=(1,))
    refused(["validate", str(graph)], tmp_path, file, codes=(1,))
    call(words)


@pytest.mark.mpi
@pytest.mark.slow
def test_verify_finds_a_flipped_bit_of_a_partition(copy, tmp_path, capsys):
    file = copy / "graph/partition/k2/parts/00001/features.npy"
    flip(file)
    words = ["gnn", "train", str(copy / "graph"), str(tmp_path / "out"), "--epochs", "1"]
    assert run([*words, "-k", "2", "--cluster", "mpi", "-n", "2", "-q", "--verify"]) == 1
    assert file.name in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


BASES = {
    "etl {0}/edges.parquet {1} --source a --target b": "nodes.parquet",
    "centrality {0}/edges.parquet {1} --source a --target b --metrics clustering": (
        "nodes/part-00000.parquet"
    ),
    "centrality {0}/edges.parquet {1} --source a --target b --metrics closeness": (
        "structure/00000.npy"
    ),
    "centrality {0}/graph {1} --metrics pagerank": "nodes/part-00000.parquet",
    "gnn predict {0}/run {1} --graph {0}/graph": "part-00000.parquet",
}


@pytest.mark.parametrize("line", BASES, ids=[line.split()[0] for line in BASES])
def test_a_base(line, given, tmp_path):
    base = tmp_path / "base"
    path = base / BASES[line]
    assert run([*line.format(given, base).split(), "--cluster", "threads", "-q"]) == 0
    if path.suffix == ".npy":
        change(path, (0, 2), 1 << 40)
    else:
        content = path.read_bytes()
        path.write_bytes(bytes(len(content) // 2) + content[len(content) // 2 :])
    words = [*line.format(given, tmp_path / "out").split(), "--cluster", "threads"]
    said = call([*words, "--base", base], code=1)
    assert "Traceback" not in said
    assert str(path) in said
    assert not (tmp_path / "out").exists()
