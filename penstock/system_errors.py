"""Errors of the operating system as Penstock errors: a full disk, no memory, a path.

All code uses these messages and remedies.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import CapacityError, PenstockError
from penstock.sizes import format_bytes

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
MORE_MEMORY = (
    "Give workers more memory with --memory-limit, start fewer with -n, or use a machine with more"
)


def is_disk_full(error: BaseException) -> bool:
    """Return whether the disk, or the user's share of it, is full."""
    if not isinstance(error, OSError):
        return False
    # NumPy's errors of a file that it could not write whole have no number.
    return error.errno in DISK_FULL or (error.errno is None and " written" in str(error))


def disk_full(
    path: str | Path | None, where: str = "", *, free: int | None = None
) -> CapacityError:
    """Return the error of a full disk; ``path`` could not be written, if that is known."""
    return CapacityError(
        f"the disk is full{where}" + ("" if path is None else f": could not write {path}"),
        got=None if free is None else f"{format_bytes(free)} free",
        remedy="Free some space, or write to another disk: another output, --scratch of etl, or "
        "--worker-scratch; existing outputs are unchanged",
    )


@contextmanager
def full_disk_explained(path: Path) -> Iterator[None]:
    """Raise CapacityError if the disk is too full for ``path``."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise disk_full(path, free=shutil.disk_usage(path.parent).free) from error


def from_system(error: BaseException, where: str = "") -> PenstockError | None:
    """Return an error of the system as a Penstock error; None if it is of another kind.

    where  the part of a job, such as `` in the step 'read'``
    """
    if isinstance(error, MemoryError):
        return CapacityError(f"memory ran out{where}", remedy=MORE_MEMORY)
    if not isinstance(error, OSError):
        return None
    if is_disk_full(error):
        return disk_full(error.filename, where)
    if error.filename is None:
        return None
    return PenstockError(
        f"cannot use {error.filename}{where}",
        got=error.strerror,
        remedy="Check the path, its permissions and its disk",
    )
