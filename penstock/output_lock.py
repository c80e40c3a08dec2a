"""One writer an output: a lock next to it, and hidden directories that belong to who writes.

with output_lock(path):     # raises OutputExists where another process writes there
    ...
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.errors import OutputExists
from penstock.locks import open_locked

# What another process makes of an output that a job waits for takes minutes, not hours.
_LONGEST_WAIT = 3600.0
_POLL = 0.1
_NOTICE_AFTER = 2.0  # seconds of silence
_TRIES = 100  # to make a lock in a folder that others remove


@contextmanager
def output_lock(
    path: Path, *, command: str = "penstock", wait: bool = False, quiet: bool = True
) -> Iterator[None]:
    """Keep other writers away from ``path`` while the block runs.

    The kernel takes the lock back when its holder dies. Where another process has it, raise
    OutputExists at once, or with ``wait`` when it has not given it back within an hour.
    """
    name = lock_of(path)
    missing = [folder for folder in path.parents if not folder.exists()]
    begun, noticed = time.monotonic(), quiet
    while (descriptor := _try(name)) is None:
        waited = time.monotonic() - begun
        if not wait or waited > _LONGEST_WAIT:
            raise OutputExists(
                f"another {command} is writing {path}",
                got=f"its lock {name}, held for more than {waited:.0f} s" if wait else None,
                remedy="Wait for it or stop it first",
            )
        if waited > _NOTICE_AFTER and not noticed:
            print(f"waiting for another {command} that is writing {path}", file=sys.stderr)
            noticed = True
        time.sleep(_POLL)
    try:
        yield
    finally:
        # Removed while it is held: who opened it meanwhile sees that it has no name any more.
        name.unlink(missing_ok=True)
        os.close(descriptor)
        with suppress(OSError):  # a failure leaves nothing, not even folders; others are not empty
            for folder in missing:
                folder.rmdir()


def refusal(path: Path) -> OSError | None:
    """Return the error of a file or folder that cannot be made or replaced, None where it can.

    Nothing is written to find out.
    """
    made = next((one for one in reversed([path, *path.parents]) if not one.exists()), path)
    if not made.parent.is_dir():
        number = errno.ENOTDIR
    elif os.access(made.parent, os.W_OK | os.X_OK, effective_ids=True):
        return None
    else:
        read_only = os.statvfs(made.parent).f_flag & os.ST_RDONLY
        number = errno.EROFS if read_only else errno.EACCES
    return OSError(number, os.strerror(number), str(made))


def lock_of(path: Path) -> Path:
    """Return the file by which others are kept away from ``path``."""
    return path.with_name(f".{path.name}.lock")


def own_directory(path: Path) -> None:
    """Make ``path`` for this user alone; one that is there must be a directory of this user's.

    Its name is known beforehand: in a folder that everybody may write to, another user may have
    put a link or a directory there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        if is_own_directory(path):
            return
        found = path.lstat()
        whose = f"user {found.st_uid}" if stat.S_ISDIR(found.st_mode) else "no directory"
        raise OutputExists(
            f"{path} is not ours",
            expected=f"nothing, or a directory of user {os.geteuid()}",
            got=whose,
            remedy="Remove it, or name another output",
        ) from None


def is_own_directory(path: Path) -> bool:
    """Return whether ``path`` is a directory of this user's, and no symbolic link to one."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _try(name: Path) -> int | None:
    """Return a descriptor that holds the lock, or None where another process does."""
    left = _TRIES
    while True:
        name.parent.mkdir(parents=True, exist_ok=True)
        try:
            remedy = "Write to another disk, or mount it with locks (Lustre: -o flock)"
            return open_locked(name, mode=0o666, remedy=remedy)
        except FileNotFoundError:
            # Another writer, which failed, removed the folder that it had made; or nothing can be
            # made there at all, as in /proc.
            left -= 1
            if not left:
                raise
