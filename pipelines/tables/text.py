"""Text block by block: pyarrow parses it; blocks that pyarrow cannot parse are cut row by row.

A block is some whole rows. pyarrow receives lines of fields with one delimiter: runs of blanks
become single spaces, comments become empty lines. If a value cannot be read as its type, all
columns of its block are returned as strings, and their conversion finds the bad rows. Only blocks
with quotes at odd places are cut by a loop in Python.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from penstock.arrays import Array
from penstock.arrow import one_array
from penstock.errors import InputError
from penstock.pipelines.tables.columns import cast_rows
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.rows import Column, RowChecks, Rows, RowSource
from penstock.pipelines.tables.sources import open_file, open_stream, read_fully
from penstock.pipelines.tables.split import BLANKS, Dialect, SplitRow, first_row, split_rows

BLOCK = 1 << 24  # bytes in memory at once; also the longest line, and the longest quoted value
_CHUNK = 1 << 16
_PART = 1 << 18
_BOM = b"\xef\xbb\xbf"
_COMMENT = re.compile(rb"(\A|[\r\n])[ \t]*[#%][^\r\n]*")
_QUOTE, _NEWLINE, _RETURN, _SPACE = b'"\n\r '
_INTEGERS = {"int64", "uint64"}


@dataclass(frozen=True)
class TextShape:
    """The columns of a text file."""

    names: tuple[str, ...]  # in order, from its header or invented
    delimiter: str
    header: bool = False
    directed: bool = False  # of JSON: whether edges have a direction

    def position(self, column: Column) -> int:
        """Return the position of a column."""
        return self.names.index(column) if isinstance(column, str) else column


def read_text(piece: Piece, shape: TextShape, columns: Mapping[Column, str]) -> Iterator[Rows]:
    """Read columns of a piece of text; see ``read_rows``."""
    dialect = Dialect.of(piece.format, shape.delimiter)
    positions = {column: shape.position(column) for column in columns}
    kinds = {positions[column]: kind for column, kind in columns.items()}
    header = shape.header and piece.start == 0
    before = partial(lines_before, piece, [])
    for block in _blocks(piece, dialect):
        if header:
            block, header = block.without_first_row()
        arrays, checks = block.parse(kinds, len(shape.names), piece.path)
        if checks.count:
            source = RowSource(piece.path, partial(block.line, before), block.text)
            yield Rows({column: arrays[at] for column, at in positions.items()}, checks, source)


def without_mark(data: bytes, path: str = "the file") -> bytes:
    """Drop the byte order mark that some programs put before UTF-8; refuse UTF-16."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(
            f"{path} is not UTF-8 but UTF-16",
            remedy="Convert it first, for example with iconv -f UTF-16 -t UTF-8",
        )
    return data.removeprefix(_BOM)


def long_line(path: str) -> InputError:
    """Return the error for a line that does not fit in memory."""
    return InputError(
        f"{path} has a line of more than {BLOCK >> 20} MiB",
        remedy="Is it text, with newlines? If its name misleads, give --format",
    )


def whole_lines(data: bytes) -> int:
    """Return the end of the last whole line."""
    newline = data.rfind(b"\n") + 1
    return newline or data.rfind(b"\r", 0, -1) + 1  # a newline may follow the last byte


