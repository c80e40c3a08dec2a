"""The stages of ``penstock etl`` in order: encode, merge ids, shuffle, build, trim, nodes, publish.

Every stage is a set of independent Dask tasks; what one leaves on disk the next reads. The client
holds a few numbers a node; edges stay with the workers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from penstock.csr import CSR, EDGE_COLUMNS, Array
from penstock.errors import InputError
from penstock.files import FileEntry
from penstock.kernels.cpu.philox import random_keys
from penstock.kernels.streams import Stream
from penstock.manifest import Manifest, ShardEntry
from penstock.pipelines.etl import spill
from penstock.pipelines.etl.batch import Layout, Piece
from penstock.pipelines.etl.build import EDGE_BYTES, build_shard, shard_files
from penstock.pipelines.etl.encode import choose_splitters, encode_piece, internal_ids, merge_ids
from penstock.pipelines.etl.heldout import collect_heldout
from penstock.pipelines.etl.node_data import NodeResult, NodeTable, write_node_data
from penstock.pipelines.etl.node_input import encode_node_table
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.report import EtlReport
from penstock.pipelines.etl.shuffle import Numbering, Shape, keep_heldout, make_shape, shuffle_batch
from penstock.pipelines.etl.sorted_ids import SortedIds
from penstock.pipelines.etl.trim import (
    NODE_BYTES,
    Renumbering,
    choose_nodes,
    load_shard,
    shuffle_shard,
    trims,
)
from penstock.pipelines.etl.workplace import Workplace
from penstock.pipelines.stage import run_stage
from penstock.sizes import need_memory

# Bins are no larger than this, so that all cores have work and a shard stays a handy file.
_BIN_EDGES = 1 << 23
_ID_BYTES = 64  # what one id costs while a range of them is made distinct


@dataclass
class EncodedBatch:
    """A spilled batch and what it holds edges for."""

    folder: Path
    rows: int
    use: str  # train, valid, test or nodes


@dataclass
class Ids:
    """All ids, ascending, in ranges; and how internal ids are numbered."""

    ranges: list[Path]
    bases: list[int]
    count: int
    bounds: Array  # (count,) by sorted position: bound of each node's degree
    order: Array | None = None  # internal id -> sorted position, None: the same

    def sorted_ids(self) -> list[SortedIds]:
        """Map the user's ids, range by range."""
        return [SortedIds.load(folder) for folder in self.ranges]


