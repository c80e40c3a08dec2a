"""Stopping a registered cluster: in order if possible, else by force."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

import psutil

from penstock.cluster.daemon import registry
from penstock.cluster.daemon.registry import TOKEN, Registered
from penstock.errors import ClusterError
from penstock.temporary import sweep
from penstock.workers.processes import process_start

STOP_TIMEOUT = 5.0
_GO_SECONDS = 1.0  # for the rest of a daemon that ended in order, or of killed processes
_RUN_SECONDS = 60.0
_POLL = 0.02


def stop(cluster: Registered) -> str:
    """End a cluster of this host, remove its entry and return how it ended.

    stopped  in order
    killed   its daemon did not end within five seconds
    gone     its daemon had ended before
    """
    how = "gone"
    _end_runs(cluster.token)
    try:
        daemon = psutil.Process(cluster.pid)
        if cluster.alive():  # psutil cannot confuse it with a later process of this id
            how = "stopped" if end(daemon) else "killed"
    except psutil.NoSuchProcess:
        pass
    except psutil.AccessDenied as error:
        raise ClusterError(
            f"cluster {cluster.name!r} belongs to another user",
            got=f"no permission to end process {cluster.pid}",
            remedy="Stop it as the user who started it",
        ) from error
    end_rest(cluster.token, _GO_SECONDS if how == "stopped" else 0.0)
    sweep(Path(cluster.temporary), "penstock-*")
    registry.release(cluster)
    return how


def end(daemon: psutil.Process) -> bool:
    """End a daemon, in order if it reacts in time; return whether it did."""
    try:
        daemon.terminate()
        daemon.resume()  # a stopped process does not receive SIGTERM
        if not remaining([daemon], STOP_TIMEOUT):
            return True
        daemon.suspend()  # it must not start processes during the search
    except psutil.NoSuchProcess:
        return True
    kill([daemon])
    return False


def _end_runs(token: str) -> None:
    """End detached runs of flows in order, which is while their cluster still answers."""
    found = [one for one in psutil.process_iter() if _belongs(one, token) and _is_run(one)]
    for one in found:
        with suppress(psutil.Error):
            one.terminate()
    remaining(found, _RUN_SECONDS)


def _is_run(process: psutil.Process) -> bool:
    with suppress(psutil.Error):
        return bool(process.cmdline()[1:5] == ["-P", "-m", "penstock", "run"])
    return False


def end_rest(token: str, seconds: float = 0.0) -> None:
    """Kill the remaining processes of a cluster whose daemon exited, anywhere on this host.

    Every process of the cluster has ``token`` in its environment. It may end by itself within
    ``seconds``.
    """
    for _ in range(10):  # a dying process may have started another one
        rest = [process for process in psutil.process_iter() if _belongs(process, token)]
        if not rest:
            return
        kill(remaining(rest, seconds))
        seconds = 0.0


def _belongs(process: psutil.Process, token: str) -> bool:
    if process.pid == os.getpid() or not token:
        return False
    try:
        return bool(process.environ().get(TOKEN) == token)
    except (psutil.Error, OSError):  # another user's, or just ended
        return False


def kill(processes: list[psutil.Process], seconds: float = _GO_SECONDS) -> None:
    """Kill processes, and wait until they are gone."""
    for process in processes:
        with suppress(psutil.Error):
            process.kill()
    remaining(processes, seconds)


def remaining(processes: list[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Return the processes that still run after ``seconds``; a zombie has ended."""
    deadline = time.monotonic() + seconds
    while remaining := [one for one in processes if _runs(one)]:
        if time.monotonic() > deadline:
            break
        time.sleep(_POLL)
    return remaining


def _runs(process: psutil.Process) -> bool:
    # A zombie holds no resources.
    return process.is_running() and process_start(process.pid) is not None
