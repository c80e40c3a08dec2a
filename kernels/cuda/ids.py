"""Dictionary coding of integers on the GPU: one sort."""

from __future__ import annotations

from typing import Any

import cupy as cp


def encode(values: Any) -> tuple[Any, Any]:
    """Return the distinct values in ascending order, and each value's position among them."""
    distinct, codes = cp.unique(values, return_inverse=True)
    return distinct, codes.astype(cp.int32)
