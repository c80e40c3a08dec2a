"""JSON lines, one graph per line, in any form that NetworkX's users have, as rows of edges.

{"id": 7, "adjacency": {"a": ["b", "c"], "b": {"c": {"weight": 2.0}}}}   nx.to_dict_of_lists/dicts
{"id": 7, "edges": [["a", "b"], ["b", "c", 2.0]], "nodes": ["d"]}
nx.adjacency_data(graph), nx.node_link_data(graph), with "links" or "edges"

The id of a graph is the id of the line, or of its attributes ("id" or "name"), or else the number
of the line from 0, after the name of its file if there are several. The columns are graph, source,
target and attributes of edges. A row without a target is an isolated node; a row without both ends
is a graph without nodes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.arrow import as_arrow
from penstock.errors import InputError
from penstock.pipelines.tables.names import SOURCES, TARGETS
from penstock.pipelines.tables.pieces import Piece
from penstock.pipelines.tables.rows import Column, RowChecks, Rows, RowSource
from penstock.pipelines.tables.text import BLOCK, lines_before, parts_of
from penstock.sizes import format_bytes, need_memory

ENDS = ("source", "target")
_TAKEN = {*SOURCES, *TARGETS, "graph", "graph_id"}  # names that are not attributes of edges
_SAMPLE, _SAMPLE_BYTES = 1000, 1 << 20  # lines
_LONG, _LINE_MEMORY = 1 << 20, 32  # a long line; bytes that one takes while it is parsed, per byte
_WRONG = (ValueError, TypeError, KeyError, AttributeError)

# Source, target, and attributes.
_Edge = tuple[Any, Any, dict[str, Any]]


@dataclass
class Sampled:
    """The layout of a file, from its first lines.

    names, rows  the columns of edges, and their values
    directed     whether edges have a direction, from the first line; None: it does not say
    """

    names: list[str]
    rows: list[list[Any]]
    directed: bool | None


def sample_graphs(piece: Piece) -> Sampled:
    """Return the layout by the first lines; unreadable ones are left out if others are readable."""
    graphs: list[tuple[Any, list[_Edge]]] = []
    directed: bool | None = None
    wrong, size = "", 0
    for number, line in islice(_lines(piece), _SAMPLE):
        if (size := size + len(line)) > _SAMPLE_BYTES and graphs:
            break
        try:
            body = _body(line, piece.path)
            said = body.get("directed")
            if not graphs:
                directed = None if said is None else bool(said)
            edges, nodes = _edges(body, "weight", directed=bool(said))
            alone: list[_Edge] = [(node, None, {}) for node in nodes] or [(None, None, {})]
            graphs.append((_id_of(body, _default_id(piece, number)), edges + alone))
        except _WRONG as error:
            wrong = wrong or f"{piece.path}, row {number + 1}: {_reason(error)}"
    if wrong and not graphs:
        raise InputError(wrong, expected="JSON lines, one graph per line")
    attributes = chain.from_iterable(edge[2] for _, edges in graphs for edge in edges)
    names = ["graph", *ENDS, *(name for name in dict.fromkeys(attributes) if name not in _TAKEN)]
    rows = [
        [graph, *edge[:2], *(edge[2].get(name) for name in names[3:])]
        for graph, edges in graphs
        for edge in edges
    ]
    return Sampled(names, rows, directed)


def read_json(piece: Piece, columns: Mapping[Column, str], *, directed: bool) -> Iterator[Rows]:
    """Read columns of the graphs of some lines; see ``read_rows``."""
    attributes = [str(name) for name in columns if name not in ("graph", *ENDS)]
    before = partial(lines_before, piece, [])
    lines, known, size = _Lines(piece, before, attributes, directed), dict[Any, int](), 0
    for number, line in _lines(piece):
        lines.add(number, line, known)
        size += len(line)
        if size > BLOCK:
            yield lines.rows(columns)
            lines, size = _Lines(piece, before, attributes, directed), 0
    if lines.numbers:
        yield lines.rows(columns)


class _Lines:
    """Some lines on their way to rows."""

    def __init__(self, piece: Piece, before: Any, attributes: list[str], directed: bool) -> None:
        self.piece, self.before, self.directed = piece, before, directed
        self.numbers: list[int] = []  # of lines, in the piece, from 0
        self.texts: list[bytes] = []
        self.graphs: list[Any] = []
        self.counts: list[int] = []  # of rows
        self.ends: tuple[list[Any], list[Any]] = [], []
        self.values: dict[str, list[Any]] = {name: [] for name in attributes}
        self.third = attributes[0] if attributes else None  # of [source, target, third]
        self.faults: dict[int, str] = {}

    def add(self, number: int, line: bytes, known: dict[Any, int]) -> None:
        """Read a line; one that cannot be read is a row with a fault."""
        at, graph = len(self.ends[0]), None
        edges: list[_Edge] = []
        ends: tuple[list[Any], list[Any]] = [], []
        try:
            body = _body(line, self.piece.path)
            graph = _id_of(body, None)
            if graph is None:
                graph = _default_id(self.piece, self.before() + number)
            said = body.get("directed")
            if said is not None and bool(said) != self.directed:
                raise ValueError(
                    f"the graph is {'' if said else 'un'}directed, but all are read as "
                    f"{'' if self.directed else 'un'}directed"
                )
            edges, nodes = _edges(body, self.third, directed=self.directed)
            ends = [edge[0] for edge in edges], [edge[1] for edge in edges]
            _check_nodes(ends[0], ends[1], nodes)
            if nodes:
                seen = {*ends[0], *ends[1]}
                alone = [node for node in nodes if node not in seen]
                ends = ends[0] + alone, ends[1] + [None] * len(alone)
            first = known.setdefault(str(graph), number)
        except _WRONG as error:
            self.faults[at], edges, ends, first = _reason(error), [], ([], []), number
        if not ends[0]:
            ends = [None], [None]
        if first != number:
            rows = [self.before() + one + 1 for one in (first, number)]
            raise InputError(
                f"{self.piece.path}, row {rows[1]}: the graph {graph} is in row {rows[0]}, too",
                remedy="Give every graph an id of its own",
            )
        self.numbers.append(number)
        self.texts.append(line)
        self.graphs.append(graph)
        self.counts.append(len(ends[0]))
        for found, more in zip(self.ends, ends, strict=True):
            found += more
        for name, values in self.values.items():
            values += [edge[2].get(name) for edge in edges]
            values += [None] * (len(self.ends[0]) - len(values))

    def rows(self, columns: Mapping[Column, str]) -> Rows:
        """Return the rows of the lines."""
        of = np.repeat(np.arange(len(self.counts)), self.counts)
        found = {
            "graph": _column(self.graphs, columns["graph"]).take(as_arrow(of)),
            **{name: _column(self.ends[n], columns[name]) for n, name in enumerate(ENDS)},
            **{name: _column(values, columns[name]) for name, values in self.values.items()},
        }
        checks = RowChecks(len(of))
        checks.fail_rows(self.faults)
        source = RowSource(
            self.piece.path,
            lambda row: self.before() + self.numbers[of[row]] + 1,
            lambda row: self.texts[of[row]][:4096].decode("utf-8", "replace"),
        )
        return Rows(found, checks, source)


def _lines(piece: Piece) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not empty, with their numbers in the piece, from 0."""
    rest, number = b"", 0
    for _, part in parts_of(piece):
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            if line.strip():
                yield number, line
            number += 1
    if rest.strip():
        yield number, rest


