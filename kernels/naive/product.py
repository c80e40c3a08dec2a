"""Products of matrices."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array


def product(a: Array, b: Array, out: Array, *, tf32: bool = False) -> None:
    """Write a @ b to ``out``; ``tf32`` lets a GPU round float32 first, and is ignored here."""
    np.matmul(a, b, out=out)


def product_of_columns(a: Array, b: Array, out: Array, *, tf32: bool = False) -> None:
    """Write a.T @ b to ``out``, such as the gradient of weights; ``tf32`` as in ``product``."""
    np.matmul(a.T, b, out=out)
