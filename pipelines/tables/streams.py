"""Tables of other libraries in this process: anything with ``__arrow_c_stream__``.

A stream is written once, as an Arrow IPC file whose name is the digest of its content. So workers
read it like any file, and a resumed run recognises it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

from penstock.errors import UsageError
from penstock.files import sha256_of
from penstock.output import TABLES

_ROWS = 1 << 20  # of a batch: a piece is some batches


@runtime_checkable
class ArrowStream(Protocol):
    """A table, such as a DataFrame of Polars or pandas, a relation of DuckDB, a pyarrow.Table."""

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return its batches as a PyCapsule."""


class StreamFiles:
    """The files of the streams of one run, in the run's own folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path_of(self, source: Any, number: int = 0) -> Any:
        """Return the file of a stream, or of each stream of a list; anything else unchanged."""
        if isinstance(source, list | tuple):
            return [self.path_of(one, place) for place, one in enumerate(source)]
        if isinstance(source, str | os.PathLike) or not isinstance(source, ArrowStream):
            return source
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = self.folder / f".{uuid4().hex}"
        try:
            # The files of a list are read in the order of their names, and equal tables stay two.
            _write(source, temporary)
            path = self.folder / f"{number:05d}-{sha256_of(temporary)}.arrow"
            if not path.exists():  # else it stays unchanged: an interrupted run has read it
                temporary.rename(path)
        finally:
            temporary.unlink(missing_ok=True)
        return path


@contextmanager
def stream_files(out: Path, scratch: Path | None) -> Iterator[StreamFiles]:
    """Yield a folder for the streams of the run that writes ``out``.

    It stays for ``--resume`` if the output is unfinished.
    """
    files = StreamFiles((scratch or out.parent) / f".{out.name}{TABLES}")
    try:
        yield files
    finally:
        if not (out.parent / f".{out.name}.partial").exists():
            shutil.rmtree(files.folder, ignore_errors=True)


def _write(source: ArrowStream, path: Path) -> None:
    import pyarrow as pa

    from penstock.pipelines.tables.parquet import plain

    try:
        reader = pa.RecordBatchReader.from_stream(source)
    except (pa.ArrowException, TypeError) as error:
        raise UsageError(f"a {type(source).__name__} is not a table", got=str(error)) from error
    names = reader.schema.names
    schema = pa.schema([(f.name, plain(pa.nulls(0, f.type)).type) for f in reader.schema])
    with path.open("xb") as file, pa.ipc.new_file(file, schema) as writer:
        for batch in reader:
            # Batches may have dictionaries of their own, which such a file cannot hold.
            columns = [plain(column) for column in batch.columns]
            whole = pa.RecordBatch.from_arrays(columns, names)
            for start in range(0, whole.num_rows, _ROWS):
                writer.write_batch(whole.slice(start, _ROWS))
