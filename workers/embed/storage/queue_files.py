"""Files of a table whose bytes move through queues that a kernel fills: the paper's way.

Each thread of the table has a queue of its own and a thread that serves it (queue_controller.py).
On CPUs the producer is the one of kernels/naive/queues.py.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from penstock.arrays import AnyArray
from penstock.kernels.queue_rules import Operation, QueueFormat, Status
from penstock.workers.embed.storage.direct import (
    OpenFile,
    PartitionFiles,
    reading,
    short_file,
    writing,
)
from penstock.workers.embed.storage.queue_controller import Controller
from penstock.workers.resources.device import to_host

_FORM = QueueFormat(entries=32)
_PATIENCE = 300.0  # seconds for the pages of a round; a busy disk takes less


class QueueFiles(PartitionFiles):
    """A table of slots in the current GPU's memory, or the host's, moved through queues."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._controllers: list[Controller] = []

    def store_chunk(self, file: OpenFile, memory: AnyArray, offset: int) -> None:
        """Write a slot's bytes at ``offset``."""
        with writing(file.path, offset):
            self._transfer(Operation.WRITE, file, memory, offset)

    def load_chunk(self, file: OpenFile, memory: AnyArray, offset: int) -> None:
        """Read a slot's bytes from ``offset``."""
        with reading(file.path, offset):
            self._transfer(Operation.READ, file, memory, offset)

    def close(self) -> None:
        """Wait for what is in flight, and end the controllers."""
        super().close()
        for controller in self._controllers:
            controller.close()
        self._controllers.clear()

    def _transfer(
        self, operation: Operation, file: OpenFile, memory: AnyArray, offset: int
    ) -> None:
        queues, controller = self._mine(memory)
        controller.files[0] = file.fd
        status = int(to_host(queues.transfer(operation, 0, offset, memory, patience=_PATIENCE))[0])
        controller.files[0] = -1
        if status == Status.DONE:
            return
        if os.fstat(file.fd).st_size < offset + memory.nbytes:
            raise short_file(file.path, os.fstat(file.fd).st_size)
        if status > 0:
            raise OSError(status, os.strerror(status))
        raise OSError(f"transfer through queues: {Status(status).name}")

    def _mine(self, memory: AnyArray) -> tuple[Any, Controller]:
        """Return this thread's queues and their controller."""
        if not hasattr(self._local, "controller"):
            backend = "cuda" if hasattr(memory, "__cuda_array_interface__") else "naive"
            self._local.queues = import_module(f"penstock.kernels.{backend}.queues").Queues(
                1, _FORM
            )
            self._local.controller = Controller(self._local.queues.shared, threads=1)
            self._controllers.append(self._local.controller)
        return self._local.queues, self._local.controller
