"""A cache keeps what was used last, within its bytes, and loads once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.csr import CSR
from penstock.workers.resources.cache import DeviceCache, array_bytes

LIMIT = 100


def array(size: int) -> Callable[[], np.ndarray[Any, Any]]:
    return lambda: np.zeros(size, np.uint8)


class NaiveTwin(RuleBasedStateMachine):
    """Holds that overlap, in any order, compared with a list of [key, size, users]."""

    def __init__(self) -> None:
        super().__init__()
        self.cache = DeviceCache(LIMIT)
        self.kept: list[list[Any]] = []  # longest unused first
        self.open: list[tuple[AbstractContextManager[Any], list[Any], Any]] = []
        self.loads = 0

    def trim(self) -> None:
        def total() -> int:
            return sum(size for _, size, _ in self.kept if size <= LIMIT)

        for item in list(self.kept):
            if total() > LIMIT and item[2] == 0:
                self.kept.remove(item)

    @rule(key=st.integers(0, 5), size=st.integers(0, 130))
    def enter(self, key: int, size: int) -> None:
        def load() -> Any:
            self.loads += 1
            return np.full(size, key, np.uint8)

        before = self.loads
        block = self.cache.hold(key, load)
        value = block.__enter__()
        item = next((item for item in self.kept if item[0] == key), None)
        assert self.loads - before == (item is None)
        if item is None:
            item = [key, size, 0]
            self.kept.append(item)
        assert len(value) == item[1]
        assert (value == key).all()
        item[2] += 1
        self.trim()
        self.open.append((block, item, value))

    @rule(which=st.integers(0, 100))
    def leave(self, which: int) -> None:
        if self.open:
            block, item, value = self.open.pop(which % len(self.open))
            assert (value == item[0]).all()
            block.__exit__(None, None, None)
            item[2] -= 1
            if item in self.kept and any(other is item for other in self.kept):
                self.kept = [other for other in self.kept if other is not item]
                if item[2] > 0 or item[1] <= LIMIT:
                    self.kept.append(item)
            self.trim()

    @rule(key=st.integers(0, 5))
    def fail(self, key: int) -> None:
        if all(item[0] != key for item in self.kept):
            with pytest.raises(OSError, match="torn"), self.cache.hold(key, self.torn):
                pass

    @staticmethod
    def torn() -> Any:
        raise OSError("torn")

    @rule()
    def clear(self) -> None:
        self.cache.clear()
        self.kept = []

    @invariant()
    def same_bytes(self) -> None:
        assert self.cache.nbytes == sum(size for _, size, _ in self.kept if size <= LIMIT)
        in_use = sum(size for _, size, users in self.kept if users and size <= LIMIT)
        assert self.cache.nbytes <= max(LIMIT, in_use)


NaiveTwin.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
test_against_the_naive_twin = NaiveTwin.TestCase


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


def test_what_is_counted() -> None:
    floats, ints = np.zeros(5), np.zeros(3, np.int32)
    assert array_bytes(floats) == 40
    assert array_bytes({"x": floats, "n": 3, "name": "a"}) == 40
    assert array_bytes([floats, (ints, None)]) == 52
    assert array_bytes(CSR(np.zeros(2, np.int64), ints)) == 28
    matrix = sp.csr_matrix((np.ones(1, np.float32), ([0], [1])), shape=(2, 2))
    assert array_bytes(matrix) == 4 + matrix.indices.nbytes + matrix.indptr.nbytes
    with pytest.raises(TypeError):
        array_bytes({1})


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
