"""Writing a graph: files from any process, the manifest once, the directory in one rename."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.arrays import Array
from penstock.arrow import as_numbers, write_parquet
from penstock.csr import CSR, offsets_of
from penstock.errors import InputError
from penstock.files import FileEntry, file_entry, save_npy
from penstock.graph import Graph, count_splits
from penstock.manifest import FeatureEntry, Manifest, ShardEntry
from penstock.output import Output
from penstock.paths import client_path

if TYPE_CHECKING:
    import pyarrow as pa

# About 64 MB of indices: large enough for full disk speed, small enough to sort in a worker.
SHARD_EDGES = 1 << 24
FEATURE_FILE_BYTES = 1 << 28
ROWS = 1 << 20  # of a table made at a time: a row group


def write_shard(root: Path, number: int, csr: CSR) -> dict[str, Any]:
    """Write one row range, and return its part of the manifest, fit for JSON.

    Any process may do this, repeatedly.
    """
    folder = f"shards/{number:05d}"
    files = [save_npy(root, f"{folder}/{name}.npy", array) for name, array in csr.arrays()]
    return {
        "rows": csr.rows,
        "edges": csr.edges,
        "files": [asdict(entry) for entry in files],
        "dtypes": {name: str(array.dtype) for name, array in csr.arrays()},
    }


def with_shards(manifest: Manifest, written: Sequence[dict[str, Any]]) -> Manifest:
    """Return the manifest with all shards in order, as ``write_shard`` returned them."""
    starts = offsets_of(np.array([one["rows"] for one in written])).tolist()
    edges = [one["edges"] for one in written]
    whole = replace(
        manifest,
        nodes=starts[-1],
        edges=sum(edges),
        shards=tuple(map(ShardEntry, starts, starts[1:], edges)),
        dtypes=written[0]["dtypes"],
    )
    return whole.with_files(FileEntry(**entry) for one in written for entry in one["files"])


def write_table(root: Path, name: str, tables: Iterable[pa.Table], **how: Any) -> FileEntry:
    """Write tables as ``root/name`` and return its entry: see ``write_parquet``."""
    write_parquet(root / name, tables, **how)
    return file_entry(root, name)


def write_rows(
    root: Path, name: str, rows: int, rows_of: Callable[[int, int], pa.Table], **how: Any
) -> FileEntry:
    """Write the table whose rows ``rows_of(start, stop)`` gives, a row group at a time."""
    tables = (rows_of(start, min(start + ROWS, rows)) for start in range(0, max(rows, 1), ROWS))
    return write_table(root, name, tables, **how)


def write_feature_files(
    root: Path, nodes: int, width: int, rows_of: Callable[[int, int], Any]
) -> tuple[FeatureEntry, list[FileEntry]]:
    """Write features that ``rows_of(start, stop)`` gives, dense or SciPy CSR, in row-range files of
    about 256 MB.
    """
    first = rows_of(0, min(nodes, 1024))
    size = (first.data.nbytes * 2 if hasattr(first, "tocsr") else first.nbytes) + 1
    rows = max(1, FEATURE_FILE_BYTES * max(first.shape[0], 1) // size)
    starts = tuple(range(0, max(nodes, 1), rows))
    files: list[FileEntry] = []
    nonzeros = 0
    for number, start in enumerate(starts):
        piece = rows_of(start, min(start + rows, nodes))
        stem = f"features/{number:05d}"
        if hasattr(piece, "tocsr"):
            piece = piece.tocsr()
            nonzeros += int(piece.nnz)
            for part in ("indptr", "indices", "data"):
                files.append(save_npy(root, f"{stem}.{part}.npy", getattr(piece, part)))
        else:
            nonzeros += int(np.count_nonzero(piece))
            files.append(save_npy(root, f"{stem}.npy", piece))
    kind = "sparse" if hasattr(first, "tocsr") else "dense"
    return FeatureEntry(kind, width, str(first.dtype), starts, nonzeros), files


@contextmanager
def create_graph(path: str | Path, *, overwrite: bool = False) -> Iterator[GraphWriter]:
    """Write a graph that fits in memory piece by piece; it appears at ``path`` when complete.

    with create_graph("g", overwrite=True) as writer:
        writer.edges(csr)
        writer.nodes(ids, label=labels)
        writer.manifest = replace(writer.manifest, directed=False)
    """
    with Output(client_path(path), kind="graph", overwrite=overwrite).open() as out:
        root = out.result
        writer = GraphWriter(root)
        yield writer
        writer.check()
        writer.manifest.save(root)
        Graph.open(root)


class GrowingGraph:
    """The directory of a graph in progress, and its growing manifest.

    No part has to fit in memory as a whole.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.manifest = Manifest(0, 0, True, (), {}, {})

    def add(self, *entries: FileEntry, **changes: Any) -> None:
        """List written files, and change other parts of the manifest."""
        self.manifest = replace(self.manifest.with_files(entries), **changes)

    def shards(self, written: Sequence[dict[str, Any]]) -> None:
        """List all shards, as ``write_shard`` returned them."""
        self.manifest = with_shards(self.manifest, written)

    def node_rows(self, columns: Callable[[int, int], dict[str, Any]]) -> None:
        """Write nodes.parquet from ``columns(first, count)``, which returns it for some rows."""
        import pyarrow as pa

        def table(start: int, stop: int) -> pa.Table:
            return pa.table(columns(start, stop - start))

        how = as_numbers(table(0, 0).schema)
        self.add(write_rows(self.root, "nodes.parquet", self.manifest.nodes, table, **how))

    def feature_rows(
        self, rows: int, width: int, rows_of: Callable[[int, int], Any], **more: Any
    ) -> None:
        """Write node features from ``rows_of(start, stop)``, dense or SciPy CSR."""
        entry, files = write_feature_files(self.root, rows, width, rows_of)
        self.add(*files, features=entry, **more)


