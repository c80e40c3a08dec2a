"""Walks on the parts of a graph, by the ranks of a gang, are those on the whole graph."""

import pyarrow.parquet as pq
import pytest

from penstock import ClusterSpec, partition_graph, walk

APPS = [
    {"sampler": "its", "stop": 0.1, "app": "ppr"},
    {"app": "node2vec", "p": 2, "q": 0.5},
    {"app": "metapath", "schema": "0,1", "sampler": "alias"},
    {"temporal": True},
]


@pytest.mark.mpi
@pytest.mark.slow  # in one process, with every application: kernels/walk/test_walk.py
@pytest.mark.parametrize("device", ["cpu", pytest.param("gpu", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("options", APPS, ids=str)
def test_the_walks_are_those_on_the_whole_graph(make_graph, tmp_path, device, options):
    graph = make_graph(120, 900, weights=True, relations=3, times=True)
    partition_graph(graph, k=3, method="random", quiet=True)
    for name, more in {
        "whole": {"cluster": ClusterSpec(cluster="threads", device=device)},
        "parts": {
            "cluster": ClusterSpec(cluster="mpi", workers=3, device=device),
            "placement": "partitioned",
        },
    }.items():
        walk(graph, tmp_path / name, length=12, walks=8, seed=4, **more, **options)
    parts, whole = (pq.read_table(tmp_path / name) for name in ("parts", "whole"))
    assert parts.equals(whole)
