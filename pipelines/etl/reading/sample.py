"""The first rows of a text file, and what they tell: delimiter, header, kinds of columns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.errors import InputError, UsageError
from penstock.kernels.text_rules import LONE_RETURN
from penstock.moments import TimeType
from penstock.pipelines.etl.options import EtlOptions, type_column
from penstock.pipelines.etl.reading.check_rows import shorten
from penstock.pipelines.etl.reading.inputs import head_of
from penstock.pipelines.etl.reading.text import (
    CONVERT_RETURNS,
    RETURN_INSIDE,
    Dialect,
    TextBlock,
    long_line,
    split_head,
    without_mark,
)

Names = tuple[str, ...]

_ROWS = 1000
_HEADS = tuple(1 << bits for bits in (20, 22, 24, 26))  # bytes to examine, if need be
_NAMED = {"tab": "\t", "\\t": "\t", "space": " ", "comma": ","}
INTEGER = re.compile(r"\s*[+-]?[0-9]+\s*")
_NUMBER = re.compile(
    r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*|[+-]?(nan|inf)", re.I
)


@dataclass(frozen=True)
class Sample:
    """The first rows of a text file as texts, a header among them if there is one."""

    path: str
    delimiter: str
    rows: list[list[str]]

    @property
    def width(self) -> int:
        """Columns of most rows."""
        return Counter(len(row) for row in self.rows).most_common(1)[0][0]

    def column(self, number: int, *, header: bool) -> list[str]:
        """Return the texts of one column, empty ones left out."""
        rows = self.rows[1:] if header else self.rows
        return [row[number] for row in rows if number < len(row) and row[number]]


def take_sample(path: str, kind: str, options: EtlOptions) -> Sample:
    """Return the first rows of a file, cut as the format ``kind`` and the options say."""
    head = first_lines(path, kind)
    delimiter = _delimiter(head, path, kind, options)
    return Sample(path, delimiter, first_rows(head, Dialect.of(kind, delimiter), _ROWS, path))


def first_lines(path: str, kind: str) -> bytes:
    """Return whole lines from a file's beginning, about a megabyte, without the mark before them.

    More of them where they would hold fewer than two rows that the file has: a header may be long,
    and comments may be many.
    """
    for size in _HEADS:
        head = head_of(path, size)
        ended = len(head) < size
        found = without_mark(head, path)
        if ended:
            return found if found.endswith(b"\n") or not found else found + b"\n"
        head = found[: found.rfind(b"\n") + 1]
        if len(first_rows(head, Dialect(10, comments=kind == "edgelist"), 2)) == 2:
            return head
    if head:
        raise InputError(
            f"{path} has no two rows in its first {_HEADS[-1] >> 20} MiB",
            remedy="Drop most of the comments before its rows",
        )
    if b"\r" in found:
        raise _lone_return(path, 1, found[:200].decode("utf-8", "replace"))
    raise long_line(path)


def first_rows(head: bytes, dialect: Dialect, count: int, path: str = "") -> list[list[str]]:
    """Return the fields of the first rows; one that is faulty has none.

    With ``path`` the very first must be whole, as it tells the columns.
    """
    rows: list[list[str]] = []
    if not head:
        return rows
    widest, first = 1, bool(path)
    for block in split_head(head, np.zeros(0, np.int32), dialect):
        if first and len(block.widths):
            _check_first(block, path)
            first = False
        widest = max(widest, int(block.widths[:count].max(initial=1)))
    for block in split_head(head, np.arange(widest, dtype=np.int32), dialect):
        columns = [block.fields(slot) for slot in range(widest)]
        for row in range(min(len(block.widths), count - len(rows))):
            width = max(int(block.widths[row]), 0)
            rows.append([_unquoted(columns[i].text(row), dialect) for i in range(width)])
        if len(rows) == count:
            break
    return rows


def _check_first(block: TextBlock, path: str) -> None:
    if block.widths[0] == LONE_RETURN:
        raise _lone_return(path, int(block.lines[0]) + 1, block.text(0))


def _lone_return(path: str, row: int, text: str) -> InputError:
    return InputError(
        f"{path}, row {row}: {RETURN_INSIDE}",
        expected="lines that end with a newline, or with carriage return and newline",
        got=shorten(text),
        remedy=CONVERT_RETURNS,
    )


def has_header(sample: Sample, options: EtlOptions, sources: Names, targets: Names) -> bool:
    """Say whether the first row names the columns.

    It does if names that the options give stand in it, or usual ones of both source and target,
    or if it holds no number where some column holds nothing else in every other row.
    """
    if options.header != "auto":
        return options.header == "yes"
    if names_columns(sample.rows[0], options, sources, targets):
        return True
    first = sample.rows[0]
    if len(sample.rows) < 2 or len(set(first)) < len(first) or any(map(is_number, first)):
        return False
    for number, name in enumerate(first):
        column = sample.column(number, header=True)
        if name and column and all(map(is_number, column)):
            return True
    return False


def names_columns(row: Sequence[str], options: EtlOptions, sources: Names, targets: Names) -> bool:
    """Say whether a row holds names that the options give, or usual ones of both ends."""
    words = {field.strip().lstrip("#").strip().lower() for field in row}
    asked = {
        name.lower()
        for name in (options.source, options.target, options.weight, options.relation,
                     options.time, options.graph_id, type_column(options.source_type),
                     type_column(options.target_type))
        if name is not None and not name.isdecimal()
    }  # fmt: skip
    return bool(asked & words or (words & set(sources) and words & set(targets)))


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
    numbers = [int(value[:40]) for value in integers]  # 40 digits are too many, whatever follows
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


def _delimiter(head: bytes, path: str, kind: str, options: EtlOptions) -> str:
    if options.delimiter is not None:
        delimiter = _NAMED.get(options.delimiter.lower(), options.delimiter)
        if len(delimiter.encode()) != 1 or delimiter in '"\r\n':
            raise UsageError(
                "--delimiter is one character", expected="such as ',' or tab",
                got=repr(options.delimiter),
            )  # fmt: skip
        return delimiter
    if kind in ("csv", "tsv"):
        return "," if kind == "csv" else "\t"
    first = next(iter(first_rows(head, Dialect(10, comments=kind == "edgelist"), 1, path)), [""])[0]
    if kind == "triples":
        if "\t" not in first and "," in first and path.lower().find(".csv") > 0:
            return ","
        return "\t" if "\t" in first else " "
    # An edge list with commas is no error: nobody's ids are "1,2".
    if len(first.split()) == 1:
        return next((mark for mark in ",;|" if mark in first), " ")
    return " "


def _unquoted(text: str, dialect: Dialect) -> str:
    return text.replace('""', '"') if dialect.quote else text
