"""A table read into a GPU's memory by kvikio, with GPUDirect Storage.

Where a machine has none, kvikio would read by POSIX through pinned buffers of its own. So does
``DirectFile``, which takes half as long for a swap while kernels train, since its sums are the
host's (benchmarks/results/embed.md). Pages that say which version a place holds are small and go
through host memory.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from penstock.arrays import AnyArray
from penstock.workers.embed.storage import THREADS, Geometry
from penstock.workers.embed.storage.direct import DirectFile, reading, short_file, writing
from penstock.workers.embed.storage.place import sum_of


def has_gds() -> bool:
    """Return whether kvikio is installed, and moves data by GPUDirect Storage here."""
    if find_spec("kvikio") is None:
        return False
    try:
        import kvikio.cufile_driver
        import kvikio.defaults
    except (ImportError, OSError):  # without a library that it needs
        return False
    # In this order: KVIKIO_COMPAT_MODE=ON keeps from a driver that cannot be asked.
    if kvikio.defaults.is_compat_mode_preferred():
        return False
    return bool(kvikio.cufile_driver.get("is_gds_available"))


class KvikioFile(DirectFile):
    """A table whose slots are in the current GPU's memory, moved by kvikio."""

    def __init__(
        self,
        path: Path,
        geometry: Geometry,
        *,
        threads: int = THREADS,
        device: bool = True,
        read_only: bool = False,
    ) -> None:
        super().__init__(path, geometry, threads=threads, device=device, read_only=read_only)
        import kvikio
        import kvikio.defaults

        # Without GPUDirect Storage: still past the page cache, if this file
        # system lets us, and as many requests at once as this table makes.
        direct = self.why_not_direct is None
        kvikio.defaults.set(
            {
                "auto_direct_io_read": direct,
                "auto_direct_io_write": direct,
                "num_threads": threads,
            }
        )
        try:
            self._file: Any = kvikio.CuFile(self.path, "r" if read_only else "r+")
        except BaseException:
            super().close()
            raise

    def store_chunk(self, memory: AnyArray, offset: int) -> int:
        """Write a slot's bytes at ``offset``; return their sum, computed where they are."""
        with _explained(writing, self.path, offset):
            written = self._file.pwrite(memory, file_offset=offset).get()
        assert written == memory.nbytes
        return sum_of(memory.view(np.uint64))

    def load_chunk(self, memory: AnyArray, offset: int) -> int:
        """Read a slot's bytes from ``offset``; return their sum, computed where they are."""
        with _explained(reading, self.path, offset):
            read = self._file.pread(memory, file_offset=offset).get()
        if read != memory.nbytes:
            raise short_file(self.path, offset + read)
        return sum_of(memory.view(np.uint64))

    def close(self) -> None:
        """Wait for what is in flight, and close the file."""
        super().close()
        self._file.close()


@contextmanager
def _explained(how: Any, path: Path, offset: int) -> Iterator[None]:
    """Explain an error of kvikio, which has no number, like one of the system."""
    with how(path, offset):
        try:
            yield
        except RuntimeError as error:
            raise OSError(errno.EIO, str(error)) from error
