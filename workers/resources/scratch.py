"""A worker's folder on a fast local disk: found, taken, and given back.

ROOT/penstock-UID/                   on the scratch disk, for this user alone
  worker-HOST-RANDOM/                a worker's own folder: see penstock/temporary.py
  staged-HOST/                       copies of graphs, shared by the workers of the host
  .staged-HOST.lock                  shared by all of them; exclusive to remove the copies

The next process removes what killed processes of this host left behind, and the last worker that
closes in order removes everything.
"""

from __future__ import annotations

import os
import shutil
import weakref
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from penstock.caches import can_write
from penstock.errors import CapacityError, ClusterError, OutputExists, PenstockError, UsageError
from penstock.locks import FileLock, lock, lock_of, try_lock
from penstock.output_lock import own_directory
from penstock.sizes import format_bytes, free_disk
from penstock.system_errors import disk_full, is_disk_full
from penstock.temporary import TemporaryFolder, host_name
from penstock.workers.resources.storage import storage_speed

SMALLEST = 64 << 20
_PATIENCE = 60.0  # seconds for the previous last worker to remove its copies
_TRIES = 1000
# Usual mounts of a node's disks; of equally fast ones the first is used.
_PATTERNS = (
    *("/local_scratch", "/localscratch", "/local/scratch", "/local", "/scratch", "/raid"),
    *("/nvme*", "/mnt/nvme*", "/mnt/local*", "/mnt/disks/*", "/mnt/scratch", "/tmp", "/var/tmp"),
)


def find_scratch(named: str | Path | None = None) -> Path:
    """Return the folder for scratch files: ``named``, else the fastest one.

    A named one is created if missing, and may contain variables of the worker's environment;
    PENSTOCK_SCRATCH there names one too. Any other has SMALLEST bytes free.
    """
    named = named or os.environ.get("PENSTOCK_SCRATCH")
    if named:
        folder = Path(os.path.expandvars(named)).expanduser().absolute()
        if not can_write(folder):
            raise _bad_scratch(folder)
        return folder
    usable: dict[int, Path] = {}  # one per disk
    refused = []
    for folder in candidates(os.environ):
        try:
            disk = folder.stat().st_dev
        except OSError:
            continue
        if disk in usable:
            continue
        if (free := free_disk(folder)) < SMALLEST:
            refused.append(f"{folder} ({format_bytes(free)} free)")
        elif not can_write(folder):
            refused.append(f"{folder} (not writable)")
        else:
            usable[disk] = folder
    if not usable:
        raise CapacityError(
            "no usable scratch directory was found",
            expected=f"a writable one with {format_bytes(SMALLEST)} free",
            got=", ".join(refused) or "none",
            remedy="Name one with --worker-scratch",
        )
    return max(usable.values(), key=storage_speed)  # the first of equal ones


def candidates(environ: Mapping[str, str]) -> list[Path]:
    """Return possible scratch folders: the batch system's and the user's first."""
    import dask

    said = [environ.get(name) for name in ("SLURM_TMPDIR", "TMPDIR", "TEMP", "TMP")]
    said.append(dask.config.get("temporary-directory", None))
    folders = [Path(folder).absolute() for folder in said if folder]
    for pattern in _PATTERNS:
        folders += sorted(Path("/").glob(pattern.removeprefix("/")))
    return list(dict.fromkeys(folders))


class Scratch:
    """One worker's folder below ``root``.

    scratch = Scratch(find_scratch())
    scratch.folder     its own, removed by ``close`` and at the end of the process
    scratch.copies     shared by the workers of this host, removed with the last of them
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.base = root / f"penstock-{os.geteuid()}"
        self.copies = self.base / f"staged-{host_name()}"
        try:
            used = _use(self.copies)
            self.copies.mkdir(mode=0o700, exist_ok=True)
            own = TemporaryFolder("worker", self.base)
        except OSError as error:
            if is_disk_full(error):
                raise disk_full(root / "penstock", free=free_disk(root)) from error
            raise _bad_scratch(root, error.strerror) from error
        except OutputExists as error:
            raise _bad_scratch(root, error.what) from error
        self.folder = own.path
        self._closing = weakref.finalize(self, _leave, self.copies, own, used, os.getpid())

    def close(self) -> None:
        """Remove the folder; the last worker of the host removes the shared one too."""
        self._closing()


def _use(copies: Path) -> FileLock:
    """Return the shared lock of ``copies``, in a private folder that is created."""

    def waiting(seconds: float) -> None:
        if seconds > _PATIENCE:
            raise ClusterError(f"another process holds {copies}", remedy="If it hangs, end it")

    for tries_left in reversed(range(_TRIES)):
        try:
            own_directory(copies.parent)
            used = lock(lock_of(copies), waiting, shared=True)
            own_directory(copies.parent)  # the last worker may have removed it
            return used
        except FileNotFoundError:
            if not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


def _leave(copies: Path, own: TemporaryFolder, used: FileLock, pid: int) -> None:
    if pid != os.getpid():
        return  # a forked child ends: the folder belongs to its parent
    own.close()
    used.release()
    with suppress(OSError, PenstockError):  # the disk was removed, or is in use
        if (alone := try_lock(lock_of(copies))) is not None:
            shutil.rmtree(copies, ignore_errors=True)
            alone.release(remove=True)
        copies.parent.rmdir()


def _bad_scratch(folder: Path, got: str | None = None) -> UsageError:
    return UsageError(
        f"scratch directory {folder} cannot be used",
        expected="a directory in which files can be written",
        got=got,
        remedy="Name another with --worker-scratch, or leave it out to have one found",
    )
