"""The capacity of a cluster, as its workers and its scheduler report it, and what does not fit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.cluster.connect import connect
from penstock.cluster.spec import ClusterSpec
from penstock.errors import CapacityError, ClusterError
from penstock.limits import total_memory, usable_memory
from penstock.pipelines.job.capacity import Capacity, TaskCapacity, capacity_of, task_capacity
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


@pytest.mark.parametrize(
    ("gpus", "said"),
    [("aaaa", "1 GPU, shared by 4 workers"), ("aabb", "2 GPUs, shared by 4 workers"),
     ("abcd", "4 GPUs"), ("", "4 workers")],
)  # fmt: skip
def test_workers_that_share_gpus_are_not_counted_as_gpus(
    gpus: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    which = iter(gpus)
    held = SimpleNamespace(
        device=0 if gpus else None,
        cache=SimpleNamespace(limit_bytes=1),
        memory_bytes=lambda: 2,
        largest_limit=lambda: 0,
    )
    monkeypatch.setattr("penstock.workers.plugin.resources", lambda worker: held)
    monkeypatch.setattr(
        "penstock.workers.resources.device.gpu_identity", lambda number: next(which)
    )
    monkeypatch.setattr(
        "penstock.pipelines.job.capacity.ask_workers",
        lambda client, ask: {number: ask(None) for number in range(4)},
    )
    assert capacity_of(SimpleNamespace()).text() == said  # type: ignore[arg-type]


def test_no_workers() -> None:
    with pytest.raises(ClusterError):
        TaskCapacity.of([], ClusterSpec())


def test_one_shape_for_what_does_not_fit() -> None:
    error = Capacity(rows=5, memory=10, on_gpu=True, workers=1).too_small(
        "it", 2000, remedy="Take less"
    )
    assert isinstance(error, CapacityError)
    assert "on a GPU" in str(error)
    assert (error.expected, error.got) == ("about 2 kB", "10 B")
    small = Capacity(rows=5, memory=10, on_gpu=False, workers=2).too_small(
        "it", 2000, has=5, remedy="Take less"
    )
    assert "on a worker. Expected about 2 kB, got 5 B" in str(small)
