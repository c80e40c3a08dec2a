"""Where a worker computes is decided once; without a GPU it is the host."""

import sys

import dask
import numpy as np
import pytest

from penstock.errors import MissingExtra
from penstock.workers.resources import device

# What is asked of CuPy before anything is computed.
PARTS = """
class cuda:
    class runtime:
        getDeviceCount = staticmethod(lambda: 0)
    class nvrtc:
        def getVersion():
            raise RuntimeError("no libnvrtc")
"""


@pytest.fixture(autouse=True)
def fresh():
    device.look_again()
    yield
    device.look_again()


def test_a_worker_may_use_its_cpu_alone():
    with dask.config.set({"penstock.device": "cpu"}):
        assert not device.gpu()
        assert not device.frames()
        array = np.arange(3)
        assert device.to_device(array) is array
        assert device.to_host(array) is array


@pytest.mark.parametrize("key", ["penstock.device=gpu", "dataframe.backend=cudf"])
def test_a_missing_gpu_is_an_error(monkeypatch, key):
    # A machine without CuPy: importing it fails as it does where it is not installed.
    monkeypatch.setitem(sys.modules, "cupy", None)
    with dask.config.set(dict([key.split("=")])), pytest.raises(MissingExtra):
        device.gpu()


@pytest.mark.parametrize(
    ("cupy", "reason"),
    [
        ("raise OSError('libcublas.so.12: no such file')", "libcublas.so.12"),
        (PARTS, "no GPU"),
        (PARTS.replace("0", "1"), "libnvrtc"),
    ],
)
def test_a_gpu_that_cannot_be_used_has_a_reason(pretend_gpu, cupy, reason):
    pretend_gpu(cupy)
    assert not device.gpu()
    unused = device.unused_gpu()
    assert unused is not None
    assert unused.shown
    assert reason in unused.reason
    with pytest.raises(MissingExtra):
        device.computes_on_gpu("gpu")
    device.ask("cpu")
    assert device.unused_gpu() is None
    assert not device.this_gpu().used
    device.withdraw("cpu")


@pytest.mark.gpu
def test_a_gpu_is_used_where_there_is_one():
    assert device.gpu()
    moved = device.to_device(np.arange(3))
    assert hasattr(moved, "__cuda_array_interface__")
    assert device.to_host(moved).tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({}, None),
        ({"MPI_LOCALRANKID": "3", "PMI_RANK": "7"}, 3),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "1", "PMIX_RANK": "5"}, 1),
        ({"SLURM_LOCALID": "0"}, 0),
        # mpiexec in a batch step: SLURM speaks of the step, mpiexec of the rank.
        ({"SLURM_LOCALID": "0", "MPI_LOCALRANKID": "2"}, 2),
        ({"PMI_RANK": "4"}, None),
    ],
)
def test_the_rank_on_its_host(environ, rank):
    assert device.local_rank(environ) == rank


@pytest.mark.parametrize(
    ("rank", "count", "visible", "expected"),
    [
        (0, 4, None, "0,1,2,3"),
        (2, 4, None, "2,3,0,1"),
        (5, 4, None, "1,2,3,0"),
        (3, 1, None, "0"),
        (0, 0, None, ""),
        (1, 8, "4,6", "6,4"),
        (1, 2, "GPU-1a2b,GPU-3c4d,GPU-5e6f", "GPU-3c4d,GPU-5e6f,GPU-1a2b"),
        (1, 1, "MIG-1a-2b,MIG-GPU-3c/1/0", "MIG-GPU-3c/1/0,MIG-1a-2b"),
        (0, 4, "", ""),
        (0, 4, "NoDevFiles", ""),
        (1, 4, "0,1,-1,2", "1,0"),  # as CUDA reads it
    ],
)
def test_a_rank_sees_its_own_device_first(rank, count, visible, expected):
    assert device.visible_devices(rank, count, visible) == expected
