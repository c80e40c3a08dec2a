"""Many small graphs: rows of edges are sorted by graph into runs, and read by graph.

A run holds the rows that were in memory together: the rows in Parquet, with source, target and the
other columns of edges; the graphs, and the first row of each. So a range of graphs can be read from
all runs without the rest. A row with one end is a node, a row with none a graph. Within a graph,
rows keep the order of the input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.arrays import Array
from penstock.arrow import as_arrow, as_numpy
from penstock.csr import offsets_of
from penstock.errors import InputError
from penstock.kernels import kernel
from penstock.pipelines.etl.nodes.sorted_ids import SortedIds, encode_ids
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.writing import spill

if TYPE_CHECKING:
    from penstock.pipelines.etl.job import EtlJob

_ROWS = 1 << 17  # rows of a row group: the least that is read of a run
# Sampled graphs of a run, for the choice of ranges: ranges are then equal to about 0.1 % of the
# input.
_SAMPLES = 1024
_FILE = "rows.parquet"
ENDS = ("source", "target")


@dataclass(frozen=True)
class Run:
    """A run: its folder, the bytes of its rows in memory, and the first and last of its graphs."""

    folder: Path
    bytes: int
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

    def count(self, runs: Iterable[Run], once: str | None = None) -> tuple[pa.ChunkedArray, Array]:
        """Return these graphs, run after run, and the number of rows of each.

        once  name of an input whose graphs are contiguous: an id that returns is a second graph
        """
        found = [self._graphs(run) for run in runs]
        graphs = pa.chunked_array([ids.to_arrow() for ids, _ in found])
        if once is not None and pc.count_distinct(graphs).as_py() < len(graphs):
            counts = pc.value_counts(graphs).to_pylist()
            again = next(one["values"] for one in counts if one["counts"] > 1)
            raise InputError(
                f"{once}: several graphs have the id {again}",
                remedy="Give every graph an id of its own",
            )
        return graphs, np.concatenate([np.diff(starts) for _, starts in found])

    def read(self, runs: Iterable[Run]) -> SmallGraphs:
        """Read the rows of these graphs."""
        rows = [_read_rows(run, *self._graphs(run)[1][[0, -1]].tolist()) for run in runs]
        return number_graphs(*self.count(runs), pa.concat_tables(rows))

    def _graphs(self, run: Run) -> tuple[SortedIds, Array]:
        """Return these graphs in one run, and the first row of each, and the end of the last."""
        graphs = SortedIds.load(run.folder, "graphs")
        start, stop = graphs.position(self.low), graphs.position(self.high, end=True)
        where = {"start": start, "count": stop - start + 1}
        return graphs.part(start, stop), spill.take(run.folder, "starts", np.int64, **where)


def read_runs(job: EtlJob) -> tuple[list[Run], list[tuple[Any, int]]]:
    """Sort all rows by graph into runs; return them, and samples of their graphs.

    A sample is a graph, and the number of rows of its run up to the next sample.
    """
    kept = [
        (folder / f"{number:03d}", one)
        for _, folder, result in job.read(write_run)
        for number, one in enumerate(result["kept"])
        if one
    ]
    if not kept:
        raise InputError(
            f"{job.edges[0]} has no graph",
            got=f"{job.counts.rows_read} rows, none usable",
        )
    samples = [(graph, rows) for _, one in kept for graph, rows in one.pop("samples")]
    return [Run(folder, **one) for folder, one in kept], samples


def write_run(table: pa.Table, folder: Path, _: EtlOptions) -> tuple[dict[str, Any], set[Any]]:
    """Keep a batch of rows with a column of graphs; return a summary, and the relations."""
    if not len(table):
        return {}, set()
    relations = set()
    if "relation" in table.column_names:
        relations = {*table.column("relation").unique().drop_null().to_pylist()}
    graphs, starts, order = by_graph(table.column("graph"))
    table = table.drop_columns(["graph"])
    _write(table if order is None else table.take(as_arrow(order)), folder / _FILE)
    graphs.save(folder, "graphs")
    spill.put(folder, "starts", starts)
    some = np.unique(np.linspace(0, len(graphs), _SAMPLES, endpoint=False).astype(np.int64))
    *names, last = take_ids(graphs, np.append(some, len(graphs) - 1)).to_list()
    samples = list(zip(names, np.add.reduceat(np.diff(starts), some).tolist(), strict=True))
    kept = {"bytes": table.nbytes, "first": names[0], "last": last, "samples": samples}
    return kept, relations


def choose_ranges(samples: Iterable[tuple[Any, int]], most: int) -> list[GraphRange]:
    """Cut all graphs into consecutive ranges of about ``most`` rows."""
    cuts: list[Any] = []
    first, filled = None, 0
    for graph, rows in sorted(samples):
        if first is None:
            first = graph
        elif filled + rows > most and graph > first:
            cuts.append(graph)
            first, filled = graph, 0
        filled += rows
    return [GraphRange(low, high) for low, high in pairwise([None, *cuts, None])]


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


def number_graphs(named: pa.ChunkedArray, rows: Array, table: pa.Table) -> SmallGraphs:
    """Sort a table by graph, and number nodes; ``rows``: how many each of the graphs has."""
    from penstock.kernels.cpu.small_graphs import NO_SOURCE, NO_TARGET, number_nodes

    graphs, starts, order = by_graph(named, rows)
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


def _read_rows(run: Run, start: int, stop: int) -> pa.Table:
    """Return some rows of a run."""
    groups = range(start // _ROWS, max(-(-stop // _ROWS), start // _ROWS))
    with pq.ParquetFile(run.folder / _FILE, memory_map=True) as file:
        table = file.read_row_groups(list(groups), use_threads=False)
    return table.slice(start - groups.start * _ROWS, stop - start)


def _write(table: pa.Table, path: Path) -> None:
    texts = [one.name for one in table.schema if not pa.types.is_primitive(one.type)]
    pq.write_table(
        table,
        path,
        row_group_size=_ROWS,
        compression={name: "lz4" if name in texts else "none" for name in table.column_names},
        use_dictionary=False,
        write_statistics=False,
    )


def _numbers(ends: list[pa.ChunkedArray]) -> tuple[SortedIds | None, Array, Array]:
    """Return both ends of rows as int64: unchanged, or as positions among sorted ids."""
    if pa.types.is_int64(ends[0].type):
        return None, as_numpy(ends[0], 0), as_numpy(ends[1], 0)
    empty = pa.scalar(b"" if pa.types.is_binary(ends[0].type) else "", ends[0].type)
    ids, codes = encode_ids([end.fill_null(empty) if end.null_count else end for end in ends])
    codes = codes.astype(np.int64)
    return ids, codes[: len(ends[0])], codes[len(ends[0]) :]
