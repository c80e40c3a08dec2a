"""A worker's folder on a fast local disk: found, taken, and given back.

ROOT/penstock-UID/                   below the scratch disk, for this user alone
  .lock                              held for a moment by who comes and by who goes
  worker-HOST-PID-RANDOM/            a worker's own folder; owner.json is locked while it lives
  staged-HOST/                       copies of graphs that the workers of the host share

What processes of this host left behind when they were killed goes when the next one comes, and
everything goes with the last worker that closes in order. distributed.diskutils.WorkSpace has no
folder that several share and the last one removes, and leaves its own folder and locks behind.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import shutil
import socket
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from penstock.errors import CapacityError, PenstockError, UsageError
from penstock.sizes import format_bytes, free_disk, need_disk
from penstock.system_errors import disk_full, is_disk_full
from penstock.workers.locks import FileLock, lock, try_lock
from penstock.workers.processes import process_start
from penstock.workers.resources.storage import storage_speed

SMALLEST = 64 << 20
_TRIAL_BYTES = 16 << 20
_PATIENCE = 60.0
_PATIENCE_AT_THE_END = 2.0  # what cannot be removed then goes when the next worker comes
_TRIES = 1000
_OWNER = "owner.json"
# Where sites mount the disks of a node, in the order in which they are taken when they are equal.
_PATTERNS = (
    *("/local_scratch", "/localscratch", "/local/scratch", "/local", "/scratch", "/raid"),
    *("/nvme*", "/mnt/nvme*", "/mnt/local*", "/mnt/disks/*", "/mnt/scratch", "/tmp", "/var/tmp"),
)


def find_scratch(named: str | Path | None = None) -> Path:
    """Return the folder to put scratch files in: ``named``, or else the fastest one.

    It can be written to and has SMALLEST bytes free; a named one is made if it is missing, and may
    hold variables of the worker's environment. PENSTOCK_SCRATCH there names one too.
    """
    named = named or os.environ.get("PENSTOCK_SCRATCH")
    if named:
        return _named(Path(os.path.expandvars(named)).expanduser().absolute())
    usable, refused, seen = [], [], set()
    for folder in candidates(os.environ):
        try:
            disk = _disk_number(folder)
        except OSError:
            continue
        if disk in seen:
            continue  # the same disk by another name
        try:
            _try_to_write(folder)
            free = shutil.disk_usage(folder).free
        except OSError as error:
            refused.append(f"{folder} ({error.strerror})")
            continue
        if free < SMALLEST:
            refused.append(f"{folder} ({format_bytes(free)} free)")
            continue
        seen.add(disk)
        usable.append(folder)
    if not usable:
        raise CapacityError(
            "there is no scratch directory",
            expected=f"one that can be written to, with {format_bytes(SMALLEST)} free",
            got=", ".join(refused) or "none",
            remedy="Name one with --worker-scratch",
        )
    speeds = {folder: storage_speed(folder) for folder in usable}
    best = max(speeds.values())
    return _fastest([folder for folder in usable if speeds[folder] == best])


def candidates(environ: Mapping[str, str]) -> list[Path]:
    """Return where scratch may be found: what the batch system and the user say comes first."""
    import dask

    said = [environ.get(name) for name in ("SLURM_TMPDIR", "TMPDIR", "TEMP", "TMP")]
    said.append(dask.config.get("temporary-directory", None))
    folders = [Path(folder).absolute() for folder in said if folder]
    for pattern in _PATTERNS:
        folders += sorted(Path("/").glob(pattern.removeprefix("/")))
    return list(dict.fromkeys(folders))


def host_name() -> str:
    """Return this host's name, fit for a file name."""
    return re.sub(r"[^\w.-]", "_", socket.gethostname())


