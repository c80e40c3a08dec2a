"""Kernels over pieces of rows on all threads of a rank, with progress of MPI between pieces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import AnyArray, Array
from penstock.threads import Threads, cores_of_rank

if TYPE_CHECKING:
    from penstock.workers.comm.single import AnyCommunicator

# Pieces do not depend on the number of threads: sums are joined piece by piece.
_PIECES = 64
# Least rows of a product's piece: BLAS copies the other matrix each time, and threads with pieces
# of a few microseconds wait for each other's hold on the interpreter.
_PRODUCT_ROWS = 4096
_SUMMED_PIECES, _SUMMED_ROWS = 32, 4096  # of a product that sums over rows
_LEAST = 1 << 18  # values of a piece, so that small graphs have one


class ThreadPool(Threads):
    """The threads of one rank; ``progress`` is called between pieces, in the rank's own thread.

    tile  rows that BLAS multiplies at once, on a CPU. It rounds a row by its position among them:
          with tiles, the row's number modulo this decides, and not how many rows there are
    """

    def __init__(self, threads: int = 1) -> None:
        super().__init__(threads)
        self.progress: Callable[[], None] | None = None
        self.tf32 = False  # whether GPUs may round the factors of products
        self.tile: int | None = None

    @staticmethod
    def of(comm: AnyCommunicator) -> ThreadPool:
        """Return the threads of this rank, its share of the host's cores; every rank calls it."""
        return ThreadPool(cores_of_rank(comm))

    def over(
        self, cuts: Sequence[int], work: Callable[[int, int], object], *, progress: bool = True
    ) -> None:
        """Call ``work(first, last)`` for each two neighbours of ``cuts``, on all threads.

        progress  False: do not progress messages, as while they are being posted
        """
        pieces, help_on = len(cuts) - 1, self.progress if progress else None
        if pieces == 1:
            work(cuts[0], cuts[1])
            if help_on is not None:
                help_on()
            return
        numbers = count()

        def take(progress: Callable[[], None] | None = None) -> None:
            while (number := next(numbers)) < pieces:
                work(cuts[number], cuts[number + 1])
                if progress is not None:
                    progress()

        self.together(self.threads, take, partial(take, help_on))

    def sums(
        self, cuts: Sequence[int], sums: AnyArray, work: Callable[[int, int, AnyArray], object]
    ) -> None:
        """Call ``work(first, last, part)`` for each piece; add the parts to ``sums`` in order."""
        if len(cuts) == 2:
            self.over(cuts, lambda first, last: work(first, last, sums))
            return
        parts = np.zeros((len(cuts) - 1, *sums.shape), sums.dtype)  # a GPU has one piece
        number = {first: i for i, first in enumerate(cuts[:-1])}
        self.over(cuts, lambda first, last: work(first, last, parts[number[first]]))
        sums += parts.sum(axis=0)

    def product(
        self,
        a: AnyArray,
        b: AnyArray,
        out: AnyArray,
        then: Callable[[int, int], object] | None = None,
    ) -> None:
        """Write ``a @ b`` to ``out``, rows in pieces.

        ``then(first, last)`` continues with rows of ``out`` while they are in caches.
        """
        if not isinstance(a, np.ndarray):
            from penstock.kernels.cuda.product import product

            product(a, b, out, tf32=self.tf32)
            if then is not None:
                then(0, len(a))
            return

        def work(first: int, last: int) -> None:
            self._multiply(a[first:last], b, out[first:last])
            if then is not None:
                then(first, last)

        cuts = _tall_cuts(len(a), _PIECES, _PRODUCT_ROWS)
        if self.tile is not None:
            cuts = [*(cut // self.tile * self.tile for cut in cuts[:-1]), len(a)]
        self.over(cuts, work)

    def _multiply(self, a: Array, b: Array, out: Array) -> None:
        if self.tile is None:
            np.matmul(a, b, out=out)
            return
        whole = len(a) // self.tile * self.tile
        for first in range(0, whole, self.tile):
            rows = slice(first, first + self.tile)
            np.matmul(a[rows], b, out=out[rows])
        if whole < len(a):
            last = np.zeros((self.tile, a.shape[1]), a.dtype)
            last[: len(a) - whole] = a[whole:]
            out[whole:] = np.matmul(last, b)[: len(a) - whole]

    def product_of_columns(self, a: AnyArray, b: AnyArray, out: AnyArray) -> None:
        """Write ``a.T @ b`` to ``out``: the sum over all rows, added piece by piece."""
        if not isinstance(a, np.ndarray):
            from penstock.kernels.cuda.product import product_of_columns

            product_of_columns(a, b, out, tf32=self.tf32)
            return
        out[...] = 0
        cuts = _tall_cuts(len(a), _SUMMED_PIECES, _SUMMED_ROWS)
        self.sums(cuts, out, lambda i, j, part: np.matmul(a[i:j].T, b[i:j], out=part))


def even_cuts(first: int, last: int, width: int, *, whole: bool = False) -> list[int]:
    """Return cuts of rows of ``width`` values into pieces of the same size."""
    pieces = 1 if whole else min(_PIECES, max(1, (last - first) * width // _LEAST))
    return [first + (last - first) * i // pieces for i in range(pieces + 1)]


def _tall_cuts(rows: int, most: int, least: int) -> list[int]:
    pieces = min(most, max(1, rows // least))
    return [rows * i // pieces for i in range(pieces + 1)]


def edge_cuts(indptr: Array, first: int, last: int, width: int) -> list[int]:
    """Return cuts of rows into pieces of about equal numbers of edges, each at least a row."""
    low, high = int(indptr[first]), int(indptr[last])
    work = (high - low + last - first) * width
    pieces = min(_PIECES, max(1, work // _LEAST), max(1, last - first))
    if pieces == 1:
        return [first, last]
    # Rows cost too, so that a long tail of rows without edges is not one piece.
    targets = np.linspace(low + first, high + last, pieces + 1)[1:-1]
    cost = indptr[first : last + 1] + np.arange(first, last + 1)
    inner = first + np.searchsorted(cost, targets)
    cuts = np.unique(np.concatenate([[first], inner, [last]]))
    return [int(cut) for cut in cuts]
