"""How many workers this machine can start: refused before the first of them is."""

from __future__ import annotations

import os

from penstock.cluster.mpi.mpiexec import inside_mpi_job
from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.limits import SMALLEST_LIMIT, cores, total_memory, workers_share
from penstock.sizes import format_bytes

# Ranks may well be more than cores, to try something; so many a core would only wait for each
# other until a time-out ends them.
MOST_A_CORE = 16

NEEDS_PROCESSES = "a gang needs workers that are processes"


def check_count(spec: ClusterSpec, kind: str, ranks: int | None = None) -> None:
    """Raise UsageError where more workers, or threads, are asked for than this machine can bear.

    ranks  how many the job's gangs need, where ``spec`` does not say how many workers
    """
    if kind not in ("local", "threads", "mpi") or _elsewhere(spec, kind):
        return
    count = 1 if kind == "threads" else spec.workers or (ranks if kind == "mpi" else None)
    most = MOST_A_CORE * cores()
    if count is not None and kind != "threads":
        option = f"-n {count}" if spec.workers else f"{count} ranks"
        by_memory = workers_share(total_memory()) // SMALLEST_LIMIT
        if count > most:
            raise UsageError(
                f"{count} workers are more than this machine can run",
                expected=f"at most {most}, {MOST_A_CORE} for each core ({cores()})",
                got=option,
                remedy="Take fewer workers or parts, or name more hosts with --hosts",
            )
        if spec.memory_limit is None and count > by_memory:
            raise UsageError(
                f"{count} workers do not fit into three quarters of {format_bytes(total_memory())}",
                expected=f"at most {max(by_memory, 1)}, each needs {format_bytes(SMALLEST_LIMIT)}",
                got=option,
                remedy="Take fewer workers or parts, or name more hosts with --hosts",
            )
    if spec.threads is not None and spec.threads > most:
        raise UsageError(
            f"{spec.threads} threads of a worker are more than this machine can run",
            expected=f"at most {most}, {MOST_A_CORE} for each core ({cores()})",
            got=f"--threads {spec.threads}",
        )


def check_ranks(kind: str, workers: int | None = None, parts: int | None = None) -> None:
    """Raise UsageError where a gang cannot run on workers of this kind, or on so few of them.

    workers  how many are asked for, if that is said; parts: how many ranks the gang has, likewise
    """
    if kind == "threads":
        raise UsageError(
            NEEDS_PROCESSES,
            expected="--cluster mpi or local",
            got="--cluster threads",
            remedy="Take one of these, or leave out what asks for parts or ranks, such as -k",
        )
    if kind == "mpi" and workers is not None and parts is not None and workers < parts:
        raise UsageError(
            f"-k {parts} needs as many ranks",
            expected=f"-n {parts} or more, or no -n",
            got=f"-n {workers}",
        )


def _elsewhere(spec: ClusterSpec, kind: str) -> bool:
    """Return whether ranks are started by somebody else, or on other hosts."""
    if kind != "mpi":
        return False
    launcher = (spec.mpiexec or "").rpartition("/")[2]
    return spec.hosts is not None or launcher == "srun" or inside_mpi_job(os.environ) is not None
