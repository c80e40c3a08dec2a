"""Files that threads read and write past the page cache, each with one request in flight.

Requests go directly into and from host memory. For a GPU, each thread has a pinned buffer: while
one is copied, the others are read or written. If the file system does not support O_DIRECT, the
page cache is used.
"""

from __future__ import annotations

import errno
import math
import mmap
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.errors import MissingFile, PenstockError, TruncatedFile, UsageError
from penstock.files import atomic
from penstock.system_errors import disk_full, full_disk_explained, is_disk_full
from penstock.workers.embed.spec import Storage
from penstock.workers.embed.storage import (
    CHUNK,
    PAGE,
    RESTORE,
    THREADS,
    Geometry,
    Moved,
    Slot,
    file_name,
)
from penstock.workers.training.checkpoint import sync

if TYPE_CHECKING:
    from penstock.workers.embed.storage.copying import DeviceCopying


class OpenFile:
    """The open file of a version.

    is_direct  whether O_DIRECT is used
    """

    def __init__(self, path: Path, fd: int, *, is_direct: bool) -> None:
        self.path, self.fd, self.is_direct = path, fd, is_direct

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
    """The newest versions of a table's partitions, on which ``threads`` threads make requests.

    Requests return at once; the future ends when the request is done. Until then the slot of the
    request belongs to the table. The future raises MissingFile or TruncatedFile if the file does
    not have the partition, CapacityError if the disk is full, and PenstockError with file and
    offset if it cannot be read or written.

    folder   of checkpoints, with the versions that a checkpoint names
    newest   the number of each partition's newest version; 0: its initial one, which is computed
             and not read [default: 0 for all]
    number   of the last checkpoint
    scratch  the folder of versions that no checkpoint names yet [default: that of checkpoints]
    device   whether slots are in GPU memory; in host memory, they begin at a page
    """

    def __init__(
        self,
        folder: Path,
        geometry: Geometry,
        newest: Sequence[int] | None = None,
        number: int = 0,
        *,
        scratch: Path | None = None,
        threads: int = THREADS,
        device: bool = False,
    ) -> None:
        self.folder, self.geometry, self.number = folder, geometry, number
        self.newest = [0] * geometry.partitions if newest is None else [*newest]
        self.scratch = folder if scratch is None else scratch
        self.threads, self._local = threads, threading.local()
        self._copying: DeviceCopying | None = None
        if device:
            from penstock.workers.embed.storage.copying import DeviceCopying

            self._copying = DeviceCopying()
        self._here: set[int] = set()  # partitions whose newest version is on scratch
        self._pool = ThreadPoolExecutor(
            threads,
            thread_name_prefix="embed-table",
            initializer=self._copying.enter_thread if self._copying else None,
        )

    # -- which file ------------------------------------------------------------------------------

    @property
    def changed(self) -> list[int]:
        """The partitions that were written since the last checkpoint."""
        return [p for p, number in enumerate(self.newest) if number > self.number]

    def path(self, partition: int) -> Path:
        """Return the path of the newest version of a partition."""
        folder = self.scratch if partition in self._here else self.folder
        return folder / file_name(partition, self.newest[partition])

    def check(self, partition: int) -> None:
        """Raise unless the file of a partition that was written exists with the right size."""
        if not self.newest[partition]:
            return
        path, size = self.path(partition), self.geometry.bytes
        if not path.is_file():
            raise _missing(path, size)
        if path.stat().st_size != size:
            raise TruncatedFile(
                f"{path} has the wrong size",
                expected=f"{size} bytes",
                got=f"{path.stat().st_size} bytes",
                remedy=RESTORE,
            )

    def publish(self) -> None:
        """Move what changed to the folder of checkpoints, and wait until it is on its disk."""
        for _ in self._pool.map(self._publish, self.changed):
            pass
        sync(self.folder)

    def _publish(self, partition: int) -> None:
        here = self.path(partition)
        there = self.folder / here.name
        with writing(here, 0):
            sync(here)
        try:
            if here != there:
                here.replace(there)
            self._here.discard(partition)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with atomic(there) as temporary:  # the version on scratch stays, to be read
                shutil.copyfile(here, temporary)
                sync(temporary)

    def saved(self) -> None:
        """Record that a checkpoint names the newest versions."""
        self.number += 1

    def forget(self, partition: int) -> None:
        """Remove a partition, which another rank has now."""
        if partition in self._here:
            self.path(partition).unlink()
        self._here.discard(partition)
        self.newest[partition] = 0

    def open(self, partition: int, *, to_write: bool) -> OpenFile:
        """Open the file of a partition: of the newest version, or of the one to write.

        That version is the same until the next checkpoint. It takes the place of the one on
        scratch, and all of its space is allocated.
        """
        if to_write:
            before = self.path(partition)
            self.newest[partition] = self.number + 1
            if partition in self._here and before != self.path(partition):
                before.rename(self.path(partition))
            self._here.add(partition)
            make_file(self.path(partition), self.geometry.bytes)
        path = self.path(partition)
        try:
            fd, is_direct = open_direct(path, os.O_RDWR if to_write else os.O_RDONLY)
        except FileNotFoundError as error:
            raise _missing(path, self.geometry.bytes) from error
        return OpenFile(path, fd, is_direct=is_direct)

    # -- requests --------------------------------------------------------------------------------

    def exchange(
        self, slot: Slot, *, store: int | None = None, load: int | None = None
    ) -> Future[Moved]:
        """Write ``slot`` as partition ``store``, and then read partition ``load`` into it.

        Chunk by chunk, so that reads and writes are in flight together.
        """
        for array, shape in zip(slot, self.geometry.shapes, strict=True):
            # Otherwise a read would write to other memory.
            assert array.shape == shape
            assert array.dtype == np.float32
            assert array.flags.c_contiguous
        ready = self._copying.ready() if self._copying else None
        request = _Request(self, slot, store, load, ready)
        if request.open():
            for chunk in request.chunks:
                self._pool.submit(request.move, *chunk)
        return request.future

    def write(self, slot: Slot, partition: int) -> Future[Moved]:
        """Write ``slot`` as a new version of a partition."""
        return self.exchange(slot, store=partition)

    def read(self, partition: int, slot: Slot) -> Future[Moved]:
        """Read the newest version of a partition into ``slot``."""
        return self.exchange(slot, load=partition)

    def close(self) -> None:
        """Wait for requests in flight."""
        self._pool.shutdown(wait=True, cancel_futures=False)

    def store_chunk(self, file: OpenFile, memory: AnyArray, offset: int) -> None:
        """Write a slot's bytes at ``offset``."""
        file.write_bytes(self._copying.to_host(memory) if self._copying else memory, offset)

    def load_chunk(self, file: OpenFile, memory: AnyArray, offset: int) -> None:
        """Read a slot's bytes from ``offset``."""
        if self._copying is None:
            file.read_bytes(memory, offset)
            return
        host = self._copying.buffer(len(memory))
        file.read_bytes(host, offset)
        self._copying.from_host(host, memory)


