"""Lines of text cut into fields one by one: first rows of a file, and quotes at odd places."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

BLANKS = b" "  # as a delimiter: any run of spaces and tabs
OPEN_QUOTE = "a quote is opened and never closed"
AFTER_QUOTE = "something follows a closing quote"
_CLOSED = re.compile(rb'"[^"]*(?:""[^"]*)*"')
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
    quoted = re.compile(
        rb'"([^"]*(?:""[^"]*)*)"(?=[%s\r\n])|"|([^%s\r\n]*)' % ((re.escape(dialect.delimiter),) * 2)
    )
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
            fields, stop, fault = _quoted_fields(data, at, quoted, multiline=multiline)
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
    data: bytes, at: int, pattern: re.Pattern[bytes], *, multiline: bool
) -> tuple[list[bytes], int, str | None]:
    """Return the fields of the row at ``at``, the first byte of the next, and any fault."""
    fields = []
    end = _end_of_line(data, at)
    begin = at
    while True:
        found = pattern.match(data, at, len(data) if multiline else end)
        assert found is not None  # an unquoted field may be empty
        value, plain = found.groups()
        if value is None and plain is None:
            closed = _CLOSED.match(data, at, len(data) if multiline else end)
            if closed is None:
                return [], _end_of_line(data, begin), OPEN_QUOTE
            return [], _end_of_line(data, closed.end()), AFTER_QUOTE
        fields.append(value.replace(b'""', b'"') if value is not None else plain)
        at = found.end()
        if data[at] in b"\r\n":
            return fields, _end_of_line(data, at), None
        at += 1


def _end_of_line(data: bytes, at: int) -> int:
    found = _LINE.match(data, at)
    return len(data) if found is None else found.end()
