"""What a page shows, before it is drawn: sections of tables and charts, as plain numbers and text.

Nothing here knows HTML or Bokeh. Every chart has a table, which gives its numbers to readers who
cannot see it, and a sentence about how to read it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

MOST_ROWS = 500  # of one table: more make a page slow and help no reader
_MOST_POINTS = 1000  # of one line

Kind = Literal["lines", "bars", "points"]


@dataclass(frozen=True)
class Table:
    """Rows of text under heads; the first cell of a row names it."""

    caption: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Series:
    """One line, one kind of bar, or one group of points.

    x, y    of bars: x is the length in each category, y is empty
    labels  of points: what each is
    """

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Chart:
    """A picture of numbers.

    about       how to read it, in a sentence or two
    x, y        what the axes are
    categories  of bars: one below the other
    log         which axes are logarithmic
    level       a horizontal line that is to be compared with
    equal       whether a unit of x is as long as one of y
    from_zero   whether y begins at 0
    """

    kind: Kind
    title: str
    about: str
    x: str
    y: str
    series: tuple[Series, ...]
    table: Table
    categories: tuple[str, ...] = ()
    log: tuple[bool, bool] = (False, False)
    level: float | None = None
    equal: bool = False
    from_zero: bool = False


@dataclass(frozen=True)
class Section:
    """A heading, and the content below it."""

    title: str
    parts: tuple[Chart | Table | str, ...]


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Return a table, cut after MOST_ROWS rows."""
    found = [tuple(row) for row in rows]
    if len(found) > MOST_ROWS:
        caption = f"{caption} (the first {MOST_ROWS} of {len(found):,} rows)"
    return Table(caption, tuple(heads), tuple(found[:MOST_ROWS]))


def finite(x: Iterable[float], y: Iterable[float | None]) -> tuple[list[float], list[float]]:
    """Return the pairs that can be drawn."""
    pairs = [
        (float(a), float(b))
        for a, b in zip(x, y, strict=True)
        if b is not None and math.isfinite(a) and math.isfinite(b)
    ]
    return [a for a, _ in pairs], [b for _, b in pairs]


def line(name: str, x: Iterable[float], y: Iterable[float | None]) -> Series | None:
    """Return a line through the points that are numbers, thinned; None if there is none."""
    xs, ys = finite(x, y)
    if not xs:
        return None
    kept = thinned(len(xs), _MOST_POINTS)
    return Series(name, tuple(xs[i] for i in kept), tuple(ys[i] for i in kept))


def thinned(count: int, most: int) -> list[int]:
    """Return which of ``count`` items stand for all: evenly spread, the first and last among them.

    >>> thinned(5, 3)
    [0, 2, 4]
    """
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})
