"""How every command speaks: text for people, JSON for programs, more or less of both."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol

from cyclopts import Parameter

from penstock.errors import PenstockError
from penstock.options import options
from penstock.paths import shown

Command = Sequence[str | Path]  # words after ``penstock``


class Report(Protocol):
    """The report of a job about its run."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""

    def text(self) -> str:
        """Return the text for people."""


class CountsReport:
    """A report that is a dataclass of plain values, such as counts."""

    def to_record(self) -> dict[str, Any]:
        """Return the content for a manifest, which can be read back."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        return self.to_record()

    def text(self) -> str:
        """Return the text for people."""
        raise NotImplementedError


class OutputReport(CountsReport):
    """The report of a job that makes an output; its manifest keeps it."""

    def lines(self) -> Iterable[str]:
        """Return the text for people: what was made, then facts about it.

        What is empty is left out.
        """
        raise NotImplementedError

    def text(self) -> str:
        """Return the lines, all but the first indented."""
        first, *rest = filter(None, self.lines())
        return "\n".join([first, *(f"  {line}" for line in rest)])

    def following(self) -> list[Command]:
        """Return one or two commands that a user would type next, with the paths of this run."""
        return []

    def verbose(self) -> str:
        """Return what ``-v`` adds."""
        return ""

    def failure(self) -> PenstockError | None:
        """Return the error with which the command ends though there is an output."""
        return None


@dataclass
class FromBase:
    """What a job took from ``--base``, and what it made again: how many of ``what``."""

    what: str
    kept: int
    made: int

    def text(self) -> str:
        """Return it in words."""
        return f"{self.kept:,} {self.what} from the base, {self.made:,} made again"


@dataclass
class JobReport(OutputReport):
    """A report with the time of the run, which the frame sets.

    from_base  of a job with ``--base``
    """

    seconds: float = field(default=0.0, kw_only=True)
    from_base: FromBase | None = field(default=None, kw_only=True)


@options
class Display:
    """Options that every command has."""

    json: Annotated[bool, Parameter(negative="")] = False
    """print the result as JSON on standard output"""
    verbose: Annotated[bool, Parameter(alias="-v", negative="")] = False
    """print more; on an error, show the traceback"""
    quiet: Annotated[bool, Parameter(alias="-q", negative="")] = False
    """no progress and no result on the terminal, only errors and warnings"""

    def show(self, report: Report, following: Sequence[Command] | None = None) -> None:
        """Print a job's report in the requested form.

        following  commands that a user would type next; None: not given
        """
        if self.json:
            body = report.to_dict()
            if following is not None:
                body |= {"next": [_line(command, str) for command in following]}
            print(json.dumps(body, indent=1))
        elif not self.quiet:
            print(report.text())
            for number, command in enumerate(following or ()):
                print(f"  {'' if number else 'next:':5} {_line(command, shown)}")

    def say(self, body: Any, text: str) -> None:
        """Print one of both: JSON for programs, text for people."""
        if self.json:
            print(json.dumps(body, indent=1), flush=True)
        elif not self.quiet and text:
            print(text, flush=True)

    def note(self, text: str) -> None:
        """Print something for ``-v`` only, on standard error."""
        if self.verbose and text:
            print(text, file=sys.stderr)


def table_text(rows: Sequence[Sequence[str]], *, indent: str = "", numbers: bool = False) -> str:
    """Return rows as aligned columns; with ``numbers`` all but the first are aligned right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        if numbers:
            cells[1:] = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append(f"{indent}{'  '.join(cells)}".rstrip())
    return "\n".join(lines)


def _line(command: Command, path: Callable[[Path], str]) -> str:
    words = [path(word) if isinstance(word, Path) else word for word in command]
    return shlex.join(["penstock", *words])
