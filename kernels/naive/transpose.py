"""The in-edges of a graph, given as consecutive row ranges."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from penstock.csr import CSR


def transpose(
    rows: Sequence[CSR],
    *,
    weighted: bool = False,
    folder: Path | None = None,
    threads: int | None = None,
) -> list[CSR]:
    """Return the sources of each node's in-edges, ascending, and their weights if wanted.

    folder  holds the edges, mapped, of a graph that exceeds memory [default: they are in memory]
    """
    whole = CSR.concatenate(rows)
    weights = whole.weights if weighted else None
    weights = weights if weights is None else np.asarray(weights, np.float64)
    return [CSR.from_edges(whole.indices, whole.sources(), whole.rows, weights=weights)]
