"""Waiting for MPI requests: as fast as MPI's own wait, and still cancellable.

MPI's wait has no time-out and cannot be interrupted. So a compiled loop tests the requests, without
the interpreter's lock, and also polls a flag in memory and a clock; signals are handled between its
rounds.
"""

from __future__ import annotations

import ctypes
import os
import time
from array import array
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from penstock.workers.comm.mpi import load_mpi

DONE, AGAIN, CANCELLED = 0, 1, 2  # any other answer is an MPI error code, negated
CANCEL, FLAG, CLOCK, STATUS = 0, 1, 2, 4  # positions in a waiter's state, 8 bytes each
_POLLS = 2000  # in one round of the compiled loop, less than a millisecond
_ROUND = 1_000_000  # nanoseconds that a round takes at most
_SPIN_SECONDS = 0.002
_NAP, _LONG_NAP, _LONG_AFTER = 5e-5, 1e-3, 1.0


@cache
def _functions() -> tuple[int, int, int]:
    """Return the addresses of mpi4py's MPI_Test, of sched_yield and of clock_gettime."""
    mpi, libc = ctypes.CDLL(load_mpi().__file__), ctypes.CDLL(None)

    def address(function: Any) -> int:
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    return address(mpi.MPI_Test), address(libc.sched_yield), address(libc.clock_gettime)


class Cancelled(BaseException):
    """The wait was interrupted: the gang ends. Not an Exception, so that no handler catches it."""


class WaitTimeout(Exception):
    """The awaited message did not arrive in time."""


class Waiter:
    """One thread's waits, which any other thread can interrupt."""

    def __init__(self) -> None:
        # Imported here: a gang's client never waits for MPI requests, and needs no Numba.
        from penstock.workers.comm.poll import poll

        self._poll = poll
        self._mpi = load_mpi()
        self._address_of = self._mpi._addressof
        self._functions = _functions()
        self._state = np.zeros(STATUS + 64, np.int64)
        self._state_at = int(self._state.ctypes.data)

    def cancel(self) -> None:
        """Interrupt this wait and all later ones; called from another thread."""
        self._state[CANCEL] = 1

    @property
    def cancelled(self) -> bool:
        """Whether a thread called ``cancel``."""
        return bool(self._state[CANCEL])

    def wait(self, requests: Sequence[Any], timeout: float) -> None:
        """Return when all MPI requests are done; raise Cancelled, WaitTimeout or MPI's error.

        Raises TypeError if one is not an MPI request.
        """
        addresses = array("q", map(self._address_of, requests))
        at, count = addresses.buffer_info()
        answer = self._poll(*self._functions, at, count, self._state_at, _POLLS, _ROUND)
        if answer != DONE:
            self._wait_on(answer, at, count, timeout)

    def wait_at(self, at: int, count: int, timeout: float) -> None:
        """Wait for requests whose addresses are at ``at``."""
        answer = self._poll(*self._functions, at, count, self._state_at, _POLLS, _ROUND)
        if answer != DONE:
            self._wait_on(answer, at, count, timeout)

    def test(self, requests: Sequence[Any]) -> bool:
        """Return whether all MPI requests are done, and let MPI make progress."""
        addresses = array("q", map(self._address_of, requests))
        answer = self._polled(*addresses.buffer_info(), 1)
        self._raise(answer)
        return answer == DONE

    def wait_until(
        self, done: Callable[[], bool], timeout: float, *, spin: float = _SPIN_SECONDS
    ) -> None:
        """Return when ``done()`` is true; raise Cancelled or WaitTimeout.

        It polls without pause for ``spin`` seconds, and then at intervals.
        """
        start = time.monotonic()
        while not done():
            if self.cancelled:
                raise Cancelled
            waited = time.monotonic() - start
            if waited > timeout:
                raise WaitTimeout
            if waited < spin:
                os.sched_yield()  # a sleep of 0 s takes 80 us
            else:
                time.sleep(_NAP)

    def _wait_on(self, answer: int, at: int, count: int, timeout: float) -> None:
        start = time.monotonic()
        while answer != DONE:
            self._raise(answer)
            waited = time.monotonic() - start
            if waited > timeout:
                raise WaitTimeout
            spinning = waited < _SPIN_SECONDS
            if not spinning:
                time.sleep(_NAP if waited < _LONG_AFTER else _LONG_NAP)
            answer = self._polled(at, count, _POLLS if spinning else 2)

    def _polled(self, at: int, count: int, polls: int) -> int:
        return int(self._poll(*self._functions, at, count, self._state_at, polls, _ROUND))

    def _raise(self, answer: int) -> None:
        if answer == CANCELLED:
            raise Cancelled
        if answer < 0:
            raise self._mpi.Exception(-answer)
