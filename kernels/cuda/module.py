"""Compiling and launching the .cu files of this folder, with names relative to it: ``walk/tables``.

Templates are compiled lazily, only the requested instances, once per device, and CuPy caches them
on disk; plain kernels are compiled together with those of their file, which takes hardly longer.
Each .cu file lists every possible instance as ``// instance: name<...>``, so that CI can compile it
without a GPU.
"""

from __future__ import annotations

import re
import threading
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import AnyArray
from penstock.caches import keep_cupy_kernels

FOLDER = Path(__file__).parent

_NULL = np.uint64(0)
_THREADS = 256
_MOST_BLOCKS = 1 << 16  # beyond, a thread takes several elements
_C_NAMES = {"float32": "float", "float64": "double", "int32": "int", "int64": "long long"}


def c_name(array: AnyArray) -> str:
    """Return the type of an array's values in C++."""
    return _C_NAMES[str(array.dtype)]


def launch(file: str, instance: str, count: int, *arguments: Any) -> None:
    """Run ``instance`` of ``file.cu`` with about a thread for each of ``count`` elements.

    These kernels walk their elements with a grid-wide stride.
    """
    if count:
        launch_blocks(
            file, instance, min(-(-count // _THREADS), _MOST_BLOCKS), _THREADS, *arguments
        )


def launch_blocks(
    file: str,
    instance: str,
    blocks: int,
    threads: int,
    *arguments: Any,
    prologue: str = "",
    shared: int = 0,
) -> None:
    """Run ``instance`` of ``file.cu`` in ``blocks`` blocks of ``threads`` threads.

    arguments  of its parameters' types; None is a null pointer
    prologue   code before the source, such as a user's function
    shared     bytes of dynamic shared memory per block
    """
    import cupy as cp

    module = cp.cuda.Device().id, file, _together(file, instance), prologue
    with _lock(*module):  # threads of one GPU launch on separate streams
        kernel = _kernel(*module, instance)
        if shared > kernel.max_dynamic_shared_size_bytes:
            kernel.max_dynamic_shared_size_bytes = shared
    given = tuple(_NULL if each is None else each for each in arguments)
    kernel((blocks,), (threads,), given, shared_mem=shared)


def processors() -> int:
    """Return how many multiprocessors the current GPU has."""
    import cupy as cp

    return _processors(cp.cuda.Device().id)


@cache
def _processors(device: int) -> int:
    import cupy as cp

    return int(cp.cuda.Device(device).attributes["MultiProcessorCount"])


def start_compiler() -> None:
    """Make CuPy start the compiler and identify it, which it does once for these options."""
    keep_cupy_kernels()
    import cupy as cp

    source = 'extern "C" __global__ void nothing() {}'
    cp.RawModule(code=source, options=_options()).get_function("nothing")


def _options() -> tuple[str, ...]:
    return ("-std=c++17", f"-I{FOLDER}", f"-DPENSTOCK_HEADERS=0x{_headers()}")


@cache
def _together(file: str, instance: str) -> tuple[str, ...]:
    """Return the instances to compile together: for a plain kernel, all plain ones of its file."""
    if "<" in instance:
        return (instance,)
    return tuple(sorted(re.findall(r"^// instance: (\w+)$", _source(file), re.MULTILINE)))


@cache
def _lock(device: int, file: str, instances: tuple[str, ...], prologue: str) -> threading.Lock:
    return threading.Lock()  # one per module: others compile or launch meanwhile


@cache
def _kernel(device: int, file: str, instances: tuple[str, ...], prologue: str, name: str) -> Any:
    return _module(device, file, instances, prologue).get_function(name)


@cache
def _module(device: int, file: str, instances: tuple[str, ...], prologue: str) -> Any:
    keep_cupy_kernels()
    import cupy as cp

    return cp.RawModule(
        code=f"{prologue}#line 1\n{_source(file)}",
        options=_options(),
        name_expressions=instances,
    )


@cache
def _source(file: str) -> str:
    return (FOLDER / f"{file}.cu").read_text()


@cache
def _headers() -> str:
    """Return a text that changes with the headers: CuPy's cache ignores them."""
    text = "".join(path.read_text() for path in sorted(FOLDER.rglob("*.cuh")))
    return sha256(text.encode()).hexdigest()[:8]
