"""Memory that training is expected to take, beside what it takes, of what allocators count."""

import tracemalloc
from contextlib import ExitStack

import numpy as np
import pyarrow as pa
import pytest

from penstock import CSR, Graph, embed
from penstock.pipelines.embed.planning import memory_to_begin
from penstock.pipelines.embed.run import Run
from penstock.workers.embed.train import node_layout
from penstock.workers.embed.warm import WarmStart

NODES = 140_000  # just above a power of two, where a table of ids is largest


def taken(does):
    """Return the most bytes that NumPy, Python and Arrow have had at once, of what is called."""
    before = pa.default_memory_pool()
    pool = pa.proxy_memory_pool(pa.system_memory_pool())
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        does()
        return tracemalloc.get_traced_memory()[1] + int(pool.max_memory() or 0)
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(before)


def made(path, ids):
    """A graph of many nodes and few edges."""
    ends = np.random.default_rng(0).integers(0, NODES, (2, NODES))
    with Graph.create(path) as writer:
        writer.edges(CSR.from_edges(*ends, NODES))
        writer.nodes(ids)
    return Graph.open(path)


@pytest.fixture(scope="module", params=["numbers", "names"])
def wide(request, tmp_path_factory):
    ids = range(0, 3 * NODES, 3)
    ids = np.array(ids) if request.param == "numbers" else [f"node {i:015d}" for i in ids]
    return made(tmp_path_factory.mktemp("wide") / "g", ids)


@pytest.mark.parametrize("partitions", [1, 6])
def test_a_warm_start_is_counted(wide, tmp_path, partitions):
    first, options = tmp_path / "first", {"dim": 4, "epochs": 1}
    before = made(tmp_path / "before", wide.user_ids().to_pandas().to_numpy()[::-1])
    embed.train(before, first, lr=1e-9, batch=70_000, negatives=1, **options)
    run = Run.load(first)

    def begin():
        layout = node_layout(NODES, partitions, 0)
        with ExitStack() as opened:
            warm = WarmStart(first, (), wide, run.training.rules(0), opened)
            for partition in range(partitions):
                nodes = layout.nodes_of(partition)
                slot = list(np.zeros((2, len(nodes), 4), np.float32))
                warm.fill(nodes, slot)
                slot.clear()

    expected, took = memory_to_begin(wide, first, run), taken(begin)
    assert expected / 3 < took <= expected
    # It is in the plan.
    need = [
        embed.train.plan(wide, tmp_path / "run", dim=4, **more) for more in ({}, {"init": first})
    ]
    assert (need[1].memory.bytes or 0) - (need[0].memory.bytes or 0) == expected


def test_the_disk_space_has_the_matrices_of_relations(graph, tmp_path):
    """They are much larger here than the vectors of nodes."""
    options = {"model": "rescal", "dim": 128, "epochs": 2, "batch": 1000, "negatives": 8}
    plan = embed.train.plan(graph, tmp_path / "run", **options)
    embed.train(graph, tmp_path / "run", **options)
    took = sum(path.stat().st_size for path in (tmp_path / "run").rglob("*"))
    assert took < (plan.disk.bytes or 0) < 2 * took