@dataclass(frozen=True)
class _Block:
    """Some whole rows: bytes of ``data`` from ``start`` to ``stop``."""

    data: bytes
    start: int
    stop: int
    dialect: Dialect
    lines: int  # lines of the piece before the block
    rows: list[SplitRow] | None = None  # already cut, because of quotes at odd places

    @property
    def next_line(self) -> int:
        """The number of lines of the piece up to the end of the block."""
        return self.lines + int(np.count_nonzero(_ends_line(self.data, self.start, self.stop)))

    def without_first_row(self) -> tuple[_Block, bool]:
        """Return the block without its first row, and whether it is empty now."""
        if self.rows is not None:
            return replace(self, rows=self.rows[1:]), not self.rows
        start, lines = first_row(self.data, self.dialect)
        start = min(start, self.stop)
        return replace(self, start=start, lines=self.lines + lines), start == 0

    @cached_property
    def places(self) -> tuple[Array, Array]:
        """The first byte of each row, and the number of lines of the block before it."""
        if self.rows is not None:
            found = [(row.start, row.line) for row in self.rows]
            return np.array([one[0] for one in found]), np.array([one[1] for one in found])
        data = np.frombuffer(self.data, np.uint8)[self.start : self.stop]
        ends = np.flatnonzero(_ends_line(self.data, self.start, self.stop))
        last = ends
        if self.dialect.quote:
            quotes = np.flatnonzero(data == _QUOTE)
            last = ends[np.searchsorted(quotes, ends) % 2 == 0]
        starts = np.append(0, last[:-1] + 1)
        sizes = last - starts
        starts = starts[(sizes > 1) | ((sizes == 1) & (data[starts] != _RETURN))]
        return self.start + starts, np.searchsorted(ends, starts)

    def line(self, before: Callable[[], int], row: int) -> int:
        """Return the line of a row in its file, from 1."""
        return before() + self.lines + int(self.places[1][row]) + 1

    def text(self, row: int) -> str:
        """Return a whole row, for a message."""
        start = int(self.places[0][row])
        line = self.data[start : start + 4096].split(b"\n", 1)[0]
        return line.decode("utf-8", "replace")

    def parse(
        self, kinds: dict[int, str], width: int, path: str
    ) -> tuple[dict[int, pa.Array], RowChecks]:
        """Return columns by position; a row with another number of fields has nulls."""
        if self.rows is not None:
            return _of_split_rows(self.rows, kinds, width)
        if self.start == self.stop:  # pyarrow cannot parse an empty block
            return {}, RowChecks(0)
        data = pa.py_buffer(self.data).slice(self.start, self.stop - self.start)
        quote = self.dialect.quote and self.data.find(b'"', self.start, self.stop) >= 0
        parsed = partial(_parsed, data, self.dialect.delimiter, quote, width)
        if not (_INTEGERS & {*kinds.values()} and self._has_hexadecimals()):
            try:
                return parsed(kinds)
            except pa.ArrowInvalid:
                pass
        try:
            arrays, checks = parsed(dict.fromkeys(kinds, "bytes"))
        except pa.ArrowInvalid as error:
            raise InputError(f"{path} cannot be read", got=str(error)) from error
        return _as_strings(arrays, checks), checks

    def _has_hexadecimals(self) -> bool:
        """Say whether there may be some, which are integers to pyarrow alone."""
        return any(
            self.data.find(letter) >= 0 and self.data.find(b"0" + letter) >= 0
            for letter in (b"x", b"X")
        )


def _parsed(
    data: pa.Buffer, delimiter: bytes, quote: bool, width: int, kinds: dict[int, str]
) -> tuple[dict[int, pa.Array], RowChecks]:
    types = {"int64": pa.int64(), "uint64": pa.uint64(), "float64": pa.float64()}
    types |= {"string": pa.string(), "bytes": pa.binary()}
    wrong: dict[int, str] = {}

    def skip(row: Any) -> str:
        wrong[row.number - 1] = _width_fault(row.actual_columns, width)
        return "skip"

    table = pc.read_csv(
        pa.BufferReader(data),
        read_options=pc.ReadOptions(
            use_threads=False,
            block_size=data.size + 1,  # no row is cut
            column_names=[str(at) for at in range(width)],
        ),
        parse_options=pc.ParseOptions(
            delimiter=delimiter.decode(),
            quote_char='"' if quote else False,
            newlines_in_values=quote,
            invalid_row_handler=skip,
        ),
        convert_options=pc.ConvertOptions(
            column_types={str(at): types[kind] for at, kind in kinds.items()},
            include_columns=[str(at) for at in kinds],
            null_values=[""],
            strings_can_be_null=False,
        ),
    )
    arrays = {at: one_array(table.column(str(at))) for at in kinds}
    checks = RowChecks(table.num_rows + len(wrong))
    checks.fail_rows(wrong)
    if checks.bad is not None:
        rows = pa.array(np.cumsum(~checks.bad) - 1, mask=checks.bad)
        arrays = {at: array.take(rows) for at, array in arrays.items()}
    return arrays, checks


