"""Files that each list the edges of one graph, whose id is the file's name, as rows of edges.

A line is an edge, with the same columns in all files, or one isolated node. Lines that NetworkX
writes are read, too: ``1 2 {'weight': 3.5}``.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrow import as_arrow
from penstock.errors import InputError
from penstock.pipelines.tables.columns import cast_rows
from penstock.pipelines.tables.names import SOURCES, TARGETS
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.rows import Column, RowChecks, Rows, RowSource
from penstock.pipelines.tables.sample import Sample, names_columns, take_sample
from penstock.pipelines.tables.sources import (
    codec_of,
    file_size,
    format_of,
    open_stream,
    without_archive,
)
from penstock.pipelines.tables.split import Dialect, SplitRow, split_rows
from penstock.pipelines.tables.text import TextShape, without_mark

_ROWS = 1 << 18  # at once
_SAMPLE = 1000  # rows
_FILES = 1 << 10  # of a piece
_PART = 1 << 20
_ATTRIBUTES = re.compile(rb"[ \t,](\{[^\r\n]*\})[ \t]*(?=[\r\n]|\Z)")
_SEVERAL = re.compile(rb"[,;|\s]")  # any separator of fields


def graph_names(files: Sequence[str], folders: Sequence[str]) -> list[str]:
    """Return the ids of the graphs: the names of files below a folder, without suffixes."""
    found: dict[str, str] = {}
    prefixes = [f"{without_archive(folder).rstrip('/')}/" for folder in folders]
    for file in files:
        name = without_archive(file)
        below = next((prefix for prefix in prefixes if name.startswith(prefix)), None)
        name = name.rsplit("/", 1)[-1] if below is None else name.removeprefix(below)
        for known in (codec_of, format_of):
            if known(name) is not None:
                name = name.rpartition(".")[0]
        if name in found:
            raise InputError(
                f"{found[name]} and {file} are both the graph {name}",
                expected="files of different names, without their suffixes",
                remedy="Rename one of them",
            )
        found[name] = file
    return list(found)


def list_pieces(files: Sequence[str], names: Sequence[str], target: int) -> Iterator[Piece]:
    """Group files into pieces."""
    first = size = 0
    for number, path in enumerate(files):
        size += file_size(path)
        last = number + 1
        if size >= target or last - first >= _FILES or last == len(files):
            taken = tuple(files[first:last]), tuple(names[first:last])
            yield Piece(path, "edgelists", 0, -1, size, 0, 0, *taken)
            first, size = last, 0


def sample_lists(files: Sequence[str], delimiter: str | None) -> Sample:
    """Return the first rows of edges, from several files if they are short.

    Rows of isolated nodes count only if there are no others.
    """
    found, alone = Sample(files[0], " ", []), list[list[str]]()
    for path in files:
        if not found.rows:  # from the first edge
            found = Sample(path, take_sample(path, _table(path), delimiter).delimiter, [])
        for number, row in enumerate(islice(_rows_of(path, found.delimiter), _SAMPLE)):
            fields = [one.decode("utf-8", "replace") for one in row.fields]
            if number == 0 and [fields] == found.rows[:1]:  # a header, most likely
                continue
            if len(fields) > 1:
                found.rows.append(fields)
            elif fields:
                alone.append(2 * fields)
        if len(found.rows) + len(alone) >= _SAMPLE:
            break
    return found if found.rows else Sample(found.path, found.delimiter, alone or [["0", "0"]])


def read_lists(piece: Piece, shape: TextShape, columns: Mapping[Column, str]) -> Iterator[Rows]:
    """Read columns of the graphs of some files; see ``read_rows``."""
    part = _Part(piece, shape)
    for number, path in enumerate(piece.files):
        rows = _rows_of(path, shape.delimiter)
        first = next(rows, None)
        if first is not None:
            names = [field.decode("utf-8", "replace").strip() for field in first.fields]
            other = names_columns(names, (), SOURCES, TARGETS)
            if tuple(names) != shape.names if shape.header else other:
                raise InputError(
                    f"{path}, row {first.line + 1}: the header differs from that of the first file",
                    expected=",".join(shape.names) if shape.header else "no header",
                    got=",".join(names),
                    remedy="Give all files the same header line",
                )
            if not shape.header:
                part.add(number, first)
        for row in rows:
            part.add(number, row)
            if len(part.lines) >= _ROWS:
                yield part.rows(columns)
                part = _Part(piece, shape)
        part.add_graph(number)
    if part.lines:
        yield part.rows(columns)


class _Part:
    """Some lines on their way to rows."""

    def __init__(self, piece: Piece, shape: TextShape) -> None:
        self.piece, self.shape, self.width = piece, shape, len(shape.names)
        self.files: list[int] = []  # of each row
        self.lines: list[int] = []
        self.fields: list[list[bytes]] = []
        self.faults: dict[int, str] = {}

    def add(self, file: int, row: SplitRow) -> None:
        """Add a line."""
        fields, fault = row.fields, row.fault
        node = len(fields) == 1 and not _SEVERAL.search(fields[0].strip())
        if fault is None and len(fields) != self.width and not node:
            fault = f"{len(fields)} columns instead of {self.width}"
        if fault is not None:
            self.faults[len(self.lines)] = fault
        self.files.append(file)
        self.lines.append(row.line + 1)
        self.fields.append(fields)

    def add_graph(self, file: int) -> None:
        """Add the graph of a file that has no row yet."""
        if not self.files or self.files[-1] != file:
            self.files.append(file)
            self.lines.append(1)
            self.fields.append([])

    def rows(self, columns: Mapping[Column, str]) -> Rows:
        """Return the rows of the lines."""
        checks = RowChecks(len(self.lines))
        checks.fail_rows(self.faults)
        names = pa.array(self.piece.names, pa.string())
        found: dict[Any, pa.Array] = {"graph": names.take(as_arrow(np.array(self.files)))}
        for column in columns:
            if column == "graph":
                continue
            at = self.shape.position(column)
            texts = [row[at] if at < len(row) else None for row in self.fields]
            found[column], bad = cast_rows(pa.array(texts, pa.binary()), pa.string())
            checks.fail(bad, f"column {at} is not valid UTF-8")
        source = RowSource(
            self.piece.path,
            self.lines.__getitem__,
            lambda row: b" ".join(self.fields[row]).decode("utf-8", "replace"),
            lambda row: self.piece.files[self.files[row]],
        )
        return Rows(found, checks, source)


def _rows_of(path: str, delimiter: str) -> Iterator[SplitRow]:
    """Give the rows of a file, with the weights of NetworkX's attributes as a column."""
    with open_stream(path) as stream:
        text = without_mark(b"".join(iter(lambda: stream.read(_PART), b"")), path)
    if text and not text.endswith((b"\n", b"\r")):
        text += b"\n"
    if b"{" in text:
        text = _ATTRIBUTES.sub(_weight, text)
    return split_rows(text, Dialect.of(_table(path), delimiter))


def _weight(found: re.Match[bytes]) -> bytes:
    try:
        value = ast.literal_eval(found[1].decode("utf-8")).get("weight", 1)
        return f"{found[0][:1].decode()}{float(value)!r}".encode()
    except (ValueError, SyntaxError, AttributeError, TypeError):
        return found[0]


def _table(path: str) -> str:
    kind = format_of(path)
    return kind if kind in ("csv", "tsv") else "edgelist"
