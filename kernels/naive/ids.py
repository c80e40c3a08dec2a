"""Many ids, few distinct ones: the truth about dictionary coding of integers."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array


def encode(values: Array) -> tuple[Array, Array]:
    """Return the distinct values in ascending order, and each value's position among them.

    values  (n,) int64
    ->      distinct (u,) int64 ascending; codes (n,) int32 with ``distinct[codes] == values``
    """
    distinct, codes = np.unique(values, return_inverse=True)
    return distinct, codes.astype(np.int32)
