"""The columns of the input: decided once, from options, names and the first rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from penstock.errors import InputError, UsageError
from penstock.moments import TimeType, moment, moment_before
from penstock.options import flag
from penstock.pipelines.etl.options import EtlOptions, asked_columns, type_column
from penstock.pipelines.etl.reading.batch import Layout
from penstock.pipelines.tables import types as types_of
from penstock.pipelines.tables.edge_lists import sample_lists
from penstock.pipelines.tables.json_graphs import sample_graphs
from penstock.pipelines.tables.matrix import matrix_columns
from penstock.pipelines.tables.names import SOURCES, TARGETS, find_column
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.read import schema_with_rows
from penstock.pipelines.tables.sample import (
    INTEGER,
    Sample,
    has_header,
    id_type_of,
    is_number,
    take_sample,
    time_type_of,
)
from penstock.pipelines.tables.sources import (
    file_name,
    find_files,
    format_of,
    is_folder,
    table_format,
)
from penstock.sizes import listed

KNOWN = {
    "source": SOURCES,
    "target": TARGETS,
    "weight": ("weight", "w"),
    "relation": ("relation", "rel", "predicate"),
    "time": (),
    "graph": ("graph_id", "graph"),
    "source_type": (),
    "target_type": (),
}
_OPTION = {"graph": "graph_id"}
_POSITIONS = {
    "triples": {"source": 0, "relation": 1, "target": 2},
    "zoo": {"graph": 0, "source": 1, "target": 2},
    "edgelists": {"source": 0, "target": 1, "weight": 2},
}
# Formats of many small graphs.
ZOOS = ("zoo", "json", "edgelists", "tu")
_FIRST_TWO = {"source": 0, "target": 1}


class NoRows(InputError):
    """All files of an input are empty."""


def guess_format(paths: Sequence[str], options: EtlOptions) -> str:
    """Return the format of the inputs: from the options, else from the first file's name."""
    if options.format != "auto":
        return options.format
    if options.graph_id is not None:
        return "zoo"
    first = str(paths[0])
    files = find_files([first])
    if is_folder(first) and any("_A.txt" in file_name(file) for file in files):
        return "tu"
    formats = sorted({f for file in files if (f := format_of(file)) is not None})
    if len(formats) > 1 and "json" in formats:  # metadata that other programs leave beside tables
        formats.remove("json")
    if len(formats) != 1:
        raise UsageError(
            f"cannot tell the format of {first}",
            expected="names that end in .parquet, .arrow, .csv, .tsv, .txt, .edgelist, .npz or "
            ".jsonl",
            got=" and ".join(formats) or first,
            remedy="Give --format if it is one of these, else convert it: a matrix of MATLAB with "
            "scipy.io.loadmat and scipy.sparse.save_npz, tables to Parquet",
        )
    if formats[0] == "edgelist" and _looks_like_triples(files[0], options):
        return "triples"
    return formats[0]


def find_layout(paths: Sequence[str], options: EtlOptions, kind: str) -> Layout:
    """Decide the columns and their types from the first file that has rows."""
    if kind == "tu":
        from penstock.pipelines.etl.zoos.tu import tu_layout

        return tu_layout(paths[0], options)
    files = find_files(paths, kind)
    if kind == "edgelists":
        return _with_moments(_lists_layout(files, options), options)
    for path in files:
        several = len(files) > 1
        layout = (
            _json_layout(path, options, several=several)
            if kind == "json"
            else _layout_of(path, options, kind)
        )
        if layout is not None:
            return _with_moments(layout, options)
    raise NoRows(f"there are no rows in {listed(files, 3)}", remedy="Check what wrote the input")


def default_direction(kind: str, layout: Layout) -> tuple[bool, str]:
    """Return whether edges are directed by default, from their format and columns, and why.

    Most relations hold in one direction only. In a zoo a relation is as often the kind of a bond,
    and TU folders list their edges both ways.
    """
    if layout.directed is not None:
        return layout.directed, "as the first graph says"
    if kind in ZOOS:
        return False, f"the default of a {'TU folder' if kind == 'tu' else 'zoo'}"
    if layout.relation is not None:
        return True, "the default of edges with relations"
    return False, "the default of edges without relations"


