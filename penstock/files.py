"""Writing so that a reader never sees half a file, and knows afterwards what is whole."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import (
    CapacityError,
    CorruptFile,
    MissingFile,
    OutputExists,
    TruncatedFile,
)
from penstock.sizes import format_bytes

_CHUNK = 1 << 22


@dataclass(frozen=True)
class FileEntry:
    """One file of a graph as graph.json lists it: relative name, size and SHA-256."""

    name: str
    bytes: int
    sha256: str

    def check_size(self, root: Path, *, listed_in: str, remedy: str) -> None:
        """Raise unless ``root`` has the file with its size; the content is not read."""
        path = root / self.name
        expected = f"{self.bytes} bytes, as {listed_in} lists it"
        try:
            size = path.stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            raise MissingFile(
                f"{path} is missing", expected=f"a file of {expected}", remedy=remedy
            ) from None
        if size != self.bytes:
            raise TruncatedFile(
                f"{path} has the wrong size", expected=expected, got=f"{size} bytes", remedy=remedy
            )

    def check_sum(self, root: Path, *, remedy: str) -> None:
        """Read the file and raise unless it is what was written."""
        got = sha256_of(root / self.name)
        if got != self.sha256:
            raise CorruptFile(
                f"{root / self.name} is not what was written",
                expected=f"SHA-256 {self.sha256}",
                got=got,
                remedy=remedy,
            )


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Give a temporary name beside ``path``; rename it to ``path`` when the block succeeds.

    A full disk becomes CapacityError. Whatever goes wrong, ``path`` is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not the process id: on a shared disk, workers of two hosts may have the same one.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(path) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


def disk_full(path: Path) -> CapacityError:
    """Return the error for a disk that filled up while ``path`` was written."""
    return CapacityError(
        f"the disk is full: could not write {path}",
        got=f"{format_bytes(shutil.disk_usage(path.parent).free)} free",
        remedy="Free some space or write to another disk; what was there before is untouched",
    )


def save_npy(root: Path, name: str, array: np.ndarray[Any, Any]) -> FileEntry:
    """Write ``root/name`` atomically as .npy and return its entry, hashed on the way out."""
    path = root / name
    array = np.ascontiguousarray(array)
    digest = hashlib.sha256()
    with atomic(path) as temporary, temporary.open("wb") as file:
        header = _npy_header(array)
        digest.update(header)
        file.write(header)
        body = array.reshape(-1).view(np.uint8).data
        for start in range(0, len(body), _CHUNK):
            piece = body[start : start + _CHUNK]
            digest.update(piece)
            file.write(piece)
        size = file.tell()
    return FileEntry(name, size, digest.hexdigest())


def file_entry(root: Path, name: str) -> FileEntry:
    """Return the entry of a file that was written by other means."""
    path = root / name
    return FileEntry(name, path.stat().st_size, sha256_of(path))


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal (what ``sha256sum`` prints)."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_json(path: Path, value: Any) -> None:
    """Write ``value`` atomically as indented JSON."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")


@contextmanager
def lock_file(path: Path) -> Iterator[int]:
    """Give the descriptor of ``path``, which is made if need be and never truncated.

    A symbolic link is refused: in a folder that others can write to it may lead anywhere.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        if error.errno != errno.ELOOP:
            raise
        refuse_link(path)
        raise
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def refuse_link(path: Path) -> None:
    """Raise OutputExists where ``path``, a name of ours, is a symbolic link: that is not ours."""
    if path.is_symlink():
        raise OutputExists(
            f"{path} is a symbolic link, and we write nothing through it",
            remedy="Remove it, and ask who made it: it is not ours",
        )


@contextmanager
def fresh_directory(path: Path, *, overwrite: bool = False, kind: str = "graph") -> Iterator[Path]:
    """Give a hidden sibling directory to fill; it becomes ``path`` only when the block succeeds.

    ``kind`` is what it will be: a directory that holds ``<kind>.json``, or, in a Parquet dataset,
    whose readers leave such names out, ``_<kind>.json``. An existing ``path`` is
    refused unless ``overwrite``; then it is replaced in the last step, so that a failure leaves
    the old one as it was.
    """
    # Through symbolic links, to the disk that the graph will really stand on.
    path = path.resolve()
    refuse_existing(path, overwrite=overwrite, kind=kind)
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
        publish(partial, path)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise disk_full(path) from error
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def refuse_existing(path: Path, *, overwrite: bool, kind: str = "graph") -> None:
    """Raise OutputExists where ``path`` is taken, or is something that must not be replaced."""
    if not path.exists():
        return
    named = any((path / name).exists() for name in (f"{kind}.json", f"_{kind}.json"))
    ours = path.is_dir() and (named or not any(path.iterdir()))
    if not ours:
        raise OutputExists(
            f"{path} exists and is not a {kind}",
            remedy=f"Name another output; only a {kind} is replaced, even with --overwrite",
        )
    if not overwrite and any(path.iterdir()):
        raise OutputExists(f"{path} exists", remedy="Name another output or give --overwrite")


def publish(partial: Path, path: Path) -> None:
    """Move a finished directory into place; what stood there goes only once the new one is in."""
    if path.exists():
        old = path.with_name(f".{path.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        path.rename(old)
        try:
            partial.rename(path)
        except BaseException:
            old.rename(path)
            raise
        shutil.rmtree(old)
    else:
        partial.rename(path)


def _npy_header(array: np.ndarray[Any, Any]) -> bytes:
    from io import BytesIO

    buffer = BytesIO()
    np.lib.format.write_array_header_1_0(buffer, np.lib.format.header_data_from_array_1_0(array))
    return buffer.getvalue()
