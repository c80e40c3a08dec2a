"""A GPU's memory: pools, caches, what is spilled to the host, and copies into it."""

import subprocess
import sys

import numpy as np
import pytest

from penstock.errors import CapacityError
from penstock.workers.resources import upload
from penstock.workers.resources.cache import DeviceCache
from penstock.workers.resources.pool import pool_bytes
from penstock.workers.resources.spill import spill_data

TOTAL = 80 * 10**9
SIZES = {"40GB": 40 * 10**9, "40 GiB": 40 * 2**30, "0.8": 64 * 10**9, "1": TOTAL, "80GB": TOTAL}
TAKE = """
import sys
import cupy
from penstock.errors import CapacityError
from penstock.workers.resources.pool import gpu_memory, take_pool

try:
    take_pool("1.0")
    sys.exit("all of it cannot be free: CUDA itself needs some")
except CapacityError:
    pass
assert gpu_memory() > 256 << 20
size = 256 << 20
assert take_pool("256MiB") == size == take_pool("256MiB") == gpu_memory()
for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(), cupy.cuda.Stream()):
    with stream:
        for _ in range(3):
            array = cupy.full(180 << 20, 7, cupy.int8)
            assert int(array[-1]) == 7
            del array
        stream.synchronize()
try:
    cupy.zeros(300 << 20, cupy.int8)
    sys.exit("more than the pool was given")
except MemoryError:
    pass
"""


def test_a_pool_is_a_size_or_a_fraction_of_what_there_is():
    for text, size in SIZES.items():
        assert pool_bytes(text, TOTAL) == size // 256 * 256
    with pytest.raises(CapacityError):
        pool_bytes("81GB", TOTAL)


@pytest.mark.gpu
def test_arrays_come_from_the_pool():
    # In a process of its own: a pool is for life.
    command = [sys.executable, "-P", "-c", TAKE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.gpu
def test_a_cache_gives_its_memory_back():
    import cupy

    pool, cache = cupy.get_default_memory_pool(), DeviceCache(3 << 20)
    before = pool.used_bytes()
    for key in range(6):
        with cache.hold(key, lambda: cupy.zeros(1 << 20, cupy.uint8)) as value:
            assert value.device.id == 0
    assert pool.used_bytes() - before == cache.nbytes == 3 << 20
    del value
    cache.clear()
    assert pool.used_bytes() == before


@pytest.mark.gpu
def test_what_exceeds_the_hosts_memory_is_spilled_to_disk(tmp_path):
    pytest.importorskip("dask_cuda", reason="needs dask-cuda")
    data = spill_data("1GB", 2000)
    store = data[0](str(tmp_path), **data[1])
    for number in range(4):
        store[number] = bytes(900)
    assert [len(store[number]) for number in range(4)] == [900] * 4
    assert list(tmp_path.rglob("*"))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_what_is_uploaded_is_what_was_mapped(tmp_path, dtype):
    import cupy as cp

    random = np.random.default_rng(0)
    into = cp.full(11_000_003, -1, dtype)
    first, pairs = 0, []
    for number, count in enumerate((5_000_000, 0, 1, 6_000_000)):
        np.save(tmp_path / f"{number}.npy", random.integers(0, 2**31, count).astype(dtype))
        mapped = np.load(tmp_path / f"{number}.npy", mmap_mode="r" if count else None)
        pairs.append((mapped, into[first : first + count]))
        first += count
    upload.upload(iter(pairs))
    found = into.get()
    np.testing.assert_array_equal(found[:first], np.concatenate([host for host, _ in pairs]))
    assert (found[first:] == -1).all()
    np.testing.assert_array_equal(upload.download(into), found)
