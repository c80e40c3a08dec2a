"""Arrow IPC files (Feather), a few record batches at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pyarrow as pa

from penstock.pipelines.tables.parquet import check_names, naming, plain
from penstock.pipelines.tables.rows import BATCH_ROWS
from penstock.pipelines.tables.sources import open_file


@contextmanager
def open_arrow(path: str, columns: Sequence[str] | None = None) -> Iterator[Any]:
    """Open an Arrow IPC file to read some or all columns; raise if it is another format."""
    with open_file(path) as raw, _naming(path):
        file = pa.ipc.open_file(pa.PythonFile(raw, mode="r"))
        check_names(file.schema.names, path)
        if columns is not None:
            fields = sorted(file.schema.get_field_index(name) for name in columns)
            options = pa.ipc.IpcReadOptions(included_fields=fields, use_threads=False)
            raw.seek(0)
            file = pa.ipc.open_file(pa.PythonFile(raw, mode="r"), options=options)
        yield file


def read_batches(
    path: str, start: int, stop: int, columns: Sequence[str]
) -> Iterator[dict[str, pa.Array]]:
    """Read columns of the batches from ``start`` on and before ``stop`` (-1: to the end)."""
    with open_arrow(path, columns) as file:
        for number in range(start, file.num_record_batches if stop < 0 else stop):
            batch = file.get_batch(number)
            for first in range(0, batch.num_rows, BATCH_ROWS):
                part = batch.slice(first, BATCH_ROWS)
                yield {name: plain(part.column(name)) for name in columns}


def count_rows(path: str, batches: int, more: int) -> int:
    """Return the number of rows in the first ``batches``, plus ``more``."""
    with open_arrow(path) as file:
        before: int = sum(file.get_batch(number).num_rows for number in range(batches))
        return more + before


def _naming(path: str) -> AbstractContextManager[None]:
    return naming(path, "an Arrow IPC file", "a stream: write it with pyarrow.ipc.new_file")
