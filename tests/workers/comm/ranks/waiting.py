"""How ranks wait, and how that ends: started by mpiexec for test_wait.py.

    waiting.py [CHECK...]     the functions below that are marked as checks, or those named

Rank 0 prints ``passed NAME`` or ``FAILED NAME`` with the traceback of every rank that failed; the
checks that follow run all the same, each in a gang of its own.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from penstock.workers.comm.communicator import Communicator
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


# What a communicator makes of it


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
