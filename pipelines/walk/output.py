"""Where walks go: parts of a Parquet dataset, blocks for word2vec, and _walks.json, written last.

_walks.json           what was walked, how, and which files hold it
part-00000.parquet    walk (int64), path (list of ids): walks in order, a range a part
_block-00000.npy      (walks, length) internal ids, -1 beyond the end: with --npy
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow, take
from penstock.files import FileEntry, atomic, file_entry, save_json, save_npy
from penstock.graph import Graph
from penstock.workers.plugin import resources

FORMAT = "penstock-walks"
VERSION = 1
KIND = "walks"

# A part has about this many ids: large enough for full speed, small enough that many workers
# have some. It follows from the job alone, so that any cluster writes the same parts.
_PART_IDS = (1 << 18, 1 << 24)
_PARTS = 64


@dataclass(frozen=True)
class Parts:
    """How the walks of a job are cut into parts."""

    walks: int
    per_part: int

    @staticmethod
    def of(walks: int, length: int) -> Parts:
        """Return the cut that follows from how much there is."""
        low, high = _PART_IDS
        ids = min(max(walks * length // _PARTS, low), high)
        return Parts(walks, max(1, ids // length))

    @property
    def count(self) -> int:
        """How many parts."""
        return -(-self.walks // self.per_part)

    def range(self, number: int) -> tuple[int, int]:
        """Return the walks of a part: first, and one after the last."""
        first = number * self.per_part
        return first, min(self.walks, first + self.per_part)


@dataclass(frozen=True)
class WalkWriter:
    """Writes the parts of one job, from any process, any number of times.

    folder  where they appear; records  where it is noted that a part is whole, and what it counts
    graph   for the user's ids, or None where paths hold internal ids; version: of the graph
    """

    folder: Path
    records: Path
    graph: Path | None
    version: str
    npy: bool

    def __call__(self, number: int, first: int, paths: Array) -> None:
        """Write the walks from ``first`` on: (walks, length) ids, -1 beyond the end."""
        files = [self._parquet(number, first, paths)]
        if self.npy:
            files.append(save_npy(self.folder, f"_block-{number:05d}.npy", paths))
        nodes = int(np.count_nonzero(paths >= 0))
        record = {"walks": len(paths), "nodes": nodes, "files": [asdict(file) for file in files]}
        save_json(self.records / f"part-{number:05d}.json", record)

    def done(self, number: int) -> bool:
        """Return whether a part is whole."""
        try:
            record = self.record(number)
        except (OSError, ValueError, KeyError):
            return False
        paths = [(self.folder / file.name, file.bytes) for file in record[1]]
        return all(path.is_file() and path.stat().st_size == size for path, size in paths)

    def record(self, number: int) -> tuple[dict[str, int], list[FileEntry]]:
        """Return what a part counts, and its files."""
        text = (self.records / f"part-{number:05d}.json").read_text()
        body = json.loads(text)
        files = [FileEntry(**file) for file in body.pop("files")]
        return body, files

    def _parquet(self, number: int, first: int, paths: Array) -> FileEntry:
        import pyarrow as pa
        import pyarrow.parquet as pq

        name = f"part-{number:05d}.parquet"
        there = paths >= 0
        offsets = np.zeros(len(paths) + 1, np.int32)
        np.cumsum(there.sum(axis=1), out=offsets[1:])
        ids = self._named(paths[there])
        numbers = np.arange(first, first + len(paths), dtype=np.int64)
        lists = pa.ListArray.from_arrays(as_arrow(offsets), ids)
        table = pa.table({"walk": as_arrow(numbers), "path": lists})
        # Ids of walks repeat too little for dictionaries of numbers to pay.
        words = pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)
        columns = ["path.list.element"] if words else False
        with atomic(self.folder / name) as temporary:
            pq.write_table(table, temporary, compression="zstd", use_dictionary=columns)
        return file_entry(self.folder, name)

    def _named(self, nodes: Array) -> Any:
        if self.graph is None:
            return as_arrow(nodes)
        key = ("user ids", str(self.graph), self.version)
        with resources().cache.hold(key, self._ids) as ids:
            return take(ids, nodes)

    def _ids(self) -> Any:
        assert self.graph is not None
        ids = Graph.open(self.graph).user_ids()
        return ids.combine_chunks() if ids.num_chunks != 1 else ids.chunk(0)


def save_manifest(writer: WalkWriter, parts: Parts, about: dict[str, Any]) -> dict[str, int]:
    """Write _walks.json, after which the walks are whole, and return what they count."""
    total, files, listed = {"walks": 0, "nodes": 0}, [], []
    for number in range(parts.count):
        counts, entries = writer.record(number)
        listed.append({"first": parts.range(number)[0], **counts})
        files += entries
        for name in total:
            total[name] += counts[name]
    body = {
        "format": FORMAT,
        "version": VERSION,
        **about,
        **total,
        "parts": listed,
        "files": {file.name: {"bytes": file.bytes, "sha256": file.sha256} for file in files},
    }
    save_json(writer.folder / f"_{KIND}.json", body)
    return total | {"bytes": sum(file.bytes for file in files)}
