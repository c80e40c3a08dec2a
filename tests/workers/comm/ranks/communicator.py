"""What the ranks of a gang say to each other, compared with NumPy: started by mpiexec.

    communicator.py whole|pieces CASE...     the functions below that are named, or all

whole    as it is
pieces   every message is split into some of five bytes, every reduction of five elements

The first case that fails ends them all, and is written.
"""

import gc
import itertools
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
import weakref
from pathlib import Path

import numpy as np

from penstock.errors import UsageError
from penstock.workers.comm.mpi import load_mpi

MPI = load_mpi()

from penstock.workers.comm import (  # noqa: E402
    communicator,
    exchange_mpi,
    persistent_requests,
)
from penstock.workers.comm.communicator import Communicator  # noqa: E402
from penstock.workers.comm.wait import Cancelled, Waiter, WaitTimeout  # noqa: E402

RECORD = np.dtype([("node", "i8"), ("weight", "f4"), ("kind", "i1", (3,))])
INTEGERS = [np.dtype(kind + size) for kind in "iu" for size in "1248"]
FLOATS = [np.dtype(name) for name in ("f2", "f4", "f8")]
COMPLEX = [np.dtype("c8"), np.dtype("c16")]
OTHERS = [np.dtype(name) for name in ("?", "S3", "U2", "M8[s]", ">f8", "V5")]
TYPES = [*INTEGERS, *FLOATS, *COMPLEX, *OTHERS, RECORD]
SHAPES = [(0,), (1,), (), (7,), (1001,), (3, 5), (2, 3, 4), (0, 4)]
# Elements of what is more than MPI sends at once; fewer where each piece is five bytes.
MANY = 100_000
WORDS = {"sum": np.add, "min": np.minimum, "max": np.maximum, "prod": np.multiply}


def make(comm=None):
    world = comm.mpi if comm is not None else MPI.COMM_WORLD
    return Communicator(world.Dup(), Waiter(), wait_timeout=30)


def random(*seed):
    """Return the same numbers on every rank that gives the same seed."""
    return np.random.default_rng([17, *seed])


def fill(dtype, shape, *seed):
    """Return any bytes that a type can have; as bytes they are compared, for NaN's sake."""
    count = int(np.prod(shape))
    if dtype.kind == "?" or dtype.kind == "b":
        return random(*seed).integers(0, 2, shape).astype(bool)
    if dtype.kind == "U":
        return random(*seed).choice(np.array(["", "a", "äß", "zz"]), shape).astype(dtype)
    return np.frombuffer(random(*seed).bytes(count * dtype.itemsize), dtype).reshape(shape).copy()


def same(found, wanted):
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    assert found.tobytes() == wanted.tobytes(), (found, wanted)


def refused(call, kind=UsageError):
    try:
        call()
    except kind:
        return
    raise AssertionError(f"no {kind.__name__} was raised")


