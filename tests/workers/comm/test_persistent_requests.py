"""Exchanges that are made many times with the same arrays, in real gangs."""

import numpy as np
import pytest

from penstock import connect, gang
from penstock.errors import GangError

pytestmark = pytest.mark.mpi


@pytest.fixture(scope="module")
def client():
    with connect("mpi", workers=2) as client:
        yield client


@pytest.mark.parametrize("piece", [1 << 30, 16])  # the second is too short for one message
def test_every_round_brings_what_the_arrays_hold_then(client, piece):
    def rounds(comm, piece):
        from penstock.workers.comm import communicator, exchange_mpi, persistent_requests

        usual = exchange_mpi.PIECE
        for module in (exchange_mpi, communicator, persistent_requests):
            module.PIECE = piece
        try:
            other = 1 - comm.rank
            kinds = ("f4", "f2", "i8", "?", "c16")
            sent = [np.zeros((3, 4), kind) for kind in kinds]
            came = [np.zeros((3, 4), kind) for kind in kinds]
            halo = comm.persistent(
                sends=[(array, other, tag) for tag, array in enumerate(sent)],
                receives=[(array, other, tag) for tag, array in reversed(list(enumerate(came)))],
            )
            for number in range(20):
                mine = np.random.default_rng((number, comm.rank)).integers(0, 9, (3, 4))
                theirs = np.random.default_rng((number, other)).integers(0, 9, (3, 4))
                for array in sent:
                    array[...] = mine
                halo.start()
                halo.wait()
                for array in came:
                    if not np.array_equal(array, theirs.astype(array.dtype)):
                        return False
            return True
        finally:
            for module in (exchange_mpi, communicator, persistent_requests):
                module.PIECE = usual

    assert gang.run(client, rounds, (piece,)) == [True, True]


def test_a_round_that_never_ends_is_withdrawn(client):
    def half(comm):
        ghosts = np.zeros(1 << 18)
        halo = comm.persistent(receives=[(ghosts, 1 - comm.rank, 3)])
        halo.start()
        halo.wait()

    for _ in range(5):
        with pytest.raises(GangError):
            gang.run(client, half, timeout=0.3)
    assert gang.run(client, lambda comm: float(comm.allreduce(np.ones(2))[0])) == [2.0, 2.0]
