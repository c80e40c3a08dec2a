from dataclasses import replace

import numpy as np
import pytest

from penstock import Graph, partition_graph
from penstock.csr import CSR
from penstock.partition.part import Partition
from penstock.writer import create_graph


@pytest.fixture
def path(tmp_path):
    rng = np.random.default_rng(0)
    block = rng.integers(0, 2, 400)
    pairs = rng.integers(0, 400, (6000, 2))
    pairs = pairs[(block[pairs[:, 0]] == block[pairs[:, 1]]) | (rng.random(6000) < 0.05)]
    pairs = np.unique(np.concatenate([pairs, pairs[:, ::-1]]), axis=0)
    with create_graph(tmp_path / "g") as writer:
        writer.edges(CSR.from_edges(pairs[:, 0], pairs[:, 1], 400), shard_edges=2000)
        writer.nodes([f"user-{i}" for i in range(400)], label=block)
        writer.features(rng.random((400, 16)).astype(np.float32))
        writer.manifest = replace(writer.manifest, directed=False, labels="class")
    return tmp_path / "g"


def test_the_same_seed_writes_the_same_files(path):
    partition_graph(path, k=4, seed=3, quiet=True)
    one = Partition.of(Graph.open(path), 4).manifest.files
    partition_graph(path, k=4, seed=3, overwrite=True, quiet=True)
    assert Partition.of(Graph.open(path), 4).manifest.files == one


def test_what_metis_cannot_hold_is_streamed(path):
    assert partition_graph(path, k=2, memory_limit="1kB", quiet=True).made_by == "streaming"
