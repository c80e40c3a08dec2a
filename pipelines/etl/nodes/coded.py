"""Columns of the node table that become features: one float32 per row while the table is read.

A number is itself, a boolean 0 or 1, a category the number of its name in the order in which names
appear, a date its days since 1970, a missing value NaN. ``encoding.py`` makes features of these
once the whole table is read, and categories and means are known.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrays import Array
from penstock.errors import InputError, UsageError
from penstock.manifest import FeatureColumn, Manifest
from penstock.pipelines.etl.nodes.labels import without_nan
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.tables import columns as convert
from penstock.pipelines.tables.rows import RowChecks, shown
from penstock.pipelines.tables.times import days
from penstock.pipelines.tables.types import is_list, kind_of, need_kind

UNKNOWN = -1.0  # the code of a category that the graph of --features-as does not have
MOST_CATEGORIES = 256
_WHOLE = re.compile(r"^([+-]?\d+)\.0+$")  # as floats among which one is missing
_TIME = re.compile(r"^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:\.\d*[1-9])?)\.?0*(?:Z|[+-]00:?00)?$")
_MIDNIGHT = re.compile(r"^(\d{4}-\d\d-\d\d) 00:00:00$")
_FILL = (
    "Correct the row, fill such features with --missing-features zero or mean, or give "
    "--on-bad-rows skip to leave such rows out, with --unknown-nodes drop for the edges of their "
    "nodes"
)


def known_columns(options: EtlOptions) -> tuple[FeatureColumn, ...] | None:
    """Return the columns of the graph that --features-as names; None without the option."""
    path = options.features_as
    if path is None:
        return None
    columns = Manifest.load(path).feature_columns
    if columns is None:
        raise UsageError(
            f"{path} does not record the columns of its features",
            expected="a graph of penstock etl --feature-columns, made of columns without lists",
        )
    for column in columns:
        if options.missing_features == "mean" and column.mean is None and column.kind != "category":
            raise UsageError(
                f"{path} has no mean of {column.name} to fill missing values",
                remedy="Make that graph with --missing-features mean, too, or give "
                "--missing-features zero",
            )
        wrong = None
        if options.standardise and column.kind == "number" and column.deviation is None:
            wrong = "--standardise"
        if column.kind != "category" and _takes(options.category_columns, column.name):
            wrong = "--category-columns"
        if wrong is not None:
            raise UsageError(
                f"the features of column {column.name} in {path} were made without {wrong}",
                remedy=f"Leave {wrong} out, or make all features anew, without --features-as",
            )
    return columns


def category(text: str) -> str:
    """Return the name of a category that is a text, a number, a boolean or a date."""
    if text.lower() in ("true", "false"):
        return text.lower()
    text = _WHOLE.sub(r"\1", text)
    return _MIDNIGHT.sub(r"\1", _TIME.sub(r"\1 \2", text))


def _takes(patterns: Sequence[str], name: str) -> bool:
    return name in patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


@dataclass
class CodedColumn:
    """A column while it is read: its kind, and the categories so far."""

    name: str
    kind: str | None = None  # as in FeatureColumn; None: not known before it has a value
    codes: dict[str, int] = field(default_factory=dict)  # number of each category
    known: FeatureColumn | None = None  # those of --features-as

    def of_categories(self, texts: pa.Array, path: str) -> Array:
        """Return the code of each text, NaN of a null."""
        coded = texts.dictionary_encode()
        names = [category(name) for name in coded.dictionary.to_pylist()]
        if self.known is None:
            for name in names:
                self.codes.setdefault(name, len(self.codes))
            if len(self.codes) > MOST_CATEGORIES:
                raise InputError(
                    f"column {self.name} of {path} has more than {MOST_CATEGORIES} categories",
                    expected="few, as each is a feature of its own",
                    got=", ".join([*self.codes][:5]) + ", ...",
                    remedy="Leave it out of --feature-columns, or give rare ones a common name",
                )
        values = np.array([self.codes.get(name, UNKNOWN) for name in names], np.float32)
        numbers = np.asarray(coded.indices.fill_null(len(names)))
        found: Array = np.append(values, np.float32(np.nan))[numbers]
        return found


class FeatureCoder:
    """Codes the feature columns of a table, file by file and batch by batch.

    listed      whether the features are one column of lists, whose items are not named columns
    named       whether the columns have names, which identify features
    unknown     by column, the number of values in categories that --features-as lacks
    """

    def __init__(self, options: EtlOptions) -> None:
        self.known = known_columns(options)
        self.columns: dict[str, CodedColumn] = {}
        self.listed, self.named = False, True
        self.unknown: dict[str, int] = {}
        self._categories = options.category_columns
        self._may_miss = options.missing_features != "error"
        # Deviations may be much smaller than the mean: they are rounded after the subtraction.
        scaled = any(one.deviation is not None for one in self.known or ())
        self.dtype = np.float64 if options.standardise or scaled else np.float32
        for column in self.known or ():
            codes = {category(name): code for code, name in enumerate(column.categories)}
            self.columns[column.name] = CodedColumn(column.name, column.kind, codes, column)

    def look(self, name: str, values: pa.Array, path: str) -> CodedColumn:
        """Return a column, with its kind if the values are enough to know it."""
        column = self.columns.setdefault(name, CodedColumn(name))
        if column.kind is None:
            if _takes(self._categories, name):
                column.kind = "category"
            else:
                column.kind = kind_of(values, f"feature {name}", path)
        if column.kind is not None:
            need_kind(values.type, column.kind, f"feature {name}", path)
        return column

    def code(
        self, names: Sequence[str], arrays: Sequence[pa.Array], checks: RowChecks, path: str
    ) -> Array:
        """Return some rows as (n, columns) of floats; each item of a list is a column."""
        if is_list(arrays[0].type):
            self.listed = True
            return _listed_features(arrays[0], names[0], checks, may_miss=self._may_miss)
        coded = np.empty((checks.count, len(arrays)), self.dtype)
        texts: dict[int, pa.Array] = {}
        columns = [self.look(*pair, path) for pair in zip(names, arrays, strict=True)]
        for i, (column, array) in enumerate(zip(columns, arrays, strict=True)):
            what = f"feature {column.name}"
            if column.kind == "category":
                texts[i] = _texts(array, what, checks)
                missing = convert.nulls_of(texts[i])
            elif column.kind in ("boolean", "date"):
                values = (_booleans if column.kind == "boolean" else days)(array, what, checks)
                coded[:, i] = values
                missing = np.isnan(values)
            else:
                with np.errstate(over="ignore"):
                    coded[:, i] = _numbers(array, what, checks, may_miss=self._may_miss)
                continue
            if not self._may_miss:
                checks.fail(missing, f"{what} is missing", _FILL)
        for i, found in texts.items():  # bad rows, which are known by now, have no category
            if checks.bad is not None:
                found = pa.compute.if_else(pa.array(~checks.bad), found, None)
            coded[:, i] = columns[i].of_categories(found, path)
            if count := int(np.count_nonzero(coded[:, i] == UNKNOWN)):
                name = columns[i].name
                self.unknown[name] = self.unknown.get(name, 0) + count
        return coded


def _numbers(column: pa.Array, what: str, checks: RowChecks, *, may_miss: bool) -> Array:
    values = convert.floats(column, what, checks, missing=None if may_miss else _FILL)
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    finite = np.isfinite(narrow)
    if not finite.all():
        nan = np.isnan(narrow)
        if not may_miss:
            checks.fail(nan, f"{what} is NaN", _FILL)
        checks.fail(~finite & ~nan, f"{what} is not finite in 32 bits")
    return values


def _texts(column: pa.Array, what: str, checks: RowChecks) -> pa.Array:
    """Return the names of categories, null for those that are missing."""
    inner = RowChecks(len(column))
    texts = convert.strings(without_nan(column), what, inner)
    missing = pc.equal(pc.binary_length(texts), 0)
    checks.take(inner, except_for=np.asarray(missing))
    return pc.if_else(missing, pa.scalar(None, texts.type), texts)


def _booleans(column: pa.Array, what: str, checks: RowChecks) -> Array:
    """Return 0 for false, 1 for true and NaN for a missing value."""
    texts = pc.utf8_lower(pc.utf8_trim_whitespace(without_nan(column).cast(pa.string())))
    texts = texts.fill_null("")
    found = pc.index_in(texts, pa.array(["false", "true", "0", "1", ""])).fill_null(-1)
    numbers = np.asarray(found)
    checks.fail(numbers < 0, lambda row: f"{what} {shown(column[row])!r} is not true or false")
    return np.where(numbers == 4, np.float32(np.nan), numbers % 2).astype(np.float32)


def _listed_features(column: pa.Array, name: str, checks: RowChecks, *, may_miss: bool) -> Array:
    lengths = np.asarray(pc.list_value_length(column).fill_null(-1))
    width = int(np.bincount(lengths[lengths >= 0]).argmax()) if (lengths >= 0).any() else 0
    if pa.types.is_fixed_size_list(column.type):
        width = column.type.list_size
    nothing = lengths < 0
    wrong = lengths != width
    if may_miss:
        wrong &= ~nothing
    checks.fail(wrong, lambda row: f"{name} has {max(lengths[row], 0)} numbers instead of {width}")
    features = np.zeros((checks.count, width), np.float32)
    features[nothing] = np.nan if may_miss else 0
    there = ~wrong & ~nothing
    flat = column.filter(pa.array(there)).flatten()
    with np.errstate(over="ignore"):
        # The schema says that all are numbers: missing ones become NaN.
        values = convert.floats(flat, name, RowChecks(len(flat)), missing=None)
        features[there] = values.reshape(-1, width)
    nan = np.isnan(features)
    gaps: Array = np.asarray(nan.any(axis=1))
    if not may_miss:
        checks.fail(gaps, f"a feature of {name} is missing or NaN", _FILL)
    infinite: Array = np.asarray((~np.isfinite(features) & ~nan).any(axis=1))
    checks.fail(infinite, f"a feature of {name} is not finite in 32 bits")
    return features
