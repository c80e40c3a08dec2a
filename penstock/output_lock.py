"""One writer per output: a lock next to it, and private hidden directories.

with output_lock(path):     # raises OutputExists if another process writes there
    ...
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from penstock.errors import OutputExists
from penstock.locks import lock, lock_of

# Another process needs minutes, not hours, for an output that a job waits for.
_LONGEST_WAIT = 3600.0
_NOTICE_AFTER = 2.0  # seconds of silence


@contextmanager
def output_lock(
    path: Path, *, command: str = "penstock", wait: bool = False, quiet: bool = True
) -> Iterator[None]:
    """Keep other writers away from ``path`` during the block.

    The kernel releases the lock when its holder dies. If another process has it, raise OutputExists
    at once, or with ``wait`` after an hour.
    """
    name = lock_of(path)
    missing = [folder for folder in path.parents if not folder.exists()]
    noticed = quiet

    def waiting(seconds: float) -> None:
        nonlocal noticed
        if not wait or seconds > _LONGEST_WAIT:
            raise OutputExists(
                f"another {command} is writing {path}",
                got=f"its lock {name}, held for more than {seconds:.0f} s" if wait else None,
                remedy="Wait for it or stop it first",
            )
        if seconds > _NOTICE_AFTER and not noticed:
            print(f"waiting for another {command} that is writing {path}", file=sys.stderr)
            noticed = True

    held = lock(name, waiting, private=False)
    try:
        yield
    finally:
        held.release(remove=True)
        with suppress(OSError):  # a failure leaves not even empty folders
            for folder in missing:
                folder.rmdir()


def own_directory(path: Path) -> None:
    """Create ``path`` for this user alone; an existing one must be a directory of this user.

    Its name is predictable: in a shared folder, another user may have put a link or a directory
    there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise OutputExists(
            f"{path} is not a directory of this user", remedy="Remove it, or name another output"
        )
