"""A zoo of small graphs from tables of (graph, source, target), out of core.

1. ``read_runs``  every batch of the input is sorted by graph and written as a run
2. ``choose_ranges``  graphs are cut into ranges that a worker can hold, by the counts of the runs
3. ``build_range``  a range's nodes are numbered graph by graph, its edges become rows: one sort for
   all its graphs, by the rules of one large graph
4. ``join_shard``, ``_write_tables``  counts are known, so ids over the whole zoo are known, and
   ranges become the files of a graph

Graphs follow the user's graph ids in order, and the nodes of a graph their own ids. Ranges depend
on memory and on the order of the input; files do not: shards are cut by counts alone, at graph
boundaries.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.arrays import Array
from penstock.arrow import as_numpy
from penstock.csr import CSR, EDGE_COLUMNS, id_dtype, offsets_of
from penstock.files import FileEntry
from penstock.manifest import Manifest
from penstock.pipelines.etl.nodes.sorted_ids import NodeIds, SortedIds
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.writing import spill
from penstock.pipelines.etl.writing.build import Slices, bins_of, manifest_of
from penstock.pipelines.etl.writing.merge import Merging, rows_of_keys
from penstock.pipelines.etl.writing.shuffle import Edges, Shape, bin_edges
from penstock.pipelines.etl.writing.trim import Renumbering, choose_nodes, trims
from penstock.pipelines.etl.zoos.runs import GraphRange, Run, choose_ranges, read_runs, take_ids
from penstock.pipelines.etl.zoos.tu import with_tu_data
from penstock.sizes import need_memory
from penstock.writer import row_cuts, write_rows, write_shard

if TYPE_CHECKING:
    from penstock.pipelines.etl.job import EtlJob

# Nodes and edges of a shard.
SHARD_SIZE = 1 << 24
# A range smaller than this is not worth a task.
_LEAST_RANGE = 64 << 20
# Bytes per edge while its range is built, besides three times its input: keys and order of both
# directions, rows and columns.
_EDGE_BYTES = 56
# Rows sorted at a time: few enough that their keys fit the cache.
BIN_ROW_BITS = 16


def build_zoo(job: EtlJob) -> Manifest:
    """Write the zoo into ``job.partial.result`` and return its manifest, not yet saved."""
    runs, samples = read_runs(job)
    rows = sum(rows for _, rows in samples)
    row_bytes = _EDGE_BYTES + 3 * sum(run.bytes for run in runs) // rows
    # Two ranges a task even out; half of the memory allows for ranges cut unevenly.
    share = rows * row_bytes // (2 * job.capacity.tasks)
    range_bytes = min(max(share, _LEAST_RANGE), job.capacity.task_memory // 2)
    ranges = choose_ranges(samples, job.chosen("range-rows", range_bytes // row_bytes))
    folders = [job.partial.scratch / "ranges" / f"{i:05d}" for i in range(len(ranges))]
    built = job.connected.tasks(
        "build graphs",
        build_range,
        [(part, folder, part.of(runs)) for part, folder in zip(ranges, folders, strict=True)],
        [rows // len(ranges)] * len(ranges),
        "edges",
        once=job.once,
        relations=job.relations,
        options=job.options,
        row_bytes=row_bytes,
        limit=job.capacity.task_memory,
    )
    for result in built:
        job.counts.nodes_dropped += result["dropped"]
        if job.options.duplicates != "keep":
            job.counts.duplicates_merged += result["merged"]
        job.counts.in_both_directions += result["pairs"]
        job.counts.count_loops(result["loops"], kept=job.options.self_loops == "keep")
    for run in runs:
        # What is known of it stays in done.json; no later step reads the rest.
        shutil.rmtree(run.folder, ignore_errors=True)
    return _write(job, built[0]["dtypes"], folders)


def build_range(
    part: GraphRange,
    folder: Path,
    runs: Sequence[Run],
    *,
    once: str | None,
    relations: Sequence[str | int],
    options: EtlOptions,
    row_bytes: int,
    limit: int,
) -> dict[str, Any]:
    """Build the rows of all graphs in ``part`` from the runs; ids count from 0 inside the range.

    Leaves ``graphs`` (ids), ``graph_nodes`` and ``graph_edges`` (counts), ``ids`` (of the nodes),
    and the arrays of a CSR; a step for ``once``.
    """

    def make(folder: Path) -> dict[str, Any]:
        rows = int(part.count(runs, once)[1].sum())
        need_memory(
            rows * row_bytes,
            f"building {rows} edges of graphs that must be built together",
            limit=limit,
            remedy="Give each worker more memory, or read such a large graph without --format zoo",
        )
        read = part.read(runs)
        ids, ptr, table = read.ids, read.ptr, read.columns
        first = np.repeat(ptr[:-1].astype(np.int32), np.diff(read.starts))
        columns = {
            f"{name}s": as_numpy(table.column(name))
            for name in ("weight", "time")
            if name in table.column_names
        }
        types = None
        if relations:
            named = table.column("relation")
            types = as_numpy(pc.index_in(named, value_set=pa.array(relations, named.type)), 0)
        edges = Edges(read.us + first, read.vs + first, types, columns)
        whole = (read.us >= 0) & (read.vs >= 0)  # other rows are nodes, or graphs
        edges = edges if whole.all() else edges.where(whole)
        loops = int(np.count_nonzero(edges.sources == edges.targets))
        csr, counts = build_csr(edges, len(ids), options)
        ends, dropped = ptr[1:], 0
        if trims(options):
            chosen = choose_nodes(lambda: iter([csr]), csr.rows, options, None, None)
            dropped = csr.rows - len(chosen.old_id)
        if dropped:
            csr, ids = only(csr, chosen), take_ids(ids, chosen.old_id)
            ends = offsets_of(chosen.new_id >= 0)[ends]
        read.graphs.save(folder, "graphs")
        ids.save(folder)
        spill.put(folder, "graph_nodes", np.diff(ends, prepend=0))
        spill.put(folder, "graph_edges", np.diff(csr.indptr[ends], prepend=0))
        spill.put(folder, "degrees", csr.degrees())
        spill.put(folder, "indices", csr.indices)
        for name, array in csr.columns():
            spill.put(folder, name, array)
        return {
            "loops": loops,
            **counts,
            "dropped": dropped,
            "dtypes": {name: str(array.dtype) for name, array in csr.arrays()},
        }

    return spill.once(folder, make)


def build_csr(edges: Edges, rows: int, options: EtlOptions) -> tuple[CSR, dict[str, int]]:
    """Return the rows of edges given in input order, ids below ``rows``, and counts.

    merged  directed edges that became part of another
    pairs   edges that are listed in both directions
    """
    target_bits, relation_bits = max(rows - 1, 1).bit_length(), 0
    if edges.relations is not None:
        relation_bits = max(int(edges.relations.max(initial=0)).bit_length(), 1)
    # Row, target, relation and direction share one 64-bit key.
    row_bits = min(BIN_ROW_BITS, 61 - target_bits - relation_bits)
    starts = (*range(0, max(rows, 1), 1 << row_bits), rows)
    shape = Shape(rows, starts, target_bits, relation_bits, None, False)
    both_ways, loops = not options.directed, options.self_loops == "keep"
    keys, order, offsets = bin_edges(edges, shape, both_ways=both_ways, keep_loops=loops)
    built: list[CSR] = []
    pairs = 0
    for number in range(shape.bins):
        part = slice(offsets[number], offsets[number + 1])
        columns = {n: partial(np.take, a, order[part]) for n, a in edges.columns.items()}
        rows_built, found = rows_of_keys(
            keys[part],
            shape.rows(number),
            target_bits,
            relation_bits,
            columns,
            Merging.of(options),
        )
        built.append(rows_built)
        pairs += found
    whole = CSR.concatenate(built)
    return whole, {"merged": len(keys) - whole.edges, "pairs": pairs // 2}


def only(csr: CSR, chosen: Renumbering) -> CSR:
    """Return the rows of the nodes that stay, in the same order; ``csr`` holds all their edges."""
    stays = chosen.new_id >= 0
    keep = np.repeat(stays, csr.degrees()) & stays[csr.indices]
    columns: dict[str, Any] = {name: values[keep] for name, values in csr.columns()}
    indices = chosen.new_id[csr.indices[keep]].astype(csr.indices.dtype)
    return CSR(offsets_of(chosen.bounds), indices, **columns)


def _write(job: EtlJob, dtypes: dict[str, str], ranges: list[Path]) -> Manifest:
    root = job.partial.result
    counts = [
        [spill.take(folder, f"graph_{what}", np.int64) for folder in ranges]
        for what in ("nodes", "edges")
    ]
    # The first graph of each range, the first node and edge of each graph, and the end of all.
    firsts = offsets_of(np.array([len(part) for part in counts[0]]))
    nodes, edges = (offsets_of(np.concatenate(parts)) for parts in counts)
    cuts = row_cuts(nodes + edges, SHARD_SIZE)
    shards = [(low, high) for low, high in cuts if nodes[low] < nodes[high]] or [(0, 0)]
    bounds = np.array([*(low for low, _ in shards), len(nodes) - 1])
    # The bounds of shards in each range.
    inside = [(first, np.clip(bounds, first, stop)) for first, stop in pairwise(firsts)]
    rows, columns = (
        bins_of(len(shards), ranges, [of[at] - of[first] for first, at in inside])
        for of in (nodes, edges)
    )
    joined = job.connected.tasks(
        "write shards",
        join_shard,
        list(zip(range(len(shards)), rows, columns, strict=True)),
        [one.count for one in rows],
        "nodes",
        bases=dict(zip(ranges, nodes[firsts[:-1]].tolist(), strict=True)),
        dtypes=dtypes | {"indices": str(id_dtype(int(nodes[-1])))},
        root=root,
    )
    tables = _write_tables(job, ranges, nodes, edges)
    made = replace(manifest_of(job, joined).with_files(tables), graphs=len(nodes) - 1)
    return with_tu_data(job, made) if job.format == "tu" else made


def join_shard(
    number: int,
    rows: Slices,
    edges: Slices,
    *,
    bases: dict[Path, int],
    dtypes: dict[str, str],
    root: Path,
) -> dict[str, Any]:
    """Write shard ``number`` with ids over the whole zoo.

    bases  the first node of each range
    """
    columns: dict[str, Any]
    columns = {n: edges.read(n, kind) for n, kind in dtypes.items() if n in EDGE_COLUMNS}
    # A range counts from 0 and always fits 32 bits.
    indices = edges.read("indices", np.int32).astype(dtypes["indices"], copy=False)
    moved = np.array([bases[folder] for folder, _, _ in edges.parts], indices.dtype)
    indices += np.repeat(moved, [stop - start for _, start, stop in edges.parts])
    indptr = offsets_of(rows.read("degrees", np.int64))
    return write_shard(root, number, CSR(indptr, indices, **columns))


def _write_tables(job: EtlJob, ranges: list[Path], nodes: Array, edges: Array) -> list[FileEntry]:
    """Write nodes.parquet, with ``id`` in its graph and ``graph``, its number, and
    graphs.parquet, with the user's ``id``, ``first`` node, and counts of nodes and edges.
    """
    root, graphs = job.partial.result, len(nodes) - 1
    inside, named = (
        NodeIds([SortedIds.load(one, name) for one in ranges], None, unsigned=kind == "uint64")
        for name, kind in (("ids", job.layout.id_type), ("graphs", job.layout.graph_type))
    )
    number = id_dtype(graphs)

    def of_nodes(start: int, stop: int) -> pa.Table:
        graph = np.searchsorted(nodes[1:], np.arange(start, stop), side="right").astype(number)
        return pa.table({**inside.columns(range(start, stop)), "graph": graph}).combine_chunks()

    def of_graphs(start: int, stop: int) -> pa.Table:
        counts = {"nodes": nodes, "edges": edges}
        columns = {name: np.diff(of[start : stop + 1]) for name, of in counts.items()}
        columns = {**named.columns(range(start, stop)), "first": nodes[start:stop], **columns}
        return pa.table(columns).combine_chunks()

    return [
        write_rows(root, "nodes.parquet", len(inside), of_nodes),
        write_rows(root, "graphs.parquet", graphs, of_graphs),
    ]
