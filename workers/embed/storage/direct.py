"""Files that threads read and write past the page cache, each with one request in flight.

Reads go directly into host memory that begins at a page. For other memory and for GPUs, each thread
has a buffer, pinned for a GPU: while one is copied, the others are read or written. If the file
system does not support O_DIRECT, the page cache is used.
"""

from __future__ import annotations

import errno
import mmap
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.errors import MissingFile, PenstockError, TruncatedFile, UsageError
from penstock.files import atomic
from penstock.system_errors import disk_full, full_disk_explained, is_disk_full
from penstock.workers.embed.spec import Storage
from penstock.workers.embed.storage import PAGE, RESTORE, THREADS, Geometry, Moved, Slot, Version
from penstock.workers.embed.storage.copying import Copying, DeviceCopying, HostCopying
from penstock.workers.embed.storage.place import (
    Chunk,
    check_sum,
    chunks,
    read_page,
    sum_of,
    write_page,
)
from penstock.workers.training.checkpoint import sync


class OpenFile:
    """The open file of a version.

    why_not_direct  why O_DIRECT is not used; None: it is
    """

    def __init__(self, path: Path, fd: int, why_not_direct: str | None) -> None:
        self.path, self.fd, self.why_not_direct = path, fd, why_not_direct

    def write_bytes(self, data: Array, offset: int) -> None:
        """Write all of ``data``, (n,) uint8 that begins at a page, at ``offset``."""
        done = 0
        while done < len(data):
            with writing(self.path, offset + done):
                done += os.pwrite(self.fd, data[done:].data, offset + done)

    def read_bytes(self, out: Array, offset: int) -> None:
        """Fill ``out``, (n,) uint8 that begins at a page, from ``offset``."""
        done = 0
        while done < len(out):
            with reading(self.path, offset + done):
                got = os.preadv(self.fd, [out[done:].data], offset + done)
            if got == 0:
                raise short_file(self.path, offset + done)
            done += got

    def close(self) -> None:
        """Close it."""
        os.close(self.fd)


class PartitionFiles:
    """The versions of a table's partitions, on which ``threads`` threads make requests.

    Requests return at once; the future ends when the request is done. Until then the slot of the
    request belongs to the table. The future raises CorruptFile if the file does not have the
    requested version, CapacityError if the disk is full, and PenstockError with file and offset if
    it cannot be read or written.

    folder   of checkpoints, with the versions that a checkpoint names
    scratch  the folder of versions that no checkpoint names yet [default: that of checkpoints]
    direct   whether to try O_DIRECT
    device   whether slots are in GPU memory
    """

    def __init__(
        self,
        folder: Path,
        geometry: Geometry,
        *,
        scratch: Path | None = None,
        threads: int = THREADS,
        direct: bool = True,
        device: bool = False,
    ) -> None:
        self.folder, self.geometry = folder, geometry
        self.scratch = folder if scratch is None else scratch
        self._copying: Copying = DeviceCopying() if device else HostCopying()
        self.threads, self._direct, self._local = threads, direct, threading.local()
        self.chunks = tuple(chunks(geometry))
        self._here: dict[int, Version] = {}  # the version of each partition on scratch
        self._pool = ThreadPoolExecutor(
            threads, thread_name_prefix="embed-table", initializer=self._copying.enter_thread
        )

    # -- which file ------------------------------------------------------------------------------

    def path(self, version: Version) -> Path:
        """Return the path of a version."""
        is_here = self._here.get(version.partition) == version
        return (self.scratch if is_here else self.folder) / version.name

    def check(self, versions: Iterable[Version]) -> None:
        """Raise unless the file of each version exists with the right size."""
        for version in versions:
            path, size = self.path(version), self.geometry.file_bytes
            if version.number and not path.is_file():
                raise _missing(path, size)
            if version.number and path.stat().st_size != size:
                raise TruncatedFile(
                    f"{path} has the wrong size",
                    expected=f"{size} bytes",
                    got=f"{path.stat().st_size} bytes",
                    remedy=RESTORE,
                )

    def publish(self, versions: Iterable[Version]) -> None:
        """Move versions to the folder of checkpoints, and wait until they are on its disk."""
        for _ in self._pool.map(self._publish, versions):
            pass
        sync(self.folder)

    def _publish(self, version: Version) -> None:
        here, there = self.path(version), self.folder / version.name
        with writing(here, 0):
            sync(here)
        if here == there:
            del self._here[version.partition]
            return
        try:
            here.replace(there)
            del self._here[version.partition]
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with atomic(there) as temporary:  # the version on scratch stays, to be read
                shutil.copyfile(here, temporary)
                sync(temporary)

    def forget(self, partition: int) -> None:
        """Remove the version of a partition on scratch: another rank has the partition now."""
        if (version := self._here.pop(partition, None)) is not None:
            (self.scratch / version.name).unlink()

    def _place(self, version: Version) -> Path:
        """Return the path to write a version to; it takes the place of the one on scratch."""
        path, before = self.scratch / version.name, self._here.get(version.partition)
        if before not in (None, version):
            (self.scratch / before.name).rename(path)
        self._here[version.partition] = version
        return path

    def open(self, version: Version, *, to_write: bool) -> OpenFile:
        """Open the file of a version; allocate all of its space if it is to be written."""
        path = self._place(version) if to_write else self.path(version)
        if to_write:
            make_file(path, self.geometry)
        try:
            fd, why = open_direct(path, os.O_RDWR if to_write else os.O_RDONLY, direct=self._direct)
        except FileNotFoundError as error:
            raise _missing(path, self.geometry.file_bytes) from error
        return OpenFile(path, fd, why)

    # -- requests --------------------------------------------------------------------------------

    def exchange(
        self, slot: Slot, *, store: Version | None = None, load: Version | None = None
    ) -> Future[Moved]:
        """Write ``slot`` as version ``store``, and then read version ``load`` into it.

        Chunk by chunk, so that reads and writes are in flight together.
        """
        check_slot(slot, self.geometry)
        request = _Request(self, slot, store, load, self._copying.ready())
        if request.open():
            for chunk in self.chunks:
                self._pool.submit(request.move, chunk)
        return request.future

    def write(self, slot: Slot, version: Version) -> Future[Moved]:
        """Write ``slot`` as ``version``."""
        return self.exchange(slot, store=version)

    def read(self, version: Version, slot: Slot) -> Future[Moved]:
        """Read ``version`` into ``slot``, and verify its sums."""
        return self.exchange(slot, load=version)

    def close(self) -> None:
        """Wait for requests in flight."""
        self._pool.shutdown(wait=True, cancel_futures=False)

    def store_chunk(self, file: OpenFile, memory: AnyArray, offset: int) -> int:
        """Write a slot's bytes at ``offset``; return their sum."""
        host = memory
        if not self._copying.is_direct(memory):
            host = self.buffer(len(memory))
            self._copying.to_host(memory, host)
        file.write_bytes(host, offset)
        return sum_of(host.view(np.uint64))

    def load_chunk(self, file: OpenFile, memory: AnyArray, offset: int) -> int:
        """Read a slot's bytes from ``offset``; return their sum."""
        direct = self._copying.is_direct(memory)
        host = memory if direct else self.buffer(len(memory))
        file.read_bytes(host, offset)
        if not direct:
            self._copying.from_host(host, memory)
        return sum_of(host.view(np.uint64))

    def buffer(self, size: int) -> Array:
        """Return this thread's buffer, which begins at a page: (size,) uint8."""
        found: Array | None = getattr(self._local, "buffer", None)
        if found is None:
            found = self._copying.new_buffer(max(PAGE, self.geometry.chunk_bytes))
            self._local.buffer = found
        return found[:size]


