"""dask-cuda's knowledge of a worker with a GPU: where results spill, and which cores are near.

Both are used if dask-cuda is installed, and skipped otherwise.
"""

from __future__ import annotations

import os
import warnings
from importlib.util import find_spec
from typing import Any

from penstock.errors import MissingExtra
from penstock.workers.resources.device import devices_here, visible_devices
from penstock.workers.resources.pool import size_or_share

DEFAULT_SHARE = 0.8  # of the GPU's memory, as dask-cuda recommends


def spill_data(device_limit: str | None, memory_limit: int | None) -> Any:
    """Return the argument of ``distributed.Worker(data=...)`` that spills results from a full GPU.

    They move to host memory, and to disk beyond ``memory_limit`` bytes. None is Dask's default,
    without GPU: this process has none, or dask-cuda is missing.
    """
    gpu = _own_gpu()
    if gpu is None:
        return None
    if find_spec("dask_cuda") is None:
        if device_limit is None:
            return None
        raise MissingExtra(
            "--device-limit needs dask-cuda, which is not installed for this worker",
            remedy="Install the cuda12 or cuda13 extra, or leave --device-limit out",
        )
    from dask_cuda.device_host_file import DeviceHostFile

    limit = DEFAULT_SHARE if device_limit is None else size_or_share(device_limit, "--device-limit")
    if isinstance(limit, float):
        from dask_cuda.utils import get_device_total_memory

        total = get_device_total_memory(gpu)
        if total is None:  # it shares the host's memory: spilling would gain nothing
            return None
        limit = int(total * limit)
    return DeviceHostFile, {"device_memory_limit": limit, "memory_limit": memory_limit}


def stay_near_gpu() -> None:
    """Run this process, and threads it starts later, on the cores next to its GPU, if known."""
    gpu = _own_gpu()
    if gpu is None or find_spec("dask_cuda") is None:
        return
    from dask_cuda.utils import get_cpu_affinity

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a warning means that it does not know
            near = set(get_cpu_affinity(gpu))
    except Exception:  # also errors of its own messages, and of the driver
        return
    # mpiexec, srun or a container may have chosen cores.
    if cores := near & os.sched_getaffinity(0):
        os.sched_setaffinity(0, cores)


def _own_gpu() -> int | str | None:
    """Return this process' first GPU as NVML names it: an index on the host, or a UUID."""
    visible = visible_devices(0, devices_here(), os.environ.get("CUDA_VISIBLE_DEVICES"))
    own = visible.partition(",")[0]
    if not own or not devices_here():
        return None
    return int(own) if own.isdecimal() else own
