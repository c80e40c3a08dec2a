"""A lock between processes is an existing file; the kernel releases it when its holders die."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path

from penstock.errors import UsageError

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_POLL = 0.02
_TRIES = 1000  # to create a file in a folder that others remove when it is empty


class FileLock:
    """A lock that this process holds, alone or shared."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path, self._descriptor = path, descriptor

    def touch(self) -> None:
        """Show that the holder is working, so that others continue to wait."""
        os.utime(self._descriptor)

    def share(self) -> bool:
        """Share it with others; False if another process took it or removed its file meanwhile."""
        return _locked(self._descriptor, self._path, shared=True) and self.is_named()

    def is_named(self) -> bool:
        """Return whether the file still has its name."""
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.lstat())
        except FileNotFoundError:
            return False

    def release(self, *, remove: bool = False) -> None:
        """Release it; ``remove`` its file first: others that opened it notice the removal."""
        if self._descriptor >= 0:
            if remove:
                self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def lock_of(path: Path) -> Path:
    """Return the lock file of ``path``."""
    return path.with_name(f".{path.name}.lock")


def try_lock(path: Path, *, shared: bool = False, private: bool = True) -> FileLock | None:
    """Take the lock of ``path``, or return None if another process has it.

    The file and its folder are created if needed, for this user alone if ``private``; symbolic
    links are not followed.
    """
    tries = _TRIES
    while True:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            descriptor = os.open(path, flags, 0o600 if private else 0o666)
        except FileNotFoundError:
            tries -= 1
            if not tries:  # no file can be created there, as in /proc
                raise
            path.parent.mkdir(0o700 if private else 0o777, parents=True, exist_ok=True)
            continue
        held = FileLock(path, descriptor)
        try:
            if not _locked(descriptor, path, shared=shared):
                held.release()
                return None
        except BaseException:
            held.release()
            raise
        if held.is_named():
            return held
        held.release()  # its last holder removed the file after it was opened here


def is_locked(path: Path) -> bool:
    """Return whether a process has the lock of an existing file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        return not _locked(descriptor, path, shared=True)
    finally:
        os.close(descriptor)


def lock(
    path: Path, waiting: Callable[[float], None], *, shared: bool = False, private: bool = True
) -> FileLock:
    """Take the lock of ``path``, and wait until its holder releases it.

    waiting  called meanwhile with the seconds since the holder touched the file, or since the wait
             began; an exception from it ends the wait
    """
    seen, since = None, time.monotonic()
    while (held := try_lock(path, shared=shared, private=private)) is None:
        if (touched := _touched(path)) != seen:
            if seen is not None:
                since = time.monotonic()
            seen = touched
        waiting(time.monotonic() - since)
        time.sleep(_POLL)
    return held


def _touched(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _locked(descriptor: int, path: Path, *, shared: bool) -> bool:
    """Lock an open file; False if another process has the lock."""
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
            remedy="Name a folder on another disk, or mount it with locks (Lustre: -o flock)",
        ) from error
    return True
