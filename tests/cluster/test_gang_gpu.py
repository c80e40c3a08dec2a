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
