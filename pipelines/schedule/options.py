"""The options of ``penstock schedule``."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from penstock.options import options
from penstock.pipelines.schedule.cron import parse_cron, zone_of

_LONGEST_WAIT = 3600.0


def seconds_before_retry(number: int, backoff: float) -> float:
    """Return how long to wait before a retry; the first has the number 0."""
    return min(backoff * 2.0**number, _LONGEST_WAIT)


@options
class ScheduleTimes:
    """When a flow runs: ``schedule:`` in its file."""

    cron: str | None = None
    """cron expression: minute, hour, day of the month, month, day of the week, as "30 4 * * *" """
    timezone: str | None = None
    """time zone of the expression, as Europe/Zurich [default: this machine's]"""
    retries: Annotated[int, Field(ge=0, le=100)] | None = None
    """number of retries of a run that failed [default: 0]"""
    backoff: Annotated[float, Field(gt=0, le=_LONGEST_WAIT)] | None = None
    """seconds before the first retry; doubled before each further one [default: 60]"""
    catch_up: Annotated[int, Field(ge=1, le=366)] | None = None
    """the number of missed days that are run, the newest ones [default: 7]"""
    late_after: Annotated[str, Field(pattern=r"^([01]\d|2[0-3]):[0-5]\d$")] | None = None
    """time of the day by which the run should have passed, as "06:00"; else on_failure is called"""

    def __post_init__(self) -> None:
        if self.cron is not None:
            parse_cron(self.cron)
        if self.timezone is not None:
            zone_of(self.timezone)


@options
class ScheduleOptions(ScheduleTimes):
    """A schedule; what is not given is taken from ``schedule:`` in the flow."""

    name: str | None = None
    """name of the schedule [default: the flow's]"""
    set: tuple[str, ...] = ()
    """a variable of the flow, as name=value; may be repeated"""
