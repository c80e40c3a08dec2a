"""What a job would do, and its memory and disk: ``--plan`` shows it and writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from penstock.errors import CapacityError, PenstockError
from penstock.paths import shown
from penstock.pipelines.display import Report
from penstock.sizes import does_not_fit, format_bytes, free_disk

PlanFlag = Annotated[
    bool,
    Parameter(
        name="--plan",
        negative="",
        help="show what would run, why, and the memory and disk it would take; write nothing",
    ),
]


@dataclass(frozen=True)
class Need:
    """Bytes of a resource that a job needs, out of those available; None: unknown ``until``.

    remedy  what to do if that is too much
    """

    bytes: int | None
    there: int | None = None
    where: str = ""
    until: str = "before the run"
    remedy: str = "Use more workers or ranks, or give each more memory with --memory-limit"

    def problem(self, what: str) -> CapacityError | None:
        """Return the error if it exceeds what is available."""
        if self.bytes is None or self.there is None or self.bytes <= self.there:
            return None
        return does_not_fit(what, "in memory", self.bytes, self.there, remedy=self.remedy)

    def text(self) -> str:
        """Return one line: ``1.2 GB of 8 GB on every worker``."""
        if self.bytes is None:
            return f"not known {self.until}{self.where and '; '}{self.where}"
        there = "" if self.there is None else f" of {format_bytes(self.there)}"
        return f"about {format_bytes(self.bytes)}{there}{self.where and ' ' + self.where}"


@dataclass(frozen=True)
class Plan:
    """What a job would do.

    what     one line that describes the output, or what is printed
    steps    name and description of each step, in order
    memory   of the fullest worker; disk: of the output and intermediate files, or None: nothing
             is written
    problem  why it would fail; None: no known problem
    detail   further details, such as the operations of a model
    command  and ``out``, of the job, which the frame adds; no ``out``: no output
    """

    what: str
    steps: tuple[tuple[str, str], ...]
    memory: Need
    disk: Need | None = None
    problem: PenstockError | None = None
    detail: Report | None = None
    command: str = ""
    out: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return everything, for ``--json``."""
        return {
            "command": self.command,
            "out": self.out,
            "what": self.what,
            "steps": [{"name": name, "does": does} for name, does in self.steps],
            "memory_bytes": self.memory.bytes,
            "memory_there": self.memory.there,
            "disk_bytes": 0 if self.disk is None else self.disk.bytes,
            "disk_free": None if self.disk is None else self.disk.there,
            "problem": None if self.problem is None else self.problem.to_dict(),
            **({} if self.detail is None else {"detail": self.detail.to_dict()}),
        }

    def text(self) -> str:
        """Return the text for people."""
        rows = [
            *self.steps,
            ("memory", self.memory.text()),
            *([] if self.disk is None else [("disk", self.disk.text())]),
        ]
        width = max(len(name) for name, _ in rows)
        would = "print" if self.out is None else f"write {shown(self.out)}:"
        lines = [f"{self.command} would {would} {self.what}"]
        lines += [f"  {name:<{width}}  {does}" for name, does in rows]
        return "\n".join(lines if self.detail is None else [*lines, "", self.detail.text()])


def disk_need(folder: Path, size: int) -> Need:
    """Return the need of an output of ``size`` bytes on the disk of ``folder``."""
    named = shown(folder)
    where = "this folder" if named == "." else named
    return Need(size, free_disk(folder), f"free on the disk of {where}")
