"""Temporary folders of clusters: gone with the cluster, or else at the next start on this host."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.errors import UsageError
from penstock.workers.locks import FileLock, try_lock

_PREFIX = "penstock-"
_OWNER = "owner.lock"  # held by the process that made the folder, for as long as it lives


@contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """Give a folder of this process alone, and remove those whose processes were killed."""
    folder, held = make_folder(kind)
    try:
        yield folder
    finally:
        remove_folder(folder, held)


def make_folder(kind: str) -> tuple[Path, FileLock | None]:
    """Make a folder, and return it with the lock that says that its owner lives."""
    _sweep(kind)
    folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{kind}-"))
    # Under another name until it is held: a file of that name that nobody holds is swept.
    draft = folder / f"{_OWNER}.draft"
    try:
        held = try_lock(draft)
    except UsageError:  # a file system without locks: what is left there stays
        return folder, None
    draft.rename(folder / _OWNER)
    return folder, held


def remove_folder(folder: Path, held: FileLock | None) -> None:
    """Remove what ``make_folder`` made."""
    shutil.rmtree(folder, ignore_errors=True)
    if held is not None:
        held.release()


def _sweep(kind: str) -> None:
    """Remove folders of this kind and user whose owner was killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}{kind}-*"):
        with suppress(OSError, UsageError):
            found = folder.lstat()
            if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
                continue
            owner = folder / _OWNER
            if stat.S_ISREG(owner.lstat().st_mode) and (held := try_lock(owner)) is not None:
                remove_folder(folder, held)
