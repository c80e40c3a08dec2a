"""A GPU memory pool, taken at the start: RMM's if it is installed, else CuPy's own."""

from __future__ import annotations

import threading
from contextlib import suppress
from importlib.util import find_spec

from penstock.errors import CapacityError, UsageError
from penstock.sizes import does_not_fit, format_bytes, parse_bytes

_GRAIN = 256  # RMM takes pools in multiples of this

_lock = threading.Lock()
_taken: int | None = None  # a process has one pool, for any number of workers


def size_or_share(text: str, option: str) -> int | float:
    """Return the bytes that ``60GB`` means, or the share of a GPU's memory of ``0.8``."""
    with suppress(ValueError):
        if 0 < (share := float(text)) <= 1:
            return share
    with suppress(UsageError):
        if size := parse_bytes(text):
            return size
    raise UsageError(
        f"option {option} has a bad value",
        expected="a size such as 60GB, or a fraction such as 0.8",
        got=repr(text),
    )


def pool_bytes(text: str, total: int) -> int:
    """Return the bytes that ``"40GB"``, or a fraction such as ``"0.8"``, means of ``total``."""
    size = size_or_share(text, "--device-pool")
    size = int(size * total) if isinstance(size, float) else size
    if size > total:
        remedy = "Request less, such as --device-pool 0.8"
        raise does_not_fit(f"--device-pool {text}", "on the GPU", size, total, remedy=remedy)
    return size // _GRAIN * _GRAIN


def take_pool(text: str) -> int:
    """Take the pool of size ``text`` from this process' GPU, once, and return its bytes.

    CuPy then allocates only there, so that the rest stays free for NCCL, libraries, and other ranks
    on the same GPU.
    """
    global _taken
    with _lock:
        if _taken is None:
            _taken = _take(text)
        return _taken


def gpu_memory() -> int:
    """Return the bytes of this process' GPU that it may use: its pool, or all."""
    import cupy

    return _taken or int(cupy.cuda.runtime.memGetInfo()[1])


def _take(text: str) -> int:
    import cupy

    free, total = cupy.cuda.runtime.memGetInfo()
    size = pool_bytes(text, total)
    if size > free:
        raise _too_large(size, free, total)
    try:
        if find_spec("rmm") is not None:
            import rmm
            from rmm.allocators.cupy import rmm_cupy_allocator

            rmm.reinitialize(pool_allocator=True, initial_pool_size=size, maximum_pool_size=size)
            cupy.cuda.set_allocator(rmm_cupy_allocator)
        else:
            pool = cupy.cuda.MemoryPool()
            pool.set_limit(size=size)
            # One block, freed at once, stays with the pool, which then splits it.
            pool.malloc(size)
            cupy.cuda.set_allocator(pool.malloc)
    except (MemoryError, cupy.cuda.runtime.CUDARuntimeError) as error:
        raise _too_large(size, *cupy.cuda.runtime.memGetInfo()) from error
    return size


def _too_large(size: int, free: int, total: int) -> CapacityError:
    return does_not_fit(
        "a GPU memory pool",
        f"into what is free of {format_bytes(total)}",
        size,
        free,
        remedy="Request less with --device-pool, or end other users of this GPU (nvidia-smi "
        "lists them)",
    )
