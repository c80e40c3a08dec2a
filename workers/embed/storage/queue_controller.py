"""Host threads that serve the queues through which a GPU reads and writes files.

They take the part of an NVMe drive's controller: they find commands in the submission queues, move
pages between files and the queues' staging memory, and post completions, in the format of
kernels/queue_rules.py. One system call moves commands that are consecutive in the file and in
memory. Files are opened with O_DIRECT, unless the file system does not support it, like tmpfs.

    with Controller(queues.shared, [path]) as controller:
        result = queues.transfer(Operation.READ, 0, 0, data)

Only one process may serve the queues of a file, and Python's threads share its lock: a producer
gets the bandwidth of the disk with large pages (from 128 KiB), but not with pages of 4 KiB.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.queue_rules import Operation, Queue, QueueMemory, tag

_AT_ONCE = 2 << 20  # bytes that one system call moves, at most
_SPINS = 50  # polls of empty queues before a thread sleeps
_SLEEP = 5e-5  # seconds


class Controller:
    """Threads that serve every queue of ``shared`` until ``close``.

    files    numbered 0, 1, ... in commands; opened for reading and writing, made if missing
    threads  of the host; each takes commands from any queue, several also from the same queue
    """

    def __init__(self, shared: QueueMemory, files: Sequence[Path], *, threads: int = 4) -> None:
        self._sides = [_Side(queue) for queue in shared.queues]
        self._files: list[int] = []
        self.direct = True
        self.moved = 0  # bytes, read and written
        self._counting = threading.Lock()
        self._closing = threading.Event()
        self._error: BaseException | None = None
        try:
            for path in files:
                opened, direct = _open(path)
                self._files.append(opened)
                self.direct = self.direct and direct
        except OSError:
            self._close_files()
            raise
        self._threads = [
            threading.Thread(target=self._serve, args=(i,), name=f"queue-controller-{i}")
            for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Controller:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish taken commands, take no others, mark queues as stopped, and close the files."""
        self._closing.set()
        for thread in self._threads:
            thread.join()
        self._stop()
        self._close_files()
        if self._error is not None:
            raise self._error

    def _close_files(self) -> None:
        for opened in self._files:
            os.close(opened)
        self._files = []

    def _serve(self, number: int) -> None:
        try:
            self._look(number)
        except BaseException as error:
            # Without a controller, a kernel must not wait.
            self._error = error
            self._stop()

    def _stop(self) -> None:
        self._closing.set()
        for side in self._sides:
            side.queue.stopped[0] = 1

    def _look(self, number: int) -> None:
        idle, sides = 0, self._sides[number % len(self._sides) :] + self._sides
        sides = sides[: len(self._sides)]  # threads begin at different queues
        while not self._closing.is_set():
            found = False
            for side in sides:
                if (run := side.take()) is not None:
                    found = True
                    self._move(side, run)
            idle = 0 if found else idle + 1
            if idle > _SPINS:
                time.sleep(_SLEEP)

    def _move(self, side: _Side, run: Array) -> None:
        """Move consecutive pages, and post their completions."""
        size = int(run["bytes"].sum(dtype=np.int64))
        page = int(run["page"][0])
        begin = page * side.queue.form.page_bytes
        memory = side.staging[begin : begin + size]
        status, moved = 0, 0
        try:
            moved = self._call(run[0], memory)
            if moved < size:
                status = errno.EIO  # the end of the file
        except OSError as error:
            status = error.errno or errno.EIO
        with self._counting:
            self.moved += moved
        while not side.post(run, moved, status):
            if self._closing.is_set():
                return  # no producer reads completions any more
            time.sleep(_SLEEP)

    def _call(self, command: Any, memory: Array) -> int:
        """Make one system call; return the bytes that it moved."""
        file, offset = int(command["file"]), int(command["offset"])
        if file >= len(self._files):
            raise OSError(errno.EBADF, "no such file")
        if command["operation"] not in (Operation.READ, Operation.WRITE):
            raise OSError(errno.EINVAL, "no such operation")
        call = os.preadv if command["operation"] == Operation.READ else os.pwritev
        moved = 0
        while moved < memory.size:
            now = call(self._files[file], [memory.data[moved:]], offset + moved)
            if now == 0:
                break
            moved += now
        return moved


class _Side:
    """The controller's side of one queue."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.staging = queue.staging.reshape(-1)
        self._taken = int(queue.submitted[0])
        self._posted = self._taken
        self._taking, self._posting = threading.Lock(), threading.Lock()

    def take(self) -> Any:
        """Return a copy of the oldest commands that one system call can move; None: no commands."""
        queue, entries = self.queue, self.queue.form.entries
        if int(queue.submitted[0]) == self._taken:
            return None  # without the lock: the next poll finds missed commands
        with self._taking:
            count = int(queue.submitted[0]) - self._taken
            if count <= 0:
                return None
            place = self._taken % entries
            found = queue.commands[place : place + min(count, entries - place)].copy()
            run = found[: _follow(found, queue.form.page_bytes)]
            self._taken += len(run)
            return run

    def post(self, run: Array, moved: int, status: int) -> bool:
        """Write completions for the commands of ``run``; False if the queue is still full."""
        queue, entries = self.queue, self.queue.form.entries
        ends = np.cumsum(run["bytes"], dtype=np.int64)
        with self._posting:
            if self._posted + len(run) - int(queue.read[0]) > entries:
                return False
            for command, end in zip(run, ends, strict=True):
                place = self._posted % entries
                entry = queue.completions[place]
                entry["status"] = 0 if end <= moved else status
                entry["bytes"] = command["bytes"] if end <= moved else 0
                lap = tag(self._posted, entries)
                queue.tags[place] = lap << 32 | int(command["ticket"]) & 0xFFFFFFFF  # last
                self._posted += 1
        return True


def _follow(commands: Array, page_bytes: int) -> int:
    """Return how many of these commands, from the first on, one system call can move."""
    sizes = commands["bytes"].astype(np.int64)
    before, after = commands[:-1], commands[1:]
    joined = (
        (before["operation"] == after["operation"])
        & (before["file"] == after["file"])
        & (before["offset"] + before["bytes"] == after["offset"])
        & (before["page"] + 1 == after["page"])
        & (before["bytes"] == page_bytes)
        & (np.cumsum(sizes)[1:] <= _AT_ONCE)
    )
    return len(commands) if joined.all() else int(np.argmin(joined)) + 1


def _open(path: Path) -> tuple[int, bool]:
    """Return a file descriptor, and whether it bypasses the page cache."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags | getattr(os, "O_DIRECT", 0), 0o666), hasattr(os, "O_DIRECT")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, flags, 0o666), False
