"""Release schedulers and workers that have ended, in a process that starts many of them.

Dask keeps what it found out about a server's handlers, bound methods, in a cache without a bound:
so every scheduler and worker that ever ran here would stay in memory, a quarter of a megabyte each
time. And Python keeps a finder for each of their folders, which are on its path for a while.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_THEIRS = "dask-scratch-space"


@contextmanager
def forgotten_at_the_end() -> Iterator[None]:
    """Have nothing stay of the schedulers and workers that start and end in the block."""
    try:
        yield
    finally:
        forget_ended_servers()


def forget_ended_servers() -> None:
    """Empty the caches that hold what has ended; what still runs is asked again."""
    from distributed import core

    clear = getattr(getattr(core, "_expects_comm", None), "cache_clear", None)
    if clear is not None:  # it is no public name, and may go
        clear()
    for folder in list(sys.path_importer_cache):
        if _THEIRS in folder and not Path(folder).exists():
            sys.path_importer_cache.pop(folder, None)
