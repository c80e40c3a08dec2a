"""The arithmetic: ``naive`` is short and obviously right, ``cpu`` is Numba, ``cuda`` is CUDA.

The three export the same functions with the same meaning. Which one runs is decided by where the
arrays live, here and nowhere else.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.arrays import AnyArray


def kernel(name: str, array: AnyArray) -> ModuleType:
    """Return kernel module ``name`` for the backend on which ``array`` lives."""
    backend = "cuda" if hasattr(array, "__cuda_array_interface__") else "cpu"
    return import_module(f"penstock.kernels.{backend}.{name}")
