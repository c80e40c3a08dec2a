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
from penstock.kernels.walk_rules import WALK_BITS


@dataclass(frozen=True)
class Starts:
    """The first node of every walk: walk w starts at the ``w % count``-th start.

    So every start has its first walk before any has its second, and more walks per start leave the
    existing ones unchanged.

    file   the starts' internal ids; None: all nodes in order
    named  whether the user named the starts, maybe some twice
    """

    count: int
    nodes: int
    file: Path | None = None
    named: bool = False

    def of(self, first: int, last: int, arrays: Any = np) -> AnyArray:
        """Return the first nodes of walks ``first .. last``, as arrays of NumPy or CuPy."""
        if self.file is not None:
            listed = np.arange(first, last, dtype=np.int64) % max(self.count, 1)
            found: AnyArray = arrays.asarray(self._listed[listed])
            return found
        positions: AnyArray = arrays.arange(first, last, dtype=np.int64)
        # An operator between an array and a number would have CuPy import cupyx.scipy.
        arrays.remainder(positions, max(self.count, 1), out=positions)
        return positions.astype(id_dtype(self.nodes))

    def numbers(self, first: int, last: int) -> Array:
        """Return the numbers of walks ``first .. last`` in draws: see ``numbers_of``."""
        keys = None if self.file is None or self.named else self._listed
        return numbers_of(np.arange(first, last, dtype=np.int64), self.count, keys)

    @cached_property
    def _listed(self) -> Array:
        assert self.file is not None
        return load_npy(self.file)


def numbers_of(walks: Array, count: int, keys: Array | None) -> Array:
    """Return the numbers of walks in draws: (walks,) int64.

    That of the r-th walk of a start is its node, plus r with its WALK_BITS bits reversed: other
    nodes, that come or go, do not change it.

    keys  (count,) the starts' nodes; None: their places
    """
    rounds, places = np.divmod(walks, max(count, 1))
    found = places if keys is None else keys[places].astype(np.int64)
    for bit in range(int(rounds.max(initial=0)).bit_length()):
        found += (rounds >> bit & 1) << (WALK_BITS - 1 - bit)
    return found
