"""What a rank reports to the client while it runs: units that are done, and figures.

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
        """Take ``{"done": units}`` or ``{"metrics": {name: value}}``."""
        self._done += report.get("done", 0)
        self._metrics.update(report.get("metrics", {}))
        if time.monotonic() - self._sent >= _EVERY:
            self.flush()

    def printed(self, lines: list[str]) -> None:
        """Send what the rank's function printed."""
        self._worker.log_event(TOPIC, {**self._head, "printed": lines})

    def flush(self) -> None:
        """Send what has not been sent."""
        if self._done or self._metrics:
            message = {**self._head, "done": self._done, "metrics": self._metrics}
            self._worker.log_event(TOPIC, message)
        self._done, self._metrics, self._sent = 0, {}, time.monotonic()


class Printed(io.TextIOBase):
    """What ``print`` in a rank's function writes to: its lines go to the client, and to the log."""

    def __init__(self, reports: Reports) -> None:
        self._reports, self._log, self._rest = reports, sys.stdout, ""

    def write(self, text: str) -> int:
        """Send the lines that are whole by now."""
        self._log.write(text)
        *lines, self._rest = (self._rest + text).split("\n")
        if lines:
            self._reports.printed(lines)
        return len(text)

    def flush(self) -> None:
        """Have the log whole; a line that is not goes to the client when it is."""
        self._log.flush()

    def end(self) -> None:
        """Send the last line, also where it has no end."""
        if self._rest:
            self.write("\n")


def given_up() -> Callable[[], bool]:
    """Return what tells whether nobody waits for this task of Dask any more.

    Dask does not stop what has begun.
    """
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def ask() -> bool:
        task = worker.state.tasks.get(key)
        return task is None or task.state == "cancelled"

    return ask