class _Request:
    """One exchange: the table's threads move its chunks; the last chunk ends it.

    chunks  (memory, offset in the file) of each
    """

    def __init__(
        self,
        table: PartitionFiles,
        slot: Slot,
        store: int | None,
        load: int | None,
        ready: Callable[[], None] | None,
    ) -> None:
        self.future: Future[Moved] = Future()
        self._table, self._store, self._load, self._ready = table, store, load, ready
        self._to: OpenFile | None = None
        self._from: OpenFile | None = None
        self.chunks: list[tuple[AnyArray, int]] = []
        begin = 0
        for array in (array for array in slot if array.size):
            memory = array.reshape(-1).view(np.uint8)
            for at in range(0, len(memory), CHUNK):
                self.chunks.append((memory[at : at + CHUNK], begin + at))
            begin += len(memory)
        self._left = len(self.chunks)
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

    def move(self, memory: AnyArray, offset: int) -> None:
        """Move one chunk; an error ends the request."""
        try:
            if self._error is None:
                if self._ready is not None:
                    self._ready()  # it waits for kernels, which is not I/O
                if self._started == 0.0:
                    self._started = time.perf_counter()
                if self._to is not None:
                    self._table.store_chunk(self._to, memory, offset)
                if self._from is not None:
                    self._table.load_chunk(self._from, memory, offset)
        except BaseException as error:  # raised by the future
            self._error = self._error or error
        with self._lock:
            self._left -= 1
            last = self._left == 0
        if last:
            self._end()

    def _end(self) -> None:
        for file in (self._to, self._from):
            if file is not None:
                file.close()
        if self._error is not None:
            self.future.set_exception(self._error)
            return
        size, ended = self._table.geometry.bytes, time.perf_counter()
        read, written = size * (self._from is not None), size * (self._to is not None)
        self.future.set_result(Moved(read, written, self._started, ended))


