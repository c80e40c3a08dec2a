"""Reports of a running rank to the client: units that are done, and figures.

They travel as events of Dask, one topic for all gangs, a few times a second at most.
"""

from __future__ import annotations

import io
import math
import sys
import time
from collections.abc import Callable
from typing import Any

TOPIC = "penstock-gang"
_EVERY = 0.1  # seconds


class Reports:
    """One rank's reports on their way to the client: the first at once, then the latest."""

    def __init__(self, gang: str, rank: int) -> None:
        from distributed import get_worker

        self._worker = get_worker()
        self._head = {"gang": gang, "rank": rank}
        self._done, self._metrics = 0, dict[str, Any]()
        self._sent = -math.inf

    def __call__(self, report: dict[str, Any]) -> None:
        """Accept ``{"done": units}`` or ``{"metrics": {name: value}}``."""
        self._done += report.get("done", 0)
        self._metrics.update(report.get("metrics", {}))
        if time.monotonic() - self._sent >= _EVERY:
            self.flush()

    def printed(self, lines: list[str]) -> None:
        """Send lines that the rank's function printed."""
        self._worker.log_event(TOPIC, {**self._head, "printed": lines})

    def flush(self) -> None:
        """Send pending reports."""
        if self._done or self._metrics:
            message = {**self._head, "done": self._done, "metrics": self._metrics}
            self._worker.log_event(TOPIC, message)
        self._done, self._metrics, self._sent = 0, {}, time.monotonic()


class Printed(io.TextIOBase):
    """The target of ``print`` in a rank's function: lines go to the client and to the log."""

    def __init__(self, reports: Reports) -> None:
        self._reports, self._log, self._rest = reports, sys.stdout, ""

    def write(self, text: str) -> int:
        """Send complete lines."""
        self._log.write(text)
        *lines, self._rest = (self._rest + text).split("\n")
        if lines:
            self._reports.printed(lines)
        return len(text)

    def flush(self) -> None:
        """Flush the log; an incomplete line goes to the client once it is complete."""
        self._log.flush()

    def end(self) -> None:
        """Send the last line, even if it is incomplete."""
        if self._rest:
            self.write("\n")


def given_up() -> Callable[[], bool]:
    """Return a function that returns whether Dask gave up this task.

    Dask does not stop a task that has begun.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def ask() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    return ask
