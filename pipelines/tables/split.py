"""Lines of text cut into fields one by one: first rows of a file, and quotes at odd places."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass

BLANKS = b" "  # as a delimiter: any run of spaces and tabs
OPEN_QUOTE = "a quote is opened and never closed"
AFTER_QUOTE = "something follows a closing quote"
csv.field_size_limit(1 << 30)
_LINE = re.compile(rb"[^\r\n]*(\r\n|\n|\r)")


@dataclass(frozen=True)
class Dialect:
    """How lines are cut; only csv and tsv have quotes, only edge lists have comments."""

    delimiter: bytes
    quote: bool = False
    comments: bool = False

    @classmethod
    def of(cls, kind: str, delimiter: str) -> Dialect:
        """Return the dialect of a format."""
        quote = kind in ("csv", "tsv") and delimiter != " "
        return cls(delimiter.encode(), quote, comments=kind == "edgelist")


@dataclass(frozen=True)
class SplitRow:
    """A row of text and its position."""

    start: int  # its first byte
    stop: int  # the first byte of the next line
    line: int  # number of lines before it
    fields: list[bytes]  # empty if there is a fault
    fault: str | None = None


def split_rows(
    data: bytes, dialect: Dialect, *, multiline: bool = True, patience: int = -1
) -> Iterator[SplitRow]:
    """Yield the rows of whole lines, without empty lines and comments.

    multiline  a quoted field may contain newlines
    patience   if a quote opens in this many last bytes, later bytes may close it: its row is left
               out
    """
    at = line = 0
    while at < len(data):
        stop = _end_of_line(data, at)
        text = data[at:stop].rstrip(b"\r\n")
        if dialect.delimiter == BLANKS:
            fields = text.split()
        else:
            fields = text.split(dialect.delimiter) if text else []
        comment = dialect.comments and text.lstrip(b" \t")[:1] in (b"#", b"%") and bool(fields)
        lines = 1
        if dialect.quote and b'"' in text:
            fields, stop, fault = _quoted_fields(data, at, dialect.delimiter, multiline=multiline)
            if fault == OPEN_QUOTE and len(data) - at <= patience:
                return
            lines = len(_LINE.findall(data, at, stop))
            yield SplitRow(at, stop, line, fields, fault)
        elif fields and not comment:
            yield SplitRow(at, stop, line, fields)
        at, line = stop, line + lines


def first_row(data: bytes, dialect: Dialect) -> tuple[int, int]:
    """Return the first byte of the second row, and the number of lines before it; or zeros."""
    rows = split_rows(data, dialect)
    if next(rows, None) is None:
        return 0, 0
    second = next(rows, None)
    if second is None:
        return len(data), len(_LINE.findall(data))
    return second.start, second.line


def _quoted_fields(
    data: bytes, at: int, delimiter: bytes, *, multiline: bool
) -> tuple[list[bytes], int, str | None]:
    """Return the fields of the row at ``at``, the first byte of the next, and any fault."""
    first = stop = _end_of_line(data, at)

    def lines() -> Iterator[str]:
        nonlocal stop
        yield data[at:stop].decode("latin-1")
        while multiline and stop < len(data):
            begin, stop = stop, _end_of_line(data, stop)
            yield data[begin:stop].decode("latin-1")

    try:
        fields = next(csv.reader(lines(), delimiter=delimiter.decode("latin-1"), strict=True))
    except csv.Error as error:
        is_open = "unexpected end" in str(error)
        return [], first if is_open else stop, OPEN_QUOTE if is_open else AFTER_QUOTE
    return [field.encode("latin-1") for field in fields], stop, None


def _end_of_line(data: bytes, at: int) -> int:
    found = _LINE.match(data, at)
    return len(data) if found is None else found.end()
