"""Many small graphs on their way: rows of edges are sorted by graph into runs, and read by graph.

A run is a Parquet file of rows in memory at once, with the columns graph, source, target and what
else edges have; a row without an end is a node, without both a graph. Row groups say which graphs
they have, so that a range of graphs is read from all runs without the rest. In a graph rows keep
the order of the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy
from penstock.csr import offsets_of
from penstock.kernels import kernel
from penstock.pipelines.etl.nodes.sorted_ids import SortedIds, encode_ids

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 17  # of a row group: what is read of a run for one graph
# Graphs of a run that the choice of ranges sees: ranges are then equal to about a tenth of a
# per cent of the input.
_SAMPLES = 1024
ENDS = ("source", "target")


@dataclass(frozen=True)
class Run:
    """A run: its file, and the first and last of its graphs."""

    path: str
    first: Any
    last: Any


@dataclass(frozen=True)
class GraphRange:
    """The graphs with ``low <= id < high``; None leaves that side open."""

    low: Any
    high: Any

    def of(self, runs: Iterable[Run]) -> list[Run]:
        """Return the runs that may have some of them."""
        return [
            run
            for run in runs
            if (self.high is None or run.first < self.high)
            and (self.low is None or run.last >= self.low)
        ]

    def count(self, runs: Sequence[Run]) -> int:
        """Return how many rows of runs are theirs."""
        return int(self._dataset(runs).count_rows(filter=self._filter(), use_threads=False))

    def read(self, runs: Sequence[Run], columns: Sequence[str] | None = None) -> pa.Table:
        """Return their rows, run after run."""
        listed = None if columns is None else list(columns)
        dataset = self._dataset(runs)
        return dataset.to_table(columns=listed, filter=self._filter(), use_threads=False)

    def _dataset(self, runs: Sequence[Run]) -> Any:
        from pyarrow import dataset, fs

        files = fs.LocalFileSystem(use_mmap=True)
        return dataset.dataset([run.path for run in runs], format="parquet", filesystem=files)

    def _filter(self) -> Any:
        from pyarrow.dataset import field

        graph = field("graph")
        high = None if self.high is None else graph < self.high
        if self.low is None:
            return high
        return graph >= self.low if high is None else (graph >= self.low) & high


def write_run(table: pa.Table, path: Path) -> dict[str, Any]:
    """Write rows, and say what is in them, as JSON can hold it.

    first, last  graphs
    samples      graphs, ascending, each with how many rows there are up to the next one given
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    graphs, starts, order = _by_graph(table.column("graph"))
    if order is not None:
        table = table.take(as_arrow(order))
    texts = [one.name for one in table.schema if not pa.types.is_primitive(one.type)]
    pq.write_table(
        table,
        path,
        row_group_size=_ROWS,
        compression={name: "lz4" if name in texts else "none" for name in table.column_names},
        use_dictionary=False,
        write_statistics=["graph"],
    )
    some = np.unique(np.linspace(0, len(graphs), _SAMPLES, endpoint=False).astype(np.int64))
    ids = take_ids(graphs, np.append(some, len(graphs) - 1)).to_list()
    sums = np.add.reduceat(np.diff(starts), some).tolist()
    samples = list(zip(ids[:-1], sums, strict=True))
    return {
        "name": path.name,
        "rows": len(table),
        "bytes": table.nbytes,
        "first": ids[0],
        "last": ids[-1],
        "samples": samples,
    }


def runs_in(folder: Path, written: Iterable[dict[str, Any]]) -> list[Run]:
    """Return the runs of a folder, from what ``write_run`` said of them."""
    return [Run(str(folder / one["name"]), one["first"], one["last"]) for one in written]


def choose_ranges(samples: Iterable[tuple[Any, int]], most: int) -> list[GraphRange]:
    """Cut all graphs into consecutive ranges of about ``most`` in sum."""
    cuts: list[Any] = []
    first, filled = None, 0
    for graph, cost in sorted(samples):
        if first is None:
            first = graph
        elif filled + cost > most and graph > first:
            cuts.append(graph)
            first, filled = graph, 0
        filled += cost
    bounds = [None, *cuts, None]
    return [GraphRange(low, high) for low, high in pairwise(bounds)]


