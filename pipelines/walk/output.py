"""The output of walks: files of a Parquet dataset, blocks for word2vec, and a final _walks.json.

_walks.json           the options, the method, and the files
_rows.npy             for --base: 64 bits of each row of the graph
_visits-00000.npy     for --base: a bit per node, or per several nodes, that walks of a file visit
part-00000.parquet    walk (int64), path (list of ids): walks in order, one range per file
_block-00000.npy      (walks, length) internal ids, -1 beyond the end: with --npy
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow, take
from penstock.files import (
    FileEntry,
    FileRanges,
    file_table,
    link,
    part_name,
    save_npy,
)
from penstock.formats import Format
from penstock.graph import Graph, load_npy
from penstock.output import Output, Pieces
from penstock.writer import write_table

FORMAT = Format(
    name="penstock-walks",
    version=1,
    file="_walks.json",
    thing="directory of walks",
    make="Make one with penstock walk",
    restore="Restore the file, or walk again with --overwrite",
)

# Ids per file: large enough for full speed, small enough that many workers have some.
FILE_IDS = (1 << 18, 1 << 24)
_FILES = 64


def files_of(walks: int, length: int) -> FileRanges:
    """Return how walks are spread over files."""
    low, high = FILE_IDS
    ids = min(max(walks * length // _FILES, low), high)
    return FileRanges(walks, max(1, ids // length))


@dataclass(frozen=True)
class WalkWriter:
    """Writes the files of one job, from any process, repeatedly.

    pieces   their folder, and the record of complete ones
    graph    for the user's ids, or None if paths hold internal ids; version: of the graph
    nodes    of the graph; step: how many have a bit of the visits
    """

    pieces: Pieces
    graph: Path | None
    version: str
    npy: bool
    nodes: int
    step: int

    def __call__(self, number: int, first: int, paths: Array) -> None:
        """Write the walks from ``first`` on: (walks, length) ids, -1 beyond the end."""
        files = [self._parquet(number, first, paths), self._visits(number, paths)]
        if self.npy:
            files.append(save_npy(self.pieces.result, block_name(number), paths))
        counts = {"walks": len(paths), "nodes": int(np.count_nonzero(paths >= 0))}
        self.pieces.save(part_name(number), {**counts, "kept": 0, "linked": 0}, files)

    def link(
        self, number: int, folder: Path, counts: dict[str, int], files: list[FileEntry]
    ) -> None:
        """Take over the files of an earlier output in ``folder``; no walk in them visits a node
        that is gone.
        """
        for entry in files:
            link(folder / entry.name, self.pieces.result / entry.name)
        visits = np.zeros(-(-self.nodes // (8 * self.step)), np.uint8)  # of today's nodes
        before = load_npy(folder / visits_name(number), remedy=FORMAT.restore)[: len(visits)]
        visits[: len(before)] = before
        files = [*files, save_npy(self.pieces.result, visits_name(number), visits)]
        about = {**counts, "kept": counts["walks"], "linked": 1}
        self.pieces.save(part_name(number), about, files)

    def done(self, number: int) -> bool:
        """Return whether a file is complete."""
        return self.pieces.done(part_name(number))

    def _parquet(self, number: int, first: int, paths: Array) -> FileEntry:
        import pyarrow as pa

        name = f"{part_name(number)}.parquet"
        there = paths >= 0
        offsets = np.zeros(len(paths) + 1, np.int32)
        np.cumsum(there.sum(axis=1), out=offsets[1:])
        ids = self._named(paths[there])
        numbers = np.arange(first, first + len(paths), dtype=np.int64)
        lists = pa.ListArray.from_arrays(as_arrow(offsets), ids)
        table = pa.table({"walk": as_arrow(numbers), "path": lists})
        # Ids of walks repeat too little for dictionaries to pay; as differences, numbers are
        # written and read in less than half the time.
        words = pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)
        encoding: dict[str, Any] = {"use_dictionary": ["path.list.element"] if words else False}
        if pa.types.is_integer(ids.type):
            columns = ("walk", "path.list.element")
            encoding["column_encoding"] = dict.fromkeys(columns, "DELTA_BINARY_PACKED")
        return write_table(self.pieces.result, name, [table], **encoding)

    def _visits(self, number: int, paths: Array) -> FileEntry:
        visited = np.zeros(-(-self.nodes // self.step) + 1, bool)
        visited[paths if self.step == 1 else paths // self.step] = True  # -1: the last
        return save_npy(self.pieces.result, visits_name(number), np.packbits(visited[:-1]))

    def _named(self, nodes: Array) -> Any:
        if self.graph is None:
            return as_arrow(nodes)
        key = ("user ids", str(self.graph), self.version)
        from penstock.workers.plugin import resources

        with resources().cache.hold(key, self._ids) as ids:
            return take(ids, nodes)

    def _ids(self) -> Any:
        assert self.graph is not None
        ids = Graph.open(self.graph).user_ids()
        return ids.combine_chunks() if ids.num_chunks != 1 else ids.chunk(0)


def block_name(number: int) -> str:
    """Return the name of a block of internal ids."""
    return f"_block-{number:05d}.npy"


def visits_name(number: int) -> str:
    """Return the name of the file of visits of a part."""
    return f"_visits-{number:05d}.npy"


def step_of(nodes: int, files: FileRanges, length: int) -> int:
    """Return how many nodes have a bit of the visits: these take at most a bit per id."""
    return max(1, -(-nodes // (files.each * length)))


def save_manifest(
    out: Output, writer: WalkWriter, files: FileRanges, rows: FileEntry, about: dict[str, Any]
) -> dict[str, int]:
    """Write _walks.json, and return the counts of the walks."""
    total, entries, listed = Counter[str](), [rows], []
    for number in range(files.count):
        counts, written = writer.pieces.load(part_name(number))
        total.update(counts)
        part = {name: counts[name] for name in ("walks", "nodes")}
        listed.append({"first": files.range(number)[0], **part})
        entries += written
    body = {**about, "walks": total["walks"], "nodes": total["nodes"], "parts": listed}
    out.describe(FORMAT, {**body, "files": file_table(entries)})
    return {**total, "bytes": sum(entry.bytes for entry in entries)}
