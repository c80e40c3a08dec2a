"""A GPU memory pool, taken at the start: RMM's if it is installed, else CuPy's own."""

from __future__ import annotations

import threading
from importlib.util import find_spec

from penstock.errors import CapacityError, UsageError
from penstock.sizes import does_not_fit, format_bytes, parse_bytes

_SMALLEST = 1 << 20
_GRAIN = 256  # RMM takes pools in multiples of this

_lock = threading.Lock()
_taken: int | None = None  # a process has one pool, for any number of workers


def pool_bytes(text: str, total: int) -> int:
    """Return the bytes that ``"40GB"``, or a fraction such as ``"0.8"``, means of ``total``."""
    expected = "a size such as 40GB, or a fraction such as 0.8"
    try:
        number = float(text)
    except ValueError:
        number = None
    if number is not None and 0 < number <= 1:
        size = int(number * total)
    else:
        try:
            size = parse_bytes(text)
        except UsageError:
            raise UsageError(
                "option --device-pool has a bad value", expected=expected, got=repr(text)
            ) from None
        if size < _SMALLEST:
            raise UsageError("the GPU memory pool is too small", expected=expected, got=repr(text))
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


def taken_bytes() -> int | None:
    """Return the bytes of this process' pool, or None without one."""
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
