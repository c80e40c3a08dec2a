"""Rows that other ranks need, packed, and received rows of ghosts added, on the GPU."""

from __future__ import annotations

import numpy as np

from penstock.arrays import DeviceArray
from penstock.kernels.cuda.gnn.launch import flat, is_aligned, matrix
from penstock.kernels.cuda.module import c_name, launch_blocks

_FILE = "ghost_rows"
_THREADS = 256
_ROWS_AT_ONCE = 4  # per thread
_BLOCKS = 1 << 16  # at most; beyond, a thread takes more rows
_WORDS = {16: "uint4", 8: "uint2", 4: "unsigned int", 2: "unsigned short"}


def take_rows(x: DeviceArray, rows: DeviceArray, out: DeviceArray) -> None:
    """Copy the rows of ``x`` that ``rows`` names to ``out``."""
    row = x.shape[1] * x.itemsize
    if not len(rows) or not row:
        return
    flat(out, x.dtype)
    size = next(
        size for size in _WORDS if row % size == 0 and is_aligned(x, size) and _at(out, size)
    )
    start, stride = matrix(x)
    width = row // size
    launch_blocks(
        _FILE,
        f"take_rows<{_WORDS[size]}>",
        _blocks(len(rows), width),
        _THREADS,
        *(start, np.int64(stride * x.itemsize // size)),
        *(flat(rows, np.int64), np.int64(len(rows)), np.int32(width), out),
    )


def add_rows(x: DeviceArray, rows: DeviceArray, came: DeviceArray) -> None:
    """Add ``came`` to rows of ``x``: a slice, or distinct ``rows``."""
    width, count = came.shape[1], len(came)
    if not count or not width:
        return
    if isinstance(rows, slice):
        x, named = x[rows], None
    else:
        named = flat(rows, np.int64)
    flat(came, x.dtype)
    vec = next(
        vec
        for vec in (16 // x.itemsize, 8 // x.itemsize, 1)
        if vec
        and width % vec == 0
        and is_aligned(x, vec * x.itemsize)
        and _at(came, vec * x.itemsize)
    )
    launch_blocks(
        _FILE,
        f"add_rows<{c_name(x)}, {vec}>",
        _blocks(count, width // vec),
        _THREADS,
        *(*matrix(x), named, np.int64(count), np.int32(width), came),
    )


def _at(array: DeviceArray, size: int) -> bool:
    return int(array.data.ptr) % size == 0


def _blocks(rows: int, places: int) -> int:
    together = max(1, _THREADS // places)  # rows of a block
    return min(-(-rows // (_ROWS_AT_ONCE * together)), _BLOCKS)
