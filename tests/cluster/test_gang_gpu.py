"""Gangs whose arrays lie on GPUs: one that ranks share, and one for each."""

import time

import pytest

from penstock import connect, gang
from penstock.errors import GangError

pytestmark = [pytest.mark.mpi, pytest.mark.gpu]


@pytest.fixture(scope="module")
def client():
    with connect("mpi", workers=2, device="gpu", device_pool="2GB") as client:
        yield client


def test_arrays_on_the_device_are_reduced_and_exchanged(client):
    def work(comm):
        import cupy

        mine = cupy.full(1000, comm.rank + 1.0)
        comm.allreduce(mine)
        came = cupy.empty(3, cupy.int64)
        other = 1 - comm.rank
        sent = cupy.arange(3) + 10 * comm.rank
        comm.wait([comm.irecv(came, other), comm.isend(sent, other)])
        return [float(mine[0]), float(mine[-1]), came.tolist()]

    assert gang.run(client, work) == [[3.0, 3.0, [10, 11, 12]], [3.0, 3.0, [0, 1, 2]]]


def test_a_failure_on_the_device_leaves_a_usable_world(client):
    def hang(comm):
        import cupy

        comm.allreduce(cupy.ones(10))
        comm.wait(comm.irecv(cupy.empty(1 << 20), 1 - comm.rank, 9))

    def total(comm):
        import cupy

        return float(comm.allreduce(cupy.ones(10))[0])

    for _ in range(3):
        started = time.monotonic()
        with pytest.raises(GangError):
            gang.run(client, hang, timeout=1)
        assert time.monotonic() - started < 1 + 5
        assert gang.run(client, total) == [2.0, 2.0]


@pytest.mark.multigpu
def test_every_rank_has_a_gpu_of_its_own(client):
    def own(comm):
        import cupy

        kind = type(comm._device).__name__
        return cupy.cuda.runtime.getDeviceProperties(0)["uuid"], kind

    found = gang.run(client, own)
    assert len({uuid for uuid, _ in found}) == 2
    assert {kind for _, kind in found} == {"NcclExchange"}
