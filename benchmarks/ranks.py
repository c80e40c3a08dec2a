"""Ranks of mpiexec, as benchmarks start them, and clusters of as many."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from penstock import ClusterSpec


def launched(ranks: int, program: list[str], *, gpus: bool = False) -> str:
    """Run a program on ranks; return its output."""
    from penstock.cluster.mpi.launcher import find_launcher, loaded_library
    from penstock.cluster.mpi.mpiexec import launch_command, launch_environment

    library = loaded_library()
    launcher, root = find_launcher(None, library), os.geteuid() == 0
    words = [sys.executable, "-P", *program]
    done = subprocess.run(
        launch_command(launcher, words, ranks=ranks, hosts=None, gpus=gpus),
        env=launch_environment(launcher, os.environ, root=root, library=library),
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
        check=not gpus,  # Open MPI exits with 1 if a rank does not finalize it, as after NCCL
    )
    return done.stdout


def with_gpu() -> Any:
    """Return the world of ranks, each of which sees one GPU of the host; before CuPy's import."""
    from penstock.workers.comm.mpi import load_mpi
    from penstock.workers.resources.device import devices_here, local_rank, visible_devices

    here, visible = local_rank(os.environ) or 0, os.environ.get("CUDA_VISIBLE_DEVICES")
    os.environ["CUDA_VISIBLE_DEVICES"] = visible_devices(here, devices_here(), visible)
    return load_mpi().COMM_WORLD


def communicator(world: Any, *, on_gpus: bool) -> Any:
    """Return a communicator of all ranks, over NCCL for arrays of GPUs."""
    from penstock.workers.comm.communicator import Communicator
    from penstock.workers.comm.exchange_device import device_exchange
    from penstock.workers.comm.wait import Waiter

    comm, waiter, device = world.Dup(), Waiter(), None
    if on_gpus:
        device = device_exchange(comm, waiter, tuple(range(comm.size)), "bench", timeout=120)
    return Communicator(comm, waiter, wait_timeout=60, device=device)


def cluster_of(ranks: int, *, on_gpu: bool) -> ClusterSpec:
    """Return the cluster that trains on so many ranks; one without a GPU is this process."""
    if ranks == 1 and not on_gpu:
        return ClusterSpec(cluster="threads", device="cpu")
    return ClusterSpec(cluster="mpi", device="gpu" if on_gpu else "cpu", workers=ranks)
