"""Where a worker computes is decided once; without a GPU it is the host."""

from __future__ import annotations

from collections.abc import Iterator

import dask
import numpy as np
import pytest

from penstock.errors import MissingExtra, UsageError
from penstock.workers import device


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    device.gpu.cache_clear()
    device.frames.cache_clear()
    yield
    device.gpu.cache_clear()
    device.frames.cache_clear()


def test_a_worker_may_be_told_to_use_its_cpu() -> None:
    with dask.config.set({"penstock.device": "cpu"}):
        assert not device.gpu()
        assert not device.frames()
        array = np.arange(3)
        assert device.to_device(array) is array
        assert device.to_host(array) is array


@pytest.mark.parametrize("key", ["penstock.device=gpu", "dataframe.backend=cudf"])
def test_a_gpu_that_is_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    # A machine without CuPy: importing it fails as it does where it is not installed.
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with (
        dask.config.set(dict([key.split("=")])),
        pytest.raises(MissingExtra, match="cuda12"),
    ):
        device.gpu()


def test_without_a_gpu_nobody_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    assert not device.gpu()


def test_a_device_that_does_not_exist() -> None:
    with (
        dask.config.set({"penstock.device": "abacus"}),
        pytest.raises(UsageError, match="auto, cpu or gpu"),
    ):
        device.gpu()


@pytest.mark.gpu
def test_a_gpu_is_used_where_there_is_one() -> None:
    assert device.gpu()
    moved = device.to_device(np.arange(3))
    assert hasattr(moved, "__cuda_array_interface__")
    assert device.to_host(moved).tolist() == [0, 1, 2]
