"""Yesterday's graph with edges added and removed: only what changes is read and written.

The edges to add and to remove are read, numbered and sorted into bins like those of any graph; the
bins are the shards of the base. A bin with changes is the base's rows joined with them; the files
of the others are linked.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR
from penstock.errors import InputError
from penstock.files import link
from penstock.graph import Graph
from penstock.manifest import Manifest
from penstock.pipelines.etl.nodes.changed import changed_nodes
from penstock.pipelines.etl.nodes.encode import Numbering
from penstock.pipelines.etl.nodes.input import NodeTable
from penstock.pipelines.etl.nodes.number import EncodedBatch, Ids, encode, merge
from penstock.pipelines.etl.reading.layout import first_moment
from penstock.pipelines.etl.writing import spill
from penstock.pipelines.etl.writing.build import Slices, build_rows, manifest_of
from penstock.pipelines.etl.writing.change import change_rows
from penstock.pipelines.etl.writing.make_rows import shuffle, trim
from penstock.pipelines.etl.writing.merge import Merging
from penstock.pipelines.etl.writing.shuffle import Shape, make_shape
from penstock.writer import write_shard

if TYPE_CHECKING:
    from penstock.pipelines.etl.job import EtlJob


def change_graph(job: EtlJob) -> Manifest:
    """Write the graph into ``job.partial.result`` and return its manifest, not yet saved."""
    assert job.base is not None
    base, before = job.base.graph, job.base.manifest
    batches, ids = encode(job), None
    new_ids = new = np.empty(0, np.int64)
    table = None
    gone = new
    if batches or job.options.nodes is not None:
        ids, table = merge(job, batches)
        new_ids, new, gone = _number(job, batches, ids, table)
    permutation = job.partial.scratch / "permutation.npy"
    np.save(permutation, new_ids)
    bounds = np.zeros(before.nodes + len(new), np.int64)
    bounds[: before.nodes] = base.degrees
    if ids is not None:
        bounds[new_ids[new_ids >= 0]] += ids.bounds[new_ids >= 0]
    shape = make_shape(
        bounds,
        len(job.relations),
        bin_edges=job.bin_edges,
        weighted="weights" in before.dtypes,
        time_type=before.dtypes.get("times"),
        cuts=job.base.cuts,
    )
    numbering = Numbering() if ids is None else ids.numbering
    numbering = replace(numbering, relations=job.relations, permutation=permutation)
    timed = None if job.options.merge_times else shape.time_type
    unweighted = replace(shape, weighted=False, time_type=timed)
    parts = {}
    for use, cut in (("train", shape), ("remove", unweighted)):
        parts[use], results = shuffle(job, batches, cut, numbering, use)
        job.counts.not_removed += sum(result["unknown"] for result in results)
        if use == "remove" and job.options.self_loops != "keep":
            job.counts.not_removed += sum(result["loops"] for result in results)
    root = job.partial.scratch / "untrimmed" if len(gone) else job.partial.result
    manifest = _write_shards(job, base, shape, unweighted, parts["train"], parts["remove"], root)
    order = np.arange(manifest.nodes)
    if len(gone):
        keep, base_ids = np.ones(manifest.nodes, bool), order.copy()
        keep[gone], base_ids[before.nodes :] = False, -1
        manifest, order = trim(job, manifest, shape, root, keep, base_ids)
        job.counts.nodes_gone = len(gone)
    if ids is not None:
        with_values = np.zeros(ids.count, bool) if table is None else table.row_of >= 0
        with_values[new] = True
        if with_values.any() or len(gone):
            at = np.flatnonzero(with_values)
            return changed_nodes(job, ids, new_ids, at, table, order, manifest)
    return _with_nodes(job, manifest)


def _number(
    job: EtlJob, batches: list[EncodedBatch], ids: Ids, table: NodeTable | None
) -> tuple[Array, Array, Array]:
    """Return the internal id of each id that was read, and the positions of new nodes among them.

    An id that is only in edges to remove is no node: -1. The third value is the internal ids of
    nodes to remove.
    """
    assert job.base is not None
    found = job.base.find(ids.named)
    named, removed = np.zeros((2, ids.count), bool)
    for number, batch in enumerate(batches):
        if batch.use in ("train", "nodes"):
            named[ids.numbering.ids(number)] = True
        elif batch.use == "remove nodes":
            removed[ids.numbering.ids(number)] = True
    gone = _gone(job, found, named, removed, ids)
    new = np.flatnonzero((found < 0) & named)
    lacking = new if table is None else new[table.row_of[new] < 0]
    may_lack = table is not None and job.options.unknown_nodes == "add"
    if len(lacking) and job.base.has_table and not may_lack:
        first = ids.named.name(int(lacking[0]))
        raise InputError(
            f"{job.base.graph.path} was made with a table of nodes, and edges to add new ones",
            got=f"{len(lacking):,} that are in none, such as {first!r}",
            remedy="Give their values as --nodes",
        )
    found[new] = job.base.manifest.nodes + np.arange(len(new))
    return found, new, gone


def _gone(job: EtlJob, found: Array, named: Array, removed: Array, ids: Ids) -> Array:
    """Return the internal ids of nodes to remove; count those that do not exist."""
    assert job.base is not None
    if (removed & named).any():
        first = ids.named.name(int(np.argmax(removed & named)))
        raise InputError(
            f"nodes of {job.options.remove_nodes} are also in edges to add, or in --nodes",
            got=f"{np.count_nonzero(removed & named):,} such, as {first!r}",
            remedy="Leave them out of one",
        )
    unknown = removed & (found < 0)
    job.counts.nodes_not_removed = int(np.count_nonzero(unknown))
    if unknown.any() and job.options.strict:
        raise InputError(
            f"{np.count_nonzero(unknown):,} nodes to remove are not in {job.base.graph.path}",
            got=f"{ids.named.name(int(np.argmax(unknown)))!r} first",
            remedy="Leave them out, or give no --strict",
        )
    return found[removed & ~unknown]


def change_shard(
    number: int,
    start: int,
    stop: int,
    added: Slices,
    gone: Slices,
    *,
    base: Path,
    shape: Shape,
    unweighted: Shape,
    merging: Merging,
    since: float | None,
    root: Path,
    done: Path,
) -> dict[str, Any]:
    """Write the shard of rows ``start:stop``, some of a shard of the base or all new; a step for
    ``once``.

    since  the least time of edges that stay
    """

    def make(folder: Path) -> dict[str, Any]:
        rows = _base_rows(Graph.open(base), start, stop, shape)
        joining, _ = build_rows(added, number, shape, merging)
        first = Merging("first", merging.times, merging.directions)
        leaving, _ = build_rows(gone, number, unweighted, first)
        changed, counts = change_rows(rows, leaving, joining, merging, since)
        return counts | write_shard(root, number, changed)

    return spill.once(done / f"{number:05d}", make)


def _base_rows(base: Graph, start: int, stop: int, shape: Shape) -> CSR:
    if start < base.manifest.nodes:
        shard = base.shard(sum(one.stop <= start for one in base.manifest.shards))
        last = shard.first_row + shard.rows
        found = shard.row_range(start - shard.first_row, min(stop, last) - shard.first_row)
        new = np.full(max(stop - last, 0), found.edges)
        return replace(found, indptr=np.append(found.indptr, new))
    names = {"weights": "float32", "relations": "int32", "times": shape.time_type}
    kinds = base.manifest.dtypes
    empty = {name: np.empty(0, kind) for name, kind in names.items() if name in kinds}
    indptr = np.zeros(stop - start + 1, np.int64)
    return CSR(indptr, np.empty(0, shape.dtype), first_row=start, **empty)


def _write_shards(
    job: EtlJob,
    base: Graph,
    shape: Shape,
    unweighted: Shape,
    added: list[Slices],
    gone: list[Slices],
    root: Path,
) -> Manifest:
    """Write or link the shard of each bin below ``root``."""
    whole = {(one.start, one.stop): number for number, one in enumerate(base.manifest.shards)}
    bounds = list(pairwise(shape.starts))
    results: dict[int, dict[str, Any]] = {}
    same = np.dtype(base.manifest.dtypes["indices"]) == shape.dtype
    since = None
    if job.options.window is not None:
        since = first_moment(job.options, job.layout.time_type)
    changed = []
    for one, rows in enumerate(bounds):
        stays = same and rows in whole and not added[one].count and not gone[one].count
        if stays and not _has_older(base, whole[rows], since):
            results[one] = _link_shard(root, one, base, whole[rows])
        else:
            changed.append(one)
    made = job.connected.tasks(
        "change rows",
        change_shard,
        [(one, *bounds[one], added[one], gone[one]) for one in changed],
        [added[one].count + gone[one].count for one in changed],
        "edges",
        base=base.path,
        shape=shape,
        unweighted=unweighted,
        merging=Merging.of(job.options),
        since=since,
        root=root,
        done=job.partial.scratch / "changed",
    )
    counts = job.counts
    for one, result in zip(changed, made, strict=True):
        results[one] = result
        counts.added += result["added"]
        counts.removed += result["removed"]
        counts.left_window += result["left"]
        counts.not_removed += result["not_removed"]
        counts.duplicates_merged += result["merged"]
    if counts.not_removed and job.options.strict:
        raise InputError(
            f"{counts.not_removed} edges to remove are not in {base.path}",
            remedy="Leave them out, or give no --strict",
        )
    return manifest_of(job, [results[one] for one in range(len(bounds))])


def _has_older(base: Graph, number: int, since: float | None) -> bool:
    """Return whether a shard of the base has edges before a time."""
    if since is None:
        return False
    times = base.shard(number).times
    assert times is not None, "checked before"
    return len(times) > 0 and bool(times.min() < since)


def _link_shard(root: Path, number: int, base: Graph, old: int) -> dict[str, Any]:
    """Link the files of a shard of the base, and return its manifest's values."""
    files, prefix = [], f"shards/{old:05d}/"
    for name, entry in base.manifest.files.items():
        if name.startswith(prefix):
            new = f"shards/{number:05d}/{name.removeprefix(prefix)}"
            link(base.path / name, root / new)
            files.append(vars(replace(entry, name=new)))
    shard, dtypes = base.manifest.shards[old], dict(base.manifest.dtypes)
    rows = shard.stop - shard.start
    return {"rows": rows, "edges": shard.edges, "files": files, "dtypes": dtypes}


def _with_nodes(job: EtlJob, manifest: Manifest) -> Manifest:
    """Link the nodes of the base, and their features."""
    assert job.base is not None
    before, base = job.base.manifest, job.base.graph
    names = [name for name in before.files if name.startswith("features/")]
    names.append(base.ids_file.name)
    for name in names:
        link(base.path / name, job.partial.result / name)
    manifest = replace(manifest, **job.base.attributes, types=before.types, times=before.times)
    return manifest.with_files([before.files[name] for name in names])
