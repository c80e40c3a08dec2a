"""Held-out edges of all steps become one array per column in ``heldout/valid`` and ``test``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from penstock.files import FileEntry, save_npy
from penstock.pipelines.etl.writing import spill
from penstock.pipelines.etl.writing.shuffle import Shape
from penstock.pipelines.etl.writing.trim import Renumbering
from penstock.sizes import need_memory


def collect_heldout(
    root: Path,
    folders: dict[str, list[Path]],
    shape: Shape,
    renumbering: Renumbering | None,
    typed: bool,
) -> tuple[dict[str, int], list[FileEntry]]:
    """Write ``root/heldout/<name>``; return the number of edges of each, and the files.

    ``renumbering`` renumbers edges from --valid and --test; edges whose nodes were dropped are left
    out. Edges that ``build_shard`` held out after a renumbering already have their final ids.
    """
    counts: dict[str, int] = {}
    files: list[FileEntry] = []
    for name, parts in sorted(folders.items()):
        given = [part.parent.name == "given" for part in parts]
        size = sum(p.stat().st_size for part in parts for p in part.glob("*.raw"))
        need_memory(2 * size, f"the held-out {name} edges", remedy="Hold out fewer edges")
        columns: list[tuple[str, Any]] = [("sources", shape.dtype), ("targets", shape.dtype)]
        columns += [("relations", "int32")] if typed else []
        columns += shape.payloads()
        values = {c: [spill.take(part, c, dtype) for part in parts] for c, dtype in columns}
        if renumbering is not None:
            _renumber(values, given, renumbering.new_id)
        for column, arrays in values.items():
            files.append(save_npy(root, f"heldout/{name}/{column}.npy", np.concatenate(arrays)))
        counts[name] = sum(len(array) for array in values["sources"])
    return counts, files


def _renumber(values: dict[str, list[Any]], given: list[bool], new_id: Any) -> None:
    for i in (i for i, is_given in enumerate(given) if is_given):
        sources, targets = new_id[values["sources"][i]], new_id[values["targets"][i]]
        keep = (sources >= 0) & (targets >= 0)
        dtype = values["sources"][i].dtype
        values["sources"][i], values["targets"][i] = sources.astype(dtype), targets.astype(dtype)
        for arrays in values.values():
            arrays[i] = arrays[i][keep]
