"""Walks on the parts of a graph, by the ranks of a gang: the same as on the whole graph.

What the ranks call is nested, so that it travels by value.
"""

import numpy as np
import pytest

from penstock import connect, gang, partition_graph
from penstock.files import FileRanges
from penstock.kernels import kernel
from penstock.kernels.walk_rules import Sampler, WalkRules
from penstock.partition.part import partition_path
from penstock.workers.resources.device import gpu
from penstock.workers.walk.partitioned import walk_part
from penstock.workers.walk.rows import WalkGraphSpec
from penstock.workers.walk.waves import PartitionedWalk

NODES, TOTAL, PER_PART = 120, 1000, 70
NODE2VEC = {"second_order": True, "return_factor": 0.5, "far_factor": 2.0}

SPECS = {
    "deepwalk": WalkGraphSpec(WalkRules(12, seed=1)),
    "weighted": WalkGraphSpec(
        WalkRules(12, seed=2, sampler=Sampler.REJECTION, restart=0.1), weighted=True
    ),
    "its": WalkGraphSpec(WalkRules(12, seed=3, sampler=Sampler.ITS, stop=0.1), weighted=True),
    "node2vec": WalkGraphSpec(WalkRules(12, seed=4, symmetric=True, **NODE2VEC)),
    "metapath": WalkGraphSpec(
        WalkRules(12, seed=5, sampler=Sampler.ALIAS, schema=(0, 1), cyclic=True),
        wanted=(2, 0),
        weighted=True,
        relations=True,
    ),
    "temporal": WalkGraphSpec(WalkRules(12, seed=6, timed=True, **NODE2VEC), times=True),
    "expression": WalkGraphSpec(
        WalkRules(12, seed=7, sampler=Sampler.RESERVOIR, expression="weight * degree + label"),
        weighted=True,
        degrees=True,
        labels=True,
    ),
}


@pytest.fixture(params=["cpu", pytest.param("gpu", marks=pytest.mark.gpu)], scope="module")
def client(request):
    with connect("mpi", workers=3, device=request.param) as client:
        yield client


@pytest.fixture
def graph(make_graph):
    return make_graph(NODES, 900, weights=True, relations=3, times=True, labels=4)


def partitioned(graph, k, method):
    partition_graph(graph, k=k, method=method, quiet=True)
    return partition_path(graph, k)


def columns_of(graph):
    csr = graph.csr()
    return {
        **dict(csr.arrays()),
        "degrees": csr.degrees().astype(np.int32),
        "labels": np.asarray(graph.labels(), np.int32),
    }


def starts_of(nodes):
    class Scattered:
        def of(self, first, last):
            return (np.arange(first, last) * 7 % nodes).astype(np.int32)

    return Scattered()


def writer(folder):
    def write(number, first, paths):
        from penstock.files import save_npy

        save_npy(folder, f"{number}.npy", np.column_stack([np.arange(len(paths)) + first, paths]))

    return write


def whole(graph, spec, on_gpu=False):
    """The walks on the whole graph, with their numbers before them."""
    put = np.asarray
    if on_gpu:
        import cupy

        put = cupy.asarray
    rows, walks = spec.build(columns_of(graph), put), np.arange(TOTAL)
    starts = starts_of(NODES).of(0, TOTAL)
    paths = kernel("walk", rows.indptr).walk(rows, spec.rules, put(walks), put(starts))
    return np.column_stack([walks, paths.get() if on_gpu else paths])


def task_of(folder, partition, spec, **more):
    files = FileRanges(TOTAL, PER_PART)
    asked = {
        "todo": tuple(range(files.count)),
        "write": writer(folder),
        "wave_bytes": 20_000,
    } | more
    return PartitionedWalk(partition, spec, starts_of(NODES), files, **asked)


def written(folder):
    parts = sorted(folder.glob("*.npy"), key=lambda path: int(path.stem))
    return np.concatenate([np.load(part) for part in parts])


@pytest.mark.mpi
@pytest.mark.slow  # in one process, with every application: test_walkers.py
@pytest.mark.parametrize(("k", "method"), [(2, "metis"), (3, "random")])
def test_the_walks_are_those_on_the_whole_graph(client, graph, tmp_path, k, method):
    on_gpu = all(client.run(gpu).values())
    partition = partitioned(graph, k, method)
    for name, spec in SPECS.items():
        if name == "expression" and (k > 2 or on_gpu):
            continue  # every rank compiles it; on GPUs there is no reservoir in parts
        folder = tmp_path / name
        gang.run(client, walk_part, (task_of(folder, partition, spec),), ranks=k, wait_timeout=30)
        expected = whole(graph, spec, on_gpu)
        np.testing.assert_array_equal(written(folder), expected, err_msg=name)
