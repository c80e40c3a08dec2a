"""How ranks wait, and how that ends: started by mpiexec for test_wait.py.

    waiting.py [CHECK...]     the functions below that are marked as checks, or those named

Rank 0 prints ``passed NAME`` or ``FAILED NAME`` with the traceback of every rank that failed; the
checks that follow run all the same, each in a gang of its own.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from penstock.workers.comm.communicator import Communicator
from penstock.workers.comm.exchange import Pending
from penstock.workers.comm.mpi import load_mpi
from penstock.workers.comm.wait import Cancelled, Waiter, WaitTimeout

MPI = load_mpi()
PATIENCE = 15.0  # seconds for a rank that another one waits for
CANCEL_SECONDS = 1.0  # 50 ms where this has a core of its own
RECORD = np.dtype([("node", "i8"), ("kind", "i1")])  # travels as bytes
Check = Callable[[Communicator], None]

CHECKS: dict[str, Check] = {}
dead: list[Any] = []  # what failed checks left


def check(function: Check) -> Check:
    CHECKS[function.__name__] = function
    return function


def gang(waiter: Waiter | None = None, report: Any = None) -> Communicator:
    """Begin a gang of all ranks: every rank calls it."""
    comm = MPI.COMM_WORLD.Dup()
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    return Communicator(comm, waiter or Waiter(), wait_timeout=PATIENCE, report=report)


def raised(function: Callable[[], Any]) -> BaseException:
    """Return what a call raises, which it must."""
    try:
        answer = function()
    except BaseException as error:
        return error
    raise AssertionError(f"it returned {answer!r}")


def neighbours(c: Communicator) -> tuple[int, int]:
    return (c.rank - 1) % c.size, (c.rank + 1) % c.size


def unanswered(c: Communicator, tag: int = 0) -> Any:
    """Start to receive what nobody sends."""
    return c.mpi.Irecv(np.zeros(3), (c.rank + 1) % c.size, tag)


def withdraw(request: Any) -> None:
    request.Cancel()
    deadline = time.monotonic() + PATIENCE
    while not request.Test():
        assert time.monotonic() < deadline


# The waiter alone


@check
def what_is_done_needs_no_wait(c: Communicator) -> None:
    waiter = Waiter()
    for requests in ([], [MPI.REQUEST_NULL], [MPI.REQUEST_NULL] * 1000):
        waiter.wait(requests, 0)
        assert waiter.test(requests)
    left, right = neighbours(c)
    came = np.zeros(3)
    request = c.mpi.Irecv(came, left)
    waiter.wait([c.mpi.Isend(np.ones(3), right)], PATIENCE)
    waiter.wait([request], PATIENCE)
    assert (came == 1).all()
    assert not request  # it is MPI's null request now, and so may be waited for again
    waiter.wait([request, request], 0)


@check
def all_of_many_are_waited_for(c: Communicator) -> None:
    left, right = neighbours(c)
    for count in (63, 64, 65, 1000):
        came = [np.zeros(1, int) for _ in range(count)]
        receives = [c.mpi.Irecv(array, left, tag) for tag, array in enumerate(came)]
        sends = [c.mpi.Isend(np.array([tag + 1]), right, tag) for tag in range(count)[::-1]]
        Waiter().wait(receives + sends, PATIENCE)
        assert [int(array[0]) for array in came] == list(range(1, count + 1))
        assert not any(receives)
        assert not any(sends)


@check
def one_that_is_not_done_is_enough_to_wait(c: Communicator) -> None:
    left, right = neighbours(c)
    for place in (0, 1, 2):
        waiter, came = Waiter(), [np.zeros(3), np.zeros(3)]
        done = [c.mpi.Irecv(array, left, 1) for array in came]
        requests = [*done[:place], unanswered(c, 9), *done[place:]]
        sends = [c.mpi.Isend(np.ones(3), right, 1) for _ in range(2)]
        waiter.wait([*sends, *done], PATIENCE)
        assert not waiter.test(requests)
        assert isinstance(raised(lambda w=waiter, r=requests: w.wait(r, 0.01)), WaitTimeout)
        withdraw(requests[place])
        assert waiter.test(requests)


@check
def a_wait_ends_with_its_time_out(c: Communicator) -> None:
    waiter, request = Waiter(), unanswered(c)
    for timeout in (0, 0.001, 0.1):
        start = time.monotonic()
        assert isinstance(raised(lambda t=timeout: waiter.wait([request], t)), WaitTimeout)
        assert timeout <= time.monotonic() - start < timeout + CANCEL_SECONDS
        start = time.monotonic()
        error = raised(lambda t=timeout: waiter.wait_until(lambda: False, t))
        assert isinstance(error, WaitTimeout)
        assert timeout <= time.monotonic() - start < timeout + CANCEL_SECONDS
    assert not waiter.cancelled
    withdraw(request)


@check
def another_thread_breaks_a_wait_off(c: Communicator) -> None:
    for delay in (
        0.0,
        0.001,
        0.05,
        1.1,
    ):  # before it begins, while it spins, in short naps, in long
        for how in ("wait", "until"):
            waiter, request, told = Waiter(), unanswered(c), []

            def cancel(waiter: Waiter = waiter, told: list[float] = told) -> None:
                told.append(time.monotonic())
                waiter.cancel()

            timer = threading.Timer(delay, cancel)
            timer.start()
            if how == "wait":
                error = raised(lambda w=waiter, r=request: w.wait([r], PATIENCE))
            else:
                error = raised(lambda w=waiter: w.wait_until(lambda: False, PATIENCE))
            ended = time.monotonic()
            timer.join()
            assert isinstance(error, Cancelled), (delay, how, error)
            assert ended - told[0] < CANCEL_SECONDS, (delay, how)
            withdraw(request)


@check
def what_is_cancelled_stays_so(c: Communicator) -> None:
    waiter, request, other = Waiter(), unanswered(c), Waiter()
    assert not waiter.cancelled
    waiter.cancel()
    for _ in range(3):
        assert waiter.cancelled
        for attempt in (
            lambda: waiter.wait([request], PATIENCE),
            lambda: waiter.test([request]),
            lambda: waiter.wait_until(lambda: False, PATIENCE),
        ):
            assert isinstance(raised(attempt), Cancelled)
    assert not other.cancelled  # one gang's end is not another's
    assert isinstance(raised(lambda: other.wait([request], 0)), WaitTimeout)
    withdraw(request)
    assert not isinstance(Cancelled(), Exception)  # nobody's "except Exception" takes it


@check
def python_goes_on_during_a_wait(c: Communicator) -> None:
    """A thread that computes in Python is not held up by one that waits, nor the other way."""
    waiter, request = Waiter(), unanswered(c)
    counted = []

    def count() -> None:
        with suppress(BaseException):
            total = 0
            for number in range(200_000):
                total += number
            counted.append(total)
        waiter.cancel()

    thread = threading.Thread(target=count)
    thread.start()
    assert isinstance(raised(lambda: waiter.wait([request], PATIENCE)), Cancelled)
    thread.join()
    assert counted
    withdraw(request)


@check
def two_threads_wait_at_once(c: Communicator) -> None:
    left, right = neighbours(c)
    came = [np.zeros(1000), np.zeros(1000)]
    errors: list[BaseException] = []
    other = gang()

    def exchange(comm: Any, array: np.ndarray) -> None:
        waiter = Waiter()
        try:
            for number in range(200):
                requests = [
                    comm.Irecv(array, left),
                    comm.Isend(np.full(1000, float(number)), right),
                ]
                waiter.wait(requests, PATIENCE)
                assert (array == number).all(), number
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=exchange, args=(other.mpi, came[1]))
    thread.start()
    exchange(c.mpi, came[0])
    thread.join()
    assert not errors, errors
    other.leave()


@check
def a_signal_is_handled_during_a_wait(c: Communicator) -> None:
    """Ctrl-C in a script that is a rank itself: the handler runs, and what it raises comes out."""
    waiter, request = Waiter(), unanswered(c)

    def handle(number: int, frame: Any) -> None:
        raise ZeroDivisionError

    former = signal.signal(signal.SIGUSR1, handle)
    timer = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    timer.start()
    error = raised(lambda: waiter.wait([request], PATIENCE))
    timer.join()
    signal.signal(signal.SIGUSR1, former)
    assert isinstance(error, ZeroDivisionError), error
    withdraw(request)


@check
def an_error_of_mpi_is_raised(c: Communicator) -> None:
    if c.size == 1:
        return  # to Open MPI, what a rank says to itself always fits
    left, right = neighbours(c)
    for how in ("wait", "test"):
        waiter, request = Waiter(), c.mpi.Irecv(np.zeros(3), left, 4)
        waiter.wait([c.mpi.Isend(np.zeros(9), right, 4)], PATIENCE)
        c.barrier()
        if how == "wait":
            error = raised(lambda w=waiter, r=request: w.wait([r], PATIENCE))
        else:

            def test(waiter: Waiter = waiter, request: Any = request) -> None:
                waiter.wait_until(lambda: waiter.test([request]), PATIENCE)

            error = raised(test)
        assert isinstance(error, MPI.Exception), error
        assert error.Get_error_class() == MPI.ERR_TRUNCATE
    came = np.zeros(3)
    requests = [c.mpi.Irecv(came, left), c.mpi.Isend(np.ones(3), right)]
    Waiter().wait(requests, PATIENCE)  # all goes on
    assert (came == 1).all()


# What a communicator makes of it


@check
def a_time_out_can_be_followed_by_another_wait(c: Communicator) -> None:
    left, right = neighbours(c)
    came, records = np.zeros(5), np.zeros(5, RECORD)
    requests = [c.irecv(came, left, 1), c.irecv(records, left, 2)]
    for timeout in (0, 0.02):
        assert isinstance(raised(lambda t=timeout: c.wait(requests, t)), WaitTimeout)
        assert isinstance(raised(lambda t=timeout: c.wait(requests[0], t)), WaitTimeout)
    c.barrier()  # nobody sends before all were late
    sends = [c.isend(np.ones(5), right, 1), c.isend(np.ones(5, RECORD), right, 2)]
    c.wait([sends, requests])
    assert (came == 1).all()
    assert (records["node"] == 1).all()


@check
def a_reduction_that_was_late_is_finished_by_the_next_wait(c: Communicator) -> None:
    if c.size == 1:
        return
    for dtype in (np.float64, np.float16):
        array = np.full(1000, c.rank + 1, dtype)
        if c.rank == 0:
            request = c.iallreduce(array)
            assert isinstance(raised(lambda r=request: c.wait(r, 0.02)), WaitTimeout)
            assert not c.test(request)
            c.wait([c.isend(np.zeros(1), to) for to in range(1, c.size)])
            c.wait(request)
            c.wait(request)
        else:
            c.wait(c.irecv(np.zeros(1), 0))
            c.allreduce(array)
        assert (array == c.size * (c.size + 1) // 2).all()


@check
def what_is_pending_is_polled_then_finished_once(c: Communicator) -> None:
    left, right = neighbours(c)
    came, said = np.zeros(3), []
    inner = Pending([c.mpi.Irecv(came, left)], finish=lambda: said.append(f"got {came[0]:g}"))
    ready = iter([False, False, True])
    outer = Pending([[inner]], poll=lambda: next(ready), finish=lambda: said.append("finished"))
    assert outer
    c.mpi.Isend(np.ones(3), right).Wait()
    c.wait([None, [outer]])
    assert said == ["got 1", "finished"]
    assert not outer
    c.wait(outer)
    assert c.test(outer)
    assert said == ["got 1", "finished"]


@check
def those_first_that_are_done_first(c: Communicator) -> None:
    left, right = neighbours(c)
    came = [np.zeros(1 + tag % 3 * 30_000, int) for tag in range(60)]
    waiting = [c.irecv(array, left, tag) for tag, array in enumerate(came)]
    order = np.random.default_rng(c.rank).permutation(len(came))
    waiting += [c.isend(np.full(came[tag].size, tag), right, int(tag)) for tag in order]
    deadline = time.monotonic() + PATIENCE
    while waiting:
        waiting = [request for request in waiting if not c.test(request)]
        assert time.monotonic() < deadline
    assert all((array == tag).all() for tag, array in enumerate(came))


@check
def requests_that_nobody_kept_still_complete(c: Communicator) -> None:
    left, right = neighbours(c)
    for size in (1000, 300_000):
        c.irecv(np.empty(size), left, 1)
        c.iallreduce(np.ones(size))
        others = [np.full(size, -1.0) for _ in range(4)]  # where their arrays would have lain
        gc.collect()
        c.isend(np.ones(size), right, 1)
        c.wait([c.isend(np.ones(size), right, 2), c.irecv(np.empty(size), left, 2)])
        c.barrier()
        assert all((other == -1).all() for other in others)


@check
def a_cancelled_gang_waits_no_more(c: Communicator) -> None:
    gone = gang()
    request = gone.irecv(np.zeros(3), (c.rank + 1) % c.size)
    gone.check()
    gone.waiter.cancel()
    for attempt in (
        gone.check,
        lambda: gone.wait(request),
        lambda: gone.wait([[request]]),
        lambda: gone.wait(Pending(poll=lambda: False)),
        lambda: gone.test(request),
    ):
        assert isinstance(raised(attempt), Cancelled)
    assert gone.abandon() == [gone.mpi]
    c.barrier()
    gone.mpi.Free()


@check
def abandoned_receives_are_withdrawn(c: Communicator) -> None:
    """What comes after a gang was abandoned does not find the arrays of its receives."""
    left, right = neighbours(c)
    gone = gang()
    targets = [np.zeros(1000), np.zeros(1000, RECORD), np.zeros(300_000)]
    for tag, target in enumerate(targets):
        gone.irecv(target, left, tag)
    assert gone.abandon() == [gone.mpi]
    c.barrier()
    for tag, target in enumerate(targets):
        came, out = np.empty(target.nbytes, np.uint8), np.ones(target.nbytes, np.uint8)
        gone.mpi.Sendrecv(out, right, tag, came, left, tag)
        assert (came == 1).all(), tag
        assert not target.view(np.uint8).any(), tag
    gone.mpi.Free()


@check
def a_reduction_that_cannot_be_withdrawn_is_kept(c: Communicator) -> None:
    if c.size == 1:
        return
    gone = gang()
    array = np.full(1000, c.rank + 1.0)
    alive = weakref.ref(array)
    if c.rank == 0:
        gone.iallreduce(array)
        del array
        kept = gone.abandon()
        assert len(kept) > 1
        gc.collect()
        assert alive() is not None
        c.barrier()
        gone.wait(kept[1:])  # the others come after all, so that MPI can be left in order
    else:
        c.barrier()
        gone.allreduce(array)
    gone.leave()


@check
def gangs_leave_no_files_open(c: Communicator) -> None:
    left, right = neighbours(c)
    counts = []
    for _ in range(30):
        inner = gang()
        inner.wait([inner.irecv(np.zeros(9), left), inner.isend(np.zeros(9), right)])
        inner.allreduce(np.ones(3))
        inner.leave()
        counts.append(len(os.listdir("/proc/self/fd")))
    assert counts[-1] <= counts[2], counts


def main() -> None:
    failures = 0
    for name in sys.argv[1:] or CHECKS:
        c, error = gang(), None
        start = time.perf_counter()
        try:
            CHECKS[name](c)
            c.leave()
        except BaseException:
            error = traceback.format_exc()
            dead.append(c.abandon())
        found = MPI.COMM_WORLD.gather(error)
        if c.rank == 0:
            failed = {rank: text for rank, text in enumerate(found) if text}
            outcome = "FAILED" if failed else "passed"
            lines = [f"{outcome} {name} {time.perf_counter() - start:.2f} s"]
            lines += [f"rank {rank}: {text}" for rank, text in failed.items()]
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
        failures += error is not None
    if failures:
        os._exit(1)  # MPI would wait for what they left


if __name__ == "__main__":
    main()
