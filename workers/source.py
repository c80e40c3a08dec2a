"""A graph or partition to copy: its manifest, and a copy that is checked against it."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import UsageError
from penstock.files import FileEntry, save_json
from penstock.manifest import FILE_NAME as GRAPH_FILE
from penstock.manifest import Manifest
from penstock.partition.manifest import FILE_NAME as PARTITION_FILE
from penstock.partition.manifest import PartitionManifest

_CHUNK = 1 << 22
_READERS = 4  # shared storage serves several faster; hashing one stream takes a core
_COPY_AGAIN = "Copy it again from its source, or make it again"


@dataclass(frozen=True)
class Source:
    """What to copy: a graph or a partition, or some files of one."""

    path: Path
    name: str  # of the copy, different for every content
    manifest: str
    body: dict[str, Any]  # of the copy's manifest
    files: tuple[FileEntry, ...]

    @property
    def bytes(self) -> int:
        """The size of the copy."""
        return sum(entry.bytes for entry in self.files) + len(json.dumps(self.body))

    @staticmethod
    def read(path: Path, only: tuple[str, ...] = ()) -> Source:
        """Read the manifest of a graph or partition; ``only`` names files or folders to copy."""
        loaded: Manifest | PartitionManifest
        if (path / PARTITION_FILE).is_file():
            name, loaded = PARTITION_FILE, PartitionManifest.load(path)
            if (path.parent.parent / GRAPH_FILE).is_file():
                loaded.check_graph(path, path.parent.parent)
        else:
            name, loaded = GRAPH_FILE, Manifest.load(path)
        files = _chosen(path, list(loaded.files.values()), only)
        text = (path / name).read_bytes()
        digest = hashlib.sha256(text + b"\0".join(part.encode() for part in ("", *sorted(only))))
        body = json.loads(text)
        body["files"] = {entry.name: body["files"][entry.name] for entry in files}
        return Source(path, f"{path.name}-{digest.hexdigest()[:16]}", name, body, tuple(files))


def _chosen(path: Path, files: list[FileEntry], only: tuple[str, ...]) -> list[FileEntry]:
    for part in only:
        if not any(_is_in(entry.name, part) for entry in files):
            raise UsageError(f"{path} has no {part}", remedy="Name files or folders inside it")
    return [e for e in files if not only or any(_is_in(e.name, part) for part in only)]


def _is_in(name: str, part: str) -> bool:
    return name == part or name.startswith(f"{part.rstrip('/')}/")


def copy_files(source: Source, to: Path, progress: Callable[[], None]) -> None:
    """Copy every file into ``to``, several at once, and the manifest last.

    Sizes and checksums are compared during the copy; the first bad file stops the others.
    ``progress`` is called for every few megabytes.
    """
    for folder in {(to / entry.name).parent for entry in source.files}:
        folder.mkdir(parents=True, exist_ok=True)
    stopped = threading.Event()

    def copy(entry: FileEntry) -> None:
        _copy_file(source, entry, to, go_on)

    def go_on() -> None:
        if stopped.is_set():
            raise InterruptedError("another file could not be copied")
        progress()

    with ThreadPoolExecutor(_READERS, "penstock-copy") as readers:
        copies = [readers.submit(copy, entry) for entry in source.files]
        try:
            done = wait(copies, return_when=FIRST_EXCEPTION).done
        finally:
            stopped.set()
            readers.shutdown(wait=False, cancel_futures=True)
    for future in done:
        future.result()
    save_json(to / source.manifest, source.body)


def _copy_file(source: Source, entry: FileEntry, to: Path, progress: Callable[[], None]) -> None:
    digest, size = hashlib.sha256(), 0
    buffer = memoryview(bytearray(min(_CHUNK, entry.bytes + 1)))
    says = {"listed_in": source.manifest, "remedy": _COPY_AGAIN}
    try:
        reading = (source.path / entry.name).open("rb", buffering=0)
    except (FileNotFoundError, NotADirectoryError):
        raise entry.missing(source.path, **says) from None
    with reading, (to / entry.name).open("xb", buffering=0) as writing:
        while (count := reading.readinto(buffer)) and size <= entry.bytes:
            digest.update(buffer[:count])
            _write_all(writing, buffer[:count])
            size += count
            progress()
        length = os.fstat(reading.fileno()).st_size
        os.fsync(writing.fileno())  # complete under its name, even after a power cut
    # A longer file is not read to its end.
    entry.compare_size(source.path, size if size < entry.bytes else length, **says)
    entry.compare_sum(source.path, digest.hexdigest(), remedy=_COPY_AGAIN)


def _write_all(file: Any, piece: memoryview) -> None:
    while len(piece):
        piece = piece[file.write(piece) :]
