"""Everything is read once, and every node gets its number: the first two steps of ETL."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import offsets_of
from penstock.errors import InputError
from penstock.pipelines.etl.nodes.encode import (
    Numbering,
    choose_splitters,
    encode_batch,
    merge_ids,
    types_in,
)
from penstock.pipelines.etl.nodes.input import NodeTable, encode_node_table, encode_removed
from penstock.pipelines.etl.nodes.sorted_ids import NodeIds, SortedIds
from penstock.pipelines.etl.writing import spill
from penstock.pipelines.etl.writing.trim import NODE_BYTES
from penstock.pipelines.tables.sources import find_files
from penstock.sizes import need_memory

if TYPE_CHECKING:
    from penstock.pipelines.etl.job import EtlJob
    from penstock.pipelines.etl.options import EtlOptions

ID_BYTES = 64  # memory of one id while a range of ids is made distinct
_SMALL_IDS = 4 << 20  # up to these bytes one task is faster than the start of several


@dataclass
class EncodedBatch:
    """A spilled batch and the purpose of its edges."""

    folder: Path
    rows: int
    use: str  # train, valid, test, remove, nodes or remove nodes


@dataclass
class Ids:
    """All ids in ranges, ascending within a type, and the order of internal ids."""

    numbering: Numbering
    count: int
    bounds: Array  # (count,) by sorted position: bound of each node's degree
    types: list[str] | None  # of each range; None: nodes have none
    unsigned: bool
    order: Array | None = None  # internal id -> sorted position, None: the same
    base_ids: Array | None = None  # (count,) by internal id: that of the base, -1 if it has none

    def reorder(self, order: Array) -> None:
        """Give the node with the internal id ``order[i]`` the internal id ``i``; drop others."""
        self.order = order if self.order is None else self.order[order]
        self.base_ids = None if self.base_ids is None else self.base_ids[order]

    def ordered(self, values: Array) -> Array:
        """Return values by internal id, given by sorted position."""
        return values if self.order is None else values[self.order]

    def numbered(self, relations: tuple[Any, ...], file: Path) -> Numbering:
        """Return how codes of batches become internal ids; their order may need a ``file``."""
        if self.order is None:
            return replace(self.numbering, relations=relations)
        new_id = np.full(self.count, -1, np.int64)
        new_id[self.order] = np.arange(len(self.order))
        np.save(file, new_id)
        return replace(self.numbering, relations=relations, permutation=file)

    @cached_property
    def named(self) -> NodeIds:
        """The user's ids, mapped, and the names of nodes."""
        ranges = [SortedIds.load(folder) for folder in self.numbering.ranges]
        return NodeIds(ranges, self.types, unsigned=self.unsigned)


def encode(job: EtlJob) -> list[EncodedBatch]:
    """Read all edges once, and ids of nodes to remove: batches with codes for ids."""
    batches, new, times = [], set(), []
    for use, folder, result in job.read(encode_batch):
        new |= set() if use == "remove" else set(result["relations"])
        times += [one["times"] for one in result["kept"] if use == "train" and "times" in one]
        batches += [
            EncodedBatch(folder / f"{n:03d}", rows, use) for n, rows in enumerate(result["rows"])
        ]
    if job.options.remove_nodes is not None:
        removed = job.partial.scratch / "removed nodes"
        for folder, batch in encode_removed(job.options, job.layout.id_type, removed):
            job.counts.count_bad([vars(bad) for bad in batch.bad], batch.bad_count)
            batches.append(EncodedBatch(folder, 0, "remove nodes"))
    if job.options.split_edges is not None and job.options.split_edges_by == "time":
        job.time_cuts = _time_cuts(times, job.options)
    if job.base is not None:
        text = not job.relations or type(job.relations[0]) is str
        job.relations = job.base.relations(new, text=text)
    if not job.changes and not any(batch.rows for batch in batches):
        raise InputError(
            "there are no edges to make a graph of", got=f"{job.counts.rows_read} rows, none usable"
        )
    return batches


