"""Intermediate files: raw arrays that one step leaves for the next, and records of finished steps.

A step's folder gets its final name only when the step is complete, with its result in
``done.json``; a step that finds its folder does nothing. That is all that a retry and ``--resume``
need.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.files import whole


def once(folder: Path, make: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of a step: from ``folder`` if it is done, else by ``make(folder)``."""
    done = folder / "done.json"
    if done.exists():
        result: dict[str, Any] = json.loads(done.read_text())
        return result
    with whole(folder) as partial:
        partial.mkdir(parents=True)
        result = make(partial)
        (partial / "done.json").write_text(json.dumps(result))
    return result


def put(folder: Path, name: str, array: Array | None) -> None:
    """Write an array's bytes as ``folder/name.raw``; None writes nothing."""
    if array is not None:
        # Not tofile, whose error does not name a full disk.
        with (folder / f"{name}.raw").open("wb") as file:
            file.write(np.ascontiguousarray(array).data.cast("B") if len(array) else b"")


def take(folder: Path, name: str, dtype: Any, *, start: int = 0, count: int = -1) -> Array:
    """Read ``count`` elements from ``start``. Read, not mapped: mapped pages count as memory."""
    dtype = np.dtype(dtype)
    path = folder / f"{name}.raw"
    return np.fromfile(path, dtype=dtype, count=count, offset=start * dtype.itemsize)


def drop(folder: Path, *names: str) -> None:
    """Delete what no later step reads, to give the disk back early."""
    for name in names:
        (folder / f"{name}.raw").unlink(missing_ok=True)
