"""A gang of one: what it exchanges with itself, and that it needs no MPI."""

import numpy as np
import pytest

from penstock.workers.comm.single import SingleRank


@pytest.fixture
def comm():
    return SingleRank()


def test_messages_to_itself_are_matched_by_tag_and_in_order(comm):
    came = [np.zeros(2) for _ in range(3)]
    first = comm.irecv(came[0], 0, tag=1)
    one, two = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    comm.isend(one, 0, tag=1)
    comm.isend(two, 0, tag=2)
    one[:] = two[:] = 9  # a message is what was sent
    comm.isend(np.array([5.0, 6.0]), 0, tag=1)
    others = [comm.irecv(came[1], 0, tag=1), comm.irecv(came[2], 0, tag=2)]
    comm.wait([first, *others])
    assert comm.test(others)
    assert [list(each) for each in came] == [[1, 2], [5, 6], [3, 4]]


def test_persistent_messages_bring_what_the_array_holds_then(comm):
    sent, came = np.zeros(1), np.zeros(1)
    messages = comm.persistent(sends=[(sent, 0, 3)], receives=[(came, 0, 3)])
    for value in (1.0, 2.0):
        sent[0] = value
        messages.start()
        messages.wait()
        assert came[0] == value
    messages.close()


def test_collectives_of_one(comm):
    values = np.arange(3.0)
    for operation in ("sum", "min", "max", "prod"):
        assert comm.allreduce(values, operation) is values, "nothing is copied"
        comm.wait(comm.iallreduce(values, operation))
    assert list(values) == [0, 1, 2]
    assert comm.broadcast(values) is values
    assert comm.allgather("x") == ["x"]
    counts = np.array([[4, 5]])
    np.testing.assert_array_equal(comm.alltoall(counts), counts)
    into = np.empty(3)
    assert comm.alltoallv([values], [into])[0] is into
    assert list(into) == [0, 1, 2]
    comm.barrier()
