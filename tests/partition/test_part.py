import shutil

import pytest

from penstock import partition_graph
from penstock.errors import GraphError
from penstock.partition.part import Partition, partitions


def test_partitions_are_found_with_their_graph_or_elsewhere_until_it_is_made_again(
    make_graph, tmp_path
):
    graph = make_graph()
    for k in (3, 12):
        partition_graph(graph, k=k, method="greedy", quiet=True)
    assert [path.name for path in partitions(graph)] == ["k3", "k12"]
    assert Partition.of(graph, 3).manifest.made_by == "greedy"
    Partition.open(shutil.copytree(graph.path / "partition/k3", tmp_path / "nvme")).validate()
    path = graph.path / "graph.json"
    path.write_text(path.read_text().replace('"directed": false', '"directed": true'))
    with pytest.raises(GraphError):
        Partition.of(graph, 3)
