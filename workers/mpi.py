"""MPI, loaded where a gang asks for it and nowhere before: every other job works without."""

from __future__ import annotations

from typing import Any

from penstock.errors import MissingExtra


def load_mpi() -> Any:
    """Return ``mpi4py.MPI``, or say what is missing and how to get it."""
    # mpi4py initialises MPI when it is imported; ranks are started by mpiexec, and tasks run in
    # threads of theirs.
    import mpi4py

    mpi4py.rc.thread_level = "multiple"
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise MissingExtra(
            "a gang of workers needs MPI, and mpi4py finds no MPI library",
            expected="the MPI of this site, or one of the wheels that carry it",
            got=str(error).splitlines()[-1],
            remedy="Install one: pip install 'penstock[mpich]', or load your site's MPI module",
        ) from error
    return MPI
