"""Walks on the parts of a graph, by the ranks of a gang, are those on the whole graph."""

import pyarrow.parquet as pq
import pytest

from penstock import ClusterSpec, connect, partition_graph, walk

APPS = [
    {"sampler": "its", "stop": 0.1, "app": "ppr"},
    {"app": "node2vec", "p": 2, "q": 0.5},
    {"app": "metapath", "schema": "0,1", "sampler": "alias"},
    {"temporal": True},
]


@pytest.mark.mpi
@pytest.mark.slow  # in one process, with every application: kernels/walk/test_walk.py
@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
def test_the_walks_are_those_on_the_whole_graph(make_graph, tmp_path, device):
    graph = make_graph(120, 900, weights=True, relations=3, times=True)
    partition_graph(graph, k=3, method="random", quiet=True)
    with connect("mpi", workers=3, device=device, no_tls=True) as client:
        for number, options in enumerate(APPS):
            found = []
            for spec, placement in (
                (ClusterSpec(cluster="threads", device=device), "replicated"),
                (ClusterSpec(cluster=client.scheduler.address), "partitioned"),
            ):
                how = {"cluster": spec, "placement": placement, "length": 12, "walks": 8, "seed": 4}
                walk(graph, out := tmp_path / f"{placement}{number}", **how, **options)
                found.append(pq.read_table(out))
            assert found[0].equals(found[1]), options
