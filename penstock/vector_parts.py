"""The Parquet files of vectors, ``part-00000.parquet`` and so on, with some rows each.

Exports write them, and ranks that trained vectors, while the .npy files are written.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_arrow, write_parquet
from penstock.files import FileEntry, file_entry, part_name

if TYPE_CHECKING:
    import pyarrow as pa

PART_BYTES = 1 << 27  # of the vectors in one file


def rows_of_part(dimension: int) -> int:
    """Return the number of rows per file, except for the last one."""
    return max(1, PART_BYTES // max(dimension * 4, 1))


def save_part(
    folder: Path, number: int, ids: pa.Array, values: Array, counts: Array | None
) -> FileEntry:
    """Write the rows of one file: columns id, vector, and count if there are counts."""
    import pyarrow as pa

    columns = {"id": ids, "vector": vector_lists(values)}
    if counts is not None:
        columns["count"] = as_arrow(np.asarray(counts))
    return save_table(folder, f"{part_name(number)}.parquet", pa.table(columns))


def vector_lists(values: Array) -> pa.Array:
    """Return rows of numbers as Arrow lists of a fixed size, sharing their memory."""
    import pyarrow as pa

    flat = as_arrow(values.reshape(-1))
    return pa.FixedSizeListArray.from_arrays(flat, int(values.shape[1]))


def save_table(folder: Path, name: str, table: pa.Table) -> FileEntry:
    """Write ids and vectors as Parquet.

    Floats are as good as random: they are not compressed, and page statistics are of no use.
    """
    names = table.column_names
    compression = dict.fromkeys(names, "zstd")
    if compression.pop("vector", None):
        compression["vector.list.element"] = "none"
    write_parquet(
        folder / name,
        [table],
        rows=1 << 18,
        compression=compression,
        use_dictionary=False,
        write_statistics=[each for each in names if each != "vector"],
    )
    return file_entry(folder, name)
