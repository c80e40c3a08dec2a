"""Waiting for the workers of a cluster, and checking their versions and devices."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock import __version__
from penstock.cluster.query import (
    answers,
    ask,
    ask_scheduler,
    ask_workers,
    by_value,
    worker_gone,
    worker_names,
)
from penstock.cluster.running import Running
from penstock.errors import ClusterError, warn
from penstock.progress import Progress
from penstock.sizes import listed
from penstock.workers.resources import device

if TYPE_CHECKING:
    from distributed import Client, Scheduler

_POLL = 0.02
_LAST_WORD = 1.0  # seconds for a scheduler's answer after the time is over
_NAMED, _HOSTS = 8, 4  # missing workers; hosts, each with its reason


def prepare_workers(
    client: Client,
    running: Running,
    timeout: float,
    steps: Sequence[Callable[[], None]],
    *,
    quiet: bool,
) -> None:
    """Wait for every worker, then take ``steps``; each step contacts all of them.

    If a worker dies right after it connected, its nanny restarts it, and a step may fail: then wait
    for it and repeat all steps, within the same time.
    """
    from distributed.comm.core import CommClosedError

    deadline = time.monotonic() + timeout
    while True:
        _wait(client, running, timeout, deadline, quiet=quiet)
        try:
            for step in steps:
                step()
            return
        except CommClosedError as error:
            if not answers(client):
                raise
            if time.monotonic() > deadline:
                raise worker_gone(got=str(error)) from error
        quiet = True  # the start was already shown
        time.sleep(_POLL)  # until the scheduler has given up the worker


def _wait(
    client: Client, running: Running, timeout: float, deadline: float, *, quiet: bool
) -> None:
    """Return when every worker has connected; else raise, with the missing ones and their log."""
    if running.workers is None:
        return
    here = 0
    with Progress("start workers", total=running.workers, unit="workers", quiet=quiet) as progress:
        while True:
            left = max(deadline - time.monotonic(), _LAST_WORD)
            names = set(ask_scheduler(client, worker_names, timeout=left).values())
            progress.advance(len(names) - here)
            here = len(names)
            if here >= running.workers:
                return
            failure = running.failure() if running.failure is not None else None
            if failure is not None or time.monotonic() > deadline:
                raise not_all(running, names, failure, timeout)
            time.sleep(_POLL)


def not_all(running: Running, names: set[str], failure: str | None, timeout: float) -> ClusterError:
    """Return the error that names a cluster's missing workers, with their log."""
    missing = running.missing(names) if running.missing is not None else []
    who = listed(missing, _NAMED)
    count = f"{len(missing) or (running.workers or 0) - len(names)} of {running.workers} workers"
    what = f"the workers did not start: {failure}" if failure else f"{count} did not connect"
    log = running.log().strip()
    return ClusterError(
        what if not who else f"{what} ({who})",
        expected=None if failure else f"all of them within {timeout:g} s",
        got=f"in their log: {log}" if log else None,
        remedy=running.remedy,
    )


def check_versions(client: Client) -> None:
    """Refuse a scheduler and workers whose Python or penstock differs from this process'."""
    scheduler = ask(client, client.scheduler.versions)["host"]["python"]
    # A worker of another Python cannot run our functions: use the versions from its registration.
    workers = ask_scheduler(client, _pythons).items()
    pythons = {f"the worker at {address}": python for address, python in workers}
    for who, python in {"the scheduler": scheduler, **pythons}.items():
        _compare(who, "Python", _minor(python), _minor(".".join(map(str, sys.version_info[:3]))))
    for address, version in ask_workers(client, _penstock, on_error="return").items():
        if isinstance(version, Exception) and not isinstance(version, ImportError):
            continue  # its loss is reported elsewhere
        found = version if isinstance(version, str) else "none that can be imported"
        _compare(f"the worker at {address}", "penstock", found, __version__)


def _compare(who: str, what: str, found: str, ours: str) -> None:
    if found != ours:
        raise ClusterError(
            f"{who} has another {what} than this process",
            expected=f"{what} {ours}, as here",
            got=f"{what} {found}",
            remedy=f"Install the same {what} everywhere, and start the cluster again",
        )


def warn_of_unused_gpus(client: Client) -> None:
    """Warn if workers compute on the CPU of a host that has a GPU, with the reason."""
    found = list(ask_workers(client, device.unused_gpu, on_error="return").values())
    unused = [gpu for gpu in found if isinstance(gpu, device.Gpu)]  # not workers that were lost
    if not unused:
        return
    hosts = list(dict.fromkeys(f"{gpu.host}: {gpu.reason}" for gpu in unused))
    who = f"{len(unused)} of {len(found)} workers compute" if len(found) > 1 else "the job computes"
    warn(
        f"{who} on the CPU, though there is a GPU on {listed(hosts, _HOSTS, '; ')}. "
        f"{unused[0].remedy}, or give --device cpu"
    )


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


# These travel by value, to processes that may lack penstock.


@by_value
def _pythons(dask_scheduler: Scheduler) -> dict[str, str]:
    workers = dask_scheduler.workers.items()
    return {address: state.versions["host"]["python"] for address, state in workers}


@by_value
def _penstock() -> str:
    from penstock import __version__

    return __version__
