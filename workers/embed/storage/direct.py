"""A table that threads read and write past the page cache, each with one request in flight.

Reads go directly into host memory that begins at a page. For other memory and for GPUs, each thread
has a buffer, pinned for a GPU: while one is copied, the others are read or written. If the file
system does not support O_DIRECT, the page cache is used.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.errors import MissingFile, PenstockError, TruncatedFile
from penstock.system_errors import disk_full, full_disk_explained, is_disk_full
from penstock.workers.embed.storage import (
    PAGE,
    RESTORE,
    THREADS,
    Geometry,
    Moved,
    PartitionFile,
    Slot,
    Version,
    need_table_disk,
)
from penstock.workers.embed.storage.copying import Copying, DeviceCopying, HostCopying
from penstock.workers.embed.storage.place import (
    Chunk,
    check_sum,
    chunks,
    read_page,
    sum_of,
    write_page,
)

_AHEAD = 4  # chunks of a stream that are read ahead


class DirectFile(PartitionFile):
    """A table on which ``threads`` threads make requests, with O_DIRECT if possible.

    direct     whether to try O_DIRECT
    device     whether slots are in GPU memory
    read_only  whether it must exist with the right size, and is not written
    """

    def __init__(
        self,
        path: Path,
        geometry: Geometry,
        *,
        threads: int = THREADS,
        direct: bool = True,
        device: bool = False,
        read_only: bool = False,
    ) -> None:
        self.path, self.geometry = path, geometry
        (check_file if read_only else make_file)(path, geometry)
        access = os.O_RDONLY if read_only else os.O_RDWR
        self._copying: Copying = DeviceCopying() if device else HostCopying()
        self._fd, self.why_not_direct = open_direct(path, access, direct=direct)
        self._local = threading.local()
        self._chunks = tuple(chunks(geometry))
        self._pool = ThreadPoolExecutor(
            threads, thread_name_prefix="embed-table", initializer=self._copying.enter_thread
        )

    def exchange(
        self, slot: Slot, *, store: Version | None = None, load: Version | None = None
    ) -> Future[Moved]:
        """Write ``slot`` as version ``store``, and then read version ``load`` into it."""
        check_slot(slot, self.geometry)
        request = _Request(self, slot, store, load, self._copying.ready())
        for chunk in self._chunks:
            self._pool.submit(request.move, chunk)
        return request.future

    def stream(self, version: Version) -> Iterator[tuple[int, Array]]:
        """Yield ``version`` chunk by chunk; a few are read ahead."""
        at, page = self.offset(version), aligned_bytes(PAGE)
        self.read_bytes(page, at)
        expected = read_page(version, self.geometry, page.data, self.path)
        buffers = [aligned_bytes(self.geometry.chunk_bytes) for _ in range(_AHEAD)]

        def read(chunk: Chunk) -> Array:
            data = buffers[chunk.number % _AHEAD][: chunk.stop - chunk.start]
            self.read_bytes(data, at + chunk.offset)
            got, where = sum_of(data.view(np.uint64)), at + chunk.offset
            check_sum(version, chunk, expected[chunk.number], got, self.path, where)
            return data

        ahead = deque(self._pool.submit(read, chunk) for chunk in self._chunks[:_AHEAD])
        try:
            for chunk in self._chunks:
                yield chunk.array, ahead.popleft().result()
                later = chunk.number + _AHEAD
                if later < len(self._chunks):
                    ahead.append(self._pool.submit(read, self._chunks[later]))
        finally:
            wait(ahead)

    def flush(self) -> None:
        """Wait until all writes are on the disk."""
        with writing(self.path, 0):
            os.fdatasync(self._fd)

    def close(self) -> None:
        """Wait for requests in flight, and close the file."""
        self._pool.shutdown(wait=True, cancel_futures=False)
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def store_chunk(self, memory: AnyArray, offset: int) -> int:
        """Write a slot's bytes at ``offset``; return their sum."""
        host = memory
        if not self._copying.is_direct(memory):
            host = self.buffer(len(memory))
            self._copying.to_host(memory, host)
        self.write_bytes(host, offset)
        return sum_of(host.view(np.uint64))

    def load_chunk(self, memory: AnyArray, offset: int) -> int:
        """Read a slot's bytes from ``offset``; return their sum."""
        direct = self._copying.is_direct(memory)
        host = memory if direct else self.buffer(len(memory))
        self.read_bytes(host, offset)
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

    def write_bytes(self, data: Array, offset: int) -> None:
        """Write all of ``data``, (n,) uint8 that begins at a page, at ``offset``."""
        done = 0
        while done < len(data):
            with writing(self.path, offset + done):
                done += os.pwrite(self._fd, data[done:].data, offset + done)

    def read_bytes(self, out: Array, offset: int) -> None:
        """Fill ``out``, (n,) uint8 that begins at a page, from ``offset``."""
        done = 0
        while done < len(out):
            with reading(self.path, offset + done):
                got = os.preadv(self._fd, [out[done:].data], offset + done)
            if got == 0:
                raise short_file(self.path, offset + done)
            done += got


