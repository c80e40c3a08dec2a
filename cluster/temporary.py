"""Temporary folders of clusters: gone with the cluster, or else at the next start on this host.

distributed.diskutils.WorkSpace would leave its own folder and two lock files behind for good, and
takes a folder that another user made. Nor is this workers.resources.scratch, whose workers meet in
one folder, under one lock, for what they share; here each folder stands alone, and its lock too.
"""

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


@contextmanager
def temporary_folder(kind: str) -> Iterator[Path]:
    """Give a folder of this process alone, and remove those whose processes were killed."""
    folder, held = make_folder(kind)
    try:
        yield folder
    finally:
        remove_folder(folder, held)


def make_folder(kind: str) -> tuple[Path, FileLock | None]:
    """Make a folder, and return it with the lock that says that its owner lives.

    The lock lies next to the folder: a process that is just dying may make the folder once more
    after it was removed.
    """
    _sweep(kind)
    folder = Path(tempfile.mkdtemp(prefix=f"penstock-{kind}-"))
    # Under another name until it is held: a lock that nobody holds is swept.
    draft = folder / "lock"
    try:
        held = try_lock(draft)
    except UsageError:  # a file system without locks: what is left there stays
        return folder, None
    draft.rename(lock_of(folder))
    return folder, held


def remove_folder(folder: Path, held: FileLock | None) -> None:
    """Remove what ``make_folder`` made."""
    shutil.rmtree(folder, ignore_errors=True)
    if held is not None:
        lock_of(folder).unlink(missing_ok=True)
        held.release()


def lock_of(folder: Path) -> Path:
    """Return the file that the owner of ``folder`` holds a lock on."""
    return folder.with_name(f".{folder.name}.lock")


def _sweep(kind: str) -> None:
    """Remove folders of this kind and user whose owner was killed."""
    for lock in Path(tempfile.gettempdir()).glob(f".penstock-{kind}-*.lock"):
        with suppress(OSError, UsageError):
            found, folder = lock.lstat(), lock.with_name(lock.stem[1:])
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                continue
            if folder.is_symlink():
                continue
            if (held := try_lock(lock)) is not None:
                remove_folder(folder, held)
