"""Requests to a scheduler or workers in bounded time: a hanging one must not block its client.

All requests of a client pass through here. Each ends with an answer, or with an error that names
the silent process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.errors import ClusterError, SilentScheduler
from penstock.sizes import listed

if TYPE_CHECKING:
    from distributed import Client, Scheduler, Security

SILENT_SECONDS = 30.0
_WHO_SECONDS = 5.0  # for the scheduler to name its silent workers
_ALIVE_SECONDS = 3.0  # for a scheduler to show that it lives
_NAMED = 4


def ask_scheduler(
    client: Client, function: Callable[..., Any], *, timeout: float | None = None
) -> Any:
    """Return the result of ``function`` in the scheduler; raise if it takes too long."""
    seconds = SILENT_SECONDS if timeout is None else timeout
    try:
        return client.run_on_scheduler(function, callback_timeout=seconds)
    except TimeoutError as error:
        raise _silent_scheduler(client, seconds) from error


def ask_workers(
    client: Client, function: Callable[..., Any], *, on_error: str = "raise"
) -> dict[str, Any]:
    """Return the result of ``function`` in each worker; ``on_error`` is that of ``client.run``.

    Drivers of flows are not asked: a stage may keep one from answering for long.
    """
    with answers_in_time(client) as seconds:
        workers = list(client.run_on_scheduler(worker_names, callback_timeout=seconds))
        if not workers:
            return {}
        found = client.run(function, workers=workers, on_error=on_error, callback_timeout=seconds)
    return dict(found)


def of_pieces(client: Client) -> dict[str, float] | None:
    """Return the resources that pieces ask for, so that none runs on the driver of a stage."""
    return {"piece": 1} if ask_scheduler(client, _has_drivers) else None


def ask(
    client: Client,
    question: Callable[..., Any],
    /,
    *,
    within: float | None = None,
    **arguments: Any,
) -> Any:
    """Return the result of a coroutine function of the client or scheduler; raise if it is late.

    ``question`` is such as ``client.scheduler.versions``, called with ``arguments``; it may take
    ``within`` seconds.
    """
    with answers_in_time(client, within) as seconds:
        return client.sync(question, callback_timeout=seconds, **arguments)


@contextmanager
def answers_in_time(client: Client, timeout: float | None = None) -> Iterator[float]:
    """Give the seconds that a request may take; if it times out, name the silent processes."""
    seconds = SILENT_SECONDS if timeout is None else timeout
    try:
        yield seconds
    except TimeoutError as error:
        try:
            silent = client.run_on_scheduler(_silent, callback_timeout=min(seconds, _WHO_SECONDS))
        except (TimeoutError, OSError):
            raise _silent_scheduler(client, seconds) from error
        who = listed(silent, _NAMED) or "a worker"
        raise ClusterError(
            f"{who} does not answer" if len(silent) < 2 else f"{who} do not answer",
            expected=f"an answer within {seconds:g} s",
            remedy="Check its process and its host; if it stays silent, restart the cluster",
        ) from error


@contextmanager
def loss_explained(client: Client) -> Iterator[None]:
    """Report which process ended if Dask only reports a broken connection.

    If a worker ends while the scheduler forwards to it, Dask closes the client's connection too. So
    the scheduler is checked before it is blamed.
    """
    from concurrent.futures import CancelledError

    from distributed.comm.core import CommClosedError

    try:
        yield
    except (OSError, CancelledError) as error:
        of_a_file = isinstance(error, OSError) and error.filename is not None
        if of_a_file or (client.status == "running" and not isinstance(error, CommClosedError)):
            raise
        if answers(client):
            raise worker_gone(got=str(error) or type(error).__name__) from error
        raise scheduler_gone(address=client.scheduler.address) from error


def answers(client: Client) -> bool:
    """Return whether the scheduler answers."""
    if client.status != "running":
        return False
    try:
        client.run_on_scheduler(nothing, callback_timeout=_ALIVE_SECONDS)
    except (OSError, TimeoutError):
        return False
    return True


def scheduler_gone(
    during: str = "", *, address: str | None = None, got: str | None = None
) -> ClusterError:
    """Return the error of work whose scheduler ended; ``during``: such as while a gang ran."""
    where = "" if address is None else f" at {address}"
    return ClusterError(
        f"the scheduler{where} exited, or cannot be reached{during and ', '}{during}",
        got=got,
        remedy="Check penstock cluster status and its log, start it again, and run the "
        "command again: saved work is kept, and --resume continues if the job has it",
    )


def worker_gone(*, got: str | None = None) -> ClusterError:
    """Return the error of a request that a worker's end cut off."""
    return ClusterError(
        "a worker exited, or its connection broke, during a request",
        got=got,
        remedy="Check dmesg for memory that ran out, and the worker's log; run the command "
        "again: saved work is kept, and --resume continues if the job has it",
    )


def _silent_scheduler(client: Client, seconds: float) -> SilentScheduler:
    return SilentScheduler(
        f"the scheduler at {client.scheduler.address} hangs, or cannot be reached",
        expected=f"an answer within {seconds:g} s",
        remedy="Check its process and its host; if it stays silent, restart the cluster",
    )


def request(address: str, used: Security | None, message: dict[str, Any], *, timeout: float) -> Any:
    """Return the reply of the server at ``address`` to one message, without a client.

    A client would wait forever once the kernel has accepted its connection; this raises OSError or
    TimeoutError.
    """
    import asyncio

    from distributed import Security
    from distributed.comm import connect

    async def question() -> Any:
        arguments = (used or Security()).get_connection_args("client")
        comm = await connect(address, timeout=timeout, **arguments)
        try:
            await comm.write({**message, "reply": True})
            return await comm.read()
        finally:
            comm.abort()

    async def in_time() -> Any:
        return await asyncio.wait_for(question(), timeout)

    # A notebook's thread already runs an event loop.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, in_time()).result()


def by_value(function: Callable[..., Any]) -> Any:
    """Let ``function`` travel by value, to a process that may lack penstock."""
    function.__module__ = "__main__"
    return function


@by_value
def nothing() -> None:
    """Run on a scheduler that is to show that it answers."""


@by_value
def _has_drivers(dask_scheduler: Scheduler) -> bool:
    return any("driver" in state.resources for state in dask_scheduler.workers.values())


@by_value
def worker_names(dask_scheduler: Scheduler) -> dict[str, str]:
    """Return the names of all workers but drivers, by address; runs on the scheduler."""
    workers = dask_scheduler.workers.items()
    return {at: str(state.name) for at, state in workers if "driver" not in state.resources}


@by_value
def _silent(dask_scheduler: Scheduler) -> list[str]:
    from time import time

    from distributed.scheduler import heartbeat_interval

    workers = dask_scheduler.workers.values()
    late = time() - 4 * heartbeat_interval(len(workers))
    return [
        f"worker {state.name} (process {state.pid} on {state.host})"
        for state in workers
        if state.last_seen < late
    ]
