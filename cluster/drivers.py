"""Drivers: processes under nannies beside the client; each runs one task at a time.

A stage of a flow is a task on a driver, which submits pieces and gangs to the same scheduler. A
driver that hangs, crashes or keeps the interpreter's lock can be ended, and neither client nor
scheduler is affected: its nanny starts another. Drivers have the resource ``driver``, workers
``piece``, so that no piece runs on a driver.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask
import psutil

from penstock.cluster.daemon.stop import kill, remaining
from penstock.cluster.local import first_lines, prepare_to_spawn
from penstock.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client, Nanny

ON_DRIVER = {"driver": 1}
_END_SECONDS = 10.0  # for what a stage has started to end by itself
_CLOSE_SECONDS = 5.0
# Dask would have arithmetic of a worker take one thread.
_SETTINGS: dict[str, Any] = {"distributed.nanny.pre-spawn-environ": {}}


class Drivers:
    """The drivers of a client's scheduler.

    folder   for their files
    timeout  seconds in which one of them must have connected
    """

    def __init__(self, client: Client, folder: Path, timeout: float) -> None:
        self._client, self._folder, self._timeout = client, folder, timeout
        self._seen = time.monotonic()
        self._nannies: list[Nanny] = []
        self._starting: list[Future[None]] = []
        prepare_to_spawn()

    def start(self, count: int) -> None:
        """Start drivers until there are ``count``, including those that are still starting."""
        loop = self._client.loop.asyncio_loop
        for number in range(len(self._starting), count):
            self._starting.append(asyncio.run_coroutine_threadsafe(self._start(number), loop))

    def connected(self) -> int:
        """Return how many drivers take tasks now; raise if one cannot be started."""
        from distributed.core import Status

        for one in self._starting:
            if one.done() and (error := one.exception()) is not None:
                raise ClusterError("a driver of stages did not start", got=first_lines(error))
        processes = [nanny.process for nanny in self._nannies]
        count = len([one for one in processes if one is not None and one.status == Status.running])
        if count or not processes:
            self._seen = time.monotonic()
        elif time.monotonic() > self._seen + self._timeout:
            raise ClusterError(
                "no driver of stages connects", expected=f"one within {self._timeout:g} s"
            )
        return count

    async def _start(self, number: int) -> None:
        from distributed import Nanny

        # Processes inherit it from this thread: Ctrl-C is for the client.
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        with dask.config.set(_SETTINGS):
            nanny = Nanny(
                self._client.scheduler.address,
                name=f"driver-{number}",
                nthreads=1,
                resources=ON_DRIVER,
                memory_limit=0,
                dashboard=False,
                security=self._client.security,
                host="127.0.0.1",
                local_directory=str(self._folder),
                silence_logs=logging.CRITICAL,
            )
        self._nannies.append(nanny)
        await nanny

    def close(self) -> None:
        """End all drivers, with the stages that run on them."""
        from distributed.core import Status

        for nanny in self._nannies:
            nanny.status = Status.closing_gracefully  # it starts no other process
        for nanny in self._nannies:
            if nanny.pid is not None:
                end_driver(nanny.pid)
        with suppress(Exception):  # of one that was just starting
            self._client.sync(self._close, callback_timeout=2 * _CLOSE_SECONDS)

    async def _close(self) -> None:
        closing = [nanny.close(timeout=_CLOSE_SECONDS) for nanny in self._nannies]
        await asyncio.gather(*closing, return_exceptions=True)


def end_driver(pid: int) -> None:
    """End a driver and all that it has started, which may end in order first."""
    with suppress(psutil.Error):
        driver = psutil.Process(pid)
        family = driver.children(recursive=True)
        for one in family:
            with suppress(psutil.Error):
                one.terminate()
        driver.kill()
        kill(remaining(family, _END_SECONDS), _END_SECONDS)  # its nanny waits for the driver
