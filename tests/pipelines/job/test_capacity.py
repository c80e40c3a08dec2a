"""The capacity of a cluster, as its workers and its scheduler report it, and what does not fit."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.cluster.connect import connect
from penstock.cluster.spec import ClusterSpec
from penstock.limits import total_memory, usable_memory
from penstock.pipelines.job.capacity import TaskCapacity, capacity_of, task_capacity
from penstock.sizes import parse_bytes


@pytest.mark.parametrize(
    "spec",
    [
        ClusterSpec(cluster="threads", threads=3),
        ClusterSpec(cluster="threads", threads=3, memory_limit="700MB"),
        ClusterSpec(cluster="local", workers=2, threads=1, memory_limit="700MB"),
    ],
)
def test_workers_and_scheduler_say_the_same_of_tasks(spec: ClusterSpec) -> None:
    def own(dask_worker: Any) -> tuple[int, int]:
        return dask_worker.state.nthreads, int(dask_worker.memory_manager.memory_limit or 0)

    with connect(spec) as client:
        has, of_tasks = capacity_of(client), task_capacity(client, spec)
        said = list(client.run(own).values())
    assert TaskCapacity.of(said, spec) == of_tasks
    assert has.workers == (spec.workers or 1)
    assert 0 < has.rows < has.memory
    if spec.memory_limit is not None:
        assert has.memory == usable_memory(700_000_000)
        assert of_tasks.task_memory == has.memory // (spec.threads or 1)
        assert has.largest_limit == total_memory() // has.workers
        limit = has.limit_for(has.memory)
        assert limit is not None
        assert parse_bytes(limit.removeprefix("--memory-limit ")) == 700_000_000
        assert has.limit_for(total_memory()) is None  # more than there is
    else:
        assert has.limit_for(1) is None  # threads have no limit of their own
