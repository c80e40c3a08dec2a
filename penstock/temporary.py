"""Temporary folders: removed with their process, or at the next start on this host if it was
killed.

distributed.diskutils.WorkSpace would leave its own folder and two lock files behind, and accepts a
folder that another user made.
"""

from __future__ import annotations

import glob
import os
import re
import secrets
import shutil
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.errors import UsageError
from penstock.locks import FileLock, lock_of, try_lock


def host_name() -> str:
    """Return this host's name, fit for a file name."""
    return re.sub(r"[^\w.-]", "_", socket.gethostname())


class TemporaryFolder:
    """A folder of this process alone, ``<prefix>-HOST-RANDOM``, readable for this user only.

    with TemporaryFolder("penstock-stage") as folder:
        (folder / "order.json").write_text("{}")

    A lock next to it shows that its owner lives: a dying process may create the folder once more
    after its removal. Folders with this name, host and user whose owner was killed are removed. If
    the file system has no locks, remains of killed processes stay.

    parent  its parent folder [default: that of the temporary files of this process]
    """

    def __init__(self, prefix: str, parent: Path | None = None) -> None:
        parent = Path(tempfile.gettempdir()) if parent is None else parent
        name = f"{prefix}-{host_name()}"
        sweep(parent, prefix)
        self._pid = os.getpid()
        self._held: FileLock | None = None
        while True:
            self.path = parent / f"{name}-{secrets.token_hex(4)}"
            try:
                self._held = try_lock(lock_of(self.path))
            except UsageError:
                lock_of(self.path).unlink(missing_ok=True)
                break
            if self._held is not None:  # else another process is sweeping
                break
        try:
            self.path.mkdir(mode=0o700)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Remove it, except in a child of the process that made it."""
        if self._pid == os.getpid():
            shutil.rmtree(self.path, ignore_errors=True)
            if self._held is not None:
                self._held.release(remove=True)
            self._pid = -1

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *error: Any) -> None:
        self.close()


def sweep(parent: Path, prefix: str) -> None:
    """Remove folders whose owner was killed; ``prefix`` may be a pattern."""
    for lock in parent.glob(f".{prefix}-{glob.escape(host_name())}-{'[0-9a-f]' * 8}.lock"):
        with suppress(OSError, UsageError):
            found, folder = lock.lstat(), lock.with_name(lock.stem[1:])
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                continue
            if not folder.is_symlink() and (held := try_lock(lock)) is not None:
                shutil.rmtree(folder, ignore_errors=True)
                held.release(remove=True)
