"""The first rows of a text file, which decide delimiter, header and kinds of columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import islice

from penstock.errors import InputError, UsageError
from penstock.moments import TimeType
from penstock.pipelines.tables.sources import head_of
from penstock.pipelines.tables.split import Dialect, split_rows
from penstock.pipelines.tables.text import long_line, whole_lines, without_mark

Names = tuple[str, ...]

_ROWS = 1000
_HEADS = tuple(1 << bits for bits in (20, 22, 24, 26))  # bytes to examine
_NAMED = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ","}
INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
_NUMBER = re.compile(
    r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*|[+-]?(nan|inf)", re.I
)


@dataclass(frozen=True)
class Sample:
    """The first rows of a text file as texts, with the header if there is one."""

    path: str
    delimiter: str
    rows: list[list[str]]

    @property
    def width(self) -> int:
        """The most common number of columns."""
        return Counter(len(row) for row in self.rows).most_common(1)[0][0]

    def column(self, number: int, *, header: bool) -> list[str]:
        """Return the texts of one column, empty ones left out."""
        rows = self.rows[1:] if header else self.rows
        return [row[number] for row in rows if number < len(row) and row[number]]


def take_sample(path: str, kind: str, delimiter: str | None) -> Sample:
    """Return the first rows of a file, cut by its format; ``delimiter`` is the option."""
    head = first_lines(path, kind)
    delimiter = _delimiter(head, path, kind, delimiter)
    return Sample(path, delimiter, first_rows(head, Dialect.of(kind, delimiter), _ROWS))


def first_lines(path: str, kind: str) -> bytes:
    """Return whole lines from a file's beginning, about a megabyte, without a byte order mark.

    More if these hold fewer than two of the file's rows: headers may be long, and comments may be
    many.
    """
    for size in _HEADS:
        head = head_of(path, size)
        ended = len(head) < size
        found = without_mark(head, path)
        if ended:
            return found if found.endswith((b"\n", b"\r")) or not found else found + b"\n"
        head = found[: whole_lines(found)]
        if len(first_rows(head, _lines(kind), 2)) == 2:
            return head
    if head:
        raise InputError(
            f"{path} has fewer than two rows in its first {_HEADS[-1] >> 20} MiB",
            remedy="Drop most of the comments before its rows",
        )
    raise long_line(path)


def first_rows(head: bytes, dialect: Dialect, count: int) -> list[list[str]]:
    """Return the fields of the first rows; a faulty row has none."""
    rows = islice(split_rows(head, dialect), count)
    return [[field.decode("utf-8", "replace") for field in row.fields] for row in rows]


def has_header(
    sample: Sample, header: str, asked: Collection[str], sources: Names, targets: Names
) -> bool:
    """Say whether the first row names the columns.

    It does if ``header``, the option, is yes; if it contains the names ``asked`` for, or usual
    names of source and target; or if it holds no number in a column that holds only numbers in
    every other row.
    """
    if header != "auto":
        return header == "yes"
    if names_columns(sample.rows[0], asked, sources, targets):
        return True
    first = sample.rows[0]
    if len(sample.rows) < 2 or len(set(first)) < len(first) or any(map(is_number, first)):
        return False
    for number, name in enumerate(first):
        column = sample.column(number, header=True)
        if name and column and all(map(is_number, column)):
            return True
    return False


def names_columns(
    row: Sequence[str], asked: Collection[str], sources: Names, targets: Names
) -> bool:
    """Say whether a row holds the names asked for, or usual names of both ends."""
    words = {field.strip().lstrip("#").strip().lower() for field in row}
    named = {name.lower() for name in asked if not name.isdecimal()}
    return bool(named & words or (words & set(sources) and words & set(targets)))


def is_number(text: str) -> bool:
    """Say whether a text is a decimal number."""
    return _NUMBER.fullmatch(text) is not None


def id_type_of(values: Sequence[str], path: str) -> str:
    """Return the type of ids that look like ``values``: integers if at least half of them are.

    Texts among integers are reported as bad rows later. Leading zeros, which would be lost, make
    them texts.
    """
    integers = [value.strip() for value in values if INTEGER.fullmatch(value)]
    if 2 * len(integers) < len(values) or any(re.match(r"[+-]?0[0-9]", v) for v in integers):
        return "string"
    numbers = [int(value[:40]) for value in integers]  # 40 digits are too many in any case
    inside = sum(-(2**63) <= n < 2**63 for n in numbers)
    unsigned = sum(0 <= n < 2**64 for n in numbers)
    if inside == len(numbers):
        return "int64"
    if unsigned == len(numbers):
        return "uint64"
    if 2 * inside >= len(numbers):
        return "int64"
    raise InputError(
        f"the ids of {path} are integers beyond 64 bits",
        got=next(str(n) for n in numbers if not -(2**63) <= n < 2**64),
        remedy="Give --id-type string",
    )


def time_type_of(values: Sequence[str]) -> TimeType:
    """Return the type of times that look like ``values``: numbers if at least half of them are."""
    numbers = [value for value in values if is_number(value)]
    if 2 * len(numbers) < len(values):
        return "timestamp"
    return "int64" if all(map(INTEGER.fullmatch, numbers)) else "float64"


def _delimiter(head: bytes, path: str, kind: str, asked: str | None) -> str:
    if asked is not None:
        delimiter = _NAMED.get(asked.lower(), asked)
        if len(delimiter.encode()) != 1 or delimiter in '"\r\n':
            raise UsageError(
                "--delimiter is one character",
                expected="such as ',' or tab",
                got=repr(asked),
            )
        return delimiter
    if kind in ("csv", "tsv"):
        return "," if kind == "csv" else "\t"
    first = next(iter(first_rows(head, _lines(kind), 1)), [""])[0]
    if kind == "triples":
        if "\t" not in first and "," in first and path.lower().find(".csv") > 0:
            return ","
        return "\t" if "\t" in first else " "
    # Commas in an edge list separate fields: no ids are "1,2".
    if len(first.split()) == 1:
        return next((mark for mark in ",;|" if mark in first), " ")
    return " "


def _lines(kind: str) -> Dialect:
    """Return a dialect whose rows are one field."""
    return Dialect(b"\n", comments=kind == "edgelist")
