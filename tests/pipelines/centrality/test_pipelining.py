"""Pieces in tasks: reading, computing and writing overlap, and no worker ends late."""

import heapq
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from penstock import ClusterSpec, centrality
from penstock.pipelines.centrality import job, tasks
from penstock.pipelines.centrality.options import CentralityOptions

PIECES, SLOW = 6, 0.04


class Phases:
    """How long reading, computing and writing took, and how many pieces were where at most."""

    def __init__(self):
        self.lock, self.seconds, self.now, self.most = threading.Lock(), 0.0, {}, {}

    def count(self, name, step):
        with self.lock:
            self.now[name] = self.now.get(name, 0) + step
            self.most[name] = max(self.most.get(name, 0), self.now[name])

    @contextmanager
    def slow(self, name):
        begun = time.monotonic()
        self.count(name, 1)
        time.sleep(SLOW)
        yield
        self.count(name, -1)
        with self.lock:
            self.seconds += time.monotonic() - begun


def run_slowly(monkeypatch, memory):
    """Compute pieces of 10 bytes each whose reading, computing and writing sleep."""
    phases = Phases()

    class Spec:
        def bytes(self, options):
            return 10

        def read(self, *, weighted):
            phases.count("at hand", 1)
            with phases.slow("read"):
                return SimpleNamespace(batch=None)

    def of_batch(batch, options):
        with phases.slow("compute"):
            return None, None

    def save(*written):
        with phases.slow("write"):
            phases.count("at hand", -1)

    monkeypatch.setattr(tasks, "resources", lambda: SimpleNamespace(device=None))
    monkeypatch.setattr(tasks, "_of_batch", of_batch)
    writer = SimpleNamespace(save=save)
    task = tasks.CentralityTask(CentralityOptions(), writer, memory)
    begun = time.monotonic()
    tasks.compute_pieces(task, [(n, Spec()) for n in range(PIECES)])
    return phases, time.monotonic() - begun


def test_a_core_reads_and_writes_while_it_computes(monkeypatch):
    """All phases together take longer than the whole, with a bounded number of pieces at hand."""
    phases, wall = run_slowly(monkeypatch, memory=1000)
    assert phases.seconds > 1.4 * wall
    assert phases.most["compute"] == 1
    assert phases.most["at hand"] == 1 + tasks.AHEAD


def test_pieces_ahead_wait_for_memory(monkeypatch):
    phases, _ = run_slowly(monkeypatch, memory=25)
    assert phases.most["at hand"] == 2


def test_nothing_overlaps_where_nothing_is_ahead(monkeypatch):
    monkeypatch.setattr(tasks, "AHEAD", 0)
    phases, wall = run_slowly(monkeypatch, memory=1000)
    assert phases.seconds <= wall
    assert phases.most["at hand"] == 1


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


def test_the_most_costly_graphs_are_computed_first(tmp_path, monkeypatch):
    """Of a table whose largest graph is its last."""
    monkeypatch.setattr("penstock.pipelines.centrality.inputs.layout._LEAST_COST", 100.0)
    ends = [np.arange(size - 1) for size in [*[20] * 60, 90]]
    graph = np.repeat(np.arange(len(ends)), [len(each) for each in ends])
    table = {"graph_id": graph, "source": np.concatenate(ends), "target": np.concatenate(ends) + 1}
    pq.write_table(pa.table(table), tmp_path / "e.parquet")
    real, assigned = job.in_tasks, []

    def noted(*given, **more):
        assigned.extend(real(*given, **more))
        return assigned

    monkeypatch.setattr(job, "in_tasks", noted)
    one = ClusterSpec(cluster="threads", workers=1)
    centrality(tmp_path / "e.parquet", tmp_path / "out", metrics="closeness", cluster=one)
    assert assigned[0][0][1].ids.to_pylist() == [60]
    costs = [spec.cost for several in assigned for _, spec in several]
    assert costs[0] == max(costs)
    assert len(assigned) < len(costs)
