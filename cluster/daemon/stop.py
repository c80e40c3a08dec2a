"""Ending the processes of a started cluster: in order if they can, by force if they cannot."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import psutil

from penstock.cluster.daemon import registry
from penstock.cluster.daemon.registry import TOKEN, Registered
from penstock.errors import ClusterError

STOP_TIMEOUT = 5.0
_POLL = 0.02


def stop(cluster: Registered) -> str:
    """End a cluster of this host and forget it; say how it ended.

    stopped  in order
    killed   its daemon did not end within five seconds
    gone     its daemon had ended before
    """
    how = "gone"
    if cluster.alive():
        try:
            how = "stopped" if end(cluster.pid, still=cluster.alive) else "killed"
        except psutil.AccessDenied as error:
            raise ClusterError(
                f"cluster {cluster.name!r} belongs to another user",
                got=f"no permission to end process {cluster.pid}",
                remedy="Stop it as the user who started it",
            ) from error
    end_rest(cluster)
    registry.release(cluster)
    return how


def end(pid: int, *, still: Callable[[], Any] = lambda: True) -> bool:
    """End a daemon and all that it started; return whether it needed no force.

    ``still`` says whether the process is the one that is meant: asked once it cannot be mistaken
    for a later one of the same number any more.
    """
    try:
        daemon = psutil.Process(pid)
        family = daemon.children(recursive=True)
        if not still():
            return True
        daemon.terminate()
        daemon.resume()  # if it was stopped, it could not hear that
    except psutil.NoSuchProcess:
        return True
    in_order = not _remaining([daemon], STOP_TIMEOUT)
    if not in_order:
        with suppress(psutil.NoSuchProcess):
            daemon.suspend()  # so that it starts nothing new
            family += daemon.children(recursive=True)
        _kill([daemon])
    # Those that it leaves behind in order are about to go.
    _kill(_remaining(family, 1.0 if in_order else 0.0))
    return in_order


def end_rest(cluster: Registered) -> None:
    """Kill what is left of a cluster whose daemon has gone, wherever on this host it hangs."""
    for _ in range(10):  # what dies may have started something in the meantime
        rest = [process for process in psutil.process_iter() if _belongs(process, cluster)]
        if not rest:
            return
        _kill(rest)


def _belongs(process: Any, cluster: Registered) -> bool:
    if process.pid == os.getpid() or not cluster.token:
        return False
    try:
        return bool(process.environ().get(TOKEN) == cluster.token)
    except (psutil.Error, OSError):  # another user's, or just gone
        return False


def _kill(processes: Iterable[Any]) -> None:
    processes = list(processes)
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    _remaining(processes, 1.0)


def _remaining(processes: Iterable[Any], seconds: float) -> list[Any]:
    """Return which of ``processes`` are there after at most ``seconds``."""
    deadline = time.monotonic() + seconds
    while remaining := [process for process in processes if _runs(process)]:
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL)
    return remaining


def _runs(process: Any) -> bool:
    # One that nobody has waited for yet, a zombie, holds nothing and does nothing.
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
