"""MPI, loaded only when a gang needs it: every other job works without."""

from __future__ import annotations

from typing import Any

from penstock.errors import ClusterError, MissingExtra, pip_install


def load_mpi() -> Any:
    """Return ``mpi4py.MPI``, or raise an error with the command to install it."""
    # Importing mpi4py initialises MPI; mpiexec starts ranks, and tasks run in their threads.
    import mpi4py

    mpi4py.rc.thread_level = "multiple"
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise no_mpi(str(error)) from error
    if MPI.Is_initialized():
        check_threads(MPI)
    return MPI


def no_mpi(reason: str) -> MissingExtra:
    """Return the error for a Python environment without an MPI library."""
    return MissingExtra(
        "a gang of workers needs MPI, and mpi4py finds no MPI library",
        expected="the MPI of this site, or one of the wheels that carry it",
        got=reason.strip().splitlines()[-1] if reason.strip() else None,
        remedy=f"Install one: {pip_install('mpich')}, or load your site's MPI module",
    )


def check_threads(MPI: Any) -> None:  # noqa: N803
    """Raise ClusterError unless every thread of this process may call MPI at any time."""
    levels = ("SINGLE", "FUNNELED", "SERIALIZED", "MULTIPLE")
    names = {getattr(MPI, f"THREAD_{level}"): f"MPI_THREAD_{level}" for level in levels}
    level = MPI.Query_thread()
    if level < MPI.THREAD_MULTIPLE:
        library = MPI.Get_library_version().partition(",")[0].splitlines()[0].strip("\0 ")
        raise ClusterError(
            f"this MPI cannot be called from several threads, which a gang needs ({library})",
            expected="MPI_THREAD_MULTIPLE",
            got=names.get(level, f"thread level {level}"),
            remedy=f"Use an MPI built with thread support: {pip_install('mpich')}, or "
            "another of your site's MPI modules; and do not initialise MPI before penstock does",
        )
