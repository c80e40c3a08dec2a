"""Parquet tables and features written piece by piece, so that they need not fit in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.csr import Array
from penstock.files import FileEntry, atomic, file_entry, save_npy
from penstock.kernels.cpu.philox import random_words
from penstock.kernels.streams import Stream
from penstock.manifest import FeatureEntry
from penstock.pipelines.generate.threads import each
from penstock.writer import FEATURE_FILE_BYTES

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.writer import GraphWriter

ROWS = 1 << 20  # rows made at a time: a row group


def write_table(root: Path, name: str, tables: Iterable[pa.Table]) -> FileEntry:
    """Write tables of one schema, one after another, as one Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    with atomic(root / name) as temporary:
        writer = None
        try:
            for table in tables:
                if writer is None:
                    numbers = [f.name for f in table.schema if pa.types.is_integer(f.type)]
                    writer = pq.ParquetWriter(
                        temporary, table.schema, compression="zstd", use_dictionary=False,
                        column_encoding=dict.fromkeys(numbers, "DELTA_BINARY_PACKED"),
                    )  # fmt: skip
                writer.write_table(table, row_group_size=ROWS)
        finally:
            if writer is not None:
                writer.close()
    return file_entry(root, name)


def write_nodes(
    writer: GraphWriter, nodes: int, columns: Callable[[int, int], dict[str, Any]]
) -> None:
    """Write nodes.parquet from ``columns(first, count)``, which gives its columns for some rows."""
    import pyarrow as pa

    pieces = (
        pa.table(columns(first, min(ROWS, nodes - first))) for first in range(0, max(nodes, 1), ROWS)
    )
    writer.add_file(write_table(writer.root, "nodes.parquet", pieces))


def node_splits(seed: int, first: int, count: int, shares: tuple[float, float, float]) -> Array:
    """Return 0, 1, 2 (train, valid, test) or -1 for some nodes, by chance: (count,) int8."""
    words = random_words(seed, Stream.SPLIT_NODES, first, count)[:, 0]
    borders = np.cumsum(shares) * 2.0**32
    number = np.searchsorted(borders, words.astype(np.float64), side="right").astype(np.int8)
    number[number == len(shares)] = -1
    return number


def write_dense(
    writer: GraphWriter, nodes: int, width: int, rows: Callable[[int, int], Array], threads: int
) -> None:
    """Write dense float32 features from ``rows(first, count)``, file by file."""
    step = max(1, FEATURE_FILE_BYTES // (4 * width))
    starts = tuple(range(0, max(nodes, 1), step))

    def write(number: int) -> tuple[FileEntry, int]:
        array = rows(starts[number], min(step, nodes - starts[number]))
        nonzeros = int(np.count_nonzero(array))
        return save_npy(writer.root, f"features/{number:05d}.npy", array), nonzeros

    total = 0
    for entry, nonzeros in each(write, range(len(starts)), threads):
        writer.add_file(entry)
        total += nonzeros
    feature = FeatureEntry("dense", width, "float32", starts, total)
    writer.manifest = replace(writer.manifest, features=feature)


def write_sparse(
    writer: GraphWriter, nodes: int, width: int, per_row: int,
    rows: Callable[[int, int], tuple[Array, Array]], threads: int,
) -> None:  # fmt: skip
    """Write sparse features from ``rows(first, count)``, which gives indptr and indices of ones."""
    step = max(1, FEATURE_FILE_BYTES // (8 * per_row))
    starts = tuple(range(0, max(nodes, 1), step))

    def write(number: int) -> tuple[list[FileEntry], int]:
        indptr, indices = rows(starts[number], min(step, nodes - starts[number]))
        arrays = {"indptr": indptr, "indices": indices, "data": np.ones(len(indices), np.float32)}
        stem = f"features/{number:05d}"
        entries = [save_npy(writer.root, f"{stem}.{k}.npy", v) for k, v in arrays.items()]
        return entries, len(indices)

    total = 0
    for entries, nonzeros in each(write, range(len(starts)), threads):
        for entry in entries:
            writer.add_file(entry)
        total += nonzeros
    feature = FeatureEntry("sparse", width, "float32", starts, total)
    writer.manifest = replace(writer.manifest, features=feature)
