"""A folder of lists of edges: a file a graph, whose id is the file's name.

A line is an edge: two nodes, and maybe a weight, with blanks, commas or tabs between; one node
alone has no edge. What NetworkX writes is read, too: ``1 2 {'weight': 3.5}``. Lines that begin
with # or % are comments. A first line of names is distinguished as etl does.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.errors import PenstockError
from penstock.pipelines.centrality.inputs import stem_of
from penstock.pipelines.centrality.inputs.parsed import EdgeLists, Parsed, first_line
from penstock.pipelines.centrality.options import CentralityOptions
from penstock.pipelines.tables.sample import is_number
from penstock.pipelines.tables.sources import open_stream, read_fully

_TASK_BYTES = 1 << 24
_TASK_FILES = 1 << 10
_MOST_BYTES = 1 << 31  # of a file, which is read at once
_HEADERS = ("source", "src", "from", "head", "u", "node1")
_MARK = b"\xef\xbb\xbf"  # that some programs write before text
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


def parse(what: Any, directed: bool, options: CentralityOptions) -> Parsed:
    """Read some files; runs on a worker. A file that cannot be read is a failure."""
    folder, files = what
    found = EdgeLists()
    for file in files:
        graph = stem_of(file, folder)
        try:
            with open_stream(str(file)) as stream:
                text = read_fully(stream, _MOST_BYTES + 1)
            if len(text) > _MOST_BYTES:
                raise ValueError(
                    f"more than {_MOST_BYTES:,} bytes: make it a graph with penstock etl, which "
                    "centrality takes, too"
                )
            edges, alone = read_edges(text, weighted=options.weighted, header=options.header)
            found.add(graph, edges, alone)
        except (OSError, ValueError, PenstockError) as error:
            found.fail(graph, f"{file} cannot be read: {first_line(error)}")
    return found.parsed()


def read_edges(
    text: bytes, *, weighted: bool, header: str = "auto"
) -> tuple[list[tuple[Any, Any, float]], list[Any]]:
    """Return edges and nodes that stand alone; ValueError with the number of a bad line.

    header  whether the first line has names of columns: yes, no, or auto
    """
    edges: list[tuple[Any, Any, float]] = []
    alone: list[Any] = []
    first: _FirstLine | None = None
    for number, line in enumerate(text.removeprefix(_MARK).split(b"\n"), 1):
        line = line.strip()
        if not line or line[:1] in b"#%":
            continue
        if b"\r" in line or b"\0" in line:
            raise ValueError(
                f"line {number}: {line[:60]!r} is no line of text: write UTF-8, and end lines with "
                "a newline"
            )
        data = b""
        if line[-1:] == b"}":
            line, _, data = line.partition(b"{")
        words = line.replace(b",", b" ").split()
        fields = line.split(b",", 2)
        if not words or (len(fields) > 1 and not (fields[0].strip() and fields[1].strip())):
            raise ValueError(f"line {number}: {line[:60]!r} is no edge")
        if first is None:
            first = _FirstLine(number, words, data, header)
            if first.may_be_header:
                continue
        elif first.may_be_header:
            first.compare(words)
        _add(edges, alone, number, line, words, data, weighted=weighted)
    if first is not None and first.may_be_header and not first.is_header():
        line = b" ".join(first.words)
        _add(edges, alone, first.number, line, first.words, b"", weighted=weighted)
    return edges, alone


class _FirstLine:
    """The words of a file's first line, which are names of columns or the first edge."""

    def __init__(self, number: int, words: list[bytes], data: bytes, header: str) -> None:
        self.number, self.words, self.header = number, words, header
        self.may_be_header = header == "yes" or (
            header == "auto" and not data and not any(map(_is_number, words))
        )
        self._others = self._repeated = False
        self._numbers = set(range(len(words)))  # columns that hold nothing else in other lines

    def compare(self, words: list[bytes]) -> None:
        """Examine another line."""
        self._others = True
        self._repeated |= any(word in self.words[:2] for word in words[:2])
        if self._numbers:
            self._numbers -= {
                i for i in self._numbers if i >= len(words) or not _is_number(words[i])
            }

    def is_header(self) -> bool:
        """Say whether it is one, once all other lines were seen."""
        if self.header == "yes":
            return True
        if self._repeated:  # what is a node in another line is one here
            return False
        known = self.words[0].lower().decode("utf-8", "replace") in _HEADERS
        different = len(set(self.words)) == len(self.words)
        return known or (self._others and different and bool(self._numbers))


def _add(
    edges: list[tuple[Any, Any, float]],
    alone: list[Any],
    number: int,
    line: bytes,
    words: list[bytes],
    data: bytes,
    *,
    weighted: bool,
) -> None:
    """Add the edge or the node of a line."""
    if len(words) == 1 and not data and b";" not in line:
        alone.append(_node(words[0]))
        return
    if len(words) < 2:
        raise ValueError(f"line {number}: {line[:60]!r} is no edge")
    weight = _weight(words, data, number) if weighted else 1.0
    edges.append((_node(words[0]), _node(words[1]), weight))


def _is_number(word: bytes) -> bool:
    return is_number(word.decode("utf-8", "replace"))


def _node(word: bytes) -> Any:
    return int(word) if _NUMBER.fullmatch(word) else word.decode("utf-8")


def _weight(words: list[bytes], data: bytes, number: int) -> float:
    try:
        if data:
            return float(ast.literal_eval("{" + data.decode("utf-8")).get("weight", 1))
        return float(words[2])
    except (IndexError, TypeError, ValueError, SyntaxError, AttributeError):
        raise ValueError(f"line {number}: no weight that is a number") from None
