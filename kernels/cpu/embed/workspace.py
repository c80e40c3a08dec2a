"""Threads, and memory that is used again: pages that are new cost as much as a pass."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Any

import numpy as np

from penstock.arrays import Array
from penstock.kernels.embed_rules import EmbedRules
from penstock.limits import cores
from penstock.threads import Threads


class Workspace(Threads):
    """Threads that take pieces, and buffers by name; BLAS uses one thread while it is entered."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self._shared: dict[str, Array] = {}
        self._own = threading.local()

    def each(self, work: Callable[[int], Any], pieces: int) -> None:
        """Call ``work`` with each number below ``pieces``, on all threads."""
        numbers = count()

        def take() -> None:
            # Of this thread: what is no number shows in the loss.
            with np.errstate(over="ignore", invalid="ignore"):
                while (number := next(numbers)) < pieces:
                    work(number)

        self.together(pieces, take)

    def shared(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
        """Return an array of all threads, with whatever is in it; ask for it in one of them."""
        return _part_of(self._shared, name, shape, dtype)

    def own(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
        """Return an array of this thread, with whatever is in it."""
        return _part_of(self._own.__dict__, name, shape, dtype)

    def marks(self, rows: int) -> Array:
        """Return (at least rows,) int32 of -1, to be left as they are found."""
        if len(self._shared.get("marks", ())) < rows:
            self._shared["marks"] = np.full(rows, -1, np.int32)
        return self._shared["marks"]


def workspace(
    threads: int | None = None, rules: EmbedRules | None = None
) -> AbstractContextManager[Any]:
    """Return what other functions are given as ``work``, to be entered.

    threads  at most; None: all cores that this process may use
    """
    return Workspace(threads or cores())


def entered(work: Any) -> AbstractContextManager[Any]:
    """Return a context that gives ``work``, or a workspace of one thread for None."""
    return Workspace(1) if work is None else nullcontext(work)


def _part_of(arrays: dict[str, Array], name: str, shape: tuple[int, ...], dtype: Any) -> Array:
    size = int(np.prod(shape))
    if name not in arrays or arrays[name].size < size:
        arrays[name] = np.empty(size, dtype)
    part: Array = arrays[name][:size].reshape(shape)
    return part
