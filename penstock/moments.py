"""Exact time bounds from users, in the unit of the times that they are compared with.

Times are integers, floats, or timestamps in nanoseconds since 1970. Integer bounds never pass
through a float, which holds today's nanoseconds only in steps of 256.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime
from decimal import Decimal
from numbers import Integral, Real
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from penstock.errors import UsageError

TimeType = Literal["int64", "float64", "timestamp"]

_EPOCH = 1970  # the year
_UNITS = {"d": 86400, "h": 3600, "min": 60, "s": 1}
LEAST, MOST = -(1 << 63), (1 << 63) - 1  # of integer times
_DATE = "a date such as 2026-11-20"
_EXPECTED = {
    "timestamp": f"{_DATE}, as the times are timestamps",
    "int64": "a number, as the times are numbers (int64)",
    "float64": "a number, as the times are numbers (float64)",
    None: f"a number, or {_DATE}",
}


def _as_text(value: Any) -> Any:
    """Return a number or date from Python or YAML in its command-line form."""
    if isinstance(value, bool):
        raise ValueError("a number or a date")
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return repr(float(value))
    if isinstance(value, date):
        return value.isoformat()
    # NumPy's, without importing it: options are read before heavy imports.
    return str(value) if str(getattr(value, "dtype", "")).startswith("datetime64") else value


# The type of options that are a moment in time.
Moment = Annotated[str, BeforeValidator(_as_text)]


def moment(text: str | None, kind: TimeType | None, name: str) -> int | float | None:
    """Return the earliest time not before ``text``; an int if times are integers.

    kind: None, if it is unknown whether they are numbers or timestamps, counts as int64. A number
    beyond 64 bits becomes the next one beyond, which compares the same with every time.
    """
    if text is None:
        return None
    try:
        if kind == "timestamp" or (kind is None and not _is_number(text)):
            return _nanoseconds(text)
        number = Decimal(text.strip())
        if number.is_finite() and kind == "float64":
            return float(number)
        if number.is_finite() and abs(number) > MOST:
            return LEAST if number < 0 else MOST + 1
        if number.is_finite():
            return math.ceil(number)
    except (ValueError, ArithmeticError):
        pass
    raise UsageError(f"option {name} has a bad value", expected=_EXPECTED[kind], got=repr(text))


def moment_before(until: float, length: str, kind: TimeType | None) -> int | float:
    """Return the time that is ``length`` before another: a number, or 30d, 12h, 90min or 60s."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(d|h|min|s)?", length.strip())
    number, unit = found.groups() if found else ("0", None)
    if not Decimal(number) or (unit is None) == (kind == "timestamp"):
        what, are = "a number above 0", "numbers"
        if kind == "timestamp":
            what, are = "30d, 12h, 90min or 60s", "timestamps"
        expected = f"{what}, as the times are {are}"
        raise UsageError("option --window has a bad value", expected=expected, got=repr(length))
    if kind == "float64":
        return until - float(number)
    return int(until) - int(Decimal(number) * (1 if unit is None else _UNITS[unit] * 10**9))


def time_text(value: float, *, timestamp: bool) -> str:
    """Return a readable time: the date for nanoseconds since 1970."""
    if not timestamp:
        return str(value)
    from pandas import Timestamp

    return str(Timestamp(int(value)).isoformat()).removesuffix("T00:00:00")


def _is_number(text: str) -> bool:
    try:
        return Decimal(text.strip()).is_finite()
    except ArithmeticError:
        return False


def _nanoseconds(text: str) -> int:
    """Return an ISO 8601 text as nanoseconds since 1970; without a zone it counts as UTC."""
    from pandas import Timestamp
    from pandas.errors import OutOfBoundsDatetime

    datetime.fromisoformat(text.strip())  # pandas also accepts other texts, and guesses
    stamp = Timestamp(text.strip())
    utc = stamp.tz_localize("UTC") if stamp.tz is None else stamp
    try:
        return int(utc.as_unit("ns").value)
    except OutOfBoundsDatetime:
        return LEAST if utc.year < _EPOCH else MOST + 1
