"""Held-out edges of all steps become one array per column in ``heldout/valid`` and ``test``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from penstock.files import FileEntry, save_npy
from penstock.pipelines.etl.writing import spill
from penstock.pipelines.etl.writing.shuffle import Shape
from penstock.sizes import need_memory


def collect_heldout(
    root: Path,
    folders: dict[str, list[Path]],
    shape: Shape,
    typed: bool,
) -> tuple[dict[str, int], list[FileEntry]]:
    """Write ``root/heldout/<name>``; return the number of edges of each, and the files."""
    counts: dict[str, int] = {}
    files: list[FileEntry] = []
    for name, parts in sorted(folders.items()):
        size = sum(p.stat().st_size for part in parts for p in part.glob("*.raw"))
        need_memory(2 * size, f"the held-out {name} edges", remedy="Hold out fewer edges")
        columns: list[tuple[str, Any]] = [("sources", shape.dtype), ("targets", shape.dtype)]
        columns += [("relations", "int32")] if typed else []
        columns += shape.payloads()
        values = {c: [spill.take(part, c, dtype) for part in parts] for c, dtype in columns}
        for column, arrays in values.items():
            files.append(save_npy(root, f"heldout/{name}/{column}.npy", np.concatenate(arrays)))
        counts[name] = sum(len(array) for array in values["sources"])
    return counts, files
