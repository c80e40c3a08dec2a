"""The memory and the threads of a run that generates."""

from __future__ import annotations

import numpy as np

from penstock.arrays import Array
from penstock.kernels.cpu.scramble import scramble
from penstock.limits import available_memory, cores
from penstock.sizes import need_memory, parse_bytes
from penstock.threads import spread

# Beyond this many threads, the memory of their shards outgrows the gain.
MOST_THREADS = 8
_SHUFFLED = 1 << 18  # ids shuffled at a time
INTERPRETER = 300_000_000  # Python, NumPy, Numba and Arrow


def shuffle(seed: int, stream: int, size: int, threads: int) -> Array:
    """Return the position of each of ``size`` ids in a keyed shuffle: (size,) int32."""
    moved = np.empty(size, np.int32)

    def fill(first: int) -> None:
        count = min(_SHUFFLED, size - first)
        moved[first : first + count] = scramble(seed, stream, first, count, size)

    spread(fill, range(0, size, _SHUFFLED), threads)
    return moved


class Budget:
    """Memory that a run may use, and its reserved parts."""

    def __init__(self, memory: str | None = None, threads: int | None = None) -> None:
        self.limit = parse_bytes(memory) if memory else available_memory() // 2
        self.threads = threads or min(cores(), MOST_THREADS)
        self.left = self.limit

    def take(self, size: int, purpose: str) -> None:
        """Reserve ``size`` bytes, or raise CapacityError."""
        remedy = "Make a smaller graph, or allow more with --memory"
        need_memory(self.limit - self.left + size, purpose, remedy=remedy, limit=self.limit)
        self.left -= size

    def take_per_thread(self, size: int, purpose: str) -> None:
        """Reserve ``size`` bytes per thread, with fewer threads if that does not fit."""
        self.threads = max(1, min(self.threads, self.left // max(size, 1)))
        self.take(self.threads * size, purpose)
