"""Text becomes columns: one pass over the bytes to find the fields, one a column to read them."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.text_rules import AFTER_QUOTE, BLANKS, LONE_RETURN, OPEN_QUOTE

_EXACT = 1 << 53  # integers below, divided by a power of ten up to 22, give the nearest double
_POWERS = 10.0 ** np.arange(23)
_GOOD, _BAD, _HARD = 1, 0, 2


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
    """Cut lines into fields; see naive."""
    wanted = int(slots.max(initial=-1)) + 1
    starts = np.empty((wanted, capacity), np.int32)
    ends = np.empty((wanted, capacity), np.int32)
    widths, lines, rows = (np.empty(capacity, np.int32) for _ in range(3))
    if delimiter == BLANKS:
        count, consumed, passed = _split_blanks(
            data, slots, comments, starts, ends, widths, lines, rows
        )
    else:
        count, consumed, passed = _split_delimited(
            data, slots, delimiter, quote, comments, multiline,
            0 if returns else None, starts, ends, widths, lines, rows,
        )  # fmt: skip
    head = slice(count)
    return (
        starts[:, head], ends[:, head], widths[head], lines[head], rows[head],
        int(consumed), int(passed),
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _split_blanks(
    data: Array, slots: Array, comments: bool,
    starts: Array, ends: Array, widths: Array, lines: Array, rows: Array,
) -> tuple[int, int, int]:  # fmt: skip
    pos, row, line, size, columns = 0, 0, 0, len(data), len(slots)
    while pos < size and row < len(widths):
        begin, width, fault, returned = pos, 0, 0, False
        while True:
            while data[pos] == 32 or data[pos] == 9 or data[pos] == 13:
                if data[pos] == 13:
                    returned = True
                pos += 1
            if data[pos] == 10:
                break
            if returned or (width == 0 and comments and (data[pos] == 35 or data[pos] == 37)):
                fault, pos = _skip_line(data, pos, returned)
                break
            start = pos
            # The four blanks lie below 33, ids almost never do: one comparison a byte.
            while data[pos] > 32 or not (
                data[pos] == 32 or data[pos] == 10 or data[pos] == 9 or data[pos] == 13
            ):
                pos += 1
            if width < columns and slots[width] >= 0:
                starts[slots[width], row] = start
                ends[slots[width], row] = pos
            width += 1
        pos += 1
        if width > 0 or fault != 0:
            for column in range(width, columns):
                if slots[column] >= 0:
                    starts[slots[column], row] = 0
                    ends[slots[column], row] = 0
            widths[row], lines[row], rows[row] = width if fault == 0 else fault, line, begin
            row += 1
        line += 1
    return row, pos, line


@njit(cache=True, nogil=True)
def _skip_line(data: Array, pos: int, returned: bool) -> tuple[int, int]:
    """Return LONE_RETURN if a carriage return is followed by more than blanks, and the newline.

    ``returned``: one stands before ``pos``.
    """
    fault = 0
    while data[pos] != 10:
        if data[pos] == 13:
            returned = True
        elif returned and data[pos] != 32 and data[pos] != 9:
            fault = LONE_RETURN
        pos += 1
    return fault, pos


@njit(cache=True, nogil=True)
def _split_delimited(
    data: Array, slots: Array, delimiter: int, quote: int, comments: bool, multiline: bool,
    returns: int | None,
    starts: Array, ends: Array, widths: Array, lines: Array, rows: Array,
) -> tuple[int, int, int]:  # fmt: skip
    pos, row, line, size, columns = 0, 0, 0, len(data), len(slots)
    while pos < size and row < len(widths):
        begin, first_line, width, fault = pos, line, 0, 0
        look = pos
        while data[look] == 13:
            look += 1
        empty = data[look] == 10
        if comments and not empty:
            while data[look] == 32 or data[look] == 9 or data[look] == 13:
                look += 1
            empty = data[look] == 35 or data[look] == 37
        if empty:
            hidden, pos = _skip_line(data, pos, False)
            pos += 1
            if hidden != 0:
                for column in range(columns):
                    if slots[column] >= 0:
                        starts[slots[column], row] = 0
                        ends[slots[column], row] = 0
                widths[row], lines[row], rows[row] = hidden, line, begin
                row += 1
            line += 1
            continue
        while True:
            if quote != 0 and data[pos] == quote:
                start = pos + 1
                pos = start
                closed = False
                while pos < size:
                    if data[pos] == quote:
                        if pos + 1 < size and data[pos + 1] == quote:
                            pos += 1
                        else:
                            closed = True
                            break
                    elif data[pos] == 10:
                        if not multiline:
                            break
                        line += 1
                    pos += 1
                if not closed:
                    if multiline:
                        return row, begin, first_line
                    fault = OPEN_QUOTE
                    break
                end = pos
                pos += 1
                if data[pos] == 13 and data[pos + 1] == 10:
                    pos += 1
                if data[pos] != delimiter and data[pos] != 10:
                    fault = AFTER_QUOTE
            else:
                start = pos
                if returns is None:  # decided when compiled: most files have none
                    while data[pos] != delimiter and data[pos] != 10:
                        pos += 1
                    end = pos
                else:
                    while data[pos] != delimiter and data[pos] != 10 and data[pos] != 13:
                        pos += 1
                    first_return = pos
                    while data[pos] != delimiter and data[pos] != 10:
                        pos += 1
                    end = pos
                    while data[pos] == 10 and end > first_return and data[end - 1] == 13:
                        end -= 1
                    if first_return < end:
                        fault = LONE_RETURN
            if width < columns and slots[width] >= 0:
                starts[slots[width], row] = start
                ends[slots[width], row] = end
            width += 1
            if fault != 0 or data[pos] == 10:
                break
            pos += 1
        while data[pos] != 10:
            pos += 1
        pos += 1
        for column in range(width, columns):
            if slots[column] >= 0:
                starts[slots[column], row] = 0
                ends[slots[column], row] = 0
        widths[row] = width if fault == 0 else fault
        lines[row], rows[row] = first_line, begin
        row += 1
        line += 1
    return row, pos, line


def parse_integers(
    data: Array, starts: Array, ends: Array, *, unsigned: bool
) -> tuple[Array, Array]:
    """Read decimal integers; see naive."""
    values, good = np.empty(len(starts), np.int64), np.empty(len(starts), np.bool_)
    _parse_integers(data, starts, ends, unsigned, values, good)
    return values, good


@njit(cache=True, nogil=True)
def _parse_integers(
    data: Array, starts: Array, ends: Array, unsigned: bool, values: Array, good: Array
) -> None:
    ten, top = np.uint64(10), np.uint64(1 << 63)
    largest = ~np.uint64(0)
    for i in range(len(starts)):
        pos, end = starts[i], ends[i]
        while pos < end and (data[pos] == 32 or data[pos] == 9):
            pos += 1
        while pos < end and (data[end - 1] == 32 or data[end - 1] == 9):
            end -= 1
        minus = pos < end and data[pos] == 45
        if minus or (pos < end and data[pos] == 43):
            pos += 1
        while end - pos > 1 and data[pos] == 48:  # leading zeros must not count as digits
            pos += 1
        fine = 0 < end - pos <= 20
        value = np.uint64(0)
        if fine:
            last = end - 1 if end - pos == 20 else end
            for at in range(pos, last):
                digit = data[at] - 48
                fine = fine and 0 <= digit <= 9
                value = value * ten + np.uint64(digit & 15)
            if fine and last < end:  # 20 digits: the last may overflow
                digit = data[last] - 48
                fine = 0 <= digit <= 9 and value <= (largest - np.uint64(digit & 15)) // ten
                value = value * ten + np.uint64(digit & 15)
        if unsigned:
            fine = fine and (not minus or value == 0)
            value = value ^ top
        elif minus:
            fine = fine and value <= top
            value = ~value + np.uint64(1)
        else:
            fine = fine and value < top
        good[i] = fine
        values[i] = np.int64(value) if fine else 0


def parse_floats(data: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """Read decimal numbers; see naive."""
    values, state = np.empty(len(starts), np.float64), np.empty(len(starts), np.uint8)
    _parse_floats(data, starts, ends, values, state)
    hard = np.flatnonzero(state == _HARD)
    if len(hard):
        values[hard], state[hard] = _parse_hard(data, starts[hard], ends[hard])
    return values, state == _GOOD


def _parse_hard(data: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    """Read long mantissas and exponents, which are easily rounded wrong, by pyarrow's parser."""
    import pyarrow as pa

    offsets, copied = gather(data, starts, ends, 0)
    texts = pa.Array.from_buffers(
        pa.binary(), len(starts), [None, pa.py_buffer(offsets), pa.py_buffer(copied)]
    )
    try:
        return np.asarray(texts.cast(pa.string()).cast(pa.float64())), np.ones(len(starts), bool)
    except pa.ArrowInvalid:  # some are no numbers, or written as only Python reads them
        return _parse_one_by_one(data, starts, ends)


