"""Asking a scheduler in bounded time: one that hangs would keep its client waiting for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from penstock.errors import SilentScheduler

SILENT_SECONDS = 30.0


def ask_scheduler(
    client: Any, function: Callable[..., Any], *, timeout: float | None = None
) -> Any:
    """Return what ``function`` returns in the scheduler; raise if that takes too long."""
    seconds = SILENT_SECONDS if timeout is None else timeout
    try:
        return client.run_on_scheduler(function, callback_timeout=seconds)
    except TimeoutError as error:
        raise SilentScheduler(
            f"the scheduler at {client.scheduler.address} hangs, or cannot be reached",
            expected=f"an answer within {seconds:g} s",
            remedy="Look at its process and its host; if it stays like that, end the cluster and "
            "start it again",
        ) from error


def identity(address: str, used: Any, *, timeout: float) -> Any:
    """Return what a scheduler says of itself; raise OSError or TimeoutError if it says nothing.

    A client would wait for that word for ever, once the kernel has accepted its connection.
    """
    from distributed import Security
    from distributed.comm import connect

    async def ask() -> Any:
        arguments = (used or Security()).get_connection_args("client")
        comm = await connect(address, timeout=timeout, **arguments)
        try:
            await comm.write({"op": "identity", "reply": True})
            return await comm.read()
        finally:
            comm.abort()

    async def in_time() -> Any:
        return await asyncio.wait_for(ask(), timeout)

    # A notebook's thread has an event loop that runs already.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, in_time()).result()
