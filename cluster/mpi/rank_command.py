"""The command and the environment of a world's ranks, as data."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.caches import cache_folder
from penstock.cluster.mpi.launcher import Launcher, Library
from penstock.cluster.mpi.mpiexec import launch_environment
from penstock.cluster.security import tls_environment
from penstock.cluster.spec import ClusterSpec

if TYPE_CHECKING:
    from distributed import Security

_DEATH_MARGIN = 15.0  # seconds: the process that waits for ranks gives up first, and reports it


# Words with which the command of every rank begins.
RANK = [sys.executable, "-P", "-m", "penstock.workers.rank"]


def _stay_on_this_host(env: dict[str, str]) -> None:
    """Let MPI listen on loopback only, unless the user chose its networks."""
    if not any(name.startswith("UCX_") for name in env):
        env["UCX_NET_DEVICES"] = "lo"  # MPICH's wheel; shared memory is another matter
    env.setdefault("FI_TCP_IFACE", "lo")  # other builds of MPICH, Intel MPI
    env.setdefault("OMPI_MCA_btl_tcp_if_include", "lo")


def rank_program(spec: ClusterSpec, scheduler: str, name: str, folder: Path | None) -> list[str]:
    """Return the command of one rank, the same for all ranks.

    scheduler  its address
    name       of the world; the workers are called name-rank
    folder     for temporary files; None: there are ranks on other hosts
    """
    words = [*RANK, scheduler]
    words += ["--no-scheduler", "--worker-class", "penstock.workers.rank.RankWorker"]
    words += ["--name", name, "--nthreads", str(spec.threads or 1)]
    # Without a limit each rank takes its share of its host.
    limited = spec.memory_limit is not None
    words += ["--memory-limit", str(spec.worker_memory()) if limited else "auto"]
    if folder is not None:
        words += ["--local-directory", str(folder / "workers")]
    if spec.interface:
        words += ["--interface", spec.interface]
    options: dict[str, Any] = {"dashboard": False, "device": spec.device}
    options["device_limit"] = spec.device_limit
    # A rank whose scheduler never answers ends by itself, on any host.
    options["death_timeout"] = spec.start_timeout + _DEATH_MARGIN
    return [*words, "--worker-options", json.dumps(options)]


def world_environment(
    launcher: Launcher,
    library: Library,
    environ: Mapping[str, str],
    folder: Path | None,
    used: Security | None = None,
) -> dict[str, str]:
    """Return the environment of mpiexec, which passes it to the ranks.

    folder  as that of ``rank_program``
    used    the scheduler's credentials, as files
    """
    import dask

    env = launch_environment(launcher, environ, root=os.geteuid() == 0, library=library)
    env |= tls_environment(used)
    # Ranks get their client's configuration, including values set at run time.
    env["DASK_INTERNAL_INHERIT_CONFIG"] = dask.config.serialize(dask.config.global_config)
    env.pop("PYTHONUNBUFFERED", None)  # ranks write whole lines
    env.setdefault("HOME", "/")  # Open MPI 5 needs one
    env.setdefault("DASK_LOGGING__DISTRIBUTED", "warning")
    if folder is not None:
        env["TMPDIR"] = str(folder / "mpi")
        # Compiled code would be removed with it.
        if (cache := cache_folder()) is not None:
            env["PENSTOCK_CACHE"] = str(cache)
        _stay_on_this_host(env)
    return env