def open_table(
    folder: Path,
    geometry: Geometry,
    newest: Sequence[int] | None = None,
    number: int = 0,
    *,
    device: bool,
    scratch: Path | None = None,
    threads: int = THREADS,
    storage: Storage | None = None,
) -> PartitionFiles:
    """Return the files of a table, as ``PartitionFiles`` describes them.

    storage  how they are read and written [default: kvikio if GPUDirect Storage works, else
             threads]
    """
    given = folder, geometry, newest, number
    options: dict[str, Any] = {"scratch": scratch, "threads": threads, "device": device}
    if storage == "queues":
        from penstock.workers.embed.storage.queue_files import QueueFiles

        return QueueFiles(*given, **options)
    if storage == "kvikio" and not (device and find_spec("kvikio")):
        raise UsageError(
            "--storage kvikio needs a GPU and kvikio",
            remedy="Install kvikio-cu12, or take --storage threads",
        )
    if device and storage != "threads":
        from penstock.workers.embed.storage.gpu import KvikioFiles, has_gds

        if storage == "kvikio" or has_gds():
            return KvikioFiles(*given, **options)
    return PartitionFiles(*given, **options)


def aligned_bytes(size: int) -> Array:
    """Return zeroed host memory that begins at a page: (size,) uint8."""
    return np.frombuffer(mmap.mmap(-1, max(size, 1)), np.uint8, size)


def new_slot(geometry: Geometry, *, device: bool = False) -> Slot:
    """Return memory for a partition."""
    values, state = geometry.shapes
    found: AnyArray = aligned_bytes(geometry.bytes)
    if device:
        import cupy

        found = cupy.empty(geometry.bytes, np.uint8)
    found, of_values = found.view(np.float32), math.prod(values)
    return found[:of_values].reshape(values), found[of_values:].reshape(state)


def make_file(path: Path, size: int) -> None:
    """Make a file with all of its space allocated, unless it has the right size.

    A file of the right size has all of its space.
    """
    with full_disk_explained(path):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            if os.fstat(fd).st_size != size:
                os.posix_fallocate(fd, 0, size)
                os.ftruncate(fd, size)
        except OSError:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)


def _missing(path: Path, size: int) -> MissingFile:
    return MissingFile(f"{path} is missing", expected=f"{size} bytes", remedy=RESTORE)


def open_direct(path: Path, access: int = os.O_RDWR) -> tuple[int, bool]:
    """Open ``path``, with O_DIRECT if that works; return its descriptor, and whether it does."""
    flags, fd = access | os.O_NOFOLLOW | os.O_CLOEXEC, -1
    try:
        fd = os.open(path, flags | os.O_DIRECT)
        os.preadv(fd, [aligned_bytes(PAGE).data], 0)
    except OSError as error:  # of the system's: opened or read
        if fd >= 0:
            os.close(fd)
        if error.errno not in _REFUSED:
            raise
        return os.open(path, flags), False
    return fd, True


_REFUSED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTTY)


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
