"""The kind ``threads``: a scheduler and a worker in this process, which no other process can reach.

They need no credentials, no dashboard and no check of versions: they live and stand still as this
process does. A small job spends most of its time here and in imports.
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask

from penstock.cluster.spec import ClusterSpec
from penstock.temporary import TemporaryFolder
from penstock.workers.plugin import register_plugin
from penstock.workers.resources.device import begin, unused_gpu

if TYPE_CHECKING:
    from distributed import Client

_CLOSE_SECONDS = 5
_SETTINGS = {
    # Its pages, which are shown to no one, would take time to load.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    # It is shown on the dashboard only: see workers/profiling.py.
    "distributed.worker.profile.enabled": False,
}


@contextmanager
def open_threads(spec: ClusterSpec, *, on_gpu: bool) -> Iterator[Client]:
    """Give a client of a worker of threads, which ends with the block.

    on_gpu  whether the job computes on a GPU where there is one
    """
    # Dask's modules are imported next, and take long.
    beginning = begin(spec.device) if on_gpu else None
    from distributed import Client, LocalCluster

    # Made in two steps, so that what the second one has started ends even if it is interrupted.
    cluster = LocalCluster.__new__(LocalCluster)
    with TemporaryFolder("penstock-threads") as folder:
        try:
            with dask.config.set(_SETTINGS):
                cluster.__init__(**_options(spec, folder))
                # Given to LocalCluster, it would have the worker load Dask's dashboard.
                cluster.new_spec["options"]["dashboard_address"] = "localhost:0"
                cluster.worker_spec[0] = cluster.new_spec
                cluster.sync(cluster._correct_state)
            # The worker's threads inherit it: Ctrl-C is for the thread that waits for them.
            cluster.loop.asyncio_loop.call_soon_threadsafe(
                signal.pthread_sigmask, signal.SIG_BLOCK, {signal.SIGINT}
            )
            with Client(cluster) as client:
                register_plugin(
                    client,
                    device=spec.device,
                    device_pool=spec.device_pool,
                    scratch=str(spec.worker_scratch) if spec.worker_scratch else None,
                    memory_limit=spec.worker_memory() if spec.memory_limit else None,
                )
                if unused_gpu() is not None:
                    from penstock.cluster.devices import warn_of_unused_gpus

                    warn_of_unused_gpus(client)
                yield client
        finally:
            _close(cluster)
            if beginning is not None:
                beginning.join()


def _options(spec: ClusterSpec, folder: Path) -> dict[str, Any]:
    return {
        "processes": False,
        "n_workers": 0,
        "threads_per_worker": spec.threads or spec.worker_count(),
        "memory_limit": None,
        "local_directory": str(spec.worker_scratch or folder),
        "protocol": "inproc",
        "dashboard_address": "localhost:0",
        "scheduler_kwargs": {"dashboard": False, "local_directory": str(folder)},
        "silence_logs": logging.CRITICAL,  # a failed task is reported once, by the job
    }


def _close(cluster: Any) -> None:
    """End a cluster, however far it came."""
    from penstock.cluster.ended import forget_ended_servers

    if hasattr(cluster, "workers"):
        with suppress(TimeoutError):
            cluster.close(timeout=_CLOSE_SECONDS)
        # If its start was cut off nothing ends it, and it would log that its folder has gone.
        if (workdir := getattr(cluster.scheduler, "_workdir", None)) is not None:
            workdir.release()
    forget_ended_servers()
