import shutil
from dataclasses import replace

import numpy as np
import pytest

from penstock import Graph, partition_graph
from penstock.csr import CSR
from penstock.errors import GraphError
from penstock.partition.part import Partition, partitions
from penstock.writer import create_graph


@pytest.fixture
def graph(tmp_path):
    nodes = np.arange(30)
    sources, targets = np.concatenate(
        [[nodes, (nodes + 1) % 30], [(nodes + 1) % 30, nodes]], axis=1
    )
    with create_graph(tmp_path / "g") as writer:
        writer.edges(CSR.from_edges(sources, targets, 30))
        writer.nodes()
        writer.manifest = replace(writer.manifest, directed=False)
    graph = Graph.open(tmp_path / "g")
    partition_graph(graph, k=3, method="greedy", quiet=True)
    return graph


def test_a_partition_is_found_with_its_graph(graph):
    partition_graph(graph, k=12, method="random", quiet=True)
    assert [path.name for path in partitions(graph)] == ["k3", "k12"]
    partition = Partition.of(graph, 3)
    assert partition.k == 3
    assert partition.manifest.made_by == "greedy"
    assert sum(len(partition.part(rank).owned) for rank in range(3)) == 30


def test_a_graph_made_again_makes_its_partition_stale(graph):
    path = graph.path / "graph.json"
    path.write_text(path.read_text().replace('"directed": false', '"directed": true'))
    with pytest.raises(GraphError):
        Partition.of(graph, 3)


def test_a_copy_elsewhere_needs_no_graph(graph, tmp_path):
    copy = shutil.copytree(graph.path / "partition" / "k3", tmp_path / "nvme")
    Partition.open(copy).validate()
