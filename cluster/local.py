"""The kinds ``local`` and ``threads``: workers on this machine, in processes or in this one."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from penstock.cluster.place import dashboard_link, scheduler_place
from penstock.cluster.running import Running
from penstock.cluster.security import security
from penstock.cluster.spec import ClusterSpec

CLOSE_TIMEOUT = 5


@contextmanager
def open_local(spec: ClusterSpec, *, processes: bool) -> Iterator[Running]:
    """Start workers on this machine, and end them."""
    from distributed import LocalCluster

    cores = spec.worker_count()
    folder = tempfile.mkdtemp(prefix="penstock-local-")
    try:
        place = scheduler_place(spec, folder, remote=False, dashboard=processes)
        if not processes:
            place.pop("host", None)  # nobody else can reach it
        cluster = LocalCluster(
            processes=processes,
            n_workers=cores if processes else 1,
            threads_per_worker=(spec.threads or 1) if processes else spec.threads or cores,
            memory_limit=spec.worker_memory() if processes else None,
            local_directory=str(spec.worker_scratch or folder),
            security=security(spec) if processes else None,
            # A failed task is reported once, by the job, with its remedy.
            silence_logs=logging.CRITICAL,
            **place,
        )
        try:
            yield Running(
                cluster,
                cores if processes else 1,
                dashboard=dashboard_link(cluster, spec) if processes else None,
                missing=lambda names: [str(n) for n in range(cores) if str(n) not in names],
            )
        finally:
            close(cluster)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def close(cluster: Any) -> None:
    """End a cluster that this process started, in bounded time.

    After workers died over and over, closing can wait for one that will never answer.
    """
    from distributed import Nanny
    from distributed.core import Status

    nannies = [worker for worker in cluster.workers.values() if isinstance(worker, Nanny)]
    try:
        cluster.close(timeout=CLOSE_TIMEOUT)
    except TimeoutError:
        cluster.shutdown_on_close = False  # nor at the end of this process
        for nanny in nannies:
            nanny.status = Status.failed  # so that it does not start its worker again
            if nanny.pid is not None:
                with suppress(ProcessLookupError):
                    os.kill(nanny.pid, signal.SIGKILL)
