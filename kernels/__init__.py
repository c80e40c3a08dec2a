"""The arithmetic: ``naive`` is short and obviously right, ``cpu`` is Numba, ``cuda`` is CUDA.

The three export the same functions with the same meaning. Which one runs is decided by where the
arrays live and how long they are, here and nowhere else.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.arrays import AnyArray


def kernel(name: str, array: AnyArray, *, plain: int = 0) -> ModuleType:
    """Return kernel module ``name`` for the backend on which ``array`` lives.

    plain  arrays shorter than this go to plain NumPy, before Numba is imported and has compiled
    """
    if hasattr(array, "__cuda_array_interface__"):
        backend = "cuda"
    else:
        backend = "naive" if len(array) < plain else "cpu"
    return import_module(f"penstock.kernels.{backend}.{name}")
