"""Columns as files have them become columns as batches have them; rows that will not go are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.pipelines.etl.check_rows import RowChecks, shorten

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]

_TOP = np.uint64(1 << 63)
_RANGES = {"int64": (-(2**63), 2**63 - 1), "uint64": (0, 2**64 - 1)}


@dataclass(frozen=True)
class Fields:
    """A column of text: ranges of a block of bytes."""

    data: Array  # (b,) uint8
    starts: Array  # (n,) int32
    ends: Array  # (n,) int32
    quote: int = 0

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, row: int) -> str:
        """Return one field, for a message."""
        field = self.data[self.starts[row] : self.ends[row]].tobytes()
        return field.decode("utf-8", "replace")

    @property
    def empty(self) -> Array:
        """Mask of the fields without any byte."""
        mask: Array = self.starts == self.ends
        return mask


def integers(column: Fields | pa.Array, id_type: str, what: str, checks: RowChecks) -> Array:
    """Return a column as int64 (``uint64``: shifted by -2**63, which keeps the order)."""
    from penstock.kernels.cpu import text as kernel

    unsigned = id_type == "uint64"
    if not isinstance(column, Fields):
        import pyarrow as pa

        if not _is_text(column.type):
            return _numbers_to_integers(column, id_type, what, checks)
        nulls = _nulls(column)
        checks.fail(nulls, f"{what} is missing")
        column = _fields(column.cast(pa.string()))
    values, good = kernel.parse_integers(column.data, column.starts, column.ends, unsigned=unsigned)
    if not good.all():
        fields = column
        checks.fail(fields.empty, f"{what} is missing")
        digits = _mask(~good, lambda row: _is_integer(fields.text(row)))
        _fail_range(checks, digits, id_type, what, fields.text)
        checks.fail(
            ~good,
            lambda row: f"{what} {fields.text(row)!r} is not an integer, as the first rows have",
            "Give --id-type string if ids are any text, or --on-bad-rows skip to leave such rows out",
        )
    return values


def strings(column: Fields | pa.Array, what: str, checks: RowChecks) -> pa.Array:
    """Return a column as strings; numbers are written out, bytes must be UTF-8."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(column, Fields):
        from penstock.kernels.cpu import text as kernel

        checks.fail(column.empty, f"{what} is missing")
        offsets, data = kernel.gather(column.data, column.starts, column.ends, column.quote)
        array = pa.Array.from_buffers(
            pa.binary(), len(column), [None, pa.py_buffer(offsets), pa.py_buffer(data)]
        )
    else:
        array = column
        nulls = _nulls(array)
        if nulls.any():
            checks.fail(nulls, f"{what} is missing")
            array = array.fill_null("" if _is_text(array.type) else pa.scalar(0, array.type))
        if _is_text(array.type) or pa.types.is_binary(array.type):
            checks.fail(np.asarray(pc.equal(pc.binary_length(array), 0)), f"{what} is missing")
    return _convert(array, pa.string(), f"{what} is not valid UTF-8", checks)


def bytes_of(column: pa.Array, what: str, checks: RowChecks) -> pa.Array:
    """Return a column of ids that are bytes, such as UUIDs."""
    import pyarrow as pa

    nulls = _nulls(column)
    checks.fail(nulls, f"{what} is missing")
    return column.cast(pa.binary()).fill_null(b"")


def floats(column: Fields | pa.Array, what: str, checks: RowChecks) -> Array:
    """Return a column as float64; what is no number, or missing, is a bad row."""
    import pyarrow as pa

    if not isinstance(column, Fields):
        nulls = _nulls(column)
        checks.fail(nulls, f"{what} is missing")
        if not _is_text(column.type):
            return np.asarray(column.cast(pa.float64()).fill_null(0.0))
        column = _fields(column.cast(pa.string()))
    from penstock.kernels.cpu import text as kernel

    values, good = kernel.parse_floats(column.data, column.starts, column.ends)
    if not good.all():
        fields = column
        checks.fail(fields.empty, f"{what} is missing")
        checks.fail(~good, lambda row: f"{what} {fields.text(row)!r} is not a number")
    return values


def weights(column: Fields | pa.Array, checks: RowChecks) -> Array:
    """Return a column as float32 weights: finite, not negative."""
    values = floats(column, "weight", checks)
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    checks.fail(np.isnan(values), "weight is NaN")
    checks.fail(~np.isfinite(narrow), lambda row: f"weight {values[row]} is not finite in 32 bits")
    checks.fail(values < 0, lambda row: f"weight {values[row]} is negative")
    return narrow


def times(column: Fields | pa.Array, time_type: str, checks: RowChecks) -> Array:
    """Return a column as int64 or float64; timestamps and dates as int64 nanoseconds."""
    import pyarrow as pa

    if time_type == "float64":
        values = floats(column, "time", checks)
        checks.fail(~np.isfinite(values), lambda row: f"time {values[row]} is not finite")
        return values
    if time_type == "int64":
        return integers(column, "int64", "time", checks)
    if isinstance(column, Fields) or _is_text(column.type):
        column = strings(column, "time", checks)
        return _nanoseconds(column, checks)
    checks.fail(_nulls(column), "time is missing")
    column = column.fill_null(pa.scalar(0, pa.int32()).cast(column.type)
                              if pa.types.is_date32(column.type)
                              else pa.scalar(0, pa.int64()).cast(column.type))  # fmt: skip
    zone = column.type.tz if pa.types.is_timestamp(column.type) else None
    stamps = _convert(column, pa.timestamp("ns", zone), "time is beyond what 64-bit nanoseconds hold "
                      "(1677 to 2262)", checks)
    return np.asarray(stamps.cast(pa.int64()))


