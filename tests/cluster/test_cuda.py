"""One worker per GPU: the options of dask-cuda, and results that it moves off a GPU."""

import pytest
from distributed import Client

from penstock.cluster.cuda import cuda_options, open_cuda
from penstock.cluster.spec import ClusterSpec


@pytest.mark.gpu
def test_dask_cuda_itself(left_over):
    pytest.importorskip("dask_cuda")
    import cupy

    spec = ClusterSpec(workers=1, memory_limit="4GB", device_limit="200MB")
    with open_cuda(spec, quiet=True) as running, Client(running.target) as client:
        client.wait_for_workers(1, timeout=60)
        # Four results of 100 MB on a device that may keep 200 MB: some have moved, none is lost.
        parts = [
            client.submit(cupy.full, 25_000_000, n, dtype="float32", pure=False) for n in range(4)
        ]
        sums = [client.submit(lambda a: float(a[::1000].sum()), part, pure=False) for part in parts]
        assert client.gather(sums) == [0, 25_000, 50_000, 75_000]
        ((device, host),) = client.run(
            lambda dask_worker: (len(dask_worker.data.device), len(dask_worker.data.host))
        ).values()
        assert device <= 2 <= host
        del parts, sums
    assert not left_over()


def test_what_was_asked_for_is_passed_on():
    spec = ClusterSpec(
        workers=2,
        threads=3,
        memory_limit="2GB",
        device_limit="60GB",
        device_pool="0.5",
        start_timeout=9,
    )
    options = cuda_options(spec, ["GPU-a", "GPU-b", "GPU-c"])
    assert options["CUDA_VISIBLE_DEVICES"] == ["GPU-a", "GPU-b"]
    assert (options["n_workers"], options["threads_per_worker"]) == (2, 3)
    assert (options["memory_limit"], options["device_memory_limit"]) == (2 * 10**9, 60 * 10**9)
    assert options["death_timeout"] == 9.0
    # The plugin of every kind takes it: a second one here would double it.
    assert "rmm_pool_size" not in options
    assert cuda_options(ClusterSpec(device_limit="0.5"), ["0"])["device_memory_limit"] == 0.5
    # dask-cuda reads "1" as one byte, and 1.0 as all of it.
    assert cuda_options(ClusterSpec(device_limit="1"), ["0"])["device_memory_limit"] == 1.0
