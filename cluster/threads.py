"""The kind ``threads``: a scheduler and a worker in this process, unreachable for others.

They need no credentials, no dashboard and no check of versions. A small job spends most of its time
here and in imports.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask

from penstock.cluster.spec import ClusterSpec
from penstock.temporary import TemporaryFolder
from penstock.workers.resources.device import begin

if TYPE_CHECKING:
    from distributed import Client

_SETTINGS = {
    # Its pages, which are never shown, would take time to load.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # Only the dashboard shows it: see workers/profiling.py.
    "distributed.worker.profile.enabled": False,
}


@contextmanager
def open_threads(spec: ClusterSpec, *, on_gpu: bool) -> Iterator[Client]:
    """Give a client of a worker of threads, which ends with the block.

    on_gpu  whether the job can compute on a GPU
    """
    # Importing Dask's modules takes long.
    beginning = begin(spec.device) if on_gpu else None
    from distributed import Client, LocalCluster

    from penstock.cluster.local import close

    # Two steps, so that what the second one starts ends even if it is interrupted.
    cluster = LocalCluster.__new__(LocalCluster)
    with TemporaryFolder("penstock-threads") as folder:
        try:
            with dask.config.set(_SETTINGS):
                cluster.__init__(**_options(spec, folder))
                # As an option of LocalCluster it would load Dask's dashboard.
                cluster.new_spec["options"]["dashboard_address"] = "localhost:0"
                cluster.worker_spec[0] = cluster.new_spec
                cluster.sync(cluster._correct_state)
            # The worker's threads inherit it: Ctrl-C is for the waiting thread.
            cluster.loop.asyncio_loop.call_soon_threadsafe(
                signal.pthread_sigmask, signal.SIG_BLOCK, {signal.SIGINT}
            )
            with Client(cluster) as client:
                yield client
        finally:
            close(cluster)
            if beginning is not None:
                beginning.join()


def _options(spec: ClusterSpec, folder: Path) -> dict[str, Any]:
    return {
        "processes": False,
        "n_workers": 0,
        "threads_per_worker": spec.threads or spec.worker_count(),
        "memory_limit": None,
        "local_directory": str(folder),
        "protocol": "inproc",
        "dashboard_address": "localhost:0",
        "scheduler_kwargs": {"dashboard": False, "local_directory": str(folder)},
        "silence_logs": logging.CRITICAL,  # the job reports a failed task once
    }
