"""MPI worlds of Dask workers."""

from __future__ import annotations

from collections.abc import Mapping


def inside_mpi_job(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Return rank and size if this process is one of several that mpiexec or srun started."""
    for rank, size in (
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),  # a batch script does not have the second one
    ):
        try:
            found = int(environ[rank]), int(environ[size])
        except (KeyError, ValueError):
            continue
        if found[1] > 1:
            return found
    return None
