"""Arrow IPC files on the scratch disk: tables of edges of which any range of rows is mapped.

Text becomes such files as it is parsed, and so do row groups whose graphs lie apart: there rows
are sorted by graph, so that a piece is a range of rows of each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrow import as_arrow, as_numpy
from penstock.files import atomic
from penstock.pipelines.centrality.inputs.chunks import (
    Chunk,
    ColumnNames,
    Survey,
    coded,
    decoded,
    read_columns,
    run_lengths,
)

if TYPE_CHECKING:
    import pyarrow as pa

_SORTED_ROWS = 1 << 22  # at once
GRAPHS = "graphs.arrow"  # the ids of all graphs, in their order
SAME_ID = "several graphs have this id"


@dataclass
class Parsed:
    """What one task made of text.

    chunk        the rows, with columns graph, source, target and weight
    graph_type, node_type   int64 or string, or empty where there are none
    failed       graphs that cannot be computed: their ids, and why
    lost         what cannot be read and names no graph
    """

    chunk: Chunk
    graph_type: str
    node_type: str
    failed: list[tuple[Any, str]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


@dataclass
class EdgeLists:
    """Edges of graphs as they are parsed; None for an end that a row does not have."""

    graphs: list[Any] = field(default_factory=list)
    sources: list[Any] = field(default_factory=list)
    targets: list[Any] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    failed: list[tuple[Any, str]] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    _known: set[str] = field(default_factory=set)

    def add(self, graph: Any, edges: list[tuple[Any, Any, float]], alone: list[Any]) -> None:
        """Add a graph by its edges and by nodes that may have none.

        Where there are several of one id none of them is known from the others: they fail.
        """
        if str(graph) in self._known:
            self.failed.append((graph, SAME_ID))
        self._known.add(str(graph))
        rows = edges + [(node, None, 1.0) for node in alone]
        rows = rows or [(None, None, 1.0)]
        self.graphs += [graph] * len(rows)
        self.sources += [row[0] for row in rows]
        self.targets += [row[1] for row in rows]
        self.weights += [row[2] for row in rows]

    def fail(self, graph: Any, reason: str) -> None:
        """Note a graph that cannot be computed; None: one whose id is not known."""
        if graph is None:
            self.lost.append(reason)
            return
        self.add(graph, [], [])
        self.failed.append((graph, reason))

    def save(self, folder: Path, name: str) -> Parsed:
        """Write the file."""
        import pyarrow as pa

        columns: dict[str, Any] = {}
        kinds = {}
        for role, values in (
            ("graph", self.graphs), ("source", self.sources), ("target", self.targets),
        ):  # fmt: skip
            kinds[role] = kind_of(values)
        nodes = {kinds["source"], kinds["target"]} - {""}
        node_type = "string" if len(nodes) > 1 else next(iter(nodes), "")
        for role, values in (
            ("graph", self.graphs), ("source", self.sources), ("target", self.targets),
        ):  # fmt: skip
            kind = kinds["graph"] if role == "graph" else node_type
            if kind == "string":
                values = [value if value is None else str(value) for value in values]
            columns[role] = pa.array(values, pa.string() if kind == "string" else pa.int64())
        columns["weight"] = pa.array(self.weights, pa.float64())
        chunk = write_ipc(folder, name, pa.table(columns))
        return Parsed(chunk, kinds["graph"], node_type, self.failed, self.lost)


def kind_of(values: list[Any]) -> str:
    """Return int64 where all ids are such, string for others, and nothing where there are none."""
    kinds = {type(value) for value in values} - {type(None)}
    if not kinds:
        return ""
    fits = kinds == {int} and all(v is None or -(2**63) <= v < 2**63 for v in values)
    return "int64" if fits else "string"


def write_ipc(folder: Path, name: str, table: pa.Table) -> Chunk:
    """Write a table as an IPC file."""
    import pyarrow as pa

    path = folder / f"{name}.arrow"
    table = (
        table.unify_dictionaries().combine_chunks()
    )  # an IPC file has one dictionary of each column
    with (
        atomic(path) as temporary,
        pa.OSFile(str(temporary), "wb") as file,
        pa.ipc.new_file(file, table.schema) as writer,
    ):
        writer.write_table(table)
    return Chunk(str(path), -1, len(table))


def sort_chunk(
    chunk: Chunk, columns: ColumnNames, folder: Path, number: int
) -> list[tuple[Chunk, Survey]]:
    """Write the rows of a chunk sorted by graph, and return each file with its survey."""
    import pyarrow as pa

    order = read_ids(str(folder / GRAPHS))
    found = []
    for part, low in enumerate(range(0, chunk.rows, _SORTED_ROWS)):
        high = min(chunk.rows, low + _SORTED_ROWS)
        table = pa.table(read_columns(chunk, columns, columns.names(), low, high))
        table, survey = _by_graph(table, columns, order)
        found.append((write_ipc(folder, f"sorted-{number:05d}-{part:03d}", table), survey))
    return found


def _by_graph(table: pa.Table, columns: ColumnNames, order: pa.Array) -> tuple[pa.Table, Survey]:
    """Return rows sorted by the positions of their graphs in ``order``, and where graphs lie."""
    import pyarrow.compute as pc

    codes, values = coded(table.column(columns.graph))
    distinct, which = np.unique(codes, return_inverse=True)
    named = decoded(distinct, values, columns.graph_type)
    positions = as_numpy(pc.index_in(named.cast(order.type), value_set=order)).astype(np.int64)
    numbers = positions[which]
    by_graph = np.argsort(numbers, kind="stable")
    at, lengths = run_lengths(numbers[by_graph])
    ids = order.take(as_arrow(numbers[by_graph][at]))
    return table.take(as_arrow(by_graph)), Survey(ids, lengths, True)


@lru_cache(maxsize=2)
def read_ids(path: str) -> pa.Array:
    """Return the only column of an IPC file: ids of graphs, or of nodes."""
    import pyarrow as pa

    with pa.memory_map(path) as file:
        return pa.ipc.open_file(file).read_all().column(0).combine_chunks()
