"""Files in pieces of about equal size, one per task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from penstock.pipelines.tables.parquet import column_bytes

TARGET = 64 << 20  # bytes of a piece


@dataclass(frozen=True)
class Piece:
    """What one task reads: a whole file, row groups, batches, or a range of bytes."""

    path: str  # local path or fsspec URL
    format: str  # parquet, arrow, csv, tsv, edgelist, triples, npz, json, edgelists, tu
    start: int = 0  # first row group, batch or byte
    stop: int = -1  # one past the last; -1: to the end
    bytes: int = 0  # size on disk, for balance and progress
    rows: int = 0  # 0: the file does not say
    number: int = 0  # position among all pieces: fixes the order of results
    files: tuple[str, ...] = ()  # of edgelists: its files, one graph each
    names: tuple[str, ...] = ()  # of these graphs; of JSON the file's, if there are several


def row_group_pieces(
    path: str, metadata: object, columns: Sequence[str], target: int
) -> Iterator[Piece]:
    """Cut a Parquet file by the uncompressed bytes of its columns."""
    start = raw = packed = rows = 0
    groups: int = metadata.num_row_groups  # type: ignore[attr-defined]
    for group in range(groups):
        more_raw, more_packed = column_bytes(metadata, group, columns)
        if raw and raw + more_raw > target:
            yield Piece(path, "parquet", start, group, packed, rows)
            start, raw, packed, rows = group, 0, 0, 0
        raw, packed = raw + more_raw, packed + more_packed
        rows += metadata.row_group(group).num_rows  # type: ignore[attr-defined]
    if rows:
        yield Piece(path, "parquet", start, groups, packed, rows)


def batch_pieces(path: str, batches: int, size: int, target: int) -> Iterator[Piece]:
    """Cut an Arrow IPC file into runs of batches."""
    count = min(batches, -(-size // target))
    for i in range(count):
        start, stop = batches * i // count, batches * (i + 1) // count
        yield Piece(path, "arrow", start, stop, size // count)


def byte_range_pieces(
    path: str, kind: str, size: int, target: int, *, whole: bool
) -> Iterator[Piece]:
    """Cut a text file into ranges of bytes; a range extends to the end of its last line."""
    if whole or size <= target:
        yield Piece(path, kind, 0, -1, size)
        return
    count = -(-size // target)
    for i in range(count):
        start, stop = size * i // count, size * (i + 1) // count
        yield Piece(path, kind, start, stop, stop - start)
