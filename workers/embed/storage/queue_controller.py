"""Host threads that serve the queues through which a GPU reads and writes files.

They take the part of an NVMe drive's controller: they find commands in the submission queues, move
pages between files and the queues' staging memory, and post completions, in the format of
kernels/queue_rules.py. The loop is compiled and runs without Python's lock
(kernels/cpu/queue_controller.py).

    with Controller(queues.shared, [descriptor]) as controller:
        result = queues.transfer(Operation.READ, 0, 0, data)

Only one process may serve the queues of a file.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from penstock.arrays import Array
from penstock.kernels.cpu.queue_controller import serve
from penstock.kernels.queue_rules import QueueMemory


class Controller:
    """Threads that serve every queue of ``shared`` until ``close``, each its own queues.

    files    the file descriptor of each number of commands, which may be replaced between
             transfers; -1: none
    threads  of the host, at most one per queue
    """

    def __init__(
        self, shared: QueueMemory, files: Sequence[int] = (-1,), *, threads: int = 4
    ) -> None:
        self._shared, self.files = shared, np.array(files, np.int32)
        self._closing = np.zeros(1, np.int64)
        # Before any thread starts: commands that come meanwhile are served.
        self._taken = np.array([queue.submitted[0] for queue in shared.queues], np.int64)
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
        """Finish taken commands, take no others, and mark queues as stopped."""
        self._closing[0] = 1
        for thread in self._threads:
            thread.join()
        self._stop()

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
