"""An MPI world for a cluster without one: ``gang.run`` on any local cluster."""

from __future__ import annotations

import atexit
import threading
import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from penstock.cluster.addresses import is_here
from penstock.cluster.count import NEEDS_PROCESSES
from penstock.cluster.mpi.world import World
from penstock.cluster.query import ask_scheduler, worker_names
from penstock.cluster.running import Running
from penstock.cluster.spec import ClusterSpec
from penstock.cluster.startup import not_all
from penstock.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client, Scheduler

_POLL = 0.02


def start_world(client: Client, ranks: int | None, timeout: float) -> None:
    """Start ``ranks`` ranks on this host as further workers of the client's scheduler.

    They end with the scheduler or with this process.
    """
    address = client.scheduler.address
    if address.startswith("inproc:"):
        raise ClusterError(
            f"{NEEDS_PROCESSES}, and this cluster lives within one",
            remedy=f"Use connect('mpi', workers={ranks or 2}), or --cluster mpi",
        )
    elsewhere = [
        host for host in (_host(address), *ask_scheduler(client, _hosts)) if not is_here(host)
    ]
    if elsewhere:
        raise ClusterError(
            "no worker of this cluster is an MPI rank, which a gang needs",
            got=f"scheduler or workers on another host, {elsewhere[0]}",
            remedy="Start the cluster with --cluster mpi, or start its ranks yourself: mpiexec -n "
            f"{ranks or 4} dask-mpi {address} --no-scheduler --worker-class distributed.Worker",
        )
    world = World(ClusterSpec(cluster="mpi", start_timeout=timeout), size=ranks)
    atexit.register(world.close)
    world.start(client)
    threading.Thread(target=world.join, daemon=True).start()
    _wait(client, world, timeout)


def _wait(client: Client, world: World, timeout: float) -> None:
    running = Running(None, world.size, log=world.tail, missing=world.missing)
    deadline = time.monotonic() + timeout
    while not world.connected.wait(_POLL):
        if world.failed is not None or time.monotonic() > deadline:
            names = set(ask_scheduler(client, worker_names).values())
            error = not_all(running, names, world.failed, timeout)
            world.close()
            raise error


def _host(address: str) -> str:
    return urlsplit(address).hostname or ""


def _hosts(dask_scheduler: Scheduler) -> list[str]:
    return sorted({state.host for state in dask_scheduler.workers.values()})
