"""Coded columns become features: scaled numbers, one-hot categories, dates as days and cycles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.errors import InputError
from penstock.manifest import FeatureColumn
from penstock.pipelines.etl.nodes.coded import CodedColumn, FeatureCoder
from penstock.pipelines.etl.nodes.features import (
    deviations,
    fill_missing,
    means_and_missing,
    missing_as,
)
from penstock.pipelines.etl.options import EtlOptions


@dataclass(frozen=True)
class Encoding:
    """How values that were read become features.

    width    features per node
    filled   values that were missing
    columns  how they were made; None: from a file, or from lists
    names    names of the features; None: they have none
    apply    makes features of some rows as they were read; None: they are the features
    """

    width: int
    filled: int = 0
    columns: tuple[FeatureColumn, ...] | None = None
    names: tuple[str, ...] | None = None
    apply: Callable[[Any], Any] | None = None


def encoding_of(features: Any, coder: FeatureCoder | None, options: EtlOptions) -> Encoding:
    """Return how features are made, once all values are read.

    features  (rows, columns), dense or SciPy CSR: coded columns if there is a ``coder``
    """
    how = options.missing_features
    if coder is None or coder.listed:
        fill, filled = missing_as(features, how)
        apply = None if fill is None else partial(fill_missing, fill=fill)
        return Encoding(features.shape[1], filled, apply=apply)
    read = [*coder.columns.values()]
    columns = coder.known or tuple(map(_column, read))
    dates = any(column.kind == "date" for column in columns)
    filled = 0
    if how != "error" or options.standardise or dates:
        means, missing = means_and_missing(features)
        filled = int(missing.sum())
        if coder.known is None:
            columns = _with_statistics(features, columns, means, options)
    names = tuple(name for column in columns for name in column.features())
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f"two features of {options.nodes} are named {twice}",
            expected="different names, which models identify them by",
            remedy="Rename the column",
        )
    simple = all(one.kind == "boolean" or _is_plain(one) for one in columns)
    codes = [
        np.array([one.codes[name] for name in column.categories], np.float32)
        for one, column in zip(read, columns, strict=True)
    ]
    apply = None
    if not simple or how != "error" or features.dtype != np.float32:
        apply = partial(_expand, columns=columns, codes=codes, mean=how == "mean")
    return Encoding(len(names), filled, columns, names if coder.named else None, apply)


def _is_plain(column: FeatureColumn) -> bool:
    return column.kind == "number" and column.deviation is None


def _column(read: CodedColumn) -> FeatureColumn:
    # A column without any value may be of any kind: its only feature is its fill value.
    kind = read.kind or "number"
    if kind == "category" and not read.codes:
        raise InputError(
            f"column {read.name} has no category: every value is missing",
            remedy="Leave it out of --category-columns",
        )
    return FeatureColumn(read.name, kind, categories=tuple(sorted(read.codes)))


def _with_statistics(
    coded: Array, columns: tuple[FeatureColumn, ...], means: Array, options: EtlOptions
) -> tuple[FeatureColumn, ...]:
    """Return columns with means and deviations of the rows that have a value, as options ask."""
    scaled = [
        one.kind == "date" or (options.standardise and one.kind == "number") for one in columns
    ]
    away = deviations(coded, means) if any(scaled) else means
    wanted = options.standardise or options.missing_features == "mean"
    kept = []
    for i, column in enumerate(columns):
        if scaled[i]:
            column = replace(column, mean=float(means[i]), deviation=float(away[i]))
        elif wanted and column.kind != "category":
            column = replace(column, mean=float(means[i]))
        kept.append(column)
    return tuple(kept)


def _expand(
    coded: Array, columns: tuple[FeatureColumn, ...], codes: list[Array], *, mean: bool
) -> Array:
    """Return the features of coded rows.

    codes  numbers of each column's categories, in their order
    mean   whether missing values become the mean, not 0
    """
    width = sum(len(column.features()) for column in columns)
    features = np.zeros((len(coded), width), np.float32)
    at = 0
    for column, values, of in zip(columns, coded.T, codes, strict=True):
        found = features[:, at : at + len(column.features())]
        at += found.shape[1]
        there = ~np.isnan(values)
        if column.kind == "category":
            np.equal(values[:, None], of, out=found, casting="unsafe")
        elif column.kind == "date":
            found[there] = _date(values[there].astype(np.int64), column)
        else:
            filled = np.where(there, values, (column.mean if mean else None) or 0.0)
            found[:, 0] = filled if column.deviation is None else _scaled(filled, column)
    return features


def _scaled(values: Array, column: FeatureColumn) -> Array:
    """Return values in deviations from the mean; a column that does not vary becomes 0."""
    if not column.deviation:
        return np.zeros(len(values))
    scaled: Array = (values - column.mean) / column.deviation
    return scaled


def _date(days: Array, column: FeatureColumn) -> Array:
    """Return DATE_PARTS of days since 1970, which began on a Thursday."""
    month = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
    parts = [_scaled(days.astype(np.float64), column)]
    for turn in (month / 12, (days + 3) % 7 / 7):
        parts += [np.sin(2 * np.pi * turn), np.cos(2 * np.pi * turn)]
    return np.stack(parts, axis=1)
