"""Values out of records and reports, which may be older, damaged or written by another hand."""

from __future__ import annotations

import math
from typing import Any

from penstock.documents import named_number


def text(value: Any) -> str:
    """Return a value as text; nothing for None."""
    return "" if value is None else str(value)


def number(value: Any) -> float | None:
    """Return a number, which may be NaN or infinite, or None if the value is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return named_number(value) if isinstance(value, str) else None
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def amount(value: Any) -> float | None:
    """Return a number that is finite and not negative, as seconds and counts are, or None."""
    found = number(value)
    return found if found is not None and math.isfinite(found) and found >= 0 else None


def mapping(value: Any) -> dict[str, Any]:
    """Return a dict with its keys as text; an empty one if the value is not one."""
    return {str(key): one for key, one in value.items()} if isinstance(value, dict) else {}


def mappings(value: Any) -> list[dict[str, Any]]:
    """Return the dicts of a list."""
    found = value if isinstance(value, list | tuple) else []
    return [mapping(one) for one in found if isinstance(one, dict)]


def shown_number(value: Any) -> str:
    """Return a number as people read it; an empty text if the value is not one."""
    found = number(value)
    if found is None:
        return ""
    if found.is_integer() and abs(found) < 2**53:
        return f"{found:.0f}"  # counts are shown whole
    if math.isfinite(found):
        return f"{found:.6g}"
    return "NaN" if math.isnan(found) else ("infinity" if found > 0 else "-infinity")


def shown_seconds(value: Any) -> str:
    """Return seconds with three digits after the point; an empty text if the value is not a
    number."""
    found = amount(value)
    return "" if found is None else f"{found:.3f}"
