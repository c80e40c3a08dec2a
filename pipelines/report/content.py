"""What a page shows: sections of sentences and of tables, which may also be drawn.

Nothing here knows HTML or Bokeh. A chart draws the numbers of its table, which readers who cannot
see it have instead.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

MOST_ROWS = 500  # of one table: more make a page slow and help no reader
_LONGEST = 2000  # characters of one text: a stage's error may hold a whole log
_NARROW = 36  # characters that fit beside each other on a phone


@dataclass(frozen=True)
class Cell:
    """A cell of a table that is more than a text or a number.

    href  its link
    good  whether it is good news, which colours it
    bar   the begin and length of a bar, in percent
    """

    text: str
    href: str = ""
    good: bool | None = None
    bar: tuple[float, float] | None = None


@dataclass(frozen=True)
class Chart:
    """How a table is drawn.

    kind     lines: the other columns over the first one; bars: the other columns, stacked, a bar
             for each row; points: those of ``points``, by group
    x, y     what the axes are
    skip     columns after the first that are not drawn
    zero     whether y begins at 0
    level    a horizontal line that is to be compared with
    points   group, x, y and label of each
    """

    kind: Literal["lines", "bars", "points"]
    x: str = ""
    y: str = ""
    skip: int = 0
    zero: bool = False
    level: float | None = None
    points: Sequence[tuple[str, float, float, str]] = ()


@dataclass(frozen=True)
class Table:
    """Rows of texts, numbers and cells under heads; the first cell of a row names it.

    about  how to read it, in a sentence or two
    open   whether it is not folded even if it is long
    """

    title: str
    heads: Sequence[str]
    rows: Sequence[Sequence[Any]]
    about: str = ""
    chart: Chart | None = None
    open: bool = False

    @property
    def stacked(self) -> bool:
        """Whether its columns stand below each other on a phone, as their words are too long."""
        columns = zip(self.heads, *([shown(one) for one in row] for row in self.rows), strict=True)
        words = (max(map(len, " ".join(column).split()), default=0) for column in columns)
        return sum(2 + longest for longest in words) > _NARROW


@dataclass(frozen=True)
class Section:
    """A heading, and the content below it."""

    title: str
    parts: Sequence[Table | str]


def shown(value: Any) -> str:
    """Return a value as people read it.

    >>> shown(0.123456789), shown(12.0), shown(None)
    ('0.123457', '12', '')
    """
    if isinstance(value, Cell):
        value = value.text
    if isinstance(value, float):
        value = f"{value:.0f}" if value.is_integer() and abs(value) < 2**53 else f"{value:.6g}"
    text = "" if value is None else str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def number(value: Any) -> float | None:
    """Return a number that can be drawn, or None."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if good else None


def seconds(value: float | None) -> float | None:
    """Return seconds, rounded as people read them."""
    return None if value is None else round(value, 3)


def thinned(count: int, most: int) -> list[int]:
    """Return which of ``count`` items stand for all: evenly spread, the first and last among them.

    >>> thinned(5, 3)
    [0, 2, 4]
    """
    if count <= most:
        return list(range(count))
    return sorted({round(i * (count - 1) / (most - 1)) for i in range(most)})