class _Request:
    """One exchange: the table's threads move its chunks; the last chunk ends it."""

    def __init__(
        self,
        table: PartitionFiles,
        slot: Slot,
        store: Version | None,
        load: Version | None,
        ready: Callable[[], None],
    ) -> None:
        self.future: Future[Moved] = Future()
        self._table, self._store, self._load, self._ready = table, store, load, ready
        self._to: OpenFile | None = None
        self._from: OpenFile | None = None
        self._arrays = [array.reshape(-1).view(np.uint8) for array in slot]
        count = len(table.chunks)
        self._stored, self._loaded = [0] * count, [0] * count
        self._left = count
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._started = 0.0

    def open(self) -> bool:
        """Open its files; if that fails, end the request and return False."""
        try:
            if self._store is not None:
                self._to = self._table.open(self._store, to_write=True)
            if self._load is not None:
                self._from = self._table.open(self._load, to_write=False)
        except BaseException as error:
            self._error = error
            self._end()
        return self._error is None

    def move(self, chunk: Chunk) -> None:
        """Move one chunk; an error ends the request."""
        try:
            if self._error is None:
                self._ready()  # it waits for kernels, which is not I/O
                if self._started == 0.0:
                    self._started = time.perf_counter()
                self._move(chunk)
        except BaseException as error:  # raised by the future
            self._error = self._error or error
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._end()

    def _move(self, chunk: Chunk) -> None:
        table = self._table
        memory = self._arrays[chunk.array][chunk.start : chunk.stop]
        if self._to is not None:
            self._stored[chunk.number] = table.store_chunk(self._to, memory, chunk.offset)
        if self._from is not None:
            self._loaded[chunk.number] = table.load_chunk(self._from, memory, chunk.offset)

    def _end(self) -> None:
        try:
            if self._error is None:
                self._end_pages()
        except BaseException as error:
            self._error = error
        for file in (self._to, self._from):
            if file is not None:
                file.close()
        if self._error is not None:
            self.future.set_exception(self._error)
            return
        size = self._table.geometry.file_bytes
        self.future.set_result(
            Moved(
                0 if self._load is None else size,
                0 if self._store is None else size,
                self._started,
                time.perf_counter(),
            )
        )

    def _end_pages(self) -> None:
        table = self._table
        page = table.buffer(PAGE)
        if self._to is not None and self._store is not None:
            write_page(self._store, table.geometry, self._stored, page.data)
            self._to.write_bytes(page, 0)
        if self._from is not None and self._load is not None:
            self._from.read_bytes(page, 0)
            expected = read_page(self._load, table.geometry, page.data, self._from.path)
            for chunk in table.chunks:
                got = self._loaded[chunk.number]
                check_sum(chunk, expected[chunk.number], got, self._from.path)


