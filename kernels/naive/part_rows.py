"""Rows of a part with the ids and the order of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def global_rows(indptr: Array, indices: Array, global_ids: Array) -> tuple[Array, Array]:
    """Return neighbours as global ids, ascending in each row, and the order that sorts them.

    indptr (rows + 1,), indices (edges,) local ids, global_ids (local ids,) -> (edges,) like
    global_ids, (edges,) int64. Equal neighbours keep their order, and ``column[order]`` puts an
    edge column in step.
    """
    found = global_ids[indices]
    order = np.arange(len(indices), dtype=np.int64)
    for row in range(len(indptr) - 1):
        low, high = indptr[row], indptr[row + 1]
        order[low:high] = low + np.argsort(found[low:high], kind="stable")
    return found[order], order