def columns_by_position(layout: Layout) -> tuple[dict[str, int], list[int]]:
    """Return the column of each role in a text without names, and the columns that are not read."""
    if layout.header or not layout.names:
        return {}, []
    roles = {role: getattr(layout, role) for role in KNOWN}
    taken = {role: at for role, at in roles.items() if isinstance(at, int)}
    unread = [at for at in range(len(layout.names)) if at not in taken.values()]
    return (taken, unread) if taken else ({}, [])


def _layout_of(path: str, options: EtlOptions, kind: str) -> Layout | None:
    table = table_format(path, kind)
    if table == "npz":
        if type_column(options.source_type) or type_column(options.target_type):
            raise UsageError("a matrix has no columns of types", remedy="--source-type TYPE")
        names = matrix_columns(path)
        weight = "data" if "data" in names else None
        return Layout("row", "column", weight=weight, names=names) if names else None
    if table in ("parquet", "arrow"):
        return _schema_layout(path, table, options, kind)
    sample = take_sample(path, table, options.delimiter)
    if not sample.rows:
        return None
    known = KNOWN["source"], KNOWN["target"]
    header = has_header(sample, options.header, asked_columns(options), *known)
    if header and len(sample.rows) == 1:
        return None
    return _text_layout(sample, header, options, kind)


def _text_layout(sample: Sample, header: bool, options: EtlOptions, kind: str) -> Layout:
    width = len(sample.rows[0]) if header else sample.width
    names = sample.rows[0] if header else [str(i) for i in range(width)]
    names = [name.strip() for name in names]
    if header:
        names[0] = names[0].removeprefix("#").strip()
    fallback = _POSITIONS.get(kind, _FIRST_TWO)
    if header:
        fallback = _FIRST_TWO if kind == "edgelists" else {}
    roles = _roles(
        options, names, fallback, sample.path, kind, shown=None if header else sample.rows[0]
    )
    found: dict[str, Any] = {
        role: (names[number] if header and names.count(names[number]) == 1 else number)
        for role, number in roles.items()
    }
    columns = {role: sample.column(n, header=header) for role, n in roles.items()}
    ids = columns["source"] + columns["target"]
    if options.id_type == "auto":
        found["id_type"] = id_type_of(ids, sample.path)
    else:
        found["id_type"] = options.id_type
    if "time" in columns:
        found["time_type"] = time_type_of(columns["time"])
    for role in ("relation", "graph"):
        if role in columns:
            found[f"{role}_type"] = _whole_or_text(columns[role])
    if "graph" in columns and options.id_type == "string":
        found["graph_type"] = "string"
    return Layout(**found, header=header, delimiter=sample.delimiter, names=tuple(names))


def _json_layout(path: str, options: EtlOptions, *, several: bool) -> Layout | None:
    """Return the layout of JSON lines, where a string that looks like a number is a string."""
    found = sample_graphs(Piece(path, "json", names=(path,) if several else ()))
    if not found.rows:
        return None
    texts = [["" if one is None else str(one) for one in row] for row in found.rows]
    layout = _text_layout(Sample(path, ",", [found.names, *texts]), True, options, "json")
    kinds: dict[str, Any] = {"directed": found.directed}
    if options.id_type == "string" or any(isinstance(row[0], str) for row in found.rows):
        kinds["graph_type"] = "string"
    named = any(isinstance(one, str) for row in found.rows for one in row[1:3])
    if named and options.id_type == "auto":
        kinds["id_type"] = "string"
    return replace(layout, **kinds)


def _lists_layout(files: Sequence[str], options: EtlOptions) -> Layout:
    formats = sorted({str(format_of(file)) for file in files})
    if len(formats) > 1:
        raise UsageError(
            f"the lists of edges are of several formats: {', '.join(formats)}",
            remedy="Give lists that one program wrote",
        )
    sample = sample_lists(files, options.delimiter)
    known = KNOWN["source"], KNOWN["target"]
    header = has_header(sample, options.header, asked_columns(options), *known)
    layout = _text_layout(sample, header, options, "edgelists")
    return replace(layout, graph="graph", graph_type="string")


