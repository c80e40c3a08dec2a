"""How often centralities launch a kernel: for all graphs of a batch at once, however many.

No GPU is needed: CuPy is NumPy here, and launches are written down instead of made.
"""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

import penstock.kernels
from penstock.kernels.centrality_rules import GraphBatch

_PREFIX = "penstock.kernels.cuda"
_H200 = {"MultiProcessorCount": 132, "MaxSharedMemoryPerBlockOptin": 232_448}


class _DeviceArray(np.ndarray):
    def get(self):
        return np.asarray(self)


class _NumpyAsCupy(ModuleType):
    cuda = SimpleNamespace(Device=lambda device=0: SimpleNamespace(id=device, attributes=_H200))
    asnumpy = staticmethod(np.asarray)

    @staticmethod
    def zeros(*given):
        return np.zeros(*given).view(_DeviceArray)

    empty = zeros

    def __getattr__(self, name):
        return getattr(np, name)


@pytest.fixture
def launches(monkeypatch):
    """Give the kernels of the GPU, and a list of their launches: file, blocks, threads, items."""
    for name in [name for name in sys.modules if name.startswith(_PREFIX)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(penstock.kernels, "cuda", None, raising=False)  # as it was, afterwards
    monkeypatch.setitem(sys.modules, "cupy", _NumpyAsCupy("cupy"))
    from penstock.kernels.cuda import centrality, module
    from penstock.kernels.cuda.centrality import teams
    from penstock.kernels.cuda.centrality.items import ITEM

    made = []

    def launch_blocks(file, instance, blocks, threads, first, *rest, **_):
        items = first.view(ITEM) if first.dtype == np.uint8 else None
        made.append(SimpleNamespace(file=file, blocks=blocks, threads=threads, items=items))

    monkeypatch.setattr(teams, "launch_blocks", launch_blocks)
    monkeypatch.setattr(
        module,
        "launch_blocks",
        lambda file, instance, blocks, threads, *rest: launch_blocks(
            file, instance, blocks, threads, np.empty(0)
        ),
    )
    yield centrality, made
    for name in [name for name in sys.modules if name.startswith(_PREFIX)]:
        del sys.modules[name]


def rings(sizes, *, weighted=False, ways=2):
    """Return a batch of so many nodes each, with ``ways`` edges from every node."""
    ptr = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    nodes = int(ptr[-1])
    indices = np.repeat(np.arange(nodes, dtype=np.int32), ways)
    weights = np.ones(len(indices)) if weighted else None
    return GraphBatch(ptr, np.arange(nodes + 1, dtype=np.int64) * ways, indices, weights)


CALLS = {
    "closeness": (lambda c, b: c.shortest_paths(b), {}),
    "closeness, weighted": (lambda c, b: c.shortest_paths(b), {"weighted": True}),
    "distances": (lambda c, b: c.distances(b), {}),
    "betweenness, sparse": (lambda c, b: c.betweenness(b), {}),
    "betweenness, dense": (lambda c, b: c.betweenness(b), {"ways": 8}),
    "betweenness, float32": (lambda c, b: c.betweenness(b, dtype=np.float32), {"ways": 8}),
    "betweenness, edges": (lambda c, b: c.betweenness(b, edges=True), {"ways": 8}),
    "betweenness, weighted": (lambda c, b: c.betweenness(b), {"weighted": True}),
    "pagerank": (lambda c, b: c.pagerank(b), {}),
    "triangles": (lambda c, b: c.triangles(b), {}),
}
EVERY = pytest.mark.parametrize(("call", "kind"), CALLS.values(), ids=CALLS)


@EVERY
@pytest.mark.parametrize("copies", [1, 20])
def test_launches_take_every_source_of_every_graph_once(launches, call, kind, copies):
    kernels, made = launches
    batch = rings(np.tile([1, 20, 70, 700], copies), **kind)
    call(kernels, batch)
    if made[0].items is None:  # a thread a node, whatever its graph
        assert made[0].blocks * made[0].threads >= min(batch.nodes, 1 << 16)
        return
    items = np.concatenate([one.items for one in made])
    taken = np.zeros(batch.nodes, int)
    for item in items:
        low, high = batch.ptr[item["graph"]], batch.ptr[item["graph"] + 1]
        assert (low, high - low) == (item["first_node"], item["nodes"])
        assert low <= item["first_source"] < item["last_source"] <= high
        taken[item["first_source"] : item["last_source"]] += 1
    assert (taken == 1).all()
    # Values of two items never share a slot.
    slots = np.concatenate([np.arange(n) + at for at, n in items[["slot", "nodes"]]])
    assert len(np.unique(slots)) == len(slots)
