"""Arrow's types as Penstock names them: the types in which ids, times and numbers are read."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InputError
from penstock.moments import TimeType
from penstock.pipelines.tables.columns import NUMBER, is_text

_FIRST = 1000  # values that decide the kind of a column of text
_LOOKS = {
    "number": NUMBER,
    "boolean": "^(true|false)$",
    "date": "^[0-9]{4}-[0-9]{2}-[0-9]{2}([ T].*)?$",
}
_EXPECTED = {
    "number": "numbers, booleans, texts, dates or timestamps, in all files the same",
    "boolean": "true and false, like the first file",
    "date": "dates, like the first file",
    "category": "texts, numbers, booleans or dates",
}


def bare_type(kind: pa.DataType) -> pa.DataType:
    """Return a type without wrappers: extension types, dictionaries and views."""
    if isinstance(kind, pa.BaseExtensionType):
        kind = kind.storage_type
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.large_binary() if pa.types.is_binary_view(kind) else kind


def id_type(source: pa.DataType, target: pa.DataType, asked: str, path: str) -> str:
    """Return a type for the ids of both columns: integers stay integers, bytes stay bytes."""
    kinds = {check_ids(source, asked, path), check_ids(target, asked, path)}
    if asked != "auto":
        return asked
    if len(kinds) == 1:
        return kinds.pop()
    return "uint64" if kinds == {"int64", "uint64"} else "string"


def check_ids(kind: pa.DataType, asked: str, path: str) -> str:
    """Return the id type of a column; raise if it cannot be read as ``asked``."""
    types, kind = pa.types, bare_type(kind)
    # pandas stores integers as floats if some are missing.
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return "uint64" if types.is_uint64(kind) else "int64"
    if is_text(kind):
        return "string"
    if types.is_fixed_size_binary(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        if asked in ("int64", "uint64"):
            raise _wrong_type("node ids", asked, kind, path)
        return "binary"
    raise _wrong_type("node ids", "integers, strings or bytes", kind, path)


def time_type(kind: pa.DataType, path: str) -> TimeType:
    """Return the type in which times are kept."""
    kind = bare_type(kind)
    if pa.types.is_integer(kind):
        return "int64"
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return "float64"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind) or is_text(kind):
        return "timestamp"
    raise _wrong_type("time", "integers, floats, timestamps, dates or ISO texts", kind, path)


def need_number(kind: pa.DataType, what: str, path: str) -> None:
    """Raise InputError unless a column can hold numbers."""
    kind = bare_type(kind)
    if not (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_decimal(kind)
        or is_text(kind)
    ):
        raise _wrong_type(what, "numbers", kind, path)


def is_list(kind: pa.DataType) -> bool:
    """Say whether a type holds lists, of fixed length or not."""
    return bool(
        pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or pa.types.is_large_list(kind)
    )


def kind_of(values: pa.Array, what: str, path: str) -> str | None:
    """Return the kind of a feature column: number, boolean, date or category.

    At least half of the first texts decide the kind of a text; None: they are all empty.
    """
    kind = values.type
    if is_text(kind):
        texts = pc.utf8_trim_whitespace(values.cast(pa.string()).drop_null())
        first = texts.filter(pc.not_equal(texts, "")).slice(0, _FIRST)
        for name, pattern in _LOOKS.items():
            fits = pc.sum(pc.match_substring_regex(first, pattern, ignore_case=True)).as_py() or 0
            if len(first) and 2 * fits >= len(first):
                return name
        return "category" if len(first) else None
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return "date"
    need_kind(kind, "number", what, path)
    return "number"


def need_kind(kind: pa.DataType, wanted: str, what: str, path: str) -> None:
    """Raise InputError unless a column can hold features of a kind of ``kind_of``."""
    types, kind = pa.types, bare_type(kind)
    dates = types.is_timestamp(kind) or types.is_date(kind)
    numbers = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    fits = {
        "number": numbers,
        "boolean": numbers or types.is_boolean(kind),
        "date": dates,
        "category": numbers or dates or types.is_boolean(kind),
    }
    if not (fits[wanted] or is_text(kind)):
        raise _wrong_type(what, _EXPECTED[wanted], kind, path)


def whole_or_text(kind: pa.DataType, what: str, path: str) -> str:
    """Return the type in which relations and graph ids are kept."""
    kind = bare_type(kind)
    if not (pa.types.is_integer(kind) or is_text(kind)):
        raise _wrong_type(f"{what} column", "integers or strings", kind, path)
    return "int64" if pa.types.is_integer(kind) else "string"


def _wrong_type(what: str, expected: str, kind: pa.DataType, path: str) -> InputError:
    return InputError(
        f"the {what} of {path} cannot be read: the type is wrong", expected=expected, got=str(kind)
    )
