"""Copies to a GPU pin memory of few sizes, which CuPy uses again.

No GPU is needed: CuPy is NumPy.
"""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

_NAME = "penstock.kernels.cuda.uploads"


class _OnGpu(np.ndarray):
    def set(self, array, stream):
        assert stream is _STREAM
        self[...] = array


class _Stream:
    waited = 0

    def synchronize(self):
        self.waited += 1


_STREAM = _Stream()


@pytest.fixture
def pinned(monkeypatch):
    """Give to_gpu, and the list of the sizes of memory that are pinned."""
    sizes = []

    def memory(size):
        sizes.append(size)
        return bytearray(size)

    def asarray(array):
        sizes.append(array.nbytes)
        return array.copy().view(_OnGpu)

    fake = ModuleType("cupy")
    fake.asarray = asarray
    fake.empty = lambda shape, dtype: np.zeros(shape, dtype).view(_OnGpu)
    fake.cuda = SimpleNamespace(alloc_pinned_memory=memory, get_current_stream=lambda: _STREAM)
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.delitem(sys.modules, _NAME, raising=False)
    from penstock.kernels.cuda.uploads import to_gpu

    yield to_gpu, sizes
    del sys.modules[_NAME]


@pytest.mark.parametrize("length", [0, 1, 7, 1 << 16, (1 << 20) + 3])
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.float64, np.uint8])
def test_what_arrives_is_what_was_sent(pinned, length, dtype):
    to_gpu, _ = pinned
    array = np.arange(length).astype(dtype)
    array.flags.writeable = False
    found = to_gpu(array)
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)
    np.testing.assert_array_equal(to_gpu(array[::2]), array[::2])


def test_arrays_of_many_sizes_pin_memory_of_few(pinned):
    to_gpu, sizes = pinned
    rng = np.random.default_rng(0)
    for length in (*rng.integers(1_000, 10_000, 100), *rng.integers(1 << 20, 1 << 21, 20)):
        to_gpu(np.zeros(length, np.int32))
    assert len(sizes) == 120
    assert len(set(sizes)) <= 8


def test_a_large_array_is_there_before_its_pinned_memory_is_used_again(pinned):
    to_gpu, _ = pinned
    before = _STREAM.waited
    to_gpu(np.zeros(1 << 21, np.int32))
    assert _STREAM.waited == before + 1


class _Pinned(bytearray):
    @property
    def ptr(self):
        return self


class _Later:
    """A stream whose copies are made when somebody waits for them, and not before."""

    def __init__(self):
        self.copies = []

    def run(self, count):
        for copy in self.copies[:count]:
            copy()
        self.copies = [lambda: None] * count + self.copies[count:]

    def synchronize(self):
        self.run(len(self.copies))


class _Event:
    stream, at = None, 0

    def __init__(self, **_):
        pass

    def record(self, stream):
        self.stream, self.at = stream, len(stream.copies)

    def synchronize(self):
        if self.stream is not None:
            self.stream.run(self.at)


class _There(np.ndarray):
    @property
    def data(self):
        def copy(pinned, size, stream):
            stream.copies.append(lambda: self.__setitem__(slice(size), list(pinned[:size])))

        return SimpleNamespace(copy_from_host_async=copy)


@pytest.mark.parametrize("length", [0, 1, 4096, 5000, 40_001])
def test_pinned_memory_is_filled_again_only_once_it_was_sent(monkeypatch, pinned, length):
    sizes = pinned[1]
    module = sys.modules[_NAME]

    def memory(size):
        sizes.append(size)
        return _Pinned(size)

    monkeypatch.setattr(module, "_PIECE", 1 << 13)
    monkeypatch.setattr(module.cp.cuda, "alloc_pinned_memory", memory)
    monkeypatch.setattr(module.cp.cuda, "Event", _Event, raising=False)
    monkeypatch.setattr(module.cp, "uint8", np.uint8, raising=False)
    array = np.random.default_rng(1).integers(0, 1 << 31, length).astype(np.int32)
    there = np.zeros(length, np.int32).view(_There)
    module.upload(array, there, _Later())
    np.testing.assert_array_equal(there, array)
    assert sum(sizes) <= 2 << 13


@pytest.mark.gpu
@pytest.mark.parametrize("length", [0, 5, (1 << 25) + 77])
def test_an_upload_of_any_size_arrives(length):
    import cupy as cp

    from penstock.kernels.cuda.uploads import upload

    array = np.arange(length, dtype=np.int32)
    there = cp.zeros(length, cp.int32)
    cp.cuda.Stream.null.synchronize()  # the other stream does not wait for it
    upload(array, there, cp.cuda.Stream(non_blocking=True))
    np.testing.assert_array_equal(there.get(), array)
