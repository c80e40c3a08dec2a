"""Many small graphs: rows of edges are sorted by graph into runs, and read by graph.

A run holds the rows that were in memory together, as two Parquet files: the rows, with source,
target and the other columns of edges; and the graphs, with the first row and the number of rows of
each. So a range of graphs can be read from all runs without the rest. A row with one end is a node,
a row with none a graph. Within a graph, rows keep the order of the input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy
from penstock.csr import offsets_of
from penstock.errors import InputError
from penstock.kernels import kernel
from penstock.pipelines.etl.nodes.sorted_ids import SortedIds, encode_ids

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS = 1 << 17  # rows of a row group: the least that is read of a run
# Sampled graphs of a run, for the choice of ranges: ranges are then equal to about 0.1 % of the
# input.
_SAMPLES = 1024
_GRAPHS = ".graphs"  # the second file of a run
ENDS = ("source", "target")


@dataclass(frozen=True)
class Run:
    """A run: its file, and the first and last of its graphs."""

    path: str
    first: Any
    last: Any


@dataclass(frozen=True)
class GraphRange:
    """The graphs with ``low <= id < high``; None: no bound on that side."""

    low: Any
    high: Any

    def of(self, runs: Iterable[Run]) -> list[Run]:
        """Return the runs that may hold some of these graphs."""
        return [
            run
            for run in runs
            if (self.high is None or run.first < self.high)
            and (self.low is None or run.last >= self.low)
        ]

    def count(self, runs: Iterable[Run], once: str | None = None) -> pa.Table:
        """Return the rows of these graphs, with their ``graph``, run after run.

        once  name of an input whose graphs are contiguous: an id that returns is a second graph
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        found = pa.concat_tables([self._graphs(run) for run in runs])
        if once is not None and pc.count_distinct(found["graph"]).as_py() < len(found):
            counts = pc.value_counts(found["graph"]).to_pylist()
            again = next(one["values"] for one in counts if one["counts"] > 1)
            raise InputError(
                f"{once}: several graphs have the id {again}",
                remedy="Give every graph an id of its own",
            )
        return found

    def read(self, runs: Iterable[Run]) -> tuple[pa.Table, pa.Table]:
        """Return the result of ``count``, and the rows themselves."""
        import pyarrow as pa

        counts = [self._graphs(run) for run in runs]
        rows = [_read_rows(run, graphs) for run, graphs in zip(runs, counts, strict=True)]
        return pa.concat_tables(counts), pa.concat_tables(rows)

    def _graphs(self, run: Run) -> pa.Table:
        """Return these graphs' entries in one run, which are contiguous."""
        import pyarrow.compute as pc
        import pyarrow.parquet as pq

        with pq.ParquetFile(run.path + _GRAPHS, memory_map=True) as file:
            groups = range(file.num_row_groups)
            about = [file.metadata.row_group(n).column(0).statistics for n in groups]
            chosen = [
                n
                for n, known in zip(groups, about, strict=True)
                if not known.has_min_max  # of ids that are very long
                or (
                    (self.low is None or known.max >= self.low)
                    and (self.high is None or known.min < self.high)
                )
            ]
            table = file.read_row_groups(chosen, use_threads=False)
        before = [
            0 if bound is None else pc.sum(pc.less(table.column("graph"), bound)).as_py() or 0
            for bound in (self.low, self.high)
        ]
        stop = len(table) if self.high is None else before[1]
        return table.slice(before[0], stop - before[0])


def write_run(table: pa.Table, path: Path) -> dict[str, Any]:
    """Write rows with a column of graphs, and return a summary, fit for JSON.

    first, last  graphs
    samples      graphs, ascending, each with the number of rows up to the next sample
    """
    import pyarrow as pa

    named = table.column("graph")
    graphs, starts, order = by_graph(named)
    table = table.drop_columns(["graph"])
    _write(table if order is None else table.take(as_arrow(order)), str(path))
    rows = np.diff(starts)
    columns = [graphs.to_arrow().cast(named.type), as_arrow(starts[:-1]), as_arrow(rows)]
    _write(pa.table(columns, names=["graph", "first", "rows"]), f"{path}{_GRAPHS}")
    some = np.unique(np.linspace(0, len(graphs), _SAMPLES, endpoint=False).astype(np.int64))
    names = take_ids(graphs, np.append(some, len(graphs) - 1)).to_list()
    samples = list(zip(names[:-1], np.add.reduceat(rows, some).tolist(), strict=True))
    return {
        "name": path.name,
        "rows": len(table),
        "bytes": table.nbytes,
        "first": names[0],
        "last": names[-1],
        "samples": samples,
    }


def drop_run(run: Run) -> None:
    """Delete the files of a run that no later step reads."""
    for path in (run.path, run.path + _GRAPHS):
        Path(path).unlink(missing_ok=True)


def runs_in(folder: Path, written: Iterable[dict[str, Any]]) -> list[Run]:
    """Return the runs of a folder, from the results of ``write_run``."""
    return [Run(str(folder / one["name"]), one["first"], one["last"]) for one in written]


