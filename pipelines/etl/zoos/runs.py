"""Runs of a zoo: the input sorted by graph, batch by batch, and the ranges that cut all runs.

A run is one batch sorted by graph. It lists its graphs in ascending order, for each graph its
nodes in ascending order, and its edges as positions in that list, in input order inside a
graph. All that a run knows about a range of graphs is therefore contiguous on disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import offsets_of
from penstock.kernels import kernel
from penstock.pipelines.etl.nodes.sorted_ids import SortedIds, encode_ids
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading.batch import Layout
from penstock.pipelines.etl.writing import spill
from penstock.pipelines.etl.zoos.write import cut_graphs
from penstock.pipelines.tables.pieces import Piece

if TYPE_CHECKING:
    import pyarrow as pa

# Bytes that an edge and a node of a run need while their range is built, all copies counted:
# both directions' keys and order, rows and columns; ids, hash slots and codes twice.
EDGE_BYTES = 56
NODE_BYTES = 64
# Graphs of a run that the choice of ranges sees: ranges are then equal to about a tenth of a
# per cent of the input.
_SAMPLES = 1024
# Edges whose nodes are numbered at a time: few enough that the hash table stays in the cache.
_TOGETHER = 1 << 18


@dataclass(frozen=True)
class GraphRange:
    """The graphs with ``low <= id < high``; None leaves that side open."""

    low: Any
    high: Any


def spill_piece(piece: Piece, layout: Layout, options: EtlOptions, folder: Path) -> dict[str, Any]:
    """Read a piece of the input and leave a run ``folder/00000``, ... a batch; a step for ``once``.

    -> counts of all runs, the relations, and what ``choose_ranges`` needs of each run
    """
    from penstock.pipelines.etl.reading.read import read_piece

    def make(folder: Path) -> dict[str, Any]:
        result: dict[str, Any] = {
            "rows": [],
            "samples": [],
            "bad": [],
            "bad_count": 0,
            "filtered": 0,
        }
        relations: set[str | int] = set()
        for batch in read_piece(piece, layout, options):
            result["bad"] = [*result["bad"], *(vars(bad) for bad in batch.bad)][:10]
            result["bad_count"] += batch.bad_count
            result["filtered"] += batch.filtered
            if batch.table.num_rows:
                target = folder / f"{len(result['rows']):05d}"
                target.mkdir()
                samples, named = _write_run(batch.table, target)
                result["rows"].append(batch.table.num_rows)
                result["samples"].append(samples)
                relations |= named
            del batch  # before the next one is read
        result["relations"] = sorted(relations)
        return result

    return spill.once(folder, make)


def _write_run(table: pa.Table, folder: Path) -> tuple[list[tuple[Any, int]], set[str | int]]:
    names = table.column_names
    graphs, graph_of = encode_ids([table.column("graph")])
    edge_counts = np.bincount(graph_of, minlength=len(graphs))
    order = _order(graph_of, len(graphs))
    del graph_of
    graphs.save(folder, "graphs")
    spill.put(folder, "edge_offsets", offsets_of(edge_counts))
    for name in ("weight", "time"):
        if name in names:
            spill.put(folder, name + "s", _sorted(table, name, order).to_numpy())
    relations: set[str | int] = set()
    if "relation" in names:
        named, codes = encode_ids([table.column("relation")])
        named.save(folder, "relation_names")
        spill.put(folder, "relations", codes if order is None else codes[order])
        relations = set(named.to_list())
    ends = [_sorted(table, name, order) for name in ("source", "target")]
    node_ids, node_counts = _number_run(ends, edge_counts, folder)
    node_ids.save(folder)
    spill.put(folder, "node_offsets", offsets_of(node_counts))
    costs = edge_counts * EDGE_BYTES + node_counts * _node_bytes(node_ids)
    return _samples(graphs, costs), relations


def _number_run(
    ends: list[pa.ChunkedArray], edge_counts: Array, folder: Path
) -> tuple[SortedIds, Array]:
    """Number the nodes of edges that are sorted by graph, and spill ``sources`` and ``targets``.

    -> the id of each node, and how many nodes each graph has
    """
    node_counts = np.zeros(len(edge_counts), np.int64)
    codes = [np.empty(len(column), np.int32) for column in ends]
    edge_ends = offsets_of(edge_counts)
    ids: list[pa.Array] = []
    node = 0
    cuts, _ = cut_graphs(edge_counts, _TOGETHER, _TOGETHER)
    for low, high in pairwise([0, *cuts, len(edge_counts)]):
        start, stop = int(edge_ends[low]), int(edge_ends[high])
        distinct, positions = encode_ids([column.slice(start, stop - start) for column in ends])
        graph_of = np.repeat(np.arange(high - low), edge_counts[low:high])
        keys = np.tile(graph_of, 2) * len(distinct) + positions
        nodes, numbers = kernel("ids", keys).encode(keys)
        for side, column in enumerate(codes):
            column[start:stop] = numbers[side * (stop - start) :][: stop - start] + node
        graph, position = np.divmod(nodes, len(distinct))
        node_counts[low:high] = np.bincount(graph, minlength=high - low)
        ids.append(take_ids(distinct, position).to_arrow())
        node += len(nodes)
    for name, column in zip(("sources", "targets"), codes, strict=True):
        spill.put(folder, name, column)
    return joined_ids(ids), node_counts


def _sorted(table: pa.Table, name: str, order: Array | None) -> pa.ChunkedArray:
    column = table.column(name)
    return column if order is None else column.take(order)


def _order(graph_of: Array, graphs: int) -> Array | None:
    """Return the stable order by graph; None where edges come in that order, as they often do."""
    if np.all(graph_of[1:] >= graph_of[:-1]):
        return None
    bits = max(graphs - 1, 1).bit_length()
    _, order = kernel("csr", graph_of).sort_keys(graph_of.astype(np.uint64), bits, with_order=True)
    return np.asarray(order)


def _samples(graphs: SortedIds, costs: Array) -> list[tuple[Any, int]]:
    """Return graphs, each with the bytes from it up to the next one given."""
    firsts = np.unique(np.linspace(0, len(graphs), _SAMPLES, endpoint=False).astype(np.int64))
    sums = np.add.reduceat(costs, firsts).tolist()
    ids = take_ids(graphs, firsts).to_list()
    return list(zip(ids, sums, strict=True))


def choose_ranges(samples: Iterable[tuple[Any, int]], range_bytes: int) -> list[GraphRange]:
    """Cut all graphs into consecutive ranges of about ``range_bytes`` each."""
    cuts: list[Any] = []
    first, filled = None, 0
    for graph, cost in sorted(samples):
        if first is None:
            first = graph
        elif filled + cost > range_bytes and graph > first:
            cuts.append(graph)
            first, filled = graph, 0
        filled += cost
    bounds = [None, *cuts, None]
    return [GraphRange(low, high) for low, high in pairwise(bounds)]


@dataclass(frozen=True)
class RunSlice:
    """What one run holds of a range of graphs."""

    folder: Path
    first: int  # position of its first graph in the run
    graphs: int
    edge_start: int
    edges: int
    node_start: int
    nodes: int

    @staticmethod
    def of(folder: Path, part: GraphRange) -> RunSlice:
        """Find the graphs of ``part`` in the run that lies in ``folder``."""
        ids = SortedIds.load(folder, "graphs")
        first, stop = ids.position(part.low), ids.position(part.high, end=True)
        stop = max(first, stop)
        at = [
            int(spill.take(folder, name, np.int64, start=i, count=1)[0])
            for name in ("edge_offsets", "node_offsets")
            for i in (first, stop)
        ]
        return RunSlice(folder, first, stop - first, at[0], at[1] - at[0], at[2], at[3] - at[2])

    def cost(self) -> int:
        """Return the bytes that building it needs."""
        ids = SortedIds.load(self.folder)
        return self.edges * EDGE_BYTES + self.nodes * _node_bytes(ids)

    def graph_ids(self) -> pa.Array:
        """Return the ids of its graphs, ascending."""
        return SortedIds.load(self.folder, "graphs").slice(self.first, self.first + self.graphs)

    def node_ids(self) -> pa.Array:
        """Return the ids of its nodes, graph after graph."""
        stop = self.node_start + self.nodes
        return SortedIds.load(self.folder).slice(self.node_start, stop)

    def node_counts(self) -> Array:
        """Return how many nodes each graph has here."""
        return np.diff(
            spill.take(
                self.folder, "node_offsets", np.int64, start=self.first, count=self.graphs + 1
            )
        )

    def take(self, name: str, dtype: Any) -> Array:
        """Read a column of its edges; ends are positions among all nodes of the run."""
        return spill.take(self.folder, name, dtype, start=self.edge_start, count=self.edges)


def take_ids(ids: SortedIds, positions: Array) -> SortedIds:
    """Return the ids at some positions."""
    if isinstance(ids.values, np.ndarray):
        return SortedIds(ids.values[positions])
    return SortedIds(ids.values.take(positions))


def joined_ids(parts: list[pa.Array]) -> SortedIds:
    """Return Arrow arrays of ids as one; integers become NumPy."""
    import pyarrow as pa

    whole = pa.concat_arrays(parts)
    return SortedIds(whole.to_numpy() if pa.types.is_int64(whole.type) else whole)


def _node_bytes(ids: SortedIds) -> int:
    # Characters are held in the slices, joined, and once more taken in order.
    values = ids.values
    if isinstance(values, np.ndarray) or not len(ids):
        return NODE_BYTES
    return NODE_BYTES + 4 * int(values.nbytes) // len(ids)