def _of_split_rows(
    rows: list[SplitRow], kinds: dict[int, str], width: int
) -> tuple[dict[int, pa.Array], RowChecks]:
    checks = RowChecks(len(rows))
    wrong = {n: row for n, row in enumerate(rows) if row.fault or len(row.fields) != width}
    checks.fail_rows(
        {n: row.fault or _width_fault(len(row.fields), width) for n, row in wrong.items()}
    )
    arrays = {
        at: pa.array(
            [row.fields[at] if len(row.fields) == width else None for row in rows], pa.binary()
        )
        for at in kinds
    }
    return _as_strings(arrays, checks), checks


def _width_fault(found: int, expected: int) -> str:
    return f"{found} columns instead of {expected}"


def _as_strings(arrays: dict[int, pa.Array], checks: RowChecks) -> dict[int, pa.Array]:
    found = {}
    for at, array in arrays.items():
        found[at], bad = cast_rows(array, pa.string())
        checks.fail(bad, f"column {at} is not valid UTF-8")
    return found


def _blocks(piece: Piece, dialect: Dialect) -> Iterator[_Block]:
    """Yield the piece's bytes in blocks of whole rows.

    A piece of a file has no newline inside a quoted value: pieces.py makes sure of that.
    """
    rest, lines, multiline = b"", 0, piece.stop < 0
    for _, part in chain(parts_of(piece), [(0, b"")]):
        data, ended = rest + part if rest else part, not part
        if ended and data and not data.endswith((b"\n", b"\r")):
            data += b"\n"
        cut = len(data) if ended else whole_lines(data)
        rows = None
        if dialect.quote and data.find(b'"', 0, cut) >= 0:
            patience = -1 if ended else BLOCK
            cut, rows = _cut_quoted(data, cut, dialect, multiline, patience)
        if cut:
            plain, how = _plain(data, cut, dialect)
            stop = cut if plain is data else len(plain)
            block = _Block(plain, 0, stop, how, lines, rows)
            yield block
            lines = block.next_line
        elif len(data) > 2 * BLOCK:
            raise long_line(piece.path)
        rest = data[cut:]


def _cut_quoted(
    data: bytes, cut: int, dialect: Dialect, multiline: bool, patience: int
) -> tuple[int, list[SplitRow] | None]:
    """Return the end of the whole rows, and the rows if only ``split_rows`` can cut them."""
    found = np.frombuffer(data, np.uint8)[:cut]
    quotes = np.flatnonzero(found == _QUOTE)
    even = cut
    if multiline and len(quotes) % 2 and patience >= 0:  # the last quote is open
        ends = np.flatnonzero(_ends_line(data, 0, int(quotes[-1])))
        outside = ends[np.searchsorted(quotes, ends) % 2 == 0]
        even = int(outside[-1]) + 1 if len(outside) else 0
        quotes = quotes[: np.searchsorted(quotes, even)]
    if even and cut - even <= BLOCK and _well_quoted(data, even, quotes, dialect, multiline):
        return even, None
    rows = list(split_rows(data[:cut], dialect, multiline=multiline, patience=patience))
    return (rows[-1].stop if rows else 0) if patience >= 0 else cut, rows


def _well_quoted(data: bytes, stop: int, quotes: Array, dialect: Dialect, multiline: bool) -> bool:
    """Say whether quotes open and close only at the ends of fields, as pyarrow needs it.

    A doubled quote closes and opens at once.
    """
    if len(quotes) % 2:
        return False
    found = np.frombuffer(data, np.uint8)
    opens, closes = quotes[::2], quotes[1::2]
    around = np.array([*dialect.delimiter, _NEWLINE, _RETURN, _QUOTE], np.uint8)
    before, after = found[opens[opens > 0] - 1], found[closes + 1]  # a newline is the last byte
    if not (np.isin(before, around).all() and np.isin(after, around).all()):
        return False
    if multiline:
        return True
    ends = np.flatnonzero(_ends_line(data, 0, stop))
    return not bool((np.searchsorted(quotes, ends) % 2).any())


