"""Times of edges: read from numbers, timestamps and texts, and cut to a window."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrays import Array
from penstock.arrow import as_numpy
from penstock.pipelines.tables.columns import (
    cast_rows,
    floats,
    integers,
    is_text,
    nulls_of,
    strings,
)
from penstock.pipelines.tables.rows import RowChecks, shorten

_ZONE = r"Z$|[T ].*[+-]\d\d(:?\d\d)?$"  # at the end of an ISO 8601 text
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def times(column: pa.Array, time_type: str, checks: RowChecks) -> Array:
    """Return a column as int64 or float64; timestamps and dates as int64 nanoseconds."""
    if time_type == "float64":
        values = floats(column, "time", checks)
        checks.fail(~np.isfinite(values), lambda row: f"time {values[row]} is not finite")
        return values
    if time_type == "int64":
        return integers(column, "int64", "time", checks)
    if is_text(column.type):
        return _stamps(strings(column, "time", checks), "ns", "time", checks)
    checks.fail(nulls_of(column), "time is missing")
    zone = column.type.tz if pa.types.is_timestamp(column.type) else None
    stamps, bad = cast_rows(column, pa.timestamp("ns", zone))
    checks.fail(bad, "time is beyond what 64-bit nanoseconds hold, the years 1677 to 2262")
    return as_numpy(stamps.cast(pa.int64()), 0)


def days(column: pa.Array, what: str, checks: RowChecks) -> Array:
    """Return dates and timestamps as whole days since 1970, in UTC; missing ones become NaN."""
    if is_text(column.type):
        texts = pc.utf8_trim_whitespace(column.cast(pa.string()))
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
        missing = nulls_of(texts)
        numbers = _stamps(texts, "us", what, checks) // _DAY["us"]
    elif pa.types.is_date32(column.type):
        missing, numbers = nulls_of(column), as_numpy(column.cast(pa.int32()), 0)
    else:
        unit = "ms" if pa.types.is_date64(column.type) else column.type.unit
        missing = nulls_of(column)
        numbers = as_numpy(column.cast(pa.int64()), 0) // _DAY[unit]
    return np.where(missing, np.nan, numbers)


def inside_window(values: Array, since: float | None, until: float | None) -> Array:
    """Return a mask of the times at or after ``since`` and before ``until``; see ``moment``."""
    inside = np.ones(len(values), bool)
    if since is not None:
        inside &= values >= since
    if until is not None:
        inside &= values < until
    return inside


def _stamps(column: pa.Array, unit: str, what: str, checks: RowChecks) -> Array:
    """Return ISO 8601 texts as a number of units since 1970; without a zone they count as UTC."""
    values, bad = np.zeros(len(column), np.int64), np.zeros(len(column), bool)
    zoned = as_numpy(pc.match_substring_regex(column, _ZONE), False)
    for which, zone in ((~zoned, None), (zoned, "UTC")):
        if which.any():
            some = column if which.all() else column.filter(pa.array(which))
            stamps, bad[which] = cast_rows(some, pa.timestamp(unit, zone))
            values[which] = as_numpy(stamps.cast(pa.int64()), 0)
    checks.fail(
        bad, lambda row: f"{what} {shorten(column[row].as_py())!r} is not a date such as 2026-11-20"
    )
    return values
