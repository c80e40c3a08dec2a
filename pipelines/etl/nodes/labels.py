"""Labels of nodes: classes, lists of classes, or values; a node may have none.

They are read as one of int64, float64, string, "list of int64", "list of string", class (as in
Parquet, but whole numbers) and "" (the type in Parquet).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.errors import InputError
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.tables import columns as convert
from penstock.pipelines.tables.rows import RowChecks
from penstock.pipelines.tables.sample import INTEGER, is_number

_SEPARATOR = re.compile(r"[;|\s]+")
_MOST_CLASSES = 1000  # the most classes that floats may stand for


def text_label_type(values: Sequence[str], kind: str, missing: str | None = None) -> str:
    """Return the type of labels that look like ``values``; ``kind`` is --label-kind."""
    values = [value for value in values if value.strip() != missing]
    if kind == "value":
        return "float64"
    if kind == "multi":
        numbers = all(INTEGER.fullmatch(part) for value in values for part in _parts(value))
        return "list of int64" if numbers else "list of string"
    if all(map(INTEGER.fullmatch, values)):
        return "int64"
    return "float64" if all(map(is_number, values)) else "string"


def parquet_label_type(kind: str) -> str:
    """Return the type of labels in Parquet; texts stay texts."""
    return {"value": "float64", "multi": "list of string", "class": "class"}.get(kind, "")


def labels_of(
    column: pa.Array, label_type: str, checks: RowChecks, marker: str | None = None
) -> pa.Array:
    """Return labels of a type; a missing one is null. ``marker`` is --label-missing."""
    column = _checked(column, label_type, marker)
    missing = convert.nulls_of(column)
    if label_type == "class" and pa.types.is_floating(column.type):
        label_type = "int64"
    if label_type in ("", "class") or pa.types.is_nested(column.type):
        _check_finite(column, checks)
        return column
    inner = RowChecks(len(column))
    values: Any
    if label_type == "int64":
        values = convert.integers(column, "int64", "label", inner)
    elif label_type == "float64":
        values = convert.floats(column, "label", inner)
        inner.fail(~np.isfinite(values), "label is not finite")
    else:
        values = convert.strings(column, "label", inner)
        if label_type.startswith("list"):
            values = _lists(values, label_type, inner)
    checks.take(inner, except_for=missing)
    if isinstance(values, np.ndarray):
        return pa.array(values, mask=missing)
    return pa.compute.if_else(pa.array(missing), pa.scalar(None, values.type), values)


def _lists(texts: pa.Array, label_type: str, checks: RowChecks) -> pa.Array:
    parts = [_parts(text) for text in texts.to_pylist()]
    if label_type == "list of string":
        return pa.array([part or None for part in parts], pa.list_(pa.string()))
    bad = np.array([not all(map(INTEGER.fullmatch, part)) for part in parts], bool)
    checks.fail(bad, lambda row: f"label {texts[row].as_py()!r} holds more than integers")
    numbers = [
        [int(p) for p in part] if part and not wrong else None
        for part, wrong in zip(parts, bad, strict=True)
    ]
    return pa.array(numbers, pa.list_(pa.int64()))


def _parts(text: str) -> list[str]:
    return [part for part in _SEPARATOR.split(text) if part]


def without_nan(column: pa.Array) -> pa.Array:
    """Return a column with null for NaN, which pandas writes for a missing label."""
    if not pa.types.is_floating(column.type):
        return column
    return pc.if_else(pc.is_nan(column), pa.scalar(None, column.type), column)


def coded_labels(
    labels: pa.Array, options: EtlOptions, known: tuple[str, ...] | None = None
) -> tuple[pa.Array, str, tuple[str, ...] | None]:
    """Return labels as class numbers, lists of class numbers, or values; their kind; the names.

    known  the names of an earlier graph, which other ones follow
    """
    if pa.types.is_fixed_size_list(labels.type):
        labels = labels.cast(pa.list_(labels.type.value_type))
    kind = options.label_kind
    listed = pa.types.is_list(labels.type) or pa.types.is_large_list(labels.type)
    items = without_nan(labels.flatten() if listed else labels)
    items = _without(items, options.label_missing)
    floats = pa.types.is_floating(items.type)
    if kind == "auto":
        kind = "multi" if listed else "class"
        if kind == "class" and floats and not _are_classes(items):
            kind = "value"
    if kind == "class" and floats and _are_whole(items):
        items = items.cast(pa.int64())
    if kind == "value":
        return items.cast(pa.float32()), kind, None
    names = pc.unique(items.drop_null())
    names = names.take(pc.sort_indices(names))
    numbers = pc.index_in(items, value_set=names)
    classes = tuple(str(name) for name in names.to_pylist())
    if known is not None:
        whole = (*known, *sorted({*classes}.difference(known)))
        numbers = pa.array(map(whole.index, classes), numbers.type).take(numbers)
        classes = whole
    return _numbered(labels, numbers) if listed else numbers, kind, classes


def _are_classes(floats: pa.Array) -> bool:
    """Say whether floats are classes with gaps: pandas writes integers so if some are missing."""
    if floats.null_count in (0, len(floats)):
        return False
    return len(pc.unique(floats)) <= _MOST_CLASSES + 1 and _are_whole(floats)


def _are_whole(floats: pa.Array) -> bool:
    values = np.asarray(floats.drop_null())
    return bool(np.all((np.trunc(values) == values) & (np.abs(values) < 2**53)))


def _numbered(lists: pa.Array, numbers: pa.Array) -> pa.Array:
    """Return lists with class numbers in place of their items, those that are missing left out.

    An empty list says that a node has none of the classes. A node without a list, or with a list
    in which all items are missing, has no label.
    """
    lengths = np.asarray(pc.fill_null(pc.list_value_length(lists), 0))  # flatten() skips null lists
    known = np.asarray(numbers.is_valid())
    rows = np.repeat(np.arange(len(lengths)), lengths)[known]
    kept = np.bincount(rows, minlength=len(lengths))
    nothing = np.asarray(lists.is_null()) | ((lengths > 0) & (kept == 0))
    offsets = pa.array(np.append(0, np.cumsum(kept)).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, numbers.drop_null(), mask=pa.array(nothing))


def _without(column: pa.Array, marker: str | None) -> pa.Array:
    """Return a column of texts or numbers with null for the marker of no label."""
    if marker is None or pa.types.is_null(column.type):
        return column
    if convert.is_text(column.type):
        found = pc.equal(pc.utf8_trim_whitespace(column), marker)
    elif is_number(marker) and not pa.types.is_boolean(column.type):
        found = pc.equal(column.cast(pa.float64(), safe=False), float(marker))
    else:
        return column
    return pc.if_else(found, pa.scalar(None, column.type), column)


def _checked(column: pa.Array, label_type: str, marker: str | None) -> pa.Array:
    """Return a column with null for NaN, the empty text and the marker: no label."""
    types = pa.types
    if types.is_null(column.type):
        return column.cast(pa.string())
    if types.is_floating(column.type):
        return without_nan(column)
    if convert.is_text(column.type):
        return _without(_without(column, ""), marker)
    if types.is_nested(column.type) and label_type in ("class", "float64"):
        kind = "class" if label_type == "class" else "value"
        raise InputError(
            f"the labels are lists, and --label-kind {kind} takes one per node",
            expected="--label-kind multi or auto",
            got=str(column.type),
        )
    if not (
        types.is_integer(column.type)
        or types.is_boolean(column.type)
        or convert.is_text(column.type)
        or types.is_nested(column.type)
    ):
        raise InputError(
            "the labels have the wrong type",
            expected="integers, floats, strings or lists",
            got=str(column.type),
        )
    return column


def _check_finite(column: pa.Array, checks: RowChecks) -> None:
    if pa.types.is_floating(column.type):
        checks.fail(np.asarray(pc.is_inf(column).fill_null(False)), "label is not finite")
