"""Columns of files become columns of batches; values that cannot be converted are reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy
from penstock.pipelines.tables.rows import SKIP, RowChecks, shorten, shown

_TOP = np.uint64(1 << 63)
_EXACT = 2.0**53  # a float holds every integer up to here
NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?$|^[+-]?(nan|inf|infinity)$"
TEXT_IDS = "Give --id-type string if ids are any text, or --on-bad-rows skip to leave such rows out"


def ids(column: pa.Array, id_type: str, what: str, checks: RowChecks, *, remedy: str = SKIP) -> Any:
    """Return a column as ``id_type``: an int64 NumPy array, or Arrow strings or bytes.

    remedy  for a value that is not an integer
    """
    if id_type in ("int64", "uint64"):
        return integers(column, id_type, what, checks, remedy=remedy)
    if id_type == "binary":
        return _bytes(column, what, checks)
    return strings(column, what, checks)


def integers(
    column: pa.Array, id_type: str, what: str, checks: RowChecks, *, remedy: str = SKIP
) -> Array:
    """Return a column as int64 (``uint64``: shifted by -2**63, which keeps the order)."""
    checks.fail(nulls_of(column), f"{what} is missing")
    if not is_text(column.type):
        return _whole_numbers(column, id_type, what, checks)
    texts = pc.utf8_trim(column.cast(pa.string()).fill_null(""), " \t")
    digits = _digits(texts)
    unsigned = id_type == "uint64"
    values, outside = cast_rows(digits, pa.uint64() if unsigned else pa.int64())
    checks.fail(np.asarray(pc.equal(texts, "")), f"{what} is missing")
    _fail_range(checks, outside, id_type, what, lambda row: str(column[row].as_py()))
    checks.fail(
        nulls_of(digits),
        lambda row: f"{what} {shown(column[row])!r} is not an integer, unlike the first rows",
        remedy,
    )
    numbers = as_numpy(values, 0)
    return (numbers ^ _TOP).view(np.int64) if unsigned else numbers


def strings(column: pa.Array, what: str, checks: RowChecks) -> pa.Array:
    """Return a column as strings; numbers are written out, bytes must be UTF-8."""
    array = column
    if pa.types.is_fixed_size_binary(array.type) or pa.types.is_large_binary(array.type):
        array = array.cast(pa.binary())
    array, bad = cast_rows(array, pa.string())
    checks.fail(bad, f"{what} is not valid UTF-8")
    if array.null_count:
        array = array.fill_null("")
    checks.fail(as_numpy(pc.binary_length(array)) == 0, f"{what} is missing")
    return array


def types(column: pa.Array, what: str, checks: RowChecks) -> pa.Array:
    """Return a column of types of nodes as strings; a colon ends a type in TYPE:ID."""
    found = strings(column, what, checks)
    checks.fail(np.asarray(pc.match_substring(found, ":")), f"{what} has a colon in it")
    return found


def floats(column: pa.Array, what: str, checks: RowChecks, *, missing: str | None = SKIP) -> Array:
    """Return a column as float64; a row whose value is missing or not a number is bad.

    missing  the remedy for a missing value; None: it becomes NaN
    """
    empty = 0.0 if missing is not None else np.nan
    gaps = nulls_of(column)
    if is_text(column.type):
        texts = pc.utf8_trim_whitespace(column.cast(pa.string()).fill_null(""))
        gaps = np.asarray(pc.equal(texts, ""))
        numbers = pc.match_substring_regex(texts, NUMBER, ignore_case=True)
        checks.fail(
            ~np.asarray(numbers) & ~gaps,
            lambda row: f"{what} {shown(texts[row])!r} is not a number",
        )
        column, hard = cast_rows(pc.if_else(numbers, texts, None), pa.float64())
        if hard.any():  # beyond the range of floats: Python makes it 0 or infinite
            values = np.array(as_numpy(column, empty))
            values[hard] = [float(text.as_py()) for text in texts.filter(pa.array(hard))]
            column = pa.array(values)
    if missing is not None:
        checks.fail(gaps, f"{what} is missing", missing)
    return as_numpy(column.cast(pa.float64(), safe=False), empty)


def weights(column: pa.Array, checks: RowChecks) -> Array:
    """Return a column as float32 weights: finite, not negative."""
    values = floats(column, "weight", checks)
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    checks.fail(np.isnan(values), "weight is NaN")
    checks.fail(values < 0, lambda row: f"weight {values[row]} is negative")
    checks.fail(~np.isfinite(narrow), lambda row: f"weight {values[row]} is not finite in 32 bits")
    return narrow


def cast_rows(array: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Array]:
    """Cast an array, and return a mask of the values that cannot be cast; those become null.

    The whole array is tried first; if that fails, halves, until each bad value is found.
    """
    bad = np.zeros(len(array), bool)
    parts: list[pa.Array] = []
    stack = [(0, len(array))]
    while stack:
        start, stop = stack.pop()
        try:
            parts.append(array.slice(start, stop - start).cast(kind))
        except pa.ArrowInvalid:
            if stop - start == 1:
                bad[start] = True
                parts.append(pa.nulls(1, kind))
            else:
                middle = (start + stop) // 2
                stack += [(middle, stop), (start, middle)]
    return parts[0] if len(parts) == 1 else pa.concat_arrays(parts), bad


def cast_or_null(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast an array; values that cannot be cast become null."""
    try:
        return cast_rows(array, kind)[0]
    except pa.ArrowNotImplementedError:
        return pa.nulls(len(array), kind)


