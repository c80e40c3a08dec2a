"""How arrays on GPUs travel between the ranks of a gang: all ranks decide together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.workers.comm.exchange import Exchange
from penstock.workers.comm.wait import Waiter
from penstock.workers.resources import device

if TYPE_CHECKING:
    from mpi4py.MPI import Comm

# What ranks exchange: their GPU ("" if they compute on the CPU), their NCCL (0: none), whether
# their MPI takes GPU memory, and the communicator kept from an earlier gang.
_RECORD = np.dtype([("gpu", "S80"), ("nccl", "i4"), ("aware", "?"), ("kept", "S16")])


def device_exchange(
    comm: Comm,
    waiter: Waiter,
    members: tuple[int, ...],
    generation: str,
    *,
    timeout: float = 300.0,
) -> Exchange | None:
    """Return how the ranks of ``comm`` exchange CuPy arrays; None if one computes on the CPU.

    Every rank calls it, on clusters with GPUs. It is NCCL if each rank has its own GPU and the same
    NCCL; else a CUDA-aware MPI; else pinned host memory. ``members`` are the ranks in the MPI
    world, and ``generation`` is that world's name: consecutive gangs of the same members share an
    NCCL communicator.
    """
    from penstock.workers.comm.nccl import connect, kept, wait_for

    key = members, generation
    mine, link = np.zeros(1, _RECORD), None
    if device.gpu():
        import cupy

        from penstock.workers.comm.exchange_staged import mpi_reads_gpus

        gpu, link = device.gpu_identity(cupy.cuda.runtime.getDevice()), kept(key)
        mine[0] = gpu, _nccl_version(), mpi_reads_gpus(), link.name if link else ""
    every = np.zeros(comm.size, _RECORD)
    try:
        gathered = comm.Iallgather(mine.view(np.uint8), every.view(np.uint8))
        wait_for(waiter, [gathered], timeout)
    except BaseException:
        if link is not None:
            link.abort()
        raise
    way = choose(every)
    if link is not None and (way != "nccl" or len(set(every["kept"].tolist())) > 1):
        link.abort()  # another rank released it
        link = None
    if way == "nccl":
        from penstock.workers.comm.exchange_nccl import NcclExchange

        link = link or connect(comm, waiter, timeout)
        return NcclExchange(comm, waiter, key, link, timeout)
    if way == "none":
        return None
    from penstock.workers.comm.exchange_staged import AwareExchange, StagedExchange

    return AwareExchange(comm) if way == "aware" else StagedExchange(comm)


def choose(every: Any) -> str:
    """Return what ranks with these records use: nccl, aware, staged or none."""
    gpus = every["gpu"].tolist()
    if not all(gpus):
        return "none"
    versions = set(every["nccl"].tolist())
    # A single rank needs no NCCL.
    if len(gpus) > 1 and len(set(gpus)) == len(gpus) and len(versions) == 1 and 0 not in versions:
        return "nccl"
    return "aware" if every["aware"].all() and len(gpus) > 1 else "staged"


def _nccl_version() -> int:
    try:
        from cupy.cuda import nccl

        return int(nccl.get_version()) if nccl.available else 0
    except Exception:  # not installed or not loadable: reported to the others as none
        return 0
