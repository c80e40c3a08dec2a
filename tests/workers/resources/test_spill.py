"""What is done about a GPU's memory and cores, with dask-cuda and without."""

from __future__ import annotations

import os
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import MissingExtra, UsageError
from penstock.workers.resources import spill
from penstock.workers.resources.spill import device_share, near_cores, spill_data, stay_near_gpu


@pytest.mark.parametrize(
    ("text", "share"),
    [("0.8", 0.8), ("1", 1.0), (".25", 0.25), ("60GB", 60 * 10**9), ("512MiB", 512 << 20)],
)
def test_limits(text: str, share: float) -> None:
    assert device_share(text) == share
    assert type(device_share(text)) is type(share)


@pytest.mark.parametrize("text", ["0", "-1", "most", "", "0GB", "nan"])
def test_limits_that_are_none(text: str) -> None:
    with pytest.raises(UsageError, match="--device-limit has a bad value. Expected a size"):
        device_share(text)


@given(st.text(max_size=6))
def test_whatever_is_written_is_a_share_or_refused(text: str) -> None:
    try:
        share = device_share(text)
    except UsageError:
        return
    assert 0 < share <= 1 if isinstance(share, float) else share >= 1


@pytest.fixture
def gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host with two GPUs, and no dask-cuda."""
    monkeypatch.setattr(spill, "devices_here", lambda: 2)
    monkeypatch.setattr(spill, "find_spec", lambda name: None)


@pytest.fixture
def dask_cuda(gpus: None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A stand-in for dask-cuda, and what it was asked."""
    asked: dict[str, Any] = {"cores": set(os.sched_getaffinity(0)), "memory": 1000, "gpus": []}

    def memory(gpu: int | str) -> int | None:
        asked["gpus"].append(gpu)
        return asked["memory"]  # type: ignore[no-any-return]

    def cores(gpu: int | str) -> list[int]:
        asked["gpus"].append(gpu)
        if asked["cores"] is None:
            warnings.warn("Cannot get CPU affinity", stacklevel=1)
            return [0]
        return list(asked["cores"])

    files = types.ModuleType("dask_cuda.device_host_file")
    files.DeviceHostFile = dict  # type: ignore[attr-defined]
    utils = types.ModuleType("dask_cuda.utils")
    utils.get_device_total_memory, utils.get_cpu_affinity = memory, cores  # type: ignore[attr-defined]
    for module in (types.ModuleType("dask_cuda"), files, utils):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(spill, "find_spec", lambda name: name)
    return asked


def test_without_a_gpu_dask_does_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spill, "devices_here", lambda: 0)
    assert spill_data("60GB", 1 << 30, {"CUDA_VISIBLE_DEVICES": "0"}) is None
    assert near_cores({"CUDA_VISIBLE_DEVICES": "0"}) is None


def test_without_dask_cuda(gpus: None) -> None:
    assert spill_data(None, 1 << 30, {}) is None
    assert near_cores({}) is None
    stay_near_gpu()
    with pytest.raises(MissingExtra, match="--device-limit needs dask-cuda"):
        spill_data("60GB", 1 << 30, {})


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, 800), ("0.5", 500), ("60GB", 60 * 10**9), ("1", 1000)]
)
def test_limits_of_the_own_gpu(limit: str | None, expected: int, dask_cuda: dict[str, Any]) -> None:
    data = spill_data(limit, 777, {"CUDA_VISIBLE_DEVICES": "1,0"})
    assert data == (dict, {"device_memory_limit": expected, "memory_limit": 777})
    assert dask_cuda["gpus"] in ([1], [])


def test_names_of_gpus(dask_cuda: dict[str, Any]) -> None:
    spill_data(None, None, {"CUDA_VISIBLE_DEVICES": "GPU-12,GPU-34"})
    spill_data(None, None, {})
    assert spill_data(None, None, {"CUDA_VISIBLE_DEVICES": ""}) is None
    assert dask_cuda["gpus"] == ["GPU-12", 0]


def test_a_gpu_without_memory_of_its_own(dask_cuda: dict[str, Any]) -> None:
    dask_cuda["memory"] = None
    assert spill_data(None, 777, {}) is None


def test_cores_near_the_gpu(dask_cuda: dict[str, Any]) -> None:
    allowed = os.sched_getaffinity(0)
    one = {min(allowed)}
    dask_cuda["cores"] = one | {10_000}  # also one that this process may not use
    assert near_cores({}) == one
    dask_cuda["cores"] = {10_000}
    assert near_cores({}) is None
    dask_cuda["cores"] = None
    assert near_cores({}) is None


def test_staying_near(dask_cuda: dict[str, Any]) -> None:
    allowed = os.sched_getaffinity(0)
    try:
        dask_cuda["cores"] = {max(allowed)}
        stay_near_gpu()
        assert os.sched_getaffinity(0) == {max(allowed)}
    finally:
        os.sched_setaffinity(0, allowed)


def test_dask_cuda_takes_what_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("dask_cuda", reason="needs dask-cuda")
    monkeypatch.setattr(spill, "devices_here", lambda: 1)
    data = spill_data("1GB", 2000, {})
    store = data[0](str(tmp_path), **data[1])
    for number in range(4):
        store[number] = bytes(900)
    assert [len(store[number]) for number in range(4)] == [900] * 4
    assert list(tmp_path.rglob("*"))  # what exceeds 2,000 bytes lies on disk
