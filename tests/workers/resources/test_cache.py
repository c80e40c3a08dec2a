"""A cache keeps what was used last, within its bytes, and loads once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from penstock.workers.resources.cache import DeviceCache

LIMIT = 100


def array(size: int) -> Callable[[], np.ndarray[Any, Any]]:
    return lambda: np.zeros(size, np.uint8)


def test_the_longest_unused_goes_and_what_is_in_use_stays() -> None:
    cache, loads = DeviceCache(LIMIT), list[str]()

    def use(key: str, size: int = 40) -> Any:
        return cache.hold(key, lambda: loads.append(key) or array(size)())

    with use("a"), use("b"):
        with use("c"):
            assert cache.nbytes == 120  # all are in use
        assert cache.nbytes == 80
        with use("large", 130):
            assert cache.nbytes == 80  # one that can never fit is not kept
    with use("a"):
        assert cache.nbytes == 80
    with use("d"):
        assert cache.nbytes == 80
    with use("a"), use("b"), pytest.raises(OSError, match="torn"), cache.hold("e", torn):
        pass
    assert loads == ["a", "b", "c", "large", "d", "b"]
    cache.clear()
    assert cache.nbytes == 0


def torn() -> Any:
    raise OSError("torn")


def test_threads_that_ask_at_once_load_once() -> None:
    cache = DeviceCache(LIMIT)
    loads, loading, go = [], threading.Event(), threading.Event()

    def load() -> Any:
        loads.append(1)
        loading.set()
        assert go.wait(10)
        return array(10)()

    def use() -> int:
        with cache.hold("a", load) as value:
            return id(value)

    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(use)
        assert loading.wait(10)
        others = [pool.submit(use) for _ in range(7)]
        go.set()
        assert {future.result(10) for future in others} == {first.result(10)}
    assert len(loads) == 1


@pytest.mark.gpu
def test_device_memory_is_given_back() -> None:
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
