"""The tasks of a zoo: a piece of the input becomes runs, a range of graphs becomes rows.

A run is one batch sorted by graph. It lists its graphs in ascending order, for each graph its
nodes in ascending order, and its edges as positions in that list, in input order inside a
graph. All that a run knows about a range of graphs is therefore contiguous on disk.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.csr import Array
from penstock.kernels import kernel
from penstock.pipelines.etl import spill
from penstock.pipelines.etl.batch import Layout, Piece
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.sorted_ids import SortedIds, encode_ids
from penstock.pipelines.etl.zoo_rows import build_csr, keep_nodes
from penstock.sizes import need_memory

if TYPE_CHECKING:
    import pyarrow as pa

# Bytes that an edge and a node of a run need while their range is built, all copies counted:
# both directions' keys and order, rows and columns; ids, hash slots and codes twice.
EDGE_BYTES = 96
NODE_BYTES = 96
# Graphs of a run that the choice of ranges sees: ranges are then equal to about a tenth of a
# per cent of the input.
_SAMPLES = 1024


@dataclass(frozen=True)
class Range:
    """The graphs with ``low <= id < high``; None leaves that side open."""

    low: Any
    high: Any


def spill_piece(piece: Piece, layout: Layout, options: EtlOptions, folder: Path) -> dict[str, Any]:
    """Read a piece of the input and leave a run ``folder/00000``, ... a batch; a step for ``once``.

    -> counts of all runs, the relations, and what ``choose_ranges`` needs of each run
    """
    from penstock.pipelines.etl.read import read_piece

    def make(folder: Path) -> dict[str, Any]:
        result: dict[str, Any] = {
            "rows": [], "samples": [], "bad": [], "bad_count": 0, "filtered": 0,
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
        result["relations"] = sorted(relations)
        return result

    return spill.once(folder, make)


def _write_run(
    table: pa.Table, folder: Path
) -> tuple[list[tuple[Any, int]], set[str | int]]:
    count, names = table.num_rows, table.column_names
    graphs, graph_of = encode_ids([table.column("graph")])
    ids, codes = encode_ids([table.column("source"), table.column("target")])
    keys = np.concatenate([graph_of, graph_of]).astype(np.int64) * len(ids) + codes
    del codes
    nodes, codes = kernel("ids", keys).encode(keys)
    del keys
    ends = [codes[:count], codes[count:]]
    edge_columns = {
        name + "s": table.column(name).to_numpy()
        for name in ("weight", "time") if name in names
    }
    relations: set[str | int] = set()
    if "relation" in names:
        named, edge_columns["relations"] = encode_ids([table.column("relation")])
        named.save(folder, "relation_names")
        relations = set(named.to_list())
    edge_counts = np.bincount(graph_of, minlength=len(graphs))
    order = _order(graph_of, len(graphs))
    for name, column in {"sources": ends[0], "targets": ends[1], **edge_columns}.items():
        spill.put(folder, name, column if order is None else column[order])
    node_ids = _take(ids, nodes % len(ids))
    graphs.save(folder, "graphs")
    node_ids.save(folder)
    node_counts = np.bincount(nodes // len(ids), minlength=len(graphs))
    spill.put(folder, "edge_offsets", _offsets(edge_counts))
    spill.put(folder, "node_offsets", _offsets(node_counts))
    costs = edge_counts * EDGE_BYTES + node_counts * _node_bytes(node_ids)
    return _samples(graphs, costs), relations


def _order(graph_of: Array, graphs: int) -> Array | None:
    """Return the stable order by graph; None where edges come in that order, as they often do."""
    if np.all(graph_of[1:] >= graph_of[:-1]):
        return None
    bits = max(graphs - 1, 1).bit_length()
    _, order = kernel("csr", graph_of).sort_keys(
        graph_of.astype(np.uint64), bits, with_order=True
    )
    return np.asarray(order)


def _samples(graphs: SortedIds, costs: Array) -> list[tuple[Any, int]]:
    """Return graphs, each with the bytes from it up to the next one given."""
    firsts = np.unique(np.linspace(0, len(graphs), _SAMPLES, endpoint=False).astype(np.int64))
    sums = np.add.reduceat(costs, firsts).tolist()
    ids = _take(graphs, firsts).to_list()
    return list(zip(ids, sums, strict=True))


def choose_ranges(samples: Iterable[tuple[Any, int]], range_bytes: int) -> list[Range]:
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
    return [Range(low, high) for low, high in pairwise(bounds)]


def build_range(
    part: Range,
    folder: Path,
    *,
    runs: Sequence[Path],
    relations: Sequence[str | int],
    time_type: str | None,
    weighted: bool,
    options: EtlOptions,
    limit: int,
) -> dict[str, Any]:
    """Build the rows of all graphs in ``part`` from the runs; ids count from 0 inside the range.

    Leaves ``graphs`` (ids), ``graph_nodes`` and ``graph_edges`` (counts), ``ids`` (of the nodes),
    and the arrays of a CSR; a step for ``once``.
    """

    def make(folder: Path) -> dict[str, Any]:
        slices = [cut for cut in (_RunSlice.of(run, part) for run in runs) if cut.graphs]
        cost = sum(cut.cost() for cut in slices)
        need_memory(
            cost, f"building the {sum(c.edges for c in slices)} edges of the graphs "
            f"from {_name(part.low, 'the first')} to {_name(part.high, 'the last')}",
            limit=limit,
            remedy="Give each worker more memory, or read so large a graph without --graph-id",
        )
        graphs, nodes_graph, ids, ends = _number_nodes(slices)
        rows = len(nodes_graph)
        columns = {}
        if weighted:
            columns["weights"] = _read(slices, "weights", np.float32)
        if time_type is not None:
            columns["times"] = _read(slices, "times", time_type)
        types = _read_relations(slices, relations) if relations else None
        loops = int(np.count_nonzero(ends[0] == ends[1]))
        csr, merged = build_csr(*ends, rows, types, columns, options)
        csr, kept = keep_nodes(csr, options)
        if kept is not None:
            nodes_graph = nodes_graph[kept]
            ids = _take(ids, np.flatnonzero(kept))
        graph_nodes = np.bincount(nodes_graph, minlength=len(graphs))
        graph_ends = np.cumsum(graph_nodes)
        graph_edges = np.diff(csr.indptr[graph_ends], prepend=0)
        graphs.save(folder, "graphs")
        ids.save(folder)
        spill.put(folder, "graph_nodes", graph_nodes)
        spill.put(folder, "graph_edges", graph_edges)
        for name, array in csr.arrays():
            spill.put(folder, name, array)
        return {
            "graphs": len(graphs), "nodes": csr.rows, "edges": csr.edges,
            "loops": loops, "merged": merged, "dropped": rows - csr.rows,
            "dtypes": {name: str(array.dtype) for name, array in csr.arrays()},
        }

    return spill.once(folder, make)


@dataclass(frozen=True)
class _RunSlice:
    """What one run holds of a range."""

    folder: Path
    first: int  # position of its first graph in the run
    graphs: int
    edge_start: int
    edges: int
    node_start: int
    nodes: int

    @staticmethod
    def of(folder: Path, part: Range) -> _RunSlice:
        ids = SortedIds.load(folder, "graphs")
        first, stop = ids.position(part.low), ids.position(part.high, end=True)
        stop = max(first, stop)
        at = [
            int(spill.take(folder, name, np.int64, start=i, count=1)[0])
            for name in ("edge_offsets", "node_offsets") for i in (first, stop)
        ]
        return _RunSlice(folder, first, stop - first, at[0], at[1] - at[0], at[2], at[3] - at[2])

    def cost(self) -> int:
        ids = SortedIds.load(self.folder)
        return self.edges * EDGE_BYTES + self.nodes * _node_bytes(ids)

    def graph_ids(self) -> pa.Array:
        return SortedIds.load(self.folder, "graphs").slice(self.first, self.first + self.graphs)

    def node_ids(self) -> pa.Array:
        stop = self.node_start + self.nodes
        return SortedIds.load(self.folder).slice(self.node_start, stop)

    def node_counts(self) -> Array:
        """How many nodes each graph has here."""
        return np.diff(spill.take(
            self.folder, "node_offsets", np.int64, start=self.first, count=self.graphs + 1
        ))

    def take(self, name: str, dtype: Any) -> Array:
        return spill.take(
            self.folder, name, dtype, start=self.edge_start, count=self.edges
        )


def _number_nodes(slices: list[_RunSlice]) -> tuple[SortedIds, Array, SortedIds, list[Array]]:
    """Return the graphs; each node's graph and user id; and the edges' ends as node numbers."""
    graphs, graph_codes = encode_ids([cut.graph_ids() for cut in slices])
    ids, codes = encode_ids([cut.node_ids() for cut in slices])
    counts = np.concatenate([cut.node_counts() for cut in slices])
    keys = np.repeat(graph_codes, counts).astype(np.int64) * len(ids) + codes
    del codes
    nodes, numbers = kernel("ids", keys).encode(keys)
    del keys
    nodes_graph, positions = np.divmod(nodes, len(ids))
    node_ids = _take(ids, positions)
    ends = [np.empty(sum(cut.edges for cut in slices), np.int32) for _ in range(2)]
    node, edge = 0, 0
    for cut in slices:
        local = numbers[node : node + cut.nodes]
        for end, name in zip(ends, ("sources", "targets"), strict=True):
            end[edge : edge + cut.edges] = local[cut.take(name, np.int32) - cut.node_start]
        node, edge = node + cut.nodes, edge + cut.edges
    return graphs, nodes_graph, node_ids, ends


def _read(slices: list[_RunSlice], name: str, dtype: Any) -> Array:
    return np.concatenate([cut.take(name, dtype) for cut in slices])


def _read_relations(slices: list[_RunSlice], relations: Sequence[str | int]) -> Array:
    place = {name: i for i, name in enumerate(relations)}
    parts = []
    for cut in slices:
        names = SortedIds.load(cut.folder, "relation_names").to_list()
        table = np.array([place[name] for name in names], np.int32)
        parts.append(table[cut.take("relations", np.int32)])
    return np.concatenate(parts)


def _take(ids: SortedIds, positions: Array) -> SortedIds:
    if isinstance(ids.values, np.ndarray):
        return SortedIds(ids.values[positions])
    return SortedIds(ids.values.take(positions))


def _offsets(counts: Array) -> Array:
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _node_bytes(ids: SortedIds) -> int:
    # Characters are held in the slices, joined, and once more taken in order.
    values = ids.values
    if isinstance(values, np.ndarray) or not len(ids):
        return NODE_BYTES
    return NODE_BYTES + 4 * int(values.nbytes) // len(ids)


def _name(bound: Any, otherwise: str) -> str:
    return otherwise if bound is None else repr(bound)
