"""The output of readers: tables with the same few columns for every format.

A batch's table has those of these columns that exist in the layout:

source, target  node ids: int64 (uint64 shifted by -2**63, see Layout.id_type), string or binary;
                in a zoo null if a row is only a node, or only a graph
weight          float32, finite, not negative; as lengths any float64
relation        string or int64
time            int64 or float64 (timestamps: int64 nanoseconds)
graph           zoo only: int64 (uint64 shifted likewise) or string
source_type, target_type    string, if types of nodes are in columns
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.moments import TimeType
from penstock.pipelines.tables.rows import BadRow
from penstock.pipelines.tables.text import TextShape

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Layout:
    """The roles and types of the columns, decided once by the first rows.

    The column fields name a column (Parquet, text with a header) or hold its position (text
    without one).
    """

    source: str | int
    target: str | int
    weight: str | int | None = None
    relation: str | int | None = None
    time: str | int | None = None
    graph: str | int | None = None
    source_type: str | int | None = None
    target_type: str | int | None = None
    header: bool = False
    delimiter: str = ","
    names: tuple[str, ...] = ()  # the columns of a text file in order, from its header or invented
    id_type: str = "int64"  # int64, uint64, string or binary; every batch's ids have it
    time_type: TimeType = "int64"
    relation_type: str = "string"  # string or int64
    graph_type: str = "int64"  # int64, uint64 (shifted as ids are) or string
    lengths: bool = False  # weights are checked later, graph by graph
    directed: bool | None = None  # whether edges have a direction; None: not known yet
    since: int | float | None = None  # in the unit of the time column, an int if whole
    until: int | float | None = None

    @property
    def shape(self) -> TextShape:
        """The columns of text files."""
        return TextShape(self.names, self.delimiter, self.header, bool(self.directed))

    @property
    def time_dtype(self) -> str | None:
        """The dtype in which times are kept, None without times."""
        if self.time is None:
            return None
        return "float64" if self.time_type == "float64" else "int64"

    @property
    def time_kind(self) -> str | None:
        """The kind of times, as in graph.json."""
        if self.time is None:
            return None
        return "timestamp" if self.time_type == "timestamp" else "number"


@dataclass(frozen=True)
class Batch:
    """At most BATCH_ROWS clean rows, the bad ones set aside."""

    table: pa.Table
    bad: tuple[BadRow, ...] = ()  # the first ten
    bad_count: int = 0
    filtered: int = 0  # rows outside --since/--until
