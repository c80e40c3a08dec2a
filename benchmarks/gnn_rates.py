"""Measured rates of a machine: bytes read by CPUs and GPUs, and products."""

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from harness import on_gpu

# CPUs


def read_rate(size: int, threads: int) -> float:
    """Return the bytes per second of threads that read arrays of ``size`` bytes in total, in order.

    Small ones come from the caches, like rows that are gathered repeatedly.
    """
    parts = [np.ones(size // 4 // threads, np.float32) for _ in range(threads)]
    repeats = max(4, (256 << 20) // size)

    def read(part: Any) -> None:
        for _ in range(repeats):
            np.dot(part, part)

    best = 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(5):
            begun = time.perf_counter()
            list(pool.map(read, parts))
            best = max(best, repeats * size / (time.perf_counter() - begun))
    return best


def product_rate(threads: int) -> float:
    """Return the floating point operations per second of a product of squares."""
    from threadpoolctl import threadpool_limits

    square = np.ones((1536, 1536), np.float32)
    times = []
    with threadpool_limits(threads):
        for _ in range(4):
            begun = time.perf_counter()
            square @ square
            times.append(time.perf_counter() - begun)
    return 2 * 1536**3 / min(times)


# A GPU


@dataclass(frozen=True)
class GpuRates:
    """Measured rates of a GPU: bytes of its L2 and memory, and TF32 operations, per second."""

    cache_size: int
    cache: float
    memory: float
    flops: float


def gpu_rates() -> GpuRates:
    """Measure this GPU; TF32 only if CUPY_TF32 was 1 before cupy was imported."""
    import cupy as cp

    device = cp.cuda.runtime.getDeviceProperties(0)
    rates = GpuRates(device["l2CacheSize"], cache_rate(), copy_rate(2 << 30), tf32_rate())
    cp.get_default_memory_pool().free_all_blocks()  # the timed processes need the memory
    return rates


# Reads one array again and again past the L1, every block beginning elsewhere. As the stride need
# not divide the array, a thread reads elsewhere in every step, and no load can leave the loop.
READ_AGAIN = r"""
extern "C" __global__ void read_again(
    const float4* data, unsigned mask, int steps, float4* impossible
) {
    unsigned at = blockIdx.x * blockDim.x + threadIdx.x;
    const unsigned stride = gridDim.x * blockDim.x;
    float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
    for (int step = 0; step < steps; ++step) {
        const float4 value = __ldcg(data + (at & mask));
        sum.x += value.x;
        sum.y += value.y;
        sum.z += value.z;
        sum.w += value.w;
        at += stride;
    }
    if (sum.x + sum.y + sum.z + sum.w < 0.0f) {  // of ones: never, but the compiler cannot know
        impossible[at & mask] = sum;
    }
}
"""


def cache_rate() -> float:
    """Return the bytes per second that all multiprocessors read from the L2, in one launch."""
    import cupy as cp

    kernel = cp.RawKernel(READ_AGAIN, "read_again", options=("-std=c++17",))
    size = 8 << 20  # a power of two
    data = cp.ones(size // 4, cp.float32)
    blocks = 8 * cp.cuda.runtime.getDeviceProperties(0)["multiProcessorCount"]
    threads, rounds = 256, 1000
    steps = rounds * size // (16 * threads * blocks)
    arguments = (data, np.uint32(size // 16 - 1), np.int32(steps), data)
    seconds = min(
        on_gpu(lambda: kernel((blocks,), (threads,), arguments), 1).seconds for _ in range(5)
    )
    return 16 * threads * blocks * steps / seconds


def copy_rate(size: int) -> float:
    """Return the bytes per second that a copy of ``size`` bytes on the device reads and writes."""
    import cupy as cp

    source, target = cp.ones(size // 8, cp.float32), cp.empty(size // 8, cp.float32)
    return size / min(on_gpu(lambda: cp.copyto(target, source)).seconds for _ in range(3))


def tf32_rate() -> float:
    """Return the floating point operations per second of a product in TF32."""
    import cupy as cp

    # Of random values: a GPU's clock is higher for products of ones.
    a = cp.random.default_rng(0).standard_normal((8192, 8192), dtype=cp.float32)
    out = cp.empty_like(a)
    return 2 * 8192**3 / on_gpu(lambda: cp.matmul(a, a, out=out), 20).seconds
