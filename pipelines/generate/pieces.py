"""A graph written piece by piece: no part of it has to fit in memory as a whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.writer import GrowingGraph, write_feature_files, write_rows

if TYPE_CHECKING:
    import pyarrow as pa


class Pieces(GrowingGraph):
    """Writes a graph from a source that yields some rows at a time."""

    def nodes(self, columns: Callable[[int, int], dict[str, Any]]) -> None:
        """Write nodes.parquet from ``columns(first, count)``, which returns it for some rows."""
        import pyarrow as pa

        def table(start: int, stop: int) -> pa.Table:
            return pa.table(columns(start, stop - start))

        how = as_numbers(table(0, 0).schema)
        self.add(write_rows(self.root, "nodes.parquet", self.manifest.nodes, table, **how))

    def features(self, width: int, rows_of: Callable[[int, int], Any]) -> None:
        """Write node features from ``rows_of(start, stop)``, dense or SciPy CSR."""
        entry, files = write_feature_files(self.root, self.manifest.nodes, width, rows_of)
        self.add(*files, features=entry)


def as_numbers(schema: pa.Schema) -> dict[str, Any]:
    """Return how columns are written whose integers are ascending, or nearly so."""
    import pyarrow as pa

    numbers = [field.name for field in schema if pa.types.is_integer(field.type)]
    encoding = dict.fromkeys(numbers, "DELTA_BINARY_PACKED")
    return {"use_dictionary": False, "column_encoding": encoding}
