"""The first node of every walk, by its number."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.csr import id_dtype
from penstock.graph import load_npy


@dataclass(frozen=True)
class Starts:
    """The first node of every walk: walk w starts at the ``w % count``-th start.

    So every start has its first walk before any has its second, and more walks per start leave the
    existing ones unchanged.
    """

    count: int
    nodes: int
    file: Path | None = None  # the starts' internal ids; None: all nodes in order

    def of(self, first: int, last: int, arrays: Any = np) -> AnyArray:
        """Return the first nodes of walks ``first .. last``, as arrays of NumPy or CuPy."""
        if self.file is not None:
            listed = np.arange(first, last, dtype=np.int64) % max(self.count, 1)
            found: AnyArray = arrays.asarray(self._listed[listed])
            return found
        positions: AnyArray = arrays.arange(first, last, dtype=np.int64)
        # A function, not an operator: see kernels/cuda/word2vec/tables.py.
        arrays.remainder(positions, max(self.count, 1), out=positions)
        return positions.astype(id_dtype(self.nodes))

    @cached_property
    def _listed(self) -> Array:
        assert self.file is not None
        return load_npy(self.file)
