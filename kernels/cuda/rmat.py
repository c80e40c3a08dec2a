"""R-MAT on a GPU through CuPy; names and meaning are naive/rmat.py's, and so is every bit.

Arrays are CuPy arrays on the current device.
"""

from __future__ import annotations

from typing import Any

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.module import launch
from penstock.kernels.generate_rules import below, thresholds
from penstock.kernels.streams import Stream

__all__ = ["below", "edges", "mark_ends", "relations", "thresholds", "weights"]


def edges(
    seed: int, scale: int, thresholds: Any, first: int, count: int, names: DeviceArray | None = None
) -> tuple[DeviceArray, DeviceArray]:
    """Return edges ``first .. first + count`` of the endless edge list: two (count,) int32."""
    import cupy as cp
    import numpy as np

    sources, targets = cp.empty(count, cp.int32), cp.empty(count, cp.int32)
    a, ab, abc = (np.uint32(int(threshold)) for threshold in thresholds)
    launch(
        "rmat", f"rmat_edges<{_cpp(names is not None)}>", count,
        np.uint64(seed), np.uint32(Stream.RMAT_EDGE), np.int32(scale), a, ab, abc,
        np.uint64(first), np.int64(count), sources if names is None else names, sources, targets,
    )  # fmt: skip
    return sources, targets


def weights(
    seed: int, sources: DeviceArray, targets: DeviceArray, low: float, high: float, *, ordered: bool
) -> DeviceArray:
    """Return a weight in [low, high) for each pair of ends: (m,) float32."""
    import cupy as cp
    import numpy as np

    drawn = cp.empty(len(sources), cp.float32)
    launch(
        "rmat", f"rmat_weights<{_cpp(ordered)}>", len(sources),
        np.uint64(seed), np.uint32(Stream.RMAT_WEIGHT), sources, targets, np.int64(len(sources)),
        np.float64(low), np.float64(high - low), below(high), drawn,
    )  # fmt: skip
    return drawn


def relations(
    seed: int, sources: DeviceArray, targets: DeviceArray, count: int, *, ordered: bool
) -> DeviceArray:
    """Return a relation below ``count`` for each pair of ends: (m,) int32."""
    import cupy as cp
    import numpy as np

    drawn = cp.empty(len(sources), cp.int32)
    launch(
        "rmat", f"rmat_relations<{_cpp(ordered)}>", len(sources),
        np.uint64(seed), np.uint32(Stream.RMAT_RELATION), sources, targets,
        np.int64(len(sources)), np.uint32(count), drawn,
    )  # fmt: skip
    return drawn


def mark_ends(
    sources: DeviceArray, targets: DeviceArray, touched: DeviceArray, *, keep_loops: bool
) -> None:
    """Set ``touched`` at both ends of every edge, self loops only if they are kept."""
    import numpy as np

    name, count = f"mark_ends<{_cpp(keep_loops)}>", len(sources)
    launch("rmat", name, count, sources, targets, np.int64(count), touched)


def _cpp(value: bool) -> str:
    return "true" if value else "false"
