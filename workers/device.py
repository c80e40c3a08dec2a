"""Whether this worker computes on a GPU: decided once, here, and nowhere else."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import dask


@cache
def gpu() -> bool:
    """Return whether this worker has a GPU and CuPy to use it.

    ``dataframe.backend: pandas`` or ``cudf`` in Dask's configuration decides where it is set.
    """
    wanted = dask.config.get("dataframe.backend", None)
    if wanted == "pandas":
        return False
    try:
        import cupy

        found = bool(cupy.cuda.runtime.getDeviceCount() > 0)
    except Exception:
        found = False
    if wanted == "cudf" and not found:
        from penstock.errors import MissingExtra

        raise MissingExtra(
            "dataframe.backend is cudf, but this worker has no GPU that CuPy can use",
            remedy="Install the cuda12 or cuda13 extra on a machine with a GPU, "
            "or set dataframe.backend to pandas",
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