def nulls_of(array: pa.Array) -> Array:
    """Return a mask of the nulls."""
    if array.null_count == 0:
        return np.zeros(len(array), bool)
    return np.asarray(array.is_null())


def gaps_of(array: pa.Array, *, text: bool) -> Array:
    """Return a mask of the missing values, which are empty in a file of text."""
    gaps = nulls_of(array)
    if text and is_text(array.type):
        gaps = gaps | (as_numpy(pc.binary_length(array), 0) == 0)
    return gaps


def filled(array: pa.Array, gaps: Array, value: int) -> pa.Array:
    """Return an array with its gaps filled by a value, or its text."""
    if not gaps.any():
        return array
    kind = pa.string() if pa.types.is_null(array.type) else array.type
    kind = pa.binary() if pa.types.is_fixed_size_binary(kind) else kind
    words = is_text(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
    whole = pa.scalar(str(value) if words else value).cast(kind)
    return pc.if_else(pa.array(gaps), whole, array.cast(kind))


def with_gaps(values: Any, gaps: Array) -> Any:
    """Return what ``ids`` returns, with nulls in the gaps."""
    if not gaps.any():
        return values
    if isinstance(values, np.ndarray):
        return as_arrow(values, gaps)
    return pc.if_else(pa.array(gaps), pa.scalar(None, values.type), values)


def is_text(kind: pa.DataType) -> bool:
    """Say whether a type holds strings; a column of nulls alone counts as strings."""
    types = pa.types
    return bool(
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_null(kind)
    )


def _digits(texts: pa.Array) -> pa.Array:
    """Return whole numbers as pyarrow reads them, without a plus; null for any other text."""
    plain = pc.ascii_is_decimal(texts)
    others = texts.filter(pc.invert(plain))
    if len(others) == 0:
        return texts
    signed = pc.match_substring_regex(others, "^[+-][0-9]+$")
    others = pc.if_else(signed, others, pa.scalar(None, pa.string()))
    others = pc.replace_substring_regex(others, "^[+]|^-(0+)$", "\\1")
    return pc.replace_with_mask(texts, pc.invert(plain), others)


def _bytes(column: pa.Array, what: str, checks: RowChecks) -> pa.Array:
    checks.fail(nulls_of(column), f"{what} is missing")
    return column.cast(pa.binary()).fill_null(b"")


def _whole_numbers(column: pa.Array, id_type: str, what: str, checks: RowChecks) -> Array:
    """Return numbers as integers; a float or decimal has to be whole."""
    if pa.types.is_floating(column.type):
        column = _whole_floats(column, what, checks)
    elif not pa.types.is_integer(column.type):
        column, bad = cast_rows(column, pa.int64())
        checks.fail(bad, f"{what} is not an integer of 64 bits", TEXT_IDS)
    values = as_numpy(column, 0)
    unsigned = pa.types.is_uint64(column.type)
    if unsigned and id_type == "uint64":
        return (values ^ _TOP).view(np.int64)
    outside = values >= _TOP if unsigned else values < 0
    if unsigned or id_type == "uint64":
        _fail_range(checks, outside, id_type, what, lambda row: str(values[row]))
    if id_type == "uint64":
        return (values.astype(np.int64).view(np.uint64) ^ _TOP).view(np.int64)
    return values.astype(np.int64, copy=False)


def _whole_floats(column: pa.Array, what: str, checks: RowChecks) -> pa.Array:
    values = as_numpy(column.cast(pa.float64()), 0.0)
    whole = np.isfinite(values) & (np.trunc(values) == values)
    checks.fail(~whole, lambda row: f"{what} {values[row]} is not an integer", TEXT_IDS)
    inside = whole & (np.abs(values) <= _EXACT)
    checks.fail(
        whole & ~inside,
        lambda row: f"{what} {values[row]:.0f} is too large to be exact in a float",
    )
    return as_arrow(np.where(inside, values, 0.0).astype(np.int64))


def _fail_range(
    checks: RowChecks, mask: Array, id_type: str, what: str, text: Callable[[int], str]
) -> None:
    if not mask.any():
        return

    def reason(row: int) -> str:
        value = shorten(text(row).strip(), 40)
        if id_type == "uint64" and value.startswith("-"):
            return f"{what} {value} is negative, and ids are unsigned"
        return f"{what} {value} is beyond the 64 bits of {id_type}"

    first = text(int(np.argmax(mask))).strip()[:40]
    other = "uint64" if id_type == "int64" and 0 <= int(first) < 2**64 else "string"
    checks.fail(mask, reason, f"Give --id-type {other}, or --on-bad-rows skip to leave it out")
