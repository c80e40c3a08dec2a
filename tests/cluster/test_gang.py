"""Gangs on a real MPI world: results, admission, and every way to fail.

Functions for the ranks are nested, so that they travel by value.
"""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import numpy as np
import pytest
from distributed import Client

from penstock import connect, gang
from penstock.errors import ClusterError, GangError, UsageError

pytestmark = pytest.mark.mpi

STOP_SECONDS = 10.0  # within which a gang has ended after what ended it, if cores are busy too


@pytest.fixture(scope="module")
def client():
    with connect("mpi", workers=3) as client:
        gang.run(client, lambda comm: None)  # what is imported and compiled at first
        yield client


def usable(client):
    return gang.run(client, lambda comm: comm.rank, start_timeout=30) == [0, 1, 2]


def test_every_rank_gives_its_result_in_order(client):
    def mean(comm, numbers, *, scale):
        mine = numbers[comm.rank :: comm.size]
        total = comm.allreduce(np.array([mine.sum(), len(mine)]))
        return comm.rank, scale * total[0] / total[1]

    numbers = np.arange(101.0)
    found = gang.run(client, mean, (numbers,), {"scale": 2.0})  # on all workers
    assert found == [(rank, 100.0) for rank in range(3)]
    for ranks in (1, 2, 3):
        found = gang.run(client, lambda comm: (comm.rank, comm.size, os.getpid()), ranks=ranks)
        assert [(rank, size) for rank, size, _ in found] == [(r, ranks) for r in range(ranks)]
        assert len({pid for _, _, pid in found}) == ranks
    for ranks, error in ((4, ClusterError), (0, UsageError)):
        with pytest.raises(error):
            gang.run(client, lambda comm: None, ranks=ranks)


def fails(client, function, timeout=None):
    """Run a gang that fails soon, and return its error."""
    started = time.monotonic()
    with pytest.raises(GangError) as raised:
        gang.run(client, function, timeout=timeout)
    assert time.monotonic() - started < (timeout or 0) + STOP_SECONDS
    return raised.value


def usable_soon(client):
    started = time.monotonic()
    assert usable(client)
    assert time.monotonic() - started < STOP_SECONDS


def in_threads(*calls):
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
        return [one.exception(60) or one.result() for one in futures]


def test_gangs_on_disjoint_workers_run_side_by_side(client, tmp_path):
    def meet(comm, mine, other):
        mine.touch()
        deadline = time.monotonic() + 20
        while not other.exists():
            comm.check()
            if time.monotonic() > deadline:
                return False
            time.sleep(0.01)
        return True

    one, two = tmp_path / "one", tmp_path / "two"
    assert in_threads(
        lambda: gang.run(client, meet, (one, two), ranks=1),
        lambda: gang.run(client, meet, (two, one), ranks=2),
    ) == [[True], [True, True]]


def test_gangs_that_want_the_same_workers_take_turns(client):
    def total(comm, number):
        return float(comm.allreduce(np.full(1000, float(number)))[0])

    def several(ranks):
        return [
            gang.run(client, total, (n,), ranks=ranks) == [float(n * ranks)] * ranks
            for n in range(10)
        ]

    assert in_threads(*[lambda k=k: several(k) for k in (3, 2, 1, 2)]) == [[True] * 10] * 4


def test_waiting_for_workers_has_an_end(client):
    def hold(comm):
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            time.sleep(0.01)

    def late():
        time.sleep(0.2)
        gang.run(client, hold, ranks=2, start_timeout=0.3)

    _, error = in_threads(lambda: gang.run(client, hold, ranks=3), late)
    assert isinstance(error, ClusterError)


def test_an_exception_ends_all_ranks_and_comes_with_every_traceback(client):
    def fail(comm):
        if comm.rank == 2:
            raise ValueError("two is broken")
        comm.wait(comm.irecv(np.zeros(1), 2, 7))

    error = fails(client, fail)
    assert isinstance(error.__cause__, ValueError)
    assert sorted(error.tracebacks) == [0, 1, 2]
    assert "two is broken" in error.tracebacks[2]
    assert all("comm.wait(" in error.tracebacks[rank] for rank in (0, 1))
    assert not error.may_retry
    assert usable(client)


DISAGREEMENTS = {
    "size": lambda comm: comm.allreduce(np.zeros(10 + comm.rank)),
    "type": lambda comm: comm.allreduce(np.zeros(1000, ("f4", "f8")[comm.rank])),
    "broadcast": lambda comm: comm.broadcast(np.zeros(10 * comm.rank)),
    "alltoallv": lambda comm: comm.alltoallv(
        [np.zeros(3)] * 2, [np.zeros(3 + 2 * (r != comm.rank)) for r in (0, 1)]
    ),
    "alltoall": lambda comm: comm.alltoall(np.zeros((2, 4), ("i4", "f4")[comm.rank])),
}


