"""The arithmetic: ``naive`` is short and obviously right, ``cpu`` is Numba, ``cuda`` is CUDA.

The three export the same functions with the same meaning. The device and length of the arrays
decide which one runs, only here.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.arrays import AnyArray


def kernel(name: str, array: AnyArray, *, plain: int = 0) -> ModuleType:
    """Return kernel module ``name`` for the backend on which ``array`` lives.

    plain  shorter arrays go to plain NumPy, which needs no import of Numba and no compilation
    """
    if hasattr(array, "__cuda_array_interface__"):
        backend = "cuda"
    else:
        backend = "naive" if len(array) < plain else "cpu"
    return import_module(f"penstock.kernels.{backend}.{name}")
