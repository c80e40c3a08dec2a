"""Compiling the .cu files of this folder: lazily, once a device, cached on disk by CuPy."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import cupy as cp

FOLDER = Path(__file__).parent


def load(name: str, *expressions: str) -> Any:
    """Return the compiled ``name.cu`` for the current device, with these template instances.

    module = load("csr", "merge_values<float, 0>")
    kernel = module.get_function("merge_values<float, 0>")
    """
    return _load(name, expressions, cp.cuda.Device().id)


@cache
def _load(name: str, expressions: tuple[str, ...], device: int) -> Any:
    return cp.RawModule(
        code=(FOLDER / f"{name}.cu").read_text(),
        options=("-std=c++17", f"-I{FOLDER}"),
        name_expressions=expressions or None,
    )
