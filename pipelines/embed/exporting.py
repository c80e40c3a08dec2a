"""``penstock embed export``: vectors with the user's ids, as ``penstock similar`` reads them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from penstock.arrays import Array
from penstock.arrow import read_column
from penstock.files import FileEntry, file_entry, map_npy, save_npy
from penstock.output import Output
from penstock.pipelines.embed.options import ExportOptions
from penstock.pipelines.embed.report import ExportReport
from penstock.pipelines.embed.run import Run, checkpoint_of
from penstock.pipelines.job.declare import Context, RunFolder
from penstock.pipelines.job.plan import Need
from penstock.pipelines.vectors import Vectors
from penstock.pipelines.vectors.store import FORMAT, VALUES, as_ids, save_vectors
from penstock.sizes import plural
from penstock.workers.embed.source import TableSource, read_checkpoint
from penstock.workers.embed.storage.versions import Checkpoint
from penstock.workers.embed.warm import IDS

CORE = "core.npy"  # beside relations of tucker: (dim, dim, relation dim), which all share
_MEMORY = 500_000_000  # bytes of the process, including the blocks that are read and written


def export_run(
    context: Context, folder: RunFolder, out: Output, options: ExportOptions
) -> ExportReport:
    """Read a checkpoint, and write its vectors in the order of the nodes."""
    at, run = folder.path, Run.load(folder.path)
    found = checkpoint_of(at, options.checkpoint, run)
    dim = found.geometry.width
    checkpoint, count, width, what, core = found.name, run.nodes, dim, "nodes", None
    if options.relations:
        count, width = run.relation_vectors(found, at)[1].shape
        core = (dim, dim, width) if run.training.model == "tucker" else None
        what = "relations" if run.inverse_suffix is None else "relations and inverses"
    context.plan(
        f"vectors of {count:,} {what}, {plural(width, 'value')} each",
        steps=(("export", f"the {checkpoint} checkpoint of {at}"),),
        memory=Need(_MEMORY + 24 * count),
        disk=count * (2 * 4 * width + 24) + 4 * math.prod(core or (0,)),
    )

    def write(source: TableSource, found: Checkpoint) -> int:
        written: dict[str, tuple[Path, FileEntry]] = {}
        files = []
        if options.relations:
            ids, values = run.relation_vectors(found, at)
            if core is not None:
                shared = found.tensors["relations"][len(values) :].reshape(core)
                files.append(save_npy(out.result, CORE, shared))
        else:
            ids = read_column(at / IDS, "id").combine_chunks()
            path = out.scratch / VALUES
            shape = run.nodes, source.table.geometry.width
            values = map_npy(path, shape, np.float32)
            _fill(values, source)
            values.flush()
            written = {VALUES: (path, file_entry(out.scratch, VALUES))}
        size, about = save_vectors(
            out.result,
            ids,
            values,
            written=written,
            files=files,
            made_by="penstock embed",
            run=str(at),
            checkpoint=checkpoint,
            model=run.training.model,
            epoch=found.about["epoch"],
            inverse_suffix=run.inverse_suffix if options.relations else None,
        )
        out.describe(FORMAT, about)
        return size

    size = read_checkpoint(at / "checkpoints", checkpoint, write)
    return ExportReport(
        vectors=str(out.named),
        run=str(at),
        checkpoint=checkpoint,
        what=what,
        count=count,
        dimension=width,
        bytes=size,
    )


def open_vectors(run_at: Path, checkpoint: str, *, relations: bool) -> Vectors:
    """Return the vectors of a checkpoint: mapped if they are one partition, else in memory."""
    run = Run.load(run_at)
    name, files = checkpoint_of(run_at, checkpoint, run).name, (str(run_at / IDS),)

    def read(source: TableSource, found: Checkpoint) -> Vectors:
        about = {"made_by": "penstock embed", "run": str(run_at), "checkpoint": name}
        if relations:
            names, values = run.relation_vectors(found, run_at)
            return Vectors(as_ids(names), values, str(run_at), about, files=files)
        ids = read_column(run_at / IDS, "id").combine_chunks()
        if source.layout.partitions > 1:
            values = np.empty((run.nodes, source.table.geometry.width), np.float32)
            _fill(values, source)
        else:
            values = source.mapped(0)[0][: run.nodes]
        return Vectors(ids, values, str(run_at), about, files=files)

    return read_checkpoint(run_at / "checkpoints", name, read)


def _fill(values: Array, source: TableSource) -> None:
    """Write all vectors in the order of nodes, some rows at a time."""
    for partition in range(source.layout.partitions):
        nodes = source.layout.nodes_of(partition)
        for row, rows in source.vectors(partition):
            values[nodes[row : row + len(rows)]] = rows