def _nanoseconds(column: pa.Array, checks: RowChecks) -> Array:
    """Return ISO 8601 texts as nanoseconds since 1970; without a zone they count as UTC."""
    import pyarrow as pa

    for kind in (pa.timestamp("ns"), pa.timestamp("ns", "UTC")):
        try:
            return np.asarray(column.cast(kind).cast(pa.int64()))
        except pa.ArrowInvalid:
            continue
    values, bad = np.zeros(len(column), np.int64), np.zeros(len(column), bool)
    for row, text in enumerate(column.to_pylist()):
        for kind in (pa.timestamp("ns"), pa.timestamp("ns", "UTC")):
            try:
                values[row] = pa.scalar(text).cast(kind).cast(pa.int64()).as_py()
                break
            except pa.ArrowInvalid:
                continue
        else:
            bad[row] = True
    checks.fail(
        bad, lambda row: f"time {shorten(column[row].as_py())!r} is not a date such as 2026-11-20"
    )
    return values


def _numbers_to_integers(
    column: pa.Array, id_type: str, what: str, checks: RowChecks
) -> Array:
    import pyarrow as pa

    nulls = _nulls(column)
    if nulls.any():
        checks.fail(nulls, f"{what} is missing")
        column = column.fill_null(pa.scalar(0).cast(column.type))
    kind = column.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        exact = np.asarray(column.cast(pa.float64())) if pa.types.is_floating(kind) else None
        if exact is not None:
            whole = np.isfinite(exact) & (np.trunc(exact) == exact)
            checks.fail(~whole, lambda row: f"{what} {exact[row]} is not an integer")
            inside = whole & (np.abs(exact) <= 2.0**53)
            checks.fail(
                whole & ~inside,
                lambda row: f"{what} {exact[row]:.0f} is beyond what a float holds exactly",
            )
            column = pa.array(np.where(inside, exact, 0.0).astype(np.int64))
        else:
            column = _convert(
                column, pa.int64(), f"{what} is not an integer of 64 bits", checks
            )
        kind = column.type
    if id_type == "int64" and not pa.types.is_uint64(kind):
        return np.asarray(column.cast(pa.int64()))
    values = np.asarray(column)
    if pa.types.is_uint64(kind):
        if id_type == "uint64":
            return (values ^ _TOP).view(np.int64)
        outside = values >= _TOP
    else:
        outside = values < 0
        values = values.astype(np.int64)
    _fail_range(checks, outside, id_type, what, lambda row: str(column[row]))
    if id_type == "uint64":
        return (values.view(np.uint64) ^ _TOP).view(np.int64)
    return values.view(np.int64)


def _fail_range(
    checks: RowChecks, mask: Array, id_type: str, what: str, text: Callable[[int], str]
) -> None:
    def reason(row: int) -> str:
        value = int(text(row))
        if id_type == "uint64" and value < 0:
            return f"{what} {value} is negative, and ids are unsigned"
        return f"{what} {value} is beyond the 64 bits of {id_type}"

    if not mask.any():
        return
    first = int(text(int(np.argmax(mask))))
    other = "uint64" if id_type == "int64" and 0 <= first < 2**64 else "string"
    checks.fail(mask, reason, f"Give --id-type {other}, or --on-bad-rows skip")


def _convert(array: pa.Array, kind: pa.DataType, reason: str, checks: RowChecks) -> pa.Array:
    """Cast at once; where that fails halve until the values that will not go stand alone."""
    import pyarrow as pa

    if array.type == kind:
        return array
    try:
        return array.cast(kind)
    except pa.ArrowInvalid:
        bad = np.zeros(len(array), bool)
    parts: list[pa.Array] = []
    stack = [(0, len(array))]
    nothing = pa.scalar("" if pa.types.is_string(kind) else 0).cast(kind)
    while stack:
        start, stop = stack.pop()
        try:
            parts.append(array.slice(start, stop - start).cast(kind))
        except pa.ArrowInvalid:
            if stop - start == 1:
                bad[start] = True
                parts.append(pa.array([nothing.as_py()], kind))
            else:
                middle = (start + stop) // 2
                stack += [(middle, stop), (start, middle)]
    checks.fail(bad, reason)
    return pa.concat_arrays(parts)


def _fields(array: pa.Array) -> Fields:
    """View a string array as fields; a null has no byte."""
    array = array.fill_null("") if array.null_count else array
    _, offsets, data = array.buffers()
    data = data if data is not None and data.size else b"\0"
    where = np.zeros(1, np.int32)
    if len(array):  # copied, because the kernels are compiled for arrays that can be written
        where = np.frombuffer(offsets, np.int32)[array.offset :][: len(array) + 1].copy()
    return Fields(np.frombuffer(data, np.uint8), where[:-1], where[1:])


def as_mask(mask: Array) -> pa.Array:
    """Return a mask as pyarrow takes it."""
    import pyarrow as pa

    return pa.array(mask)


def _nulls(array: pa.Array) -> Array:
    if array.null_count == 0:
        return np.zeros(len(array), bool)
    return np.asarray(array.is_null())


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind)
                or pa.types.is_string_view(kind))  # fmt: skip


def _is_integer(text: str) -> bool:
    text = text.strip(" \t")
    return text.lstrip("+-").isdecimal() and text.isascii() and len(text) - len(
        text.lstrip("+-")) <= 1  # fmt: skip


def _mask(candidates: Array, test: Callable[[int], bool]) -> Array:
    mask = np.zeros(len(candidates), bool)
    for row in np.flatnonzero(candidates):
        mask[row] = test(int(row))
    return mask
