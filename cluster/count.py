"""How many workers this machine can start; more are refused before the first one starts."""

from __future__ import annotations

import os

from penstock.cluster.mpi import inside_mpi_job
from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.limits import SMALLEST_LIMIT, total_memory, workers_share
from penstock.sizes import format_bytes

NEEDS_PROCESSES = "a gang needs workers that are processes"


def check_count(spec: ClusterSpec, kind: str, ranks: int | None = None) -> None:
    """Raise UsageError if a gang cannot run on such workers, or they do not fit into memory.

    ranks  how many the job's gangs need, if it has any
    """
    if kind == "threads":
        raise UsageError(
            NEEDS_PROCESSES,
            expected="--cluster mpi or local",
            got="--cluster threads",
            remedy="Use one of these, or leave out options that request parts or ranks, such as -k",
        )
    if kind == "mpi" and spec.workers is not None and spec.workers < (ranks or 0):
        raise UsageError(
            f"-k {ranks} needs as many ranks",
            expected=f"-n {ranks} or more, or no -n",
            got=f"-n {spec.workers}",
        )
    if kind not in ("local", "mpi") or _elsewhere(spec, kind):
        return
    count = spec.workers or (ranks if kind == "mpi" else None)
    by_memory = workers_share(total_memory()) // SMALLEST_LIMIT
    if count is not None and spec.memory_limit is None and count > by_memory:
        raise UsageError(
            f"{count} workers do not fit into three quarters of {format_bytes(total_memory())}",
            expected=f"at most {max(by_memory, 1)}, each needs {format_bytes(SMALLEST_LIMIT)}",
            got=f"-n {count}" if spec.workers else f"{count} ranks",
            remedy="Take fewer workers or parts, or name more hosts with --hosts",
        )


def _elsewhere(spec: ClusterSpec, kind: str) -> bool:
    """Return whether another program starts the ranks, or they run on other hosts."""
    if kind != "mpi":
        return False
    launcher = (spec.mpiexec or "").rpartition("/")[2]
    return spec.hosts is not None or launcher == "srun" or inside_mpi_job(os.environ) is not None
