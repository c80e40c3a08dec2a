"""A zoo of small graphs from tables of (graph, source, target), out of core.

1. ``spill_piece``  every batch of the input is sorted by graph and left as a run
2. ``choose_ranges``  graphs are cut into ranges that a worker can hold, by what the runs count
3. ``build_range``  a range's nodes are numbered graph by graph, its edges become rows
4. ``join_shard``, ``write_zoo_nodes``, ``write_zoo_graphs``  counts are known, so ids over the
   whole zoo are, and ranges become the files of a graph

Graphs follow the user's graph ids in order, and the nodes of a graph their own ids.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from penstock.errors import InputError
from penstock.files import FileEntry
from penstock.manifest import Manifest
from penstock.pipelines.etl.writing import spill
from penstock.pipelines.etl.writing.build import manifest_of
from penstock.pipelines.etl.zoos.ranges import build_range
from penstock.pipelines.etl.zoos.runs import GraphRange, choose_ranges, spill_piece
from penstock.pipelines.etl.zoos.write import (
    join_shard,
    plan_shards,
    write_zoo_graphs,
    write_zoo_nodes,
)
from penstock.sizes import need_disk

if TYPE_CHECKING:
    from penstock.pipelines.etl.job import EtlJob

# Nodes and edges of a shard.
SHARD_SIZE = 1 << 24
# A range smaller than this is not worth a task.
_LEAST_RANGE = 64 << 20


def build_zoo(
    job: EtlJob,
    *,
    range_bytes: int | None = None,
    shard_size: int = SHARD_SIZE,
) -> Manifest:
    """Write the zoo into ``job.partial.result`` and return its manifest, not yet saved.

    range_bytes  memory in which a range of graphs should be built [default: from the workers']
    """
    job.options.refuse_in_zoo()
    pieces = job.pieces["train"]
    scratch = job.partial.scratch
    size = sum(piece.bytes for piece in pieces)
    # As for one large graph: text shrinks and compressed files grow.
    need_disk(scratch, 4 * size, "the intermediate data of this zoo")
    folders = [scratch / "runs" / f"{i:05d}" for i in range(len(pieces))]
    spilled = job.read(
        spill_piece,
        [
            (piece, job.layout, job.options, folder)
            for piece, folder in zip(pieces, folders, strict=True)
        ],
        pieces,
    )
    for result in spilled:
        job.counts.count_input(result)
    job.relations = tuple(sorted({name for result in spilled for name in result["relations"]}))
    edges = sum(sum(result["rows"]) for result in spilled)
    if edges == 0:
        raise InputError(
            "there are no edges to make a zoo of",
            got=f"{job.counts.rows_read} rows, none usable",
        )
    batches = [
        folder / f"{i:05d}"
        for folder, result in zip(folders, spilled, strict=True)
        for i in range(len(result["rows"]))
    ]
    ranges = _ranges(job, spilled, range_bytes)
    built_in = [scratch / "ranges" / f"{i:05d}" for i in range(len(ranges))]
    built = job.connected.tasks(
        "build graphs",
        build_range,
        list(zip(ranges, built_in, strict=True)),
        [edges // len(ranges)] * len(ranges),
        "edges",
        runs=batches,
        relations=job.relations,
        time_type=job.layout.time_dtype,
        weighted=job.layout.weight is not None,
        options=job.options,
        limit=job.capacity.task_memory,
    )
    for result in built:
        job.counts.nodes_dropped += result["dropped"]
        if job.options.duplicates != "keep":
            job.counts.duplicates_merged += result["merged"]
        job.counts.in_both_directions += result["pairs"]
        job.counts.count_loops(result["loops"], kept=job.options.self_loops == "keep")
    for batch in batches:
        # What the pieces counted stays in done.json; the rest no later step reads.
        rmtree(batch, ignore_errors=True)
    return _write(job, built, built_in, shard_size)


def _ranges(
    job: EtlJob, spilled: list[dict[str, Any]], range_bytes: int | None
) -> list[GraphRange]:
    """Choose the ranges once: a resumed run may have other workers but must not cut again."""
    samples = [
        (graph, cost)
        for result in spilled
        for sample in result["samples"]
        for graph, cost in sample
    ]
    if range_bytes is None:
        # Two ranges a worker even out; half of the memory allows for ranges cut unevenly.
        share = sum(cost for _, cost in samples) // (2 * job.capacity.tasks)
        range_bytes = min(max(share, _LEAST_RANGE), job.capacity.task_memory // 2)

    def choose(folder: Path) -> dict[str, Any]:
        ranges = choose_ranges(samples, range_bytes)
        return {"ranges": [(part.low, part.high) for part in ranges]}

    plan = spill.once(job.partial.scratch / "plan", choose)
    return [GraphRange(low, high) for low, high in plan["ranges"]]


def _write(
    job: EtlJob, built: list[dict[str, Any]], ranges: list[Path], shard_size: int
) -> Manifest:
    root, dtypes = job.partial.result, built[0]["dtypes"]
    nodes = sum(result["nodes"] for result in built)
    graphs = sum(result["graphs"] for result in built)
    need_disk(root, sum(p.stat().st_size for f in ranges for p in f.iterdir()), "this zoo")
    shards = plan_shards(ranges, shard_size)
    joined = job.connected.tasks(
        "write shards",
        join_shard,
        list(enumerate(shards)),
        [shard.stop - shard.start for shard in shards],
        "nodes",
        nodes=nodes,
        dtypes=dtypes,
        root=root,
    )
    # One table each, in order: one task, which holds a row group at a time.
    unsigned = job.layout.id_type == "uint64"
    tables = job.connected.tasks(
        "write nodes and graphs",
        _write_tables,
        [(root, ranges, graphs, unsigned)],
        [nodes],
        "nodes",
    )
    made = manifest_of(job, [(shard.start, shard.stop) for shard in shards], joined)
    return replace(made.with_files(tables[0]), graphs=graphs)


def _write_tables(root: Path, ranges: list[Path], graphs: int, unsigned: bool) -> list[FileEntry]:
    nodes = write_zoo_nodes(root, ranges, graphs, unsigned=unsigned)
    return [nodes, write_zoo_graphs(root, ranges)]
