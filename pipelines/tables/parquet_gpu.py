"""Row groups of a local Parquet file, decoded on this worker's GPU by cuDF."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.pipelines.tables.rows import BATCH_ROWS

if TYPE_CHECKING:
    import pyarrow as pa


def read_row_groups(
    metadata: Any, path: str, groups: range, columns: Sequence[str]
) -> Iterator[dict[str, pa.Array]]:
    """Read columns of some row groups; parquet.read_row_groups does the same on the CPU.

    metadata  of the file, read by pyarrow
    """
    import cudf

    together: list[int] = []
    rows = 0
    for group in groups:
        count = metadata.row_group(group).num_rows
        if together and rows + count > BATCH_ROWS:
            yield from _batches(cudf, path, together, columns)
            together, rows = [], 0
        together.append(group)
        rows += count
    if together:
        yield from _batches(cudf, path, together, columns)


def _batches(
    cudf: Any, path: str, groups: list[int], columns: Sequence[str]
) -> Iterator[dict[str, pa.Array]]:
    frame = cudf.read_parquet(path, columns=list(columns), row_groups=[groups])
    for start in range(0, len(frame), BATCH_ROWS):
        table = frame.iloc[start : start + BATCH_ROWS].to_arrow(preserve_index=False)
        yield {name: table.column(name).combine_chunks() for name in columns}
