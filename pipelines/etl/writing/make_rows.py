"""The steps of one graph: read, number nodes, make rows, write node data.

Every step is a set of independent Dask tasks, which read what the step before left on disk. The
client holds a few numbers per node; edges stay with the workers. Edges become rows in a shuffle and
a build; if nodes are dropped, in another shuffle and build.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.kernels.streams import Stream
from penstock.manifest import Manifest
from penstock.pipelines.etl.base import stable_order
from penstock.pipelines.etl.nodes.data import write_node_data
from penstock.pipelines.etl.nodes.encode import Numbering
from penstock.pipelines.etl.nodes.number import EncodedBatch, Ids, encode, merge
from penstock.pipelines.etl.writing.build import (
    EdgeSplit,
    Slices,
    bins_of,
    build_shard,
    manifest_of,
    write_heldout,
)
from penstock.pipelines.etl.writing.merge import Merging
from penstock.pipelines.etl.writing.shuffle import Shape, make_shape, shuffle_batch
from penstock.pipelines.etl.writing.trim import choose_nodes, load_shard, shuffle_shard, trims
from penstock.sizes import need_memory
from penstock.splits import id_keys

if TYPE_CHECKING:
    from penstock.pipelines.etl.job import EtlJob


def build_graph(job: EtlJob) -> Manifest:
    """Write the graph into ``job.partial.result`` and return its manifest, not yet saved."""
    options, root = job.options, job.partial.result
    batches = encode(job)
    ids, table = merge(job, batches)
    if job.base is not None:
        ids.base_ids = job.base.find(ids.named)
    if options.relabel == "random":
        from penstock.kernels.cpu.philox import random_keys

        need_memory(ids.count * 32, "the permutation of all nodes", remedy="Use --relabel sorted")
        keys = random_keys(options.seed, Stream.PERMUTE_NODES, 0, ids.count)
        ids.reorder(np.argsort(keys, kind="stable"))
    keep = None
    if table is not None and options.unknown_nodes == "drop":
        keep = ids.ordered(table.row_of >= 0)
    trimmed = trims(options) or (keep is not None and not keep.all())
    if ids.base_ids is not None and not trimmed:
        ids.reorder(stable_order(ids.base_ids))
    shape = _shape(job, ids.ordered(ids.bounds))
    numbering = ids.numbered(job.relations, job.partial.scratch / "permutation.npy")
    bins, _ = shuffle(job, batches, shape, numbering)
    if trimmed:
        untrimmed = job.partial.scratch / "untrimmed"
        manifest = build_shards(job, "build rows", bins, shape, untrimmed, Merging.of(options))
        manifest, _ = trim(job, manifest, shape, untrimmed, keep, ids.base_ids, ids)
        job.counts.nodes_dropped = shape.nodes - manifest.nodes
        numbering = ids.numbered(job.relations, job.partial.scratch / "trimmed.npy")
    else:
        manifest = build_shards(job, "build rows", bins, shape, root, Merging.of(options), ids)
    job.counts.heldout, files = write_heldout(job, batches, shape, numbering)
    manifest = replace(manifest, heldout=job.counts.heldout).with_files(files)
    if job.base is not None and ids.base_ids is not None:
        kept = int(np.count_nonzero(ids.base_ids >= 0))
        job.counts.nodes_added = manifest.nodes - kept
        job.counts.nodes_gone = job.base.manifest.nodes - kept
    return write_node_data(job, root, ids.named, ids.order, table, manifest)


def _shape(job: EtlJob, bounds: Array, before: Shape | None = None) -> Shape:
    return make_shape(
        bounds,
        len(job.relations),
        bin_edges=job.bin_edges,
        weighted=job.layout.weight is not None if before is None else before.weighted,
        time_type=job.layout.time_dtype if before is None else before.time_type,
        cuts=() if job.base is None else job.base.cuts,
    )


def shuffle(
    job: EtlJob, batches: list[EncodedBatch], shape: Shape, numbering: Numbering, use: str = "train"
) -> tuple[list[Slices], list[dict[str, Any]]]:
    """Send edges to their bins; return these, and the results."""
    chosen = [(i, batch) for i, batch in enumerate(batches) if batch.use == use]
    folders = [job.partial.scratch / "segments" / f"{i:05d}" for i, _ in chosen]
    results = job.connected.tasks(
        "sort edges into bins",
        shuffle_batch,
        [
            (batch.folder, i, batch.rows, shape, numbering, folder)
            for (i, batch), folder in zip(chosen, folders, strict=True)
        ],
        [batch.rows for _, batch in chosen],
        "edges",
        both_ways=not job.options.directed,
        keep_loops=job.options.self_loops == "keep",
    )
    if use == "train":
        loops = sum(result["loops"] for result in results)
        job.counts.count_loops(loops, kept=job.options.self_loops == "keep")
    return bins_of(shape.bins, folders, [result["offsets"] for result in results]), results


def build_shards(
    job: EtlJob,
    title: str,
    bins: list[Slices],
    shape: Shape,
    root: Path,
    merging: Merging,
    ids: Ids | None = None,
) -> Manifest:
    """Build every bin's shard under ``root``.

    ids  of the nodes, which decide the split of edges; None: all edges stay
    """
    options = job.options
    split = None
    if ids is not None and options.split_edges is not None:
        path = job.partial.scratch / f"{root.name}-keys.npy"
        np.save(path, ids.ordered(ids.named.keys()))
        names = id_keys(pa.array(job.relations)) if job.relations else None
        split = EdgeSplit(options, path, names, job.time_cuts)
    folders = [job.partial.scratch / root.name / f"{b:05d}" for b in range(shape.bins)]
    results = job.connected.tasks(
        title,
        build_shard,
        [(b, bins[b], shape, folders[b]) for b in range(shape.bins)],
        [one.count for one in bins],
        "edges",
        merging=merging,
        split=split,
        root=root,
    )
    if merging.how != "keep":
        job.counts.duplicates_merged += sum(result["merged"] for result in results)
    # Each is in the rows of both of its ends.
    job.counts.in_both_directions += sum(result["pairs"] for result in results) // 2
    if split is not None:
        job.heldout = folders
    return manifest_of(job, results)


def trim(
    job: EtlJob,
    manifest: Manifest,
    shape: Shape,
    root: Path,
    keep: Array | None,
    base_ids: Array | None,
    ids: Ids | None = None,
) -> tuple[Manifest, Array]:
    """Drop and reorder nodes: another shuffle and build over the rows that exist.

    ids  of the nodes, which get the new order
    ->   also the id that each node had: (nodes,)
    """
    stored = [(root, i, entry.start) for i, entry in enumerate(manifest.shards)]

    def shards() -> Iterator[CSR]:
        return (load_shard(*which) for which in stored)

    chosen = choose_nodes(shards, shape.nodes, job.options, keep, base_ids)
    if ids is not None:
        ids.reorder(chosen.old_id)
    new_id = job.partial.scratch / "new_id.npy"
    np.save(new_id, chosen.new_id)
    small = _shape(job, chosen.bounds, shape)
    folders = [job.partial.scratch / "trimmed" / f"{i:05d}" for i in range(len(manifest.shards))]
    results = job.connected.tasks(
        "drop and reorder nodes",
        shuffle_shard,
        [(*which, new_id, small, folder) for which, folder in zip(stored, folders, strict=True)],
        [entry.edges for entry in manifest.shards],
        "edges",
    )
    bins = bins_of(small.bins, folders, [result["offsets"] for result in results])
    result, keeping = job.partial.result, Merging("keep")
    return build_shards(job, "build rows again", bins, small, result, keeping, ids), chosen.old_id
