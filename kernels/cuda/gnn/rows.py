"""Rows with very many edges, cut into pieces; found once for each indptr."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from weakref import finalize

import cupy as cp
import numpy as np

from penstock.arrays import AnyArray, Array, DeviceArray
from penstock.kernels.cuda.gnn.launch import epilogue_arguments, matrix, vector
from penstock.kernels.cuda.module import c_name, launch_blocks

PIECE = 512  # edges: kPiece of gnn/sweep.cuh

_known: dict[int, LongRows] = {}  # by the id of indptr, while it lives


@dataclass(frozen=True, eq=False)
class Cut:
    """Long rows among ``first .. last``, on the GPU.

    rows         (long rows,) their numbers
    first_piece  (long rows + 1,) the start of the pieces of each, counted from ``offset``
    pieces       (pieces, 2): the row and first edge of each
    """

    rows: DeviceArray
    first_piece: DeviceArray
    pieces: DeviceArray
    offset: int


@dataclass(frozen=True, eq=False)
class LongRows:
    """The rows of one indptr with more than PIECE edges: numbers on the host, arrays on the GPU."""

    rows: Array
    first_piece: Array
    whole: Cut
    cuts: dict[tuple[int, int], Cut] = field(default_factory=dict)
    scratch: dict[tuple[Any, ...], DeviceArray] = field(default_factory=dict)

    def cut(self, first: int, last: int) -> Cut:
        """Return the long rows of a range."""
        low, high = (int(place) for place in np.searchsorted(self.rows, [first, last]))
        if (low, high) not in self.cuts:
            begin, end = int(self.first_piece[low]), int(self.first_piece[high])
            self.cuts[low, high] = Cut(
                self.whole.rows[low:high],
                self.whole.first_piece[low : high + 1],
                self.whole.pieces[begin:end],
                begin,
            )
        return self.cuts[low, high]

    def partial(self, name: str, cut: Cut, width: int, dtype: Any) -> DeviceArray:
        """Return scratch for a number of values per piece, kept: a CUDA graph may have its
        address."""
        count = max(1, len(cut.pieces) * width)
        key = (name, cut.offset, count, np.dtype(dtype), int(cp.cuda.get_current_stream().ptr))
        if key not in self.scratch:
            self.scratch[key] = cp.empty(count, dtype)
        return self.scratch[key]


def long_rows(indptr: AnyArray) -> LongRows:
    """Return the long rows; the first call for an array waits for the GPU, later ones do not."""
    found = _known.get(id(indptr))
    if found is None:
        found = _find(indptr)
        _known[id(indptr)] = found
        finalize(indptr, _known.pop, id(indptr), None)
    return found


def _find(indptr: AnyArray) -> LongRows:
    edges = cp.diff(indptr)
    on_gpu = cp.flatnonzero(edges > PIECE).astype(np.int64)
    rows, starts, counts = (cp.asnumpy(array) for array in (on_gpu, indptr[on_gpu], edges[on_gpu]))
    pieces = -(-counts // PIECE)
    first_piece = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(pieces, out=first_piece[1:])
    place = np.arange(first_piece[-1]) - np.repeat(first_piece[:-1], pieces)
    listed = np.stack(
        [np.repeat(rows, pieces), np.repeat(starts, pieces) + place * PIECE], axis=1
    ).astype(np.int64)
    whole = Cut(on_gpu, cp.asarray(first_piece), cp.asarray(listed), 0)
    return LongRows(rows, first_piece, whole)


def join_sums(cut: Cut, partial: DeviceArray, out: DeviceArray) -> None:
    """Write the sums of each long row's pieces to ``out``."""
    if len(cut.rows):
        launch_blocks(
            "aggregate/aggregate",
            f"join_sums<{c_name(out)}, {c_name(out)}>",
            len(cut.rows),
            256,
            *(cut.rows, cut.first_piece, np.int64(cut.offset)),
            *(*(vector(None, out),) * 3, np.int64(0), *matrix(None), *matrix(out)),
            *(np.int32(out.shape[1]), partial, *epilogue_arguments(None, out)),
        )