def _schema_layout(path: str, table: str, options: EtlOptions, kind: str) -> Layout | None:
    schema = schema_with_rows(path, table)
    if schema is None:
        return None
    roles = _roles(options, schema.names, {}, path, kind, shown=None)
    types = {role: schema.field(number).type for role, number in roles.items()}
    found: dict[str, Any] = {role: schema.names[number] for role, number in roles.items()}
    layout = Layout(**found, names=tuple(schema.names))
    return schema_types(layout, types, options, path)


def schema_types(
    layout: Layout, types: dict[str, pa.DataType], options: EtlOptions, path: str
) -> Layout:
    """Complete a layout from the types of the columns."""
    ends = types["source"], types["target"]
    found: dict[str, Any] = {"id_type": types_of.id_type(*ends, options.id_type, path)}
    if "weight" in types:
        types_of.need_number(types["weight"], "weight", path)
    if "time" in types:
        found["time_type"] = types_of.time_type(types["time"], path)
    for role in ("relation", "graph"):
        if role in types:
            found[f"{role}_type"] = types_of.whole_or_text(types[role], role, path)
    if "graph" in types and pa.types.is_uint64(types_of.bare_type(types["graph"])):
        found["graph_type"] = "uint64"
    return replace(layout, **found)


def _roles(
    options: EtlOptions,
    names: Sequence[str],
    fallback: dict[str, int],
    path: str,
    kind: str,
    shown: Sequence[str] | None,
) -> dict[str, int]:
    """Return the number of each column that exists; raise if a needed one is missing."""
    asked = {role: getattr(options, _OPTION.get(role, role)) for role in KNOWN}
    asked |= {role: type_column(asked[role]) for role in ("source_type", "target_type")}
    needed = ["source", "target"]
    zoo = options.format == "zoo" or kind in ("zoo", "json")
    if zoo:
        needed.append("graph")
    elif kind == "triples" and (options.relation != "none" or "none" in names):
        needed.append("relation")
    there = f"columns {listed(names, 20)}"
    if shown is not None:
        there = f"no header, {len(names)} columns, and the first row {' '.join(shown)!r}"
    roles: dict[str, int] = {}
    for role, option in asked.items():
        if role == "graph" and not zoo:
            continue
        if option == "none" and role in ("weight", "relation") and "none" not in names:
            continue
        position = fallback.get(role, len(names))
        number = find_column(
            names,
            option,
            path,
            flag(_OPTION.get(role, role)),
            known=KNOWN[role],
            position=position if position < len(names) else None,
            there=there,
        )
        if number is not None:
            roles[role] = number
        elif role in needed:
            usual = ", ".join(KNOWN[role])
            raise InputError(
                f"{path} has no column for the {role}",
                expected=f"one named {usual}" if shown is None else f"{len(needed)} columns",
                got=there,
                remedy=f"Name it with {flag(_OPTION.get(role, role))}, or give --delimiter or "
                "--header if the columns were not recognised"
                + (", or --format edgelists if every file is a graph" if zoo else ""),
            )
    if roles["source"] == roles["target"]:
        raise InputError(
            f"source and target are the same column of {path}",
            got=f"columns {listed(names, 20)}",
            remedy="Give --source and --target",
        )
    return roles


def _with_moments(layout: Layout, options: EtlOptions) -> Layout:
    since = first_moment(options, layout.time_type)
    return replace(layout, since=since, until=moment(options.until, layout.time_type, "--until"))


def first_moment(options: EtlOptions, kind: TimeType | None) -> int | float | None:
    """Return the least time of edges that --since or --window keeps."""
    until = moment(options.until, kind, "--until")
    if options.window is None or until is None:
        return moment(options.since, kind, "--since")
    return moment_before(until, options.window, kind)


def _looks_like_triples(path: str, options: EtlOptions) -> bool:
    """Say whether every first line has three columns between tabs, and the ids are texts."""
    if options.delimiter is not None:
        return False
    rows = take_sample(path, "triples", None)
    if rows.delimiter != "\t" or not rows.rows or {len(row) for row in rows.rows} != {3}:
        return False
    return all(field and not is_number(field) for row in rows.rows for field in row)


def _whole_or_text(values: Sequence[str]) -> str:
    return "int64" if values and all(INTEGER.fullmatch(v) for v in values) else "string"
