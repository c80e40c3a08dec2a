"""The reservoir samplers of the GPU: by eight lanes, a warp, a block; ours and the paper's."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from penstock.csr import CSR
from penstock.kernels.naive import walk as naive
from penstock.kernels.walk_rules import Sampler, WalkGraph, WalkRules

pytestmark = pytest.mark.gpu

SECOND = {"second_order": True, "return_factor": 0.5, "far_factor": 2.0}
DEGREES = (3, 20, 100, 700, 6000)  # for eight lanes, a warp, and a block from long_from on
NODES = 7000


@pytest.fixture(scope="module")
def rows():
    """Nodes 0 to 4 have DEGREES, to random others, some of weight 0; all have an edge to each."""
    random = np.random.default_rng(3)
    sources = np.concatenate([np.full(degree, node) for node, degree in enumerate(DEGREES)])
    targets = np.concatenate([random.choice(NODES, degree, replace=False) for degree in DEGREES])
    back = np.repeat(np.arange(NODES), len(DEGREES))
    sources = np.concatenate([sources, back])
    targets = np.concatenate([targets, np.tile(np.arange(len(DEGREES)), NODES)])
    weights = np.where(random.random(len(sources)) < 0.1, 0, random.uniform(1, 5, len(sources)))
    relations = random.integers(0, 3, len(sources)).astype(np.int32)
    csr = CSR.from_edges(
        sources, targets, NODES, weights=weights.astype(np.float32), relations=relations
    )
    return WalkGraph(csr.indptr, csr.indices, weights=csr.weights, relations=csr.relations)


def on_gpu(rows, *, relations):
    import cupy

    return WalkGraph(
        cupy.asarray(rows.indptr),
        cupy.asarray(rows.indices),
        weights=cupy.asarray(rows.weights),
        relations=cupy.asarray(rows.relations) if relations else None,
    )


def close(found, edges, chances, rows):
    """Whether next nodes have the chances of the edges to them; the rarest are taken together."""
    expected = np.zeros(NODES)
    np.add.at(expected, rows.indices[edges], chances * len(found))
    counts = np.bincount(found, minlength=NODES)
    assert not counts[expected == 0].any()
    order = np.argsort(expected)
    order = order[expected[order] > 0]
    bins = np.minimum(np.cumsum(expected[order]) // 12, 4000).astype(int)
    counts, expected = np.bincount(bins, counts[order]), np.bincount(bins, expected[order])
    counts, expected = counts[expected > 0], expected[expected > 0]
    if len(counts) < 2:
        return True
    return bool(stats.chisquare(counts, expected * counts.sum() / expected.sum()).pvalue > 1e-6)


@pytest.mark.parametrize("method", ["lanes", "dprs", "zprs"])
@pytest.mark.parametrize("long_from", [64, 600, 4096])
@pytest.mark.parametrize("app", ["deepwalk", "metapath", "node2vec"])
def test_chances_of_every_team(rows, method, long_from, app):
    import cupy

    from penstock.kernels.cuda.walk.reservoir import walk_reservoir

    more = {"deepwalk": {}, "metapath": {"schema": (1, 2)}, "node2vec": SECOND}[app]
    rules = WalkRules(3, seed=5, sampler=Sampler.RESERVOIR, **more)
    count = 200_000
    walks = cupy.arange(count * len(DEGREES), dtype=cupy.int64)
    starts = (walks // count).astype(cupy.int32)
    here = on_gpu(rows, relations=app == "metapath")
    paths = walk_reservoir(here, rules, walks, starts, method=method, long_from=long_from).get()
    truth = rows if app == "metapath" else replace(rows, relations=None)
    for node in range(len(DEGREES)):
        mine = paths[node * count : (node + 1) * count]
        assert (mine[:, 0] == node).all()
        edges, chances = naive.transition(truth, rules, node, -1, 1)
        ended = mine[:, 1] < 0
        assert ended.all() if not len(edges) else not ended.any()
        if ended.all():
            continue
        assert close(mine[:, 1], edges, chances, rows), f"first step from {node}"
        # The second step, back to the hubs, of those that went to the likeliest neighbour.
        middle = int(rows.indices[edges[np.argmax(chances)]])
        found = mine[mine[:, 1] == middle, 2]
        edges, chances = naive.transition(truth, rules, middle, node, 2)
        if not len(edges):
            assert (found == -1).all()
        else:
            assert close(found, edges, chances, rows), f"second step by {middle}"


def test_the_share_of_work_does_not_matter(rows):
    import cupy

    from penstock.kernels.cuda.walk.reservoir import walk_reservoir

    rules = WalkRules(20, seed=1, sampler=Sampler.RESERVOIR)
    here, walks = on_gpu(rows, relations=False), cupy.arange(5000, dtype=cupy.int64)
    starts = (walks % NODES).astype(cupy.int32)
    whole = walk_reservoir(here, rules, walks, starts).get()
    for other in ({"pool": 16}, {"resident_blocks": 2}):
        np.testing.assert_array_equal(
            walk_reservoir(here, rules, walks, starts, **other).get(), whole
        )
    part = walk_reservoir(here, rules, walks[1234:2345], starts[1234:2345]).get()
    np.testing.assert_array_equal(part, whole[1234:2345])
