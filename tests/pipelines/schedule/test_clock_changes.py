"""Nights in which clocks change, simulated: a scheduler looks every half hour, and each day runs
once."""

import datetime as dt
from collections import Counter
from zoneinfo import ZoneInfo

import pytest

from penstock.pipelines.flow.records import State, begin_run
from penstock.pipelines.schedule.entry import entry_of
from penstock.pipelines.schedule.options import ScheduleOptions, ScheduleTimes

STEP = dt.timedelta(minutes=30)
# Zones, and the day before each change
NIGHTS = [
    ("Europe/Zurich", "2027-03-27"),  # 2:00 to 3:00 is skipped
    ("Europe/Zurich", "2026-10-24"),  # 2:00 to 3:00 comes twice
    ("America/Havana", "2026-03-07"),  # there is no midnight
    ("America/Havana", "2026-10-31"),  # midnight comes twice
    ("America/St_Johns", "2010-11-06"),  # a minute after midnight, it is 23:01 of the day before
    ("Australia/Lord_Howe", "2026-10-03"),  # half an hour is skipped
    ("Pacific/Apia", "2011-12-29"),  # a day is skipped
]
CRONS = ["30 2 * * *", "0 0 * * *", "59 23 * * *"]


def times(zone, before, days=3):
    """Yield moments from a midnight, in which clocks show what they show."""
    now = dt.datetime.fromisoformat(before).replace(tzinfo=ZoneInfo(zone)).astimezone(dt.UTC)
    end = now + dt.timedelta(days)
    while now < end:
        yield now
        now += STEP


def schedule(home, cron, zone, added, **more):
    home.mkdir()
    (home / "flow.yaml").write_text("stages: {a: {job: etl}}")
    options = ScheduleOptions(cron=cron, timezone=zone, **more)
    series, added = ("flow", "flow"), added - dt.timedelta(seconds=1)
    return entry_of(home / "flow.yaml", ScheduleTimes(), options, "flow", series, added)


def run_day(entry, day, now, state=State.PASSED):
    record = begin_run(entry.flow, "flow", day, "", {"scheduled": entry.name})
    began = now.astimezone(ZoneInfo(str(entry.zone))).isoformat()
    record.body.update(began=began, state=state, series="flow")
    record.save()


@pytest.mark.parametrize("cron", CRONS)
@pytest.mark.parametrize(("zone", "before"), NIGHTS)
def test_each_day_runs_once(tmp_path, cron, zone, before):
    """Also if a run fails, or the machine is off until the last moment."""
    clock = [*times(zone, before)]
    days = [*dict.fromkeys(now.astimezone(ZoneInfo(zone)).date() for now in clock)]
    entry, ran = schedule(tmp_path / "home", cron, zone, clock[0]), list[dt.date]()
    for now in clock:
        for day in entry.due(now):
            run_day(entry, day, now, State.FAILED if len(ran) % 2 else State.PASSED)
            ran.append(day)
    assert ran == days[: len(ran)]
    assert len(ran) >= len(days) - 1  # the last one may not be due yet
    off = schedule(tmp_path / "off", cron, zone, clock[0])
    assert off.due(clock[-1]) == ran


@pytest.mark.parametrize(("zone", "before"), [NIGHTS[number] for number in (0, 1, 5)])
def test_every_hour_runs_once(tmp_path, zone, before):
    clock = [*times(zone, before, 2)]
    entry, ran = schedule(tmp_path / "home", "0 * * * *", zone, clock[0]), Counter[dt.date]()
    for now in clock:
        for day in entry.due(now):
            ran[day] += 1
            run_day(entry, day, now)
    shown = [now.astimezone(ZoneInfo(zone)) for now in clock]
    assert ran == Counter(one.date() for one in shown if one.minute == 0)


@pytest.mark.parametrize(("zone", "before"), NIGHTS)
def test_a_day_that_has_not_passed_is_late(tmp_path, zone, before):
    clock = [*times(zone, before)]
    entry = schedule(tmp_path / "home", "30 2 * * *", zone, clock[0], late_after="02:45")
    shown = [now.astimezone(ZoneInfo(zone)) for now in clock]
    days = {one.date() for one in shown if one.hour >= 4}
    assert {day for now in clock if (day := entry.late(now)) is not None} == days