def open_table(
    folder: Path,
    geometry: Geometry,
    *,
    device: bool,
    scratch: Path | None = None,
    threads: int = THREADS,
    storage: Storage | None = None,
) -> PartitionFiles:
    """Return the files of a table.

    device   whether its slots are in GPU memory
    storage  how they are read and written [default: kvikio if GPUDirect Storage works, else
             threads]
    """
    given: dict[str, Any] = {"scratch": scratch, "threads": threads, "device": device}
    if storage == "queues":
        from penstock.workers.embed.storage.queue_files import QueueFiles

        return QueueFiles(folder, geometry, **given)
    if storage == "kvikio" and not (device and find_spec("kvikio")):
        raise UsageError(
            "--storage kvikio needs a GPU and kvikio",
            remedy="Install kvikio-cu12, or take --storage threads",
        )
    if device and storage != "threads":
        from penstock.workers.embed.storage.gpu import KvikioFiles, has_gds

        if storage == "kvikio" or has_gds():
            return KvikioFiles(folder, geometry, **given)
    return PartitionFiles(folder, geometry, **given)


def aligned_bytes(size: int) -> Array:
    """Return zeroed host memory that begins at a page: (size,) uint8."""
    return np.frombuffer(mmap.mmap(-1, max(size, 1)), np.uint8, size)


def make_file(path: Path, geometry: Geometry) -> None:
    """Make the file of a version, with all of its space allocated, unless it has the right size.

    A file of the right size has all of its space.
    """
    with full_disk_explained(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            if os.fstat(fd).st_size != geometry.file_bytes:
                os.posix_fallocate(fd, 0, geometry.file_bytes)
                os.ftruncate(fd, geometry.file_bytes)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)


def _missing(path: Path, size: int) -> MissingFile:
    return MissingFile(f"{path} is missing", expected=f"{size} bytes", remedy=RESTORE)


def open_direct(
    path: Path, access: int = os.O_RDWR, *, direct: bool = True
) -> tuple[int, str | None]:
    """Open ``path``, with O_DIRECT if that works; return its descriptor, and why it does not."""
    flags = access | os.O_NOFOLLOW | os.O_CLOEXEC
    if not direct:
        return os.open(path, flags), "it was not asked for"
    if not hasattr(os, "O_DIRECT"):
        return os.open(path, flags), "this system has no O_DIRECT"
    try:
        fd = os.open(path, flags | os.O_DIRECT)
    except OSError as error:
        if error.errno not in _REFUSED:
            raise
        return os.open(path, flags), f"its file system does not open with O_DIRECT ({error})"
    try:
        os.preadv(fd, [aligned_bytes(PAGE).data], 0)
    except OSError as error:
        os.close(fd)
        if error.errno not in _REFUSED:
            raise
        return os.open(path, flags), f"its file system does not read with O_DIRECT ({error})"
    return fd, None


_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTTY)


def check_slot(slot: Slot, geometry: Geometry) -> None:
    """Assert that a slot has the shape of ``geometry``: otherwise a read writes to other memory."""
    assert len(slot) == geometry.arrays
    for array in slot:
        assert array.shape == (geometry.rows, geometry.width)
        assert array.dtype == np.float32
        assert array.flags.c_contiguous


@contextmanager
def reading(path: Path, offset: int) -> Iterator[None]:
    """Turn an OSError of this block into an error that names the file and the offset."""
    try:
        yield
    except OSError as error:
        raise PenstockError(
            f"cannot read {path} at offset {offset}", got=error.strerror or str(error)
        ) from error


@contextmanager
def writing(path: Path, offset: int) -> Iterator[None]:
    """Turn an OSError of this block into an error that names the file and the offset."""
    try:
        yield
    except OSError as error:
        if is_disk_full(error):
            raise disk_full(path, f" at offset {offset}") from error
        raise PenstockError(
            f"cannot write {path} at offset {offset}", got=error.strerror or str(error)
        ) from error


def short_file(path: Path, offset: int) -> TruncatedFile:
    """Return the error of a file that is too short."""
    return TruncatedFile(
        f"{path} ends too early",
        expected=f"more at offset {offset}",
        got="its end",
        remedy=RESTORE,
    )
