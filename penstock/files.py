"""Writing files so that readers never see half a file, and complete ones are known."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from penstock.errors import (
    CorruptFile,
    MissingFile,
    TruncatedFile,
)
from penstock.limits import cores
from penstock.progress import Progress
from penstock.system_errors import full_disk_explained

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

    from penstock.arrays import Array

_CHUNK = 1 << 22
_LARGE = 1 << 24  # bytes: unlinking takes more than a millisecond
TEMPORARY = re.compile(r"\..*\.[0-9a-f]{8}\.tmp")  # the names that atomic() gives


@dataclass(frozen=True)
class FileEntry:
    """One file of a graph as graph.json lists it: relative name, size and SHA-256."""

    name: str
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        parts = PurePosixPath(self.name).parts
        if not parts or self.name.startswith("/") or ".." in parts or "\0" in self.name:
            # Format.reading, which knows the manifest, turns it into a CorruptFile.
            raise ValueError(f"{self.name!r}, which is not a file in this directory")

    def check_size(self, root: Path, *, listed_in: str, remedy: str) -> None:
        """Raise unless ``root`` has the file with its size; the content is not read."""
        try:
            size = (root / self.name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            raise self.missing(root, listed_in=listed_in, remedy=remedy) from None
        self.compare_size(root, size, listed_in=listed_in, remedy=remedy)

    def check_sum(self, root: Path, *, remedy: str) -> None:
        """Read the file and raise unless its checksum matches."""
        self.compare_sum(root, sha256_of(root / self.name), remedy=remedy)

    def missing(self, root: Path, *, listed_in: str, remedy: str) -> MissingFile:
        """Return the error of a file that does not exist."""
        expected = f"a file of {self.bytes} bytes, as {listed_in} lists it"
        return MissingFile(f"{root / self.name} is missing", expected=expected, remedy=remedy)

    def compare_size(self, root: Path, size: int, *, listed_in: str, remedy: str) -> None:
        """Raise unless ``size`` is that of the file."""
        if size != self.bytes:
            raise TruncatedFile(
                f"{root / self.name} has the wrong size",
                expected=f"{self.bytes} bytes, as {listed_in} lists it",
                got=f"{size} bytes",
                remedy=remedy,
            )

    def compare_sum(self, root: Path, sha256: str, *, remedy: str) -> None:
        """Raise unless ``sha256`` is that of the file."""
        if sha256 != self.sha256:
            raise CorruptFile(
                f"{root / self.name} differs from what was written",
                expected=f"SHA-256 {self.sha256}",
                got=sha256,
                remedy=remedy,
            )


def check_sums(
    root: Path, entries: Collection[FileEntry], *, remedy: str, quiet: bool = True
) -> None:
    """Read all files and raise unless each one's checksum matches."""
    total = sum(entry.bytes for entry in entries)
    with Progress("check files", total=total, unit="B", quiet=quiet) as progress:
        for entry in entries:
            entry.check_sum(root, remedy=remedy)
            progress.advance(entry.bytes)


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """Give a temporary name next to ``path``; rename it to ``path`` when the block succeeds.

    A full disk becomes CapacityError. On any failure ``path`` is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not the process id: workers of two hosts with a shared disk may have the same one.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with full_disk_explained(path):
            yield temporary
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def link(source: str | Path, target: str | Path) -> None:
    """Make ``target`` a hard link, or a copy on another file system or one without links."""
    with atomic(Path(target)) as temporary:
        try:
            os.link(source, temporary)
        except OSError:
            shutil.copyfile(source, temporary)


def link_same(
    base: Path, before: Mapping[str, FileEntry], root: Path, entries: Iterable[FileEntry]
) -> int:
    """Replace new files that are the same as those of ``base`` by links; count those."""
    same = [entry.name for entry in entries if before.get(entry.name) == entry]
    for name in same:
        link(base / name, root / name)
    return len(same)


def map_npy(path: Path, shape: tuple[int, ...], dtype: Any) -> Any:
    """Make a .npy file and map it for writing, as a ``numpy.memmap``.

    All of its space is allocated: if the disk is full, a write to a mapped page ends the process.
    """
    import numpy as np

    with full_disk_explained(path):
        array = np.lib.format.open_memmap(path, "w+", dtype, shape)
        with path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
    return array


def save_npy(root: Path, name: str, array: Array) -> FileEntry:
    """Write ``root/name`` atomically as .npy and return its entry, hashed while it is written."""
    import numpy as np  # not needed for help

    array = np.ascontiguousarray(array)
    with npy_writer(root, name, array.shape, array.dtype) as writer:
        writer.add(array)
    return writer.entry


class NpyWriter:
    """An .npy file made piece by piece: one thread hashes it and another one writes it."""

    entry: FileEntry  # once it is complete

    def __init__(self, file: Any) -> None:
        self._file, self._digest = file, hashlib.sha256()
        self._threads: list[ThreadPoolExecutor] = []
        self._under_way: list[Future[Any]] = []

    def add(self, piece: Array) -> list[Future[Any]]:
        """Append numbers in memory order; they must stay unchanged until the futures are done."""
        return self._add(piece.reshape(-1).view("u1").data)

    def _add(self, data: Any) -> list[Future[Any]]:
        if len(data) < _CHUNK and not self._threads:  # not worth a thread
            self._digest.update(data)
            self._file.write(data)
            return []
        from concurrent.futures import ThreadPoolExecutor

        if not self._threads:  # neither hashing nor writing holds the GIL
            self._threads = [ThreadPoolExecutor(1), ThreadPoolExecutor(1)]
        hashing, writing = self._threads
        made = [hashing.submit(self._digest.update, data), writing.submit(self._write, data)]
        self._under_way += made
        return made

    def _write(self, data: Any) -> None:
        for start in range(0, len(data), _CHUNK):
            self._file.write(data[start : start + _CHUNK])

    def _end(self, name: str) -> None:
        for one in self._under_way:
            one.result()
        self.entry = FileEntry(name, self._file.tell(), self._digest.hexdigest())

    def _close(self) -> None:
        for thread in self._threads:
            thread.shutdown(wait=True, cancel_futures=True)


@contextmanager
def npy_writer(root: Path, name: str, shape: tuple[int, ...], dtype: Any) -> Iterator[NpyWriter]:
    """Give a writer that makes ``root/name`` atomically as .npy; the block's end sets its entry."""
    with atomic(root / name) as temporary, temporary.open("wb") as file:
        writer = NpyWriter(file)
        try:
            writer._add(npy_header(shape, dtype))
            yield writer
            writer._end(name)
        finally:
            writer._close()


