"""A script that is itself an MPI job: ``mpirun -n 8 python job.py``, with ``connect()`` in it.

It uses dask_mpi.initialize: rank 0 becomes the scheduler, rank 1 continues the script, the others
become workers and exit here when rank 1 is done.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.cluster import dashboard
from penstock.cluster.running import Running
from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

_initialized = False


@contextmanager
def open_inside(spec: ClusterSpec, size: int) -> Iterator[Running]:
    """Turn all ranks of this job but one into scheduler and workers; continue as the client."""
    global _initialized
    import dask

    from penstock.workers.comm.mpi import load_mpi
    from penstock.workers.rank import share_of_host

    if size < 3:
        raise ClusterError(
            f"an MPI job of {size} ranks is too small for a cluster",
            expected="at least 3: the scheduler, this script, and a worker",
            remedy="Start it with mpirun -n 3 or more",
        )
    mpi = load_mpi()
    world = mpi.COMM_WORLD
    if not _initialized:
        import dask_mpi

        on_one_host = world.Split_type(mpi.COMM_TYPE_SHARED).size == size
        preloaded = [*dask.config.get("distributed.scheduler.preload"), dashboard.__name__]
        dask.config.set({"distributed.scheduler.preload": preloaded})
        encrypted = _use_credentials(spec, world)
        # At the end the connections of workers and scheduler break, as expected.
        logging.getLogger("distributed").setLevel(logging.CRITICAL)
        _initialized = True
        dask_mpi.initialize(
            interface=spec.interface or ("lo" if on_one_host else None),
            protocol="tls" if encrypted else None,
            nthreads=spec.threads or 1,
            memory_limit=str(spec.worker_memory() if spec.memory_limit else share_of_host()),
            dashboard=spec.dashboard != "none",
            dashboard_address="localhost:0" if spec.dashboard == "none" else spec.dashboard,
            worker_class="penstock.workers.rank.RankWorker",
            # Named like workers that our mpiexec starts: gangs recognise ranks by it.
            worker_options={"name": f"mpi-{os.getppid()}.0-{world.rank}", "dashboard": False},
        )
    yield Running(dask.config.get("scheduler-address"), size - 2)


def _use_credentials(spec: ClusterSpec, world: Comm) -> bool:
    """Let this process use the credentials of the cluster; return whether it encrypts.

    If the user named none, rank 0 makes them, and the others get them through MPI. They stay in
    memory: dask-mpi's scheduler and workers read them from Dask's configuration.
    """
    import dask

    from penstock.cluster.security import security
    from penstock.cluster.security.credentials import certificate

    used = security(spec)
    if used is not None:
        texts = {name: getattr(used, f"tls_{name}") for name in ("ca_file", "worker_cert")}
        texts["worker_key"], required = used.tls_worker_key, used.require_encryption
    elif spec.no_tls:
        return False
    else:
        made = world.bcast(certificate() if world.rank == 0 else None)
        shown, key = (text.decode() for text in made)
        texts, required = {"ca_file": shown, "worker_cert": shown, "worker_key": key}, True
    values = {"distributed.comm.tls.ca-file": texts["ca_file"]}
    for role in ("client", "scheduler", "worker"):
        values[f"distributed.comm.tls.{role}.cert"] = texts["worker_cert"]
        values[f"distributed.comm.tls.{role}.key"] = texts["worker_key"]
    if spec.tls is not None or used is None:  # otherwise its file shows it
        dask.config.set(values | {"distributed.comm.require-encryption": True})
    return bool(required)