def test_ranks_that_disagree_on_an_array_get_no_result(client):
    for name, collective in DISAGREEMENTS.items():

        def alike_then_not(comm, collective=collective):
            comm.allreduce(np.zeros(10))
            collective(comm)

        with pytest.raises(GangError) as failed:
            gang.run(client, alike_then_not, ranks=2, wait_timeout=20)
        assert isinstance(failed.value.__cause__, UsageError), name
    assert usable(client)


def loop_in_python(comm):
    if comm.rank == 1:
        while True:
            pass
    comm.barrier()


def loop_that_swallows(comm):
    while comm.rank == 1:
        with suppress(Exception):
            time.sleep(0.01)
    comm.barrier()


def work_for_ever(comm):
    while True:
        comm.log(alive=1)
        comm.barrier()
        time.sleep(0.01)


def wait_for_nothing(comm):
    comm.wait(comm.irecv(np.zeros(1 << 20), (comm.rank + 1) % comm.size, 9))


def nested(function):
    """Return a function of this module as one that travels by value."""

    def inner(comm):
        return function(comm)

    function.__module__ = "__main__"
    return inner


@pytest.mark.parametrize("hang", [loop_in_python, loop_that_swallows, wait_for_nothing])
def test_a_hang_ends_with_the_time_out_and_keeps_the_world(client, hang):
    pids = gang.run(client, lambda comm: os.getpid())
    error = fails(client, nested(hang), timeout=0.5)
    if hang is not wait_for_nothing:  # which may have ended before it is asked
        assert hang.__name__ in error.tracebacks[1]
    assert error.may_retry
    assert gang.run(client, lambda comm: os.getpid()) == pids


@pytest.mark.slow
def test_a_rank_that_will_not_end_is_killed(client):
    def sleep(comm):
        if comm.rank == 1:
            time.sleep(3600)  # deaf, as a library's endless loop would be
        comm.barrier()

    assert "time.sleep(3600)" in fails(client, sleep, timeout=0.5).tracebacks[1]
    assert usable(client)


def test_a_death_ends_all_ranks_and_the_world_comes_back(client):
    kept = client.submit(lambda: 41, pure=False)
    assert kept.result() == 41

    def die(comm):
        if comm.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        comm.barrier()

    assert fails(client, die).may_retry
    assert usable(client)
    assert kept.result() == 41  # Dask made it again


def test_metrics_arrive_during_the_run(client):
    seen = []

    def work(comm):
        for step in range(5):
            comm.advance(10)
            comm.log(step=step, loss=1.0 / (step + 1))
            time.sleep(0.12)

    gang.run(
        client, work, total=200, quiet=False, on_metrics=lambda rank, m: seen.append((rank, m))
    )
    assert {rank for rank, _ in seen} == {0, 1, 2}
    assert len(seen) > 6  # several times a rank, not only at the end


def test_what_ranks_print_is_shown(client, capsys):
    def speak(comm):
        print("half of a line", comm.rank, end=", ", flush=True)
        print("the other\nand one more", end="")

    gang.run(client, speak, ranks=2)
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "rank 0: and one more",
        "rank 0: half of a line 0, the other",
        "rank 1: and one more",
        "rank 1: half of a line 1, the other",
    ]


def test_an_interrupt_ends_the_gang(client):
    def interrupt(rank, metrics):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gang.run(client, nested(work_for_ever), on_metrics=interrupt)
    usable_soon(client)


def test_a_client_that_goes_takes_its_gang_along(client):
    guest = Client(client.scheduler.address, security=client.security, set_as_default=False)
    working = threading.Event()

    def run_in_vain():
        with suppress(BaseException):
            work = nested(work_for_ever)
            gang.run(guest, work, on_metrics=lambda rank, metrics: working.set())

    threading.Thread(target=run_in_vain, daemon=True).start()
    # A member that is cancelled just when the ranks meet can leave others waiting inside MPI:
    # these are killed, and the world comes back, which takes longer than is asked for here.
    assert working.wait(20)
    guest.close()
    usable_soon(client)


@pytest.mark.slow
def test_a_scheduler_that_goes_ends_the_wait():
    with connect("mpi", workers=2) as owner:
        guest = Client(owner.scheduler.address, security=owner.security, set_as_default=False)
        working = threading.Event()

        def close():
            # Not before the client waits for members: what it asks the scheduler itself meanwhile
            # takes as long to fail as Dask tries to connect again.
            assert working.wait(20)
            owner.cluster.close(timeout=2)

        started = time.monotonic()
        how = {"on_metrics": lambda rank, metrics: working.set()}
        run = partial(gang.run, guest, nested(work_for_ever), **how)
        error, _ = in_threads(run, close)
        assert time.monotonic() - started < 30
        with suppress(Exception):  # Dask's client may just be connecting again
            guest.close()
    assert isinstance(error, ClusterError)
