"""Progress of long work: a bar on a terminal, a fixed number of plain lines in a log."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any, Self

from penstock.sizes import format_bytes, format_count

_SILENT = 2.0  # seconds
_LINES = 10  # in a log, for any length of the run
# Units with small counts: a rate is meaningless.
_FEW = ("workers", "ranks", "machines", "probes", "s")


class Progress:
    """Progress of one step, with throughput in the job's own unit, on standard error.

    with Progress("build rows", total=edges, unit="edges", quiet=quiet) as progress:
        progress.advance(n)

    Nothing is printed for work of less than two seconds, or when ``quiet``. A terminal then
    shows a bar even if nothing is done yet: a first run compiles kernels.
    """

    def __init__(self, title: str, *, total: int, unit: str, quiet: bool) -> None:
        self.title, self.total, self.unit, self.quiet = title, max(total, 1), unit, quiet
        self.done = 0
        self._bar: Any = None
        self._next_line = 1
        self._drawing, self._timer = threading.Lock(), threading.Timer(_SILENT, self._begin)

    def __enter__(self) -> Self:
        self._start = time.monotonic()
        self._terminal = sys.stderr.isatty()
        if self._terminal and not self.quiet:
            self._timer.daemon = True
            self._timer.start()
        return self

    def advance(self, amount: int) -> None:
        """Add ``amount`` finished units."""
        self.done += amount
        elapsed = time.monotonic() - self._start
        if self.quiet or (elapsed < _SILENT and self._bar is None):
            return
        if self._terminal:
            with self._drawing:
                self._draw(self._state(elapsed))
        elif self.done * _LINES >= self._next_line * self.total:
            self._next_line = self.done * _LINES // self.total + 1
            print(f"{self.title}: {self._state(elapsed)}", file=sys.stderr, flush=True)

    def __exit__(self, *error: object) -> None:
        self._timer.cancel()
        with self._drawing:
            if self._bar is not None:
                self._bar.stop()

    def _begin(self) -> None:
        with self._drawing:
            if self._bar is None and not self._timer.finished.is_set():
                self._draw("")

    def _draw(self, state: str) -> None:
        if self._bar is None:
            from rich import progress as rich_progress
            from rich.console import Console

            self._bar = rich_progress.Progress(
                rich_progress.TextColumn("{task.description}"),
                rich_progress.BarColumn(),
                rich_progress.TextColumn("{task.fields[state]}"),
                rich_progress.TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self._task = self._bar.add_task(self.title, total=self.total, state="")
            self._bar.start()
        self._bar.update(self._task, total=self.total, completed=self.done, state=state)

    def _state(self, elapsed: float) -> str:
        show = format_bytes if self.unit == "B" else format_count
        unit = "" if self.unit == "B" else f" {self.unit}"
        share = min(100 * self.done // self.total, 100)
        if self.unit in _FEW:
            return f"{share} %, {min(self.done, self.total):,} of {self.total:,}{unit}"
        return f"{share} %, {show(self.done / max(elapsed, 1e-9))}{unit}/s"
