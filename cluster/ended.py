"""Release schedulers and workers that have ended, in a process that starts many of them.

Dask caches what it learned about a server's handlers, bound methods, without a bound: so every
scheduler and worker of this process would stay in memory, a quarter of a megabyte each. Python also
keeps a finder for each of their folders, which are on its path for a while.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_THEIRS = "dask-scratch-space"


@contextmanager
def forgotten_at_the_end() -> Iterator[None]:
    """Release the schedulers and workers that start and end in the block."""
    try:
        yield
    finally:
        from distributed import core

        clear = getattr(getattr(core, "_expects_comm", None), "cache_clear", None)
        if clear is not None:  # a private name, which may disappear
            clear()  # running ones fill it again
        for folder in list(sys.path_importer_cache):
            if _THEIRS in folder and not Path(folder).exists():
                sys.path_importer_cache.pop(folder, None)