def _ends_line(data: bytes, start: int, stop: int) -> Array:
    """Return a mask of the last bytes of lines: newlines, and carriage returns without one."""
    found = np.frombuffer(data, np.uint8)[start:stop]
    ends: Array = found == _NEWLINE
    if data.find(b"\r", start, stop) >= 0:
        returns = found == _RETURN
        returns[:-1] &= ~ends[1:]
        ends |= returns
    return ends


def _plain(data: bytes, cut: int, dialect: Dialect) -> tuple[bytes, Dialect]:
    """Return whole lines without comments, with one delimiter between fields, not runs of blanks.

    -> ``data`` itself if nothing changes; its bytes before ``cut`` count
    """
    last = max(data.rfind(b"#", 0, cut), data.rfind(b"%", 0, cut)) if dialect.comments else -1
    if last >= 0:
        last = data.find(b"\n", last, cut) + 1 or cut
        data = _COMMENT.sub(rb"\1", data[:last]) + data[last:cut]
        cut = len(data)
    if dialect.delimiter != BLANKS:
        return data, dialect
    if data.find(b"\r", 0, cut) >= 0:
        data = data[:cut].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        cut = len(data)
    blank = b" "
    if data.find(b"\t", 0, cut) >= 0:
        blank = b"\t"
        if data.find(b" ", 0, cut) >= 0:
            data = data[:cut].replace(b" ", b"\t")
    found = np.frombuffer(data, np.uint8)[:cut]
    if found[0] == ord(blank) or _has_runs(found, ord(blank)):
        spaces = found == ord(blank)
        blanks = spaces | (found == _NEWLINE)
        spaces[1:] &= blanks[:-1]
        data = found[~spaces].tobytes().replace(blank + b"\n", b"\n")
    return data, replace(dialect, delimiter=blank)


def _has_runs(data: Array, blank: int) -> bool:
    """Say whether a blank is next to a blank or newline; in parts that fit the cache."""
    for at in range(0, len(data), _PART):
        part = data[at : at + _PART + 1]
        blanks = part <= _SPACE
        runs = blanks[1:] & blanks[:-1]
        if runs.any():  # of newlines too, which may stay
            spaces = part == blank
            if (runs & (spaces[1:] | spaces[:-1])).any():
                return True
    return False


def lines_before(piece: Piece, known: list[int]) -> int:
    """Return the number of newlines before a piece; only counted if a row is bad."""
    if not known:
        known.append(0)
        with open_file(piece.path) as file:
            left = _line_start(file, piece.start)
            file.seek(0)
            while left > 0 and (part := file.read(min(left, BLOCK))):
                known[0] += part.count(b"\n")
                left -= len(part)
    return known[0]


def parts_of(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that begin in a piece in parts of ``BLOCK`` bytes, without the byte order
    mark, and the first byte of each part."""
    with open_piece(piece) as (stream, at):
        while part := read_fully(stream, BLOCK):
            text = without_mark(part, piece.path) if at == 0 else part
            yield at + len(part) - len(text), text
            at += len(part)


@contextmanager
def open_piece(piece: Piece) -> Iterator[tuple[Any, int]]:
    """Open the lines that begin in a piece of text, and return the first byte of the first."""
    if piece.stop < 0:
        with open_stream(piece.path) as stream:
            yield stream, 0
        return
    with open_file(piece.path) as file:
        begin = end = _line_start(file, piece.start, piece.stop)
        if begin < piece.stop:
            end = _line_start(file, piece.stop)
        file.seek(begin)
        yield _Limited(file, end - begin), begin


class _Limited:
    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int) -> bytes:
        part = self._file.read(min(size, self._left))
        self._left -= len(part)
        return part


def _line_start(file: BinaryIO, offset: int, stop: float = math.inf) -> int:
    """Return the first byte of the first line at or after a byte; at most ``stop``."""
    if offset == 0:
        return 0
    at = offset - 1
    file.seek(at)
    while at < stop and (part := file.read(_CHUNK)):
        newline = part.find(b"\n")
        if newline >= 0:
            return at + newline + 1
        at += len(part)
    return at