class Scratch:
    """One worker's folder below ``root``.

    scratch = Scratch(find_scratch())
    scratch.folder     its own, removed by ``close`` and at the end of the process
    scratch.copies     shared by the workers of this host, removed with the last of them
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.base = root / f"penstock-{os.geteuid()}"
        name = f"worker-{host_name()}-{os.getpid()}-{secrets.token_hex(4)}"
        self.folder = self.base / name
        self.copies = self.base / f"staged-{host_name()}"
        try:
            with _entered(self.base):
                dead = [_set_aside(old) for old in _workers(self.base) if not _is_alive(old)]
                self.folder.mkdir()
                self.copies.mkdir(exist_ok=True)
                owner = _own(self.folder)
        except OSError as error:
            raise _bad_scratch(root, error) from error
        # Here, without the lock: there may be much to remove.
        for folder in [*dead, *self.base.glob(f".dead-{host_name()}-*")]:
            shutil.rmtree(folder, ignore_errors=True)
        self._closing = weakref.finalize(self, _leave, self.base, self.folder, owner, os.getpid())

    def close(self) -> None:
        """Remove the folder; the last one of the host to go removes what was shared too."""
        self._closing()


def _named(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        need_disk(folder, SMALLEST, "the scratch of a worker")
        _try_to_write(folder)
    except OSError as error:
        raise _bad_scratch(folder, error) from error
    return folder


def _disk_number(folder: Path) -> int:
    return folder.stat().st_dev


def _try_to_write(folder: Path) -> None:
    with tempfile.TemporaryFile(dir=folder) as file:
        file.write(b"penstock")


def _bad_scratch(folder: Path, error: OSError) -> UsageError | CapacityError:
    if is_disk_full(error):
        return disk_full(folder / "penstock", free=free_disk(folder))
    return UsageError(
        f"scratch directory {folder} cannot be used",
        expected="a directory in which files can be written",
        got=error.strerror,
        remedy="Name another with --worker-scratch, or leave it out to have one found",
    )


def _fastest(equals: list[Path]) -> Path:
    """Return one of folders on equal disks: where workers of this host are, or what is faster."""
    if len(equals) == 1:
        return equals[0]
    for folder in equals:
        if any((folder / f"penstock-{os.geteuid()}").glob(f"worker-{host_name()}-*")):
            return folder
    seconds = {folder: _write_seconds(folder) for folder in equals}
    # Only a clear difference counts: the workers of a host should choose alike.
    clearly = [folder for folder in equals if seconds[folder] * 2 < seconds[equals[0]]]
    return min(clearly, key=seconds.__getitem__, default=equals[0])


def _write_seconds(folder: Path) -> float:
    piece = os.urandom(1 << 20)
    with tempfile.TemporaryFile(dir=folder) as file:
        start = time.perf_counter()
        for _ in range(_TRIAL_BYTES // len(piece)):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())
        return time.perf_counter() - start


@contextmanager
def _entered(base: Path, patience: float = _PATIENCE) -> Iterator[None]:
    """Hold the lock of ``base``, made if need be, while folders come and go."""
    held = _enter(base, patience)
    try:
        yield
    finally:
        held.release()


def _enter(base: Path, patience: float) -> FileLock:
    for tries_left in reversed(range(_TRIES)):
        try:
            base.mkdir(mode=0o700, exist_ok=True)
            if base.is_symlink() or base.lstat().st_uid != os.geteuid():
                raise PermissionError(errno.EPERM, f"{base} belongs to another user")
            return lock(base / ".lock", patience=patience, what="the scratch directory")
        except (FileNotFoundError, FileExistsError):
            # Whoever was last removed it in this moment, at any step of these.
            if not tries_left or not base.parent.is_dir():
                raise
    raise AssertionError("the last try returns or raises")


def _own(folder: Path) -> FileLock:
    marker = folder / _OWNER
    held = try_lock(marker)
    assert held is not None  # nobody else knows the name
    pid = os.getpid()
    marker.write_text(
        json.dumps({"host": host_name(), "pid": pid, "started": process_start(pid)}) + "\n"
    )
    return held


def _workers(base: Path) -> list[Path]:
    """Return the folders of this host's workers, dead or alive."""
    name = re.compile(rf"worker-{re.escape(host_name())}-\d+-[0-9a-f]{{8}}")
    return [folder for folder in base.iterdir() if name.fullmatch(folder.name)]


def _is_alive(worker: Path) -> bool:
    """Return whether the process of a worker's folder may be alive. The lock of the base is held.

    It is if it runs here, or if its lock is held: it may run in another container, where it has
    another number.
    """
    marker = worker / _OWNER
    try:
        owner = json.loads(marker.read_text())
        if owner["started"] == process_start(owner["pid"]) is not None:
            return True
    except (OSError, ValueError, KeyError, TypeError):
        pass  # killed before it was written; the lock says the rest
    free = try_lock(marker)
    if free is not None:
        free.release()
    return free is None


def _set_aside(folder: Path) -> Path:
    dead = folder.with_name(f".dead-{host_name()}-{secrets.token_hex(4)}")
    return folder.rename(dead)


def _leave(base: Path, folder: Path, owner: FileLock, pid: int) -> None:
    if pid != os.getpid():
        return  # a forked child that ends: the folder is its parent's
    try:
        with _entered(base, _PATIENCE_AT_THE_END):
            owner.release()
            gone = [_set_aside(folder)] if folder.exists() else []
            others = _workers(base)
            if not any(_is_alive(other) for other in others):
                copies = base / f"staged-{host_name()}"
                gone += [_set_aside(left) for left in (*others, copies) if left.exists()]
            for dead in gone:
                shutil.rmtree(dead, ignore_errors=True)
            if {entry.name for entry in base.iterdir()} == {".lock"}:
                (base / ".lock").unlink()
                base.rmdir()
    except (OSError, PenstockError):
        # The disk is gone, or another process hangs: an end must not.
        shutil.rmtree(folder, ignore_errors=True)
