"""An sbatch script that runs a job, or keeps a cluster, on an MPI world that srun starts.

Scheduler and client run in the batch step, on the job's first node; the world's ranks, which are
the workers, run on all of its nodes.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter
from pydantic import Field

from penstock.cluster.spec import ClusterSpec
from penstock.errors import UsageError
from penstock.options import given_options, options, words_of
from penstock.sizes import parse_bytes

_JOB = Group("The batch job", sort_key=7)
_TIME = r"^(?i:[0-9]+(:[0-9]+){0,2}|[0-9]+-[0-9]+(:[0-9]+){0,2}|unlimited|infinite)$"
_PLAIN = (
    r"^[A-Za-z0-9_.,:@%+=/-]+$"  # sbatch reads it from a comment line, where quotes do not help
)
# On the first node, for scheduler and client, besides its ranks.
_CLIENT_MEMORY = 2 << 30
# Options that the script itself sets, and their spellings.
_SAID = ("cluster", "workers", "mpiexec", "hosts")
_ADDED = ("--cluster", "--workers", "-n", "--mpiexec", "--hosts")


_Name = Annotated[str, Field(pattern=_PLAIN)]


@Parameter(group=_JOB)
@options
class SlurmScript:
    """Options of the batch job of ``penstock cluster script``."""

    nodes: Annotated[int, Field(gt=0)] = 1
    """how many nodes to request"""
    gpus_per_node: Annotated[int, Field(ge=0)] = 0
    """GPUs of each node"""
    ranks_per_node: Annotated[int | None, Field(gt=0)] = None
    """workers on each node [default: one per GPU, or one]"""
    time: Annotated[str, Field(pattern=_TIME)] | None = None
    """wall time, such as 4:00:00 or 2-12 for two days and a half [default: the partition's]"""
    partition: _Name | None = None
    """partition to wait in"""
    account: _Name | None = None
    """account that pays"""
    job_name: _Name = "penstock"
    """name that squeue shows"""
    mpi: _Name | None = None
    """how srun meets the MPI library, such as pmix or pmi2; srun --mpi=list lists them
    [default: the site's]"""
    command: Annotated[tuple[str, ...], Parameter(parse=False)] = ()
    """what to run [default: a cluster that waits for clients]"""

    def ranks(self) -> int:
        """Return the number of workers per node."""
        return self.ranks_per_node or self.gpus_per_node or 1


def slurm_script(spec: ClusterSpec, job: SlurmScript) -> str:
    """Return an sbatch script: ``job`` on workers as ``spec`` describes them."""
    _check(spec, job)
    if job.gpus_per_node and spec.device == "auto":
        spec = replace(spec, device="gpu")  # requested: a rank without one is an error
    return "\n".join(
        [
            "#!/bin/bash",
            *(f"#SBATCH --{name}={value}" for name, value in _requests(spec, job)),
            "",
            "# Made by penstock cluster script. Submit it with sbatch, whose own options go first.",
            "set -euo pipefail",
            "",
            "# One worker per task of the job, with any options of sbatch.",
            ': "${SLURM_JOB_NUM_NODES:?submit this script with sbatch}"',
            f"ranks=$((SLURM_JOB_NUM_NODES * ${{SLURM_NTASKS_PER_NODE:-{job.ranks()}}}))",
            "",
            f'export PATH={shlex.quote(str(Path(sys.executable).parent))}:"$PATH"',
            *_exports(job),
            "",
            "# Scheduler and client run here, on the first node; srun starts the workers on all.",
            *_command(spec, job),
            "",
        ]
    )


def _check(spec: ClusterSpec, job: SlurmScript) -> None:
    if spec.cluster not in ("auto", "mpi"):
        raise UsageError(
            "the script starts its workers with MPI",
            expected="no --cluster, or mpi",
            got=f"--cluster {spec.cluster}",
        )
    if spec.workers is not None:
        raise UsageError(
            "the script counts its workers from the nodes that it gets",
            got=f"--workers {spec.workers}",
            remedy="Set them with --nodes and --ranks-per-node",
        )
    if spec.hosts is not None:
        raise UsageError("SLURM chooses the hosts", got=f"--hosts {spec.hosts}")
    if job.gpus_per_node and job.ranks() > job.gpus_per_node:
        raise UsageError(
            "there are more ranks than GPUs on a node",
            expected=f"at most --ranks-per-node {job.gpus_per_node}, the number of GPUs",
            got=str(job.ranks()),
        )
    if _is_ours(job):
        for word in job.command:
            if word.partition("=")[0] in _ADDED:
                raise UsageError(
                    f"the script itself adds {word} to the command",
                    got=shlex.join(job.command),
                    remedy="Leave it out, and choose with the script's own options where to run",
                )


def _requests(spec: ClusterSpec, job: SlurmScript) -> Iterator[tuple[str, Any]]:
    yield "job-name", job.job_name
    yield "nodes", job.nodes
    yield "ntasks-per-node", job.ranks()
    yield "cpus-per-task", spec.threads or 1
    if job.gpus_per_node:
        yield "gpus-per-node", job.gpus_per_node
    if spec.memory_limit is not None:
        size = parse_bytes(spec.memory_limit) * job.ranks() + _CLIENT_MEMORY
        yield "mem", f"{-(-size >> 20)}M"
    for name in ("time", "partition", "account"):
        if (value := getattr(job, name)) is not None:
            yield name, value


def _exports(job: SlurmScript) -> Iterator[str]:
    yield "# If a rank dies, all end, and the world restarts."
    yield "export SLURM_KILL_BAD_EXIT=1"
    yield "# srun does not take this from sbatch."
    yield 'export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"'
    if job.mpi is not None:
        yield f"export SLURM_MPI_TYPE={shlex.quote(job.mpi)}"


def _command(spec: ClusterSpec, job: SlurmScript) -> Iterator[str]:
    given = given_options(spec, passing=_SAID)
    starter = spec.mpiexec or "srun"
    if job.command and not _is_ours(job):
        # The user's own program reads it with ClusterSpec().configured().
        given |= {"cluster": "mpi", "mpiexec": starter}
        for name, value in given.items():
            # Dask reads Python literals; a string must stay a string.
            yield f"export DASK_PENSTOCK__CLUSTER__{name.upper()}={shlex.quote(repr(value))}"
        yield 'export DASK_PENSTOCK__CLUSTER__WORKERS="$ranks"'
        yield f"exec {shlex.join(job.command)}"
        return
    command = job.command or ("penstock", "cluster", "start", "--foreground")
    words = shlex.join([*command, "--cluster", "mpi", "--mpiexec", starter])
    yield f'exec {words} -n "$ranks" {shlex.join(words_of(given))}'.rstrip()


def _is_ours(job: SlurmScript) -> bool:
    return bool(job.command) and Path(job.command[0]).name == "penstock"