def _parse_one_by_one(data: Array, starts: Array, ends: Array) -> tuple[Array, Array]:
    values, good = np.zeros(len(starts)), np.zeros(len(starts), bool)
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        field = data[start:end].tobytes()
        with suppress(ValueError):
            if b"_" not in field:  # Python's 1_000 is no number in a file
                values[i], good[i] = float(field), True
    return values, good


@njit(cache=True, nogil=True)
def _parse_floats(data: Array, starts: Array, ends: Array, values: Array, state: Array) -> None:
    for i in range(len(starts)):
        pos, end = starts[i], ends[i]
        values[i] = 0.0
        minus = pos < end and data[pos] == 45
        if minus:
            pos += 1
        mantissa, scale, digits, fraction, fine = 0, 0, 0, False, True
        for at in range(pos, end):
            byte = data[at]
            if 48 <= byte <= 57:
                mantissa = mantissa * 10 + (byte - 48)
                digits += 1
                if fraction:
                    scale += 1
                if mantissa >= _EXACT:
                    fine = False
                    break
            elif byte == 46 and not fraction:
                fraction = True
            else:
                fine = False
                break
        if not fine or digits == 0 or scale > 22:
            state[i] = _HARD if pos < end else _BAD
            continue
        value = mantissa / _POWERS[scale]
        values[i] = -value if minus else value
        state[i] = _GOOD


def gather(data: Array, starts: Array, ends: Array, quote: int) -> tuple[Array, Array]:
    """Copy fields one after the other; see naive."""
    offsets = np.zeros(len(starts) + 1, np.int32)
    out = np.empty(int((ends.astype(np.int64) - starts).sum()), np.uint8)
    size = _gather(data, starts, ends, quote, offsets, out)
    return offsets, out[:size]


@njit(cache=True, nogil=True)
def _gather(data: Array, starts: Array, ends: Array, quote: int, offsets: Array, out: Array) -> int:
    to = 0
    for i in range(len(starts)):
        start, end = starts[i], ends[i]
        quoted = quote != 0 and start > 0 and data[start - 1] == quote
        pos = start
        while pos < end:
            out[to] = data[pos]
            to += 1
            if quoted and data[pos] == quote:
                pos += 1
            pos += 1
        offsets[i + 1] = to
    return to
