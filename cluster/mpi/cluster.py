"""The kind ``mpi``: the scheduler in this process, the workers in an MPI world."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from penstock.cluster.addresses import scheduler_addresses
from penstock.cluster.dashboard import serve_dashboard
from penstock.cluster.running import Running
from penstock.cluster.security.credentials import credentials
from penstock.cluster.spec import ClusterSpec

if TYPE_CHECKING:
    from distributed import Client

    from penstock.cluster.mpi.world import World

CLOSE_TIMEOUT = 2


@contextmanager
def open_mpi(spec: ClusterSpec, *, ranks: int | None = None) -> Iterator[Running]:
    """Give a scheduler here; once a client connects, a world of ranks joins it."""
    from distributed import LocalCluster

    from penstock.cluster.mpi.world import World

    with (
        closing(World(spec, size=spec.workers or ranks)) as world,
        credentials(spec, None if world.remote else world.folder) as used,
    ):
        remote = world.remote
        addresses = scheduler_addresses(spec, str(world.folder), used=used, remote=remote)
        cluster = LocalCluster(
            n_workers=0,
            **addresses,
            security=used,
            silence_logs=logging.CRITICAL,
        )
        try:
            yield Running(
                cluster,
                world.size,
                dashboard=serve_dashboard(cluster, spec),
                log=world.tail,
                missing=world.missing,
                failure=lambda: world.failed,
                attach=lambda client: _attach(client, world),
            )
        finally:
            # On a busy machine it may take longer; the results are complete.
            with suppress(TimeoutError):
                cluster.close(timeout=CLOSE_TIMEOUT)


def _attach(client: Client, world: World) -> None:
    from penstock.cluster.gang.coordinator import install

    install(client)
    world.start(client)