def file_entry(root: Path, name: str) -> FileEntry:
    """Return the entry of an existing file."""
    path = root / name
    return FileEntry(name, path.stat().st_size, sha256_of(path))


def file_table(entries: Iterable[FileEntry]) -> dict[str, dict[str, Any]]:
    """Return files by name, in the format of a manifest."""
    return {entry.name: {"bytes": entry.bytes, "sha256": entry.sha256} for entry in entries}


def shown_files(output: Path, *, links: bool = False) -> dict[str, Path]:
    """Return the files of an output by their names within it; what is hidden is left out.

    links  whether symbolic links to folders are followed
    """
    if output.is_file():
        return {output.name: output}
    found = {}
    for folder, inner, names in os.walk(output, followlinks=links):
        inner[:] = sorted(one for one in inner if not one.startswith("."))
        for path in (Path(folder, one) for one in sorted(names) if not one.startswith(".")):
            if path.is_file():
                found[path.relative_to(output).as_posix()] = path
    return found


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal (like ``sha256sum``)."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def save_text(path: Path, text: str) -> None:
    """Write a text file atomically; a symbolic link of that name is replaced, not followed."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def save_json(path: Path, value: Any) -> None:
    """Write ``value`` atomically as indented JSON."""
    save_text(path, json.dumps(value, indent=1, allow_nan=False) + "\n")


def append_text(path: Path, text: str) -> None:
    """Append to a text file, created if needed, without following a link.

    If the disk is full, nothing is appended.
    """
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with (
        full_disk_explained(path),
        os.fdopen(os.open(path, flags, 0o666), "ab", buffering=0) as file,
    ):
        before, left = os.fstat(file.fileno()).st_size, memoryview(text.encode())
        try:
            while left:
                left = left[file.write(left) :]
        except OSError:
            file.truncate(before)
            raise


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Give a hidden name next to ``path``; if the block succeeds, that file or folder replaces it.

    ``path`` has one writer at a time: remains of a killed one have the same name, and are removed
    first.
    """
    partial = path.with_name(f".{path.name}.partial")
    remove(partial)
    try:
        with full_disk_explained(path):
            yield partial
            remove(path)
            partial.rename(path)
    finally:
        with suppress(OSError):
            remove(partial)


def remove(path: Path) -> None:
    """Remove a file, a folder with its content, or a link, if it exists.

    Several threads remove large files: the system frees pages while it unlinks.
    """
    if path.is_dir() and not path.is_symlink():
        large = [
            file for file in path.rglob("*") if file.is_file() and file.lstat().st_size > _LARGE
        ]
        if len(large) > 1:
            from concurrent.futures import ThreadPoolExecutor

            with ThreadPoolExecutor(min(cores(), len(large), 16)) as pool:
                list(pool.map(Path.unlink, large))
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class FileRanges:
    """How the rows of an output are spread over files: ``each`` per file, the last has the rest.

    Only the job decides it, so that any cluster writes the same files.
    """

    rows: int
    each: int

    @property
    def count(self) -> int:
        """The number of files."""
        return -(-self.rows // self.each)

    def range(self, number: int) -> tuple[int, int]:
        """Return the rows of a file: first, and one after the last."""
        first = number * self.each
        return first, min(self.rows, first + self.each)

    def sizes(self, numbers: Iterable[int]) -> list[int]:
        """Return the numbers of rows of some files."""
        return [last - first for first, last in map(self.range, numbers)]


def part_name(number: int) -> str:
    """Return the name of a part of a dataset, without its ending."""
    return f"part-{number:05d}"


def remove_temporaries(folder: Path) -> None:
    """Remove files that a killed process left in ``atomic``; no process may be writing there."""
    for path in folder.glob(".*.tmp"):
        if TEMPORARY.fullmatch(path.name) and not path.is_dir():
            path.unlink(missing_ok=True)


def npy_header(shape: tuple[int, ...], dtype: Any) -> bytes:
    """Return how an .npy file of a shape and type begins."""
    from io import BytesIO

    import numpy as np

    buffer = BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False}
    np.lib.format.write_array_header_1_0(buffer, {**described, "shape": shape})
    return buffer.getvalue()