class GraphWriter(GrowingGraph):
    """Writes a graph whose arrays are in memory."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._rows: dict[str, int] = {}

    def edges(self, csr: CSR, *, shard_edges: int = SHARD_EDGES) -> None:
        """Write all edges of a graph, cut into shards of about ``shard_edges``."""
        cuts = enumerate(row_cuts(csr.indptr, shard_edges))
        self.shards([write_shard(self.root, n, csr.row_range(*rows)) for n, rows in cuts])

    def nodes(self, ids: Any = None, **columns: Any) -> None:
        """Write nodes.parquet: user ids (default 0, 1, ...) and ``label``, ``split``, ``graph``."""
        import pyarrow as pa

        ids = np.arange(self.manifest.nodes, dtype=np.int64) if ids is None else ids
        table = pa.table({"id": ids, **{k: v for k, v in columns.items() if v is not None}})
        self.add(write_table(self.root, "nodes.parquet", [table]))
        self._rows["nodes"] = table.num_rows
        if "split" in table.column_names:
            self.add(splits=count_splits(np.asarray(table.column("split").fill_null(-1))))

    def features(self, features: Any, names: Sequence[str] | None = None) -> None:
        """Write node features, dense or SciPy sparse; ``names`` of the columns, all different."""
        if names is not None and not len(names) == len({*names}) == features.shape[1]:
            raise InputError(
                f"{len({*names})} different names do not fit {features.shape[1]} features",
                expected="a name for each column, all different",
            )
        rows = features.tocsr() if hasattr(features, "tocsr") else np.asarray(features)
        self._rows["features"] = features.shape[0]
        named = None if names is None else tuple(names)
        count, width = features.shape
        self.feature_rows(count, width, lambda a, b: rows[a:b], feature_names=named)

    def check(self) -> None:
        """Raise InputError unless edges and nodes were written and every row has its node."""
        if not self.manifest.shards or "nodes" not in self._rows:
            raise InputError("a graph was started but not finished", expected="edges() and nodes()")
        for what, rows in self._rows.items():
            if rows != self.manifest.nodes:
                raise InputError(
                    f"{rows} rows of {what} do not fit {self.manifest.nodes} nodes",
                    remedy="Give one row per node, in the order of the rows of the CSR",
                )


def row_cuts(indptr: Array, shard_edges: int) -> list[tuple[int, int]]:
    """Cut rows into consecutive ranges of at most ``shard_edges`` edges (or one row)."""
    rows = len(indptr) - 1
    cuts, start = [], 0
    while start < rows:
        stop = int(np.searchsorted(indptr, indptr[start] + shard_edges, side="right")) - 1
        stop = min(max(stop, start + 1), rows)
        cuts.append((start, stop))
        start = stop
    return cuts or [(0, 0)]
