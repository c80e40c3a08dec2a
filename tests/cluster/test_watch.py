"""Who sends no heartbeat is named, then lost; who computes, or comes back, is not."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from penstock import gang
from penstock.cluster import watch as module
from penstock.cluster.connect import connect
from penstock.cluster.spec import ClusterSpec
from penstock.cluster.watch import Watch, WorkerName
from penstock.errors import GangError, UsageError


class Watched(Watch):
    """Hears what would be said, and who would be lost."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.lost: list[str] = []
        super().__init__(None, 30, self.said.append)

    def _ask(self, function: Any, *args: Any, wait: bool = True) -> None:
        self.lost += args

    def see(self, seen: float, times: int = 1, address: str = "a") -> None:
        for _ in range(times):
            self.inspect({address: (seen, "mpi-1", 7, "h1")}, 2.0, 30.0)


def test_a_silent_worker_is_named_once_and_then_lost_once() -> None:
    watch = Watched()
    watch.see(1.0, times=8)
    assert not watch.said
    watch.see(1.0, times=3)
    assert watch.said == [
        "worker mpi-1 (process 7 on h1) has sent no heartbeat for 16 s; after 30 s it counts "
        "as lost (--worker-timeout)"
    ]
    watch.see(1.0, times=6)
    assert watch.lost == ["a"]
    assert "counts as lost: its tasks run again" in watch.said[1]


def test_a_sign_of_life_begins_anew() -> None:
    watch = Watched()
    watch.see(1.0, times=12)
    watch.see(2.0, times=14)
    assert watch.said[1] == "worker mpi-1 (process 7 on h1) sends heartbeats again"
    assert not watch.lost


def test_a_worker_that_went_is_forgotten() -> None:
    watch = Watched()
    watch.see(1.0, times=14)
    watch.see(1.0, address="b")
    watch.see(1.0, times=10)
    assert not watch.lost


def test_one_that_computes_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    computed = [0.0]

    def cpu_seconds(self: WorkerName) -> float:
        computed[0] += 0.5
        return computed[0]

    monkeypatch.setattr(WorkerName, "cpu_seconds", cpu_seconds)
    watch = Watched()
    watch.see(1.0, times=100)
    assert not watch.said
    monkeypatch.setattr(WorkerName, "cpu_seconds", lambda self: computed[0])
    watch.see(1.0, times=20)
    assert watch.lost == ["a"]


def test_what_is_to_be_seen_of_a_process() -> None:
    here = WorkerName("0", os.getpid(), "127.0.0.1")
    assert here.cpu_seconds() is not None
    assert here.state() == ""
    assert WorkerName("0", os.getpid(), "elsewhere").cpu_seconds() is None


def test_a_cluster_in_this_process_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "watching", None)
    with connect("threads", workers=1) as client:
        assert client.submit(lambda: 1).result() == 1


def test_a_time_that_cannot_be() -> None:
    with pytest.raises(UsageError, match="--worker-timeout has a bad value"):
        ClusterSpec(worker_timeout=float("nan"))
    with pytest.raises(UsageError, match="--worker-timeout has a bad value"):
        ClusterSpec(worker_timeout=0)


@pytest.mark.mpi
@pytest.mark.slow
def test_a_rank_that_stands_still_is_lost_and_its_world_started_again() -> None:
    def stand_still(comm: Any) -> None:
        comm.barrier()
        if comm.rank == 1:
            os.kill(os.getpid(), signal.SIGSTOP)
        comm.barrier()

    with connect("mpi", workers=2, worker_timeout=2) as client:
        begun = time.monotonic()
        with pytest.raises(GangError, match="rank 1 of 2") as caught:
            gang.run(client, stand_still, ranks=2)
        assert caught.value.may_retry
        assert time.monotonic() - begun < 60  # and not the 600 s that a message may take
        assert gang.run(client, lambda comm: comm.rank, ranks=2) == [0, 1]
