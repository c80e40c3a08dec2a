"""Threads, and memory that is reused: new pages cost as much as a pass."""

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
    """Threads that process pieces, and named buffers; BLAS uses one thread while it is entered."""

    def __init__(self, threads: int) -> None:
        super().__init__(threads)
        self._shared: dict[str, Array] = {}
        self._own = threading.local()

    def each(self, work: Callable[[int], Any], pieces: int) -> None:
        """Call ``work`` with each number below ``pieces``, on all threads."""
        numbers = count()

        def take() -> None:
            # Per thread; NaN and infinity show in the loss.
            with np.errstate(over="ignore", invalid="ignore"):
                while (number := next(numbers)) < pieces:
                    work(number)

        self.together(pieces, take)

    def shared(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
        """Return an array of all threads, uninitialised; call it in one of them."""
        return _part_of(self._shared, name, shape, dtype)

    def own(self, name: str, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
        """Return an array of this thread, uninitialised."""
        return _part_of(self._own.__dict__, name, shape, dtype)

    def marks(self, rows: int) -> Array:
        """Return (at least rows,) int32 of -1; the caller must restore -1."""
        if len(self._shared.get("marks", ())) < rows:
            self._shared["marks"] = np.full(rows, -1, np.int32)
        return self._shared["marks"]


def workspace(
    threads: int | None = None, rules: EmbedRules | None = None
) -> AbstractContextManager[Any]:
    """Return the context manager for other functions' ``work``; here they need none.

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