def neighbours(comm):
    return (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size


def ring(comm, wanted, array, came, tag=0):
    left, right = neighbours(comm)
    comm.wait([comm.irecv(came, left, tag), comm.isend(array, right, tag)])
    same(came, wanted)


# Messages


def every_type_and_shape(comm):
    left, _ = neighbours(comm)
    for number, (dtype, shape) in enumerate(itertools.product(TYPES, SHAPES)):
        mine = fill(dtype, shape, comm.rank, number)
        ring(comm, fill(dtype, shape, left, number), mine, np.empty(shape, dtype), number % 7)


def parts_of_arrays(comm):
    left, _ = neighbours(comm)
    for number in range(20):
        start, size = (int(n) for n in random(number).integers(0, 50, 2))
        came = np.zeros(200)
        same_part = came[start : start + size]
        mine, wanted = (fill(np.dtype("f8"), (size,), rank, number) for rank in (comm.rank, left))
        ring(comm, wanted, mine, same_part)
        assert not came[:start].any()
        assert not came[start + size :].any()
    with tempfile.TemporaryFile() as file:
        mapped = np.memmap(file, np.int32, "w+", shape=(300,))
        mine, wanted = (fill(np.dtype("i4"), (300,), rank) for rank in (comm.rank, left))
        ring(comm, wanted, mine, mapped)
    constant = np.arange(9.0) + comm.rank
    constant.flags.writeable = False  # may be sent
    ring(comm, np.arange(9.0) + left, constant, np.zeros(9))


def many_out_of_order(comm):
    count = 150
    mine = {
        (to, tag): np.full(tag % 11, 1000 * comm.rank + tag)
        for to in range(comm.size)
        for tag in range(count)
    }
    came = {key: np.zeros(key[1] % 11, int) for key in mine}
    calls = [(comm.isend, array, to, tag) for (to, tag), array in mine.items()]
    calls += [(comm.irecv, array, source, tag) for (source, tag), array in came.items()]
    requests = []
    for i in random(comm.rank).permutation(len(calls)):
        call, array, peer, tag = calls[i]
        requests.append(call(array, peer, tag))
    order = random(comm.rank, 1).permutation(len(requests))
    for some in np.array_split(order, 17):
        comm.wait([requests[i] for i in some])
    for (source, tag), array in came.items():
        assert (array == 1000 * source + tag).all()
    comm.wait(requests)  # again: nothing is left to wait for


def one_tag_keeps_its_order(comm):
    left, right = neighbours(comm)
    # Alternating between what mpi4py knows and what it does not.
    kinds = [np.dtype("i8"), RECORD]
    mine = [fill(kinds[n % 2], (n % 5,), comm.rank, n) for n in range(60)]
    wanted = [fill(kinds[n % 2], (n % 5,), left, n) for n in range(60)]
    came = [np.empty_like(array) for array in wanted]
    requests = [comm.irecv(array, left, 3) for array in came]
    requests += [comm.isend(array, right, 3) for array in mine]
    comm.wait(requests)
    for found, right_one in zip(came, wanted, strict=True):
        same(found, right_one)


def what_wait_takes(comm):
    left, right = neighbours(comm)
    a, half, record = np.zeros(3), np.full(4, comm.rank, np.float16), np.zeros(2, RECORD)
    sent = [np.full(3, comm.rank, float), np.zeros(2, RECORD)]
    receive = comm.irecv(record, source=left, tag=5)
    nested = [comm.irecv(a, left, 1), [comm.isend(sent[0], right, 1), None], (), receive]
    comm.wait([nested, [[comm.iallreduce(half)]], comm.isend(sent[1], to=right, tag=5)], timeout=20)
    assert (a == left).all()
    assert (half == sum(range(comm.size))).all()
    for nothing in ([], None, nested):
        comm.wait(nothing)
    refused(lambda: comm.wait([5]))


def rounds_of_the_same_arrays(comm):
    left, right = neighbours(comm)
    kinds = ("f4", "f2", "i8", "?", "c16")
    sent, came = ([np.zeros((3, 4), kind) for kind in kinds] for _ in range(2))
    messages = comm.persistent(
        sends=[(array, right, tag) for tag, array in enumerate(sent)],
        receives=[(array, left, tag) for tag, array in reversed(list(enumerate(came)))],
    )
    for number in range(20):
        mine, theirs = (random(number, rank).integers(0, 9, (3, 4)) for rank in (comm.rank, left))
        for array in sent:
            array[...] = mine
        messages.start()
        messages.wait()
        for array in came:
            same(array, theirs.astype(array.dtype))
    messages.close()


def following(comm):
    """No stream waits for arrays in host memory: the host does, and there is no GPU to wait for."""
    left, right = neighbours(comm)
    came, half = np.zeros(MANY, int), np.full(MANY, comm.rank, np.float16)
    requests = [
        comm.irecv(came, left),
        [comm.isend(np.full(MANY, comm.rank), right), None],
        comm.iallreduce(half, "max"),
    ]
    held = [weakref.ref(one) for one in flat(requests)]
    comm.follow(requests)
    assert (came == left).all()
    assert (half == comm.size - 1).all()
    del requests
    gc.collect()
    assert len(held) > 1
    assert all(one() is None for one in held)
    comm.follow(None)
    comm.synchronize()
    refused(lambda: comm.follow([5]))


def testing(comm):
    left, right = neighbours(comm)
    for size in (3, MANY):
        came, half = np.zeros(size, int), np.full(size, comm.rank, np.float16)
        receive = comm.irecv(came, left, 4)
        comm.barrier()
        assert not comm.test(receive)
        comm.barrier()
        requests = [receive, [comm.isend(np.full(size, comm.rank), right, 4)]]
        requests.append(comm.iallreduce(half, "max"))
        deadline = time.monotonic() + 20
        while not comm.test(requests):
            assert time.monotonic() < deadline
        assert (came == left).all()
        assert (half == comm.size - 1).all()
        assert comm.test(requests)
    assert comm.test([])


# Collectives


def reductions(comm):
    kinds = [*INTEGERS, *FLOATS]
    cases = [(dtype, word) for dtype in kinds for word in WORDS]
    cases += [(dtype, word) for dtype in COMPLEX for word in ("sum", "prod")]
    for number, (dtype, word) in enumerate(cases):
        for shape in SHAPES:
            every = [
                random(rank, number, len(shape)).integers(1, 5, shape).astype(dtype)
                for rank in range(comm.size)
            ]
            # What does not fit wraps around; Open MPI lets sums of fewer bits end at the limit.
            if dtype.kind in "iu" and dtype.itemsize >= 4:
                every = [fill(dtype, shape, rank, number) for rank in range(comm.size)]
            if dtype == np.uint64 and word in ("min", "max"):
                # Open MPI 4 compares them as signed numbers.
                every = [np.asarray(one >> np.uint64(1)) for one in every]
            array = every[comm.rank]
            wanted = WORDS[word].reduce(np.stack(every), 0, dtype=dtype)
            assert comm.allreduce(array, word) is array
            same(array, np.asarray(wanted))
    # Added up in half precision, 2048 + 1 is 2048.
    half = np.full(9, 2048 if comm.rank == 0 else 1, np.float16)
    comm.allreduce(half)
    assert (half == np.float16(2048 + comm.size - 1)).all()
    large = np.arange(float(MANY)) * (comm.rank + 1)
    comm.wait(comm.iallreduce(large))
    same(large, np.arange(float(MANY)) * sum(range(1, comm.size + 1)))


def broadcasts(comm):
    for root in range(comm.size):
        for number, (dtype, shape) in enumerate(itertools.product(TYPES, SHAPES)):
            wanted = fill(dtype, shape, root, number)
            array = wanted.copy() if comm.rank == root else np.empty(shape, dtype)
            assert comm.broadcast(array, root) is array
            same(array, wanted)


def exchanges_of_all(comm):
    for number in range(40):
        rng = random(number)
        dtype = TYPES[rng.integers(len(TYPES))]
        most = int(rng.choice([0, 1, 10, 3000]))
        sizes = rng.integers(0, most + 1, (comm.size, comm.size)) * (rng.random() < 0.9)
        every = [
            [fill(dtype, (int(n),), number, s, r) for r, n in enumerate(row)]
            for s, row in enumerate(sizes)
        ]
        came = [np.empty(int(sizes[s, comm.rank]), dtype) for s in range(comm.size)]
        if number % 2:
            comm.wait(comm.ialltoallv(every[comm.rank], came))
        else:
            assert comm.alltoallv(every[comm.rank], came) is came
        for s, array in enumerate(came):
            same(array, every[s][comm.rank])
    # Several at once keep their order.
    rounds = [[np.zeros(2, int) for _ in range(comm.size)] for _ in range(5)]
    comm.wait(
        [
            comm.ialltoallv([np.array([comm.rank, n])] * comm.size, into)
            for n, into in enumerate(rounds)
        ]
    )
    for n, into in enumerate(rounds):
        assert [array.tolist() for array in into] == [[rank, n] for rank in range(comm.size)]
    into = [np.zeros((2, 3)) for _ in range(comm.size)]
    comm.alltoallv([np.arange(6.0)] * comm.size, into)  # shapes are each rank's own
    assert all((array == np.arange(6.0).reshape(2, 3)).all() for array in into)


def rows_to_all(comm):
    counts = 10 * comm.rank + np.arange(comm.size)
    assert comm.alltoall(counts).tolist() == [10 * r + comm.rank for r in range(comm.size)]
    table = random(comm.rank).random((comm.size, 4, 2))
    wanted = np.stack([random(r).random((comm.size, 4, 2))[comm.rank] for r in range(comm.size)])
    same(comm.alltoall(table), wanted)


def objects_of_all(comm):
    for value in (None, 5, "ä" * (1000 * comm.rank), {"rank": comm.rank, "x": [1.5, (2,)]}):
        every = comm.allgather(value)
        assert every[comm.rank] == value
        assert len(every) == comm.size
    assert comm.allgather(comm.rank) == list(range(comm.size))
    lengths = [len(text) for text in comm.allgather("x" * MANY * comm.rank)]
    assert lengths == [MANY * rank for rank in range(comm.size)]
    same(comm.allgather(np.arange(comm.rank))[-1], np.arange(comm.size - 1))


def barriers(comm):
    folder = Path(comm.allgather(tempfile.mkdtemp() if comm.rank == 0 else "")[0])
    for number in range(20):
        (folder / f"{number} {comm.rank}").touch()
        comm.barrier()
        assert all((folder / f"{number} {rank}").exists() for rank in range(comm.size))
    comm.barrier()
    if comm.rank == 0:
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


def mistakes(comm):
    square, one = np.zeros((4, 4)), np.zeros(1)
    for part in (square[:, 1], square.T, np.array([None, "a"])):
        for call in (lambda a: comm.isend(a, 0), lambda a: comm.irecv(a, 0), comm.iallreduce):
            refused(lambda call=call, part=part: call(part))
    for rank, tag in ((-1, 0), (comm.size, 0), (0, -1), (0, 1 << 14)):
        refused(lambda rank=rank, tag=tag: comm.isend(one, rank, tag))
    for dtype in OTHERS:
        refused(lambda dtype=dtype: comm.allreduce(np.zeros(2, dtype)))
    refused(lambda: comm.alltoallv([one] * (comm.size - 1), [one] * comm.size))
    ring(comm, np.ones(2), np.ones(2), np.zeros(2))  # and the gang continues


# Memory


def alive(comm):
    """An array that only a request refers to lives until the request is done."""
    left, right = neighbours(comm)
    kinds = [(np.dtype("f8"), 5), (np.dtype("f8"), MANY), (RECORD, 5), (RECORD, MANY)]
    for number, (dtype, size) in enumerate(kinds):
        wanted = fill(dtype, (size,), left, number)
        came = weakref.ref(array := np.zeros(size, dtype))
        receive = comm.irecv(array, left, 1)
        sent = weakref.ref(array := fill(dtype, (size,), comm.rank, number))
        comm.barrier()
        send = comm.isend(array, right, 1)
        del array
        litter(size * dtype.itemsize)
        assert came() is not None
        assert sent() is not None
        comm.wait([receive, send])
        litter(size * dtype.itemsize)
        found = came()
        if found is not None:  # its request holds it, or else it is not needed any more
            same(found, wanted)
        del found, receive, send
        gc.collect()
        assert came() is None
        assert sent() is None
    for dtype in (np.float16, np.float32):
        for size in (3, MANY):
            total = weakref.ref(array := np.full(size, comm.rank + 1, dtype))
            keep = array[:1]  # of which the whole is the base
            request = comm.iallreduce(array)
            del array
            litter(8 * size)
            assert total() is not None
            comm.wait(request)
            assert keep[0] == sum(range(comm.size + 1))
            del keep, request
            gc.collect()
            assert total() is None


def litter(size):
    """Take memory that was freed, if any was."""
    gc.collect()
    for _ in range(5):
        np.full(max(size, 1), 0xAB, np.uint8)


# The end of a gang


def broken_off(comm):
    left, _ = neighbours(comm)
    best = 1.0
    for number in range(5):
        mine, told = make(comm), []
        waiting = threading.Event()

        def cancel(mine=mine, told=told):
            waiting.wait()  # noqa: B023
            time.sleep(0.002 * number * number)  # spinning at first, then in naps  # noqa: B023
            told.append(time.monotonic())
            mine.waiter.cancel()

        thread = threading.Thread(target=cancel)
        thread.start()
        request = mine.irecv(np.zeros(number), left)
        waiting.set()
        refused(lambda mine=mine, request=request: mine.wait([request]), kind=Cancelled)
        best = min(best, time.monotonic() - told[0])
        thread.join()
        for again in (lambda mine=mine, request=request: mine.wait(request), mine.check):
            refused(again, kind=Cancelled)
        refused(lambda mine=mine, request=request: mine.test(request), kind=Cancelled)
        mine.abandon()
        comm.barrier()
    assert best < 0.05, best


def abandoned(comm):
    left, right = neighbours(comm)
    mine = make(comm)
    messages = mine.persistent(receives=[(np.zeros(1 << 18), left, 3)])
    messages.start()
    refused(lambda: messages.wait(0.05), kind=WaitTimeout)
    assert mine.abandon() == [mine.mpi]  # the round is withdrawn
    for dtype in (np.dtype("i8"), RECORD):
        mine = make(comm)
        dead = []
        for size in (3, MANY):
            dead.append(weakref.ref(array := np.zeros(size, dtype)))
            mine.irecv(array, left, 5)
        del array
        came = np.zeros(3, dtype)
        mine.wait([mine.irecv(came, left), mine.isend(came.copy(), right)])
        kept = mine.abandon()
        assert kept == [mine.mpi]  # the receives are withdrawn
        gc.collect()
        assert not any(one() is not None for one in dead)
        comm.barrier()
        # What comes late goes nowhere, until it is asked for.
        late = mine.mpi.Isend(np.full(3, 7, np.int64), right, 5)
        come = np.zeros(3, np.int64)
        mine.mpi.Recv(come, left, 5)
        late.Wait()
        assert (come == 7).all()
        # A long message that no rank has received yet lives on.
        mine = make(comm)
        sent = weakref.ref(array := np.zeros(MANY, dtype))
        mine.isend(array, right, 5)
        del array
        kept = mine.abandon()
        gc.collect()
        assert len(kept) > 1
        assert sent() is not None
        comm.barrier()  # none is received before all have abandoned theirs
        mine.mpi.Recv(np.zeros(MANY, dtype).view(np.uint8), left, 5)
        for request in flat(kept[1:]):
            request.Wait()
        comm.barrier()


def flat(nested):
    for one in nested:
        if isinstance(one, MPI.Request):
            yield one
        elif isinstance(one, list | tuple):
            yield from flat(one)


# Waiting: what a Waiter does with requests of MPI, whatever a communicator makes of them

CANCEL_SECONDS = 1.0  # 50 ms where this has a core of its own


def unanswered(comm, tag=0):
    """Start to receive what no rank sends."""
    return comm.mpi.Irecv(np.zeros(3), (comm.rank + 1) % comm.size, tag)


def withdraw(request):
    request.Cancel()
    Waiter().wait([request], 15)


def all_of_many_are_waited_for(comm):
    left, right = neighbours(comm)
    for count in (63, 64, 65, 1000):
        came = [np.zeros(1, int) for _ in range(count)]
        receives = [comm.mpi.Irecv(array, left, tag) for tag, array in enumerate(came)]
        sends = [comm.mpi.Isend(np.array([tag + 1]), right, tag) for tag in range(count)[::-1]]
        Waiter().wait(receives + sends, 15)
        assert [int(array[0]) for array in came] == list(range(1, count + 1))
        assert not any(receives)
        assert not any(sends)


def a_wait_ends_with_its_time_out(comm):
    waiter, request = Waiter(), unanswered(comm)
    for timeout in (0, 0.001, 0.1):
        for wait in (
            lambda t=timeout: waiter.wait([request], t),
            lambda t=timeout: waiter.wait_until(lambda: False, t),
        ):
            start = time.monotonic()
            refused(wait, kind=WaitTimeout)
            assert timeout <= time.monotonic() - start < timeout + CANCEL_SECONDS
    assert not waiter.cancelled
    withdraw(request)


def a_signal_is_handled_during_a_wait(comm):
    """Ctrl-C in a script that is a rank itself: the handler runs, and what it raises comes out."""
    request = unanswered(comm)

    def handle(number, frame):
        raise ZeroDivisionError

    former = signal.signal(signal.SIGUSR1, handle)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    refused(lambda: Waiter().wait([request], 15), kind=ZeroDivisionError)
    timer.join()
    signal.signal(signal.SIGUSR1, former)
    withdraw(request)


def a_late_reduction_is_finished_by_the_next_wait(comm):
    if comm.size == 1:
        return
    for dtype in (np.float64, np.float16):
        array = np.full(1000, comm.rank + 1, dtype)
        if comm.rank == 0:
            request = comm.iallreduce(array)
            refused(lambda r=request: comm.wait(r, 0.02), kind=WaitTimeout)
            assert not comm.test(request)
            comm.wait([comm.isend(np.zeros(1), to) for to in range(1, comm.size)])
            comm.wait(request)
            comm.wait(request)
        else:
            comm.wait(comm.irecv(np.zeros(1), 0))
            comm.allreduce(array)
        assert (array == comm.size * (comm.size + 1) // 2).all()


# Run only where asked for


def beyond_int(comm):
    """More than 2^31 elements."""
    size = (1 << 31) + 12_345
    ends = (np.arange(1000) % 50).astype(np.int8)
    array = np.zeros(size, np.int8)
    if comm.rank == 0:
        array[:1000], array[-1000:], array[1 << 30 : (1 << 30) + 3] = ends, ends[::-1], 9
        comm.wait([comm.isend(array, 1)])
    elif comm.rank == 1:
        comm.wait([comm.irecv(array, 0)])
    comm.broadcast(array, 1)
    assert (array[:1000] == ends).all()
    assert (array[-1000:] == ends[::-1]).all()
    assert (array[1 << 30 : (1 << 30) + 3] == 9).all()
    assert np.count_nonzero(array) == 2 * np.count_nonzero(ends) + 3
    comm.allreduce(array, "sum")
    assert array[1 << 30] == 9 * comm.size
    assert array[-2] == np.int8(ends[1] * comm.size)


IN_PIECES_TOO = """
every_type_and_shape parts_of_arrays many_out_of_order one_tag_keeps_its_order what_wait_takes
rounds_of_the_same_arrays following testing reductions broadcasts exchanges_of_all rows_to_all
objects_of_all barriers mistakes alive broken_off
""".split()
WHOLE = """
abandoned all_of_many_are_waited_for a_wait_ends_with_its_time_out
a_signal_is_handled_during_a_wait a_late_reduction_is_finished_by_the_next_wait
""".split()


def main(mode, *names):
    if mode == "pieces":
        global MANY
        MANY = 500
        exchange_mpi.PIECE = communicator.PIECE = persistent_requests.PIECE = 5
    assert MPI.Query_thread() == MPI.THREAD_MULTIPLE
    comm = make()
    gc.freeze()  # so that to collect does not mean to visit all of Numba
    for name in names or (IN_PIECES_TOO + WHOLE * (mode == "whole")):
        try:
            globals()[name](comm)
            comm.barrier()
        except BaseException:
            sys.stdout.write(f"rank {comm.rank} FAILED in {name}\n{traceback.format_exc()}")
            sys.stdout.flush()
            MPI.COMM_WORLD.Abort(1)
    comm.leave()


if __name__ == "__main__":
    main(*sys.argv[1:])
