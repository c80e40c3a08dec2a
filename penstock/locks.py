"""A lock between processes is a file that exists for it; the kernel frees it when they die."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path

from penstock.errors import UsageError

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


def open_locked(path: Path, *, shared: bool = False, mode: int = 0o600, remedy: str) -> int | None:
    """Return a descriptor that holds the lock of ``path``, or None where others have it.

    The file is made if need be; a symbolic link is not followed. ``remedy`` is for a file system
    that has no locks.
    """
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        try:
            if not lock_descriptor(descriptor, path, shared=shared, remedy=remedy):
                os.close(descriptor)
                return None
            if is_named(descriptor, path):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # its last holder removed the file after it was opened here


def lock_descriptor(descriptor: int, path: Path, *, shared: bool, remedy: str) -> bool:
    """Lock an open file; False where others have the lock."""
    try:
        fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        raise UsageError(
            f"the file system of {path.parent} has no locks between processes",
            got=str(error),
            remedy=remedy,
        ) from error
    return True


def is_named(descriptor: int, path: Path) -> bool:
    """Return whether ``path`` is still the name of an open file."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False
