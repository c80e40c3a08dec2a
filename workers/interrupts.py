"""Ctrl-C is for the client: it ends the job in order, and the workers with it."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

from distributed import WorkerPlugin

if TYPE_CHECKING:
    from distributed import Worker


class LeaveInterruptsToClient(WorkerPlugin):  # type: ignore[misc]
    """Make a worker process ignore SIGINT, which a terminal sends to every process of a job."""

    name = "penstock-interrupts"

    def setup(self, worker: Worker) -> None:
        """Run once in every worker, including restarted ones."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
