"""Text becomes rows of edges: what a parser finds in its part, and what cannot be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa

SAME_ID = "several graphs have this id"


class Parsed(NamedTuple):
    """What one task made of text.

    table   the rows, with columns graph, source, target and weight
    failed  graphs that cannot be computed: their ids, and why
    lost    what cannot be read and names no graph
    """

    table: pa.Table
    failed: list[tuple[Any, str]]
    lost: list[str]


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

        Graphs with the same id fail: none of them is known from the others.
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

    def parsed(self) -> Parsed:
        """Return the rows; ids are strings unless all of them are integers."""
        import pyarrow as pa

        columns: dict[str, Any] = {}
        for named in (
            {"graph": self.graphs},
            {"source": self.sources, "target": self.targets},
        ):
            numbers = all(map(_whole_numbers, named.values()))
            for name, values in named.items():
                if not numbers:
                    values = [None if value is None else str(value) for value in values]
                columns[name] = pa.array(values, pa.int64() if numbers else pa.string())
        columns["weight"] = pa.array(self.weights, pa.float64())
        return Parsed(pa.table(columns), self.failed, self.lost)


def first_line(error: BaseException) -> str:
    """Return the first line of what a library says."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]


def _whole_numbers(values: list[Any]) -> bool:
    return all(v is None or (type(v) is int and -(2**63) <= v < 2**63) for v in values)
