"""A cache keeps what was used last, within its bytes, and loads once."""

import pytest

from penstock.workers.resources.cache import DeviceCache


@pytest.mark.gpu
def test_device_memory_is_given_back():
    import cupy

    pool = cupy.get_default_memory_pool()
    cache = DeviceCache(3 << 20)
    before = pool.used_bytes()
    for key in range(6):
        with cache.hold(key, lambda: cupy.zeros(1 << 20, cupy.uint8)) as value:
            assert value.device.id == 0
    assert pool.used_bytes() - before == cache.nbytes == 3 << 20
    del value
    cache.clear()
    assert pool.used_bytes() == before
