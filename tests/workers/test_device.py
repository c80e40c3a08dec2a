"""Where a worker computes is decided once; without a GPU it is the host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_the_plugin_asks_before_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with dask.config.set({"penstock.device": "gpu"}):
        device.ask("cpu")
        device.ask("cpu")  # another worker of this process
        device.withdraw("cpu")
        assert not device.gpu()
        device.withdraw("cpu")
        with pytest.raises(MissingExtra, match="Dask's configuration"):
            device.gpu()
    device.ask("gpu")
    try:
        with pytest.raises(MissingExtra, match="--device gpu asks for a GPU.*or use --device cpu"):
            device.gpu()
    finally:
        device.withdraw("gpu")
    device.ask("auto")
    device.withdraw("auto")


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({}, None),
        ({"MPI_LOCALRANKID": "3", "PMI_RANK": "7"}, 3),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1", "PMIX_RANK": "5"}, 1),
        ({"MV2_COMM_WORLD_LOCAL_RANK": "2"}, 2),
        ({"SLURM_LOCALID": "0"}, 0),
        # mpiexec in a batch step: SLURM speaks of the step, mpiexec of the rank.
        ({"SLURM_LOCALID": "0", "MPI_LOCALRANKID": "2"}, 2),
        ({"SLURM_LOCALID": ""}, None),
        ({"PMI_RANK": "4"}, None),
    ],
)
def test_the_rank_on_its_host(environ: dict[str, str], rank: int | None) -> None:
    assert device.local_rank(environ) == rank


@pytest.mark.parametrize(
    ("rank", "count", "visible", "expected"),
    [
        (0, 4, None, "0,1,2,3"),
        (2, 4, None, "2,3,0,1"),
        (5, 4, None, "1,2,3,0"),
        (0, 1, None, "0"),
        (3, 1, None, "0"),
        (0, 0, None, ""),
        (1, 8, "4,6", "6,4"),
        (1, 8, " 4 , 6 ", "6,4"),
        (1, 2, "GPU-1a2b,GPU-3c4d,GPU-5e6f", "GPU-3c4d,GPU-5e6f,GPU-1a2b"),
        (1, 1, "MIG-1a-2b,MIG-GPU-3c/1/0", "MIG-GPU-3c/1/0,MIG-1a-2b"),
        (0, 4, "", ""),
        (0, 4, "-1", ""),
        (0, 4, "NoDevFiles", ""),
        (1, 4, "0,1,-1,2", "1,0"),  # as CUDA reads it
    ],
)
def test_a_rank_sees_its_own_device_first(
    rank: int, count: int, visible: str | None, expected: str
) -> None:
    assert device.visible_devices(rank, count, visible) == expected


@given(ranks=st.integers(1, 20), count=st.integers(1, 9))
def test_devices_are_shared_evenly(ranks: int, count: int) -> None:
    lists = [device.visible_devices(rank, count, None).split(",") for rank in range(ranks)]
    assert all(sorted(names, key=int) == [str(n) for n in range(count)] for names in lists)
    own = [names[0] for names in lists]
    uses = [own.count(str(n)) for n in range(count)]
    assert max(uses) - min(uses) <= 1


def test_devices_are_counted_without_cuda(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia-caps"):
        (tmp_path / name).touch()
    assert device.devices_here(tmp_path) == 3
    assert device.devices_here(tmp_path / "nowhere") == 0


@pytest.mark.gpu
def test_counting_agrees_with_cuda() -> None:
    import cupy

    assert device.devices_here() >= cupy.cuda.runtime.getDeviceCount()
