"""A bin becomes a shard: its segments of all batches are sorted, merged and cut into rows.

Edges that are held out, of all shards or of files, become one array per column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.csr import CSR, offsets_of
from penstock.files import FileEntry, save_npy
from penstock.graph import load_npy
from penstock.manifest import Manifest
from penstock.pipelines.etl.nodes.encode import Numbering
from penstock.pipelines.etl.nodes.number import EncodedBatch
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.writing import spill
from penstock.pipelines.etl.writing.merge import Merging, rows_of_keys
from penstock.pipelines.etl.writing.shuffle import Edges, Shape, read_batch
from penstock.sizes import need_memory
from penstock.splits import split_edges
from penstock.workers.resources.device import to_device
from penstock.writer import with_shards, write_shard

if TYPE_CHECKING:
    from penstock.pipelines.etl.job import EtlJob

# Bytes per edge of a bin while it is built: keys three times, order, columns, rows.
EDGE_BYTES = 64


@dataclass(frozen=True)
class EdgeSplit:
    """How edges draw their split.

    keys  a file: (nodes,) uint64 of the user's ids; relations: the same of their names
    cuts  of a split by time: the first times of edges for validation and for test
    """

    options: EtlOptions
    keys: Path
    relations: Array | None
    cuts: tuple[Any, ...] | None = None


def build_shard(
    number: int,
    read: Slices,
    shape: Shape,
    folder: Path,
    *,
    merging: Merging,
    split: EdgeSplit | None,
    root: Path,
) -> dict[str, Any]:
    """Write shard ``number`` from its bin; a step for ``once``.

    split  None: all edges are in the shard
    """

    def make(folder: Path) -> dict[str, Any]:
        csr, pairs = build_rows(read, number, shape, merging)
        merged = read.count - csr.edges
        result = {"merged": merged, "pairs": pairs}
        if split is not None:
            csr, apart = _hold_out(csr, split)
            for name, edges in apart.items():
                (folder / name).mkdir()
                for column, values in edges.arrays().items():
                    spill.put(folder / name, column, values)
        return result | write_shard(root, number, csr)

    return spill.once(folder, make)


def manifest_of(job: EtlJob, written: list[dict[str, Any]]) -> Manifest:
    """Return the manifest of the shards that ``write_shard`` returned."""
    directed, relations = bool(job.options.directed), tuple(str(name) for name in job.relations)
    times = job.layout.time_kind
    empty = Manifest(0, 0, directed, (), {}, {}, times=times, relations=relations or None)
    return with_shards(empty, written)


class Slices:
    """Slices of columns that lie in several folders: a bin, in the segments of all batches.

    parts  folder, start and stop of each
    """

    def __init__(self, parts: Iterable[tuple[Path, int, int]]) -> None:
        self.parts = [(folder, start, stop) for folder, start, stop in parts if stop > start]
        self.count = sum(stop - start for _, start, stop in self.parts)

    def read(self, name: str, dtype: Any) -> Array:
        """Return a column."""
        # Filled in place: concatenating would hold everything twice.
        whole = np.empty(self.count, dtype)
        at = 0
        for folder, start, stop in self.parts:
            whole[at : at + stop - start] = spill.take(
                folder, name, dtype, start=start, count=stop - start
            )
            at += stop - start
        return whole


def bins_of(bins: int, folders: list[Path], offsets: Iterable[Sequence[int]]) -> list[Slices]:
    """Return the bins of segments, given the offsets of the bins in each folder."""
    found = list(zip(folders, offsets, strict=True))
    return [Slices((one, at[i], at[i + 1]) for one, at in found) for i in range(bins)]


def build_rows(read: Slices, number: int, shape: Shape, merging: Merging) -> tuple[CSR, int]:
    """Return the rows of a bin, and how many of their edges are listed in both directions."""

    def reader(name: str, dtype: str) -> Callable[[], Any]:
        return lambda: to_device(read.read(name, dtype))

    built, pairs = rows_of_keys(
        to_device(read.read("keys", np.uint64)),
        shape.rows(number),
        shape.target_bits,
        shape.relation_bits,
        {name: reader(name, dtype) for name, dtype in shape.payloads()},
        merging,
        first_row=shape.starts[number],
    )
    return replace(built, indices=built.indices.astype(shape.dtype, copy=False)), pairs


def _hold_out(csr: CSR, split: EdgeSplit) -> tuple[CSR, dict[str, Edges]]:
    sources, options = csr.sources(), split.options
    assert options.split_edges is not None
    if split.cuts is not None:
        assert csr.times is not None
        valid, test = ((csr.times >= cut).astype(np.int8) for cut in split.cuts)
        splits = valid + test
    else:
        keys, named = load_npy(split.keys), None
        if csr.relations is not None and split.relations is not None:
            named = split.relations.astype(np.uint32)[csr.relations]
        splits = split_edges(
            keys[sources],
            keys[csr.indices],
            named,
            options.split_edges,
            options.seed,
            directed=bool(options.directed),
        )
    apart = {}
    for value, name in ((1, "valid"), (2, "test")):
        mask = splits == value
        if not options.directed:
            mask &= sources <= csr.indices  # one direction represents both
        columns = {n: a[mask] for n, a in csr.columns() if n != "relations"}
        relations = None if csr.relations is None else csr.relations[mask]
        apart[name] = Edges(sources[mask], csr.indices[mask], relations, columns)
    keep = splits == 0
    kept_before = offsets_of(keep)
    kept = {name: array[keep] for name, array in csr.arrays() if name != "indptr"}
    return replace(csr, indptr=kept_before[csr.indptr], **kept), apart


def write_heldout(
    job: EtlJob, batches: list[EncodedBatch], shape: Shape, numbering: Numbering
) -> tuple[dict[str, int], list[FileEntry]]:
    """Write ``heldout/<name>``; return the number of edges of each, and the files.

    Edges are those that ``build_shard`` held out, or those of --valid and --test.
    """
    counts: dict[str, int] = {}
    files: list[FileEntry] = []
    columns: list[tuple[str, Any]] = [("sources", shape.dtype), ("targets", shape.dtype)]
    columns += [("relations", "int32")] if job.relations else []
    columns += shape.payloads()
    for name in ("test", "valid"):
        given = [(number, one) for number, one in enumerate(batches) if one.use == name]
        drawn = [folder / name for folder in job.heldout]
        if not (given or drawn):
            continue
        folders = [*drawn, *(batch.folder for _, batch in given)]
        size = sum(file.stat().st_size for one in folders for file in one.glob("*.raw"))
        need_memory(2 * size, f"the held-out {name} edges", remedy="Hold out fewer edges")
        parts = [{c: spill.take(one, c, dtype) for c, dtype in columns} for one in drawn]
        for number, batch in given:
            edges = read_batch(batch.folder, number, batch.rows, shape, numbering)
            parts.append(edges.arrays())
        for column, _ in columns:
            whole = np.concatenate([part[column] for part in parts])
            files.append(save_npy(job.partial.result, f"heldout/{name}/{column}.npy", whole))
        counts[name] = sum(len(part["sources"]) for part in parts)
    return counts, files