def _reason(error: Exception) -> str:
    return f"no {error}" if isinstance(error, KeyError) else str(error).partition("\n")[0][:200]


def _body(line: bytes, path: str) -> dict[str, Any]:
    if len(line) > _LONG:
        need_memory(
            _LINE_MEMORY * len(line),
            f"a graph in one line of {path}, {format_bytes(len(line))}",
            remedy="Write such a large graph as a table of edges, or give more memory",
        )
    body = json.loads(line)
    if not isinstance(body, dict):
        raise ValueError("the line is not an object")
    return body


def _default_id(piece: Piece, number: int) -> Any:
    return f"{piece.names[0]}:{number}" if piece.names else number


def _id_of(body: dict[str, Any], default: Any) -> Any:
    about = body.get("graph")
    if isinstance(about, list):  # of adjacency_data: pairs
        about = {str(pair[0]): pair[1] for pair in about}
    for value in (
        body.get("id"),
        *((about.get("id"), about.get("name")) if isinstance(about, dict) else (about,)),
    ):
        if type(value) in (str, int) and value != "":
            return value
    return default


def _edges(
    body: dict[str, Any], third: str | None, *, directed: bool
) -> tuple[list[_Edge], list[Any]]:
    """Return edges, and the nodes that the line lists.

    third  name of the third value of an edge in a list
    """
    adjacency = body.get("adjacency")
    if isinstance(adjacency, dict):
        return _of_mapping(adjacency, third, directed=directed)
    nodes = [node["id"] if isinstance(node, dict) else node for node in body.get("nodes", ())]
    if isinstance(adjacency, list):
        if len(adjacency) != len(nodes):
            raise ValueError("adjacency and nodes have different lengths")
        pairs = zip(nodes, adjacency, strict=True)
        edges = [(node, other["id"], other) for node, row in pairs for other in row]
        return (edges if directed else _once(edges, third)), nodes
    listed = body.get("edges", body.get("links"))
    if listed is None:
        raise ValueError("the graph has neither adjacency nor edges nor links")
    return [_edge(edge, third) for edge in listed], nodes


