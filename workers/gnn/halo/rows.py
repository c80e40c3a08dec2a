"""Packing rows for other ranks, and adding received ones, on either device.

In host memory the threads of a rank share pieces of rows. No two pieces write to the same row, so
sums do not depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.kernels import kernel

if TYPE_CHECKING:
    from penstock.workers.gnn.thread_pool import ThreadPool

# Least values of a piece, some 20 microseconds; most pieces per thread, so that a late thread does
# less.
LEAST, _PIECES = 1 << 15, 4


def one_slice(rows: Array) -> slice | None:
    """Return consecutive rows as a slice, else None."""
    if not len(rows) or int(rows[-1]) - int(rows[0]) != len(rows) - 1 or (np.diff(rows) != 1).any():
        return None
    return slice(int(rows[0]), int(rows[-1]) + 1)


def take_rows(x: AnyArray, rows: AnyArray | slice, buffer: AnyArray, pool: ThreadPool) -> None:
    """Copy some rows of ``x`` to ``buffer``; on a GPU also a slice."""
    _in_pieces(kernel("ghost_rows", x).take_rows, x, rows, buffer, pool)


def add_rows(x: AnyArray, rows: AnyArray | slice, buffer: AnyArray, pool: ThreadPool) -> None:
    """Add ``buffer`` to distinct rows of ``x``; on a GPU also a slice."""
    _in_pieces(kernel("ghost_rows", x).add_rows, x, rows, buffer, pool)


def _in_pieces(
    move: Callable[[AnyArray, Any, AnyArray], None],
    x: AnyArray,
    rows: AnyArray | slice,
    buffer: AnyArray,
    pool: ThreadPool,
) -> None:
    pieces = len(buffer) * x.shape[1] // LEAST
    if pool.threads == 1 or pieces < 2 or not isinstance(rows, np.ndarray):
        move(x, rows, buffer)
        return
    pieces = min(pieces, _PIECES * pool.threads)
    cuts = [len(buffer) * i // pieces for i in range(pieces + 1)]
    pool.over(cuts, lambda a, b: move(x, rows[a:b], buffer[a:b]), progress=False)
