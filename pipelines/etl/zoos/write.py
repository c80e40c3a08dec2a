"""From ranges of graphs to the files of a zoo: shards, nodes.parquet and graphs.parquet.

Ranges depend on memory and on the order of the input; files must not. Shards are cut by counts
alone, at graph boundaries, and Parquet row groups have a fixed number of rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, id_dtype, offsets_of
from penstock.files import FileEntry
from penstock.pipelines.etl.nodes.sorted_ids import SortedIds, as_user_has_them
from penstock.pipelines.etl.writing import spill
from penstock.pipelines.etl.writing.build import put_shard
from penstock.writer import write_table

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP = 1 << 20


@dataclass(frozen=True)
class ZooSlice:
    """Consecutive rows of a range that go to one shard."""

    folder: Path  # of the range
    base: int  # internal id of the range's first node
    start: int
    stop: int


@dataclass(frozen=True)
class Shard:
    """Rows ``start:stop`` of the zoo and their sources."""

    start: int
    stop: int
    parts: tuple[ZooSlice, ...]


def cut_graphs(sizes: Array, remaining: int, shard_size: int) -> tuple[list[int], int]:
    """Cut consecutive graphs so that no shard holds more than ``shard_size``, or one graph.

    sizes      (graphs,) nodes and edges of each
    remaining  space left in the open shard; ``shard_size`` if it is empty
    ->         the first graph of each new shard, and the space left in the last one
    """
    before = offsets_of(sizes)
    cuts: list[int] = []
    start = 0
    while True:
        stop = int(np.searchsorted(before, before[start] + remaining, side="right")) - 1
        if stop == start and remaining == shard_size:
            stop += 1  # a graph larger than a shard is a shard
        if stop >= len(sizes):
            return cuts, max(remaining - int(before[-1] - before[start]), 0)
        cuts.append(stop)
        start, remaining = stop, shard_size


def row_ranges(starts: set[int], rows: int) -> list[tuple[int, int]]:
    """Return the ranges that begin at ``starts``; one empty range without rows."""
    # Graphs without nodes can put a start at the very end.
    return list(pairwise([*sorted(starts - {rows}), rows])) if rows else [(0, 0)]


def plan_shards(ranges: Sequence[Path], shard_size: int) -> list[Shard]:
    """Return the rows of each shard by range; holds the counts of one range at a time."""
    starts, bases, remaining = {0}, [0], shard_size
    for folder in ranges:
        nodes = spill.take(folder, "graph_nodes", np.int64)
        edges = spill.take(folder, "graph_edges", np.int64)
        rows = bases[-1] + offsets_of(nodes)
        cuts, remaining = cut_graphs(nodes + edges, remaining, shard_size)
        starts |= set(rows[cuts].tolist())
        bases.append(int(rows[-1]))
    shards = []
    for start, stop in row_ranges(starts, bases[-1]):
        touched = range(
            int(np.searchsorted(bases, start, side="right")) - 1,
            int(np.searchsorted(bases, stop, side="left")),
        )
        parts = [
            ZooSlice(
                ranges[i], bases[i], max(start - bases[i], 0), min(stop, bases[i + 1]) - bases[i]
            )
            for i in touched
        ]
        shards.append(Shard(start, stop, tuple(p for p in parts if p.stop > p.start)))
    return shards


def join_shard(
    number: int, shard: Shard, nodes: int, dtypes: dict[str, str], root: Path
) -> dict[str, Any]:
    """Write shard ``number`` with ids over the whole zoo of ``nodes`` nodes."""
    pieces = [_read_part(part, nodes, dtypes) for part in shard.parts]
    if not pieces:
        empty: dict[str, Any] = {n: np.empty(0, k) for n, k in dtypes.items() if n != "indptr"}
        pieces = [CSR(indptr=np.zeros(1, np.int64), **empty)]
    return put_shard(root, number, CSR.concatenate(pieces))


def _read_part(part: ZooSlice, nodes: int, dtypes: dict[str, str]) -> CSR:
    rows = part.stop - part.start
    indptr = spill.take(part.folder, "indptr", np.int64, start=part.start, count=rows + 1)
    first, edges = int(indptr[0]), int(indptr[-1] - indptr[0])
    columns: dict[str, Any] = {
        name: spill.take(part.folder, name, kind, start=first, count=edges)
        for name, kind in dtypes.items()
        if name not in ("indptr", "indices")
    }
    # A range counts from 0 and always fits 32 bits.
    local = spill.take(part.folder, "indices", np.int32, start=first, count=edges)
    indices = local.astype(id_dtype(nodes)) + id_dtype(nodes).type(part.base)
    return CSR(indptr - first, indices, **columns)


def write_zoo_nodes(
    root: Path, ranges: Sequence[Path], graphs: int, *, unsigned: bool
) -> FileEntry:
    """Write nodes.parquet range after range: ``id`` in its graph, and ``graph``, its number."""
    import pyarrow as pa

    def tables() -> Iterator[pa.Table]:
        graph = 0
        for folder in ranges:
            counts = spill.take(folder, "graph_nodes", np.int64)
            ids, ends = SortedIds.load(folder), np.cumsum(counts)
            for start in range(0, len(ids), ROW_GROUP):
                stop = min(start + ROW_GROUP, len(ids))
                values = as_user_has_them(ids.slice(start, stop), unsigned=unsigned)
                of = np.searchsorted(ends, np.arange(start, stop), side="right") + graph
                yield pa.table({"id": values, "graph": of.astype(id_dtype(graphs))})
            graph += len(counts)

    empty = SortedIds.load(ranges[0]).slice(0, 0)
    schema = pa.schema(
        [
            ("id", pa.uint64() if unsigned else empty.type),
            ("graph", pa.from_numpy_dtype(id_dtype(graphs))),
        ]
    )
    return write_in_groups(root, "nodes.parquet", schema, tables())


def write_zoo_graphs(root: Path, ranges: Sequence[Path], *, unsigned: bool) -> FileEntry:
    """Write graphs.parquet: the user's ``id``, ``first`` node, and counts of nodes and edges."""

    def tables() -> Iterator[pa.Table]:
        base = 0
        for folder in ranges:
            nodes = spill.take(folder, "graph_nodes", np.int64)
            edges = spill.take(folder, "graph_edges", np.int64)
            yield graphs_table(user_ids(folder), nodes, edges, base)
            base += int(nodes.sum())

    def user_ids(folder: Path) -> Any:
        return as_user_has_them(SortedIds.load(folder, "graphs").to_arrow(), unsigned=unsigned)

    none = np.empty(0, np.int64)
    schema = graphs_table(user_ids(ranges[0]).slice(0, 0), none, none, 0).schema
    return write_in_groups(root, "graphs.parquet", schema, tables())


def graphs_table(ids: Any, nodes: Array, edges: Array, base: int) -> pa.Table:
    """Return the rows of graphs.parquet for consecutive graphs whose first node is ``base``."""
    import pyarrow as pa

    first = base + np.cumsum(nodes) - nodes
    return pa.table({"id": ids, "first": first, "nodes": nodes, "edges": edges})


def write_in_groups(
    root: Path, name: str, schema: pa.Schema, tables: Iterable[pa.Table]
) -> FileEntry:
    """Write tables one after the other, regrouped into row groups of equal size."""
    import pyarrow as pa

    def groups() -> Iterator[pa.Table]:
        waiting, none = schema.empty_table(), True
        for table in tables:
            waiting = pa.concat_tables([waiting, table.cast(schema)])
            while len(waiting) >= ROW_GROUP:
                yield waiting.slice(0, ROW_GROUP).combine_chunks()
                waiting, none = waiting.slice(ROW_GROUP), False
        if none or len(waiting):
            yield waiting.combine_chunks()

    return write_table(root, name, groups())
