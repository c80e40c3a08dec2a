"""The options of ``penstock run``, ``penstock runs clean`` and ``penstock runs serve``."""

from __future__ import annotations

import datetime as dt
from collections.abc import Set
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from pydantic import Field

from penstock.errors import UsageError
from penstock.options import options
from penstock.pipelines.flow.records import ATTEMPT

if TYPE_CHECKING:
    from penstock.pipelines.flow.document import Flow


@options
class RunOptions:
    """Options of ``penstock run``."""

    set: tuple[str, ...] = ()
    """a variable of the flow, as name=value; may be repeated"""
    date: dt.date | None = None
    """the day that is computed, as 2026-11-20 [default: today, in the flow's time zone]"""
    dates: str | None = None
    """a run for each day of a range, the oldest first, as 2026-11-01..2026-11-20"""
    accept: tuple[str, ...] = ()
    """a stage whose gates need not be met in this run; may be repeated"""
    reason: str | None = None
    """why, for the record of the run"""
    scheduled: str | None = None
    """the schedule that runs it: a record is left, and on_failure called, whatever fails"""
    attempt: Annotated[str, Field(pattern=ATTEMPT)] = "1/1"
    """which of how many attempts it is: on_failure is called after the last one"""
    force: Annotated[bool, Parameter(negative="")] = False
    """run every stage, also those whose inputs and options are unchanged"""
    first: Annotated[str | None, Parameter(name="--from")] = None
    """run this stage and those that depend on it; the others must be there"""
    only: tuple[str, ...] = ()
    """run this stage alone; may be repeated"""
    replace_targets: Annotated[bool, Parameter(negative="")] = False
    """publish also to places of other flows"""
    replace_outputs: Annotated[bool, Parameter(negative="")] = False
    """stages may also replace what this flow has not made; it is not kept"""
    detach: Annotated[bool, Parameter(negative="")] = False
    """run in the background, also when this shell has ended; runs/FLOW.log is its log"""
    report: bool = True
    """write a page about the run into its folder, as penstock report does"""

    def __post_init__(self) -> None:
        if bool(self.accept) != bool(self.reason):
            raise UsageError("--accept and --reason go together")
        if self.date and self.dates:
            raise UsageError("--date and --dates cannot go together")
        if self.first and self.only:
            raise UsageError("--from and --only cannot go together")
        self.days()

    @property
    def origin(self) -> dict[str, Any]:
        """Who starts a run, for its record."""
        scheduled = {"scheduled": self.scheduled, "attempt": self.attempt}
        return {} if self.scheduled is None else scheduled

    def check(self, flow: Flow) -> None:
        """Refuse stages that there are not."""
        for name in (*([self.first] if self.first else []), *self.only, *self.accept):
            if name not in flow.stages:
                raise UsageError(
                    f"{flow.path} has no stage {name!r}",
                    expected=f"one of {', '.join(flow.stages)}",
                )

    def chosen(self, flow: Flow) -> Set[str]:
        """Return the stages that may run."""
        if self.only:
            return set(self.only)
        return flow.after((self.first,)) if self.first else set(flow.stages)

    def days(self) -> list[dt.date | None]:
        """Return the days to compute; None: today."""
        if self.dates is None:
            return [self.date]
        first, _, last = self.dates.partition("..")
        try:
            begin, end = dt.date.fromisoformat(first), dt.date.fromisoformat(last)
        except ValueError:
            begin, end = dt.date.max, dt.date.min
        if begin > end:
            raise UsageError(
                "option --dates has a bad value",
                expected="a range such as 2026-11-01..2026-11-20",
                got=self.dates,
            )
        return [begin + dt.timedelta(days=n) for n in range((end - begin).days + 1)]


@options
class CleanOptions:
    """Options of ``penstock runs clean``."""

    keep: Annotated[int, Field(ge=0)] = 7
    """runs of each flow and folder to keep, by date; what gates, schedules and publishing look up
    stays"""


@options
class ServeOptions:
    """Options of ``penstock runs serve``."""

    port: Annotated[int, Field(ge=0, le=65535)] = 8780
    """port of 127.0.0.1 to listen on; 0: any that is free"""


@options
class ListOptions:
    """Which runs ``penstock runs list`` shows."""

    date: str | None = None
    """those of this day"""
    state: Literal["running", "passed", "failed", "interrupted", "killed"] | None = None
    """those in this state"""
    flow: str | None = None
    """those of this flow"""
    set: tuple[str, ...] = ()
    """those with this value of a variable, as name=value; may be repeated"""


def settings(given: tuple[str, ...]) -> dict[str, str]:
    """Return variables from ``name=value`` words."""
    found = {}
    for word in given:
        name, sign, value = word.partition("=")
        if not sign or not name:
            raise UsageError("option --set has a bad value", expected="name=value", got=word)
        found[name.strip()] = value
    return found
