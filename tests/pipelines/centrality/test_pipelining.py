"""Pieces in tasks: no worker ends late."""

import heapq
from types import SimpleNamespace

import pytest

from penstock.pipelines.centrality import job


def makespan(costs_of_tasks, workers):
    """Return when the last worker ends, each of which takes the next task once it is free."""
    free = [0.0] * workers
    for cost in costs_of_tasks:
        heapq.heapreplace(free, free[0] + cost)
    return max(free)


COSTS = {
    "equal": [1.0] * 256,
    "the largest last": [1.0] * 240 + [7.0],
    "some are large": [1.0] * 150 + [8.0] * 18,
    "a power law": [200.0 / n for n in range(200, 0, -1)],
}


@pytest.mark.parametrize("workers", [1, 2, 5, 16])
@pytest.mark.parametrize("costs", COSTS)
def test_no_worker_ends_late(costs, workers):
    """Tasks take little longer than if work could be cut anywhere, or than their largest piece."""
    specs = {n: SimpleNamespace(cost=cost) for n, cost in enumerate(COSTS[costs])}
    found = job.in_tasks(job.most_costly_first(specs), workers, on_gpu=False)
    assert sorted(n for several in found for n, _ in several) == list(specs)
    took = makespan([sum(spec.cost for _, spec in several) for several in found], workers)
    mean = sum(COSTS[costs]) / workers
    assert took <= max(1.07 * mean, max(COSTS[costs]))