@dataclass(frozen=True, eq=False)
class SmallGraphs:
    """Graphs whose nodes are numbered, graph by graph in the order of their ids.

    graphs   the users' ids, ascending; starts: (graphs + 1,) int64, where the rows of each begin
    ids      of the nodes, graph after graph; ptr: (graphs + 1,) int64, where those of each begin
    us, vs   (rows,) int32: the ends of each row by number in its graph, -1: none
    columns  what else the rows have
    """

    graphs: SortedIds
    starts: Array
    ids: SortedIds
    ptr: Array
    us: Array
    vs: Array
    columns: pa.Table


def number_graphs(table: pa.Table, empty: Sequence[int] = ()) -> SmallGraphs:
    """Sort rows by graph and number nodes.

    empty  graphs, by number, whose rows count for nothing
    """
    from penstock.kernels.cpu.small_graphs import NO_SOURCE, NO_TARGET, number_nodes

    graphs, starts, order = _by_graph(table.column("graph"))
    if order is not None:
        table = table.take(as_arrow(order))
    ends = [table.column(name) for name in ENDS]
    flags = np.zeros(len(table), np.uint8)
    for end, flag in zip(ends, (NO_SOURCE, NO_TARGET), strict=True):
        if end.null_count:
            flags[~np.asarray(end.is_valid())] |= flag
    for number in empty:
        flags[starts[number] : starts[number + 1]] = NO_SOURCE | NO_TARGET
    known, sources, targets = _numbers(ends)
    names, ptr, us, vs = number_nodes(starts, sources, targets, flags)
    ids = SortedIds(names) if known is None else take_ids(known, names)
    return SmallGraphs(graphs, starts, ids, ptr, us, vs, table.drop_columns(["graph", *ENDS]))


def take_ids(ids: SortedIds, positions: Array) -> SortedIds:
    """Return the ids at some positions."""
    if isinstance(ids.values, np.ndarray):
        return SortedIds(ids.values[positions])
    return SortedIds(ids.values.take(as_arrow(positions)))


def _by_graph(graphs: pa.ChunkedArray) -> tuple[SortedIds, Array, Array | None]:
    """Return the distinct graphs, ascending, where the rows of each begin, and in which order.

    The order is stable; None where rows come in it, as they often do.
    """
    import pyarrow as pa

    if pa.types.is_int64(graphs.type):
        values = as_numpy(graphs)
        steps = values[1:] != values[:-1]
        if not len(values) or not (values[1:] < values[:-1]).any():
            at = np.concatenate([[0] * bool(len(values)), np.flatnonzero(steps) + 1])
            at = at.astype(np.int64)
            return SortedIds(values[at]), np.append(at, len(values)), None
    ids, codes = encode_ids([graphs])
    starts = offsets_of(np.bincount(codes, minlength=len(ids)))
    if not (codes[1:] < codes[:-1]).any():
        return ids, starts, None
    bits = max(len(ids) - 1, 1).bit_length()
    sort = kernel("csr", codes).sort_keys
    return ids, starts, np.asarray(sort(codes.astype(np.uint64), bits, with_order=True)[1])


def _numbers(ends: list[pa.ChunkedArray]) -> tuple[SortedIds | None, Array, Array]:
    """Return both ends of rows as int64: as they are, or as positions among ids that are sorted."""
    import pyarrow as pa

    if pa.types.is_int64(ends[0].type):
        return None, as_numpy(ends[0], 0), as_numpy(ends[1], 0)
    empty = pa.scalar(b"" if pa.types.is_binary(ends[0].type) else "", ends[0].type)
    ids, codes = encode_ids([end.fill_null(empty) if end.null_count else end for end in ends])
    codes = codes.astype(np.int64)
    return ids, codes[: len(ends[0])], codes[len(ends[0]) :]
