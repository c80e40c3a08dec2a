"""Held-out edges of all steps become one array per column in ``heldout/valid`` and ``test``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.files import FileEntry, save_npy
from penstock.pipelines.etl.nodes.encode import Numbering
from penstock.pipelines.etl.nodes.number import EncodedBatch
from penstock.pipelines.etl.writing import spill
from penstock.pipelines.etl.writing.shuffle import Shape, read_batch
from penstock.sizes import need_memory

if TYPE_CHECKING:
    from penstock.pipelines.etl.job import EtlJob


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
