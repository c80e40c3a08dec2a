"""One run of ETL as its stages see it: what was asked for, where it works, what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from penstock.arrays import Array
from penstock.files import FileEntry
from penstock.manifest import Manifest
from penstock.pipelines.etl.nodes.sorted_ids import SortedIds
from penstock.pipelines.etl.options import EtlOptions
from penstock.pipelines.etl.reading.batch import Layout, Piece
from penstock.pipelines.etl.reading.stamps import Inputs
from penstock.pipelines.etl.report import EtlReport
from penstock.pipelines.etl.writing.build import EDGE_BYTES
from penstock.pipelines.job import Workers
from penstock.pipelines.job.partial import PartialOutput

# Bins are no larger than this, so that all cores have work and a shard stays a handy file.
_BIN_EDGES = 1 << 23


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
class EtlRun:
    """One run: what it was asked for, where it works, and what it counts on the way.

    task_memory, tasks  bytes that a task may use, and how many run at once
    """

    workers: Workers | None
    edges: list[str]
    options: EtlOptions
    layout: Layout
    partial: PartialOutput
    task_memory: int
    tasks: int
    report: EtlReport
    inputs: Inputs = field(default_factory=Inputs)
    relations: tuple[Any, ...] = ()
    heldout_folders: dict[str, list[Path]] = field(default_factory=dict)

    def stage(
        self,
        title: str,
        step: Any,
        calls: list[Any],
        sizes: list[int],
        unit: str = "edges",
        **shared: Any,
    ) -> list[Any]:
        """Run one stage on the cluster."""
        assert self.workers is not None
        return self.workers.tasks(title, step, calls, sizes, unit, **shared)

    def read(self, step: Any, calls: list[Any], pieces: list[Piece]) -> list[Any]:
        """Run the stage that reads the edges; a file that changes meanwhile ends the run."""
        with self.inputs.reading_edges():
            return self.stage("read", step, calls, [piece.bytes for piece in pieces], "B")

    @property
    def bin_edges(self) -> int:
        """How many edges a task can build at once."""
        return max(1 << 16, min(_BIN_EDGES, self.task_memory // 2 // EDGE_BYTES))


def with_files(manifest: Manifest, entries: list[FileEntry]) -> Manifest:
    """Return the manifest with more files listed."""
    return replace(manifest, files=manifest.files | {entry.name: entry for entry in entries})


def time_type(layout: Layout) -> str | None:
    """Return the dtype in which times are kept, None without times."""
    if layout.time is None:
        return None
    return "float64" if layout.time_type == "float64" else "int64"


def time_kind(layout: Layout) -> str | None:
    """Return what times are, as graph.json says it."""
    if layout.time is None:
        return None
    return "timestamp" if layout.time_type == "timestamp" else "number"
