"""A zoo of small graphs from tables of (graph, source, target), out of core.

1. ``spill_piece``  every batch of the input is sorted by graph and left as a run
2. ``choose_ranges``  graphs are cut into ranges that a worker can hold, by what the runs count
3. ``build_range``  a range's nodes are numbered graph by graph, its edges become rows
4. ``join_shard``, ``write_zoo_nodes``, ``write_zoo_graphs``  counts are known, so ids over the
   whole zoo are, and ranges become the files of a graph

Graphs follow the user's graph ids in order, and the nodes of a graph their own ids.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from shutil import rmtree
from typing import Any

from penstock.errors import InputError, UsageError
from penstock.files import FileEntry
from penstock.manifest import Manifest, ShardEntry
from penstock.options import flag
from penstock.pipelines.etl import spill
from penstock.pipelines.etl.batch import Batch, Layout, Piece
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.report import EtlReport
from penstock.pipelines.etl.zoo_tasks import Range, build_range, choose_ranges, spill_piece
from penstock.pipelines.etl.zoo_write import (
    join_shard,
    plan_shards,
    write_zoo_graphs,
    write_zoo_nodes,
)
from penstock.pipelines.stage import run_stage
from penstock.sizes import need_disk

# Nodes and edges of a shard.
SHARD_SIZE = 1 << 24
# Below this a range is not worth a task.
_LEAST_RANGE = 64 << 20

_WHY = {
    "largest_component": "a zoo has components in every graph",
    "relabel": "the nodes of a graph stay together, in the order of their ids",
    "split_edges": "a zoo is split by graphs: add a split to your own table of graph ids",
    "split_nodes": "a zoo is split by graphs: add a split to your own table of graph ids",
    "valid": "a zoo is split by graphs: make a zoo of each part",
    "test": "a zoo is split by graphs: make a zoo of each part",
    "nodes": "the nodes of a zoo are those of its edges; labels and features of nodes come with "
    "TU folders",
    "features": "features of a zoo's nodes come with TU folders (NAME_node_attributes.txt)",
    "unknown_nodes": "it speaks of a node table",
}


@dataclass(frozen=True)
class ZooInput:
    """What to read: one reader a task, and what is known of the columns."""

    readers: tuple[Callable[[], Iterable[Batch]], ...]
    sizes: tuple[int, ...]  # bytes of each, for progress
    weighted: bool = False
    time_type: str | None = None  # int64 or float64
    id_type: str = "int64"

    @staticmethod
    def of(pieces: Sequence[Piece], layout: Layout, options: EtlOptions) -> ZooInput:
        """Read pieces of files as ``layout`` says."""
        from penstock.pipelines.etl.read import read_piece

        time_type = "float64" if layout.time_type == "float64" else "int64"
        return ZooInput(
            tuple(partial(read_piece, piece, layout, options) for piece in pieces),
            tuple(piece.bytes for piece in pieces),
            weighted=layout.weight is not None,
            time_type=time_type if layout.time is not None else None,
            id_type=layout.id_type,
        )


def refuse_options(options: EtlOptions) -> None:
    """Raise UsageError for an option that means nothing for many graphs side by side."""
    defaults = EtlOptions()
    for name, why in _WHY.items():
        if getattr(options, name) != getattr(defaults, name):
            raise UsageError(f"{flag(name)} cannot be used with a zoo", remedy=_sentence(why))


def build_zoo(
    client: Any,
    read: ZooInput,
    options: EtlOptions,
    root: Path,
    scratch: Path,
    quiet: bool,
    *,
    report: EtlReport | None = None,
    worker_memory: int | None = None,
    range_bytes: int | None = None,
    shard_size: int = SHARD_SIZE,
) -> Manifest:
    """Write a zoo into ``root`` and return its manifest, not yet saved.

    report         counts what was read, dropped and merged
    worker_memory  bytes a task may use [default: what the workers' limits allow]
    range_bytes    memory that a range of graphs should need [default: less than half of that]
    """
    refuse_options(options)
    report = EtlReport(str(root)) if report is None else report
    limit = task_memory(client) if worker_memory is None else worker_memory
    stage = partial(run_stage, client, quiet=quiet)
    runs, relations = _spill(stage, read, scratch / "runs", report)
    ranges = _ranges(client, runs, range_bytes or limit * 2 // 5, scratch / "ranges.done")
    folders = [scratch / "ranges" / f"{i:05d}" for i in range(len(ranges))]
    edges = sum(run["edges"] for _, run in runs)
    nodes = sum(run["nodes"] for _, run in runs)
    arcs = edges if options.directed else 2 * edges
    need_disk(scratch, arcs * 8 + nodes * 16, "the intermediate data of this zoo")
    built = stage(
        "build graphs", build_range,
        [(part, folder) for part, folder in zip(ranges, folders, strict=True)],
        sizes=[edges // len(ranges)] * len(ranges), unit="edges",
        runs=[folder for folder, _ in runs], relations=relations, time_type=read.time_type,
        weighted=read.weighted, options=options, limit=limit,
    )
    for count in built:
        report.duplicates_merged += count["merged"]
        report.nodes_dropped += count["dropped"]
        if options.self_loops == "drop":
            report.loops_dropped += count["loops"]
    # Done steps remember their results, so the runs themselves can go.
    for folder, _ in runs:
        rmtree(folder, ignore_errors=True)
    return _write(stage, folders, built, relations, read, options, root, shard_size)
