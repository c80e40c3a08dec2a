"""A range of graphs becomes rows: what all runs hold of it is numbered and built in memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels import kernel
from penstock.pipelines.etl.nodes.sorted_ids import SortedIds, encode_ids
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.writing import spill
from penstock.pipelines.etl.zoos.rows import build_csr, keep_nodes
from penstock.pipelines.etl.zoos.runs import GraphRange, RunSlice, take_ids
from penstock.sizes import need_memory


def build_range(
    part: GraphRange,
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
        slices = [cut for cut in (RunSlice.of(run, part) for run in runs) if cut.graphs]
        cost = sum(cut.cost() for cut in slices)
        need_memory(
            cost,
            f"building the {sum(c.edges for c in slices)} edges of the graphs "
            f"from {_name(part.low, 'the first')} to {_name(part.high, 'the last')}",
            limit=limit,
            remedy="Give each worker more memory, or read so large a graph without --format zoo",
        )
        graphs, nodes_graph, ids, (sources, targets) = _number_nodes(slices)
        rows = len(nodes_graph)
        columns = {}
        if weighted:
            columns["weights"] = _read(slices, "weights", np.float32)
        if time_type is not None:
            columns["times"] = _read(slices, "times", time_type)
        types = _read_relations(slices, relations) if relations else None
        loops = int(np.count_nonzero(sources == targets))
        csr, counts = build_csr(sources, targets, rows, types, columns, options)
        csr, kept = keep_nodes(csr, options)
        if kept is not None:
            nodes_graph = nodes_graph[kept]
            ids = take_ids(ids, np.flatnonzero(kept))
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
            "graphs": len(graphs),
            "nodes": csr.rows,
            "edges": csr.edges,
            "loops": loops,
            **counts,
            "dropped": rows - csr.rows,
            "dtypes": {name: str(array.dtype) for name, array in csr.arrays()},
        }

    return spill.once(folder, make)


def _number_nodes(slices: list[RunSlice]) -> tuple[SortedIds, Array, SortedIds, list[Array]]:
    """Return the graphs; each node's graph and user id; and the edges' ends as node numbers."""
    graphs, graph_codes = encode_ids([cut.graph_ids() for cut in slices])
    ids, codes = encode_ids([cut.node_ids() for cut in slices])
    counts = np.concatenate([cut.node_counts() for cut in slices])
    keys = np.repeat(graph_codes, counts).astype(np.int64) * len(ids) + codes
    del codes
    nodes, numbers = kernel("ids", keys).encode(keys)
    del keys
    nodes_graph, positions = np.divmod(nodes, len(ids))
    node_ids = take_ids(ids, positions)
    ends = [np.empty(sum(cut.edges for cut in slices), np.int32) for _ in range(2)]
    node, edge = 0, 0
    for cut in slices:
        local = numbers[node : node + cut.nodes]
        for end, name in zip(ends, ("sources", "targets"), strict=True):
            end[edge : edge + cut.edges] = local[cut.take(name, np.int32) - cut.node_start]
        node, edge = node + cut.nodes, edge + cut.edges
    return graphs, nodes_graph, node_ids, ends


def _read(slices: list[RunSlice], name: str, dtype: Any) -> Array:
    return np.concatenate([cut.take(name, dtype) for cut in slices])


def _read_relations(slices: list[RunSlice], relations: Sequence[str | int]) -> Array:
    position = {name: i for i, name in enumerate(relations)}
    parts = []
    for cut in slices:
        names = SortedIds.load(cut.folder, "relation_names").to_list()
        table = np.array([position[name] for name in names], np.int32)
        parts.append(table[cut.take("relations", np.int32)])
    return np.concatenate(parts)


def _name(bound: Any, otherwise: str) -> str:
    return otherwise if bound is None else repr(bound)
