"""Find and open input files: paths, folders, globs and fsspec URLs."""

from __future__ import annotations

import glob
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from penstock.errors import InputError, MissingExtra, UsageError
from penstock.output import file_stamp

_SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".txt": "edgelist",
    ".edgelist": "edgelist",
    ".el": "edgelist",
    ".edges": "edgelist",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".npz": "npz",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}
_CODECS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
# A folder of these formats may hold any of several kinds of tables.
_TABLES = {
    "triples": ("triples", "edgelist", "tsv", "csv", "parquet", "arrow"),
    "zoo": ("parquet", "csv", "tsv", "edgelist", "arrow"),
    "edgelists": ("edgelist", "csv", "tsv"),
    "lists": ("parquet", "arrow"),
    "text": ("edgelist",),
    "vectors": ("parquet", "arrow"),
}
_LOOK = 1 << 20
# Names under which file systems report the version of a file; fsspec does not unify them.
_STAMPED = (
    "size",
    "mtime",
    "created",
    "updated",
    "LastModified",
    "last_modified",
    "modified",
    "Last-Modified",
    "ETag",
    "etag",
    "Content-MD5",
    "Digest",
    "md5Hash",
    "generation",
    "VersionId",
)


def format_of(path: str) -> str | None:
    """Return the format by a file's name; None if the name does not decide it."""
    name = _name(path)
    for codec in _CODECS:
        name = name.removesuffix(codec)
    return _SUFFIXES.get(os.path.splitext(name)[1])  # noqa: PTH122  (may be a URL)


def codec_of(path: str) -> str | None:
    """Return pyarrow's name of the compression, by a file's name."""
    return _CODECS.get(os.path.splitext(_name(path))[1])  # noqa: PTH122


def without_archive(path: str) -> str:
    """Return a path without the archive that the file is in: ``zip://a.csv::b.zip``."""
    return next((part for part in path.split("::") if "://" in part), path)


def file_name(path: str) -> str:
    """Return the last part of a path or URL."""
    return without_archive(path).rstrip("/").rsplit("/", 1)[-1]


def table_format(path: str, kind: str) -> str:
    """Return how a file is read: triples and zoos may be stored in Parquet or in text."""
    by_name = format_of(path)
    if kind == "zoo":
        return by_name if by_name in _TABLES["zoo"] else "csv"
    if kind == "triples" and by_name in ("parquet", "arrow"):
        return by_name
    return kind


def find_files(paths: Sequence[str], kind: str | None = None) -> list[str]:
    """Return all files of ``paths``, sorted: files, folders, globs, fsspec URLs.

    In a folder, at any depth, files count whose names fit the format ``kind`` (None: all); hidden
    files and files that begin with _ (such as _SUCCESS) do not.
    """
    found: set[str] = set()
    for path in paths:
        found.update(_matches(str(path), kind))
    return sorted(found)


def is_folder(path: str) -> bool:
    """Say whether ``path`` names a folder."""
    if not _is_url(path):
        return Path(_local(path)).is_dir()
    system, inside = _filesystem(path)
    return bool(system.isdir(inside))


def file_size(path: str) -> int:
    """Return a file's size in bytes."""
    if not _is_url(path):
        return Path(_local(path)).stat().st_size
    system, inside = _filesystem(path)
    return int(system.size(inside))


def stamp_of(path: str) -> Any:
    """Return what identifies this version of a file: JSON; None if nothing does."""
    try:
        if not _is_url(path):
            return file_stamp(_local(path))
        system, inside = _filesystem(path)
        system.invalidate_cache()
        known = {**system.info(inside), "url": path}  # some servers report no modification time
        names = (*_STAMPED, "url")
        found = sorted((name, str(known[name])) for name in names if known.get(name) is not None)
        return [*found, stamp_of(archive)] if (archive := _archive(path)) else found
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot read {path}", got=str(error)) from error


@contextmanager
def open_file(path: str) -> Iterator[BinaryIO]:
    """Open a file's raw bytes, to seek and read."""
    try:
        if _is_url(path):
            system, inside = _filesystem(path)
            file = _seekable(system.open(inside, "rb"), path)
        else:
            file = Path(_local(path)).open("rb")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"cannot read {path}", got=str(error)) from error
    with file:
        yield file


def _seekable(file: BinaryIO, path: str) -> BinaryIO:
    """Return a file that can be read from any byte; some web servers only send whole files."""
    if not path.startswith(("http://", "https://")):
        return file
    try:
        file.seek(max(file.seek(0, io.SEEK_END) - 1, 0))
        file.read(1)
    except ValueError:
        with file:
            file.seek(0)
            return io.BytesIO(file.read())
    file.seek(0)
    return file


