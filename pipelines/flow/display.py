"""What is seen of a run while it is under way: in a log lines, on a terminal also what runs now."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from penstock.cluster.running import log_tail
from penstock.secrets import masked


class RunDisplay:
    """Lines on standard error; on a terminal, below them, a line for every stage that runs.

    Such a line has the stage, how long it has run, and the last line of its log, in which jobs show
    how far they are.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = not quiet and sys.stderr.isatty()
        self._lines: Any = None
        self._tasks: dict[str, Any] = {}

    def say(self, text: str) -> None:
        """Write a line."""
        if self._quiet:
            return
        text = masked(text)
        if self._lines is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self._lines.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def begin(self, stage: str, why: str, log: Path) -> None:
        """Show that a stage runs."""
        if not self._terminal:
            self.say(f"{stage}: runs, {why}")
            return
        if self._lines is None:
            self._lines = _lines()
            self._lines.start()
        self._tasks[stage] = self._lines.add_task(stage, total=None, log=log)

    def end(self, stage: str) -> None:
        """Show no more that a stage runs."""
        if stage in self._tasks:
            self._lines.remove_task(self._tasks.pop(stage))

    def close(self) -> None:
        """Leave the terminal as lines alone leave it."""
        if self._lines is not None:
            self._lines.stop()
        self._lines, self._tasks = None, {}


def _lines() -> Any:
    from rich.console import Console
    from rich.progress import Progress, ProgressColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column
    from rich.text import Text

    class LogColumn(ProgressColumn):
        """The last line of a stage's log."""

        max_refresh = 1.0

        def render(self, task: Any) -> Text:
            last = log_tail(task.fields["log"], lines=1)
            # What a user's function writes may hold commands for the terminal.
            return Text("".join(one for one in last if one.isprintable()), style="dim")

    # One line per stage, however narrow the terminal: more would scroll the lines above.
    last = Column(no_wrap=True, overflow="ellipsis", ratio=1)
    return Progress(
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        LogColumn(table_column=last),
        console=Console(file=sys.stderr),  # this one, whatever replaces it meanwhile
        refresh_per_second=2,
        transient=True,
        expand=True,
        redirect_stdout=False,
    )
