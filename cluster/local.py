"""The kind ``local``: worker processes on this machine."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import psutil

from penstock.cluster.addresses import scheduler_addresses
from penstock.cluster.dashboard import serve_dashboard
from penstock.cluster.running import Running
from penstock.cluster.spec import ClusterSpec
from penstock.temporary import TemporaryFolder
from penstock.workers.profiling import without_profile

if TYPE_CHECKING:
    from distributed import Client, Nanny
    from distributed.deploy import Cluster

CLOSE_TIMEOUT = 5
_STARTING = 0.5  # seconds until a process that starts can be seen


@contextmanager
def open_local(spec: ClusterSpec) -> Iterator[Running]:
    """Start workers on this machine, and end them."""
    from distributed import LocalCluster

    from penstock.cluster.security.credentials import credentials

    with TemporaryFolder("penstock-local") as made:
        folder = str(made)
        prepare_to_spawn()
        with ExitStack() as stack:
            used = stack.enter_context(credentials(spec, made))
            addresses = scheduler_addresses(spec, folder, used=used, remote=False)
            stack.enter_context(without_profile())
            # Two steps, so that workers started by the second one end even if it fails or is
            # interrupted.
            cluster = LocalCluster.__new__(LocalCluster)
            before = frozenset(child.pid for child in psutil.Process().children())
            stack.callback(close, cluster, before)
            cluster.__init__(
                n_workers=0,  # LocalCluster would wait for them forever
                threads_per_worker=spec.threads or 1,
                memory_limit=spec.worker_memory(),
                local_directory=str(folder),
                security=used,
                # The job reports a failed task once, with its remedy.
                silence_logs=logging.CRITICAL,
                **addresses,
            )
            # Workers serve their counters on loopback, not on every interface.
            cluster.new_spec["options"]["dashboard_address"] = "localhost:0"
            link = serve_dashboard(cluster, spec)
            workers = LocalWorkers(cluster, spec.worker_count())
            yield Running(
                cluster,
                workers.count,
                dashboard=link,
                attach=workers.start,
                missing=workers.missing,
                failure=workers.failure,
                remedy="Check whether memory ran out (dmesg) or a process is stopped, or raise the "
                "time with --start-timeout",
            )


class LocalWorkers:
    """The workers of a ``LocalCluster``; its client waits for them."""

    def __init__(self, cluster: Cluster, count: int) -> None:
        self.cluster, self.count = cluster, count
        self._started: Future[None] | None = None

    def start(self, client: Client) -> None:
        """Start them; a client that connects later would wait for them forever."""
        self.cluster.worker_spec.update(dict.fromkeys(range(self.count), self.cluster.new_spec))

        async def start() -> None:
            # Processes inherit it from the event loop's thread: Ctrl-C is for the client, and an
            # importing worker would print a traceback.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            await self.cluster._correct_state()

        loop = self.cluster.loop.asyncio_loop
        self._started = asyncio.run_coroutine_threadsafe(start(), loop)

    def missing(self, connected: set[str]) -> list[str]:
        """Return the workers that are not in ``connected``, with their processes."""
        if self.failure() is not None:
            return []  # it names them
        pids = {str(one.name): getattr(one, "pid", None) for one in list(self.cluster._created)}
        absent = [str(n) for n in range(self.count) if str(n) not in connected]
        return [f"worker {n}" + (f", process {pids[n]}" if pids.get(n) else "") for n in absent]

    def failure(self) -> str | None:
        """Return why a worker will not connect, or None."""
        from distributed.core import Status

        ended = (Status.closing, Status.closed, Status.failed)
        failed = sorted(str(one.name) for one in list(self.cluster._created) if one.status in ended)
        if failed:
            return f"the process of worker {' and '.join(failed)} exited or was killed"
        if self._started is not None and self._started.done():
            return first_lines(error) if (error := self._started.exception()) else None
        return None


def first_lines(error: BaseException | None) -> str:
    """Return the messages of an error and its causes, one line each."""
    texts: list[str] = []
    while error is not None and len(texts) < 10:  # Dask's errors may be their own causes
        text = str(error).strip() or type(error).__name__
        texts.append(text.splitlines()[0].rstrip("."))
        error = error.__cause__
    return ": ".join(texts)


@cache
def _leave_main_out() -> None:
    """Keep Dask's workers from importing ``__main__``: it may start a job itself.

    Functions of such a script travel by value.
    """
    from multiprocessing import spawn

    plain = spawn.get_preparation_data

    def without_main(name: str) -> dict[str, Any]:
        found: dict[str, Any] = plain(name)
        if name.startswith("Dask Worker process"):
            found.pop("init_main_from_name", None)
            found.pop("init_main_from_path", None)
        return found

    spawn.get_preparation_data = without_main


def prepare_to_spawn() -> None:
    """Prepare this process for starting worker processes.

    Python's helper process starts with SIGINT and SIGTERM ignored and outlives a closed terminal;
    without the helper, ending the workers in order fails with tracebacks.
    """
    from multiprocessing import resource_tracker

    _leave_main_out()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
    try:
        resource_tracker.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def close(cluster: Cluster, before: frozenset[int] = frozenset()) -> None:
    """End a cluster that this process started, in bounded time, at any point of its start.

    After repeated deaths of workers, closing can wait for one that never answers; during a start it
    waits for each of them first.

    before  children of this process that existed before the cluster
    """
    from distributed import Nanny
    from distributed.core import Status

    if not hasattr(cluster, "workers"):
        return  # not started
    nannies = [worker for worker in set(cluster._created) if isinstance(worker, Nanny)]
    processes = _processes_of(nannies)
    if not any(nanny.status == Status.init for nanny in nannies):
        try:
            cluster.close(timeout=CLOSE_TIMEOUT)
            _leave_folder(cluster)
            return
        except (TimeoutError, AssertionError):  # of a nanny that is starting its worker
            pass
        finally:
            # A stopped one (SIGSTOP) reacts to nothing else, and Python would wait for it.
            for process in processes:
                with suppress(psutil.Error):
                    process.kill()
    cluster.shutdown_on_close = False  # not at the end of this process either
    # From here on workers fail to start on purpose.
    cluster.loop.asyncio_loop.set_exception_handler(lambda loop, context: None)
    for nanny in nannies:
        nanny.status = Status.failed  # so that it does not restart its worker
        if nanny.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(nanny.pid, signal.SIGKILL)
    if nannies:
        _end_those_that_start(before)
    _leave_folder(cluster)


def _processes_of(nannies: list[Nanny]) -> list[psutil.Process]:
    """Return the worker processes; psutil identifies each by its start time and number."""
    found = []
    for nanny in nannies:
        with suppress(psutil.Error):
            if nanny.pid is not None:
                found.append(psutil.Process(nanny.pid))
    return found


def _leave_folder(cluster: Cluster) -> None:
    """Let the scheduler release its folder, even if its interrupted start leaves it running.

    Otherwise this process would log an error at its end, as the folder does not exist any more.
    """
    if (workdir := getattr(cluster.scheduler, "_workdir", None)) is not None:
        workdir.release()


def _end_those_that_start(before: frozenset[int]) -> None:
    """End worker processes that a nanny's thread is just starting.

    Otherwise they would print a traceback, as their folder does not exist any more.
    """
    deadline = time.monotonic() + _STARTING
    while time.monotonic() < deadline:
        for child in psutil.Process().children():
            with suppress(psutil.Error):
                if child.pid not in before and "spawn_main" in " ".join(child.cmdline()):
                    child.kill()
        time.sleep(0.02)