@contextmanager
def open_stream(path: str) -> Iterator[Any]:
    """Open a file for reading from its beginning, decompressed."""
    codec = codec_of(path)
    with open_file(path) as file:
        if codec is None:  # fsspec's files cannot limit the length of a line
            yield io.BufferedReader(file) if _is_url(path) else file
            return
        with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), codec) as stream:
            yield io.BufferedReader(_Decompressed(stream, path))


def head_of(path: str, size: int = _LOOK) -> bytes:
    """Return the first ``size`` bytes, decompressed."""
    with open_stream(path) as stream:
        return read_fully(stream, size)


def read_fully(stream: BinaryIO, size: int) -> bytes:
    """Read ``size`` bytes, or up to the end; one read of a compressed stream may return less."""
    first: bytes = stream.read(size)
    if len(first) in (0, size):
        return first
    parts = io.BytesIO()
    parts.write(first)
    while parts.tell() < size:
        part = stream.read(size - parts.tell())
        if not part:
            break
        parts.write(part)
    return parts.getvalue()


class _Decompressed(io.RawIOBase):
    """A decompressing stream whose errors name the file."""

    def __init__(self, stream: Any, path: str) -> None:
        self._stream, self._path = stream, path

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any) -> int:
        try:
            return int(self._stream.readinto(into))
        except OSError as error:
            raise InputError(
                f"{self._path} cannot be decompressed",
                got=str(error),
                remedy="The file is damaged, cut short, or not compressed as its name says",
            ) from error


def _matches(path: str, kind: str | None) -> list[str]:
    found = _remote_matches(path, kind) if _is_url(path) else _local_matches(path, kind)
    if not found:
        raise InputError(f"{path} does not exist", remedy="Check the spelling of the path")
    return found


def _local_matches(path: str, kind: str | None) -> list[str]:
    local = Path(_local(path))
    if local.is_dir():
        files = (p for p in local.rglob("*") if p.is_file())
        return _fitting(path, {p.relative_to(local).as_posix(): str(p) for p in files}, kind)
    if local.is_file():
        return [str(local)]
    found = glob.glob(str(local), recursive=True)  # noqa: PTH207  (Path.glob wants a root)
    return [name for name in found if Path(name).is_file()]


def _remote_matches(path: str, kind: str | None) -> list[str]:
    system, inside = _filesystem(path)
    archive = _archive(path)

    def url(name: str) -> str:
        return str(system.unstrip_protocol(name)) + (f"::{archive}" if archive else "")

    try:
        if system.isdir(inside):
            names = system.find(inside)
            cut = len(inside.rstrip("/")) + 1
            return _fitting(path, {name[cut:]: url(name) for name in names}, kind)
        if system.isfile(inside):
            return [path]
        found = system.glob(inside, detail=True)
        return [url(name) for name, info in found.items() if info["type"] == "file"]
    except OSError as error:
        raise InputError(f"cannot reach {path}", got=str(error)) from error


def _fitting(folder: str, names: dict[str, str], kind: str | None) -> list[str]:
    """Return a folder's files that fit ``kind``; if none fits, those without a suffix.

    names  maps a file's name inside the folder to its path
    """
    visible = [
        path
        for name, path in names.items()
        if not any(part.startswith((".", "_")) for part in name.split("/"))
    ]
    if kind is None and visible:
        return visible
    wanted = _TABLES.get(str(kind), (kind,))
    fitting = [path for path in visible if format_of(path) in wanted]
    fitting = fitting or [path for path in visible if "." not in _name(path)]
    if not fitting:
        raise InputError(
            f"the folder {folder} has no files to read" + (f" as {kind}" if kind else ""),
            got=", ".join(_name(path) for path in visible[:5]) or "no files",
            remedy="Name the files, or give --format",
        )
    return fitting


def _filesystem(path: str) -> tuple[Any, str]:
    import fsspec

    protocol = path.split("://", 1)[0]
    try:
        system, inside = fsspec.core.url_to_fs(path)
    except ImportError as error:
        raise MissingExtra(
            f"{path} cannot be read: fsspec lacks the package for {protocol}://",
            got=str(error),
            remedy="pip install the package it names",
        ) from error
    except ValueError as error:
        raise UsageError(
            f"{path} cannot be read",
            got=str(error),
            remedy="Give a local path, or a URL that fsspec knows, such as s3:// or gs://",
        ) from error
    return system, inside


def _is_url(path: str) -> bool:
    return "://" in path and not path.startswith("file://")


def _archive(path: str) -> str:
    """Return the file that holds another, as in ``zip://a.csv::b.zip``, or nothing."""
    first, _, archive = path.partition("::")
    return archive if "://" in first else ""


def _local(path: str) -> str:
    return os.path.expanduser(path.removeprefix("file://"))  # noqa: PTH111


def _name(path: str) -> str:
    return file_name(path).lower()
