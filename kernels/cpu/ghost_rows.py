"""Rows that other ranks need, packed, and received rows of ghosts added, in Numba."""

from __future__ import annotations

from penstock.arrays import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.vector import pointer, prefetch, zeros

_AHEAD, _LINE = 16, 16  # prefetched rows; numbers per cache line


@njit(cache=True, nogil=True)
def take_rows(x: Array, rows: Array, out: Array) -> None:
    """Copy the rows of ``x`` that ``rows`` names to ``out``."""
    for i in range(len(rows)):
        _prefetch_row(x, rows, i + _AHEAD)
        row = rows[i]
        for feature in range(x.shape[1]):
            out[i, feature] = x[row, feature]


@njit(cache=True, nogil=True)
def add_rows(x: Array, rows: Array, came: Array) -> None:
    """Add ``came`` to the distinct ``rows`` of ``x``."""
    for i in range(len(rows)):
        _prefetch_row(x, rows, i + _AHEAD)
        row = rows[i]
        for feature in range(x.shape[1]):
            x[row, feature] += came[i, feature]


@njit(cache=True, inline="always")
def _prefetch_row(x: Array, rows: Array, i: int) -> None:
    if i < len(rows):
        line = zeros(pointer(x), _LINE)
        for feature in range(0, x.shape[1], _LINE):
            prefetch(line, pointer(x), rows[i] * x.shape[1] + feature)
