"""``penstock embed export``: vectors with the user's ids, as ``penstock similar`` reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.arrow import read_column
from penstock.errors import UsageError
from penstock.pipelines.embed.options import ExportOptions
from penstock.pipelines.embed.report import ExportReport
from penstock.pipelines.embed.run import Run, checkpoint_name
from penstock.pipelines.job import Job
from penstock.pipelines.job.partial import PartialOutput
from penstock.pipelines.job.plan import Need, Plan, disk_need
from penstock.pipelines.vectors.store import KIND, write_vectors
from penstock.sizes import need_disk
from penstock.workers.embed.source import TableSource, read_checkpoint
from penstock.workers.embed.versions import Checkpoint, Checkpoints
from penstock.workers.embed.warm import IDS


class ExportJob(Job[ExportReport]):
    """Writes the vectors of a checkpoint."""

    command = "penstock embed export"
    kind = KIND
    resumable = False
    options: ExportOptions

    def __init__(self, run_at: Path, out: Path, options: ExportOptions, *, quiet: bool) -> None:
        super().__init__(out, options, quiet=quiet)
        self.at = run_at

    def check(self) -> None:
        """Open the run; raise where there is nothing to export, or no room."""
        self.run = run = Run.load(self.at)
        self.checkpoint = checkpoint_name(self.at, self.options.checkpoint, run)
        found = Checkpoints(self.at / "checkpoints").load(self.checkpoint)
        self.width = found.geometry.width
        self.count, self.what = run.nodes, "nodes"
        if self.options.relations:
            if run.relations is None:
                raise UsageError(f"{self.at} has no vectors of relations")
            self.count, self.what = len(run.relations), "relations"
            self.width = found.tensors["relations"].shape[1]
        self.bytes = self.count * (2 * 4 * self.width + 24)
        need_disk(self.out.parent, self.bytes, f"vectors of {self.count:,} {self.what}")

    def plan(self) -> Plan:
        """Say what would be written."""
        return Plan(
            self.command,
            str(self.out),
            f"vectors of {self.count:,} {self.what}, {self.width} values each",
            (("export", f"the {self.checkpoint} checkpoint of {self.at}"),),
            Need(2 * 4 * self.count * self.width),
            disk_need(self.out.parent, self.bytes),
        )

    def work(self, partial: PartialOutput) -> None:
        """Read the checkpoint, and write it in the order of the nodes."""
        run = self.run

        def write(source: TableSource, found: Checkpoint) -> int:
            if self.options.relations:
                ids = list(run.relations or ())
                values = found.tensors["relations"][: len(ids)]
            else:
                ids = read_column(self.at / IDS, "id").combine_chunks()
                values = _in_order(source, partial.scratch)
            return write_vectors(
                partial.result,
                ids,
                values,
                made_by="penstock embed",
                run=str(self.at),
                checkpoint=self.checkpoint,
                model=run.training.model,
                epoch=found.about["epoch"],
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


def _in_order(source: TableSource, scratch: Path) -> Array:
    """Return all vectors by node: of one partition as they are, of several in a mapped file."""
    layout = source.layout
    if layout.partitions == 1:
        whole: Array = next(source.parts())[1]
        return whole
    path = scratch / ".values.npy"
    shape = layout.nodes, source.table.geometry.width
    values = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    path.unlink()  # it stays as long as it is mapped, and cannot be left behind
    for partition, (_, part) in enumerate(source.parts()):
        values[layout.nodes_of(partition)] = part
    return values
