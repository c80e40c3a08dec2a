"""Rows that are packed for other ranks, and what came of them added, on either device."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from penstock.csr import Array


def take_rows(x: Any, rows: Any, buffer: Any) -> None:
    """Copy some rows of ``x`` to ``buffer``."""
    if isinstance(x, np.ndarray):
        np.take(x, rows, axis=0, out=buffer, mode="clip")  # other modes write to a copy first
    else:
        x.take(rows, axis=0, out=buffer)


def add_rows(x: Any, rows: Any, buffer: Any) -> None:
    """Add ``buffer`` to rows of ``x``, each of which is named once."""
    if isinstance(x, np.ndarray):
        _add_rows(x, rows, buffer)
    else:
        import cupy

        cupy.add.at(x, rows, buffer)  # in one pass; no row is added to twice, so in no order


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_rows(x: Array, rows: Array, buffer: Array) -> None:
    for i in range(len(rows)):
        row = rows[i]
        for feature in range(x.shape[1]):
            x[row, feature] += buffer[i, feature]