def _time_cuts(spread: list[tuple[int, list[Any]]], options: EtlOptions) -> tuple[Any, ...]:
    """Return the times from which edges validate and test."""
    assert options.split_edges is not None
    times = np.concatenate([np.array(some) for _, some in spread])
    weights = np.concatenate([np.full(len(some), count / len(some)) for count, some in spread])
    order = np.argsort(times, kind="stable")
    before = np.cumsum(weights[order]) - weights[order]
    wanted = np.cumsum(options.split_edges[:2]) * weights.sum()
    at = np.searchsorted(before, wanted - 1e-9 * weights.sum())
    valid, test = (times[order][i].item() if i < len(times) else math.inf for i in at.tolist())
    if valid <= times.min():
        raise InputError(
            "--split-edges-by time leaves no edge to train: too many have the oldest time",
            expected="times that differ, or a smaller fraction to train",
        )
    return valid, test


def merge(job: EtlJob, batches: list[EncodedBatch]) -> tuple[Ids, NodeTable | None]:
    """Number all ids; read the node table and check that it fits the edges."""
    matrices = find_files(job.edges, "npz") if job.format == "npz" else []
    table = encode_node_table(job.options, job.layout, matrices, job.partial.scratch / "nodes")
    if table is not None:
        job.counts.count_bad(table.bad, table.bad_count)
        batches += [EncodedBatch(folder, 0, "nodes") for folder in table.folders]
    folders = [batch.folder for batch in batches]
    size = sum(p.stat().st_size for f in folders for p in f.glob("ids.*"))
    needed = math.ceil(size * ID_BYTES / 8 / (job.capacity.task_memory * 0.4))
    ranges = job.chosen("id-ranges", max(needed, job.capacity.tasks if size > _SMALL_IDS else 1))
    parts = list(_ranges(folders, ranges))
    kept = [job.partial.scratch / "ids" / f"{i:05d}" for i in range(len(parts))]
    results = job.connected.tasks(
        "merge ids",
        merge_ids,
        [(folders, *part, folder) for part, folder in zip(parts, kept, strict=True)],
        [size // len(kept)] * len(kept),
        "B",
    )
    sizes = [result["ids"] for result in results]
    count = sum(sizes)
    need_memory(
        count * NODE_BYTES,
        f"the numbering of {count} nodes",
        remedy="Run this command on a machine with more memory",
    )
    numbering = Numbering(tuple(kept), tuple(offsets_of(np.array(sizes))[:-1].tolist()))
    bounds = np.concatenate([spill.take(folder, "counts", np.int64) for folder in kept])
    types = [kind for kind, _, _ in parts if kind is not None] or None
    if types is None:
        job.counts.ids_of_both_ends = sum(result["both"] for result in results)
    ids = Ids(numbering, count, bounds, types, job.layout.id_type == "uint64")
    if table is None:
        return ids, None
    codes = [
        ids.numbering.ids(i)[spill.take(batch.folder, "codes", np.int32)]
        for i, batch in enumerate(batches)
        if batch.use == "nodes"
    ]
    table.find(np.concatenate(codes), ids.named, job.options, whole=not job.changes)
    return ids, table


def _ranges(batches: list[Path], ranges: int) -> Iterator[tuple[str | None, Any, Any]]:
    """Cut all ids into about this many ranges: type, first id, and first id of the next."""
    sizes: Counter[str | None] = Counter()
    for batch in batches:
        sizes.update({kind: stop - start for kind, (start, stop) in types_in(batch).items()})
    for kind, size in sorted(sizes.items(), key=lambda one: str(one[0])):
        share = max(1, round(ranges * size / max(1, sizes.total())))
        cuts = [None, *choose_splitters(batches, kind, share), None]
        yield from ((kind, low, high) for low, high in pairwise(cuts))
