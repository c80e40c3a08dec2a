"""Files of a table that kvikio reads into GPU memory, with GPUDirect Storage.

Without GPUDirect Storage, kvikio reads by POSIX through its own pinned buffers, as
``PartitionFiles`` does.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from penstock.arrays import AnyArray
from penstock.workers.embed.storage.direct import (
    OpenFile,
    PartitionFiles,
    reading,
    short_file,
    writing,
)


def has_gds() -> bool:
    """Return whether kvikio is installed and GPUDirect Storage works here."""
    if find_spec("kvikio") is None:
        return False
    try:
        import kvikio.cufile_driver
        import kvikio.defaults
    except (ImportError, OSError):  # a library that it needs is missing
        return False
    # In this order: KVIKIO_COMPAT_MODE=ON avoids a query that a missing driver cannot answer.
    if kvikio.defaults.is_compat_mode_preferred():
        return False
    return bool(kvikio.cufile_driver.get("is_gds_available"))


class _KvikioFile(OpenFile):
    """The open file of a version, opened by kvikio, too."""

    def __init__(self, opened: OpenFile, *, to_write: bool) -> None:
        super().__init__(opened.path, opened.fd, is_direct=opened.is_direct)
        import kvikio

        try:
            self.file: Any = kvikio.CuFile(self.path, "r+" if to_write else "r")
        except BaseException:
            super().close()
            raise

    def close(self) -> None:
        """Close both."""
        super().close()
        self.file.close()


class KvikioFiles(PartitionFiles):
    """A table whose slots are in the current GPU's memory, moved by kvikio."""

    def open(self, partition: int, *, to_write: bool) -> OpenFile:
        """Open the file of a partition."""
        import kvikio.defaults

        opened = super().open(partition, to_write=to_write)
        # Without GPUDirect Storage: still past the page cache, if this file
        # system lets us, and as many requests at once as this table makes.
        kvikio.defaults.set(
            {
                "auto_direct_io_read": opened.is_direct,
                "auto_direct_io_write": opened.is_direct,
                "num_threads": self.threads,
            }
        )
        return _KvikioFile(opened, to_write=to_write)

    def store_chunk(self, file: Any, memory: AnyArray, offset: int) -> None:
        """Write a slot's bytes at ``offset``."""
        with _explained(writing, file.path, offset):
            written = file.file.pwrite(memory, file_offset=offset).get()
        assert written == memory.nbytes

    def load_chunk(self, file: Any, memory: AnyArray, offset: int) -> None:
        """Read a slot's bytes from ``offset``."""
        with _explained(reading, file.path, offset):
            read = file.file.pread(memory, file_offset=offset).get()
        if read != memory.nbytes:
            raise short_file(file.path, offset + read)


@contextmanager
def _explained(how: Any, path: Path, offset: int) -> Iterator[None]:
    """Turn an error of kvikio, which has no number, into an OSError."""
    with how(path, offset):
        try:
            yield
        except RuntimeError as error:
            raise OSError(errno.EIO, str(error)) from error
