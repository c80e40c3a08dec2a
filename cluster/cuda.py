"""The kind ``cuda``: one worker process per GPU of this machine, started by dask-cuda.

Each worker runs on the cores next to its GPU. Results that do not fit into the GPU's memory move to
host memory. The workers' plugin creates the memory pool (``--device-pool``), as in every kind.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from penstock.cluster.addresses import scheduler_addresses
from penstock.cluster.dashboard import serve_dashboard
from penstock.cluster.local import close as close_local
from penstock.cluster.local import first_lines, prepare_to_spawn
from penstock.cluster.running import Running
from penstock.cluster.security.credentials import credentials
from penstock.cluster.spec import ClusterSpec
from penstock.errors import ClusterError, MissingExtra, UsageError, pip_install
from penstock.temporary import TemporaryFolder
from penstock.workers.profiling import without_profile
from penstock.workers.resources.device import devices_here, visible_devices
from penstock.workers.resources.pool import size_or_share

if TYPE_CHECKING:
    from distributed import Security
    from distributed.deploy import Cluster


def cuda_options(
    spec: ClusterSpec, gpus: Sequence[str], used: Security | None = None
) -> dict[str, Any]:
    """Return the worker options for ``dask_cuda.LocalCUDACluster``.

    gpus: those of this machine, as CUDA_VISIBLE_DEVICES names them; the first ones are used.
    used: the credentials.
    """
    if spec.device == "cpu":
        raise UsageError(
            "workers of kind cuda compute on GPUs",
            got="--device cpu",
            remedy="Leave it out, or use --cluster local",
        )
    count = spec.workers or len(gpus)
    if count > len(gpus):
        raise UsageError(
            "there are more workers than GPUs",
            expected=f"at most --workers {len(gpus)}: the GPUs {', '.join(gpus)}",
            got=f"--workers {count}",
        )
    return {
        "CUDA_VISIBLE_DEVICES": list(gpus[:count]),
        "n_workers": count,
        "threads_per_worker": spec.threads or 1,
        "memory_limit": replace(spec, workers=count).worker_memory(),
        "device_memory_limit": size_or_share(spec.device_limit, "--device-limit")
        if spec.device_limit
        else "default",
        "security": used,
        # A worker that does not start is reported after this time; the default waits forever.
        "death_timeout": spec.start_timeout,
        # The job reports a failed task once, with its remedy.
        "silence_logs": logging.CRITICAL,
    }


@contextmanager
def open_cuda(spec: ClusterSpec, *, quiet: bool) -> Iterator[Running]:
    """Start one worker per GPU of this machine, and end them."""
    gpus = _gpus()
    if find_spec("dask_cuda") is None:
        raise MissingExtra(
            "a cluster of kind cuda needs dask-cuda, which is not installed",
            remedy=f"Install the GPU packages: {pip_install('cuda12')}, or cuda13 "
            "if nvidia-smi shows CUDA 13",
        )
    from dask_cuda import LocalCUDACluster

    prepare_to_spawn()
    with TemporaryFolder("penstock-cuda") as made, ExitStack() as stack:
        folder = str(made)
        stack.enter_context(without_profile())
        used = stack.enter_context(credentials(spec, made))
        options = {"local_directory": folder} | cuda_options(spec, gpus, used)
        # Two steps, so that workers started by the second one end even if it fails.
        cluster = LocalCUDACluster.__new__(LocalCUDACluster)
        stack.callback(close_local, cluster)
        try:
            addresses = scheduler_addresses(spec, folder, used=used, remote=False)
            cluster.__init__(**options, **addresses)
        except (OSError, RuntimeError, TimeoutError, ValueError) as error:
            raise _not_started(error) from error
        names = [str(name) for name in cluster.worker_spec]
        yield Running(
            cluster,
            len(names),
            dashboard=serve_dashboard(cluster, spec),
            security=options["security"],
            missing=lambda connected: [f"GPU {name}" for name in names if name not in connected],
            failure=lambda: _failure(cluster),
        )


def _gpus() -> list[str]:
    count = devices_here() or _nvml_count()
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    found = [name for name in visible_devices(0, count, visible).split(",") if name and count]
    if not found:
        raise ClusterError(
            "a cluster of kind cuda needs an NVIDIA GPU, and this machine has none",
            got=None if visible is None or not count else f"CUDA_VISIBLE_DEVICES={visible}",
            remedy="Check nvidia-smi and CUDA_VISIBLE_DEVICES, or use --cluster local",
        )
    return found


def _nvml_count() -> int:
    # Under WSL the driver exists, but the device files do not.
    try:
        from dask_cuda.utils import get_gpu_count

        return int(get_gpu_count())
    except Exception:  # not installed, or no driver
        return 0


def _failure(cluster: Cluster) -> str | None:
    """Return which worker did not start, and why; the cluster waits for it without a message."""
    from distributed.core import Status

    for gpu, nanny in list(cluster.workers.items()):
        if nanny.status == Status.failed:
            try:
                cluster.sync(nanny.start)  # raises the same error again
            except Exception as error:
                return f"GPU {gpu}: {first_lines(error)}"
    return None


def _not_started(error: BaseException) -> ClusterError:
    return ClusterError(
        "the cluster of kind cuda did not start",
        got=first_lines(error),
        remedy="Check that the GPUs work and are free (nvidia-smi), or raise the time with "
        "--start-timeout",
    )
