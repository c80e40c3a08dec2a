"""Rows that are packed for other ranks, and what came of them added, on either device."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.csr import Array
from penstock.kernels.compiled import njit
from penstock.kernels.cpu.aggregate_tiles import prefetch, zeros
from penstock.kernels.cpu.walk_arrays import pointer

_AHEAD, _LINE = 16, 16  # rows that are asked for before they are read; numbers at a time


def take_rows(x: Any, rows: Any, buffer: Any) -> None:
    """Copy some rows of ``x`` to ``buffer``."""
    if isinstance(x, np.ndarray):
        _take_rows(x, rows, buffer)
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
