"""Locks between the processes of a host, which the kernel takes back when their holder dies."""

from __future__ import annotations

import os
import time
from pathlib import Path

from penstock.errors import ClusterError
from penstock.locks import is_named, lock_descriptor, open_locked

_POLL_SECONDS = 0.02
_REMEDY = "Name a folder on a local disk with --worker-scratch"


class FileLock:
    """A lock on a file that exists for it. The file's text says which process holds it alone."""

    def __init__(self, path: Path, descriptor: int, *, shared: bool) -> None:
        self._path, self._descriptor, self._shared = path, descriptor, shared

    def touch(self) -> None:
        """Say that the holder is alive and at work: who waits goes on waiting."""
        os.utime(self._descriptor)

    def share(self) -> bool:
        """Let others in who share it too; False if somebody took it, or its file, in between."""
        os.ftruncate(self._descriptor, 0)
        self._shared = True
        locked = lock_descriptor(self._descriptor, self._path, shared=True, remedy=_REMEDY)
        return locked and is_named(self._descriptor, self._path)

    def release(self) -> None:
        """Give it back."""
        if self._descriptor >= 0:
            if not self._shared:
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = -1


def try_lock(path: Path, *, shared: bool = False) -> FileLock | None:
    """Take the lock of ``path``, which is made if need be, or return None if others have it."""
    descriptor = open_locked(path, shared=shared, remedy=_REMEDY)
    if descriptor is None:
        return None
    if not shared:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return FileLock(path, descriptor, shared=shared)


def lock(path: Path, *, shared: bool = False, patience: float, what: str) -> FileLock:
    """Take the lock of ``path``; wait for who has it as long as the file is touched.

    After ``patience`` seconds without a touch, raise an error that names the process.
    """
    seen, since = None, time.monotonic()
    while (taken := try_lock(path, shared=shared)) is None:
        touched = _touched(path)
        if touched != seen:
            seen, since = touched, time.monotonic()
        elif time.monotonic() - since > patience:
            raise _held(path, patience, what)
        time.sleep(_POLL_SECONDS)
    return taken


def _touched(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def _held(path: Path, patience: float, what: str) -> ClusterError:
    try:
        pid = path.read_text()
    except OSError:
        pid = ""
    holder = f"process {pid}" if pid else "another process"
    return ClusterError(
        f"{what} waits for {holder}, which has not moved for {patience:g} s",
        expected=f"the lock {path}",
        remedy=f"If it hangs, end it (kill -9 {pid})" if pid else "If it hangs, end it",
    )
