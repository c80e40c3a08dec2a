"""A folder of lists of edges: a file a graph, whose id is the file's name.

A line is an edge: two nodes, and maybe a weight, with blanks, commas or tabs between; one node
alone has no edge. What NetworkX writes is read, too: ``1 2 {'weight': 3.5}``. Lines that begin
with # or % are comments.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.pipelines.centrality.inputs import stem_of
from penstock.pipelines.centrality.inputs.chunks import first_line
from penstock.pipelines.centrality.inputs.ipc_files import EdgeLists, Parsed
from penstock.pipelines.centrality.options import CentralityOptions
from penstock.pipelines.etl.reading.inputs import open_stream, read_fully

_TASK_BYTES = 1 << 24
_TASK_FILES = 1 << 10
_MOST_BYTES = 1 << 31  # of a file, which is read at once
_HEADERS = ("source", "src", "from", "head", "u", "node1")
_NUMBER = re.compile(rb"0|-?[1-9]\d{0,17}")  # as it is written, so that 07 and 7 are two nodes


def parts(path: Path, files: list[Path]) -> Iterator[tuple[Any, int]]:
    """Yield some files at a time."""
    several: list[Path] = []
    size = 0
    for file in files:
        several.append(file)
        size += file.stat().st_size
        if size >= _TASK_BYTES or len(several) >= _TASK_FILES:
            yield (path, several), max(size, 1)
            several, size = [], 0
    if several:
        yield (path, several), max(size, 1)


def parse(
    what: Any, scratch: Path, name: str, directed: bool, options: CentralityOptions
) -> Parsed:
    """Make an IPC file of some files; runs on a worker. A file that cannot be read is a failure."""
    folder, files = what
    found = EdgeLists()
    for file in files:
        graph = stem_of(file, folder)
        try:
            with open_stream(str(file)) as stream:
                text = read_fully(stream, _MOST_BYTES)
            found.add(graph, *read_edges(text, weighted=options.weighted))
        except (OSError, ValueError, PenstockError) as error:
            found.fail(graph, f"{file} cannot be read: {first_line(error)}")
    return found.save(scratch, name)


def read_edges(text: bytes, *, weighted: bool) -> tuple[list[tuple[Any, Any, float]], list[Any]]:
    """Return edges and nodes that stand alone; ValueError with the number of a bad line."""
    edges: list[tuple[Any, Any, float]] = []
    alone: list[Any] = []
    lines = text.split(b"\n")
    first = True
    for number, line in enumerate(lines, 1):
        line = line.strip()
        if not line or line[:1] in b"#%":
            continue
        data = b""
        if line[-1:] == b"}":
            line, _, data = line.partition(b"{")
        words = line.replace(b",", b" ").split()
        fields = line.split(b",", 2)
        if not words or (len(fields) > 1 and not (fields[0].strip() and fields[1].strip())):
            raise ValueError(f"line {number}: {line[:60]!r} is no edge")
        if first:
            first = False
            if words[0].lower().decode("utf-8", "replace") in _HEADERS:
                continue
        if len(words) == 1 and not data and b";" not in line:
            alone.append(_node(words[0]))
            continue
        if len(words) < 2:
            raise ValueError(f"line {number}: {line[:60]!r} is no edge")
        weight = 1.0
        if weighted:
            weight = _weight(words, data, number)
        edges.append((_node(words[0]), _node(words[1]), weight))
    return edges, alone


def _node(word: bytes) -> Any:
    return int(word) if _NUMBER.fullmatch(word) else word.decode("utf-8")


def _weight(words: list[bytes], data: bytes, number: int) -> float:
    try:
        if data:
            return float(ast.literal_eval("{" + data.decode("utf-8")).get("weight", 1))
        return float(words[2])
    except (IndexError, TypeError, ValueError, SyntaxError, AttributeError, OverflowError,
            MemoryError, RecursionError):  # fmt: skip
        raise ValueError(f"line {number}: no weight that is a number") from None
