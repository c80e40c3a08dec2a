"""Text becomes columns: the truth about cutting lines into fields and reading numbers.

A field is a range of bytes, ``data[start:end]``, without its quotes; a doubled quote inside a
quoted field is still doubled. ``delimiter`` 32 (a space) means any run of blanks.
"""

from __future__ import annotations

import re

import numpy as np

from penstock.arrays import Array
from penstock.kernels.text_rules import AFTER_QUOTE, BLANKS, LONE_RETURN, OPEN_QUOTE

_NEWLINE = 10


def split_rows(
    data: Array,
    capacity: int,
    slots: Array,
    delimiter: int,
    quote: int,
    *,
    comments: bool,
    multiline: bool,
    returns: bool = True,
) -> tuple[Array, Array, Array, Array, Array, int, int]:
    """Cut lines into fields; empty lines, and with ``comments`` those with # or %, are left out.

    Lines end with newlines, before which carriage returns do not count. One that stands elsewhere,
    outside quotes, ended a line for whoever wrote it: its row, or comment, is marked LONE_RETURN.

    data       (b,) uint8 of whole lines: the last byte is a newline
    capacity   rows to return at most
    slots      (c,) int32: where the fields of column c go among the wanted ones, or -1
    quote      the quoting byte, 0 for none; ``multiline`` lets a quoted field contain newlines
    returns    False promises that there are no carriage returns, and saves the look for them
    ->         starts, ends (wanted, n) int32; widths (n,) int32 fields in each row, or OPEN_QUOTE,
               AFTER_QUOTE or LONE_RETURN; lines (n,) int32 lines before each row, rows (n,) int32
               its first byte; consumed, lines in it. With ``multiline`` a quote that is still
               open at the end leaves its row unconsumed.
    """
    text = data.tobytes()
    wanted = int(slots.max(initial=-1)) + 1
    found: list[tuple[list[tuple[int, int]], int, int, int]] = []
    at = line = 0
    while at < len(text) and len(found) < capacity:
        stop = text.index(b"\n", at) + 1
        content = text[at:stop].strip(b" \t\r\n") if delimiter == BLANKS else text[at:stop]
        comment = comments and content.lstrip(b" \t\r")[:1] in (b"#", b"%")
        lone = text[at:stop].rstrip(b" \t\r\n").find(b"\r")
        if content.rstrip(b"\r\n") and not (comment and lone < 0):
            if comment:
                fields, width = [], LONE_RETURN
            elif delimiter == BLANKS:
                fields = [
                    (at + m.start(), at + m.end())
                    for m in re.finditer(rb"[^ \t\r\n]+", text[at:stop])
                    if lone < 0 or m.end() <= lone
                ]
                width = len(fields) if lone < 0 else LONE_RETURN
            else:
                fields, width, stop = _delimited(text, at, delimiter, quote, multiline)
                if stop < 0:
                    break
            found.append((fields, width, line, at))
        line += text.count(b"\n", at, stop)
        at = stop
    shape = (wanted, len(found))
    starts, ends = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
    for row, (fields, _, _, _) in enumerate(found):
        for slot, field in zip(slots, fields, strict=False):
            if slot >= 0:
                starts[slot, row], ends[slot, row] = field
    widths, lines, rows = (np.array([f[i] for f in found], np.int32) for i in (1, 2, 3))
    return starts, ends, widths, lines, rows, at, line


def _delimited(
    text: bytes, at: int, delimiter: int, quote: int, multiline: bool
) -> tuple[list[tuple[int, int]], int, int]:
    """Return the fields of the row at ``at``, its width, and where the next begins (-1: open)."""
    fields: list[tuple[int, int]] = []
    pos = at
    while True:
        end_of_line = text.index(b"\n", pos)
        if quote and text[pos] == quote:
            limit = len(text) if multiline else end_of_line
            closed = _closing(text, pos + 1, limit, quote)
            if closed < 0:
                if multiline:
                    return fields, OPEN_QUOTE, -1
                return fields, OPEN_QUOTE, end_of_line + 1
            fields.append((pos + 1, closed))
            pos = closed + 1
            end_of_line = text.index(b"\n", pos)
            rest = text[pos : end_of_line + 1]
            if rest[0] != delimiter and rest not in (b"\n", b"\r\n"):
                return fields, AFTER_QUOTE, end_of_line + 1
            pos += 1 if rest == b"\r\n" else 0
        else:
            end = text.find(bytes([delimiter]), pos, end_of_line)
            end = end_of_line if end < 0 else end
            cut = pos + len(text[pos:end].rstrip(b"\r")) if end == end_of_line else end
            fields.append((pos, cut))
            if b"\r" in text[pos:cut]:
                return fields, LONE_RETURN, end_of_line + 1
            pos = end
        if text[pos] == _NEWLINE:
            return fields, len(fields), pos + 1
        pos += 1


def _closing(text: bytes, pos: int, limit: int, quote: int) -> int:
    while pos < limit:
        if text[pos] == quote:
            if pos + 1 < limit and text[pos + 1] == quote:
                pos += 2
                continue
            return pos
        pos += 1
    return -1


def parse_integers(
    data: Array, starts: Array, ends: Array, *, unsigned: bool
) -> tuple[Array, Array]:
    """Read decimal integers, blanks around them allowed.

    data, starts, ends  the fields, see split_rows
    unsigned            read 0 to 2**64 - 1 and shift by -2**63, which keeps their order
    ->                  values (n,) int64, 0 where it failed; good (n,) bool
    """
    low, high = (0, 2**64 - 1) if unsigned else (-(2**63), 2**63 - 1)
    values, good = np.zeros(len(starts), np.int64), np.zeros(len(starts), bool)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        field = data[start:end].tobytes().strip(b" \t")
        if re.fullmatch(rb"[+-]?[0-9]+", field) and low <= int(field) <= high:
            values[i], good[i] = int(field) - (2**63 if unsigned else 0), True
    return values, good


def parse_floats(data: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """Read decimal numbers such as ``-1.5e3``, ``nan`` and ``inf``, blanks around them allowed.

    ->  values (n,) float64, 0 where it failed; good (n,) bool
    """
    values, good = np.zeros(len(starts)), np.zeros(len(starts), bool)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        field = data[start:end].tobytes()
        if b"_" not in field:  # Python's 1_000 is no number in a file
            try:
                values[i], good[i] = float(field), True
            except ValueError:
                continue
    return values, good


def gather(data: Array, starts: Array, ends: Array, quote: int) -> tuple[Array, Array]:
    """Copy fields one after the other, doubled quotes of quoted fields made single.

    ->  offsets (n + 1,) int32, bytes (offsets[-1],) uint8
    """
    fields = []
    for start, end in zip(starts, ends, strict=True):
        field = data[start:end].tobytes()
        if quote and start > 0 and data[start - 1] == quote:
            field = field.replace(bytes([quote, quote]), bytes([quote]))
        fields.append(field)
    offsets = np.zeros(len(fields) + 1, np.int32)
    np.cumsum([len(field) for field in fields], out=offsets[1:])
    return offsets, np.frombuffer(b"".join(fields), np.uint8)