def choose_ranges(samples: Iterable[tuple[Any, int]], most: int) -> list[GraphRange]:
    """Cut all graphs into consecutive ranges of about ``most`` rows."""
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

    graphs   the users' ids, ascending; starts: (graphs + 1,) int64, first row of each
    ids      of the nodes, graph after graph; ptr: (graphs + 1,) int64, first node of each
    us, vs   (rows,) int32: the ends of each row by number in its graph, -1: none
    columns  the other columns of the rows
    """

    graphs: SortedIds
    starts: Array
    ids: SortedIds
    ptr: Array
    us: Array
    vs: Array
    columns: pa.Table


def number_graphs(counts: pa.Table, table: pa.Table) -> SmallGraphs:
    """Sort the rows of ``GraphRange.read`` by graph, and number nodes."""
    from penstock.kernels.cpu.small_graphs import NO_SOURCE, NO_TARGET, number_nodes

    graphs, starts, order = by_graph(counts.column("graph"), as_numpy(counts.column("rows")))
    if order is not None:
        table = table.take(as_arrow(order))
    ends = [table.column(name) for name in ENDS]
    flags = np.zeros(len(table), np.uint8)
    for end, flag in zip(ends, (NO_SOURCE, NO_TARGET), strict=True):
        if end.null_count:
            flags[~np.asarray(end.is_valid())] |= flag
    known, sources, targets = _numbers(ends)
    names, ptr, us, vs = number_nodes(starts, sources, targets, flags)
    ids = SortedIds(names) if known is None else take_ids(known, names)
    return SmallGraphs(graphs, starts, ids, ptr, us, vs, table.drop_columns(list(ENDS)))


def take_ids(ids: SortedIds, positions: Array) -> SortedIds:
    """Return the ids at some positions."""
    if isinstance(ids.values, np.ndarray):
        return SortedIds(ids.values[positions])
    return SortedIds(ids.values.take(as_arrow(positions)))


def by_graph(
    graphs: pa.ChunkedArray, rows: Array | None = None
) -> tuple[SortedIds, Array, Array | None]:
    """Return the distinct graphs, ascending, the first row of each, and the order of rows.

    rows  number of rows that each item of ``graphs`` represents [default: one]
    ->    (graphs + 1,) starts; the order is stable, and None if rows are in order already
    """
    import pyarrow as pa

    if pa.types.is_int64(graphs.type):
        values = as_numpy(graphs)
        if not (values[1:] < values[:-1]).any():
            at = np.append(0, np.flatnonzero(values[1:] != values[:-1]) + 1)
            starts = np.append(at, len(values))
            starts = starts if rows is None else offsets_of(rows)[starts]
            return SortedIds(values[at]), starts, None
    ids, codes = encode_ids([graphs])
    codes = codes if rows is None else np.repeat(codes, rows)
    starts = offsets_of(np.bincount(codes, minlength=len(ids)))
    if not (codes[1:] < codes[:-1]).any():
        return ids, starts, None
    bits = max(len(ids) - 1, 1).bit_length()
    sort = kernel("csr", codes).sort_keys
    return ids, starts, np.asarray(sort(codes.astype(np.uint64), bits, with_order=True)[1])


def _read_rows(run: Run, graphs: pa.Table) -> pa.Table:
    """Return the rows of some contiguous graphs of a run."""
    import pyarrow.parquet as pq

    first, rows = (as_numpy(graphs.column(name)) for name in ("first", "rows"))
    start, stop = (int(first[0]), int(first[-1] + rows[-1])) if len(first) else (0, 0)
    group = start // _ROWS
    groups = range(group, max(-(-stop // _ROWS), group))
    with pq.ParquetFile(run.path, memory_map=True) as file:
        table = file.read_row_groups(list(groups), use_threads=False)
    return table.slice(start - group * _ROWS, stop - start)


def _write(table: pa.Table, path: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = [one.name for one in table.schema if not pa.types.is_primitive(one.type)]
    pq.write_table(
        table,
        path,
        row_group_size=_ROWS,
        compression={name: "lz4" if name in texts else "none" for name in table.column_names},
        use_dictionary=False,
        write_statistics=["graph"],
    )


def _numbers(ends: list[pa.ChunkedArray]) -> tuple[SortedIds | None, Array, Array]:
    """Return both ends of rows as int64: unchanged, or as positions among sorted ids."""
    import pyarrow as pa

    if pa.types.is_int64(ends[0].type):
        return None, as_numpy(ends[0], 0), as_numpy(ends[1], 0)
    empty = pa.scalar(b"" if pa.types.is_binary(ends[0].type) else "", ends[0].type)
    ids, codes = encode_ids([end.fill_null(empty) if end.null_count else end for end in ends])
    codes = codes.astype(np.int64)
    return ids, codes[: len(ends[0])], codes[len(ends[0]) :]
