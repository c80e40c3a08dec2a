"""The roles of a node table's columns, and how they become ids, labels, splits and features."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import Array
from penstock.errors import InputError
from penstock.manifest import FeatureColumn
from penstock.pipelines.etl.nodes.labels import parquet_label_type, text_label_type
from penstock.pipelines.etl.options import EtlOptions, asked_columns, type_column
from penstock.pipelines.tables import columns as convert
from penstock.pipelines.tables.names import check_features, find_column
from penstock.pipelines.tables.rows import RowChecks
from penstock.pipelines.tables.sample import Sample, has_header
from penstock.pipelines.tables.types import check_ids, is_list, need_number

if TYPE_CHECKING:
    import pyarrow as pa

_ID_NAMES = ("id", "node_id", "node", "nodeid")
_SPLITS = {
    "train": 0,
    "training": 0,
    "0": 0,
    "valid": 1,
    "val": 1,
    "validation": 1,
    "dev": 1,
    "1": 1,
    "test": 2,
    "testing": 2,
    "2": 2,
    "": -1,
}


Known = tuple[FeatureColumn, ...] | None  # those of --features-as


@dataclass(frozen=True)
class NodeLayout:
    """The columns of a node table: names in Parquet, positions in text."""

    id: str | int
    label: str | int | None
    split: str | int | None
    features: tuple[str | int, ...]
    names: tuple[str, ...]
    header: bool = False
    label_type: str = ""  # see labels.py
    feature_names: tuple[str, ...] | None = None  # None: a list's items, or columns of no name
    type: str | int | None = None

    @classmethod
    def of_schema(
        cls, path: str, schema: pa.Schema, id_type: str, options: EtlOptions, known: Known = None
    ) -> NodeLayout:
        """Find the columns of a Parquet file."""
        names = list(schema.names)
        id_, type_, label, split, features = _find(path, names, None, options, known)
        named = tuple(names[number] for number in features) or None
        check_ids(schema.field(id_).type, id_type, path)
        for number in features:
            kind = schema.field(number).type
            if not is_list(kind):
                continue
            need_number(kind.value_type, f"features {names[number]}", path)
            if options.standardise or options.category_columns or known is not None:
                raise InputError(
                    f"{path} has lists in {names[number]}, whose items are features unchanged",
                    expected="columns of numbers, booleans, categories or dates",
                    remedy="Leave out --standardise, --category-columns and --features-as",
                )
            if len(features) > 1:
                raise InputError(
                    f"{path} has lists in {names[number]}, which is one of several features",
                    remedy="Give one column of lists, or only columns of numbers",
                )
            named = None
        return cls(
            names[id_],
            None if label is None else names[label],
            None if split is None else names[split],
            tuple(names[number] for number in features),
            tuple(names),
            label_type=parquet_label_type(options.label_kind),
            feature_names=named,
            type=None if type_ is None else names[type_],
        )

    @classmethod
    def of_sample(cls, sample: Sample, options: EtlOptions, known: Known = None) -> NodeLayout:
        """Find the columns of a text file."""
        given = (options.node_id, _types(options), options.label, options.split)
        asked = tuple(n.lower() for n in given if n is not None and not n.isdecimal())
        usual = (*_ID_NAMES, *asked)
        header = has_header(sample, options.header, asked_columns(options), usual, usual)
        first = [name.strip() for name in sample.rows[0]]
        names = first if header else [str(i) for i in range(sample.width)]
        id_, type_, label, split, features = _find(
            sample.path, names, None if header else 0, options, known
        )
        kind = ""
        if label is not None:
            values = sample.column(label, header=header)
            kind = text_label_type(values, options.label_kind, options.label_missing)
        named = tuple(names[number] for number in features) or None if header else None
        return cls(id_, label, split, tuple(features), tuple(names), header, kind, named, type_)

    def feature_columns(self) -> list[str]:
        """Return the names of the feature columns; a text may have numbers only."""
        return [self.names[c] if isinstance(c, int) else c for c in self.features]

    def ordered_as(self, wanted: tuple[str, ...] | None, path: str) -> NodeLayout:
        """Return the layout with its features in the order of the first file's."""
        if wanted is None or wanted == self.feature_names:
            return self
        own = self.feature_names or ()
        if {*wanted} != {*own}:
            other = sorted({*wanted} ^ {*own})
            raise InputError(
                f"{path} has other features than the first file",
                expected=", ".join(wanted[:20]),
                got=", ".join(own[:20]) or "features without names",
                remedy=f"Give all files the same columns: {', '.join(other[:5])} are not in both",
            )
        column = dict(zip(own, self.features, strict=True))
        return replace(self, features=tuple(column[name] for name in wanted), feature_names=wanted)


def splits_of(column: pa.Array, checks: RowChecks) -> Array:
    """Return 0 for train, 1 for valid, 2 for test, -1 for none."""
    texts = convert.strings(column, "split", RowChecks(len(column)))
    coded = texts.dictionary_encode()
    names = coded.dictionary.to_pylist()
    values = np.array([_SPLITS.get(name.strip().lower(), -9) for name in names], np.int8)
    numbers = values[np.asarray(coded.indices)] if len(coded) else np.empty(0, np.int8)
    checks.fail(
        numbers == -9,
        lambda row: f"split {coded[row].as_py()!r} is not train, valid or test",
    )
    return numbers


def _find(
    path: str, names: Sequence[str], position: int | None, options: EtlOptions, known: Known
) -> tuple[int, int | None, int | None, int | None, list[int]]:
    """Return the numbers of the columns that hold ids, types, labels, splits and features."""
    asked = options.node_id
    id_ = find_column(names, asked, path, "--node-id", known=_ID_NAMES, position=position)
    if id_ is None:
        raise InputError(
            f"{path} has no column for the node's id",
            expected="one named id",
            got=f"columns {', '.join(names[:20])}",
            remedy="Name it with --node-id",
        )
    label = find_column(names, options.label, path, "--label")
    split = find_column(names, options.split, path, "--split")
    type_ = find_column(names, _types(options), path, "--node-type")
    taken = {id_, type_, label, split}
    features = [] if known is None else _known(path, names, known, options)
    patterns = [("--feature-columns", pattern) for pattern in options.feature_columns]
    patterns += [("--category-columns", pattern) for pattern in options.category_columns]
    for option, pattern in patterns:
        found = [
            i
            for i, name in enumerate(names)
            if name == pattern or (fnmatchcase(name, pattern) and i not in taken)
        ]
        if not found:
            raise InputError(
                f"{path} has no column that fits {option} {pattern}",
                got=f"columns {', '.join(names[:20])}",
            )
        new = [names[number] for number in found if number not in features]
        if new and known is not None:
            raise InputError(
                f"{option} {pattern} takes columns that {options.features_as} has no features of",
                got=", ".join(new[:20]),
                remedy="Leave them out, or make all features anew, without --features-as",
            )
        features += [number for number in found if number not in features]
    check_features(names, features, path)
    return id_, type_, label, split, features


def _known(
    path: str, names: Sequence[str], known: tuple[FeatureColumn, ...], options: EtlOptions
) -> list[int]:
    missing = [column.name for column in known if column.name not in names]
    if missing:
        raise InputError(
            f"{path} lacks columns that {options.features_as} has features of",
            expected=", ".join(missing[:20]),
            got=f"columns {', '.join(names[:20])}",
        )
    return [names.index(column.name) for column in known]


def _types(options: EtlOptions) -> str | None:
    """Return the column of types, if there are several types."""
    if options.source_type is None:
        return None
    return type_column(options.node_type or "column:type")
