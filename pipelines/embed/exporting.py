"""``penstock embed export``: vectors with the user's ids, as ``penstock similar`` reads them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.arrow import read_column
from penstock.files import FileEntry, file_entry
from penstock.output import Output
from penstock.pipelines.embed.options import ExportOptions
from penstock.pipelines.embed.report import ExportReport
from penstock.pipelines.embed.run import Run, checkpoint_name
from penstock.pipelines.job import RunJob
from penstock.pipelines.job.plan import Need, Plan, disk_need
from penstock.pipelines.vectors import Vectors
from penstock.pipelines.vectors.store import KIND, VALUES, as_ids, write_vectors
from penstock.sizes import need_disk, plural
from penstock.workers.embed.source import TableSource, read_checkpoint
from penstock.workers.embed.storage.versions import Checkpoint, Checkpoints
from penstock.workers.embed.warm import IDS

_MEMORY = 500_000_000  # of the process, with the blocks that are read and written


class ExportJob(RunJob[ExportReport]):
    """Writes the vectors of a checkpoint."""

    command = "penstock embed export"
    kind = KIND
    options: ExportOptions
    run: Run

    def check(self) -> None:
        """Open the run; raise where there is nothing to export, or not enough disk space."""
        self.run = run = Run.load(self.at)
        self.checkpoint = checkpoint_name(self.at, self.options.checkpoint, run)
        found = Checkpoints(self.at / "checkpoints").load(self.checkpoint)
        self.width = found.geometry.width
        self.count, self.what = run.nodes, "nodes"
        if self.options.relations:
            self.count, self.width = run.relation_vectors(found, self.at)[1].shape
            self.what = "relations" if run.inverse_suffix is None else "relations and inverses"
        self.bytes = self.count * (2 * 4 * self.width + 24)
        need_disk(self.out.parent, self.bytes, f"vectors of {self.count:,} {self.what}")

    def plan(self) -> Plan:
        """Say what would be written."""
        return Plan(
            f"vectors of {self.count:,} {self.what}, {plural(self.width, 'value')} each",
            (("export", f"the {self.checkpoint} checkpoint of {self.at}"),),
            Need(_MEMORY + 24 * self.count),
            disk_need(self.out.parent, self.bytes),
        )

    def work(self, partial: Output) -> None:
        """Read the checkpoint, and write it in the order of the nodes."""
        run = self.run

        def write(source: TableSource, found: Checkpoint) -> int:
            written: dict[str, tuple[Path, FileEntry]] = {}
            if self.options.relations:
                ids, values = run.relation_vectors(found, self.at)
            else:
                ids = read_column(self.at / IDS, "id").combine_chunks()
                path = partial.scratch / VALUES
                shape = run.nodes, source.table.geometry.width
                values = np.lib.format.open_memmap(path, "w+", np.float32, shape)
                with path.open("r+b") as file:  # a full disk is an error now, and a signal later
                    os.posix_fallocate(file.fileno(), 0, path.stat().st_size)
                _fill(values, source)
                values.flush()
                written = {VALUES: (path, file_entry(partial.scratch, VALUES))}
            return write_vectors(
                partial.result,
                ids,
                values,
                written=written,
                made_by="penstock embed",
                run=str(self.at),
                checkpoint=self.checkpoint,
                model=run.training.model,
                epoch=found.about["epoch"],
                inverse_suffix=run.inverse_suffix if self.options.relations else None,
            )

        self.written = read_checkpoint(self.at / "checkpoints", self.checkpoint, write)

    def report(self, seconds: float) -> ExportReport:
        """Return what was written."""
        return ExportReport(
            vectors=str(self.out),
            run=str(self.at),
            checkpoint=self.checkpoint,
            what=self.what,
            count=self.count,
            dimension=self.width,
            bytes=self.written,
            seconds=seconds,
        )


def open_vectors(run_at: Path, checkpoint: str, *, relations: bool) -> Vectors:
    """Return the vectors of a checkpoint: those of one partition mapped, others in memory."""
    run = Run.load(run_at)
    name = checkpoint_name(run_at, checkpoint, run)

    def read(source: TableSource, found: Checkpoint) -> Vectors:
        about = {"made_by": "penstock embed", "run": str(run_at), "checkpoint": name}
        if relations:
            names, values = run.relation_vectors(found, run_at)
            return Vectors(as_ids(names), values, run_at, about)
        ids = read_column(run_at / IDS, "id").combine_chunks()
        if source.layout.partitions > 1:
            values = np.empty((run.nodes, source.table.geometry.width), np.float32)
            _fill(values, source)
        else:
            next(source.vectors(0))  # is it the version that the checkpoint names?
            values = source.mapped(0)
        return Vectors(ids, values, run_at, about)

    return read_checkpoint(run_at / "checkpoints", name, read)


def _fill(values: Array, source: TableSource) -> None:
    """Write all vectors by node, some rows at a time."""
    for partition in range(source.layout.partitions):
        nodes = source.layout.nodes_of(partition)
        for row, rows in source.vectors(partition):
            values[nodes[row : row + len(rows)]] = rows
