"""Rows that are packed for other ranks, and what came of them added, on either device."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from penstock.csr import Array
from penstock.kernels import kernel
from penstock.kernels.cpu.aggregate_tiles import prefetch, zeros
from penstock.kernels.cpu.walk_arrays import pointer

_AHEAD, _LINE = 16, 16  # rows that are asked for before they are read; numbers at a time


def one_slice(rows: Array) -> slice | None:
    """Return rows as a slice, where they follow each other."""
    if not len(rows) or int(rows[-1]) - int(rows[0]) != len(rows) - 1 or (np.diff(rows) != 1).any():
        return None
    return slice(int(rows[0]), int(rows[-1]) + 1)


def take_rows(x: Any, rows: Any, buffer: Any) -> None:
    """Copy some rows of ``x``, a slice or their numbers, to ``buffer``."""
    if isinstance(rows, slice):
        buffer[...] = x[rows]
    elif isinstance(x, np.ndarray):
        _take_rows(x, rows, buffer)
    else:
        kernel("ghost_rows", x).take_rows(x, rows, buffer)


def add_rows(x: Any, rows: Any, buffer: Any) -> None:
    """Add ``buffer`` to rows of ``x``, a slice or their numbers, each of which is named once."""
    if not isinstance(x, np.ndarray):
        kernel("ghost_rows", x).add_rows(x, rows, buffer)
    elif isinstance(rows, slice):
        some = x[rows]
        some += buffer
    else:
        _add_rows(x, rows, buffer)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _take_rows(x: Array, rows: Array, buffer: Array) -> None:
    for i in range(len(rows)):
        _ask_for(x, rows, i + _AHEAD)
        row = rows[i]
        for feature in range(x.shape[1]):
            buffer[i, feature] = x[row, feature]


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _add_rows(x: Array, rows: Array, buffer: Array) -> None:
    for i in range(len(rows)):
        _ask_for(x, rows, i + _AHEAD)
        row = rows[i]
        for feature in range(x.shape[1]):
            x[row, feature] += buffer[i, feature]


@njit(cache=True, inline="always")  # type: ignore[untyped-decorator]
def _ask_for(x: Array, rows: Array, i: int) -> None:
    if i < len(rows):
        line = zeros(pointer(x), _LINE)
        for feature in range(0, x.shape[1], _LINE):
            prefetch(line, pointer(x), rows[i] * x.shape[1] + feature)
