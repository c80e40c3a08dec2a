"""Whether this worker computes on a GPU: decided once, here, and nowhere else."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import dask

from penstock.errors import MissingExtra, UsageError


@cache
def gpu() -> bool:
    """Return whether this worker computes on a GPU: it does if it has one and CuPy to use it.

    ``penstock.device`` in Dask's configuration (``DASK_PENSTOCK__DEVICE``) says otherwise: ``cpu``,
    or ``gpu``, which is an error without one; so does ``dataframe.backend: cudf``.
    """
    wanted = dask.config.get("penstock.device", "auto")
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
        raise MissingExtra(
            "Dask's configuration asks for a GPU (penstock.device or dataframe.backend), but this "
            "worker has none that CuPy can use",
            remedy="Install the cuda12 or cuda13 extra on a machine with a GPU, or set "
            "penstock.device to cpu",
        )
    return found


def to_device(array: Any) -> Any:
    """Return ``array`` where this worker computes: on its GPU if it has one."""
    if not gpu():
        return array
    import cupy

    return cupy.asarray(array)


def to_host(array: Any) -> Any:
    """Return ``array`` as NumPy."""
    return array.get() if hasattr(array, "__cuda_array_interface__") else array


@cache
def frames() -> bool:
    """Return whether tables are read and grouped on this worker's GPU, by cuDF."""
    return gpu() and find_spec("cudf") is not None
