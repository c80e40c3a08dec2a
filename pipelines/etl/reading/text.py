"""Text files block by block: lines cut into fields, wherever a piece begins and ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, BinaryIO

import numpy as np

from penstock.arrays import Array
from penstock.errors import InputError
from penstock.pipelines.etl.reading.batch import BATCH_ROWS, Piece
from penstock.pipelines.etl.reading.columns import Fields
from penstock.pipelines.etl.reading.inputs import open_file, open_stream, read_fully

BLOCK = 1 << 24  # bytes in memory at once; also the longest line, and the longest quoted value
_CHUNK = 1 << 16
RETURN_INSIDE = "a carriage return without a newline after it"
CONVERT_RETURNS = r"Convert the ends of lines, for example with tr '\r' '\n' < IN > OUT"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Dialect:
    """How lines are cut: bytes, as text.split_rows (kernels) takes them."""

    delimiter: int
    quote: int = 0
    comments: bool = False

    @classmethod
    def of(cls, kind: str, delimiter: str) -> Dialect:
        """Return how a format is written: only csv and tsv quote, only edge lists comment."""
        quote = ord('"') if kind in ("csv", "tsv") and delimiter != " " else 0
        return cls(ord(delimiter), quote, comments=kind == "edgelist")


@dataclass(frozen=True)
class TextBlock:
    """Rows of a text file, their fields found."""

    data: Array  # (b,) uint8
    starts: Array  # (wanted, n)
    ends: Array  # (wanted, n)
    widths: Array  # (n,) fields of each row, negative where its quotes are wrong
    lines: Array  # (n,) lines before the row within the block
    rows: Array  # (n,) first byte
    quote: int
    first_line: int = 0  # lines of the piece before this block

    def fields(self, slot: int) -> Fields:
        """Return one of the wanted columns."""
        return Fields(self.data, self.starts[slot], self.ends[slot], self.quote)

    def text(self, row: int) -> str:
        """Return a whole row, for a message."""
        start = int(self.rows[row])
        line = self.data[start : start + 4096].tobytes().split(b"\n", 1)[0]
        return line.decode("utf-8", "replace")

    def after(self, row: int) -> TextBlock:
        """Return the block without its first rows."""
        return replace(
            self, starts=self.starts[:, row:], ends=self.ends[:, row:],
            widths=self.widths[row:], lines=self.lines[row:], rows=self.rows[row:],
        )  # fmt: skip


def read_blocks(
    piece: Piece, slots: Array, dialect: Dialect, *, header: bool
) -> Iterator[TextBlock]:
    """Cut a piece into blocks of rows; a ``header`` at the beginning of the file is left out.

    A piece that is not its whole file has no newline inside a quoted value: pieces.py sees to it.
    """
    first, line = header and piece.start == 0, 0
    for data in _whole_lines(piece):
        for block, passed in _split(data, slots, dialect, multiline=piece.stop < 0):
            if len(block.widths):
                found = replace(block, first_line=line)
                yield found.after(1) if first else found
                first = False
            line += passed


def split_head(data: bytes, slots: Array, dialect: Dialect) -> Iterator[TextBlock]:
    """Cut the first bytes of a file, whole lines, into blocks of rows."""
    for block, _ in _split(_Lines(without_mark(data), ended=True), slots, dialect, multiline=True):
        yield block


def lines_before(path: str, offset: int) -> int:
    """Count the newlines before a byte of a file; asked for only where a row is bad."""
    count = 0
    with open_file(path) as file:
        while offset > 0:
            part = file.read(min(offset, BLOCK))
            if not part:
                break
            count += part.count(b"\n")
            offset -= len(part)
    return count


def piece_begin(piece: Piece) -> int:
    """Return where the first line of a piece begins."""
    with open_file(piece.path) as file:
        return _line_start(file, piece.start)


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


@dataclass
class _Lines:
    """Whole lines, and whether nothing follows; what is left of them goes before the next."""

    data: bytes
    ended: bool
    rest: bytes = b""


def _whole_lines(piece: Piece) -> Iterator[_Lines]:
    """Give the piece's bytes in blocks that end with a newline; ``rest`` may be given back."""
    rest, start = b"", True
    with _bytes_of(piece) as stream:
        while True:
            part = read_fully(stream, BLOCK)
            if start and piece.start == 0:
                part = without_mark(part, piece.path)
            start = False
            ended = len(part) == 0
            data = rest + part
            if ended:
                if not data:
                    return
                data += b"" if data.endswith(b"\n") else b"\n"
            cut = data.rfind(b"\n") + 1
            if cut == 0:
                if len(data) > 2 * BLOCK:
                    raise long_line(piece.path)
                rest = data
                continue
            lines = _Lines(data[:cut] if cut < len(data) else data, ended)
            yield lines
            if ended:
                return
            rest = lines.rest + data[cut:]


def _split(
    lines: _Lines, slots: Array, dialect: Dialect, *, multiline: bool
) -> Iterator[tuple[TextBlock, int]]:
    """Give blocks of rows, each with the lines it took; an open quote waits in ``lines.rest``."""
    whole = np.frombuffer(lines.data, np.uint8)
    cut = partial(_cut, slots=slots, dialect=dialect, returns=b"\r" in lines.data)
    at = 0
    while at < len(whole):
        capacity = min(int(np.count_nonzero(whole[at:] == 10)), BATCH_ROWS // 2)
        block, consumed, passed = cut(whole[at:], capacity, multiline=multiline)
        yield block, passed
        at += consumed
        if at < len(whole) and len(block.widths) < capacity:  # a quote is open
            if not lines.ended and len(whole) - at <= BLOCK:
                lines.rest = lines.data[at:]
                return
            # Never closed: the line on which the quote opens is a bad row, the next one is not.
            stop = lines.data.index(b"\n", at) + 1
            block, _, passed = cut(whole[at:stop], 1, multiline=False)
            yield block, passed
            at = stop


def _cut(
    data: Array, capacity: int, *, slots: Array, dialect: Dialect, multiline: bool, returns: bool
) -> tuple[TextBlock, int, int]:
    """Return a block, and the bytes and lines it took."""
    from penstock.kernels.cpu import text as kernel

    starts, ends, widths, lines, rows, consumed, passed = kernel.split_rows(
        data, capacity, slots, dialect.delimiter, dialect.quote,
        comments=dialect.comments, multiline=multiline, returns=returns,
    )  # fmt: skip
    block = TextBlock(data, starts, ends, widths, lines, rows, dialect.quote)
    return block, consumed, passed


@contextmanager
def _bytes_of(piece: Piece) -> Iterator[Any]:
    if piece.stop < 0:
        with open_stream(piece.path) as stream:
            yield stream
        return
    with open_file(piece.path) as file:
        begin, end = _line_start(file, piece.start), _line_start(file, piece.stop)
        file.seek(begin)
        yield _Limited(file, end - begin)


class _Limited:
    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file, self._left = file, size

    def read(self, size: int) -> bytes:
        part = self._file.read(min(size, self._left))
        self._left -= len(part)
        return part


def _line_start(file: BinaryIO, offset: int) -> int:
    """Return where the first line at or after a byte begins."""
    if offset == 0:
        return 0
    at = offset - 1
    file.seek(at)
    while part := file.read(_CHUNK):
        newline = part.find(b"\n")
        if newline >= 0:
            return at + newline + 1
        at += len(part)
    return at