@dataclass
class Job:
    """One run: what it was asked for, where it works, and what it counts on the way."""

    client: Any
    edges: list[str]
    options: EtlOptions
    layout: Layout
    place: Workplace
    worker_memory: int
    workers: int
    quiet: bool
    report: EtlReport
    relations: tuple[Any, ...] = ()
    heldout_folders: dict[str, list[Path]] = field(default_factory=dict)

    def stage(self, title: str, step: Any, calls: list[Any], sizes: list[int], unit: str = "edges",
              **shared: Any) -> list[Any]:
        """Run one stage on the cluster."""
        return run_stage(self.client, title, step, calls, sizes=sizes, unit=unit,
                         quiet=self.quiet, **shared)

    @property
    def bin_edges(self) -> int:
        """How many edges a task can build at once."""
        return max(1 << 16, min(_BIN_EDGES, self.worker_memory // 2 // EDGE_BYTES))


def build_graph(job: Job, pieces: dict[str, list[Piece]]) -> Manifest:
    """Write the graph into ``job.place.graph`` and return its manifest, not yet saved."""
    batches = encode(job, pieces)
    ids, table = merge(job, batches)
    if job.options.relabel == "random":
        need_memory(ids.count * 32, "the permutation of all nodes", remedy="Use --relabel sorted")
        keys = random_keys(job.options.seed, Stream.PERMUTE_NODES, 0, ids.count)
        ids.order = np.argsort(keys, kind="stable")
    graph, order = build(job, batches, ids, table)
    nodes = write_node_data(
        job.place.graph, ids.sorted_ids(), order, table, job.options,
        unsigned=job.layout.id_type == "uint64",
    )
    return with_nodes(graph, nodes)


def encode(job: Job, pieces: dict[str, list[Piece]]) -> list[EncodedBatch]:
    """Read everything once: batches with codes for ids; node table batches come last."""
    listed = [(use, piece) for use, part in pieces.items() for piece in part]
    folders = [job.place.scratch / "pieces" / f"{i:05d}" for i in range(len(listed))]
    results = job.stage(
        "read", encode_piece,
        [(piece, job.layout, job.options, f) for (_, piece), f in zip(listed, folders, strict=True)],
        [piece.bytes for _, piece in listed], "B",
    )
    batches, relations = [], set()
    for (use, _), folder, result in zip(listed, folders, results, strict=True):
        relations |= set(result["relations"])
        job.report.count_input(result)
        batches += [
            EncodedBatch(folder / f"{n:03d}", rows, use) for n, rows in enumerate(result["rows"])
        ]
    job.relations = tuple(sorted(relations))
    if not any(batch.rows for batch in batches):
        raise InputError("there are no edges to make a graph of",
                         got=f"{job.report.rows_read} rows, none usable")
    return batches


def merge(job: Job, batches: list[EncodedBatch]) -> tuple[Ids, NodeTable | None]:
    """Number all ids; read the node table and check that it fits the edges."""
    node_input = encode_node_table(
        job.options, job.layout, job.edges, job.place.scratch / "nodes"
    )
    if node_input is not None:
        job.report.count_bad(node_input.bad, node_input.bad_count)
        batches += [EncodedBatch(folder, 0, "nodes") for folder in node_input.folders]
    folders = [batch.folder for batch in batches]
    size = sum(p.stat().st_size for f in folders for p in f.glob("ids.*"))
    ranges = max(math.ceil(size * _ID_BYTES / 8 / (job.worker_memory * 0.4)),
                 job.workers if size > 32 << 20 else 1)
    cuts = [None, *choose_splitters(folders, ranges), None]
    kept = [job.place.scratch / "ids" / f"{i:05d}" for i in range(len(cuts) - 1)]
    results = job.stage(
        "merge ids", merge_ids,
        [(folders, cuts[i], cuts[i + 1], kept[i]) for i in range(len(kept))],
        [size // len(kept)] * len(kept), "B",
    )
    sizes = [result["ids"] for result in results]
    count = sum(sizes)
    need_memory(count * NODE_BYTES, f"the numbering of {count} nodes",
                remedy="Run this command on a machine with more memory")
    bases = [0, *np.cumsum(sizes)[:-1].tolist()]
    bounds = np.concatenate([spill.take(folder, "counts", np.int64) for folder in kept])
    ids = Ids(kept, bases, count, bounds)
    if node_input is None:
        return ids, None
    codes = [
        internal_ids(i, ids.ranges, ids.bases, np.dtype(np.int64))[
            spill.take(batch.folder, "codes", np.int32)]
        for i, batch in enumerate(batches) if batch.use == "nodes"
    ]
    return ids, node_input.table(np.concatenate(codes), ids.sorted_ids(), job.options)


def build(
    job: Job, batches: list[EncodedBatch], ids: Ids, table: NodeTable | None
) -> tuple[Manifest, Array | None]:
    """Sort edges into rows; return the manifest and the sorted position of each internal id."""
    options = job.options
    permutation = None
    if ids.order is not None:
        new_id = np.empty(ids.count, np.int64)
        new_id[ids.order] = np.arange(ids.count)
        permutation = job.place.scratch / "permutation.npy"
        np.save(permutation, new_id)
    bounds = ids.bounds if ids.order is None else ids.bounds[ids.order]
    shape = make_shape(
        bounds, len(job.relations), bin_edges=job.bin_edges,
        weighted=job.layout.weight is not None, time_type=time_type(job.layout),
    )
    numbering = Numbering(tuple(ids.ranges), tuple(ids.bases), job.relations, permutation)
    keep = None
    if table is not None and options.unknown_nodes == "drop":
        keep = table.row_of >= 0
        keep = keep if ids.order is None else keep[ids.order]
    trimmed = trims(options) or (keep is not None and not keep.all())
    segments, results = shuffle(job, batches, shape, numbering)
    root = job.place.scratch / "untrimmed" if trimmed else job.place.graph
    manifest = build_shards(
        job, "build rows", segments, [r["offsets"] for r in results], shape, root,
        merge=options.duplicates, hold_out=not trimmed,
    )
    order = ids.order
    job.heldout_folders |= heldout_inputs(job, batches, shape, numbering)
    renumbering = None
    if trimmed:
        manifest, renumbering = trim(job, manifest, shape, root, keep)
        order = renumbering.old_id if order is None else order[renumbering.old_id]
    heldout, files = collect_heldout(
        job.place.graph, job.heldout_folders, shape, renumbering, bool(job.relations)
    )
    job.report.heldout = heldout
    return with_files(replace(manifest, heldout=heldout), files), order


def shuffle(
    job: Job, batches: list[EncodedBatch], shape: Shape, numbering: Numbering
) -> tuple[list[Path], list[dict[str, Any]]]:
    """Send the training edges to their bins; return the folders of segments and the results."""
    train = [(i, batch) for i, batch in enumerate(batches) if batch.use == "train"]
    folders = [job.place.scratch / "segments" / f"{i:05d}" for i, _ in train]
    results = job.stage(
        "sort edges into bins", shuffle_batch,
        [(batch.folder, i, batch.rows, shape, numbering, folder)
         for (i, batch), folder in zip(train, folders, strict=True)],
        [batch.rows for _, batch in train],
        both_ways=not job.options.directed, keep_loops=job.options.self_loops == "keep",
    )
    if job.options.self_loops == "drop":
        job.report.loops_dropped = sum(result["loops"] for result in results)
    return folders, results


def build_shards(
    job: Job, title: str, segments: list[Path], offsets: list[list[int]], shape: Shape,
    root: Path, *, merge: str, hold_out: bool,
) -> Manifest:
    """Build every bin's shard under ``root``."""
    options = job.options
    holdout = None
    if hold_out and options.split_edges is not None:
        limits = np.round(np.cumsum(options.split_edges)[:2] * 2**32).astype(np.int64).tolist()
        holdout = (options.seed, (limits[0], limits[1]), options.directed)
    folders = [job.place.scratch / root.name / f"{b:05d}" for b in range(shape.bins)]
    calls = [
        (b, segments, [(o[b], o[b + 1]) for o in offsets], shape, folders[b])
        for b in range(shape.bins)
    ]
    results = job.stage(
        title, build_shard, calls, [sum(o[b + 1] - o[b] for o in offsets) for b in range(shape.bins)],
        merge=merge, holdout=holdout, root=root,
    )
    if merge != "keep":
        job.report.duplicates_merged += sum(result["merged"] for result in results)
    if holdout is not None:
        for name in ("valid", "test"):
            job.heldout_folders[name] = [folder / name for folder in folders]
    entries = [entry for result in results for entry in shard_files(result)]
    return Manifest(
        nodes=shape.nodes,
        edges=sum(result["edges"] for result in results),
        directed=options.directed,
        shards=tuple(
            ShardEntry(shape.starts[b], shape.starts[b + 1], result["edges"])
            for b, result in enumerate(results)
        ),
        dtypes=results[0]["dtypes"],
        files={entry.name: entry for entry in entries},
        relations=tuple(str(name) for name in job.relations) or None,
    )


def heldout_inputs(
    job: Job, batches: list[EncodedBatch], shape: Shape, numbering: Numbering
) -> dict[str, list[Path]]:
    """Number the edges of --valid and --test."""
    given = [(i, batch) for i, batch in enumerate(batches) if batch.use in ("valid", "test")]
    folders = [job.place.scratch / "given" / f"{i:05d}" for i, _ in given]
    job.stage(
        "number held-out edges", keep_heldout,
        [(b.folder, i, b.rows, shape, numbering, f)
         for (i, b), f in zip(given, folders, strict=True)],
        [b.rows for _, b in given],
    )
    result: dict[str, list[Path]] = {}
    for (_, batch), folder in zip(given, folders, strict=True):
        result.setdefault(batch.use, []).append(folder)
    return result


def trim(
    job: Job, manifest: Manifest, shape: Shape, root: Path, keep: Array | None
) -> tuple[Manifest, Renumbering]:
    """Drop and reorder nodes: another shuffle and build over the rows that are there."""

    names = tuple(n for n in ("indptr", "indices", *EDGE_COLUMNS) if n in manifest.dtypes)
    stored = [(root, i, entry.start, names) for i, entry in enumerate(manifest.shards)]

    def shards() -> Iterator[CSR]:
        return (load_shard(*which) for which in stored)

    chosen = choose_nodes(shards, shape.nodes, job.options, keep)
    new_id = job.place.scratch / "new_id.npy"
    np.save(new_id, chosen.new_id)
    small = make_shape(
        chosen.bounds, len(job.relations), bin_edges=job.bin_edges,
        weighted=shape.weighted, time_type=shape.time_type,
    )
    folders = [job.place.scratch / "trimmed" / f"{i:05d}" for i in range(len(manifest.shards))]
    results = job.stage(
        "drop and reorder nodes", shuffle_shard,
        [(*which, new_id, small, folder) for which, folder in zip(stored, folders, strict=True)],
        [entry.edges for entry in manifest.shards],
    )
    job.report.nodes_dropped = shape.nodes - small.nodes
    return build_shards(
        job, "build rows again", folders, [r["offsets"] for r in results], small,
        job.place.graph, merge="keep", hold_out=True,
    ), chosen


def time_type(layout: Layout) -> str | None:
    """Return the dtype in which times are kept, None without times."""
    if layout.time is None:
        return None
    return "float64" if layout.time_type == "float64" else "int64"


def with_nodes(manifest: Manifest, nodes: NodeResult) -> Manifest:
    """Return the manifest with what was written about nodes."""
    return with_files(
        replace(manifest, features=nodes.features, labels=nodes.labels, classes=nodes.classes,
                splits=nodes.splits),
        nodes.files,
    )


def with_files(manifest: Manifest, entries: list[FileEntry]) -> Manifest:
    """Return the manifest with more files listed."""
    return replace(manifest, files=manifest.files | {entry.name: entry for entry in entries})


