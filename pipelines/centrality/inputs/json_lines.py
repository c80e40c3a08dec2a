"""JSON lines, a graph a line, in any of the forms that users of NetworkX have.

{"id": 7, "adjacency": {"a": ["b", "c"], "b": {"c": {"weight": 2.0}}}}   nx.to_dict_of_lists/dicts
{"id": 7, "edges": [["a", "b"], ["b", "c", 2.0]], "nodes": ["d"]}
nx.adjacency_data(graph), nx.node_link_data(graph), with "links" or "edges"

The id of a graph is that of the line, or of its attributes ("id" or "name"), or else the number of
the line from 0, after the name of its file where there are several.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from penstock.documents import parse_json
from penstock.errors import PenstockError
from penstock.pipelines.centrality.inputs.parsed import EdgeLists, Parsed, first_line
from penstock.pipelines.centrality.options import CentralityOptions
from penstock.pipelines.tables.sources import codec_of, open_file, open_stream

_TASK_BYTES = 1 << 24
_BLOCK = 1 << 20


def first_direction(files: list[Path]) -> bool:
    """Return whether the first graph says that its edges have a direction."""
    for file in files:
        try:
            with open_stream(str(file)) as stream:
                for _, line in _lines(stream):
                    body = parse_json(line)
                    return isinstance(body, dict) and body.get("directed") is True
        except (OSError, ValueError, PenstockError):
            return False  # which is said where it is read
    return False


def parts(path: Path, files: list[Path]) -> Iterator[tuple[Any, int]]:
    """Yield ranges of bytes of files, which end where lines end."""
    for file in files:
        prefix = file.name if len(files) > 1 else ""
        size = file.stat().st_size
        if codec_of(str(file)) is not None or size <= _TASK_BYTES:
            yield (file, prefix, 0, None, 0), max(size, 1)
            continue
        low = line = 0
        with open_file(str(file)) as stream:
            while low < size:
                count = 0
                stream.seek(low)
                high, ended = low, False
                while not ended and (block := stream.read(_BLOCK)):
                    if high + len(block) - low > _TASK_BYTES:
                        at = block.find(b"\n", max(0, low + _TASK_BYTES - high))
                        ended = at >= 0
                        block = block[: at + 1] if ended else block
                    count += block.count(b"\n")
                    high += len(block)
                yield (file, prefix, low, high, line), high - low
                low, line = high, line + count


def parse(what: Any, directed: bool, options: CentralityOptions) -> Parsed:
    """Read some lines; runs on a worker. A line that cannot be read is a failure."""
    file, prefix, low, high, first = what
    found = EdgeLists()
    reader = _Reader(directed, options.weighted, options.weight or "weight")
    try:
        with open_stream(str(file)) as stream:
            if low:
                stream.seek(low)
            limit = None if high is None else high - low
            for number, line in _lines(stream, limit):
                where = f"{file}, line {first + number + 1}"
                _read_line(found, reader, line, where, _default_id(prefix, first + number))
    except (OSError, PenstockError) as error:
        found.fail(None, f"{file} cannot be read: {first_line(error)}")
    return found.parsed()


def _default_id(prefix: str, number: int) -> Any:
    return f"{prefix}:{number}" if prefix else number


def _read_line(found: EdgeLists, reader: _Reader, line: bytes, where: str, default: Any) -> None:
    graph: Any = None
    try:
        body = parse_json(line)
        if not isinstance(body, dict):
            raise ValueError("it is no object")
        graph = _id_of(body, default)
        edges, nodes = reader.edges(body)
        found.add(graph, edges, nodes)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        found.fail(graph, f"{where}: {first_line(error)}")


def _id_of(body: dict[str, Any], default: Any) -> Any:
    about = body.get("graph")
    if isinstance(about, list):  # of adjacency_data: pairs
        about = {str(pair[0]): pair[1] for pair in about}
    for value in (
        body.get("id"),
        *((about.get("id"), about.get("name")) if isinstance(about, dict) else (about,)),
    ):
        if isinstance(value, str | int) and not isinstance(value, bool) and value != "":
            return _plain(value)
    return default


class _Reader:
    """From the body of a line to edges and nodes."""

    def __init__(self, directed: bool, weighted: bool, weight: str) -> None:
        self.directed, self.weighted, self.weight = directed, weighted, weight

    def edges(self, body: dict[str, Any]) -> tuple[list[tuple[Any, Any, float]], list[Any]]:
        """Return edges, and all nodes that the line lists."""
        said = body.get("directed")
        if said is not None and bool(said) != self.directed:
            kinds = {True: "directed", False: "undirected"}
            raise ValueError(
                f"it says that it is {kinds[bool(said)]}, and all graphs are read as "
                f"{kinds[self.directed]}"
            )
        adjacency = body.get("adjacency")
        if isinstance(adjacency, dict):
            return self._of_mapping(adjacency)
        nodes = [_plain(n["id"] if isinstance(n, dict) else n) for n in body.get("nodes", [])]
        if isinstance(adjacency, list):
            if len(adjacency) != len(nodes):
                raise ValueError("adjacency and nodes have different lengths")
            pairs = zip(nodes, adjacency, strict=True)
            edges = [
                (node, _plain(other["id"]), self._length(other))
                for node, row in pairs
                for other in row
            ]
            return self._once(edges), nodes
        listed = body.get("edges", body.get("links"))
        if listed is None:
            raise ValueError("it has neither adjacency nor edges nor links")
        return [self._edge(edge) for edge in listed], nodes

    def _edge(self, edge: Any) -> tuple[Any, Any, float]:
        if isinstance(edge, dict):
            return _plain(edge["source"]), _plain(edge["target"]), self._length(edge)
        if len(edge) not in (2, 3):
            raise ValueError(f"{json.dumps(edge)[:60]} is no edge")
        return _plain(edge[0]), _plain(edge[1]), self._length(edge[2] if len(edge) == 3 else {})

    def _of_mapping(self, rows: dict[str, Any]) -> tuple[list[tuple[Any, Any, float]], list[Any]]:
        """Return edges of a mapping, whose keys JSON has made strings of whatever they were."""
        ends = (other for row in rows.values() if isinstance(row, list) for other in row)
        numbers = all(type(other) is int for other in ends) and all(
            _is_number(key)
            for keys in (rows, *(row for row in rows.values() if isinstance(row, dict)))
            for key in keys
        )
        name = int if numbers else _plain
        edges = []
        for key, row in rows.items():
            several = row.items() if isinstance(row, dict) else ((other, {}) for other in row)
            edges += [(name(key), name(_plain(o)), self._length(data)) for o, data in several]
        return self._once(edges), [name(key) for key in rows]

    def _once(self, edges: list[tuple[Any, Any, float]]) -> list[tuple[Any, Any, float]]:
        """Return edges of rows, each once where the rows of both its ends list it."""
        if self.directed:
            return edges
        listed = set()
        found = []
        for tail, head, length in edges:
            if tail == head or (head, tail, length) not in listed:
                found.append((tail, head, length))
            listed.add((tail, head, length))
        return found

    def _length(self, data: Any) -> float:
        if not self.weighted:
            return 1.0
        value = data.get(self.weight, 1) if isinstance(data, dict) else data
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"the {self.weight} {json.dumps(value)[:40]} is no number")
        return float(value)


def _plain(node: Any) -> Any:
    if isinstance(node, bool) or not isinstance(node, str | int):
        raise ValueError(f"the node {json.dumps(node)[:40]} is neither an integer nor a string")
    return node


def _is_number(key: str) -> bool:
    digits = key.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and str(int(digits)) == digits


def _lines(stream: BinaryIO, limit: int | None = None) -> Iterator[tuple[int, bytes]]:
    """Yield lines that are not empty, with their numbers from 0."""
    rest, number, left = b"", 0, limit
    while left is None or left > 0:
        block = stream.read(_BLOCK if left is None else min(_BLOCK, left))
        if not block:
            break
        left = None if left is None else left - len(block)
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            if line.strip():
                yield number, line
            number += 1
    if rest.strip():
        yield number, rest
