"""Compiling and launching the .cu files of this folder.

Templates are compiled lazily, only the instances asked for, once a device, and cached on disk by
CuPy. Every instance that Python may ask for stands in its .cu file as ``// instance: name<...>``,
so that CI can compile it without a GPU.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent

_THREADS = 256
_MOST_BLOCKS = 1 << 16  # beyond, a thread takes several elements


def launch(file: str, instance: str, count: int, *arguments: Any) -> None:
    """Run ``instance`` of ``file.cu`` with about a thread for each of ``count`` elements.

    Kernels launched so walk their elements with a grid-wide stride.
    """
    import cupy as cp

    if count:
        blocks = min(-(-count // _THREADS), _MOST_BLOCKS)
        _kernel(cp.cuda.Device().id, file, instance)((blocks,), (_THREADS,), arguments)


@cache
def _kernel(device: int, file: str, instance: str) -> Any:
    import cupy as cp

    module = cp.RawModule(
        code=(FOLDER / f"{file}.cu").read_text(),
        options=("-std=c++17", f"-I{FOLDER}"),
        name_expressions=[instance],
    )
    return module.get_function(instance)
