"""Whether this worker computes on a GPU, and on which: decided once, here, and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import dask

from penstock.errors import MissingExtra, UsageError

# What the plugins of the workers in this process were told, the latest last; those of one cluster
# were told the same.
_asked: list[str] = []

# Where a starter of ranks says which of its host a process is. That of SLURM comes last: under an
# mpiexec inside a batch step it belongs to the step, and is 0 for every rank.
_LOCAL_RANKS = (
    "MPI_LOCALRANKID",  # MPICH, Intel MPI
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "MVP_COMM_WORLD_LOCAL_RANK",
    "PALS_LOCAL_RANKID",  # Cray
    "FLUX_TASK_LOCAL_ID",
    "SLURM_LOCALID",
)


@cache
def gpu() -> bool:
    """Return whether this worker computes on a GPU: it does if it has one and CuPy to use it.

    ``--device``, or else ``penstock.device`` in Dask's configuration (``DASK_PENSTOCK__DEVICE``),
    says otherwise: ``cpu``, or ``gpu``, which is an error without one; so does
    ``dataframe.backend: cudf``.
    """
    wanted = _asked[-1] if _asked else dask.config.get("penstock.device", "auto")
    if wanted not in ("auto", "cpu", "gpu"):
        raise UsageError(
            "penstock.device in Dask's configuration", expected="auto, cpu or gpu", got=repr(wanted)
        )
    if wanted == "cpu":
        return False
    try:
        import cupy

        found = bool(cupy.cuda.runtime.getDeviceCount() > 0)
    except Exception:  # no CuPy, no driver, no device: all mean no GPU
        found = False
    if not found and (wanted == "gpu" or dask.config.get("dataframe.backend", None) == "cudf"):
        asker = "--device gpu" if _asked else "Dask's configuration"
        source = "" if _asked else " (penstock.device or dataframe.backend)"
        remedy = "use --device cpu" if _asked else "set penstock.device to cpu"
        raise MissingExtra(
            f"{asker} asks for a GPU{source}, but this worker has none that CuPy can use",
            remedy=f"Install the cuda12 or cuda13 extra on a machine with a GPU, or {remedy}",
        )
    return found


def ask(device: str) -> None:
    """Have ``gpu()`` say what ``--device`` says, ``auto`` aside, until ``withdraw``."""
    if device != "auto":
        _asked.append(device)
        _decide_again()


def withdraw(device: str) -> None:
    """Take one ``ask`` back."""
    if device != "auto":
        _asked.remove(device)
        _decide_again()


def _decide_again() -> None:
    gpu.cache_clear()
    frames.cache_clear()


def to_device(array: Any) -> Any:
    """Return ``array`` where this worker computes: on its GPU if it has one."""
    if not gpu():
        return array
    import cupy

    return cupy.asarray(array)


def wait_for_gpu() -> None:
    """Return when this thread's GPU has done what was launched on it."""
    import cupy

    cupy.cuda.get_current_stream().synchronize()


def to_host(array: Any) -> Any:
    """Return ``array`` as NumPy."""
    return array.get() if hasattr(array, "__cuda_array_interface__") else array


@cache
def frames() -> bool:
    """Return whether tables are read and grouped on this worker's GPU, by cuDF."""
    return gpu() and find_spec("cudf") is not None


def local_rank(environ: Mapping[str, str]) -> int | None:
    """Return which of its host's ranks a process with this environment is; None: it is no rank."""
    for name in _LOCAL_RANKS:
        if environ.get(name, "").isdecimal():
            return int(environ[name])
    return None


def devices_here(nodes: Path = Path("/dev")) -> int:
    """Return how many NVIDIA GPUs this host shows, without touching CUDA."""
    return sum(re.fullmatch(r"nvidia\d+", node.name) is not None for node in nodes.glob("nvidia*"))


def visible_devices(local_rank: int, count: int, visible: str | None) -> str:
    """Return the CUDA_VISIBLE_DEVICES of a rank: its own device first, its peers' after it.

    Own is ``local_rank`` of the host's ``count`` devices, or of those that ``visible`` (a
    CUDA_VISIBLE_DEVICES that is set already: numbers, UUIDs or MIG names) lets this process see;
    where there are more ranks than devices they take turns. To be called before CUDA is touched.
    """
    if visible is None:
        devices = [str(number) for number in range(count)]
    else:
        devices = []
        for name in (part.strip() for part in visible.split(",")):
            # CUDA stops at the first that cannot be one: "", -1, or the NoDevFiles of SLURM.
            if not re.fullmatch(r"\d+|GPU-\S+|MIG-\S+", name):
                break
            devices.append(name)
    if not devices:
        return ""
    first = local_rank % len(devices)
    return ",".join(devices[first:] + devices[:first])
