"""Cron expressions mean what cron means: compared minute by minute with a naive reading."""

import datetime as dt
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import UsageError
from penstock.pipelines.schedule.cron import parse_cron

MINUTE = dt.timedelta(minutes=1)


def allowed(word, low, high):
    """One field, read naively; days of the week count 0 and 7 for Sunday."""
    found = set()
    for part in word.split(","):
        span, _, step = part.partition("/")
        if span == "*":
            begin, end = low, high
        else:
            begin, _, last = span.partition("-")
            end = last or (high if step else begin)
        found |= set(range(int(begin), int(end) + 1, int(step or 1)))
    return found


def due(text, moment):
    minute, hour, *_ = text.split()
    if moment.minute not in allowed(minute, 0, 59) or moment.hour not in allowed(hour, 0, 23):
        return False
    return due_on(text, moment)


def due_on(text, moment):
    """Whether the day is one on which it is due."""
    *_, day, month, week = text.split()
    if moment.month not in allowed(month, 1, 12):
        return False
    by_date = moment.day in allowed(day, 1, 31)
    by_week = moment.isoweekday() % 7 in {one % 7 for one in allowed(week, 0, 6)}
    either = not day.startswith("*") and not week.startswith("*")
    return by_date or by_week if either else by_date and by_week


def field(low, high):
    number = st.integers(low, high)
    span = st.tuples(number, number).map(lambda two: f"{min(two)}-{max(two)}")
    step = st.integers(1, 7).map(lambda n: f"*/{n}")
    part = st.one_of(number.map(str), span, span.flatmap(lambda s: st.just(f"{s}/2")))
    return st.one_of(st.just("*"), step, st.lists(part, min_size=1, max_size=3).map(",".join))


EXPRESSIONS = st.tuples(
    field(0, 59),
    field(0, 23),
    st.one_of(st.just("*"), field(1, 28)),
    st.just("*"),
    st.one_of(st.just("*"), field(0, 6)),
).map(" ".join)


@settings(max_examples=30)
@given(EXPRESSIONS, st.datetimes(dt.datetime(2026, 1, 1), dt.datetime(2027, 1, 1)))
def test_it_is_due_when_cron_would_run(text, moment):
    now = moment.replace(tzinfo=dt.UTC, second=0, microsecond=0)
    found = next(parse_cron(text).times("UTC", now))
    naive, days = now, 0
    while not due(text, naive):
        naive += MINUTE
        while not due_on(text, naive):
            naive, days = naive.replace(hour=0, minute=0) + 1440 * MINUTE, days + 1
            if days > 40:
                return
    assert found == naive


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("0 2 * * 0", "2026-11-29T02:00"),  # Sunday
        ("0 2 * * fri-mon", "2026-11-27T02:00"),
        ("0 0 1 * 1", "2026-11-30T00:00"),  # a Monday, before the first of December
        ("@monthly", "2026-12-01T00:00"),
        ("0 2 * feb *", "2027-02-01T02:00"),
    ],
)
def test_known_expressions(text, first):
    now = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)  # a Monday
    found = next(parse_cron(text).times("UTC", now))
    assert f"{found:%Y-%m-%dT%H:%M}" == first


WRONG = """|* * * *|60 * * * *|* 24 * * *|* * 0 * *|* * * 13 *|* * * * 8|a * * * *|*/0 * * * *
|5-1 * * * *|1,,2 * * * *|* * 31 2 *|* * * * * *|-1 * * * *"""


@pytest.mark.parametrize("text", WRONG.split("|"))
def test_an_expression_that_cron_does_not_know_is_refused(text):
    with pytest.raises(UsageError):
        parse_cron(text)


def test_systemds_calendar():
    assert parse_cron("*/30 2 * * 1-5").calendar("UTC") == (
        "Mon,Tue,Wed,Thu,Fri *-*-* 02:00,30:00 UTC",
    )
    assert parse_cron("0 0 1 * 1").calendar(None) == ("*-*-01 00:00:00", "Mon *-*-* 00:00:00")


def fires(text, zone, begin, count):
    found = islice(parse_cron(text).times(zone, dt.datetime.fromisoformat(begin)), count)
    return [f"{one:%m-%dT%H:%M%z}" for one in found]


# An expression, a zone, a moment, and when it fires after it.
TIMES = """
# 2:30 is skipped, and comes later by the skipped hour
30 2 * * *   | Europe/Zurich  | 2026-03-28T12:00+01:00 | 03-29T03:30+0200 03-30T02:30+0200
# 2:30 is shown twice, and counts once
30 2 * * *   | Europe/Zurich  | 2026-10-24T12:00+02:00 | 10-25T02:30+0200 10-26T02:30+0100
30 2 * * *   | Europe/Zurich  | 2026-10-25T02:10+01:00 | 10-26T02:30+0100
30 2 1 * 0   | Europe/Zurich  | 2026-10-24T12:00+02:00 | 10-25T02:30+0200 11-01T02:30+0100
# there is no midnight
0 0 * * *    | America/Havana | 2026-03-07T12:00-05:00 | 03-08T01:00-0400 03-09T00:00-0400
# two that fall together are one
30 2,3 * * * | Europe/Zurich  | 2026-03-28T12:00+01:00 | 03-29T03:30+0200 03-30T02:30+0200
# frequent schedules continue through both
*/30 * * * * | Europe/Zurich  | 2026-10-25T02:20+02:00 | 10-25T02:30+0200 10-25T02:00+0100
*/30 * * * * | Europe/Zurich  | 2026-10-25T02:20+01:00 | 10-25T02:30+0100 10-25T03:00+0100
"""


@pytest.mark.parametrize("row", [one for one in TIMES.strip().splitlines() if one[0] != "#"])
def test_the_time_on_the_wall_counts_where_clocks_are_changed(row):
    text, zone, begin, times = (part.strip() for part in row.split("|"))
    assert fires(text, zone, begin, len(times.split())) == times.split()
