"""Host threads that serve the queues through which a GPU reads and writes files.

They take the part of an NVMe drive's controller: they find commands in the submission queues, move
pages between files and the queues' staging memory, and post completions, in the format of
kernels/queue_rules.py. The loop is compiled and runs without Python's lock
(kernels/cpu/queue_controller.py).

    with Controller(queues.shared, [path]) as controller:
        result = queues.transfer(Operation.READ, 0, 0, data)

Only one process may serve the queues of a file.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.kernels.cpu.queue_controller import serve
from penstock.kernels.queue_rules import QueueMemory


class Controller:
    """Threads that serve every queue of ``shared`` until ``close``, each its own queues.

    paths    of files to open for reading and writing, made if missing: numbers 0, 1, ... of
             commands. Files are opened with O_DIRECT, unless the file system does not support it
    threads  of the host, at most one per queue

    files    the file descriptor of each number, which may be replaced between transfers; -1: none
    direct   whether all files are opened with O_DIRECT
    """

    def __init__(
        self, shared: QueueMemory, paths: Sequence[Path] = (), *, threads: int = 4
    ) -> None:
        self._shared, self.direct = shared, True
        self.files = np.full(max(len(paths), 1), -1, np.int32)
        self._closing = np.zeros(1, np.int64)
        # Before any thread starts: commands that come meanwhile are served.
        self._taken = np.array([queue.submitted[0] for queue in shared.queues], np.int64)
        with ExitStack() as opened:
            for number, path in enumerate(paths):
                self.files[number], direct = _open(path)
                opened.callback(os.close, int(self.files[number]))
                self.direct = self.direct and direct
            self._opened = opened.pop_all()
        threads = min(threads, len(shared.queues))
        self._moved = np.zeros((threads, 1), np.int64)
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

    @property
    def moved(self) -> int:
        """Bytes that were read and written."""
        return int(self._moved.sum())

    def close(self) -> None:
        """Finish taken commands, take no others, mark queues as stopped, and close the files."""
        self._closing[0] = 1
        for thread in self._threads:
            thread.join()
        self._stop()
        self._opened.close()

    def _serve(self, number: int) -> None:
        shared, form = self._shared, self._shared.form
        places = form.stride, form.commands_at, form.completions_at, form.staging_at
        mine: Array = np.arange(number, len(shared.queues), len(self._threads))
        taken = self._taken[mine]
        try:
            serve(
                shared.memory.view(np.uint64),
                tuple(place // 8 for place in places),
                form.entries,
                form.page_bytes,
                mine,
                taken,
                self.files,
                self._closing,
                self._moved[number],
            )
        finally:
            self._stop()  # without a controller, a kernel must not wait

    def _stop(self) -> None:
        self._closing[0] = 1
        for queue in self._shared.queues:
            queue.stopped[0] = 1


def _open(path: Path) -> tuple[int, bool]:
    """Return a file descriptor, and whether it bypasses the page cache."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags | os.O_DIRECT, 0o666), True
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.open(path, flags, 0o666), False