class _Request:
    """One exchange: the table's threads move its chunks; the last chunk ends it."""

    def __init__(
        self,
        table: DirectFile,
        slot: Slot,
        store: Version | None,
        load: Version | None,
        ready: Callable[[], None],
    ) -> None:
        self.future: Future[Moved] = Future()
        self._table, self._store, self._load, self._ready = table, store, load, ready
        self._arrays = [array.reshape(-1).view(np.uint8) for array in slot]
        count = len(table._chunks)
        self._stored, self._loaded = [0] * count, [0] * count
        self._left = count
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._started = 0.0

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
        if self._store is not None:
            at = table.offset(self._store) + chunk.offset
            self._stored[chunk.number] = table.store_chunk(memory, at)
        if self._load is not None:
            at = table.offset(self._load) + chunk.offset
            self._loaded[chunk.number] = table.load_chunk(memory, at)

    def _end(self) -> None:
        try:
            if self._error is not None:
                raise self._error
            self._end_pages()
        except BaseException as error:
            self.future.set_exception(error)
            return
        size = self._table.geometry.partition_bytes
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
        if self._store is not None:
            write_page(self._store, table.geometry, self._stored, page.data)
            table.write_bytes(page, table.offset(self._store))
        if self._load is not None:
            at = table.offset(self._load)
            table.read_bytes(page, at)
            expected = read_page(self._load, table.geometry, page.data, table.path)
            for chunk in table._chunks:
                check_sum(
                    self._load,
                    chunk,
                    expected[chunk.number],
                    self._loaded[chunk.number],
                    table.path,
                    at + chunk.offset,
                )


def aligned_bytes(size: int) -> Array:
    """Return zeroed host memory that begins at a page: (size,) uint8."""
    return np.frombuffer(mmap.mmap(-1, max(size, 1)), np.uint8, size)


def make_file(path: Path, geometry: Geometry) -> None:
    """Make the file of a table, with all of its space allocated, unless it has the right size."""
    if path.is_file() and path.stat().st_size == geometry.file_bytes:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    need_table_disk(path, geometry)
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with full_disk_explained(path):
        fd = os.open(path, flags, 0o666)
        try:
            # In this order: a file of the right size has all of its space.
            os.posix_fallocate(fd, 0, geometry.file_bytes)
            os.ftruncate(fd, geometry.file_bytes)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)


def check_file(path: Path, geometry: Geometry) -> None:
    """Raise unless the file of a table exists with the right size."""
    if not path.is_file():
        raise MissingFile(
            f"{path} is missing",
            expected=f"a table of {geometry.file_bytes} bytes",
            remedy=RESTORE,
        )
    size = path.stat().st_size
    if size != geometry.file_bytes:
        raise TruncatedFile(
            f"{path} has the wrong size",
            expected=f"{geometry.file_bytes} bytes",
            got=f"{size} bytes",
            remedy=RESTORE,
        )


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
