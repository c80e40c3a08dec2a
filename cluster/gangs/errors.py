"""What is said of a gang that failed: who failed first, where and why, and what all did."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.errors import ClusterError, GangError, PenstockError
from penstock.workers.gang import Outcome

Tracebacks = dict[int, str]


def of_raised(first: Outcome, size: int, tracebacks: Tracebacks) -> GangError:
    """Return the error of a gang in which a rank raised."""
    cause = first.error
    where = f"rank {first.rank} of {size}" + (f" on host {first.host}" if first.host else "")
    ours = isinstance(cause, PenstockError)
    said = str(cause) if ours else (first.text.strip().splitlines() or ["failed"])[-1]
    error = GangError(
        f"{where} failed: {said}",
        remedy=None if ours else "The error's tracebacks say where, rank by rank",
        tracebacks=tracebacks,
        may_retry=isinstance(cause, ClusterError),  # it waited in vain
    )
    error.__cause__ = cause
    error.add_note(first.text)
    return error


def of_lost(lost: dict[str, Any], size: int, why: str, tracebacks: Tracebacks) -> GangError:
    """Return the error of a gang that lost a rank; ``why`` is what mpiexec said."""
    return GangError(
        f"rank {lost['lost']} of {size} on host {lost['host']} {lost['how']}",
        got=why or "no word of why",
        remedy="Run it again, or let gang.run(retries=...) do so from a checkpoint",
        tracebacks=tracebacks,
        may_retry=True,
    )


def of_late(lost: list[dict[str, Any]], size: int, tracebacks: Tracebacks) -> GangError:
    """Return the error of a gang whose time was up; ``lost`` are those that had to be killed."""
    ranks = sorted({one["lost"] for one in lost})
    how = ", ".join(f"rank {one['lost']} on host {one['host']} {one['how']}" for one in lost)
    return GangError(
        f"a gang of {size} ranks did not end in time",
        got=f"ranks {ranks} that had to be given up: {how}" if lost else None,
        remedy="See in the error's tracebacks what each rank was doing",
        tracebacks=tracebacks,
        may_retry=True,
    )


def scheduler_gone() -> ClusterError:
    """Return the error of a gang whose scheduler went away."""
    return ClusterError(
        "the scheduler ended, or cannot be reached any more, while a gang ran",
        remedy="Start the cluster again; what the function saved is still there",
    )


@contextmanager
def scheduler_there() -> Iterator[None]:
    """Say that the scheduler has gone where Dask only says that a connection was closed."""
    try:
        yield
    except OSError as error:  # closed, or cannot be opened any more
        raise scheduler_gone() from error


def is_mpis(error: BaseException | None) -> bool:
    """Return whether MPI raised: when a rank is lost, the others may hear so from MPI first."""
    return type(error).__module__.startswith("mpi4py")
