"""How fast a folder's disk is, past the page cache, and whether its files can be locked.

The files have no name any more when they are used, so that they are gone with the process, however
it ends.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.sizes import free_disk
from penstock.workers.resources.storage import storage_speed

SECONDS = 2.0  # for writing and reading together
_BLOCK = 8 << 20
_LARGEST = 2 << 30
_SHARE_OF_FREE = 0.1
_FLUSH_EVERY = 8  # blocks; what was cached is flushed, so that the clock sees it


def look_at_disk(path: str, seconds: float | str = SECONDS) -> dict[str, Any]:
    """Return kind, free space, file locks and bandwidth of the disk below a folder.

    seconds  to measure the bandwidth for; 0: not at all
    """
    folder, seconds = Path(path), float(seconds)
    facts: dict[str, Any] = {
        "folder": str(folder),
        "kind": storage_speed(folder).name.lower(),
        "free": free_disk(folder),
        "locks": can_lock(folder),
        "measured": seconds > 0,
    }
    most = min(_LARGEST, int(facts["free"] * _SHARE_OF_FREE)) // _BLOCK * _BLOCK
    if most and seconds:
        facts |= measure(folder, most, seconds)
    return facts


def unnamed_file(folder: Path) -> int:
    """Return a descriptor of a new file in a folder that has no name there."""
    with suppress(OSError, AttributeError):
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    descriptor, name = tempfile.mkstemp(dir=folder, prefix=".penstock-doctor-")
    Path(name).unlink()
    return descriptor


def can_lock(folder: Path) -> bool:
    """Return whether a lock of a file in the folder keeps others out."""
    first, name = tempfile.mkstemp(dir=folder, prefix=".penstock-doctor-")
    try:
        try:
            second = os.open(name, os.O_RDWR | os.O_CLOEXEC)
        finally:
            Path(name).unlink()
        try:
            fcntl.flock(first, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(second, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # Refused to the second holder is what a lock is for; refused to the first is none.
            return error.errno == errno.EWOULDBLOCK
        finally:
            os.close(second)
        return False
    finally:
        os.close(first)


def measure(folder: Path, most: int, seconds: float) -> dict[str, Any]:
    """Return bytes a second written and read, and whether O_DIRECT was used."""
    descriptor = unnamed_file(folder)
    try:
        direct = _set_direct(descriptor, on=True)
        with mmap.mmap(-1, _BLOCK) as block:  # O_DIRECT wants aligned memory, which pages are
            block.write(os.urandom(1 << 20) * (_BLOCK >> 20))
            try:
                written = _write(descriptor, block, most, seconds / 2)
            except OSError as error:
                if error.errno != errno.EINVAL or not direct:
                    raise
                # A file system may take the flag and refuse what is then written.
                direct = _set_direct(descriptor, on=False)
                written = _write(descriptor, block, most, seconds / 2)
            if not direct:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            read = _read(descriptor, block, written[0], seconds / 2)
    finally:
        os.close(descriptor)
    return {
        "direct": direct,
        "tried": written[0],
        "write": written[0] / written[1],
        "read": read[0] / read[1],
    }


def _set_direct(descriptor: int, *, on: bool) -> bool:
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    flags = flags | os.O_DIRECT if on else flags & ~os.O_DIRECT
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    except OSError:
        return False
    return on


def _write(descriptor: int, block: mmap.mmap, most: int, seconds: float) -> tuple[int, float]:
    done, blocks, began = 0, 0, time.perf_counter()
    while done < most and (not done or time.perf_counter() - began < seconds):
        done += os.pwrite(descriptor, block, done)
        blocks += 1
        if blocks % _FLUSH_EVERY == 0:
            os.fdatasync(descriptor)
    os.fdatasync(descriptor)
    return done, time.perf_counter() - began


def _read(descriptor: int, block: mmap.mmap, most: int, seconds: float) -> tuple[int, float]:
    done, began = 0, time.perf_counter()
    while done < most and (not done or time.perf_counter() - began < seconds):
        count = os.preadv(descriptor, [block], done)
        if count == 0:
            break
        done += count
    return done, time.perf_counter() - began
