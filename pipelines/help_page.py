"""How ``--help`` looks: names left, what they mean right, no boxes, no colours.

The PlainFormatter of cyclopts has no columns, so long meanings wrap to the page's edge, and prints
every ``[default: False]``, ``--no-`` and ``--empty-``.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from cyclopts import App, Group

if TYPE_CHECKING:
    from cyclopts.help import HelpEntry, HelpPanel
    from rich.console import Console, ConsoleOptions

    from penstock.pipelines.job.declare import Job

OPTIONS = Group("Options", sort_key=5)  # every command's own, if its options have no headings
_UNSAID = ("", "None", "False", "()", '""', "''")  # defaults that need no mention
_WIDEST = 26  # a longer name has its own line


def group(*jobs: Job[Any]) -> App:
    """Return the commands ``penstock GROUP JOB`` of jobs, in their order on the page."""
    app = App(name=jobs[0].name.split()[0], group_parameters=OPTIONS)
    for number, job in enumerate(jobs, 1):
        app.command(job.command, name=job.name.split()[1], sort_key=number)
    return app


class HelpPage:
    """A formatter for cyclopts, which requests each part of a page in turn."""

    def render_usage(self, console: Console, options: ConsoleOptions, usage: Any) -> None:
        """Print how a command is called."""
        if usage:
            _print(console, f"Usage: {_plain(usage).strip()}\n")

    def render_description(self, console: Console, options: ConsoleOptions, text: Any) -> None:
        """Print what a command is for."""
        if text:
            _print(console, f"{_plain(text).strip()}\n")

    def __call__(self, console: Console, options: ConsoleOptions, panel: HelpPanel) -> None:
        """Print one group of commands or options."""
        rows = [(_names(entry), _meaning(entry)) for entry in panel.entries]
        if not rows:
            return
        lines = [f"{panel.title}:"] if panel.title else []
        column = max(min(len(names), _WIDEST) for names, _ in rows) + 4
        width = max(min(console.width, 100) - column, 30)
        for names, meaning in rows:
            head, wrapped = f"  {names}", textwrap.wrap(meaning, width) or [""]
            if len(head) + 2 > column:
                lines.append(head)
                head = ""
            lines.append(f"{head:<{column}}{wrapped[0]}".rstrip())
            lines += [" " * column + line for line in wrapped[1:]]
        _print(console, "\n".join(lines) + "\n")


def _print(console: Console, text: str) -> None:
    # No markup, no highlighting, and no second wrapping.
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def _names(entry: HelpEntry) -> str:
    if entry.positional_label:
        return entry.positional_label
    names = [*entry.positive_shorts, *entry.positive_names]
    # --no-this is the default, unless the default is yes, or depends on others.
    unsaid = ("--empty-",) if entry.default in ("True", None) else ("--empty-", "--no-")
    names += [name for name in entry.negative_names if not name.startswith(unsaid)]
    text = ", ".join(names)
    return f"{text} {entry.metavar}" if entry.metavar else text


def _meaning(entry: HelpEntry) -> str:
    parts = [" ".join(_plain(entry.description).split())]
    if entry.choices:
        parts.append(f"[{', '.join(entry.choices)}]")
    if entry.default is not None and str(entry.default) not in _UNSAID:
        parts.append(f"[default: {entry.default}]")
    if entry.required:
        parts.append("[required]")
    return " ".join(part for part in parts if part)


def _plain(text: Any) -> str:
    """Return the text that cyclopts has wrapped for rich."""
    if text is None or isinstance(text, str):
        return text or ""
    for holder in ("plain", "markup", "primary_renderable"):
        if hasattr(text, holder):
            return _plain(getattr(text, holder))
    return str(text)
