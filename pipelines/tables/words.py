"""Text as words between blanks, one sentence per line; lines may have any length.

Blanks are those of ``str.split`` and of Arrow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrays import Array
from penstock.arrow import as_numpy
from penstock.errors import InputError
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.sources import read_fully
from penstock.pipelines.tables.text import BLOCK, open_piece, parts_of

_BLANKS = b" \t\v\f\r\x1c\x1d\x1e\x1f"  # those of one byte, except newlines


def read_words(piece: Piece) -> Iterator[tuple[pa.Array, Array]]:
    """Yield some words at a time, and the number of them before the end of each line.

    The line of words after the last end continues in the next batch.
    """
    for at, data in _blocks(piece):
        try:
            text = pa.array([data], pa.large_binary()).cast(pa.large_string())
        except pa.ArrowInvalid:
            raise _not_utf8(piece, at, data) from None
        # Trimmed: Arrow makes a word of the last of two blanks at the end.
        lines = pc.utf8_trim_whitespace(pc.split_pattern(text, "\n").flatten())
        lists = pc.utf8_split_whitespace(lines)
        words = lists.flatten()
        there = as_numpy(pc.binary_length(words)) > 0  # not of an empty line
        before = np.zeros(len(words) + 1, np.int64)
        np.cumsum(there, out=before[1:])
        yield words.filter(pa.array(there)), before[as_numpy(lists.offsets)[1:-1]]


def _blocks(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """Yield text and its first byte; it ends with a line, or with a word if the line is long."""
    at, rest = 0, b""
    for begin, part in parts_of(piece):
        at, data = begin - len(rest), rest + part
        end = data.rfind(b"\n") + 1 or max(data.rfind(blank) for blank in _BLANKS) + 1
        if end:
            yield at, data[:end]
        at, rest = at + end, data[end:]
    if rest:
        yield at, rest


def _not_utf8(piece: Piece, at: int, data: bytes) -> InputError:
    try:
        data.decode()
        bad = 0
    except UnicodeDecodeError as error:
        bad = error.start
    line = 1 + data.count(b"\n", 0, bad)
    with open_piece(replace(piece, start=0, stop=-1)) as (stream, _):
        while at > 0 and (part := read_fully(stream, min(BLOCK, at))):
            line, at = line + part.count(b"\n"), at - len(part)
    return InputError(
        f"{piece.path}, line {line:,}: not UTF-8",
        expected="text in UTF-8",
        got=f"the byte 0x{data[bad]:02x}",
        remedy="Convert it, as with iconv -f LATIN1 -t UTF-8",
    )