def _edge(edge: Any, third: str | None) -> _Edge:
    if isinstance(edge, dict):
        return edge["source"], edge["target"], edge
    if len(edge) == 2:
        return edge[0], edge[1], {}
    if len(edge) != 3:
        raise ValueError(f"{json.dumps(edge)[:60]} is not an edge")
    more = edge[2]
    if not isinstance(more, dict):
        more = {} if third is None else {third: more}
    return edge[0], edge[1], more


def _of_mapping(
    rows: dict[str, Any], third: str | None, *, directed: bool
) -> tuple[list[_Edge], list[Any]]:
    """Return edges of a mapping; JSON has made all its keys strings."""
    ends = chain.from_iterable(row for row in rows.values() if isinstance(row, list))
    keys = chain(rows, *(row for row in rows.values() if isinstance(row, dict)))
    numbers = {*map(type, ends)} <= {int} and all(map(_is_number, keys))
    edges: list[_Edge] = []
    for key, row in rows.items():
        node = int(key) if numbers else key
        if isinstance(row, dict):
            pairs = row.items()
            edges += [(node, int(o) if numbers else o, data) for o, data in pairs]
        else:
            edges += [(node, other, {}) for other in row]
    nodes: list[Any] = [*map(int, rows)] if numbers else [*rows]
    return (edges if directed else _once(edges, third)), nodes


def _once(edges: list[_Edge], third: str | None) -> list[_Edge]:
    """Return edges of rows; an edge in the rows of both its ends is returned once."""
    listed = set()
    found = []
    for edge in edges:
        tail, head, data = edge
        value = data.get(third) if third and data else None
        if tail == head or (head, tail, value) not in listed:
            found.append(edge)
        listed.add((tail, head, value))
    return found


def _check_nodes(*ends: list[Any]) -> None:
    kinds = {*map(type, chain(*ends))} - {str, int}
    if kinds:
        bad = next(end for end in chain(*ends) if type(end) in kinds)
        raise ValueError(f"the node {json.dumps(bad)[:40]} is neither an integer nor a string")


def _is_number(key: str) -> bool:
    digits = key.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and str(int(digits)) == digits


def _column(values: list[Any], kind: str) -> pa.Array:
    """Return values as an array of a kind, or as texts if some are of another kind."""
    types = {"int64": pa.int64(), "uint64": pa.uint64(), "float64": pa.float64()}
    try:
        return pa.array(values, types.get(kind, pa.string()))
    except (pa.ArrowException, OverflowError):
        return pa.array([None if one is None else str(one) for one in values], pa.string())
