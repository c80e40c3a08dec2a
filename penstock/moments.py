"""Bounds in time as users give them, exactly, in the unit of the times that they are compared with.

Times are whole numbers, floats, or timestamps kept as whole nanoseconds since 1970. No bound of
whole numbers passes through a float, which holds nanoseconds of today only in steps of 256.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from numbers import Integral, Real
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from penstock.errors import UsageError

TimeType = Literal["int64", "float64", "timestamp"]

LEAST, MOST = -(1 << 63), (1 << 63) - 1  # of times that are whole
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Of a second: datetime would cut it to microseconds.
_FRACTION = re.compile(r"(?:(?<=[T ]\d\d:\d\d:\d\d)|(?<=[T ]\d{6}))[.,](\d+)")
_DATE = "a date such as 2026-11-20"
_EXPECTED = {
    "timestamp": f"{_DATE}, as the times are timestamps",
    "int64": "a number, as the times are numbers (int64)",
    "float64": "a number, as the times are numbers (float64)",
    None: f"a number, or {_DATE}",
}


def _as_text(value: Any) -> Any:
    """Return a number or date from Python or YAML as it is written on the command line."""
    if isinstance(value, bool):
        raise ValueError("a number or a date")
    if isinstance(value, Integral):
        return str(int(value))
    if isinstance(value, Real):
        return repr(float(value))
    if isinstance(value, date):
        return value.isoformat()
    # NumPy's, without importing it: options are read before anything heavy is.
    return str(value) if str(getattr(value, "dtype", "")).startswith("datetime64") else value


# The type of options that are a moment in time.
Moment = Annotated[str, BeforeValidator(_as_text)]


def moment(text: str | None, kind: TimeType | None, name: str) -> int | float | None:
    """Return the least time that is not before what ``text`` says; of whole times an int.

    kind: None stands for int64 of which nobody noted whether they are numbers or timestamps.
    An int beyond 64 bits becomes the next one beyond, which is after, or not after, every time.
    """
    if text is None:
        return None
    try:
        if kind == "timestamp":
            return _within(_nanoseconds(text))
        if kind == "float64":
            number = float(text)
            if math.isfinite(number):
                return number
        else:
            return _whole(text, dates=kind is None)
    except (ValueError, ArithmeticError):
        pass
    raise UsageError(f"option {name} has a bad value", expected=_EXPECTED[kind], got=repr(text))


def time_text(value: float, *, timestamp: bool) -> str:
    """Return a time for people: of nanoseconds since 1970, the date."""
    if not timestamp:
        return str(value)
    seconds, nanoseconds = divmod(int(value), 10**9)
    text = (_EPOCH + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
    return (
        text + f".{nanoseconds:09d}".rstrip("0") if nanoseconds else text.removesuffix("T00:00:00")
    )


def _whole(text: str, *, dates: bool) -> int:
    try:
        number = Decimal(text.strip())
    except ArithmeticError:
        if dates:
            return _within(_nanoseconds(text))
        raise
    if number.is_nan() or number.is_infinite():
        raise ValueError(text)
    # What has a million digits is never written out.
    if abs(number) > MOST:
        return LEAST if number < 0 else MOST + 1
    return math.ceil(number)


def _nanoseconds(text: str) -> int:
    """Return an ISO 8601 text as nanoseconds since 1970; without a zone it counts as UTC."""
    found = _FRACTION.search(text)
    digits = found[1] if found else "0"
    stamp = datetime.fromisoformat(_FRACTION.sub("", text, count=1).strip())
    if stamp.microsecond:
        raise ValueError(text)  # a fraction of an hour or a minute, which datetime takes for one
    stamp = stamp if stamp.tzinfo else stamp.replace(tzinfo=UTC)
    since = stamp - _EPOCH
    seconds = since.days * 86400 + since.seconds
    # A zone may have microseconds; of digits beyond nanoseconds the next nanosecond is meant.
    fraction = int(digits[:9].ljust(9, "0")) + bool(digits[9:].strip("0"))
    return seconds * 10**9 + since.microseconds * 1000 + fraction


def _within(number: int) -> int:
    return min(max(number, LEAST), MOST + 1)
